//! The module `crypto`: `createHash` and `createHmac`.

use rquickjs::{Ctx, Object, Result, Value};

use super::digest::{Hash, Hasher, Hmac};
use crate::buffer;
use crate::codec::Encoding;
use crate::native::{self, Call};
use crate::raw;
use crate::value::text;

/// What the module exports.
pub(crate) const EXPORTS: &[&str] = &["createHash", "createHmac"];

pub fn module<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let module = Object::new(ctx.clone())?;
    native::methods(&module, &[("createHash", 1, create_hash), ("createHmac", 2, create_hmac)])?;
    let hash = native::prototype(
        ctx,
        "Hash",
        &[("update", 2, update_hash), ("digest", 1, digest_hash), ("copy", 0, copy_hash)],
    )?;
    native::method(&hash, "constructor", native::function(ctx, "Hash", 1, create_hash)?)?;
    let methods: &[native::Method] = &[("update", 2, update_hmac), ("digest", 1, digest_hmac)];
    let hmac = native::prototype(ctx, "Hmac", methods)?;
    native::method(&hmac, "constructor", native::function(ctx, "Hmac", 2, create_hmac)?)?;
    Ok(module)
}

fn algorithm(call: &Call<'_, '_>) -> Result<Hash> {
    let name = call.arg(0);
    if !name.is_string() {
        return Err(call.type_error("algorithm must be a string"));
    }
    Hash::named(&text(&name)?).ok_or_else(|| call.type_error("not supported algorithm"))
}

fn create_hash<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let hasher = Some(Hasher::new(algorithm(call)?));
    Ok(native::object(call.ctx(), "Hash", hasher)?.into_value())
}

fn create_hmac<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let hash = algorithm(call)?;
    let key = call.arg(1);
    let key = if key.is_string() {
        text(&key)?.into_bytes()
    } else {
        raw::bytes(&key)
            .ok_or_else(|| call.type_error("key is not a string or Buffer-like object"))?
    };
    Ok(native::object(call.ctx(), "Hmac", Some(Hmac::new(hash, &key)))?.into_value())
}

/// What `update` is given: bytes, or a string in an encoding.
fn data(call: &Call<'_, '_>) -> Result<Vec<u8>> {
    let value = call.arg(0);
    if value.is_string() {
        return Ok(Encoding::of(&call.arg(1))?.decode(&text(&value)?));
    }
    raw::bytes(&value).ok_or_else(|| call.type_error("data is not a string or Buffer-like object"))
}

/// The digest as the caller wants it: a buffer, or a string in an encoding.
fn shown<'js>(call: &Call<'_, 'js>, digest: &[u8]) -> Result<Value<'js>> {
    let encoding = call.arg(0);
    if encoding.is_undefined() || encoding.is_null() {
        return buffer::new(call.ctx(), digest);
    }
    match text(&encoding)?.as_str() {
        "buffer" => buffer::new(call.ctx(), digest),
        "hex" => call.text(&Encoding::Hex.encode(digest)),
        "base64" => call.text(&Encoding::Base64.encode(digest)),
        "base64url" => call.text(&Encoding::Base64Url.encode(digest)),
        _ => Err(call.type_error("Unknown digest encoding")),
    }
}

/// Calls a function with the state behind `this`, which is `None` after `digest`.
fn with<T: 'static, R>(
    call: &Call<'_, '_>,
    name: &str,
    f: impl FnOnce(&mut Option<T>) -> Option<R>,
) -> Result<R> {
    let result = native::with_data(&call.this(), f)
        .ok_or_else(|| call.type_error(&format!("\"this\" is not a {name} object")))?;
    result.ok_or_else(|| call.type_error("Digest already called"))
}

fn update_hash<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    with(call, "hash", |hasher: &mut Option<Hasher>| hasher.as_ref().map(|_| ()))?;
    let data = data(call)?;
    with(call, "hash", |hasher: &mut Option<Hasher>| hasher.as_mut().map(|h| h.update(&data)))?;
    Ok(call.this())
}

fn digest_hash<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let digest = with(call, "hash", |h: &mut Option<Hasher>| h.take().map(Hasher::finish))?;
    shown(call, &digest)
}

fn copy_hash<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let copy = with(call, "hash", |hasher: &mut Option<Hasher>| hasher.clone())?;
    Ok(native::object(call.ctx(), "Hash", Some(copy))?.into_value())
}

fn update_hmac<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    with(call, "hmac", |hmac: &mut Option<Hmac>| hmac.as_ref().map(|_| ()))?;
    let data = data(call)?;
    with(call, "hmac", |hmac: &mut Option<Hmac>| hmac.as_mut().map(|h| h.update(&data)))?;
    Ok(call.this())
}

fn digest_hmac<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let digest = with(call, "hmac", |hmac: &mut Option<Hmac>| hmac.take().map(Hmac::finish))?;
    shown(call, &digest)
}
