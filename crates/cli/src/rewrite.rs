//! Files that a command changes: the difference for people, and the replacement, which leaves
//! either the old file or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::diff::unified;
use crate::error::Error;

/// Names that are tried for the temporary file.
const NAMES_MAX: u32 = 100;

/// A file with another text.
#[derive(Debug)]
pub(crate) struct Changed {
    /// Its path, as the command or an `include` names it.
    pub(crate) path: PathBuf,
    /// The text on disk.
    pub(crate) old: Bytes,
    /// The text that it gets.
    pub(crate) new: Bytes,
}

impl Changed {
    /// The difference, as a unified diff.
    pub(crate) fn diff(&self) -> String {
        let (old, new) = (String::from_utf8_lossy(&self.old), String::from_utf8_lossy(&self.new));
        let old: Vec<&str> = old.split_terminator('\n').collect();
        let new: Vec<&str> = new.split_terminator('\n').collect();
        let path = self.path.display();
        format!("--- {path}\n+++ {path}\n{}", unified(&old, &new))
    }

    /// Replaces the file: a temporary file in the same folder takes its name, mode and owner.
    ///
    /// # Errors
    /// The file cannot be replaced, and is as it was.
    pub(crate) fn write(&self) -> Result<(), Error> {
        replace(&self.path, &self.new).map_err(Error::file(&self.path))
    }
}

fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    // A link stays one: the file that it names is replaced.
    let path = fs::canonicalize(path)?;
    let metadata = fs::metadata(&path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let (file, name) = temporary(&path)?;
    let done = fill(file, text, &metadata).and_then(|()| fs::rename(&name, &path));
    if done.is_err() {
        // It may be gone already.
        let _ = fs::remove_file(&name);
    }
    done
}

/// A new file next to another one, which only its owner may read until it has its mode.
fn temporary(path: &Path) -> io::Result<(File, PathBuf)> {
    let pid = std::process::id();
    for number in 0..NAMES_MAX {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{pid}.{number}.tmp"));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&name) {
            Ok(file) => return Ok((file, PathBuf::from(name))),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}

fn fill(mut file: File, text: &[u8], like: &fs::Metadata) -> io::Result<()> {
    file.write_all(text)?;
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
        fchown(&file, Some(like.uid()), Some(like.gid())).map_err(|e| {
            io::Error::new(e.kind(), format!("its owner and group cannot be kept: {e}"))
        })?;
    }
    // After the owner, because a change of the owner clears some bits.
    file.set_permissions(fs::Permissions::from_mode(like.mode() & 0o7777))?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_mode_and_a_link_stays() {
        let folder = testkit::Folder::new("rewrite");
        let path = folder.write("a.conf", "old\n");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let link = folder.join("link.conf");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let (old, new) = (Bytes::from_static(b"old\n"), Bytes::from_static(b"new\n"));
        let changed = Changed { path: link.clone(), old, new };
        changed.write().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(&*folder).unwrap().count(), 2, "the temporary file stayed");
        let shown = changed.diff();
        assert!(shown.ends_with("@@ -1,1 +1,1 @@\n-old\n+new\n"), "{shown}");
        let folder = Changed { path: folder.to_path_buf(), ..changed };
        assert!(folder.write().unwrap_err().to_string().contains("not a regular file"));
    }
}
