//! A name server that lies: it knows one name, `app.soak.test`, at 127.0.0.1.
//!
//! A lie that a resolver must see through points to 127.0.0.3, where a server counts requests that
//! should not have come.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testkit::rng::Rng;

use super::tally::Tally;
use crate::Outcome;
use crate::backends::locked;

pub const RIGHT: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Nobody listens there.
pub const DEAD: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
pub const DECOY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// The longest stretch of one manner, and the longest of truth between two lies.
const STRETCH: Duration = Duration::from_secs(9);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Right,
    /// Right, beside an address where nobody listens.
    BesideDead,
    /// First an answer with another id, then the right one.
    WrongIdFirst,
    /// First an answer from another port, then the right one.
    OtherPortFirst,
    /// First an answer about another name, then the right one.
    OtherNameFirst,
    WrongId,
    OtherName,
    NoSuchName,
    ServFail,
    Truncated,
    Empty,
    Garbage,
    Silence,
}

const LIES: [Manner; 12] = [
    Manner::BesideDead,
    Manner::WrongIdFirst,
    Manner::OtherPortFirst,
    Manner::OtherNameFirst,
    Manner::WrongId,
    Manner::OtherName,
    Manner::NoSuchName,
    Manner::ServFail,
    Manner::Truncated,
    Manner::Empty,
    Manner::Garbage,
    Manner::Silence,
];

impl Manner {
    /// Whether the right addresses can be had.
    pub fn tells(self) -> bool {
        use Manner::{BesideDead, OtherNameFirst, OtherPortFirst, Right, WrongIdFirst};
        matches!(self, Right | BesideDead | WrongIdFirst | OtherPortFirst | OtherNameFirst)
    }

    /// Whether it says that there are no addresses.
    pub fn denies(self) -> bool {
        matches!(self, Self::NoSuchName | Self::Empty)
    }
}

/// The manners so far, with their beginnings.
pub struct NameServer {
    pub port: u16,
    manners: Mutex<Vec<(Instant, Manner)>>,
}

impl NameServer {
    /// Starts it; it answers as long as the process lives.
    pub fn start() -> Outcome<Arc<Self>> {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string());
        let (socket, other) = (bind()?, bind()?);
        let port = socket.local_addr().map_err(|e| e.to_string())?.port();
        let manners = Mutex::new(vec![(Instant::now(), Manner::Right)]);
        let server = Arc::new(Self { port, manners });
        let all = Arc::clone(&server);
        std::thread::spawn(move || {
            let mut page = [0; 4096];
            loop {
                let Ok((len, from)) = socket.recv_from(&mut page) else { continue };
                let manner = locked(&all.manners).last().map_or(Manner::Right, |m| m.1);
                answer(&socket, &other, from, &page[..len], manner);
            }
        });
        Ok(server)
    }

    /// Whether any manner of a kind was in force since then.
    pub fn was(&self, since: Instant, is: impl Fn(Manner) -> bool) -> bool {
        let manners = locked(&self.manners);
        let mut end = None;
        for (began, manner) in manners.iter().rev() {
            if end.is_some_and(|end| end < since) {
                return false;
            }
            if is(*manner) {
                return true;
            }
            end = Some(*began);
        }
        false
    }

    /// Whether whoever asks every few seconds may still believe, at a time, that the name has no
    /// address: it said so, and has not told the right ones for as long as `kept` since.
    pub fn may_be_denied(&self, at: Instant, kept: Duration) -> bool {
        may_be_denied(&locked(&self.manners), at, kept)
    }

    fn set(&self, manner: Manner) {
        let mut manners = locked(&self.manners);
        manners.push((Instant::now(), manner));
        if manners.len() > 200 {
            manners.drain(..100);
        }
    }

    /// Starts to lie, until it is over.
    pub fn lie(self: &Arc<Self>, tally: &Arc<Tally>) -> JoinHandle<()> {
        let (server, tally) = (Arc::clone(self), Arc::clone(tally));
        std::thread::spawn(move || {
            let mut rng = Rng::new(53);
            let stretch = |rng: &mut Rng| {
                Duration::from_millis(500 + rng.below(STRETCH.as_millis() as usize) as u64)
            };
            tally.sleep(Duration::from_secs(4));
            while !tally.is_over() {
                let manner = LIES[rng.below(LIES.len())];
                server.set(manner);
                tally.disturbed("lie of the name server", &format!("{manner:?}"));
                tally.sleep(stretch(&mut rng));
                server.set(Manner::Right);
                tally.sleep(stretch(&mut rng));
            }
            server.set(Manner::Right);
        })
    }
}

/// See [`NameServer::may_be_denied`].
fn may_be_denied(manners: &[(Instant, Manner)], at: Instant, kept: Duration) -> bool {
    let mut end = at;
    for (began, manner) in manners.iter().rev().filter(|(began, _)| *began <= at) {
        if manner.denies() {
            return true;
        }
        if manner.tells() && end.duration_since(*began) >= kept {
            return false;
        }
        end = *began;
    }
    false
}

/// A response: the question again, and these addresses.
fn response(
    query: &[u8],
    id: [u8; 2],
    flags: [u8; 2],
    name: Option<&str>,
    to: &[Ipv4Addr],
) -> Vec<u8> {
    let mut out = Vec::from(id);
    out.extend_from_slice(&flags);
    out.extend_from_slice(&[0, 1, 0, to.len() as u8, 0, 0, 0, 0]);
    match name {
        None => out.extend_from_slice(&query[12..question_end(query)]),
        Some(name) => {
            for label in name.split('.') {
                out.push(label.len() as u8);
                out.extend_from_slice(label.as_bytes());
            }
            out.extend_from_slice(&[0, 0, 1, 0, 1]);
        }
    }
    for address in to {
        out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        out.extend_from_slice(&address.octets());
    }
    out
}

/// The end of a query's question.
fn question_end(query: &[u8]) -> usize {
    let mut at = 12;
    while let Some(len @ 1..) = query.get(at).map(|len| usize::from(*len)) {
        at += 1 + len;
    }
    (at + 5).min(query.len())
}

fn answer(socket: &UdpSocket, other: &UdpSocket, to: SocketAddr, query: &[u8], manner: Manner) {
    const FINE: [u8; 2] = [0x81, 0x80];
    if query.len() < 17 {
        return;
    }
    let id = [query[0], query[1]];
    let another = [query[0] ^ 0x5a, query[1].wrapping_add(1)];
    let send = |from: &UdpSocket, bytes: Vec<u8>| drop(from.send_to(&bytes, to));
    let right = || response(query, id, FINE, None, &[RIGHT]);
    let wrong_id = || response(query, another, FINE, None, &[DECOY]);
    let other_name = || response(query, id, FINE, Some("other.soak.test"), &[DECOY]);
    match manner {
        Manner::Right => send(socket, right()),
        Manner::BesideDead => send(socket, response(query, id, FINE, None, &[DEAD, RIGHT])),
        Manner::WrongIdFirst => {
            send(socket, wrong_id());
            send(socket, right());
        }
        Manner::OtherPortFirst => {
            send(other, response(query, id, FINE, None, &[DECOY]));
            send(socket, right());
        }
        Manner::OtherNameFirst => {
            send(socket, other_name());
            send(socket, right());
        }
        Manner::WrongId => send(socket, wrong_id()),
        Manner::OtherName => send(socket, other_name()),
        Manner::NoSuchName => send(socket, response(query, id, [0x81, 0x83], None, &[])),
        Manner::ServFail => send(socket, response(query, id, [0x81, 0x82], None, &[])),
        // TCP is refused here.
        Manner::Truncated => send(socket, response(query, id, [0x83, 0x80], None, &[DECOY])),
        Manner::Empty => send(socket, response(query, id, FINE, None, &[])),
        Manner::Garbage => {
            let noise: Vec<u8> =
                query.iter().enumerate().map(|(i, b)| b ^ (i * 91) as u8).collect();
            send(socket, [&query[..2], &[0x81, 0x80], &noise].concat());
        }
        Manner::Silence => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manners_are_remembered() {
        let server = NameServer { port: 0, manners: Mutex::default() };
        let before = Instant::now();
        server.set(Manner::Silence);
        server.set(Manner::Right);
        assert!(server.was(before, |m| m == Manner::Silence));
        assert!(!server.was(Instant::now(), |m| m == Manner::Silence));
        assert!(server.was(Instant::now(), Manner::tells));
    }

    #[test]
    fn questions_come_again() {
        let query = b"\x12\x34\x01\x00\x00\x01\0\0\0\0\0\0\x03app\x00\x00\x01\x00\x01";
        let out = response(query, [1, 2], [0x81, 0x80], None, &[RIGHT]);
        assert_eq!(out[12..21], query[12..21]);
        assert_eq!(out[out.len() - 4..], [127, 0, 0, 1]);
        assert_eq!(out.len(), query.len() + 16);
    }

    #[test]
    fn a_denial_holds_until_the_truth_was_told_for_long() {
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        let manners = [
            (at(0), Manner::Right),
            (at(10), Manner::NoSuchName),
            (at(12), Manner::Right),
            (at(13), Manner::Silence),
            (at(20), Manner::Right),
        ];
        let denied = |s: u64| may_be_denied(&manners, at(s), Duration::from_secs(6));
        assert!(!denied(9));
        // A second of truth before the silence may have been missed.
        assert!(denied(11) && denied(19) && denied(25));
        assert!(!denied(26));
    }
}
