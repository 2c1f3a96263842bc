//! The time that scripts take of a turn of the event loop. A script runs for up to
//! `js_time_limit`, and others of its kind may be ready at the same time. If all of them ran in
//! one turn, every other client would wait for their sum. So a script that may wait begins, or
//! continues, only while the scripts of this turn have used less than [`SLICE_USEC`] together.
//! Other scripts stand in line for a later turn, before which the loop serves whatever else is
//! ready. Nobody overtakes them: a script that asks while others wait goes to the end of the line.
//! One of the line begins in each turn, even where scripts that cannot wait have used all the time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};

/// Processor time of scripts in a turn after which no other one begins, in microseconds: a hundred
/// short scripts.
const SLICE_USEC: u64 = 2_000;

/// The first of the line loses its place when it has not asked for so many turns, although it is
/// woken in each: its task does something else, for example waits for a slow client.
const ABSENT_TURNS: u64 = 4;

/// The scripts of this worker.
#[derive(Default)]
struct Share {
    turn: Cell<u64>,
    used_usec: Cell<u64>,
    /// One of the line has begun in this turn.
    has_begun: Cell<bool>,
    /// In the order of their numbers.
    line: RefCell<VecDeque<Waiter>>,
    last_number: Cell<u64>,
}

struct Waiter {
    number: u64,
    /// The turn in which it asked first.
    since: u64,
    /// The turn in which it asked last.
    seen: u64,
}

impl Share {
    const fn new() -> Share {
        Share {
            turn: Cell::new(0),
            used_usec: Cell::new(0),
            has_begun: Cell::new(false),
            line: RefCell::new(VecDeque::new()),
            last_number: Cell::new(0),
        }
    }

    fn used_usec(&self, turn: u64) -> u64 {
        if self.turn.replace(turn) != turn {
            self.used_usec.set(0);
            self.has_begun.set(false);
        }
        self.used_usec.get()
    }

    /// Whether a script that is not in the line may begin.
    fn has_time(&self, turn: u64) -> bool {
        self.used_usec(turn) < SLICE_USEC && self.line.borrow().is_empty()
    }

    fn used(&self, turn: u64, usec: u64) {
        self.used_usec.set(self.used_usec(turn).saturating_add(usec));
    }

    /// Asks for a script that waits at `place`, or at the end of the line if that is 0 still.
    fn ask(&self, turn: u64, place: &mut u64) -> Asked {
        self.forget_absent(turn);
        let before = match self.position(*place) {
            Some(before) => before,
            None if self.has_time(turn) => return Asked::MayBegin,
            None => self.queue(turn, place),
        };
        let has_time = self.used_usec(turn) < SLICE_USEC;
        let waiter = &mut self.line.borrow_mut()[before];
        waiter.seen = turn;
        let is_due = has_time || (waiter.since != turn && !self.has_begun.get());
        if before == 0 && is_due {
            self.has_begun.set(true);
            return Asked::MayBegin;
        }
        Asked::NextTurn
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.line.borrow().binary_search_by_key(&number, |waiter| waiter.number).ok()
    }

    /// Puts a script to the end of the line. Returns how many are before it.
    fn queue(&self, turn: u64, place: &mut u64) -> usize {
        *place = self.last_number.get() + 1;
        self.last_number.set(*place);
        let waiter = Waiter { number: *place, since: turn, seen: turn };
        let mut line = self.line.borrow_mut();
        line.push_back(waiter);
        line.len() - 1
    }

    fn forget_absent(&self, turn: u64) {
        let is_absent = |first: &Waiter| turn.saturating_sub(first.seen) > ABSENT_TURNS;
        let mut line = self.line.borrow_mut();
        while line.front().is_some_and(is_absent) {
            line.pop_front();
        }
    }

    fn leave(&self, number: u64) {
        if let Some(at) = self.position(number) {
            self.line.borrow_mut().remove(at);
        }
    }
}

/// What a script may do that has asked for time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    MayBegin,
    /// It asks again in the next turn.
    NextTurn,
}

thread_local! {
    static SHARE: Share = const { Share::new() };
}

/// Counts processor time that a script has used.
pub(crate) fn used(usec: u64) {
    if usec > 0 {
        SHARE.with(|share| share.used(event::turn(), usec));
    }
}

#[cfg(test)]
pub(crate) fn used_so_far() -> u64 {
    SHARE.with(|share| share.used_usec(event::turn()))
}

/// Whether a script may begin or continue in this turn: there is time, and no other one waits.
pub fn has_time() -> bool {
    SHARE.with(|share| share.has_time(event::turn()))
}

/// A script's place in the line, which it leaves when this is dropped.
#[derive(Default)]
pub(crate) struct Place(u64);

impl Place {
    /// Waits until the script may begin or continue.
    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let asked = SHARE.with(|share| share.ask(event::turn(), &mut self.0));
        match asked {
            Asked::MayBegin => {
                self.leave();
                return Poll::Ready(());
            }
            Asked::NextTurn => event::task::wake_in_next_turn(cx.waker()),
        }
        Poll::Pending
    }

    fn leave(&mut self) {
        let number = std::mem::take(&mut self.0);
        if number != 0 {
            let _ = SHARE.try_with(|share| share.leave(number));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Waits until a script may begin.
pub async fn time() {
    let mut place = Place::default();
    poll_fn(|cx| place.poll(cx)).await;
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::rc::Rc;

    use event::testing::{each_driver, turns};

    use super::*;

    #[test]
    fn scripts_have_a_share_of_each_turn() {
        let share = Share::default();
        assert!(share.has_time(1));
        share.used(1, SLICE_USEC - 1);
        assert!(share.has_time(1));
        share.used(1, 1);
        assert!(!share.has_time(1));
        assert!(share.has_time(2), "another turn");
        share.used(3, SLICE_USEC);
        assert!(!share.has_time(3), "scripts that do not wait count, too");
    }

    /// A script that asks, with the place that it has.
    fn asks(share: &Share, turn: u64, place: &mut u64) -> Asked {
        let asked = share.ask(turn, place);
        if asked == Asked::MayBegin && *place != 0 {
            share.leave(std::mem::take(place));
        }
        asked
    }

    #[test]
    fn nobody_overtakes_the_line() {
        let share = Share::default();
        let (mut first, mut second, mut third) = (0, 0, 0);
        share.used(1, SLICE_USEC);
        assert_eq!(asks(&share, 1, &mut first), Asked::NextTurn);
        assert_eq!(asks(&share, 1, &mut second), Asked::NextTurn);
        assert!(!share.has_time(2), "others wait");
        assert_eq!(asks(&share, 2, &mut third), Asked::NextTurn);
        assert_eq!(asks(&share, 2, &mut second), Asked::NextTurn);
        assert_eq!(asks(&share, 2, &mut first), Asked::MayBegin);
        share.used(2, SLICE_USEC);
        assert_eq!(asks(&share, 2, &mut first), Asked::NextTurn, "it is the last one now");
        assert_eq!(asks(&share, 3, &mut first), Asked::NextTurn);
        // One that gives up is no obstacle.
        share.leave(second);
        assert_eq!(asks(&share, 3, &mut first), Asked::NextTurn);
        assert_eq!(asks(&share, 3, &mut third), Asked::MayBegin);
        assert_eq!(asks(&share, 3, &mut first), Asked::MayBegin, "there is time");
        assert!(share.has_time(3));
    }

    #[test]
    fn one_of_the_line_begins_in_each_turn() {
        let share = Share::default();
        let (mut first, mut second) = (0, 0);
        for place in [&mut first, &mut second] {
            share.used(1, SLICE_USEC);
            assert_eq!(asks(&share, 1, place), Asked::NextTurn);
        }
        // Scripts that do not wait were first.
        share.used(2, SLICE_USEC);
        assert_eq!(asks(&share, 2, &mut first), Asked::MayBegin);
        assert_eq!(asks(&share, 2, &mut second), Asked::NextTurn);
        share.used(3, SLICE_USEC);
        assert_eq!(asks(&share, 3, &mut second), Asked::MayBegin);
    }

    #[test]
    fn one_that_does_not_ask_loses_its_place() {
        let share = Share::default();
        let (mut absent, mut other) = (0, 0);
        share.used(1, SLICE_USEC);
        assert_eq!(asks(&share, 1, &mut absent), Asked::NextTurn);
        assert_eq!(asks(&share, 1, &mut other), Asked::NextTurn);
        for turn in 2..=1 + ABSENT_TURNS {
            assert_eq!(asks(&share, turn, &mut other), Asked::NextTurn, "{turn}");
        }
        assert_eq!(asks(&share, 2 + ABSENT_TURNS, &mut other), Asked::MayBegin);
        share.used(2 + ABSENT_TURNS, SLICE_USEC);
        assert_eq!(asks(&share, 2 + ABSENT_TURNS, &mut other), Asked::NextTurn);
        assert_eq!(asks(&share, 2 + ABSENT_TURNS, &mut absent), Asked::NextTurn, "a new place");
        assert_eq!(asks(&share, 3 + ABSENT_TURNS, &mut absent), Asked::NextTurn);
        assert_eq!(asks(&share, 3 + ABSENT_TURNS, &mut other), Asked::MayBegin);
    }

    #[test]
    fn many_that_do_not_ask_are_no_obstacle() {
        each_driver(|| async {
            turns(1).await;
            used(SLICE_USEC);
            let mut absent = Vec::new();
            for _ in 0..200 {
                let mut waits = Box::pin(time());
                let asked = poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx))).await;
                assert!(asked.is_pending());
                absent.push(waits);
            }
            time().await;
            for waits in absent {
                waits.await;
            }
            assert!(has_time());
        });
    }

    #[test]
    fn others_run_between_scripts_that_take_long() {
        each_driver(|| async {
            let order = Rc::new(RefCell::new(Vec::new()));
            // The test's own task has its turn first.
            turns(1).await;
            for number in 0..3 {
                let order = order.clone();
                event::spawn(async move {
                    time().await;
                    order.borrow_mut().push(number);
                    used(100 * SLICE_USEC);
                });
            }
            let others = order.clone();
            event::spawn(async move { others.borrow_mut().push(10) });
            turns(4).await;
            assert_eq!(*order.borrow(), [0, 10, 1, 2]);
        });
    }

    #[test]
    fn short_scripts_run_in_one_turn() {
        each_driver(|| async {
            turns(1).await;
            let now = event::turn();
            for _ in 0..100 {
                time().await;
                used(SLICE_USEC / 100);
            }
            assert_eq!(event::turn(), now);
            time().await;
            assert_ne!(event::turn(), now);
        });
    }

    #[test]
    fn a_script_that_asks_again_stands_behind_others() {
        each_driver(|| async {
            let order = Rc::new(RefCell::new(Vec::new()));
            turns(1).await;
            for (number, rounds) in [(0, 3), (1, 3), (2, 1)] {
                let order = order.clone();
                event::spawn(async move {
                    for _ in 0..rounds {
                        time().await;
                        order.borrow_mut().push(number);
                        used(SLICE_USEC);
                    }
                });
            }
            turns(8).await;
            // The first one asks again before the others have asked at all, and then no more.
            assert_eq!(*order.borrow(), [0, 0, 1, 2, 0, 1, 1]);
        });
    }

    #[test]
    fn scripts_that_cannot_wait_leave_a_turn_for_each_of_the_line() {
        each_driver(|| async {
            let begun = Rc::new(Cell::new(0));
            let ended = begun.clone();
            event::spawn(async move {
                while ended.get() < 3 {
                    used(SLICE_USEC);
                    turns(1).await;
                }
            });
            turns(1).await;
            for _ in 0..3 {
                let begun = begun.clone();
                event::spawn(async move {
                    time().await;
                    begun.set(begun.get() + 1);
                });
            }
            turns(6).await;
            assert_eq!(begun.get(), 3);
        });
    }

    #[test]
    fn a_long_line_is_served_though_many_give_up() {
        each_driver(|| async {
            let begun = Rc::new(Cell::new(0));
            turns(1).await;
            used(SLICE_USEC);
            for number in 0..400 {
                let begun = begun.clone();
                event::spawn(async move {
                    let gives_up = number % 2 == 0 && number < 200;
                    let waits = async {
                        time().await;
                        begun.set(begun.get() + 1);
                    };
                    let gone = async {
                        if !gives_up {
                            std::future::pending::<()>().await;
                        }
                    };
                    event::race(waits, gone).await;
                });
            }
            turns(16).await;
            assert_eq!(begun.get(), 300);
            assert!(has_time());
        });
    }
}
