//! The state of a connection that its session and its streams share.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_wire::h3::{Code, Role, message};
use http_wire::priority::Parameters;
use http_wire::qpack::{self, Decoder, Encoder};
use mem::Page;
use os::SockAddr;
use quic::{Gone as Refused, StreamId};

use crate::channel::conn::Conn;
use crate::channel::streams::Gone;
use crate::server::HttpMain;
use engine::turns::wakers;
use http_wire::address::{Address, Held};
use os::sockaddr::block_of;

/// Bytes of a body that are read ahead of its request.
const AHEAD_MAX: usize = 64 << 10;

/// The request on a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Its head is not whole.
    Head,
    /// The head waits for entries of the table.
    Blocked,
    /// It has begun.
    Begun,
}

/// A request's stream.
pub(super) struct Entry {
    pub phase: Phase,
    pub reader: message::Reader,
    /// Bytes of the stream that were not looked at.
    pub rest: Bytes,
    /// Data of the body that its request has not taken.
    pub received: VecDeque<Page>,
    /// Bytes of it.
    pub body_held: usize,
    /// Bytes of memory for the head.
    pub head_size: usize,
    /// Memory for head and body, as the client's address pays for it.
    pub held: Held,
    /// Nothing follows.
    pub ended: bool,
    /// The bytes of the body that are still to come, where its length was declared.
    pub expected: Option<u64>,
    pub malformed: bool,
    /// Nobody wants the body.
    pub discards: bool,
    /// The client has given the request up, or wants no response.
    pub reset: bool,
    /// The client has confirmed the end of the response, or wants no more of it.
    is_settled: bool,
    /// The priority that the client asks for, and that of the response's own field.
    pub asked: Parameters,
    pub own: Parameters,
    /// Wakes the request when something of the body came.
    pub body: Option<Waker>,
    /// The same when QUIC takes more of the response.
    pub room: Option<Waker>,
    /// Tasks that wait for the stream's end.
    pub gone: Vec<Waker>,
}

impl Entry {
    pub fn new(section_max: usize, address: Option<Rc<Address>>) -> Entry {
        Entry {
            phase: Phase::Head,
            reader: message::Reader::new(Role::Server, section_max),
            rest: Bytes::new(),
            received: VecDeque::new(),
            body_held: 0,
            head_size: 0,
            held: Held::new(address),
            ended: false,
            expected: None,
            malformed: false,
            discards: false,
            reset: false,
            is_settled: false,
            asked: Parameters::default(),
            own: Parameters::default(),
            body: None,
            room: None,
            gone: Vec::new(),
        }
    }

    /// Whether all of the body came.
    pub(crate) fn has_body_ended(&self) -> bool {
        self.ended && self.rest.is_empty()
    }

    /// Whether more of the body may be read before its request takes some.
    pub fn has_room(&self) -> bool {
        self.body_held < AHEAD_MAX
    }

    /// Takes data of the body.
    pub fn data(&mut self, data: &[u8]) {
        if let Some(left) = &mut self.expected {
            match left.checked_sub(data.len() as u64) {
                Some(rest) => *left = rest,
                None => return self.is_malformed(),
            }
        }
        if self.discards {
            return;
        }
        match self.received.back_mut() {
            Some(page) if page.spare() >= data.len() => page.extend_from_slice(data),
            _ => self.received.push_back(Page::copied(data)),
        }
        self.body_held += data.len();
        wakers::wake(&mut self.body);
    }

    /// Nothing follows.
    pub fn end(&mut self) {
        self.ended = true;
        self.rest = Bytes::new();
        if self.expected.is_some_and(|left| left > 0) {
            self.is_malformed();
        }
        wakers::wake(&mut self.body);
    }

    fn is_malformed(&mut self) {
        self.malformed = true;
        self.drop_body();
        wakers::wake(&mut self.body);
    }

    /// Nobody wants what came of the body, and what comes.
    pub(crate) fn drop_body(&mut self) {
        self.discards = true;
        self.received.clear();
        self.body_held = 0;
        self.weigh();
    }

    /// Memory that the stream holds has changed.
    pub fn weigh(&mut self) {
        let begun = self.reader.memory() + self.rest.len();
        self.held.set(begun + self.head_size + self.body_held);
    }

    fn take_piece(&mut self) -> Option<Page> {
        let page = self.received.pop_front()?;
        self.body_held -= page.len();
        self.weigh();
        Some(page)
    }

    pub(crate) fn wake_room(&mut self) {
        wakers::wake(&mut self.room);
    }

    pub fn wake_all(&mut self) {
        wakers::wake(&mut self.body);
        wakers::wake(&mut self.room);
        self.gone.drain(..).for_each(Waker::wake);
    }
}

/// See the module.
pub(super) struct State {
    pub streams: HashMap<StreamId, Entry, foldhash::fast::RandomState>,
    pub encoder: Encoder,
    pub decoder: Decoder,
    /// For fields on their way to the encoder.
    pub scratch: Vec<u8>,
    /// The connection is gone.
    pub ended: bool,
    /// It ends for a fault of the client's, which the log tells.
    pub is_refused: bool,
    /// Streams whose requests have begun.
    pub begun: usize,
    /// The account of the client's address.
    pub address: Option<Rc<Address>>,
    /// Responses that were given to QUIC whole, and whose ends the client has not confirmed.
    pub unconfirmed: HashSet<StreamId, foldhash::fast::RandomState>,
    /// Streams whose bodies may be read on.
    pub hungry: Vec<StreamId>,
    /// The priorities of streams that are not open yet.
    pub early: Vec<(u64, Parameters)>,
    /// The number of the first stream that the client has not opened.
    pub next_id: u64,
    /// The client resets one stream after the other, or may be about to.
    pub is_strained: bool,
}

/// A connection, for its streams.
pub(super) struct Mux {
    /// The connection as requests see it; another one when the client has moved.
    c: RefCell<Rc<Conn>>,
    quic: Rc<quic::Connection>,
    state: RefCell<State>,
}

impl Mux {
    pub fn new(c: Rc<Conn>, quic: Rc<quic::Connection>, limits: qpack::Limits) -> Mux {
        let state = State {
            streams: HashMap::default(),
            encoder: Encoder::new(),
            decoder: Decoder::new(limits),
            scratch: Vec::new(),
            ended: false,
            is_refused: false,
            begun: 0,
            address: Address::of(c.client_ip().map(block_of)),
            unconfirmed: HashSet::default(),
            hungry: Vec::new(),
            early: Vec::new(),
            next_id: 0,
            is_strained: false,
        };
        Mux { c: RefCell::new(c), quic, state: RefCell::new(state) }
    }

    /// The connection as a request that begins now sees it.
    pub fn c(&self) -> Rc<Conn> {
        self.c.borrow().clone()
    }

    /// The client has another address.
    pub fn moved(&self, main: &HttpMain, to: SockAddr) {
        let moved = Rc::new(self.c.borrow().moved(main, to));
        let address = Address::of(moved.client_ip().map(block_of));
        self.c.replace(moved);
        self.with(|state| state.address = address);
    }

    /// The connection below.
    pub fn quic(&self) -> &Rc<quic::Connection> {
        &self.quic
    }

    pub fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.state.borrow_mut())
    }

    /// Lets `f` look at a stream that is not over.
    ///
    /// # Errors
    /// It is.
    pub fn of<R>(&self, id: StreamId, f: impl FnOnce(&mut Entry) -> R) -> Result<R, Gone> {
        self.with(|state| {
            if state.ended {
                return Err(Gone::Connection);
            }
            match state.streams.get_mut(&id) {
                Some(entry) if !entry.reset => Ok(f(entry)),
                _ => Err(Gone::Reset),
            }
        })
    }

    fn poll_of<R>(
        &self,
        id: StreamId,
        f: impl FnOnce(&mut Entry) -> Poll<Result<R, Gone>>,
    ) -> Poll<Result<R, Gone>> {
        match self.of(id, f) {
            Ok(polled) => polled,
            Err(gone) => Poll::Ready(Err(gone)),
        }
    }

    /// The next piece of a body.
    pub(crate) fn poll_piece(
        &self,
        id: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Page>, Gone>> {
        let polled = self.poll_of(id, |entry| {
            if entry.malformed {
                return Poll::Ready(Err(Gone::Malformed));
            }
            if let Some(page) = entry.take_piece() {
                return Poll::Ready(Ok(Some(page)));
            }
            if entry.has_body_ended() {
                return Poll::Ready(Ok(None));
            }
            wakers::keep(&mut entry.body, cx);
            Poll::Pending
        });
        if matches!(polled, Poll::Ready(Ok(Some(_)))) {
            self.read_on(id);
        }
        polled
    }

    /// Waits until something of a body is there, or its end.
    pub(crate) fn poll_input(&self, id: StreamId, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        self.poll_of(id, |entry| {
            if !entry.received.is_empty() || entry.has_body_ended() {
                return Poll::Ready(Ok(()));
            }
            wakers::keep(&mut entry.body, cx);
            Poll::Pending
        })
    }

    /// A piece of a body that is there: `None` where there is none, an empty one at the end.
    pub(crate) fn try_piece(&self, id: StreamId) -> Result<Option<Page>, Gone> {
        let taken = self.of(id, |entry| match entry.take_piece() {
            None if entry.has_body_ended() => Some(Page::new()),
            piece => piece,
        })?;
        if taken.is_some() {
            self.read_on(id);
        }
        Ok(taken)
    }

    /// Has the session read more of a stream's body.
    fn read_on(&self, id: StreamId) {
        self.with(|state| {
            if !state.hungry.contains(&id) {
                state.hungry.push(id);
            }
        });
        self.quic.touch();
    }

    /// Gives frames to QUIC; ready when it has taken all.
    pub fn poll_write(
        &self,
        id: StreamId,
        frames: &mut VecDeque<Bytes>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Gone>> {
        match self.write(id, frames) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => self.poll_of(id, |entry| {
                wakers::keep(&mut entry.room, cx);
                Poll::Pending
            }),
            Err(gone) => Poll::Ready(Err(gone)),
        }
    }

    /// Gives frames to QUIC, as far as it takes them; says whether that is all of them.
    ///
    /// # Errors
    /// The stream is over.
    pub fn write(&self, id: StreamId, frames: &mut VecDeque<Bytes>) -> Result<bool, Gone> {
        self.of(id, |_| ())?;
        if frames.is_empty() {
            return Ok(true);
        }
        match self.quic.write(id, frames.make_contiguous()) {
            Ok(taken) => {
                frames.drain(..taken);
                Ok(frames.is_empty())
            }
            Err(Refused) if self.quic.is_closed() => Err(Gone::Connection),
            Err(Refused) => Err(Gone::Reset),
        }
    }

    /// Waits until a stream is reset, or its connection ends.
    pub async fn gone(&self, id: StreamId) {
        poll_fn(|cx| {
            let waits = self.of(id, |entry| {
                wakers::add(&mut entry.gone, cx);
            });
            if waits.is_err() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Whether nobody waits for the answer of a request that is to begin.
    pub fn is_over(&self, id: StreamId) -> bool {
        self.with(|state| state.is_refused) || self.of(id, |_| ()).is_err()
    }

    /// Whether a line tells that a stream, or the connection's end, broke a request off: not where
    /// the connection was ended for a fault, which has a line, and not for more than a few of its
    /// streams, or of a client that resets one after the other.
    pub fn tells_of_end(&self) -> bool {
        self.with(|state| {
            let address = || state.address.as_ref().is_none_or(|address| address.tells_of_end());
            !state.is_refused && !state.is_strained && address()
        })
    }

    /// Whether a line tells of a temporary file for one of the streams.
    pub fn tells_of_temp_file(&self) -> bool {
        self.with(|state| state.address.as_ref().is_none_or(|a| a.tells_of_temp_file()))
    }

    /// A request is over; its stream ends with it. With `failed`, the response is not whole.
    pub(crate) fn request_ended(&self, id: StreamId, failed: Option<Code>) {
        let Some(mut entry) = self.with(|state| state.streams.remove(&id)) else { return };
        entry.wake_all();
        let has_ended = self.with(|state| {
            state.begun -= usize::from(entry.phase == Phase::Begun);
            // Sections in the rest of the stream are not decoded (RFC 9204 section 2.2.2.2).
            if !entry.has_body_ended() {
                state.decoder.cancel(id.into());
            }
            state.ended
        });
        if has_ended {
            return;
        }
        match failed {
            Some(code) => self.quic.reset(id, code.number()),
            // The request may have gone on behind its response.
            None if entry.is_settled => {}
            None => self.with(|state| {
                state.unconfirmed.insert(id);
            }),
        }
        if !entry.has_body_ended() {
            let code = if entry.malformed { Code::MessageError } else { Code::NoError };
            self.quic.stop(id, failed.unwrap_or(code).number());
        }
    }

    /// QUIC has no more to say of a response: its end was confirmed, or the client wants no more.
    pub fn settled(&self, id: StreamId) {
        self.with(|state| {
            state.unconfirmed.remove(&id);
            if let Some(entry) = state.streams.get_mut(&id) {
                entry.is_settled = true;
            }
        });
    }

    /// The connection is gone: every stream learns it.
    pub fn end(&self) {
        self.with(|state| {
            state.ended = true;
            state.streams.values_mut().for_each(Entry::wake_all);
        });
    }
}
