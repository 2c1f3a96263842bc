//! MP4 files: the part of a film between two times, as a film of its own, or as a fragment of an
//! HTTP live stream ([`hls`]); and fragments of Adobe's HTTP Dynamic Streaming ([`hds`]).
//!
//! The index of a film (`moov`) has for each track the duration of each sample (`stts`), the key
//! frames (`stss`), the samples in each chunk (`stsc`), their sizes (`stsz`) and the positions of
//! the chunks in the file (`stco`, `co64`). A cut is a new index of the samples between the two
//! times, and the range of the file that has all of them:
//!
//! ```text
//!  ftyp │ moov (all) │ mdat: ──────[ samples of the cut ]──────
//!  ftyp │ moov (cut) │ mdat: [ samples of the cut ]
//! ```
//!
//! Everything in a file may be a lie; a contradiction is a [`Fault`].

#![forbid(unsafe_code)]

pub mod atom;
mod chunks;
pub mod hds;
pub mod hls;
mod movie;
mod samples;
mod track;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// The requested part of a film.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// From which time on, in milliseconds.
    pub start_ms: u64,
    /// Its length in milliseconds; 0: to the film's end.
    pub length_ms: u64,
    /// Beginning with the key frame before, so that the first frames can be shown.
    pub key_frame: bool,
}

/// Where things are in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Length of the whole `ftyp` atom as it is sent.
    pub ftyp_len: u64,
    /// The bytes in `mdat`.
    pub mdat: Range<u64>,
    /// The length of the file.
    pub file_len: u64,
}

/// A part of a film.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// `moov`, and the header of `mdat`.
    pub head: Vec<u8>,
    /// The range of the file behind it.
    pub data: Range<u64>,
}

/// A fault of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Text behind the file's name.
    OfFile(Cow<'static, str>),
    /// Text before the file's name.
    InFile(Cow<'static, str>),
}

impl Fault {
    /// `"FILE" TEXT`
    pub fn of_file(text: impl Into<Cow<'static, str>>) -> Fault {
        Fault::OfFile(text.into())
    }

    /// `TEXT in "FILE"`
    pub fn in_file(text: impl Into<Cow<'static, str>>) -> Fault {
        Fault::InFile(text.into())
    }

    /// The text for a log.
    pub fn named<'a>(&'a self, file: &'a str) -> impl fmt::Display + 'a {
        struct Named<'a>(&'a Fault, &'a str);
        impl fmt::Display for Named<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    Fault::OfFile(text) => write!(f, "\"{}\" {text}", self.1),
                    Fault::InFile(text) => write!(f, "{text} in \"{}\"", self.1),
                }
            }
        }
        Named(self, file)
    }
}

fn too_small(name: &str) -> Fault {
    Fault::of_file(format!("mp4 {name} atom too small"))
}

fn duplicate(name: &str) -> Fault {
    Fault::in_file(format!("duplicate mp4 {name} atom"))
}

/// The length of a film in milliseconds, from the content of its `moov` atom; `None` where it is
/// not told.
///
/// # Errors
/// A contradiction in the file.
pub fn length_ms(moov: &[u8]) -> Result<Option<u64>, Fault> {
    movie::length_ms(moov)
}

/// Cuts a part of a film, from the content of its `moov` atom.
///
/// # Errors
/// A contradiction in the file, or a window outside of the film.
pub fn cut(moov: &[u8], layout: &Layout, window: &Window) -> Result<Cut, Fault> {
    movie::cut(moov, layout, window)
}
