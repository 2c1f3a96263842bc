//! The simulated network: listeners, connections, and the segments on their way.
//!
//! A connection is two pipes. Bytes written to a pipe become readable when they arrive, in order;
//! bytes beyond the window wait. Readiness is reported like edge-triggered epoll does: when
//! something arrives, when room comes free after a short write, and not in between.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use os::SockAddr;
use rustix::io::Errno;

use super::plan::Plan;
use super::rng::Rng;
use crate::state::socks::{Direction, SockEntry, SockKey, SockKind, bits};

type PipeId = usize;

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    /// Segments in flight or arrived: the time of arrival in milliseconds, and the bytes.
    segments: VecDeque<(u64, VecDeque<u8>)>,
    queued: usize,
    /// The arrival of the last one.
    last_ms: u64,
    /// When the end arrives.
    end_ms: Option<u64>,
    /// The reader is gone: a write is answered with a reset.
    unread: bool,
    /// Nothing is left of the connection.
    broken: bool,
    /// A write fell short, and room is to be reported.
    writer_waits: bool,
    reader: Option<SockKey>,
    writer: Option<SockKey>,
}

impl Pipe {
    fn arrived(&self, now_ms: u64) -> usize {
        let arrived = self.segments.iter().take_while(|(at, _)| *at <= now_ms);
        arrived.map(|(_, bytes)| bytes.len()).sum()
    }

    fn ended(&self, now_ms: u64) -> bool {
        self.end_ms.is_some_and(|at| at <= now_ms)
    }
}

/// A socket's side of a connection.
#[derive(Clone, Copy)]
struct End {
    rx: PipeId,
    tx: PipeId,
    reset_on_close: bool,
}

struct Listening {
    addr: SockAddr,
    key: SockKey,
    /// Whether waiting connections are reported.
    on: bool,
    backlog: VecDeque<(u64, End, SockAddr)>,
}

impl Listening {
    /// When the first connection arrives, or has arrived.
    fn first_ms(&self) -> Option<u64> {
        self.backlog.iter().map(|(at, ..)| *at).min()
    }
}

/// A report of readiness, in the order of time and of their making.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at_ms: u64,
    sequence: u64,
    token: u64,
    ready: u8,
}

pub(crate) struct Net {
    plan: Plan,
    rng: Rng,
    now_ms: u64,
    sequence: u64,
    events: BinaryHeap<Reverse<Event>>,
    pipes: Vec<Pipe>,
    ends: HashMap<u64, End>,
    /// Ends of connections that are accepted and not yet in the loop, by descriptor.
    accepted: HashMap<RawFd, End>,
    listeners: Vec<Listening>,
    /// Tokens of sockets that are closed, for reports that come too late.
    stale: Vec<u64>,
    next_port: u16,
}

impl Net {
    pub(crate) fn new(plan: Plan, now_ms: u64) -> Net {
        Net {
            plan,
            rng: Rng::new(plan.seed),
            now_ms,
            sequence: 0,
            events: BinaryHeap::new(),
            pipes: Vec::new(),
            ends: HashMap::new(),
            accepted: HashMap::new(),
            listeners: Vec::new(),
            stale: Vec::new(),
            next_port: 40_000,
        }
    }

    fn latency(&mut self) -> u64 {
        self.rng.up_to(self.plan.faults.latency_ms)
    }

    fn report(&mut self, at_ms: u64, key: Option<SockKey>, ready: u8) {
        let Some(key) = key else { return };
        self.sequence += 1;
        let event = Event { at_ms, sequence: self.sequence, token: key.token(), ready };
        self.events.push(Reverse(event));
    }

    fn end(&self, key: SockKey) -> io::Result<End> {
        self.ends.get(&key.token()).copied().ok_or_else(|| Errno::NOTCONN.into())
    }

    fn make_pipe(&mut self) -> PipeId {
        self.pipes.push(Pipe::default());
        self.pipes.len() - 1
    }

    /// Makes a connection; returns its two ends.
    fn make_connection(&mut self) -> (End, End) {
        let (there, back) = (self.make_pipe(), self.make_pipe());
        let end = |rx, tx| End { rx, tx, reset_on_close: false };
        (end(back, there), end(there, back))
    }

    fn attach(&mut self, key: SockKey, end: End) {
        self.pipes[end.rx].reader = Some(key);
        self.pipes[end.tx].writer = Some(key);
        self.ends.insert(key.token(), end);
    }

    /// Connects two sockets to each other.
    pub(crate) fn link(&mut self, a: SockKey, b: SockKey) {
        let (end_a, end_b) = self.make_connection();
        self.attach(a, end_a);
        self.attach(b, end_b);
    }

    /// A descriptor came into the loop.
    pub(crate) fn opened(&mut self, key: SockKey, fd: BorrowedFd<'_>, kind: SockKind) {
        match kind {
            SockKind::Listener => {
                if let Ok(addr) = os::socket::local_addr(fd) {
                    let backlog = VecDeque::new();
                    self.listeners.push(Listening { addr, key, on: false, backlog });
                }
            }
            SockKind::Connection => {
                if let Some(end) = self.accepted.remove(&fd.as_raw_fd()) {
                    self.attach(key, end);
                }
            }
            SockKind::Other | SockKind::Member | SockKind::Socketless | SockKind::Vacant => (),
        }
    }

    /// An accepted connection is closed before it became a socket of the loop.
    pub(crate) fn refused(&mut self, fd: BorrowedFd<'_>) {
        if let Some(end) = self.accepted.remove(&fd.as_raw_fd()) {
            self.close_end(end);
        }
    }

    pub(crate) fn closed(&mut self, key: SockKey) {
        self.stale.push(key.token());
        if let Some(end) = self.ends.remove(&key.token()) {
            self.close_end(end);
        }
        if let Some(at) = self.listeners.iter().position(|listening| listening.key == key) {
            let listening = self.listeners.swap_remove(at);
            for (_, mut end, _) in listening.backlog {
                end.reset_on_close = true;
                self.close_end(end);
            }
        }
    }

    fn close_end(&mut self, end: End) {
        let rx = &mut self.pipes[end.rx];
        rx.reader = None;
        rx.unread = true;
        // As TCP does: closing with unread data resets.
        if rx.queued > 0 || end.reset_on_close {
            self.break_pipes(end);
        } else {
            self.end_pipe(end.tx);
        }
        self.pipes[end.tx].writer = None;
        self.pipes[end.rx].segments.clear();
    }

    /// Breaks the connection; the peer learns of it when the segment arrives.
    fn break_pipes(&mut self, end: End) {
        let at_ms = self.now_ms + self.latency();
        for pipe in [end.rx, end.tx] {
            let pipe = &mut self.pipes[pipe];
            pipe.broken = true;
            pipe.segments.clear();
            pipe.queued = 0;
            let (reader, writer) = (pipe.reader, pipe.writer);
            let ready = bits::READ | bits::WRITE | bits::PEER_CLOSED;
            self.report(at_ms, reader, ready);
            self.report(at_ms, writer, ready);
        }
    }

    fn end_pipe(&mut self, id: PipeId) {
        let at_ms = (self.now_ms + self.latency()).max(self.pipes[id].last_ms);
        let pipe = &mut self.pipes[id];
        if pipe.end_ms.is_none() {
            pipe.end_ms = Some(at_ms);
            let reader = pipe.reader;
            self.report(at_ms, reader, bits::READ | bits::PEER_CLOSED);
        }
    }

    pub(crate) fn connect(&mut self, key: SockKey, addr: &SockAddr) -> io::Result<()> {
        let at_ms = self.now_ms + self.latency();
        let Some(at) = self.listeners.iter().position(|listening| listening.addr == *addr) else {
            return Err(Errno::CONNREFUSED.into());
        };
        let (client, server) = self.make_connection();
        self.attach(key, client);
        let port = self.next_port;
        self.next_port = self.next_port.wrapping_add(1).max(1024);
        let peer = SockAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        let listening = &mut self.listeners[at];
        listening.backlog.push_back((at_ms, server, peer));
        self.report(at_ms, Some(key), bits::WRITE);
        Err(Errno::INPROGRESS.into())
    }

    /// The result of connecting.
    pub(crate) fn take_error(&mut self, key: SockKey) -> io::Result<()> {
        match self.pipes[self.end(key)?.tx].broken {
            true => Err(Errno::CONNREFUSED.into()),
            false => Ok(()),
        }
    }

    /// Whether a connection has arrived at a listener.
    pub(crate) fn has_waiting(&self, key: SockKey) -> bool {
        let listening = self.listeners.iter().find(|listening| listening.key == key);
        listening.is_some_and(|l| l.backlog.iter().any(|(at, ..)| *at <= self.now_ms))
    }

    pub(crate) fn accept(&mut self, key: SockKey) -> io::Result<(OwnedFd, SockAddr)> {
        let now_ms = self.now_ms;
        let listening = self.listeners.iter_mut().find(|listening| listening.key == key);
        let backlog = &mut listening.ok_or(Errno::INVAL)?.backlog;
        // The order of arrival is not that of connecting.
        let first = backlog.iter().position(|(at, ..)| *at <= now_ms).ok_or(Errno::AGAIN)?;
        if self.rng.per_mille(self.plan.faults.again) {
            return Err(Errno::AGAIN.into());
        }
        if self.rng.per_mille(self.plan.faults.starved) {
            return Err(Errno::MFILE.into());
        }
        let fd = os::socket::socket(
            &SockAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)),
            os::socket::Kind::Stream,
        )?;
        let (_, end, peer) = backlog.remove(first).ok_or(Errno::AGAIN)?;
        self.accepted.insert(fd.as_raw_fd(), end);
        Ok((fd, peer))
    }

    pub(crate) fn recv(&mut self, key: SockKey, into: &mut Vec<u8>) -> io::Result<usize> {
        let end = self.end(key)?;
        self.maybe_break(end);
        let now_ms = self.now_ms;
        let pipe = &self.pipes[end.rx];
        if pipe.broken {
            return Err(Errno::CONNRESET.into());
        }
        let arrived = pipe.arrived(now_ms);
        if arrived == 0 {
            return if pipe.ended(now_ms) { Ok(0) } else { Err(Errno::AGAIN.into()) };
        }
        if self.rng.per_mille(self.plan.faults.again) {
            let at_ms = now_ms + self.latency();
            self.report(at_ms, Some(key), bits::READ);
            return Err(Errno::AGAIN.into());
        }
        let could = arrived.min(into.capacity() - into.len());
        let count = self.maybe_less(could);
        if count < could {
            // The rest is as good as arriving just now.
            self.report(now_ms, Some(key), bits::READ);
        }
        let pipe = &mut self.pipes[end.rx];
        let mut left = count;
        while left > 0
            && let Some((_, bytes)) = pipe.segments.front_mut()
        {
            let part = left.min(bytes.len());
            into.extend(bytes.drain(..part));
            left -= part;
            if bytes.is_empty() {
                pipe.segments.pop_front();
            }
        }
        pipe.queued -= count;
        if std::mem::take(&mut pipe.writer_waits) {
            let writer = pipe.writer;
            let at_ms = now_ms + self.latency();
            self.report(at_ms, writer, bits::WRITE);
        }
        Ok(count)
    }

    pub(crate) fn send(
        &mut self,
        key: SockKey,
        slices: &[impl Deref<Target = [u8]>],
    ) -> io::Result<usize> {
        let end = self.end(key)?;
        self.maybe_break(end);
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        let pipe = &mut self.pipes[end.tx];
        if pipe.broken || pipe.end_ms.is_some() {
            return Err(Errno::PIPE.into());
        }
        let could = len.min(self.plan.faults.window.saturating_sub(pipe.queued));
        if could == 0 {
            pipe.writer_waits = true;
            return Err(Errno::AGAIN.into());
        }
        if pipe.unread {
            // The reader is gone: these bytes are lost, and a reset comes back.
            self.break_pipes(end);
            return Ok(could);
        }
        pipe.writer_waits = could < len;
        let count = self.maybe_less(could);
        if count < could {
            let at_ms = self.now_ms + self.latency();
            self.report(at_ms, Some(key), bits::WRITE);
        }
        let at_ms = (self.now_ms + self.latency()).max(self.pipes[end.tx].last_ms);
        let pipe = &mut self.pipes[end.tx];
        let bytes = slices.iter().flat_map(|slice| slice.iter().copied()).take(count).collect();
        pipe.segments.push_back((at_ms, bytes));
        pipe.queued += count;
        pipe.last_ms = at_ms;
        let reader = pipe.reader;
        self.report(at_ms, reader, bits::READ);
        Ok(count)
    }

    fn maybe_break(&mut self, end: End) {
        if self.rng.per_mille(self.plan.faults.reset) {
            self.break_pipes(end);
        }
    }

    /// `could`, or less but not nothing.
    fn maybe_less(&mut self, could: usize) -> usize {
        match self.rng.per_mille(self.plan.faults.short) {
            true => 1 + self.rng.up_to(could as u64 - 1) as usize,
            false => could,
        }
    }

    pub(crate) fn shutdown_write(&mut self, key: SockKey) -> io::Result<()> {
        let end = self.end(key)?;
        self.end_pipe(end.tx);
        Ok(())
    }

    pub(crate) fn reset_on_close(&mut self, key: SockKey) -> io::Result<()> {
        match self.ends.get_mut(&key.token()) {
            Some(end) => end.reset_on_close = true,
            None => return Err(Errno::NOTCONN.into()),
        }
        Ok(())
    }

    /// Begins or ends the reports of a listener.
    pub(crate) fn listen(&mut self, key: SockKey, on: bool) {
        if let Some(listening) = self.listeners.iter_mut().find(|other| other.key == key) {
            listening.on = on;
        }
    }

    /// Begins to report; present readiness is reported at once.
    pub(crate) fn armed(&mut self, key: SockKey, direction: Direction) {
        let now_ms = self.now_ms;
        let Ok(end) = self.end(key) else { return };
        let (rx, tx) = (&self.pipes[end.rx], &self.pipes[end.tx]);
        let window = self.plan.faults.window;
        if direction == Direction::Write {
            if tx.broken || tx.queued < window {
                self.report(now_ms, Some(key), bits::WRITE);
            }
            return;
        }
        // Segments in flight may have been sent before the reader was known.
        let mut arrivals: Vec<u64> = rx.segments.iter().map(|(at, _)| *at).collect();
        let end_ms = if rx.broken { Some(now_ms) } else { rx.end_ms };
        arrivals.dedup();
        for at in arrivals {
            self.report(at.max(now_ms), Some(key), bits::READ);
        }
        if let Some(at) = end_ms {
            self.report(at.max(now_ms), Some(key), bits::READ | bits::PEER_CLOSED);
        }
    }

    /// When the next report is due.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let event = self.events.peek().map(|Reverse(event)| event.at_ms);
        let listening = self.listeners.iter().filter(|listening| listening.on);
        event.into_iter().chain(listening.filter_map(Listening::first_ms)).min()
    }

    /// Moves the clock to `to_ms`, or somewhat beyond; returns its new time.
    pub(crate) fn advance(&mut self, to_ms: u64) -> u64 {
        self.now_ms = self.now_ms.max(to_ms);
        if self.rng.per_mille(self.plan.faults.late) {
            self.now_ms += self.rng.up_to(20);
        }
        self.now_ms
    }

    /// The present reports, in random order.
    pub(crate) fn collect(&mut self, reports: &mut Vec<(SockKey, u8)>) {
        while let Some(Reverse(event)) = self.events.peek()
            && event.at_ms <= self.now_ms
        {
            reports.push((SockKey::from_token(event.token), event.ready));
            self.events.pop();
        }
        // Listeners are level-triggered.
        for listening in &self.listeners {
            if listening.on && listening.first_ms().is_some_and(|at| at <= self.now_ms) {
                reports.push((listening.key, bits::READ));
            }
        }
        if self.rng.per_mille(self.plan.faults.stray) {
            self.stray(reports);
        }
        self.shuffle(reports);
    }

    /// Puts a list into an order of chance.
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = self.rng.up_to(last as u64) as usize;
            list.swap(last, other);
        }
    }

    /// Whether the disk must be read.
    pub(crate) fn is_cold(&mut self) -> bool {
        self.rng.per_mille(self.plan.faults.again)
    }

    /// The duration of a thread pool's task in milliseconds: up to the delay of a segment, or the
    /// stall of a disk.
    pub(crate) fn task_ms(&mut self) -> u64 {
        match self.rng.per_mille(self.plan.faults.stalls) {
            true => self.rng.up_to(super::plan::STALL_MS),
            false => self.latency(),
        }
    }

    /// Whether a thread pool has no room for a task.
    pub(crate) fn refuses(&mut self) -> bool {
        self.rng.per_mille(self.plan.faults.refused)
    }

    /// A number from 0 to `max`, both included.
    pub(crate) fn chance(&mut self, max: u64) -> u64 {
        self.rng.up_to(max)
    }

    /// Adds a report that is wrong: of a socket that is closed, or of readiness that is not there.
    fn stray(&mut self, reports: &mut Vec<(SockKey, u8)>) {
        let ready = [bits::READ, bits::WRITE, bits::READ | bits::WRITE];
        let ready = ready[self.rng.up_to(2) as usize];
        if !self.stale.is_empty() && self.rng.per_mille(500) {
            let which = self.rng.up_to(self.stale.len() as u64 - 1) as usize;
            let token = self.stale[which];
            reports.push((SockKey::from_token(token), ready | bits::PEER_CLOSED));
        } else if let Some(pipe) = self.pipes.iter().rev().find(|pipe| pipe.reader.is_some()) {
            reports.extend(pipe.reader.map(|key| (key, ready)));
        }
    }
}

/// Whether a report reaches a socket: only armed directions are reported.
pub(crate) fn heard(entry: &SockEntry, ready: u8) -> u8 {
    let mut heard = 0;
    if entry.bits & bits::ARMED_READ != 0 {
        heard |= ready & (bits::READ | bits::PEER_CLOSED);
    }
    if entry.bits & bits::ARMED_WRITE != 0 {
        heard |= ready & bits::WRITE;
    }
    heard
}
