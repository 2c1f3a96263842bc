//! The error of a command: what kind of thing went wrong, and the text that people read.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use conf::ConfError;

/// The reason why a command cannot do what was asked.
#[derive(Debug)]
pub(crate) enum Error {
    /// An argument, or a variable of the environment, is malformed or does not fit the others.
    Usage(Cow<'static, str>),
    /// A file or folder cannot be read, made or written.
    File(PathBuf, io::Error),
    /// The configuration does not parse or load.
    Configuration(ConfError),
    /// The configuration does not load, and the log on the terminal has the reasons already.
    Logged,
    /// The running server could not be asked, or refused.
    Server(Cow<'static, str>),
    /// Another program, or another machine, did not do its part.
    Peer(Cow<'static, str>),
    /// This machine lacks something: an account, a free port, a certificate store.
    System(Cow<'static, str>),
}

impl Error {
    /// See [`Error::Usage`].
    pub(crate) fn usage(text: impl Into<Cow<'static, str>>) -> Error {
        Error::Usage(text.into())
    }

    /// See [`Error::Server`].
    pub(crate) fn server(text: impl Into<Cow<'static, str>>) -> Error {
        Error::Server(text.into())
    }

    /// See [`Error::Peer`].
    pub(crate) fn peer(text: impl Into<Cow<'static, str>>) -> Error {
        Error::Peer(text.into())
    }

    /// See [`Error::System`].
    pub(crate) fn system(text: impl Into<Cow<'static, str>>) -> Error {
        Error::System(text.into())
    }

    /// For `map_err`: adds the path to the error of a file operation.
    pub(crate) fn file(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Error {
        move |error| Error::File(path.as_ref().to_owned(), error)
    }

    /// Prints `weir COMMAND: text` on standard error, and returns the exit status of the command.
    pub(crate) fn report(&self, command: &str, status: u8) -> ExitCode {
        if !matches!(self, Error::Logged) {
            eprintln!("weir {command}: {self}");
        }
        ExitCode::from(status)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(text) | Error::Server(text) | Error::Peer(text) | Error::System(text) => {
                f.write_str(text)
            }
            Error::File(path, error) => write!(f, "{}: {error}", path.display()),
            Error::Configuration(error) => error.fmt(f),
            Error::Logged => f.write_str("the configuration does not load"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::File(_, error) => Some(error),
            Error::Configuration(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ConfError> for Error {
    fn from(error: ConfError) -> Error {
        Error::Configuration(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_error_names_the_file_and_keeps_its_source() {
        let missing = Path::new("/no/such/file");
        let error = std::fs::read(missing).map_err(Error::file(missing)).unwrap_err();
        assert!(error.to_string().starts_with("/no/such/file: No such file"), "{error}");
        let source = std::error::Error::source(&error).and_then(|e| e.downcast_ref::<io::Error>());
        assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::NotFound));
    }
}
