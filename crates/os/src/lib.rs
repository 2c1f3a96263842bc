//! Safe functions over the operating system (Linux): addresses, sockets, files, processes, signals.
//!
//! One of the few crates where `unsafe` may stand. Its public functions are all safe: descriptors
//! are [`OwnedFd`] and [`BorrowedFd`], memory is slices, and calls that types cannot make safe are
//! refused at run time (see [`process::fork`]).

pub mod append;
mod bpf;
pub mod clock;
pub mod datagram;
pub mod errno;
pub mod fd;
pub mod file;
pub mod file_parts;
pub mod filter;
pub mod futex;
pub mod generated_file;
pub mod heartbeat;
pub mod limits;
pub mod map;
pub mod memory;
pub mod memory_group;
pub mod privilege;
pub mod probe;
pub mod process;
pub mod random;
pub mod signal;
pub mod sockaddr;
pub mod socket;
pub mod terminal;
pub mod thread;
pub mod title;

pub use file::{FileKind, FileMeta};
pub use sockaddr::{SockAddr, UnixAddr};
pub use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
