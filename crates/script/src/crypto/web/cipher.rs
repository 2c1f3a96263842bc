//! `encrypt`, `decrypt`, `wrapKey` and `unwrapKey`.

use rquickjs::{Result, Value};

use super::algorithm::{Algorithm, Format, member, usage};
use super::export::{self, Exported};
use super::import::{self, Purpose};
use super::key::{self, Key, Material};
use super::rsa_keys;
use crate::crypto::aes::Aes;
use crate::native::{Call, to_i64};
use crate::raw;
use crate::value::text;

/// `encrypt(algorithm, key, data)`
pub fn encrypt<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let algorithm = Algorithm::of(&call.arg(0))?;
    let usage = if algorithm == Algorithm::AesKw { usage::WRAP } else { usage::ENCRYPT };
    let key = key::argument(call, 1, algorithm, usage, "encrypt")?;
    let data = data(call, 2)?;
    export::array_buffer(call.ctx(), &apply(call, &call.arg(0), &key, &data, true)?)
}

/// `decrypt(algorithm, key, data)`
pub fn decrypt<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let algorithm = Algorithm::of(&call.arg(0))?;
    let usage = if algorithm == Algorithm::AesKw { usage::UNWRAP } else { usage::DECRYPT };
    let key = key::argument(call, 1, algorithm, usage, "decrypt")?;
    let data = data(call, 2)?;
    export::array_buffer(call.ctx(), &apply(call, &call.arg(0), &key, &data, false)?)
}

/// The bytes of an argument.
pub fn data(call: &Call<'_, '_>, index: usize) -> Result<Vec<u8>> {
    match view_or_text(&call.arg(index))? {
        Some(bytes) => Ok(bytes),
        None => Err(call.type_error("not a TypedArray")),
    }
}

/// The bytes of a view, or of a string, which njs's own engine takes, too.
pub(crate) fn view_or_text(value: &Value<'_>) -> Result<Option<Vec<u8>>> {
    match raw::bytes(value) {
        None if value.is_string() => Ok(Some(raw::to_text(value)?.into_bytes())),
        bytes => Ok(bytes),
    }
}

/// The bytes of an algorithm's member, if it is there.
fn bytes(call: &Call<'_, '_>, parameters: &Value<'_>, name: &str) -> Result<Option<Vec<u8>>> {
    let value = member(parameters, name)?;
    if value.is_undefined() {
        return Ok(None);
    }
    raw::bytes(&value).map(Some).ok_or_else(|| call.type_error("not a TypedArray"))
}

/// Runs a cipher in one direction.
fn apply<'js>(
    call: &Call<'_, 'js>,
    parameters: &Value<'js>,
    key: &Key,
    data: &[u8],
    encrypt: bool,
) -> Result<Vec<u8>> {
    let name = key.algorithm.name();
    let failed = || {
        call.type_error(&format!("{name} {} failed", if encrypt { "encrypt" } else { "decrypt" }))
    };
    if let (Algorithm::RsaOaep, Some(hash)) = (key.algorithm, key.hash) {
        let out = match (&key.material, encrypt) {
            (Material::RsaPublic(rsa), true) => rsa_keys::oaep_encrypt(rsa, hash, data),
            (Material::RsaPrivate(rsa), false) => rsa_keys::oaep_decrypt(rsa, hash, data),
            _ => None,
        };
        return out.ok_or_else(failed);
    }
    let aes = Aes::new(key.secret()).ok_or_else(|| call.type_error("AES Invalid key length"))?;
    let out = match key.algorithm {
        Algorithm::AesGcm => {
            let iv = bytes(call, parameters, "iv")?;
            let iv = iv.filter(|iv| !iv.is_empty());
            let iv = iv.ok_or_else(|| call.type_error("AES-GCM algorithm.iv is not provided"))?;
            let extra = bytes(call, parameters, "additionalData")?.unwrap_or_default();
            let tag = gcm_tag_bytes(call, parameters)?;
            match encrypt {
                true => Some(aes.gcm_encrypt(&iv, &extra, tag, data)),
                false => aes.gcm_decrypt(&iv, &extra, tag, data),
            }
        }
        Algorithm::AesCtr => {
            let counter = bytes(call, parameters, "counter")?.unwrap_or_default();
            let counter = counter
                .try_into()
                .map_err(|_| call.type_error("AES-CTR algorithm.counter must be 16 bytes long"))?;
            let bits = to_i64(&member(parameters, "length")?)?;
            if !(1..=128).contains(&bits) {
                let message = "AES-CTR algorithm.length must be between 1 and 128";
                return Err(call.type_error(message));
            }
            let out = aes.ctr(counter, bits as u32, data);
            Some(out.ok_or_else(|| call.type_error("AES-CTR repeated counter"))?)
        }
        Algorithm::AesCbc => {
            let iv = bytes(call, parameters, "iv")?.unwrap_or_default();
            let iv = iv
                .try_into()
                .map_err(|_| call.type_error("AES-CBC algorithm.iv must be 16 bytes long"))?;
            if encrypt { Some(aes.cbc_encrypt(iv, data)) } else { aes.cbc_decrypt(iv, data) }
        }
        Algorithm::AesKw if encrypt => aes.wrap(data),
        Algorithm::AesKw => aes.unwrap(data),
        _ => None,
    };
    out.ok_or_else(failed)
}

fn gcm_tag_bytes(call: &Call<'_, '_>, parameters: &Value<'_>) -> Result<usize> {
    let value = member(parameters, "tagLength")?;
    if value.is_undefined() {
        return Ok(16);
    }
    match to_i64(&value)? {
        bits @ (32 | 64 | 96 | 104 | 112 | 120 | 128) => Ok(bits as usize / 8),
        _ => Err(call.type_error("AES-GCM Invalid tagLength")),
    }
}

/// `wrapKey(format, key, wrappingKey, wrapAlgorithm)`
pub(crate) fn wrap_key<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let ctx = call.ctx();
    let format = Format::of(&call.arg(0))?;
    let wrapped = key::of(ctx, &call.arg(1), "key")?;
    let algorithm = Algorithm::of(&call.arg(3))?;
    let wrapping = key::argument(call, 2, algorithm, usage::WRAP, "wrapKey")?;
    let mut bytes = match export::export(ctx, format, &wrapped)? {
        Exported::Bytes(bytes) => bytes,
        Exported::Jwk(object) => match ctx.json_stringify(object)? {
            Some(json) => text(json.as_value())?.into_bytes(),
            None => Vec::new(),
        },
    };
    if format == Format::Jwk && algorithm == Algorithm::AesKw {
        // Key wrap takes whole groups of eight bytes, and white space after JSON is none of it.
        bytes.resize(bytes.len().next_multiple_of(8), b' ');
    }
    export::array_buffer(ctx, &apply(call, &call.arg(3), &wrapping, &bytes, true)?)
}

/// `unwrapKey(format, wrapped, unwrappingKey, unwrapAlgorithm, keyAlgorithm, extractable, usages)`
pub(crate) fn unwrap_key<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let ctx = call.ctx();
    let format = Format::of(&call.arg(0))?;
    let wrapped = data(call, 1)?;
    let algorithm = Algorithm::of(&call.arg(3))?;
    let unwrapping = key::argument(call, 2, algorithm, usage::UNWRAP, "unwrapKey")?;
    let parameters = call.arg(4);
    let purpose: Purpose<'_, 'js> = import::purpose(&parameters, &call.arg(5), &call.arg(6))?;
    let bytes = apply(call, &call.arg(3), &unwrapping, &wrapped, false)?;
    let data = match format {
        Format::Jwk => ctx.json_parse(bytes)?,
        _ => export::array_buffer(ctx, &bytes)?,
    };
    import::import(&purpose, format, &data)?.into_js(ctx)
}
