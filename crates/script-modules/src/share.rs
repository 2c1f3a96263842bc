//! The time that scripts take of a turn of the event loop. A script runs for up to
//! `js_time_limit`, and others of its kind may be ready at the same time. If all of them ran in
//! one turn, every other client would wait for their sum. So a script that may wait begins, or
//! continues, only while the scripts of this turn have used less than [`SLICE_USEC`] together.
//! Other scripts wait for a later turn, before which the loop serves whatever else is ready.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::{Context, Poll};

/// Processor time of scripts in a turn after which no other one begins, in microseconds: a hundred
/// short scripts.
const SLICE_USEC: u64 = 2_000;

/// The scripts of this worker.
#[derive(Default)]
struct Share {
    turn: Cell<u64>,
    used_usec: Cell<u64>,
}

impl Share {
    fn used_usec(&self, turn: u64) -> u64 {
        if self.turn.replace(turn) != turn {
            self.used_usec.set(0);
        }
        self.used_usec.get()
    }

    fn has_time(&self, turn: u64) -> bool {
        self.used_usec(turn) < SLICE_USEC
    }

    fn used(&self, turn: u64, usec: u64) {
        self.used_usec.set(self.used_usec(turn).saturating_add(usec));
    }
}

thread_local! {
    static SHARE: Share = const { Share { turn: Cell::new(0), used_usec: Cell::new(0) } };
}

/// Counts processor time that a script has used.
pub(crate) fn used(usec: u64) {
    SHARE.with(|share| share.used(event::turn(), usec));
}

/// Whether a script may begin or continue in this turn.
pub fn has_time() -> bool {
    SHARE.with(|share| share.has_time(event::turn()))
}

/// Like [`has_time`]. If there is none, the task is woken in the next turn.
pub(crate) fn poll_time(cx: &Context<'_>) -> Poll<()> {
    if has_time() {
        return Poll::Ready(());
    }
    event::task::wake_in_next_turn(cx.waker());
    Poll::Pending
}

/// Waits until a script may begin.
pub async fn time() {
    poll_fn(|cx| poll_time(cx)).await;
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
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
}
