//! What went wrong.

use std::fmt;

/// Why a document or stylesheet cannot be read, or a transformation ended early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The sentence for the log, without its place.
    pub message: String,
    /// The file and line, where they are known.
    pub place: Option<(String, u32)>,
}

impl Error {
    /// An error whose place is not known.
    pub fn new(message: impl Into<String>) -> Self {
        Error { message: message.into(), place: None }
    }

    /// Adds the place, where it has none yet.
    #[must_use]
    pub fn or_at(mut self, file: &str, line: u32) -> Self {
        self.place.get_or_insert_with(|| (file.to_owned(), line));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some((file, line)) = &self.place {
            write!(f, " in {file}:{line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// What may fail with an [`Error`].
pub(crate) type Result<T> = std::result::Result<T, Error>;
