//! memcached's response to `get KEY`.
//!
//! ```text
//! VALUE key flags length CRLF, data, CRLF END CRLF      or      END CRLF
//! ```

use base::ascii::parse_u64;
use std::fmt;

/// The bytes behind the data.
const TRAILER: &[u8] = b"\r\nEND\r\n";

/// The first line of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The line is not complete.
    More,
    /// The key has a value.
    Value {
        /// Bytes that the line took.
        line: usize,
        /// The flags stored with the value; `None` where it is no number.
        flags: Option<u64>,
        /// Bytes of data that follow.
        len: u64,
    },
    /// It has none.
    NotFound {
        /// Bytes that the line took.
        line: usize,
    },
    /// Neither.
    Invalid(Invalid),
}

/// The fault of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invalid {
    /// It is no answer to `get`.
    Response,
    /// It is about another key.
    Key,
    /// The length is no number.
    Length,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Invalid::Response => "response",
            Invalid::Key => "key",
            Invalid::Length => "length",
        })
    }
}

/// Reads the first line of the answer for `key`.
pub fn reply(buf: &[u8], key: &[u8]) -> Reply {
    let Some(lf) = memchr::memchr(b'\n', buf) else { return Reply::More };
    let Some(line) = buf[..lf].strip_suffix(b"\r") else {
        return Reply::Invalid(Invalid::Response);
    };
    if line == b"END" {
        return Reply::NotFound { line: lf + 1 };
    }
    let Some(rest) = line.strip_prefix(b"VALUE ") else {
        return Reply::Invalid(Invalid::Response);
    };
    let Some(rest) = rest.strip_prefix(key) else { return Reply::Invalid(Invalid::Key) };
    let Some(rest) = rest.strip_prefix(b" ") else { return Reply::Invalid(Invalid::Response) };
    let Some(space) = memchr::memchr(b' ', rest) else {
        return Reply::Invalid(Invalid::Response);
    };
    match parse_u64(&rest[space + 1..]) {
        Some(len) if i64::try_from(len).is_ok() => {
            Reply::Value { line: lf + 1, flags: parse_u64(&rest[..space]), len }
        }
        _ => Reply::Invalid(Invalid::Length),
    }
}

/// The data of a value and its trailer, in pieces.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    left: u64,
    trailer: usize,
}

/// A piece of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// So many bytes at its front are data.
    pub data: u64,
    /// It is the end of the answer.
    pub over: bool,
    /// The trailer is wrong.
    pub broken: bool,
}

impl Value {
    /// Before `len` bytes of data.
    pub fn new(len: u64) -> Value {
        Value { left: len, trailer: 0 }
    }

    /// Takes the next piece; only the trailer is examined.
    pub fn next(&mut self, buf: &[u8]) -> Piece {
        let data = self.left.min(buf.len() as u64);
        self.left -= data;
        let rest = &buf[data as usize..];
        let want = &TRAILER[self.trailer..];
        let broken = !want.starts_with(rest);
        self.trailer += rest.len().min(want.len());
        let over = broken || self.left == 0 && self.trailer == TRAILER.len();
        Piece { data, over, broken }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines() {
        let value = |line, flags, len| Reply::Value { line, flags, len };
        assert_eq!(reply(b"VALUE k 1 5\r\nhello", b"k"), value(13, Some(1), 5));
        assert_eq!(reply(b"VALUE k x 0\r\n", b"k"), value(13, None, 0));
        assert_eq!(reply(b"END\r\n", b"k"), Reply::NotFound { line: 5 });
        for n in 0..12 {
            assert_eq!(reply(&b"VALUE k 1 5\r\n"[..n], b"k"), Reply::More);
        }
        let invalid = |text: &[u8]| match reply(text, b"key") {
            Reply::Invalid(what) => what,
            other => panic!("{other:?}"),
        };
        assert_eq!(invalid(b"VALUE kez 1 5\r\n"), Invalid::Key);
        assert_eq!(invalid(b"VALUE key1 5\r\n"), Invalid::Response);
        assert_eq!(invalid(b"VALUE key 1\r\n"), Invalid::Response);
        assert_eq!(invalid(b"VALUE key 1 x\r\n"), Invalid::Length);
        assert_eq!(invalid(b"VALUE key 1 18446744073709551615\r\n"), Invalid::Length);
        assert_eq!(invalid(b"ERROR\r\n"), Invalid::Response);
        assert_eq!(invalid(b"END\n"), Invalid::Response);
        assert_eq!(invalid(b"\n"), Invalid::Response);
    }

    #[test]
    fn data_and_trailer() {
        let all = b"hello\r\nEND\r\n";
        for piece in 1..=all.len() {
            let (mut value, mut data) = (Value::new(5), 0);
            let pieces: Vec<Piece> = all.chunks(piece).map(|p| value.next(p)).collect();
            for (i, p) in pieces.iter().enumerate() {
                data += p.data;
                assert_eq!((p.over, p.broken), (i + 1 == pieces.len(), false), "{piece}");
            }
            assert_eq!(data, 5);
        }
        let broken = Piece { data: 5, over: true, broken: true };
        assert_eq!(Value::new(5).next(b"hello\r\nENX"), broken);
        assert_eq!(Value::new(5).next(b"hello\r\nEND\r\nmore"), broken);
        assert_eq!(Value::new(0).next(TRAILER), Piece { data: 0, over: true, broken: false });
    }
}
