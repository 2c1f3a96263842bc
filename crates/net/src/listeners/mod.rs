//! Listening sockets: opened by the master, kept over reloads, handed to workers and to a new
//! binary.
//!
//! A set of [`Listeners`] belongs to one configuration. The next configuration's set takes over the
//! sockets that both have (the same descriptors, counted); the old set closes the rest when it is
//! dropped. An address with `reuseport` has a socket for each worker, in a fixed order: worker N
//! listens on socket N, in every configuration and in the next binary, so that every connection in
//! a socket's queue has a worker.
//!
//! **TCP sockets become fewer** with the workers: the kernel is told to choose among the remaining
//! sockets of the group, and workers empty the queues of the others before they close them.
//!
//! **Datagram sockets never become fewer**, because the kernel distributes datagrams over all
//! sockets of a group that some process has open, and a leaving worker with sessions keeps its own
//! open. After a reload to fewer workers the surplus sockets are *spare*, and the workers share
//! them out ([`Listeners::further_of`]). Otherwise the kernel would give them datagrams of new
//! clients that nobody reads; closing them would change its choice for all clients, whose sessions
//! would begin anew at other workers. The cost: until the next start, a worker with more sockets
//! gets more clients; if four workers have become three, one gets twice as many as each other.
//! That is accepted because reloads to fewer workers are rare. A BPF program for the group, as QUIC
//! has one, could leave the spare sockets out, but would have to hash addresses and ports itself,
//! since the kernel's hash is not available to it. [`quic`] says what differs for QUIC.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use base::log;
use base::log::{Level, Log, os_error};
use os::heartbeat::Heartbeats;
use os::socket::{self, Kind};
use os::{SockAddr, UnixAddr};

mod bind;
mod quic;
mod removal;

use self::bind::{AddressSharing, OpenError};
use self::quic::{Quic, Steering};
pub use self::removal::{Removal, Removals, State};
use crate::inherit::{Inherited, InheritedFd};
use crate::spec::ListenSpec;
use crate::watchdog::{Other, STUCK_MS, Watchdog};

/// Workers with a heartbeat; no machine has use for more.
const WORKERS_MAX: u32 = 1024;

/// Attempts to bind an address in use before the start fails.
const BIND_TRIES: u32 = 5;
const BIND_PAUSE: Duration = Duration::from_millis(500);

/// An address that is listened on.
#[derive(Debug, Clone)]
pub struct Bound {
    /// The `listen` directive's options.
    pub spec: ListenSpec,
    /// The socket, or the sockets of the workers by index when `reuseport` is on.
    pub sockets: Vec<Rc<OwnedFd>>,
    /// Spare datagram sockets: those of workers that an earlier configuration had.
    spare: Vec<Rc<OwnedFd>>,
    /// The BPF program that directs QUIC's datagrams to their sockets, if there is one.
    steering: RefCell<Option<Steering>>,
    /// The number of sockets that the steering program knows; 0 without one.
    steered: Cell<usize>,
    /// Index in `sockets` of the first one that this set has opened itself: if the configuration is
    /// refused later, only these are undone.
    fresh_from: usize,
    /// The service manager has opened the socket; it also owns the file of a unix socket.
    is_managed: bool,
    /// For an address of datagrams: whether a reload has removed it.
    removal: Option<Removal>,
}

impl Bound {
    /// The socket that worker `index` accepts from.
    fn of_worker(&self, index: usize) -> Option<&Rc<OwnedFd>> {
        let own = if self.spec.reuseport { self.sockets.get(index) } else { None };
        own.or(self.sockets.first())
    }

    /// Whether its sockets are kept when a reload removes its address. A datagram socket of the
    /// wildcard address is not kept, because it leaves its group when it is made deaf.
    fn parts(&self) -> bool {
        self.spec.quic || self.spec.kind == Kind::Datagram && !self.spec.addr.is_wildcard()
    }

    /// The entry as one of a removed address, with sockets for `workers` workers and the others as
    /// spare ones.
    fn parted(&self, workers: usize) -> Bound {
        let mut parted = self.clone();
        parted.sockets.append(&mut parted.spare);
        parted.spare = parted.sockets.split_off(workers.clamp(1, parted.sockets.len().max(1)));
        parted
    }

    /// Whether new connections avoid stuck workers (`reuseport=steered`).
    fn is_steered(&self) -> bool {
        self.spec.steered && self.spec.kind == Kind::Stream && !self.spec.addr.is_unix()
    }
}

/// The listening sockets of a configuration, in the order in which its engines asked for them.
#[derive(Debug, Default, Clone)]
pub struct Listeners {
    list: Vec<Bound>,
    /// Removed addresses of datagrams, while workers of earlier configurations may have sessions:
    /// see [`removal`].
    parting: Vec<Bound>,
    /// The workers' heartbeats, where an address is steered; kept over reloads.
    heartbeats: Option<Rc<Heartbeats>>,
    quic: Quic,
}

/// The environment of opening, beside the addresses.
#[derive(Clone, Copy)]
pub struct OpenEnv<'a> {
    /// The number of workers, and of the sockets of an address with `reuseport`.
    pub workers: usize,
    /// The configuration is only tested: an address that is taken is no error, and nothing is left
    /// behind.
    pub test: bool,
    /// The log for problems.
    pub log: &'a Log,
}

impl OpenEnv<'_> {
    /// The number of sockets of an address.
    fn wanted(&self, spec: &ListenSpec) -> usize {
        if spec.reuseport && !self.test { self.workers.max(1) } else { 1 }
    }
}

/// Opening failed; the log has the reason.
#[derive(Debug)]
pub struct OpenFailed;

impl Listeners {
    /// Opens a socket for each address that `previous` (the running configuration) and `inherited`
    /// (the old binary, systemd) do not have. A failure changes nothing.
    pub fn open(
        specs: &[ListenSpec],
        previous: &Listeners,
        inherited: &mut Inherited,
        env: OpenEnv<'_>,
    ) -> Result<Listeners, OpenFailed> {
        let mut taken = vec![false; previous.list.len() + previous.parting.len()];
        quic::check(specs, env)?;
        let (heartbeats, handover) = (previous.heartbeats.clone(), inherited.quic.as_ref());
        let quic = previous.quic.for_next(specs, handover);
        let mut set = Listeners { heartbeats, quic, ..Listeners::default() };
        for spec in specs {
            let mut bound = previous.take_over(spec, &mut taken, env.log);
            let (wanted, keeps_spare) = (env.wanted(spec), set.keeps_spare(spec));
            let same = |s: &InheritedFd| s.addr == spec.addr && s.kind == spec.kind;
            while (bound.sockets.len() < wanted || keeps_spare)
                && let Some(socket) = inherited.take(same)
            {
                bound.is_managed |= socket.is_managed;
                bound.sockets.push(Rc::new(socket.fd));
            }
            let spare = bound.sockets.split_off(wanted.min(bound.sockets.len()));
            bound.spare = if keeps_spare { spare } else { Vec::new() };
            bound.fresh_from = bound.sockets.len();
            set.list.push(bound);
        }
        let leaving = previous.with_parting().zip(&taken).filter(|(_, taken)| !**taken);
        let leaving: Vec<_> = leaving.map(|(bound, _)| bound).collect();
        let parting = leaving.iter().filter(|bound| bound.parts());
        set.parting = parting.map(|bound| bound.parted(env.workers)).collect();
        let mut way = AddressSharing { leaving, shared: Vec::new() };
        match set.open_missing(&mut way, env) {
            Ok(()) => Ok(set),
            Err(failed) => {
                way.undo();
                set.abandon();
                Err(failed)
            }
        }
    }

    /// Whether sockets that no worker has as its own are kept.
    fn keeps_spare(&self, spec: &ListenSpec) -> bool {
        match spec.quic {
            true => self.quic.keeps_spare(),
            false => spec.kind == Kind::Datagram,
        }
    }

    /// The sockets of the running configuration that fit an address, if there are any.
    fn take_over(&self, spec: &ListenSpec, taken: &mut [bool], log: &Log) -> Bound {
        let mut own = Bound {
            spec: spec.clone(),
            sockets: Vec::new(),
            spare: Vec::new(),
            steering: RefCell::default(),
            steered: Cell::new(0),
            fresh_from: 0,
            is_managed: false,
            removal: None,
        };
        for (bound, taken) in self.with_parting().zip(taken) {
            let same = bound.spec.addr == spec.addr && bound.spec.kind == spec.kind;
            if same && !*taken && bound.spec.multipath == spec.multipath {
                *taken = true;
                own.sockets.extend(bound.sockets.iter().chain(&bound.spare).cloned());
                own.steered = bound.steered.clone();
                own.steering = bound.steering.clone();
                own.removal = bound.removal.clone();
                own.is_managed = bound.is_managed;
                break;
            }
        }
        if own.removal.is_none() && spec.kind == Kind::Datagram {
            own.removal = removal(log);
        }
        own
    }

    fn with_parting(&self) -> impl Iterator<Item = &Bound> {
        self.list.iter().chain(&self.parting)
    }

    fn open_missing(
        &mut self,
        way: &mut AddressSharing<'_>,
        env: OpenEnv<'_>,
    ) -> Result<(), OpenFailed> {
        for tries_left in (0..BIND_TRIES).rev() {
            let mut in_use = false;
            for bound in &mut self.list {
                while bound.sockets.len() < env.wanted(&bound.spec) {
                    match way.open(bound, env) {
                        Ok(fd) => bound.sockets.push(Rc::new(fd)),
                        Err(OpenError::InUse) => {
                            in_use = !env.test;
                            break;
                        }
                        Err(OpenError::Failed) => return Err(OpenFailed),
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

    /// Removes everything that opening this set has made: the configuration was refused after all.
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
        if steered && self.heartbeats.is_none() {
            match Heartbeats::new(WORKERS_MAX) {
                Ok(heartbeats) => self.heartbeats = Some(Rc::new(heartbeats)),
                Err(e) => {
                    let e = os_error(&e);
                    log!(log, Level::Alert, None, "shared memory for signs of life failed {e}");
                }
            }
        }
        if !steered {
            self.heartbeats = None;
        }
        self.steer(log);
        self.quic.begin(&self.list, log);
    }

    /// Takes the place of a set that was configured, and failed after all.
    pub fn come_back(&self, log: &Log) {
        self.list.iter().for_each(|bound| bound.steered.set(0));
        self.steer(log);
        quic::come_back(&self.list);
    }

    /// Gives the groups of sockets that are steered the programs that fit them.
    fn steer(&self, log: &Log) {
        let Some(heartbeats) = &self.heartbeats else { return };
        for bound in self.list.iter().filter(|bound| bound.is_steered()) {
            if bound.sockets.len() < 2 {
                bound.steered.set(0);
                continue;
            }
            if bound.steered.get() == bound.sockets.len() {
                continue;
            }
            let sockets: Vec<_> = bound.sockets.iter().map(|fd| fd.as_fd()).collect();
            match heartbeats.steer(&sockets, STUCK_MS as u32) {
                Ok(()) => bound.steered.set(sockets.len()),
                Err(e) => {
                    let (addr, e) = (&bound.spec.addr, os_error(&e));
                    let m = "new connections cannot be kept from a stuck worker's socket";
                    log!(log, Level::Info, None, "{addr}: {m} {e}");
                }
            }
        }
    }

    /// The watchdog of worker `index`: its heartbeat and the sockets of the others; nothing when no
    /// address is steered.
    pub fn watchdog(&self, index: usize) -> Option<Watchdog> {
        let heartbeats = self.heartbeats.clone()?;
        let mut others = Vec::new();
        for (listener, bound) in self.list.iter().enumerate().filter(|(_, b)| b.is_steered()) {
            for (worker, fd) in bound.sockets.iter().enumerate() {
                if worker != index {
                    others.push(Other { listener, worker, fd: fd.clone() });
                }
            }
        }
        Some(Watchdog { heartbeats, index, others })
    }

    /// Whether a worker has a socket of its own whose queue no other worker empties.
    pub fn have_own_queues(&self) -> bool {
        self.list.iter().any(|bound| bound.sockets.len() > 1 && !bound.is_steered())
    }

    /// Whether there are datagram sockets, including those of removed addresses.
    pub fn have_datagrams(&self) -> bool {
        self.with_parting().any(|bound| bound.spec.kind == Kind::Datagram)
    }

    /// The states of the addresses of datagrams.
    pub fn removals(&self) -> Removals {
        let of = |bound: &Bound| Some((bound.spec.addr.clone(), bound.removal.clone()?));
        Removals::of(self.list.iter().filter_map(of))
    }

    /// Returns duplicates of the sockets of removed QUIC addresses that worker `index` reads for
    /// workers of earlier configurations, with the addresses and their states.
    pub fn parting_of(&self, index: usize) -> io::Result<Vec<(SockAddr, Removal, OwnedFd)>> {
        let mut parting = Vec::new();
        for bound in self.parting.iter().filter(|bound| bound.spec.quic) {
            let Some(removal) = &bound.removal else { continue };
            if let Some(fd) = bound.sockets.get(index) {
                parting.push((bound.spec.addr.clone(), removal.clone(), os::fd::dup(fd)?));
            }
        }
        Ok(parting)
    }

    /// Called when the server ends and no other binary has its sockets: the workers have no
    /// successors.
    pub fn end(&self) {
        for bound in self.with_parting() {
            bound.removal.as_ref().inspect(|removal| removal.set(State::Ended));
        }
    }

    /// Closes the sockets of removed addresses, after the last worker of an earlier configuration
    /// has ended.
    pub fn end_parting(&mut self) {
        for bound in self.parting.drain(..) {
            bound.removal.inspect(|removal| removal.set(State::Ended));
        }
    }

    /// The sockets that worker `index` accepts connections from, with the numbers of their
    /// addresses.
    pub fn accepted_by(&self, index: usize) -> Vec<(usize, Rc<OwnedFd>)> {
        let streams = |(_, bound): &(usize, &Bound)| bound.spec.kind == Kind::Stream;
        let all = self.list.iter().enumerate().filter(streams);
        all.filter_map(|(i, bound)| Some((i, bound.of_worker(index)?.clone()))).collect()
    }

    /// The addresses, in the order in which the engines asked for them.
    pub fn bound(&self) -> &[Bound] {
        &self.list
    }

    /// Whether nothing is listened on.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns duplicates of the sockets that worker `index` accepts from, one for each address.
    pub fn of_worker(&self, index: usize) -> io::Result<Vec<OwnedFd>> {
        let own = |bound: &Bound| -> io::Result<OwnedFd> {
            os::fd::dup(bound.of_worker(index).ok_or(io::ErrorKind::NotFound)?)
        };
        self.list.iter().map(own).collect()
    }

    /// Returns duplicates of the spare sockets that worker `index` also receives from, with the
    /// numbers of their addresses. Spare sockets of QUIC are left out, because its BPF program
    /// directs no datagrams to them.
    pub fn further_of(&self, index: usize) -> io::Result<Vec<(usize, OwnedFd)>> {
        let mut further = Vec::new();
        for (address, bound) in self.list.iter().enumerate().filter(|(_, b)| !b.spec.quic) {
            let workers = bound.sockets.len().max(1);
            for fd in bound.spare.iter().skip(index).step_by(workers) {
                further.push((address, os::fd::dup(fd)?));
            }
        }
        Ok(further)
    }

    /// The value of the variable `NGINX` that hands the sockets to a new binary: `6;7;8;`.
    pub fn for_new_binary(&self) -> String {
        self.fds().fold(String::new(), |mut text, fd| {
            let _ = write!(text, "{};", fd.as_raw_fd());
            text
        })
    }

    /// Those of them that the service manager has opened, in the same form.
    pub fn managed_for_new_binary(&self) -> String {
        let managed = self.list.iter().filter(|bound| bound.is_managed);
        managed.flat_map(|bound| &bound.sockets).fold(String::new(), |mut text, fd| {
            let _ = write!(text, "{};", fd.as_raw_fd());
            text
        })
    }

    /// Keeps the sockets open in an executed program. For the child that executes it, so that no
    /// other program of this process gets them.
    pub fn keep_on_exec(&self) -> io::Result<()> {
        self.fds().try_for_each(|fd| os::fd::set_cloexec(fd, false))
    }

    fn fds(&self) -> impl Iterator<Item = &Rc<OwnedFd>> {
        self.list.iter().flat_map(|b| b.sockets.iter().chain(&b.spare))
    }

    /// Whether this set holds the socket.
    fn holds(&self, fd: &Rc<OwnedFd>) -> bool {
        self.fds().any(|own| Rc::ptr_eq(own, fd))
    }

    /// Called on the old set when `next` has taken over: makes the kernel send new connections only
    /// to the sockets that stay, and removes the files of closing unix sockets. True when
    /// connections may still be on their way to a closing socket: handshakes that began before.
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
                // A steering program knows the remaining sockets already.
                if !next.steers(bound) {
                    limit(bound, kept, log);
                }
            } else if next.list.iter().all(|n| n.spec.addr != bound.spec.addr) {
                announce_removal(bound, log);
            }
        }
        for bound in &self.list {
            bound.removal.as_ref().inspect(|removal| removal.set(State::Removed));
        }
        for bound in &next.list {
            bound.removal.as_ref().inspect(|removal| removal.set(State::InForce));
        }
        next.quic.take_over(next.with_parting(), log);
        for bound in next.list.iter().filter(|bound| !bound.spec.quic) {
            if bound.steered.get() > 0 && bound.is_steered() {
                continue;
            }
            // More sockets than before: a limit of an earlier reload must go, so that all are used.
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

    /// Removes the files of unix sockets, when the server ends. Those of the service manager stay:
    /// it listens on, and starts the server again for the next client.
    pub fn remove_files(&self) {
        for bound in self.list.iter().filter(|bound| !bound.is_managed) {
            remove_socket_file(&bound.spec.addr);
        }
    }
}

/// The state of an address of datagrams.
fn removal(log: &Log) -> Option<Removal> {
    let made = Removal::new();
    let tell = |e: &io::Error| {
        let m = "shared memory for the state of an address failed";
        log!(log, Level::Alert, None, "{m} {}", os_error(e));
    };
    made.inspect_err(tell).ok()
}

/// A `reuseport` group shrinks to its first `kept` sockets: new connections go only there, so that
/// the workers of the others can empty their queues and close.
fn limit(bound: &Bound, kept: usize, log: &Log) {
    let Some(first) = bound.sockets.first() else { return };
    if bound.spec.kind != Kind::Stream || bound.sockets.len() == 1 {
        return;
    }
    if let Err(e) = socket::limit_reuseport_group(first, kept as u32) {
        // An old kernel: connections that arrive while the surplus sockets close may be refused, as
        // with nginx.
        let (addr, e) = (&bound.spec.addr, os_error(&e));
        log!(
            log,
            Level::Info,
            None,
            "setsockopt(SO_ATTACH_REUSEPORT_CBPF) {addr} failed, ignored {e}"
        );
    }
}

/// Makes the kernel deliver connections of a closing socket as soon as they are established. A
/// connection that is deferred until its client's first bytes is in no queue that could be emptied.
fn end_deferral(fd: &Rc<OwnedFd>) {
    if socket::defer_accept(fd).is_ok_and(|seconds| seconds > 0) {
        let _ = socket::set_defer_accept(fd, 0);
    }
}

fn announce_removal(bound: &Bound, log: &Log) {
    if let Some(path) = unix_path(&bound.spec.addr).filter(|_| !bound.is_managed) {
        log!(log, Level::Warn, None, "deleting socket {}", path.display());
        remove_socket_file(&bound.spec.addr);
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

#[cfg(test)]
mod tests;
