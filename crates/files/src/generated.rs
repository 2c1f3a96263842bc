//! Files whose content the kernel makes when they are read (procfs, sysfs).

use std::io;

use crate::path::as_path;

/// The most bytes of such a file: it is read into memory.
const LEN_MAX: usize = 16 << 20;

/// Reads such a file to its end. For a thread: it may wait.
///
/// # Errors
/// The system's, and `FileTooLarge`.
pub fn read(path: &[u8]) -> io::Result<Vec<u8>> {
    os::generated_file::read(as_path(path), LEN_MAX)
}
