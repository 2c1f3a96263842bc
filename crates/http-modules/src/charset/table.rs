//! `charset_map`: tables from one charset to another, and the work of recoding by them.

use bytes::Bytes;
use conf::{ConfError, Node, Word};

/// A character of UTF-8 as tables hold it: bytes at most. Characters beyond the first plane are not
/// in tables.
const UTF8_MAX: usize = 3;

/// One byte's character in UTF-8.
#[derive(Clone, Copy)]
pub(super) struct Utf8 {
    len: u8,
    bytes: [u8; UTF8_MAX],
}

/// Bytes of one charset by the code point, in pages of 256; 0 where there is none.
pub(super) type Pages = Vec<Option<Box<[u8; 256]>>>;

/// The recoding of bytes.
pub(super) enum Table {
    Bytes(Box<[u8; 256]>),
    /// Each byte becomes a character of UTF-8.
    ToUtf8(Box<[Utf8; 256]>),
    /// Characters of UTF-8 become bytes; others become entities (`&#8364;`).
    FromUtf8(Pages),
}

/// Both directions of a map: from its first charset to the second, and back.
pub(super) struct Pair {
    pub forth: Table,
    pub back: Table,
}

impl Pair {
    /// Reads a block's lines.
    ///
    /// # Errors
    /// The first line that is wrong, in nginx's words.
    pub fn parse(node: &Node, utf8: bool) -> Result<Pair, ConfError> {
        let mut pair = if utf8 { Pair::utf8() } else { Pair::bytes() };
        for line in node.children() {
            let [to] = &line.args[..] else {
                return Err(ConfError::at(&line.name, "invalid parameters number"));
            };
            let from = byte(&line.name)?;
            pair.add(from, to)?;
        }
        Ok(pair)
    }

    fn bytes() -> Pair {
        let mut same = [b'?'; 256];
        for (i, b) in same[..128].iter_mut().enumerate() {
            *b = i as u8;
        }
        Pair { forth: Table::Bytes(Box::new(same)), back: Table::Bytes(Box::new(same)) }
    }

    fn utf8() -> Pair {
        let mut forth = [Utf8 { len: 1, bytes: [b'?', 0, 0] }; 256];
        let mut ascii = [0; 256];
        for i in 0..128 {
            forth[i].bytes[0] = i as u8;
            ascii[i] = i as u8;
        }
        let mut back: Pages = Vec::new();
        back.resize_with(256, || None);
        back[0] = Some(Box::new(ascii));
        Pair { forth: Table::ToUtf8(Box::new(forth)), back: Table::FromUtf8(back) }
    }

    fn add(&mut self, from: u8, to: &Word) -> Result<(), ConfError> {
        match (&mut self.forth, &mut self.back) {
            (Table::Bytes(forth), Table::Bytes(back)) => {
                let to = byte(to)?;
                forth[usize::from(from)] = to;
                back[usize::from(to)] = from;
            }
            (Table::ToUtf8(forth), Table::FromUtf8(back)) => {
                let (bytes, point) = character(to)?;
                let mut entry = Utf8 { len: bytes.len() as u8, bytes: [0; UTF8_MAX] };
                entry.bytes[..bytes.len()].copy_from_slice(&bytes);
                forth[usize::from(from)] = entry;
                let page = back[usize::from(point >> 8)].get_or_insert_with(|| Box::new([0; 256]));
                page[usize::from(point & 0xff)] = from;
            }
            _ => {}
        }
        Ok(())
    }
}

fn invalid(w: &Word) -> ConfError {
    ConfError::at(w, format!("invalid value \"{}\"", w.lossy()))
}

fn byte(w: &Word) -> Result<u8, ConfError> {
    base::ascii::parse_hex_u64(w.bytes())
        .and_then(|n| u8::try_from(n).ok())
        .ok_or_else(|| invalid(w))
}

/// The bytes of a character of UTF-8 that hexadecimal digits spell, and its code point.
fn character(w: &Word) -> Result<(Vec<u8>, u16), ConfError> {
    let bytes = base::ascii::parse_hex(w.bytes()).ok_or_else(|| invalid(w))?;
    if bytes.is_empty() || bytes.len() > UTF8_MAX {
        return Err(invalid(w));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| invalid(w))?;
    let mut chars = text.chars();
    match (chars.next().map(u32::from), chars.next()) {
        (Some(c), None) => Ok((bytes, u16::try_from(c).map_err(|_| invalid(w))?)),
        _ => Err(invalid(w)),
    }
}

/// The beginning of a character that the next piece goes on with.
#[derive(Default)]
pub(super) struct Partial {
    bytes: [u8; 4],
    len: usize,
}

/// The character at the beginning of some bytes that are not ASCII.
enum Decoded {
    /// A code point, and its length.
    Char(u32, usize),
    /// So many bytes that are no UTF-8.
    Bad(usize),
    /// More bytes are needed to tell.
    Short,
}

fn decode(bytes: &[u8]) -> Decoded {
    let part = &bytes[..bytes.len().min(4)];
    let error = match std::str::from_utf8(part) {
        Ok(text) => return first(text),
        Err(e) => e,
    };
    let valid = &part[..error.valid_up_to()];
    match (std::str::from_utf8(valid), error.error_len()) {
        (Ok(text), _) if !text.is_empty() => first(text),
        (_, Some(n)) => Decoded::Bad(n),
        (_, None) => Decoded::Short,
    }
}

fn first(text: &str) -> Decoded {
    match text.chars().next() {
        Some(c) => Decoded::Char(c.into(), c.len_utf8()),
        None => Decoded::Short,
    }
}

impl Table {
    /// Recodes `input` to the end of `out`. Where a character begins at its end, `partial` keeps
    /// that for the next piece; with `last` there is none.
    pub(crate) fn recode(
        &self,
        input: &[u8],
        last: bool,
        partial: &mut Partial,
        out: &mut Vec<u8>,
    ) {
        match self {
            Table::Bytes(table) => out.extend(input.iter().map(|b| table[usize::from(*b)])),
            Table::ToUtf8(table) => {
                for b in input {
                    let c = &table[usize::from(*b)];
                    out.extend_from_slice(&c.bytes[..usize::from(c.len)]);
                }
            }
            Table::FromUtf8(pages) => from_utf8(pages, input, last, partial, out),
        }
    }

    /// Whether bodies keep their length.
    pub(crate) fn keeps_length(&self) -> bool {
        matches!(self, Table::Bytes(_))
    }

    /// Whether recoding leaves these bytes what they are.
    pub fn leaves(&self, input: &[u8]) -> bool {
        match self {
            Table::Bytes(table) => input.iter().all(|b| table[usize::from(*b)] == *b),
            Table::ToUtf8(table) => input.iter().all(|b| {
                let c = &table[usize::from(*b)];
                c.len == 1 && c.bytes[0] == *b
            }),
            Table::FromUtf8(_) => input.is_ascii(),
        }
    }
}

impl Partial {
    /// Whether a character has begun.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

fn from_utf8(
    pages: &Pages,
    mut input: &[u8],
    last: bool,
    partial: &mut Partial,
    out: &mut Vec<u8>,
) {
    while partial.len > 0 {
        let Some((&b, rest)) = input.split_first() else { break };
        partial.bytes[partial.len] = b;
        match decode(&partial.bytes[..partial.len + 1]) {
            Decoded::Short => {
                partial.len += 1;
                input = rest;
            }
            Decoded::Char(c, _) => {
                write(pages, c, out);
                partial.len = 0;
                input = rest;
            }
            // The new byte is not part of what is wrong: looked at again by itself.
            Decoded::Bad(_) => {
                out.push(b'?');
                partial.len = 0;
            }
        }
    }
    while let Some(&b) = input.first() {
        if b < 0x80 {
            let ascii = input.iter().take_while(|b| b.is_ascii()).count();
            out.extend_from_slice(&input[..ascii]);
            input = &input[ascii..];
            continue;
        }
        match decode(input) {
            Decoded::Char(c, n) => {
                write(pages, c, out);
                input = &input[n..];
            }
            Decoded::Bad(n) => {
                out.push(b'?');
                input = &input[n..];
            }
            Decoded::Short => {
                partial.bytes[..input.len()].copy_from_slice(input);
                partial.len = input.len();
                break;
            }
        }
    }
    if last && partial.len > 0 {
        out.push(b'?');
        partial.len = 0;
    }
}

fn write(pages: &Pages, c: u32, out: &mut Vec<u8>) {
    let byte = u16::try_from(c)
        .ok()
        .and_then(|c| pages[usize::from(c >> 8)].as_ref().map(|p| p[usize::from(c & 0xff)]));
    match byte {
        Some(b) if b != 0 => out.push(b),
        _ => {
            out.extend_from_slice(b"&#");
            base::ascii::write_u64(out, c.into());
            out.push(b';');
        }
    }
}

/// The tables between charsets, by their numbers.
#[derive(Default)]
pub(super) struct Tables(Vec<(usize, usize, Pair)>);

impl Tables {
    pub fn add(&mut self, from: usize, to: usize, pair: Pair) {
        self.0.push((from, to, pair));
    }

    /// Whether there is a map between two charsets, in either direction.
    pub fn has(&self, a: usize, b: usize) -> bool {
        self.find(a, b).is_some()
    }

    pub fn find(&self, from: usize, to: usize) -> Option<&Table> {
        self.0.iter().find_map(|(a, b, pair)| match (*a == from, *b == to) {
            (true, true) => Some(&pair.forth),
            _ if *a == to && *b == from => Some(&pair.back),
            _ => None,
        })
    }
}

/// Recodes a piece, keeping it as it is where nothing changes.
pub(super) fn recode_piece(
    table: &Table,
    input: Bytes,
    partial: &mut Partial,
) -> Result<Bytes, Vec<u8>> {
    if partial.is_empty() && table.leaves(&input) {
        return Ok(input);
    }
    let mut out = Vec::with_capacity(input.len() + input.len() / 2);
    table.recode(&input, false, partial, &mut out);
    Err(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(lines: &str, utf8: bool) -> Result<Pair, String> {
        let text = Bytes::from(format!("charset_map a b {{ {lines} }}"));
        let options = conf::parse::Options::default();
        let tree = conf::parse::parse_bytes(std::path::Path::new("t"), text, &options).unwrap();
        Pair::parse(&tree.nodes[0], utf8).map_err(|e| e.to_string())
    }

    fn whole(table: &Table, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        table.recode(text, true, &mut Partial::default(), &mut out);
        out
    }

    #[test]
    fn byte_for_byte() {
        let p = pair("58 59; E1 41;", false).unwrap();
        assert_eq!(whole(&p.forth, b"aX\xe1\xe2Y"), b"aYA?Y");
        assert_eq!(whole(&p.back, b"Y\xe1A"), b"X?\xe1");
        assert!(p.forth.leaves(b"abc") && !p.forth.leaves(b"aX"));
    }

    #[test]
    fn to_utf8_and_back() {
        let p = pair("E4 D0B4; 80 E282AC;", true).unwrap();
        assert_eq!(whole(&p.forth, b"a\xe4\x80\xff"), "aд€?".as_bytes());
        assert_eq!(whole(&p.back, "aд€ж𝄞".as_bytes()), b"a\xe4\x80&#1078;&#119070;");
        assert_eq!(whole(&p.back, b"\xc3(\xff\xe2\x82<b>\xe2"), b"?(??<b>?");
    }

    #[test]
    fn characters_split_anywhere() {
        let p = pair("E4 D0B4; 80 E282AC;", true).unwrap();
        let text = ["aд€ж𝄞б".as_bytes(), b"\xf0\x9d\x84<\xe2z"].concat();
        let want = whole(&p.back, &text);
        for step in 1..text.len() {
            let (mut partial, mut out) = (Partial::default(), Vec::new());
            for piece in text.chunks(step) {
                p.back.recode(piece, false, &mut partial, &mut out);
            }
            p.back.recode(b"", true, &mut partial, &mut out);
            assert_eq!(out, want, "in pieces of {step}");
        }
    }

    #[test]
    fn lines_that_are_wrong() {
        for (line, utf8, want) in [
            ("58;", false, "invalid parameters number"),
            ("58 59 60;", false, "invalid parameters number"),
            ("158 59;", false, "invalid value \"158\""),
            ("x 59;", false, "invalid value \"x\""),
            ("58 159;", false, "invalid value \"159\""),
            ("58 C3;", true, "invalid value \"C3\""),
            ("58 F09D849E;", true, "invalid value \"F09D849E\""),
            ("58 4142;", true, "invalid value \"4142\""),
            ("58 414;", true, "invalid value \"414\""),
        ] {
            let e = pair(line, utf8).err().unwrap_or_default();
            assert!(e.starts_with(want), "{line}: {e}");
        }
    }
}
