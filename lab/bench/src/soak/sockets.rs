//! WebSocket: messages with numbers over upgraded connections, which have to come back as they
//! went.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testkit::rng::Rng;

use super::behind::content;
use super::tally::{Lane, PATIENCE, Tally};
use crate::client::{Watch, connect};

const TUNNELS: u64 = 8;
/// The longest life of a tunnel: a leaving worker stays as long.
const LIFE: usize = 45;
/// The longest message: what fits into the buffers of all sockets, as one thread writes and reads.
const LONGEST: usize = 30_000;

const UPGRADE: &[u8] = b"GET /tunnel HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Starts the tunnels.
pub fn begin(port: u16, tally: &Arc<Tally>) -> Vec<JoinHandle<()>> {
    let one = |n: u64| {
        let lane = Lane::new(tally, "WebSocket");
        std::thread::spawn(move || {
            let mut rng = Rng::new(n + 77);
            let mut number = n << 32;
            while !lane.tally.is_over() {
                tunnel(port, &mut number, &mut rng, &lane);
            }
        })
    };
    (1..=TUNNELS).map(one).collect()
}

fn words(e: &std::io::Error, otherwise: &'static str) -> &'static str {
    match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "stuck",
        _ => otherwise,
    }
}

/// Opens a tunnel.
fn open(port: u16) -> Result<TcpStream, String> {
    let failed = |e: std::io::Error| words(&e, "not opened").to_string();
    let mut stream = connect(port, PATIENCE).map_err(failed)?;
    stream.write_all(UPGRADE).map_err(failed)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).map_err(failed)?;
        head.push(byte[0]);
    }
    match head.starts_with(b"HTTP/1.1 101 ") {
        true => Ok(stream),
        false => Err(String::from_utf8_lossy(&head[..head.len().min(30)]).replace("\r\n", " ")),
    }
}

/// A masked binary message whose content tells its number.
fn message(number: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0x82];
    match len {
        0..126 => out.push(0x80 | len as u8),
        _ => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(&[1, 2, 3, 4]);
    out.extend(content(number, len));
    out
}

fn tunnel(port: u16, number: &mut u64, rng: &mut Rng, lane: &Lane) {
    lane.pace();
    let opened = Instant::now();
    let mut stream = match open(port) {
        Ok(stream) => stream,
        Err(what) => {
            lane.fault(opened, &format!("opening: {what}"));
            return lane.tally.sleep(Duration::from_millis(100));
        }
    };
    let life = Duration::from_secs(1 + rng.below(LIFE) as u64);
    while !lane.tally.is_over() && opened.elapsed() < life {
        lane.pace();
        *number += 1;
        let longest = if rng.below(10) == 0 { LONGEST } else { 200 };
        let sent = message(*number, rng.below(longest));
        let (since, mut back) = (Instant::now(), vec![0; sent.len()]);
        match stream.write_all(&sent).and_then(|()| stream.read_exact(&mut back)) {
            Ok(()) if back == sent => lane.right(since, "a message"),
            Ok(()) => return lane.fault(since, "another body of a message"),
            // Where the worker was killed meanwhile, the tunnel was cut then.
            Err(e) => return lane.fault(since, words(&e, "cut")),
        }
        std::thread::sleep(Duration::from_millis(rng.below(400) as u64));
    }
    // Leaves, with an end or a reset.
    if rng.percent(50) {
        let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
    }
    lane.given_up(opened);
}
