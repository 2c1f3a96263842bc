//! The server's objects in JSON, read by members.

use serde_json::{Map, Value};

use super::Malformed;

/// An object of an answer.
pub(super) struct Object(Map<String, Value>);

impl Object {
    /// Reads the body of an answer.
    pub fn parse(body: &[u8]) -> Result<Object, Malformed> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(members)) => Ok(Object(members)),
            _ => Err(Malformed("no JSON object")),
        }
    }

    /// A text, if there is one.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// A text that has to be there.
    pub fn needed(&self, name: &str, what: &'static str) -> Result<String, Malformed> {
        self.text(name).map(str::to_owned).ok_or(Malformed(what))
    }

    /// True, and not false or absent.
    pub fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// The texts of a list; none where there is no list.
    pub fn texts(&self, name: &str) -> Vec<String> {
        let list = self.0.get(name).and_then(Value::as_array);
        let texts = list.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    }

    /// An object within this one.
    pub fn object(&self, name: &str) -> Option<Object> {
        self.0.get(name)?.as_object().cloned().map(Object)
    }

    /// The objects of a list.
    pub fn objects(&self, name: &str) -> Vec<Object> {
        let list = self.0.get(name).and_then(Value::as_array);
        let objects = list.into_iter().flatten().filter_map(Value::as_object);
        objects.cloned().map(Object).collect()
    }

    /// The names of its members.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}
