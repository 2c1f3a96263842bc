//! A name server for tests, with scripted answers over UDP and TCP.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const A: u16 = 1;
pub const SRV: u16 = 33;

/// The answer for a name and type.
#[derive(Clone)]
pub enum Say {
    /// Addresses, with their time to live.
    Addresses(Vec<Ipv4Addr>, u32),
    /// Hosts of a service: priority, weight, port, name.
    Hosts(Vec<(u16, u16, u16, &'static str)>),
    /// Does not fit: over TCP it is said.
    OverTcp(Ipv4Addr),
    /// Does not fit, and over TCP the connection is closed (true), or nothing is said.
    Cut(bool),
    /// After so many milliseconds.
    Late(u64, Ipv4Addr),
    /// Answers to other questions, with this address, and then the right one.
    AfterForged(Ipv4Addr, Ipv4Addr),
    /// A code.
    Code(u8),
    /// Nothing at all.
    Never,
}

/// Ports and ids.
type Froms = Arc<Mutex<Vec<(u16, [u8; 2])>>>;
type Names = Arc<Mutex<HashMap<(String, u16), Say>>>;

/// The server; its threads end with the test's process.
pub struct Dns {
    pub port: u16,
    names: Names,
    asked: Arc<Mutex<Vec<String>>>,
    /// The port that each question came from, and its id.
    from: Froms,
}

impl Dns {
    pub fn start() -> Dns {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
            let port = udp.local_addr().unwrap().port();
            if let Ok(tcp) = TcpListener::bind(("127.0.0.1", port)) {
                break (Arc::new(udp), tcp);
            }
        };
        let port = udp.local_addr().unwrap().port();
        let (names, asked) = (Names::default(), Arc::new(Mutex::new(Vec::new())));
        let of_tcp = names.clone();
        std::thread::spawn(move || {
            for stream in tcp.incoming() {
                let (mut s, names) = (stream.unwrap(), of_tcp.clone());
                std::thread::spawn(move || {
                    let mut len = [0; 2];
                    while s.read_exact(&mut len).is_ok() {
                        let mut question = vec![0; usize::from(u16::from_be_bytes(len))];
                        s.read_exact(&mut question).unwrap();
                        let all = answers(&question, &names, true);
                        if all.is_empty() {
                            return;
                        }
                        for a in all {
                            s.write_all(&(a.len() as u16).to_be_bytes()).unwrap();
                            s.write_all(&a).unwrap();
                        }
                    }
                });
            }
        });
        let (of_udp, note) = (names.clone(), asked.clone());
        let ports = Froms::default();
        let from_ports = ports.clone();
        std::thread::spawn(move || {
            let mut buf = [0; 512];
            while let Ok((n, from)) = udp.recv_from(&mut buf) {
                let question = buf[..n].to_vec();
                from_ports.lock().unwrap().push((from.port(), [buf[0], buf[1]]));
                note.lock().unwrap().push(name_of(&question).0);
                let (udp, names) = (udp.clone(), of_udp.clone());
                std::thread::spawn(move || {
                    for a in answers(&question, &names, false) {
                        let _ = udp.send_to(&a, from);
                    }
                });
            }
        });
        Dns { port, names, asked, from: ports }
    }

    /// From now on this is said of a name.
    pub fn say(&self, name: &str, kind: u16, say: Say) {
        self.names.lock().unwrap().insert((name.to_owned(), kind), say);
    }

    /// The number of source ports of queries so far, and of their ids.
    pub fn ports_and_ids(&self) -> (usize, usize) {
        let from = self.from.lock().unwrap();
        let ports: HashSet<u16> = from.iter().map(|(port, _)| *port).collect();
        let ids: HashSet<[u8; 2]> = from.iter().map(|(_, id)| *id).collect();
        (ports.len(), ids.len())
    }

    /// The number of queries for a name over UDP.
    pub fn asked(&self, name: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|n| *n == name).count()
    }
}

/// Name and type of a question.
fn name_of(question: &[u8]) -> (String, u16) {
    let (mut at, mut labels) = (12, Vec::new());
    while question[at] > 0 {
        let len = usize::from(question[at]);
        labels.push(String::from_utf8_lossy(&question[at + 1..at + 1 + len]).into_owned());
        at += 1 + len;
    }
    (labels.join("."), u16::from_be_bytes([question[at + 1], question[at + 2]]))
}

fn address(ip: Ipv4Addr, ttl: u32) -> Vec<u8> {
    let mut record = vec![0xc0, 12, 0, 1, 0, 1];
    record.extend_from_slice(&ttl.to_be_bytes());
    record.extend_from_slice(&[0, 4]);
    record.extend_from_slice(&ip.octets());
    record
}

fn host((priority, weight, port, name): &(u16, u16, u16, &str)) -> Vec<u8> {
    let mut data = Vec::new();
    [priority, weight, port].iter().for_each(|n| data.extend_from_slice(&n.to_be_bytes()));
    for label in name.split('.') {
        data.push(label.len() as u8);
        data.extend_from_slice(label.as_bytes());
    }
    data.push(0);
    let mut record = vec![0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 1];
    record.extend_from_slice(&(data.len() as u16).to_be_bytes());
    record.extend_from_slice(&data);
    record
}

fn message(question: &[u8], flags: u16, records: &[Vec<u8>]) -> Vec<u8> {
    let mut m = question.to_vec();
    m[2..4].copy_from_slice(&flags.to_be_bytes());
    m[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
    records.iter().for_each(|r| m.extend_from_slice(r));
    m
}

fn answers(question: &[u8], names: &Names, tcp: bool) -> Vec<Vec<u8>> {
    let say = names.lock().unwrap().get(&name_of(question)).cloned();
    let yes = |ip: Ipv4Addr, ttl: u32| message(question, 0x8180, &[address(ip, ttl)]);
    match say {
        None => vec![message(question, 0x8180, &[])],
        Some(Say::Addresses(list, ttl)) => {
            let records: Vec<_> = list.iter().map(|ip| address(*ip, ttl)).collect();
            vec![message(question, 0x8180, &records)]
        }
        Some(Say::Hosts(hosts)) => {
            let records: Vec<_> = hosts.iter().map(host).collect();
            vec![message(question, 0x8180, &records)]
        }
        Some(Say::OverTcp(ip)) if tcp => vec![yes(ip, 60)],
        Some(Say::OverTcp(_)) => vec![message(question, 0x8380, &[])],
        Some(Say::Cut(closes)) if tcp => {
            if !closes {
                std::thread::sleep(Duration::from_secs(5));
            }
            Vec::new()
        }
        Some(Say::Cut(_)) => vec![message(question, 0x8380, &[])],
        Some(Say::Late(ms, ip)) => {
            std::thread::sleep(Duration::from_millis(ms));
            vec![yes(ip, 60)]
        }
        Some(Say::AfterForged(forged, ip)) => {
            let mut other_id = yes(forged, 60);
            other_id[1] ^= 1;
            let mut other_name = yes(forged, 60);
            other_name[13] ^= 3;
            let mut other_owner = yes(ip, 60);
            other_owner[7] = 2;
            other_owner.extend_from_slice(b"\x04evil\0\0\x01\0\x01\0\0\0\x3c\0\x04");
            other_owner.extend_from_slice(&forged.octets());
            vec![b"?".to_vec(), other_id, other_name, question.to_vec(), other_owner]
        }
        Some(Say::Code(code)) => vec![message(question, 0x8180 | u16::from(code), &[])],
        Some(Say::Never) => Vec::new(),
    }
}
