//! The program's allocator: the system's, with a memory for blocks of the size of futures.
//!
//! A request's futures are one to four kilobytes each and live as long as the request. The C
//! library hands out blocks up to one kilobyte again at once, but for a larger one it looks for a
//! place, splits it, and joins it with its neighbours when it is freed: a hundredth of what a
//! proxied request costs in all. A thread that runs a loop keeps such blocks instead, in one list
//! for each size; every other thread goes to the system.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

/// Blocks of up to so many bytes are the system's business.
const ABOVE: usize = 1024;

/// What is larger than this is, too.
const LARGEST: usize = 4096;

/// A list for each step in size.
const STEP: usize = 256;

const LISTS: usize = (LARGEST - ABOVE) / STEP;

/// The alignment that every kept block has.
const ALIGN: usize = 16;

/// How many bytes a list holds at most.
const KEPT_MAX: usize = 256 * 1024;

/// Free blocks of one size; each begins with the address of the next.
struct List {
    first: Cell<*mut u8>,
    len: Cell<usize>,
}

impl List {
    const fn new() -> List {
        List { first: Cell::new(ptr::null_mut()), len: Cell::new(0) }
    }
}

struct Kept {
    /// Whether this thread keeps blocks: nothing frees them when it ends.
    on: Cell<bool>,
    lists: [List; LISTS],
}

thread_local! {
    // Without a destructor: to register one may allocate.
    static KEPT: Kept =
        const { Kept { on: Cell::new(false), lists: [const { List::new() }; LISTS] } };
}

/// Makes this thread keep freed blocks for itself from now on. For threads that live as long as
/// the process: what they kept is not freed when they end.
pub fn keep_blocks() {
    KEPT.with(|kept| kept.on.set(true));
}

/// The list for blocks of a layout, where they are kept.
#[inline]
fn list_of(layout: Layout) -> Option<usize> {
    let above = layout.size().wrapping_sub(ABOVE + 1);
    (above < LARGEST - ABOVE && layout.align() <= ALIGN).then_some(above / STEP)
}

/// The size of all blocks of a list.
fn size_of_blocks(list: usize) -> usize {
    ABOVE + (list + 1) * STEP
}

/// How such a block is asked of the system and given back, whoever does that.
fn block(list: usize) -> Layout {
    // SAFETY: the alignment is a power of two, and a size of some kilobytes far from the largest.
    unsafe { Layout::from_size_align_unchecked(size_of_blocks(list), ALIGN) }
}

#[inline]
fn take(list: usize) -> Option<ptr::NonNull<u8>> {
    KEPT.with(|kept| {
        let list = &kept.lists[list];
        let first = ptr::NonNull::new(list.first.get())?;
        // SAFETY: blocks of a list are free, belong to it, are longer than an address and aligned
        // for one, and `put` has written there.
        list.first.set(unsafe { first.cast::<*mut u8>().read() });
        list.len.set(list.len.get() - 1);
        Some(first)
    })
}

/// Keeps a block; false where it is to go back to the system.
///
/// # Safety
/// It was asked of the system with the list's layout, and nobody uses it any more.
#[inline]
unsafe fn put(at: usize, freed: *mut u8) -> bool {
    KEPT.with(|kept| {
        let list = &kept.lists[at];
        if !kept.on.get() || list.len.get() >= KEPT_MAX / size_of_blocks(at) {
            return false;
        }
        // SAFETY: the caller gives the block away; it is longer than an address and aligned for
        // one.
        unsafe { freed.cast::<*mut u8>().write(list.first.get()) };
        list.first.set(freed);
        list.len.set(list.len.get() + 1);
        true
    })
}

/// See the module's documentation. The binary's `#[global_allocator]`.
pub struct Keeping;

// SAFETY: blocks come from the system's allocator, with the layout asked for or, for the sizes that
// are kept, with their list's, which is no smaller and aligned no less; a block in a list is in no
// other hands, since only `dealloc` puts it there and only `alloc` takes it out, both on its
// thread.
unsafe impl GlobalAlloc for Keeping {
    /// # Safety
    /// See [`GlobalAlloc::alloc`].
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match list_of(layout) {
            // SAFETY: as the caller promises.
            None => unsafe { System.alloc(layout) },
            Some(list) => match take(list) {
                Some(block) => block.as_ptr(),
                // SAFETY: such a layout has a size.
                None => unsafe { System.alloc(block(list)) },
            },
        }
    }

    /// # Safety
    /// See [`GlobalAlloc::dealloc`].
    #[inline]
    unsafe fn dealloc(&self, freed: *mut u8, layout: Layout) {
        let Some(list) = list_of(layout) else {
            // SAFETY: a block of this layout came from there, with it.
            return unsafe { System.dealloc(freed, layout) };
        };
        // SAFETY: blocks of this list come from the system with its layout, and the caller gives
        // this one away.
        unsafe {
            if !put(list, freed) {
                System.dealloc(freed, block(list));
            }
        }
    }

    /// # Safety
    /// See [`GlobalAlloc::alloc_zeroed`].
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if list_of(layout).is_none() {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as the caller promises; what was allocated is as long as was asked for.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    /// # Safety
    /// See [`GlobalAlloc::realloc`].
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that this size fits this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (list_of(layout), list_of(new)) {
            // SAFETY: the block came from there with this layout.
            (None, None) => unsafe { System.realloc(old, layout, size) },
            (from, to) if from == to => old,
            // SAFETY: both blocks are as long as the shorter of the layouts, and distinct.
            _ => unsafe {
                let block = self.alloc(new);
                if !block.is_null() {
                    ptr::copy_nonoverlapping(old, block, size.min(layout.size()));
                    self.dealloc(old, layout);
                }
                block
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).unwrap()
    }

    fn kept(size: usize) -> usize {
        let list = list_of(layout(size)).unwrap();
        KEPT.with(|kept| kept.lists[list].len.get())
    }

    /// On a thread of its own, with lists of its own, which are given back: a test's thread ends.
    fn apart(f: impl FnOnce() + Send + 'static) {
        let thread = std::thread::spawn(|| {
            f();
            for list in 0..LISTS {
                while let Some(kept) = take(list) {
                    // SAFETY: blocks of a list came from the system with its layout.
                    unsafe { System.dealloc(kept.as_ptr(), block(list)) };
                }
            }
        });
        thread.join().unwrap();
    }

    #[test]
    fn which_sizes_are_kept() {
        assert_eq!(list_of(layout(1024)), None);
        assert_eq!(list_of(layout(1025)), Some(0));
        assert_eq!(list_of(layout(1280)), Some(0));
        assert_eq!(list_of(layout(1281)), Some(1));
        assert_eq!(list_of(layout(4096)), Some(LISTS - 1));
        assert_eq!(list_of(layout(4097)), None);
        assert_eq!(list_of(layout(0)), None);
        assert_eq!(list_of(Layout::from_size_align(2048, 32).unwrap()), None);
        for size in ABOVE + 1..=LARGEST {
            let block = block(list_of(layout(size)).unwrap());
            assert!(block.size() >= size && block.size() - size < STEP);
        }
    }

    #[test]
    fn a_block_is_used_again() {
        apart(|| {
            keep_blocks();
            // SAFETY: each block is written within its size, and freed once with its layout.
            unsafe {
                let first = Keeping.alloc(layout(3000));
                first.write_bytes(7, 3000);
                let second = Keeping.alloc(layout(3000));
                assert_ne!(first, second);
                Keeping.dealloc(first, layout(3000));
                Keeping.dealloc(second, layout(3000));
                assert_eq!(kept(3000), 2);
                let zeroed = Keeping.alloc_zeroed(layout(2900));
                assert_eq!(zeroed, second);
                assert!((0..2900).all(|at| zeroed.add(at).read() == 0));
                assert_eq!(Keeping.alloc(layout(3072)), first);
                assert_eq!(kept(3000), 0);
                Keeping.dealloc(first, layout(3072));
                Keeping.dealloc(zeroed, layout(2900));
            }
        });
    }

    #[test]
    fn what_grows_and_shrinks_keeps_its_bytes() {
        apart(|| {
            keep_blocks();
            let sizes = [100, 1100, 1200, 1300, 4096, 5000, 9000, 4000, 3999, 1025, 1024, 10];
            // SAFETY: the block is read and written within its size, and freed with its layout.
            unsafe {
                let mut size = 10;
                let mut block = Keeping.alloc(layout(size));
                (0..10).for_each(|at| block.add(at).write(at as u8));
                for new in sizes {
                    block = Keeping.realloc(block, layout(size), new);
                    size = new;
                    assert!((0..10).all(|at| block.add(at).read() == at as u8), "{new}");
                    block.add(10).write_bytes(0xaa, size - 10);
                }
                Keeping.dealloc(block, layout(size));
            }
        });
    }

    #[test]
    fn a_list_is_bounded_and_other_threads_have_none() {
        apart(|| {
            let most = KEPT_MAX / size_of_blocks(list_of(layout(2000)).unwrap());
            for keeps in [false, true] {
                if keeps {
                    keep_blocks();
                }
                // SAFETY: each block is freed once, with its layout.
                unsafe {
                    let blocks: Vec<*mut u8> =
                        (0..most + 5).map(|_| Keeping.alloc(layout(2000))).collect();
                    blocks.iter().for_each(|block| Keeping.dealloc(*block, layout(2000)));
                }
                assert_eq!(kept(2000), if keeps { most } else { 0 });
            }
        });
    }
}
