//! io_uring(7).
//!
//! What is asked for in a turn is queued and goes to the kernel with the one call that waits.
//! Receiving stays a matter of readiness, with the bytes coming along: a connection that waits has
//! a recv with the kernel, which takes a provided buffer only when bytes arrive; they lie in the
//! socket's inbox until they are received. So a wait that is given up loses nothing, whatever was
//! on its way. Sending from memory is a flight, see [`crate::op::flight`]; files are sent by
//! sendfile, which the ring has nothing like.
//!
//! ```text
//!             arm               bytes
//!   (nothing) ------> Recv -------------------------> inbox; the first recv ends, later ones go on
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
//! A descriptor closes through the ring, after whatever was queued for it before; and as what is
//! still with the kernel holds the file open, that is cancelled first. The ring must not be gone
//! before the operations that use our memory are: dropping the driver cancels them and waits.

mod buffers;
mod ring;
mod send;
mod socks;
mod token;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::squeue::{Entry, Flags};
use io_uring::{opcode, types};
use mem::Page;
use os::SockAddr;
use rustix::event::PollFlags;
use rustix::io::Errno;

use self::buffers::Buffers;
use self::ring::{Done, Ring};
use self::send::Messages;
pub(super) use self::send::PIECES;
use self::socks::{Owns, state};
use self::token::Kind as Token;
use super::Phase;
use super::poll::ready_bits;
use super::ticker::Ticker;
use crate::op::Direction;
use crate::op::flight::Op;
use crate::remote::Mailbox;
use crate::slot::NONE;
use crate::sock::{Entry as SockEntry, Kind, SockKey, bits, out};
use crate::turn::Core;

/// Pages that a connection may have received and not been asked for; then its recv stops.
const INBOX_MAX: usize = 4;

/// How often recvs that stay without bytes are looked after, in milliseconds.
const SWEEP_MS: u64 = 1000;

/// How long the end of a loop waits for the disks.
const READS_END: Duration = Duration::from_millis(300);

/// Whether a ring can be made.
pub(super) fn is_available() -> bool {
    Ring::new().is_ok()
}

pub(crate) struct Uring {
    /// Goes before the memory that it uses.
    ring: Ring,
    buffers: Option<Buffers>,
    messages: Messages,
    /// What each socket has with the kernel.
    owns: Owns,
    /// Recvs that are with the kernel.
    recvs: usize,
    /// Completions that are not applied yet.
    done: Vec<Done>,
    /// Connections that were accepted and not asked for yet.
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
    /// What the kernel says: it may be too old, or rings may not be allowed.
    pub(super) fn new(mailbox: Arc<Mailbox>, resolution_ms: u64) -> io::Result<Uring> {
        let ring = Ring::new()?;
        // Without provided buffers, connections wait with a poll.
        let buffers = Buffers::new(&ring).ok();
        let mut uring = Uring {
            ring,
            buffers,
            messages: Messages::default(),
            owns: Owns::default(),
            recvs: 0,
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

    /// What this kernel lacks, for a debug log.
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

    /// Queues an operation that uses no memory of ours but what this driver sees to.
    fn push(&mut self, entry: Entry, token: u64) {
        // SAFETY: polls, accepts without an address, closes, cancels and recvs with provided
        // buffers point to no memory; messages, chains and what is read into stay until their slot
        // has landed.
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

    /// A socket came into the loop.
    pub(super) fn opened(&mut self, key: SockKey) {
        self.owns.open(key);
    }

    pub(super) fn arm(
        &mut self,
        core: &mut Core,
        key: SockKey,
        fd: BorrowedFd<'_>,
        direction: Direction,
    ) {
        let Some(entry) = core.socks.get(key) else { return };
        let connection = entry.kind == Kind::Connection;
        let posted = entry.out & out::POSTED != 0;
        let Some(own) = self.owns.get(key) else { return };
        let fd = fd.as_raw_fd();
        match direction {
            Direction::Read if own.state & (state::RECV | state::POLL_READ) != 0 => {
                own.state &= !state::AGED;
            }
            Direction::Read if connection && self.buffers.is_some() => self.arm_recv(key, fd),
            Direction::Read => self.arm_poll(key, fd, state::POLL_READ),
            // The landing of what was posted is reported.
            Direction::Write if posted => {}
            Direction::Write => self.arm_poll(key, fd, state::POLL_WRITE),
            Direction::PeerClosed => self.arm_poll(key, fd, state::POLL_CLOSED),
        }
    }

    fn arm_recv(&mut self, key: SockKey, fd: RawFd) {
        let Some(own) = self.owns.get(key) else { return };
        let fresh = own.state & state::FRESH != 0;
        own.state &= !(state::FRESH | state::AGED);
        own.state |= state::RECV;
        own.fd = fd;
        self.recvs += 1;
        // Many a connection ends with its first request, which is often there before it is
        // accepted; later, whoever waits has seen the socket empty, and will wait again.
        let fd = types::Fd(fd);
        let entry = match fresh || !self.recvs_go_on {
            true => opcode::Recv::new(fd, std::ptr::null_mut(), 0)
                .buf_group(buffers::GROUP)
                .build()
                .flags(Flags::BUFFER_SELECT),
            false => ring::poll_first(opcode::RecvMulti::new(fd, buffers::GROUP).build()),
        };
        self.push(entry, token::of_sock(Token::Recv, key));
        if self.sweep_at_ms.is_none() {
            self.sweep_at_ms = Some(base::time::now_ms() + SWEEP_MS);
        }
    }

    /// Reports when there is room for what was posted. A poll that is there already will: a send
    /// that finds no room sees to that.
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

    /// Begins or ends accepting. `one`: other workers accept from the same socket, and this one
    /// takes one connection at a time.
    pub(super) fn listen(&mut self, key: SockKey, fd: BorrowedFd<'_>, on: bool, one: bool) {
        let Some(own) = self.owns.get(key) else { return };
        own.fd = fd.as_raw_fd();
        if on {
            own.state |= state::LISTENS;
            own.state &= !state::ONE;
            if one {
                own.state |= state::ONE;
            }
            self.listening.push(key);
        } else {
            own.state &= !state::LISTENS;
            if own.state & state::ACCEPT != 0 {
                self.push_cancel(token::of_sock(Token::Accept, key));
            }
        }
    }

    /// Only before a wait: whoever has stopped accepting until then has taken nothing.
    fn arm_accept(&mut self, key: SockKey) {
        let Some(own) = self.owns.get(key) else { return };
        if own.state & (state::LISTENS | state::ACCEPT) != state::LISTENS {
            return;
        }
        let go_on = self.accepts_go_on && own.state & state::ONE == 0;
        own.state |= state::ACCEPT;
        let (fd, flags) = (types::Fd(own.fd), libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let entry = match go_on {
            true => opcode::AcceptMulti::new(fd).flags(flags).build(),
            false => {
                let none = std::ptr::null_mut();
                opcode::Accept::new(fd, none, none.cast()).flags(flags).build()
            }
        };
        self.push(entry, token::of_sock(Token::Accept, key));
    }

    /// Whether connections of this listener wait here, where no other worker can take them.
    pub(crate) fn has_accepted(&self, key: SockKey) -> bool {
        self.accepted.iter().any(|(listener, _)| *listener == key)
    }

    /// Takes a connection that was accepted.
    pub(crate) fn accept(&mut self, key: SockKey) -> io::Result<(OwnedFd, SockAddr)> {
        while let Some(at) = self.accepted.iter().position(|(listener, _)| *listener == key) {
            let (_, fd) = self.accepted.remove(at);
            // Fails when the peer has gone already.
            if let Ok(addr) = os::socket::peer_addr(&fd) {
                return Ok((fd, addr));
            }
        }
        match self.owns.get(key).and_then(|own| own.take_error()) {
            Some(error) => Err(error),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Ends accepting and waits for that: afterwards, connections stay in the kernel's queue, and
    /// those that the ring has taken from it stand ready for [`Uring::accept`].
    pub(crate) fn stop_accepting(&mut self, key: SockKey, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.listen(key, fd, false, false);
        while self.owns.get(key).is_some_and(|own| own.state & state::ACCEPT != 0) {
            self.ring.enter(true, None)?;
            self.ring.collect(&mut self.done);
            let mut done = std::mem::take(&mut self.done);
            done.retain(|done| {
                let ours = token::kind(done.token) == Token::Accept;
                if ours {
                    self.accept_done(*done);
                }
                !ours
            });
            self.done = done;
        }
        Ok(())
    }

    pub(super) fn close(&mut self, key: SockKey, fd: OwnedFd) {
        if let Some(own) = self.owns.get(key) {
            let pending = own.state;
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
            Op::Send { chain, limit } => self.messages.prepare(slot, fd, chain, 0..*limit),
            Op::Post { chain, sent, len, .. } => {
                self.messages.prepare_whole(slot, fd, chain, *sent as usize..*len as usize)
            }
            _ => return core.land(slot, Err(io::ErrorKind::Unsupported.into())),
        };
        self.push(entry, token::plain(Token::Flight, slot));
    }

    /// Takes on the read of `slot`.
    pub(super) fn start_plain(&mut self, core: &mut Core, slot: u32) {
        let Some(flight) = core.flights.get(slot) else { return };
        let Op::Read(reading) = &flight.op else {
            return core.land(slot, Err(io::ErrorKind::Unsupported.into()));
        };
        let fd = types::Fd(reading.file.as_fd().as_raw_fd());
        // A thread of the kernel's at once: the ring would try it here first, and not every file
        // system keeps to it that a first try does not wait.
        let entry = opcode::Read::new(fd, reading.to, reading.len).offset(reading.pos).build();
        let entry = entry.flags(Flags::ASYNC);
        self.messages.hold(slot, reading.clone());
        self.push(entry, token::plain(Token::Flight, slot));
    }

    /// Whether a send goes on by itself when it comes back short. The kernels that have provided
    /// buffers do that.
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
            self.sweep();
        }
    }

    fn apply_one(&mut self, core: &mut Core, done: Done) {
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

    fn recv_done(&mut self, core: &mut Core, done: Done) {
        self.recvs -= usize::from(!done.goes_on());
        let page = match (done.buffer(), &mut self.buffers) {
            // Taken in any case, or the kernel would have one buffer less.
            (Some(number), Some(buffers)) => {
                Some(buffers.take(number, usize::try_from(done.result).unwrap_or(0)))
            }
            _ => None,
        };
        if done.is(Errno::NOBUFS)
            && let Some(buffers) = &mut self.buffers
        {
            buffers.refill();
        }
        let Some((key, own)) = self.owns.of(done.token) else { return };
        let exchange = own.state & state::EXCHANGE != 0;
        own.state &= !(state::AGED | state::MORE);
        if !done.goes_on() {
            own.state &= !(state::RECV | state::EXCHANGE);
        }
        let ready = match (done.result, page) {
            (1.., Some(page)) => {
                own.inbox.push(page);
                if done.nonempty() {
                    own.state |= state::MORE;
                }
                if done.goes_on() && own.inbox.len() >= INBOX_MAX && !exchange {
                    own.state |= state::EXCHANGE;
                    self.push_cancel(done.token);
                }
                bits::READ
            }
            (0, _) => {
                own.state |= state::ENDED;
                bits::READ | bits::PEER_CLOSED
            }
            _ if done.is(Errno::CANCELED) => {
                let fd = own.fd;
                let waits = core.socks.get(key).is_some_and(|entry| entry.reader != NONE);
                if exchange && waits {
                    self.arm_poll(key, fd, state::POLL_READ);
                }
                return;
            }
            // Older than recvs that go on.
            _ if done.is(Errno::INVAL) && self.recvs_go_on => {
                self.recvs_go_on = false;
                bits::READ
            }
            // No buffer was left, or a signal came: whoever reads next does it without the ring.
            _ if done.is(Errno::NOBUFS) || done.is(Errno::INTR) || done.is(Errno::AGAIN) => {
                bits::READ
            }
            _ => {
                own.error = -done.result;
                bits::READ | bits::WRITE | bits::PEER_CLOSED
            }
        };
        core.apply(key, ready);
    }

    fn poll_done(&mut self, core: &mut Core, done: Done, which: u16) {
        let Some((key, own)) = self.owns.of(done.token) else { return };
        if !done.goes_on() {
            own.state &= !which;
        }
        if done.is(Errno::CANCELED) {
            return;
        }
        let ready = match done.outcome() {
            Ok(found) => ready_bits(PollFlags::from_bits_retain(found as u16)),
            // Whichever operation comes next learns what is wrong.
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

    /// The peer sends no more: every poll ends with that at once, whatever it is for. One that goes
    /// on tells it a single time, and then, until the socket closes, whenever there is room again.
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

    /// Returns the listener, if it is still there and has something to tell.
    fn accept_done(&mut self, done: Done) -> Option<SockKey> {
        let fd = done.outcome().map(|fd| {
            // SAFETY: the kernel has just opened it for this completion.
            unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
        });
        let (key, own) = self.owns.of(done.token)?;
        if !done.goes_on() {
            own.state &= !state::ACCEPT;
        }
        match fd {
            Ok(fd) => self.accepted.push((key, fd)),
            // Older than accepts that go on: from now on, one after the other.
            Err(_) if self.accepts_go_on && done.is(Errno::INVAL) => self.accepts_go_on = false,
            Err(_) if done.is(Errno::CANCELED) || done.is(Errno::AGAIN) => {}
            Err(_) => {
                own.error = -done.result;
                return Some(key);
            }
        }
        if !done.goes_on() {
            self.listening.push(key);
        }
        self.has_accepted(key).then_some(key)
    }

    /// Exchanges recvs that have been pending for a while for polls.
    fn sweep(&mut self) {
        let now_ms = base::time::now_ms();
        if self.sweep_at_ms.is_none_or(|at| at > now_ms) {
            return;
        }
        let mut young = false;
        let mut old = Vec::new();
        for (key, own) in self.owns.all() {
            if own.state & state::RECV == 0 || own.state & state::EXCHANGE != 0 {
                continue;
            }
            if own.state & state::AGED == 0 {
                own.state |= state::AGED;
                young = true;
            } else {
                own.state |= state::EXCHANGE;
                old.push(key);
            }
        }
        for key in old {
            self.push_cancel(token::of_sock(Token::Recv, key));
        }
        self.sweep_at_ms = young.then_some(now_ms + SWEEP_MS);
    }

    /// Receives what lies in the inbox, or may lie in the socket.
    pub(crate) fn recv(
        &mut self,
        entry: &mut SockEntry,
        key: SockKey,
        page: &mut Page,
        min: usize,
    ) -> Option<io::Result<usize>> {
        let own = self.owns.get(key)?;
        let taken = own.take(page, min);
        if taken > 0 {
            let more = own.state & (state::MORE | state::RECV) == state::MORE;
            if own.inbox.len() == 0 && !more && !own.has_news() {
                entry.bits &= !bits::READ;
            }
            return Some(Ok(taken));
        }
        if let Some(error) = own.take_error() {
            return Some(Err(error));
        }
        if own.state & state::ENDED != 0 {
            return Some(Ok(0));
        }
        own.state &= !state::FRESH;
        if own.state & state::RECV != 0 {
            // The recv has what comes next.
            entry.bits &= !bits::READ;
            return Some(Err(io::ErrorKind::WouldBlock.into()));
        }
        None
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
        // What an operation has of ours stays until the kernel has said that it is over. The closes
        // that were queued last go with the first round.
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
