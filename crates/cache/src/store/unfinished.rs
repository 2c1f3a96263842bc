//! Files that are being written, under another name until they are whole.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use engine::TempPath;
use files::{FileError, as_path, next_number};
use mem::FileHandle;
use os::file::FileMeta;

/// Where a file is written before it has its place.
#[derive(Clone)]
pub enum TempPlace {
    /// Beside it (`use_temp_path=off`).
    Beside,
    /// The module's folder for temporary files.
    Folder(TempPath),
}

impl TempPlace {
    /// The name of the file of that number that is to be the one at `path`.
    pub fn name(&self, path: &[u8], number: u32) -> PathBuf {
        match self {
            TempPlace::Folder(folder) => folder.file(number.into()),
            TempPlace::Beside => {
                let mut name = path.to_vec();
                name.extend_from_slice(format!(".{number:010}").as_bytes());
                as_path(&name).to_owned()
            }
        }
    }
}

/// Names tried where others are taken.
const TRIES: u32 = 1000;

/// A file in the making; deleted when it is dropped before it has its place. For threads.
pub(crate) struct UnfinishedFile {
    fd: FileHandle,
    number: u32,
    /// `None` when it has its place.
    path: Option<PathBuf>,
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // The loader deletes a file that stays.
            event::pool::elsewhere(move || drop(std::fs::remove_file(path)));
        }
    }
}

impl UnfinishedFile {
    /// Makes a file that is to be the one at `path`. For threads.
    pub fn create(temp: &TempPlace, path: &[u8]) -> Result<UnfinishedFile, FileError> {
        for _ in 0..TRIES {
            let number = next_number();
            let name = temp.name(path, number);
            let mut made = os::file::create_new(&name, 0o600);
            if made.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
                make_parent(&name)?;
                made = os::file::create_new(&name, 0o600);
            }
            match made {
                Ok(fd) => {
                    // The lock goes with the process: a file without a lock is left behind.
                    let _ = os::file::try_lock(&fd);
                    return Ok(UnfinishedFile {
                        fd: files::wrap_local(fd),
                        number,
                        path: Some(name),
                    });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(FileError::new("open()", name, error)),
            }
        }
        Err(FileError::new("open()", as_path(path), io::ErrorKind::AlreadyExists.into()))
    }

    /// The open file.
    pub fn handle(&self) -> &FileHandle {
        &self.fd
    }

    /// The number in its name.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Reserves `len` bytes on the disk; false if the file system cannot do that.
    pub fn reserve(&self, len: u64) -> Result<bool, FileError> {
        match os::file::reserve(&self.fd, len) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(false),
            Err(e) => Err(self.failed("fallocate()", e)),
        }
    }

    /// Writes all of `pieces` at a place.
    pub fn write(&self, pieces: &[Bytes], at: u64) -> Result<(), FileError> {
        os::file::write_all_at(&self.fd, pieces, at).map_err(|e| self.failed("pwritev()", e))
    }

    fn failed(&self, what: &'static str, error: io::Error) -> FileError {
        FileError::new(what, self.path.clone().unwrap_or_default(), error)
    }

    /// Gives the file its place. Gives the facts about it.
    pub fn place(&mut self, path: &[u8]) -> Result<FileMeta, FileError> {
        let meta = os::file::fstat(&self.fd).map_err(|e| self.failed("fstat()", e))?;
        let Some(from) = self.path.take() else { return Ok(meta) };
        let to = as_path(path);
        let mut moved = std::fs::rename(&from, to);
        if moved.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            make_parent(to)?;
            moved = std::fs::rename(&from, to);
        }
        match moved {
            Ok(()) => Ok(meta),
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
                self.path = Some(from);
                self.copy(path)
            }
            Err(e) => {
                self.path = Some(from);
                Err(self.failed("rename()", e))
            }
        }
    }

    /// Gives a copy of the file its place: it was made on another file system.
    fn copy(&mut self, path: &[u8]) -> Result<FileMeta, FileError> {
        let mut copy = UnfinishedFile::create(&TempPlace::Beside, path)?;
        copy.take_from(&self.fd, 0, 0).map_err(|e| self.failed("pread()", e))??;
        copy.place(path)
    }

    /// Copies the bytes of another file from `at` on to `to`. The outer error is of reading it.
    pub fn take_from(
        &self,
        from: &FileHandle,
        mut at: u64,
        mut to: u64,
    ) -> io::Result<Result<(), FileError>> {
        let mut buf = vec![0; 128 << 10];
        loop {
            let n = match os::file::read_at(from, &mut buf, at) {
                Ok(0) => return Ok(Ok(())),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            if let Err(e) = self.write(&[Bytes::copy_from_slice(&buf[..n])], to) {
                return Ok(Err(e));
            }
            at += n as u64;
            to += n as u64;
        }
    }
}

fn make_parent(path: &Path) -> Result<(), FileError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
    made.map_err(|error| FileError::new("mkdir()", parent, error))
}
