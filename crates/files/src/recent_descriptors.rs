//! Descriptors of larger files that are asked for in quick succession: held for a second, and used
//! again while `statx(2)` tells that the path still leads to the same file, unchanged. A file that
//! is deleted or replaced keeps its blocks for that second at most, as it would while it is being
//! sent.

use std::cell::RefCell;
use std::rc::Rc;

use base::hash::Table;

use crate::file::OpenFile;

/// The time for which a descriptor is held after it was opened, milliseconds. It may take as long
/// again until the sweep comes by.
const HELD_MS: u64 = 1_000;

/// Descriptors held at once.
const HELD_MAX: usize = 64;

#[derive(Default)]
struct Inner {
    files: Table<Box<[u8]>, (OpenFile, u64)>,
    /// A task will come by and close what is over its time.
    sweeping: bool,
}

/// The descriptors that a worker holds.
#[derive(Default)]
pub(crate) struct RecentDescriptors(Rc<RefCell<Inner>>);

impl RecentDescriptors {
    /// The file that was opened at `path` a moment ago.
    pub fn get(&self, path: &[u8]) -> Option<OpenFile> {
        let inner = self.0.borrow();
        let (file, opened_ms) = inner.files.get(path)?;
        (opened_ms + HELD_MS > base::time::now_ms()).then(|| file.clone())
    }

    /// Holds a file that was opened just now, if there is room.
    pub fn insert(&self, path: &[u8], file: &OpenFile) {
        let inner = &mut *self.0.borrow_mut();
        if inner.files.len() >= HELD_MAX && !inner.files.contains_key(path) {
            return;
        }
        inner.files.insert(path.into(), (file.clone(), base::time::now_ms()));
        if !std::mem::replace(&mut inner.sweeping, true) {
            event::spawn(sweep(self.0.clone()));
        }
    }

    /// Forgets a path that leads to another file now.
    pub fn remove(&self, path: &[u8]) {
        self.0.borrow_mut().files.remove(path);
    }
}

/// Closes what is over its time, until nothing is held.
async fn sweep(held: Rc<RefCell<Inner>>) {
    loop {
        event::sleep(HELD_MS).await;
        let now = base::time::now_ms();
        let mut inner = held.borrow_mut();
        let before = inner.files.len();
        inner.files.retain(|_, (_, opened_ms)| *opened_ms + HELD_MS > now);
        inner.sweeping = !inner.files.is_empty();
        let (closed, over) = (inner.files.len() < before, !inner.sweeping);
        drop(inner);
        if closed {
            // The loop may be waiting for a descriptor to become free.
            event::descriptor_closed();
        }
        if over {
            return;
        }
    }
}
