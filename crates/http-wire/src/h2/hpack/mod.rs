//! HPACK (RFC 7541): compression of the fields of HTTP/2.
//!
//! A field that repeats on a connection is one byte. The encoder finds it by one hash over a few
//! bytes of the name and the value and confirms it by one comparison; the decoder takes an array
//! index. Tables are allocated by the first insertion and grow as they are used.
//!
//! ```text
//! Decoder ── huffman::decode ── Table<()>      entries: a ring of positions in one text
//! Encoder ── huffman::encode ── Table<Link>    the same, and hash chains through the ring
//! ```

mod decoder;
mod encoder;
mod static_table;

pub use decoder::{Decoder, literal_path, read_literal_path};
pub use encoder::Encoder;

use crate::compression::Malformed;

/// The size of a dynamic table until a setting or an update changes it (RFC 9113 section 6.5.2).
pub const TABLE_SIZE: usize = 4096;

/// Why a header block cannot be decoded. Each ends the connection with COMPRESSION_ERROR: the
/// tables of the two sides are no longer the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HpackError {
    /// The block ends inside a field.
    Truncated,
    /// The block ends inside an integer.
    CutInteger,
    /// An integer that takes more than three bytes behind its prefix.
    Integer,
    /// An index that neither table has.
    Index,
    /// A Huffman code of EOS, or padding that is longer than a byte or not of ones (section 5.2).
    Huffman,
    /// An update of the table's size above the announced maximum (section 6.3).
    UpdateTooLarge,
    /// An update of the table's size behind a field, or a third one (section 4.2).
    UpdateMisplaced,
}

impl From<Malformed> for HpackError {
    #[inline]
    fn from(malformed: Malformed) -> HpackError {
        match malformed {
            Malformed::CutInteger => HpackError::CutInteger,
            Malformed::Truncated => HpackError::Truncated,
            Malformed::Integer => HpackError::Integer,
            Malformed::Huffman => HpackError::Huffman,
        }
    }
}

impl HpackError {
    /// The text for the log.
    pub fn message(self) -> &'static str {
        match self {
            HpackError::CutInteger => "header block with incorrect length",
            HpackError::Truncated => "header block ends inside a field",
            HpackError::Integer => "integer in header block is too large",
            HpackError::Index => "invalid index in header block",
            HpackError::Huffman => "invalid Huffman code in header block",
            HpackError::UpdateTooLarge => "header table size update is above the limit",
            HpackError::UpdateMisplaced => "header table size update is not at the block's start",
        }
    }
}

#[cfg(test)]
mod tests;
