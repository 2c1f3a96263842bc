//! A connection: its streams, for the protocol that it carries.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use event::task::caught;
use quinn_proto::{
    ConnectionError, ConnectionHandle, Dir, Event, FinishError, FrameStats, ReadError,
    ReadableError, StreamEvent, StreamId, TransportErrorCode, VarInt, WriteError,
};
use tls::Info;
use tls::quic::PathWatch;

use crate::clock;
use crate::congestion;
use crate::endpoint::Endpoint;
use crate::off_path::OffPath;
use crate::outbox::{Outbox, SEGMENTS_MAX};

/// The calls' worth of datagrams that a connection sends before others have their turns.
const PARCELS: usize = 2;

/// The least length of a client's first datagram (RFC 9000 section 14.1). It is not counted among
/// those that came.
const FIRST_MIN: u64 = 1200;

/// Bytes that are worth the work of a frame.
const FRAME_BYTES: u64 = 32;

/// The questions of a path that are remembered.
const ASKED_MAX: usize = 16;

/// The protocol of a connection. Its methods are called one after the other, from the endpoint's
/// task; it may use its connection meanwhile.
pub trait Session {
    /// The handshake is under way, and early data of the client's is taken.
    fn early(&mut self, info: Info);

    /// The handshake is at its end.
    fn established(&mut self, info: Info);

    /// The client has moved, and proved that its new address is its own.
    fn moved(&mut self, to: SocketAddr);

    /// The client has opened streams: [`Connection::accept`] gives them.
    fn opened(&mut self, dir: Dir);

    /// Something came on a stream, or its end.
    fn readable(&mut self, id: StreamId);

    /// Something may be written to a stream that took no more.
    fn writable(&mut self, id: StreamId);

    /// The client wants no more of a stream.
    fn stopped(&mut self, id: StreamId, code: u64);

    /// The client has got all of a stream.
    fn finished(&mut self, id: StreamId);

    /// All that came was told: the time for what it makes necessary. Says whether something is left
    /// to do when others have had their turns.
    fn turn(&mut self) -> bool;

    /// The connection is over.
    fn ended(&mut self, why: &Ended);
}

/// How a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The client closed it, with a code of its protocol.
    Closed(u64),
    /// The client closed it for a fault of ours, or ended the handshake.
    Refused(String),
    /// We have ended it for a fault of the client's.
    Fault(String),
    /// The client has not been heard for too long.
    TimedOut,
    /// The client knows nothing of it any more.
    Reset,
    /// We closed it.
    Here,
}

impl Ended {
    fn of(e: &ConnectionError) -> Ended {
        match e {
            ConnectionError::ApplicationClosed(closed) => Ended::Closed(closed.error_code.into()),
            ConnectionError::ConnectionClosed(closed)
                if closed.error_code == TransportErrorCode::NO_ERROR =>
            {
                Ended::Closed(0)
            }
            ConnectionError::ConnectionClosed(closed) => Ended::Refused(closed.to_string()),
            ConnectionError::TransportError(e) => Ended::Fault(e.to_string()),
            ConnectionError::TimedOut => Ended::TimedOut,
            ConnectionError::Reset => Ended::Reset,
            ConnectionError::LocallyClosed => Ended::Here,
            other => Ended::Fault(other.to_string()),
        }
    }
}

/// A look at what came on a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// The next bytes.
    Data(Bytes),
    /// There is nothing now.
    Nothing,
    /// Nothing follows.
    End,
    /// The client gave it up, with a code of its protocol.
    Reset(u64),
    /// It is no stream that could be read: it ended, or was stopped.
    Gone,
}

/// A stream that a client has opened for both directions, of which this is the number.
pub fn stream_id(number: u64) -> Option<StreamId> {
    VarInt::from_u64(number).ok().filter(|_| number.is_multiple_of(4)).map(StreamId::from)
}

/// The stream takes nothing any more: the client wants none of it, or the connection is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone;

/// A client's connection.
pub struct Connection {
    this: Weak<Connection>,
    endpoint: Weak<Endpoint>,
    handle: ConnectionHandle,
    inner: RefCell<quinn_proto::Connection>,
    session: RefCell<Option<Box<dyn Session>>>,
    /// The client's address, of those that it has proved the last one.
    known: Cell<SocketAddr>,
    /// Where it has not proved the one that it sends from: what it is asked there.
    asked: RefCell<Option<(SocketAddr, Vec<[u8; 8]>)>>,
    /// The allowance for addresses other than the one that it is at.
    off_path: RefCell<OffPath>,
    watch: Option<Arc<PathWatch>>,
    /// The frames that came, and the bytes that they came in, when they were last looked at.
    looked: Cell<(u64, u64)>,
    /// The handshake is under way.
    is_shaking: Cell<bool>,
    /// The client has shown that it gets what is sent to the address that it began with.
    is_proved: Cell<bool>,
    /// It is on the endpoint's list.
    is_listed: Cell<bool>,
    /// When it is looked at for the time's sake.
    planned: Cell<Option<Instant>>,
    /// A panic has ended it.
    is_lost: Cell<bool>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.handle.0)
    }
}

fn code(n: u64) -> VarInt {
    VarInt::from_u64(n).unwrap_or(VarInt::MAX)
}

impl Connection {
    pub(crate) fn new(
        endpoint: &Rc<Endpoint>,
        handle: ConnectionHandle,
        inner: quinn_proto::Connection,
        is_proved: bool,
    ) -> Rc<Connection> {
        let known = Cell::new(inner.remote_address());
        let watch = inner.crypto_session().peer_identity();
        let watch = watch.and_then(|watch| watch.downcast::<Arc<PathWatch>>().ok());
        Rc::new_cyclic(|this| Connection {
            known,
            asked: RefCell::default(),
            off_path: RefCell::default(),
            looked: Cell::default(),
            watch: watch.map(|watch| *watch),
            this: this.clone(),
            endpoint: Rc::downgrade(endpoint),
            handle,
            inner: RefCell::new(inner),
            session: RefCell::default(),
            is_shaking: Cell::new(true),
            is_proved: Cell::new(is_proved),
            is_listed: Cell::new(false),
            planned: Cell::new(None),
            is_lost: Cell::new(false),
        })
    }

    pub(crate) fn begin(&self, session: Box<dyn Session>) {
        *self.session.borrow_mut() = Some(session);
    }

    /// Has the endpoint look at it.
    pub fn touch(&self) {
        if !self.is_listed.replace(true)
            && let (Some(endpoint), Some(this)) = (self.endpoint.upgrade(), self.this.upgrade())
        {
            endpoint.list(this);
        }
    }

    /// The client's address: one that it has shown to be its own, or that it began with.
    pub fn remote(&self) -> SocketAddr {
        self.known.get()
    }

    /// Whether the connection is over, or about to be.
    pub fn is_closed(&self) -> bool {
        self.is_lost.get() || self.inner.borrow().is_closed()
    }

    /// The next stream that the client has opened.
    pub fn accept(&self, dir: Dir) -> Option<StreamId> {
        self.inner.borrow_mut().streams().accept(dir)
    }

    /// Opens a stream that only we send on; none where the client allows no more.
    pub fn open(&self) -> Option<StreamId> {
        self.inner.borrow_mut().streams().open(Dir::Uni)
    }

    /// The next bytes of a stream, `max` at most.
    pub fn read(&self, id: StreamId, max: usize) -> Read {
        let mut inner = self.inner.borrow_mut();
        let mut stream = inner.recv_stream(id);
        let mut chunks = match stream.read(true) {
            Ok(chunks) => chunks,
            Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => {
                return Read::Gone;
            }
        };
        let read = match chunks.next(max) {
            Ok(Some(chunk)) => Read::Data(chunk.bytes),
            Ok(None) => Read::End,
            Err(ReadError::Blocked) => Read::Nothing,
            Err(ReadError::Reset(code)) => Read::Reset(code.into()),
        };
        let tells = chunks.finalize().should_transmit();
        drop(inner);
        if tells {
            self.touch();
        }
        read
    }

    /// Writes bytes to a stream, as far as it takes them: what is left stays in `bytes`, behind as
    /// many pieces as are told. Where something is left, [`Session::writable`] tells when more may
    /// be written.
    ///
    /// # Errors
    /// It takes nothing any more.
    pub fn write(&self, id: StreamId, bytes: &mut [Bytes]) -> Result<usize, Gone> {
        let mut inner = self.inner.borrow_mut();
        let (mut taken, mut has_taken) = (0, false);
        // Until it says so, a stream that took a part will not tell that it takes more.
        while let Some(rest) = bytes.get_mut(taken..).filter(|rest| !rest.is_empty()) {
            match inner.send_stream(id).write_chunks(rest) {
                Ok(written) => {
                    taken += written.chunks;
                    has_taken |= written.bytes > 0;
                }
                Err(WriteError::Blocked) if inner.is_closed() => return Err(Gone),
                Err(WriteError::Blocked) => break,
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => return Err(Gone),
            }
        }
        drop(inner);
        // A try again in each turn does not bring about the next one.
        if has_taken {
            self.touch();
        }
        Ok(taken)
    }

    /// Ends a stream behind what was written.
    ///
    /// # Errors
    /// It takes nothing any more.
    pub fn finish(&self, id: StreamId) -> Result<(), Gone> {
        let finished = self.inner.borrow_mut().send_stream(id).finish();
        self.touch();
        match finished {
            Ok(()) => Ok(()),
            Err(FinishError::Stopped(_) | FinishError::ClosedStream) => Err(Gone),
        }
    }

    /// Gives up a stream that we send on.
    pub fn reset(&self, id: StreamId, with: u64) {
        // One that has ended needs none.
        let _ = self.inner.borrow_mut().send_stream(id).reset(code(with));
        self.touch();
    }

    /// Wants no more of a stream that the client sends on.
    pub fn stop(&self, id: StreamId, with: u64) {
        let _ = self.inner.borrow_mut().recv_stream(id).stop(code(with));
        self.touch();
    }

    /// The stream's rank among those that have something to send: higher ones go first.
    pub fn rank(&self, id: StreamId, rank: i32) {
        let _ = self.inner.borrow_mut().send_stream(id).set_priority(rank);
    }

    /// The bytes of packets that the client has confirmed, of those that had something to confirm.
    /// It counts from 0 again when the client moves.
    pub fn confirmed(&self) -> u64 {
        congestion::confirmed(self.inner.borrow().congestion_state())
    }

    /// The frames that came since the last call beyond one for each [`FRAME_BYTES`] that came.
    /// Confirmations are not counted.
    pub fn surplus_frames(&self) -> u32 {
        let stats = self.inner.borrow().stats();
        let (frames, bytes) = (frames_of(&stats.frame_rx), stats.udp_rx.bytes);
        let (frames_before, bytes_before) = self.looked.replace((frames, bytes));
        let surplus = (frames - frames_before).saturating_sub((bytes - bytes_before) / FRAME_BYTES);
        u32::try_from(surplus).unwrap_or(u32::MAX)
    }

    /// Closes the connection, with a code of its protocol. What was not confirmed may be lost.
    pub fn close(&self, with: u64, reason: &'static str) {
        let reason = Bytes::from_static(reason.as_bytes());
        self.inner.borrow_mut().close(clock::now(), code(with), reason);
        self.touch();
    }
}

/// The frames that make work, each of which may have a few bytes.
fn frames_of(came: &FrameStats) -> u64 {
    let limits =
        came.max_data + came.max_stream_data + came.max_streams_bidi + came.max_streams_uni;
    let blocked = came.data_blocked
        + came.stream_data_blocked
        + came.streams_blocked_bidi
        + came.streams_blocked_uni;
    let ids = came.new_connection_id + came.retire_connection_id;
    let paths = came.path_challenge + came.path_response + came.ping;
    let streams = came.stream + came.reset_stream + came.stop_sending;
    limits + blocked + ids + paths + streams + came.crypto + came.ack_frequency + came.immediate_ack
}

/// Called by the endpoint.
impl Connection {
    /// A datagram of `len` bytes came.
    pub(crate) fn take(
        &self,
        endpoint: &Endpoint,
        event: quinn_proto::ConnectionEvent,
        from: SocketAddr,
        len: usize,
    ) {
        self.inner.borrow_mut().handle_event(event);
        if from != self.inner.borrow().remote_address() {
            self.off_path.borrow_mut().came(from, len);
        }
        // Each id that is given back is an event, and as many datagrams may have come together as
        // the socket holds. The end of the connection has its turn.
        if !self.inner.borrow().is_drained() {
            self.tell_endpoint(endpoint);
        }
        self.touch();
    }

    /// Whether a datagram may be sent where it is to go.
    fn may_send(&self, at: SocketAddr, to: SocketAddr, len: usize) -> bool {
        to == at || to == self.known.get() || self.off_path.borrow_mut().may_send(to, len)
    }

    /// An entry of the timers is due.
    pub(crate) fn is_due(&self, at: Instant, now: Instant) {
        if self.planned.get() == Some(at) {
            self.planned.set(None);
            self.inner.borrow_mut().handle_timeout(now);
            self.touch();
        }
    }

    /// Does what there is to do, and puts the datagrams to send into the outbox. Says whether
    /// something is left.
    pub(crate) fn turn(&self, endpoint: &Endpoint, outbox: &RefCell<Outbox>) -> bool {
        self.is_listed.set(false);
        // Its number may be another connection's by now.
        if self.is_lost.get() {
            return false;
        }
        self.tell_endpoint(endpoint);
        if self.is_shaking.get() && (!self.inner.borrow().is_handshaking() || self.is_closed()) {
            self.is_shaking.set(false);
            endpoint.shaken();
        }
        let mut session = self.session.borrow_mut().take();
        let has_more = match &mut session {
            Some(session) => {
                self.tell_session(&mut **session);
                if let Some(to) = self.proved() {
                    session.moved(to);
                }
                session.turn()
            }
            None => false,
        };
        // Of a connection that is over nothing comes, and it may take a while to be forgotten.
        if !self.is_closed() {
            *self.session.borrow_mut() = session;
        }
        self.tell_endpoint(endpoint);
        let is_full = self.send(&mut outbox.borrow_mut());
        let at = self.inner.borrow_mut().poll_timeout();
        let mut planned = self.planned.get();
        endpoint.plan(self.handle, at, &mut planned);
        self.planned.set(planned);
        has_more || is_full
    }

    /// A panic has left it in an unknown state: its protocol ends, and nothing more is sent. Gives
    /// its number, once.
    pub(crate) fn lose(&self, endpoint: &Endpoint) -> Option<ConnectionHandle> {
        if self.is_lost.replace(true) {
            return None;
        }
        if self.is_shaking.replace(false) {
            endpoint.shaken();
        }
        let session = self.session.borrow_mut().take();
        let _ = caught(|| drop(session));
        Some(self.handle)
    }

    /// Looks whether the client has moved, and gives its new address when it has proved that.
    fn proved(&self) -> Option<SocketAddr> {
        let (now, watch) = (self.inner.borrow().remote_address(), self.watch.as_ref()?);
        if now == self.known.get() {
            if watch.is_on() {
                watch.turn(false);
                self.asked.replace(None);
            }
            return None;
        }
        let mut asked = self.asked.borrow_mut();
        match &mut *asked {
            Some((of, tokens)) if *of == now => {
                if !watch.responses().iter().any(|data| tokens.contains(data)) {
                    return None;
                }
                watch.turn(false);
                *asked = None;
                self.known.set(now);
                Some(now)
            }
            _ => {
                watch.turn(true);
                *asked = Some((now, Vec::new()));
                None
            }
        }
    }

    /// Notes what a client that has moved is asked.
    fn note_asked(&self, to: SocketAddr) {
        let Some(watch) = self.watch.as_ref().filter(|watch| watch.is_on()) else { return };
        let sent = watch.challenges();
        if let Some((of, tokens)) = &mut *self.asked.borrow_mut()
            && *of == to
        {
            tokens.extend(sent);
            let old = tokens.len().saturating_sub(ASKED_MAX);
            tokens.drain(..old);
        }
    }

    /// Tells the endpoint of ids that are asked for, or given back, and of the end.
    fn tell_endpoint(&self, endpoint: &Endpoint) {
        loop {
            let event = self.inner.borrow_mut().poll_endpoint_events();
            let Some(event) = event else { return };
            if let Some(event) = endpoint.take(self.handle, event) {
                self.inner.borrow_mut().handle_event(event);
            }
        }
    }

    fn tell_session(&self, session: &mut dyn Session) {
        loop {
            let event = self.inner.borrow_mut().poll();
            match event {
                None => return,
                Some(Event::Stream(event)) => match event {
                    StreamEvent::Opened { dir } => session.opened(dir),
                    StreamEvent::Readable { id } => session.readable(id),
                    StreamEvent::Writable { id } => session.writable(id),
                    StreamEvent::Stopped { id, error_code } => {
                        session.stopped(id, error_code.into());
                    }
                    StreamEvent::Finished { id } => session.finished(id),
                    StreamEvent::Available { .. } => {}
                },
                Some(Event::Connected) => {
                    session.established(self.info().unwrap_or_default());
                }
                Some(Event::ConnectionLost { reason }) => session.ended(&Ended::of(&reason)),
                Some(Event::HandshakeDataReady) => {
                    let info = self.info();
                    if let Some(info) = info.filter(|info| info.has_early_data) {
                        session.early(info);
                    }
                }
                Some(Event::DatagramReceived | Event::DatagramsUnblocked) => {}
            }
        }
    }

    /// The facts of the TLS session, as far as they are known.
    fn info(&self) -> Option<Info> {
        let info = self.inner.borrow().crypto_session().handshake_data()?;
        info.downcast::<Info>().ok().map(|info| *info)
    }

    /// The most datagrams that may leave now: to an address that may be somebody else's, three
    /// times as much as came from there (RFC 9000 section 8.1). quinn-proto sends up to one
    /// datagram more.
    fn allowed(&self, inner: &quinn_proto::Connection) -> usize {
        let is_proved = || self.watch.as_ref().is_none_or(|watch| watch.is_proved());
        if self.is_proved.get() || is_proved() {
            self.is_proved.set(true);
            return SEGMENTS_MAX;
        }
        let stats = inner.stats();
        let left = (3 * (FIRST_MIN + stats.udp_rx.bytes)).saturating_sub(stats.udp_tx.bytes);
        let datagrams = left / u64::from(inner.current_mtu().max(1));
        usize::try_from(datagrams).map_or(SEGMENTS_MAX, |n| n.min(SEGMENTS_MAX))
    }

    /// Takes the datagrams that may leave now; says whether there may be more.
    fn send(&self, outbox: &mut Outbox) -> bool {
        let mut inner = self.inner.borrow_mut();
        let now = clock::now();
        for _ in 0..PARCELS {
            if outbox.is_full() {
                return true;
            }
            let most = self.allowed(&inner);
            if most == 0 {
                return false;
            }
            let mut bytes = outbox.buffer();
            match inner.poll_transmit(now, most, &mut bytes) {
                Some(sent)
                    if !self.may_send(inner.remote_address(), sent.destination, sent.size) =>
                {
                    outbox.give_back(bytes);
                }
                Some(sent) => {
                    self.note_asked(sent.destination);
                    outbox.push(bytes, sent);
                }
                None => {
                    outbox.give_back(bytes);
                    return false;
                }
            }
        }
        true
    }
}
