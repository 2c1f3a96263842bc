//! Names of the Web Cryptography API: algorithms, usages, formats, hash functions, curves.

use rquickjs::{Array, Ctx, Exception, Result, Value};

use crate::crypto::digest::Hash;
use crate::native::{self, to_bool};
use crate::value::text;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    RsaPkcs1,
    RsaPss,
    RsaOaep,
    Hmac,
    AesGcm,
    AesCtr,
    AesCbc,
    AesKw,
    Ecdsa,
    Ecdh,
    Ed25519,
    X25519,
    Pbkdf2,
    Hkdf,
}

/// What a key may be used for: bits in the order in which `usages` lists them.
pub mod usage {
    pub(crate) const DECRYPT: u32 = 1;
    pub(crate) const DERIVE_BITS: u32 = 1 << 1;
    pub(crate) const DERIVE_KEY: u32 = 1 << 2;
    pub(crate) const ENCRYPT: u32 = 1 << 3;
    pub(crate) const SIGN: u32 = 1 << 4;
    pub(crate) const UNWRAP: u32 = 1 << 5;
    pub const VERIFY: u32 = 1 << 6;
    pub(crate) const WRAP: u32 = 1 << 7;

    pub const NAMES: &[(&str, u32)] = &[
        ("decrypt", DECRYPT),
        ("deriveBits", DERIVE_BITS),
        ("deriveKey", DERIVE_KEY),
        ("encrypt", ENCRYPT),
        ("sign", SIGN),
        ("unwrapKey", UNWRAP),
        ("verify", VERIFY),
        ("wrapKey", WRAP),
    ];
}

/// A format of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Raw,
    Pkcs8,
    Spki,
    Jwk,
}

/// A curve of ECDSA and ECDH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    P256,
    P384,
    P521,
}

const ALGORITHMS: &[(&str, Algorithm, u32)] = {
    use usage::*;
    const CIPHER: u32 = ENCRYPT | DECRYPT | WRAP | UNWRAP;
    const SIGNATURE: u32 = SIGN | VERIFY;
    const DERIVATION: u32 = DERIVE_BITS | DERIVE_KEY;
    &[
        ("RSASSA-PKCS1-v1_5", Algorithm::RsaPkcs1, SIGNATURE),
        ("RSA-PSS", Algorithm::RsaPss, SIGNATURE),
        ("RSA-OAEP", Algorithm::RsaOaep, CIPHER),
        ("HMAC", Algorithm::Hmac, SIGNATURE),
        ("AES-GCM", Algorithm::AesGcm, CIPHER),
        ("AES-CTR", Algorithm::AesCtr, CIPHER),
        ("AES-CBC", Algorithm::AesCbc, CIPHER),
        ("AES-KW", Algorithm::AesKw, WRAP | UNWRAP),
        ("ECDSA", Algorithm::Ecdsa, SIGNATURE),
        ("ECDH", Algorithm::Ecdh, DERIVATION),
        ("Ed25519", Algorithm::Ed25519, SIGNATURE),
        ("X25519", Algorithm::X25519, DERIVATION),
        ("PBKDF2", Algorithm::Pbkdf2, DERIVATION),
        ("HKDF", Algorithm::Hkdf, DERIVATION),
    ]
};

impl Algorithm {
    /// The algorithm that an argument names: a string, or an object with a `name`. Case does not
    /// matter.
    pub fn of(value: &Value<'_>) -> Result<Algorithm> {
        let name = match value.as_object().filter(|_| !value.is_string()) {
            Some(object) => text(&object.get::<_, Value<'_>>("name")?)?,
            None if value.is_string() => text(value)?,
            None => return Err(Exception::throw_type(value.ctx(), "algorithm name is missing")),
        };
        let found = ALGORITHMS.iter().find(|entry| entry.0.eq_ignore_ascii_case(&name));
        found.map(|entry| entry.1).ok_or_else(|| {
            Exception::throw_type(value.ctx(), &format!("unknown algorithm name: \"{name}\""))
        })
    }

    fn entry(self) -> &'static (&'static str, Algorithm, u32) {
        let found = ALGORITHMS.iter().find(|entry| entry.1 == self);
        found.expect("every algorithm has an entry")
    }

    pub fn name(self) -> &'static str {
        self.entry().0
    }

    /// What its keys can be used for.
    pub fn usages(self) -> u32 {
        self.entry().2
    }

    /// Whether its keys are bytes that both sides know.
    pub fn is_secret(self) -> bool {
        self.is_aes() || matches!(self, Algorithm::Hmac | Algorithm::Pbkdf2 | Algorithm::Hkdf)
    }

    /// Whether it is a mode of AES.
    pub(crate) fn is_aes(self) -> bool {
        use Algorithm::*;
        matches!(self, AesGcm | AesCtr | AesCbc | AesKw)
    }

    /// Whether its keys are RSA's.
    pub fn is_rsa(self) -> bool {
        use Algorithm::*;
        matches!(self, RsaPkcs1 | RsaPss | RsaOaep)
    }
}

impl Format {
    /// The format that an argument names.
    pub fn of(value: &Value<'_>) -> Result<Format> {
        let name = text(value)?;
        Ok(match name.as_str() {
            "raw" => Format::Raw,
            "pkcs8" => Format::Pkcs8,
            "spki" => Format::Spki,
            "jwk" => Format::Jwk,
            _ => {
                let message = format!("unknown key format: \"{name}\"");
                return Err(Exception::throw_type(value.ctx(), &message));
            }
        })
    }
}

impl Curve {
    /// The curve that an algorithm's `namedCurve` names.
    pub fn of(value: &Value<'_>) -> Result<Curve> {
        let name = match value.as_object() {
            Some(object) => text(&object.get::<_, Value<'_>>("namedCurve")?)?,
            None => String::new(),
        };
        Curve::named(&name).ok_or_else(|| {
            Exception::throw_type(value.ctx(), &format!("unknown namedCurve: \"{name}\""))
        })
    }

    /// The curve of that name.
    pub fn named(name: &str) -> Option<Curve> {
        Some(match name {
            "P-256" => Curve::P256,
            "P-384" => Curve::P384,
            "P-521" => Curve::P521,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Curve::P256 => "P-256",
            Curve::P384 => "P-384",
            Curve::P521 => "P-521",
        }
    }

    /// Bytes of a coordinate.
    pub fn bytes(self) -> usize {
        match self {
            Curve::P256 => 32,
            Curve::P384 => 48,
            Curve::P521 => 66,
        }
    }
}

const HASHES: &[(&str, Hash)] = &[
    ("SHA-256", Hash::Sha256),
    ("SHA-384", Hash::Sha384),
    ("SHA-512", Hash::Sha512),
    ("SHA-1", Hash::Sha1),
];

/// The hash function that a value names: a string, or an object with a `name`.
pub fn hash(value: &Value<'_>) -> Result<Hash> {
    let name = match value.as_object() {
        Some(object) => text(&object.get::<_, Value<'_>>("name")?)?,
        None => text(value)?,
    };
    let found = HASHES.iter().find(|entry| entry.0.eq_ignore_ascii_case(&name));
    found.map(|entry| entry.1).ok_or_else(|| {
        Exception::throw_type(value.ctx(), &format!("unknown hash name: \"{name}\""))
    })
}

/// The hash function of an algorithm's member `hash`.
pub fn hash_of(algorithm: &Value<'_>) -> Result<Hash> {
    match algorithm.as_object() {
        Some(object) => hash(&object.get::<_, Value<'_>>("hash")?),
        None => Err(Exception::throw_type(algorithm.ctx(), "algorithm.hash is not provided")),
    }
}

/// The API's name of a hash function.
pub(crate) fn hash_name(hash: Hash) -> &'static str {
    HASHES.iter().find(|entry| entry.1 == hash).map_or("", |entry| entry.0)
}

/// The number in the API's names of hash functions, for names in JWK.
pub(crate) fn hash_number(hash: Hash) -> &'static str {
    hash_name(hash).trim_start_matches("SHA-")
}

/// The usages that an array names.
pub fn usages(value: &Value<'_>) -> Result<u32> {
    let ctx = value.ctx();
    let Some(array) = value.as_array() else {
        return Err(Exception::throw_type(ctx, "\"keyUsages\" argument must be an Array"));
    };
    let mut mask = 0;
    for item in native::elements(array) {
        let name = text(&item?)?;
        let found = usage::NAMES.iter().find(|entry| entry.0 == name);
        let Some(found) = found else {
            return Err(Exception::throw_type(ctx, &format!("unknown key usage: \"{name}\"")));
        };
        mask |= found.1;
    }
    Ok(mask)
}

/// An array of names of usages.
pub(crate) fn usage_names<'js>(ctx: &Ctx<'js>, mask: u32) -> Result<Value<'js>> {
    let array = Array::new(ctx.clone())?;
    let named = usage::NAMES.iter().filter(|entry| mask & entry.1 != 0);
    for (i, (name, _)) in named.enumerate() {
        array.set(i, *name)?;
    }
    Ok(array.into_value())
}

/// A member of an algorithm's object; `undefined` if there is none, or no object.
pub fn member<'js>(algorithm: &Value<'js>, name: &str) -> Result<Value<'js>> {
    match algorithm.as_object() {
        Some(object) => object.get(name),
        None => Ok(Value::new_undefined(algorithm.ctx().clone())),
    }
}

/// A flag: an argument that is converted to a boolean.
pub fn flag(value: &Value<'_>) -> Result<bool> {
    to_bool(value)
}
