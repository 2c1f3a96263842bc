//! io_uring(7).
//!
//! The operations of a turn are queued and go to the kernel with the one call that waits. Receiving
//! stays a matter of readiness, with the bytes coming along: a waiting connection has a recv in the
//! kernel, which takes a provided buffer only when bytes arrive; they lie in the socket's inbox
//! until they are received. So a cancelled wait loses nothing. A recv goes on, and takes a buffer
//! for each part that comes; where memory is scarce, it takes one. Sends from memory are flights,
//! see [`crate::state::flights`]; files are sent by sendfile, for which the ring has no operation.
//!
//! ```text
//!             arm               bytes
//!   (nothing) ------> Recv -------------------------> inbox; the first ends, later ones go on
//!       ^              | two sweeps, or a full inbox
//!       |              v        cancelled          ready
//!       |           Recv + cancel ------> PollRead ----+
//!       +------------------------+---------------------+
//!         end, error, or not idle
//! ```
//!
//! A pending recv costs the kernel 862 bytes, a poll 254. So the recv of a connection that stays
//! idle for a second or two is exchanged for a poll by [`Uring::sweep`].
//!
//! A descriptor closes through the ring, after the operations queued before it. Operations in the
//! kernel hold the file open, so they are cancelled first. The ring must not close before the
//! operations that use our memory end: dropping the driver cancels them and waits.

mod accept;
mod buffers;
mod recv;
mod ring;
mod send;
mod socks;
mod token;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};
use rustix::event::PollFlags;
use rustix::io::Errno;

use self::buffers::Buffers;
use self::ring::{Completion, Ring};
use self::send::Messages;
pub(super) use self::send::PIECES;
use self::socks::{KernelOpsTable, state};
use self::token::Token;
use super::poll::ready_bits;
use super::seam::{Arm, Phase};
use super::ticker::Ticker;
use crate::runtime::remote::Mailbox;
use crate::state::Core;
use crate::state::flights::FlightOp;
use crate::state::index::NONE;
use crate::state::socks::{Direction, SockKey, SockKind, bits, out};

/// Time that the end of a loop waits for the disks.
const READS_END: Duration = Duration::from_millis(300);

/// Whether a ring can be made.
pub(super) fn is_available() -> bool {
    Ring::new().is_ok()
}

pub(crate) struct Uring {
    /// Dropped before the memory that it uses.
    ring: Ring,
    buffers: Option<Buffers>,
    messages: Messages,
    /// The kernel's operations on each socket.
    owns: KernelOpsTable,
    /// Recvs that are with the kernel.
    recvs: usize,
    /// Pages in the inboxes of all sockets.
    in_inboxes: usize,
    /// Completions that are not applied yet.
    done: Vec<Completion>,
    /// Accepted connections that no task has taken yet.
    accepted: Vec<(SockKey, OwnedFd)>,
    /// Listeners that may need an accept.
    listening: Vec<SockKey>,
    /// Whether the kernel has accepts that go on; found out by the first.
    accepts_go_on: bool,
    /// Whether the kernel has recvs that go on; found out by the first.
    recvs_go_on: bool,
    /// When [`Uring::sweep`] is due; `None` while no recv is pending.
    sweep_at_ms: Option<u64>,
    /// A failure to queue an operation, for the next wait.
    failure: Option<io::Error>,
    mailbox: Arc<Mailbox>,
    posted: Vec<u64>,
    tick: Option<Ticker>,
}

impl Uring {
    /// Makes the ring of this thread, which alone may use it from then on.
    ///
    /// # Errors
    /// The kernel's: it may be too old, or rings may be forbidden.
    pub(super) fn new(mailbox: Arc<Mailbox>, resolution_ms: u64) -> io::Result<Uring> {
        let ring = Ring::new()?;
        // Without provided buffers, connections wait with a poll.
        let buffers = Buffers::new(&ring).ok();
        let mut uring = Uring {
            ring,
            buffers,
            messages: Messages::default(),
            owns: KernelOpsTable::default(),
            recvs: 0,
            in_inboxes: 0,
            done: Vec::new(),
            accepted: Vec::new(),
            listening: Vec::new(),
            accepts_go_on: true,
            recvs_go_on: true,
            sweep_at_ms: None,
            failure: None,
            mailbox,
            posted: Vec::new(),
            tick: Ticker::new(resolution_ms)?,
        };
        uring.watch_mailbox();
        uring.watch_ticker();
        uring.ring.enter(false, Some(0))?;
        Ok(uring)
    }

    /// The features that this kernel lacks, for a debug log.
    pub(super) fn lacks(&self) -> Vec<&'static str> {
        let mut lacks = Vec::new();
        if !self.ring.deferred {
            lacks.push("deferred task work");
        }
        if self.buffers.is_none() {
            lacks.push("provided buffers");
        }
        lacks
    }

    /// Queues an operation that uses no memory beyond what this driver keeps alive.
    fn push(&mut self, entry: Entry, token: u64) {
        // SAFETY: polls, accepts without an address, closes, cancels and recvs with provided
        // buffers point to no memory; messages, chains and the memory of reads stay until their
        // slot has landed.
        if let Err(error) = unsafe { self.ring.push(&entry.user_data(token)) } {
            self.failure.get_or_insert(error);
        }
    }

    fn push_poll(&mut self, fd: RawFd, flags: PollFlags, token: u64) {
        let entry = opcode::PollAdd::new(types::Fd(fd), u32::from(flags.bits())).build();
        self.push(entry, token);
    }

    fn push_cancel(&mut self, token: u64) {
        let mut entry = opcode::AsyncCancel::new(token).build();
        if self.ring.skips {
            entry = entry.flags(Flags::SKIP_SUCCESS);
        }
        self.push(entry, token::plain(Token::Ignored, 0));
    }

    fn watch_mailbox(&mut self) {
        let fd = self.mailbox.event().as_raw_fd();
        self.push_poll(fd, PollFlags::IN, token::plain(Token::Mailbox, 0));
    }

    fn watch_ticker(&mut self) {
        if let Some(tick) = &self.tick {
            let fd = tick.as_fd().as_raw_fd();
            self.push_poll(fd, PollFlags::IN, token::plain(Token::Ticker, 0));
        }
    }

    /// Whether bytes come with the report that they are there.
    pub(super) fn brings_bytes(&self) -> bool {
        self.buffers.is_some()
    }

    /// The bytes of buffers that the kernel has.
    pub(super) fn lent(&self) -> usize {
        self.buffers.as_ref().map_or(0, Buffers::lent)
    }

    /// A socket came into the loop.
    pub(super) fn opened(&mut self, key: SockKey) {
        self.owns.open(key);
    }

    pub(super) fn arm(&mut self, core: &mut Core, wish: Arm<'_>) {
        let Arm { key, kind, fd, direction } = wish;
        let Some(entry) = core.socks.get(key) else { return };
        let connection = kind == SockKind::Connection;
        let posted = entry.out & out::POSTED != 0;
        let Some(own) = self.owns.get(key) else { return };
        let raw = fd.as_raw_fd();
        match direction {
            Direction::Read if own.state & (state::RECV | state::POLL_READ) != 0 => {
                own.state &= !state::AGED;
            }
            Direction::Read if connection && self.buffers.is_some() => self.arm_recv(key, fd),
            Direction::Read => self.arm_poll(key, raw, state::POLL_READ),
            // The landing of the posted send is reported.
            Direction::Write if posted => {}
            Direction::Write => self.arm_poll(key, raw, state::POLL_WRITE),
            Direction::PeerClosed => self.arm_poll(key, raw, state::POLL_CLOSED),
        }
    }

    /// Reports when there is room for the posted send. A poll that is armed already does: a send
    /// without room arms one.
    pub(super) fn watch_room(&mut self, key: SockKey, fd: BorrowedFd<'_>) {
        self.arm_poll(key, fd.as_raw_fd(), state::POLL_WRITE);
    }

    fn arm_poll(&mut self, key: SockKey, fd: RawFd, which: u16) {
        let Some(own) = self.owns.get(key) else { return };
        if own.state & which != 0 {
            return;
        }
        own.state |= which;
        own.fd = fd;
        let (kind, flags) = match which {
            state::POLL_READ => (Token::PollRead, PollFlags::IN | PollFlags::RDHUP),
            state::POLL_WRITE => (Token::PollWrite, PollFlags::OUT),
            _ => (Token::PollClosed, PollFlags::RDHUP),
        };
        self.push_poll(fd, flags, token::of_sock(kind, key));
    }

    pub(super) fn close(&mut self, key: SockKey, fd: OwnedFd) {
        if let Some(own) = self.owns.get(key) {
            let pending = own.state;
            self.in_inboxes -= own.inbox.len();
            for (which, kind) in state::PENDING {
                if pending & which != 0 {
                    self.push_cancel(token::of_sock(kind, key));
                }
            }
            self.owns.close(key);
        }
        self.accepted.retain(|(listener, _)| *listener != key);
        let entry = opcode::Close::new(types::Fd(fd.into_raw_fd())).build();
        self.push(entry, token::plain(Token::Close, 0));
    }

    /// Takes on the send of `slot`.
    pub(super) fn start(&mut self, core: &mut Core, slot: u32, fd: BorrowedFd<'_>) {
        let Some(flight) = core.flights.get(slot) else { return };
        let fd = fd.as_raw_fd();
        let entry = match &flight.op {
            FlightOp::Send { chain, limit } => self.messages.prepare(slot, fd, chain, 0..*limit),
            FlightOp::Post { chain, sent, len, .. } => {
                self.messages.prepare_whole(slot, fd, chain, *sent as usize..*len as usize)
            }
            _ => return core.land(slot, Err(io::ErrorKind::Unsupported.into())),
        };
        self.push(entry, token::plain(Token::Flight, slot));
    }

    /// Takes on the read of `slot`.
    pub(super) fn start_plain(&mut self, core: &mut Core, slot: u32) {
        let Some(flight) = core.flights.get(slot) else { return };
        let FlightOp::Read(reading) = &flight.op else {
            return core.land(slot, Err(io::ErrorKind::Unsupported.into()));
        };
        let fd = types::Fd(reading.file.as_fd().as_raw_fd());
        // Goes to a thread of the kernel's at once: the ring would try it here first, and on some
        // file systems such a try waits.
        let entry = match &*reading.pieces {
            [] => opcode::Read::new(fd, reading.to, reading.len).offset(reading.pos).build(),
            pieces => opcode::Readv::new(fd, pieces.as_ptr(), pieces.len() as u32)
                .offset(reading.pos)
                .build(),
        };
        let entry = entry.flags(Flags::ASYNC);
        self.messages.hold(slot, reading.clone());
        self.push(entry, token::plain(Token::Flight, slot));
    }

    /// Whether a short send is continued by the kernel. Kernels with provided buffers do that.
    pub(super) fn takes_posts(&self) -> bool {
        self.buffers.is_some()
    }

    pub(super) fn cancel(&mut self, slot: u32) {
        self.push_cancel(token::plain(Token::Flight, slot));
    }

    pub(super) fn wait(&mut self, timeout_ms: Option<u64>) -> io::Result<bool> {
        while let Some(key) = self.listening.pop() {
            self.arm_accept(key);
        }
        let timeout_ms = match self.tick {
            Some(_) => timeout_ms.filter(|&ms| ms == 0),
            None => timeout_ms,
        };
        let sweep = self.sweep_at_ms.map(|at| at.saturating_sub(base::time::now_ms()));
        let timeout_ms = match (timeout_ms, sweep) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.ring.enter(self.done.is_empty(), timeout_ms)?;
        self.ring.collect(&mut self.done);
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        Ok(match &self.tick {
            None => true,
            Some(tick) => {
                let kinds = self.done.iter().map(|done| token::kind(done.token));
                let ticked = kinds.into_iter().any(|kind| kind == Token::Ticker);
                if ticked {
                    tick.take();
                }
                ticked
            }
        })
    }

    pub(super) fn apply(&mut self, core: &mut Core, phase: Phase) {
        let mut done = std::mem::take(&mut self.done);
        match phase {
            Phase::Listeners => done.retain(|done| {
                let listener = token::kind(done.token) == Token::Accept;
                if listener {
                    self.apply_one(core, *done);
                }
                !listener
            }),
            Phase::Rest => done.drain(..).for_each(|done| self.apply_one(core, done)),
        }
        // Nothing completes while completions are applied.
        self.done = done;
        if phase == Phase::Rest {
            if let Some(buffers) = &mut self.buffers {
                buffers.end_turn();
            }
            self.sweep();
        }
    }

    /// Takes buffers back from the kernel that it does not need; see [`Buffers::tidy`].
    pub(super) fn tidy(&mut self) -> bool {
        let Some(buffers) = &mut self.buffers else { return false };
        let tidied = buffers.tidy(&mut self.ring, &mut self.done);
        tidied.unwrap_or_else(|error| {
            self.failure.get_or_insert(error);
            false
        })
    }

    fn apply_one(&mut self, core: &mut Core, done: Completion) {
        let place = token::place(done.token);
        match token::kind(done.token) {
            Token::Ignored => (),
            Token::Mailbox => {
                self.mailbox.take(&mut self.posted);
                for data in self.posted.drain(..) {
                    core.tasks.wake(data);
                }
                self.watch_mailbox();
            }
            Token::Ticker => self.watch_ticker(),
            Token::Recv => self.recv_done(core, done),
            Token::PollRead => self.poll_done(core, done, state::POLL_READ),
            Token::PollWrite => self.poll_done(core, done, state::POLL_WRITE),
            Token::PollClosed => self.poll_done(core, done, state::POLL_CLOSED),
            Token::Accept => {
                if let Some(key) = self.accept_done(done) {
                    if core.socks.get(key).is_some_and(|entry| entry.reader == NONE) {
                        core.idle_listener(key);
                    }
                    core.apply(key, bits::READ);
                }
            }
            Token::Flight => {
                self.messages.done(place);
                core.land(place, done.outcome());
            }
            Token::Close => core.descriptor_closed = true,
        }
    }

    fn poll_done(&mut self, core: &mut Core, done: Completion, which: u16) {
        let Some((key, own)) = self.owns.of(done.token) else { return };
        if !done.goes_on() {
            own.state &= !which;
        }
        if done.is(Errno::CANCELED) {
            return;
        }
        let ready = match done.outcome() {
            Ok(found) => ready_bits(PollFlags::from_bits_retain(found as u16)),
            // The next operation gets the error.
            Err(_) => bits::READ | bits::WRITE,
        };
        if which == state::POLL_WRITE {
            match ready & bits::WRITE {
                0 if !done.goes_on() => self.watch_writes(core, key),
                0 => (),
                _ => core.room_for_posts(key),
            }
        }
        core.apply(key, ready);
    }

    /// The peer sends no more, which ends every poll at once, in both directions. A multishot poll
    /// reports it a single time, and then, until the socket closes, whenever there is room again.
    fn watch_writes(&mut self, core: &mut Core, key: SockKey) {
        let waits = core
            .socks
            .get(key)
            .is_some_and(|entry| entry.writer != NONE || entry.out & out::POSTED != 0);
        let Some(own) = self.owns.get(key).filter(|_| waits) else { return };
        own.state |= state::POLL_WRITE;
        let (fd, flags) = (types::Fd(own.fd), u32::from(PollFlags::OUT.bits()));
        let entry = opcode::PollAdd::new(fd, flags).multi(true).build();
        self.push(entry, token::of_sock(Token::PollWrite, key));
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        for slot in self.messages.slots() {
            self.cancel(slot);
        }
        let pending: Vec<u64> = self
            .owns
            .all()
            .filter(|(_, own)| own.state & state::RECV != 0)
            .map(|(key, _)| token::of_sock(Token::Recv, key))
            .collect();
        for token in pending {
            self.push_cancel(token);
        }
        // The memory of an operation stays until the kernel has reported its end. The closes that
        // were queued last go with the first round.
        let began = Instant::now();
        loop {
            let left = self.recvs + self.messages.flying();
            if self.ring.enter(left > 0, Some(100)).is_err() || left == 0 {
                break;
            }
            // A disk may never answer: then the memory of its reads is never freed.
            if began.elapsed() > READS_END && left == self.messages.let_go_of_reads() {
                break;
            }
            self.ring.collect(&mut self.done);
            for done in std::mem::take(&mut self.done) {
                match token::kind(done.token) {
                    Token::Recv => self.recvs -= usize::from(!done.goes_on()),
                    Token::Flight => self.messages.done(token::place(done.token)),
                    Token::Accept => drop(self.accept_done(done)),
                    _ => (),
                }
            }
        }
    }
}
