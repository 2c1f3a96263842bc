//! Time for work that nobody waits for yet, such as reading a response ahead of its slow client
//! into a temporary file.
//!
//! Such work gets a part of each turn of the loop: 30 µs, or a quarter of the time since the last
//! turn if that is more, but 300 µs at most. The tasks that want it take turns. Otherwise a client
//! with a hundred such responses would hold up all others for as long as the work takes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

use base::time::exact_us;

use crate::runtime::inner::turn;

/// The part of a turn, in microseconds. Another task may exceed it once it has begun.
const SPARE_US: u64 = 30;

/// The part of long turns: a fraction of the time since the last one, up to a limit, so that busy
/// workers get on with it as well.
const FRACTION: u64 = 4;
const SPARE_MAX_US: u64 = 300;

/// Those that are asked to go on in a turn. Where the time is not enough, the rest stays in front.
const CALLED: usize = 8;

#[derive(Default)]
struct Spare {
    /// The turn whose part began and ends at these times.
    turn: u64,
    began_us: u64,
    end_us: u64,
    /// The number of the next one that waits.
    next: u64,
    /// Those that wait, by their numbers.
    waiting: VecDeque<(u64, Waker)>,
}

thread_local! {
    static SPARE: RefCell<Spare> = RefCell::default();
}

/// Waits for a moment in which the task may do a piece of work that nobody waits for: some ten
/// microseconds, say.
pub async fn spare_time() {
    let mut number = None;
    poll_fn(|cx| SPARE.with(|spare| spare.borrow_mut().poll(&mut number, cx.waker()))).await;
}

/// A turn is over: some of those that wait go on in the next one.
pub(crate) fn begin_turn() {
    for _ in 0..CALLED {
        // Nothing is borrowed when it is woken.
        let first = SPARE.with(|spare| spare.borrow_mut().waiting.pop_front());
        let Some((_, waker)) = first else { return };
        waker.wake();
    }
}

impl Spare {
    fn poll(&mut self, number: &mut Option<u64>, waker: &Waker) -> Poll<()> {
        let place = match *number {
            None if self.waiting.is_empty() => Err(0),
            None => {
                self.push(number, waker);
                return Poll::Pending;
            }
            Some(n) => self.waiting.binary_search_by_key(&n, |(other, _)| *other),
        };
        match place {
            // Its turn is yet to come.
            Ok(_) => Poll::Pending,
            Err(_) if self.has_time() => Poll::Ready(()),
            Err(place) => {
                match *number {
                    None => self.push(number, waker),
                    Some(n) => self.waiting.insert(place, (n, waker.clone())),
                }
                Poll::Pending
            }
        }
    }

    fn push(&mut self, number: &mut Option<u64>, waker: &Waker) {
        *number = Some(self.next);
        self.waiting.push_back((self.next, waker.clone()));
        self.next += 1;
    }

    fn has_time(&mut self) -> bool {
        let turn = turn();
        if turn == self.turn {
            return exact_us() < self.end_us;
        }
        let now_us = exact_us();
        let part_us =
            (now_us.saturating_sub(self.began_us) / FRACTION).clamp(SPARE_US, SPARE_MAX_US);
        (self.turn, self.began_us, self.end_us) = (turn, now_us, now_us + part_us);
        true
    }
}
