//! One piece of output: memory of one kind or another, or a range of a file.

use bytes::Bytes;

use crate::{FileHandle, Page};

/// A piece of output.
#[derive(Debug)]
pub enum Buf {
    /// Shared or static bytes.
    Mem(Bytes),
    /// The filled part of a page of its own.
    Page(Page),
    /// The bytes `pos..end` of a file; `pos <= end`.
    File {
        /// The file.
        file: FileHandle,
        /// Where the piece begins.
        pos: u64,
        /// Where it ends (exclusive).
        end: u64,
    },
}

impl Buf {
    /// Bytes left in the piece.
    #[inline]
    pub fn len(&self) -> u64 {
        match self {
            Buf::Mem(bytes) => bytes.len() as u64,
            Buf::Page(page) => page.len() as u64,
            Buf::File { pos, end, .. } => end.saturating_sub(*pos),
        }
    }

    /// Whether nothing is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of a piece in memory; `None` for a range of a file.
    #[inline]
    pub fn memory(&self) -> Option<&[u8]> {
        match self {
            Buf::Mem(bytes) => Some(bytes),
            Buf::Page(page) => Some(page),
            Buf::File { .. } => None,
        }
    }

    /// Drops the first `n` bytes, or all when there are fewer.
    pub fn advance(&mut self, n: u64) {
        let n = n.min(self.len());
        match self {
            Buf::Mem(bytes) => bytes::Buf::advance(bytes, n as usize),
            Buf::Page(page) => page.consume(n as usize),
            Buf::File { pos, .. } => *pos += n,
        }
    }

    /// Splits off the first `n` bytes (all when there are fewer); `self` keeps the rest. A page
    /// that is really split becomes shared bytes; nothing is copied.
    pub fn split_to(&mut self, n: u64) -> Buf {
        if n >= self.len() {
            return std::mem::replace(self, Buf::Mem(Bytes::new()));
        }
        if let Buf::Page(page) = self {
            let page = std::mem::take(page);
            *self = Buf::Mem(page.freeze());
        }
        match self {
            Buf::Mem(bytes) => Buf::Mem(bytes.split_to(n as usize)),
            Buf::File { file, pos, .. } => {
                let head = Buf::File { file: file.clone(), pos: *pos, end: *pos + n };
                *pos += n;
                head
            }
            Buf::Page(_) => unreachable!("a page was turned into shared bytes just before"),
        }
    }

    /// The bytes of a piece in memory as shared ones, without copying; `None` for a file.
    pub fn into_bytes(self) -> Option<Bytes> {
        match self {
            Buf::Mem(bytes) => Some(bytes),
            Buf::Page(page) => Some(page.freeze()),
            Buf::File { .. } => None,
        }
    }
}

impl From<Bytes> for Buf {
    fn from(bytes: Bytes) -> Buf {
        Buf::Mem(bytes)
    }
}

impl From<Page> for Buf {
    fn from(page: Page) -> Buf {
        Buf::Page(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(bytes: &[u8]) -> Buf {
        let mut page = Page::get(0);
        page.extend_from_slice(bytes);
        Buf::Page(page)
    }

    fn file(pos: u64, end: u64) -> Buf {
        let fd = std::fs::File::open("/dev/null").expect("/dev/null opens");
        Buf::File { file: std::os::fd::OwnedFd::from(fd).into(), pos, end }
    }

    #[test]
    fn size_stays_small() {
        assert!(size_of::<Buf>() <= 40, "{}", size_of::<Buf>());
    }

    #[test]
    fn advance_stops_at_the_end() {
        for mut buf in [page(b"abc"), Buf::Mem(Bytes::from_static(b"abc")), file(7, 10)] {
            assert_eq!(buf.len(), 3);
            buf.advance(2);
            assert_eq!(buf.len(), 1);
            buf.advance(5);
            assert!(buf.is_empty());
        }
    }

    #[test]
    fn split_gives_both_halves() {
        for mut buf in [page(b"abcde"), Buf::Mem(Bytes::from_static(b"abcde"))] {
            let head = buf.split_to(2);
            assert_eq!(head.memory(), Some(&b"ab"[..]));
            assert_eq!(buf.memory(), Some(&b"cde"[..]));
            let all = buf.split_to(3);
            assert_eq!(all.memory(), Some(&b"cde"[..]));
            assert!(buf.is_empty());
        }
        let mut range = file(10, 20);
        let head = range.split_to(4);
        assert!(matches!(head, Buf::File { pos: 10, end: 14, .. }));
        assert!(matches!(range, Buf::File { pos: 14, end: 20, .. }));
    }
}
