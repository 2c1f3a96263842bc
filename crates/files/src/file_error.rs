//! A system call on a path that failed.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A system call on a path that failed; prints as the log has it.
#[derive(Debug)]
pub struct FileError {
    what: &'static str,
    path: PathBuf,
    to: Option<PathBuf>,
    error: io::Error,
}

impl FileError {
    /// The call `what`, as in `open()`, failed on `path`.
    pub fn new(what: &'static str, path: impl Into<PathBuf>, error: io::Error) -> FileError {
        FileError { what, path: path.into(), to: None, error }
    }

    /// The same of a call that has a second path.
    pub(crate) fn to(self, to: impl Into<PathBuf>) -> FileError {
        FileError { to: Some(to.into()), ..self }
    }

    /// The system's error.
    pub fn error(&self) -> &io::Error {
        &self.error
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\"", self.what, self.path.display())?;
        if let Some(to) = &self.to {
            write!(f, " to \"{}\"", to.display())?;
        }
        write!(f, " failed {}", base::log::os_error(&self.error))
    }
}
