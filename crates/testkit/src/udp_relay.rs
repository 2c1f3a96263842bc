//! A relay of datagrams between clients and a server, which does to them what networks do: by a
//! seed it loses, doubles, delays, reorders, cuts and changes them; it can also lose everything in
//! one direction, carry nothing that is longer than a path's MTU, and give clients other addresses,
//! as translators of addresses do.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::rng::Rng;

/// The fates of datagrams, each in so many of a hundred cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// They are lost.
    pub lost: usize,
    /// They come twice.
    pub doubled: usize,
    /// They come late, behind others that left after them.
    pub late: usize,
    /// The longest delay of such a one, milliseconds.
    pub late_ms: usize,
    /// Their ends are missing.
    pub cut: usize,
    /// Bytes of them are others.
    pub changed: usize,
    /// The longest that passes, bytes.
    pub len_max: usize,
}

impl Faults {
    /// A path without faults.
    pub const NONE: Faults = Faults {
        lost: 0,
        doubled: 0,
        late: 0,
        late_ms: 0,
        cut: 0,
        changed: 0,
        len_max: usize::MAX,
    };

    /// A path that loses some, and delivers in another order.
    pub const ROUGH: Faults = Faults { lost: 5, doubled: 3, late: 20, late_ms: 8, ..Faults::NONE };

    /// A path with every fault, and often.
    pub const HOSTILE: Faults =
        Faults { lost: 6, doubled: 5, late: 15, late_ms: 25, cut: 2, changed: 3, ..Faults::ROUGH };
}

/// A direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From a client to the server.
    Up,
    /// From the server to a client.
    Down,
}

/// The datagrams of one direction, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Datagrams.
    pub datagrams: usize,
    /// Bytes.
    pub bytes: usize,
}

impl Count {
    fn add(&mut self, len: usize) {
        self.datagrams += 1;
        self.bytes += len;
    }
}

/// The datagrams that the server has got, and those that it has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Datagrams that reached the server.
    pub up: Count,
    /// Datagrams that left the server, whether they arrived or not.
    pub down: Count,
}

/// The part that the test and the thread share.
struct State {
    faults: Faults,
    /// Nothing passes upwards, or downwards.
    is_cut: [bool; 2],
    /// Datagrams that may still pass upwards.
    up_left: usize,
    /// Clients have had so many addresses.
    addresses: u32,
    counts: Counts,
    /// The last one that was for the server.
    last_up: Vec<u8>,
    ends: bool,
}

/// See the module. It ends when it is dropped.
pub struct Relay {
    /// Where clients find the server, on 127.0.0.1.
    pub port: u16,
    seed: u64,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

/// A datagram on its way: when it arrives, its number, its client and its direction.
type Flying = Reverse<(Instant, u64, SocketAddr, bool, Vec<u8>)>;

/// A client's address towards the server.
struct Client {
    socket: UdpSocket,
    /// The number of addresses that the client had when it got this one.
    since: u32,
}

struct Carrier {
    front: UdpSocket,
    server: SocketAddr,
    clients: HashMap<SocketAddr, Client>,
    flying: BinaryHeap<Flying>,
    number: u64,
    rng: Rng,
    state: Arc<Mutex<State>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    socket.set_nonblocking(true).expect("a socket that does not block");
    socket
}

impl Relay {
    /// Begins to relay to a port of 127.0.0.1.
    pub fn start(server: u16, seed: u64, faults: Faults) -> Relay {
        let front = socket();
        let port = front.local_addr().expect("a bound socket").port();
        let state = Arc::new(Mutex::new(State {
            faults,
            is_cut: [false; 2],
            up_left: usize::MAX,
            addresses: 0,
            counts: Counts::default(),
            last_up: Vec::new(),
            ends: false,
        }));
        let mut carrier = Carrier {
            front,
            server: SocketAddr::from((Ipv4Addr::LOCALHOST, server)),
            clients: HashMap::new(),
            flying: BinaryHeap::new(),
            number: 0,
            rng: Rng::new(seed),
            state: state.clone(),
        };
        let thread = std::thread::spawn(move || carrier.run());
        Relay { port, seed, state, thread: Some(thread) }
    }

    /// Has a path with other faults from now on.
    pub fn set(&self, faults: Faults) {
        lock(&self.state).faults = faults;
    }

    /// Loses everything of a direction, or does so no more.
    pub fn cut(&self, way: Way, is_cut: bool) {
        lock(&self.state).is_cut[way as usize] = is_cut;
    }

    /// Loses everything that the client sends behind this number of datagrams.
    pub fn cut_up_after(&self, datagrams: usize) {
        lock(&self.state).up_left = datagrams;
    }

    /// Gives all clients other addresses: what is sent to the old ones is lost.
    pub fn rebind(&self) {
        lock(&self.state).addresses += 1;
    }

    /// The last datagram of a client's, whether it has passed or not.
    pub fn last_up(&self) -> Vec<u8> {
        lock(&self.state).last_up.clone()
    }

    /// The datagrams that the server has got and sent so far.
    pub fn counts(&self) -> Counts {
        lock(&self.state).counts
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let state = lock(&self.state);
            let State { faults, counts, .. } = &*state;
            eprintln!("the relay's seed is {}, {faults:?}, {counts:?}", self.seed);
        }
        lock(&self.state).ends = true;
        // A panic of the thread shows in the test's output, and in what the test does not get.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The longest wait for datagrams: orders of the test take so long.
const WAIT: Duration = Duration::from_millis(10);

impl Carrier {
    fn run(&mut self) {
        while !lock(&self.state).ends {
            self.wait();
            self.receive();
            self.deliver();
        }
    }

    fn wait(&self) {
        let now = Instant::now();
        let next = self.flying.peek().map(|Reverse(flying)| flying.0);
        let wait = next.map_or(WAIT, |at| at.saturating_duration_since(now).min(WAIT));
        let wait = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as i64 };
        let sockets = self.clients.values().map(|client| &client.socket);
        let mut all: Vec<_> =
            sockets.chain([&self.front]).map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        // An interrupted wait is one that ends early.
        let _ = poll(&mut all, Some(&wait));
    }

    fn receive(&mut self) {
        let mut page = vec![0; 65_536];
        while let Ok((n, from)) = self.front.recv_from(&mut page) {
            self.carry(from, Way::Up, page[..n].to_vec());
        }
        let clients: Vec<_> = self.clients.keys().copied().collect();
        for client in clients {
            // Where the server is away, the kernel tells; nothing came then.
            while let Some(n) =
                self.clients.get(&client).and_then(|it| it.socket.recv(&mut page).ok())
            {
                lock(&self.state).counts.down.add(n);
                let bytes = page[..n].to_vec();
                self.carry(client, Way::Down, bytes);
            }
        }
    }

    /// Decides what becomes of a datagram.
    fn carry(&mut self, client: SocketAddr, way: Way, mut bytes: Vec<u8>) {
        let (faults, is_cut) = {
            let mut state = lock(&self.state);
            if way == Way::Up {
                state.last_up.clone_from(&bytes);
            }
            (state.faults, state.is_cut[way as usize])
        };
        let rng = &mut self.rng;
        if is_cut || bytes.len() > faults.len_max || rng.percent(faults.lost) {
            return;
        }
        if rng.percent(faults.cut) {
            bytes.truncate(rng.below(bytes.len() + 1));
        }
        if rng.percent(faults.changed) {
            change(&mut bytes, rng);
        }
        let times = if rng.percent(faults.doubled) { 2 } else { 1 };
        for _ in 0..times {
            let rng = &mut self.rng;
            let us = match rng.percent(faults.late) {
                true => rng.below(faults.late_ms * 1000 + 1) as u64,
                false => 0,
            };
            self.number += 1;
            let at = Instant::now() + Duration::from_micros(us);
            self.flying.push(Reverse((at, self.number, client, way == Way::Up, bytes.clone())));
        }
    }

    fn deliver(&mut self) {
        while let Some(Reverse((at, ..))) = self.flying.peek()
            && *at <= Instant::now()
        {
            let Some(Reverse((_, _, client, is_up, bytes))) = self.flying.pop() else { return };
            if !is_up {
                // A client that is gone gets nothing.
                let _ = self.front.send_to(&bytes, client);
                continue;
            }
            let mut state = lock(&self.state);
            if state.up_left == 0 {
                continue;
            }
            state.up_left -= 1;
            state.counts.up.add(bytes.len());
            let addresses = state.addresses;
            drop(state);
            let known = self.clients.get(&client).filter(|client| client.since == addresses);
            if known.is_none() {
                let socket = socket();
                socket.connect(self.server).expect("an address of the loopback");
                self.clients.insert(client, Client { socket, since: addresses });
            }
            // So does a server.
            let _ = self.clients[&client].socket.send(&bytes);
        }
    }
}

/// Changes some bytes. The version stays: it is not protected, and with another one a packet may
/// rightly end a handshake (RFC 9000 section 6.2).
fn change(bytes: &mut [u8], rng: &mut Rng) {
    if bytes.len() <= 5 {
        return;
    }
    for _ in 0..=rng.below(3) {
        let at = match rng.below(4) {
            0 => 0,
            1 => 5 + rng.below((bytes.len() - 5).min(30)),
            _ => 5 + rng.below(bytes.len() - 5),
        };
        bytes[at] ^= 1 + rng.below(255) as u8;
    }
}
