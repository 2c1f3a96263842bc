//! QUIC of bare servers and loads: quinn-proto's state machine over UDP sockets. What one turn
//! receives is given to its connections first; then each of them that was touched is polled once.
//! The other side of a connection does with it what [`Work`] says.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use os::SockAddr;
use os::datagram::{Batch, Outgoing, RECV_MAX, SEND_MAX, send_batch, set_join};
use quinn_proto::{Connection, ConnectionHandle, DatagramEvent, Endpoint, Event, Incoming};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::Outcome;

/// The kernel splits one send into this many datagrams at most (`UDP_MAX_SEGMENTS` of Linux 4.18),
/// and 64 KB hold fewer of them at the usual length.
pub const DATAGRAMS_MAX: usize = 44;
/// Sends of a connection in one turn: what it has besides waits for the next, so that its peer's
/// acknowledgements are read between.
const SENDS_MAX: usize = 10;
/// Room for a receive: as many datagrams as the kernel joins.
const PART: usize = 64 << 10;
/// Receives of a socket in one turn.
const RECEIVES_MAX: usize = 4;
/// The receive buffer of a socket.
const RECEIVE_BUFFER: usize = 4 << 20;

/// What is done with connections.
pub trait Work {
    /// The own part of a connection.
    type Own;

    /// A client: nothing refuses it.
    fn accepted(&mut self) -> Option<Self::Own> {
        None
    }

    /// Something happened on a connection.
    fn event(&mut self, c: &mut Connection, own: &mut Self::Own, event: Event, now: Instant);

    /// The connection is polled: this is the last chance to write in this turn.
    fn polled(&mut self, _: &mut Connection, _: &mut Self::Own, _: Instant) {}

    /// The socket of a connection, where not all have the same one.
    fn socket(own: &Self::Own) -> Option<&OwnedFd>;
}

struct Peer<T> {
    quic: Connection,
    own: T,
    touched: bool,
    /// The entry among the timers that counts.
    due: Option<Instant>,
}

/// The connections of one endpoint.
pub struct Peers<W: Work> {
    /// The work on them.
    pub work: W,
    endpoint: Endpoint,
    peers: Vec<Option<Peer<W::Own>>>,
    touched: Vec<usize>,
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Taken while its datagrams are given away.
    batch: Option<Batch>,
    out: Outbox,
    datagrams: usize,
    /// Whether each datagram is answered before the next is looked at.
    one_at_a_time: bool,
}

/// What a turn sends.
#[derive(Default)]
struct Outbox {
    waiting: Vec<(Vec<u8>, SockAddr, Option<u16>)>,
    free: Vec<Vec<u8>>,
}

impl Outbox {
    fn buffer(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_default()
    }

    fn push(&mut self, bytes: Vec<u8>, to: SocketAddr, segment: Option<usize>) {
        self.waiting.push((bytes, address(to), segment.map(|len| len as u16)));
    }

    /// Sends all. What the socket does not take is lost, as on a network.
    fn flush(&mut self, fd: &OwnedFd) {
        let mut rest = self.waiting.as_slice();
        while !rest.is_empty() {
            let out = rest.iter().map(|(bytes, to, segment)| Outgoing {
                bytes,
                to: to.clone(),
                from: None,
                segment: *segment,
                ecn: 0,
            });
            match send_batch(fd, out) {
                Ok(sent) => rest = &rest[sent..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => rest = &rest[1..],
            }
        }
        for (mut bytes, ..) in self.waiting.drain(..) {
            bytes.clear();
            self.free.push(bytes);
        }
    }
}

/// A UDP socket on the loopback; 0 is a port of the kernel's choice.
pub fn socket(port: u16, joined: bool) -> Outcome<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    net::bind(&fd, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    sockopt::set_socket_recv_buffer_size(&fd, RECEIVE_BUFFER)?;
    if joined {
        set_join(&fd)?;
    }
    Ok(fd)
}

fn address(to: SocketAddr) -> SockAddr {
    SockAddr::ip(to.ip(), to.port())
}

fn sender(from: Option<&SockAddr>) -> Option<SocketAddr> {
    match from {
        Some(SockAddr::V4(from)) => Some((*from).into()),
        Some(SockAddr::V6(from)) => Some((*from).into()),
        _ => None,
    }
}

impl<W: Work> Peers<W> {
    /// None yet; they send up to `datagrams` in one piece.
    pub fn new(endpoint: Endpoint, datagrams: usize, work: W) -> Outcome<Self> {
        Ok(Self {
            work,
            endpoint,
            peers: Vec::new(),
            touched: Vec::new(),
            timers: BinaryHeap::new(),
            batch: Some(Batch::new(PART)?),
            out: Outbox::default(),
            datagrams: datagrams.clamp(1, DATAGRAMS_MAX),
            one_at_a_time: false,
        })
    }

    /// Answers each datagram before the next is looked at, to show what turns are good for.
    pub fn one_at_a_time(&mut self) {
        self.one_at_a_time = true;
    }

    /// Opens a connection to a port of the loopback.
    pub fn connect(
        &mut self,
        config: quinn_proto::ClientConfig,
        port: u16,
        own: W::Own,
        now: Instant,
    ) -> Outcome {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (handle, quic) = self.endpoint.connect(now, config, to, "localhost")?;
        self.add(handle, quic, own);
        Ok(())
    }

    fn add(&mut self, ConnectionHandle(index): ConnectionHandle, quic: Connection, own: W::Own) {
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, || None);
        }
        self.peers[index] = Some(Peer { quic, own, touched: true, due: None });
        self.touched.push(index);
    }

    fn touch(&mut self, index: usize) -> Option<&mut Peer<W::Own>> {
        let peer = self.peers.get_mut(index)?.as_mut()?;
        if !std::mem::replace(&mut peer.touched, true) {
            self.touched.push(index);
        }
        Some(peer)
    }

    /// Receives what waits on a socket, and gives it to the connections.
    pub fn receive(&mut self, fd: &OwnedFd, now: Instant) -> Outcome {
        let Some(mut batch) = self.batch.take() else { return Ok(()) };
        for _ in 0..RECEIVES_MAX {
            let count = match batch.recv(fd) {
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // An answer of ICMP: the server has gone, and time will tell.
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(e) => return Err(e.into()),
            };
            for (received, bytes) in batch.iter() {
                let Some(from) = sender(received.from.as_ref()) else { continue };
                // One piece of memory for all that came together, as the connections keep parts.
                let mut rest = BytesMut::from(bytes);
                while !rest.is_empty() {
                    let datagram = rest.split_to(received.segment.max(1).min(rest.len()));
                    self.datagram(fd, from, datagram, now);
                    if self.one_at_a_time {
                        self.poll(Some(fd), now);
                    }
                }
            }
            if count < RECV_MAX {
                break;
            }
        }
        self.batch = Some(batch);
        Ok(())
    }

    fn datagram(&mut self, fd: &OwnedFd, from: SocketAddr, bytes: BytesMut, now: Instant) {
        let mut answer = self.out.buffer();
        match self.endpoint.handle(now, from, None, None, bytes, &mut answer) {
            Some(DatagramEvent::ConnectionEvent(ConnectionHandle(index), event)) => {
                if let Some(peer) = self.touch(index) {
                    peer.quic.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.incoming(fd, incoming, answer, now);
                return;
            }
            Some(DatagramEvent::Response(transmit)) => {
                self.out.push(answer, transmit.destination, None);
                self.out.flush(fd);
                return;
            }
            None => {}
        }
        answer.clear();
        self.out.free.push(answer);
    }

    fn incoming(&mut self, fd: &OwnedFd, incoming: Incoming, mut answer: Vec<u8>, now: Instant) {
        let Some(own) = self.work.accepted() else { return self.endpoint.ignore(incoming) };
        match self.endpoint.accept(incoming, now, &mut answer, None) {
            Ok((handle, quic)) => self.add(handle, quic, own),
            Err(e) => {
                if let Some(transmit) = e.response {
                    self.out.push(answer, transmit.destination, None);
                    self.out.flush(fd);
                }
            }
        }
    }

    /// Wakes the connections whose time has come.
    pub fn expire(&mut self, now: Instant) {
        while let Some(&Reverse((due, index))) = self.timers.peek()
            && due <= now
        {
            self.timers.pop();
            let peer = self.peers.get_mut(index).and_then(Option::as_mut);
            if peer.is_some_and(|peer| peer.due == Some(due))
                && let Some(peer) = self.touch(index)
            {
                peer.due = None;
                peer.quic.handle_timeout(now);
            }
        }
    }

    /// How long nothing happens by itself; nothing means for ever.
    pub fn pause(&self, now: Instant) -> Option<Duration> {
        if !self.touched.is_empty() {
            return Some(Duration::ZERO);
        }
        self.timers.peek().map(|Reverse((due, _))| due.saturating_duration_since(now))
    }

    /// Polls the connections that were touched, and sends what they have: over their own sockets,
    /// or all of it over `common`. Gives the own parts of those that are over.
    pub fn poll(&mut self, common: Option<&OwnedFd>, now: Instant) -> Vec<W::Own> {
        let mut over = Vec::new();
        for index in std::mem::take(&mut self.touched) {
            let Some(mut peer) = self.peers.get_mut(index).and_then(Option::take) else { continue };
            peer.touched = false;
            let more = self.poll_one(&mut peer, ConnectionHandle(index), common, now);
            if let Some(fd) = W::socket(&peer.own) {
                self.out.flush(fd);
            }
            if peer.quic.is_drained() {
                over.push(peer.own);
                continue;
            }
            // An earlier entry wakes it early, and is replaced then.
            if let Some(due) = peer.quic.poll_timeout()
                && peer.due.is_none_or(|known| due < known)
            {
                peer.due = Some(due);
                self.timers.push(Reverse((due, index)));
            }
            peer.touched = more;
            if more {
                self.touched.push(index);
            }
            self.peers[index] = Some(peer);
        }
        if let Some(fd) = common {
            self.out.flush(fd);
        }
        over
    }

    /// Gives whether there is more to send.
    fn poll_one(
        &mut self,
        peer: &mut Peer<W::Own>,
        handle: ConnectionHandle,
        common: Option<&OwnedFd>,
        now: Instant,
    ) -> bool {
        while let Some(event) = peer.quic.poll() {
            self.work.event(&mut peer.quic, &mut peer.own, event, now);
        }
        self.work.polled(&mut peer.quic, &mut peer.own, now);
        while let Some(event) = peer.quic.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(handle, event) {
                peer.quic.handle_event(event);
            }
        }
        for _ in 0..SENDS_MAX {
            let mut bytes = self.out.buffer();
            let Some(transmit) = peer.quic.poll_transmit(now, self.datagrams, &mut bytes) else {
                self.out.free.push(bytes);
                return false;
            };
            self.out.push(bytes, transmit.destination, transmit.segment_size);
            if self.out.waiting.len() == SEND_MAX
                && let Some(fd) = W::socket(&peer.own).or(common)
            {
                self.out.flush(fd);
            }
        }
        true
    }

    /// Tells the other sides that all is over, and gives what is left.
    pub fn end(mut self, now: Instant) -> (Vec<W::Own>, W) {
        let mut owned = Vec::new();
        for mut peer in self.peers.drain(..).flatten() {
            peer.quic.close(now, 0x100u32.into(), bytes::Bytes::new());
            let mut bytes = Vec::new();
            if let Some(transmit) = peer.quic.poll_transmit(now, 1, &mut bytes)
                && let Some(fd) = W::socket(&peer.own)
            {
                self.out.push(bytes, transmit.destination, None);
                self.out.flush(fd);
            }
            owned.push(peer.own);
        }
        (owned, self.work)
    }
}
