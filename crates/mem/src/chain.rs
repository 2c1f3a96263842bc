//! A queue of pieces on their way out.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::Bytes;

use crate::{Buf, FileHandle, FreeList, Page};

/// Pieces that go into one gathering write at most.
pub const IOV_MAX: usize = 64;

/// [`Chain::writer`] starts a new page when the last one has less room than this.
const WRITER_ROOM: usize = 1024;

/// Queues the free list of a thread holds at most.
const FREE_MAX: usize = 256;

/// A queue that has grown beyond this many pieces is not kept for reuse.
const KEEP_CAPACITY: usize = 64;

type Queue = VecDeque<Buf>;

thread_local! {
    static FREE: FreeList<Box<Queue>> = const { FreeList::new(FREE_MAX) };
}

/// Frees the queues that had no use since the last call. Returns their number.
pub(crate) fn trim() -> usize {
    FREE.try_with(FreeList::trim).unwrap_or(0)
}

/// A queue of pieces on their way out, first in first out.
///
/// An empty chain is one null pointer: it takes a queue from the thread's free list with the
/// first piece and gives it back with the last, so that neither an idle connection nor a busy
/// one pays for an allocation.
#[derive(Default, Debug)]
pub struct Chain {
    /// `None` or a queue that is not empty. The last piece may be an empty page that
    /// [`Chain::writer`] has handed out; every other piece has bytes.
    queue: Option<Box<Queue>>,
}

impl Chain {
    /// An empty chain; allocates nothing.
    pub const fn new() -> Chain {
        Chain { queue: None }
    }

    fn queue(&mut self) -> &mut Queue {
        self.queue.get_or_insert_with(|| {
            FREE.try_with(FreeList::take).unwrap_or(None).unwrap_or_default()
        })
    }

    /// Appends a piece. Empty pieces are dropped.
    pub fn push(&mut self, buf: Buf) {
        if !buf.is_empty() {
            self.drop_empty_tail();
            self.queue().push_back(buf);
        }
    }

    /// Appends shared bytes as a piece of their own, without copying.
    pub fn push_bytes(&mut self, bytes: Bytes) {
        self.push(Buf::Mem(bytes));
    }

    /// Appends the range `pos..end` of a file.
    pub fn push_file(&mut self, file: FileHandle, pos: u64, end: u64) {
        self.push(Buf::File { file, pos, end });
    }

    /// Puts a piece before all others.
    pub fn push_front(&mut self, buf: Buf) {
        if !buf.is_empty() {
            self.queue().push_front(buf);
        }
    }

    /// Copies `bytes` to the end of the last page, or into new pages. Without bytes no page is
    /// taken, which a chain that waits would keep.
    pub fn write(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.writer_for(bytes.len()).extend_from_slice(bytes);
        }
    }

    /// A vector to append to, with at least 1 KiB of room: the last page of the chain when it
    /// has that, otherwise a new page. Heads and small bodies of several responses that are
    /// written through it lie in one piece and leave with one send.
    ///
    /// Only append: the bytes in the vector already belong to the chain.
    pub fn writer(&mut self) -> &mut Vec<u8> {
        self.writer_for(WRITER_ROOM)
    }

    /// [`Chain::writer`] with room for `room` bytes.
    pub fn writer_for(&mut self, room: usize) -> &mut Vec<u8> {
        let queue = self.queue();
        let fits = matches!(queue.back(), Some(Buf::Page(page)) if page.spare() >= room);
        if !fits {
            if queue.back().is_some_and(Buf::is_empty) {
                queue.pop_back();
            }
            queue.push_back(Buf::Page(Page::get(room)));
        }
        match queue.back_mut() {
            Some(Buf::Page(page)) => page.vec(),
            _ => unreachable!("the last piece is a page with room, or was made one just now"),
        }
    }

    /// [`Chain::writer`] with room for `room` bytes, which fit a wide page: one of these is made
    /// where the last page has less.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn wide_writer_for(&mut self, room: usize) -> io::Result<&mut Vec<u8>> {
        let fits = match self.queue.as_ref().and_then(|queue| queue.back()) {
            Some(Buf::Page(page)) => page.spare() >= room,
            _ => false,
        };
        if !fits {
            let page = Page::try_wide()?;
            self.drop_empty_tail();
            self.queue().push_back(Buf::Page(page));
        }
        Ok(self.writer_for(room))
    }

    /// Bytes in all pieces.
    pub fn len(&self) -> u64 {
        self.sum(Buf::len)
    }

    /// Bytes in the pieces that are parts of files.
    pub fn file_len(&self) -> u64 {
        self.sum(|piece| if piece.memory().is_none() { piece.len() } else { 0 })
    }

    #[inline]
    fn sum(&self, len: impl Fn(&Buf) -> u64) -> u64 {
        let Some(queue) = &self.queue else { return 0 };
        // Most chains have one piece.
        if let (1, Some(piece)) = (queue.len(), queue.front()) {
            return len(piece);
        }
        let (first, second) = queue.as_slices();
        first.iter().chain(second).map(len).sum()
    }

    /// Whether it holds no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        // Only the last piece can be empty.
        self.queue.is_none() || self.front().is_none_or(Buf::is_empty)
    }

    /// The pieces, first to last.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Buf> {
        self.queue.iter().flat_map(|queue| queue.iter())
    }

    /// The first piece.
    pub fn front(&self) -> Option<&Buf> {
        self.queue.as_ref().and_then(|queue| queue.front())
    }

    /// Takes the first piece out.
    pub fn pop_front(&mut self) -> Option<Buf> {
        let queue = self.queue.as_mut()?;
        let buf = queue.pop_front();
        if queue.is_empty() {
            self.shelve();
        }
        buf.filter(|buf| !buf.is_empty())
    }

    /// Drops the first `n` bytes, or all when there are fewer.
    pub fn advance(&mut self, mut n: u64) {
        let Some(queue) = self.queue.as_mut() else { return };
        while let Some(front) = queue.front_mut() {
            let len = front.len();
            if n < len {
                front.advance(n);
                return;
            }
            n -= len;
            queue.pop_front();
        }
        self.shelve();
    }

    /// Takes the first `n` bytes out as a chain of their own (all when there are fewer).
    pub fn split_to(&mut self, mut n: u64) -> Chain {
        let mut head = Chain::new();
        while n > 0 {
            let Some(front) = self.queue.as_mut().and_then(|queue| queue.front_mut()) else {
                break;
            };
            let len = front.len();
            if n < len {
                head.push(front.split_to(n));
                break;
            }
            n -= len;
            head.push(self.pop_front().unwrap_or(Buf::Mem(Bytes::new())));
        }
        head
    }

    /// Moves all pieces of `other` to the end of this chain.
    pub fn append(&mut self, other: &mut Chain) {
        if self.queue.is_none() {
            std::mem::swap(self, other);
            return;
        }
        self.drop_empty_tail();
        while let Some(buf) = other.pop_front() {
            self.push(buf);
        }
    }

    /// Takes everything out and leaves this chain empty.
    pub fn take(&mut self) -> Chain {
        std::mem::take(self)
    }

    /// Drops every piece.
    pub fn clear(&mut self) {
        if let Some(queue) = self.queue.as_mut() {
            // Most have one piece: `clear` of a queue takes both of its halves apart first.
            while queue.pop_front().is_some() {}
            self.shelve();
        }
    }

    /// Fills `slices` with the pieces in memory at the front, `limit` bytes at most in all; returns
    /// the number of slices and their bytes. (0, 0): the chain is empty or begins with a file.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>], limit: usize) -> (usize, usize) {
        let (mut count, mut left) = (0, limit);
        for memory in self.iter().map_while(Buf::memory).filter(|memory| !memory.is_empty()) {
            if count == slices.len() || left == 0 {
                break;
            }
            let part = &memory[..memory.len().min(left)];
            slices[count] = IoSlice::new(part);
            left -= part.len();
            count += 1;
        }
        (count, limit - left)
    }

    /// The file range at the front, as (file, position, end).
    pub fn front_file(&self) -> Option<(&FileHandle, u64, u64)> {
        match self.front()? {
            Buf::File { file, pos, end } => Some((file, *pos, *end)),
            _ => None,
        }
    }

    /// The bytes of the only piece, if it is in memory: most responses are one.
    #[inline]
    pub fn single(&self) -> Option<&[u8]> {
        let queue = self.queue.as_ref().filter(|queue| queue.len() == 1)?;
        queue.front()?.memory()
    }

    /// The number of pieces in memory before the first file range, and whether one follows them.
    pub fn leading_memory(&self) -> (usize, bool) {
        let mut count = 0;
        for buf in self.iter() {
            match buf {
                Buf::File { .. } => return (count, true),
                _ => count += 1,
            }
        }
        (count, false)
    }

    fn drop_empty_tail(&mut self) {
        if let Some(queue) = self.queue.as_mut()
            && queue.back().is_some_and(Buf::is_empty)
        {
            queue.pop_back();
        }
    }

    /// Returns the queue, which is empty, to the thread's free list.
    fn shelve(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        debug_assert!(queue.is_empty());
        if queue.capacity() <= KEEP_CAPACITY {
            let _full = FREE.try_with(|free| free.give(queue));
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Extend<Buf> for Chain {
    fn extend<I: IntoIterator<Item = Buf>>(&mut self, bufs: I) {
        for buf in bufs {
            self.push(buf);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> FileHandle {
        std::os::fd::OwnedFd::from(std::fs::File::open("/dev/null").expect("/dev/null opens"))
            .into()
    }

    fn text(chain: &Chain) -> Vec<u8> {
        chain.iter().filter_map(Buf::memory).collect::<Vec<_>>().concat()
    }

    #[test]
    fn an_empty_chain_owns_nothing() {
        assert_eq!(size_of::<Chain>(), 8);
        let mut chain = Chain::new();
        chain.write(b"");
        assert!(chain.queue.is_none());
        chain.write(b"abc");
        chain.push_bytes(Bytes::from_static(b"def"));
        chain.advance(6);
        assert!(chain.queue.is_none() && chain.is_empty());
        assert_eq!(FREE.with(FreeList::len), 1);
        chain.write(b"again");
        assert_eq!(FREE.with(FreeList::len), 0);
    }

    #[test]
    fn wide_writers_share_a_page_with_others() {
        let mut chain = Chain::new();
        chain.write(b"head");
        chain.wide_writer_for(1000).unwrap().extend_from_slice(b"body");
        assert_eq!(chain.iter().count(), 1);
        chain.wide_writer_for(20_000).unwrap().extend_from_slice(b"wide");
        chain.wide_writer_for(20_000).unwrap().extend_from_slice(b"too");
        assert_eq!((chain.iter().count(), text(&chain)), (2, b"headbodywidetoo".to_vec()));
    }

    #[test]
    fn writers_share_a_page() {
        let mut chain = Chain::new();
        for _ in 0..3 {
            chain.writer().extend_from_slice(b"HTTP/1.1 200 OK\r\n\r\n");
            chain.write(b"body");
        }
        assert_eq!((chain.iter().count(), chain.len()), (1, 3 * 23));
        assert_eq!(chain.single().map(<[u8]>::len), Some(3 * 23));
        chain.push_file(file(), 5, 9);
        chain.write(b"tail");
        assert_eq!((chain.iter().count(), chain.len()), (3, 3 * 23 + 8));
        assert_eq!(chain.leading_memory(), (1, true));
        assert_eq!((chain.single(), Chain::new().single()), (None, None));
    }

    #[test]
    fn an_unused_writer_is_no_piece() {
        let mut chain = Chain::new();
        chain.writer();
        assert_eq!((chain.is_empty(), chain.len()), (true, 0));
        chain.push_bytes(Bytes::from_static(b"x"));
        assert_eq!(chain.iter().count(), 1);
        chain.writer();
        chain.advance(1);
        assert!(chain.is_empty());
        assert!(chain.pop_front().is_none());
    }

    #[test]
    fn slices_respect_the_limit_and_stop_at_a_file() {
        let mut chain = Chain::new();
        chain.push_bytes(Bytes::from_static(b"abc"));
        chain.push_bytes(Bytes::from_static(b"defg"));
        chain.push_file(file(), 0, 10);
        chain.push_bytes(Bytes::from_static(b"never"));
        let mut slices = [IoSlice::new(&[]); 8];
        assert_eq!(chain.slices(&mut slices, usize::MAX), (2, 7));
        assert_eq!(&*slices[1], b"defg");
        let mut slices = [IoSlice::new(&[]); 8];
        assert_eq!(chain.slices(&mut slices, 5), (2, 5));
        assert_eq!(&*slices[1], b"de");
        let mut slices = [IoSlice::new(&[]); 1];
        assert_eq!(chain.slices(&mut slices, 50), (1, 3));
        chain.advance(7);
        assert_eq!(chain.front_file().map(|(_, pos, end)| (pos, end)), Some((0, 10)));
        chain.advance(4);
        assert_eq!(chain.front_file().map(|(_, pos, end)| (pos, end)), Some((4, 10)));
    }

    #[test]
    fn split_and_append_are_inverse() {
        for at in 0..12 {
            let mut chain = Chain::new();
            chain.push_bytes(Bytes::from_static(b"abcd"));
            chain.writer_for(8).extend_from_slice(b"efgh");
            chain.push_bytes(Bytes::from_static(b"ij"));
            let mut head = chain.split_to(at);
            assert_eq!(head.len(), at.min(10));
            head.append(&mut chain);
            assert_eq!((text(&head), chain.is_empty()), (b"abcdefghij".to_vec(), true));
        }
    }
}
