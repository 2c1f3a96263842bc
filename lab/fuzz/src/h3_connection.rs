//! A whole connection over HTTP/3 under the simulated clock: any frames, or bytes, of a client over
//! a network that loses, delays, repeats and changes datagrams as the input says. The server breaks
//! no rule towards a client that frames its bytes well, answers it rightly, holds no more memory
//! than its budgets say, comes to an end, and leaves nothing.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_wire::h3::message::{Event, Reader};
use http_wire::h3::settings::Settings;
use http_wire::h3::{Role, frame};
use http_wire::qpack::{Decoded, Decoder, Encoder, Limits};
use quinn_proto::{ConnectionError, TransportErrorCode, VarInt};
use testkit::h3::{Dir, Machine, Options, StreamId};

use crate::simulated::{self, Memory, SMALL, World, large};

/// The first bytes choose the world, the others are operations of the client: see
/// [`Client::step`]. `live` tells the memory that is allocated.
pub fn run(data: &[u8], live: fn() -> usize) {
    let [mode, seed, way, operations @ ..] = data else { return };
    let (plan, _) = simulated::plan(*mode, *seed);
    let (mode, way, rest) = (*mode, *way, operations.to_vec());
    simulated::run_quic(plan, live, move |world| play(world, mode, way, rest));
}

/// Paths of requests.
const PATHS: [&str; 8] = ["/s", "/l", "/none", "/u/l", "/t/s", "/w/s", "/r", "*"];

/// Datagrams of the client's that are kept, to be sent again or in another form.
const KEPT: usize = 16;

/// The longest body that the client sends at once.
const BODY_MAX: usize = 20_000;

/// Frames of HTTP/3, and types that are none.
const KINDS: [u64; 16] =
    [0, 1, 3, 4, 5, 7, 13, 0xf_0700, 0xf_0701, 0x21, 2, 6, 8, 9, 0x40, 0x3fff_ffff];

/// A response on its way.
struct Response {
    id: StreamId,
    path: &'static str,
    method: &'static str,
    reader: Reader,
    status: u16,
    body: Vec<u8>,
    is_over: bool,
}

/// The network's behaviour, from one byte.
struct Path {
    /// So many of 64 datagrams are lost, doubled, late.
    rate: u8,
    chance: u32,
    /// Datagrams that are lost next.
    lose: [u8; 2],
    /// Datagrams of the client's that wait for others to overtake them.
    late: Vec<Vec<u8>>,
    holds: u8,
}

impl Path {
    fn chance(&mut self) -> bool {
        self.chance = self.chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.chance >> 20) as u8 % 64 < self.rate
    }

    /// Whether a datagram of this direction is lost.
    fn loses(&mut self, way: usize) -> bool {
        match self.lose[way] {
            0 => self.chance(),
            n => {
                self.lose[way] = n.saturating_sub(1);
                true
            }
        }
    }
}

struct Client {
    server: SocketAddr,
    socket: UdpSocket,
    /// Another sender's.
    other: UdpSocket,
    machine: Machine,
    origin: (Instant, u64),
    path: Path,
    kept: VecDeque<Vec<u8>>,
    encoder: Encoder,
    decoder: Decoder,
    requests: Vec<Response>,
    uni: Vec<StreamId>,
    /// It reads what comes, and judges it. It breaks no rules of frames.
    judged: bool,
    reads: bool,
    rest: Vec<u8>,
}

impl Client {
    fn now(&self) -> Instant {
        let (at, ms) = self.origin;
        at + Duration::from_millis(base::time::now_ms() - ms)
    }

    fn take(&mut self, n: usize) -> Vec<u8> {
        let n = n.min(self.rest.len());
        self.rest.drain(..n).collect()
    }

    /// Puts what the machine has to say on its way; whether there was something.
    fn push(&mut self) -> bool {
        let now = self.now();
        self.machine.settle(now);
        let mut all = Vec::new();
        self.machine.send(now, |bytes| all.push(bytes.to_vec()));
        let is_some = !all.is_empty();
        for bytes in all {
            if self.kept.len() == KEPT {
                self.kept.pop_front();
            }
            self.kept.push_back(bytes.clone());
            if self.path.loses(0) {
                continue;
            }
            if self.path.holds > 0 {
                self.path.holds -= 1;
                self.path.late.push(bytes);
                continue;
            }
            let again = self.path.chance();
            for _ in 0..=u8::from(again) {
                let _ = self.socket.send_to(&bytes, self.server);
            }
        }
        if self.path.holds == 0 {
            while let Some(bytes) = self.path.late.pop() {
                let _ = self.socket.send_to(&bytes, self.server);
            }
        }
        is_some
    }

    /// Takes what came; whether there was something.
    fn pull(&mut self) -> bool {
        let mut page = [0; 65_536];
        let mut is_some = false;
        loop {
            match self.socket.recv_from(&mut page) {
                Ok((n, from)) => {
                    is_some = true;
                    if !self.path.loses(1) {
                        self.machine.take(self.now(), from, BytesMut::from(&page[..n]));
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return is_some,
                Err(_) => return is_some,
            }
        }
    }

    /// Exchanges all that can be in no time.
    async fn pump(&mut self) {
        let mut quiet = 0;
        for _ in 0..200 {
            let sent = self.push();
            event::task::next_turn().await;
            event::task::next_turn().await;
            let came = self.pull();
            self.machine.settle(self.now());
            if self.reads {
                self.look();
            }
            quiet = if sent || came { 0 } else { quiet + 1 };
            if quiet == 2 {
                return;
            }
        }
    }

    /// Lets time pass.
    async fn sleep(&mut self, ms: u64) {
        let end = base::time::now_ms() + ms;
        for _ in 0..100 {
            self.pump().await;
            let now_ms = base::time::now_ms();
            if now_ms >= end {
                return;
            }
            let now = self.now();
            let due =
                self.machine.inner().poll_timeout().map_or(u64::MAX, |at| {
                    at.saturating_duration_since(now).as_millis() as u64 + 1
                });
            // What the server says by itself is looked at now and then.
            event::sleep(due.min(end - now_ms).min(1 + ms / 10)).await;
        }
    }

    fn settings(&mut self) {
        let mut preface = Vec::new();
        Settings::default().write_preface(&mut preface);
        if let Some(id) = self.machine.inner().streams().open(Dir::Uni) {
            self.write(id, &preface);
            self.uni.push(id);
        }
    }

    fn write(&mut self, id: StreamId, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.machine.inner().send_stream(id).write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                // A judged client sends no parts of frames but at an end.
                Err(_) => {
                    let _ = self.machine.inner().send_stream(id).reset(VarInt::from_u32(0x10c));
                    return;
                }
            }
        }
    }

    /// The stream of a request, by a number.
    fn stream(&self, a: u8) -> Option<StreamId> {
        let n = self.requests.len();
        (n > 0).then(|| self.requests[usize::from(a) % n].id)
    }

    fn begin(&mut self, a: u8, section: &[u8], method: &'static str) -> Option<StreamId> {
        let id = self.machine.inner().streams().open(Dir::Bi)?;
        let mut out = Vec::new();
        frame::write_head(&mut out, frame::kind::HEADERS, section.len() as u64);
        out.extend_from_slice(section);
        self.write(id, &out);
        self.requests.push(Response {
            id,
            path: PATHS[usize::from(a % 8)],
            method,
            reader: Reader::new(Role::Client, 1 << 20),
            status: 0,
            body: Vec::new(),
            is_over: false,
        });
        Some(id)
    }

    fn request(&mut self, a: u8, b: u8, payload: &[u8]) {
        let method = ["GET", "POST", "HEAD", "CONNECT"][usize::from(a >> 3 & 3)];
        let path = PATHS[usize::from(a % 8)];
        let mut fields: Vec<(&[u8], &[u8])> =
            vec![(b":method", method.as_bytes()), (b":authority", b"a")];
        if method != "CONNECT" || a & 32 != 0 {
            fields.extend([(&b":scheme"[..], &b"https"[..]), (b":path", path.as_bytes())]);
        }
        if method == "CONNECT" && a & 32 != 0 {
            fields.push((b":protocol", b"websocket"));
        }
        let many = payload.repeat(if b & 0x80 == 0 { 1 } else { 60 });
        for (bit, name, value) in [
            (2, &b"expect"[..], &b"100-continue"[..]),
            (4, b"content-length", b"7"),
            (8, b"priority", payload),
            (16, b"x-field", &many),
        ] {
            if b & bit != 0 {
                fields.push((name, value));
            }
        }
        let mut section = Vec::new();
        self.encoder.begin(&mut section);
        for (name, value) in fields {
            self.encoder.field(name, value, &mut section);
        }
        let id = self.begin(a, &section, method);
        if let Some(id) = id.filter(|_| b & 1 != 0) {
            let _ = self.machine.inner().send_stream(id).finish();
        }
    }

    /// Something on the stream of a request.
    fn on_stream(&mut self, what: u8, (a, b): (u8, u8), payload: &[u8]) {
        let Some(id) = self.stream(a) else { return };
        match what % 16 {
            2 => {
                let body = payload.repeat(1 << (b >> 4));
                let body = &body[..body.len().min(BODY_MAX)];
                let mut out = Vec::new();
                frame::write_head(&mut out, frame::kind::DATA, body.len() as u64);
                out.extend_from_slice(body);
                self.write(id, &out);
                if b & 1 != 0 {
                    let _ = self.machine.inner().send_stream(id).finish();
                }
            }
            3 => {
                let _ = self.machine.inner().send_stream(id).reset(u32::from(b).into());
            }
            _ => {
                let _ = self.machine.inner().recv_stream(id).stop(u32::from(b).into());
                // Nothing more is read of it.
                self.requests.iter_mut().filter(|r| r.id == id).for_each(|r| r.is_over = true);
            }
        }
    }

    /// What a client that is judged does not send, but streams of reserved types.
    fn on_any(&mut self, what: u8, (a, b): (u8, u8), payload: &[u8]) {
        let what_of = what % 16;
        if self.judged && what_of != 7 {
            return;
        }
        let all = self.requests.iter().map(|r| r.id).chain(self.uni.iter().copied());
        let all: Vec<_> = all.collect();
        match what_of {
            5 => {
                if !all.is_empty() {
                    self.write(all[usize::from(a) % all.len()], payload);
                }
            }
            6 => {
                if !all.is_empty() {
                    let mut out = Vec::new();
                    let kind = KINDS[usize::from(b % 16)];
                    frame::write_head(&mut out, kind, payload.len() as u64 + u64::from(b >> 6));
                    out.extend_from_slice(payload);
                    let out = out.repeat(if what & 0x80 == 0 { 1 } else { 200 });
                    self.write(all[usize::from(a) % all.len()], &out);
                }
            }
            // A stream of the connection's: of any type, or of one that is reserved.
            7 => {
                let kind = if self.judged { 0x21 } else { a % 0x40 };
                if let Some(id) = self.machine.inner().streams().open(Dir::Uni) {
                    self.write(id, &[&[kind][..], &payload].concat());
                    self.uni.push(id);
                    if b & 1 != 0 {
                        let _ = self.machine.inner().send_stream(id).finish();
                    }
                }
            }
            _ => {
                let id = self.begin(a, &payload, "GET");
                if let Some(id) = id.filter(|_| b & 1 != 0) {
                    let _ = self.machine.inner().send_stream(id).finish();
                }
            }
        }
    }

    /// One operation of four bytes and a payload; false at the end.
    async fn step(&mut self) -> bool {
        if self.rest.len() < 4 {
            return false;
        }
        let Some(&[what, a, b, len]) = self.take(4).first_chunk::<4>() else { return false };
        let payload = self.take(usize::from(len));
        match what % 16 {
            0 | 1 => {
                for _ in 0..if what & 0x80 == 0 { 1 } else { 12 } {
                    self.request(a, b, &payload);
                }
            }
            2..=4 => self.on_stream(what, (a, b), &payload),
            5..=8 => self.on_any(what, (a, b), &payload),
            9 => self.path.holds = a % 8,
            10 => self.replay(a, b, payload),
            11 => {
                let size = payload.len().max(usize::from(b) * 8);
                let mut bytes = payload;
                bytes.resize(size, a);
                let _ = self.other.send_to(&bytes, self.server);
            }
            12 => self.path.lose = [a % 32, b % 32],
            13 => {
                self.reads = a & 1 == 0;
                self.path.rate = b % 24;
            }
            14 => self.sleep(u64::from(a) * u64::from(b)).await,
            _ => match a % 8 {
                0 => {
                    self.socket = socket();
                    self.machine.inner().ping();
                }
                1 if b == 0 => {
                    let now = self.now();
                    self.machine.inner().close(now, VarInt::from_u32(0x100), Bytes::new());
                }
                2 => self.machine.inner().ping(),
                3 if self.machine.is_connected() => self.machine.inner().force_key_update(),
                _ => {}
            },
        }
        if what & 0x40 == 0 {
            self.pump().await;
        }
        true
    }

    /// Sends a datagram of before again, cut and changed, from here or from elsewhere.
    fn replay(&mut self, a: u8, b: u8, payload: Vec<u8>) {
        let n = self.kept.len();
        if n == 0 {
            return;
        }
        let mut bytes = self.kept[usize::from(a) % n].clone();
        for change in payload.chunks_exact(3) {
            let at = usize::from(change[0]) << 3 | usize::from(change[1] & 7);
            let len = bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(at % len) {
                *byte ^= change[2];
            }
        }
        if b & 2 != 0 {
            bytes.truncate(usize::from(b >> 2) * 24);
        }
        let from = if b & 1 == 0 { &self.socket } else { &self.other };
        let _ = from.send_to(&bytes, self.server);
    }

    /// Reads all responses.
    fn look(&mut self) {
        let Client { machine, requests, decoder, judged, .. } = self;
        while machine.inner().streams().accept(Dir::Uni).is_some() {}
        for r in requests.iter_mut().filter(|r| !r.is_over) {
            loop {
                match machine.read(r.id) {
                    Ok(None) => break,
                    Ok(Some(bytes)) if bytes.is_empty() => {
                        r.is_over = true;
                        if *judged {
                            r.is_right();
                        }
                        break;
                    }
                    Ok(Some(bytes)) if *judged => r.take(decoder, &bytes),
                    Ok(Some(_)) => {}
                    Err(_) => {
                        r.is_over = true;
                        break;
                    }
                }
            }
        }
    }

    /// Whether the connection's end is one that such a client may meet.
    fn judge(&self) {
        if !self.judged {
            return;
        }
        match self.machine.lost() {
            // It had its time, or asked too much.
            Some(ConnectionError::ApplicationClosed(closed)) => {
                let code = closed.error_code.into_inner();
                assert!(matches!(code, 0x100 | 0x107), "closed with {code:#x}");
            }
            Some(ConnectionError::ConnectionClosed(closed)) => {
                assert_eq!(closed.error_code, TransportErrorCode::NO_ERROR, "{closed}");
            }
            Some(ConnectionError::TransportError(e)) => panic!("the server breaks a rule: {e}"),
            _ => {}
        }
    }
}

impl Response {
    fn take(&mut self, decoder: &mut Decoder, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (used, event) = self.reader.next(rest).expect("frames that may come");
            let (mut data, mut status) = (0, 0);
            let mut field = |name: &[u8], value: &[u8]| {
                if name == b":status" {
                    status = std::str::from_utf8(value).expect("text").parse().expect("a status");
                }
            };
            match event {
                Event::Head(section) => {
                    let decoded = decoder.decode(self.id.into(), section, &mut field);
                    assert_eq!(decoded, Ok(Decoded::Whole));
                    self.status = status;
                    if status < 200 {
                        self.reader.interim();
                    } else if self.method == "CONNECT" && status < 300 {
                        self.reader.tunnel();
                    }
                }
                Event::Trailers(section) => {
                    let decoded = decoder.decode(self.id.into(), section, &mut field);
                    assert_eq!(decoded, Ok(Decoded::Whole));
                }
                Event::Data(n) => data = n,
                Event::Excess => panic!("a request's head in a response"),
                Event::More | Event::Nothing => {}
            }
            rest = &rest[used..];
            self.body.extend_from_slice(&rest[..data]);
            rest = &rest[data..];
        }
    }

    /// Checks a response that came to its end.
    fn is_right(&self) {
        self.reader.end().expect("a whole response");
        assert!(self.status >= 200, "a response without a head");
        let is_right = match (self.method, self.path, self.status) {
            ("HEAD", ..) => self.body.is_empty(),
            ("GET", "/s" | "/t/s", 200) => self.body == SMALL,
            ("GET", "/l" | "/u/l" | "/r", 200) => self.body == large(),
            _ => true,
        };
        let (method, path, len) = (self.method, self.path, self.body.len());
        assert!(is_right, "{method} {path}: {} with {len} bytes", self.status);
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    socket.set_nonblocking(true).expect("a socket that does not block");
    socket
}

/// `mode`: see [`simulated::plan`]; 1 is no judge, 16 a small window, 32 that the client stays, 64
/// that operations begin before the first datagram, 128 that it says no settings.
async fn play(world: World, mode: u8, way: u8, rest: Vec<u8>) {
    let World { quic, memory, .. } = world;
    let server = quic.expect("the world speaks QUIC");
    let origin = (Instant::now(), base::time::now_ms());
    let window = if mode & 16 != 0 { 500 } else { 1 << 20 };
    let options = Options { name: "a".to_owned(), window, ..Options::default() };
    let limits = Limits {
        table_capacity: 0,
        blocked_streams: 0,
        blocked_bytes: 0,
        section: 1 << 20,
        text: 0,
    };
    let mut client = Client {
        server,
        socket: socket(),
        other: socket(),
        machine: Machine::new(origin.0, server, &options),
        origin,
        path: Path { rate: way % 16, chance: way.into(), lose: [0; 2], late: Vec::new(), holds: 0 },
        kept: VecDeque::new(),
        encoder: Encoder::new(),
        decoder: Decoder::new(limits),
        requests: Vec::new(),
        uni: Vec::new(),
        judged: mode & 1 == 0,
        reads: true,
        rest,
    };
    talk(&mut client, mode, &memory).await;
    client.judge();
}

async fn talk(client: &mut Client, mode: u8, memory: &Memory) {
    if mode & 64 != 0 {
        // What is kept of the first flight reaches the server in other forms alone.
        client.path.lose = [4, 0];
        client.push();
        client.path.lose = [0, 0];
        for _ in 0..4 {
            client.step().await;
        }
    }
    client.pump().await;
    for _ in 0..8 {
        if client.machine.is_connected() || client.machine.lost().is_some() {
            break;
        }
        client.sleep(2_000).await;
    }
    if !client.machine.is_connected() {
        return;
    }
    if client.judged || mode & 128 == 0 {
        client.settings();
        client.pump().await;
    }
    while client.step().await {
        memory.check();
    }
    if mode & 32 == 0 {
        return;
    }
    (client.reads, client.path.lose) = (true, [0; 2]);
    for _ in 0..50 {
        client.sleep(2_000).await;
        memory.check();
        if client.machine.lost().is_some() || client.requests.iter().all(|r| r.is_over) {
            return;
        }
    }
}
