//! Wake-ups between the server's processes: each has an eventfd, made by the master before the
//! fork.
//!
//! A bell carries no message. A process that waits for another one announces it in shared memory
//! ([`Bells::listen`]), and looks at the tables again when its bell rings.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Zone;
use crate::zone::CACHE_LINE;

/// The bells of a master's processes, by slot. By default there is room for none.
#[derive(Default, Debug)]
pub struct Bells {
    /// A cache line for each slot; its first word is the number of listeners in that process.
    lines: Option<Zone>,
    slots: usize,
    fds: RefCell<Vec<OwnedFd>>,
}

/// Words of a line.
const LINE: usize = CACHE_LINE / 8;

impl Bells {
    /// Room for the bells of `slots` processes; none is made yet.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new(slots: usize) -> io::Result<Bells> {
        let bytes = slots.max(1).checked_mul(CACHE_LINE).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Bells { lines: Some(Zone::anonymous(bytes)?), slots, fds: RefCell::default() })
    }

    /// The number of listeners in the process of a slot.
    fn listeners(&self, slot: usize) -> Option<&AtomicU64> {
        let lines = self.lines.as_ref().filter(|_| slot < self.slots)?;
        lines.words().get(slot * LINE)
    }

    /// In the master, before a fork: makes the bells of the first `count` slots that are missing.
    /// Processes forked earlier cannot ring the new ones; their listeners look at the tables from
    /// time to time.
    ///
    /// # Errors
    /// The system's, when descriptors run out.
    pub fn make(&self, count: usize) -> io::Result<()> {
        let mut fds = self.fds.borrow_mut();
        while fds.len() < count.min(self.slots) {
            fds.push(os::fd::eventfd()?);
        }
        Ok(())
    }

    /// A descriptor that becomes readable when the bell of that slot is rung; `None` for slots
    /// without one.
    ///
    /// # Errors
    /// The system's, when descriptors run out.
    pub fn hear(&self, slot: usize) -> io::Result<Option<OwnedFd>> {
        let fds = self.fds.borrow();
        let Some(fd) = fds.get(slot) else { return Ok(None) };
        // Rings for the previous process of this slot mean nothing to the next one.
        os::fd::eventfd_take(fd);
        if let Some(word) = self.listeners(slot) {
            word.store(0, Ordering::SeqCst);
        }
        os::fd::dup(fd).map(Some)
    }

    /// Whether the process of that slot can be rung.
    pub fn has(&self, slot: usize) -> bool {
        slot < self.fds.borrow().len()
    }

    /// Adds a listener to the process of a slot, or removes one.
    pub fn listen(&self, slot: usize, on: bool) {
        if let Some(word) = self.listeners(slot) {
            // One writer a line: the process that has the slot.
            let count = word.load(Ordering::SeqCst);
            let count = if on { count + 1 } else { count.saturating_sub(1) };
            word.store(count, Ordering::SeqCst);
        }
    }

    /// Rings the bell of one process, with or without listeners.
    pub fn ring_one(&self, slot: usize) {
        if let Some(fd) = self.fds.borrow().get(slot) {
            os::fd::eventfd_notify(fd);
        }
    }

    /// Rings the bells of all processes with listeners but that of slot `me`.
    pub fn ring(&self, me: usize) {
        let fds = self.fds.borrow();
        for (slot, fd) in fds.iter().enumerate().filter(|(slot, _)| *slot != me) {
            let wanted = self.listeners(slot);
            if wanted.is_some_and(|word| word.load(Ordering::SeqCst) != 0) {
                os::fd::eventfd_notify(fd);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_those_who_listen() {
        let bells = Bells::new(4).unwrap();
        bells.make(9).unwrap();
        let heard = |fd: &OwnedFd| os::fd::eventfd_take(fd);
        let (one, two) = (bells.hear(1).unwrap().unwrap(), bells.hear(2).unwrap().unwrap());
        assert!(bells.hear(4).unwrap().is_none());
        bells.listen(1, true);
        bells.listen(9, true);
        bells.ring(0);
        assert_eq!((heard(&one), heard(&two)), (1, 0));
        bells.listen(2, true);
        bells.ring(1);
        assert_eq!((heard(&one), heard(&two)), (0, 1));
        bells.listen(2, false);
        bells.ring(0);
        assert_eq!((heard(&one), heard(&two)), (1, 0));
        bells.ring_one(2);
        assert_eq!((heard(&one), heard(&two)), (0, 1));
        let again = bells.hear(1).unwrap().unwrap();
        assert_eq!(heard(&again), 0);
        bells.ring(0);
        assert_eq!(heard(&again), 0);
    }
}
