//! Buffers that the kernel takes when bytes arrive, so that a connection holds none while it waits.
//!
//! They are pages of the thread's own: a filled one goes to the receiver as it is, and another one
//! takes its place. Their number follows the need: it doubles when a turn has taken most of them,
//! and halves with each [`Buffers::tidy`] before which no turn has taken many.
//!
//! The kernel copies what it brings within the call that waits, and nothing else happens meanwhile:
//! where bytes come in bulk, it has so many that they hold [`TURN_BYTES`], and tasks receive the
//! rest in their turns.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use mem::{PAGE_SIZE, Page};

use super::ring::{Completion, Ring};

/// Entries of the ring, and the buffers in it at most; a power of two. When more connections have
/// bytes at once, the kernel reports it, and those are read without the ring.
const COUNT: u16 = 128;

/// Buffers that are in the ring at first and in quiet times, and at most where memory is scarce:
/// the kernel fills them all in one turn when many clients send at once, and a megabyte is more
/// than a small control group has left then.
const COUNT_MIN: usize = 16;

/// Bytes that a turn may bring, as long as more than [`COUNT_MIN`] buffers hold them: to copy them
/// takes a tenth of a millisecond.
const TURN_BYTES: usize = 256 << 10;

/// Receives by which the bytes of the next ones are estimated.
const RECEIVES: usize = 64;

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
    /// The kernel knows of the entries.
    registered: bool,
    need: Need,
}

/// The number of buffers that the kernel is to have.
struct Need {
    count: usize,
    /// Receives of the present turn that took a buffer, or found none.
    turn: usize,
    /// The last receives that took a buffer, at most [`RECEIVES`], and the bytes that they brought.
    receives: usize,
    bytes: usize,
    /// The most in a turn since the last look.
    most: usize,
}

impl Need {
    const fn new() -> Need {
        Need { count: COUNT_MIN, turn: 0, receives: 0, bytes: 0, most: 0 }
    }

    /// A receive took a buffer for `bytes` bytes.
    fn took(&mut self, bytes: usize) {
        self.turn += 1;
        self.receives += 1;
        self.bytes += bytes;
        if self.receives > RECEIVES {
            (self.receives, self.bytes) = (self.receives / 2, self.bytes / 2);
        }
    }

    /// As many as are needed, unless these would bring too much.
    fn count(&self) -> usize {
        let limit = TURN_BYTES * self.receives.max(1) / self.bytes.max(1);
        self.count.min(limit.max(COUNT_MIN))
    }

    /// A turn is over: more buffers, if it took most of them.
    fn end_turn(&mut self) {
        let turn = std::mem::take(&mut self.turn);
        self.most = self.most.max(turn);
        while turn * 2 > self.count && self.count < COUNT.into() {
            self.count *= 2;
        }
    }

    /// Half as many, if no turn since the last look took a quarter.
    fn look(&mut self) {
        let most = std::mem::take(&mut self.most);
        if most * 4 < self.count {
            self.count = (self.count / 2).max(COUNT_MIN);
        }
    }
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
        let pages = (0..COUNT).map(|_| Page::new()).collect();
        // The lowest first.
        let missing = (0..COUNT).rev().collect();
        let need = Need::new();
        let mut buffers = Buffers { entries, pages, missing, tail: 0, registered: false, need };
        buffers.register(ring)?;
        buffers.refill();
        Ok(buffers)
    }

    /// Makes the entries known to the kernel, without a buffer.
    fn register(&mut self, ring: &Ring) -> io::Result<()> {
        self.tail = 0;
        self.publish();
        // SAFETY: the entries live until `Buffers` is dropped, which its owner does after the
        // ring is gone.
        unsafe {
            let address = self.entries.as_ptr() as u64;
            ring.submitter().register_buf_ring_with_flags(address, COUNT, GROUP, 0)?;
        }
        self.registered = true;
        Ok(())
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
        self.need.took(len);
        self.refill();
        page
    }

    /// A receive found no buffer.
    pub(super) fn ran_out(&mut self) {
        self.need.turn += 1;
    }

    /// The completions of a turn are applied.
    pub(super) fn end_turn(&mut self) {
        self.need.end_turn();
        self.refill();
    }

    /// Takes buffers back that no turn has needed since the last call, and those that the kernel
    /// has too many of. Returns whether it has more than in quiet times still. `done` gets what
    /// completed meanwhile.
    pub(super) fn tidy(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) -> io::Result<bool> {
        self.need.look();
        if self.there() > self.most() {
            self.take_back(ring, done)?;
        }
        if !self.registered {
            // It failed before, for want of memory; until it is done receives find no buffer.
            self.registered = self.register(ring).is_ok();
            self.refill();
        }
        Ok(self.need.count > COUNT_MIN || !self.registered)
    }

    /// Takes all buffers back: the kernel returns none by itself. What it has filled is in `done`
    /// then, and [`Buffers::take`] finds its page.
    fn take_back(&mut self, ring: &mut Ring, done: &mut Vec<Completion>) -> io::Result<()> {
        if ring.submitter().unregister_buf_ring(GROUP).is_err() {
            return Ok(());
        }
        self.registered = false;
        ring.collect_all(done)?;
        for number in 0..COUNT {
            let filled = done.iter().any(|done| done.buffer() == Some(number));
            if !filled && !self.missing.contains(&number) {
                self.pages[usize::from(number)].release();
                self.missing.push(number);
            }
        }
        Ok(())
    }

    /// The bytes of the buffers that the kernel has: it may fill them all at any time.
    pub(super) fn lent(&self) -> usize {
        self.there() * PAGE_SIZE
    }

    /// The buffers that the kernel has, or has filled.
    fn there(&self) -> usize {
        usize::from(COUNT) - self.missing.len()
    }

    /// The buffers that it is to have.
    fn most(&self) -> usize {
        if os::memory::is_scarce() { COUNT_MIN } else { self.need.count() }
    }

    /// Gives the kernel pages for the buffers that have none. Where memory is short some stay so:
    /// when none is left, bytes are received without the ring.
    fn refill(&mut self) {
        self.refill_to(self.most());
    }

    fn refill_to(&mut self, max: usize) {
        let before = self.tail;
        while self.registered
            && self.there() < max
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
    fn buffers_double_with_a_full_turn_and_halve_with_quiet_looks() {
        let mut need = Need::new();
        let turn = |need: &mut Need, used| {
            need.turn += used;
            need.end_turn();
            need.count
        };
        // Half of them is not most.
        assert_eq!(turn(&mut need, 8), 16);
        assert_eq!(turn(&mut need, 9), 32);
        // As many as it takes, those that found none included, up to the limit.
        assert_eq!(turn(&mut need, 40), 128);
        assert_eq!(turn(&mut need, 1000), 128);
        assert_eq!(turn(&mut need, 0), 128);
        need.look();
        assert_eq!(need.count, 128, "a turn took them all");
        let looks: Vec<_> = (0..5).map(|_| (turn(&mut need, 2), need.look()).0).collect();
        assert_eq!(looks, [128, 64, 32, 16, 16]);
        assert_eq!((turn(&mut need, 20), need.look(), need.count), (64, (), 64));
    }

    #[test]
    fn bytes_in_bulk_have_few_buffers_and_many_small_requests_have_many() {
        let mut need = Need::new();
        let turns = |need: &mut Need, turns, receives, bytes| {
            for _ in 0..turns {
                (0..receives).for_each(|_| need.took(bytes));
                need.end_turn();
            }
            need.count()
        };
        assert_eq!(turns(&mut need, 1, 100, 300), 128);
        let bulk = 16..=20;
        assert!(bulk.contains(&turns(&mut need, 1, 100, PAGE_SIZE)));
        // A small request between them changes little.
        assert!(bulk.contains(&turns(&mut need, 1, 1, 300)));
        assert!(turns(&mut need, 1, 16, 4096) < 32);
        assert!(turns(&mut need, 2, 100, 300) > 100);
        assert_eq!(turns(&mut need, 2, 100, 300), 128);
    }

    #[test]
    fn buffers_come_back_from_the_kernel_except_for_those_that_it_has_filled() {
        let Some((mut ring, mut buffers)) = made() else { return };
        let mut done = Vec::new();
        let most = usize::from(COUNT);
        assert_eq!(buffers.lent(), COUNT_MIN * PAGE_SIZE);
        buffers.need.turn = most;
        buffers.end_turn();
        assert_eq!(buffers.there(), most);
        assert!(buffers.tidy(&mut ring, &mut done).unwrap(), "one turn took them all");
        assert_eq!(buffers.there(), most);
        // Bytes that came before the kernel gives its buffers back.
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        std::io::Write::write_all(&mut &theirs, b"bytes").unwrap();
        let recv = |ring: &mut Ring| {
            let fd = io_uring::types::Fd(std::os::fd::AsRawFd::as_raw_fd(&ours));
            let entry = io_uring::opcode::Recv::new(fd, std::ptr::null_mut(), 0);
            let entry = entry.buf_group(GROUP).build();
            let entry = entry.flags(io_uring::squeue::Flags::BUFFER_SELECT).user_data(7);
            // SAFETY: it points to no memory.
            unsafe { ring.push(&entry) }.unwrap();
            ring.enter(true, Some(1000)).unwrap();
        };
        recv(&mut ring);
        let left: Vec<_> = (0..3).map(|_| buffers.tidy(&mut ring, &mut done).unwrap()).collect();
        assert_eq!(left, [true, true, false]);
        assert_eq!(done.len(), 1);
        assert_eq!(buffers.there(), COUNT_MIN);
        let page = buffers.take(done[0].buffer().unwrap(), done[0].result as usize);
        assert_eq!((page.filled(), buffers.there()), (&b"bytes"[..], COUNT_MIN));
        // Those that it has now are in use.
        for _ in 0..2 * COUNT_MIN {
            std::io::Write::write_all(&mut &theirs, b"more").unwrap();
            recv(&mut ring);
            done.clear();
            ring.collect(&mut done);
            let page = buffers.take(done[0].buffer().unwrap(), done[0].result as usize);
            assert_eq!(page.filled(), b"more");
        }
        drop(ring);
    }

    fn made() -> Option<(Ring, Buffers)> {
        let made = Ring::new().and_then(|ring| Buffers::new(&ring).map(|buffers| (ring, buffers)));
        if made.is_err() {
            eprintln!("left out: no ring with provided buffers can be made here");
        }
        made.ok()
    }
}
