//! What a script waits for.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use ::script::{Answer, Ticket, TimerId};

use crate::share::Place;

/// The outcome of what a script waits for.
pub enum Done {
    /// The answer for a ticket.
    Answer(Answer),
    /// A timer has expired.
    Fired,
}

/// Something that a script waits for.
pub type Pending = Pin<Box<dyn Future<Output = Done>>>;

/// What the engine has asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// An answer.
    Ticket(Ticket),
    /// A timer.
    Timer(TimerId),
}

/// Called for something whose script ends first. Returns whether it was still in progress.
pub type Detach = Box<dyn FnOnce() -> bool>;

struct Op {
    key: Key,
    pending: Pending,
    detach: Option<Detach>,
}

/// All that one script waits for.
#[derive(Default)]
pub struct Ops {
    list: RefCell<Vec<Op>>,
    /// What has come while there was no time for the script.
    found: RefCell<VecDeque<(Key, Done)>>,
    /// Requests of `ngx.fetch` that have no response yet.
    fetches: OnceCell<Rc<Cell<usize>>>,
}

/// A request of `ngx.fetch` that has no response yet.
pub struct InFlight(Rc<Cell<usize>>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Ops {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of things.
    pub fn len(&self) -> usize {
        self.list.borrow().len() + self.found.borrow().len()
    }

    /// Counts a request of `ngx.fetch` until the result is dropped; `None` if there are `max` of
    /// them.
    pub fn fetching(&self, max: usize) -> Option<InFlight> {
        let fetches = self.fetches.get_or_init(Rc::default);
        let count = fetches.get();
        (count < max).then(|| {
            fetches.set(count + 1);
            InFlight(fetches.clone())
        })
    }

    /// Has a future polled for a ticket.
    pub fn wait(&self, ticket: Ticket, pending: Pending) {
        self.push(Op { key: Key::Ticket(ticket), pending, detach: None });
    }

    /// The same for something that goes on, by `detach`, where the script ends first.
    pub fn wait_or_detach(&self, ticket: Ticket, pending: Pending, detach: Detach) {
        self.push(Op { key: Key::Ticket(ticket), pending, detach: Some(detach) });
    }

    /// Starts a timer, whose time begins now.
    pub fn start_timer(&self, timer: TimerId, after_ms: u64) {
        let sleep = event::sleep(after_ms);
        let pending = Box::pin(async move {
            sleep.await;
            Done::Fired
        });
        self.push(Op { key: Key::Timer(timer), pending, detach: None });
    }

    /// Stops one.
    pub fn stop_timer(&self, timer: TimerId) {
        self.list.borrow_mut().retain(|op| op.key != Key::Timer(timer));
        self.found.borrow_mut().retain(|(key, _)| *key != Key::Timer(timer));
    }

    /// The next thing that has come, once the script may continue: see [`share`](crate::share).
    /// The others go on until then. May be dropped at any time.
    pub async fn next(&self) -> (Key, Done) {
        let mut place = Place::default();
        poll_fn(|cx| {
            // Not borrowed while they are polled.
            let ops = self.list.take();
            let (mut left, mut found) = (Vec::with_capacity(ops.len()), Vec::new());
            for mut op in ops {
                match op.pending.as_mut().poll(cx) {
                    Poll::Ready(done) => found.push((op.key, done)),
                    Poll::Pending => left.push(op),
                }
            }
            left.append(&mut self.list.borrow_mut());
            *self.list.borrow_mut() = left;
            self.found.borrow_mut().extend(found);
            if self.found.borrow().is_empty() || place.poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.found.borrow_mut().pop_front().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Forgets all. Returns whether there was something, and whether some of it goes on.
    pub fn end(&self) -> (bool, bool) {
        if self.is_empty() {
            return (false, false);
        }
        let ops = self.list.take();
        let mut goes_on = false;
        let any = !ops.is_empty() || !self.found.take().is_empty();
        for op in ops {
            goes_on |= op.detach.is_some_and(|detach| detach());
        }
        (any, goes_on)
    }

    fn push(&self, op: Op) {
        self.list.borrow_mut().push(op);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::rc::Rc;
    use std::task::Poll;

    use event::sim::{Faults, Plan};
    use event::testing::{each_driver, turns};
    use event::{DriverKind, Loop, Options};

    use ::script::{Answer, Data, Ticket, TimerId};

    use super::{Done, Key, Ops};
    use crate::share;

    #[test]
    fn what_has_come_waits_while_other_scripts_have_used_the_turn() {
        each_driver(|| async {
            turns(1).await;
            let ops = Ops::default();
            let answer = || Box::pin(async { Done::Answer(Answer::Data(Data::Undefined)) });
            ops.wait(Ticket(1), answer());
            ops.wait(Ticket(2), answer());
            let now = event::turn();
            assert_eq!(ops.next().await.0, Key::Ticket(Ticket(1)));
            assert_eq!(event::turn(), now);
            share::used(1_000_000);
            ops.start_timer(TimerId(3), 0);
            assert_eq!(ops.next().await.0, Key::Ticket(Ticket(2)));
            assert_ne!(event::turn(), now);
            assert_eq!(ops.next().await.0, Key::Timer(TimerId(3)));
        });
    }

    /// Polls the list once, and drops what waits for it.
    async fn look(ops: &Ops) -> bool {
        poll_fn(|cx| Poll::Ready(pin!(ops.next()).poll(cx).is_ready())).await
    }

    #[test]
    fn only_the_script_waits_for_time() {
        each_driver(|| async {
            turns(1).await;
            let ops = Ops::default();
            let steps = Rc::new(Cell::new(0));
            for number in 1..=2 {
                let steps = steps.clone();
                ops.wait(
                    Ticket(number),
                    Box::pin(async move {
                        steps.set(steps.get() + 1);
                        event::task::yield_now().await;
                        steps.set(steps.get() + 1);
                        Done::Answer(Answer::Data(Data::Undefined))
                    }),
                );
            }
            share::used(1_000_000);
            assert!(!look(&ops).await);
            assert_eq!(steps.get(), 2, "they begin without time for the script");
            assert!(!look(&ops).await);
            assert_eq!((steps.get(), ops.len()), (4, 2), "and end");
            assert_eq!(ops.next().await.0, Key::Ticket(Ticket(1)));
            assert_eq!(ops.next().await.0, Key::Ticket(Ticket(2)));
            assert!(ops.is_empty());
        });
    }

    fn simulated<T: 'static>(body: impl Future<Output = T> + 'static) -> T {
        let driver = DriverKind::Sim(Plan::new(0, Faults::NONE));
        let mut event_loop = Loop::new(Options { driver, ..Options::default() }).unwrap();
        event_loop.block_on(body).unwrap()
    }

    #[test]
    fn a_timer_that_has_expired_can_be_stopped() {
        simulated(async {
            let ops = Ops::default();
            ops.start_timer(TimerId(1), 10);
            assert!(!look(&ops).await);
            event::sleep(20).await;
            share::used(1_000_000);
            assert!(!look(&ops).await);
            assert!(ops.list.borrow().is_empty() && ops.len() == 1);
            ops.stop_timer(TimerId(1));
            assert!(ops.is_empty());
        });
    }

    #[test]
    fn the_time_of_a_timer_begins_when_it_is_started() {
        let waited = simulated(async {
            let ops = Ops::default();
            ops.start_timer(TimerId(1), 1_000);
            let began = base::time::now_ms();
            event::sleep(900).await;
            ops.next().await;
            base::time::now_ms() - began
        });
        assert_eq!(waited, 1_000);
    }

    #[test]
    fn fetches_count_until_they_have_ended() {
        let ops = Ops::default();
        let first = ops.fetching(2);
        let second = ops.fetching(2);
        assert!(first.is_some() && second.is_some());
        assert!(ops.fetching(2).is_none());
        drop(first);
        assert!(ops.fetching(2).is_some());
        // A request of another place may have more.
        let third = ops.fetching(3);
        assert!(third.is_some() && ops.fetching(2).is_none());
        drop((second, third));
        assert!(ops.fetching(1).is_some() && ops.fetching(0).is_none());
    }
}
