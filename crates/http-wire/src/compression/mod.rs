//! Compression of fields, as HPACK (RFC 7541) and QPACK (RFC 9204) share it: integers, strings, the
//! Huffman code, names as encoders look them up, and tables.

mod field_encoder;
pub(crate) mod huffman;
pub(crate) mod integer;
pub(crate) mod literal;
pub(crate) mod name;
pub(crate) mod scratch;
pub(crate) mod static_names;
pub(crate) mod table;

pub use field_encoder::FieldEncoder;

/// Why an integer or a string cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Malformed {
    /// The bytes end inside an integer.
    CutInteger,
    /// They end inside a string.
    Truncated,
    /// An integer that is larger than any that is taken.
    Integer,
    /// A Huffman code of EOS, or padding that is longer than a byte or not of ones.
    Huffman,
}
