//! JSON: objects in the making, and text within strings.

use crate::ascii::write_u64;

/// Appends a text as it stands within the quotes of a JSON string. Bytes that are no UTF-8 are
/// shown as U+FFFD, because readers of JSON refuse a line with others (RFC 8259 section 8.1).
pub fn escape(text: &[u8], out: &mut Vec<u8>) {
    for chunk in text.utf8_chunks() {
        escape_utf8(chunk.valid(), out);
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

fn escape_utf8(text: &str, out: &mut Vec<u8>) {
    for b in text.bytes() {
        match b {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', b]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            0..0x20 => {
                const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]);
            }
            _ => out.push(b),
        }
    }
}

/// A JSON object in the making. Names and values stand in the order in which they are added; each
/// name is to be added once.
pub struct Object<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
    only: Option<&'a [Vec<u8>]>,
}

impl<'a> Object<'a> {
    /// Writes an object to `out`, with the members that `fill` adds.
    pub fn write(out: &'a mut Vec<u8>, fill: impl FnOnce(&mut Object<'_>)) {
        Object::write_only(out, None, fill);
    }

    /// The same with no other members than those named, if there is a list of names.
    pub fn write_only(
        out: &'a mut Vec<u8>,
        only: Option<&'a [Vec<u8>]>,
        fill: impl FnOnce(&mut Object<'_>),
    ) {
        out.push(b'{');
        fill(&mut Object { out, empty: true, only });
        out.push(b'}');
    }

    /// Whether a member of that name is written.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_none_or(|only| only.iter().any(|wanted| wanted == name.as_bytes()))
    }

    /// Begins a member. False: it is not wanted.
    fn name(&mut self, name: &str) -> bool {
        if !self.wants(name) {
            return false;
        }
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        string(self.out, name.as_bytes());
        self.out.push(b':');
        true
    }

    /// Adds a member with a number.
    pub fn number(&mut self, name: &str, n: u64) {
        if self.name(name) {
            write_u64(self.out, n);
        }
    }

    /// A text. Bytes that are no UTF-8 are shown as U+FFFD.
    pub fn text(&mut self, name: &str, text: &[u8]) {
        if self.name(name) {
            string(self.out, text);
        }
    }

    /// A word of the configuration that is on or off.
    pub fn flag(&mut self, name: &str, on: bool) {
        if self.name(name) {
            self.out.extend_from_slice(if on { b"true" } else { b"false" });
        }
    }

    /// An object within this one.
    pub fn object(&mut self, name: &str, fill: impl FnOnce(&mut Object<'_>)) {
        if self.name(name) {
            Object::write(self.out, fill);
        }
    }

    /// A value that `write` appends as JSON.
    pub fn raw(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        if self.name(name) {
            write(self.out);
        }
    }

    /// A list of texts.
    pub fn texts<'t>(&mut self, name: &str, texts: impl Iterator<Item = &'t [u8]>) {
        self.name(name);
        self.out.push(b'[');
        for (i, text) in texts.enumerate() {
            if i > 0 {
                self.out.push(b',');
            }
            string(self.out, text);
        }
        self.out.push(b']');
    }

    /// A list of objects, one for each item.
    pub fn list<T>(
        &mut self,
        name: &str,
        items: impl Iterator<Item = T>,
        fill: impl Fn(&mut Object<'_>, T),
    ) {
        if !self.name(name) {
            return;
        }
        self.out.push(b'[');
        for (i, item) in items.enumerate() {
            if i > 0 {
                self.out.push(b',');
            }
            Object::write(self.out, |o| fill(o, item));
        }
        self.out.push(b']');
    }
}

/// Appends a text in quotes. Bytes that are no UTF-8 are shown as U+FFFD.
pub fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    let text = String::from_utf8_lossy(text);
    // Most texts have nothing to escape, and are copied whole.
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|b| matches!(b, b'"' | b'\\' | 0..=0x1f)) {
        out.extend_from_slice(&rest[..at]);
        match rest[at] {
            c @ (b'"' | b'\\') => out.extend_from_slice(&[b'\\', c]),
            c => out.extend_from_slice(format!("\\u{c:04x}").as_bytes()),
        }
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_quotes_are_escaped() {
        let mut out = Vec::new();
        escape(b"a\"\\\n\r\t\x08\x0c\x00\x1f\x7f\xc3\xa9\xff/", &mut out);
        assert_eq!(out, b"a\\\"\\\\\\n\\r\\t\\b\\f\\u0000\\u001F\x7f\xc3\xa9\xef\xbf\xbd/");
        // Cut, too long, surrogates, above U+10FFFF.
        for text in
            [&b"a\xc3"[..], b"\xc0\xaf", b"\xed\xa0\x80b", b"\xf4\x90\x80\x80\"", b"\xe2\x82"]
        {
            let mut out = Vec::new();
            escape(text, &mut out);
            assert!(std::str::from_utf8(&out).is_ok_and(|text| text.contains('\u{fffd}')));
        }
    }

    #[test]
    fn members_that_are_not_wanted_are_left_out() {
        let mut out = Vec::new();
        let only = [b"b".to_vec(), b"c".to_vec()];
        Object::write_only(&mut out, Some(&only), |o| {
            o.number("a", 1);
            o.list("l", [1].into_iter(), |o, n| o.number("n", n));
            o.object("b", |o| o.number("a", 2));
            o.flag("c", false);
        });
        assert_eq!(out, b"{\"b\":{\"a\":2},\"c\":false}");
    }

    #[test]
    fn objects_are_json() {
        let mut out = Vec::new();
        Object::write(&mut out, |o| {
            o.number("a", 1);
            o.text("b\"", b"x\\\n\xff\xc3\xa4");
            o.object("c", |_| {});
            o.flag("on", true);
            o.texts("t", ["x", "\""].iter().map(|t| t.as_bytes()));
            o.list("l", [1, 2].into_iter(), |o, n| o.number("n", n));
        });
        let text = String::from_utf8(out).unwrap();
        let want = "{\"a\":1,\"b\\\"\":\"x\\\\\\u000a\u{fffd}\u{e4}\",\"c\":{},\"on\":true,\
                    \"t\":[\"x\",\"\\\"\"],\"l\":[{\"n\":1},{\"n\":2}]}";
        assert_eq!(text, want);
    }
}
