//! The load of upgraded connections: each sends a message of 64 bytes, waits until it is back, and
//! sends the next. The bytes look like a frame of WebSocket; proxies do not look inside.
//!
//! `echoes PORT CONNECTIONS SECONDS`: prints a line of figures as wrk's reports do.

#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

const UPGRADE: &[u8] = b"GET /echo HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A masked binary frame with 58 bytes.
const MESSAGE: &[u8; 64] =
    b"\x82\xba\x01\x02\x03\x0401234567890123456789012345678901234567890123456789abcdefgh";

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let &[port, connections, seconds] = numbers.as_slice() else {
        eprintln!("usage: echoes PORT CONNECTIONS SECONDS");
        return ExitCode::from(2);
    };
    match run(port as u16, connections as usize, Duration::from_secs(seconds)) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("echoes: {e}");
            ExitCode::FAILURE
        }
    }
}

struct Connection {
    fd: OwnedFd,
    /// Bytes of the message that are back.
    back: usize,
    sent_at: Instant,
}

fn connect(port: u16) -> rustix::io::Result<OwnedFd> {
    let fd = net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    net::connect(&fd, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    net::sockopt::set_tcp_nodelay(&fd, true)?;
    net::send(&fd, UPGRADE, SendFlags::NOSIGNAL)?;
    let mut head = Vec::with_capacity(4096);
    while !head.ends_with(b"\r\n\r\n") {
        if net::recv(&fd, spare_capacity(&mut head), RecvFlags::empty())?.1 == 0 {
            return Err(Errno::CONNRESET);
        }
    }
    if !head.starts_with(b"HTTP/1.1 101 ") {
        return Err(Errno::PROTO);
    }
    Ok(fd)
}

fn run(port: u16, connections: usize, length: Duration) -> rustix::io::Result<String> {
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut all = Vec::with_capacity(connections);
    for i in 0..connections {
        let fd = connect(port)?;
        epoll::add(&queue, &fd, epoll::EventData::new_u64(i as u64), epoll::EventFlags::IN)?;
        all.push(Connection { fd, back: 0, sent_at: Instant::now() });
    }
    let began = Instant::now();
    for c in &mut all {
        net::send(&c.fd, MESSAGE, SendFlags::NOSIGNAL)?;
        c.sent_at = Instant::now();
    }
    let mut latencies = Vec::with_capacity(1 << 20);
    let (mut failures, mut events, mut page) =
        (0, Vec::with_capacity(512), Vec::with_capacity(4096));
    let pause = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while began.elapsed() < length {
        events.clear();
        match epoll::wait(&queue, spare_capacity(&mut events), Some(&pause)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
        for event in &events {
            let c = &mut all[event.data.u64() as usize];
            page.clear();
            let n = match net::recv(&c.fd, spare_capacity(&mut page), RecvFlags::DONTWAIT) {
                Ok((_, n)) => n,
                Err(Errno::AGAIN | Errno::INTR) => continue,
                Err(_) => 0,
            };
            if n == 0 || page[..n] != MESSAGE[c.back..c.back + n] {
                failures += 1;
                epoll::delete(&queue, &c.fd)?;
                continue;
            }
            c.back += n;
            if c.back == MESSAGE.len() {
                latencies.push(c.sent_at.elapsed().as_micros() as u64);
                c.back = 0;
                c.sent_at = Instant::now();
                net::send(&c.fd, MESSAGE, SendFlags::NOSIGNAL)?;
            }
        }
    }
    let (count, took) = (latencies.len(), began.elapsed().as_micros());
    latencies.sort_unstable();
    let at = |part: usize| latencies.get(count * part / 100).copied().unwrap_or(0);
    let bytes = count * MESSAGE.len();
    let values = latencies.iter().map(|us| *us as f64);
    let mean = values.clone().sum::<f64>() / count.max(1) as f64;
    let variance = values.map(|us| (us - mean).powi(2)).sum::<f64>() / count.max(1) as f64;
    let (p50, p99, deviation) = (at(50), at(99), variance.sqrt());
    let longest = latencies.last().copied().unwrap_or(0);
    Ok(format!(
        "RESULT {count} {took} {bytes} 0 {failures} 0 0 0 {p50} {p99} {mean:.0} {deviation:.0} \
         {longest}"
    ))
}
