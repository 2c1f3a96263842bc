//! Live connections move from a worker that leaves to one that serves, at a reload and at a change
//! of the binary. The messages are in [`proto::handover`].
//!
//! ```text
//!   leaving worker                                    serving workers
//!     relay ── due ─▶ rests ── message, descriptors ──▶ │ queue │ ──▶ taker ─▶ relay
//!                       ▲ ◀─────── Takes / Refuses ──────────────────┤
//!                       └────────── Yours ───────────────────────────▶
//! ```
//!
//! **Queue.** One pair of message sockets, which the master makes before it forks and hands to a
//! new binary. Every leaving worker sends into it and every serving worker receives from it, so the
//! connections spread over the workers that have time, and the death of a worker disturbs no other.
//!
//! **Messages.** Connections whose turn comes in the same turn of the loop go in one message,
//! because the sockets, calls and wake-ups of a message cost as much as a connection's state.
//!
//! **Replies.** Each message carries one end of a socket pair of its own. It closes with the last
//! process that has it, so that a sender notices the death of a receiver, and a message that nobody
//! received.
//!
//! **Fallback.** Until it has said `Yours`, the sender can serve on, with all bytes: it has its
//! descriptors, and the connection rests meanwhile. A refusal, a time-out and every error mean that
//! the connection stays where it is. After a time-out the sender asks whether another worker
//! receives, and no connection rests until one has answered. If none does, connections stay, and
//! the sender asks again when another one could move, at most every [`AGAIN_MS`].
//!
//! **Pace.** At most [`AT_ONCE`] connections of a worker rest at a time, and a turn of a loop has
//! at most [`PER_TURN`] steps, so that requests of others come between. A worker asks for short
//! time slices while it receives, because workers that leave compete with it for the processors.
//! For the same reason the master gives those a lower priority, if it may raise it again.

mod candidates;
mod channel;
mod party;
mod receive;
mod send;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Poll, Waker};

use event::{Hold, Notify, TaskId};
use proto::handover::{Message, Refusal};

pub use self::candidates::{Candidate, Line, Turn, unless_due};
pub use self::channel::{Channel, VAR};
pub use self::party::{Berth, Member, Party};
pub use self::send::{Offered, Written, written};

/// Connections of a worker that are on their way at a time: as many as go in a message. With
/// more, the queue is never empty and the receiver works without a pause, so that requests of
/// others wait longer for a processor. And with few, a receiver that hangs holds up few.
const AT_ONCE: usize = PER_TURN;

/// Steps that a worker takes in a turn of its loop: to describe a connection, to give it up, to
/// receive a message, and to serve a connection that has arrived. Each takes up to 100 µs, and a
/// request of another client waits for all of those of a turn.
const PER_TURN: usize = 8;

/// The longest wait of a sender for a reply, milliseconds: the connection rests meanwhile.
const REPLY_MS: u64 = 2_000;

/// The longest wait of a receiver for the sender's last word, milliseconds: longer than the
/// sender's, so that it is the sender that decides.
const YOURS_MS: u64 = 2 * REPLY_MS;

/// The longest wait for the first receiver, milliseconds: nothing rests meanwhile.
const HELLO_MS: u64 = 10_000;

/// The time after an unanswered question in which the next one is not asked, milliseconds.
const AGAIN_MS: u64 = 10_000;

/// The time in which a receiver that is there answers, milliseconds. A client that is told within
/// it that its connection goes on may see its end instead.
pub const ASK_MS: u64 = 500;

/// The kind of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A tunnel over HTTP: WebSocket, CONNECT, Upgrade.
    Tunnel,
    /// A session of `stream`.
    Session,
    /// A connection of HTTP/1 between two requests.
    Idle,
    /// A connection of HTTP/2 without streams, or with tunnels alone.
    Http2,
    /// A session of `mail` whose client is logged in.
    Mail,
    /// A connection to a server, between two requests.
    Kept,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 6] =
        [Kind::Tunnel, Kind::Session, Kind::Idle, Kind::Http2, Kind::Mail, Kind::Kept];

    /// Those of clients' connections.
    pub const CLIENTS: [Kind; 5] =
        [Kind::Tunnel, Kind::Session, Kind::Idle, Kind::Http2, Kind::Mail];

    /// Its name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Tunnel => "tunnels",
            Kind::Session => "sessions",
            Kind::Idle => "idle",
            Kind::Http2 => "http2",
            Kind::Mail => "mail",
            Kind::Kept => "upstream",
        }
    }

    fn of(message: &Message<'_>) -> Option<Kind> {
        match message {
            Message::Hello | Message::Many(_) | Message::Long(_) => None,
            Message::Tunnel(_) => Some(Kind::Tunnel),
            Message::Session(_) => Some(Kind::Session),
            Message::Idle(_) => Some(Kind::Idle),
            Message::Http2(_) => Some(Kind::Http2),
            Message::Mail(_) => Some(Kind::Mail),
            Message::Kept(_) => Some(Kind::Kept),
        }
    }
}

/// The reason why a connection stays with its worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stay {
    /// `handover off`.
    Off,
    /// It is of a protocol that does not move: a tunnel over HTTP/3, or to a server over HTTP/2, or
    /// TLS whose keys cannot be told.
    Protocol,
    /// Its state does not fit a message, or cannot be described.
    State,
    /// The receiver's configuration has no such listener, server or location.
    Configuration,
    /// No receiver took it in time, or none is of this version.
    Receiver,
}

impl Stay {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Stay; 5] =
        [Stay::Off, Stay::Protocol, Stay::State, Stay::Configuration, Stay::Receiver];

    /// Its name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Stay::Off => "off",
            Stay::Protocol => "protocol",
            Stay::State => "state",
            Stay::Configuration => "configuration",
            Stay::Receiver => "receiver",
        }
    }
}

impl From<Refusal> for Stay {
    fn from(refusal: Refusal) -> Stay {
        match refusal {
            Refusal::Version | Refusal::Other => Stay::Receiver,
            Refusal::Configuration => Stay::Configuration,
            Refusal::Off => Stay::Off,
        }
    }
}

/// Counts what moves.
pub trait Tally {
    /// A connection went to another process.
    fn sent(&self, kind: Kind);
    /// A connection came from another process, and has moved before in this run of the server
    /// ([`proto::handover::Client::moved_in`]).
    fn received(&self, kind: Kind, moved_in: u64);
    /// A connection stays with a worker that leaves.
    fn stayed(&self, kind: Kind, why: Stay);
}

/// A connection that arrived and is ready to be served. Called once the sender has given it up;
/// dropped before, it must have no effect on the connection.
pub type Ready = Box<dyn FnOnce()>;

/// Takes the connections of a kind.
pub trait Taker {
    /// Prepares to serve the connection of `message` with its descriptors: the client's, and the
    /// server's if it has one.
    ///
    /// # Errors
    /// The connection stays with its sender.
    fn take(&self, message: &Message<'_>, fds: Vec<OwnedFd>) -> Result<Ready, Refusal>;
}

/// The descriptors that a message of its kind comes with.
///
/// # Errors
/// There are more or fewer.
pub fn ends<const N: usize>(fds: Vec<OwnedFd>) -> Result<[OwnedFd; N], Refusal> {
    fds.try_into().map_err(|_| Refusal::Other)
}

/// The steps of this turn of the loop, and the tasks that wait for a step.
#[derive(Default)]
struct Pace {
    turn: Cell<u64>,
    steps: Cell<usize>,
    waiting: RefCell<VecDeque<Waker>>,
    /// A task wakes those that wait.
    is_ticking: Cell<bool>,
}

impl Pace {
    /// Waits for a turn of the loop that has room for another step: mostly this one.
    async fn step(self: &Rc<Pace>) {
        let mut has_waited = false;
        loop {
            let turn = event::turn();
            if self.turn.replace(turn) != turn {
                self.steps.set(0);
            }
            let steps = self.steps.get();
            // Those that wait come first.
            if steps < PER_TURN && (has_waited || self.waiting.borrow().is_empty()) {
                self.steps.set(steps + 1);
                return;
            }
            has_waited = true;
            let mut is_queued = false;
            poll_fn(|cx| {
                if std::mem::replace(&mut is_queued, true) {
                    return Poll::Ready(());
                }
                self.waiting.borrow_mut().push_back(cx.waker().clone());
                self.tick();
                Poll::Pending
            })
            .await;
        }
    }

    /// More steps were taken in this turn than [`Pace::step`] has counted.
    fn spend(&self, steps: usize) {
        self.steps.set(self.steps.get() + steps);
    }

    /// Wakes in each turn as many tasks as it has steps, as long as some wait: none of a hundred is
    /// woken in vain.
    fn tick(self: &Rc<Pace>) {
        if self.is_ticking.replace(true) {
            return;
        }
        let pace = self.clone();
        event::spawn(async move {
            while !pace.waiting.borrow().is_empty() {
                event::task::next_turn().await;
                let mut waiting = pace.waiting.borrow_mut();
                let first = PER_TURN.min(waiting.len());
                // One that has ended meanwhile leaves its step to others, in a later turn.
                waiting.drain(..first).for_each(Waker::wake);
            }
            pace.is_ticking.set(false);
        });
    }
}

/// A worker's part in moves.
pub struct Moves {
    channel: Channel,
    tally: Rc<dyn Tally>,
    takers: RefCell<Vec<(Kind, Rc<dyn Taker>)>>,
    receiving: Cell<Option<TaskId>>,
    candidates: candidates::Candidates,
    pace: Rc<Pace>,
    outbox: send::Outbox,
    /// A candidate was added, or one has been dealt with.
    changed: Notify,
    /// Connections that rest at the moment.
    resting: Cell<usize>,
    /// The last question whether a worker receives was answered.
    receives: Cell<bool>,
    /// That is to be asked again before another connection rests.
    is_unanswered: Cell<bool>,
    /// When it was asked last: the time of the answer, or of giving up.
    asked_ms: Cell<u64>,
    /// Keeps the process while messages that it sent may lie in the queue unread: only this worker
    /// is sure to drop them, and until then their descriptors keep clients from seeing the ends of
    /// connections.
    unread: Cell<Option<Hold>>,
    /// The time until which it is likely that one receives, although none has answered yet.
    asks_until_ms: Cell<u64>,
    /// Closed when the candidates that a leaving worker has at first were dealt with.
    open: Cell<Option<OwnedFd>>,
}

impl Moves {
    /// A worker that takes part by this channel. `open` is closed when all that can move has moved.
    pub fn new(channel: Channel, tally: Rc<dyn Tally>, open: Option<OwnedFd>) -> Rc<Moves> {
        Rc::new(Moves {
            channel,
            tally,
            takers: RefCell::default(),
            receiving: Cell::new(None),
            candidates: candidates::Candidates::default(),
            pace: Rc::default(),
            outbox: RefCell::default(),
            changed: Notify::new(),
            resting: Cell::new(0),
            receives: Cell::new(false),
            is_unanswered: Cell::new(false),
            asked_ms: Cell::new(0),
            unread: Cell::new(None),
            asks_until_ms: Cell::new(0),
            open: Cell::new(open),
        })
    }

    /// Whether this worker leaves and others receive its connections, as far as it knows.
    #[inline]
    pub fn has_receiver(&self) -> bool {
        self.receives.get()
    }

    /// Whether this worker has begun to leave a moment ago, so that others that may receive its
    /// connections have not answered yet.
    pub fn is_asking(&self) -> bool {
        base::time::now_ms() < self.asks_until_ms.get()
    }

    /// Has the connections of a kind taken by `taker`.
    pub fn take_by(&self, kind: Kind, taker: Rc<dyn Taker>) {
        self.takers.borrow_mut().push((kind, taker));
    }

    fn taker(&self, kind: Kind) -> Option<Rc<dyn Taker>> {
        let takers = self.takers.borrow();
        takers.iter().find(|(of, _)| *of == kind).map(|(_, taker)| taker.clone())
    }

    /// Receives connections from now on: the engines have begun to serve.
    pub fn serve(self: &Rc<Moves>) {
        // Its descriptor is open when the worker says that it serves.
        let Ok(queue) = receive::Queue::of(self) else { return };
        self.receiving.set(Some(event::spawn(receive::run(self.clone(), queue))));
    }

    /// Receives none from now on, and sends those that are there.
    ///
    /// Where the server ends, nobody takes them: they stay, and clients are told to close.
    pub fn leave(self: &Rc<Moves>, server_ends: bool) {
        if let Some(task) = self.receiving.take() {
            event::task::cancel(task);
        }
        if server_ends {
            self.open.take();
            return;
        }
        self.asks_until_ms.set(base::time::now_ms() + ASK_MS);
        event::spawn(candidates::run(self.clone()));
    }
}
