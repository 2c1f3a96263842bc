//! Filters of searches (RFC 4511 section 4.5.1.7), and their text (RFC 4515).

use super::ber::{put, tag};

/// Filters inside filters, at most.
const DEPTH_MAX: usize = 32;

/// Tags of the choices.
mod choice {
    pub const AND: u8 = 0xa0;
    pub const OR: u8 = 0xa1;
    pub const NOT: u8 = 0xa2;
    pub(crate) const EQUALITY: u8 = 0xa3;
    pub(crate) const SUBSTRINGS: u8 = 0xa4;
    pub(crate) const GREATER: u8 = 0xa5;
    pub(crate) const LESS: u8 = 0xa6;
    pub(crate) const PRESENT: u8 = 0x87;
    pub(crate) const APPROXIMATE: u8 = 0xa8;
    pub(crate) const EXTENSIBLE: u8 = 0xa9;
}

/// A filter in its binary form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter(Vec<u8>);

impl Filter {
    /// An attribute has this value, whatever bytes that has.
    pub fn equals(attribute: &[u8], value: &[u8]) -> Filter {
        Filter(assertion(choice::EQUALITY, attribute, value))
    }

    /// An attribute has a value.
    pub fn present(attribute: &[u8]) -> Filter {
        let mut out = Vec::new();
        put(&mut out, choice::PRESENT, attribute);
        Filter(out)
    }

    /// Both filters match.
    pub fn and(self, other: &Filter) -> Filter {
        let mut out = Vec::new();
        put(&mut out, choice::AND, &[&self.0[..], &other.0].concat());
        Filter(out)
    }

    /// Reads the text of a filter, for example `(&(objectClass=person)(!(loginShell=*nologin)))`.
    ///
    /// # Errors
    /// The reason why it is none.
    pub fn parse(text: &[u8]) -> Result<Filter, &'static str> {
        let mut parser = Parser { text, at: 0 };
        let mut out = Vec::new();
        parser.filter(&mut out, DEPTH_MAX)?;
        if parser.at < text.len() {
            return Err("there is something behind its last parenthesis");
        }
        Ok(Filter(out))
    }

    /// The binary form.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A value as it stands in the text of a filter (RFC 4515 section 3).
///
/// ```
/// assert_eq!(weir_proto::ldap::escape(b"a*(b)"), "a\\2a\\28b\\29");
/// ```
pub fn escape(value: &[u8]) -> String {
    let mut out = String::new();
    for &byte in value {
        match byte {
            b'*' | b'(' | b')' | b'\\' => {}
            0x20..0x7f => {
                out.push(byte.into());
                continue;
            }
            _ => {}
        }
        out.push_str(&format!("\\{byte:02x}"));
    }
    out
}

fn assertion(choice: u8, attribute: &[u8], value: &[u8]) -> Vec<u8> {
    let (mut content, mut out) = (Vec::new(), Vec::new());
    put(&mut content, tag::OCTETS, attribute);
    put(&mut content, tag::OCTETS, value);
    put(&mut out, choice, &content);
    out
}

/// Whether this may be the description of an attribute: a name or numbers, with options
/// (RFC 4512 section 2.5).
pub(super) fn is_attribute(text: &[u8]) -> bool {
    let of_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b';');
    text.first().is_some_and(u8::is_ascii_alphanumeric) && text.iter().all(of_name)
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8, missing: &'static str) -> Result<(), &'static str> {
        if self.peek() != Some(byte) {
            return Err(missing);
        }
        self.at += 1;
        Ok(())
    }

    /// A filter in parentheses.
    fn filter(&mut self, out: &mut Vec<u8>, depth: usize) -> Result<(), &'static str> {
        let depth = depth.checked_sub(1).ok_or("it has too many filters inside one another")?;
        self.expect(b'(', "a filter begins with a parenthesis")?;
        match self.peek() {
            Some(b'&') => self.list(choice::AND, out, depth)?,
            Some(b'|') => self.list(choice::OR, out, depth)?,
            Some(b'!') => {
                self.at += 1;
                let mut inner = Vec::new();
                self.filter(&mut inner, depth)?;
                put(out, choice::NOT, &inner);
            }
            _ => self.item(out)?,
        }
        self.expect(b')', "a parenthesis is not closed")
    }

    fn list(&mut self, choice: u8, out: &mut Vec<u8>, depth: usize) -> Result<(), &'static str> {
        self.at += 1;
        let mut inner = Vec::new();
        while self.peek() == Some(b'(') {
            self.filter(&mut inner, depth)?;
        }
        put(out, choice, &inner);
        Ok(())
    }

    /// What is between two parentheses without others inside.
    fn item(&mut self, out: &mut Vec<u8>) -> Result<(), &'static str> {
        let rest = &self.text[self.at..];
        let end = rest.iter().position(|byte| matches!(byte, b'(' | b')'));
        let item = &rest[..end.ok_or("a parenthesis is not closed")?];
        self.at += item.len();
        let equals = item.iter().position(|byte| *byte == b'=').ok_or("an item has no \"=\"")?;
        let (attribute, value) = (&item[..equals], &item[equals + 1..]);
        let (choice, attribute) = match attribute {
            [attribute @ .., b'>'] => (choice::GREATER, attribute),
            [attribute @ .., b'<'] => (choice::LESS, attribute),
            [attribute @ .., b'~'] => (choice::APPROXIMATE, attribute),
            [rule @ .., b':'] => return extensible(rule, value, out),
            attribute => (choice::EQUALITY, attribute),
        };
        if !is_attribute(attribute) {
            return Err("the name of an attribute is missing or invalid");
        }
        match value {
            b"*" if choice == choice::EQUALITY => put(out, choice::PRESENT, attribute),
            _ if value.contains(&b'*') && choice == choice::EQUALITY => {
                substrings(attribute, value, out)?;
            }
            _ => out.extend_from_slice(&assertion(choice, attribute, &unescape(value)?)),
        }
        Ok(())
    }
}

/// `initial*any*final`, each of which may be missing.
fn substrings(attribute: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    let parts: Vec<&[u8]> = value.split(|byte| *byte == b'*').collect();
    let (mut all, last) = (Vec::new(), parts.len() - 1);
    for (i, part) in parts.into_iter().enumerate() {
        if part.is_empty() {
            continue;
        }
        let place = match i {
            0 => 0x80,
            i if i == last => 0x82,
            _ => 0x81,
        };
        put(&mut all, place, &unescape(part)?);
    }
    if all.is_empty() {
        return Err("between \"*\" and \"*\" there is nothing");
    }
    let mut content = Vec::new();
    put(&mut content, tag::OCTETS, attribute);
    put(&mut content, tag::SEQUENCE, &all);
    put(out, choice::SUBSTRINGS, &content);
    Ok(())
}

/// `attribute:dn:rule:=value`; the attribute or the rule may be missing.
fn extensible(rule: &[u8], value: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    const INVALID: &str = "an item with \":=\" is invalid";
    let mut parts = rule.split(|byte| *byte == b':').peekable();
    let attribute = parts.next().unwrap_or_default();
    let with_dn = parts.next_if(|part| part.eq_ignore_ascii_case(b"dn")).is_some();
    let rule = parts.next();
    let is_valid = |text: &[u8]| is_attribute(text);
    if parts.next().is_some()
        || !(attribute.is_empty() || is_valid(attribute))
        || !rule.is_none_or(is_valid)
        || (attribute.is_empty() && rule.is_none())
    {
        return Err(INVALID);
    }
    let mut content = Vec::new();
    if let Some(rule) = rule {
        put(&mut content, 0x81, rule);
    }
    if !attribute.is_empty() {
        put(&mut content, 0x82, attribute);
    }
    put(&mut content, 0x83, &unescape(value)?);
    if with_dn {
        put(&mut content, 0x84, &[0xff]);
    }
    put(out, choice::EXTENSIBLE, &content);
    Ok(())
}

/// A value without its escapes: a backslash and two hexadecimal digits.
fn unescape(text: &[u8]) -> Result<Vec<u8>, &'static str> {
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while at < text.len() {
        let byte = match text[at] {
            b'\\' => {
                const INVALID: &str = "a backslash has no two hexadecimal digits behind it";
                let digits = text.get(at + 1..at + 3).ok_or(INVALID)?;
                let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(INVALID);
                at += 2;
                (digit(digits[0])? << 4 | digit(digits[1])?) as u8
            }
            b'*' => return Err("a \"*\" is at a place where it has no meaning"),
            0 => return Err("it has a NUL character"),
            byte => byte,
        };
        out.push(byte);
        at += 1;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_encoded_as_the_rfc_says() {
        for (text, bytes) in [
            ("(cn=Babs)", &b"\xa3\x0a\x04\x02cn\x04\x04Babs"[..]),
            ("(cn=*)", b"\x87\x02cn"),
            ("(!(a=b))", b"\xa2\x08\xa3\x06\x04\x01a\x04\x01b"),
            ("(&(a=*)(b=*))", b"\xa0\x06\x87\x01a\x87\x01b"),
            ("(|(a=*))", b"\xa1\x03\x87\x01a"),
            ("(&)", b"\xa0\x00"),
            ("(a>=1)", b"\xa5\x06\x04\x01a\x04\x011"),
            ("(a<=1)", b"\xa6\x06\x04\x01a\x04\x011"),
            ("(a~=1)", b"\xa8\x06\x04\x01a\x04\x011"),
            ("(a=)", b"\xa3\x05\x04\x01a\x04\x00"),
            ("(a=x*y*z)", b"\xa4\x0e\x04\x01a\x30\x09\x80\x01x\x81\x01y\x82\x01z"),
            ("(a=*y*)", b"\xa4\x08\x04\x01a\x30\x03\x81\x01y"),
            ("(a=\\2a\\00)", b"\xa3\x07\x04\x01a\x04\x02*\0"),
            ("(a:dn:2.4:=v)", b"\xa9\x0e\x81\x032.4\x82\x01a\x83\x01v\x84\x01\xff"),
            ("(:2.4:=v)", b"\xa9\x08\x81\x032.4\x83\x01v"),
            ("(a:=v)", b"\xa9\x06\x82\x01a\x83\x01v"),
        ] {
            let filter = Filter::parse(text.as_bytes());
            assert_eq!(filter.as_ref().map(Filter::bytes), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn errors_have_reasons() {
        for text in [
            "",
            "a=b",
            "(",
            "()",
            "(a)",
            "(a=b",
            "(a=b))",
            "(=b)",
            "((a=b))",
            "(!a=b)",
            "(a=\\2)",
            "(a=\\zz)",
            "(a=**)",
            "(a>=*)",
            "(a b=c)",
            "(:=v)",
            "(a:b:c:=v)",
            "(a=\0)",
            "(!)",
        ] {
            assert!(Filter::parse(text.as_bytes()).is_err(), "{text}");
        }
        let nested = |depth| [&b"(!".repeat(depth)[..], b"(a=b)", &b")".repeat(depth)].concat();
        assert!(Filter::parse(&nested(DEPTH_MAX - 1)).is_ok());
        assert!(Filter::parse(&nested(DEPTH_MAX)).is_err());
    }

    #[test]
    fn an_escaped_value_is_that_value() {
        let all: Vec<u8> = (0..=255).collect();
        for value in [&all[..], b"", b"*)(uid=*))(|(uid=*", b"a\\2a", "ü".as_bytes()] {
            let text = format!("(uid={})", escape(value));
            assert_eq!(Filter::parse(text.as_bytes()), Ok(Filter::equals(b"uid", value)));
        }
    }
}
