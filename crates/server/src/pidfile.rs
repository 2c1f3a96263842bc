//! The file that names the master process.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base::log;
use base::log::{Level, Log, os_error};
use conf::ConfError;
use engine::Place;

/// The file's mode, less the umask. A server in the background has none.
const MODE: u32 = 0o644;

fn failed(what: &str, path: &Path, e: &io::Error) -> ConfError {
    ConfError::new(format!("{what} \"{}\" failed {}", path.display(), os_error(e)))
}

/// Makes the folder of a pid file that only a built-in default names.
pub fn make_folder(place: &Place) -> Result<(), ConfError> {
    let Place::Folder(folder) = place else { return Ok(()) };
    place.make().map_err(|e| failed("mkdir()", folder, &e))
}

/// Without a name there is no file: none was configured, and no folder could be written.
fn is_none(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// Checks that the file could be written (`-t`); an existing one stays as it is.
pub fn test(path: &Path) -> Result<(), ConfError> {
    if is_none(path) {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(MODE);
    let opened = options.open(path);
    opened.map(|_| ()).map_err(|e| failed("open()", path, &e))
}

/// Writes this process's id.
pub fn write(path: &Path) -> Result<(), ConfError> {
    if is_none(path) {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(MODE).open(path);
    let mut file = file.map_err(|e| failed("open()", path, &e))?;
    let written = file.write_all(format!("{}\n", std::process::id()).as_bytes());
    written.map_err(|e| failed("write()", path, &e))
}

/// A reload may move the file: writes the new one, then removes the old one.
pub fn take_over(old: &Path, new: &Path) -> Result<(), ConfError> {
    if old == new {
        return Ok(());
    }
    write(new)?;
    remove(old, &log::default());
    Ok(())
}

/// Removes the file when the master ends.
pub fn remove(path: &Path, log: &Log) {
    if is_none(path) {
        return;
    }
    if let Err(e) = fs::remove_file(path) {
        let (path, e) = (path.display(), os_error(&e));
        log!(log, Level::Alert, None, "unlink() \"{path}\" failed {e}");
    }
}

/// Why a pid file names no process.
#[derive(Debug)]
pub(crate) enum NoPid {
    /// None is configured, and no folder can be written.
    NoFile,
    Unread(PathBuf, io::Error),
    /// The text of the file is no positive number.
    Invalid(PathBuf, String),
}

impl fmt::Display for NoPid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoPid::NoFile => f.write_str(
                "there is no pid file: none is configured, and no folder can be written",
            ),
            NoPid::Unread(path, error) => f.write_str(&failed("open()", path, error).message),
            NoPid::Invalid(path, text) => {
                write!(f, "invalid PID number \"{text}\" in \"{}\"", path.display())
            }
        }
    }
}

/// The process id that the file holds.
pub fn read(path: &Path) -> Result<i32, NoPid> {
    if is_none(path) {
        return Err(NoPid::NoFile);
    }
    let bytes = fs::read(path).map_err(|e| NoPid::Unread(path.to_owned(), e))?;
    let end = bytes.iter().rposition(|b| !matches!(b, b'\r' | b'\n')).map_or(0, |i| i + 1);
    let digits = &bytes[..end.min(32)];
    let pid = base::ascii::parse_u64(digits).and_then(|n| i32::try_from(n).ok());
    pid.filter(|n| *n > 0).ok_or_else(|| {
        let text = String::from_utf8_lossy(digits).into_owned();
        NoPid::Invalid(path.to_owned(), text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_s_life() {
        let dir = testkit::Folder::new("pid");
        let (one, two) = (dir.join("one"), dir.join("two"));
        test(&one).unwrap();
        assert_eq!(fs::read(&one).unwrap(), b"");
        assert!(read(&one).unwrap_err().to_string().starts_with("invalid PID number \"\" in "));
        write(&one).unwrap();
        test(&one).unwrap();
        assert_eq!(read(&one).unwrap(), std::process::id() as i32);
        take_over(&one, &two).unwrap();
        assert!(!one.exists());
        assert!(take_over(&two, &dir.join("no/where")).is_err());
        assert!(two.exists());
        for bad in ["x", "0", "-5", "99999999999999", "12 13"] {
            fs::write(&one, bad).unwrap();
            assert!(read(&one).is_err(), "{bad}");
        }
        assert!(
            read(&dir.join("none")).unwrap_err().to_string().contains("failed (2: No such file")
        );
    }
}
