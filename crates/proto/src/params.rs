//! Names and values as gateways want them: FastCGI, uwsgi, SCGI.

/// A gateway's notation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notation {
    /// Lengths of one byte, or four from 128 on, both before the name.
    FastCgi,
    /// Lengths of two bytes, the low one first, each before its text.
    Uwsgi,
    /// A zero behind each text.
    Scgi,
}

/// A parameter that is being written.
#[must_use]
#[derive(Debug)]
pub struct Param {
    notation: Notation,
    /// The position of the value's length.
    length_at: usize,
    value_at: usize,
}

impl Notation {
    /// Writes a name of `len` bytes, which `write` appends; the value is to follow.
    pub fn name(self, len: usize, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Param {
        let mut length_at = 0;
        match self {
            Notation::FastCgi => {
                match u8::try_from(len) {
                    Ok(short @ ..128) => out.push(short),
                    _ => out.extend_from_slice(&long(len)),
                }
                length_at = out.len();
                out.push(0);
            }
            Notation::Uwsgi => out.extend_from_slice(&(len as u16).to_le_bytes()),
            Notation::Scgi => {}
        }
        write(out);
        match self {
            Notation::FastCgi => {}
            Notation::Uwsgi => {
                length_at = out.len();
                out.extend_from_slice(&[0; 2]);
            }
            Notation::Scgi => out.push(0),
        }
        Param { notation: self, length_at, value_at: out.len() }
    }

    /// A parameter whose name, of `len` bytes, is the last that `out` holds.
    #[inline]
    pub fn named(self, len: usize, out: &[u8]) -> Param {
        let value_at = out.len();
        let behind_length = match self {
            Notation::FastCgi => len + 1,
            Notation::Uwsgi => 2,
            Notation::Scgi => 0,
        };
        Param { notation: self, length_at: value_at.saturating_sub(behind_length), value_at }
    }
}

impl Param {
    /// Whether nothing of the value was written so far.
    #[inline]
    pub fn is_empty(&self, out: &[u8]) -> bool {
        out.len() == self.value_at
    }

    /// Ends the value: the bytes written to `out` since the name.
    #[inline]
    pub fn end(self, out: &mut Vec<u8>) {
        let len = out.len().saturating_sub(self.value_at);
        match (self.notation, out.get_mut(self.length_at)) {
            (Notation::FastCgi, Some(length)) if len < 128 => *length = len as u8,
            _ => self.end_long(len, out),
        }
    }

    fn end_long(self, len: usize, out: &mut Vec<u8>) {
        match self.notation {
            Notation::FastCgi => {
                out.splice(self.length_at..=self.length_at, long(len));
            }
            Notation::Uwsgi => {
                let length = (len as u16).to_le_bytes();
                out[self.length_at..self.length_at + 2].copy_from_slice(&length);
            }
            Notation::Scgi => {
                // A zero within would end it, and begin a parameter of the value's author.
                out[self.value_at..].iter_mut().filter(|b| **b == 0).for_each(|b| *b = b' ');
                out.push(0);
            }
        }
    }
}

/// A length of FastCGI that takes four bytes.
fn long(len: usize) -> [u8; 4] {
    (len as u32 | 1 << 31).to_be_bytes()
}

/// The limit of a uwsgi request's parameters in bytes.
pub const UWSGI_MAX: usize = 65535;

/// The four bytes before the parameters of a uwsgi request.
pub fn uwsgi_header(modifier1: u8, modifier2: u8, len: u16) -> [u8; 4] {
    let [low, high] = len.to_le_bytes();
    [modifier1, low, high, modifier2]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(notation: Notation, name: &[u8], value: &[u8]) -> Vec<u8> {
        let mut out = b"before".to_vec();
        let param = notation.name(name.len(), &mut out, |out| out.extend_from_slice(name));
        assert!(param.is_empty(&out));
        out.extend_from_slice(value);
        param.end(&mut out);
        let mut again = b"before".to_vec();
        let _ = notation.name(name.len(), &mut again, |out| out.extend_from_slice(name));
        let param = notation.named(name.len(), &again);
        again.extend_from_slice(value);
        param.end(&mut again);
        assert_eq!(again, out, "a name that was written before");
        out.split_off(6)
    }

    #[test]
    fn notations() {
        assert_eq!(one(Notation::FastCgi, b"AB", b"cde"), b"\x02\x03ABcde");
        assert_eq!(one(Notation::FastCgi, b"A", b""), b"\x01\0A");
        assert_eq!(one(Notation::Uwsgi, b"A", b"cde"), b"\x01\0A\x03\0cde");
        assert_eq!(one(Notation::Scgi, b"A", b"cde"), b"A\0cde\0");
        assert_eq!(one(Notation::Scgi, b"A", b"c\0B\0d"), b"A\0c B d\0");
        let (name, value) = ([b'n'; 128], [b'v'; 300]);
        let long = one(Notation::FastCgi, &name, &value);
        assert_eq!(long[..8], [0x80, 0, 0, 128, 0x80, 0, 1, 44]);
        assert_eq!(long.len(), 8 + 128 + 300);
        assert_eq!((long[8], long[135], long[136]), (b'n', b'n', b'v'));
        let middle = one(Notation::FastCgi, b"A", &value[..127]);
        assert_eq!((middle.len(), middle[1]), (130, 127));
        assert_eq!(one(Notation::Uwsgi, b"A", &value)[3..5], [44, 1]);
        assert_eq!(uwsgi_header(5, 6, 0x1234), [5, 0x34, 0x12, 6]);
    }
}
