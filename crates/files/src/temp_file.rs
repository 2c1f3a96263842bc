//! Temporary files: numbered files below a folder, for bodies that do not fit in memory.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base::log::Level;
use engine::TempPath;
use mem::{Buf, Chain, FileHandle};

use crate::file_error::FileError;
use crate::nonblocking;

/// The fate of a temporary file's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// It has none: the file is gone with the last descriptor, even after a crash.
    Nameless,
    /// It has one, which is removed with the value, unless the file was moved away.
    Named,
    /// It stays after the request.
    Stays,
}

/// A temporary file that is open for reading and writing.
pub struct TempFile {
    fd: FileHandle,
    path: PathBuf,
    len: u64,
    keep: Keep,
}

/// Names tried where others are taken.
const TRIES: u32 = 10_000;

impl TempFile {
    /// Makes a file below `folder`, with the permissions `mode` less the umask. Folders that are
    /// missing are made, for this user alone.
    ///
    /// # Errors
    /// The system's.
    pub fn create(folder: &TempPath, keep: Keep, mode: u32) -> Result<TempFile, FileError> {
        for _ in 0..TRIES {
            let path = folder.file(next_number().into());
            let mut made = os::file::create_new(&path, mode);
            if made.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
                make_parent(&path)?;
                made = os::file::create_new(&path, mode);
            }
            match made {
                Ok(fd) => return TempFile::made(fd, path, keep),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(FileError::new("open()", path, error)),
            }
        }
        let error = io::ErrorKind::AlreadyExists.into();
        Err(FileError::new("open()", &*folder.path, error))
    }

    fn made(fd: OwnedFd, path: PathBuf, keep: Keep) -> Result<TempFile, FileError> {
        let slow = !nonblocking::is_local(&fd);
        let fd = FileHandle::temporary(fd, slow, nonblocking::retire);
        if keep == Keep::Nameless
            && let Err(error) = std::fs::remove_file(&path)
        {
            return Err(FileError::new("unlink()", path, error));
        }
        Ok(TempFile { fd, path, len: 0, keep })
    }

    /// Writes all of `chain`, which must be in memory, behind what was written before.
    ///
    /// # Errors
    /// The system's; the file is of no use then.
    pub fn append(&mut self, chain: &mut Chain) -> Result<(), FileError> {
        let bufs = chain.take();
        let parts: Vec<&[u8]> = bufs.iter().map(|buf| buf.memory().unwrap_or_default()).collect();
        self.write(&parts)
    }

    /// The same for bytes that can be carried to another thread.
    ///
    /// # Errors
    /// As [`TempFile::append`].
    pub fn append_parts(&mut self, parts: &[bytes::Bytes]) -> Result<(), FileError> {
        self.write(parts)
    }

    fn write(&mut self, parts: &[impl AsRef<[u8]>]) -> Result<(), FileError> {
        let written = os::file::write_all_at(&self.fd, parts, self.len);
        written.map_err(|e| FileError::new("pwritev()", self.path.clone(), e))?;
        self.len += parts.iter().map(|part| part.as_ref().len() as u64).sum::<u64>();
        Ok(())
    }

    /// `bytes` more bytes were written at the end, through the descriptor.
    pub fn grew(&mut self, bytes: u64) {
        self.len += bytes;
    }

    /// Its name. A [`Keep::Nameless`] one has lost it already.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes written.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The open file.
    pub fn handle(&self) -> &FileHandle {
        &self.fd
    }

    /// All of it, as a piece of output.
    pub fn as_buf(&self) -> Buf {
        Buf::File { file: self.fd.clone(), pos: 0, end: self.len }
    }

    /// The file has another name now, or the name another file: it is not removed.
    pub fn moved(&mut self) {
        self.keep = Keep::Stays;
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if self.keep == Keep::Named {
            let name = Name(std::mem::take(&mut self.path));
            event::pool::elsewhere(move || drop(name));
        }
    }
}

/// The name of a file that goes with the value: in a thread, or, where that cannot be had, here.
struct Name(PathBuf);

impl Drop for Name {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_file(&self.0) {
            let (path, e) = (self.0.display(), base::log::os_error(&e));
            base::log!(base::log::default(), Level::Crit, None, "unlink() \"{path}\" failed {e}");
        }
    }
}

fn make_parent(path: &Path) -> Result<(), FileError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
    made.map_err(|error| FileError::new("mkdir()", parent, error))
}

/// A number that is probably free: workers begin at different places and count from there, all
/// threads of one together.
pub fn next_number() -> u32 {
    static NEXT: OnceLock<(u32, AtomicU32)> = OnceLock::new();
    let pid = std::process::id();
    let begin = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_millis() as u32);
        (pid, AtomicU32::new(pid.wrapping_mul(2_654_435_761).wrapping_add(now)))
    };
    let (maker, next) = NEXT.get_or_init(begin);
    // Numbers of a master that was asked before the fork go to all its workers.
    let apart = if *maker == pid { 0 } else { pid.wrapping_mul(2_654_435_761) };
    next.fetch_add(1, Ordering::Relaxed).wrapping_add(apart)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str, levels: [u8; 3]) -> TempPath {
        let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        TempPath::named(path, levels)
    }

    fn chain(parts: &[&'static [u8]]) -> Chain {
        let mut chain = Chain::new();
        for part in parts {
            chain.push_bytes(bytes::Bytes::from_static(part));
        }
        chain
    }

    #[test]
    fn folders_are_made_and_bytes_come_back() {
        let folder = folder("temp-levels", [1, 2, 0]);
        let mut file = TempFile::create(&folder, Keep::Named, 0o600).unwrap();
        file.append(&mut chain(&[b"one ", b"two"])).unwrap();
        file.append(&mut chain(&[b" three"])).unwrap();
        assert_eq!(std::fs::read(file.path()).unwrap(), b"one two three");
        assert!(matches!(file.as_buf(), Buf::File { pos: 0, end: 13, .. }));
        let below = file.path().strip_prefix(&folder.path).unwrap().components().count();
        assert_eq!(below, 3);
        let path = file.path().to_path_buf();
        drop(file);
        assert!(!path.exists());
        std::fs::remove_dir_all(&folder.path).unwrap();
    }

    #[test]
    fn names_go_or_stay_as_asked() {
        let folder = folder("temp-keep", [0; 3]);
        let make = |keep| TempFile::create(&folder, keep, 0o600).unwrap();
        let (nameless, stays, mut moved) =
            (make(Keep::Nameless), make(Keep::Stays), make(Keep::Named));
        assert!(!nameless.path().exists());
        let kept = [stays.path().to_path_buf(), moved.path().to_path_buf()];
        moved.moved();
        drop((stays, moved));
        assert!(kept.iter().all(|p| p.exists()));
        std::fs::remove_dir_all(&folder.path).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let folder = TempPath::named("/dev/null/x".into(), [0; 3]);
        let error = TempFile::create(&folder, Keep::Named, 0o600).err().unwrap();
        assert!(error.to_string().contains("\"/dev/null/x"), "{error}");
    }
}
