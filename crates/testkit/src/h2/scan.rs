//! Small clients of HTTP/2 for the loads: they send prepared bytes, and look at frames' heads.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use super::{Frame, PREFACE, flag, indexed, kind, literal};

/// The largest window, given to the server at the start.
const WINDOW_MAX: u32 = (1 << 31) - 1;

/// Cuts received bytes into frames.
#[derive(Default)]
pub struct Scan {
    bytes: Vec<u8>,
}

impl Scan {
    /// Takes more bytes, and gives each frame that is whole now.
    pub fn feed(&mut self, more: &[u8], mut each: impl FnMut(Seen<'_>)) {
        self.bytes.extend_from_slice(more);
        let mut at = 0;
        while let Some(head) = self.bytes.get(at..at + 9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & WINDOW_MAX;
            let (kind, flags) = (head[3], head[4]);
            let Some(payload) = self.bytes.get(at + 9..at + 9 + length) else { break };
            each(Seen { kind, flags, stream, payload });
            at += 9 + length;
        }
        self.bytes.drain(..at);
    }
}

/// A received frame.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream.
    pub stream: u32,
    /// The rest.
    pub payload: &'a [u8],
}

impl Seen<'_> {
    /// Whether it ends its stream in order.
    pub fn ends_stream(&self) -> bool {
        matches!(self.kind, kind::DATA | kind::HEADERS) && self.flags & flag::END_STREAM != 0
    }

    /// Four bytes of the payload as a number.
    pub fn number(&self, at: usize) -> u32 {
        let bytes = self.payload.get(at..).and_then(|rest| rest.first_chunk::<4>());
        bytes.map_or(0, |b| u32::from_be_bytes(*b))
    }

    /// Whether it is a response's head with status 200, which all servers take from the static
    /// table, behind changes of the dynamic one's size.
    pub fn is_ok(&self) -> bool {
        let mut block = self.payload;
        while block.first().is_some_and(|first| first & 0xe0 == 0x20) {
            let long = block[0] & 0x1f == 0x1f;
            let more = block[1..].iter().take_while(|byte| long && **byte & 0x80 != 0).count();
            block = block.get(1 + more + usize::from(long)..).unwrap_or_default();
        }
        self.kind == kind::HEADERS && block.first() == Some(&0x88)
    }
}

/// A connection to 127.0.0.1.
pub fn connect(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(stream)
}

/// The first bytes of a client: its settings, and a large window of the connection.
pub fn start(settings: &[(u16, u32)]) -> Vec<u8> {
    let window = Frame::window_update(0, WINDOW_MAX - 65_535);
    [PREFACE, &Frame::settings(settings).encode(), &window.encode()].concat()
}

/// The header block of a request without fields of its own, the same on every stream.
pub fn head(method: &str, path: &str) -> Vec<u8> {
    let method = if method == "GET" { indexed(2) } else { literal(":method", method) };
    let rest = [literal(":path", path), literal(":authority", "localhost")].concat();
    [method, indexed(6), rest].concat()
}

/// A `GET` on a stream, and its answer to the end: bytes of its body.
pub fn ask(
    stream: &mut (impl Read + Write),
    scan: &mut Scan,
    id: u32,
    path: &str,
) -> Result<usize> {
    stream.write_all(&Frame::headers(id, head("GET", path), true).encode())?;
    let (mut ended, mut ok, mut broken, mut length) = (false, false, false, 0);
    let mut buffer = [0; 16_384];
    while !ended {
        let got = stream.read(&mut buffer)?;
        if got == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut acknowledge = false;
        scan.feed(&buffer[..got], |frame| {
            acknowledge |= frame.kind == kind::SETTINGS && frame.flags & flag::ACK == 0;
            broken |= frame.kind == kind::GOAWAY;
            if frame.stream != id {
                return;
            }
            ok |= frame.is_ok();
            broken |= frame.kind == kind::RST_STREAM;
            ended |= frame.ends_stream() || broken;
            length += if frame.kind == kind::DATA { frame.payload.len() } else { 0 };
        });
        if acknowledge {
            stream.write_all(&Frame::settings_ack().encode())?;
        }
        if broken {
            return Err(Error::other("reset or told to go"));
        }
    }
    if ok { Ok(length) } else { Err(Error::other("not the status 200")) }
}

#[cfg(test)]
mod tests {
    use crate::h2::{Frame, block, indexed, table_size};

    use super::Scan;

    #[test]
    fn the_status_200_is_seen() {
        let is_ok = |block: Vec<u8>| {
            let mut ok = false;
            Scan::default().feed(&Frame::headers(1, block, true).encode(), |f| ok = f.is_ok());
            ok
        };
        assert!(is_ok(indexed(8)));
        assert!(is_ok([table_size(0), table_size(4096), indexed(8)].concat()));
        assert!(!is_ok(indexed(13)));
        assert!(!is_ok([table_size(31), block(&[(":status", "404")])].concat()));
        assert!(!is_ok(table_size(4096)) && !is_ok(vec![0x3f, 0xff]));
    }

    #[test]
    fn frames_are_found_whatever_their_pieces() {
        let frames =
            [Frame::ping([7; 8]), Frame::data(3, b"abc", true), Frame::data(5, b"", false)];
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        for size in 1..bytes.len() {
            let (mut scan, mut seen) = (Scan::default(), Vec::new());
            for piece in bytes.chunks(size) {
                scan.feed(piece, |f| {
                    seen.push((f.kind, f.stream, f.payload.len(), f.ends_stream()));
                });
            }
            assert_eq!(seen, [(6, 0, 8, false), (0, 3, 3, true), (0, 5, 0, false)]);
        }
    }
}
