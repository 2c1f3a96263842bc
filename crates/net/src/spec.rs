//! The socket options of a `listen` directive.

use std::fmt::Display;
use std::os::fd::OwnedFd;

use base::log;
use base::log::{Level, Log, os_error};
use os::socket::{self, Kind};
use os::{SockAddr, datagram};

/// nginx's length of the queue of connections that wait to be accepted.
pub const BACKLOG: i32 = 511;

/// An address to listen on, with its socket options. Two with the same address and kind are one
/// socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenSpec {
    /// Where.
    pub addr: SockAddr,
    /// Stream, or datagram for UDP and QUIC.
    pub kind: Kind,
    /// `backlog=`: the limit of the queue of connections that wait to be accepted; [`BACKLOG`] by
    /// default.
    pub backlog: Option<i32>,
    /// `rcvbuf=`, bytes.
    pub rcvbuf: Option<usize>,
    /// `sndbuf=`, bytes.
    pub sndbuf: Option<usize>,
    /// `quic`: the datagrams are QUIC's. Each worker has a socket, as with `reuseport`, to which
    /// the kernel gives the datagrams of its connections.
    pub quic: bool,
    /// `reuseport`: a socket for each worker.
    pub reuseport: bool,
    /// `reuseport=steered`: connections are kept from stuck workers, too.
    pub steered: bool,
    /// `deferred`, `deferred=off`; never if not given.
    pub deferred: Option<Deferral>,
    /// `fastopen=`: the queue of connections that have data before the handshake's end.
    pub fastopen: Option<i32>,
    /// `so_keepalive=`.
    pub keepalive: Option<Keepalive>,
    /// `ipv6only=`; on if not given.
    pub ipv6only: Option<bool>,
    /// `multipath`: multipath TCP.
    pub multipath: bool,
    /// A socket of its own even where a wildcard socket on the same port would do: `bind`, and
    /// options that imply it.
    pub bind: bool,
}

/// When connections are accepted only once their client has sent something, or after about a second
/// (`TCP_DEFER_ACCEPT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deferral {
    /// `deferred=off`.
    Never,
    /// While a worker accepts many connections a second: see [`event::ListenOpts`].
    UnderLoad,
    /// `deferred`.
    Always,
}

/// `so_keepalive=off`, `on` or `idle:interval:count`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Keepalive {
    /// Whether the kernel probes idle connections.
    pub on: bool,
    /// Seconds before the first probe; the system's if not given.
    pub idle: Option<u32>,
    /// Seconds between probes; the system's if not given.
    pub interval: Option<u32>,
    /// Probes without an answer before the connection is given up; the system's if not given.
    pub count: Option<u32>,
}

impl ListenSpec {
    /// A stream socket with nginx's default options.
    pub fn new(addr: SockAddr) -> ListenSpec {
        ListenSpec {
            addr,
            kind: Kind::Stream,
            backlog: None,
            rcvbuf: None,
            sndbuf: None,
            quic: false,
            reuseport: false,
            steered: false,
            deferred: None,
            fastopen: None,
            keepalive: None,
            ipv6only: None,
            multipath: false,
            bind: false,
        }
    }

    /// The length of the queue of connections that wait to be accepted.
    pub fn backlog(&self) -> i32 {
        self.backlog.unwrap_or(BACKLOG)
    }

    /// Whether the two addresses conflict in the kernel unless both sockets have `SO_REUSEPORT`:
    /// one port, and one host or a wildcard.
    pub(crate) fn overlaps(&self, other: &ListenSpec) -> bool {
        let both_families = |s: &ListenSpec| s.addr.is_wildcard() && s.ipv6only == Some(false);
        let (Some(a), Some(b)) = (self.addr.ip_addr(), other.addr.ip_addr()) else { return false };
        self.kind == other.kind
            && self.addr.port() == other.addr.port()
            && (a == b
                || a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified())
                || a.is_ipv6() && both_families(self)
                || b.is_ipv6() && both_families(other))
    }

    /// Sets the options on a socket. An option that the kernel refuses is logged and ignored, as in
    /// nginx.
    pub(crate) fn configure(&self, fd: &OwnedFd, log: &Log) {
        let tell = |what: &str, result: std::io::Result<()>| {
            if let Err(e) = result {
                let (addr, e) = (&self.addr, os_error(&e));
                log!(log, Level::Alert, None, "{what} {addr} failed, ignored {e}");
            }
        };
        let set = |option: &str, value: &dyn Display, result: std::io::Result<()>| {
            tell(&format!("setsockopt({option}, {value})"), result);
        };
        if let Some(bytes) = self.rcvbuf {
            set("SO_RCVBUF", &bytes, socket::set_rcvbuf(fd, bytes));
        }
        if let Some(bytes) = self.sndbuf {
            set("SO_SNDBUF", &bytes, socket::set_sndbuf(fd, bytes));
        }
        if self.quic {
            self.configure_quic(fd, &tell);
        }
        if self.kind != Kind::Stream {
            return;
        }
        if let Some(k) = self.keepalive {
            set("SO_KEEPALIVE", &u8::from(k.on), socket::set_keepalive(fd, k.on));
            if let Some(seconds) = k.idle {
                set("TCP_KEEPIDLE", &seconds, socket::set_keepidle(fd, seconds));
            }
            if let Some(seconds) = k.interval {
                set("TCP_KEEPINTVL", &seconds, socket::set_keepintvl(fd, seconds));
            }
            if let Some(count) = k.count {
                set("TCP_KEEPCNT", &count, socket::set_keepcnt(fd, count));
            }
        }
        if let Some(queue) = self.fastopen {
            set("TCP_FASTOPEN", &queue, socket::set_fastopen(fd, queue));
        }
        // Listening again changes the backlog of a socket that was taken over, and starts one that
        // a parent had only bound.
        let backlog = self.backlog();
        if let Err(e) = socket::listen(fd, backlog) {
            let (addr, e) = (&self.addr, os_error(&e));
            log!(
                log,
                Level::Alert,
                None,
                "listen() to {addr}, backlog {backlog} failed, ignored {e}"
            );
        }
        if !self.addr.is_unix() {
            // Accepted sockets inherit it: with one setting here no connection needs a system call
            // for it (engines turn it off again for `tcp_nodelay off`).
            tell("setsockopt(TCP_NODELAY) for", socket::set_nodelay(fd, true));
            let was = socket::defer_accept(fd).is_ok_and(|seconds| seconds > 0);
            // Workers do the rest where it depends on the load.
            let deferred = self.deferred == Some(Deferral::Always);
            if was != deferred {
                let seconds = i32::from(deferred);
                let what = format!("setsockopt(TCP_DEFER_ACCEPT, {seconds}) for");
                tell(&what, socket::set_defer_accept(fd, seconds));
            }
        }
    }
}

/// The receive buffer of QUIC's sockets: a worker that is busy for a while should find what came
/// meanwhile. It takes memory as it fills.
const QUIC_RCVBUF: usize = 4 << 20;

impl ListenSpec {
    /// Sets the options by which QUIC learns of its datagrams, and by which they are sent.
    fn configure_quic(&self, fd: &OwnedFd, tell: &dyn Fn(&str, std::io::Result<()>)) {
        let v6 = matches!(self.addr, SockAddr::V6(_));
        if self.addr.is_wildcard() {
            tell("setsockopt(IP_PKTINFO) for", datagram::set_packet_info(fd, v6));
        }
        tell("setsockopt(IP_RECVTOS) for", datagram::set_ecn(fd, v6));
        tell("setsockopt(IP_MTU_DISCOVER) for", datagram::set_unfragmented(fd, v6, true));
        // Kernels before 5.0 give each by itself.
        let _ = datagram::set_join(fd);
        if self.rcvbuf.is_none() {
            // As much as the system allows.
            let _ = socket::set_rcvbuf_large(fd, QUIC_RCVBUF);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_addresses() {
        let spec = |addr: &[u8]| ListenSpec::new(SockAddr::parse(addr).unwrap());
        let (one, all) = (spec(b"127.0.0.1:80"), spec(b"0.0.0.0:80"));
        assert!(one.overlaps(&one) && one.overlaps(&all) && all.overlaps(&one));
        assert!(!one.overlaps(&spec(b"127.0.0.2:80")) && !all.overlaps(&spec(b"0.0.0.0:81")));
        let mut v6 = spec(b"[::]:80");
        assert!(!v6.overlaps(&all) && v6.overlaps(&spec(b"[::1]:80")));
        v6.ipv6only = Some(false);
        assert!(v6.overlaps(&one) && one.overlaps(&v6));
        assert!(!spec(b"unix:/a").overlaps(&spec(b"unix:/a")));
    }

    #[test]
    fn options_reach_the_socket() {
        let fd = OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let mut spec = ListenSpec::new(socket::local_addr(&fd).unwrap());
        let (log, lines) = base::log::capture(Level::Info);
        spec.backlog = Some(7);
        spec.deferred = Some(Deferral::Always);
        spec.rcvbuf = Some(4096);
        spec.keepalive =
            Some(Keepalive { on: true, idle: Some(30), interval: None, count: Some(4) });
        spec.configure(&fd, &log);
        assert_eq!(lines.take(), "");
        assert_eq!(socket::accept_queue(&fd).unwrap().1, 7);
        assert!(socket::defer_accept(&fd).unwrap() > 0);
        spec.deferred = None;
        spec.configure(&fd, &log);
        assert_eq!(socket::defer_accept(&fd).unwrap(), 0);
    }
}
