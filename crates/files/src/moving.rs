//! Files moved and copied: by `rename(2)`, or byte by byte where the target is on another device.
//! At no time does the target hold half a file. All of it waits for disks, and belongs in a thread.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::file_error::FileError;
use crate::temp_file::next_number;

/// The attributes that a file gets when it is moved or copied.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes {
    /// Its permissions; `None` keeps them.
    pub mode: Option<u32>,
    /// The time of its last change, seconds since 1970; `None` keeps it.
    pub mtime: Option<i64>,
    /// The permissions of folders that are missing on the way to the target; `None`: they are not
    /// made.
    pub dir_mode: Option<u32>,
}

/// The permissions of a folder for files of these permissions: those who may read may enter.
pub fn dir_mode(mode: u32) -> u32 {
    mode | (mode & 0o444) >> 2
}

/// Moves the file at `from` to `to`, over a file that is there.
///
/// # Errors
/// The first call that failed; `from` is still there then.
pub fn move_file(from: &Path, to: &Path, attributes: Attributes) -> Result<(), FileError> {
    if attributes.mode.is_some() || attributes.mtime.is_some() {
        let fd = os::file::open(from).map_err(|e| FileError::new("open()", from, e))?;
        set_facts(&fd, from, attributes)?;
    }
    let mut moved = std::fs::rename(from, to);
    if let (Err(e), Some(mode)) = (&moved, attributes.dir_mode)
        && e.kind() == io::ErrorKind::NotFound
    {
        create_parents(to, mode)?;
        moved = std::fs::rename(from, to);
    }
    match moved {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
            copy_file(from, to, attributes)?;
            std::fs::remove_file(from).map_err(|e| FileError::new("unlink()", from, e))
        }
        Err(error) => Err(FileError::new("rename()", from, error).to(to)),
    }
}

fn set_facts(fd: &OwnedFd, path: &Path, attributes: Attributes) -> Result<(), FileError> {
    if let Some(mode) = attributes.mode {
        os::file::chmod_fd(fd, mode).map_err(|e| FileError::new("chmod()", path, e))?;
    }
    if let Some(t) = attributes.mtime {
        os::file::set_mtime(fd, t).map_err(|e| FileError::new("futimens()", path, e))?;
    }
    Ok(())
}

fn create_parents(path: &Path, mode: u32) -> Result<(), FileError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let made = std::fs::DirBuilder::new().recursive(true).mode(mode).create(parent);
    made.map_err(|e| FileError::new("mkdir()", parent, e))
}

/// A file in the making, removed unless it was moved to its place.
struct Partial(Option<PathBuf>);

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // A failure is not reported: the name says what the file is.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Copies the file at `from` to `to`, over a file that is there: first to a name beside it, which
/// is renamed when all is written. Permissions and time of the last change are kept,
/// unless `attributes` has others.
///
/// # Errors
/// The first call that failed; the old file at `to` is still there then.
pub fn copy_file(from: &Path, to: &Path, attributes: Attributes) -> Result<(), FileError> {
    let source = os::file::open(from).map_err(|e| FileError::new("open()", from, e))?;
    let meta = os::file::fstat(&source).map_err(|e| FileError::new("fstat()", from, e))?;
    let mut name = to.as_os_str().to_owned();
    name.push(format!(".{:010}", next_number()));
    let name = PathBuf::from(name);
    let mode = attributes.mode.unwrap_or(meta.mode & 0o777);
    let target =
        os::file::create_new(&name, mode).map_err(|e| FileError::new("open()", &*name, e))?;
    let mut partial = Partial(Some(name.clone()));
    let (mut source, mut target) = (File::from(source), File::from(target));
    io::copy(&mut source, &mut target).map_err(|e| FileError::new("write()", &*name, e))?;
    let mtime = Some(attributes.mtime.unwrap_or(meta.mtime_sec));
    set_facts(&target.into(), &name, Attributes { mtime, mode: attributes.mode, dir_mode: None })?;
    match std::fs::rename(&name, to) {
        Ok(()) => {
            partial.0 = None;
            Ok(())
        }
        Err(error) => Err(FileError::new("rename()", name, error).to(to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Folder;

    #[test]
    fn folders_of_readers_can_be_entered() {
        assert_eq!(dir_mode(0o600), 0o700);
        assert_eq!(dir_mode(0o644), 0o755);
        assert_eq!(dir_mode(0o660), 0o770);
    }

    #[test]
    fn a_moved_file_is_as_asked() {
        let dir = Folder::new("move");
        let (from, to) = (dir.join("a"), dir.join("b/c/d"));
        std::fs::write(&from, b"text").unwrap();
        let missing = move_file(&from, &to, Attributes::default()).unwrap_err();
        assert!(missing.to_string().starts_with("rename() \""), "{missing}");
        let attributes =
            Attributes { mode: Some(0o640), mtime: Some(1_000_000_000), dir_mode: Some(0o700) };
        move_file(&from, &to, attributes).unwrap();
        let meta = os::file::stat(&to).unwrap();
        assert_eq!((meta.mode & 0o777, meta.mtime_sec, meta.size), (0o640, 1_000_000_000, 4));
        assert!(!from.exists());
    }

    #[test]
    fn a_copy_replaces_the_whole_file_or_nothing() {
        let dir = Folder::new("copy");
        let (from, to) = (dir.join("a"), dir.join("b"));
        let text = vec![b'x'; 2_000_005];
        std::fs::write(&from, &text).unwrap();
        std::fs::write(&to, b"old").unwrap();
        let fd = os::file::open(&from).unwrap();
        os::file::set_mtime(&fd, 1_000_000_000).unwrap();
        let failed = copy_file(&dir.join("none"), &to, Attributes::default()).unwrap_err();
        assert!(failed.to_string().starts_with("open() \""), "{failed}");
        assert_eq!(std::fs::read(&to).unwrap(), b"old");
        // A folder cannot be read as a file: nothing is left behind.
        assert!(copy_file(&dir, &to, Attributes::default()).is_err());
        copy_file(&from, &to, Attributes::default()).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), text);
        assert_eq!(os::file::stat(&to).unwrap().mtime_sec, 1_000_000_000);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2);
    }
}
