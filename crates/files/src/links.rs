//! `disable_symlinks`: paths opened component by component, so that no symbolic link among them is
//! followed, or none whose owner is not its target's.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use os::errno::ELOOP;
use os::file::{FileMeta, OpenAt};

use crate::file::OpenError;
use crate::path::as_path;

/// The links of a path that are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Links {
    /// All.
    Follow,
    /// None behind the first `from` bytes of the path; with `owner` those whose owner is their
    /// target's.
    Check {
        /// Links whose owner is their target's are followed.
        owner: bool,
        /// Bytes of the path that are trusted.
        from: usize,
    },
}

impl Links {
    /// Whether all are followed.
    #[inline]
    pub fn follow(self) -> bool {
        self == Links::Follow
    }
}

impl Links {
    /// The check for `path` with the trusted part `from` of `disable_symlinks`.
    pub fn checked(path: &[u8], owner: bool, from: &[u8]) -> Links {
        if from.is_empty() || !path.starts_with(from) {
            return Links::Check { owner, from: 0 };
        }
        match path.get(from.len()) {
            // The whole path is trusted.
            None => Links::Follow,
            Some(b'/') => Links::Check { owner, from: from.len() },
            Some(_) if from.last() == Some(&b'/') => Links::Check { owner, from: from.len() - 1 },
            Some(_) => Links::Check { owner, from: 0 },
        }
    }
}

/// Opens `path` to append to it, made with the permissions `mode` when absent. Waits for the disk.
///
/// # Errors
/// The system's.
pub fn append(path: &[u8], links: Links, mode: u32) -> Result<OwnedFd, OpenError> {
    match links {
        Links::Follow => {
            let fd = os::append::open(as_path(path), mode);
            fd.map_err(|e| OpenError::new("open()", e))
        }
        Links::Check { owner, from } => open_append(path, owner, from, mode),
    }
}

fn at(error: io::Error) -> OpenError {
    OpenError::new("openat()", error)
}

/// Opens `path` for reading, with its links checked.
pub(crate) fn open(path: &[u8], owner: bool, from: usize) -> Result<OwnedFd, OpenError> {
    let (dir, last) = walk(path, owner, from)?;
    if last.is_empty() {
        // A slash at the end: the folder itself, opened anew for reading.
        return os::file::open_at(&dir, Path::new("."), OpenAt::File).map_err(at);
    }
    component(&dir, as_path(last), owner, false).map_err(at)
}

/// Opens `path` for appending, made when absent. The file itself is never a link that is followed:
/// whether its owner is its target's can only be told of what is there already.
fn open_append(path: &[u8], owner: bool, from: usize, mode: u32) -> Result<OwnedFd, OpenError> {
    let (dir, last) = walk(path, owner, from)?;
    os::append::open_at(&dir, as_path(last), mode).map_err(at)
}

/// Opens all folders of the path; gives the last and the name that is left, empty behind a slash.
fn walk(path: &[u8], owner: bool, from: usize) -> Result<(OwnedFd, &[u8]), OpenError> {
    let (mut dir, rest) = start(path, from)?;
    let mut parts = rest.split(|b| *b == b'/').peekable();
    let mut last: &[u8] = b"";
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            last = part;
        } else if !part.is_empty() {
            dir = component(&dir, as_path(part), owner, true).map_err(at)?;
        }
    }
    Ok((dir, last))
}

/// The folder to start from, and the rest of the path.
fn start(path: &[u8], from: usize) -> Result<(OwnedFd, &[u8]), OpenError> {
    let (dir, rest, what) = match path {
        _ if from > 0 => (&path[..from], &path[from + 1..], "open()"),
        [b'/', rest @ ..] => (&b"/"[..], rest, "openat()"),
        _ => (&b"."[..], path, "openat()"),
    };
    let fd = os::file::open_search(as_path(dir)).map_err(|e| OpenError::new(what, e))?;
    Ok((fd, rest))
}

/// Opens one component.
fn component(dir: &OwnedFd, name: &Path, owner: bool, is_dir: bool) -> io::Result<OwnedFd> {
    if !owner {
        let how = if is_dir { OpenAt::DirNoFollow } else { OpenAt::FileNoFollow };
        return os::file::open_at(dir, name, how);
    }
    let how = if is_dir { OpenAt::Dir } else { OpenAt::File };
    let fd = os::file::open_at(dir, name, how)?;
    // Between the two calls the name may come to stand for something else: whether it was a link
    // when it was opened is not known, so the owners have to agree in any case.
    let link: FileMeta = os::file::lstat_at(dir, name)?;
    if link.uid != os::file::fstat(&fd)?.uid {
        return Err(io::Error::from_raw_os_error(ELOOP));
    }
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    fn errno(path: &Path, owner: bool, from: usize) -> Option<i32> {
        open(path.as_os_str().as_bytes(), owner, from).err().and_then(|e| e.errno())
    }

    #[test]
    fn links_are_refused_behind_the_trusted_part() {
        let folder = testkit::Folder::new("links");
        std::fs::create_dir(folder.join("real")).unwrap();
        let dir = folder.canonicalize().unwrap();
        std::fs::write(dir.join("real/f"), b"x").unwrap();
        symlink(dir.join("real"), dir.join("folder")).unwrap();
        symlink("f", dir.join("real/link")).unwrap();

        assert_eq!(errno(&dir.join("real/f"), false, 0), None);
        assert_eq!(errno(&dir.join("real//./f"), false, 0), None);
        assert_eq!(errno(&dir.join("real/"), false, 0), None);
        assert_eq!(errno(&dir.join("real/link"), false, 0), Some(ELOOP));
        // The kernel's error for a link where a folder has to be.
        assert_eq!(errno(&dir.join("folder/f"), false, 0), Some(20));
        assert_eq!(errno(&dir.join("f/"), false, 0), Some(2));
        assert_eq!(errno(&dir.join("real/f/"), false, 0), Some(20));
        // Links of their target's owner.
        assert_eq!(errno(&dir.join("folder/link"), true, 0), None);
        // The folder's link stands in the part that is trusted.
        let trusted = dir.join("folder").as_os_str().len();
        assert_eq!(errno(&dir.join("folder/f"), false, trusted), None);
        assert_eq!(errno(&dir.join("folder/link"), false, trusted), Some(ELOOP));
    }
}
