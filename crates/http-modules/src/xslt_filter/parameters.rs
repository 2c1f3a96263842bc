//! The parameters that a configuration passes to stylesheets.

use conf::template::Template;
use http_wire::uri::{Unescape, unescape};
use xslt::Parameter;

/// `xslt_param` and `xslt_string_param`
#[derive(Clone)]
pub(super) struct Named {
    pub name: String,
    pub value: Template,
    /// The value is a text, no expression.
    pub is_text: bool,
}

impl Named {
    /// The parameter with the value for a request.
    pub fn parameter(&self, value: &[u8]) -> Parameter {
        Parameter { name: self.name.clone(), value: text(value), is_text: self.is_text }
    }
}

/// A part of an argument that has no name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unnamed(pub String);

/// Appends the parameters of an argument of `xslt_stylesheet`: `NAME=EXPRESSION`, with colons
/// between several and `%XX` in expressions.
pub(super) fn parse(argument: &[u8], out: &mut Vec<Parameter>) -> Result<(), Unnamed> {
    let mut rest = argument;
    while !rest.is_empty() {
        let Some(end) = memchr::memchr(b'=', rest) else { return Err(Unnamed(text(rest))) };
        let (name, value) = (&rest[..end], &rest[end + 1..]);
        let end = memchr::memchr(b':', value).unwrap_or(value.len());
        rest = value.get(end + 1..).unwrap_or_default();
        let mut plain = Vec::with_capacity(end);
        unescape(&value[..end], Unescape::All, &mut plain);
        out.push(Parameter { name: text(name), value: text(&plain), is_text: false });
    }
    Ok(())
}

/// No text of XML has a character NUL: a value ends before it.
fn text(bytes: &[u8]) -> String {
    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        for (argument, want) in [
            ("", &[][..]),
            ("a=1", &[("a", "1")]),
            ("a='x':b=/r/@y:", &[("a", "'x'"), ("b", "/r/@y")]),
            ("a==b=:b=", &[("a", "=b="), ("b", "")]),
            ("a='%3A%3d%zz%4'", &[("a", "':=zz")]),
            ("a:b=c%25", &[("a:b", "c%")]),
            ("a=x%00y\0z", &[("a", "x")]),
        ] {
            let mut out = Vec::new();
            parse(argument.as_bytes(), &mut out).unwrap();
            let found: Vec<_> = out.iter().map(|p| (&*p.name, &*p.value)).collect();
            assert_eq!(found, want, "{argument}");
            assert!(out.iter().all(|p| !p.is_text));
        }
        for (argument, part) in [("a", "a"), ("a=1:b", "b"), ("a=1::", ":"), ("\0=", "")] {
            let mut out = Vec::new();
            let parsed = parse(argument.as_bytes(), &mut out);
            match argument.contains('\0') {
                true => assert_eq!(out[0].name, ""),
                false => assert_eq!(parsed, Err(Unnamed(part.to_owned())), "{argument}"),
            }
        }
        let mut out = Vec::new();
        parse(b"a=\xff", &mut out).unwrap();
        assert_eq!(out[0].value, "\u{fffd}");
    }
}
