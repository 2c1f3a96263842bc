//! Connections that are being made, for exchanges that would make another one of the same kind.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use event::{Deadline, Notify};
use os::SockAddr;

/// A connection on its way, until its server's parameters are known.
pub struct Dial {
    addr: SockAddr,
    tag: usize,
    /// Exchanges that may still join.
    room: Cell<u32>,
    outcome: Cell<Outcome>,
    over: Notify,
}

/// The end of a connection's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It can be used.
    Stands,
    /// It cannot be made: each exchange decides for itself what follows.
    Failed,
    /// The exchange that made it was given up, which says nothing about the server.
    GivenUp,
}

impl Dial {
    /// Waits for its end. `None`: the deadline came first.
    pub async fn outcome(&self, deadline: Deadline) -> Option<Outcome> {
        self.over.notified_by(deadline).await.then(|| self.outcome.get())
    }
}

/// The connections on their way of a pool.
#[derive(Default)]
pub struct Dials(RefCell<Vec<Rc<Dial>>>);

impl Dials {
    /// One to `addr` that another exchange may wait for; `bound`: one that is made with the same
    /// tag.
    pub fn join(&self, addr: &SockAddr, tag: usize, bound: bool) -> Option<Rc<Dial>> {
        let dials = self.0.borrow();
        let fits = |d: &&Rc<Dial>| d.room.get() > 0 && d.addr == *addr && (!bound || d.tag == tag);
        let dial = dials.iter().find(fits)?;
        dial.room.set(dial.room.get() - 1);
        Some(dial.clone())
    }

    /// Notes one that `room` other exchanges may wait for.
    pub fn begin(self: &Rc<Dials>, addr: SockAddr, tag: usize, room: u32) -> Dialling {
        let (outcome, over) = (Cell::new(Outcome::GivenUp), Notify::new());
        let dial = Rc::new(Dial { addr, tag, room: Cell::new(room), outcome, over });
        self.0.borrow_mut().push(dial.clone());
        Dialling { dial, dials: Rc::downgrade(self) }
    }
}

/// The note of a connection on its way. Dropping it tells those that wait.
pub struct Dialling {
    dial: Rc<Dial>,
    dials: Weak<Dials>,
}

impl Dialling {
    /// The connection stands.
    pub fn done(self) {
        self.dial.outcome.set(Outcome::Stands);
    }

    /// The connection has failed, or has nobody any more who could give it up: it failed unless it
    /// is done.
    pub fn fails(&self) {
        self.dial.outcome.set(Outcome::Failed);
    }
}

impl Drop for Dialling {
    fn drop(&mut self) {
        if let Some(dials) = self.dials.upgrade() {
            dials.0.borrow_mut().retain(|dial| !Rc::ptr_eq(dial, &self.dial));
        }
        self.dial.over.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dials() -> (Rc<Dials>, SockAddr) {
        (Rc::default(), SockAddr::parse(b"127.0.0.1:80").unwrap())
    }

    #[test]
    fn those_that_join_learn_how_it_ended() {
        let (dials, addr) = dials();
        let end = |how: fn(Dialling)| {
            let dialling = dials.begin(addr.clone(), 1, 1);
            let dial = dials.join(&addr, 1, true).unwrap();
            assert!(dials.join(&addr, 1, true).is_none(), "no room for a second one");
            how(dialling);
            assert!(dials.join(&addr, 1, true).is_none(), "it is over");
            dial.outcome.get()
        };
        assert_eq!(end(Dialling::done), Outcome::Stands);
        assert_eq!(end(|dialling| dialling.fails()), Outcome::Failed);
        assert_eq!(end(drop), Outcome::GivenUp);
    }

    #[test]
    fn a_bound_one_joins_its_own_tag_alone() {
        let (dials, addr) = dials();
        let _dialling = dials.begin(addr.clone(), 1, 8);
        assert!(dials.join(&addr, 2, true).is_none());
        assert!(dials.join(&addr, 2, false).is_some());
    }
}
