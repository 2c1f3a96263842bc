//! `importKey`

use rquickjs::{Ctx, Exception, Object, Result, Value};

use super::algorithm::{self, Algorithm, Curve, Format, usage};
use super::cipher::view_or_text;
use super::key::{Key, Material, halves};
use super::{ec, rsa_keys};
use crate::codec::Encoding;
use crate::crypto::digest::Hash;
use crate::raw;
use crate::value::text;

/// What a key is imported for.
pub struct Purpose<'a, 'js> {
    /// The algorithm's argument, whose members say more.
    pub parameters: &'a Value<'js>,
    pub algorithm: Algorithm,
    pub extractable: bool,
    pub usages: u32,
}

/// The purpose that arguments of `importKey` and the like describe.
pub fn purpose<'a, 'js>(
    parameters: &'a Value<'js>,
    extractable: &Value<'js>,
    usages: &Value<'js>,
) -> Result<Purpose<'a, 'js>> {
    let algorithm = Algorithm::of(parameters)?;
    let usages = algorithm::usages(usages)?;
    if usages & !algorithm.usages() != 0 {
        let message = format!("unsupported key usage for \"{}\" key", algorithm.name());
        return Err(Exception::throw_type(parameters.ctx(), &message));
    }
    let extractable = algorithm::flag(extractable)?;
    Ok(Purpose { parameters, algorithm, extractable, usages })
}

impl<'js> Purpose<'_, 'js> {
    fn error(&self, message: &str) -> rquickjs::Error {
        Exception::throw_type(self.parameters.ctx(), message)
    }

    /// The hash function that goes with keys of the algorithm.
    pub fn hash(&self) -> Result<Option<Hash>> {
        match self.algorithm.is_rsa() || self.algorithm == Algorithm::Hmac {
            true => algorithm::hash_of(self.parameters).map(Some),
            false => Ok(None),
        }
    }

    /// The key of some numbers, if they may be used so.
    pub fn key(&self, hash: Option<Hash>, material: Material) -> Result<Key> {
        let (algorithm, usages) = (self.algorithm, self.usages);
        let key = Key { algorithm, hash, usages, extractable: self.extractable, material };
        if !algorithm.is_secret() {
            let (private, public) = halves(algorithm);
            let allowed = if key.is_private() { private } else { public };
            if usages & !allowed != 0 {
                let name = algorithm.name();
                return Err(self.error(&format!("key usage mismatch for \"{name}\" key")));
            }
        } else if algorithm.is_aes() && !matches!(key.secret().len(), 16 | 24 | 32) {
            return Err(self.error("AES Invalid key length"));
        }
        Ok(key)
    }

    fn curve(&self) -> Result<Curve> {
        Curve::of(self.parameters)
    }

    fn is_okp(&self) -> bool {
        matches!(self.algorithm, Algorithm::Ed25519 | Algorithm::X25519)
    }
}

pub fn import<'js>(purpose: &Purpose<'_, 'js>, format: Format, data: &Value<'js>) -> Result<Key> {
    let hash = purpose.hash()?;
    if format == Format::Jwk {
        let Some(jwk) = data.as_object() else {
            return Err(purpose.error("invalid JWK key data: object value expected"));
        };
        let material = jwk_material(purpose, hash, &Jwk(jwk))?;
        return purpose.key(hash, material);
    }
    let bytes = match format {
        Format::Raw => view_or_text(data)?,
        _ => raw::bytes(data),
    };
    let bytes = bytes.ok_or_else(|| purpose.error("not a TypedArray"))?;
    let material = match format {
        Format::Raw => raw_material(purpose, &bytes)?,
        Format::Pkcs8 => pkcs8_material(purpose, &bytes)?,
        _ => spki_material(purpose, &bytes)?,
    };
    purpose.key(hash, material)
}

fn unsupported(purpose: &Purpose<'_, '_>, format: &str) -> rquickjs::Error {
    let name = purpose.algorithm.name();
    purpose.error(&format!("unsupported key fmt \"{format}\" for \"{name}\" key"))
}

fn raw_material(purpose: &Purpose<'_, '_>, bytes: &[u8]) -> Result<Material> {
    match purpose.algorithm {
        algorithm if algorithm.is_secret() => Ok(Material::Secret(bytes.to_vec())),
        Algorithm::Ecdsa | Algorithm::Ecdh => ec::from_point(purpose.curve()?, bytes)
            .ok_or_else(|| purpose.error("invalid raw EC point")),
        Algorithm::Ed25519 | Algorithm::X25519 => ec::okp_from_public(bytes)
            .ok_or_else(|| purpose.error("invalid raw key: 32 bytes expected")),
        _ => Err(unsupported(purpose, "raw")),
    }
}

fn pkcs8_material(purpose: &Purpose<'_, '_>, der: &[u8]) -> Result<Material> {
    let algorithm = purpose.algorithm;
    let material = match algorithm {
        _ if algorithm.is_rsa() => {
            rsa_keys::from_pkcs8(der).map(|key| Material::RsaPrivate(Box::new(key)))
        }
        Algorithm::Ecdsa | Algorithm::Ecdh => ec::from_pkcs8(purpose.curve()?, der),
        _ if purpose.is_okp() => ec::okp_from_pkcs8(algorithm, der),
        _ => return Err(unsupported(purpose, "pkcs8")),
    };
    material.ok_or_else(|| purpose.error(&format!("invalid PKCS8 {} key", algorithm.name())))
}

fn spki_material(purpose: &Purpose<'_, '_>, der: &[u8]) -> Result<Material> {
    let algorithm = purpose.algorithm;
    let material = match algorithm {
        _ if algorithm.is_rsa() => {
            rsa_keys::from_spki(der).map(|key| Material::RsaPublic(Box::new(key)))
        }
        Algorithm::Ecdsa | Algorithm::Ecdh => ec::from_spki(purpose.curve()?, der),
        _ if purpose.is_okp() => ec::okp_from_spki(algorithm, der),
        _ => return Err(unsupported(purpose, "spki")),
    };
    material.ok_or_else(|| purpose.error(&format!("invalid SPKI {} key", algorithm.name())))
}

/// A JSON Web Key (RFC 7517).
struct Jwk<'a, 'js>(&'a Object<'js>);

impl<'js> Jwk<'_, 'js> {
    fn ctx(&self) -> &Ctx<'js> {
        self.0.ctx()
    }

    fn member(&self, name: &str) -> Result<Value<'js>> {
        self.0.get(name)
    }

    fn string(&self, name: &str) -> Result<Option<String>> {
        let value = self.member(name)?;
        value.is_string().then(|| text(&value)).transpose()
    }

    /// A number in base64url.
    fn number(&self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.string(name)?.map(|text| Encoding::Base64Url.decode(&text)))
    }

    fn error(&self, message: &str) -> rquickjs::Error {
        Exception::throw_type(self.ctx(), message)
    }
}

fn jwk_material(
    purpose: &Purpose<'_, '_>,
    hash: Option<Hash>,
    jwk: &Jwk<'_, '_>,
) -> Result<Material> {
    let kind = jwk.string("kty")?.unwrap_or_default();
    let fits = match kind.as_str() {
        "RSA" => purpose.algorithm.is_rsa(),
        "EC" => matches!(purpose.algorithm, Algorithm::Ecdsa | Algorithm::Ecdh),
        "oct" => purpose.algorithm.is_secret(),
        "OKP" => purpose.is_okp(),
        _ => return Err(jwk.error(&format!("invalid JWK key type: \"{kind}\""))),
    };
    if !fits {
        let name = purpose.algorithm.name();
        return Err(jwk.error(&format!("JWK kty \"{kind}\" doesn't match algorithm \"{name}\"")));
    }
    let material = match kind.as_str() {
        "RSA" => jwk_rsa(hash, jwk)?,
        "EC" => jwk_ec(purpose.curve()?, jwk)?,
        "oct" => jwk_oct(purpose.algorithm, hash, jwk)?,
        _ => jwk_okp(purpose.algorithm, jwk)?,
    };
    check_use(purpose, &kind, jwk)?;
    Ok(material)
}

/// Checks what the key itself says of its use.
fn check_use(purpose: &Purpose<'_, '_>, kind: &str, jwk: &Jwk<'_, '_>) -> Result<()> {
    let operations = jwk.member("key_ops")?;
    if !operations.is_undefined() {
        let operations = algorithm::usages(&operations)?;
        if purpose.usages & !operations != 0 {
            return Err(jwk.error("Key operations and usage mismatch"));
        }
    }
    let extractable = jwk.member("ext")?;
    if purpose.extractable && !extractable.is_undefined() && !algorithm::flag(&extractable)? {
        return Err(jwk.error(&format!("JWK {kind} is not extractable")));
    }
    Ok(())
}

fn jwk_oct(algorithm: Algorithm, hash: Option<Hash>, jwk: &Jwk<'_, '_>) -> Result<Material> {
    let key = jwk.number("k")?.ok_or_else(|| jwk.error("Invalid JWK oct key"))?;
    if !jwk.member("alg")?.is_undefined() {
        let name = jwk.string("alg")?.ok_or_else(|| jwk.error("Invalid JWK oct alg"))?;
        let unexpected = || jwk.error(&format!("unexpected \"alg\" value \"{name}\" for JWK key"));
        let expected = super::export::secret_name(algorithm, hash, key.len());
        if algorithm.is_aes() {
            // "A128GCM": the number is the length, the rest the mode.
            let bits = name.get(1..4).and_then(|bits| bits.parse::<usize>().ok());
            let mode = super::export::secret_name(algorithm, hash, 16);
            let same_mode = name.get(4..) == mode.as_deref().and_then(|mode| mode.get(4..));
            if !same_mode || !name.starts_with('A') || !matches!(bits, Some(128 | 192 | 256)) {
                return Err(unexpected());
            }
            if bits != Some(key.len() * 8) {
                let message = format!("key size and \"alg\" value \"{name}\" mismatch");
                return Err(jwk.error(&message));
            }
        } else if expected.is_some_and(|expected| expected != name) {
            return Err(unexpected());
        }
    }
    Ok(Material::Secret(key))
}

fn jwk_ec(curve: Curve, jwk: &Jwk<'_, '_>) -> Result<Material> {
    let invalid = || jwk.error("Invalid JWK EC key");
    let x = jwk.number("x")?.ok_or_else(invalid)?;
    let y = jwk.number("y")?.ok_or_else(invalid)?;
    if jwk.string("crv")?.and_then(|name| Curve::named(&name)) != Some(curve) {
        return Err(jwk.error("JWK EC curve mismatch"));
    }
    if x.len() != curve.bytes() || y.len() != curve.bytes() {
        return Err(invalid());
    }
    let point = [&[4][..], &x, &y].concat();
    let public = ec::from_point(curve, &point).ok_or_else(invalid)?;
    if jwk.member("d")?.is_undefined() {
        return Ok(public);
    }
    let scalar = jwk.number("d")?.ok_or_else(invalid)?;
    let key = ec::from_scalar(curve, &scalar).ok_or_else(invalid)?;
    // The point must be that of the scalar.
    match &key {
        Material::Ec { public, .. } if *public == point => Ok(key),
        _ => Err(invalid()),
    }
}

fn jwk_okp(algorithm: Algorithm, jwk: &Jwk<'_, '_>) -> Result<Material> {
    let invalid = || jwk.error("Invalid JWK OKP key");
    if jwk.string("crv")?.as_deref() != Some(algorithm.name()) {
        return Err(jwk.error("JWK OKP curve mismatch"));
    }
    let point = jwk.number("x")?.ok_or_else(invalid)?;
    if jwk.member("d")?.is_undefined() {
        return ec::okp_from_public(&point).ok_or_else(invalid);
    }
    let private = jwk.number("d")?.ok_or_else(invalid)?;
    let key = ec::okp_from_private(algorithm, &private).ok_or_else(invalid)?;
    match &key {
        Material::Okp { public, .. } if *public == point => Ok(key),
        _ => Err(invalid()),
    }
}

fn jwk_rsa(hash: Option<Hash>, jwk: &Jwk<'_, '_>) -> Result<Material> {
    let invalid = || jwk.error("Invalid JWK RSA key");
    let number = |name: &str| -> Result<Vec<u8>> { jwk.number(name)?.ok_or_else(invalid) };
    let (n, e) = (number("n")?, number("e")?);
    if let Some(name) = jwk.string("alg")? {
        // "RS256", "PS1", "RSA-OAEP" (of SHA-1), "RSA-OAEP-512"
        let digits = name.trim_start_matches(|c: char| !c.is_ascii_digit());
        let wanted = hash.map_or("", algorithm::hash_number);
        let given = if digits.is_empty() { "1" } else { digits };
        if given != wanted {
            return Err(jwk.error("RSA JWK hash mismatch"));
        }
    }
    if jwk.member("d")?.is_undefined() {
        let key = rsa_keys::public(&n, &e).ok_or_else(invalid)?;
        return Ok(Material::RsaPublic(Box::new(key)));
    }
    let (d, p, q) = (number("d")?, number("p")?, number("q")?);
    for name in ["dp", "dq", "qi"] {
        number(name)?;
    }
    let key = rsa_keys::private(&n, &e, &d, &p, &q).ok_or_else(invalid)?;
    Ok(Material::RsaPrivate(Box::new(key)))
}

/// Usages of a new secret key, checked by `generateKey`: there must be one.
pub(crate) fn check_some(purpose: &Purpose<'_, '_>) -> Result<()> {
    let needed = purpose.algorithm.is_secret() || purpose.usages & usage::SIGN != 0;
    if needed && purpose.usages == 0 {
        return Err(purpose.error("usages must not be empty"));
    }
    Ok(())
}
