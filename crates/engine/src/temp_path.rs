//! Folders for temporary files.

use std::path::PathBuf;

use base::log;
use base::log::{Level, os_error};
use conf::ConfError;

use crate::places::Place;

/// A folder of temporary files, as `client_body_temp_path` and its like name it.
#[derive(Clone)]
pub struct TempPath {
    /// The folder, absolute.
    pub path: PathBuf,
    /// The hexadecimal digits in the name of each level's folder.
    pub levels: [u8; 3],
    /// No directive names it.
    pub is_default: bool,
}

impl TempPath {
    /// A folder that a directive names.
    pub fn named(path: PathBuf, levels: [u8; 3]) -> TempPath {
        TempPath { path, levels, is_default: false }
    }

    /// A folder that only a built-in default names.
    pub fn by_default(path: PathBuf, levels: [u8; 3]) -> TempPath {
        TempPath { path, levels, is_default: true }
    }

    /// Makes the folder, for `owner` where one is named. A process without the privilege to give it
    /// away starts all the same if only a default names the folder, because the requests that need
    /// it may never come.
    ///
    /// # Errors
    /// The system's, in nginx's words.
    pub fn create(&self, owner: Option<u32>) -> Result<(), ConfError> {
        let fail = |what: &str, e: &std::io::Error| {
            let path = self.path.display();
            ConfError::new(format!("{what} \"{path}\" failed {}", os_error(e)))
        };
        match std::fs::create_dir(&self.path) {
            Ok(()) => {
                use std::os::unix::fs::PermissionsExt;
                let only_ours = std::fs::Permissions::from_mode(0o700);
                std::fs::set_permissions(&self.path, only_ours).map_err(|e| fail("chmod()", &e))?;
            }
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(fail("mkdir()", &e)),
        }
        match owner.map_or(Ok(()), |uid| self.give_to(uid)) {
            Err(e) if self.is_default && e.kind() == std::io::ErrorKind::PermissionDenied => {
                let (path, e) = (self.path.display(), os_error(&e));
                log!(log::default(), Level::Warn, None, "chown() \"{path}\" failed {e}");
                Ok(())
            }
            given => given.map_err(|e| fail("chown()", &e)),
        }
    }

    /// Makes `uid` the owner, unless it is already: that takes no privilege.
    fn give_to(&self, uid: u32) -> std::io::Result<()> {
        use std::os::unix::fs::MetadataExt;
        if std::fs::metadata(&self.path)?.uid() == uid {
            return Ok(());
        }
        os::file::chown(&self.path, Some(uid), None)
    }

    /// The same, for a folder that may be a built-in default's, with its `place`: there a `test` of
    /// the configuration makes nothing, and if the folder cannot be made, requests that need it
    /// fail, and not the start.
    ///
    /// # Errors
    /// The system's, in nginx's words.
    pub fn create_in(
        &self,
        place: &Place,
        owner: Option<u32>,
        test: bool,
    ) -> Result<(), ConfError> {
        if !place.holds(&self.path) {
            return self.create(owner);
        }
        if test || place.make().is_err() {
            return Ok(());
        }
        self.create(owner)
    }

    /// The file for number `n`: `path/LEVELS/0000000042`.
    pub fn file(&self, n: u64) -> PathBuf {
        let name = format!("{n:010}");
        let mut path = self.path.clone();
        let mut end = name.len();
        for &width in self.levels.iter().filter(|w| **w > 0) {
            let start = end.saturating_sub(width as usize);
            path.push(&name[start..end]);
            end = start;
        }
        path.push(name);
        path
    }
}
