//! The Basic Encoding Rules as LDAP restricts them (RFC 4511 section 5.1): definite lengths, and
//! tags of one byte. Lengths may have more bytes than they need, because Active Directory always
//! sends four.

/// Tags of the universal class.
pub(super) mod tag {
    pub const BOOLEAN: u8 = 0x01;
    pub const INTEGER: u8 = 0x02;
    pub(crate) const OCTETS: u8 = 0x04;
    pub const ENUMERATED: u8 = 0x0a;
    pub const SEQUENCE: u8 = 0x30;
    pub const SET: u8 = 0x31;
}

/// The bytes of a tag's number that mean a longer tag.
const LONG_TAG: u8 = 0x1f;

/// The number of bytes of a length, at most.
const LENGTH_BYTES_MAX: usize = 4;

/// An element's header: its tag, the header's bytes, and the bytes behind it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub tag: u8,
    pub len: usize,
    pub content: usize,
}

/// The header at the beginning of `data`; `Ok(None)` if it is not whole.
pub(super) fn header(data: &[u8]) -> Result<Option<Header>, &'static str> {
    let Some(&tag) = data.first() else { return Ok(None) };
    if tag & LONG_TAG == LONG_TAG {
        return Err("a tag is longer than a byte");
    }
    let Some(&first) = data.get(1) else { return Ok(None) };
    if first < 0x80 {
        return Ok(Some(Header { tag, len: 2, content: first.into() }));
    }
    let more = usize::from(first & 0x7f);
    match more {
        0 => return Err("a length is indefinite"),
        1..=LENGTH_BYTES_MAX => {}
        _ => return Err("a length has more than four bytes"),
    }
    let Some(bytes) = data.get(2..2 + more) else { return Ok(None) };
    let content = bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
    Ok(Some(Header { tag, len: 2 + more, content }))
}

/// Reads elements one after the other.
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next element's tag, if there is one.
    pub fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next element's tag and content.
    pub fn any(&mut self) -> Result<(u8, &'a [u8]), &'static str> {
        const CUT: &str = "an element is longer than what holds it";
        let header = header(self.0)?.ok_or(CUT)?;
        let rest = &self.0[header.len..];
        if rest.len() < header.content {
            return Err(CUT);
        }
        let (content, rest) = rest.split_at(header.content);
        self.0 = rest;
        Ok((header.tag, content))
    }

    /// The next element, which must have this tag.
    pub fn take(&mut self, tag: u8) -> Result<&'a [u8], &'static str> {
        match self.any()? {
            (found, content) if found == tag => Ok(content),
            _ => Err("an element has another tag than expected"),
        }
    }

    /// The next element, if it has this tag.
    pub fn take_if(&mut self, tag: u8) -> Result<Option<&'a [u8]>, &'static str> {
        if self.peek() == Some(tag) { self.take(tag).map(Some) } else { Ok(None) }
    }

    /// A number from 0 to 2^31 - 1 (`maxInt`).
    pub fn number(&mut self, tag: u8) -> Result<u32, &'static str> {
        let content = self.take(tag)?;
        let is_number = matches!(content.len(), 1..=4) && content[0] < 0x80;
        let is_long = content.len() > 1 && content[0] == 0 && content[1] < 0x80;
        if !is_number || is_long {
            return Err("a number is negative, too large, or longer than needed");
        }
        Ok(content.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    /// Skips what is left, which must be whole elements: later versions may add some (RFC 4511
    /// section 4).
    pub(crate) fn skip_rest(&mut self) -> Result<(), &'static str> {
        while !self.is_empty() {
            self.any()?;
        }
        Ok(())
    }
}

/// Appends an element.
pub(super) fn put(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    out.push(tag);
    let len = content.len();
    match len {
        0..0x80 => out.push(len as u8),
        0x80..0x1_0000 => {
            out.push(0x82);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        _ => {
            out.push(0x84);
            out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
        }
    }
    out.extend_from_slice(content);
}

/// Appends a number from 0 to 2^31 - 1.
pub(super) fn put_number(out: &mut Vec<u8>, tag: u8, number: u32) {
    let bytes = number.to_be_bytes();
    let mut at = bytes.iter().position(|byte| *byte != 0).unwrap_or(3);
    if bytes[at] >= 0x80 {
        at = at.saturating_sub(1);
    }
    put(out, tag, &bytes[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_lengths_of_up_to_four_bytes() {
        let is = |tag, len, content| Ok(Some(Header { tag, len, content }));
        assert_eq!(header(b"\x30\x05"), is(0x30, 2, 5));
        assert_eq!(header(b"\x30\x81\x05"), is(0x30, 3, 5));
        assert_eq!(header(b"\x30\x84\x00\x00\x01\x00"), is(0x30, 6, 256));
        for cut in [&b""[..], b"\x30", b"\x30\x82\x01"] {
            assert_eq!(header(cut), Ok(None));
        }
        for bad in [&b"\x30\x80"[..], b"\x30\x85\0\0\0\0\x01", b"\x30\xff", b"\x1f\x01"] {
            assert!(header(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_put_is_read() {
        for len in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x1_0000] {
            let (mut out, content) = (Vec::new(), vec![7; len]);
            put(&mut out, tag::OCTETS, &content);
            let mut reader = Reader(&out);
            assert_eq!(reader.take(tag::OCTETS), Ok(&content[..]));
            assert!(reader.is_empty());
        }
        for number in [0, 1, 127, 128, 255, 256, 0x7fff, 0x8000, 0x7fff_ffff] {
            let mut out = Vec::new();
            put_number(&mut out, tag::INTEGER, number);
            assert_eq!(Reader(&out).number(tag::INTEGER), Ok(number));
        }
        for bad in [&b"\x02\x00"[..], b"\x02\x01\x80", b"\x02\x02\0\x01", b"\x02\x05\0\0\0\0\0"] {
            assert!(Reader(bad).number(tag::INTEGER).is_err(), "{bad:?}");
        }
        assert!(Reader(b"\x04\x02a").any().is_err());
        assert!(Reader(b"\x04\x01a\x04").skip_rest().is_err());
    }
}
