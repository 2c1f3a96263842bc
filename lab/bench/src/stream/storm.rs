//! Reload after reload, and a binary upgrade in the middle, under sessions over TCP and UDP.
//!
//! A thread each: sessions over TCP one after another, with a request in each; sessions over TCP
//! that stay, with a request now and then; sessions over UDP that stay, with a question each in
//! turn. The backend of UDP knows each session's number, and so sees one that comes from two
//! sockets.

use std::collections::BTreeMap;
use std::io::{Error, Read, Result, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::helper::Helper;
use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Server, Setup, new_folder};
use crate::tls::Certificate;
use crate::{Outcome, server, storm};

/// Sessions over UDP.
const DATAGRAM_SESSIONS: u32 = 1000;
/// Sessions over TCP that stay.
const KEPT: usize = 50;
/// The wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs the storm against every real server, one after the other.
pub fn run(options: &Options, _: &str) -> Outcome {
    let mut rows = vec![row([
        "server",
        "reloads",
        "TCP sessions",
        "failed",
        "kept",
        "cut",
        "UDP questions",
        "lost",
        "UDP sessions",
        "split",
    ])];
    for &kind in options.servers.iter().filter(|kind| kind.is_real()) {
        rows.push(one(options, kind)?);
    }
    report::table(&rows);
    Ok(())
}

fn one(options: &Options, kind: Kind) -> Outcome<Vec<String>> {
    let port = server::free_port()?;
    let behind = Helper::start(1, &options.floor, &[port.to_string()], port, new_folder()?)?;
    let stop = Arc::new(AtomicBool::new(false));
    let io = |e: Error| e.to_string();
    let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(io)?;
    let udp_port = datagrams.local_addr().map_err(io)?.port();
    let split = spawn(&stop, move |stop| answer(&datagrams, stop));
    let certificate = Certificate::new(false)?;
    let (setup, ports) = super::setup(&certificate, behind.port, udp_port)?;
    let setup = Setup { daemon: true, connections: 8192, ..setup };
    let (server, _) = Server::start(options, kind, &setup)?;
    let port = server.port;
    let short = spawn(&stop, move |stop| short_sessions(port, stop));
    let kept = spawn(&stop, move |stop| kept_sessions(port, stop));
    let asked = spawn(&stop, move |stop| questions(ports.udp, stop));
    // All sessions stand before the first reload.
    std::thread::sleep(Duration::from_secs(2));
    let length = Duration::from_secs(u64::from(options.storm_seconds));
    let reloads = storm::blow(&server, length, true);
    stop.store(true, Ordering::Relaxed);
    let joined = |thread: JoinHandle<[u64; 2]>| {
        thread.join().map_err(|_| "a thread of the storm panicked".to_string())
    };
    let [sessions, failed] = joined(short)?;
    let [kept, cut] = joined(kept)?;
    let [questions, lost] = joined(asked)?;
    let [datagram_sessions, split] = joined(split)?;
    let figures = [sessions, failed, kept, cut, questions, lost, datagram_sessions, split]
        .map(|n| n.to_string());
    let mut cells = vec![kind.name().to_string(), reloads.to_string()];
    cells.extend(figures);
    Ok(cells)
}

fn spawn(
    stop: &Arc<AtomicBool>,
    run: impl FnOnce(&AtomicBool) -> [u64; 2] + Send + 'static,
) -> JoinHandle<[u64; 2]> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || run(&stop))
}

/// The backend of UDP: echoes. Gives the sessions, and how many of them came from two sockets.
fn answer(socket: &UdpSocket, stop: &AtomicBool) -> [u64; 2] {
    let _ = socket.set_read_timeout(Some(Duration::from_millis(200)));
    let mut sessions: BTreeMap<u32, (SocketAddr, bool)> = BTreeMap::new();
    let mut buffer = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
        if let Some(Ok(number)) = buffer.get(..4).map(<[u8; 4]>::try_from) {
            let entry = sessions.entry(u32::from_be_bytes(number)).or_insert((from, false));
            entry.1 |= entry.0 != from;
        }
        let _ = socket.send_to(&buffer[..len], from);
    }
    let split = sessions.values().filter(|(_, is_split)| *is_split).count();
    [sessions.len() as u64, split as u64]
}

/// Gives the questions of all sessions, and how many got no answer of their own.
fn questions(port: u16, stop: &AtomicBool) -> [u64; 2] {
    let socket = || -> Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        Ok(socket)
    };
    let sockets: Vec<UdpSocket> = (0..DATAGRAM_SESSIONS).filter_map(|_| socket().ok()).collect();
    let (mut asked, mut lost) = (0, 0);
    for turn in 0u32.. {
        for (number, socket) in (0u32..).zip(&sockets) {
            if stop.load(Ordering::Relaxed) {
                return [asked, lost];
            }
            let question = [number.to_be_bytes(), turn.to_be_bytes()].concat();
            let sent = socket.send(&question);
            asked += 1;
            lost += u64::from(!sent.is_ok_and(|_| is_answered(socket, &question)));
        }
    }
    [asked, lost]
}

/// Whether the question is answered in time. A late answer to the one before comes first.
fn is_answered(socket: &UdpSocket, question: &[u8]) -> bool {
    let mut answer = [0; 64];
    while let Ok(len) = socket.recv(&mut answer) {
        if answer[..len] == *question {
            return true;
        }
    }
    false
}

fn connect(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A request, and the floor's answer: a head and 1 KB.
fn ask(stream: &mut TcpStream) -> Result<()> {
    stream.write_all(b"GET /1k HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let (mut len, mut buffer) = (0, [0; 4096]);
    while !(len > 1024 && buffer[..len].ends_with(b"xxxx")) {
        match stream.read(&mut buffer[len..])? {
            0 => return Err(Error::other("cut")),
            more => len += more,
        }
    }
    Ok(())
}

/// Gives the sessions, and how many of them failed.
fn short_sessions(port: u16, stop: &AtomicBool) -> [u64; 2] {
    let (mut sessions, mut failed) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let outcome = connect(port).and_then(|mut stream| ask(&mut stream));
        sessions += 1;
        failed += u64::from(outcome.is_err());
        // The ports of the loopback last for the whole storm.
        std::thread::sleep(Duration::from_millis(2));
    }
    [sessions, failed]
}

/// Gives the sessions, and how many of them ended before the storm did.
fn kept_sessions(port: u16, stop: &AtomicBool) -> [u64; 2] {
    let mut kept: Vec<TcpStream> = (0..KEPT).filter_map(|_| connect(port).ok()).collect();
    while !stop.load(Ordering::Relaxed) {
        kept.retain_mut(|stream| ask(stream).is_ok());
        std::thread::sleep(Duration::from_millis(100));
    }
    [KEPT as u64, (KEPT - kept.len()) as u64]
}
