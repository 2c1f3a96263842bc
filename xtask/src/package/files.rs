//! The files of an installation, for every kind of package.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// The content of an entry.
pub enum Content {
    /// A file.
    File(Vec<u8>),
    /// A symbolic link.
    Link(String),
    /// A folder.
    Folder,
}

/// An entry below the root.
pub struct Entry {
    /// Its path, without a slash at the beginning.
    pub path: String,
    /// Its permissions.
    pub mode: u32,
    /// Its content.
    pub content: Content,
    /// A file that the administrator changes.
    pub is_configuration: bool,
}

impl Entry {
    /// A file with mode 0644.
    pub fn file(path: &str, bytes: impl Into<Vec<u8>>) -> Entry {
        let content = Content::File(bytes.into());
        Entry { path: path.to_owned(), mode: 0o644, content, is_configuration: false }
    }

    /// A program.
    pub fn program(path: &str, bytes: Vec<u8>) -> Entry {
        Entry { mode: 0o755, ..Entry::file(path, bytes) }
    }

    /// A file of the administrator's.
    pub fn configuration(path: &str, bytes: impl Into<Vec<u8>>) -> Entry {
        Entry { is_configuration: true, ..Entry::file(path, bytes) }
    }

    /// A folder.
    pub fn folder(path: &str) -> Entry {
        Entry { mode: 0o755, content: Content::Folder, ..Entry::file(path, "") }
    }

    /// Removes a text from a configuration file.
    pub fn without(&mut self, text: &str) {
        if let (Content::File(bytes), true) = (&mut self.content, self.is_configuration) {
            *bytes = String::from_utf8_lossy(bytes).replace(text, "").into_bytes();
        }
    }

    /// A symbolic link.
    pub fn link(path: &str, to: &str) -> Entry {
        Entry { mode: 0o777, content: Content::Link(to.to_owned()), ..Entry::file(path, "") }
    }
}

/// Writes entries below a folder that is made anew.
pub fn write(root: &Path, entries: &[Entry]) -> Result<(), String> {
    let _ = fs::remove_dir_all(root);
    for entry in entries {
        let path = root.join(&entry.path);
        let failed = |e: std::io::Error| format!("cannot write {}: {e}", path.display());
        let folder = path.parent().unwrap_or(root);
        make_folder(folder).map_err(failed)?;
        match &entry.content {
            Content::File(bytes) => fs::write(&path, bytes).map_err(failed)?,
            Content::Folder => make_folder(&path).map_err(failed)?,
            Content::Link(to) => {
                symlink(to, &path).map_err(failed)?;
                continue;
            }
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(entry.mode)).map_err(failed)?;
    }
    Ok(())
}

/// Makes a folder that everybody may enter, whatever the umask.
fn make_folder(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_folder(parent)?;
    }
    fs::create_dir(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}
