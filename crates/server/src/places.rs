//! Where the pid file, logs and temporary files go that only built-in defaults name.
//!
//! With `-p`, and if the built-in prefix can be written, they lie below the prefix, as with nginx.
//! Otherwise each kind goes to the first folder that exists or can be made: systemd's, the
//! system's (for root), the user's (XDG), and at last one below that for temporary files.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use engine::{Place, Places};

use crate::environ::Environ;

/// The variables of the environment that name folders here. A new binary gets them as well, so
/// that it finds the pid file.
pub const VARIABLES: &[&str] = &[
    "RUNTIME_DIRECTORY",
    "STATE_DIRECTORY",
    "LOGS_DIRECTORY",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "HOME",
    "TMPDIR",
];

/// The places of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Homes {
    /// The pid and lock files.
    pub run: Place,
    /// Logs.
    pub logs: Place,
    /// Temporary files.
    pub temp: Place,
}

impl Homes {
    /// The part that engines know.
    pub fn engines(&self) -> Places {
        Places { logs: self.logs.clone(), temp: self.temp.clone() }
    }

    /// Chooses the places, with this prefix as the built-in one. Makes nothing.
    pub fn choose(prefix: &Path, environ: &Environ) -> Homes {
        let finder = Finder { environ, is_root: os::process::geteuid().is_root() };
        let below = |folder: PathBuf, else_: &dyn Fn() -> Place| match writable(&folder) {
            true => Place::Prefix,
            false => else_(),
        };
        let logs = prefix.join("logs");
        Homes {
            run: below(logs.clone(), &|| finder.first(finder.run())),
            logs: below(logs, &|| finder.first(finder.logs())),
            temp: below(prefix.to_owned(), &|| match finder.first(finder.state()) {
                // The start does not fail for it, but a request that needs a file does.
                Place::Nowhere => Place::Folder(finder.last()),
                found => found,
            }),
        }
    }
}

/// The folder for what outlives the server; it may have to be made.
pub fn state_folder(environ: &Environ) -> Option<Place> {
    let finder = Finder { environ, is_root: os::process::geteuid().is_root() };
    Some(finder.first(finder.state())).filter(|place| *place != Place::Nowhere)
}

struct Finder<'a> {
    environ: &'a Environ,
    is_root: bool,
}

impl Finder<'_> {
    fn first(&self, candidates: [Option<PathBuf>; 2]) -> Place {
        let mut all = candidates.into_iter().flatten().filter(|folder| can_be_made(folder));
        let last = || Some(self.last()).filter(|folder| is_ours(folder) && can_be_made(folder));
        all.next().or_else(last).map_or(Place::Nowhere, Place::Folder)
    }

    fn run(&self) -> [Option<PathBuf>; 2] {
        let user = || self.variable("XDG_RUNTIME_DIR").map(|dir| dir.join("weir"));
        [self.systemd("RUNTIME_DIRECTORY"), self.of_system("/run/weir").or_else(user)]
    }

    fn logs(&self) -> [Option<PathBuf>; 2] {
        let user = || self.user_state();
        [self.systemd("LOGS_DIRECTORY"), self.of_system("/var/log/weir").or_else(user)]
    }

    fn state(&self) -> [Option<PathBuf>; 2] {
        let user = || self.user_state();
        [self.systemd("STATE_DIRECTORY"), self.of_system("/var/lib/weir").or_else(user)]
    }

    /// The last resort: a folder that others could have made first, so it counts only if ours.
    fn last(&self) -> PathBuf {
        let base = self.variable("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp"));
        base.join(format!("weir-{}", os::process::geteuid().as_raw()))
    }

    fn of_system(&self, path: &str) -> Option<PathBuf> {
        self.is_root.then(|| PathBuf::from(path))
    }

    fn user_state(&self) -> Option<PathBuf> {
        let home = || self.variable("HOME").map(|home| home.join(".local/state"));
        self.variable("XDG_STATE_HOME").or_else(home).map(|dir| dir.join("weir"))
    }

    /// The first of a list of folders that systemd has made (systemd.exec(5)).
    fn systemd(&self, name: &str) -> Option<PathBuf> {
        let list = self.environ.get(name.as_bytes())?;
        let first = list.split(|&b| b == b':').next()?;
        Some(Path::new(OsStr::from_bytes(first)).to_owned()).filter(|path| path.is_absolute())
    }

    /// Relative paths are to be ignored (XDG Base Directory Specification).
    fn variable(&self, name: &str) -> Option<PathBuf> {
        let value = self.environ.get(name.as_bytes())?;
        Some(Path::new(OsStr::from_bytes(value)).to_owned()).filter(|path| path.is_absolute())
    }
}

/// Whether files can be made in the folder.
fn writable(folder: &Path) -> bool {
    folder.is_dir() && os::file::access(folder, 2 | 1).is_ok()
}

/// Whether the folder can be written, or made.
fn can_be_made(folder: &Path) -> bool {
    let existing = folder.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
    existing.is_some_and(writable)
}

/// Whether a folder is absent, or this user's alone.
fn is_ours(folder: &Path) -> bool {
    match fs::symlink_metadata(folder) {
        Ok(meta) => {
            let closed = meta.permissions().mode() & 0o022 == 0;
            meta.is_dir() && meta.uid() == os::process::geteuid().as_raw() && closed
        }
        Err(e) => e.kind() == std::io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Folder;

    fn environ(vars: &[(&str, &Path)]) -> Environ {
        Environ::of(vars.iter().map(|(name, value)| format!("{name}={}", value.display())))
    }

    fn folder(base: &Path, name: &str) -> Place {
        Place::Folder(base.join(name))
    }

    #[test]
    fn a_prefix_that_can_be_written_has_all() {
        let dir = Folder::new("whole");
        fs::create_dir(dir.join("logs")).unwrap();
        assert_eq!(Homes::choose(&dir, &environ(&[])), Homes::default());
    }

    #[test]
    fn systemd_s_folders_go_first() {
        let dir = Folder::new("systemd");
        let several = PathBuf::from(format!("{0}/a:{0}/b", dir.display()));
        let vars = [("RUNTIME_DIRECTORY", &*several), ("STATE_DIRECTORY", &*several)];
        let homes = Homes::choose(&dir.join("none"), &environ(&vars));
        assert_eq!((homes.run, homes.temp), (folder(&dir, "a"), folder(&dir, "a")));
        assert!(!dir.join("a").exists(), "nothing is made before it is needed");
    }

    #[test]
    fn users_have_their_own() {
        let dir = Folder::new("user");
        let of = |vars: &[(&str, &Path)]| {
            let environ = environ(vars);
            let finder = Finder { environ: &environ, is_root: false };
            [finder.run(), finder.logs(), finder.state()].map(|c| finder.first(c))
        };
        let (run, state) = (dir.join("r"), dir.join("s"));
        let vars = [("XDG_RUNTIME_DIR", &*run), ("XDG_STATE_HOME", &*state)];
        let weir = folder(&state, "weir");
        assert_eq!(of(&vars), [folder(&run, "weir"), weir.clone(), weir]);
        let state = folder(&dir, ".local/state/weir");
        let temp = folder(&dir, &format!("weir-{}", os::process::geteuid().as_raw()));
        assert_eq!(of(&[("HOME", &dir), ("TMPDIR", &dir)]), [temp.clone(), state.clone(), state]);
        let file = dir.join("file");
        fs::write(&file, "").unwrap();
        let nothing = &*file.join("none");
        assert_eq!(of(&[("HOME", nothing), ("TMPDIR", &dir)]), [(); 3].map(|()| temp.clone()));
        assert_eq!(of(&[("TMPDIR", nothing)]), [(); 3].map(|()| Place::Nowhere));
        // A link that another user could have made there is not followed.
        let Place::Folder(temp) = temp else { panic!("{temp:?}") };
        std::os::unix::fs::symlink("/var", &temp).unwrap();
        assert_eq!(of(&[("TMPDIR", &dir)]), [(); 3].map(|()| Place::Nowhere));
    }
}
