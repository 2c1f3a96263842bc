//! Listening sockets: opened by the master, kept over reloads, handed to workers and to a new
//! binary.
//!
//! A set of [`Listeners`] belongs to one configuration. The next configuration's set takes over the
//! sockets that it has in common with the old one (the same descriptors, counted); what is left in
//! the old set is closed when the old set is dropped. An address with `reuseport` has a socket for
//! each worker, in a fixed order: worker N listens on socket N, in every configuration and in the
//! binary that comes after this one, so that no connection that waits in a socket's queue is left
//! without a worker.

use std::cell::Cell;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use base::log;
use base::log::{Level, Log, debug, os_error};
use os::pulse::Pulse;
use os::socket::{self, Kind};
use os::{SockAddr, UnixAddr};

use crate::inherit::{Inherited, InheritedFd};
use crate::spec::ListenSpec;
use crate::vigil::{Other, STUCK_MS, Vigil};

/// Workers whose signs of life are looked at; more than one machine has use for.
const WORKERS_MAX: u32 = 1024;

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
    /// How many of the sockets the program that steers connections knows; 0 without one.
    steered: Cell<usize>,
    /// Sockets made just now, by number in `sockets`: they alone are undone when the rest fails.
    fresh_from: usize,
}

impl Bound {
    /// Whether connections are to be kept from workers that are stuck.
    fn is_steered(&self) -> bool {
        self.spec.steered && self.spec.kind == Kind::Stream && !self.spec.addr.is_unix()
    }
}

/// The listening sockets of a configuration, in the order in which its engines asked for them.
#[derive(Debug, Default, Clone)]
pub struct Listeners {
    list: Vec<Bound>,
    /// The workers' signs of life, where an address is steered; kept over reloads.
    pulse: Option<Rc<Pulse>>,
}

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

impl OpenEnv<'_> {
    /// How many sockets an address has.
    fn wanted(&self, spec: &ListenSpec) -> usize {
        if spec.reuseport && !self.test { self.workers.max(1) } else { 1 }
    }
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
        let mut taken = vec![false; previous.list.len()];
        let mut set = Listeners { list: Vec::new(), pulse: previous.pulse.clone() };
        for spec in specs {
            let (mut sockets, steered) = previous.take_over(spec, &mut taken);
            let wanted = env.wanted(spec);
            sockets.truncate(wanted);
            let same = |s: &InheritedFd| s.addr == spec.addr && s.kind == spec.kind;
            while sockets.len() < wanted
                && let Some(fd) = inherited.take(same)
            {
                sockets.push(Rc::new(fd));
            }
            let fresh_from = sockets.len();
            let steered = Cell::new(steered);
            set.list.push(Bound { spec: spec.clone(), sockets, steered, fresh_from });
        }
        let leaving = previous.list.iter().zip(&taken).filter(|(_, taken)| !**taken);
        let leaving = leaving.map(|(bound, _)| bound).collect();
        let mut way = Way { leaving, shared: Vec::new() };
        match set.open_missing(&mut way, env) {
            Ok(()) => Ok(set),
            Err(failed) => {
                way.undo();
                set.abandon();
                Err(failed)
            }
        }
    }

    /// The sockets of the running configuration for an address, if it has any that fit.
    fn take_over(&self, spec: &ListenSpec, taken: &mut [bool]) -> (Vec<Rc<OwnedFd>>, usize) {
        for (bound, taken) in self.list.iter().zip(taken) {
            let same = bound.spec.addr == spec.addr && bound.spec.kind == spec.kind;
            if same && !*taken && bound.spec.multipath == spec.multipath {
                *taken = true;
                return (bound.sockets.clone(), bound.steered.get());
            }
        }
        (Vec::new(), 0)
    }

    fn open_missing(&mut self, way: &mut Way<'_>, env: OpenEnv<'_>) -> Result<(), OpenFailed> {
        for tries_left in (0..BIND_TRIES).rev() {
            let mut in_use = false;
            for bound in &mut self.list {
                while bound.sockets.len() < env.wanted(&bound.spec) {
                    match way.open(bound, env) {
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
        for bound in self.list.drain(..) {
            if bound.sockets.len() > bound.fresh_from {
                remove_socket_file(&bound.spec.addr);
            }
        }
    }

    /// Sets the options that do not fail a start: buffers, keepalive, backlog and so on. Called
    /// when the whole configuration was accepted, for new sockets and for those taken over.
    pub fn configure(&mut self, log: &Log) {
        for bound in &self.list {
            for fd in &bound.sockets {
                bound.spec.configure(fd, log);
            }
        }
        let steered = self.list.iter().any(Bound::is_steered);
        if steered && self.pulse.is_none() {
            match Pulse::new(WORKERS_MAX) {
                Ok(pulse) => self.pulse = Some(Rc::new(pulse)),
                Err(e) => {
                    let e = os_error(&e);
                    log!(log, Level::Alert, None, "shared memory for signs of life failed {e}");
                }
            }
        }
        if !steered {
            self.pulse = None;
        }
        self.steer(log);
    }

    /// Takes the place of a set that was configured, and failed after all.
    pub fn come_back(&self, log: &Log) {
        self.list.iter().for_each(|bound| bound.steered.set(0));
        self.steer(log);
    }

    /// Gives the groups of sockets that are steered the programs that fit them.
    fn steer(&self, log: &Log) {
        let Some(pulse) = &self.pulse else { return };
        for bound in self.list.iter().filter(|bound| bound.is_steered()) {
            if bound.sockets.len() < 2 {
                bound.steered.set(0);
                continue;
            }
            if bound.steered.get() == bound.sockets.len() {
                continue;
            }
            let sockets: Vec<_> = bound.sockets.iter().map(|fd| fd.as_fd()).collect();
            match pulse.steer(&sockets, STUCK_MS as u32) {
                Ok(()) => bound.steered.set(sockets.len()),
                Err(e) => {
                    let (addr, e) = (&bound.spec.addr, os_error(&e));
                    let m = "new connections cannot be kept from a stuck worker's socket";
                    log!(log, Level::Info, None, "{addr}: {m} {e}");
                }
            }
        }
    }

    /// What worker `index` needs to tell that it is alive, and to help the others; nothing when no
    /// address is steered.
    pub fn vigil(&self, index: usize) -> Option<Vigil> {
        let pulse = self.pulse.clone()?;
        let mut others = Vec::new();
        for (listener, bound) in self.list.iter().enumerate().filter(|(_, b)| b.is_steered()) {
            for (worker, fd) in bound.sockets.iter().enumerate() {
                if worker != index {
                    others.push(Other { listener, worker, fd: fd.clone() });
                }
            }
        }
        Some(Vigil { pulse, index, others })
    }

    /// The addresses, in the order in which they were asked for.
    pub fn bound(&self) -> &[Bound] {
        &self.list
    }

    /// Whether nothing is listened on.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The sockets that worker `index` accepts from, one for each address, as descriptors of its
    /// own.
    pub fn of_worker(&self, index: usize) -> io::Result<Vec<OwnedFd>> {
        let own = |bound: &Bound| -> io::Result<OwnedFd> {
            let fd = if bound.spec.reuseport { bound.sockets.get(index) } else { None };
            let fd = fd.or(bound.sockets.first());
            os::fd::dup(fd.ok_or(io::ErrorKind::NotFound)?)
        };
        self.list.iter().map(own).collect()
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
        self.list.iter().flat_map(|b| &b.sockets)
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
        for bound in &self.list {
            let kept = bound.sockets.iter().filter(|fd| next.holds(fd)).count();
            if kept == bound.sockets.len() {
                continue;
            }
            under_way = true;
            bound.sockets.iter().filter(|fd| !next.holds(fd)).for_each(end_deferral);
            if kept > 0 {
                // A program that steers knows already who stays.
                if !next.steers(bound) {
                    limit(bound, kept, log);
                }
            } else if next.list.iter().all(|n| n.spec.addr != bound.spec.addr) {
                announce_removal(&bound.spec.addr, log);
            }
        }
        for bound in &next.list {
            if bound.steered.get() > 0 && bound.is_steered() {
                continue;
            }
            // More sockets than before: whatever limit an earlier reload set, all are to be used.
            let grows = bound.spec.reuseport && bound.sockets.iter().any(|fd| !self.holds(fd));
            if (grows || bound.steered.take() > 0)
                && let Some(first) = bound.sockets.first()
                && socket::unlimit_reuseport_group(first).is_err()
            {
                let _ = socket::limit_reuseport_group(first, bound.sockets.len() as u32);
            }
        }
        under_way
    }

    /// Whether the program that steers these connections is this set's own.
    fn steers(&self, old: &Bound) -> bool {
        let same = |b: &&Bound| b.spec.addr == old.spec.addr && b.spec.kind == old.spec.kind;
        self.list.iter().find(same).is_some_and(|b| b.is_steered() && b.steered.get() > 0)
    }

    /// Removes the files of unix sockets, when the server ends.
    pub fn remove_files(&self) {
        for bound in &self.list {
            remove_socket_file(&bound.spec.addr);
        }
    }
}

/// A `reuseport` group shrinks to its first `kept` sockets: connections that come from now on go
/// only there, so that the workers of the others can empty their queues and close.
fn limit(bound: &Bound, kept: usize, log: &Log) {
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

/// The kernel hands over connections of a socket that goes as soon as they are made: one that still
/// waits for its client's first bytes is in no queue that could be emptied.
fn end_deferral(fd: &Rc<OwnedFd>) {
    if socket::defer_accept(fd).is_ok_and(|seconds| seconds > 0) {
        let _ = socket::set_defer_accept(fd, 0);
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

/// Makes new sockets where old ones stand in the way: those of the running configuration that are
/// to go, and still listen until the new ones do (`*:80` after `127.0.0.1:80`), and the one that is
/// to share its address from now on. The kernel allows that when each of them was told to share.
struct Way<'a> {
    leaving: Vec<&'a Bound>,
    /// Old sockets that were told to share.
    shared: Vec<Rc<OwnedFd>>,
}

impl Way<'_> {
    fn open(&mut self, bound: &Bound, env: OpenEnv<'_>) -> Result<OwnedFd, Open> {
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
            // From now on nobody else may share the address.
            let _ = socket::set_reuseport(&fd, false);
        }
        Ok(fd)
    }

    /// The old sockets share no more.
    fn undo(&self) {
        for fd in &self.shared {
            let _ = socket::set_reuseport(fd, false);
        }
    }
}

enum Open {
    /// The address is taken: said in the log, may be tried again.
    InUse,
    /// Said in the log.
    Failed,
}

/// One new listening socket, which may share its address with others when they do.
fn open_one(spec: &ListenSpec, share: bool, env: OpenEnv<'_>) -> Result<OwnedFd, Open> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Deferral;
    use base::log::capture;
    use std::os::unix::ffi::OsStrExt;

    fn spec(addr: &[u8]) -> ListenSpec {
        ListenSpec::new(SockAddr::parse(addr).unwrap())
    }

    /// An address with a port that is free, as far as can be known.
    fn free() -> ListenSpec {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        ListenSpec::new(socket::local_addr(&probe).unwrap())
    }

    fn socket_file(name: &str) -> (std::path::PathBuf, ListenSpec) {
        let name = format!("weir-net-{name}-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let spec = spec(&[b"unix:", path.as_os_str().as_bytes()].concat());
        (path, spec)
    }

    fn open(
        specs: &[ListenSpec],
        previous: &Listeners,
        workers: usize,
        log: &Log,
    ) -> Result<Listeners, OpenFailed> {
        let env = OpenEnv { workers, test: false, log };
        Listeners::open(specs, previous, &mut Inherited::default(), env)
    }

    #[test]
    fn sockets_are_taken_over_and_counted() {
        let (log, lines) = capture(Level::Info);
        let none = Listeners::default();
        let plain = free();
        let one = open(std::slice::from_ref(&plain), &none, 3, &log).unwrap();
        let deferred = Some(Deferral::Always);
        let own = ListenSpec { reuseport: true, deferred, ..plain.clone() };
        let mut three = open(std::slice::from_ref(&own), &one, 3, &log).unwrap();
        three.configure(&log);
        assert_eq!(three.list[0].sockets.len(), 3);
        assert!(Rc::ptr_eq(&one.list[0].sockets[0], &three.list[0].sockets[0]));
        let numbers: Vec<_> = three.fds().map(|fd| fd.as_raw_fd().to_string()).collect();
        assert_eq!(three.for_new_binary(), numbers.join(";") + ";");

        let two = open(&[own], &three, 2, &log).unwrap();
        assert_eq!(two.fds().count(), 2);
        assert!(three.retire(&two, &log));
        assert!(!two.retire(&two, &log));
        let of_third_worker = three.of_worker(2).unwrap();
        assert_eq!(of_third_worker.len(), 1);
        // What was deferred comes to the socket that goes, which is emptied; the others go on.
        let defers = |fd: &OwnedFd| socket::defer_accept(fd).unwrap() > 0;
        assert!(!defers(&of_third_worker[0]) && two.fds().all(|fd| defers(fd)));
        two.fds().for_each(end_deferral);
        drop((one, three));
        // A connection that comes now waits in one of the two sockets that stay.
        let clients: Vec<_> =
            (0..8).map(|_| std::net::TcpStream::connect(plain.addr.to_string()).unwrap()).collect();
        let waiting = |fd: &OwnedFd| socket::accept_queue(fd).unwrap().0;
        assert_eq!(waiting(&of_third_worker[0]), 0);
        assert_eq!(two.fds().map(|fd| waiting(fd)).sum::<u32>(), 8);
        drop(clients);
        assert_eq!(lines.take(), "");
    }

    #[test]
    fn a_wildcard_takes_the_place_of_an_address() {
        let (log, lines) = capture(Level::Info);
        let one = free();
        let port = one.addr.port();
        let wildcard = spec(format!("0.0.0.0:{port}").as_bytes());
        let narrow = open(std::slice::from_ref(&one), &Listeners::default(), 1, &log).unwrap();
        let wide = open(&[wildcard], &narrow, 1, &log).unwrap();
        assert_eq!(lines.take(), "");
        assert!(!socket::reuseport(wide.fds().next().unwrap()).unwrap());
        // And back, with something else that fails: what runs shares with nobody afterwards.
        drop(narrow);
        let bad = [one.clone(), spec(b"192.0.2.77:80")];
        assert!(open(&bad, &wide, 1, &log).is_err());
        assert!(!socket::reuseport(wide.fds().next().unwrap()).unwrap());
        let narrow = open(&[one], &wide, 1, &log).unwrap();
        drop(wide);
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        drop(narrow);
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let (log, lines) = capture(Level::Info);
        let none = Listeners::default();
        let (path, unix) = socket_file("undone");
        let running = open(&[unix.clone(), spec(b"192.0.2.77:80")], &none, 1, &log);
        assert!(running.is_err() && !path.exists());
        let text = lines.take();
        assert!(text.contains("bind() to 192.0.2.77:80 failed (99: "), "{text}");

        let running = open(std::slice::from_ref(&unix), &none, 1, &log).unwrap();
        assert!(open(&[unix, spec(b"192.0.2.77:80")], &running, 1, &log).is_err());
        // What runs is not touched.
        assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
        lines.take();
        running.retire(&none, &log);
        assert!(!path.exists() && lines.take().contains("deleting socket "));
    }

    #[test]
    fn a_taken_address_is_tried_again_and_given_up() {
        let (log, lines) = capture(Level::Info);
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let spec = ListenSpec::new(socket::local_addr(&taken).unwrap());
        let specs = std::slice::from_ref(&spec);
        assert!(open(specs, &Listeners::default(), 1, &log).is_err());
        let text = lines.take();
        let addr = &spec.addr;
        let failed = format!("bind() to {addr} failed (98: Address already in use)");
        assert_eq!(text.matches(&failed).count(), 5, "{text}");
        assert_eq!(text.matches("try again to bind() after 500ms").count(), 4);
        assert!(text.ends_with("still could not bind()\n"));

        let env = OpenEnv { workers: 1, test: true, log: &log };
        let mut inherited = Inherited::default();
        assert!(Listeners::open(specs, &Listeners::default(), &mut inherited, env).is_ok());
        assert_eq!(lines.take(), "");
    }

    #[test]
    fn inherited_sockets_come_before_new_ones() {
        use std::os::fd::IntoRawFd;
        let (log, _lines) = capture(Level::Info);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let spec = ListenSpec::new(socket::local_addr(&listener).unwrap());
        let number = listener.into_raw_fd();
        let mut inherited = Inherited::from_binary(&format!("{number};"), &log);
        let env = OpenEnv { workers: 1, test: false, log: &log };
        let mut set = Listeners::open(&[spec], &Listeners::default(), &mut inherited, env).unwrap();
        assert_eq!(set.for_new_binary(), format!("{number};"));
        set.configure(&log);
        assert_eq!(socket::accept_queue(set.fds().next().unwrap()).unwrap().1, 511);
    }
}
