//! Clients over TCP: sessions drawn from a seed, one after another.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::backend::told_address;
use super::content::{self, Content, DOWN, Head, REPLY_LEN, UP, Work, invert};
use super::counts::{Ending, Kind};
use super::{Load, Ports};
use testkit::rng::Rng;

/// Nothing came for so long: nothing will come.
const LIMIT: Duration = Duration::from_secs(30);
/// Bytes of an echo under way at a time, where one thread writes and reads: fewer than the buffers
/// of all sockets together hold.
const UNDER_WAY: u64 = 32 << 10;

/// What is drawn for a session.
struct Plan {
    kind: Kind,
    head: Head,
    /// The name for `ssl_preread`, or for a handshake.
    name: &'static str,
    /// The most bytes that are written or read at a time.
    piece: usize,
    /// Pauses between pieces that are left, and the longest one, ms.
    pauses: (usize, usize),
    /// The place at which the client goes away, and whether with a reset.
    give_up: Option<(u64, bool)>,
    /// Whether the client waits for the end of the stream behind the last byte.
    waits_for_end: bool,
}

/// How a session may fail.
enum Failed {
    GivenUp,
    Stuck(&'static str),
    Cut(&'static str, io::Error),
    Wrong(String),
}

/// When a session has last moved, microseconds from its beginning.
struct Progress {
    began: Instant,
    last_us: AtomicU64,
    /// The longest pause of the client's. What it reads behind one may have come before it.
    paused_us: AtomicU64,
    received: AtomicU64,
}

impl Progress {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            last_us: AtomicU64::new(0),
            paused_us: AtomicU64::new(0),
            received: AtomicU64::new(0),
        }
    }

    fn moved(&self) {
        self.last_us.fetch_max(self.began.elapsed().as_micros() as u64, Ordering::Relaxed);
    }

    /// The time up to which the session has moved for certain.
    fn last(&self) -> Instant {
        let [last, paused] = [&self.last_us, &self.paused_us].map(|us| us.load(Ordering::Relaxed));
        self.began + Duration::from_micros(last.saturating_sub(paused))
    }

    fn pause(&self, ms: usize) {
        std::thread::sleep(Duration::from_millis(ms as u64));
        self.paused_us.fetch_max(ms as u64 * 1000, Ordering::Relaxed);
    }
}

/// One client: session after session, until the load ends.
pub fn client(load: &Load, number: u64) {
    let mut rng = Rng::new(content::mix(load.seed ^ number << 40));
    let mut session = load.session_base + (number << 32);
    while !load.is_over() {
        session += 1;
        let mut plan = draw(&mut rng, session);
        let progress = Progress::new();
        let result = run(load, &mut plan, &mut rng, &progress);
        let received = progress.received.load(Ordering::Relaxed);
        let what = || format!("{:?}", plan.head);
        let ending = match result {
            Ok(()) => Ending::Done,
            Err(Failed::GivenUp) => Ending::GivenUp,
            Err(Failed::Wrong(m)) => Ending::Wrong(format!("{m}; {}", what())),
            Err(Failed::Stuck(place)) => Ending::Stuck(format!("{place}; {}", what())),
            Err(Failed::Cut(place, e)) => Ending::Cut {
                last: progress.last(),
                untouched: received == 0,
                text: format!("{place}: {e}, {received} bytes received; {}", what()),
            },
        };
        load.counts.ended(plan.kind, ending, received);
    }
}

fn draw(rng: &mut Rng, session: u64) -> Plan {
    let kinds = [
        (Kind::Balanced, "first.test"),
        (Kind::Balanced, "first.test"),
        (Kind::Half, "first.test"),
        (Kind::Tls, "first.test"),
        (Kind::ToTls, "first.test"),
        (Kind::NamedFirst, "first.test"),
        (Kind::NamedSecond, "second.test"),
        (Kind::Proxied, "first.test"),
    ];
    let (kind, name) = kinds[rng.below(kinds.len())];
    let work = [Work::Echo, Work::Echo, Work::Upload, Work::Download][rng.below(4)];
    let most = [100, 10_000, 200_000, 1 << 20, 6 << 20];
    let class = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4][rng.below(12)];
    let len = 1 + rng.below(most[class]) as u64;
    let (up, down) = match work {
        Work::Echo => (len, len),
        Work::Upload => (len, 0),
        Work::Download => (rng.below(200) as u64, len),
    };
    let pauses = match rng.below(100) {
        // A long one, under a reload or two.
        0..3 => (1, 10_000),
        3..23 => (20, 50),
        _ => (0, 1),
    };
    let give_up = rng.percent(8).then(|| (rng.below(len as usize) as u64, rng.percent(50)));
    Plan {
        kind,
        head: Head { session, work, half_close: kind == Kind::Half, up, down },
        name,
        piece: [7, 1000, 16 << 10, 64 << 10][rng.below(4)].max(len as usize / 2000 + 1),
        pauses,
        give_up,
        waits_for_end: kind == Kind::Half || rng.percent(70),
    }
}

fn run(load: &Load, plan: &mut Plan, rng: &mut Rng, progress: &Progress) -> Result<(), Failed> {
    let port = port_of(&load.ports, plan.kind);
    let cut = |e| Failed::Cut("connect", e);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(cut)?;
    let set = || -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))
    };
    set().map_err(cut)?;
    progress.moved();
    let result = match plan.kind {
        Kind::Tls | Kind::NamedFirst | Kind::NamedSecond => {
            let name = ServerName::try_from(plan.name);
            let name = name.map_err(|e| Failed::Wrong(e.to_string()))?;
            let tls = ClientConnection::new(load.tls.clone(), name)
                .map_err(|e| Failed::Wrong(e.to_string()))?;
            let mut tls = StreamOwned::new(tls, stream);
            let result = in_turns(&mut tls, plan, rng, progress, load);
            stream = tls.sock;
            result
        }
        _ => {
            if plan.kind == Kind::Proxied {
                let from = told_address(plan.head.session);
                let line = format!("PROXY TCP4 {} 127.0.0.1 {} 7\r\n", from.ip(), from.port());
                stream.write_all(line.as_bytes()).map_err(|e| failed("PROXY line", e))?;
            }
            if plan.head.work == Work::Echo && plan.piece >= 1000 {
                both_ways(&stream, plan, rng, progress)
            } else {
                in_turns(&mut stream, plan, rng, progress, load)
            }
        }
    };
    if let (Err(Failed::GivenUp), Some((_, true))) = (&result, plan.give_up) {
        let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
    }
    result
}

fn port_of(ports: &Ports, kind: Kind) -> u16 {
    match kind {
        Kind::Balanced => ports.balanced,
        Kind::Half => ports.half,
        Kind::Tls => ports.tls,
        Kind::ToTls => ports.to_tls,
        Kind::NamedFirst | Kind::NamedSecond => ports.named,
        Kind::Proxied => ports.proxied,
        Kind::Kept => ports.kept,
        Kind::Answered => ports.answered,
    }
}

fn failed(place: &'static str, e: io::Error) -> Failed {
    match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Failed::Stuck(place),
        // TLS: a record that does not open.
        ErrorKind::InvalidData => Failed::Wrong(format!("{place}: {e}")),
        _ => Failed::Cut(place, e),
    }
}

/// The end of a direction, in TLS only, may also be one of the connection alone.
trait Close {
    fn close_write(&mut self) -> io::Result<()>;
}

impl Close for TcpStream {
    fn close_write(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Close for StreamOwned<ClientConnection, TcpStream> {
    fn close_write(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        self.flush()
    }
}

/// Bytes to send, piece by piece, with pauses.
struct Sender<'a> {
    plan: &'a Plan,
    pauses: usize,
    at: u64,
    buffer: Vec<u8>,
}

impl<'a> Sender<'a> {
    fn new(plan: &'a Plan) -> Self {
        Self { plan, pauses: plan.pauses.0, at: 0, buffer: vec![0; plan.piece] }
    }

    /// Sends the next piece of at most so many bytes.
    fn piece(
        &mut self,
        stream: &mut impl Write,
        most: u64,
        rng: &mut Rng,
        progress: &Progress,
    ) -> Result<(), Failed> {
        let head = &self.plan.head;
        let len = 1 + rng.below(self.buffer.len()) as u64;
        let len = len.min(head.up - self.at).min(most) as usize;
        Content::new(head.session, UP).fill(self.at, &mut self.buffer[..len]);
        stream.write_all(&self.buffer[..len]).map_err(|e| failed("write", e))?;
        stream.flush().map_err(|e| failed("write", e))?;
        self.at += len as u64;
        progress.moved();
        self.plan.check_patience(self.at)?;
        if self.pauses > 0 && rng.percent(30) {
            self.pauses -= 1;
            progress.pause(rng.below(self.plan.pauses.1));
        }
        Ok(())
    }
}

impl Plan {
    /// Whether the client goes away now.
    fn check_patience(&self, at: u64) -> Result<(), Failed> {
        match self.give_up {
            Some((place, _)) if at >= place => Err(Failed::GivenUp),
            _ => Ok(()),
        }
    }
}

/// Reads the answer's head: the session's own, of a backend that it may have.
fn read_reply(stream: &mut impl Read, plan: &Plan, progress: &Progress) -> Result<(), Failed> {
    let mut reply = [0; REPLY_LEN];
    stream.read_exact(&mut reply).map_err(|e| failed("reply", e))?;
    progress.moved();
    let allowed: &[u32] = match plan.kind {
        Kind::Balanced => &[0, 1],
        Kind::ToTls | Kind::NamedFirst => &[2],
        Kind::NamedSecond => &[3],
        Kind::Proxied => &[4],
        _ => &[0],
    };
    match content::reply_of(&reply, plan.head.session) {
        Some(backend) if allowed.contains(&backend) => Ok(()),
        Some(backend) => Err(Failed::Wrong(format!("the answer is of backend {backend}"))),
        None => Err(Failed::Wrong(format!("the answer begins {reply:02x?}"))),
    }
}

/// Reads some of the answer's content and compares it; gives the place behind it.
fn read_some(
    stream: &mut impl Read,
    plan: &Plan,
    at: u64,
    buffer: &mut [u8],
    progress: &Progress,
) -> Result<u64, Failed> {
    let head = &plan.head;
    let len = (head.down - at).min(buffer.len() as u64) as usize;
    let len = match stream.read(&mut buffer[..len]) {
        Ok(0) => return Err(Failed::Cut("read", ErrorKind::UnexpectedEof.into())),
        Ok(len) => len,
        Err(e) => return Err(failed("read", e)),
    };
    let bytes = &mut buffer[..len];
    let way = if head.work == Work::Echo {
        invert(bytes);
        UP
    } else {
        DOWN
    };
    if let Some(place) = Content::new(head.session, way).first_difference(at, bytes) {
        return Err(Failed::Wrong(format!("{} wrong byte at {place} of the answer", plan.name)));
    }
    progress.moved();
    progress.received.fetch_add(len as u64, Ordering::Relaxed);
    Ok(at + len as u64)
}

/// Nothing may come behind the answer.
fn read_end(stream: &mut impl Read, plan: &Plan, load: Option<&Load>) -> Result<(), Failed> {
    if !plan.waits_for_end {
        return Ok(());
    }
    match stream.read(&mut [0; 16]) {
        Ok(0) => Ok(()),
        Ok(more) => Err(Failed::Wrong(format!("{more} bytes or more behind the answer's last"))),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
            if let Some(load) = load {
                load.counts.no_close_notify.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }
        Err(e) => Err(failed("end", e)),
    }
}

/// A session in one thread: of an echo, little is under way at a time.
fn in_turns<S: Read + Write + Close>(
    stream: &mut S,
    plan: &Plan,
    rng: &mut Rng,
    progress: &Progress,
    load: &Load,
) -> Result<(), Failed> {
    let head = &plan.head;
    stream.write_all(&head.encode()).map_err(|e| failed("head", e))?;
    let is_echo = head.work == Work::Echo;
    let mut sender = Sender::new(plan);
    let mut buffer = vec![0; plan.piece];
    let mut read = 0;
    if is_echo {
        read_reply(stream, plan, progress)?;
    }
    let mut sent = digest::Context::new(&digest::SHA256);
    while sender.at < head.up {
        let before = sender.at;
        let room = if is_echo { UNDER_WAY - (before - read) } else { u64::MAX };
        sender.piece(stream, room, rng, progress)?;
        if head.work == Work::Upload {
            sent.update(&sender.buffer[..(sender.at - before) as usize]);
        }
        while is_echo && (sender.at - read == UNDER_WAY || read < sender.at && rng.percent(50)) {
            read = read_some(stream, plan, read, &mut buffer, progress)?;
        }
    }
    if head.half_close {
        stream.close_write().map_err(|e| failed("half close", e))?;
    }
    if !is_echo {
        read_reply(stream, plan, progress)?;
    }
    if head.work == Work::Upload {
        let mut told = [0; 32];
        stream.read_exact(&mut told).map_err(|e| failed("digest", e))?;
        if told[..] != *sent.finish().as_ref() {
            return Err(Failed::Wrong("the digest is another".to_string()));
        }
    }
    let mut pauses = plan.pauses.0;
    while read < head.down {
        read = read_some(stream, plan, read, &mut buffer, progress)?;
        if head.work == Work::Download {
            plan.check_patience(read)?;
        }
        if pauses > 0 && rng.percent(30) {
            pauses -= 1;
            progress.pause(rng.below(plan.pauses.1));
        }
    }
    read_end(stream, plan, Some(load))
}

/// An echo in which one thread writes while the other reads.
fn both_ways(
    stream: &TcpStream,
    plan: &Plan,
    rng: &mut Rng,
    progress: &Progress,
) -> Result<(), Failed> {
    let mut own = Rng::new(plan.head.session);
    let (wrote, read) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut to = stream;
            let mut sender = Sender::new(plan);
            let mut write = || -> Result<(), Failed> {
                to.write_all(&plan.head.encode()).map_err(|e| failed("head", e))?;
                while sender.at < plan.head.up {
                    sender.piece(&mut to, u64::MAX, &mut own, progress)?;
                }
                if plan.head.half_close {
                    stream.shutdown(Shutdown::Write).map_err(|e| failed("half close", e))?;
                }
                Ok(())
            };
            let wrote = write();
            if let Err(Failed::GivenUp) = wrote {
                let _ = stream.shutdown(Shutdown::Both);
            }
            wrote
        });
        let read = read_echo(stream, plan, rng, progress);
        if read.is_err() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let died = || Err(Failed::Wrong("a thread panicked".to_string()));
        (writer.join().unwrap_or_else(|_| died()), read)
    });
    match (wrote, read) {
        (Err(Failed::Wrong(m)), _) | (_, Err(Failed::Wrong(m))) => Err(Failed::Wrong(m)),
        (Err(Failed::GivenUp), _) => Err(Failed::GivenUp),
        (wrote, read) => read.and(wrote),
    }
}

fn read_echo(
    mut stream: &TcpStream,
    plan: &Plan,
    rng: &mut Rng,
    progress: &Progress,
) -> Result<(), Failed> {
    read_reply(&mut stream, plan, progress)?;
    let mut buffer = vec![0; plan.piece];
    let mut read = 0;
    let mut pauses = plan.pauses.0;
    while read < plan.head.down {
        read = read_some(&mut stream, plan, read, &mut buffer, progress)?;
        if pauses > 0 && rng.percent(10) {
            pauses -= 1;
            progress.pause(rng.below(plan.pauses.1));
        }
    }
    read_end(&mut stream, plan, None)
}
