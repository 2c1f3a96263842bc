//! The connections of a worker that can move, and the order in which they do when it leaves.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use event::TaskId;

use super::send::hello;
use super::{AGAIN_MS, AT_ONCE, HELLO_MS, Kind, Moves, Stay};

/// Dead entries are dropped when the list has this many times the living ones, and at least
/// [`SLACK_MIN`].
const SLACK: usize = 2;
const SLACK_MIN: usize = 64;

/// Connections that learn in a turn of the loop that they stay.
const STAY_A_TURN: usize = 256;

/// The connections that may move, the oldest first.
#[derive(Default)]
pub(super) struct Candidates {
    list: RefCell<VecDeque<Weak<Entry>>>,
    living: Rc<Cell<usize>>,
}

/// The state of a connection that may move.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is not known whether the connection moves.
    Waits,
    /// Its turn has come.
    Due,
    /// It stays, or has had its turn.
    Over,
}

/// A connection that may move.
struct Entry {
    task: TaskId,
    kind: Kind,
    state: Cell<State>,
    living: Rc<Cell<usize>>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.living.set(self.living.get() - 1);
    }
}

impl Candidates {
    fn add(&self, kind: Kind, task: TaskId) -> Rc<Entry> {
        self.living.set(self.living.get() + 1);
        let living = self.living.clone();
        let entry = Rc::new(Entry { task, kind, state: Cell::new(State::Waits), living });
        let mut list = self.list.borrow_mut();
        if list.len() >= SLACK_MIN.max(SLACK * self.living.get()) {
            list.retain(|entry| entry.strong_count() > 0);
        }
        list.push_back(Rc::downgrade(&entry));
        entry
    }

    /// Whether there is a next one. It may end before it is taken.
    fn has_next(&self) -> bool {
        self.list.borrow().iter().any(|entry| entry.strong_count() > 0)
    }

    fn next(&self) -> Option<Rc<Entry>> {
        let mut list = self.list.borrow_mut();
        while let Some(entry) = list.pop_front() {
            if let Some(entry) = entry.upgrade() {
                return Some(entry);
            }
        }
        None
    }
}

/// A connection's handle, which its task keeps as long as it could move.
pub struct Candidate {
    moves: Rc<Moves>,
    entry: Rc<Entry>,
}

impl Moves {
    /// Names the connection that the present task serves as one that can move when the worker
    /// leaves.
    pub fn candidate(self: &Rc<Moves>, kind: Kind) -> Option<Candidate> {
        let entry = self.candidates.add(kind, event::task::current()?);
        self.changed.notify_one();
        Some(Candidate { moves: self.clone(), entry })
    }
}

impl Candidate {
    /// The connection's turn to move, once it has come; the connection is to rest then. Without one
    /// it stays where it is.
    pub fn turn(&self) -> Option<Turn> {
        let is_due = self.entry.state.replace(State::Over) == State::Due;
        is_due.then(|| Turn { moves: self.moves.clone(), kind: self.entry.kind, why: None })
    }

    /// Whether the decision about this connection has been made. [`Candidate::turn`] returns it.
    pub fn is_decided(&self) -> bool {
        self.entry.state.get() != State::Waits
    }

    /// Waits for `future`. Returns `None` if the decision about this connection is made first;
    /// [`Candidate::turn`] returns it. Each poll only looks at a flag, because the decision wakes
    /// the task.
    pub fn unless_due<F: Future + Unpin>(&self, future: F) -> UnlessDue<'_, F> {
        UnlessDue { candidate: self, future }
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // Its turn had come, and it has ended first.
        drop(self.turn());
    }
}

/// A connection's place in the line of those that may move. It can stand in line again after a
/// turn that it could not use.
#[derive(Default)]
pub struct Line {
    candidate: Option<Candidate>,
    /// The last turn was given back, and the connection has not stood in line since then.
    lapsed: Option<(Rc<Moves>, Kind)>,
}

impl Line {
    /// Stands in line, unless it does already.
    pub fn stand(&mut self, moves: &Rc<Moves>, kind: Kind) {
        if self.candidate.is_none() {
            self.candidate = moves.candidate(kind);
            self.lapsed = None;
        }
    }

    /// Whether it stands in line, and no decision has been made.
    pub fn waits(&self) -> bool {
        self.candidate.as_ref().is_some_and(|candidate| !candidate.is_decided())
    }

    /// Returns the decision once it has been made: a turn, or none if the connection stays. The
    /// connection stands in line no longer.
    pub fn decision(&mut self) -> Option<Option<Turn>> {
        let decided = self.candidate.take_if(|candidate| candidate.is_decided())?;
        Some(decided.turn())
    }

    /// Gives back a turn that the connection cannot use now, so that others have it.
    pub fn lapse(&mut self, turn: Turn) {
        self.lapsed = Some((turn.moves.clone(), turn.kind));
    }

    /// The connection leaves the line for good. It is counted with this reason if it had a turn
    /// that it has not used.
    pub fn stays(&mut self, why: Stay) {
        let turn = self.candidate.take().and_then(|candidate| candidate.turn());
        match (turn, self.lapsed.take()) {
            (Some(turn), _) => turn.stays(why),
            (None, Some((moves, kind))) => moves.tally.stayed(kind, why),
            (None, None) => {}
        }
    }
}

/// [`Candidate::unless_due`], where there is a candidate.
pub async fn unless_due<F: Future + Unpin>(
    candidate: Option<&Candidate>,
    future: F,
) -> Option<F::Output> {
    match candidate {
        Some(candidate) => candidate.unless_due(future).await,
        None => Some(future.await),
    }
}

/// The future of [`Candidate::unless_due`].
pub struct UnlessDue<'a, F> {
    candidate: &'a Candidate,
    future: F,
}

impl<F: Future + Unpin> Future for UnlessDue<'_, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.candidate.is_decided() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.future).poll(cx).map(Some)
    }
}

/// The permission of one connection to rest and move. Others wait until it is dropped.
pub struct Turn {
    pub(super) moves: Rc<Moves>,
    pub(super) kind: Kind,
    why: Option<Stay>,
}

impl Turn {
    /// The connection stays, for this reason.
    pub fn stays(mut self, why: Stay) {
        self.why = Some(why);
    }

    /// The connection went to another process.
    pub(super) fn sent(self) {
        self.moves.tally.sent(self.kind);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(why) = self.why {
            self.moves.tally.stayed(self.kind, why);
        }
        self.moves.resting.set(self.moves.resting.get() - 1);
        self.moves.changed.notify_one();
    }
}

/// Gives the connections of a leaving worker their turns. Those that become able to move later,
/// such as a response that opens a tunnel, follow.
pub(super) async fn run(moves: Rc<Moves>) {
    moves.receives.set(hello(&moves, HELLO_MS).await);
    moves.asks_until_ms.set(0);
    moves.asked_ms.set(base::time::now_ms());
    let mut stayed = 0;
    loop {
        // A receiver that only stood still gets the connections that become able to move later.
        let is_old = base::time::now_ms() >= moves.asked_ms.get() + AGAIN_MS;
        if !moves.receives.get() && is_old && moves.candidates.has_next() {
            moves.is_unanswered.set(true);
        }
        while moves.is_unanswered.replace(false) {
            moves.ask_again().await;
            moves.asked_ms.set(base::time::now_ms());
        }
        moves.unread.take();
        while !moves.is_unanswered.get() && moves.resting.get() < AT_ONCE {
            if moves.receives.get() {
                // Before the next one is known, which may end meanwhile: it describes itself at
                // once.
                moves.pace.step().await;
            }
            if moves.is_unanswered.get() {
                break;
            }
            let Some(entry) = moves.candidates.next() else { break };
            if !moves.receives.get() {
                moves.tally.stayed(entry.kind, Stay::Receiver);
                entry.state.set(State::Over);
                event::task::wake(entry.task);
                stayed += 1;
                if stayed % STAY_A_TURN == 0 {
                    event::task::next_turn().await;
                }
                continue;
            }
            moves.resting.set(moves.resting.get() + 1);
            entry.state.set(State::Due);
            event::task::wake(entry.task);
        }
        if moves.is_unanswered.get() {
            continue;
        }
        if moves.resting.get() == 0 {
            moves.open.take();
        }
        moves.changed.notified().await;
    }
}
