//! The passwords of `ssl_password_file`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::error::BAD_PASSWORD_READ;
use super::key::PrivateKey;

/// nginx's buffer for lines, bytes: a line with its end does not fit into less.
const LINE_MAX: usize = 4096;
/// OpenSSL's buffer for a password, bytes: the rest of a longer one does not count.
const PASSWORD_MAX: usize = 1024;

/// Why a file has no passwords. `Display` has nginx's words.
#[derive(Debug)]
pub enum BadPasswords {
    /// A system call that failed.
    Failed(&'static str, PathBuf, io::Error),
    /// A line has 4,096 bytes or more.
    LongLine(PathBuf),
}

impl fmt::Display for BadPasswords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadPasswords::Failed(call, path, error) => {
                let number = error.raw_os_error().unwrap_or_default();
                let text = error.to_string();
                let text = text.split(" (os error").next().unwrap_or_default();
                write!(f, "{call} \"{}\" failed ({number}: {text})", path.display())
            }
            BadPasswords::LongLine(path) => write!(f, "too long line in \"{}\"", path.display()),
        }
    }
}

impl std::error::Error for BadPasswords {}

/// Passwords in the order in which they are tried. Their memory is overwritten when they are
/// dropped.
#[derive(Clone, Default)]
pub struct Passwords(Vec<Zeroizing<Vec<u8>>>);

impl Passwords {
    /// No passwords: encrypted keys cannot be read.
    pub fn none() -> Passwords {
        Passwords::default()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads passwords, one a line; without any, the one password is empty. None with a line that
    /// is too long.
    pub fn parse(text: &[u8]) -> Option<Passwords> {
        let mut passwords = Vec::new();
        for line in text.split(|byte| *byte == b'\n') {
            if line.len() >= LINE_MAX {
                return None;
            }
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !line.is_empty() {
                let line = line.get(..PASSWORD_MAX).unwrap_or(line);
                passwords.push(Zeroizing::new(line.to_vec()));
            }
        }
        if passwords.is_empty() {
            passwords.push(Zeroizing::default());
        }
        Some(Passwords(passwords))
    }

    /// Reads a file of passwords.
    ///
    /// # Errors
    /// See [`BadPasswords`].
    pub fn load(path: &Path) -> Result<Passwords, BadPasswords> {
        let failed = |call| move |error| BadPasswords::Failed(call, path.to_owned(), error);
        let file = std::fs::File::open(path).map_err(failed("open()"))?;
        let text = super::source::read_secret(file).map_err(failed("read()"))?;
        Passwords::parse(&text).ok_or_else(|| BadPasswords::LongLine(path.to_owned()))
    }

    /// Tries the passwords; gives what the last of them gives, if none opens the key.
    pub(super) fn open(
        &self,
        open: impl Fn(&[u8]) -> Result<PrivateKey, &'static str>,
    ) -> Result<PrivateKey, &'static str> {
        let mut last = Err(BAD_PASSWORD_READ);
        for password in &self.0 {
            last = open(password);
            if last.is_ok() {
                break;
            }
        }
        last
    }
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Passwords({})", self.0.len())
    }
}
