//! The allocator, and its reserve for when the system has no more memory.
//!
//! ```text
//!            null from the system
//!  enough ─────────────────────────▶ a block of the reserve is freed ──▶ tried again
//!    ▲                                   │ `take_short` returns true once
//!    │ every block is there again        ▼
//!    └────── refill() ◀──── the loop closes connections, accepts none
//! ```
//!
//! Rust's standard library aborts the process when an allocation fails, so no allocation may fail.
//! The allocator therefore keeps a *reserve* of 4 MB: address space of which no page is touched
//! until it is used. If the system refuses memory, the allocator frees a block of the reserve and
//! tries again. Successful allocations take the system allocator's usual path. The event loop calls
//! [`take_short`] after each poll of a task, which needs less than the reserve, and then frees
//! memory by closing connections (`event`'s module `relief`).
//!
//! The reserve does not cover sizes that a client, a file or the configuration chooses. Buffers and
//! memory of such sizes come from [`reserve`], [`zeros`] and `mem::Page::try_get`, which fail when
//! half of the reserve is used: that ends one connection, and the other half remains for
//! allocations that cannot fail.
//!
//! The C library uses one heap for all threads. Each further heap would take 64 MB of address
//! space, and its free memory would be of no use to other threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;

/// The system's allocator with a reserve. A binary names it as its `#[global_allocator]`.
#[derive(Debug)]
pub struct Allocator;

/// A block of the reserve. Below the size from which the C library maps memory for an allocation
/// of its own (128 KB): freed blocks that are neighbours become one piece of the heap.
const BLOCK: usize = 64 << 10;

/// Blocks of the reserve: 4 MB. A poll of a task takes some hundred KB at most.
const BLOCKS: usize = 64;

/// Blocks that are enough for [`settle`].
const ENOUGH: usize = 4;

/// Tries of a thread other than the loop's, each a wait for memory that the loop frees.
const THREAD_TRIES: u32 = 400;
const THREAD_PAUSE: Duration = Duration::from_millis(5);

static RESERVE: [AtomicPtr<u8>; BLOCKS] = [const { AtomicPtr::new(null_mut()) }; BLOCKS];

/// The number of blocks in a whole reserve: none before [`keep_reserve`].
static WANTED: AtomicUsize = AtomicUsize::new(0);

/// An allocation has failed since the last [`take_short`].
static SHORT: AtomicBool = AtomicBool::new(false);

/// The reserve is not whole.
static LOW: AtomicBool = AtomicBool::new(false);

/// Bytes that buffers may still take until the memory of the control group is scarce
/// ([`set_room`]); below zero it is.
static ROOM: AtomicI64 = AtomicI64::new(i64::MAX);

/// The value of [`ROOM`] from which on buffers get no more.
static ROOM_MIN: AtomicI64 = AtomicI64::new(i64::MIN);

/// The value of [`ROOM`] from which on files should not grow.
static ROOM_OF_CACHE: AtomicI64 = AtomicI64::new(i64::MIN);

thread_local! {
    /// The running code can handle a failed allocation.
    static BEARS: Cell<bool> = const { Cell::new(false) };
}

/// Reserves room for `more` bytes. Fails where the system has no memory and half of the reserve is
/// gone: the rest is for allocations that cannot fail. For buffers, and for every size that a
/// client, a file or the configuration decides.
///
/// # Errors
/// `OutOfMemory`.
pub fn reserve(vec: &mut Vec<u8>, more: usize) -> io::Result<()> {
    if vec.capacity() - vec.len() >= more {
        return Ok(());
    }
    take_room(more)?;
    BEARS.set(true);
    let done = vec.try_reserve(more);
    BEARS.set(false);
    done.map_err(|_| io::ErrorKind::OutOfMemory.into())
}

/// Sets the bytes by which buffers may grow until memory is scarce (below zero it is already), and
/// `beyond`, those that they get behind that. A control group's limit is no failed allocation: the
/// kernel kills a process instead. The last `of_cache` of the bytes, or those behind them where it
/// is below zero, are the page cache's: what is written to a file takes of it.
pub fn set_room(bytes: i64, beyond: i64, of_cache: i64) {
    ROOM_MIN.store(-beyond, Ordering::Relaxed);
    ROOM_OF_CACHE.store(of_cache, Ordering::Relaxed);
    ROOM.store(bytes, Ordering::Relaxed);
}

/// Nothing limits what buffers and files take.
pub fn unset_room() {
    set_room(i64::MAX, i64::MAX, i64::MIN);
}

/// The bytes that [`set_room`] has set, less those that buffers took since.
#[inline]
pub fn room() -> i64 {
    ROOM.load(Ordering::Relaxed)
}

/// Counts the growth of a buffer that has to succeed.
pub fn count_growth(bytes: usize) {
    ROOM.fetch_sub(i64::try_from(bytes).unwrap_or(i64::MAX), Ordering::Relaxed);
}

/// Memory beside buffers that is counted as long as the value lives: of connections and requests,
/// with the kernel's part.
#[derive(Debug)]
pub struct Counted(i64);

impl Counted {
    /// Counts so many bytes.
    pub fn new(bytes: usize) -> Counted {
        count_growth(bytes);
        Counted(i64::try_from(bytes).unwrap_or(i64::MAX))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Without a limit there is nothing to add to.
        let _ = ROOM.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| {
            (room < i64::MAX / 2).then(|| room.saturating_add(self.0))
        });
    }
}

/// Counts the growth of a buffer. Fails as an allocation would.
fn take_room(bytes: usize) -> io::Result<()> {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let before = ROOM.fetch_sub(bytes, Ordering::Relaxed);
    if before.saturating_sub(bytes) >= ROOM_MIN.load(Ordering::Relaxed) {
        return Ok(());
    }
    ROOM.fetch_add(bytes, Ordering::Relaxed);
    SHORT.store(true, Ordering::Relaxed);
    Err(io::ErrorKind::OutOfMemory.into())
}

/// The same for a vector that is not to have more room than asked for.
///
/// # Errors
/// `OutOfMemory`.
pub fn reserve_exact(vec: &mut Vec<u8>, more: usize) -> io::Result<()> {
    take_room(more)?;
    BEARS.set(true);
    let done = vec.try_reserve_exact(more);
    BEARS.set(false);
    done.map_err(|_| io::ErrorKind::OutOfMemory.into())
}

/// Zeros, `len` of them.
///
/// # Errors
/// `OutOfMemory`.
pub fn zeros(len: usize) -> io::Result<Vec<u8>> {
    let mut zeros = Vec::new();
    reserve(&mut zeros, len)?;
    zeros.resize(len, 0);
    Ok(zeros)
}

// SAFETY: every call is passed on to the system's allocator with the same arguments; a pointer that
// is not null is the system's own.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of the same function.
        or_again(layout.size(), || unsafe { System.alloc(layout) })
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract; `at` came from `System`.
        unsafe { System.dealloc(at, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of the same function.
        or_again(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller upholds the contract; `at` came from `System`, and a realloc that
        // failed has left it as it was.
        or_again(size, || unsafe { System.realloc(at, layout, size) })
    }
}

/// One attempt, and [`again`] where it failed.
#[inline(always)]
fn or_again(size: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
    let got = allocate();
    if got.is_null() { again(size, allocate) } else { got }
}

/// Gives up blocks of the reserve until the allocation succeeds. An allocation larger than the
/// whole reserve fails at once: its caller can handle that, or nothing helps.
#[cold]
#[inline(never)]
fn again(size: usize, mut alloc: impl FnMut() -> *mut u8) -> *mut u8 {
    if size > BLOCK * BLOCKS {
        return null_mut();
    }
    SHORT.store(true, Ordering::Relaxed);
    LOW.store(true, Ordering::Relaxed);
    let bears = BEARS.get();
    loop {
        if bears && kept() < BLOCKS / 2 {
            return null_mut();
        }
        // As many blocks as the allocation is long, and one for its companions.
        let freed = (0..=size / BLOCK).filter(|_| give_up_block()).count();
        let got = alloc();
        if !got.is_null() {
            return got;
        }
        if freed == 0 {
            break;
        }
    }
    if WANTED.load(Ordering::Relaxed) == 0 || on_first_thread() {
        return null_mut();
    }
    // The loop frees memory and does not wait for this thread: no lock that both take is held over
    // a large allocation.
    for _ in 0..THREAD_TRIES {
        std::thread::sleep(THREAD_PAUSE);
        let got = alloc();
        if !got.is_null() {
            return got;
        }
    }
    null_mut()
}

fn give_up_block() -> bool {
    for place in &RESERVE {
        let block = place.swap(null_mut(), Ordering::Relaxed);
        if !block.is_null() {
            // SAFETY: `refill` took it with this layout, and the swap made it ours alone.
            unsafe { System.dealloc(block, BLOCK_LAYOUT) };
            return true;
        }
    }
    false
}

const BLOCK_LAYOUT: Layout = match Layout::from_size_align(BLOCK, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two aligns"),
};

/// Whether this is the process's first thread, which runs the loop.
fn on_first_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// Makes the allocator keep a reserve from now on, in this process and those forked from it, and
/// the C library keep its memory in one heap: a heap for each thread reserves 64 MB of address
/// space, and keeps its free memory from other threads.
pub fn keep_reserve() {
    one_heap();
    WANTED.store(BLOCKS, Ordering::Relaxed);
    refill();
}

/// Takes back the blocks that were given up, as far as there is memory. Returns whether the reserve
/// is whole. It is address space alone: no page of it is touched.
pub fn refill() -> bool {
    let wanted = WANTED.load(Ordering::Relaxed);
    let mut there = kept();
    for place in &RESERVE {
        if there >= wanted {
            break;
        }
        if !place.load(Ordering::Relaxed).is_null() {
            continue;
        }
        // SAFETY: the layout's size is not 0.
        let block = unsafe { System.alloc(BLOCK_LAYOUT) };
        if block.is_null() {
            return false;
        }
        there += 1;
        let before = place.swap(block, Ordering::Relaxed);
        if !before.is_null() {
            // SAFETY: another thread refilled it at the same time; the block is ours alone now.
            unsafe { System.dealloc(before, BLOCK_LAYOUT) };
        }
    }
    LOW.store(there < wanted, Ordering::Relaxed);
    there >= wanted
}

/// The blocks in the reserve.
fn kept() -> usize {
    RESERVE.iter().filter(|place| !place.load(Ordering::Relaxed).is_null()).count()
}

/// Accepts the present reserve as whole, unless next to nothing is left. Returns whether it did.
pub fn settle() -> bool {
    let there = kept();
    let enough = there >= ENOUGH;
    if enough {
        WANTED.fetch_min(there, Ordering::Relaxed);
        LOW.store(false, Ordering::Relaxed);
    }
    enough
}

/// Whether an allocation has failed since the last call.
#[inline]
pub fn take_short() -> bool {
    SHORT.load(Ordering::Relaxed) && take()
}

#[cold]
fn take() -> bool {
    SHORT.swap(false, Ordering::Relaxed)
}

/// Whether a part of the reserve is in use: work that can wait should.
#[inline]
pub fn is_low() -> bool {
    LOW.load(Ordering::Relaxed)
}

/// Whether the memory of the control group is scarce: what can be done with less should.
#[inline]
pub fn is_scarce() -> bool {
    room() < 0
}

/// Whether the control group has little memory left for the page cache: every write to a file, and
/// every read of another part of one, has to take pages from others then, and threads that do that
/// at once take the processors as well.
#[inline]
pub fn is_cache_scarce() -> bool {
    room() < ROOM_OF_CACHE.load(Ordering::Relaxed)
}

#[cfg(target_env = "gnu")]
fn one_heap() {
    // SAFETY: mallopt(3) may be called at any time; a refused value changes nothing.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

#[cfg(not(target_env = "gnu"))]
fn one_heap() {}

/// Returns free memory of the heap to the system. Walks the whole heap: for quiet times.
#[cfg(target_env = "gnu")]
pub fn give_back() {
    // SAFETY: malloc_trim(3) may be called at any time.
    unsafe { libc::malloc_trim(0) };
}

/// Returns free memory of the heap to the system.
#[cfg(not(target_env = "gnu"))]
pub fn give_back() {}

/// Bytes of the heap in use, those of C libraries included, with what the heap itself needs for
/// them. Walks the whole heap: for measuring.
#[cfg(target_env = "gnu")]
pub fn in_use() -> usize {
    // SAFETY: mallinfo2(3) may be called at any time.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// Whether the system may refuse memory to this process, or kill it: a limit on address space, data
/// or the control group, or a kernel without overcommitment.
pub fn is_limited() -> bool {
    use rustix::process::{Resource, getrlimit};
    let limited = |what| getrlimit(what).current.is_some();
    if limited(Resource::As) || limited(Resource::Data) {
        return true;
    }
    let first = |path: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().parse::<u64>().ok()
    };
    if first("/proc/sys/vm/overcommit_memory") == Some(2) {
        return true;
    }
    crate::memory_group::Group::find().is_some()
}

/// Makes this process the first that the kernel kills when memory runs out.
pub fn offer_first() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_given_up_block_by_block() {
        keep_reserve();
        assert!(refill());
        assert!(!take_short());
        let (mut tries, mut memory) = (0, [0u8; 1]);
        let at = memory.as_mut_ptr();
        let got = again(2 * BLOCK, || {
            tries += 1;
            if tries < 3 { null_mut() } else { at }
        });
        assert_eq!((got, tries), (at, 3));
        assert_eq!(kept(), BLOCKS - 9);
        assert!(take_short());
        assert!(!take_short());
        assert!(refill());
        assert_eq!(kept(), BLOCKS);
        assert!(!is_low());
        BEARS.set(true);
        assert!(again(BLOCK, null_mut).is_null());
        BEARS.set(false);
        assert!((BLOCKS / 2 - 2..BLOCKS / 2).contains(&kept()) && is_low() && take_short());
        assert!(refill() && !is_low());
        // An allocation that the reserve cannot help leaves the reserve alone.
        assert!(again(BLOCK * BLOCKS + 1, null_mut).is_null());
        assert_eq!(kept(), BLOCKS);
        assert!(!take_short());
        buffers_grow_as_far_as_there_is_room();
    }

    /// Not a test of its own: the room is the process's, as the reserve is.
    fn buffers_grow_as_far_as_there_is_room() {
        set_room(1000, 500, 100);
        let mut buffer = Vec::new();
        assert!(reserve_exact(&mut buffer, 900).is_ok() && !is_scarce());
        assert!(!is_cache_scarce());
        count_growth(30);
        assert_eq!((room(), is_cache_scarce()), (70, true));
        assert!(zeros(500).is_ok() && is_scarce());
        assert_eq!(zeros(200).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(room(), -430);
        assert!(take_short());
        // It has that much already.
        assert!(reserve(&mut buffer, 900).is_ok());
        // Memory is scarce before the page cache is.
        set_room(10, 500, -100);
        count_growth(100);
        assert!(is_scarce() && !is_cache_scarce());
        count_growth(20);
        assert!(is_cache_scarce());
        let counted = Counted::new(7);
        assert_eq!(room(), -117);
        drop(counted);
        assert_eq!(room(), -110);
        let counted = Counted::new(7);
        unset_room();
        drop(counted);
        assert_eq!(room(), i64::MAX);
        assert!(zeros(2000).is_ok() && !is_scarce() && !is_cache_scarce() && !take_short());
    }
}
