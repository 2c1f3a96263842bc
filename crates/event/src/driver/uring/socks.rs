//! The operations that the kernel has for each socket, and their results.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

use mem::Page;

use super::token::{self, Token};
use crate::state::socks::SockKey;

/// The bits of [`KernelOps::state`].
pub(super) mod state {
    use super::Token;

    /// A recv is with the kernel.
    pub(crate) const RECV: u16 = 1;
    pub(crate) const POLL_READ: u16 = 2;
    pub(crate) const POLL_WRITE: u16 = 4;
    pub(crate) const POLL_CLOSED: u16 = 8;
    /// An accept is with the kernel.
    pub(crate) const ACCEPT: u16 = 16;
    /// An accept should be with the kernel.
    pub(crate) const LISTENS: u16 = 32;
    /// The recv was seen by one sweep.
    pub(crate) const AGED: u16 = 64;
    /// The recv was cancelled: the connection is idle, and a poll follows; or its inbox is full.
    pub(crate) const EXCHANGE: u16 = 128;
    /// The socket has more bytes than the inbox.
    pub(crate) const MORE: u16 = 256;
    /// The peer's end was received.
    pub(crate) const ENDED: u16 = 512;
    /// Nothing was tried yet.
    pub(crate) const FRESH: u16 = 1024;
    /// Connections are accepted one at a time.
    pub(crate) const ONE: u16 = 2048;
    /// It is known whether a recv may go on, see [`GOES_ON`].
    pub(crate) const ASKED: u16 = 4096;
    /// A recv may go on after its first bytes.
    pub(crate) const GOES_ON: u16 = 8192;

    /// The operations that may be in the kernel, with the kind of their tokens.
    pub(crate) const PENDING: [(u16, Token); 5] = [
        (RECV, Token::Recv),
        (POLL_READ, Token::PollRead),
        (POLL_WRITE, Token::PollWrite),
        (POLL_CLOSED, Token::PollClosed),
        (ACCEPT, Token::Accept),
    ];
}

#[derive(Default)]
pub(super) struct KernelOps {
    generation: u32,
    /// For operations that are armed when a completion is applied.
    pub(super) fd: RawFd,
    /// Bytes that were received and not taken yet.
    pub(super) inbox: Inbox,
    /// An error number for the next operation; 0 for none.
    pub(super) error: i32,
    pub(super) state: u16,
    open: bool,
}

impl KernelOps {
    /// Moves bytes from the inbox to `page`, as far as there is room, which is made for `min`
    /// bytes. Returns their number.
    pub(super) fn take(&mut self, page: &mut Page, min: usize) -> usize {
        let Some(mut first) = self.inbox.pop() else { return 0 };
        if page.is_empty() && page.capacity() <= mem::PAGE_SIZE && min <= mem::PAGE_SIZE {
            *page = first;
            return page.len();
        }
        page.reserve(min);
        let len = first.len().min(page.spare());
        page.extend_from_slice(&first[..len]);
        first.consume(len);
        if !first.is_empty() {
            self.inbox.put_back(first);
        }
        len
    }

    pub(super) fn take_error(&mut self) -> Option<io::Error> {
        match std::mem::take(&mut self.error) {
            0 => None,
            number => Some(io::Error::from_raw_os_error(number)),
        }
    }

    /// Whether a recv of this socket may go on after its first bytes. Not over a unix socket: there
    /// it takes bytes and the end behind them for one event, brings the bytes, and never reports
    /// the end, for which no other event comes. Kernels from 6.17 do that, because a unix socket
    /// tells them since then that it has no more bytes; one over TCP says that there is more once
    /// the peer has ended. (Fixed in 2026 for an end that comes while the recv waits, and not for
    /// one that is there when it begins.) A reset over TCP can be lost in the same way, which the
    /// sweep finds.
    pub(super) fn may_go_on(&mut self, fd: BorrowedFd<'_>) -> bool {
        if self.state & state::ASKED == 0 {
            self.state |= state::ASKED;
            if os::socket::is_unix(fd).is_ok_and(|is_unix| !is_unix) {
                self.state |= state::GOES_ON;
            }
        }
        self.state & state::GOES_ON != 0
    }

    /// Whether there is something to report besides bytes.
    pub(super) fn has_news(&self) -> bool {
        self.error != 0 || self.state & state::ENDED != 0
    }
}

/// Filled pages that were not taken yet: none or one, as a rule.
#[derive(Default)]
#[expect(clippy::box_collection, reason = "several are rare, and every socket has an inbox")]
pub(super) enum Inbox {
    #[default]
    Empty,
    One(Page),
    Several(Box<VecDeque<Page>>),
}

impl Inbox {
    pub(super) fn push(&mut self, page: Page) {
        *self = match std::mem::take(self) {
            Inbox::Empty => Inbox::One(page),
            Inbox::One(first) => Inbox::Several(Box::new(VecDeque::from([first, page]))),
            Inbox::Several(mut pages) => {
                pages.push_back(page);
                Inbox::Several(pages)
            }
        };
    }

    fn pop(&mut self) -> Option<Page> {
        match std::mem::take(self) {
            Inbox::Empty => None,
            Inbox::One(page) => Some(page),
            Inbox::Several(mut pages) => {
                let first = pages.pop_front();
                if !pages.is_empty() {
                    *self = Inbox::Several(pages);
                }
                first
            }
        }
    }

    fn put_back(&mut self, page: Page) {
        *self = match std::mem::take(self) {
            Inbox::Empty => Inbox::One(page),
            Inbox::One(next) => Inbox::Several(Box::new(VecDeque::from([page, next]))),
            Inbox::Several(mut pages) => {
                pages.push_front(page);
                Inbox::Several(pages)
            }
        };
    }

    /// The number of its pages.
    pub(super) fn len(&self) -> usize {
        match self {
            Inbox::Empty => 0,
            Inbox::One(_) => 1,
            Inbox::Several(pages) => pages.len(),
        }
    }
}

/// The state of each socket, by its index.
#[derive(Default)]
pub(super) struct KernelOpsTable {
    list: Vec<KernelOps>,
}

impl KernelOpsTable {
    pub(super) fn open(&mut self, key: SockKey) {
        let at = key.index as usize;
        if self.list.len() <= at {
            self.list.resize_with(at + 1, KernelOps::default);
        }
        let (generation, state) = (key.generation, state::FRESH);
        self.list[at] = KernelOps { generation, state, open: true, ..KernelOps::default() };
    }

    pub(super) fn close(&mut self, key: SockKey) {
        if let Some(own) = self.get(key) {
            own.open = false;
            own.inbox = Inbox::Empty;
        }
    }

    pub(super) fn get(&mut self, key: SockKey) -> Option<&mut KernelOps> {
        let own = self.list.get_mut(key.index as usize)?;
        (own.open && own.generation == key.generation).then_some(own)
    }

    /// The socket of a token, unless it is closed.
    pub(super) fn of(&mut self, token: u64) -> Option<(SockKey, &mut KernelOps)> {
        let index = token::place(token);
        let own = self.list.get_mut(index as usize)?;
        let key = SockKey { index, generation: own.generation };
        (own.open && token::is_of(token, key)).then_some((key, own))
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = (SockKey, &mut KernelOps)> {
        self.list
            .iter_mut()
            .enumerate()
            .filter(|(_, own)| own.open)
            .map(|(index, own)| (SockKey { index: index as u32, generation: own.generation }, own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_socket_costs_here() {
        assert_eq!(size_of::<KernelOps>(), 32);
    }

    fn page(bytes: &[u8]) -> Page {
        let mut page = Page::get(0);
        page.extend_from_slice(bytes);
        page
    }

    #[test]
    fn bytes_leave_the_inbox_in_order_whatever_the_room() {
        let mut own = KernelOps::default();
        for part in [&b"abc"[..], b"defg", b"h"] {
            own.inbox.push(page(part));
        }
        // With bytes before it, only as far as there is room.
        let mut small = page(&vec![b'.'; mem::PAGE_SIZE - 2]);
        assert_eq!((own.take(&mut small, 1), own.inbox.len()), (2, 3));
        assert!(small.ends_with(b"ab"));
        let mut whole = Page::new();
        assert_eq!(own.take(&mut whole, 1), 1);
        assert_eq!((own.take(&mut whole, 1), own.take(&mut whole, 1)), (4, 1));
        assert_eq!(own.take(&mut whole, 1), 0);
        assert_eq!(whole.filled(), b"cdefgh");
        let mut large = Page::new();
        own.inbox.push(page(b"x"));
        assert_eq!(own.take(&mut large, mem::PAGE_SIZE + 1), 1);
        assert!(large.capacity() > mem::PAGE_SIZE);
    }

    #[test]
    fn tokens_of_sockets_that_are_gone_find_nothing() {
        let mut owns = KernelOpsTable::default();
        let old = SockKey { index: 2, generation: 7 };
        owns.open(old);
        let token = token::of_sock(Token::Recv, old);
        assert!(owns.of(token).is_some_and(|(key, _)| key == old));
        owns.close(old);
        assert!(owns.of(token).is_none());
        owns.open(SockKey { generation: 8, ..old });
        assert!(owns.of(token).is_none() && owns.all().count() == 1);
    }
}
