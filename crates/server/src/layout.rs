//! Where an installed program finds its files: decided by its name and its own place, so that one
//! binary serves as `weir` of a package, as `nginx` of a distribution, and below `/usr/local`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use engine::Place;

use crate::places::Homes;

/// Where relative paths start from unless `-p` says otherwise, in a program built from source.
pub const PREFIX: &str = "/usr/local/weir/";
/// The configuration file, relative to the prefix.
pub const CONF_PATH: &str = "conf/nginx.conf";
/// The first error log, relative to the prefix.
pub const ERROR_LOG_PATH: &str = "logs/error.log";
/// The file with the master's process id, relative to the prefix.
pub(crate) const PID_PATH: &str = "logs/nginx.pid";
/// The lock file, relative to the prefix.
pub(crate) const LOCK_PATH: &str = "logs/nginx.lock";

/// The folders of an installation.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where relative paths start from unless `-p` says otherwise.
    pub prefix: &'static str,
    /// The configuration file, absolute or relative to the prefix.
    pub conf_path: &'static str,
    /// Folders of the pid file, of logs and of temporary files, for a server of root; below the
    /// prefix if there are none.
    system: Option<[&'static str; 3]>,
}

/// Built from source: all of it below one folder.
const OWN: Layout = Layout { prefix: PREFIX, conf_path: CONF_PATH, system: None };
const PACKAGE: Layout = Layout {
    prefix: "/usr/share/weir/",
    conf_path: "/etc/weir/nginx.conf",
    system: Some(["/run/weir", "/var/log/weir", "/var/lib/weir"]),
};
/// In the place of nginx: the folders of Debian's.
const NGINX: Layout = Layout {
    prefix: "/usr/share/nginx/",
    conf_path: "/etc/nginx/nginx.conf",
    system: Some(["/run", "/var/log/nginx", "/var/lib/nginx"]),
};

/// Whether the program was called as `nginx`.
pub fn is_nginx() -> bool {
    *layout() == NGINX
}

/// The layout of this program.
pub fn layout() -> &'static Layout {
    static CHOSEN: OnceLock<&'static Layout> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let name = PathBuf::from(std::env::args_os().next().unwrap_or_default());
        let file = std::env::current_exe().unwrap_or_else(|_| called(&name));
        of(&name, &file)
    })
}

/// The file of a program by the name that it was called by: without /proc the system does not say.
fn called(name: &Path) -> PathBuf {
    if name.components().count() > 1 {
        return name.to_owned();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(name));
    files.find(|file| file.is_file()).unwrap_or_default()
}

/// The layout of a program by the name that it was called by and its file.
fn of(name: &Path, file: &Path) -> &'static Layout {
    let folders = ["/usr/bin", "/usr/sbin"].map(Path::new);
    if name.file_name() == Some(OsStr::new("nginx")) {
        &NGINX
    } else if file.parent().is_some_and(|folder| folders.contains(&folder)) {
        &PACKAGE
    } else {
        &OWN
    }
}

impl Layout {
    /// The fixed places of files that only defaults name, if this user has any.
    pub fn homes(&self) -> Option<Homes> {
        let [run, logs, temp] = self.system.filter(|_| os::process::geteuid().is_root())?;
        let folder = |path: &str| Place::Folder(path.into());
        Some(Homes { run: folder(run), logs: folder(logs), temp: folder(temp) })
    }

    /// The same in the words of nginx's `configure`.
    pub fn arguments(&self) -> String {
        let mut out = format!(" --prefix={}", self.prefix.trim_end_matches('/'));
        if let Some([run, logs, temp]) = self.system {
            out.push_str(&format!(
                " --conf-path={} --error-log-path={logs}/error.log \
                 --http-log-path={logs}/access.log --pid-path={run}/nginx.pid \
                 --lock-path={run}/nginx.lock --http-client-body-temp-path={temp}/client_body_temp \
                 --http-proxy-temp-path={temp}/proxy_temp \
                 --http-fastcgi-temp-path={temp}/fastcgi_temp \
                 --http-uwsgi-temp-path={temp}/uwsgi_temp --http-scgi-temp-path={temp}/scgi_temp",
                self.conf_path
            ));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_place_decide() {
        let of = |name: &str, file: &str| of(Path::new(name), Path::new(file));
        assert_eq!(of("weir", "/usr/bin/weir"), &PACKAGE);
        assert_eq!(of("/usr/sbin/nginx", "/usr/bin/weir"), &NGINX);
        assert_eq!(of("nginx", "/srv/weir"), &NGINX);
        assert_eq!(of("weir", "/usr/local/weir/sbin/weir"), &OWN);
        assert_eq!(of("", ""), &OWN);
        assert!(NGINX.arguments().contains(" --conf-path=/etc/nginx/nginx.conf "));
        assert_eq!(OWN.arguments(), " --prefix=/usr/local/weir");
    }
}
