//! Connections to a server over HTTP/2, under the simulated driver: the server answers in any
//! frames, or bytes, over a network that is as bad as the input says. Clients over HTTP/1 get bytes
//! of their own response alone, whatever the server does in well-framed ways; each exchange comes
//! to an end, memory is bounded, and nothing is left.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use event::testing::connect;
use event::{Deadline, Listener, Sock};
use http_wire::h2::frame::{FRAME_MAX, PREFACE};
use http_wire::h2::hpack::Decoder;
use http_wire::h2::read::{Event, Reader};
use mem::{Chain, Page};
use os::SockAddr;
use testkit::h2::{Frame, Reply, block, setting};

use crate::simulated::{self, World};

/// Clients, one after the other for the second half.
const CLIENTS: u8 = 8;

/// The server gives up what it does after so long, ms, and clients after so much more: a read
/// time-out, refusals, and a resumed rest.
const SERVER_MS: u64 = 40_000;
const CLIENT_MS: u64 = 1_000_000;

/// Bytes of a client's body: more than the first window of a stream.
const BODY: usize = 90_000;

/// Bytes of a response's body in one operation: more than a stream's window.
const BODY_MAX: usize = 300_000;

/// Bytes of a body that a client keeps.
const GOT_MAX: usize = 32 << 10;

/// Streams that the server knows at once.
const STREAMS_MAX: usize = 64;

/// The first bytes choose the world, the others are operations of the server: see [`Script`].
/// `live` tells the memory that is allocated.
pub fn run(data: &[u8], live: fn() -> usize) {
    let [mode, seed, operations @ ..] = data else { return };
    let (plan, _) = simulated::plan(*mode, *seed);
    let script = Script { rest: operations.to_vec(), judged: mode & 1 == 0, left_ms: SERVER_MS };
    simulated::run(plan, live, move |world| play(world, script));
}

/// The server's operations, four bytes and a payload each.
struct Script {
    rest: Vec<u8>,
    /// The server frames what it sends well, and clients judge what they get.
    judged: bool,
    /// For so long it may still do nothing.
    left_ms: u64,
}

enum Step {
    Send(Vec<Frame>),
    Bytes(Vec<u8>),
    Sleep(u64),
    Close,
}

/// A stream and the letter that all of its response's body consists of.
type Known = (u32, u8);

impl Script {
    fn take(&mut self, n: usize) -> Vec<u8> {
        let n = n.min(self.rest.len());
        self.rest.drain(..n).collect()
    }

    fn step(&mut self, known: &[Known]) -> Option<Step> {
        if self.rest.len() < 4 {
            return None;
        }
        let [what, a, b, len] = *self.take(4).first_chunk::<4>()?;
        let payload = self.take(usize::from(len) % 64);
        let (stream, letter) = match known.len() {
            // A stream of that number may be under way: its letter is not known.
            0 if self.judged => return Some(Step::Sleep(1)),
            0 => (u32::from(a), b'?'),
            n => known[usize::from(a) % n],
        };
        let end = b & 1 != 0;
        let body = vec![letter; (usize::from(len) << (b >> 4)).min(BODY_MAX)];
        let parts = || body.chunks(FRAME_MAX).map(|part| Frame::data(stream, part, false));
        let frame = match what % 16 {
            0 => Frame::headers(stream, head(b), end),
            1 => {
                let reply = Reply::of(body).with("x-a", "b");
                return Some(Step::Send(reply.frames(stream)));
            }
            2 => return Some(Step::Send(parts().collect())),
            3 => Frame::data(stream, &body[..body.len().min(FRAME_MAX)], end),
            4 => Frame::reset(stream, b.into()),
            5 => Frame::window_update(if end { 0 } else { stream }, u32::from(b) << (len % 24)),
            6 => {
                let ids = [
                    setting::HEADER_TABLE_SIZE,
                    setting::MAX_CONCURRENT_STREAMS,
                    setting::INITIAL_WINDOW_SIZE,
                    setting::MAX_FRAME_SIZE,
                    setting::ENABLE_CONNECT_PROTOCOL,
                ];
                let id = ids.get(usize::from(b % 8)).copied().unwrap_or(100 + u16::from(b));
                Frame::settings(&[(id, u32::from(a) << (len % 16))])
            }
            7 => Frame::ping([a; 8]),
            8 => Frame::goaway(if end { stream } else { u32::from(a) }, b.into()),
            9 => Frame::headers(stream, block(&[("x-t", "1")]), end),
            10 => Frame::headers(stream, payload, end),
            11 => Frame::data(stream, &body[..body.len().min(200)], end).padded(b),
            12 if !self.judged => Frame::new(b, a, u32::from(a), payload),
            13 if !self.judged => return Some(Step::Bytes(payload)),
            14 => {
                let ms = (u64::from(a) * u64::from(b)).min(self.left_ms);
                self.left_ms -= ms;
                return Some(Step::Sleep(ms));
            }
            15 if a % 4 == 0 => return Some(Step::Close),
            _ => Frame::settings_ack(),
        };
        let times = if what & 0x80 == 0 { 1 } else { 40 };
        Some(Step::Send(vec![frame; times]))
    }
}

/// A head, final or interim, in one frame.
fn head(b: u8) -> Vec<u8> {
    let statuses = ["200", "200", "204", "304", "103", "500", "101", "100"];
    let mut fields = vec![(":status", statuses[usize::from(b >> 1 & 7)])];
    if b & 16 != 0 {
        fields.push(("content-length", "9"));
    }
    if b & 32 != 0 {
        fields.push(("X-Upper", "1"));
    }
    if b & 64 != 0 {
        fields.push(("link", "</s>; rel=preload"));
    }
    block(&fields)
}

async fn play(world: World, script: Script) {
    let World { addr, origin, memory, .. } = world;
    let judged = script.judged;
    let serving = event::spawn(serve(origin, Rc::new(RefCell::new(script))));
    let under_way = Rc::new(());
    for number in 0..CLIENTS {
        let (addr, alive) = (addr.clone(), under_way.clone());
        event::spawn(async move {
            ask(&addr, number, judged).await;
            drop(alive);
        });
        // Later ones find connections that are there, or dead.
        if number >= CLIENTS / 2 {
            event::sleep(20).await;
        }
    }
    let mut waited = 0;
    while Rc::strong_count(&under_way) > 1 {
        event::sleep(100).await;
        memory.check();
        waited += 100;
        assert!(waited < CLIENT_MS, "a client waits for ever");
    }
    event::task::cancel(serving);
}

/// Takes the connections of the server under test.
async fn serve(origin: Listener, script: Rc<RefCell<Script>>) {
    let tasks = Tasks(RefCell::new(Vec::new()));
    while let Ok(accepted) = origin.accept().await {
        let task = event::spawn(Peer::new(accepted.sock).run(script.clone()));
        tasks.0.borrow_mut().push(task);
    }
}

/// Tasks that end with their owner.
struct Tasks(RefCell<Vec<event::TaskId>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.borrow().iter().for_each(|task| event::task::cancel(*task));
    }
}

/// The server's end of a connection.
struct Peer {
    sock: Sock,
    reader: Reader,
    decoder: Decoder,
    received: Vec<u8>,
    preface_left: usize,
    known: Vec<Known>,
}

impl Peer {
    fn new(sock: Sock) -> Peer {
        Peer {
            sock,
            reader: Reader::new(FRAME_MAX, 1 << 20),
            decoder: Decoder::new(http_wire::h2::hpack::TABLE_SIZE),
            received: Vec::new(),
            preface_left: PREFACE.len(),
            known: Vec::new(),
        }
    }

    async fn run(mut self, script: Rc<RefCell<Script>>) {
        let _ = self.play(&script).await;
    }

    async fn play(&mut self, script: &RefCell<Script>) -> Option<()> {
        let first = Frame::settings(&[(setting::ENABLE_CONNECT_PROTOCOL, 1)]);
        self.send(first.encode()).await?;
        loop {
            self.hear(5).await?;
            let step = script.borrow_mut().step(&self.known);
            match step {
                Some(Step::Send(frames)) => {
                    self.send(frames.iter().flat_map(Frame::encode).collect()).await?;
                }
                Some(Step::Bytes(bytes)) => self.send(bytes).await?,
                Some(Step::Sleep(ms)) => event::sleep(ms).await,
                Some(Step::Close) => return None,
                None => break,
            }
        }
        // From here on it does as it should.
        loop {
            for (stream, letter) in std::mem::take(&mut self.known) {
                let frames = Reply::of(vec![letter; 9]).frames(stream);
                self.send(frames.iter().flat_map(Frame::encode).collect()).await?;
            }
            self.hear(100).await?;
        }
    }

    async fn send(&self, bytes: Vec<u8>) -> Option<()> {
        let mut chain = Chain::new();
        chain.push_bytes(Bytes::from(bytes));
        self.sock.send(&mut chain, Deadline::in_ms(5_000)).await.ok()
    }

    /// Reads what comes within that time; `None` at the end.
    async fn hear(&mut self, ms: u64) -> Option<()> {
        match self.sock.recv(1, Deadline::in_ms(ms)).await {
            Ok(page) => self.take(&page),
            Err(e) if e.kind() == std::io::ErrorKind::TimedOut => Some(()),
            Err(_) => None,
        }
    }

    /// Takes the client's frames: notes which stream asks for what.
    fn take(&mut self, page: &Page) -> Option<()> {
        if page.is_empty() {
            return None;
        }
        self.received.extend_from_slice(page);
        let preface = self.preface_left.min(self.received.len());
        let from = PREFACE.len() - self.preface_left;
        let begun = &PREFACE[from..from + preface];
        assert_eq!(&self.received[..preface], begun, "the preface");
        self.preface_left -= preface;
        let mut used = preface;
        if self.preface_left > 0 {
            self.received.clear();
            return Some(());
        }
        loop {
            let next = self.reader.next(&self.received[used..]).expect("the client's frames");
            let Some((len, event)) = next else { break };
            used += len;
            if let Event::Headers { stream, block, .. } = event {
                let mut letter = None;
                let decoded = self.decoder.decode(block, |name, value| {
                    if name == b":path" {
                        letter = value.last().copied();
                    }
                });
                decoded.expect("the client's fields");
                // Trailers of requests have no path.
                self.known.extend(letter.map(|letter| (stream, letter)));
                if self.known.len() > STREAMS_MAX {
                    self.known.remove(0);
                }
            }
        }
        self.received.drain(..used);
        Some(())
    }
}

/// A client's one request, which is for a body of its own letter.
async fn ask(addr: &SockAddr, number: u8, judged: bool) {
    let Ok(sock) = connect(addr).await else { return };
    // No digit of a chunk's size.
    let letter = b'p' + number;
    let path = if number % 4 == 3 { "/2w/" } else { "/2/" };
    let rest = match number % 4 {
        3 => "Upgrade: websocket\r\nSec-WebSocket-Key: x\r\nConnection: upgrade\r\n\r\n".to_owned(),
        2 => {
            let body = "b".repeat(BODY);
            format!("Content-Length: {BODY}\r\nConnection: close\r\n\r\n{body}")
        }
        _ => "Connection: close\r\n\r\n".to_owned(),
    };
    let method = if number % 4 == 2 { "POST" } else { "GET" };
    let text = format!("{method} {path}{} HTTP/1.1\r\nHost: a\r\n{rest}", char::from(letter));
    let mut chain = Chain::new();
    chain.push_bytes(Bytes::from(text));
    if sock.send(&mut chain, Deadline::in_ms(CLIENT_MS)).await.is_err() {
        return;
    }
    let (mut got, mut judged_to) = (Vec::new(), 0);
    while let Ok(page) = sock.recv(1, Deadline::in_ms(CLIENT_MS / 2)).await {
        if page.is_empty() {
            break;
        }
        got.extend_from_slice(&page);
        if number % 4 == 3 && got.len() > 2_000 {
            break;
        }
        // Heads stay, and bodies are not kept.
        if got.len() - judged_to > GOT_MAX {
            judged_to = if judged { judge(&got, letter) } else { 0 };
            got.truncate(judged_to);
        }
    }
    if judged {
        judge(&got, letter);
    }
}

/// Looks at what a client got: a body of another letter is another client's. Gives the place where
/// the body begins.
fn judge(got: &[u8], letter: u8) -> usize {
    let mut rest = got;
    loop {
        let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") else {
            return got.len();
        };
        let (head, body) = rest.split_at(end + 4);
        let head = String::from_utf8_lossy(head);
        let status: u16 = head.get(9..12).and_then(|s| s.parse().ok()).expect("a status");
        match status {
            // Hints, and the final answer behind them.
            103 => rest = body,
            101 => assert!(body.iter().all(|b| *b == letter), "{head}"),
            200 => {
                let is_chunked = head.contains("\r\nTransfer-Encoding: chunked\r\n");
                let of_size = |b: &u8| is_chunked && (b.is_ascii_hexdigit() || b"\r\n".contains(b));
                assert!(body.iter().all(|b| *b == letter || of_size(b)), "{head}");
            }
            _ => {}
        }
        if status != 103 {
            return got.len() - body.len();
        }
    }
}
