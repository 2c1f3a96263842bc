//! A server in the background, as it runs where binaries are changed.

use std::fs;
use std::path::PathBuf;

use crate::{Site, signal, wait_for};

/// A server in the background. Its configuration names the pid file `logs/weir.pid` and the error
/// log `logs/error.log`. Dropping it ends both binaries' masters, and fails the test if the log
/// holds an alert or worse.
pub struct Daemon {
    site: Site,
}

impl Daemon {
    /// Starts it, and waits for its pid file.
    pub fn start(site: Site) -> Daemon {
        let out = site.run(&[]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let daemon = Daemon { site };
        daemon.pid();
        daemon
    }

    /// A file of the site.
    pub fn file(&self, name: &str) -> PathBuf {
        self.site.prefix().join(name)
    }

    /// The number behind `%PORTn%`, which the configuration has.
    pub fn port(&self, n: usize) -> u16 {
        self.site.known_port(n)
    }

    fn read_pid(&self, name: &str) -> Option<u32> {
        fs::read_to_string(self.file(name)).ok()?.trim().parse().ok()
    }

    /// The master that the pid file names, once it is there.
    pub fn pid(&self) -> u32 {
        let pid = || self.read_pid("logs/weir.pid").filter(|pid| is_alive(*pid));
        wait_for("the pid file", pid)
    }

    /// Whether the pid file names this master.
    pub fn is_led_by(&self, pid: u32) -> bool {
        self.read_pid("logs/weir.pid") == Some(pid)
    }

    /// The old master, while the new one has the pid file.
    pub fn old(&self) -> Option<u32> {
        self.read_pid("logs/weir.pid.oldbin")
    }

    /// Asks for a new binary, and gives the old master and the new one.
    pub fn upgrade(&self) -> (u32, u32) {
        let old = self.pid();
        signal(old, "USR2");
        let new = wait_for("the new binary", || {
            let new = self.read_pid("logs/weir.pid").filter(|pid| *pid != old);
            new.filter(|_| self.old().is_some())
        });
        (old, new)
    }

    /// The error log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.file("logs/error.log")).expect("an error log")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The old master takes its file's name back when the new one has ended.
        let masters = [self.read_pid("logs/weir.pid"), self.old()];
        for pid in masters.into_iter().flatten().filter(|pid| is_alive(*pid)) {
            signal(pid, "TERM");
            wait_for("the server's end", || (!is_alive(pid)).then_some(()));
        }
        if !std::thread::panicking() {
            let log = self.log();
            for level in ["[alert]", "[emerg]"] {
                assert!(!log.contains(level), "{log}");
            }
        }
    }
}

/// Whether a process is there, and does not wait to be reaped.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
