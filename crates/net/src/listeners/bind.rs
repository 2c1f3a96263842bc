//! Opening one socket: options, binding, and old sockets in the way.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;

use base::log;
use base::log::{Level, debug, os_error};
use os::SockAddr;
use os::socket::{self, Kind};

use super::{Bound, OpenEnv, remove_socket_file, unix_path};
use crate::spec::ListenSpec;

/// Makes new sockets where old ones are in the way: those of the running configuration that will
/// close, and still listen until the new ones do (`*:80` after `127.0.0.1:80`), and the one that
/// shares its address from now on. The kernel allows that when each of them has `SO_REUSEPORT`.
pub(super) struct AddressSharing<'a> {
    pub(super) leaving: Vec<&'a Bound>,
    /// Old sockets that were given `SO_REUSEPORT`.
    pub(super) shared: Vec<Rc<OwnedFd>>,
}

impl AddressSharing<'_> {
    pub(super) fn open(&mut self, bound: &Bound, env: OpenEnv<'_>) -> Result<OwnedFd, OpenError> {
        let spec = &bound.spec;
        let in_the_way: Vec<_> = self.leaving.iter().filter(|b| b.spec.overlaps(spec)).collect();
        let crowded = !in_the_way.is_empty();
        let others = in_the_way.into_iter().flat_map(|b| &b.sockets);
        for fd in others.chain(&bound.sockets) {
            if socket::reuseport(fd).is_ok_and(|on| on) {
                continue;
            }
            match socket::set_reuseport(fd, true) {
                Ok(()) => self.shared.push(fd.clone()),
                Err(e) => {
                    let (addr, e) = (&spec.addr, os_error(&e));
                    log!(
                        env.log,
                        Level::Alert,
                        None,
                        "setsockopt(SO_REUSEPORT) {addr} failed, ignored {e}"
                    );
                }
            }
        }
        let fd = open_one(spec, crowded || spec.reuseport && !env.test, env)?;
        if crowded && !spec.reuseport {
            // From now on no other process may share the address.
            let _ = socket::set_reuseport(&fd, false);
        }
        Ok(fd)
    }

    /// Clears `SO_REUSEPORT` on the old sockets again.
    pub(super) fn undo(&self) {
        for fd in &self.shared {
            let _ = socket::set_reuseport(fd, false);
        }
    }
}

pub(super) enum OpenError {
    /// The address is in use: logged, may be tried again.
    InUse,
    /// Logged.
    Failed,
}

/// One new listening socket, which may share its address with others when they do.
fn open_one(spec: &ListenSpec, share: bool, env: OpenEnv<'_>) -> Result<OwnedFd, OpenError> {
    let addr = &spec.addr;
    let fail = |what: &str, e: io::Error| {
        log!(env.log, Level::Emerg, None, "{what} {addr} failed {}", os_error(&e));
        OpenError::Failed
    };
    let fd = if spec.multipath && !addr.is_unix() {
        socket::socket_multipath(addr)
    } else {
        socket::socket(addr, spec.kind)
    };
    let fd = fd.map_err(|e| fail("socket()", e))?;
    if spec.kind == Kind::Stream || !env.test {
        socket::set_reuseaddr(&fd, true).map_err(|e| fail("setsockopt(SO_REUSEADDR)", e))?;
    }
    if share && !addr.is_unix() {
        socket::set_reuseport(&fd, true).map_err(|e| fail("setsockopt(SO_REUSEPORT)", e))?;
    }
    if let SockAddr::V6(_) = addr
        && let Err(e) = socket::set_v6only(&fd, spec.ipv6only.unwrap_or(true))
    {
        let e = os_error(&e);
        log!(env.log, Level::Emerg, None, "setsockopt(IPV6_V6ONLY) {addr} failed, ignored {e}");
    }
    base::debug!(env.log, debug::CORE, None, "bind() {addr} #{}", fd.as_raw_fd());
    bind(&fd, spec, env)?;
    if let Some(path) = unix_path(addr) {
        open_to_all(path, env);
    }
    if spec.kind == Kind::Stream
        && let Err(e) = socket::listen(&fd, spec.backlog())
    {
        let in_use = e.kind() == io::ErrorKind::AddrInUse;
        if !(in_use && env.test) {
            let (backlog, e) = (spec.backlog(), os_error(&e));
            log!(env.log, Level::Emerg, None, "listen() to {addr}, backlog {backlog} failed {e}");
        }
        return Err(if in_use { OpenError::InUse } else { OpenError::Failed });
    }
    Ok(fd)
}

fn bind(fd: &OwnedFd, spec: &ListenSpec, env: OpenEnv<'_>) -> Result<(), OpenError> {
    let addr = &spec.addr;
    let mut result = socket::bind(fd, addr);
    if let (Err(e), Some(path)) = (&result, unix_path(addr))
        && e.kind() == io::ErrorKind::AddrInUse
        && !env.test
        && is_abandoned(spec)
    {
        // Left behind by a server that was killed.
        log!(env.log, Level::Notice, None, "deleting stale socket {}", path.display());
        remove_socket_file(addr);
        result = socket::bind(fd, addr);
    }
    let Err(e) = result else { return Ok(()) };
    let in_use = e.kind() == io::ErrorKind::AddrInUse;
    if !(in_use && env.test) {
        log!(env.log, Level::Emerg, None, "bind() to {addr} failed {}", os_error(&e));
    }
    Err(if in_use { OpenError::InUse } else { OpenError::Failed })
}

/// Whether a unix socket's file has no process behind it any more.
fn is_abandoned(spec: &ListenSpec) -> bool {
    let probe = socket::socket(&spec.addr, spec.kind);
    let refused = |e: io::Error| e.kind() == io::ErrorKind::ConnectionRefused;
    probe.is_ok_and(|probe| socket::connect(probe.as_fd(), &spec.addr).is_err_and(refused))
}

/// Lets every user connect to a unix socket, as nginx does; after a test nothing stays.
fn open_to_all(path: &std::path::Path, env: OpenEnv<'_>) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o666);
    if let Err(e) = std::fs::set_permissions(path, mode) {
        let (path, e) = (path.display(), os_error(&e));
        log!(env.log, Level::Emerg, None, "chmod() \"{path}\" failed {e}");
    }
    if env.test
        && let Err(e) = std::fs::remove_file(path)
    {
        let (path, e) = (path.display(), os_error(&e));
        log!(env.log, Level::Emerg, None, "unlink() {path} failed {e}");
    }
}
