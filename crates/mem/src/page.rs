//! Pages: owned buffers that are recycled through a free list of the thread.

use std::fmt;
use std::io;
use std::ops::Deref;

use bytes::Bytes;

use crate::FreeList;

/// Capacity of an ordinary page, in bytes.
pub const PAGE_SIZE: usize = 16 * 1024;

/// Pages that the free list of a thread holds at most: 4 MiB, more than one turn of the loop uses,
/// so that the steady state allocates none.
const FREE_MAX: usize = 256;

/// Capacity of a wide page, in bytes: 96 KB in parts, with the heads of frames between them and
/// small responses before them.
pub const WIDE_SIZE: usize = 104 * 1024;

/// Wide pages that the free list of a thread holds at most. A connection whose client takes bytes
/// needs one for the length of a send, so that all of them share the one that is in the nearest
/// cache of the processor.
const WIDE_FREE_MAX: usize = 4;

/// A waiting page with more bytes than this keeps its ordinary buffer.
const NARROW_MAX: usize = PAGE_SIZE / 4;

thread_local! {
    static FREE: FreeList<Box<Inner>> = const { FreeList::new(0) };
    /// Wide pages; all of them go with a trim.
    static WIDE: FreeList<Box<Inner>> = const { FreeList::new(0) };
}

/// Turns on the free lists of this thread. Only a thread that asks for them has any: in other
/// threads dropped pages would wait for a use that never comes.
pub fn recycle() {
    FREE.with(|free| free.set_max(FREE_MAX));
    WIDE.with(|wide| wide.set_max(WIDE_FREE_MAX));
}

/// Frees the pages that had no use since the last call. Returns their number.
pub(crate) fn trim() -> usize {
    let wide = WIDE.try_with(|wide| {
        let there = wide.len();
        wide.clear();
        there
    });
    FREE.try_with(FreeList::trim).unwrap_or(0) + wide.unwrap_or(0)
}

/// Pages in this thread's free list.
pub fn kept() -> usize {
    FREE.try_with(FreeList::len).unwrap_or(0)
}

struct Inner {
    bytes: Vec<u8>,
    /// Consumed bytes at the front; `start <= bytes.len()`.
    start: usize,
}

/// An owned buffer of [`PAGE_SIZE`] bytes or more; one pointer wide.
///
/// Bytes are appended at the end and consumed at the front; the page derefs to the bytes between. A
/// page without a buffer is an ordinary value: it is empty, has no spare room, and gets a buffer
/// with the first bytes. Dropping a page returns an ordinary buffer to the thread's free list.
#[derive(Default)]
pub struct Page {
    inner: Option<Box<Inner>>,
}

impl Page {
    /// A page without a buffer; allocates nothing.
    pub const fn new() -> Page {
        Page { inner: None }
    }

    /// An empty page with room for at least `min` bytes: one from the free list when
    /// `min <= PAGE_SIZE`, otherwise one made for the purpose.
    pub fn get(min: usize) -> Page {
        Page { inner: Some(buffer(min)) }
    }

    /// An empty page of [`WIDE_SIZE`] bytes, for many frames in one piece.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(crate) fn try_wide() -> io::Result<Page> {
        let kept = WIDE.try_with(FreeList::take).unwrap_or(None);
        if let Some(inner) = kept {
            return Ok(Page { inner: Some(inner) });
        }
        let mut bytes = Vec::new();
        os::memory::reserve_exact(&mut bytes, WIDE_SIZE)?;
        Ok(Page { inner: Some(Box::new(Inner { bytes, start: 0 })) })
    }

    /// An empty page with room for `bytes` and no more: for reads that are limited.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn try_with_room(bytes: usize) -> io::Result<Page> {
        if bytes >= PAGE_SIZE {
            return Page::try_get(bytes);
        }
        let mut vec = Vec::new();
        os::memory::reserve_exact(&mut vec, bytes)?;
        Ok(Page { inner: Some(Box::new(Inner { bytes: vec, start: 0 })) })
    }

    /// [`Page::get`] that can fail: buffers are most of the memory that connections hold.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn try_get(min: usize) -> io::Result<Page> {
        let mut page = Page::new();
        page.try_reserve(min.max(1))?;
        Ok(page)
    }

    /// [`Page::reserve`] that can fail.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn try_reserve(&mut self, room: usize) -> io::Result<()> {
        if self.spare() >= room {
            return Ok(());
        }
        let Some(inner) = &mut self.inner else {
            let inner = match recycled(room) {
                Some(inner) => inner,
                None => {
                    let mut bytes = Vec::new();
                    os::memory::reserve(&mut bytes, room.max(PAGE_SIZE))?;
                    Box::new(Inner { bytes, start: 0 })
                }
            };
            self.inner = Some(inner);
            return Ok(());
        };
        inner.bytes.drain(..inner.start);
        inner.start = 0;
        os::memory::reserve(&mut inner.bytes, room)
    }

    /// Returns the buffer and leaves an empty page without one.
    pub fn release(&mut self) {
        *self = Page::new();
    }

    #[inline]
    fn inner_mut(&mut self) -> &mut Inner {
        self.inner.get_or_insert_with(|| buffer(0))
    }

    /// The bytes that were appended and not yet consumed.
    #[inline]
    pub fn filled(&self) -> &[u8] {
        match &self.inner {
            Some(inner) => inner.bytes.get(inner.start..).unwrap_or_default(),
            None => &[],
        }
    }

    /// [`Page::filled`], to be changed in place.
    #[inline]
    pub fn filled_mut(&mut self) -> &mut [u8] {
        match &mut self.inner {
            Some(inner) => inner.bytes.get_mut(inner.start..).unwrap_or_default(),
            None => &mut [],
        }
    }

    /// Bytes that can be appended without moving or growing anything.
    #[inline]
    pub fn spare(&self) -> usize {
        self.inner.as_ref().map_or(0, |inner| inner.bytes.capacity() - inner.bytes.len())
    }

    /// Bytes that the buffer can hold in all.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.inner.as_ref().map_or(0, |inner| inner.bytes.capacity())
    }

    /// Makes room for `room` more bytes: first by moving the filled bytes to the front, then by
    /// growing. A page that has grown is not recycled.
    pub fn reserve(&mut self, room: usize) {
        if self.spare() >= room {
            return;
        }
        let inner = self.inner.get_or_insert_with(|| buffer(room));
        if inner.start > 0 {
            inner.bytes.drain(..inner.start);
            inner.start = 0;
        }
        inner.bytes.reserve(room);
    }

    /// Moves a few bytes from an ordinary buffer to one that is hardly larger, and returns the
    /// ordinary one: for a page that waits. [`Page::widen`] undoes it.
    pub fn narrow(&mut self) {
        let len = self.filled().len();
        if self.capacity() != PAGE_SIZE || len > NARROW_MAX {
            return;
        }
        *self = Page::copied(self.filled());
    }

    /// A copy of some bytes in a page with little room beyond them.
    pub fn copied(from: &[u8]) -> Page {
        let mut bytes = Vec::with_capacity(from.len().max(1).next_multiple_of(256));
        bytes.extend_from_slice(from);
        Page { inner: Some(Box::new(Inner { bytes, start: 0 })) }
    }

    /// Gives a narrow page an ordinary buffer again.
    pub fn widen(&mut self) {
        if (1..PAGE_SIZE).contains(&self.capacity()) {
            let mut wide = Page::get(0);
            wide.extend_from_slice(self.filled());
            *self = wide;
        }
    }

    /// Appends `bytes`; grows the page when they do not fit.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.inner_mut().bytes.extend_from_slice(bytes);
    }

    /// Drops the first `n` filled bytes (all of them when there are fewer). A page that becomes
    /// empty has its whole capacity to spare again.
    #[inline]
    pub fn consume(&mut self, n: usize) {
        let Some(inner) = &mut self.inner else { return };
        inner.start = inner.bytes.len().min(inner.start.saturating_add(n));
        if inner.start == inner.bytes.len() {
            inner.start = 0;
            inner.bytes.clear();
        }
    }

    /// An empty page that can hold `min` bytes, with room for `front` more before them: see
    /// [`Page::prepend`].
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn try_get_behind(front: usize, min: usize) -> io::Result<Page> {
        let mut page = Page::try_get(front + min)?;
        let inner = page.inner_mut();
        inner.bytes.resize(front, 0);
        inner.start = front;
        Ok(page)
    }

    /// Puts bytes before the filled ones, if there is room; false where there is none.
    pub fn prepend(&mut self, front: &[u8]) -> bool {
        let Some(inner) = &mut self.inner else { return false };
        let Some(start) = inner.start.checked_sub(front.len()) else { return false };
        let Some(room) = inner.bytes.get_mut(start..inner.start) else { return false };
        room.copy_from_slice(front);
        inner.start = start;
        true
    }

    /// Keeps the first `n` filled bytes and drops what follows them.
    pub fn truncate(&mut self, n: usize) {
        let Some(inner) = &mut self.inner else { return };
        inner.bytes.truncate(inner.start.saturating_add(n));
    }

    /// Forgets every byte.
    pub fn clear(&mut self) {
        self.consume(usize::MAX);
    }

    /// Lets `f` append to the vector behind the page, without moving what is there. Bytes that
    /// were consumed still stand in it before the filled ones; `f` must not shorten it.
    #[inline]
    pub fn append_with<R>(&mut self, f: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        f(self.vec())
    }

    /// The vector behind the page, for appending only; see [`Page::append_with`].
    #[inline]
    pub(crate) fn vec(&mut self) -> &mut Vec<u8> {
        &mut self.inner_mut().bytes
    }

    /// Turns the filled bytes into shared ones, without copying. The page is recycled when the
    /// last `Bytes` made from it is dropped; until then all its capacity stays in use, so that
    /// bytes which live long are better copied.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

fn buffer(min: usize) -> Box<Inner> {
    recycled(min).unwrap_or_else(|| fresh(min))
}

#[inline]
fn recycled(min: usize) -> Option<Box<Inner>> {
    match min {
        0..=PAGE_SIZE => FREE.try_with(FreeList::take).unwrap_or(None),
        _ => None,
    }
}

#[cold]
fn fresh(min: usize) -> Box<Inner> {
    let room = min.max(PAGE_SIZE);
    os::memory::count_growth(room);
    Box::new(Inner { bytes: Vec::with_capacity(room), start: 0 })
}

impl Drop for Page {
    fn drop(&mut self) {
        let Some(mut inner) = self.inner.take() else { return };
        let is_wide = inner.bytes.capacity() == WIDE_SIZE;
        if inner.bytes.capacity() != PAGE_SIZE && !is_wide {
            return;
        }
        inner.bytes.clear();
        inner.start = 0;
        // A thread that is ending has no list any more: then the page is simply freed.
        let free = if is_wide { &WIDE } else { &FREE };
        let _full = free.try_with(|free| free.give(inner));
    }
}

impl Deref for Page {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.filled()
    }
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        self.filled()
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("len", &self.len()).field("spare", &self.spare()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_put_before_others_where_there_is_room() {
        let mut page = Page::try_get_behind(4, 10).unwrap();
        assert!(page.is_empty());
        page.extend_from_slice(b"payload");
        assert!(page.prepend(b"head"));
        assert_eq!(page.filled(), b"headpayload");
        assert!(!page.prepend(b"x"), "there is no room left");
        let mut page = Page::copied(b"ab");
        page.consume(1);
        assert!(page.prepend(b"c") && page.filled() == b"cb");
        assert!(!Page::new().prepend(b"x"));
    }

    #[test]
    fn a_page_is_a_pointer() {
        assert_eq!(size_of::<Page>(), 8);
    }

    #[test]
    fn a_page_without_a_buffer_behaves() {
        recycle();
        let mut page = Page::new();
        page.consume(3);
        page.truncate(3);
        assert_eq!((page.filled(), page.spare(), page.capacity()), (&b""[..], 0, 0));
        assert!(page.filled_mut().is_empty());
        page.extend_from_slice(b"ab");
        assert_eq!((page.filled(), page.capacity()), (&b"ab"[..], PAGE_SIZE));
        page.release();
        assert_eq!((page.capacity(), kept()), (0, 1));
        page.reserve(PAGE_SIZE + 5);
        assert!(page.spare() >= PAGE_SIZE + 5);
    }

    #[test]
    fn dropping_recycles_the_same_buffer() {
        recycle();
        let mut page = Page::get(0);
        page.extend_from_slice(b"first");
        let at = page.as_ptr();
        drop(page);
        assert_eq!(kept(), 1);
        let mut page = Page::get(PAGE_SIZE);
        assert!(page.is_empty());
        assert_eq!(page.inner_mut().bytes.as_ptr(), at);
        assert_eq!(kept(), 0);
    }

    #[test]
    fn pages_of_other_sizes_are_not_kept() {
        recycle();
        let page = Page::get(PAGE_SIZE + 1);
        assert!(page.spare() > PAGE_SIZE);
        drop(page);
        let mut grown = Page::get(0);
        grown.extend_from_slice(&vec![1; PAGE_SIZE + 1]);
        drop(grown);
        assert_eq!(kept(), 0);
    }

    #[test]
    fn the_free_list_is_bounded() {
        recycle();
        let pages: Vec<Page> = (0..FREE_MAX + 10).map(|_| Page::get(0)).collect();
        drop(pages);
        assert_eq!(kept(), FREE_MAX);
    }

    #[test]
    fn pages_without_a_use_are_freed_and_others_stay() {
        recycle();
        drop((0..10).map(|_| Page::get(0)).collect::<Vec<_>>());
        // They came since: whether they are needed is not known yet.
        assert_eq!((trim(), kept()), (0, 10));
        drop((0..3).map(|_| Page::get(0)).collect::<Vec<_>>());
        assert_eq!((trim(), kept()), (7, 3));
        assert_eq!((trim(), kept()), (3, 0));
    }

    #[test]
    fn wide_pages_have_a_list_of_their_own() {
        recycle();
        let mut page = Page::try_wide().unwrap();
        page.extend_from_slice(&[b'x'; WIDE_SIZE]);
        let at = page.as_ptr();
        drop(page);
        assert_eq!(kept(), 0);
        let mut page = Page::try_wide().unwrap();
        assert_eq!((page.inner_mut().bytes.as_ptr(), page.spare()), (at, WIDE_SIZE));
        drop(page);
        assert_eq!((trim(), trim()), (1, 0));
    }

    #[test]
    fn threads_that_have_not_asked_keep_no_page() {
        recycle();
        let page = Page::get(0);
        let there = std::thread::spawn(move || {
            drop(page);
            kept()
        });
        assert_eq!((there.join().unwrap(), kept()), (0, 0));
    }

    #[test]
    fn consume_truncate_and_reserve_keep_the_rest() {
        let mut page = Page::get(0);
        page.extend_from_slice(b"GET / HTTP/1.1");
        page.consume(4);
        assert_eq!(page.filled(), b"/ HTTP/1.1");
        page.truncate(1);
        assert_eq!(page.filled(), b"/");
        page.filled_mut()[0] = b'x';
        page.reserve(PAGE_SIZE - 1);
        assert_eq!((page.filled(), page.capacity()), (&b"x"[..], PAGE_SIZE));
        page.consume(100);
        assert_eq!((page.len(), page.spare()), (0, PAGE_SIZE));
    }

    #[test]
    fn a_page_that_waits_is_small() {
        recycle();
        let mut page = Page::get(0);
        page.extend_from_slice(b"xGET / HTTP/1.1");
        page.consume(1);
        page.narrow();
        assert_eq!((page.filled(), page.capacity(), kept()), (&b"GET / HTTP/1.1"[..], 256, 1));
        page.narrow();
        page.widen();
        assert_eq!((page.filled(), page.capacity()), (&b"GET / HTTP/1.1"[..], PAGE_SIZE));
        page.extend_from_slice(&[b'x'; NARROW_MAX]);
        page.narrow();
        page.widen();
        assert_eq!((page.len(), page.capacity(), kept()), (NARROW_MAX + 14, PAGE_SIZE, 0));
    }

    #[test]
    fn frozen_pages_come_back() {
        recycle();
        let mut page = Page::get(0);
        page.extend_from_slice(b"abcdef");
        page.consume(1);
        let bytes = page.freeze();
        let tail = bytes.slice(2..);
        drop(bytes);
        assert_eq!((&tail[..], kept()), (&b"def"[..], 0));
        drop(tail);
        assert_eq!(kept(), 1);
    }
}
