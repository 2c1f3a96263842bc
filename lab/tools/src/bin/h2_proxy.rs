//! The floor of passing on over HTTP/2: each request head of a client that speaks HTTP/1 becomes a
//! stream of one connection to the backend, in the same few bytes, and each answer the same head
//! with the stream's data. All requests of a turn go out in one `send`, and one `recv` brings what
//! answers there are. It reads no HTTP/1 beyond the empty line, no fields, and frames' heads alone.
//!
//! `h2_proxy PORT BACKEND`: both are ports of the loopback.

#![forbid(unsafe_code)]

use std::os::fd::OwnedFd;
use std::process::ExitCode;

use bare::h2::{HEAD_LEN, PREFACE, word, write_head};
use bare::{Bare, Connections, Outcome};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nServer: floor\r\nContent-Type: text/plain\r\n\
    Content-Length: 1024\r\nConnection: keep-alive\r\n\r\n";
/// Settings (no pushes), and all the window of the connection that there can be.
const SETTINGS: &[u8] = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\
    \x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\x00\x00";
/// `GET`, `http`, and path and authority put into the table.
const FIRST: &[u8] = b"\x82\x86\x44\x07/1k.txt\x41\x09127.0.0.1";
/// The same fields from the table.
const NEXT: &[u8] = b"\x82\x86\xbf\xbe";
/// The window is opened again by so many bytes.
const WINDOW: u32 = 1 << 30;

/// Streams that can wait: there are more clients than this nowhere.
const STREAMS: usize = 4096;

fn main() -> ExitCode {
    bare::run("h2_proxy PORT BACKEND", |arguments| {
        let &[port, backend] = arguments else { return None };
        let (port, backend) = (port.parse().ok()?, backend.parse().ok()?);
        let mut proxy = Proxy {
            backend,
            upstream: None,
            waiting: vec![0; STREAMS],
            frames: [PREFACE, SETTINGS].concat(),
            next_stream: 1,
            used: 0,
            received: Vec::with_capacity(256 * 1024),
            page: Vec::with_capacity(16 * 1024),
        };
        Some(bare::serve(port, &mut proxy))
    })
}

struct Proxy {
    backend: u16,
    /// The connection to the backend, from the first client on.
    upstream: Option<usize>,
    /// The client of each stream, by half of the stream's number.
    waiting: Vec<usize>,
    /// Bytes that a turn sends to the backend.
    frames: Vec<u8>,
    next_stream: u32,
    /// Bytes that came since the window was opened.
    used: u32,
    received: Vec<u8>,
    page: Vec<u8>,
}

impl Bare for Proxy {
    type Own = ();

    fn accepted(&mut self, client: OwnedFd, all: &mut Connections<()>) -> Outcome {
        if self.upstream.is_none() {
            self.upstream = Some(all.add(bare::connect(self.backend)?, ())?);
        }
        all.add(client, ())?;
        Ok(())
    }

    fn readable(&mut self, index: usize, all: &mut Connections<()>) -> bool {
        match self.upstream == Some(index) {
            // Nothing is left without it.
            true => self.answers(index, all).is_some() || std::process::exit(1),
            false => self.requests(index, all).is_some(),
        }
    }

    fn turn_over(&mut self, all: &mut Connections<()>) {
        if self.used >= WINDOW {
            write_head(&mut self.frames, 4, 8, 0, 0);
            self.frames.extend(self.used.to_be_bytes());
            self.used = 0;
        }
        if !self.frames.is_empty()
            && let Some(upstream) = self.upstream.and_then(|index| all.get(index))
        {
            upstream.send(&self.frames);
            self.frames.clear();
        }
    }
}

impl Proxy {
    /// Makes streams of the requests of a client.
    fn requests(&mut self, index: usize, all: &mut Connections<()>) -> Option<()> {
        self.page.clear();
        all.get(index)?.receive(&mut self.page)?;
        for _ in self.page.windows(4).filter(|w| w == b"\r\n\r\n") {
            let fields = if self.next_stream == 1 { FIRST } else { NEXT };
            write_head(&mut self.frames, fields.len(), 1, 5, self.next_stream);
            self.frames.extend_from_slice(fields);
            self.waiting[self.next_stream as usize / 2 % STREAMS] = index;
            self.next_stream += 2;
        }
        Some(())
    }

    /// Gives each client the data of its stream, which the backend sends in one frame.
    fn answers(&mut self, index: usize, all: &mut Connections<()>) -> Option<()> {
        loop {
            let room = self.received.capacity() - self.received.len();
            let came = all.get(index)?.receive(&mut self.received)?;
            self.used += came as u32;
            let mut read = 0;
            while let Some(head) = self.received[read..].first_chunk::<HEAD_LEN>() {
                let len = word(&head[..3]) as usize;
                let (kind, stream) = (head[3], word(&head[5..]) as usize);
                let from = read + HEAD_LEN;
                let Some(payload) = self.received.get(from..from + len) else { break };
                read = from + len;
                match kind {
                    0 => {
                        self.page.clear();
                        self.page.extend_from_slice(HEAD);
                        self.page.extend_from_slice(payload);
                        let client = self.waiting[stream / 2 % STREAMS];
                        if all.get(client).is_some_and(|c| !c.send(&self.page)) {
                            all.close(client);
                        }
                    }
                    3 | 7 => return None,
                    4 if head[4] & 1 == 0 => write_head(&mut self.frames, 0, 4, 1, 0),
                    _ => {}
                }
            }
            self.received.drain(..read);
            // Less than there was room for: all of it.
            if came < room {
                return Some(());
            }
        }
    }
}
