//! The repair of a table after a process died in the middle of a change.

use std::sync::atomic::AtomicU32;

use super::cell::{Cell, ENTRY, FREE, MORE, NONE, Tag, get, read, set};
use super::{Locked, Record, Table};
use crate::zone::CACHE_LINE;

impl<R: Record> Locked<'_, R> {
    /// Builds all chains again. Whole entries stay, in their order of use as far as it is known.
    #[cold]
    pub(super) fn repair(&mut self) {
        self.whole = false;
        let order = self.order_of_use();
        let (t, head) = (self.t, self.t.head());
        for bucket in 0..t.buckets {
            set(t.bucket(bucket), NONE);
        }
        for word in [&head.newest, &head.oldest, &head.free, &head.free_count, &head.entries] {
            set(word, NONE);
        }
        let fresh = get(&head.fresh).min(t.cells);
        set(&head.fresh, fresh);
        let used = || (t.first..t.first + fresh).filter_map(|n| Some((n, t.cell(n)?)));
        for (_, cell) in used().filter(|(_, cell)| Tag::of(cell).kind == MORE) {
            set(&cell.hash, NONE);
        }
        for (number, cell) in order.into_iter().filter_map(|n| Some((n, t.cell(n)?))) {
            let tag = Tag::of(cell);
            match self.claim(number, cell, tag) {
                true => self.link(number, cell),
                false => Tag { kind: FREE, ..tag }.put(cell),
            }
        }
        for (number, cell) in used() {
            let tag = Tag::of(cell);
            match tag.kind {
                ENTRY => continue,
                MORE if self.at(get(&cell.hash)).is_some() => continue,
                MORE => Tag { kind: FREE, ..tag }.put(cell),
                _ => {}
            }
            self.give_cell(number, cell);
        }
        self.whole = true;
    }

    /// All entries, the oldest first, as far as the chain shows. It is followed from both ends,
    /// since it may be broken in one place. An entry on neither way was being inserted, or being
    /// moved to the newest end.
    fn order_of_use(&self) -> Vec<u32> {
        let (t, head) = (self.t, self.t.head());
        let fresh = get(&head.fresh).min(t.cells);
        let is_entry = |number| t.cell(number).is_some_and(|cell| Tag::of(cell).kind == ENTRY);
        let mut seen = vec![false; fresh as usize];
        let mut walk = |from: &AtomicU32, next: fn(&Cell) -> &AtomicU32| {
            let (mut found, mut number) = (Vec::new(), get(from));
            while let Some(cell) = t.cell(number)
                && let Some(seen) = seen.get_mut((number - t.first) as usize)
                && is_entry(number)
                && !std::mem::replace(seen, true)
            {
                found.push(number);
                number = get(next(cell));
            }
            found
        };
        let newest = walk(&head.newest, |cell| &cell.older);
        let mut order = walk(&head.oldest, |cell| &cell.newer);
        let others = (t.first..t.first + fresh).zip(&seen).filter(|(_, seen)| !**seen);
        order.extend(newest.into_iter().rev());
        order.extend(others.map(|(number, _)| number).filter(|number| is_entry(*number)));
        order
    }

    /// Claims the cells of an entry's key for it. False unless all of them are there, unclaimed,
    /// and hold a key with the entry's hash.
    fn claim(&mut self, entry: u32, cell: &Cell, tag: Tag) -> bool {
        let mut key = Vec::with_capacity(usize::from(tag.key_len) + CACHE_LINE);
        read(&cell.data[Table::<R>::KEY_AT..], &mut key);
        let mut number = get(&cell.more);
        for _ in 0..Table::<R>::cells_more(tag.key_len.into()) {
            match self.t.cell(number) {
                Some(more) if Tag::of(more).kind == MORE && get(&more.hash) == NONE => {
                    set(&more.hash, entry);
                    read(&more.data, &mut key);
                    number = get(&more.more);
                }
                _ => return false,
            }
        }
        key.truncate(tag.key_len.into());
        self.t.key(&key).hash == get(&cell.hash)
    }
}
