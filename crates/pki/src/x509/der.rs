//! A strict reader of DER: short tags, definite lengths in their shortest form, nothing left over.

use super::Malformed;

/// Tags as they stand in the first byte, with class and form.
pub(crate) mod tag {
    pub(crate) const BOOLEAN: u8 = 0x01;
    pub(crate) const INTEGER: u8 = 0x02;
    pub(crate) const BIT_STRING: u8 = 0x03;
    pub(crate) const OCTET_STRING: u8 = 0x04;
    pub(crate) const OID: u8 = 0x06;
    pub(crate) const ENUMERATED: u8 = 0x0a;
    pub(crate) const UTF8_STRING: u8 = 0x0c;
    pub(crate) const NUMERIC_STRING: u8 = 0x12;
    pub(crate) const PRINTABLE_STRING: u8 = 0x13;
    pub(crate) const T61_STRING: u8 = 0x14;
    pub(crate) const IA5_STRING: u8 = 0x16;
    pub(crate) const UTC_TIME: u8 = 0x17;
    pub(crate) const GENERALIZED_TIME: u8 = 0x18;
    pub(crate) const UNIVERSAL_STRING: u8 = 0x1c;
    pub(crate) const BMP_STRING: u8 = 0x1e;
    pub(crate) const SEQUENCE: u8 = 0x30;
    pub(crate) const SET: u8 = 0x31;

    /// A primitive value under a context tag.
    pub(crate) const fn context(number: u8) -> u8 {
        0x80 | number
    }

    /// A constructed value under a context tag.
    pub(crate) const fn constructed(number: u8) -> u8 {
        0xa0 | number
    }
}

/// One element: its tag, its content, and all its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    pub tag: u8,
    pub content: &'a [u8],
    pub raw: &'a [u8],
}

/// Reads elements one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The bytes of one element of this tag that takes up all of `bytes`.
    pub(crate) fn whole(bytes: &'a [u8], tag: u8) -> Result<&'a [u8], Malformed> {
        let mut reader = Reader::new(bytes);
        let content = reader.expect(tag)?;
        reader.finish()?;
        Ok(content)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next element, whatever its tag.
    pub(crate) fn next(&mut self) -> Result<Element<'a>, Malformed> {
        let bytes = self.rest;
        let [tag, first, ..] = *bytes else { return Err(Malformed("truncated element")) };
        if tag & 0x1f == 0x1f {
            return Err(Malformed("tag of several bytes"));
        }
        let (head, length) = if first < 0x80 {
            (2, usize::from(first))
        } else {
            let count = usize::from(first & 0x7f);
            if count == 0 || count > 4 {
                return Err(Malformed("length of no definite form"));
            }
            let digits = bytes.get(2..2 + count).ok_or(Malformed("truncated length"))?;
            let length = digits.iter().fold(0usize, |n, b| n << 8 | usize::from(*b));
            if length < 0x80 || digits[0] == 0 {
                return Err(Malformed("length not in its shortest form"));
            }
            (2 + count, length)
        };
        let end = head.checked_add(length).ok_or(Malformed("length too large"))?;
        let raw = bytes.get(..end).ok_or(Malformed("truncated element"))?;
        self.rest = &bytes[end..];
        Ok(Element { tag, content: &raw[head..], raw })
    }

    /// The content of the next element, which has this tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Result<&'a [u8], Malformed> {
        Ok(self.expect_element(tag)?.content)
    }

    pub(crate) fn expect_element(&mut self, tag: u8) -> Result<Element<'a>, Malformed> {
        let element = self.next()?;
        if element.tag == tag { Ok(element) } else { Err(Malformed("unexpected tag")) }
    }

    /// The content of the next element if it has this tag.
    pub(crate) fn optional(&mut self, tag: u8) -> Result<Option<&'a [u8]>, Malformed> {
        if self.rest.first() == Some(&tag) { self.expect(tag).map(Some) } else { Ok(None) }
    }

    /// A sequence's content, for reading on in it.
    pub(crate) fn sequence(&mut self) -> Result<Reader<'a>, Malformed> {
        self.expect(tag::SEQUENCE).map(Reader::new)
    }

    /// Nothing may be left.
    pub(crate) fn finish(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed("bytes after the last element")) }
    }
}

/// An INTEGER's content: at least a byte, in the shortest form.
pub(crate) fn integer(content: &[u8]) -> Result<&[u8], Malformed> {
    match content {
        [] => Err(Malformed("empty integer")),
        [0, b, ..] if *b < 0x80 => Err(Malformed("integer not in its shortest form")),
        [0xff, b, ..] if *b >= 0x80 => Err(Malformed("integer not in its shortest form")),
        _ => Ok(content),
    }
}

/// A BOOLEAN's content. Every value but zero is true, as OpenSSL reads it.
pub(crate) fn boolean(content: &[u8]) -> Result<bool, Malformed> {
    match content {
        [b] => Ok(*b != 0),
        _ => Err(Malformed("boolean of a wrong length")),
    }
}

/// A BIT STRING's content: the bits as bytes, those unused cleared, and the count of unused ones.
pub(crate) fn bit_string(content: &[u8]) -> Result<(&[u8], u8), Malformed> {
    match content {
        [unused, bits @ ..] if *unused < 8 && !(bits.is_empty() && *unused > 0) => {
            Ok((bits, *unused))
        }
        _ => Err(Malformed("bad bit string")),
    }
}

/// The first 16 bits of a named bit list as OpenSSL keeps them: the first byte low, the second
/// high.
pub(crate) fn named_bits(content: &[u8]) -> Result<u16, Malformed> {
    let (bits, unused) = bit_string(content)?;
    let byte = |i: usize| {
        let mask = if i + 1 == bits.len() { 0xffu8 << unused } else { 0xff };
        bits.get(i).map_or(0, |b| u16::from(b & mask))
    };
    Ok(byte(0) | byte(1) << 8)
}

/// An object identifier in dotted form.
pub(crate) fn dotted(oid: &[u8]) -> String {
    let mut text = String::new();
    let mut value: u128 = 0;
    for b in oid {
        // An arc beyond 128 bits occurs in no real identifier; it is shown cut.
        value = value << 7 | u128::from(b & 0x7f);
        if b & 0x80 != 0 {
            continue;
        }
        if text.is_empty() {
            let first = (value / 40).min(2);
            text = format!("{first}.{}", value - first * 40);
        } else {
            text.push_str(&format!(".{value}"));
        }
        value = 0;
    }
    text
}

/// An OBJECT IDENTIFIER's content: whole arcs, each in its shortest form.
pub(crate) fn oid(content: &[u8]) -> Result<&[u8], Malformed> {
    let mut start = true;
    for b in content {
        if start && *b == 0x80 {
            return Err(Malformed("object identifier not in its shortest form"));
        }
        start = b & 0x80 == 0;
    }
    if content.is_empty() || !start {
        return Err(Malformed("truncated object identifier"));
    }
    Ok(content)
}

/// Appends an element.
pub(crate) fn push(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    out.push(tag);
    let length = content.len();
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let digits = length.to_be_bytes();
        let skip = digits.iter().take_while(|b| **b == 0).count();
        out.push(0x80 | (digits.len() - skip) as u8);
        out.extend_from_slice(&digits[skip..]);
    }
    out.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_strictly() {
        let mut r = Reader::new(&[0x02, 0x01, 0x05, 0x30, 0x00]);
        assert_eq!(r.expect(tag::INTEGER).unwrap(), [5]);
        assert!(r.sequence().unwrap().is_empty());
        assert!(r.finish().is_ok());
        for bad in [
            &[0x02][..],
            &[0x02, 0x02, 0x01],
            &[0x30, 0x80, 0x00, 0x00],
            &[0x04, 0x81, 0x01, 0x00],
            &[0x04, 0x82, 0x00, 0x80],
            &[0x1f, 0x81, 0x01, 0x00],
            &[0x04, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x04, 0x85, 0x01, 0, 0, 0, 0],
        ] {
            assert!(Reader::new(bad).next().is_err(), "{bad:?}");
        }
        assert!(Reader::whole(&[0x04, 0x00, 0x00], tag::OCTET_STRING).is_err());
    }

    #[test]
    fn scalars() {
        assert!(integer(&[]).is_err() && integer(&[0, 0x7f]).is_err());
        assert!(integer(&[0, 0x80]).is_ok() && integer(&[0xff, 0x80]).is_err());
        assert_eq!(named_bits(&[5, 0xff]).unwrap(), 0xe0);
        assert_eq!(named_bits(&[7, 0x06, 0x80]).unwrap(), 0x8006);
        assert!(named_bits(&[8, 1]).is_err() && named_bits(&[]).is_err());
        assert_eq!(dotted(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d]), "1.2.840.113549");
        assert_eq!(dotted(&[0x88, 0x37, 0x03]), "2.999.3");
        assert!(oid(&[0x2a, 0x80, 1]).is_err() && oid(&[0x2a, 0x86]).is_err());
    }

    #[test]
    fn lengths_are_written_in_their_shortest_form() {
        for n in [0usize, 127, 128, 255, 256, 70_000] {
            let mut out = Vec::new();
            push(&mut out, tag::OCTET_STRING, &vec![7; n]);
            assert_eq!(Reader::whole(&out, tag::OCTET_STRING).unwrap().len(), n);
        }
    }
}
