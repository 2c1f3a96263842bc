//! State that a client's request and all its subrequests share.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;

use super::{Queue, TOTAL_MAX};
use crate::request::Request;

/// Subrequests that run at the same time; beyond them a page makes more only when their turn comes.
const AHEAD_MAX: u32 = 64;

/// The subrequests of a request.
#[derive(Default)]
pub(crate) struct Subrequests {
    /// Output that waits for subrequests before it.
    pub queue: Queue,
    /// State shared with its subrequests, or with the request that it is one of.
    pub family: Option<Rc<Family>>,
}

impl Subrequests {
    pub fn family(&mut self) -> &Rc<Family> {
        self.family.get_or_insert_default()
    }
}

#[derive(Default)]
pub(crate) struct Family {
    charset: RefCell<Option<Bytes>>,
    /// Subrequests that run now.
    live: Cell<u32>,
    total: Cell<u32>,
    /// A part that was to be kept in memory is too long.
    overflowed: Cell<bool>,
    /// Reasons of refused subrequests that the log has already.
    logged: Cell<u8>,
    state: RefCell<Vec<Rc<dyn Any>>>,
}

impl Family {
    pub(crate) fn set_charset(&self, charset: Option<Bytes>) {
        *self.charset.borrow_mut() = charset;
    }

    /// Counts one more subrequest; false where there were too many.
    pub fn admit(&self) -> bool {
        if self.total.get() >= TOTAL_MAX {
            return false;
        }
        self.total.set(self.total.get() + 1);
        self.live.set(self.live.get() + 1);
        true
    }

    /// Whether `reason`, the bit of a refusal, is to be logged: the first one of each kind is. A
    /// page that includes itself 50 times would write millions of lines.
    pub fn is_first(&self, reason: u8) -> bool {
        let logged = self.logged.get();
        self.logged.set(logged | reason);
        logged & reason == 0
    }

    /// Notes that a part does not fit into memory: the page is not sent any further.
    pub fn overflow(&self) {
        self.overflowed.set(true);
    }

    pub(crate) fn has_overflowed(&self) -> bool {
        self.overflowed.get()
    }

    pub(crate) fn one_ended(&self) {
        self.live.set(self.live.get().saturating_sub(1));
    }

    /// Whether no more of them should run ahead.
    pub(crate) fn is_crowded(&self) -> bool {
        self.live.get() >= AHEAD_MAX
    }
}

impl Request {
    /// The charset that the client's response says it is in, for a subrequest to follow.
    pub fn main_charset(&self) -> Option<Bytes> {
        match &self.work.subrequests.family {
            Some(f) if self.is_subrequest() => f.charset.borrow().clone(),
            _ => self.out.charset.clone(),
        }
    }

    /// A module's state that a client's request and all its subrequests have in common, made now if
    /// there is none. It outlives redirects inside the server, and is dropped when the last of
    /// these requests ends, however it ends.
    pub fn shared<T: Default + 'static>(&mut self) -> Rc<T> {
        engine::shared_in(&mut self.work.subrequests.family().state.borrow_mut())
    }

    /// The same where it was made already.
    pub fn shared_if_any<T: 'static>(&self) -> Option<Rc<T>> {
        let state = self.work.subrequests.family.as_ref()?.state.borrow();
        state.iter().find_map(|state| state.clone().downcast().ok())
    }
}
