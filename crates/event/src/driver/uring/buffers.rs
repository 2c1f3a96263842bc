//! Buffers that the kernel takes when bytes arrive, so that a connection holds none while it waits.
//!
//! They are pages of the thread's own: a filled one goes to the receiver as it is, and another one
//! takes its place.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use mem::{PAGE_SIZE, Page};

use super::ring::Ring;

/// Buffers in the ring; a power of two. A turn fills some tens of them; when more connections have
/// bytes at once, the kernel reports it, and those are read without the ring.
const COUNT: u16 = 128;

/// Buffers that stay in the ring where memory is scarce: the kernel fills them all in one turn when
/// many clients send at once, and a megabyte is more than a small control group has left then.
const COUNT_SCARCE: usize = 16;

const MASK: u16 = COUNT - 1;

/// The group's number, in each recv.
pub(super) const GROUP: u16 = 1;

pub(super) struct Buffers {
    /// The kernel's view: [`COUNT`] entries, aligned to a page of the machine's.
    entries: NonNull<BufRingEntry>,
    /// The page behind each buffer's number.
    pages: Vec<Page>,
    /// The numbers that the kernel does not have.
    missing: Vec<u16>,
    tail: u16,
}

impl Buffers {
    /// Makes the buffers and registers them.
    ///
    /// # Errors
    /// The kernel's: it has had them since 5.19.
    pub(super) fn new(ring: &Ring) -> io::Result<Buffers> {
        let layout = layout();
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(entries) = NonNull::new(memory.cast::<BufRingEntry>()) else {
            handle_alloc_error(layout)
        };
        let missing = Vec::with_capacity(usize::from(COUNT));
        let mut buffers = Buffers { entries, pages: Vec::new(), missing, tail: 0 };
        // SAFETY: the entries live until `Buffers` is dropped, which its owner does after the
        // ring is gone.
        unsafe {
            let address = entries.as_ptr() as u64;
            ring.submitter().register_buf_ring_with_flags(address, COUNT, GROUP, 0)?;
        }
        for number in 0..COUNT {
            buffers.pages.push(Page::new());
            buffers.offer(number, Page::get(PAGE_SIZE));
        }
        buffers.publish();
        Ok(buffers)
    }

    /// Gives the kernel an empty page under `number`, once that is published.
    fn offer(&mut self, number: u16, mut page: Page) {
        let address = page.append_with(|vec| vec.spare_capacity_mut().as_mut_ptr() as u64);
        self.pages[usize::from(number)] = page;
        // SAFETY: the index is one of the `COUNT`; the kernel reads only entries before the
        // published tail, and this one is behind it.
        let entry = unsafe { &mut *self.entries.as_ptr().add(usize::from(self.tail & MASK)) };
        entry.set_addr(address);
        entry.set_len(PAGE_SIZE as u32);
        entry.set_bid(number);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Publishes the offered buffers to the kernel.
    fn publish(&self) {
        // SAFETY: the tail lies in an unused part of the first entry; the kernel reads it, and only
        // this writes it.
        let tail = unsafe {
            let tail = BufRingEntry::tail(self.entries.as_ptr().cast_const());
            AtomicU16::from_ptr(tail.cast_mut())
        };
        // The entries are written before.
        tail.store(self.tail, Ordering::Release);
    }

    /// The page that the kernel has put `len` bytes into.
    pub(super) fn take(&mut self, number: u16, len: usize) -> Page {
        let Some(page) = self.pages.get_mut(usize::from(number)) else { return Page::new() };
        let mut page = std::mem::take(page);
        let len = len.min(PAGE_SIZE);
        // SAFETY: the page was empty with room for `PAGE_SIZE` bytes, and the kernel has written
        // the first `len` of them; it does not write there again, because a filled buffer is ours.
        page.append_with(|vec| unsafe { vec.set_len(len) });
        self.missing.push(number);
        self.refill();
        page
    }

    /// The bytes of the buffers that the kernel has: it may fill them all at any time.
    pub(super) fn lent(&self) -> usize {
        self.there() * PAGE_SIZE
    }

    /// The buffers that the kernel has.
    fn there(&self) -> usize {
        usize::from(COUNT) - self.missing.len()
    }

    /// Gives the kernel pages for the buffers that have none. Where memory is short or scarce some
    /// stay so: when none is left, bytes are received without the ring.
    pub(super) fn refill(&mut self) {
        self.refill_to(if os::memory::is_scarce() { COUNT_SCARCE } else { COUNT.into() });
    }

    fn refill_to(&mut self, max: usize) {
        let before = self.tail;
        while self.there() < max
            && let Some(number) = self.missing.pop()
        {
            let Ok(page) = Page::try_get(PAGE_SIZE) else {
                self.missing.push(number);
                break;
            };
            self.offer(number, page);
        }
        if self.tail != before {
            self.publish();
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: made with this layout in `new`; the ring, which read it, is closed.
        unsafe { dealloc(self.entries.as_ptr().cast(), layout()) };
    }
}

fn layout() -> Layout {
    let bytes = usize::from(COUNT) * size_of::<BufRingEntry>();
    Layout::from_size_align(bytes, 4096).expect("a power of two, and far from overflow")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_has_fewer_buffers_where_memory_is_scarce() {
        let Some((ring, mut buffers)) =
            Ring::new().and_then(|ring| Buffers::new(&ring).map(|buffers| (ring, buffers))).ok()
        else {
            eprintln!("left out: no ring with provided buffers can be made here");
            return;
        };
        assert_eq!(buffers.lent(), usize::from(COUNT) * PAGE_SIZE);
        let few = COUNT_SCARCE as u16;
        // The kernel has filled all but one more than it keeps then.
        buffers.missing.extend(few + 1..COUNT);
        buffers.refill_to(COUNT_SCARCE);
        assert_eq!(buffers.there(), COUNT_SCARCE + 1);
        buffers.missing.extend(0..few + 1);
        buffers.refill_to(COUNT_SCARCE);
        assert_eq!(buffers.lent(), COUNT_SCARCE * PAGE_SIZE);
        buffers.refill_to(COUNT.into());
        assert_eq!(buffers.there(), usize::from(COUNT));
        drop(ring);
    }
}
