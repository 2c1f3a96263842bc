//! The place of a certificate or a key, as directives name it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::{Error, Passwords, PrivateKey, certificates, private_key};

/// The place of a certificate or a key.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// The text itself.
    Data(Zeroizing<Vec<u8>>),
    /// A key of an engine, which cannot be had.
    Engine,
    /// A key of another store than the file system, which cannot be had.
    Store,
}

impl Source {
    /// Reads what a directive of a certificate has: `data:TEXT`, or the name of a file, which
    /// `full` completes.
    pub fn certificate(name: &str, full: impl FnOnce(&str) -> PathBuf) -> Source {
        match name.strip_prefix("data:") {
            Some(text) => Source::Data(Zeroizing::new(text.as_bytes().to_vec())),
            None => Source::File(full(name)),
        }
    }

    /// Reads what a directive of a key has: also `engine:NAME:ID` and `store:URI`, of which
    /// `store:file:PATH` is a file.
    pub fn key(name: &str, full: impl FnOnce(&str) -> PathBuf) -> Source {
        if name.starts_with("engine:") {
            return Source::Engine;
        }
        let Some(uri) = name.strip_prefix("store:") else {
            return Source::certificate(name, full);
        };
        // OpenSSL takes a bare path as well, and `file:///path` with an empty host.
        let path = match uri.strip_prefix("file:") {
            Some(rest) => {
                rest.strip_prefix("//localhost").or(rest.strip_prefix("//")).unwrap_or(rest)
            }
            None if uri.contains(':') => return Source::Store,
            None => uri,
        };
        Source::File(PathBuf::from(path))
    }

    /// Reads a certificate with the rest of its chain, each in DER.
    ///
    /// # Errors
    /// See [`certificates`].
    pub fn load_certificates(&self) -> Result<Vec<Vec<u8>>, Error> {
        certificates(&self.text()?)
    }

    /// Reads a private key.
    ///
    /// # Errors
    /// See [`private_key`].
    pub fn load_key(&self, passwords: &Passwords) -> Result<PrivateKey, Error> {
        private_key(&self.text()?, passwords)
    }

    /// Whether a password is needed for a key.
    pub fn is_encrypted(&self) -> bool {
        let text = self.text().unwrap_or_default();
        memchr::memmem::find(&text, b"ENCRYPTED").is_some()
    }

    fn text(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        match self {
            Source::Data(text) => Ok(text.clone()),
            Source::File(path) => text(path),
            Source::Engine => {
                Err(Error::plain("loading \"engine:...\" certificate keys is not supported"))
            }
            Source::Store => {
                Err(Error::plain("loading \"store:...\" certificate keys is not supported"))
            }
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => write!(f, "File({})", path.display()),
            Source::Data(_) => f.write_str("Data"),
            Source::Engine => f.write_str("Engine"),
            Source::Store => f.write_str("Store"),
        }
    }
}

/// A file that opens and cannot be read, a directory, is empty for OpenSSL.
fn text(path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    let file = File::open(path).map_err(|error| Error::file(path, &error))?;
    Ok(read_secret(file).unwrap_or_default())
}

/// Bytes that are overwritten when they are dropped.
pub type Secret = Zeroizing<Vec<u8>>;

/// Reads all of a file into memory of its size, so that no copies of secrets are left behind.
///
/// # Errors
/// The system's.
pub fn read_secret(mut file: File) -> io::Result<Zeroizing<Vec<u8>>> {
    /// Larger than any sensible chain of certificates: anything else is a mistake.
    const FILE_MAX: u64 = 16 << 20;
    let len = file.metadata()?.len().min(FILE_MAX);
    let mut text = Zeroizing::new(Vec::with_capacity(len as usize + 1));
    file.by_ref().take(FILE_MAX).read_to_end(&mut text)?;
    Ok(text)
}
