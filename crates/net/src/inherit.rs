//! Sockets that are open already when the configuration is read: from the replaced binary
//! (`NGINX=6;7;`), from systemd (`LISTEN_FDS`), or from this program itself.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use base::log;
use base::log::{Level, Log, os_error};
use os::SockAddr;
use os::socket::{self, Kind};

use crate::quic_relay::Handover;

/// The variable that names inherited sockets; nginx's own, so that either can replace the other.
pub const NGINX_VAR: &str = "NGINX";

/// The variable that names those of the sockets that the service manager has opened: their files
/// are its own.
pub const MANAGED_VAR: &str = "WEIR_MANAGED";

/// systemd's first passed descriptor (sd_listen_fds(3)).
const SYSTEMD_FIRST: RawFd = 3;

/// An inherited socket with its address and options.
#[derive(Debug)]
pub struct InheritedFd {
    /// Its local address.
    pub addr: SockAddr,
    /// Stream or datagram.
    pub kind: Kind,
    /// The service manager has opened it.
    pub is_managed: bool,
    /// The socket.
    pub fd: OwnedFd,
}

/// Inherited sockets that no address has taken yet.
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: Vec<InheritedFd>,
    from_binary: bool,
    /// The predecessor's key and relays of QUIC.
    pub quic: Option<Handover>,
}

impl Inherited {
    /// Takes over the sockets that a predecessor named. Numbers end in `;` or `:`; faulty ones are
    /// logged and left out.
    pub fn from_binary(value: &str, log: &Log) -> Inherited {
        log!(log, Level::Notice, None, "using inherited sockets from \"{value}\"");
        let mut inherited = Inherited { from_binary: true, ..Inherited::default() };
        let mut rest = value;
        while let Some(end) = rest.find([';', ':']) {
            let Ok(number) = rest[..end].parse::<RawFd>() else {
                log!(
                    log,
                    Level::Emerg,
                    None,
                    "invalid socket number \"{rest}\" in {NGINX_VAR} environment variable, \
                     ignoring the rest of the variable"
                );
                return inherited;
            };
            inherited.add(number, false, log);
            rest = &rest[end + 1..];
        }
        if !rest.is_empty() {
            log!(
                log,
                Level::Emerg,
                None,
                "invalid socket number \"{rest}\" in {NGINX_VAR} environment variable, ignoring"
            );
        }
        inherited
    }

    /// Takes over the sockets that systemd opened. `fds` and `pid` are the values of `LISTEN_FDS`
    /// and `LISTEN_PID`; they are meant for another process when the pid is not `own_pid`.
    pub fn from_systemd(fds: &str, pid: &str, own_pid: u32, log: &Log) -> Inherited {
        let mut inherited = Inherited::default();
        if pid.parse() != Ok(own_pid) {
            return inherited;
        }
        let Some(count) = fds.parse::<u16>().ok().filter(|n| *n > 0) else {
            log!(log, Level::Error, None, "invalid LISTEN_FDS \"{fds}\", ignored");
            return inherited;
        };
        log!(log, Level::Notice, None, "using {count} sockets passed by systemd");
        for number in SYSTEMD_FIRST..SYSTEMD_FIRST + RawFd::from(count) {
            inherited.add(number, true, log);
        }
        inherited
    }

    /// Notes which sockets of a predecessor the service manager has opened ([`MANAGED_VAR`]).
    pub fn note_managed(&mut self, value: &str) {
        for number in value.split(';').filter_map(|number| number.parse::<RawFd>().ok()) {
            let mut sockets = self.sockets.iter_mut();
            if let Some(socket) = sockets.find(|socket| socket.fd.as_raw_fd() == number) {
                socket.is_managed = true;
            }
        }
    }

    /// Takes over a socket that this program has opened before it reads the configuration.
    pub fn add_own(&mut self, fd: OwnedFd, log: &Log) {
        let number = fd.as_raw_fd();
        self.put(described(fd, false), number, log);
    }

    fn add(&mut self, number: RawFd, is_managed: bool, log: &Log) {
        let described = os::fd::adopt(number).and_then(|fd| described(fd, is_managed));
        self.put(described, number, log);
    }

    fn put(&mut self, described: io::Result<InheritedFd>, number: RawFd, log: &Log) {
        match described {
            Ok(socket) => self.sockets.push(socket),
            Err(e) => {
                let e = os_error(&e);
                log!(log, Level::Crit, None, "the inherited socket #{number} is ignored {e}");
            }
        }
    }

    /// Whether the sockets come from a binary that this one replaces.
    pub fn from_predecessor(&self) -> bool {
        self.from_binary
    }

    /// Hands out the first socket that fits.
    pub fn take(&mut self, fits: impl Fn(&InheritedFd) -> bool) -> Option<InheritedFd> {
        let i = self.sockets.iter().position(fits)?;
        Some(self.sockets.remove(i))
    }

    /// Closes the sockets that no address took, and logs them.
    pub fn close_rest(&mut self, log: &Log) {
        for socket in self.sockets.drain(..) {
            let addr = &socket.addr;
            log!(
                log,
                Level::Notice,
                None,
                "closing inherited socket {addr}: nothing listens on it"
            );
        }
    }
}

fn described(fd: OwnedFd, is_managed: bool) -> io::Result<InheritedFd> {
    // systemd and other parents may hand over sockets that block.
    os::fd::set_nonblocking(&fd, true)?;
    let addr = socket::local_addr(&fd)?;
    Ok(InheritedFd { addr, kind: socket::kind(&fd)?, is_managed, fd })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::log::capture;
    use std::os::fd::IntoRawFd;

    fn passed() -> (RawFd, SockAddr) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = socket::local_addr(&listener).unwrap();
        (listener.into_raw_fd(), addr)
    }

    #[test]
    fn sockets_of_a_predecessor() {
        let (log, lines) = capture(Level::Notice);
        let (one, addr) = passed();
        let (two, other) = passed();
        let mut inherited = Inherited::from_binary(&format!("{one};{two};"), &log);
        assert!(lines.take().contains("using inherited sockets from"));
        assert!(inherited.from_predecessor());
        assert!(inherited.take(|s| s.addr == addr && s.kind == Kind::Datagram).is_none());
        let fd = inherited.take(|s| s.addr == addr && s.kind == Kind::Stream).unwrap();
        assert_eq!(fd.fd.into_raw_fd(), one);
        inherited.close_rest(&log);
        assert!(lines.take().contains(&format!("closing inherited socket {other}")));
    }

    #[test]
    fn nonsense_in_the_variable() {
        let (log, lines) = capture(Level::Notice);
        for (value, told) in [
            (
                "x;5;",
                "invalid socket number \"x;5;\" in NGINX environment variable, ignoring the rest",
            ),
            ("12", "invalid socket number \"12\" in NGINX environment variable, ignoring"),
            ("999999;", "the inherited socket #999999 is ignored (9: Bad file descriptor)"),
            ("2;", "the inherited socket #2 is ignored"),
        ] {
            let mut inherited = Inherited::from_binary(value, &log);
            assert!(inherited.take(|_| true).is_none());
            let text = lines.take();
            assert!(text.contains(told), "{text}");
        }
    }

    #[test]
    fn systemd_names_the_process_it_means() {
        let (log, lines) = capture(Level::Notice);
        assert!(Inherited::from_systemd("1", "77", 78, &log).take(|_| true).is_none());
        assert_eq!(lines.take(), "");
        Inherited::from_systemd("x", "78", 78, &log);
        assert!(lines.take().contains("invalid LISTEN_FDS"));
    }
}
