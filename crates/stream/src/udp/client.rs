//! The way between a session and its client.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

use base::time::now_ms;
use bytes::Bytes;
use event::Member;
use os::SockAddr;

use super::endpoint::Endpoint;
use super::inbox::Inbox;
use super::own_socket::OwnSocket;
use super::table::{NO_PLACE, Table};
use super::{Key, SEGMENTS_MAX, may_follow, send};
use crate::proxy::datagrams::{Marks, Relay};

/// The datagrams of a session that may wait for it; more are dropped.
const INBOX_MAX: usize = 256;

/// The client of a session, with the relay to the session's server once it has one. Every idle
/// session keeps it: it is small.
pub struct Client {
    /// None in tests alone.
    endpoint: Option<Rc<Endpoint>>,
    inbox: Inbox,
    /// The time of the last datagram, from either side.
    last_ms: Cell<u64>,
    /// The client's datagrams come by this one, once its worker leaves the endpoint's.
    own: Cell<Option<Box<OwnSocket>>>,
    /// The datagrams that it takes still; [`ANY`] for any number.
    left: Cell<u32>,
    /// Its place in the table of relays.
    pub(super) place: Cell<u32>,
    /// The soonest of its timers: the lower half of the time.
    pub(super) timer: Cell<u32>,
    key: Key,
    pub(crate) marks: Cell<Marks>,
    progress: Cell<Progress>,
    /// Other datagrams of the client still reach this session.
    is_open: Cell<bool>,
    /// It has a socket of its own.
    is_kept: Cell<bool>,
    /// It waits for its turn.
    pub(super) is_queued: Cell<bool>,
    /// The session, which holds its client: [`Table`] takes it out at its end.
    pub(super) relay: RefCell<Option<Relay>>,
}

/// See [`Client::left`].
const ANY: u32 = u32::MAX;

/// The client of a session, held by it: its end is the session's.
pub struct Held(Rc<Client>);

impl Held {
    pub(crate) fn new(client: Rc<Client>) -> Held {
        Held(client)
    }

    /// The client.
    pub fn client(&self) -> &Rc<Client> {
        &self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(endpoint) = &self.0.endpoint {
            endpoint.sessions().end(&self.0);
        }
        self.0.close();
    }
}

/// The progress of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// The client was answered nothing.
    Asked,
    /// It was answered.
    Answered,
    /// It sent something after that: it is there.
    Proven,
    /// It goes, for another one.
    Shed,
}

impl Client {
    pub(super) fn new(endpoint: &Rc<Endpoint>, key: Key) -> Client {
        Client::of(Some(endpoint.clone()), key)
    }

    fn of(endpoint: Option<Rc<Endpoint>>, key: Key) -> Client {
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

    /// The owner of the session.
    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// The local address of the client's datagrams.
    pub(crate) fn local(&self) -> Option<SockAddr> {
        self.endpoint.as_ref()?.local_of(&self.key)
    }

    fn table(&self) -> Option<&Rc<Table>> {
        self.endpoint.as_ref().map(|endpoint| endpoint.table())
    }

    /// Leaves the session to the worker's table.
    pub(crate) fn adopt(self: &Rc<Self>, relay: Relay) {
        if let Some(table) = self.table() {
            table.adopt(self, relay);
        }
    }

    /// A socket to a server, whose datagrams give the session its turn.
    ///
    /// # Panics
    /// When this thread has no loop.
    pub(crate) fn member(&self, fd: OwnedFd) -> Option<Member> {
        self.table().map(|table| table.member(fd, self.place.get()))
    }

    /// The time of the last datagram, from either side.
    pub(crate) fn last_ms(&self) -> u64 {
        self.last_ms.get()
    }

    /// Something moves now.
    pub(crate) fn touch(&self) {
        self.last_ms.set(now_ms());
    }

    /// Whether the client sent something after an answer.
    pub(super) fn is_proven(&self) -> bool {
        self.progress.get() == Progress::Proven
    }

    /// Whether datagrams of the client still reach this session.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// Ends the session, to make room for another one.
    pub(super) fn shed(self: &Rc<Self>) {
        self.progress.set(Progress::Shed);
        self.close();
        if let Some(table) = self.table() {
            table.queue(self);
        }
    }

    /// Whether the session is to end, to make room for another one.
    pub fn is_shed(&self) -> bool {
        self.progress.get() == Progress::Shed
    }

    /// Gives the session a datagram, if there is room; its turn is to follow.
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

    /// Takes so many further datagrams; what the inbox holds beyond that begins another session.
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
                endpoint.deliver(&self.key, datagram);
            }
        }
    }

    /// The next datagram of the client.
    pub fn next(&self) -> Option<Bytes> {
        self.inbox.pop_if(|_| true)
    }

    /// The next datagram of the client, if it may leave in one call with `bytes` bytes before it,
    /// as datagrams of `segment` bytes.
    pub(crate) fn next_for(&self, bytes: usize, segment: usize) -> Option<Bytes> {
        self.inbox.pop_if(|next| may_follow(bytes, segment, next.len(), next.len()))
    }

    /// Whether as many wait as one call sends.
    pub(super) fn has_many(&self) -> bool {
        self.inbox.len() >= SEGMENTS_MAX
    }

    /// Has the client's next datagram begin another session.
    pub fn close(&self) {
        if !self.is_open.replace(false) {
            return;
        }
        self.is_kept.set(false);
        let own = self.own.take();
        let Some(endpoint) = &self.endpoint else { return };
        endpoint.forget(&self.key);
        for (key, datagram) in own.into_iter().flat_map(|own| own.close()) {
            endpoint.deliver(&key, datagram);
        }
    }

    /// Goes on with a socket of the client's own, while others receive from the endpoint's.
    ///
    /// # Errors
    /// The system's: the session goes on without the client's further datagrams.
    pub(super) fn keep(&self, endpoint: &Rc<Endpoint>, local: &SockAddr) -> io::Result<()> {
        self.own.set(Some(Box::new(OwnSocket::start(endpoint, &self.key, local)?)));
        self.is_kept.set(true);
        Ok(())
    }

    /// Whether the client's datagrams come by a socket of its own.
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

    /// Sends datagrams of `segment` bytes to the client, with the other answers of the table's
    /// turn. The relay hears of an error.
    pub(crate) fn answer(self: &Rc<Self>, bytes: &[u8], segment: usize) {
        self.note_answer();
        if let Some(table) = self.table() {
            table.answer(self, bytes, segment);
        }
    }

    /// Whether the answers of other sessions, or its own, are to leave before there are more.
    pub(crate) fn is_held_up(&self) -> bool {
        self.table().is_some_and(|table| table.has_full_outbox())
    }

    fn note_answer(&self) {
        self.touch();
        if self.progress.get() == Progress::Asked {
            self.progress.set(Progress::Answered);
        }
    }

    /// The socket that its answers leave by.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.endpoint.as_ref()?.fd())
    }

    /// Whether the answers of both leave by one socket.
    pub(super) fn shares_socket(&self, other: &Client) -> bool {
        match (&self.endpoint, &other.endpoint) {
            (Some(one), Some(other)) => Rc::ptr_eq(one, other),
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
        assert_eq!((relay, size_of::<Client>()), ((184, 288), 384));
    }
}
