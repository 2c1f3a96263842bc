//! Content codings: which of `zstd`, `br` and `gzip` a response goes out in.
//!
//! The modules of the codings have the directives; here their offers meet. Of the codings that a
//! location offers for a response and the client names in `Accept-Encoding`, the one with the
//! greatest weight is taken (RFC 9110 12.5.3); where weights are equal, the first of [`Coding`]'s
//! order. As in nginx, `*` names no coding: who sends it seldom means more than that anything will
//! do, and what has no coding will.

pub mod precompressed;
pub mod weight;

use bytes::Bytes;

/// A content coding, in the order of preference: what costs least for what it saves comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Coding {
    /// RFC 8878
    Zstd,
    /// RFC 7932
    Brotli,
    /// RFC 1952
    Gzip,
}

impl Coding {
    /// Its name in `Accept-Encoding` and `Content-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Coding::Zstd => "zstd",
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
        }
    }

    /// The value of `Content-Encoding`.
    pub fn value(self) -> Bytes {
        Bytes::from_static(self.name().as_bytes())
    }

    /// What is added to a file's name for the file's content in this coding.
    pub fn suffix(self) -> &'static [u8] {
        match self {
            Coding::Zstd => b".zst",
            Coding::Brotli => b".br",
            Coding::Gzip => b".gz",
        }
    }
}
