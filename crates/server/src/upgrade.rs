//! Changing the binary while it serves: USR2 starts the new one with the sockets of this one. The
//! change is complete when the old master quits, and undone when the new one does.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use base::log;
use base::log::{Level, Log, os_error};
use net::inherit::MANAGED_VAR;
use net::moves::{self, Channel};
use net::quic_relay::{self, Handover};

use crate::environ::Environ;
use crate::load::Cycle;
use crate::signals;

/// The variable with the numbers of these pipes.
const RECEIVERS: &str = "WEIR_RECEIVERS";

/// The program's file and arguments, to start it again.
pub struct Upgrade {
    /// The arguments, the name first.
    pub args: Vec<Vec<u8>>,
    /// The folder that a relative name starts from.
    pub folder: PathBuf,
    /// The old binary's master, when this is a new binary.
    pub predecessor: Option<i32>,
    /// Its key and relays of QUIC.
    pub quic: Option<Handover>,
    /// Its queue for live connections.
    pub moves: Option<Channel>,
}

impl Upgrade {
    /// Whether this is a new binary and the old one still runs.
    pub(crate) fn predecessor_lives(&self) -> bool {
        let parent = os::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        self.predecessor.is_some() && self.predecessor == parent
    }

    /// The queue for live connections: the old binary's, or a new one. Without it, each connection
    /// stays with its worker.
    pub(crate) fn take_moves(&mut self, log: &Log) -> Option<Channel> {
        let made = self.moves.take().map_or_else(Channel::new, Ok);
        let tell = |e: &std::io::Error| {
            let m = "connections cannot move to new workers";
            log!(log, Level::Alert, None, "{m}: socketpair() failed {}", os_error(e));
        };
        made.inspect_err(tell).ok()
    }

    /// The pipes of the old binary's workers, when this is a new binary: each ends when one
    /// receives no more datagrams.
    pub fn receivers(&self, environ: &Environ) -> Vec<OwnedFd> {
        let named = environ.get(RECEIVERS.as_bytes()).filter(|_| self.predecessor.is_some());
        let text = named.map(String::from_utf8_lossy).unwrap_or_default();
        let numbers = text.split(';').filter_map(|number| number.parse().ok());
        numbers.filter_map(|number| os::fd::adopt(number).ok()).collect()
    }

    /// The file to execute: the name we were called by, which by now is the new binary's. A name
    /// without a slash was found in PATH.
    fn file(&self, environ: &Environ) -> PathBuf {
        let name = self.args.first().map_or(&b"weir"[..], Vec::as_slice);
        let path = Path::new(std::ffi::OsStr::from_bytes(name));
        if name.contains(&b'/') {
            return self.folder.join(path);
        }
        let folders = environ.get(b"PATH").unwrap_or_default().split(|&b| b == b':');
        let mut found = folders.map(|f| Path::new(std::ffi::OsStr::from_bytes(f)).join(path));
        found.find(|file| os::file::access(file, 1).is_ok()).unwrap_or(path.to_owned())
    }

    /// Replaces this process, a child forked for it, by the new binary. Does not return.
    /// `receivers` has the numbers of pipes: each ends when a worker of this binary receives no
    /// more datagrams. `quic` is the value of its variable, and `moves` that of the queue for live
    /// connections.
    pub fn exec(
        &self,
        cycle: &Cycle,
        environ: &Environ,
        receivers: &str,
        quic: Option<String>,
        moves: Option<String>,
    ) -> ! {
        let path = self.file(environ);
        let log = &cycle.log;
        let sockets = cycle.listeners.borrow().for_new_binary();
        let mut env =
            environ.for_new_binary(&cycle.settings.env, &cycle.settings.environment, &sockets);
        if !receivers.is_empty() {
            env.push(format!("{RECEIVERS}={receivers}").into_bytes());
        }
        let managed = cycle.listeners.borrow().managed_for_new_binary();
        if !managed.is_empty() {
            env.push(format!("{MANAGED_VAR}={managed}").into_bytes());
        }
        env.extend(quic.map(|value| format!("{}={value}", quic_relay::VAR).into_bytes()));
        env.extend(moves.map(|value| format!("{}={value}", moves::VAR).into_bytes()));
        if let Err(e) = cycle.listeners.borrow().keep_on_exec() {
            let e = os_error(&e);
            log!(log, Level::Alert, None, "fcntl(F_SETFD) failed {e}");
        }
        // The set of signals that are held back would be inherited, and no one would take them.
        signals::set().unblock();
        let e = os::process::exec(path.as_os_str().as_bytes(), &self.args, &env);
        let (path, e) = (path.display(), os_error(&e));
        let what = "new binary process";
        log!(log, Level::Alert, None, "execve() failed while executing {what} \"{path}\" {e}");
        os::process::exit_now(1)
    }
}

/// Makes room for the new binary's pid file; false when that failed, which has been logged.
pub(crate) fn move_pid_file(cycle: &Cycle) -> bool {
    let (pid, old) = (&cycle.settings.pid, cycle.settings.old_pid());
    if pid.as_os_str().is_empty() {
        return true;
    }
    match fs::rename(pid, &old) {
        Ok(()) => true,
        Err(e) => {
            let (pid, old, e) = (pid.display(), old.display(), os_error(&e));
            log!(
                cycle.log,
                Level::Alert,
                None,
                "rename() {pid} to {old} failed before executing new binary process {e}"
            );
            false
        }
    }
}

/// Takes the pid file back when the new binary has ended.
pub(crate) fn restore_pid_file(cycle: &Cycle) {
    let (pid, old) = (&cycle.settings.pid, cycle.settings.old_pid());
    if pid.as_os_str().is_empty() {
        return;
    }
    if let Err(e) = fs::rename(&old, pid) {
        let (pid, old, e) = (pid.display(), old.display(), os_error(&e));
        log!(
            cycle.log,
            Level::Alert,
            None,
            "rename() {old} back to {pid} failed after the new binary process exited {e}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_found_as_it_was_called() {
        let upgrade = |name: &str| Upgrade {
            args: vec![name.as_bytes().to_vec()],
            folder: PathBuf::from("/srv"),
            predecessor: None,
            quic: None,
            moves: None,
        };
        let environ = Environ::capture();
        assert_eq!(upgrade("/sbin/weir").file(&environ), Path::new("/sbin/weir"));
        assert_eq!(upgrade("./weir").file(&environ), Path::new("/srv/./weir"));
        let sh = upgrade("sh").file(&environ);
        assert!(sh.is_absolute() && sh.ends_with("sh"), "{sh:?}");
        assert!(!upgrade("sh").predecessor_lives());
    }
}
