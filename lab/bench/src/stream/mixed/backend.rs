//! The servers behind: threads of this program, which check each byte that comes and derive each
//! byte that they send.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aws_lc_rs::digest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::content::{self, Content, DOWN, Head, Tag, UP, Work, invert};
use crate::Outcome;
use crate::backends::locked;
use crate::tls::Certificate;

/// A session in which nothing moves for so long is over.
const LIMIT: Duration = Duration::from_secs(120);
/// Datagrams may wait in a socket's buffer for a while.
const SOCKET_BUFFER: usize = 4 << 20;

/// What the backends have seen, all together.
#[derive(Default)]
pub struct Seen {
    /// Sessions that are open.
    pub open: AtomicU64,
    /// Bytes of content that came and were compared.
    pub bytes: AtomicU64,
    /// Datagrams that came and were compared.
    pub datagrams: AtomicU64,
    /// What was wrong.
    pub wrong: Mutex<Vec<String>>,
    over: AtomicBool,
}

impl Seen {
    fn wrong(&self, what: String) {
        locked(&self.wrong).push(what);
    }

    /// Ends all threads.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// What a backend speaks.
#[derive(Clone)]
pub enum Speaks {
    /// Plain sessions.
    Plain,
    /// The same over TLS.
    Tls(Arc<ServerConfig>),
    /// A header of the PROXY protocol before each.
    Proxied,
}

/// The configuration of a backend that speaks TLS.
pub fn tls_config(certificate: &Certificate) -> Outcome<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_file_iter(certificate.chain())
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| e.to_string())?;
    let key = PrivateKeyDer::from_pem_file(certificate.key()).map_err(|e| e.to_string())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map(Arc::new)
        .map_err(|e| e.to_string())
}

/// A backend over TCP.
pub struct Backend {
    /// Its port on 127.0.0.1.
    pub port: u16,
    number: u32,
    speaks: Speaks,
    listens: Arc<AtomicBool>,
    seen: Arc<Seen>,
}

impl Backend {
    /// One that listens.
    pub fn new(number: u32, speaks: Speaks, seen: &Arc<Seen>) -> Outcome<Self> {
        let backend = Self {
            port: quiet_port()?,
            number,
            speaks,
            listens: Arc::default(),
            seen: seen.clone(),
        };
        backend.start()?;
        Ok(backend)
    }

    /// Listens again.
    pub fn start(&self) -> Outcome {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port))
            .and_then(|l| l.set_nonblocking(true).map(|()| l))
            .map_err(|e| format!("a backend's port: {e}"))?;
        self.listens.store(true, Ordering::SeqCst);
        let (listens, seen) = (self.listens.clone(), self.seen.clone());
        let (number, speaks) = (self.number, self.speaks.clone());
        std::thread::spawn(move || {
            while listens.load(Ordering::SeqCst) && !seen.is_over() {
                let Ok((stream, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                let (seen, speaks) = (seen.clone(), speaks.clone());
                seen.open.fetch_add(1, Ordering::Relaxed);
                std::thread::spawn(move || {
                    let _ = serve(stream, number, &speaks, &seen);
                    seen.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Ok(())
    }

    /// Listens no more; its sessions go on.
    pub fn stop(&self) {
        self.listens.store(false, Ordering::SeqCst);
    }
}

/// A port that the kernel gives to no connection of its own: while nobody listens there, a
/// connection to it from the same port would be one to itself.
pub fn quiet_port() -> Outcome<u16> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let first = u64::from(std::process::id()) * 37;
    for _ in 0..10_000 {
        let port = 12_000 + ((first + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000) as u16;
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, port));
        if tcp.is_ok() && udp.is_ok() {
            return Ok(port);
        }
    }
    Err("no free port".to_string())
}

/// The address that the client of a session says it has, over the PROXY protocol.
pub fn told_address(session: u64) -> SocketAddrV4 {
    let bits = content::mix(session);
    let address = Ipv4Addr::new(192, 0, 2, 1 + (bits % 250) as u8);
    SocketAddrV4::new(address, 1024 + (bits >> 32) as u16 % 60_000)
}

fn serve(mut stream: TcpStream, number: u32, speaks: &Speaks, seen: &Seen) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    match speaks {
        Speaks::Plain => {
            session(&mut stream, number, None, seen)?;
            stream.shutdown(Shutdown::Write)?;
        }
        Speaks::Proxied => {
            let told = proxy_header(&mut stream)?;
            session(&mut stream, number, Some(told), seen)?;
            stream.shutdown(Shutdown::Write)?;
        }
        Speaks::Tls(config) => {
            let tls = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
            let mut tls = StreamOwned::new(tls, stream);
            session(&mut tls, number, None, seen)?;
            tls.conn.send_close_notify();
            while tls.conn.wants_write() {
                tls.conn.write_tls(&mut tls.sock)?;
            }
            stream = tls.sock;
            stream.shutdown(Shutdown::Write)?;
            io::copy(&mut stream, &mut io::sink())?;
            return Ok(());
        }
    }
    // Nothing may come behind the session.
    let more = io::copy(&mut stream, &mut io::sink())?;
    if more > 0 {
        seen.wrong(format!("backend {number}: {more} bytes behind a session's last"));
    }
    Ok(())
}

/// The header's line, without the end of line.
fn proxy_header(stream: &mut impl Read) -> io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") && line.len() < 108 {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.extend(byte);
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_string())
}

fn session(
    stream: &mut (impl Read + Write),
    number: u32,
    told: Option<String>,
    seen: &Seen,
) -> io::Result<()> {
    let mut bytes = [0; Head::LEN];
    stream.read_exact(&mut bytes)?;
    let Some(head) = Head::decode(&bytes) else {
        seen.wrong(format!("backend {number}: the head of a session is {bytes:02x?}"));
        return Ok(());
    };
    if let Some(told) = told {
        let from = told_address(head.session);
        let right = format!("PROXY TCP4 {} 127.0.0.1 {} ", from.ip(), from.port());
        if !told.starts_with(&right) {
            seen.wrong(format!("backend {number}: {told:?} instead of {right:?}"));
        }
    }
    let reply = content::reply(head.session, number);
    if head.work == Work::Echo {
        stream.write_all(&reply)?;
    }
    let digest = take(stream, &head, number, seen)?;
    if head.half_close {
        let more = stream.read(&mut [0; 16])?;
        if more > 0 {
            seen.wrong(format!("backend {number}: more than the {} bytes of {head:?}", head.up));
        }
    }
    match head.work {
        Work::Echo => Ok(()),
        Work::Upload => {
            stream.write_all(&reply)?;
            stream.write_all(digest.as_ref())
        }
        Work::Download => {
            stream.write_all(&reply)?;
            send(stream, &head)
        }
    }
}

/// Reads and compares a session's bytes, sends them back if it is an echo; gives their digest.
fn take(
    stream: &mut (impl Read + Write),
    head: &Head,
    number: u32,
    seen: &Seen,
) -> io::Result<digest::Digest> {
    let content = Content::new(head.session, UP);
    let mut digest = digest::Context::new(&digest::SHA256);
    let mut buffer = vec![0; 16 << 10];
    let mut at = 0;
    while at < head.up {
        let len = (head.up - at).min(buffer.len() as u64) as usize;
        let len = match stream.read(&mut buffer[..len]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => len,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let bytes = &mut buffer[..len];
        if let Some(place) = content.first_difference(at, bytes) {
            seen.wrong(format!("backend {number}: wrong byte at {place} of {head:?}"));
            return Err(ErrorKind::InvalidData.into());
        }
        seen.bytes.fetch_add(len as u64, Ordering::Relaxed);
        at += len as u64;
        match head.work {
            Work::Echo => {
                invert(bytes);
                stream.write_all(bytes)?;
            }
            _ => digest.update(bytes),
        }
    }
    Ok(digest.finish())
}

fn send(stream: &mut impl Write, head: &Head) -> io::Result<()> {
    let content = Content::new(head.session, DOWN);
    let mut buffer = vec![0; 32 << 10];
    let mut at = 0;
    while at < head.down {
        let len = (head.down - at).min(buffer.len() as u64) as usize;
        content.fill(at, &mut buffer[..len]);
        stream.write_all(&buffer[..len])?;
        at += len as u64;
    }
    Ok(())
}

/// A backend over UDP, for as long as the load lasts; gives its port.
pub fn datagrams(seen: &Arc<Seen>) -> Outcome<u16> {
    let port = quiet_port()?;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).map_err(|e| e.to_string())?;
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER);
    let set = socket.set_read_timeout(Some(Duration::from_millis(100)));
    set.map_err(|e| e.to_string())?;
    let seen = seen.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while !seen.is_over() {
            let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
            for answer in answers(&mut buffer[..len], &seen) {
                let _ = socket.send_to(&answer, from);
            }
        }
    });
    Ok(port)
}

/// The answers to a question: as many as its tag says, or, where there is no room for one, the
/// same bytes inverted.
fn answers(question: &mut [u8], seen: &Seen) -> Vec<Vec<u8>> {
    seen.datagrams.fetch_add(1, Ordering::Relaxed);
    seen.bytes.fetch_add(question.len() as u64, Ordering::Relaxed);
    if question.len() < Tag::LEN {
        invert(question);
        return vec![question.to_vec()];
    }
    match Tag::read(question) {
        Some(tag) if tag.answer == 0 => (1..=tag.answers)
            .map(|answer| Tag { answer, ..tag }.datagram(usize::from(tag.answer_len)))
            .collect(),
        _ => {
            let begin = &question[..Tag::LEN];
            let len = question.len();
            seen.wrong(format!("a question of {len} bytes is damaged: {begin:02x?} …"));
            Vec::new()
        }
    }
}

/// Waits until no session is open; gives those that stay.
pub fn drained(seen: &Seen, limit: Duration) -> u64 {
    let began = Instant::now();
    while seen.open.load(Ordering::Relaxed) > 0 && began.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(20));
    }
    seen.open.load(Ordering::Relaxed)
}
