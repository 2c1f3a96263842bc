//! Notifications to systemd (sd_notify(3)); none without systemd.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use base::log;
use base::log::{Level, os_error};

use crate::environ::Environ;

/// The way to the service manager, if there is one.
pub struct Notify(Option<SocketAddr>);

impl Notify {
    /// Reads `NOTIFY_SOCKET`: a path, or after `@` an abstract name.
    pub fn new(environ: &Environ) -> Notify {
        Notify(environ.get(b"NOTIFY_SOCKET").and_then(|name| match name {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
            [b'/', ..] => SocketAddr::from_pathname(OsStr::from_bytes(name)).ok(),
            _ => None,
        }))
    }

    /// All workers serve. Names the master's process: the first one may have gone to the
    /// background, or have been replaced.
    pub fn ready(&self) {
        let pid = std::process::id();
        self.send(&format!("READY=1\nMAINPID={pid}\nSTATUS=Serving\n"));
    }

    /// The configuration is being read again; [`Notify::ready`] follows, with either result.
    pub fn reloading(&self) {
        let now = os::clock::monotonic_usec();
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now}\nSTATUS=Reloading\n"));
    }

    /// The server ends.
    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=Stopping\n");
    }

    /// This master ends, and another one takes its place.
    pub(crate) fn main_is(&self, pid: i32) {
        self.send(&format!("MAINPID={pid}\n"));
    }

    fn send(&self, state: &str) {
        let Some(addr) = &self.0 else { return };
        let sent = UnixDatagram::unbound().and_then(|socket| {
            // A manager that does not read must not hold the master up.
            socket.set_nonblocking(true)?;
            socket.send_to_addr(state.as_bytes(), addr)
        });
        if let Err(e) = sent {
            let e = os_error(&e);
            log!(log::default(), Level::Warn, None, "sd_notify() failed {e}");
        }
    }
}
