//! Atoms (boxes of ISO/IEC 14496-12): read from memory, and written.

use super::Fault;

/// An atom's name and content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Atom<'a> {
    /// Four letters.
    pub name: [u8; 4],
    /// The content.
    pub data: &'a [u8],
}

/// An atom's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Four letters.
    pub name: [u8; 4],
    /// Bytes of the header: 8 or 16.
    pub len: u64,
    /// Bytes of the whole atom, `len` at least.
    pub size: u64,
}

/// The longest header.
pub const HEADER_MAX: usize = 16;

impl Header {
    /// Reads the header of an atom at the start of `bytes`, which has [`HEADER_MAX`] bytes unless
    /// the file ends before; `None` behind the last atom. `left` is the length of the rest of the
    /// file, or of the surrounding atom.
    ///
    /// # Errors
    /// The atom's size is impossible.
    pub fn read(bytes: &[u8], left: u64) -> Result<Option<Header>, Fault> {
        let Some(size) = bytes.first_chunk().map(|size| u32::from_be_bytes(*size)) else {
            return Err(Fault::of_file("mp4 file truncated"));
        };
        if size == 0 {
            return Ok(None);
        }
        let name = *bytes.get(4..).and_then(<[u8]>::first_chunk).ok_or(TRUNCATED)?;
        let (len, size) = match size {
            1 => {
                let wide = bytes.get(8..).and_then(<[u8]>::first_chunk).ok_or(TRUNCATED)?;
                (16, u64::from_be_bytes(*wide))
            }
            size => (8, u64::from(size)),
        };
        if size < len {
            return Err(Fault::of_file(format!("mp4 atom is too small:{size}")));
        }
        if size > left {
            return Err(Fault::of_file(format!("mp4 atom too large:{size}")));
        }
        Ok(Some(Header { name, len, size }))
    }
}

const TRUNCATED: Fault = Fault::OfFile(std::borrow::Cow::Borrowed("mp4 file truncated"));

/// The atoms that stand behind one another in `data`.
pub fn atoms(data: &[u8]) -> impl Iterator<Item = Result<Atom<'_>, Fault>> {
    let mut rest = data;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let header = match Header::read(rest, rest.len() as u64) {
            Ok(Some(header)) => header,
            Ok(None) => {
                rest = &[];
                return None;
            }
            Err(fault) => {
                rest = &[];
                return Some(Err(fault));
            }
        };
        // Both fit: the size is within the rest.
        let (whole, behind) = rest.split_at(header.size as usize);
        rest = behind;
        Some(Ok(Atom { name: header.name, data: &whole[header.len as usize..] }))
    })
}

/// Writes an atom with the content that `fill` appends.
pub fn write(out: &mut Vec<u8>, name: &[u8; 4], fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(name);
    fill(out);
    // The new atom is smaller than the old one, but for some dozens of bytes, and the old one was
    // read into memory.
    let size = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&size.to_be_bytes());
}

/// Writes an atom of the file, if there is one.
pub fn copy(out: &mut Vec<u8>, name: &[u8; 4], data: Option<&[u8]>) {
    if let Some(data) = data {
        write(out, name, |out| out.extend_from_slice(data));
    }
}

/// The 32-bit number at a place, where there is one.
pub fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..).and_then(<[u8]>::first_chunk).map(|n| u32::from_be_bytes(*n))
}

/// The 64-bit number at a place, where there is one.
pub fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    data.get(at..).and_then(<[u8]>::first_chunk).map(|n| u64::from_be_bytes(*n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let read =
            |bytes: &[u8], left| Header::read(bytes, left).map(|h| h.map(|h| (h.len, h.size)));
        assert_eq!(read(b"\0\0\0\x08moov", 8), Ok(Some((8, 8))));
        assert_eq!(read(b"\0\0\0\x01mdat\0\0\0\0\0\0\0\x10", 16), Ok(Some((16, 16))));
        assert_eq!(read(b"\0\0\0\0mdat", 8), Ok(None));
        for (bytes, left, what) in [
            (&b"\0\0\0\x07moov"[..], 8, "mp4 atom is too small:7"),
            (b"\0\0\0\x01mdat\0\0\0\0\0\0\0\x0f", 16, "mp4 atom is too small:15"),
            (b"\0\0\0\x09moov", 8, "mp4 atom too large:9"),
            (b"\0\0\0\x01mdat\xff\0\0\0\0\0\0\0", 16, "mp4 atom too large:18374686479671623680"),
            (b"\0\0\0\x01mdat\0\0\0", 16, "mp4 file truncated"),
            (b"\0\0\0\x08moo", 8, "mp4 file truncated"),
            (b"\0\0\0", 3, "mp4 file truncated"),
        ] {
            assert_eq!(read(bytes, left), Err(Fault::of_file(what)));
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut out = Vec::new();
        write(&mut out, b"abcd", |out| copy(out, b"efgh", Some(b"xyz")));
        copy(&mut out, b"none", None);
        copy(&mut out, b"last", Some(b""));
        let all: Vec<_> = atoms(&out).collect::<Result<_, _>>().unwrap();
        let inner = b"\0\0\0\x0befghxyz";
        assert_eq!(all, [Atom { name: *b"abcd", data: inner }, Atom { name: *b"last", data: b"" }]);
    }
}
