//! Sessions over UDP.
//!
//! ```text
//!  socket ─▶ endpoint ─(client, local address)─▶ inbox ─▶ session's task ─▶ server's socket
//!     ▲                                                        │
//!     └────────────────────── answers ◀────────────────────────┘
//! ```
//!
//! A session begins with a datagram of a client that has none, and is found by the client's address
//! and the local one from then on.

pub(crate) mod endpoint;
mod inbox;
mod own_socket;
pub(crate) mod sessions;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::rc::{Rc, Weak};
use std::task::Waker;

use base::time::now_ms;
use bytes::Bytes;
use os::SockAddr;
use os::datagram::Received;

use self::endpoint::Endpoint;
use self::inbox::Inbox;
use self::own_socket::OwnSocket;
use self::sessions::Sessions;

/// The datagrams of a session that may wait for it; more are dropped.
const INBOX_MAX: usize = 256;

/// One datagram, or several of one length that came together.
#[derive(Clone, Debug)]
pub struct Datagrams {
    /// Their bytes.
    pub bytes: Bytes,
    /// The length of each but the last one; never 0.
    pub segment: usize,
}

impl Datagrams {
    /// A single one.
    pub fn single(bytes: Bytes) -> Datagrams {
        let segment = bytes.len().max(1);
        Datagrams { bytes, segment }
    }

    /// Their number.
    pub fn count(&self) -> u64 {
        (self.bytes.len().div_ceil(self.segment)).max(1) as u64
    }

    /// Each by itself.
    pub fn each(&self) -> impl Iterator<Item = Bytes> + '_ {
        let starts = (0..self.count() as usize).map(|i| i * self.segment);
        starts.map(|at| self.bytes.slice(at..self.bytes.len().min(at + self.segment)))
    }
}

/// The client of a session, as one of an endpoint's.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub peer: SockAddr,
    /// The local address, where the socket has several.
    pub local: Option<IpAddr>,
}

/// The way between a session and its client. Every idle session has one: it is small.
pub struct Client {
    endpoint: Weak<Endpoint>,
    key: Key,
    inbox: Inbox,
    /// Wakes the session.
    waker: Cell<Option<Waker>>,
    /// The datagrams that it takes still; [`ANY`] for any number.
    left: Cell<u32>,
    /// All sessions of the worker.
    sessions: Rc<Sessions>,
    /// The time of the last datagram, from either side.
    last_ms: Cell<u64>,
    /// The client's datagrams come by this one, once its worker leaves the endpoint's.
    own: Cell<Option<Box<OwnSocket>>>,
    progress: Cell<Progress>,
    /// Other datagrams of the client still reach this session.
    is_open: Cell<bool>,
    /// It has a socket of its own.
    is_kept: Cell<bool>,
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
        self.0.sessions.end(&self.0);
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
    fn new(endpoint: &Rc<Endpoint>, key: Key) -> Client {
        Client::of(Rc::downgrade(endpoint), key, endpoint.sessions())
    }

    fn of(endpoint: Weak<Endpoint>, key: Key, sessions: &Rc<Sessions>) -> Client {
        Client {
            endpoint,
            key,
            inbox: Inbox::default(),
            waker: Cell::default(),
            left: Cell::new(ANY),
            sessions: sessions.clone(),
            last_ms: Cell::new(now_ms()),
            own: Cell::default(),
            progress: Cell::new(Progress::Asked),
            is_open: Cell::new(true),
            is_kept: Cell::new(false),
        }
    }

    #[cfg(test)]
    fn for_test(sessions: &Rc<Sessions>, last_ms: u64, proven: bool) -> Client {
        let key = Key { peer: SockAddr::unix(b"/x").unwrap(), local: None };
        let client = Client::of(Weak::new(), key, sessions);
        client.last_ms.set(last_ms);
        if proven {
            client.progress.set(Progress::Proven);
        }
        client
    }

    #[cfg(test)]
    fn heard_at(&self, ms: u64) {
        self.last_ms.set(ms);
    }

    /// The owner of the session.
    fn key(&self) -> &Key {
        &self.key
    }

    /// The time of the last datagram, from either side.
    fn last_ms(&self) -> u64 {
        self.last_ms.get()
    }

    /// Whether the client sent something after an answer.
    fn is_proven(&self) -> bool {
        self.progress.get() == Progress::Proven
    }

    /// Whether datagrams of the client still reach this session.
    fn is_open(&self) -> bool {
        self.is_open.get()
    }

    /// Ends the session, to make room for another one.
    fn shed(&self) {
        self.progress.set(Progress::Shed);
        self.close();
        self.wake();
    }

    /// Has `waker` wake the session when there is something for it: see [`Client::has_news`].
    pub fn listen(&self, waker: &Waker) {
        self.waker.set(Some(waker.clone()));
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Whether a datagram waits for the session, or it is to end.
    pub fn has_news(&self) -> bool {
        self.is_shed() || self.inbox.len() > 0
    }

    /// Whether the session is to end, to make room for another one.
    pub fn is_shed(&self) -> bool {
        self.progress.get() == Progress::Shed
    }

    /// Puts a datagram into the inbox, if there is room.
    fn deliver(&self, datagram: Bytes) {
        if self.inbox.len() >= INBOX_MAX {
            return;
        }
        self.inbox.push(datagram);
        self.last_ms.set(now_ms());
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
        self.wake();
    }

    /// Takes so many further datagrams; what the inbox holds beyond that begins another session.
    pub fn limit(&self, more: u64) {
        let keep = usize::try_from(more).unwrap_or(usize::MAX).min(self.inbox.len());
        let excess = self.inbox.split_off(keep);
        let left = u32::try_from(more.saturating_sub(keep as u64)).unwrap_or(ANY);
        self.left.set(left);
        if left == 0 {
            self.close();
        }
        if let Some(endpoint) = self.endpoint.upgrade() {
            for datagram in excess {
                endpoint.deliver(&self.key, datagram);
            }
        }
    }

    /// The next datagram of the client.
    pub fn next(&self) -> Option<Bytes> {
        self.inbox.pop()
    }

    /// Has the client's next datagram begin another session.
    pub fn close(&self) {
        if !self.is_open.replace(false) {
            return;
        }
        self.is_kept.set(false);
        let own = self.own.take();
        let Some(endpoint) = self.endpoint.upgrade() else { return };
        endpoint.forget(&self.key);
        for (key, datagram) in own.into_iter().flat_map(|own| own.close()) {
            endpoint.deliver(&key, datagram);
        }
    }

    /// Goes on with a socket of the client's own, while others receive from the endpoint's.
    ///
    /// # Errors
    /// The system's: the session goes on without the client's further datagrams.
    fn keep(self: &Rc<Self>, endpoint: &Rc<Endpoint>, local: &SockAddr) -> io::Result<()> {
        self.own.set(Some(Box::new(OwnSocket::start(endpoint, &self.key, local)?)));
        self.is_kept.set(true);
        Ok(())
    }

    /// Whether the client's datagrams come by a socket of its own.
    pub fn is_kept(&self) -> bool {
        self.is_kept.get()
    }

    /// Sends to the client without waiting.
    ///
    /// # Errors
    /// The system's.
    pub fn send(&self, datagrams: &Datagrams) -> io::Result<()> {
        let Some(endpoint) = self.endpoint.upgrade() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        self.last_ms.set(now_ms());
        if self.progress.get() == Progress::Asked {
            self.progress.set(Progress::Answered);
        }
        send(endpoint.fd(), datagrams, Some(&self.key.peer), self.key.local)
    }
}

/// Sends datagrams: several of one length in one call where the kernel can, else one by one.
///
/// # Errors
/// The system's.
pub(crate) fn send(
    fd: BorrowedFd<'_>,
    datagrams: &Datagrams,
    to: Option<&SockAddr>,
    from: Option<IpAddr>,
) -> io::Result<()> {
    /// The most datagrams of one call, as Linux has it for `UDP_SEGMENT`.
    const SEGMENTS_MAX: u64 = 64;
    let segment = u16::try_from(datagrams.segment).ok();
    if datagrams.count() > 1 && datagrams.count() <= SEGMENTS_MAX && segment.is_some() {
        match os::datagram::send(fd, &datagrams.bytes, to, from, segment) {
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(e),
            // Not every route and kernel can: one by one, then.
            Err(_) => {}
        }
    }
    for one in datagrams.each() {
        os::datagram::send(fd, &one, to, from, None)?;
    }
    Ok(())
}

thread_local! {
    /// The buffer of all receives of a worker: nothing is in it over a wait.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The longest datagram, and the most that the kernel joins.
const DATAGRAM_MAX: usize = 65536;

/// The next datagrams of a socket, if there are some.
///
/// # Errors
/// The system's.
pub(crate) fn receive(fd: BorrowedFd<'_>) -> io::Result<Option<Datagrams>> {
    Ok(receive_from(fd)?.map(|(datagrams, _)| datagrams))
}

/// The same with whose they are.
fn receive_to(fd: BorrowedFd<'_>) -> io::Result<Option<(Datagrams, Key)>> {
    let received = receive_from(fd)?;
    Ok(received.and_then(|(datagrams, received)| {
        Some((datagrams, Key { peer: received.from?, local: received.to }))
    }))
}

fn receive_from(fd: BorrowedFd<'_>) -> io::Result<Option<(Datagrams, Received)>> {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.is_empty() {
            *buffer = os::memory::zeros(DATAGRAM_MAX)?;
        }
        match os::datagram::recv(fd, buffer) {
            Ok(received) => {
                let bytes = Bytes::copy_from_slice(buffer.get(..received.len).unwrap_or(&[]));
                let segment = received.segment.max(1);
                Ok(Some((Datagrams { bytes, segment }, received)))
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_counted_and_parted() {
        let parts = |text: &'static str, segment| {
            let all = Datagrams { bytes: Bytes::from_static(text.as_bytes()), segment };
            let each: Vec<_> = all.each().map(|b| String::from_utf8(b.to_vec()).unwrap()).collect();
            assert_eq!(each.len() as u64, all.count());
            each
        };
        assert_eq!(parts("aabbc", 2), ["aa", "bb", "c"]);
        assert_eq!(parts("aabb", 2), ["aa", "bb"]);
        assert_eq!(parts("a", 9), ["a"]);
        assert_eq!(Datagrams::single(Bytes::new()).each().count(), 1, "an empty one is one");
    }
}
