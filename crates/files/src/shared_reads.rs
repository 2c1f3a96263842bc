//! Reads of files that several requests share.
//!
//! Many requests may need the same part at once: a file that was hot and was evicted, say. One of
//! them has it read, and the others wait for that read instead of asking the disk again. When
//! several wait, the read goes before those of single requests.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use event::Notify;
use mem::FileHandle;

/// The number of requests from which on a part is urgent.
const MANY: usize = 3;

/// Bytes of a part: requests within one share its read.
const PART: u64 = 512 << 10;

type Part = (u64, u64);

thread_local! {
    static READS: RefCell<HashMap<Part, Rc<SharedRead>>> = RefCell::default();
}

/// A part that is being read.
#[derive(Default)]
pub(crate) struct SharedRead {
    waiting: Cell<usize>,
    over: Cell<bool>,
    end: Notify,
}

impl SharedRead {
    /// Waits until it was read, or the reader gave up.
    pub async fn finished(&self) {
        while !self.over.get() {
            self.end.notified().await;
        }
    }
}

/// The right to read a part for all that wait for it. They go on when it is dropped.
pub(crate) struct Reader {
    /// `None` for files that cannot be told from others.
    part: Option<(Part, Rc<SharedRead>)>,
    /// Many requests wait for it.
    pub is_urgent: bool,
}

impl Drop for Reader {
    fn drop(&mut self) {
        let Some((part, read)) = self.part.take() else { return };
        read.over.set(true);
        READS.with_borrow_mut(|reads| {
            // Of two that read the same, the first to end ends it for all.
            if reads.get(&part).is_some_and(|now| Rc::ptr_eq(now, &read)) {
                reads.remove(&part);
            }
        });
        read.end.notify_all();
    }
}

/// The role of a request that needs a part.
pub(crate) enum Role {
    Read(Reader),
    Wait(Rc<SharedRead>),
}

/// The role of one more request that needs the part at `pos`.
pub(crate) fn role(file: &FileHandle, pos: u64) -> Role {
    let part = (file.key(), pos / PART);
    if file.key() == 0 {
        return Role::Read(Reader { part: None, is_urgent: false });
    }
    READS.with_borrow_mut(|reads| {
        let Some(read) = reads.get(&part) else {
            let read = Rc::<SharedRead>::default();
            reads.insert(part, read.clone());
            return Role::Read(Reader { part: Some((part, read)), is_urgent: false });
        };
        read.waiting.set(read.waiting.get() + 1);
        if read.waiting.get() == MANY {
            // The first reader may still stand in the queue; the sooner of both ends it for all.
            return Role::Read(Reader { part: Some((part, read.clone())), is_urgent: true });
        }
        Role::Wait(read.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(key: u64) -> FileHandle {
        let fd = os::file::open(std::path::Path::new("/dev/null")).unwrap();
        FileHandle::new(fd, key, false, None)
    }

    fn reader(role: Role) -> Option<Reader> {
        match role {
            Role::Read(reader) => Some(reader),
            Role::Wait(_) => None,
        }
    }

    #[test]
    fn one_reads_and_the_others_wait_until_they_are_many() {
        let file = file(7);
        let first = reader(role(&file, 0)).unwrap();
        assert!(!first.is_urgent);
        let Role::Wait(waits) = role(&file, 5) else { unreachable!("the same part") };
        assert!(reader(role(&file, PART)).is_some(), "another part");
        assert!(reader(role(&file, 0)).is_none());
        let urgent = reader(role(&file, 0)).unwrap();
        assert!(urgent.is_urgent && reader(role(&file, 0)).is_none());
        assert!(!waits.over.get());
        drop(urgent);
        assert!(waits.over.get());
        // Read again, by somebody else: the end of the first reader is not the end of this.
        let again = reader(role(&file, 0)).unwrap();
        drop(first);
        assert!(reader(role(&file, 0)).is_none());
        drop(again);
        assert!(READS.with_borrow(HashMap::is_empty));
    }

    #[test]
    fn files_without_a_key_are_read_by_each() {
        let file = file(0);
        let _first = reader(role(&file, 0)).unwrap();
        assert!(reader(role(&file, 0)).is_some());
    }
}
