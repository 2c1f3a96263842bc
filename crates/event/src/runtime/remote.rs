//! Waking a loop from another thread: a queue behind a lock, and an eventfd that ends the wait.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::state::index::NONE;

/// The part of a loop that other threads may touch.
pub(crate) struct Mailbox {
    queue: Mutex<Vec<u64>>,
    event: OwnedFd,
}

/// The mailboxes of all loops of the process, by the loop's number.
static LOOPS: Mutex<Vec<Option<Arc<Mailbox>>>> = Mutex::new(Vec::new());

/// Numbers of loops stay below: the highest one would make a waker's word look like "none".
const LOOPS_MAX: usize = u16::MAX as usize;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds these locks can leave them half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mailbox {
    /// Makes a mailbox and gives its loop a number.
    pub(crate) fn open() -> std::io::Result<(u16, Arc<Mailbox>)> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let mailbox = Arc::new(Mailbox { queue: Mutex::new(Vec::new()), event });
        let mut loops = lock(&LOOPS);
        let place = loops.iter().position(Option::is_none).unwrap_or(loops.len());
        if place >= LOOPS_MAX {
            return Err(std::io::Error::other("too many event loops"));
        }
        if place == loops.len() {
            loops.push(None);
        }
        loops[place] = Some(mailbox.clone());
        Ok((place as u16, mailbox))
    }

    /// The descriptor that becomes readable when something is in the queue.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn post(&self, data: u64) {
        let first = {
            let mut queue = lock(&self.queue);
            queue.push(data);
            queue.len() == 1
        };
        if first {
            // Can only fail when the counter is full, and then the loop wakes anyway.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Takes the posted words; called when the eventfd is readable.
    pub(crate) fn take(&self, into: &mut Vec<u64>) {
        // Emptied before the queue is: a later post makes it readable again.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        into.append(&mut lock(&self.queue));
    }
}

/// Removes the mailbox of loop `id`; words for it are dropped from then on.
pub(crate) fn close(id: u16) {
    if let Some(place) = lock(&LOOPS).get_mut(usize::from(id)) {
        *place = None;
    }
}

/// Posts a waker's word to loop `id`.
#[cold]
pub(crate) fn wake(id: u16, data: u64) {
    let mailbox = lock(&LOOPS).get(usize::from(id)).and_then(Clone::clone);
    if let Some(mailbox) = mailbox {
        mailbox.post(data);
    }
}

/// The token of the eventfd among the driver's own: no socket has this place.
pub(crate) const TOKEN: u64 = NONE as u64;
