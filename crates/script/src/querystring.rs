//! The module `querystring`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rquickjs::object::Property;
use rquickjs::{Array, Ctx, Function, Object, Result, Value};

use crate::native::{self, Call, to_i64};
use crate::state;
use crate::value::text;

/// What the module exports.
pub(crate) const EXPORTS: &[&str] =
    &["parse", "stringify", "escape", "unescape", "decode", "encode"];

/// How many pairs are read unless the caller says otherwise.
const MAX_KEYS: i64 = 1000;

pub fn module<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let module = Object::new(ctx.clone())?;
    native::methods(
        &module,
        &[
            ("parse", 4, parse),
            ("stringify", 4, stringify),
            ("escape", 1, |call| call.text(&escape(&text(&call.arg(0))?))),
            ("unescape", 1, |call| call.text(&unescape(text(&call.arg(0))?.as_bytes()))),
            ("decode", 4, parse),
            ("encode", 4, stringify),
        ],
    )?;
    for name in ["escape", "unescape"] {
        // Says to `parse` and `stringify` that the script has not replaced the function.
        let f: Object<'js> = module.get(name)?;
        f.prop("native", Property::from(true))?;
    }
    Ok(module)
}

/// A separator: an argument, unless it is null, undefined or empty.
fn separator(value: &Value<'_>, default: &str) -> Result<String> {
    let given = match value.is_undefined() || value.is_null() {
        true => String::new(),
        false => text(value)?,
    };
    Ok(if given.is_empty() { default.to_owned() } else { given })
}

/// The script's function for one direction: an option, or its replacement of the module's own.
/// `None` if it is the module's.
fn coder<'js>(call: &Call<'_, 'js>, option: &str, name: &str) -> Result<Option<Function<'js>>> {
    if let Some(options) = call.arg(3).as_object() {
        let given: Value<'js> = options.get(option)?;
        if !given.is_undefined() {
            let message = format!("option {option} is not a function");
            return given.into_function().map(Some).ok_or_else(|| call.type_error(&message));
        }
    }
    let this = call.this();
    // A function that was taken out of the module has the module's own.
    let Some(module) = this.as_object() else { return Ok(None) };
    let own: Value<'js> = module.get(name)?;
    let Some(f) = own.into_function() else {
        return Err(call.type_error(&format!("QueryString.{name} is not a function")));
    };
    let is_native = f.get::<_, Value<'js>>("native")?.is_bool();
    Ok(Some(f).filter(|_| !is_native))
}

fn parse<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let pairs_end = separator(&call.arg(1), "&")?;
    let name_end = separator(&call.arg(2), "=")?;
    let mut max_keys = MAX_KEYS;
    if let Some(options) = call.arg(3).as_object() {
        let given: Value<'js> = options.get("maxKeys")?;
        if !given.is_undefined() {
            max_keys = to_i64(&given)?;
        }
    }
    // As in Node.js, 0 is no limit.
    let max_keys = if max_keys <= 0 { usize::MAX } else { max_keys as usize };
    let decoder = coder(call, "decodeURIComponent", "unescape")?;
    let query = text(&call.arg(0))?;
    let mut names: Vec<String> = Vec::new();
    let mut values: HashMap<String, Vec<Value<'js>>> = HashMap::new();
    for pair in query.split(&pairs_end).take(max_keys) {
        call.go_on()?;
        if pair.is_empty() {
            continue;
        }
        let (name, value) = pair.split_once(&name_end).unwrap_or((pair, ""));
        let decode = |part: &str| match &decoder {
            Some(f) => f.call::<_, Value<'js>>((part,)),
            None => call.text(&unescape(part.as_bytes())),
        };
        let name = text(&decode(name)?)?;
        let value = decode(value)?;
        match values.entry(name) {
            Entry::Occupied(mut entry) => entry.get_mut().push(value),
            Entry::Vacant(entry) => {
                names.push(entry.key().clone());
                entry.insert(vec![value]);
            }
        }
    }
    let object = Object::new(call.ctx().clone())?;
    for name in names {
        call.go_on()?;
        let mut list = values.remove(&name).unwrap_or_default();
        // A name that occurs more than once has an array. A definition, not an assignment: the
        // name may be `__proto__`.
        let value = match list.len() {
            1 => list.remove(0),
            _ => array(call.ctx(), list)?,
        };
        object.prop(name, Property::from(value).writable().configurable().enumerable())?;
    }
    Ok(object.into_value())
}

fn array<'js>(ctx: &Ctx<'js>, list: Vec<Value<'js>>) -> Result<Value<'js>> {
    let array = Array::new(ctx.clone())?;
    for (i, value) in list.into_iter().enumerate() {
        native::go_on(ctx)?;
        array.set(i, value)?;
    }
    Ok(array.into_value())
}

fn stringify<'js>(call: &Call<'_, 'js>) -> Result<Value<'js>> {
    let pairs_end = separator(&call.arg(1), "&")?;
    let name_end = separator(&call.arg(2), "=")?;
    let encoder = coder(call, "encodeURIComponent", "escape")?;
    let encode = |value: &Value<'js>| -> Result<String> {
        match &encoder {
            Some(f) => text(&f.call::<_, Value<'js>>((value.clone(),))?),
            None => Ok(escape(&text(value)?)),
        }
    };
    let max = state::of(call.ctx()).memory_max();
    let mut out = String::new();
    let mut push = |name: &Value<'js>, value: &Value<'js>| -> Result<()> {
        if !out.is_empty() {
            out.push_str(&pairs_end);
        }
        out.push_str(&encode(name)?);
        out.push_str(&name_end);
        if value.is_number() || value.is_bool() || value.is_string() {
            out.push_str(&encode(value)?);
        }
        if out.len() > max { Err(state::out_of_memory(call.ctx())) } else { Ok(()) }
    };
    if let Some(object) = call.arg(0).as_object() {
        for name in object.keys::<String>() {
            call.go_on()?;
            let name = name?;
            let value: Value<'js> = object.get(name.as_str())?;
            let name = call.text(&name)?;
            match value.as_array() {
                Some(array) => {
                    for item in native::elements(array) {
                        push(&name, &item?)?;
                    }
                }
                None => push(&name, &value)?,
            }
        }
    }
    call.text(&out)
}

/// As `encodeURIComponent`.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => out.push(char::from(byte)),
            b'-' | b'_' | b'.' | b'!' | b'~' | b'*' | b'\'' | b'(' | b')' => {
                out.push(char::from(byte));
            }
            _ => {
                out.push('%');
                for digit in [byte >> 4, byte & 15] {
                    out.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
                }
            }
        }
    }
    out
}

/// Decodes `%XX` and `+`; what is no such pair stays, and invalid UTF-8 becomes U+FFFD.
fn unescape(text: &[u8]) -> String {
    let digit = |at: usize| text.get(at).and_then(|c| char::from(*c).to_digit(16));
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match (byte, digit(at), digit(at + 1)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) => out.push(b' '),
            _ => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{escape, unescape};

    #[test]
    fn escapes() {
        assert_eq!(escape("a b=αž~"), "a%20b%3D%CE%B1%C5%BE~");
        assert_eq!(unescape(b"a+b%3d%CE%B1%"), "a b=α%");
        assert_eq!(unescape(b"%F0x%zz"), "\u{fffd}x%zz");
    }
}
