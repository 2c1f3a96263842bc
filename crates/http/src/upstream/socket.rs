//! Sockets for connections to upstreams, with what the configuration says of them.

use std::io;

use base::log::Level;
use event::Sock;
use os::SockAddr;

use super::conf::{Bind, Conf, Local};
use super::exchange::Stop;
use crate::request::Request;

/// A socket that is not connected yet.
pub(super) fn open(r: &mut Request, conf: &Conf, addr: &SockAddr) -> Result<Sock, Stop> {
    let fd = match os::socket::socket(addr, os::socket::Kind::Stream) {
        Ok(fd) => fd,
        Err(e) => {
            r.log_os(Level::Alert, format_args!("socket()"), &e);
            return Err(Stop::Status(500));
        }
    };
    let (local, transparent) = match &conf.bind {
        Bind::Off => (None, false),
        Bind::To { address, transparent } => (local_end(r, address), *transparent),
    };
    let failed = |what: &str, e: io::Error| {
        r.log_os(Level::Alert, format_args!("{what}"), &e);
        Stop::Status(500)
    };
    if conf.socket_keepalive && !addr.is_unix() {
        os::socket::set_keepalive(&fd, true).map_err(|e| failed("setsockopt(SO_KEEPALIVE)", e))?;
    }
    if conf.socket_rcvbuf > 0 {
        os::socket::set_rcvbuf(&fd, conf.socket_rcvbuf)
            .map_err(|e| failed("setsockopt(SO_RCVBUF)", e))?;
    }
    if conf.socket_sndbuf > 0 {
        os::socket::set_sndbuf(&fd, conf.socket_sndbuf)
            .map_err(|e| failed("setsockopt(SO_SNDBUF)", e))?;
    }
    if let Some(local) = local {
        if transparent && !local.is_unix() {
            os::socket::set_transparent(&fd, &local)
                .map_err(|e| failed("setsockopt(IP_TRANSPARENT)", e))?;
        }
        if local.port() == 0 && !local.is_unix() {
            // Not known to old kernels: then a port is taken at once.
            let _ = os::socket::set_bind_address_no_port(&fd);
        }
        if let Err(e) = os::socket::bind(&fd, &local) {
            r.log_os(Level::Crit, format_args!("bind({local})"), &e);
            return Err(Stop::Status(500));
        }
    }
    Ok(Sock::from_fd(fd))
}

/// Our own end of a connection, where it is chosen.
fn local_end(r: &mut Request, address: &Local) -> Option<SockAddr> {
    let template = match address {
        Local::Addr(a) => return Some(a.clone()),
        Local::Template(t) => t,
    };
    let text = template.eval(r);
    let local = super::conf::local_addr(&text);
    if local.is_none() && !text.is_empty() {
        let text = base::log::lossy(&text).into_owned();
        r.log(Level::Error, format_args!("invalid local address \"{text}\""));
    }
    local
}
