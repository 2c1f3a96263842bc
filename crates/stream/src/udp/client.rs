//! The client side of a UDP session.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Poll, Waker};

use base::time::now_ms;
use bytes::Bytes;
use event::Member;
use os::SockAddr;

use super::datagrams::{Key, SEGMENTS_MAX, may_follow, send};
use super::inbox::Inbox;
use super::own_socket::OwnSocket;
use super::relay::{Marks, Relay};

/// The maximum number of queued datagrams of a session; more are dropped.
const INBOX_MAX: usize = 256;

/// The index of a session that is not in the table.
pub(super) const NO_PLACE: u32 = u32::MAX;

/// The endpoint of a client, with the worker's table of relays.
pub(super) trait Home {
    /// The socket, for sending.
    fn fd(&self) -> BorrowedFd<'_>;

    /// The local address of a client's datagrams.
    fn local_of(&self, key: &Key) -> Option<SockAddr>;

    /// Makes the client's next datagram start another session.
    fn forget(&self, key: &Key);

    /// Delivers a datagram to its session and runs its turn; a client's first datagram starts a
    /// session.
    fn deliver(self: Rc<Self>, key: &Key, datagram: Bytes);

    /// A session of this client has ended.
    fn ended(&self, client: &Client);

    /// Adds a session to the table, which had a task until now.
    fn adopt(&self, client: &Rc<Client>, relay: Relay);

    /// Registers a socket to a server for the session at index `place` of the table.
    fn member(&self, fd: OwnedFd, place: u32) -> Member;

    /// Queues a session for a turn.
    fn queue(&self, client: &Rc<Client>);

    /// Wakes the task of a session that is not in the table when it would have a turn.
    fn wake_at_arrival(&self, client: &Rc<Client>, waker: &Waker);

    /// Queues datagrams of `segment` bytes each for the client.
    fn answer(&self, client: &Rc<Client>, bytes: &[u8], segment: usize);

    /// Whether queued answers must be sent before adding more.
    fn is_held_up(&self) -> bool;
}

/// The client of a session, and the session's relay once it has one. Kept small, because every idle
/// session has one.
pub struct Client {
    /// `None` only in tests.
    endpoint: Option<Rc<dyn Home>>,
    inbox: Inbox,
    /// The time of the last datagram in either direction, in milliseconds.
    last_ms: Cell<u64>,
    /// The client's own socket, used after the worker has left the endpoint's socket.
    own: Cell<Option<Box<OwnSocket>>>,
    /// The number of further datagrams that the session accepts; [`ANY`] is unlimited.
    left: Cell<u32>,
    /// Its index in the table of relays.
    pub(super) place: Cell<u32>,
    /// The lower 32 bits of the time of its next timer, in milliseconds; 0 without a timer.
    pub(super) timer: Cell<u32>,
    key: Key,
    pub(crate) marks: Cell<Marks>,
    progress: Cell<Progress>,
    /// Further datagrams of the client belong to this session.
    is_open: Cell<bool>,
    /// The client has its own socket.
    is_kept: Cell<bool>,
    /// Queued for a turn.
    pub(super) is_queued: Cell<bool>,
    /// The session, which in turn holds its client; [`Table`] breaks the cycle at the session's
    /// end.
    pub(super) relay: RefCell<Option<Relay>>,
}

/// See [`Client::left`].
const ANY: u32 = u32::MAX;

/// The session's reference to its client; dropping it ends the session.
pub struct Held(Rc<Client>);

impl Held {
    pub(crate) fn new(client: Rc<Client>) -> Held {
        Held(client)
    }

    /// The client itself.
    pub fn client(&self) -> &Rc<Client> {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(endpoint) = &self.0.endpoint {
            endpoint.ended(&self.0);
        }
        self.0.close();
    }
}

/// The progress of a session, which decides how soon it is evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// No answer was sent.
    Asked,
    /// An answer was sent.
    Answered,
    /// The client has sent a datagram after an answer, so its address is not spoofed.
    Proven,
    /// Being evicted to make room for another session.
    Shed,
}

impl Client {
    pub(super) fn new(endpoint: Rc<dyn Home>, key: Key) -> Client {
        Client::of(Some(endpoint), key)
    }

    fn of(endpoint: Option<Rc<dyn Home>>, key: Key) -> Client {
        Client {
            endpoint,
            inbox: Inbox::default(),
            last_ms: Cell::new(now_ms()),
            own: Cell::default(),
            left: Cell::new(ANY),
            place: Cell::new(NO_PLACE),
            timer: Cell::new(0),
            key,
            marks: Cell::default(),
            progress: Cell::new(Progress::Asked),
            is_open: Cell::new(true),
            is_kept: Cell::new(false),
            is_queued: Cell::new(false),
            relay: RefCell::new(None),
        }
    }

    #[cfg(test)]
    pub(super) fn for_test(last_ms: u64, proven: bool) -> Client {
        let ip = std::net::Ipv4Addr::LOCALHOST.into();
        let client = Client::of(None, Key { ip, port: 1, local: None });
        client.last_ms.set(last_ms);
        if proven {
            client.progress.set(Progress::Proven);
        }
        client
    }

    #[cfg(test)]
    pub(super) fn heard_at(&self, ms: u64) {
        self.last_ms.set(ms);
    }

    /// The addresses that identify the session.
    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// The local address to which the client sends.
    pub(crate) fn local(&self) -> Option<SockAddr> {
        self.endpoint.as_ref()?.local_of(&self.key)
    }

    /// Hands the session over to the worker's table.
    pub(crate) fn adopt(self: &Rc<Self>, relay: Relay) {
        if let Some(home) = &self.endpoint {
            home.adopt(self, relay);
        }
    }

    /// Registers a socket to a server, whose datagrams trigger the session's turns.
    ///
    /// # Panics
    /// If this thread has no event loop.
    pub(crate) fn member(&self, fd: OwnedFd) -> Option<Member> {
        self.endpoint.as_ref().map(|home| home.member(fd, self.place.get()))
    }

    /// The time of the last datagram in either direction, in milliseconds.
    pub(crate) fn last_ms(&self) -> u64 {
        self.last_ms.get()
    }

    /// Resets the idle time.
    pub(crate) fn touch(&self) {
        self.last_ms.set(now_ms());
    }

    /// Whether the client has sent a datagram after an answer.
    pub(super) fn is_proven(&self) -> bool {
        self.progress.get() == Progress::Proven
    }

    /// Whether further datagrams of the client belong to this session.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// Evicts the session.
    pub(super) fn shed(self: &Rc<Self>) {
        self.progress.set(Progress::Shed);
        self.close();
        if let Some(home) = &self.endpoint {
            home.queue(self);
        }
    }

    /// Whether the session is being evicted.
    pub(crate) fn is_shed(&self) -> bool {
        self.progress.get() == Progress::Shed
    }

    /// Queues a datagram for the session, or drops it if the queue is full. The caller schedules
    /// the turn.
    pub(super) fn deliver(&self, datagram: Bytes) {
        if self.inbox.len() >= INBOX_MAX {
            return;
        }
        self.inbox.push(datagram);
        self.touch();
        if self.progress.get() == Progress::Answered {
            self.progress.set(Progress::Proven);
        }
        let left = self.left.get();
        if left != ANY {
            self.left.set(left.saturating_sub(1));
            if left <= 1 {
                self.close();
            }
        }
    }

    /// Limits the session to `more` further datagrams; those queued beyond that start another
    /// session.
    pub(crate) fn limit(&self, more: u64) {
        let keep = usize::try_from(more).unwrap_or(usize::MAX).min(self.inbox.len());
        let excess = self.inbox.split_off(keep);
        let left = u32::try_from(more.saturating_sub(keep as u64)).unwrap_or(ANY);
        self.left.set(left);
        if left == 0 {
            self.close();
        }
        if let Some(endpoint) = &self.endpoint {
            for datagram in excess {
                endpoint.clone().deliver(&self.key, datagram);
            }
        }
    }

    /// Resolves when a datagram is queued, or the session is being evicted. For sessions that are
    /// not in the table.
    pub(crate) async fn came(self: &Rc<Self>) {
        std::future::poll_fn(|cx| {
            if self.inbox.len() > 0 || self.is_shed() {
                return Poll::Ready(());
            }
            if let Some(home) = &self.endpoint {
                home.wake_at_arrival(self, cx.waker());
            }
            Poll::Pending
        })
        .await
    }

    /// Takes the next queued datagram.
    pub fn next(&self) -> Option<Bytes> {
        self.inbox.pop_if(|_| true)
    }

    /// Takes the next queued datagram if it can be sent in one call after `bytes` bytes of
    /// datagrams of `segment` bytes each.
    pub(crate) fn next_for(&self, bytes: usize, segment: usize) -> Option<Bytes> {
        self.inbox.pop_if(|next| may_follow(bytes, segment, next.len(), next.len()))
    }

    /// Whether as many datagrams are queued as one call can send.
    pub(super) fn has_many(&self) -> bool {
        self.inbox.len() >= SEGMENTS_MAX
    }

    /// Makes the client's next datagram start another session.
    pub fn close(&self) {
        if !self.is_open.replace(false) {
            return;
        }
        self.is_kept.set(false);
        let own = self.own.take();
        let Some(endpoint) = &self.endpoint else { return };
        endpoint.forget(&self.key);
        for (key, datagram) in own.into_iter().flat_map(|own| own.close()) {
            endpoint.clone().deliver(&key, datagram);
        }
    }

    /// Continues with the client's own socket, while another process reads the endpoint's.
    pub(super) fn keep(&self, own: OwnSocket) {
        self.own.set(Some(Box::new(own)));
        self.is_kept.set(true);
    }

    /// Whether the client has its own socket.
    pub fn is_kept(&self) -> bool {
        self.is_kept.get()
    }

    /// Sends a datagram to the client without waiting.
    ///
    /// # Errors
    /// The system's.
    pub fn send(&self, datagram: &[u8]) -> io::Result<()> {
        let Some(fd) = self.socket() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        self.note_answer();
        let segment = datagram.len().max(1);
        send(fd, datagram, segment, Some(&self.key.peer()), self.key.local)
    }

    /// Queues datagrams of `segment` bytes each for the client; they are sent with the other
    /// answers of the table's turn. The relay is informed of errors.
    pub(crate) fn answer(self: &Rc<Self>, bytes: &[u8], segment: usize) {
        self.note_answer();
        if let Some(home) = &self.endpoint {
            home.answer(self, bytes, segment);
        }
    }

    /// Whether queued answers must be sent before adding more.
    pub(crate) fn is_held_up(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|home| home.is_held_up())
    }

    fn note_answer(&self) {
        self.touch();
        if self.progress.get() == Progress::Asked {
            self.progress.set(Progress::Answered);
        }
    }

    /// The socket for sending to the client.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.endpoint.as_ref()?.fd())
    }

    /// Whether both clients are sent to over the same socket.
    pub(super) fn shares_socket(&self, other: &Client) -> bool {
        match (&self.endpoint, &other.endpoint) {
            (Some(one), Some(other)) => std::ptr::addr_eq(Rc::as_ptr(one), Rc::as_ptr(other)),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::StreamSession;

    #[test]
    fn what_a_session_costs() {
        let relay = (size_of::<StreamSession>(), size_of::<Relay>());
        assert_eq!((relay, size_of::<Client>()), ((184, 288), 392));
    }
}
