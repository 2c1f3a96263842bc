//! Real servers from the system's packages, behind the one that is tested.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{Folder, Port, wait_for};

/// A server in a folder of its own; it ends when this is dropped.
pub struct Peer {
    child: Child,
    port: Port,
    folder: Folder,
}

impl Peer {
    /// Starts a program whose name in `/usr/bin` or `/usr/sbin` begins with `name`, once `files`
    /// are there, and waits until it listens. In files and arguments `%PORT%` and `%DIR%` stand for
    /// its port and folder.
    ///
    /// # Panics
    /// Where it is missing, with the name of its package; where it does not start.
    pub fn start(name: &str, package: &str, files: &[(&str, &str)], arguments: &[&str]) -> Self {
        Self::start_at(name, package, files, arguments, None)
    }

    /// The same for a server that listens on a port of the caller's (`at`), if there is one.
    ///
    /// # Panics
    /// As [`Peer::start`].
    pub fn start_at(
        name: &str,
        package: &str,
        files: &[(&str, &str)],
        arguments: &[&str],
        at: Option<u16>,
    ) -> Self {
        let port = Port::reserve();
        let folder = Folder::new("peer");
        let fill = |text: &str| {
            let dir = folder.to_string_lossy();
            text.replace("%PORT%", &port.number().to_string()).replace("%DIR%", &dir)
        };
        for (path, text) in files {
            folder.write(path, fill(text));
        }
        let program = find(name).unwrap_or_else(|| {
            panic!("no {name} on this machine: ./x test installs it (Debian: {package})")
        });
        let log = fs::File::create(folder.join("output.txt")).expect("create the peer's log");
        let child = Command::new(&program)
            .args(arguments.iter().map(|a| fill(a)))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("share the peer's log"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {}: {e}", program.display()));
        let mut peer = Self { child, port, folder };
        wait_for(name, || {
            if let Ok(Some(status)) = peer.child.try_wait() {
                panic!("{name} ended at once ({status}): {}", peer.output());
            }
            TcpStream::connect(("127.0.0.1", at.unwrap_or(peer.port()))).ok()
        });
        peer
    }

    /// The program of that name, if it is installed. Debian puts versions behind some names
    /// (`php-fpm8.2`).
    pub fn find(name: &str) -> Option<PathBuf> {
        find(name)
    }

    /// php-fpm with scripts.
    pub fn php(scripts: &[(&str, &str)]) -> Self {
        // A kept connection takes a child to itself.
        // It goes on as the user that it is started by, which is root in many containers.
        let conf = "[global]\nerror_log = %DIR%/fpm.log\ndaemonize = no\n\n[www]\n\
                    user = root\ngroup = root\nlisten = 127.0.0.1:%PORT%\npm = static\n\
                    pm.max_children = 24\ncatch_workers_output = no\n";
        let mut files = vec![("fpm.conf", conf)];
        files.extend_from_slice(scripts);
        Self::start("php-fpm", "php-fpm", &files, &["-R", "-n", "-y", "%DIR%/fpm.conf"])
    }

    /// Redis that keeps nothing on disk.
    pub fn redis() -> Self {
        let conf = "bind 127.0.0.1\nport %PORT%\nsave \"\"\nappendonly no\ndir %DIR%\n";
        let files = [("redis.conf", conf)];
        Self::start("redis-server", "redis-server", &files, &["%DIR%/redis.conf"])
    }

    /// uwsgi with a Python application; `socket` is the option for its protocol.
    pub fn uwsgi(socket: &str, application: &str) -> Self {
        let arguments = [
            "--plugin",
            "python3",
            socket,
            "127.0.0.1:%PORT%",
            "--wsgi-file",
            "%DIR%/app.py",
            "--need-app",
            "--buffer-size",
            "65535",
            "--die-on-term",
        ];
        let package = "uwsgi-core uwsgi-plugin-python3";
        Self::start("uwsgi", package, &[("app.py", application)], &arguments)
    }

    /// memcached.
    pub fn memcached() -> Self {
        let arguments = ["-l", "127.0.0.1", "-p", "%PORT%", "-U", "0", "-u", "root"];
        Self::start("memcached", "memcached", &[], &arguments)
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its output so far.
    pub fn output(&self) -> String {
        fs::read_to_string(self.folder.join("output.txt")).unwrap_or_default()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        crate::signal(self.child.id(), "TERM");
        let _ = self.child.wait();
    }
}

fn find(name: &str) -> Option<PathBuf> {
    let folders = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];
    let exact = folders.iter().map(|f| Path::new(f).join(name)).find(|p| p.is_file());
    exact.or_else(|| {
        let entries = folders.iter().filter_map(|f| fs::read_dir(f).ok()).flatten().flatten();
        let versioned = |p: &PathBuf| {
            let file = p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let rest = file.strip_prefix(name).unwrap_or_default();
            !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        };
        entries.map(|e| e.path()).find(versioned)
    })
}
