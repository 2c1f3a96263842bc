//! What each socket has with the kernel, and what the kernel has brought for it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use mem::Page;

use super::token::{self, Kind};
use crate::sock::SockKey;

/// What [`Own::state`] says.
pub(super) mod state {
    use super::Kind;

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
    /// The recv was cancelled: the connection is idle, and a poll follows; or it has sent more than
    /// is being asked for.
    pub(crate) const EXCHANGE: u16 = 128;
    /// The socket has more than what is in the inbox.
    pub(crate) const MORE: u16 = 256;
    /// The peer's end was received.
    pub(crate) const ENDED: u16 = 512;
    /// Nothing was tried yet.
    pub(crate) const FRESH: u16 = 1024;
    /// Connections are accepted one at a time.
    pub(crate) const ONE: u16 = 2048;

    /// What may be with the kernel, and under which name.
    pub(crate) const PENDING: [(u16, Kind); 5] = [
        (RECV, Kind::Recv),
        (POLL_READ, Kind::PollRead),
        (POLL_WRITE, Kind::PollWrite),
        (POLL_CLOSED, Kind::PollClosed),
        (ACCEPT, Kind::Accept),
    ];
}

#[derive(Default)]
pub(super) struct Own {
    generation: u32,
    /// For what is armed when a completion is applied.
    pub(super) fd: RawFd,
    /// Bytes that were received and not asked for yet.
    pub(super) inbox: Inbox,
    /// An error number to be told; 0 for none.
    pub(super) error: i32,
    pub(super) state: u16,
    open: bool,
}

impl Own {
    /// Moves what lies in the inbox to `page`, as far as there is room, which is made for `min`
    /// bytes. Returns how many bytes.
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

    /// Whether there is something to tell besides bytes.
    pub(super) fn has_news(&self) -> bool {
        self.error != 0 || self.state & state::ENDED != 0
    }
}

/// Pages that were filled and not asked for yet: none or one, as a rule.
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

    /// Pages in it.
    pub(super) fn len(&self) -> usize {
        match self {
            Inbox::Empty => 0,
            Inbox::One(_) => 1,
            Inbox::Several(pages) => pages.len(),
        }
    }
}

/// By the sockets' places.
#[derive(Default)]
pub(super) struct Owns {
    list: Vec<Own>,
}

impl Owns {
    pub(super) fn open(&mut self, key: SockKey) {
        let at = key.index as usize;
        if self.list.len() <= at {
            self.list.resize_with(at + 1, Own::default);
        }
        let (generation, state) = (key.generation, state::FRESH);
        self.list[at] = Own { generation, state, open: true, ..Own::default() };
    }

    pub(super) fn close(&mut self, key: SockKey) {
        if let Some(own) = self.get(key) {
            own.open = false;
            own.inbox = Inbox::Empty;
        }
    }

    pub(super) fn get(&mut self, key: SockKey) -> Option<&mut Own> {
        let own = self.list.get_mut(key.index as usize)?;
        (own.open && own.generation == key.generation).then_some(own)
    }

    /// Whose a token is, unless that socket is gone.
    pub(super) fn of(&mut self, token: u64) -> Option<(SockKey, &mut Own)> {
        let index = token::place(token);
        let own = self.list.get_mut(index as usize)?;
        let key = SockKey { index, generation: own.generation };
        (own.open && token::is_of(token, key)).then_some((key, own))
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = (SockKey, &mut Own)> {
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
        assert_eq!(size_of::<Own>(), 32);
    }

    fn page(bytes: &[u8]) -> Page {
        let mut page = Page::get(0);
        page.extend_from_slice(bytes);
        page
    }

    #[test]
    fn bytes_leave_the_inbox_in_order_whatever_the_room() {
        let mut own = Own::default();
        for part in [&b"abc"[..], b"defg", b"h"] {
            own.inbox.push(page(part));
        }
        // With something before it, only as much as there is room for.
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
        let mut owns = Owns::default();
        let old = SockKey { index: 2, generation: 7 };
        owns.open(old);
        let token = token::of_sock(Kind::Recv, old);
        assert!(owns.of(token).is_some_and(|(key, _)| key == old));
        owns.close(old);
        assert!(owns.of(token).is_none());
        owns.open(SockKey { generation: 8, ..old });
        assert!(owns.of(token).is_none() && owns.all().count() == 1);
    }
}
