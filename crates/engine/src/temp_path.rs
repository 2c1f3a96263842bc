//! Folders for temporary files.

use std::path::PathBuf;

use conf::ConfError;

use crate::places::Place;

/// A folder of temporary files, as `client_body_temp_path` and its like name it.
#[derive(Clone)]
pub struct TempPath {
    /// The folder, absolute.
    pub path: PathBuf,
    /// The hexadecimal digits in the name of each level's folder.
    pub levels: [u8; 3],
}

impl TempPath {
    /// Makes the folder, for `owner` where one is named.
    ///
    /// # Errors
    /// The system's, in nginx's words.
    pub fn create(&self, owner: Option<u32>) -> Result<(), ConfError> {
        let fail = |what: &str, e: &std::io::Error| {
            let path = self.path.display();
            ConfError::new(format!("{what} \"{path}\" failed {}", base::log::os_error(e)))
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
        if let Some(uid) = owner {
            os::file::chown(&self.path, Some(uid), None).map_err(|e| fail("chown()", &e))?;
        }
        Ok(())
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
