//! JSON as tests read it.

use std::collections::BTreeMap;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Json>),
    /// An object.
    Object(BTreeMap<String, Json>),
}

impl Json {
    /// Parses a whole text.
    ///
    /// # Panics
    /// If it is no JSON, or an object has a member twice.
    pub fn parse(text: &str) -> Json {
        let mut rest = text;
        let value = value(&mut rest);
        assert!(rest.trim().is_empty(), "behind the value: {rest}");
        value
    }

    /// A member of an object, by names with dots between them.
    ///
    /// # Panics
    /// If there is none.
    pub fn at(&self, path: &str) -> &Json {
        path.split('.').fold(self, |value, name| match value {
            Json::Object(members) => members
                .get(name)
                .unwrap_or_else(|| panic!("no \"{name}\" of \"{path}\" in {value:?}")),
            Json::List(items) => &items[name.parse::<usize>().expect("an index")],
            _ => panic!("no \"{name}\" of \"{path}\" in {value:?}"),
        })
    }

    /// The number at a path.
    ///
    /// # Panics
    /// If there is none.
    pub fn number(&self, path: &str) -> u64 {
        match self.at(path) {
            Json::Number(n) => *n as u64,
            other => panic!("{path} is {other:?}"),
        }
    }

    /// The names of an object's members.
    ///
    /// # Panics
    /// If it is no object.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Json::Object(members) => members.keys().map(String::as_str).collect(),
            other => panic!("{other:?} is no object"),
        }
    }
}

fn expect(rest: &mut &str, what: &str) {
    *rest = rest.trim_start();
    *rest = rest.strip_prefix(what).unwrap_or_else(|| panic!("no {what} in {rest:.40}"));
}

fn next_is(rest: &mut &str, what: &str) -> bool {
    *rest = rest.trim_start();
    match rest.strip_prefix(what) {
        Some(behind) => {
            *rest = behind;
            true
        }
        None => false,
    }
}

fn value(rest: &mut &str) -> Json {
    if next_is(rest, "{") {
        let mut members = BTreeMap::new();
        while !next_is(rest, "}") {
            if !members.is_empty() {
                expect(rest, ",");
            }
            let name = text(rest);
            expect(rest, ":");
            let value = value(rest);
            assert!(members.insert(name.clone(), value).is_none(), "twice: {name}");
        }
        return Json::Object(members);
    }
    if next_is(rest, "[") {
        let mut items = Vec::new();
        while !next_is(rest, "]") {
            if !items.is_empty() {
                expect(rest, ",");
            }
            items.push(value(rest));
        }
        return Json::List(items);
    }
    for (word, value) in
        [("true", Json::Bool(true)), ("false", Json::Bool(false)), ("null", Json::Null)]
    {
        if next_is(rest, word) {
            return value;
        }
    }
    if rest.starts_with('"') {
        return Json::Text(text(rest));
    }
    let end = rest.find(|c: char| !"+-.eE0123456789".contains(c)).unwrap_or(rest.len());
    let number = rest[..end].parse().unwrap_or_else(|_| panic!("no value in {rest:.40}"));
    *rest = &rest[end..];
    Json::Number(number)
}

fn text(rest: &mut &str) -> String {
    expect(rest, "\"");
    let (mut out, mut chars) = (String::new(), rest.chars());
    loop {
        match chars.next().expect("the end of the text") {
            '"' => break,
            '\\' => match chars.next().expect("an escape") {
                'u' => {
                    let digits: String = chars.by_ref().take(4).collect();
                    let code = u32::from_str_radix(&digits, 16).expect("four digits");
                    out.push(char::from_u32(code).expect("a character"));
                }
                c => out.push(c),
            },
            c => out.push(c),
        }
    }
    *rest = chars.as_str();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let json = Json::parse(r#" {"a":[1,{"b":"x\"\u0041"}],"c":{},"d":true} "#);
        assert_eq!(json.number("a.0"), 1);
        assert_eq!(*json.at("a.1.b"), Json::Text("x\"A".to_owned()));
        assert_eq!(json.names(), ["a", "c", "d"]);
    }
}
