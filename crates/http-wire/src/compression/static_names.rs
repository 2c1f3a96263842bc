//! A static table by its names: made when the program is compiled.

use super::name::Name;

/// Places for names; tables have fewer.
const PLACES: usize = 128;

/// No entry.
const NONE: u8 = u8::MAX;

/// An entry of a static table.
pub(crate) type Entry = (&'static [u8], &'static [u8]);

/// Finds entries of a static table of `N` by their names.
pub(crate) struct StaticNames<const N: usize> {
    /// The first entry of each name, hashed, with linear probing.
    by_name: [u8; PLACES],
    /// The next entry that has the same name.
    next: [u8; N],
}

impl<const N: usize> StaticNames<N> {
    pub const fn new(entries: &[Entry; N]) -> StaticNames<N> {
        assert!(N < PLACES, "there is a place without an entry");
        let mut names = StaticNames { by_name: [NONE; PLACES], next: [NONE; N] };
        let mut at = N;
        while at > 0 {
            at -= 1;
            let mut place = Name::new(entries[at].0).hash() as usize % PLACES;
            while names.by_name[place] != NONE {
                let other = names.by_name[place] as usize;
                if same(entries[other].0, entries[at].0) {
                    names.next[at] = other as u8;
                    break;
                }
                place = (place + 1) % PLACES;
            }
            names.by_name[place] = at as u8;
        }
        names
    }

    /// The place of the first entry with a name.
    #[inline]
    pub fn find(&self, entries: &[Entry; N], name: &Name) -> Option<usize> {
        let mut place = name.hash() as usize % PLACES;
        while self.by_name[place] != NONE {
            let at = usize::from(self.by_name[place]);
            if name.is(entries[at].0) {
                return Some(at);
            }
            place = (place + 1) % PLACES;
        }
        None
    }

    /// The place of the entry that has the name of the entry `at`, the first of its name, and this
    /// value.
    #[inline]
    pub(crate) fn with_value(
        &self,
        entries: &[Entry; N],
        at: usize,
        value: &[u8],
    ) -> Option<usize> {
        let mut next = Some(at);
        while let Some(at) = next {
            if entries.get(at)?.1 == value {
                return Some(at);
            }
            next = self.next.get(at).filter(|next| **next != NONE).map(|next| usize::from(*next));
        }
        None
    }
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}
