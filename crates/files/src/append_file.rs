//! Files to append to, such as logs whose path holds variables.

use std::os::fd::OwnedFd;

use crate::file::OpenError;
use crate::links::{self, Links};

/// The permissions that log files are made with, less the umask.
const LOG_MODE: u32 = 0o644;

/// A file to append to; it is opened by a thread, which may wait for the disk.
#[derive(Clone, Debug)]
pub struct AppendFile {
    /// The path that it is opened at, and again after rotation.
    pub path: Vec<u8>,
    /// The links that are followed on the way to it.
    pub links: Links,
}

impl AppendFile {
    /// Opens it, made when absent. Waits for the disk.
    ///
    /// # Errors
    /// The system's.
    pub fn open(&self) -> Result<OwnedFd, OpenError> {
        links::append(&self.path, self.links, LOG_MODE)
    }
}
