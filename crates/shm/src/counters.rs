//! Counters that every worker writes without disturbing the others and anyone can sum up.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Zone;
use crate::zone::{CACHE_LINE, Shared};

/// Counters in a line.
pub const LINE_FIELDS: usize = CACHE_LINE / 8;

/// One worker's counters, on a cache line of their own. Only that worker writes them.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Line([AtomicU64; LINE_FIELDS]);

// SAFETY: an array of atomics that fills its alignment: no padding, any bits are values.
unsafe impl Shared for Line {}

impl Line {
    /// Adds `n` to a field. A line has one writer at a time, so that a plain load and store is
    /// enough and costs no bus lock.
    #[inline]
    pub fn add(&self, field: usize, n: u64) {
        let cell = &self.0[field];
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds `n` to a field that several processes write.
    pub(crate) fn add_shared(&self, field: usize, n: u64) {
        self.0[field].fetch_add(n, Ordering::Relaxed);
    }

    /// Subtracts `n` from a field (of work under way).
    #[inline]
    pub fn sub(&self, field: usize, n: u64) {
        let cell = &self.0[field];
        cell.store(cell.load(Ordering::Relaxed).wrapping_sub(n), Ordering::Relaxed);
    }

    /// Puts a value into a field.
    #[inline]
    pub fn set(&self, field: usize, n: u64) {
        self.0[field].store(n, Ordering::Relaxed);
    }

    /// Adds the values of all fields to sums.
    pub(crate) fn add_to(&self, sums: &mut [u64; LINE_FIELDS]) {
        for (sum, cell) in sums.iter_mut().zip(&self.0) {
            *sum = sum.wrapping_add(cell.load(Ordering::Relaxed));
        }
    }

    /// Takes the values of all fields from sums.
    pub(crate) fn take_from(&self, sums: &mut [u64; LINE_FIELDS]) {
        for (sum, cell) in sums.iter_mut().zip(&self.0) {
            *sum = sum.wrapping_sub(cell.load(Ordering::Relaxed));
        }
    }

    /// Raises a field that several processes write to `n`, if it is less.
    fn raise(&self, field: usize, n: u64) {
        self.0[field].fetch_max(n, Ordering::Relaxed);
    }

    /// A field's value.
    #[inline]
    pub fn get(&self, field: usize) -> u64 {
        self.0[field].load(Ordering::Relaxed)
    }
}

/// A line of [`LINE_FIELDS`] counters for each process slot. A slot belongs to one process at a
/// time; the next process continues with the values of the last one, so that sums never go back.
#[derive(Debug)]
pub struct Counters {
    zone: Zone,
    slots: usize,
}

impl Counters {
    /// Counters for `slots` processes. Memory is taken only for the slots that are used. The kernel
    /// takes a page for the first reader as well, so sums end with the last slot that is used.
    pub fn new(slots: usize) -> io::Result<Counters> {
        // The line behind those of the slots has the number of them that is used.
        let lines = slots.max(1).checked_add(1).and_then(|lines| lines.checked_mul(CACHE_LINE));
        Ok(Counters { zone: Zone::anonymous(lines.ok_or(io::ErrorKind::OutOfMemory)?)?, slots })
    }

    /// A process is about to use a slot. Without a call of this, all slots count as used.
    pub fn use_slot(&self, slot: usize) {
        self.mark().raise(0, (slot as u64).saturating_add(1));
    }

    /// The number of slots up to the last one that was used by a process.
    pub fn used(&self) -> usize {
        match self.mark().get(0) {
            0 => self.slots,
            used => self.slots.min(usize::try_from(used).unwrap_or(usize::MAX)),
        }
    }

    fn mark(&self) -> &Line {
        &self.zone.view::<Line>()[self.slots.max(1)]
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The counters of a slot; a slot out of range is an error of the caller's and gets the last
    /// one.
    pub fn line(&self, slot: usize) -> &Line {
        &self.zone.view::<Line>()[slot.min(self.slots.saturating_sub(1))]
    }

    /// The sum of a field over all slots.
    pub fn sum(&self, field: usize) -> u64 {
        let lines = self.zone.view::<Line>().iter().take(self.used());
        lines.fold(0, |sum, line| sum.wrapping_add(line.get(field)))
    }

    /// Zeroes some fields of a slot: the work that a dead process had under way.
    pub fn clear(&self, slot: usize, fields: &[usize]) {
        for &field in fields {
            self.line(slot).set(field, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_cache_line() {
        assert_eq!(size_of::<Line>(), CACHE_LINE);
        assert_eq!(align_of::<Line>(), CACHE_LINE);
    }

    #[test]
    fn sums_end_with_the_last_slot_that_is_used() {
        let counters = Counters::new(64).unwrap();
        counters.line(63).add(0, 1);
        assert_eq!((counters.used(), counters.sum(0)), (64, 1), "nobody has said so");
        counters.use_slot(7);
        counters.use_slot(3);
        counters.line(7).add(0, 2);
        assert_eq!((counters.used(), counters.sum(0)), (8, 2));
        counters.use_slot(usize::MAX - 1);
        assert_eq!((counters.used(), counters.sum(0)), (64, 3));
        // The mark is no slot's.
        counters.line(usize::MAX).add(0, 1);
        assert_eq!((counters.used(), counters.sum(0)), (64, 4));
    }

    #[test]
    fn sums_and_dead_workers() {
        let counters = Counters::new(3).unwrap();
        counters.line(0).add(0, 5);
        counters.line(2).add(0, 2);
        counters.line(2).add(1, 9);
        counters.line(2).sub(1, 1);
        assert_eq!((counters.sum(0), counters.sum(1)), (7, 8));
        counters.clear(2, &[1]);
        assert_eq!((counters.sum(0), counters.sum(1)), (7, 0));
    }

    #[test]
    fn no_slot_at_all_is_borne() {
        let counters = Counters::new(0).unwrap();
        counters.line(9).add(0, 1);
        assert_eq!(counters.sum(0), 0);
    }
}
