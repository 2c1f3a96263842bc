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
    /// It can be used.
    stands: Cell<bool>,
    over: Notify,
}

impl Dial {
    /// Waits until it can be used, or is known not to come: says which. `None`: the deadline came
    /// first.
    pub async fn outcome(&self, deadline: Deadline) -> Option<bool> {
        self.over.notified_by(deadline).await.then(|| self.stands.get())
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
        let (stands, over) = (Cell::new(false), Notify::new());
        let dial = Rc::new(Dial { addr, tag, room: Cell::new(room), stands, over });
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
        self.dial.stands.set(true);
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
