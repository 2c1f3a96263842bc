//! `TextDecoder` and `TextEncoder`, for UTF-8.

use rquickjs::Ctx;
use rquickjs::object::Property;
use rquickjs::{Object, Result, Value};

use crate::native::{self, Call, to_bool};
use crate::raw;
use crate::value::text;

/// The state of a decoder.
struct Decoder {
    fatal: bool,
    ignore_bom: bool,
    /// The beginning of a character whose rest comes with the next call.
    pending: Vec<u8>,
}

/// An encoder has no state.
struct Encoder;

/// Adds both classes.
pub fn install(ctx: &Ctx<'_>) -> Result<()> {
    let decoder = native::class(ctx, "TextDecoder", 2, new_decoder, &[("decode", 1, decode)])?;
    native::getters(
        &decoder,
        &[
            ("encoding", |c| {
                with_decoder(c, |_| ())?;
                c.text("utf-8")
            }),
            ("fatal", |c| {
                let fatal = with_decoder(c, |d| d.fatal)?;
                c.bool(fatal)
            }),
            ("ignoreBOM", |c| {
                let ignore = with_decoder(c, |d| d.ignore_bom)?;
                c.bool(ignore)
            }),
        ],
    )?;
    let methods: &[native::Method] = &[("encode", 1, encode), ("encodeInto", 1, encode_into)];
    let encoder = native::class(
        ctx,
        "TextEncoder",
        0,
        |c| Ok(native::object(c.ctx(), "TextEncoder", Encoder)?.into_value()),
        methods,
    )?;
    native::getters(&encoder, &[("encoding", |c| c.text("utf-8"))])
}

fn with_decoder<R>(call: &Call<'_, '_>, f: impl FnOnce(&mut Decoder) -> R) -> Result<R> {
    native::with_data(&call.this(), f).ok_or_else(|| call.type_error("'this' is not a TextDecoder"))
}

fn new_decoder<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    if !call.arg(0).is_undefined() {
        let label = text(&call.arg(0))?;
        if !matches!(label.as_str(), "utf-8" | "utf8") {
            let message = format!("The \"{label}\" encoding is not supported");
            return Err(call.type_error(&message));
        }
    }
    let options = call.arg(1);
    let flag = |name: &str| match options.as_object() {
        Some(options) => to_bool(&options.get::<_, Value<'_>>(name)?),
        None => Ok(false),
    };
    let (fatal, ignore_bom) = (flag("fatal")?, flag("ignoreBOM")?);
    let decoder = Decoder { fatal, ignore_bom, pending: Vec::new() };
    Ok(native::object(call.ctx(), "TextDecoder", decoder)?.into_value())
}

fn decode<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    with_decoder(call, |_| ())?;
    let stream = match call.arg(1).as_object() {
        Some(options) => to_bool(&options.get::<_, Value<'js>>("stream")?)?,
        None => false,
    };
    let input = call.arg(0);
    let bytes = if input.is_undefined() {
        Vec::new()
    } else {
        if raw::is_detached(&input) {
            return Err(call.type_error("ArrayBuffer is detached"));
        }
        raw::bytes(&input).ok_or_else(|| call.type_error("not a TypedArray"))?
    };
    match with_decoder(call, |decoder| decoder.decode(bytes, stream))? {
        Some(text) => call.text(&text),
        None => Err(call.type_error("The encoded data was not valid")),
    }
}

impl Decoder {
    /// The text of bytes; `None` if they are invalid and that is fatal.
    fn decode(&mut self, bytes: Vec<u8>, stream: bool) -> Option<String> {
        let mut input = std::mem::take(&mut self.pending);
        let bom = !self.ignore_bom && input.is_empty() && bytes.starts_with(b"\xef\xbb\xbf");
        input.extend_from_slice(&bytes[if bom { 3 } else { 0 }..]);
        if stream {
            let whole = whole_characters(&input);
            self.pending = input.split_off(whole);
        }
        if self.fatal { String::from_utf8(input).ok() } else { Some(lossy(&input)) }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// How many bytes remain without a character at the end that is valid so far.
fn whole_characters(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match std::str::from_utf8(&bytes[at..]) {
            Ok(_) => return bytes.len(),
            Err(e) => match e.error_len() {
                Some(length) => at += e.valid_up_to() + length,
                None => return at + e.valid_up_to(),
            },
        }
    }
}

fn check_encoder(call: &Call<'_, '_>) -> Result<()> {
    native::with_data(&call.this(), |_: &mut Encoder| ())
        .ok_or_else(|| call.type_error("'this' is not a TextEncoder"))?;
    if !call.arg(0).is_string() {
        return Err(call.type_error("The input argument must be a string"));
    }
    Ok(())
}

fn encode<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    check_encoder(call)?;
    let text = text(&call.arg(0))?;
    let length = Value::new_number(call.ctx().clone(), text.len() as f64);
    let array = raw::uint8_array(call.ctx(), &[length])?;
    raw::write(&array, 0, text.as_bytes());
    Ok(array)
}

fn encode_into<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    check_encoder(call)?;
    let target = call.arg(1);
    let room = raw::len(&target).ok_or_else(|| call.type_error("not a TypedArray"))?;
    if !raw::is_uint8_array(&target) {
        return Err(call.type_error("The output argument must be a Uint8Array"));
    }
    let text = text(&call.arg(0))?;
    let (mut read, mut written) = (0, 0);
    for c in text.chars() {
        if written + c.len_utf8() > room {
            break;
        }
        read += c.len_utf16();
        written += c.len_utf8();
    }
    raw::write(&target, 0, &text.as_bytes()[..written]);
    let result = Object::new(call.ctx().clone())?;
    for (name, value) in [("read", read), ("written", written)] {
        result.prop(name, Property::from(value as f64).writable().configurable().enumerable())?;
    }
    Ok(result.into_value())
}

#[cfg(test)]
mod tests {
    use super::Decoder;

    fn decoder(fatal: bool) -> Decoder {
        Decoder { fatal, ignore_bom: false, pending: Vec::new() }
    }

    #[test]
    fn characters_may_be_cut_between_calls() {
        let mut d = decoder(false);
        assert_eq!(d.decode(vec![0xf0, 0x9f], true).as_deref(), Some(""));
        assert_eq!(d.decode(vec![0x8c, 0x9f, b'a'], true).as_deref(), Some("\u{1f31f}a"));
        assert_eq!(d.decode(vec![0xf0, 0xa0], true).as_deref(), Some(""));
        assert_eq!(d.decode(vec![], false).as_deref(), Some("\u{fffd}"));
    }

    #[test]
    fn fatal_decoders_refuse_what_is_invalid_or_cut() {
        assert_eq!(decoder(true).decode(vec![0xf0, 0x9f], false), None);
        assert_eq!(decoder(true).decode(vec![0xff], true), None);
        assert_eq!(decoder(true).decode(b"\xef\xbb\xbfa".to_vec(), false).as_deref(), Some("a"));
    }
}
