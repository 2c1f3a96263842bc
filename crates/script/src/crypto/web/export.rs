//! `exportKey`

use rquickjs::{ArrayBuffer, Ctx, Exception, Object, Result, Value};

use super::algorithm::{self, Algorithm, Curve, Format};
use super::key::{Key, Material};
use super::{ec, rsa_keys};
use crate::codec::Encoding;
use crate::crypto::digest::Hash;

/// A key in a format.
pub enum Exported<'js> {
    Bytes(Vec<u8>),
    Jwk(Object<'js>),
}

impl<'js> Exported<'js> {
    /// As `exportKey` returns it.
    pub(crate) fn into_js(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        match self {
            Exported::Bytes(bytes) => array_buffer(ctx, &bytes),
            Exported::Jwk(object) => Ok(object.into_value()),
        }
    }
}

/// Bytes as the API returns them.
pub(crate) fn array_buffer<'js>(ctx: &Ctx<'js>, bytes: &[u8]) -> Result<Value<'js>> {
    Ok(ArrayBuffer::new_copy(ctx.clone(), bytes)?.into_value())
}

pub fn export<'js>(ctx: &Ctx<'js>, format: Format, key: &Key) -> Result<Exported<'js>> {
    if !key.extractable {
        return Err(Exception::throw_type(ctx, "provided key cannot be extracted"));
    }
    let name = key.algorithm.name();
    let bytes = match format {
        Format::Jwk => return jwk(ctx, key).map(Exported::Jwk),
        Format::Raw => match &key.material {
            Material::Secret(bytes) => Some(bytes.clone()),
            Material::Ec { public, private: None, .. } => Some(public.clone()),
            Material::Okp { public, private: None } => Some(public.clone()),
            _ => None,
        },
        Format::Pkcs8 => match &key.material {
            Material::RsaPrivate(rsa) => rsa_keys::to_pkcs8(rsa),
            Material::Ec { curve, private: Some(scalar), .. } => ec::to_pkcs8(*curve, scalar),
            Material::Okp { private: Some(private), .. } => {
                Some(ec::okp_to_pkcs8(key.algorithm, private))
            }
            _ => None,
        },
        Format::Spki => match &key.material {
            Material::RsaPublic(rsa) => rsa_keys::to_spki(rsa),
            Material::Ec { curve, public, private: None } => ec::to_spki(*curve, public),
            Material::Okp { public, private: None } => Some(ec::okp_to_spki(key.algorithm, public)),
            _ => None,
        },
    };
    let format = match format {
        Format::Raw => "raw",
        Format::Pkcs8 => "PKCS8",
        _ => "SPKI",
    };
    let half = if key.is_private() { "private" } else { "public" };
    bytes.map(Exported::Bytes).ok_or_else(|| {
        let message = format!("{half} key of \"{name}\" cannot be exported as {format}");
        Exception::throw_type(ctx, &message)
    })
}

/// The `alg` of a secret key (RFC 7518): `HS256`, `A128GCM`.
pub fn secret_name(algorithm: Algorithm, hash: Option<Hash>, bytes: usize) -> Option<String> {
    let mode = match algorithm {
        Algorithm::Hmac => return Some(format!("HS{}", hash.map_or("", algorithm::hash_number))),
        Algorithm::AesGcm => "GCM",
        Algorithm::AesCtr => "CTR",
        Algorithm::AesCbc => "CBC",
        Algorithm::AesKw => "KW",
        _ => return None,
    };
    Some(format!("A{}{mode}", bytes * 8))
}

/// The `alg` of an RSA key.
fn rsa_name(algorithm: Algorithm, hash: Option<Hash>) -> String {
    let number = hash.map_or("", algorithm::hash_number);
    match algorithm {
        Algorithm::RsaPkcs1 => format!("RS{number}"),
        Algorithm::RsaPss => format!("PS{number}"),
        _ if hash == Some(Hash::Sha1) => "RSA-OAEP".to_owned(),
        _ => format!("RSA-OAEP-{number}"),
    }
}

fn jwk<'js>(ctx: &Ctx<'js>, key: &Key) -> Result<Object<'js>> {
    let object = Object::new(ctx.clone())?;
    let number = |name: &str, bytes: &[u8]| object.set(name, Encoding::Base64Url.encode(bytes));
    match &key.material {
        Material::Secret(bytes) => {
            object.set("kty", "oct")?;
            number("k", bytes)?;
            if let Some(name) = secret_name(key.algorithm, key.hash, bytes.len()) {
                object.set("alg", name)?;
            }
        }
        Material::RsaPrivate(_) | Material::RsaPublic(_) => {
            object.set("kty", "RSA")?;
            let public = match &key.material {
                Material::RsaPublic(rsa) => rsa_keys::public_numbers(rsa),
                Material::RsaPrivate(rsa) => rsa_keys::public_numbers(rsa.as_public_key()),
                _ => Default::default(),
            };
            number("n", &public[0])?;
            number("e", &public[1])?;
            if let Material::RsaPrivate(rsa) = &key.material {
                let numbers = rsa_keys::numbers(rsa).unwrap_or_default();
                for (name, bytes) in ["d", "p", "q", "dp", "dq", "qi"].into_iter().zip(&numbers) {
                    number(name, bytes)?;
                }
            }
            object.set("alg", rsa_name(key.algorithm, key.hash))?;
        }
        Material::Ec { curve, public, private } => {
            let (x, y) = coordinates(*curve, public);
            object.set("kty", "EC")?;
            number("x", x)?;
            number("y", y)?;
            object.set("crv", curve.name())?;
            if let Some(scalar) = private {
                number("d", scalar)?;
            }
        }
        Material::Okp { public, private } => {
            object.set("kty", "OKP")?;
            object.set("crv", key.algorithm.name())?;
            number("x", public)?;
            if let Some(private) = private {
                number("d", private)?;
            }
        }
    }
    object.set("key_ops", algorithm::usage_names(ctx, key.usages)?)?;
    object.set("ext", key.extractable)?;
    Ok(object)
}

/// The two numbers of an uncompressed point.
fn coordinates(curve: Curve, point: &[u8]) -> (&[u8], &[u8]) {
    point.get(1..).unwrap_or_default().split_at_checked(curve.bytes()).unwrap_or_default()
}
