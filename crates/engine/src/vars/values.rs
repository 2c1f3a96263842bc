//! The values of a session's variables.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use conf::template::VarId;

/// A variable's value in one session.
#[derive(Clone, Default)]
pub(super) enum Slot {
    #[default]
    Unset,
    /// Being computed: met again, it is a circle.
    Busy,
    NotFound,
    Value(Bytes),
}

/// The values of one session, by variable; recycled with it. Subrequests have them in common with
/// the request that made them.
#[derive(Default)]
pub struct Values {
    slots: Vec<Slot>,
    touched: bool,
    /// Instead of `slots`, from the first subrequest on.
    common: Option<Rc<RefCell<Vec<Slot>>>>,
}

impl Values {
    /// Forgets all values.
    pub fn clear(&mut self) {
        if self.touched {
            self.slots.clear();
            self.touched = false;
        }
        self.common = None;
    }

    /// The same values for another session.
    pub fn share(&mut self) -> Values {
        let own = &mut self.slots;
        let common = self.common.get_or_insert_with(|| Rc::new(RefCell::new(std::mem::take(own))));
        Values { slots: Vec::new(), touched: false, common: Some(common.clone()) }
    }

    pub(super) fn set(&mut self, id: VarId, value: Slot) {
        let put = |slots: &mut Vec<Slot>| {
            let i = id.0 as usize;
            if i >= slots.len() {
                slots.resize_with(i + 1, Slot::default);
            }
            slots[i] = value;
        };
        match &self.common {
            None => {
                self.touched = true;
                put(&mut self.slots);
            }
            Some(common) => put(&mut common.borrow_mut()),
        }
    }

    /// Whether nothing is stored of any variable, as in most requests.
    #[inline]
    pub(super) fn is_untouched(&self) -> bool {
        !self.touched && self.common.is_none()
    }

    /// Looks at a value; `look` must not touch others.
    pub(super) fn with<T>(&self, id: VarId, look: impl FnOnce(&Slot) -> T) -> T {
        let of = |slots: &[Slot]| look(slots.get(id.0 as usize).unwrap_or(&Slot::Unset));
        match &self.common {
            None => of(&self.slots),
            Some(common) => of(&common.borrow()),
        }
    }
}
