//! JSON objects without ambiguity: no member twice, at any depth, because two readers could take
//! different ones of them; bounded depth; nothing after the object; UTF-8 throughout.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::{Error, Part};

/// Objects and arrays inside one another.
const DEPTH_MAX: usize = 32;

/// Reads a JSON object.
///
/// # Errors
/// [`Error::Json`], with the position.
pub fn parse_object(text: &[u8], part: Part) -> Result<Map<String, Value>, Error> {
    let why = Cell::new(None);
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = Strict { depth: 0, why: &why }.deserialize(&mut reader);
    let read = read.and_then(|value| reader.end().map(|()| value));
    match read {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(Error::Json { part, what: "no JSON object", line: 1, column: 1 }),
        Err(e) => {
            let what = why.get().unwrap_or("invalid JSON");
            Err(Error::Json { part, what, line: e.line(), column: e.column() })
        }
    }
}

/// Reads any value. serde_json's own reader keeps the last of several equal members.
struct Strict<'a> {
    depth: usize,
    /// The reason of an error that is not serde_json's. Its own texts are not shown, because some
    /// of them quote the input.
    why: &'a Cell<Option<&'static str>>,
}

impl<'a> Strict<'a> {
    fn deeper<E: serde::de::Error>(&self) -> Result<Strict<'a>, E> {
        if self.depth == DEPTH_MAX {
            return Err(self.refuse("nested too deeply"));
        }
        Ok(Strict { depth: self.depth + 1, why: self.why })
    }

    fn refuse<E: serde::de::Error>(&self, what: &'static str) -> E {
        self.why.set(Some(what));
        E::custom(what)
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, v: bool) -> Result<Value, E> {
        Ok(Value::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_u64<E>(self, v: u64) -> Result<Value, E> {
        Ok(v.into())
    }

    fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Value, E> {
        match serde_json::Number::from_f64(v) {
            Some(number) => Ok(Value::Number(number)),
            None => Err(self.refuse("a number out of range")),
        }
    }

    fn visit_str<E>(self, v: &str) -> Result<Value, E> {
        Ok(Value::String(v.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(value) = seq.next_element_seed(self.deeper()?)? {
            all.push(value);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value_seed(self.deeper()?)?;
            if all.insert(name, value).is_some() {
                self.why.set(Some("a member is there twice"));
                return Err(A::Error::custom("duplicate"));
            }
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::{DEPTH_MAX, parse_object};
    use crate::{Error, Part};

    fn why(text: &[u8]) -> &'static str {
        match parse_object(text, Part::Claims) {
            Err(Error::Json { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn members_twice_are_refused_at_every_depth() {
        for text in [r#"{"a":1,"a":1}"#, r#"{"x":[{"a":1,"\u0061":2}]}"#] {
            assert_eq!(why(text.as_bytes()), "a member is there twice", "{text}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n), "]".repeat(n));
        assert!(parse_object(nested(DEPTH_MAX - 1).as_bytes(), Part::Claims).is_ok());
        assert_eq!(why(nested(DEPTH_MAX + 1).as_bytes()), "nested too deeply");
        assert_eq!(why(nested(100_000).as_bytes()), "nested too deeply");
    }

    #[test]
    fn only_whole_objects_in_utf_8_are_accepted() {
        let bad: [&[u8]; 9] = [
            b"",
            b"{",
            b"{}x",
            b"{} {}",
            b"{\"a\":\"\xff\"}",
            b"{\"a\":\"\\ud800\"}",
            b"{\"a\":1e999}",
            b"\xef\xbb\xbf{}",
            b"{\"a\":01}",
        ];
        for text in bad {
            why(text);
        }
        assert_eq!(why(b"[]"), "no JSON object");
        assert!(parse_object(b" {\"a\":[1,-2,1.5,true,null,\"x\"]}\n", Part::Claims).is_ok());
    }
}
