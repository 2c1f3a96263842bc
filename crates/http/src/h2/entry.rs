//! A stream of a connection, as the connection sees it.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::Bytes;
use files::ReadSettings;
use http_wire::h2::frame::FRAME_MAX;
use http_wire::h2::tree::Place;
use http_wire::h2::window::Window;
use mem::{Chain, Page};

use super::priority::Priority;
use engine::turns::wakers;

/// The client's half of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Half {
    Open,
    Ended,
}

/// A stream.
pub(super) struct Entry {
    pub id: u32,
    /// A request answers it.
    pub has_request: bool,
    pub remote: Half,
    /// We sent the end, or nothing is to be sent any more.
    pub local: Half,
    pub reset: bool,
    /// The request does not have the form that it should, which its answer says.
    pub malformed: bool,
    /// Bytes of memory for the head.
    pub head_size: usize,

    /// The body's bytes that no one took yet.
    pub received: VecDeque<Page>,
    /// Bytes of them.
    pub body_held: usize,
    /// Bytes of the declared length that did not come yet.
    pub expected: Option<u64>,
    /// It was answered before all of its request came.
    pub lame: bool,
    /// Nobody wants the body.
    pub discards: bool,
    /// Bytes that the client may still send.
    pub receive: Window,
    /// The window that the client is given as long as the body is taken.
    pub receive_size: u32,
    /// Bytes that were taken and are not given to the client as a window again.
    pub taken: u32,

    /// Bytes of the response that wait for their turn or a window.
    pub queue: Chain,
    pub queued: u64,
    /// The reader of files in the queue.
    pub reading: ReadSettings,
    /// The file in front of the queue is not in memory: the request fetches a piece of it.
    pub unread: bool,
    /// The response ends behind the queue.
    pub ends: bool,
    pub trailers: Vec<(Bytes, Bytes)>,
    pub send: Window,
    /// The most bytes of the response in a frame.
    pub chunk: usize,
    pub priority: Priority,
    /// It stands in the schedule.
    pub scheduled: bool,
    /// Its place in the tree, where the client uses one.
    pub place: Option<Place>,
    /// The round of the schedule in which its request was woken to make more.
    pub woken: u32,
    /// Bytes of frames' heads.
    pub framing: u64,

    pub room: Option<Waker>,
    pub body: Option<Waker>,
    pub gone: Vec<Waker>,
}

impl Default for Entry {
    fn default() -> Entry {
        Entry {
            id: 0,
            has_request: false,
            remote: Half::Open,
            local: Half::Open,
            reset: false,
            malformed: false,
            head_size: 0,
            received: VecDeque::new(),
            body_held: 0,
            expected: None,
            lame: false,
            discards: false,
            receive: Window::new(0),
            receive_size: 0,
            taken: 0,
            queue: Chain::new(),
            queued: 0,
            reading: ReadSettings::default(),
            unread: false,
            ends: false,
            trailers: Vec::new(),
            send: Window::new(0),
            chunk: FRAME_MAX,
            priority: Priority::default(),
            scheduled: false,
            place: None,
            woken: 0,
            framing: 0,
            room: None,
            body: None,
            gone: Vec::new(),
        }
    }
}

impl Entry {
    /// Neither side has broken it off or is about to end it.
    pub fn is_whole(&self) -> bool {
        !(self.reset || self.malformed || self.lame || self.discards || self.ends)
    }

    /// Gives back what the stream held: its place is another one's. One by one, since most streams
    /// hold little: to put a new value in the place of the old one takes three times as long.
    pub fn clear(&mut self) {
        let Entry {
            id,
            has_request,
            remote,
            local,
            reset,
            malformed,
            head_size,
            received,
            body_held,
            expected,
            lame,
            discards,
            receive: _,
            receive_size: _,
            taken,
            queue,
            queued,
            reading,
            unread,
            ends,
            trailers,
            send: _,
            chunk,
            priority,
            scheduled,
            place,
            woken,
            framing,
            room,
            body,
            gone,
        } = self;
        *id = 0;
        *has_request = false;
        (*remote, *local) = (Half::Open, Half::Open);
        (*reset, *malformed) = (false, false);
        *head_size = 0;
        if received.capacity() > 0 {
            *received = VecDeque::new();
        }
        *body_held = 0;
        *expected = None;
        (*lame, *discards) = (false, false);
        *taken = 0;
        queue.clear();
        *queued = 0;
        *reading = ReadSettings::default();
        (*unread, *ends) = (false, false);
        if trailers.capacity() > 0 {
            *trailers = Vec::new();
        }
        *chunk = FRAME_MAX;
        *priority = Priority::default();
        *scheduled = false;
        *place = None;
        *woken = 0;
        *framing = 0;
        (*room, *body) = (None, None);
        if gone.capacity() > 0 {
            *gone = Vec::new();
        }
    }

    pub(crate) fn wake_body(&mut self) {
        wakers::wake(&mut self.body);
    }

    /// Wakes the request where it waits to hand more over; says whether it does.
    pub(crate) fn wake_room(&mut self) -> bool {
        wakers::wake(&mut self.room)
    }

    pub fn wake_all(&mut self) {
        self.wake_body();
        self.wake_room();
        self.gone.drain(..).for_each(Waker::wake);
    }

    /// Whether all of the body came.
    pub(crate) fn has_body_ended(&self) -> bool {
        self.remote == Half::Ended
    }

    /// Whether nothing more happens on it, on either side.
    pub fn is_over(&self) -> bool {
        !self.has_request && (self.reset || self.local == Half::Ended && self.queue.is_empty())
    }
}
