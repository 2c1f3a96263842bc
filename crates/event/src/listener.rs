//! Listeners: accepting, its share of a turn, and the behaviour when descriptors or connections run
//! out.
//!
//! A listener is reported to the loop only while a task waits in [`Listener::accept`], the listener
//! is not paused, descriptors have not run out, and, where workers share an accept lock, this one
//! has it.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use base::log::Level;
use os::SockAddr;
use rustix::io::Errno;

use crate::deferral::Deferral;
use crate::driver::Driver;
use crate::op::wait::Wait;
use crate::runtime::inner::{Inner, try_with, with};
use crate::sock::{Registered, Sock};
use crate::state::Core;
use crate::state::listening::Listening;
use crate::state::slot::{Park, Terms};
use crate::state::socks::{SockKey, SockKind, bits};

/// If several workers share a socket, each has it registered with its epoll, and the kernel wakes
/// the first sleeping worker in its list of registrations. After this many accepted connections, a
/// worker moves its registration to the end of the list; otherwise one worker would serve all of a
/// light load.
const ROTATE_EVERY: u32 = 16;

/// Without `multi_accept`, a report leads to one accepted connection for every 8 polls of tasks in
/// the previous turn, and to at least one. With only one per turn, N waiting clients would need N
/// turns. If a turn serves hundreds of clients, that takes a second or more, during which those
/// clients are served hundreds of times and the others wait.
const POLLS_PER_ACCEPT: usize = 8;

/// With `multi_accept`, all waiting connections are accepted, but at most this many before other
/// tasks run.
const MULTI_MAX: u32 = 512;

/// Decides which of several workers accepts.
pub trait AcceptLock {
    /// Takes the lock if it is free.
    fn try_lock(&self) -> bool;
    /// Gives the lock back.
    fn unlock(&self);
}

/// A listener's manner of accepting.
#[derive(Clone, Copy, Debug)]
pub struct ListenOpts {
    /// Other processes accept from the same socket: the kernel wakes one of them for a connection.
    pub exclusive: bool,
    /// While more than a thousand connections a second are accepted, the kernel keeps each until
    /// its client has sent something: for a TCP socket whose clients speak first.
    pub defer_under_load: bool,
}

impl Default for ListenOpts {
    fn default() -> ListenOpts {
        ListenOpts { exclusive: true, defer_under_load: false }
    }
}

/// A connection that was accepted.
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub sock: Sock,
    /// The peer's address.
    pub addr: SockAddr,
}

/// A listening socket of this thread's loop; closes when it is dropped. [`Listener::drain`] it
/// before that, or connections in its queue are reset.
pub struct Listener(Rc<Shared>);

pub(crate) struct Shared {
    sock: Registered,
    opts: ListenOpts,
    paused: Cell<bool>,
    /// Connections accepted, for the rotation.
    accepted: Cell<u32>,
    /// Connections accepted in a row.
    in_a_row: Cell<u32>,
    deferral: Deferral,
}

impl Listening for Shared {
    fn key(&self) -> SockKey {
        self.sock.key
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.sock.fd()
    }

    fn is_paused(&self) -> bool {
        self.paused.get()
    }

    fn is_exclusive(&self) -> bool {
        self.opts.exclusive
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The socket is also other processes', and stays open with theirs: a registration would
        // outlive our descriptor, and take the reports of connections that others are to accept.
        let _ = try_with(|inner| {
            if let Some(entry) = inner.core.socks.get(self.sock.key)
                && entry.bits & bits::ARMED_READ != 0
            {
                entry.bits &= !bits::ARMED_READ;
                let (key, exclusive) = (self.sock.key, self.opts.exclusive);
                let Inner { core, driver } = inner;
                let _ = driver.listen(core, key, self.sock.fd(), false, exclusive);
            }
        });
    }
}

/// The result of one attempt to accept.
enum Attempt {
    /// The slot waits.
    Wait,
    /// Other tasks first.
    Yield,
    /// No connection, no end: try again.
    Again,
    Accepted(OwnedFd, SockAddr),
    Failed(Level, io::Error),
    Broken(io::Error),
}

impl Listener {
    /// Takes a nonblocking listening socket into the loop.
    ///
    /// # Panics
    /// When this thread has no loop.
    pub fn new(fd: OwnedFd, opts: ListenOpts) -> Listener {
        let shared = Rc::new(Shared {
            sock: Registered::new(fd, SockKind::Listener, 0),
            opts,
            paused: Cell::new(false),
            accepted: Cell::new(0),
            in_a_row: Cell::new(0),
            deferral: Deferral::default(),
        });
        let weak: Weak<Shared> = Rc::downgrade(&shared);
        with(|inner| inner.core.listeners.push(weak));
        Listener(shared)
    }

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.sock.fd()
    }

    /// Stops accepting; connections stay in the kernel's queue.
    pub fn pause(&self) {
        self.0.paused.set(true);
        with(|inner| inner.sync_listener(&*self.0));
    }

    /// Accepts again.
    pub fn resume(&self) {
        self.0.paused.set(false);
        with(|inner| inner.sync_listener(&*self.0));
    }

    /// Waits for the next connection. Temporary errors are logged, and waited out. An error that
    /// is returned is permanent, for example because the socket was shut down.
    pub fn accept(&self) -> impl Future<Output = io::Result<Accepted>> + use<'_> {
        let mut wait = Wait::new();
        std::future::poll_fn(move |cx| self.poll_accept(cx, &mut wait))
    }

    fn poll_accept(&self, cx: &mut Context<'_>, wait: &mut Wait) -> Poll<io::Result<Accepted>> {
        loop {
            match with(|inner| self.step(inner, cx, wait)) {
                Attempt::Wait => return Poll::Pending,
                Attempt::Yield => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Attempt::Again => (),
                Attempt::Broken(error) => return Poll::Ready(Err(error)),
                Attempt::Failed(level, error) => log_failure(level, &error),
                Attempt::Accepted(fd, addr) => {
                    if let Some(accepted) = admit(fd, addr) {
                        return Poll::Ready(Ok(accepted));
                    }
                }
            }
        }
    }

    fn step(&self, inner: &mut Inner, cx: &mut Context<'_>, wait: &mut Wait) -> Attempt {
        let shared = &*self.0;
        if let Some(Poll::Pending) = wait.poll(inner, cx) {
            return Attempt::Wait;
        }
        let ahead = !shared.paused.get() && inner.driver.has_accepted(shared.sock.key);
        let allowed = ahead || inner.core.may_accept(shared);
        let Some(entry) = inner.core.socks.get(shared.sock.key) else {
            return Attempt::Broken(io::ErrorKind::NotConnected.into());
        };
        if allowed && entry.bits & bits::READ != 0 {
            if shared.in_a_row.get() < inner.core.multi_max() {
                return self.attempt(inner);
            }
            shared.in_a_row.set(0);
            return Attempt::Yield;
        }
        shared.in_a_row.set(0);
        let terms =
            Terms { sock: shared.sock.key.index, gate: 0, park: Park::No, deadline_ms: u64::MAX };
        wait.begin(inner, cx, terms);
        if let Some(entry) = inner.core.socks.get(shared.sock.key) {
            entry.reader = wait.key().index;
        }
        inner.sync_listener(shared);
        Attempt::Wait
    }

    fn attempt(&self, inner: &mut Inner) -> Attempt {
        let shared = &*self.0;
        if inner.core.is_full() {
            // Nobody makes room for a connection that is not there.
            let is_awaited = inner.driver.has_waiting(shared.sock.key, shared.sock.fd());
            if is_awaited && inner.core.has_room_soon() {
                return Attempt::Yield;
            }
        }
        let multi = inner.core.multi_accept || inner.driver.accepts_ahead();
        let share = inner.core.share_of_turn();
        // The ring gives one connection a turn where other workers accept as well.
        let accepted = match (1..share).contains(&shared.in_a_row.get()) && shared.opts.exclusive {
            true => call_or_kernel(inner, shared),
            false => call(inner, shared),
        };
        let Some(entry) = inner.core.socks.get(shared.sock.key) else {
            return Attempt::Broken(io::ErrorKind::NotConnected.into());
        };
        let error = match accepted {
            Ok((fd, addr)) => {
                inner.core.accepted_turn = inner.core.stats.turns;
                let in_a_row = shared.in_a_row.get() + 1;
                shared.in_a_row.set(in_a_row);
                if !multi && in_a_row >= share {
                    entry.bits &= !bits::READ;
                }
                inner.rotate(shared);
                if shared.opts.defer_under_load {
                    shared.deferral.accepted(shared.sock.fd());
                }
                return Attempt::Accepted(fd, addr);
            }
            Err(error) => error,
        };
        let errno = errno_of(&error);
        if errno != Errno::INTR && !(errno == Errno::CONNABORTED && multi) {
            entry.bits &= !bits::READ;
        }
        match errno {
            Errno::AGAIN | Errno::INTR => Attempt::Again,
            Errno::CONNABORTED => Attempt::Failed(Level::Error, error),
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS => match inner.starve() {
                true => Attempt::Failed(Level::Crit, error),
                false => Attempt::Again,
            },
            Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP => {
                Attempt::Broken(error)
            }
            _ => Attempt::Failed(Level::Alert, error),
        }
    }

    /// Accepts the connections that are in the kernel's queue now, without waiting: for a socket
    /// that is about to close.
    pub fn drain(&self) -> Vec<Accepted> {
        let mut all = Vec::new();
        if let Err(error) = with(|inner| inner.stop_accepting(&self.0)) {
            log_failure(Level::Crit, &error);
        }
        loop {
            match with(|inner| call_or_kernel(inner, &self.0)) {
                Ok((fd, addr)) => all.extend(admit(fd, addr)),
                Err(error) => match errno_of(&error) {
                    Errno::INTR | Errno::CONNABORTED => (),
                    Errno::AGAIN => return all,
                    _ => {
                        log_failure(Level::Crit, &error);
                        return all;
                    }
                },
            }
        }
    }
}

/// Accepts a connection from a listening socket outside this loop, without waiting: `None` when
/// there is none, or no room for it.
///
/// # Errors
/// The system's.
pub fn accept_from(fd: impl AsFd) -> io::Result<Option<Accepted>> {
    let room = with(|inner| {
        let core = &inner.core;
        core.starved_until_ms.is_none() && !core.relief.is_short() && !core.is_full()
    });
    if !room {
        return Ok(None);
    }
    loop {
        let error = match os::socket::accept(&fd) {
            Ok((fd, addr)) => return Ok(admit(fd, addr)),
            Err(error) => error,
        };
        match errno_of(&error) {
            Errno::INTR | Errno::CONNABORTED => (),
            Errno::AGAIN => return Ok(None),
            _ => return Err(error),
        }
    }
}

fn call(inner: &mut Inner, shared: &Shared) -> io::Result<(OwnedFd, SockAddr)> {
    match &mut inner.driver {
        Driver::Sim(sim) => sim.net.accept(shared.sock.key),
        Driver::Uring(uring) => uring.accept(shared.sock.key),
        _ => os::socket::accept(shared.sock.fd()),
    }
}

/// As [`call`]. If the driver accepts ahead and has no connection, accepts one from the kernel's
/// queue.
fn call_or_kernel(inner: &mut Inner, shared: &Shared) -> io::Result<(OwnedFd, SockAddr)> {
    match call(inner, shared) {
        Err(error) if inner.driver.accepts_ahead() && errno_of(&error) == Errno::AGAIN => {
            os::socket::accept(shared.sock.fd())
        }
        called => called,
    }
}

fn errno_of(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::WouldBlock => Errno::AGAIN,
        _ => error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error),
    }
}

#[cold]
fn log_failure(level: Level, error: &io::Error) {
    let text = base::log::os_error(error);
    base::log!(base::log::default(), level, None, "accept4() failed {text}");
}

/// Takes an accepted connection in, unless `worker_connections` are all in use.
fn admit(fd: OwnedFd, addr: SockAddr) -> Option<Accepted> {
    let full = with(|inner| {
        let core = &mut inner.core;
        let (used, max) = (core.socks.connections(), core.connections_max);
        // A worker that is nearly full leaves the accept lock to the others for some turns.
        core.accept_disabled = (max / 8).saturating_sub(max.saturating_sub(used));
        core.stats.accepted += 1;
        (used >= max).then_some(max)
    });
    if let Some(max) = full {
        let log = base::log::default();
        base::log!(log, Level::Alert, None, "{max} worker_connections are not enough");
        with(|inner| inner.driver.refused(fd.as_fd()));
        return None;
    }
    if !with(|inner| inner.driver.takes(fd.as_fd())) {
        let (log, number) = (base::log::default(), fd.as_raw_fd());
        let max = crate::SELECT_MAX;
        base::log!(log, Level::Alert, None, "descriptor {number} is not below select's {max}");
        return None;
    }
    let bits = with(|inner| inner.driver.accepted_bits()) | bits::ACCEPTED;
    let sock = Sock::with_bits(fd, bits);
    if let Some(ip) = addr.ip_addr() {
        sock.set_client(ip);
    }
    Some(Accepted { sock, addr })
}

impl Core {
    /// Whether connections may be taken from a listener now.
    fn may_accept(&self, shared: &Shared) -> bool {
        !shared.paused.get()
            && self.starved_until_ms.is_none()
            && !self.relief.is_short()
            && self.accept_held
    }

    /// Whether all connections are taken.
    fn is_full(&self) -> bool {
        self.socks.connections() >= self.connections_max
    }

    /// Whether parked connections are closing, or can be asked to, so that there will be room.
    fn has_room_soon(&mut self) -> bool {
        self.leaving() > 0 || self.reclaim() && self.leaving() > 0
    }

    /// How many connections are accepted in a row. When few are left, it is one a turn: parked
    /// connections have to close first, and new ones have to show whether they send a request.
    fn multi_max(&self) -> u32 {
        match self.is_nearly_full() {
            true => u32::from(self.accepted_turn != self.stats.turns),
            false => (self.connections_max / 32).clamp(1, MULTI_MAX as usize) as u32,
        }
    }

    /// How many connections are accepted for one report without `multi_accept`.
    fn share_of_turn(&self) -> u32 {
        let share = (self.polled / POLLS_PER_ACCEPT).min(self.multi_max() as usize);
        (share as u32).max(1)
    }
}

impl Inner {
    /// Ends accepting, before a listener is emptied by hand.
    fn stop_accepting(&mut self, shared: &Shared) -> io::Result<()> {
        let key = shared.sock.key;
        let Driver::Uring(uring) = &mut self.driver else { return Ok(()) };
        if let Some(entry) = self.core.socks.get(key) {
            entry.bits &= !bits::ARMED_READ;
        }
        uring.stop_accepting(key, shared.sock.fd())
    }

    /// Moves an exclusive registration to the end of the kernel's list after every
    /// [`ROTATE_EVERY`] connections, and after each one while this worker is nearly full.
    fn rotate(&mut self, shared: &Shared) {
        let accepted = shared.accepted.get().wrapping_add(1);
        shared.accepted.set(accepted);
        let due = accepted.is_multiple_of(ROTATE_EVERY) || self.core.accept_disabled > 0;
        let key = shared.sock.key;
        if !shared.opts.exclusive || !due {
            return;
        }
        let Some(entry) = self.core.socks.get(key) else { return };
        if entry.bits & bits::ARMED_READ != 0 {
            entry.bits &= !bits::ARMED_READ;
            // Begun again, at the end of the list, when the next accept waits.
            let _ = self.driver.listen(&self.core, key, shared.sock.fd(), false, true);
        }
    }
}
