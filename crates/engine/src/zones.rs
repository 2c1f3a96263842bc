//! The parameters of directives that name shared zones.

use bytes::Bytes;
use conf::value::parse_size;
use conf::{ConfError, Word};

use crate::cx::Cx;
use crate::session::Session;

/// The least size of a zone, in pages.
const PAGES_MIN: usize = 8;

/// A size that no zone can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadSize {
    /// The text is no size.
    Invalid,
    /// Less than eight pages.
    TooSmall,
}

/// The size of a zone in bytes.
///
/// # Errors
/// It is none, or too small.
pub fn size(text: &[u8]) -> Result<usize, BadSize> {
    let bytes = parse_size(text).ok_or(BadSize::Invalid)?;
    if bytes < PAGES_MIN * os::limits::page_size() { Err(BadSize::TooSmall) } else { Ok(bytes) }
}

/// Name and size in bytes of a parameter `zone=NAME:SIZE`, of which `text` is what follows the `=`.
///
/// # Errors
/// `invalid zone size "WORD"`; `zone "WORD" is too small` below eight pages.
pub fn name_and_size(word: &Word, text: &[u8]) -> Result<(Bytes, usize), ConfError> {
    let parsed = memchr::memchr(b':', text)
        .ok_or(BadSize::Invalid)
        .and_then(|colon| Ok((&text[..colon], size(&text[colon + 1..])?)));
    match parsed {
        Ok((name, bytes)) => Ok((Bytes::copy_from_slice(name), bytes)),
        Err(BadSize::Invalid) => {
            Err(ConfError::at(word, format!("invalid zone size \"{}\"", word.lossy())))
        }
        Err(BadSize::TooSmall) => {
            Err(ConfError::at(word, format!("zone \"{}\" is too small", word.lossy())))
        }
    }
}

impl<S: Session> Cx<S> {
    /// Declares a shared zone for `user` (a module's name), or refers to one with `None`.
    ///
    /// # Errors
    /// The name is taken for something else, or with another size.
    pub fn declare_zone(
        &mut self,
        word: &Word,
        name: &[u8],
        bytes: Option<usize>,
        user: &'static str,
    ) -> Result<(), ConfError> {
        let declared = self.env.zones.declare(name, bytes, user);
        declared.map_err(|conflict| ConfError::at(word, conflict.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes() {
        let pos = conf::Pos { file: std::path::Path::new("t").into(), line: 1, column: 1 };
        let word = Word { text: Bytes::from_static(b"zone=one:1m"), pos, quoted: false };
        let read = |text: &[u8]| name_and_size(&word, text).map_err(|e| e.message);
        assert_eq!(read(b"one:1m"), Ok((Bytes::from_static(b"one"), 1 << 20)));
        assert_eq!(read(b":64k"), Ok((Bytes::new(), 64 << 10)));
        for text in ["one", "one:", "one:x", "one:1m:2", "one:-1"] {
            let invalid = "invalid zone size \"zone=one:1m\"".to_owned();
            assert_eq!(read(text.as_bytes()), Err(invalid), "{text}");
        }
        let small = "zone \"zone=one:1m\" is too small".to_owned();
        assert_eq!(read(b"one:1k"), Err(small));
    }
}
