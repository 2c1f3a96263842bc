//! Datagrams over sessions that come and go.

use std::collections::HashMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Done;
use crate::Outcome;
use crate::backends::locked;
use crate::stream::mixed::{mix, quiet_port};
use testkit::rng::Rng;

/// Clients.
pub const THREADS: u64 = 3;
/// Sockets of a client at a time.
const SOCKETS: usize = 32;
/// Datagrams that a socket sends at once.
const BURST: usize = 8;
/// A session sends at most so many bursts.
const BURSTS: usize = 8;
/// Each datagram of a session has a bit.
const _: () = assert!(BURST * BURSTS <= 64);
/// Bytes of a datagram: the sender's number, the datagram's, and what follows from these.
const LEN: usize = 64;

/// The ports of Weir's from which each session's datagrams came, by the session's number.
pub type Ports = Arc<Mutex<HashMap<u64, Vec<u16>>>>;

/// A thread that sends each datagram back with all bits inverted.
pub struct Backend {
    /// Its port on 127.0.0.1.
    pub port: u16,
    /// Where its datagrams came from.
    pub ports: Ports,
    over: Arc<AtomicBool>,
}

impl Backend {
    /// One that listens.
    pub fn new() -> Outcome<Self> {
        let port = quiet_port()?;
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).map_err(|e| e.to_string())?;
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 20);
        let wait = socket.set_read_timeout(Some(Duration::from_millis(200)));
        wait.map_err(|e| e.to_string())?;
        let over = Arc::new(AtomicBool::new(false));
        let stop = over.clone();
        let ports = Ports::default();
        let seen = ports.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !stop.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
                if let Some(session) = word_at(&buffer[..len], 0) {
                    let mut seen = locked(&seen);
                    let ports = seen.entry(session).or_default();
                    if ports.last() != Some(&from.port()) {
                        ports.push(from.port());
                    }
                }
                buffer[..len].iter_mut().for_each(|b| *b = !*b);
                let _ = socket.send_to(&buffer[..len], from);
            }
        });
        Ok(Self { port, ports, over })
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// A datagram, by its session and its number there.
fn datagram(session: u64, number: u64) -> [u8; LEN] {
    let mut out = [0; LEN];
    let place = mix(session ^ mix(number));
    let words = [session, number].into_iter().chain((0..).map(|n| mix(place.wrapping_add(n))));
    for (part, word) in out.chunks_mut(8).zip(words) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    out
}

struct Session {
    socket: UdpSocket,
    number: u64,
    sent: u64,
    /// Answers that are due, a bit each; those of the burst, and of the lost before it.
    due: u64,
    lost: u64,
    bursts_left: usize,
}

impl Session {
    fn open(address: Ipv4Addr, port: u16, number: u64, bursts: usize) -> std::io::Result<Self> {
        let socket = UdpSocket::bind((address, 0))?;
        socket.connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        Ok(Self { socket, number, sent: 0, due: 0, lost: 0, bursts_left: bursts })
    }

    fn ask(&mut self, count: u64) {
        for _ in 0..count {
            let bytes = datagram(self.number, self.sent);
            self.due |= 1 << self.sent;
            self.sent += 1;
            let _ = self.socket.send(&bytes);
        }
    }

    /// Reads answers until all are there or it is time.
    fn collect(&mut self, done: &Done, until: Instant, ports: &Ports) {
        let mut buffer = [0; 2048];
        let mut answered = 0;
        while self.due != 0 {
            match self.socket.recv(&mut buffer) {
                Ok(len) => answered += self.take(done, &mut buffer[..len], ports),
                Err(_) if Instant::now() >= until => break,
                Err(_) => {}
            }
        }
        done.answered.fetch_add(answered, Ordering::Relaxed);
        done.lost.fetch_add(u64::from(self.due.count_ones()), Ordering::Relaxed);
        self.lost |= self.due;
        self.due = 0;
    }

    /// Compares an answer; gives 1 if one that was due.
    fn take(&mut self, done: &Done, bytes: &mut [u8], ports: &Ports) -> u64 {
        bytes.iter_mut().for_each(|b| *b = !*b);
        let number = word_at(bytes, 8).unwrap_or(u64::MAX);
        let is_own = number < self.sent && *bytes == datagram(self.number, number);
        let bit = if is_own { 1 << number } else { 0 };
        let counter = match () {
            () if self.due & bit != 0 => {
                self.due &= !bit;
                return 1;
            }
            () if self.lost & bit != 0 => {
                self.lost &= !bit;
                &done.late
            }
            () => self.not_due(done, bytes, ports),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        0
    }
}

impl Session {
    /// Says what an answer is that is not due here.
    fn not_due<'a>(&self, done: &'a Done, bytes: &[u8], ports: &Ports) -> &'a AtomicU64 {
        let (session, number) = (word_at(bytes, 0), word_at(bytes, 8));
        let (session, number) = (session.unwrap_or(0), number.unwrap_or(0));
        let is_whole = *bytes == datagram(session, number);
        if session == self.number || !is_whole {
            done.tell(|| format!("session {:x}: twice, or damaged: {bytes:02x?}", self.number));
            return &done.wrong;
        }
        let seen = locked(ports);
        let of = |number: u64| seen.get(&number).cloned().unwrap_or_default();
        let (theirs, ours) = (of(session), of(self.number));
        done.tell(|| {
            format!(
                "session {:x}, at the backend from ports {ours:?}: answer {number} to session \
                 {session:x}, from ports {theirs:?}",
                self.number
            )
        });
        match ours.iter().any(|port| theirs.contains(port)) {
            true => &done.inherited,
            false => &done.wrong,
        }
    }
}

/// A client, until all datagrams are sent; an answer that takes longer than `wait` is lost.
/// `ports` are those of the backend.
pub fn client(port: u16, seed: u64, number: u64, wait: Duration, (ports, done): (&Ports, &Done)) {
    let mut rng = Rng::new(seed);
    // The source ports of several addresses: none comes again while its session may be there.
    let address = |n: u64| Ipv4Addr::new(127, 0, 1 + number as u8, 1 + (n % 200) as u8);
    let mut opened = 0;
    let mut sessions: Vec<Session> = Vec::new();
    while Done::of(&done.left) > 0 {
        while sessions.len() < SOCKETS {
            opened += 1;
            let bursts = 1 + rng.below(BURSTS);
            match Session::open(address(opened), port, number << 48 | opened, bursts) {
                Ok(new) => sessions.push(new),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        for session in &mut sessions {
            session.ask(done.take(1 + rng.below(BURST) as u64));
        }
        let until = Instant::now() + wait;
        for session in &mut sessions {
            session.collect(done, until, ports);
            session.bursts_left -= 1;
        }
        sessions.retain(|session| session.bursts_left > 0);
    }
    done.sessions.fetch_add(opened, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::datagram;

    #[test]
    fn each_datagram_is_another() {
        assert_eq!(datagram(1, 2), datagram(1, 2));
        assert_ne!(datagram(1, 2)[16..], datagram(2, 1)[16..]);
        assert_ne!(datagram(1, 2)[56..], datagram(1, 3)[56..]);
    }
}
