//! `CryptoKey`: a key of any algorithm.

use rquickjs::object::Property;
use rquickjs::{Ctx, Exception, Object, Result, Value};
use rsa::traits::PublicKeyParts;

use super::algorithm::{self, Algorithm, Curve, usage};
use crate::crypto::digest::Hash;
use crate::native::{self, Call};
use crate::raw;

/// The numbers of a key.
#[derive(Clone)]
pub enum Material {
    /// Bytes.
    Secret(Vec<u8>),
    /// An RSA key pair.
    RsaPrivate(Box<rsa::PrivateKey>),
    RsaPublic(Box<rsa::PublicKey>),
    /// A key of ECDSA or ECDH: the point, uncompressed, and for private keys the scalar.
    Ec {
        curve: Curve,
        public: Vec<u8>,
        private: Option<Vec<u8>>,
    },
    /// A key of Ed25519 or X25519.
    Okp {
        public: Vec<u8>,
        private: Option<Vec<u8>>,
    },
}

#[derive(Clone)]
pub struct Key {
    pub algorithm: Algorithm,
    /// The hash function of RSA's algorithms and HMAC.
    pub hash: Option<Hash>,
    pub usages: u32,
    pub extractable: bool,
    pub material: Material,
}

impl Key {
    /// Whether it is the private half of a pair.
    pub(crate) fn is_private(&self) -> bool {
        match &self.material {
            Material::Secret(_) | Material::RsaPublic(_) => false,
            Material::RsaPrivate(_) => true,
            Material::Ec { private, .. } | Material::Okp { private, .. } => private.is_some(),
        }
    }

    fn kind(&self) -> &'static str {
        match &self.material {
            Material::Secret(_) => "secret",
            _ if self.is_private() => "private",
            _ => "public",
        }
    }

    /// The bytes of a secret key.
    pub fn secret(&self) -> &[u8] {
        match &self.material {
            Material::Secret(bytes) => bytes,
            _ => &[],
        }
    }

    /// The key as an object.
    pub(crate) fn into_js<'js>(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        // RSA keys hold numbers for faster arithmetic, too.
        let more_bytes = match &self.material {
            Material::Secret(bytes) => bytes.len(),
            Material::RsaPrivate(key) => 64 * key.size(),
            Material::RsaPublic(key) => 8 * key.size(),
            Material::Ec { .. } | Material::Okp { .. } => 0,
        };
        Ok(native::large_object(ctx, "CryptoKey", self, more_bytes)?.into_value())
    }
}

/// What the two halves of a pair may be used for: private, public.
pub fn halves(algorithm: Algorithm) -> (u32, u32) {
    use usage::*;
    match algorithm {
        Algorithm::RsaOaep => (DECRYPT | UNWRAP, ENCRYPT | WRAP),
        Algorithm::Ecdh | Algorithm::X25519 => (DERIVE_BITS | DERIVE_KEY, 0),
        _ => (SIGN, VERIFY),
    }
}

/// Adds the prototype.
pub fn install(ctx: &Ctx<'_>) -> Result<()> {
    let prototype = native::prototype(ctx, "CryptoKey", &[])?;
    native::getters(
        &prototype,
        &[
            ("algorithm", |call| {
                let key = of(call.ctx(), &call.this(), "\"key\"")?;
                describe(call.ctx(), &key)
            }),
            ("extractable", |call| {
                let key = of(call.ctx(), &call.this(), "\"key\"")?;
                call.bool(key.extractable)
            }),
            ("type", |call| {
                let key = of(call.ctx(), &call.this(), "\"key\"")?;
                call.text(key.kind())
            }),
            ("usages", |call| {
                let key = of(call.ctx(), &call.this(), "\"key\"")?;
                algorithm::usage_names(call.ctx(), key.usages)
            }),
        ],
    )
}

/// The key that a value is.
pub fn of(ctx: &Ctx<'_>, value: &Value<'_>, name: &str) -> Result<Key> {
    native::with_data(value, |key: &mut Key| key.clone())
        .ok_or_else(|| Exception::throw_type(ctx, &format!("{name} is not a CryptoKey object")))
}

/// The key of an argument, which must be of an algorithm and allow a usage.
pub fn argument(
    call: &Call<'_, '_>,
    index: usize,
    algorithm: Algorithm,
    usage: u32,
    operation: &str,
) -> Result<Key> {
    let key = of(call.ctx(), &call.arg(index), "key")?;
    if key.usages & usage == 0 {
        return Err(call.type_error(&format!("key does not support {operation} operation")));
    }
    if key.algorithm != algorithm {
        let (has, wants) = (key.algorithm.name(), algorithm.name());
        let message = format!("cannot {operation} using \"{has}\" with \"{wants}\" key");
        return Err(call.type_error(&message));
    }
    Ok(key)
}

/// The `algorithm` of a key.
fn describe<'js>(ctx: &Ctx<'js>, key: &Key) -> Result<Value<'js>> {
    let object = Object::new(ctx.clone())?;
    let set = |name: &str, value: Value<'js>| {
        object.prop(name, Property::from(value).writable().configurable().enumerable())
    };
    let string = |value: &str| -> Result<Value<'js>> {
        Ok(rquickjs::String::from_str(ctx.clone(), value)?.into_value())
    };
    let number = |value: usize| Value::new_number(ctx.clone(), value as f64);
    set("name", string(key.algorithm.name())?)?;
    let hash = key.hash.map(algorithm::hash_name);
    match &key.material {
        Material::RsaPrivate(rsa) => describe_rsa(ctx, &object, rsa.as_public_key(), hash)?,
        Material::RsaPublic(rsa) => describe_rsa(ctx, &object, rsa, hash)?,
        Material::Ec { curve, .. } => set("namedCurve", string(curve.name())?)?,
        Material::Okp { .. } => {}
        Material::Secret(bytes) if key.algorithm.is_aes() => {
            set("length", number(bytes.len() * 8))?
        }
        // nginx has a string here, where the API's text has an object.
        Material::Secret(_) => set("hash", string(hash.unwrap_or_default())?)?,
    }
    Ok(object.into_value())
}

fn describe_rsa<'js>(
    ctx: &Ctx<'js>,
    object: &Object<'js>,
    key: &rsa::PublicKey,
    hash: Option<&str>,
) -> Result<()> {
    let bits = key.n().bit_width_vartime();
    object.set("modulusLength", bits)?;
    let exponent = key.e_bytes();
    let array = raw::uint8_array(ctx, &[Value::new_number(ctx.clone(), exponent.len() as f64)])?;
    raw::write(&array, 0, &exponent);
    object.set("publicExponent", array)?;
    let name = Object::new(ctx.clone())?;
    name.set("name", hash.unwrap_or_default())?;
    object.set("hash", name)
}
