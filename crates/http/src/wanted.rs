//! Parts of files that are being read from a disk, with those who wait for them.
//!
//! Many may want the same part at once: a file that was hot and went from memory, say. One of them
//! has it read, and the others wait with that one instead of asking the disk again. When several
//! do, it is read before what single requests want: the more wait, the less it may take.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use event::Notify;
use mem::FileHandle;

/// So many who wait for one part are many.
const MANY: usize = 3;

/// Whoever wants a part of these bytes wants the same.
const PART: u64 = 512 << 10;

type Part = (u64, u64);

thread_local! {
    static READS: RefCell<HashMap<Part, Rc<Wanted>>> = RefCell::default();
}

/// A part that is being read.
#[derive(Default)]
pub(crate) struct Wanted {
    waiting: Cell<usize>,
    over: Cell<bool>,
    end: Notify,
}

impl Wanted {
    /// Waits until it was read, or nobody reads it any more.
    pub async fn read(&self) {
        while !self.over.get() {
            self.end.notified().await;
        }
    }
}

/// Reads a part for all that want it. They go on when it is dropped.
pub(crate) struct Reader {
    /// `None` for files that cannot be told from others.
    part: Option<(Part, Rc<Wanted>)>,
    /// Many wait for it.
    pub is_urgent: bool,
}

impl Drop for Reader {
    fn drop(&mut self) {
        let Some((part, wanted)) = self.part.take() else { return };
        wanted.over.set(true);
        READS.with_borrow_mut(|reads| {
            // Of two that read the same, the first to end ends it for all.
            if reads.get(&part).is_some_and(|now| Rc::ptr_eq(now, &wanted)) {
                reads.remove(&part);
            }
        });
        wanted.end.notify_all();
    }
}

/// What somebody has to do who wants a part.
pub(crate) enum Role {
    Read(Reader),
    Wait(Rc<Wanted>),
}

/// The role of one more who wants what is at `pos`.
pub(crate) fn role(file: &FileHandle, pos: u64) -> Role {
    let part = (file.key(), pos / PART);
    if file.key() == 0 {
        return Role::Read(Reader { part: None, is_urgent: false });
    }
    READS.with_borrow_mut(|reads| {
        let Some(wanted) = reads.get(&part) else {
            let wanted = Rc::<Wanted>::default();
            reads.insert(part, wanted.clone());
            return Role::Read(Reader { part: Some((part, wanted)), is_urgent: false });
        };
        wanted.waiting.set(wanted.waiting.get() + 1);
        if wanted.waiting.get() == MANY {
            // The first reader may still stand in the queue; whoever is sooner does it for all.
            return Role::Read(Reader { part: Some((part, wanted.clone())), is_urgent: true });
        }
        Role::Wait(wanted.clone())
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
