//! A QUIC connection: the interface between quinn-proto's connection and the protocol (HTTP/3) that
//! it carries.

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

/// The maximum number of send calls of a connection per turn, so that a fast one cannot starve the
/// others.
const PARCELS: usize = 2;

/// The minimum size of a client's first datagram (RFC 9000 section 14.1), which quinn-proto does
/// not count as received.
const FIRST_MIN: u64 = 1200;

/// The number of received bytes that pays for the processing of one frame; see
/// [`Connection::surplus_frames`].
const FRAME_BYTES: u64 = 32;

/// The maximum number of PATH_CHALLENGE tokens that are remembered.
const ASKED_MAX: usize = 16;

/// The protocol of a connection. The endpoint's task calls the methods one at a time; they may use
/// the connection.
pub trait Session {
    /// The handshake is in progress, and the client's early data (0-RTT) was accepted.
    fn early(&mut self, info: Info);

    /// The handshake is complete.
    fn established(&mut self, info: Info);

    /// The client has migrated, and its new address is validated.
    fn moved(&mut self, to: SocketAddr);

    /// The client has opened streams: [`Connection::accept`] returns them.
    fn opened(&mut self, dir: Dir);

    /// A stream has data, or its end, to read.
    fn readable(&mut self, id: StreamId);

    /// A stream whose last write was incomplete accepts more.
    fn writable(&mut self, id: StreamId);

    /// The client has sent STOP_SENDING with this code.
    fn stopped(&mut self, id: StreamId, code: u64);

    /// The client has acknowledged a whole stream.
    fn finished(&mut self, id: StreamId);

    /// All events of this turn were delivered: does the resulting work. Returns whether there is
    /// more to do after other connections had their turn.
    fn turn(&mut self) -> bool;

    /// The connection has ended.
    fn ended(&mut self, why: &Ended);
}

/// How a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The client closed it, with a code of its protocol.
    Closed(u64),
    /// The client closed it with a transport error, or failed the handshake.
    Refused(String),
    /// We closed it because of a protocol error of the client.
    Fault(String),
    /// The idle timeout has expired.
    TimedOut,
    /// The client has sent a stateless reset: it has no state of the connection.
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

/// The result of reading from a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// The next bytes.
    Data(Bytes),
    /// No data is available now.
    Nothing,
    /// The end of the stream.
    End,
    /// The client has reset the stream, with a code of its protocol.
    Reset(u64),
    /// The stream cannot be read: it has ended or was stopped.
    Gone,
}

/// The id of a client-initiated bidirectional stream with this number; `None` if the number is of
/// another type of stream (RFC 9000 section 2.1).
pub fn stream_id(number: u64) -> Option<StreamId> {
    VarInt::from_u64(number).ok().filter(|_| number.is_multiple_of(4)).map(StreamId::from)
}

/// The stream accepts no more data: the client has stopped it, or the connection has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gone;

/// A client's connection.
pub struct Connection {
    this: Weak<Connection>,
    endpoint: Weak<Endpoint>,
    handle: ConnectionHandle,
    inner: RefCell<quinn_proto::Connection>,
    session: RefCell<Option<Box<dyn Session>>>,
    /// The client's last validated address, or the one that it started with.
    known: Cell<SocketAddr>,
    /// While the client's present address is not validated: this address, and the PATH_CHALLENGE
    /// tokens sent to it.
    asked: RefCell<Option<(SocketAddr, Vec<[u8; 8]>)>>,
    /// The anti-amplification limit of addresses other than the present one.
    off_path: RefCell<OffPath>,
    watch: Option<Arc<PathWatch>>,
    /// Received frames and bytes at the last call of [`Connection::surplus_frames`].
    looked: Cell<(u64, u64)>,
    /// The handshake is in progress.
    is_shaking: Cell<bool>,
    /// The client's initial address is validated.
    is_proved: Cell<bool>,
    /// It is on the endpoint's list.
    is_listed: Cell<bool>,
    /// The time of its entry in the endpoint's timers.
    planned: Cell<Option<Instant>>,
    /// A panic has ended the connection.
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

    /// Sets the protocol session; called once, after creation.
    pub(crate) fn begin(&self, session: Box<dyn Session>) {
        *self.session.borrow_mut() = Some(session);
    }

    /// Schedules the connection for the endpoint's next turn.
    pub fn touch(&self) {
        if !self.is_listed.replace(true)
            && let (Some(endpoint), Some(this)) = (self.endpoint.upgrade(), self.this.upgrade())
        {
            endpoint.list(this);
        }
    }

    /// The client's last validated address, or the one that it started with.
    pub fn remote(&self) -> SocketAddr {
        self.known.get()
    }

    /// Whether the connection has ended or is closing.
    pub fn is_closed(&self) -> bool {
        self.is_lost.get() || self.inner.borrow().is_closed()
    }

    /// Returns the next stream that the client has opened.
    pub fn accept(&self, dir: Dir) -> Option<StreamId> {
        self.inner.borrow_mut().streams().accept(dir)
    }

    /// Opens a unidirectional stream; `None` if the client's limit is reached.
    pub fn open(&self) -> Option<StreamId> {
        self.inner.borrow_mut().streams().open(Dir::Uni)
    }

    /// Reads the next bytes of a stream, at most `max`.
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

    /// Writes to a stream as much as flow control allows. Returns the number of pieces that were
    /// written completely; the unwritten rest stays in `bytes` after them. If there is a rest,
    /// [`Session::writable`] is called once the stream accepts more.
    ///
    /// # Errors
    /// [`Gone`] if the stream was stopped or has ended, or the connection has closed.
    pub fn write(&self, id: StreamId, bytes: &mut [Bytes]) -> Result<usize, Gone> {
        let mut inner = self.inner.borrow_mut();
        let (mut taken, mut has_taken) = (0, false);
        // Writes until `Blocked`, because quinn-proto reports `Writable` only after it has returned
        // that.
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
        // Only after progress: a blocked stream that is retried in each turn must not schedule
        // another turn.
        if has_taken {
            self.touch();
        }
        Ok(taken)
    }

    /// Ends a stream after the data that was written.
    ///
    /// # Errors
    /// [`Gone`] if the stream was stopped or has ended, or the connection has closed.
    pub fn finish(&self, id: StreamId) -> Result<(), Gone> {
        let finished = self.inner.borrow_mut().send_stream(id).finish();
        self.touch();
        match finished {
            Ok(()) => Ok(()),
            Err(FinishError::Stopped(_) | FinishError::ClosedStream) => Err(Gone),
        }
    }

    /// Resets a stream that we send on, with an error code of the protocol.
    pub fn reset(&self, id: StreamId, with: u64) {
        // A finished stream needs no reset.
        let _ = self.inner.borrow_mut().send_stream(id).reset(code(with));
        self.touch();
    }

    /// Sends STOP_SENDING for a stream that the client sends on, with an error code of the
    /// protocol.
    pub fn stop(&self, id: StreamId, with: u64) {
        let _ = self.inner.borrow_mut().recv_stream(id).stop(code(with));
        self.touch();
    }

    /// Sets the priority of a stream: data of higher-ranked streams is sent first.
    pub fn rank(&self, id: StreamId, rank: i32) {
        let _ = self.inner.borrow_mut().send_stream(id).set_priority(rank);
    }

    /// The number of bytes in ack-eliciting packets that the client has acknowledged. Starts again
    /// at 0 when the client migrates.
    pub fn confirmed(&self) -> u64 {
        congestion::confirmed(self.inner.borrow().congestion_state())
    }

    /// The number of frames received since the last call beyond one per [`FRAME_BYTES`] received
    /// bytes: a measure of floods of tiny frames. ACK frames are not counted.
    pub fn surplus_frames(&self) -> u32 {
        let stats = self.inner.borrow().stats();
        let (frames, bytes) = (frames_of(&stats.frame_rx), stats.udp_rx.bytes);
        let (frames_before, bytes_before) = self.looked.replace((frames, bytes));
        let surplus = (frames - frames_before).saturating_sub((bytes - bytes_before) / FRAME_BYTES);
        u32::try_from(surplus).unwrap_or(u32::MAX)
    }

    /// Closes the connection, with an error code of its protocol. Unacknowledged data may be lost.
    pub fn close(&self, with: u64, reason: &'static str) {
        let reason = Bytes::from_static(reason.as_bytes());
        self.inner.borrow_mut().close(clock::now(), code(with), reason);
        self.touch();
    }
}

/// The number of received frames that cause work although each of them may have only a few bytes.
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
    /// Handles a datagram of `len` bytes from `from`.
    pub(crate) fn take(
        &self,
        endpoint: &Endpoint,
        event: quinn_proto::ConnectionEvent,
        from: SocketAddr,
        len: usize,
    ) {
        self.inner.borrow_mut().handle_event(event);
        // Not a migration, or not validated yet: what may be sent there is limited.
        if from != self.inner.borrow().remote_address() {
            self.off_path.borrow_mut().came(from, len);
        }
        // Delivers endpoint events at once, because each retired id is one, and a full socket
        // buffer of datagrams may arrive together. The end of the connection is left to its turn.
        if !self.inner.borrow().is_drained() {
            self.tell_endpoint(endpoint);
        }
        self.touch();
    }

    /// Whether a datagram of `len` bytes may be sent to `to`, while the connection is at `at`.
    fn may_send(&self, at: SocketAddr, to: SocketAddr, len: usize) -> bool {
        to == at || to == self.known.get() || self.off_path.borrow_mut().may_send(to, len)
    }

    /// The timer entry set for `at` is due. Ignored if a newer entry has replaced it.
    pub(crate) fn is_due(&self, at: Instant, now: Instant) {
        if self.planned.get() == Some(at) {
            self.planned.set(None);
            self.inner.borrow_mut().handle_timeout(now);
            self.touch();
        }
    }

    /// Runs the connection: delivers events to its session, and puts outgoing datagrams into the
    /// outbox. Returns whether there is more to do.
    pub(crate) fn turn(&self, endpoint: &Endpoint, outbox: &RefCell<Outbox>) -> bool {
        self.is_listed.set(false);
        // quinn-proto may have reused the handle for another connection.
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
        // Frees the session of a closed connection at once, because quinn-proto keeps the
        // connection for a while (the closing and draining periods).
        if !self.is_closed() {
            *self.session.borrow_mut() = session;
        }
        self.tell_endpoint(endpoint);
        let is_full = self.send(&mut outbox.borrow_mut());
        // After sending, because sending sets the loss detection timer.
        let at = self.inner.borrow_mut().poll_timeout();
        let mut planned = self.planned.get();
        endpoint.plan(self.handle, at, &mut planned);
        self.planned.set(planned);
        has_more || is_full
    }

    /// Called after a panic, which leaves the connection in an unknown state: drops its session,
    /// and sends nothing more. Returns its handle on the first call.
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

    /// Checks whether the client has migrated. Returns its new address once it is validated, that
    /// is when a PATH_RESPONSE with one of our tokens has arrived.
    fn proved(&self) -> Option<SocketAddr> {
        let (now, watch) = (self.inner.borrow().remote_address(), self.watch.as_ref()?);
        if now == self.known.get() {
            // The client moved back before the validation of the new address was complete.
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
                // Moved to another address: starts to record its challenges and responses.
                watch.turn(true);
                *asked = Some((now, Vec::new()));
                None
            }
        }
    }

    /// Records the PATH_CHALLENGE tokens sent to a migrated client.
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

    /// Delivers the connection's events to the endpoint: ids that it needs or retires, and its end.
    fn tell_endpoint(&self, endpoint: &Endpoint) {
        loop {
            let event = self.inner.borrow_mut().poll_endpoint_events();
            let Some(event) = event else { return };
            if let Some(event) = endpoint.take(self.handle, event) {
                self.inner.borrow_mut().handle_event(event);
            }
        }
    }

    /// Delivers the connection's events to its session.
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

    /// The parameters of the TLS session, as far as they are known.
    fn info(&self) -> Option<Info> {
        let info = self.inner.borrow().crypto_session().handshake_data()?;
        info.downcast::<Info>().ok().map(|info| *info)
    }

    /// The maximum number of datagrams that may be sent now. Until the client's address is
    /// validated, that is three times the bytes received from it (RFC 9000 section 8.1).
    /// quinn-proto may exceed this by one datagram.
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

    /// Moves the datagrams that may be sent now into the outbox; returns whether there may be more.
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
