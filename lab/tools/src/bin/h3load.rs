//! The load over HTTP/3: connections with a number of requests at once on each, in a closed loop,
//! on one thread, over quinn-proto. Each response has to have status 200 and a body of the length
//! that was named.
//!
//! `h3load PORT CONNECTIONS STREAMS SECONDS PATH LENGTH [NAME=VALUE...]`: prints a line of figures
//! as wrk's reports do. `post=BYTES`: requests have a body. `close=on`: a connection for each
//! request, after a whole handshake. `cipher=aes128`: instead of AES-256-GCM.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bare::quic::{DATAGRAMS_MAX, Peers, Work, socket};
use bare::{Outcome, h3};
use bytes::Bytes;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, Dir, Endpoint, EndpointConfig, Event, NoneTokenStore, ReadError,
    StreamEvent, StreamId, TransportConfig, WriteError,
};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384};
use rustls::crypto::aws_lc_rs::{self, kx_group};
use testkit::AnyCertificate;

const USAGE: &str = "h3load PORT CONNECTIONS STREAMS SECONDS PATH LENGTH [NAME=VALUE...]";
/// A request without a byte of its response for so long counts as a timeout.
const STALLED_AFTER: Duration = Duration::from_secs(2);
/// Between attempts to connect that failed.
const PAUSE: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    bare::run(USAGE, |arguments| {
        let load = Load::read(arguments)?;
        Some(run(load).map(|line| println!("{line}")))
    })
}

struct Load {
    port: u16,
    connections: usize,
    streams: usize,
    duration: Duration,
    length: u64,
    request: Bytes,
    close: bool,
    aes128: bool,
}

impl Load {
    fn read(arguments: &[&str]) -> Option<Self> {
        let [port, connections, streams, seconds, path, length, words @ ..] = arguments else {
            return None;
        };
        let (mut post, mut close, mut aes128) = (0, false, false);
        for word in words {
            match word.split_once('=')? {
                ("post", len) => post = len.parse().ok()?,
                ("close", value) => close = value == "on",
                ("cipher", value) => aes128 = value == "aes128",
                _ => return None,
            }
        }
        Some(Self {
            port: port.parse().ok()?,
            connections: connections.parse().ok()?,
            streams: streams.parse().ok()?,
            duration: Duration::from_secs(seconds.parse().ok()?),
            length: length.parse().ok()?,
            request: h3::request(path, &vec![b'x'; post]).into(),
            close,
            aes128,
        })
    }

    fn config(&self) -> Outcome<ClientConfig> {
        // The keys of the first packets are of this suite whatever is agreed on.
        let initial = TLS13_AES_128_GCM_SHA256.tls13().and_then(|suite| suite.quic_suite());
        let initial = initial.ok_or("no suite for the first packets")?;
        // No choice, so that all servers do the same work.
        let mut provider = aws_lc_rs::default_provider();
        provider.kx_groups = vec![kx_group::X25519];
        provider.cipher_suites = match self.aes128 {
            true => vec![TLS13_AES_128_GCM_SHA256],
            false => vec![TLS13_AES_256_GCM_SHA384],
        };
        let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate))
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        tls.resumption = Resumption::disabled();
        let crypto = QuicClientConfig::with_initial(Arc::new(tls), initial)?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        let mut transport = TransportConfig::default();
        transport.max_idle_timeout(None);
        config.transport_config(Arc::new(transport));
        // No address is known from before: a handshake is a whole one.
        config.token_store(Arc::new(NoneTokenStore));
        Ok(config)
    }
}

fn run(load: Load) -> Outcome<String> {
    let config = load.config()?;
    let endpoint = EndpointConfig::default();
    let endpoint = Endpoint::new(Arc::new(endpoint), None, true, None);
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut sockets = Vec::new();
    for index in 0..load.connections {
        let fd = Rc::new(socket(0, true)?);
        epoll::add(&queue, &fd, EventData::new_u64(index as u64), EventFlags::IN)?;
        sockets.push(fd);
    }
    let (began, port, duration) = (Instant::now(), load.port, load.duration);
    let client = Client { load, counts: Counts::default(), lost: (0..sockets.len()).collect() };
    let mut peers = Peers::new(endpoint, DATAGRAMS_MAX, client)?;
    let mut events = Vec::with_capacity(256);
    let mut next_attempt = began;
    loop {
        let now = Instant::now();
        if now >= began + duration {
            break;
        }
        if now >= next_attempt && !peers.work.lost.is_empty() {
            for index in std::mem::take(&mut peers.work.lost) {
                let own = Own::new(index, sockets[index].clone(), now);
                peers.connect(config.clone(), port, own, now)?;
            }
        }
        for own in peers.poll(None, now) {
            own.end(&mut peers.work.counts, now);
        }
        if std::mem::take(&mut peers.work.counts.pause) {
            next_attempt = now + PAUSE;
        }
        let tick = Duration::from_millis(if peers.work.lost.is_empty() { 200 } else { 0 });
        let pause = peers.pause(Instant::now()).map_or(tick, |pause| pause.min(tick));
        events.clear();
        match epoll::wait(&queue, spare_capacity(&mut events), Some(&Timespec::try_from(pause)?)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let now = Instant::now();
        for event in &events {
            let fd = sockets[event.data.u64() as usize].clone();
            peers.receive(&fd, now)?;
        }
        peers.expire(now);
    }
    let now = Instant::now();
    let (owned, mut client) = peers.end(now);
    for own in owned {
        own.end(&mut client.counts, now);
    }
    Ok(client.counts.line(began.elapsed()))
}

#[derive(Default)]
struct Counts {
    waits_us: Vec<u32>,
    bytes: u64,
    connect: u64,
    lost: u64,
    short: u64,
    status: u64,
    timeout: u64,
    /// A connection failed: the next attempt waits.
    pause: bool,
}

impl Counts {
    fn line(&mut self, took: Duration) -> String {
        self.waits_us.sort_unstable();
        let count = self.waits_us.len();
        let at = |share: usize| self.waits_us.get(count * share / 100).copied().unwrap_or(0);
        let mean = self.waits_us.iter().map(|&us| u64::from(us)).sum::<u64>() / count.max(1) as u64;
        let Counts { bytes, connect, lost, short, status, timeout, .. } = self;
        format!(
            "RESULT {count} {} {bytes} {connect} {lost} {short} {status} {timeout} {} {} \
             {mean} 0 {}",
            took.as_micros(),
            at(50),
            at(99),
            self.waits_us.last().copied().unwrap_or(0),
        )
    }
}

/// A connection.
struct Own {
    index: usize,
    fd: Rc<OwnedFd>,
    began: Instant,
    connected: bool,
    closed: bool,
    /// Its requests, by the order of their streams, of which the first has this index.
    first: u64,
    requests: VecDeque<Option<Request>>,
    under_way: usize,
}

struct Request {
    began: Instant,
    moved: Instant,
    unsent: Bytes,
    response: h3::Response,
}

impl Own {
    fn new(index: usize, fd: Rc<OwnedFd>, now: Instant) -> Self {
        let (first, requests, under_way) = (0, VecDeque::new(), 0);
        Own { index, fd, began: now, connected: false, closed: false, first, requests, under_way }
    }

    fn request(&mut self, id: StreamId) -> Option<&mut Option<Request>> {
        self.requests.get_mut(id.index().checked_sub(self.first)? as usize)
    }

    /// Counts the requests that never get anything.
    fn end(&self, counts: &mut Counts, now: Instant) {
        let stalled = |r: &&Request| now - r.moved > STALLED_AFTER;
        if !self.closed {
            counts.timeout += self.requests.iter().flatten().filter(stalled).count() as u64;
            counts.timeout += u64::from(!self.connected && now - self.began > STALLED_AFTER);
        }
    }
}

struct Client {
    load: Load,
    counts: Counts,
    /// Sockets without a connection.
    lost: Vec<usize>,
}

impl Work for Client {
    type Own = Own;

    fn event(&mut self, c: &mut Connection, own: &mut Own, event: Event, now: Instant) {
        match event {
            Event::Connected => {
                own.connected = true;
                if let Some(id) = c.streams().open(Dir::Uni) {
                    let _ = c.send_stream(id).write(h3::CONTROL);
                }
            }
            Event::ConnectionLost { .. } if !own.closed => {
                self.counts.connect += u64::from(!own.connected);
                self.counts.lost += own.under_way as u64;
                self.counts.pause = true;
                own.closed = true;
                self.lost.push(own.index);
            }
            Event::Stream(StreamEvent::Opened { dir }) => {
                while let Some(id) = c.streams().accept(dir) {
                    self.read(c, own, id, now);
                }
            }
            Event::Stream(StreamEvent::Readable { id }) => self.read(c, own, id, now),
            Event::Stream(StreamEvent::Writable { id }) => {
                if let Some(Some(request)) = own.request(id) {
                    send(c, id, request);
                }
            }
            _ => {}
        }
    }

    /// Keeps as many requests under way as there have to be.
    fn polled(&mut self, c: &mut Connection, own: &mut Own, now: Instant) {
        if !own.connected || own.closed {
            return;
        }
        while own.under_way < self.load.streams
            && let Some(id) = c.streams().open(Dir::Bi)
        {
            // With a connection for each, the handshake is part of the wait.
            let began = if self.load.close { own.began } else { now };
            let (unsent, response) = (self.load.request.clone(), h3::Response::default());
            let mut request = Request { began, moved: now, unsent, response };
            send(c, id, &mut request);
            own.requests.push_back(Some(request));
            own.under_way += 1;
        }
    }

    fn socket(own: &Own) -> Option<&OwnedFd> {
        Some(&own.fd)
    }
}

fn send(c: &mut Connection, id: StreamId, request: &mut Request) {
    let mut stream = c.send_stream(id);
    while !request.unsent.is_empty() {
        let mut rest = [std::mem::take(&mut request.unsent)];
        let written = stream.write_chunks(&mut rest);
        [request.unsent] = rest;
        match written {
            Ok(_) => {}
            Err(WriteError::Blocked) => return,
            Err(_) => break,
        }
    }
    let _ = stream.finish();
}

impl Client {
    fn read(&mut self, c: &mut Connection, own: &mut Own, id: StreamId, now: Instant) {
        let mut ignored = None;
        let request = match id.dir() {
            Dir::Bi => own.request(id),
            // The server's parameters.
            Dir::Uni => Some(&mut ignored),
        };
        let mut stream = c.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return };
        let mut request = request.and_then(Option::as_mut);
        let reset = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    if let Some(request) = &mut request {
                        self.counts.bytes += chunk.bytes.len() as u64;
                        request.response.take(&chunk.bytes);
                        request.moved = now;
                    }
                }
                Ok(None) => break false,
                Err(ReadError::Reset(_)) => break true,
                Err(ReadError::Blocked) => return,
            }
        };
        let _ = chunks.finalize();
        let Some(request) = request else { return };
        let response = &request.response;
        match response.status {
            200 if !reset && response.is_whole() && response.body == self.load.length => {
                self.counts.waits_us.push((now - request.began).as_micros() as u32);
            }
            200 => self.counts.short += 1,
            _ => self.counts.status += 1,
        }
        self.over(c, own, id, now);
    }

    fn over(&mut self, c: &mut Connection, own: &mut Own, id: StreamId, now: Instant) {
        if let Some(request) = own.request(id) {
            *request = None;
        }
        own.under_way -= 1;
        while let Some(None) = own.requests.front() {
            own.requests.pop_front();
            own.first += 1;
        }
        if self.load.close {
            c.close(now, 0x100u32.into(), Bytes::new());
            own.closed = true;
            self.lost.push(own.index);
        }
    }
}
