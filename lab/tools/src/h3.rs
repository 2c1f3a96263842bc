//! The frames of HTTP/3 (RFC 9114), as far as a load and a bare server need them.

/// The stream of parameters, which are all the usual ones: its type, and an empty SETTINGS.
pub const CONTROL: &[u8] = &[0, SETTINGS, 0];

const DATA: u64 = 0;
const HEADERS: u64 = 1;
const SETTINGS: u8 = 4;

/// Writes a number of variable length (RFC 9000 section 16).
pub fn write_number(out: &mut Vec<u8>, n: u64) {
    match n {
        0..0x40 => out.push(n as u8),
        0x40..0x4000 => out.extend_from_slice(&(n as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(n as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(n | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Takes a number from the begin of `bytes`, where all of it is there.
pub fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let first = *bytes.first()?;
    let (number, rest) = bytes.split_at_checked(1 << (first >> 6))?;
    *bytes = rest;
    Some(number[1..].iter().fold(u64::from(first & 0x3f), |n, &byte| n << 8 | u64::from(byte)))
}

/// A section of fields without a table of its own: values for names of the static table (RFC 9204
/// appendix A), after the `indexed` whole entries.
fn section(indexed: &[u8], values: &[(u8, &str)]) -> Vec<u8> {
    let mut out = vec![0, 0];
    out.extend(indexed.iter().map(|index| 0xc0 | index));
    for (name, value) in values {
        match name {
            0..15 => out.push(0x50 | name),
            _ => out.extend_from_slice(&[0x5f, name - 15]),
        }
        // Shorter than 127 bytes, as they are.
        out.push(value.len() as u8);
        out.extend_from_slice(value.as_bytes());
    }
    out
}

fn message(section: &[u8], body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(section.len() + body.len() + 20);
    write_number(&mut out, HEADERS);
    write_number(&mut out, section.len() as u64);
    out.extend_from_slice(section);
    if !body.is_empty() {
        write_number(&mut out, DATA);
        write_number(&mut out, body.len() as u64);
        out.extend_from_slice(body);
    }
    out
}

/// A whole request: POST with a body, GET without one.
pub fn request(path: &str, body: &[u8]) -> Vec<u8> {
    let len = body.len().to_string();
    let mut values = vec![(0, "localhost"), (1, path)];
    if !body.is_empty() {
        values.push((4, &len));
    }
    let method = if body.is_empty() { 17 } else { 20 };
    message(&section(&[method, 23], &values), body)
}

/// A whole response with the fields that a server of files sends.
pub fn response(body: &[u8]) -> Vec<u8> {
    let len = body.len().to_string();
    let values = [
        (92, "floor"),
        (6, "Thu, 26 Nov 2026 11:00:00 GMT"),
        (44, "text/plain"),
        (4, &len),
        (10, "Thu, 26 Nov 2026 10:00:00 GMT"),
        (7, "\"6a16d0e0-400\""),
    ];
    message(&section(&[25], &values), body)
}

/// What has come of a response.
#[derive(Default)]
pub struct Response {
    /// Its status: 0 before it, and where it is none of the static table.
    pub status: u16,
    /// Bytes of its body.
    pub body: u64,
    /// Bytes of the frame that has begun, and whether they are body.
    left: u64,
    is_data: bool,
    /// The begin of a frame of which more is needed.
    kept: Vec<u8>,
}

impl Response {
    /// Takes the next bytes of its stream.
    pub fn take(&mut self, bytes: &[u8]) {
        if self.kept.is_empty() {
            let rest = self.frames(bytes).len();
            self.kept.extend_from_slice(&bytes[bytes.len() - rest..]);
            return;
        }
        let mut all = std::mem::take(&mut self.kept);
        all.extend_from_slice(bytes);
        let rest = self.frames(&all).len();
        all.drain(..all.len() - rest);
        self.kept = all;
    }

    /// Gives the bytes that wait for more.
    fn frames<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        loop {
            let len = self.left.min(bytes.len() as u64);
            self.left -= len;
            self.body += if self.is_data { len } else { 0 };
            bytes = &bytes[len as usize..];
            let mut rest = bytes;
            let (Some(kind), Some(len)) = (take_number(&mut rest), take_number(&mut rest)) else {
                return bytes;
            };
            if kind == HEADERS && self.status == 0 {
                let Some(section) = rest.get(..len as usize) else { return bytes };
                self.status = status(section);
            }
            (self.left, self.is_data, bytes) = (len, kind == DATA, rest);
        }
    }

    /// Whether it ends here in good order.
    pub fn is_whole(&self) -> bool {
        self.left == 0 && self.kept.is_empty()
    }
}

/// The status of a section of fields, of which it is the first: an entry of the static table, or
/// the name of one with a value.
fn status(section: &[u8]) -> u16 {
    const ENTRIES: [u16; 5] = [103, 200, 304, 404, 503];
    const MORE: [u16; 9] = [100, 204, 206, 302, 400, 403, 421, 425, 500];
    let entry = |index: usize| match index {
        24..=28 => Some(ENTRIES[index - 24]),
        63..=71 => Some(MORE[index - 63]),
        _ => None,
    };
    let known = match section.get(2..).unwrap_or_default() {
        // An entry whose index fits, or does not.
        [0xff, more, ..] => entry(63 + usize::from(*more)),
        [first, ..] if first & 0xc0 == 0xc0 => entry(usize::from(first & 0x3f)),
        // The name of an entry, then the value as it is, or "200" by Huffman's code.
        [0x5f | 0x7f, name, 3, value @ ..] if entry(15 + usize::from(*name)).is_some() => {
            value.get(..3).and_then(|v| std::str::from_utf8(v).ok()?.parse().ok())
        }
        [0x5f | 0x7f, name, 0x82, 0x10, 0x01, ..] => entry(15 + usize::from(*name)).map(|_| 200),
        _ => None,
    };
    known.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_lengths() {
        for n in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, (1 << 62) - 1] {
            let mut out = Vec::new();
            write_number(&mut out, n);
            let mut rest = &out[..];
            assert_eq!(take_number(&mut rest), Some(n));
            assert!(rest.is_empty());
            assert_eq!(take_number(&mut &out[..out.len() - 1]), None);
        }
    }

    #[test]
    fn a_response_is_the_same_in_whatever_pieces_it_comes() {
        let bytes = response(&[b'x'; 300]);
        for piece in 1..bytes.len() {
            let mut response = Response::default();
            for part in bytes.chunks(piece) {
                response.take(part);
            }
            assert!(response.is_whole());
            assert_eq!((response.status, response.body), (200, 300));
        }
        let mut cut = Response::default();
        cut.take(&bytes[..bytes.len() - 1]);
        assert!(!cut.is_whole());
    }

    #[test]
    fn statuses_are_read() {
        for (section, expected) in [
            (&b"\0\0\xd9"[..], 200),
            (b"\0\0\xdb", 404),
            (b"\0\0\xff\0", 100),
            (b"\0\0\xff\x08", 500),
            (b"\0\0\x5f\x09\x03301", 301),
            (b"\0\0\x5f\x0a\x82\x10\x01", 200),
            (b"\0\0\xd1", 0),
            (b"\0\0", 0),
            (b"", 0),
        ] {
            assert_eq!(status(section), expected, "{section:x?}");
        }
    }

    /// RFC 9204 appendix A: 0 `:authority`, 1 `:path`, 4 `content-length`, 17 GET, 20 POST, 23
    /// https.
    #[test]
    fn requests_use_the_static_table() {
        assert_eq!(request("/", b""), b"\x01\x12\0\0\xd1\xd7\x50\x09localhost\x51\x01/");
        let post = request("/p", b"12");
        assert_eq!(post, b"\x01\x16\0\0\xd4\xd7\x50\x09localhost\x51\x02/p\x54\x012\x00\x0212");
    }
}
