//! `generateKey`

use rquickjs::{Object, Result, Value};

use super::algorithm::{Algorithm, Curve, member};
use super::import::{self, Purpose};
use super::key::{Key, Material, halves};
use super::{ec, rsa_keys};
use crate::native::{Call, to_i64};
use crate::raw;

/// `generateKey(algorithm, extractable, usages)`
pub(crate) fn generate_key<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let parameters = call.arg(0);
    let purpose = import::purpose(&parameters, &call.arg(1), &call.arg(2))?;
    let algorithm = purpose.algorithm;
    match algorithm {
        _ if algorithm.is_aes() || algorithm == Algorithm::Hmac => secret(call, &purpose),
        _ if algorithm.is_rsa() => rsa(call, &purpose),
        Algorithm::Ecdsa | Algorithm::Ecdh => {
            pair(call, &purpose, ec::generate(Curve::of(&parameters)?))
        }
        Algorithm::Ed25519 | Algorithm::X25519 => pair(call, &purpose, ec::okp_generate(algorithm)),
        _ => {
            Err(call.type_error(&format!("not implemented generateKey: \"{}\"", algorithm.name())))
        }
    }
}

fn secret<'js>(call: &Call<'_, 'js>, purpose: &Purpose<'_, 'js>) -> Result<Value<'js>> {
    import::check_some(purpose)?;
    let hash = purpose.hash()?;
    let given = member(purpose.parameters, "length")?;
    let bits = match hash {
        // The length of the hash function's block unless the script says otherwise.
        Some(hash) if given.is_undefined() => hash.block() as i64 * 8,
        _ => to_i64(&given)?,
    };
    let is_aes = purpose.algorithm.is_aes();
    let right = if is_aes { matches!(bits, 128 | 192 | 256) } else { (8..=65_536).contains(&bits) };
    if !right {
        let name = purpose.algorithm.name();
        return Err(call.type_error(&format!("{name} Invalid key length")));
    }
    let mut bytes = vec![0; bits as usize / 8];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| call.type_error("no random numbers"))?;
    purpose.key(hash, Material::Secret(bytes))?.into_js(call.ctx())
}

fn rsa<'js>(call: &Call<'_, 'js>, purpose: &Purpose<'_, 'js>) -> Result<Value<'js>> {
    let bits = to_i64(&member(purpose.parameters, "modulusLength")?)?;
    let exponent = raw::bytes(&member(purpose.parameters, "publicExponent")?)
        .ok_or_else(|| call.type_error("publicExponent is not provided"))?;
    // Longer ones take seconds, during which the worker does nothing else.
    if !(1024..=4096).contains(&bits) {
        return Err(call.type_error("modulusLength must be between 1024 and 4096"));
    }
    let key = rsa_keys::generate(bits as usize, &exponent);
    pair(call, purpose, key.map(|key| Material::RsaPrivate(Box::new(key))))
}

/// Both halves of a pair, each with the usages that it can have. Public keys can always be
/// exported.
fn pair<'js>(
    call: &Call<'_, 'js>,
    purpose: &Purpose<'_, 'js>,
    material: Option<Material>,
) -> Result<Value<'js>> {
    let ctx = call.ctx();
    let name = purpose.algorithm.name();
    let private =
        material.ok_or_else(|| call.type_error(&format!("cannot generate a key for {name}")))?;
    let public = match &private {
        Material::RsaPrivate(key) => Material::RsaPublic(Box::new(key.to_public_key())),
        Material::Ec { curve, public, .. } => {
            Material::Ec { curve: *curve, public: public.clone(), private: None }
        }
        Material::Okp { public, .. } => Material::Okp { public: public.clone(), private: None },
        other => other.clone(),
    };
    let (private_usages, public_usages) = halves(purpose.algorithm);
    let key = |material: Material, usages: u32, extractable: bool| -> Result<Key> {
        let usages = purpose.usages & usages;
        Ok(Key {
            algorithm: purpose.algorithm,
            hash: purpose.hash()?,
            usages,
            extractable,
            material,
        })
    };
    let object = Object::new(ctx.clone())?;
    object.set("privateKey", key(private, private_usages, purpose.extractable)?.into_js(ctx)?)?;
    object.set("publicKey", key(public, public_usages, true)?.into_js(ctx)?)?;
    Ok(object.into_value())
}
