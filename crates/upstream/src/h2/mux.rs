//! The state of a connection to a server, and of its streams.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::task::Waker;

use base::time::now_ms;
use bytes::Bytes;
use event::Notify;
use http_wire::h1::ResponseHead;
use http_wire::h2::frame::{self, ErrorCode, FRAME_MAX, HEAD_LEN, flag, kind};
use http_wire::h2::hpack::Encoder;
use http_wire::h2::settings::{Settings, id};
use http_wire::h2::window::{INITIAL, MAX, Window};
use mem::Chain;
use net::Transport;

use super::dial::Dialling;
use super::repeated::{Requests, Responses};
use super::stream::Stream;
use crate::pool::Pool;

/// The window of each stream: the bytes of a response that a worker holds for a client that does
/// not read, at most.
pub(super) const WINDOW: u32 = 256 << 10;

/// Bytes in the output of a connection from which on streams wait before they add to it.
const OUTPUT_MAX: usize = 64 << 10;

/// A piece of a body up to this size is copied behind its frame's head, so that both are one piece.
const COPY_MAX: usize = 4096;

/// The connection's window is opened again when the server has sent so many bytes.
const DUE_MAX: u32 = 1 << 30;

/// Empty heads that are kept for later responses.
const HEADS_KEPT: usize = 8;

/// Interim responses of a stream that nobody has taken yet.
const INTERIM_MAX: usize = 16;

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct MuxConf {
    /// Streams open at once.
    pub streams: u32,
    /// Streams in all.
    pub requests: u64,
    /// The age from which on no stream is opened, milliseconds.
    pub time_ms: u64,
    /// The time for which it is kept without streams, milliseconds.
    pub timeout_ms: u64,
}

impl MuxConf {
    /// A connection for one exchange.
    pub const ONCE: MuxConf = MuxConf { streams: 1, requests: 1, time_ms: u64::MAX, timeout_ms: 0 };
}

/// The reason why a stream ended before its response did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StreamEnd {
    /// The server did not process the request, and will not: any server can be asked.
    Refused(ErrorCode),
    /// The server reset it.
    Reset(ErrorCode),
    /// The response is malformed; the text is for the log.
    Malformed(String),
    /// A connection that was used before ended before the request was sent over it.
    Unsent,
    /// The connection ended without a word.
    Closed,
    /// The server violated the protocol; the text is for the log.
    Fault(String),
    /// The connection broke: the error number.
    Broken(i32),
    /// The time of the exchange is over: see [`Stream::end_at`].
    Late,
}

/// A connection that exchanges share.
pub struct Mux {
    pub(super) sock: Transport,
    conf: MuxConf,
    start_ms: u64,
    /// The pool that exchanges find it in, if it is in one.
    pool: Weak<Pool>,
    state: RefCell<State>,
    /// There is something to send, or the last stream is gone.
    pub(super) stirred: Notify,
    /// The server's parameters came, or the connection has ended.
    pub(super) greeted: Notify,
    /// Others wait for the server's parameters.
    dialling: Cell<Option<Dialling>>,
}

impl std::fmt::Debug for Mux {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mux").finish_non_exhaustive()
    }
}

/// The state that a connection and its streams share.
pub(super) struct State {
    encoder: Encoder,
    requests: Requests,
    pub(super) responses: Responses,
    pub(super) peer: Settings,
    /// The server's parameters came.
    pub(super) is_greeted: bool,
    /// The window of what is sent.
    pub(super) send: Window,
    /// Bytes received that the connection's window lacks.
    due: u32,
    pub(super) out: Chain,
    pub(super) out_len: usize,
    pub(super) streams: Vec<Entry>,
    /// The numbers of the streams in these places; 0: free. They lie together, to be searched.
    ids: Vec<u32>,
    free: Vec<u32>,
    /// Streams begun since the last send.
    pub(super) fresh: u32,
    /// The first stream begun since something was sent: the server knows neither it nor later ones.
    pub(super) unsent: Option<u32>,
    next_id: u32,
    /// Exchanges that have a handle, with a stream or about to have one.
    users: u32,
    /// Handles given out so far.
    taken: u64,
    /// One exchange has the connection to itself.
    is_exclusive: bool,
    /// No more streams: GOAWAY came.
    pub(super) is_leaving: bool,
    /// The reason why the connection ended.
    end: Option<StreamEnd>,
    heads: Vec<ResponseHead>,
}

/// A head of a response, and the text of its fields.
pub(super) type Received = (ResponseHead, Bytes);

/// The name of a stream: its place, and its number, which is never used again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    slot: u32,
    id: u32,
}

impl Key {
    /// Of a stream that is not begun.
    pub const NONE: Key = Key { slot: 0, id: 0 };
}

/// A stream, or the place for one.
#[derive(Default)]
pub(super) struct Entry {
    /// The exchange, where it waits for something to take, and for room to send.
    pub reader: Option<Waker>,
    pub writer: Option<Waker>,
    /// The largest head that is taken, bytes.
    pub head_max: usize,
    /// Heads that nobody took yet: interim ones and the final one.
    pub heads: VecDeque<Received>,
    pub has_head: bool,
    /// Data that nobody took yet.
    pub data: Chain,
    /// Bytes that were taken, and are not given back to the server's window yet.
    credit: u32,
    pub receive: Window,
    pub send: Window,
    pub trailers: Vec<(Bytes, Bytes)>,
    pub remote_ended: bool,
    pub local_ended: bool,
    pub end: Option<StreamEnd>,
    /// The server has sent RST_STREAM.
    pub was_reset: bool,
}

impl Entry {
    /// Whether a reader finds something new.
    pub fn is_readable(&self) -> bool {
        !self.heads.is_empty() || !self.data.is_empty() || self.remote_ended || self.end.is_some()
    }

    pub(crate) fn wake_reader(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    pub(crate) fn wake_writer(&mut self) {
        self.writer.take().into_iter().for_each(Waker::wake);
    }

    pub fn wake(&mut self) {
        self.wake_reader();
        self.wake_writer();
    }

    /// Makes the place ready for another stream: what is allocated in it stays.
    fn clear(&mut self) {
        self.heads.clear();
        self.data.clear();
        self.trailers.clear();
        let heads = std::mem::take(&mut self.heads);
        let (data, trailers) = (self.data.take(), std::mem::take(&mut self.trailers));
        *self = Entry { heads, data, trailers, ..Entry::default() };
    }
}

impl Mux {
    /// The state of a connection over which nothing was sent yet: writes our preface. `pool` is
    /// where other exchanges find it.
    pub(super) fn new(
        sock: Transport,
        conf: MuxConf,
        pool: Weak<Pool>,
        dialling: Option<Dialling>,
    ) -> Rc<Mux> {
        let mut out = Chain::new();
        let w = out.writer();
        w.extend_from_slice(frame::PREFACE);
        frame::write_settings(w, &[(id::ENABLE_PUSH, 0), (id::INITIAL_WINDOW_SIZE, WINDOW)]);
        // The windows of streams limit what a connection holds.
        frame::write_window_update(w, 0, MAX - INITIAL);
        let out_len = w.len();
        let state = State {
            encoder: Encoder::new(),
            requests: Requests::default(),
            responses: Responses::default(),
            peer: Settings::default(),
            is_greeted: false,
            send: Window::new(INITIAL),
            due: 0,
            out,
            out_len,
            streams: Vec::new(),
            ids: Vec::new(),
            free: Vec::new(),
            fresh: 0,
            unsent: None,
            next_id: 1,
            users: 0,
            taken: 0,
            is_exclusive: false,
            is_leaving: false,
            end: None,
            heads: Vec::new(),
        };
        Rc::new(Mux {
            sock,
            conf,
            start_ms: now_ms(),
            pool,
            state: RefCell::new(state),
            stirred: Notify::new(),
            greeted: Notify::new(),
            dialling: Cell::new(dialling),
        })
    }

    pub(super) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.state.borrow_mut())
    }

    /// A handle for another exchange, if it can have one. With `alone` it shares the connection
    /// with no other.
    pub fn open(self: &Rc<Mux>, alone: bool) -> Option<Stream> {
        if !self.has_room(alone) {
            return None;
        }
        let cached = self.with(|state| {
            state.users += 1;
            state.is_exclusive = alone;
            state.taken += 1;
            state.taken > 1
        });
        Some(Stream::new(self.clone(), cached))
    }

    /// Whether another exchange can have a stream now; with `alone`, as the only one.
    pub fn has_room(&self, alone: bool) -> bool {
        let is_worn = self.is_worn();
        self.with(|state| {
            // Before the server's parameters are known, one stream is safe.
            let most = match state.is_greeted {
                true => self.conf.streams.min(state.peer.max_streams),
                false => 1,
            };
            let is_open = !state.is_over() && !is_worn && !state.is_exclusive;
            is_open && state.users < most && !(alone && state.users > 0)
        })
    }

    /// Exchanges that use it now.
    pub fn users(&self) -> u32 {
        self.with(|state| state.users)
    }

    /// Whether no further exchange can use it, now or later.
    pub fn is_over(&self) -> bool {
        self.is_worn() || self.with(|state| state.is_over())
    }

    fn is_worn(&self) -> bool {
        let age = now_ms().saturating_sub(self.start_ms);
        age > self.conf.time_ms || self.with(|state| state.taken >= self.conf.requests)
    }

    /// The time for which it waits for another exchange; `None`: it ends.
    pub(super) fn idle_ms(&self) -> Option<u64> {
        let pool = self.pool.upgrade()?;
        let ms = self.conf.timeout_ms;
        (!self.is_over() && ms > 0 && pool.keeps_idle()).then_some(ms)
    }

    /// An exchange is done with it.
    pub(super) fn leave(&self) {
        let is_last = self.with(|state| {
            state.users -= 1;
            state.is_exclusive &= state.users > 0;
            state.users == 0
        });
        if is_last {
            self.stirred.notify_one();
        }
    }

    /// The server's parameters are known.
    pub(super) fn was_greeted(&self) {
        self.greeted.notify_all();
        if let Some(dialling) = self.dialling.take() {
            dialling.done();
        }
    }

    /// The connection has ended: tells all streams.
    pub(super) fn end(&self, end: StreamEnd) {
        self.with(|state| {
            let end = state.end.get_or_insert(end).clone();
            state.out.clear();
            state.out_len = 0;
            // A server that closes a connection before it got anything may do so with the next.
            let unsent = state.unsent.filter(|_| state.taken > 1);
            for (id, entry) in state.live() {
                let is_unsent = unsent.is_some_and(|first| id >= first);
                let end = if is_unsent { &StreamEnd::Unsent } else { &end };
                if !entry.remote_ended {
                    entry.end.get_or_insert_with(|| end.clone());
                }
                entry.local_ended = true;
                entry.wake();
            }
        });
        self.greeted.notify_all();
        self.dialling.set(None);
        if let Some(pool) = self.pool.upgrade() {
            pool.forget(self);
        }
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.is_leaving || self.end.is_some() || self.next_id > MAX
    }

    /// Whether the server takes requests for another protocol by CONNECT (RFC 8441); `None` before
    /// it said so.
    pub(super) fn takes_connect(&self) -> Option<bool> {
        let is_known = self.is_greeted || self.end.is_some();
        is_known.then_some(self.peer.connect_protocol)
    }

    /// The place of the stream of a number, if it is not over.
    pub(super) fn find(&self, id: u32) -> Option<usize> {
        self.ids.iter().position(|&other| other == id).filter(|_| id > 0)
    }

    /// The place of a stream, if it is not over.
    pub(super) fn place(&self, key: Key) -> Option<usize> {
        let at = key.slot as usize;
        (key.id > 0 && self.ids.get(at) == Some(&key.id)).then_some(at)
    }

    /// The streams, with their numbers.
    pub(super) fn live(&mut self) -> impl Iterator<Item = (u32, &mut Entry)> {
        self.ids.iter().copied().zip(&mut self.streams).filter(|(id, _)| *id > 0)
    }

    /// Whether a stream of that number was never begun.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        id.is_multiple_of(2) || id >= self.next_id
    }

    /// Begins a stream with a request's head. Gives its name.
    pub(super) fn begin(
        &mut self,
        list: &[u8],
        end: bool,
        head_max: usize,
    ) -> Result<Key, StreamEnd> {
        if let Some(end) = &self.end {
            return Err(end.clone());
        }
        if self.is_over() {
            return Err(StreamEnd::Refused(ErrorCode::NO_ERROR));
        }
        let id = self.next_id;
        self.next_id += 2;
        let max = (self.peer.frame_max as usize).min(FRAME_MAX);
        let w = self.out.writer_for(HEAD_LEN + list.len() + 64);
        let at = w.len();
        w.extend_from_slice(&[0; HEAD_LEN]);
        self.requests.encode(&mut self.encoder, list, w);
        frame::frame_block(w, at, id, if end { flag::END_STREAM } else { 0 }, max);
        self.out_len += w.len() - at;
        self.fresh += 1;
        self.unsent.get_or_insert(id);
        let slot = self.free.pop().unwrap_or(self.streams.len() as u32);
        let at = slot as usize;
        if at == self.streams.len() {
            self.streams.push(Entry::default());
            self.ids.push(0);
        }
        self.ids[at] = id;
        let entry = &mut self.streams[at];
        entry.head_max = head_max;
        entry.receive = Window::new(WINDOW);
        entry.send = Window::new(self.peer.window);
        entry.local_ended = end;
        Ok(Key { slot, id })
    }

    /// Appends frames to the output.
    pub(super) fn control(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let w = self.out.writer();
        let before = w.len();
        write(w);
        self.out_len += w.len() - before;
    }

    /// Bytes of a body that a stream can send now.
    pub(super) fn room(&self, at: usize) -> usize {
        let free = OUTPUT_MAX.saturating_sub(self.out_len);
        self.streams[at].send.left().min(self.send.left()).min(free)
    }

    /// Puts what fits of a body into DATA frames; `last`: nothing follows it. Gives the number of
    /// bytes.
    pub(super) fn send_data(&mut self, at: usize, body: &mut Chain, last: bool) -> usize {
        let most = (self.peer.frame_max as usize).min(FRAME_MAX);
        let mut sent = 0;
        loop {
            let len = (body.len() as usize).min(self.room(at)).min(most);
            let ends = last && len as u64 == body.len();
            if len == 0 && !ends || self.streams[at].local_ended {
                return sent;
            }
            let entry = &mut self.streams[at];
            entry.send.take(len);
            self.send.take(len);
            entry.local_ended = ends;
            let (id, flags) = (self.ids[at], if ends { flag::END_STREAM } else { 0 });
            let all = len as u64 == body.len();
            let mut part = if all { body.take() } else { body.split_to(len as u64) };
            let copied = part.single().filter(|bytes| bytes.len() <= COPY_MAX);
            let w = self.out.writer_for(HEAD_LEN + copied.map_or(0, <[u8]>::len));
            frame::write_head(w, len, kind::DATA, flags, id);
            match copied {
                Some(bytes) => w.extend_from_slice(bytes),
                None => self.out.append(&mut part),
            }
            self.out_len += HEAD_LEN + len;
            sent += len;
        }
    }

    /// Takes data that was received for a stream, and opens its window again.
    pub(super) fn take_data(&mut self, at: usize) -> Option<mem::Buf> {
        let entry = &mut self.streams[at];
        let piece = entry.data.pop_front()?;
        self.consumed(at, piece.len() as u32);
        Some(piece)
    }

    /// So many bytes of a stream are not held any more.
    pub(super) fn consumed(&mut self, at: usize, len: u32) {
        let entry = &mut self.streams[at];
        entry.credit += len;
        if entry.credit < WINDOW / 2 || entry.remote_ended {
            return;
        }
        let (id, credit) = (self.ids[at], std::mem::take(&mut entry.credit));
        // It was taken from that window before.
        let _ = entry.receive.add(credit);
        self.control(|w| frame::write_window_update(w, id, credit));
    }

    /// The connection received so many bytes that count.
    pub(super) fn count(&mut self, len: usize) {
        self.due += len as u32;
        if self.due >= DUE_MAX {
            let due = std::mem::take(&mut self.due);
            self.control(|w| frame::write_window_update(w, 0, due));
        }
    }

    /// Resets a stream for a fault of the response, unless it is over.
    pub(super) fn refuse(&mut self, at: usize, code: ErrorCode, end: StreamEnd) {
        let entry = &mut self.streams[at];
        entry.end = Some(end);
        entry.local_ended = true;
        entry.data.clear();
        entry.wake();
        let id = self.ids[at];
        self.control(|w| frame::write_reset(w, id, code));
    }

    /// Puts a head into its stream's queue; false where too many are there.
    pub(super) fn add_head(&mut self, at: usize, head: Received) -> bool {
        let entry = &mut self.streams[at];
        entry.heads.push_back(head);
        entry.heads.len() <= INTERIM_MAX
    }

    /// An empty head.
    pub(super) fn fresh_head(&mut self) -> ResponseHead {
        self.heads.pop().unwrap_or_default()
    }

    /// Keeps a head for a later response.
    pub(super) fn recycle(&mut self, head: ResponseHead) {
        if self.heads.len() < HEADS_KEPT {
            self.heads.push(head);
        }
    }

    /// Wakes all streams that have something to send.
    pub(super) fn wake_writers(&mut self) {
        self.live().for_each(|(_, entry)| entry.wake_writer());
    }

    /// The server has other parameters.
    pub(super) fn resize(&mut self, before: Settings) -> bool {
        self.encoder.set_limit(self.peer.header_table as usize);
        let (old, new) = (before.window, self.peer.window);
        let fits = self.live().all(|(_, entry)| entry.send.resize(old, new).is_ok());
        self.wake_writers();
        fits
    }

    /// Ends an exchange's part in a stream, at whatever point.
    pub(super) fn close(&mut self, key: Key) {
        let Some(at) = self.place(key) else { return };
        let entry = &mut self.streams[at];
        let is_open = !entry.remote_ended || !entry.local_ended;
        let resets = is_open && entry.end.is_none() && self.end.is_none();
        entry.clear();
        self.ids[at] = 0;
        self.free.push(key.slot);
        if resets {
            self.control(|w| frame::write_reset(w, key.id, ErrorCode::CANCEL));
        }
    }

    /// Frees what an idle connection does not need.
    pub(super) fn shrink(&mut self) {
        self.heads = Vec::new();
        self.requests = Requests::default();
        self.responses = Responses::default();
        if self.free.len() == self.streams.len() {
            self.streams = Vec::new();
            self.ids = Vec::new();
            self.free = Vec::new();
        }
    }
}
