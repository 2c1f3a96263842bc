//! The way of a subrequest's body to the request that made it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use event::Notify;
use mem::{Buf, Chain};

use super::Family;
use crate::output::Broken;

/// Bytes in memory that a pipe holds before the subrequest waits. Ranges of files do not count.
const HOLD_MAX: u64 = 64 << 10;

/// A subrequest's body on its way to the parent, with its end and its status.
pub(crate) struct Pipe {
    chain: RefCell<Chain>,
    /// Bytes of the chain that are in memory.
    held: Cell<u64>,
    result: Cell<Option<Result<(), Broken>>>,
    pub status: Cell<u16>,
    family: Rc<Family>,
    /// For the parent: there is something new.
    news: Notify,
    /// For the subrequest: there is room.
    room: Notify,
    /// For the task that waits for the end.
    over: Notify,
}

fn in_memory(chain: &Chain) -> u64 {
    chain.iter().filter(|b| !matches!(b, Buf::File { .. })).map(Buf::len).sum()
}

impl Pipe {
    pub fn new(family: Rc<Family>) -> Pipe {
        Pipe {
            chain: RefCell::default(),
            held: Cell::new(0),
            result: Cell::new(None),
            status: Cell::new(0),
            family,
            news: Notify::new(),
            room: Notify::new(),
            over: Notify::new(),
        }
    }

    /// Puts a piece in, where there is room for it.
    pub async fn put(&self, mut piece: Chain) {
        while self.held.get() >= HOLD_MAX {
            self.room.notified().await;
        }
        self.keep(&mut piece);
    }

    /// Puts a piece in, whatever room there is.
    pub fn keep(&self, piece: &mut Chain) {
        self.held.set(self.held.get() + in_memory(piece));
        self.chain.borrow_mut().append(piece);
        self.news.notify_one();
    }

    /// Takes all that is in it.
    pub fn take(&self) -> Chain {
        self.held.set(0);
        self.room.notify_all();
        self.chain.borrow_mut().take()
    }

    pub fn is_empty(&self) -> bool {
        self.chain.borrow().is_empty()
    }

    /// The subrequest's end, once it has come.
    pub fn result(&self) -> Option<Result<(), Broken>> {
        self.result.get()
    }

    /// The subrequest ends; only the first word counts.
    pub fn end(&self, result: Result<(), Broken>) {
        if self.result.get().is_none() {
            self.result.set(Some(result));
            self.family.one_ended();
            self.news.notify_one();
            self.over.notify_all();
        }
    }

    /// Waits for more bytes or the end.
    pub async fn changed(&self) {
        self.news.notified().await;
    }

    /// Waits for the end.
    pub async fn ended(&self) -> Result<(), Broken> {
        loop {
            if let Some(result) = self.result.get() {
                return result;
            }
            self.over.notified().await;
        }
    }
}
