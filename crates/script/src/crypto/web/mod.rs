//! The Web Cryptography API: the global `crypto`.

mod algorithm;
mod cipher;
mod derive;
mod ec;
mod export;
mod generate;
mod import;
mod key;
mod rsa_keys;
mod sign;

use rquickjs::object::Property;
use rquickjs::{Ctx, Object, Result, Value};

use crate::native::{self, Call, Method, Native};
use crate::raw;
use algorithm::Format;

/// Functions of `crypto.subtle`; their results come in promises.
const SUBTLE: &[Method] = &[
    ("importKey", 5, import_key),
    ("decrypt", 4, cipher::decrypt),
    ("deriveBits", 4, derive::derive_bits),
    ("deriveKey", 5, derive::derive_key),
    ("digest", 3, sign::digest),
    ("encrypt", 4, cipher::encrypt),
    ("exportKey", 3, export_key),
    ("generateKey", 3, generate::generate_key),
    ("sign", 4, sign::sign),
    ("unwrapKey", 7, cipher::unwrap_key),
    ("verify", 4, sign::verify),
    ("wrapKey", 4, cipher::wrap_key),
];

/// Adds `crypto` to the global object.
pub fn install(ctx: &Ctx<'_>) -> Result<()> {
    key::install(ctx)?;
    let crypto = Object::new(ctx.clone())?;
    let methods: &[Method] =
        &[("getRandomValues", 1, get_random_values), ("randomUUID", 0, random_uuid)];
    native::methods(&crypto, methods)?;
    native::tag(&crypto, "Crypto")?;
    let subtle = Object::new(ctx.clone())?;
    for (number, &(name, length, _)) in (0..).zip(SUBTLE) {
        native::method(&subtle, name, native::with_number(ctx, name, length, promised, number)?)?;
    }
    native::tag(&subtle, "SubtleCrypto")?;
    crypto.prop("subtle", Property::from(subtle).configurable())?;
    ctx.globals().prop("crypto", Property::from(crypto).writable().configurable())
}

/// Runs a function of `crypto.subtle`, whose exceptions reject the promise.
fn promised<'js>(call: &Call<'_, 'js>, number: u32) -> Result<Value<'js>> {
    let f: Native = SUBTLE[number as usize].2;
    // Keys of RSA and of curves take long, whatever the length of the data.
    raw::worked_long();
    native::settled(call.ctx(), f(call))
}

/// `importKey(format, keyData, algorithm, extractable, usages)`
fn import_key<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let format = Format::of(&call.arg(0))?;
    let parameters = call.arg(2);
    let purpose = import::purpose(&parameters, &call.arg(3), &call.arg(4))?;
    import::import(&purpose, format, &call.arg(1))?.into_js(call.ctx())
}

/// `exportKey(format, key)`
fn export_key<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let format = Format::of(&call.arg(0))?;
    let key = key::of(call.ctx(), &call.arg(1), "key")?;
    export::export(call.ctx(), format, &key)?.into_js(call.ctx())
}

/// `crypto.getRandomValues(array)`: fills an array of integers, up to 64 KB.
fn get_random_values<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let array = call.arg(0);
    let length = raw::len(&array).ok_or_else(|| call.type_error("not a TypedArray"))?;
    if length > 65_536 {
        return Err(call.type_error(&format!("requested length exceeds 65536: {length}")));
    }
    let mut bytes = vec![0; length];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| call.type_error("no random numbers"))?;
    raw::write(&array, 0, &bytes);
    Ok(array)
}

/// `crypto.randomUUID()`: a UUID of version 4 (RFC 9562 section 5.4).
fn random_uuid<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| call.type_error("no random numbers"))?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = crate::codec::Encoding::Hex.encode(&bytes);
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    call.text(&parts.join("-"))
}
