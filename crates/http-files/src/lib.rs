//! The HTTP modules that send files, one file or folder each: static files, parts of films, and
//! films as live streams.
//!
//! Their order among all modules is in `http-modules`.
#![forbid(unsafe_code)]

pub mod f4f;
pub mod file_notes;
pub mod flv;
pub mod handled_here;
pub mod hls;
pub mod mp4;
pub mod static_file;
