//! Pairs as JSON: what the API reads and writes, and what a state file has.

use base::json::{escape, string};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::store::Pair;

/// The members of a JSON object, in their order.
///
/// # Errors
/// The text is no JSON object, or a member stands twice.
pub fn members(text: &[u8]) -> Result<Vec<(String, Value)>, serde_json::Error> {
    struct Members;

    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(String, Value)>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            let mut names = std::collections::HashSet::new();
            while let Some((name, value)) = map.next_entry::<String, Value>()? {
                if !names.insert(name.clone()) {
                    let m = format!("duplicate key \"{name}\"");
                    return Err(serde::de::Error::custom(m));
                }
                all.push((name, value));
            }
            Ok(all)
        }
    }

    let mut reader = serde_json::Deserializer::from_slice(text);
    let all = reader.deserialize_map(Members)?;
    reader.end()?;
    Ok(all)
}

/// Appends `"key":"value"` as the API shows it.
pub fn write(pair: &Pair, out: &mut Vec<u8>) {
    string(out, &pair.key);
    out.push(b':');
    string(out, &pair.value);
}

/// Appends a pair for the state file: `"key":"value"`, or an object where it expires, or holds
/// bytes that are no text.
pub(crate) fn write_state(pair: &Pair, out: &mut Vec<u8>) {
    let base64 = |bytes: &[u8], out: &mut Vec<u8>| {
        out.push(b'"');
        base::base64::encode(bytes, out);
        out.push(b'"');
    };
    let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
    let (key, value) = (is_text(&pair.key), is_text(&pair.value));
    out.push(b'"');
    match key {
        true => escape(&pair.key, out),
        false => base::base64::encode(&pair.key, out),
    }
    out.extend_from_slice(b"\":");
    if key && value && pair.expires_ms == 0 {
        string(out, &pair.value);
        return;
    }
    out.extend_from_slice(if key { b"{" } else { b"{\"key\":\"base64\"," });
    if value {
        out.extend_from_slice(b"\"value\":");
        string(out, &pair.value);
    } else {
        out.extend_from_slice(b"\"value_base64\":");
        base64(&pair.value, out);
    }
    if pair.expires_ms != 0 {
        out.extend_from_slice(format!(",\"expires\":{}", pair.expires_ms).as_bytes());
    }
    out.push(b'}');
}

/// A pair of a state file; `None` if it is malformed.
pub(crate) fn read_state(name: &str, value: &Value) -> Option<Pair> {
    let decoded = |text: &str| {
        let mut bytes = Vec::new();
        base::base64::decode(text.as_bytes(), &mut bytes).then_some(bytes)
    };
    let parts = match value {
        Value::String(text) => return Some(Pair::new(name.as_bytes(), text.as_bytes())),
        Value::Object(parts) => parts,
        _ => return None,
    };
    let key = match parts.get("key") {
        None => name.as_bytes().to_vec(),
        Some(kind) => decoded(name).filter(|_| kind == "base64")?,
    };
    let value = match (parts.get("value"), parts.get("value_base64")) {
        (Some(text), None) => text.as_str()?.as_bytes().to_vec(),
        (None, Some(text)) => decoded(text.as_str()?)?,
        _ => return None,
    };
    let expires_ms = parts.get("expires").map_or(Some(0), Value::as_u64)?;
    Some(Pair { key, value, expires_ms })
}

/// Whether a value can be written as a number: not infinity, nor a text that the API has stored.
pub(crate) fn is_number(value: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Number>(value).is_ok()
}

/// Appends a pair as njs writes it: `"key":{"value":"text","expire":1700000000000}`.
pub(crate) fn write_script(pair: &Pair, numbers: bool, out: &mut Vec<u8>) {
    string(out, &pair.key);
    out.extend_from_slice(b":{\"value\":");
    match numbers {
        true => out.extend_from_slice(&pair.value),
        false => string(out, &pair.value),
    }
    if pair.expires_ms != 0 {
        out.extend_from_slice(format!(",\"expire\":{}", pair.expires_ms).as_bytes());
    }
    out.push(b'}');
}

/// A pair of a state file that njs wrote; `None` if it is malformed.
pub(crate) fn read_script(name: &str, value: &Value, numbers: bool) -> Option<Pair> {
    let parts = value.as_object()?;
    let value = match parts.get("value")? {
        Value::String(text) if !numbers => text.clone(),
        Value::Number(number) if numbers => number.to_string(),
        _ => return None,
    };
    let expires_ms = parts.get("expire").map_or(Some(0), Value::as_u64)?;
    Some(Pair { expires_ms, ..Pair::new(name.as_bytes(), value.as_bytes()) })
}

/// The text of an object without a comma behind its last member, which njs takes.
pub(crate) fn without_last_comma(text: &[u8]) -> Vec<u8> {
    let end = text.trim_ascii_end();
    let inner = end.strip_suffix(b"}").map(<[u8]>::trim_ascii_end);
    match inner.and_then(|inner| inner.strip_suffix(b",")) {
        Some(inner) => [inner, b"}"].concat(),
        None => text.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn pairs_of_scripts() {
        let text = br#"{"a":{"value":"x\ny","expire":7}, "n": {"value":1, "other":2},}"#;
        let members = super::members(&super::without_last_comma(text)).unwrap();
        let pair = super::read_script(&members[0].0, &members[0].1, false).unwrap();
        assert_eq!((pair.value.as_slice(), pair.expires_ms), (&b"x\ny"[..], 7));
        assert!(super::read_script("n", &members[1].1, false).is_none());
        let number = super::read_script("n", &members[1].1, true).unwrap();
        for (value, is) in
            [("1", true), ("-1.5e3", true), ("NaN", false), ("inf", false), ("x", false)]
        {
            assert_eq!(super::is_number(value.as_bytes()), is, "{value}");
        }
        let mut out = Vec::new();
        super::write_script(&pair, false, &mut out);
        super::write_script(&number, true, &mut out);
        assert_eq!(out, br#""a":{"value":"x\u000ay","expire":7}"n":{"value":1}"#);
    }

    use super::*;

    #[test]
    fn members_keep_their_order_and_are_there_once() {
        let all = members(b" {\"b\": \"1\", \"a\": null}\n").unwrap();
        assert_eq!(all[0], ("b".to_owned(), Value::from("1")));
        assert_eq!(all[1], ("a".to_owned(), Value::Null));
        let bad: [&[u8]; 7] =
            [b"", b"[]", b"{", b"{\"a\":1}x", b"{\"a\":1,\"a\":2}", b"{\"a\":\"\xc3\"}", b"1"];
        for text in bad {
            assert!(members(text).is_err(), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn pairs_come_back_from_the_state() {
        for pair in [
            Pair::new(b"a \"quoted\"\n", "\u{e9}\u{1}".as_bytes()),
            Pair::new(b"", b""),
            Pair::new(b"\xff\xfe", b"text"),
            Pair { expires_ms: 17, ..Pair::new(b"k", b"\x80") },
            Pair { expires_ms: u64::MAX, ..Pair::new(b"k", b"v") },
        ] {
            let mut text = b"{".to_vec();
            write_state(&pair, &mut text);
            text.push(b'}');
            let all = members(&text).unwrap();
            assert_eq!(read_state(&all[0].0, &all[0].1), Some(pair));
        }
        for bad in ["1", "{}", "{\"value\":1}", "{\"value\":\"\",\"expires\":-1}", "[]", "null"] {
            assert_eq!(read_state("k", &serde_json::from_str(bad).unwrap()), None, "{bad}");
        }
    }
}
