//! Servers behind Weir: content by its number, digests of what comes, messages that come back.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use testkit::Scripted;
use testkit::h2::{Came, Frame, Peer, Reply, kind};

use crate::backends::message;
use crate::stream::mixed::Content;
use crate::{Outcome, asks};

/// A server of HTTP/1: `/bytes/NUMBER/LENGTH` is content, a POST is answered with its digest, and
/// an upgraded connection gets its bytes back.
pub struct Behind {
    pub port: u16,
    /// Requests so far.
    pub requests: Arc<AtomicU64>,
}

impl Behind {
    /// One that listens there; at a port of the system's choice, where that is 0.
    pub fn start(address: Ipv4Addr, port: u16) -> Outcome<Self> {
        let listener = TcpListener::bind((address, port))
            .map_err(|e| format!("a server behind, {address}:{port}: {e}"))?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        let requests: Arc<AtomicU64> = Arc::default();
        let count = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = Arc::clone(&count);
                std::thread::spawn(move || serve(stream, &count));
            }
        });
        Ok(Self { port, requests })
    }
}

/// The content of a number.
pub fn content(number: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    Content::new(number, 9).fill(0, &mut out);
    out
}

/// A digest of a request's body (FNV-1a).
pub fn digest(bytes: &[u8]) -> String {
    let mix = |sum: u64, b: &u8| (sum ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix);
    format!("{} {sum:016x}", bytes.len())
}

fn serve(mut stream: TcpStream, count: &AtomicU64) {
    let _ = stream.set_nodelay(true);
    let mut buf = Vec::new();
    while let Some((head, body)) = message(&mut stream, &mut buf) {
        count.fetch_add(1, Ordering::Relaxed);
        let path = head.split(' ').nth(1).unwrap_or_default();
        if head.to_ascii_lowercase().contains("\r\nupgrade: websocket") {
            return echo(&mut stream, &buf);
        }
        let mut parts = path.rsplit('/');
        let numbers = (parts.next().map(str::parse), parts.next().map(str::parse));
        let out = match numbers {
            (Some(Ok(len)), Some(Ok(number))) if head.starts_with("GET ") => content(number, len),
            _ => digest(&body).into_bytes(),
        };
        let closes = head.to_ascii_lowercase().contains("\r\nconnection: close");
        let end = if closes { "Connection: close\r\n" } else { "" };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{end}\r\n", out.len());
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&out));
        if sent.is_err() || closes {
            return;
        }
    }
}

fn echo(stream: &mut TcpStream, begun: &[u8]) {
    let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                Connection: Upgrade\r\n\r\n";
    let mut page = [0; 16 << 10];
    let mut sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(begun));
    while sent.is_ok() {
        let Ok(len @ 1..) = stream.read(&mut page) else { return };
        sent = stream.write_all(&page[..len]);
    }
}

/// A server of gRPC's calls: each message is answered by [`asks::reply`], and trailers.
pub fn calls() -> u16 {
    let server = Scripted::start(|stream, _| {
        let _ = stream.set_nodelay(true);
        // A connection that ends before its preface is that of a worker that was killed.
        if !matches!(stream.peek(&mut [0; 24]), Ok(24)) {
            return;
        }
        let mut peer = Peer::accept(stream, &[]);
        // Bytes of streams that go on, for which room was given back.
        let mut given = std::collections::BTreeMap::new();
        loop {
            match peer.came() {
                Came::End => return,
                Came::Frame(frame) if frame.kind == kind::DATA && !frame.payload.is_empty() => {
                    let len = frame.payload.len();
                    *given.entry(frame.stream).or_insert(0) += len;
                    peer.send(&[Frame::window_update(0, len as u32)]);
                }
                Came::Frame(frame) if frame.kind == kind::RST_STREAM => {
                    given.remove(&frame.stream);
                }
                Came::Whole(request) => {
                    let before = given.remove(&request.stream).unwrap_or(0);
                    let len = request.body.len().saturating_sub(before);
                    if len > 0 {
                        peer.send(&[Frame::window_update(0, len as u32)]);
                    }
                    let reply = Reply::of(asks::reply(&request.body))
                        .with("content-type", "application/grpc")
                        .trailer("grpc-status", "0")
                        .trailer("x-length", &request.body.len().to_string());
                    peer.reply(request.stream, &reply);
                }
                Came::Head(_) | Came::Frame(_) => {}
            }
        }
    });
    server.port
}

#[cfg(test)]
mod tests {
    use super::{content, digest};

    #[test]
    fn digests_and_contents_differ() {
        assert_ne!(digest(b"ab"), digest(b"ba"));
        assert_ne!(content(1, 100), content(2, 100));
        assert_eq!(content(1, 100)[..50], content(1, 50));
    }
}
