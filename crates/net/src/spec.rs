//! What a `listen` directive asks of a socket.

use std::os::fd::OwnedFd;

use base::log;
use base::log::{Level, Log, os_error};
use os::SockAddr;
use os::socket::{self, Kind};

/// nginx's length of the queue of connections that wait to be accepted.
pub const BACKLOG: i32 = 511;

/// An address to listen on, with its socket options. Two with the same address and kind are the same socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenSpec {
    /// Where.
    pub addr: SockAddr,
    /// Stream, or datagram for UDP and QUIC.
    pub kind: Kind,
    /// `backlog=`: the longest queue of connections that wait to be accepted.
    pub backlog: i32,
    /// `rcvbuf=`, bytes.
    pub rcvbuf: Option<usize>,
    /// `sndbuf=`, bytes.
    pub sndbuf: Option<usize>,
    /// `reuseport`: a socket for each worker.
    pub reuseport: bool,
    /// `deferred`: wake up only when a client has sent something.
    pub deferred: bool,
    /// `fastopen=`: the queue of connections that have data before the handshake's end.
    pub fastopen: Option<i32>,
    /// `so_keepalive=`.
    pub keepalive: Option<KeepAlive>,
    /// `ipv6only=`; on unless said otherwise.
    pub ipv6only: bool,
    /// `multipath`: multipath TCP.
    pub multipath: bool,
}

/// `so_keepalive=off`, `on` or `idle:interval:count`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// Whether the kernel probes idle connections.
    pub on: bool,
    /// Seconds before the first probe; 0 leaves the system's.
    pub idle: u32,
    /// Seconds between probes; 0 leaves the system's.
    pub interval: u32,
    /// Probes without an answer before the connection is given up; 0 leaves the system's.
    pub count: u32,
}

impl ListenSpec {
    /// An address with nginx's default options.
    pub fn new(addr: SockAddr, kind: Kind) -> ListenSpec {
        ListenSpec {
            addr,
            kind,
            backlog: BACKLOG,
            rcvbuf: None,
            sndbuf: None,
            reuseport: false,
            deferred: false,
            fastopen: None,
            keepalive: None,
            ipv6only: true,
            multipath: false,
        }
    }

    /// Sets the options on a socket. What the kernel refuses is told and ignored, as in nginx.
    pub(crate) fn configure(&self, fd: &OwnedFd, log: &Log) {
        let tell = |level: Level, what: &str, result: std::io::Result<()>| {
            if let Err(e) = result {
                let (addr, e) = (&self.addr, os_error(&e));
                log!(log, level, None, "{what} {addr} failed, ignored {e}");
            }
        };
        if let Some(bytes) = self.rcvbuf {
            let what = format!("setsockopt(SO_RCVBUF, {bytes})");
            tell(Level::Alert, &what, socket::set_rcvbuf(fd, bytes));
        }
        if let Some(bytes) = self.sndbuf {
            let what = format!("setsockopt(SO_SNDBUF, {bytes})");
            tell(Level::Alert, &what, socket::set_sndbuf(fd, bytes));
        }
        if self.kind != Kind::Stream {
            return;
        }
        if let Some(k) = self.keepalive {
            let what = format!("setsockopt(SO_KEEPALIVE, {})", u8::from(k.on));
            tell(Level::Alert, &what, socket::set_keepalive(fd, k.on));
            if k.idle > 0 {
                let what = format!("setsockopt(TCP_KEEPIDLE, {})", k.idle);
                tell(Level::Alert, &what, socket::set_keepidle(fd, k.idle));
            }
            if k.interval > 0 {
                let what = format!("setsockopt(TCP_KEEPINTVL, {})", k.interval);
                tell(Level::Alert, &what, socket::set_keepintvl(fd, k.interval));
            }
            if k.count > 0 {
                let what = format!("setsockopt(TCP_KEEPCNT, {})", k.count);
                tell(Level::Alert, &what, socket::set_keepcnt(fd, k.count));
            }
        }
        if let Some(queue) = self.fastopen {
            let what = format!("setsockopt(TCP_FASTOPEN, {queue})");
            tell(Level::Alert, &what, socket::set_fastopen(fd, queue));
        }
        // Listening again changes the backlog of a socket that was taken over, and starts one that a
        // parent had only bound.
        if let Err(e) = socket::listen(fd, self.backlog) {
            let (addr, backlog, e) = (&self.addr, self.backlog, os_error(&e));
            log!(
                log,
                Level::Alert,
                None,
                "listen() to {addr}, backlog {backlog} failed, ignored {e}"
            );
        }
        if !self.addr.is_unix() {
            let was = socket::defer_accept(fd).is_ok_and(|seconds| seconds > 0);
            if was != self.deferred {
                let seconds = i32::from(self.deferred);
                let what = format!("setsockopt(TCP_DEFER_ACCEPT, {seconds}) for");
                tell(Level::Alert, &what, socket::set_defer_accept(fd, seconds));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_reach_the_socket() {
        let fd = OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let mut spec = ListenSpec::new(socket::local_addr(&fd).unwrap(), Kind::Stream);
        let (log, lines) = base::log::capture(Level::Info);
        spec.backlog = 7;
        spec.deferred = true;
        spec.rcvbuf = Some(4096);
        spec.keepalive = Some(KeepAlive { on: true, idle: 30, interval: 0, count: 4 });
        spec.configure(&fd, &log);
        assert_eq!(lines.take(), "");
        assert_eq!(socket::accept_queue(&fd).unwrap().1, 7);
        assert!(socket::defer_accept(&fd).unwrap() > 0);
        spec.deferred = false;
        spec.configure(&fd, &log);
        assert_eq!(socket::defer_accept(&fd).unwrap(), 0);
    }
}
