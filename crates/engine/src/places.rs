//! Where files go that only built-in defaults name: below the prefix, or elsewhere if the built-in
//! prefix is absent or read-only.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The place of one kind of file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Below the prefix, as nginx has it.
    #[default]
    Prefix,
    /// This folder, which is made when it is needed.
    Folder(PathBuf),
    /// No folder can be written.
    Nowhere,
}

impl Place {
    /// The path of the file that a default names (`logs/access.log`, relative to the prefix).
    /// `None` if there is no place for it.
    pub fn path(&self, prefix: &Path, name: &[u8]) -> Option<PathBuf> {
        let name = Path::new(std::ffi::OsStr::from_bytes(name));
        match self {
            Place::Prefix => Some(prefix.join(name)),
            Place::Folder(folder) => Some(folder.join(name.file_name().unwrap_or_default())),
            Place::Nowhere => None,
        }
    }

    /// Whether the path is one that [`Place::path`] gave, in a folder apart from the prefix.
    pub fn holds(&self, path: &Path) -> bool {
        matches!(self, Place::Folder(folder) if path.parent() == Some(folder.as_path()))
    }

    /// Makes the folder.
    ///
    /// # Errors
    /// The system's.
    pub fn make(&self) -> io::Result<()> {
        let Place::Folder(folder) = self else { return Ok(()) };
        // Workers of a master that is root have another user, and have to pass through.
        let mode = if os::process::geteuid().is_root() { 0o755 } else { 0o700 };
        DirBuilder::new().recursive(true).mode(mode).create(folder)
    }
}

/// The places that engines use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Log files.
    pub logs: Place,
    /// Folders for temporary files.
    pub temp: Place,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_keep_their_names_in_any_place() {
        let prefix = Path::new("/srv");
        let path = |place: &Place| place.path(prefix, b"logs/access.log");
        assert_eq!(path(&Place::Prefix), Some("/srv/logs/access.log".into()));
        let folder = Place::Folder("/var/log/weir".into());
        assert_eq!(path(&folder), Some("/var/log/weir/access.log".into()));
        assert!(folder.holds(Path::new("/var/log/weir/access.log")));
        assert!(!folder.holds(Path::new("/var/log/weir/a/access.log")));
        assert!(!Place::Prefix.holds(Path::new("/srv/logs/access.log")));
        assert_eq!(path(&Place::Nowhere), None);
    }
}
