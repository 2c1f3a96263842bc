//! Files that are read and written without blocking the event loop, for every engine and for the
//! processes next to the workers.
//!
//! The loop touches only data in the page cache; a thread of a pool waits for disks. No session
//! appears here: a caller brings the settings that hold and the pool that waits (HTTP:
//! `http::files`, `http::channel`; the cache and the helper processes bring their own). `cargo
//! xtask tidy` knows the functions that may call the file system (`xtask/src/tidy/disks.rs`).
//!
//! | module | holds |
//! | --- | --- |
//! | `opener` | a session's questions: open, stat, list, through the caches below |
//! | `question` | one question to the file system: answered at once, or carried to a thread |
//! | `nonblocking` | answers from the kernel's memory; which devices are local |
//! | `links` | `disable_symlinks`: paths walked component by component |
//! | `open_file_cache`, `recent_descriptors`, `contents` | what a worker holds by path |
//! | `page_cache` | the parts of files that are in the page cache |
//! | `sending` | files on their way to a socket: how much can be sent without a disk |
//! | `reading` | reads that may wait: by a thread, by the ring |
//! | `shared_reads` | one read for all requests that want the same part |
//! | `temp_file`, `moving` | files that are made, moved and copied whole |
//! | `aio` | which pool waits |
//!
//! Names and attributes are looked up with `RESOLVE_CACHED`, small files read with `RWF_NOWAIT`
//! (`nonblocking`). Large files are the hard case, because `sendfile` waits for any missing page
//! (`sending`, `page_cache`). A thread also closes a file that has been unlinked, because closing
//! it frees its blocks.
#![forbid(unsafe_code)]

pub mod aio;
mod append_file;
mod batch;
mod contents;
mod file;
mod file_error;
mod generated;
mod links;
mod moving;
mod nonblocking;
mod open_file_cache;
mod opener;
mod page_cache;
mod path;
mod question;
mod reading;
mod recent_descriptors;
mod sending;
mod shared_reads;
mod temp_file;

pub use aio::{Aio, NoPool};
pub use append_file::AppendFile;
pub use file::{CONTENT_MAX, DirEntry, Facts, Listing, OpenError, OpenFile};
pub use file_error::FileError;
pub use generated::read as generated;
pub use links::Links;
pub use moving::{Attributes, copy_file, dir_mode, move_file};
pub use nonblocking::{real_path as real_path_cached, retire, wrap_local};
pub use open_file_cache::OpenFileCache;
pub use opener::{FileCaches, OpenSettings, Opener, Questions, open_internal};
pub use path::{FilePath, as_path};
pub use reading::{
    RING_READS, ReadSettings, file_error, is_of_file, of_file, parts_now, piece, read_some,
    set_ring_reads, truncated,
};
pub use sending::{FileAtFront, FileRead, SendReady, Sending, Step, first_byte, front_file};
pub use temp_file::{Keep, TempFile, next_number};
