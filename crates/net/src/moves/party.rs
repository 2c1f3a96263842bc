//! Relays that share a connection, such as tunnels on streams of HTTP/2: they rest together, and
//! move with it.
//!
//! ```text
//!  connection                               each relay
//!    call ───────────────────────────────▶ rests, and describes itself
//!    gathered, take ◀──────────── rest ──── waits
//!    (the connection moves, or does not)
//!    settle ─────────────────────────────▶ is over, or goes on here
//! ```

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use super::{Stay, Written};
use event::{Notify, TaskId};

/// A relay that rests.
pub struct Berth {
    /// The number of its stream.
    pub id: u32,
    /// Its description, a message.
    pub message: Written,
    /// The connection to its server.
    pub server: OwnedFd,
}

/// The relays of a connection.
#[derive(Default)]
pub struct Party {
    members: RefCell<Vec<Rc<Seat>>>,
    /// They are to rest.
    is_called: Cell<bool>,
    /// One of them has rested, or is over.
    changed: Notify,
}

/// A relay, as its connection sees it.
struct Seat {
    /// The task that carries its bytes.
    task: Cell<Option<TaskId>>,
    rests: RefCell<Option<Result<Berth, Stay>>>,
    has_moved: Cell<Option<bool>>,
    settled: Notify,
}

/// A relay's part in its connection's party.
pub struct Member {
    party: Rc<Party>,
    seat: Rc<Seat>,
    /// The number of the stream.
    pub id: u32,
}

impl Party {
    /// A relay on the stream of this number takes part from now on, until it is dropped.
    pub fn join(self: &Rc<Party>, id: u32) -> Member {
        let (rests, settled) = (RefCell::new(None), Notify::new());
        let (task, has_moved) = (Cell::new(None), Cell::new(None));
        let seat = Rc::new(Seat { task, rests, has_moved, settled });
        self.members.borrow_mut().push(seat.clone());
        Member { party: self.clone(), seat, id }
    }

    /// The number of relays.
    pub fn len(&self) -> usize {
        self.members.borrow().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.members.borrow().is_empty()
    }

    /// Has all of them rest.
    pub fn call(&self) {
        self.is_called.set(true);
        let members = self.members.borrow();
        members.iter().filter_map(|seat| seat.task.get()).for_each(event::task::wake);
    }

    /// Waits until all of them rest.
    ///
    /// # Errors
    /// One of them cannot move.
    pub async fn gathered(&self) -> Result<(), Stay> {
        loop {
            let mut all = true;
            for seat in self.members.borrow().iter() {
                match &*seat.rests.borrow() {
                    Some(Ok(_)) => {}
                    Some(Err(why)) => return Err(*why),
                    None => all = false,
                }
            }
            if all {
                return Ok(());
            }
            self.changed.notified().await;
        }
    }

    /// Takes the descriptions of those that rest.
    pub fn take(&self) -> Vec<Berth> {
        let berth = |seat: &Rc<Seat>| seat.rests.borrow_mut().take()?.ok();
        self.members.borrow().iter().filter_map(berth).collect()
    }

    /// The connection has moved, or all of them go on here.
    pub fn settle(&self, has_moved: bool) {
        self.is_called.set(false);
        for seat in self.members.borrow().iter() {
            seat.rests.borrow_mut().take();
            seat.has_moved.set(Some(has_moved));
            seat.settled.notify_one();
        }
    }
}

impl Member {
    /// Whether the relay is to rest. If it is not, its present task is woken when it is.
    pub fn is_called(&self) -> bool {
        self.seat.task.set(event::task::current());
        self.party.is_called.get()
    }

    /// The relay rests, or cannot move. Returns, once its connection has moved or is to stay,
    /// whether it has moved.
    pub async fn rest(&self, berth: Result<Berth, Stay>) -> bool {
        *self.seat.rests.borrow_mut() = Some(berth);
        self.party.changed.notify_one();
        loop {
            if let Some(has_moved) = self.seat.has_moved.take() {
                self.seat.rests.borrow_mut().take();
                return has_moved;
            }
            self.seat.settled.notified().await;
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.party.members.borrow_mut().retain(|seat| !Rc::ptr_eq(seat, &self.seat));
        self.party.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn berth(id: u32) -> Berth {
        let (server, _) = os::socket::message_pair().unwrap();
        let message = crate::moves::written(&proto::handover::Message::Hello).unwrap();
        Berth { id, message, server }
    }

    fn run<F: Future<Output = ()> + 'static>(body: F) {
        event::Loop::new(event::Options::default()).unwrap().block_on(body).unwrap();
    }

    /// A relay that rests as soon as it is called, with this outcome.
    fn relay(party: &Rc<Party>, id: u32, rests: Result<(), Stay>) -> Rc<Cell<Option<bool>>> {
        let (member, told) = (party.join(id), Rc::new(Cell::new(None)));
        let outcome = told.clone();
        event::spawn(async move {
            std::future::poll_fn(|_| match member.is_called() {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            })
            .await;
            outcome.set(Some(member.rest(rests.map(|()| berth(id))).await));
        });
        told
    }

    #[test]
    fn all_rest_and_learn_what_has_become_of_them() {
        run(async {
            for has_moved in [false, true] {
                let party = Rc::new(Party::default());
                let relays = [1, 3].map(|id| relay(&party, id, Ok(())));
                event::testing::turns(2).await;
                assert_eq!(party.len(), 2);
                party.call();
                assert_eq!(party.gathered().await, Ok(()));
                let ids: Vec<u32> = party.take().iter().map(|berth| berth.id).collect();
                assert_eq!(ids, [1, 3]);
                assert!(relays.iter().all(|told| told.get().is_none()), "they wait");
                party.settle(has_moved);
                event::testing::until(|| party.is_empty()).await;
                assert!(relays.iter().all(|told| told.get() == Some(has_moved)));
            }
        });
    }

    #[test]
    fn one_that_cannot_move_keeps_all() {
        run(async {
            let party = Rc::new(Party::default());
            let relays = [(1, Ok(())), (3, Err(Stay::State))];
            let relays = relays.map(|(id, rests)| relay(&party, id, rests));
            event::testing::turns(2).await;
            party.call();
            assert_eq!(party.gathered().await, Err(Stay::State));
            party.settle(false);
            event::testing::until(|| party.is_empty()).await;
            assert!(relays.iter().all(|told| told.get() == Some(false)));
        });
    }

    /// The connection does not wait for a relay that has ended.
    #[test]
    fn one_that_ends_is_not_waited_for() {
        run(async {
            let party = Rc::new(Party::default());
            let (ends, _stays) = (party.join(1), relay(&party, 3, Ok(())));
            event::testing::turns(2).await;
            party.call();
            event::spawn(async move { drop(ends) });
            assert_eq!(party.gathered().await, Ok(()));
            assert_eq!(party.take().len(), 1);
        });
    }
}
