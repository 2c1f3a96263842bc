//! Prefetching: the addresses that tasks will use at their next poll are brought into the
//! processor's caches ahead of it.
//!
//! A task that waits for a notification (thousands may) finds its data far from the processor, in a
//! dozen places that lead from one to the next. Known beforehand, all of them are loaded at the
//! same time, while the task before is polled.

use super::index::NONE;

/// A cache line, bytes.
const LINE: usize = 64;

/// Lines of one region at most.
const LINES_MAX: usize = LINE;

/// Regions of a task at most.
const REGIONS: usize = 8;

/// A region of memory in a word: the address of its first line, whose low bits are free for the
/// number of lines behind it. 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Region(usize);

/// The region in which a value lies, or its beginning where that is large.
#[inline]
pub(crate) fn region<T: ?Sized>(what: &T) -> Region {
    let (start, len) = (std::ptr::from_ref(what).addr(), size_of_val(what));
    if len == 0 {
        return Region(0);
    }
    let (first, last) = (start / LINE, (start + len - 1) / LINE);
    Region((first * LINE) | (last - first).min(LINES_MAX - 1))
}

impl Region {
    /// The address of its first line, and the number of lines.
    #[inline]
    fn lines(self) -> (usize, usize) {
        match self.0 {
            0 => (0, 0),
            word => (word & !(LINES_MAX - 1), (word & (LINES_MAX - 1)) + 1),
        }
    }
}

/// Asks for the memory of a region.
#[inline]
pub(crate) fn fetch(region: Region) {
    let (mut line, lines) = region.lines();
    for _ in 0..lines {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: it reads nothing; any address may be given to it.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(line)) };
        }
        line += LINE;
    }
}

/// The regions of a task.
#[repr(align(64))]
struct Regions([Region; REGIONS]);

/// The regions of all tasks that wait and have some.
#[derive(Default)]
pub(crate) struct Prefetches {
    list: Vec<Regions>,
    free: Vec<u32>,
}

impl Prefetches {
    /// Adds a region to the list with this number; `NONE` gets a number.
    #[inline]
    pub(crate) fn note<T: ?Sized>(&mut self, number: &mut u32, what: &T) {
        if *number == NONE {
            *number = self.take();
        }
        let regions = &mut self.list[*number as usize].0;
        if let Some(free) = regions.iter_mut().find(|r| r.0 == 0) {
            *free = region(what);
        }
    }

    fn take(&mut self) -> u32 {
        let none = Regions([Region(0); REGIONS]);
        match self.free.pop() {
            Some(number) => {
                self.list[number as usize] = none;
                number
            }
            None => {
                self.list.push(none);
                (self.list.len() - 1) as u32
            }
        }
    }

    /// Asks for the memory of all that stands under a number.
    pub(crate) fn fetch(&self, number: u32) {
        if let Some(regions) = self.list.get(number as usize) {
            regions.0.iter().take_while(|r| r.0 != 0).for_each(|region| fetch(*region));
        }
    }

    /// Frees the list with this number.
    #[inline]
    pub(crate) fn forget(&mut self, number: &mut u32) {
        if *number != NONE {
            self.free.push(std::mem::replace(number, NONE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_the_lines_of_a_value() {
        #[repr(align(64))]
        struct Lines([u8; 256]);
        let lines = Lines([0; 256]);
        let start = lines.0.as_ptr().addr();
        let of = |what: &[u8]| region(what).lines();
        assert_eq!(of(&lines.0), (start, 4));
        assert_eq!(of(&lines.0[63..65]), (start, 2));
        assert_eq!(of(&lines.0[64..128]), (start + 64, 1));
        assert_eq!(of(&[]), (0, 0));
        assert_eq!(of(&vec![0; 1 << 20]).1, LINES_MAX);
    }

    #[test]
    fn numbers_are_given_again() {
        let mut prefetch = Prefetches::default();
        let (mut a, mut b) = (NONE, NONE);
        for _ in 0..2 * REGIONS {
            prefetch.note(&mut a, "a");
        }
        prefetch.note(&mut b, "b");
        assert_eq!((a, b), (0, 1));
        prefetch.forget(&mut a);
        prefetch.forget(&mut a);
        assert_eq!(a, NONE);
        prefetch.note(&mut a, "c");
        assert_eq!((a, prefetch.list[0].0[1], prefetch.free.len()), (0, Region(0), 0));
        prefetch.fetch(a);
        prefetch.fetch(NONE);
    }
}
