//! Listening sockets: opened by the master, kept over reloads, handed to workers and to a new
//! binary.
//!
//! A set of [`Listeners`] belongs to one configuration. The next configuration's set takes over the
//! sockets that it has in common with the old one (the same descriptors, counted); what is left in
//! the old set is closed when the old set is dropped. An address with `reuseport` has a socket for
//! each worker, in a fixed order: worker N listens on socket N, in every configuration and in the
//! binary that comes after this one, so that no connection that waits in a socket's queue is left
//! without a worker.

use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use base::log;
use base::log::{Level, Log, debug, os_error};
use os::socket::{self, Kind};
use os::{SockAddr, UnixAddr};

use crate::inherit::{Inherited, InheritedFd};
use crate::spec::ListenSpec;

/// How often an address that is taken is tried again before the start is given up.
const BIND_TRIES: u32 = 5;
const BIND_PAUSE: Duration = Duration::from_millis(500);

/// An address that is listened on.
#[derive(Debug, Clone)]
pub struct Bound {
    /// How it was asked for.
    pub spec: ListenSpec,
    /// The socket, or the sockets of the workers by index when `reuseport` is on.
    pub sockets: Vec<Rc<OwnedFd>>,
    /// Sockets made just now, by number in `sockets`: they alone are undone when the rest fails.
    fresh_from: usize,
}

/// The listening sockets of a configuration, in the order in which its engines asked for them.
#[derive(Debug, Default, Clone)]
pub struct Listeners(Vec<Bound>);

/// What opening depends on beside the addresses.
#[derive(Clone, Copy)]
pub struct OpenEnv<'a> {
    /// The number of workers: so many sockets has an address with `reuseport`.
    pub workers: usize,
    /// The configuration is only tested: an address that is taken is no error, and nothing is left
    /// behind.
    pub test: bool,
    /// Where problems are told.
    pub log: &'a Log,
}

/// Opening failed; why stands in the log.
#[derive(Debug)]
pub struct OpenFailed;

impl Listeners {
    /// Opens a socket for each address that `previous` (the running configuration) and `inherited`
    /// (the old binary, systemd) do not have. On failure everything is as it was.
    pub fn open(
        specs: &[ListenSpec],
        previous: &Listeners,
        inherited: &mut Inherited,
        env: OpenEnv<'_>,
    ) -> Result<Listeners, OpenFailed> {
        let mut taken = vec![false; previous.0.len()];
        let mut set = Listeners::default();
        for spec in specs {
            let mut sockets = previous.take_over(spec, &mut taken, env);
            let wanted = if spec.reuseport && !env.test { env.workers.max(1) } else { 1 };
            sockets.truncate(wanted);
            let same = |s: &InheritedFd| s.addr == spec.addr && s.kind == spec.kind;
            while sockets.len() < wanted
                && let Some(fd) = inherited.take(same)
            {
                sockets.push(Rc::new(fd));
            }
            let fresh_from = sockets.len();
            set.0.push(Bound { spec: spec.clone(), sockets, fresh_from });
        }
        match set.open_missing(env) {
            Ok(()) => Ok(set),
            Err(failed) => {
                set.abandon();
                Err(failed)
            }
        }
    }

    /// The sockets of the running configuration for an address, if it has any that fit.
    fn take_over(
        &self,
        spec: &ListenSpec,
        taken: &mut [bool],
        env: OpenEnv<'_>,
    ) -> Vec<Rc<OwnedFd>> {
        for (bound, taken) in self.0.iter().zip(taken) {
            if *taken || bound.spec.addr != spec.addr || bound.spec.kind != spec.kind {
                continue;
            }
            let protocol_changes = bound.spec.multipath != spec.multipath;
            if spec.reuseport && !bound.spec.reuseport || protocol_changes {
                // Sockets may share an address only when each of them was told so, the old one
                // included.
                for fd in &bound.sockets {
                    if let Err(e) = socket::set_reuseport(fd, true) {
                        let e = os_error(&e);
                        let addr = &spec.addr;
                        log!(
                            env.log,
                            Level::Alert,
                            None,
                            "setsockopt(SO_REUSEPORT) {addr} failed, ignored {e}"
                        );
                    }
                }
            }
            if protocol_changes {
                return Vec::new();
            }
            *taken = true;
            return bound.sockets.clone();
        }
        Vec::new()
    }

    fn open_missing(&mut self, env: OpenEnv<'_>) -> Result<(), OpenFailed> {
        for tries_left in (0..BIND_TRIES).rev() {
            let mut in_use = false;
            for bound in &mut self.0 {
                let reuseport = bound.spec.reuseport && !env.test;
                let wanted = if reuseport { env.workers.max(1) } else { 1 };
                while bound.sockets.len() < wanted {
                    match open_one(&bound.spec, env) {
                        Ok(fd) => bound.sockets.push(Rc::new(fd)),
                        Err(Open::InUse) => {
                            in_use = !env.test;
                            break;
                        }
                        Err(Open::Failed) => return Err(OpenFailed),
                    }
                }
            }
            if !in_use {
                return Ok(());
            }
            if tries_left > 0 {
                log!(env.log, Level::Notice, None, "try again to bind() after 500ms");
                std::thread::sleep(BIND_PAUSE);
            }
        }
        log!(env.log, Level::Emerg, None, "still could not bind()");
        Err(OpenFailed)
    }

    /// Takes away what opening this set has made: the configuration was refused after all.
    pub fn abandon(mut self) {
        for bound in self.0.drain(..) {
            if bound.sockets.len() > bound.fresh_from {
                remove_socket_file(&bound.spec.addr);
            }
        }
    }

    /// Sets the options that do not fail a start: buffers, keepalive, backlog and so on. Called
    /// when the whole configuration was accepted, for new sockets and for those taken over.
    pub fn configure(&self, log: &Log) {
        for bound in &self.0 {
            for fd in &bound.sockets {
                bound.spec.configure(fd, log);
            }
        }
    }

    /// The addresses, in the order in which they were asked for.
    pub fn bound(&self) -> &[Bound] {
        &self.0
    }

    /// Whether nothing is listened on.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sockets that worker `index` accepts from, one for each address, as descriptors of its
    /// own.
    pub fn of_worker(&self, index: usize) -> io::Result<Vec<OwnedFd>> {
        let own = |bound: &Bound| -> io::Result<OwnedFd> {
            let fd = if bound.spec.reuseport { bound.sockets.get(index) } else { None };
            let fd = fd.or(bound.sockets.first());
            os::fd::dup(fd.ok_or(io::ErrorKind::NotFound)?)
        };
        self.0.iter().map(own).collect()
    }

    /// The value of the variable `NGINX` that hands the sockets to a new binary: `6;7;8;`.
    pub fn for_new_binary(&self) -> String {
        self.fds().fold(String::new(), |mut text, fd| {
            let _ = write!(text, "{};", fd.as_raw_fd());
            text
        })
    }

    /// Lets the sockets live on in a program that is executed. For the child that executes it, so
    /// that no other program that this process starts gets them.
    pub fn keep_on_exec(&self) -> io::Result<()> {
        self.fds().try_for_each(|fd| os::fd::set_cloexec(fd, false))
    }

    fn fds(&self) -> impl Iterator<Item = &Rc<OwnedFd>> {
        self.0.iter().flat_map(|b| &b.sockets)
    }

    /// Whether this set holds the socket.
    fn holds(&self, fd: &Rc<OwnedFd>) -> bool {
        self.fds().any(|own| Rc::ptr_eq(own, fd))
    }

    /// Called on the old set when `next` has taken over: the kernel is told to send new connections
    /// only to the sockets that stay, and the files of unix sockets that go are removed. True when
    /// connections may still be on their way to a socket that goes: handshakes that began before.
    pub fn retire(&self, next: &Listeners, log: &Log) -> bool {
        let mut under_way = false;
        for bound in &self.0 {
            let kept = bound.sockets.iter().filter(|fd| next.holds(fd)).count();
            if kept == bound.sockets.len() {
                continue;
            }
            under_way = true;
            if kept > 0 {
                steer(bound, kept, log);
            } else if next.0.iter().all(|n| n.spec.addr != bound.spec.addr) {
                announce_removal(&bound.spec.addr, log);
            }
        }
        for bound in &next.0 {
            // More sockets than before: whatever limit an earlier reload set, all are to be used.
            if bound.spec.reuseport
                && bound.sockets.iter().any(|fd| !self.holds(fd))
                && let Some(first) = bound.sockets.first()
                && socket::unlimit_reuseport_group(first).is_err()
            {
                let _ = socket::limit_reuseport_group(first, bound.sockets.len() as u32);
            }
        }
        under_way
    }

    /// Removes the files of unix sockets, when the server ends.
    pub fn remove_files(&self) {
        for bound in &self.0 {
            remove_socket_file(&bound.spec.addr);
        }
    }
}

/// A `reuseport` group shrinks to its first `kept` sockets: connections that come from now on go
/// only there, so that the workers of the others can empty their queues and close.
fn steer(bound: &Bound, kept: usize, log: &Log) {
    let Some(first) = bound.sockets.first() else { return };
    if bound.spec.kind != Kind::Stream || bound.sockets.len() == 1 {
        return;
    }
    if let Err(e) = socket::limit_reuseport_group(first, kept as u32) {
        // An old kernel: what arrives while the surplus sockets close may be refused, as with
        // nginx.
        let (addr, e) = (&bound.spec.addr, os_error(&e));
        log!(
            log,
            Level::Info,
            None,
            "setsockopt(SO_ATTACH_REUSEPORT_CBPF) {addr} failed, ignored {e}"
        );
    }
}

fn announce_removal(addr: &SockAddr, log: &Log) {
    if let Some(path) = unix_path(addr) {
        log!(log, Level::Warn, None, "deleting socket {}", path.display());
        remove_socket_file(addr);
    }
}

fn unix_path(addr: &SockAddr) -> Option<&std::path::Path> {
    match addr {
        SockAddr::Unix(unix) => UnixAddr::path(unix),
        _ => None,
    }
}

fn remove_socket_file(addr: &SockAddr) {
    if let Some(path) = unix_path(addr)
        && let Err(e) = std::fs::remove_file(path)
        && e.kind() != io::ErrorKind::NotFound
    {
        let (path, e) = (path.display(), os_error(&e));
        log!(log::default(), Level::Emerg, None, "unlink() {path} failed {e}");
    }
}

enum Open {
    /// The address is taken: said in the log, may be tried again.
    InUse,
    /// Said in the log.
    Failed,
}

/// One new listening socket.
fn open_one(spec: &ListenSpec, env: OpenEnv<'_>) -> Result<OwnedFd, Open> {
    let addr = &spec.addr;
    let fail = |what: &str, e: io::Error| {
        log!(env.log, Level::Emerg, None, "{what} {addr} failed {}", os_error(&e));
        Open::Failed
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
    if spec.reuseport && !env.test && !addr.is_unix() {
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
        return Err(if in_use { Open::InUse } else { Open::Failed });
    }
    Ok(fd)
}

fn bind(fd: &OwnedFd, spec: &ListenSpec, env: OpenEnv<'_>) -> Result<(), Open> {
    let addr = &spec.addr;
    let mut result = socket::bind(fd, addr);
    if let (Err(e), Some(path)) = (&result, unix_path(addr))
        && e.kind() == io::ErrorKind::AddrInUse
        && !env.test
        && nobody_listens(spec)
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
    Err(if in_use { Open::InUse } else { Open::Failed })
}

/// Whether a unix socket's file has no process behind it any more.
fn nobody_listens(spec: &ListenSpec) -> bool {
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
