//! Values that cross the border between the server and a script.

use rquickjs::{Array, Ctx, Object, Result, String as JsString, Value};

/// What a function is called with.
#[derive(Clone, Debug)]
pub enum Argument {
    /// The `r` object of the request that the host lends.
    Request,
    /// A plain value.
    Data(Data),
}

/// A plain value: what a script is given, and what it returned.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// `undefined`
    Undefined,
    /// `null`
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A string. Lone surrogates become U+FFFD.
    Text(String),
    /// The bytes of a `Buffer`, another typed array or an `ArrayBuffer`; given to a script as a
    /// `Buffer`.
    Bytes(Vec<u8>),
    /// An array.
    List(Vec<Data>),
    /// An object's own enumerable properties, in order. From a script: any other object, as its
    /// string conversion has it, is [`Data::Text`].
    Object(Vec<(String, Data)>),
}

/// How the host completes what a native has asked for.
#[derive(Debug)]
pub enum Answer {
    /// It succeeded.
    Data(Data),
    /// It failed; the promise is rejected with an `Error` of this message.
    Failed(String),
}

impl Data {
    /// The value in the engine.
    pub(crate) fn to_js<'js>(&self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        let ctx = ctx.clone();
        Ok(match self {
            Data::Undefined => Value::new_undefined(ctx),
            Data::Null => Value::new_null(ctx),
            Data::Bool(b) => Value::new_bool(ctx, *b),
            Data::Number(n) => Value::new_number(ctx, *n),
            Data::Text(text) => JsString::from_str(ctx, text)?.into_value(),
            Data::Bytes(bytes) => crate::buffer::new(&ctx, bytes)?,
            Data::List(list) => {
                let array = Array::new(ctx.clone())?;
                for (i, item) in list.iter().enumerate() {
                    array.set(i, item.to_js(&ctx)?)?;
                }
                array.into_value()
            }
            Data::Object(entries) => {
                let object = Object::new(ctx.clone())?;
                for (name, value) in entries {
                    object.set(name.as_str(), value.to_js(&ctx)?)?;
                }
                object.into_value()
            }
        })
    }

    /// The value outside the engine. Bytes and scalars keep their type, everything else is
    /// converted to a string as `String(value)` does, which may run the script's own `toString`.
    pub(crate) fn from_js(value: &Value<'_>) -> Result<Data> {
        if value.is_undefined() {
            return Ok(Data::Undefined);
        }
        if value.is_null() {
            return Ok(Data::Null);
        }
        if let Some(b) = value.as_bool() {
            return Ok(Data::Bool(b));
        }
        if let Some(n) = value.as_number() {
            return Ok(Data::Number(n));
        }
        if let Some(bytes) = crate::raw::bytes(value) {
            return Ok(Data::Bytes(bytes));
        }
        text(value).map(Data::Text)
    }
}

/// `String(value)`, with lone surrogates as U+FFFD.
pub fn text(value: &Value<'_>) -> Result<String> {
    crate::raw::to_text(value)
}

/// `String(value)` for messages: conversions that throw give a placeholder.
pub fn describe(value: &Value<'_>) -> String {
    match text(value) {
        Ok(text) => text,
        Err(_) => {
            value.ctx().catch();
            format!("[{}]", value.type_name())
        }
    }
}

/// UTF-8 from the engine's form, which writes lone surrogates as three bytes each: these become
/// one U+FFFD, where the standard library would write three.
pub fn without_surrogates(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let is_surrogate = byte == 0xed && bytes.get(at + 1).is_some_and(|b| *b >= 0xa0);
        if is_surrogate {
            out.extend_from_slice("\u{fffd}".as_bytes());
            at += 3;
        } else {
            out.push(byte);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
