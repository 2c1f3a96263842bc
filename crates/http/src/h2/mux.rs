//! The state of a connection that its task and its streams share: streams, windows, and the frames
//! on their way out.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use http_wire::h2::frame::{self, ErrorCode};
use http_wire::h2::hpack::Encoder;
use http_wire::h2::reset_ids::ResetIds;
use http_wire::h2::settings::Settings;
use http_wire::h2::window::{Overflow, Window};
use http_wire::priority::Parameters;
use mem::{Chain, Page};
use net::moves::Party;

pub(super) use super::entry::{Entry, Half};
use super::last_head::LastHead;

use super::schedule::Schedule;
use crate::channel::conn::Conn;
use crate::channel::streams::Gone;
use crate::channel::streams::outgoing::Room;
use crate::http2_conf::Http2;
use engine::turns::wakers;
use http_wire::address::{Address, Held};
use os::sockaddr::block_of;

/// Bytes that a stream may have in its queue before its request waits.
pub(super) const QUEUE_MAX: u64 = 64 << 10;

/// A request that waits goes on when less than this is queued.
pub(super) const QUEUE_LOW: u64 = 32 << 10;

/// Streams that learn in one turn of the loop that their connection is gone.
const ENDS_A_TURN: usize = 16;

/// Room for the control frames that are written at once.
const CONTROL_ROOM: usize = 64;

/// The largest window that a stream's body gets while its consumer keeps up.
pub(super) const RECEIVE_MAX: u32 = 1 << 20;

/// The time that a client has to end a request that was answered already, in milliseconds.
const LAME_MS: u64 = 50;

/// A client that stands still has a line about it so often, in milliseconds.
const STALL_TOLD_MS: u64 = 60_000;

/// The name of a stream: its place, and its number on the wire, which is never used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Key {
    pub slot: u32,
    pub id: u32,
}

/// Streams whose client took or sent nothing in time.
#[derive(Clone, Copy)]
struct Stall {
    /// How many there were, since anything of another stream went on.
    streams: u32,
    /// Bytes of bodies that had become frames by then.
    moved: u64,
    /// Streams that had been answered to their ends by then.
    ends: u64,
    /// The time of the line about it, milliseconds.
    told_ms: u64,
}

/// The state that the connection's task and its streams share.
pub(super) struct State {
    pub streams: Vec<Entry>,
    free: Vec<u32>,
    /// Streams that are not over.
    pub open: usize,
    /// Frames for the client.
    pub output: Chain,
    /// Bytes in it, at least.
    pub out_len: usize,
    /// Bytes that the socket took.
    pub sent: u64,
    pub encoder: Encoder,
    pub last_head: LastHead,
    pub peer: Settings,
    /// Bytes that may be sent on all streams.
    pub send: Window,
    pub schedule: Schedule,
    /// The priorities of streams that are not open yet.
    pub early: Vec<(u32, Parameters)>,
    /// The connection is gone.
    pub ended: bool,
    /// It ends for a fault of the client's, which the log tells.
    pub is_refused: bool,
    /// The client resets one stream after the other, or may be about to.
    pub is_strained: bool,
    /// Bytes of bodies that became frames.
    pub moved: u64,
    /// Streams that were answered to their ends.
    pub ends: u64,
    /// The last time that the client let a stream time out.
    stall: Option<Stall>,
    /// Bytes of their bodies that the client has not returned to the windows of these streams: it
    /// still may, as it reads them later.
    pub unreturned: u64,
    /// For fields on their way to the encoder.
    pub scratch: Vec<u8>,
    /// Bytes of memory for heads.
    pub heads_held: usize,
    /// Memory for requests, heads and parts of bodies.
    pub held: Held,
    /// Streams that were answered before all of their requests came, with the time of that.
    lame: VecDeque<(Key, u64)>,
    /// Streams that we have reset: frames of theirs may be on their way.
    pub reset_ids: ResetIds,
}

/// A connection, for its streams.
pub(super) struct Mux {
    pub(super) c: Rc<Conn>,
    pub(super) conf: Http2,
    /// The tunnels on its streams that move with it.
    pub(super) party: Rc<Party>,
    state: RefCell<State>,
    /// The connection's task, where it waits.
    waker: RefCell<Option<Waker>>,
    /// A stream has something for the task.
    news: Cell<bool>,
}

impl Mux {
    pub fn new(c: Rc<Conn>, conf: Http2) -> Mux {
        let address = Address::of(c.client_ip().map(block_of));
        Mux {
            c,
            conf,
            party: Rc::default(),
            state: RefCell::new(State::new(address)),
            waker: RefCell::new(None),
            news: Cell::new(false),
        }
    }

    /// The state, for a moment: nothing waits with it in hand.
    pub fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.state.borrow_mut())
    }

    /// The state with a stream, as long as that is not over.
    pub fn of<R>(&self, key: Key, f: impl FnOnce(&mut State, usize) -> R) -> Result<R, Gone> {
        self.with(|state| {
            let gone = state.gone(key);
            match gone {
                Some(gone) => Err(gone),
                None => Ok(f(state, key.slot as usize)),
            }
        })
    }

    /// Has the connection's task look at its streams.
    pub fn tell(&self) {
        if !self.news.replace(true)
            && let Some(waker) = self.waker.borrow_mut().take()
        {
            waker.wake();
        }
    }

    /// Whether a stream has told something; the connection's task is woken by the next word.
    pub(crate) fn poll_news(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.news.replace(false) {
            return Poll::Ready(());
        }
        wakers::keep(&mut self.waker.borrow_mut(), cx);
        Poll::Pending
    }

    /// Forgets words that were heard.
    pub fn heard(&self) {
        self.news.set(false);
    }

    /// Polls a stream as long as that is not over.
    fn poll_of<R>(
        &self,
        key: Key,
        poll: impl FnOnce(&mut State, usize) -> Poll<R>,
    ) -> Poll<Result<R, Gone>> {
        match self.of(key, poll) {
            Ok(polled) => polled.map(Ok),
            Err(gone) => Poll::Ready(Err(gone)),
        }
    }

    /// Waits until the queue of a stream has room.
    pub(crate) fn poll_room(
        &self,
        key: Key,
        room: Room,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Gone>> {
        self.poll_of(key, |state, i| {
            let entry = &mut state.streams[i];
            if entry.unread {
                return Poll::Ready(());
            }
            let has_room = match room {
                Room::All => entry.queue.is_empty(),
                Room::Some => entry.queued < QUEUE_LOW,
            };
            if has_room {
                return Poll::Ready(());
            }
            wakers::keep(&mut entry.room, cx);
            Poll::Pending
        })
    }

    /// Waits for the next piece of a body.
    pub(crate) fn poll_piece(
        &self,
        key: Key,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Page>, Gone>> {
        let polled = self.poll_of(key, |state, i| {
            if let Some(page) = state.take_piece(i) {
                return Poll::Ready(Ok(Some(page)));
            }
            let entry = &mut state.streams[i];
            if entry.malformed {
                return Poll::Ready(Err(Gone::Malformed));
            }
            if entry.has_body_ended() {
                return Poll::Ready(Ok(None));
            }
            wakers::keep(&mut entry.body, cx);
            Poll::Pending
        });
        if matches!(polled, Poll::Ready(Ok(_))) {
            self.tell();
        }
        polled.map(|taken| taken.unwrap_or_else(Err))
    }

    /// Waits until something of a body is there, or its end.
    pub(crate) fn poll_input(&self, key: Key, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        self.poll_of(key, |state, i| {
            let entry = &mut state.streams[i];
            if !entry.received.is_empty() || entry.has_body_ended() {
                return Poll::Ready(());
            }
            wakers::keep(&mut entry.body, cx);
            Poll::Pending
        })
    }

    /// Whether nobody waits for the answer of a request that is to begin: its stream was reset, or
    /// the connection ends for a fault.
    pub fn is_over(&self, key: Key) -> bool {
        self.with(|state| state.is_refused || state.gone(key).is_some())
    }

    /// Waits until a stream is reset, or its connection ends.
    pub async fn gone(&self, key: Key) {
        poll_fn(|cx| {
            let waits = self.of(key, |state, i| {
                wakers::add(&mut state.streams[i].gone, cx);
            });
            if waits.is_err() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Whether a line tells that a stream, or the connection's end, broke a request off: not where
    /// the connection was ended for a fault, which has a line, and not for more than a few of its
    /// streams, or of a client that resets one after the other.
    pub fn tells_of_end(&self) -> bool {
        self.with(|state| {
            let address = || state.held.address().is_none_or(|address| address.tells_of_end());
            !state.is_refused && !state.is_strained && address()
        })
    }

    /// The client has let a stream, or the connection, time out. Says whether a line tells that: a
    /// client that stands still lets all of its streams time out, and has one line for them.
    pub fn timed_out(&self) -> bool {
        let now_ms = base::time::now_ms();
        let last = self.with(|state| state.stall.filter(|stall| stall.ends == state.ends));
        let told_ms = last.map(|stall| stall.told_ms).filter(|ms| now_ms < ms + STALL_TOLD_MS);
        let tells = told_ms.is_none() && self.tells_of_end();
        self.with(|state| {
            let streams =
                if state.stands_still() { state.stall.map_or(0, |s| s.streams) } else { 0 };
            state.stall = Some(Stall {
                streams: streams.saturating_add(1),
                moved: state.moved,
                ends: state.ends,
                told_ms: told_ms.unwrap_or(now_ms),
            });
        });
        tells
    }

    /// The connection is gone: every stream learns it.
    pub fn end(&self) {
        self.with(|state| {
            state.set_ended();
            state.streams.iter_mut().for_each(Entry::wake_all);
        });
    }

    /// The same, of some streams in each turn of the loop: the ends of a hundred requests would
    /// hold up other connections.
    pub(crate) async fn end_in_turns(&self) {
        let streams = self.with(|state| {
            state.set_ended();
            state.streams.len()
        });
        for first in (0..streams).step_by(ENDS_A_TURN) {
            self.with(|state| {
                let some = state.streams.iter_mut().skip(first).take(ENDS_A_TURN);
                some.for_each(Entry::wake_all);
            });
            event::task::next_turn().await;
        }
    }
}

impl State {
    /// The connection is gone.
    pub(super) fn set_ended(&mut self) {
        self.ended = true;
        self.output.clear();
        self.out_len = 0;
    }

    /// A connection without streams.
    pub fn new(address: Option<Rc<Address>>) -> State {
        State {
            streams: Vec::new(),
            free: Vec::new(),
            open: 0,
            output: Chain::new(),
            out_len: 0,
            sent: 0,
            encoder: Encoder::new(),
            last_head: LastHead::default(),
            peer: Settings::default(),
            send: Window::new(http_wire::h2::window::INITIAL),
            schedule: Schedule::default(),
            early: Vec::new(),
            ended: false,
            is_refused: false,
            is_strained: false,
            moved: 0,
            ends: 0,
            stall: None,
            unreturned: 0,
            scratch: Vec::new(),
            heads_held: 0,
            held: Held::new(address),
            lame: VecDeque::new(),
            reset_ids: ResetIds::default(),
        }
    }

    /// Whether nothing of any stream went on since the last one that has timed out.
    fn stands_still(&self) -> bool {
        let now = (self.moved, self.ends);
        self.stall.is_some_and(|stall| (stall.moved, stall.ends) == now)
    }

    /// Whether the client has let several streams time out, and nothing of any other went on since.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stands_still() && self.stall.is_some_and(|stall| stall.streams > 1)
    }

    /// Puts control frames into the output.
    pub fn control(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let w = self.output.writer_for(CONTROL_ROOM);
        let before = w.len();
        write(w);
        self.out_len += w.len() - before;
    }

    /// Why a stream cannot go on, if it cannot.
    fn gone(&self, key: Key) -> Option<Gone> {
        if self.ended {
            return Some(Gone::Connection);
        }
        match self.streams.get(key.slot as usize) {
            Some(entry) if entry.id == key.id && !entry.reset => None,
            _ => Some(Gone::Reset),
        }
    }

    /// The place of a stream of this number.
    pub fn find(&self, id: u32) -> Option<usize> {
        self.streams.iter().position(|entry| entry.id == id)
    }

    /// Opens a stream.
    pub fn open(&mut self, id: u32, remote: Half, receive: u32) -> Key {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.streams.push(Entry::default());
            (self.streams.len() - 1) as u32
        });
        self.open += 1;
        let window = self.peer.window;
        // The memory of a stream that is over was given back with its end.
        let entry = &mut self.streams[slot as usize];
        entry.id = id;
        entry.has_request = true;
        entry.remote = remote;
        entry.receive = Window::new(receive);
        entry.receive_size = receive;
        entry.send = Window::new(window);
        Key { slot, id }
    }

    /// Frees the place of a stream that is over.
    pub fn settle(&mut self, i: usize) {
        let entry = &mut self.streams[i];
        if entry.id == 0 || !entry.is_over() {
            return;
        }
        if !entry.reset && !entry.has_body_ended() {
            if !std::mem::replace(&mut entry.lame, true) {
                entry.discards = true;
                let key = Key { slot: i as u32, id: entry.id };
                self.drop_body(i);
                self.lame.push_back((key, base::time::now_ms()));
            }
            return;
        }
        if !entry.reset {
            self.ends += 1;
            let unreturned = (self.peer.window as usize).saturating_sub(entry.send.left());
            self.unreturned += unreturned as u64;
        }
        self.schedule.close(i, entry);
        let head_size = entry.head_size;
        self.heads_held -= head_size;
        self.drop_body(i);
        self.held.sub(head_size);
        self.streams[i].clear();
        self.free.push(i as u32);
        self.open -= 1;
    }

    /// Tells clients to stop sending the rest of bodies that nobody reads (RFC 9113 section 8.1).
    /// They have a moment to end them themselves: a fault in them may still be told.
    pub(crate) fn end_lame(&mut self, now_ms: u64) {
        while let Some((key, since)) = self.lame.front().copied() {
            if now_ms < since + LAME_MS {
                return;
            }
            self.lame.pop_front();
            let i = key.slot as usize;
            if self.streams.get(i).is_some_and(|entry| entry.id == key.id && !entry.reset) {
                self.reset(i, ErrorCode::NO_ERROR);
            }
        }
    }

    /// Milliseconds until [`State::end_lame`] has something to do.
    pub(crate) fn lame_ms(&self) -> Option<u64> {
        let (_, since) = self.lame.front()?;
        Some((since + LAME_MS).saturating_sub(base::time::now_ms()).max(1))
    }

    /// The request of a stream ends: its response is whole, or has failed.
    pub(crate) fn request_ended(&mut self, key: Key, failed: Option<ErrorCode>, malformed: bool) {
        let i = key.slot as usize;
        let Some(entry) = self.streams.get_mut(i).filter(|entry| entry.id == key.id) else {
            return;
        };
        entry.has_request = false;
        let malformed = malformed || entry.malformed;
        if entry.reset || self.ended {
            return self.settle(i);
        }
        if let Some(code) = failed {
            self.reset(i, code);
        } else if malformed {
            self.reset(i, ErrorCode::PROTOCOL_ERROR);
        } else if entry.local == Half::Open && !entry.ends {
            // A tunnel is over.
            entry.ends = true;
            self.schedule.add(i, entry);
        } else {
            self.settle(i);
        }
    }

    /// Says that a stream is over, and remembers it for a while.
    pub(crate) fn reset_id(&mut self, id: u32, code: ErrorCode) {
        self.control(|w| frame::write_reset(w, id, code));
        self.reset_ids.insert(id);
    }

    /// Whether we reset a stream not long ago.
    pub(crate) fn was_reset_by_us(&self, id: u32) -> bool {
        self.reset_ids.contains(id)
    }

    /// Gives back memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.streams = Vec::new();
        self.free = Vec::new();
        self.lame = VecDeque::new();
        self.scratch = Vec::new();
        self.schedule.shrink();
        self.early.shrink_to_fit();
        self.encoder.forget();
        self.last_head = LastHead::default();
    }

    /// Drops the part of a body that nothing has read.
    pub(crate) fn drop_body(&mut self, i: usize) {
        let entry = &mut self.streams[i];
        entry.received.clear();
        self.held.sub(std::mem::take(&mut entry.body_held));
    }

    /// Ends a stream from our side, with its request told.
    pub fn reset(&mut self, i: usize, code: ErrorCode) {
        self.reset_id(self.streams[i].id, code);
        self.was_reset(i);
    }

    /// A stream is over by a reset of either side.
    pub fn was_reset(&mut self, i: usize) {
        let entry = &mut self.streams[i];
        entry.reset = true;
        entry.queue.clear();
        entry.queued = 0;
        // Its request may go on for a while; nothing more is sent of it, nor its end.
        self.schedule.forget(i, entry);
        entry.wake_all();
        self.drop_body(i);
        self.settle(i);
    }

    /// Takes a piece of a body.
    pub(crate) fn take_piece(&mut self, i: usize) -> Option<Page> {
        let entry = &mut self.streams[i];
        let page = entry.received.pop_front()?;
        entry.body_held -= page.len();
        self.held.sub(page.len());
        self.give_window(i, page.len());
        Some(page)
    }

    /// Bytes of a body were taken: the client may send as many more. The window grows as long as
    /// all that came was taken.
    fn give_window(&mut self, i: usize, n: usize) {
        let entry = &mut self.streams[i];
        entry.taken += n as u32;
        if entry.has_body_ended() || entry.taken < entry.receive_size / 2 {
            return;
        }
        let mut more = std::mem::take(&mut entry.taken);
        if entry.received.is_empty() && entry.receive_size < RECEIVE_MAX {
            let size = (entry.receive_size * 2).min(RECEIVE_MAX);
            more += size - entry.receive_size;
            entry.receive_size = size;
        }
        self.send_window(i, more);
    }

    /// A handler wants the body: its window becomes `size` at least.
    pub(crate) fn want_body(&mut self, i: usize, size: u32) {
        let entry = &mut self.streams[i];
        if entry.has_body_ended() || entry.receive_size >= size {
            return;
        }
        let more = size - entry.receive_size;
        entry.receive_size = size;
        self.send_window(i, more);
    }

    fn send_window(&mut self, i: usize, more: u32) {
        let entry = &mut self.streams[i];
        // It never exceeds `RECEIVE_MAX`, or what the configuration allows.
        let _ = entry.receive.add(more);
        let id = entry.id;
        self.control(|w| frame::write_window_update(w, id, more));
    }

    /// The client's initial window changed.
    pub(crate) fn resize_windows(&mut self, old: u32, new: u32) -> Result<(), Overflow> {
        for i in 0..self.streams.len() {
            if self.streams[i].id != 0 {
                self.streams[i].send.resize(old, new)?;
                self.may_send(i);
            }
        }
        Ok(())
    }
}
