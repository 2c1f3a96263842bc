//! Where things are: the prefix, the configuration file and its folder, the first error log.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use engine::Place;

use crate::environ::Environ;
use crate::layout::ERROR_LOG_PATH;
use crate::layout::layout;
use crate::places::Homes;
use crate::typed::Typed;

/// The paths that the command line decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The base of relative paths; ends in a slash unless it is empty.
    pub prefix: PathBuf,
    /// The configuration file.
    pub conf_file: PathBuf,
    /// The folder that relative paths of configuration (`include`, password files) start from.
    pub conf_prefix: PathBuf,
    /// The error log before the configuration names one; empty for standard error.
    pub error_log: PathBuf,
    /// Whether `-e` named that.
    error_log_named: bool,
    /// Where files go that only built-in defaults name.
    pub homes: Homes,
    /// The built-in prefix, absent, is in use: a relative path leads nowhere.
    pub prefix_absent: bool,
}

impl Paths {
    /// Resolves the paths of the command line.
    pub fn new(typed: &Typed, environ: &Environ) -> Paths {
        let mut prefix =
            typed.prefix.clone().unwrap_or_else(|| layout().prefix.as_bytes().to_vec());
        if prefix.last().is_some_and(|&b| b != b'/') {
            prefix.push(b'/');
        }
        let prefix = PathBuf::from(OsStr::from_bytes(&prefix));
        // Paths are joined to it in several places, and a relative one would be joined twice.
        let prefix = match prefix.as_os_str().is_empty() {
            true => prefix,
            false => std::path::absolute(&prefix).unwrap_or(prefix),
        };
        let conf_file = typed.conf_file.as_deref().unwrap_or(layout().conf_path.as_bytes());
        let conf_file = prefix.join(OsStr::from_bytes(conf_file));
        let conf_prefix = conf_file.parent().unwrap_or(Path::new("")).to_owned();
        let error_log = match typed.error_log.as_deref() {
            Some(b"") => PathBuf::new(),
            Some(path) => prefix.join(OsStr::from_bytes(path)),
            None => prefix.join(ERROR_LOG_PATH),
        };
        let error_log_named = typed.error_log.is_some();
        let homes = match typed.prefix {
            Some(_) => Homes::default(),
            None => layout().homes().unwrap_or_else(|| Homes::choose(&prefix, environ)),
        };
        let prefix_absent = typed.prefix.is_none() && !prefix.exists();
        let error_log = match homes.logs {
            Place::Prefix => error_log,
            _ if error_log_named => error_log,
            _ => PathBuf::new(),
        };
        Paths { prefix, conf_file, conf_prefix, error_log, error_log_named, homes, prefix_absent }
    }

    /// Whether the error log before the configuration's own has a place of its own: `-e`'s, or one
    /// below the prefix. Otherwise it is the terminal.
    pub(crate) fn error_log_is_known(&self) -> bool {
        self.error_log_named || self.homes.logs == Place::Prefix
    }

    /// A path of the main configuration made absolute.
    pub fn full(&self, path: &[u8]) -> PathBuf {
        self.prefix.join(OsStr::from_bytes(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(typed: &Typed) -> Paths {
        Paths::new(typed, &Environ::of(std::iter::empty()))
    }

    fn paths(prefix: &str, conf: &str, log: &str) -> Paths {
        let bytes = |s: &str| Some(s.as_bytes().to_vec());
        of(&Typed {
            prefix: bytes(prefix),
            conf_file: bytes(conf),
            error_log: bytes(log),
            ..Typed::default()
        })
    }

    #[test]
    fn defaults_are_below_the_prefix() {
        let p = of(&Typed::default());
        assert_eq!(p.conf_file, Path::new("/usr/local/weir/conf/nginx.conf"));
        assert_eq!(p.conf_prefix, Path::new("/usr/local/weir/conf"));
        let logs = ["", "/usr/local/weir/logs/error.log"];
        assert!(logs.contains(&p.error_log.to_str().unwrap()));
    }

    #[test]
    fn what_is_typed_goes_before() {
        let p = paths("/srv", "w.conf", "e.log");
        assert_eq!(p.prefix.as_os_str(), "/srv/");
        assert_eq!(p.conf_file, Path::new("/srv/w.conf"));
        assert_eq!(p.error_log, Path::new("/srv/e.log"));
        let here = std::env::current_dir().unwrap();
        for typed in ["site", "site/", "./site"] {
            let p = paths(typed, "w.conf", "logs/e.log");
            assert_eq!(p.prefix, here.join("site/"), "{typed}");
            assert_eq!(p.error_log, here.join("site/logs/e.log"), "{typed}");
            assert_eq!(p.full(p.error_log.as_os_str().as_encoded_bytes()), p.error_log);
        }
        let p = paths("", "/etc/w.conf", "");
        assert_eq!(p.conf_prefix, Path::new("/etc"));
        assert_eq!(p.error_log, Path::new(""));
        assert_eq!(p.full(b"logs/x"), Path::new("logs/x"));
    }
}
