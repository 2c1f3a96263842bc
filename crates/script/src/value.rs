//! Values that cross the border between the server and a script.

use rquickjs::{Result, Value};

/// What a function is called with.
#[derive(Clone, Debug)]
pub enum Argument {
    /// The `r` object of the request that the host lends, or the `s` object of its session.
    Request,
    /// A plain value.
    Data(Data),
    /// `{ last: … }`: whether a piece of a response is the last one.
    Last(bool),
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
