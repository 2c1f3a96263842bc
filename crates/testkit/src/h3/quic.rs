//! A connection over a UDP socket.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use os::SockAddr;
use os::datagram::{Batch, set_join};
use quinn_proto::{Connection, ConnectionError, Dir, StreamId, VarInt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{Machine, Script};
use crate::{AnyCertificate, PATIENCE};

/// The longest wait of a turn.
const TURN: Duration = Duration::from_millis(20);

/// The longest that the kernel joins datagrams to.
const DATAGRAMS_MAX: usize = 65_536;

/// How a client connects.
pub struct Options {
    /// The server that it asks for.
    pub name: String,
    /// The protocols that it offers.
    pub alpn: Vec<Vec<u8>>,
    /// Its certificate, with the key.
    pub certificate: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    /// Bytes of a stream that it takes before they are read.
    pub window: u32,
    /// Early data is sent where a session allows it.
    pub early: bool,
    /// The work of [`Options::tls`] on the above: connections that share it resume their sessions.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// The time without a sign of the server after which the connection is over.
    pub idle: Option<Duration>,
    /// The pause between two requests for a sign of the server.
    pub keep_alive: Option<Duration>,
    /// The address that it sends from.
    pub from: Ipv4Addr,
    /// A token that it has from before.
    pub token: Option<Vec<u8>>,
    /// Writes some of its packets.
    pub script: Option<Script>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: "localhost".to_owned(),
            alpn: vec![b"h3".to_vec()],
            certificate: None,
            window: 1 << 20,
            early: false,
            tls: None,
            idle: Some(Duration::from_secs(30)),
            keep_alive: None,
            from: Ipv4Addr::LOCALHOST,
            token: None,
            script: None,
        }
    }
}

impl Options {
    /// The configuration of TLS, with memory for sessions.
    pub fn tls(&self) -> Arc<rustls::ClientConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = Arc::new(AnyCertificate);
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut tls = match &self.certificate {
            Some((certificate, key)) => builder
                .with_client_auth_cert(vec![certificate.clone()], key.clone_key())
                .expect("a key of the certificate"),
            None => builder.with_no_client_auth(),
        };
        tls.alpn_protocols = self.alpn.clone();
        tls.enable_early_data = self.early;
        Arc::new(tls)
    }
}

/// A connection.
pub struct Quic {
    socket: UdpSocket,
    /// Taken while its datagrams are given to the connection.
    batch: Option<Batch>,
    server: SocketAddr,
    machine: Machine,
}

impl Quic {
    /// Begins to connect to a port of the loopback.
    pub fn new(port: u16, options: &Options) -> Quic {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let socket = socket(options.from.into());
        let batch = Batch::new(DATAGRAMS_MAX).expect("memory for datagrams");
        let machine = Machine::new(Instant::now(), server, options);
        Quic { socket, batch: Some(batch), server, machine }
    }

    /// The connection's machine.
    pub fn inner(&mut self) -> &mut Connection {
        self.machine.inner()
    }

    /// Why the connection is over, if it is.
    pub fn lost(&self) -> Option<&ConnectionError> {
        self.machine.lost()
    }

    /// The code with which the server has ended the connection, if it has: of HTTP/3, or of QUIC
    /// itself (0x100 and an alert for one of TLS).
    pub fn lost_code(&self) -> Option<u64> {
        match self.machine.lost()? {
            ConnectionError::ApplicationClosed(closed) => Some(closed.error_code.into_inner()),
            ConnectionError::ConnectionClosed(closed) => Some(u64::from(closed.error_code)),
            other => panic!("{other}"),
        }
    }

    /// Whether the server had it prove its address first.
    pub fn was_retried(&self) -> bool {
        self.machine.was_retried()
    }

    /// The port that it sends from.
    pub fn port(&self) -> u16 {
        self.socket.local_addr().expect("a socket").port()
    }

    /// Whether the handshake is at its end.
    pub fn is_connected(&self) -> bool {
        self.machine.is_connected()
    }

    /// Goes on from another port, as clients do behind a translator of addresses.
    pub fn rebind(&mut self) {
        let from = self.socket.local_addr().expect("a bound socket").ip();
        self.socket = socket(from);
    }

    /// Sends what there is to send, and takes what comes within a moment.
    pub fn turn(&mut self) {
        self.turn_within(TURN);
    }

    /// The same with the longest wait for something to come.
    pub fn turn_within(&mut self, limit: Duration) {
        self.send();
        let now = Instant::now();
        let until = self.inner().poll_timeout().map_or(limit, |at| {
            at.saturating_duration_since(now).max(Duration::from_micros(100)).min(limit)
        });
        self.wait(until);
        self.receive();
        self.machine.settle(Instant::now());
        self.send();
    }

    fn wait(&self, limit: Duration) {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        let limit = Timespec::try_from(limit).expect("a time");
        match poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => panic!("poll: {e}"),
        }
    }

    /// Takes what is there.
    fn receive(&mut self) {
        let mut batch = self.batch.take().expect("nobody else takes it");
        loop {
            match batch.recv(&self.socket) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                // The server is away, or comes back.
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => continue,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => panic!("recv: {e}"),
            }
            for (received, bytes) in batch.iter() {
                let from = received.from.as_ref().and_then(SockAddr::to_std);
                let from = from.expect("the sender's address");
                // One piece of memory for all that came together.
                let mut rest = BytesMut::from(bytes);
                while !rest.is_empty() {
                    let datagram = rest.split_to(received.segment.max(1).min(rest.len()));
                    self.machine.take(Instant::now(), from, datagram);
                }
            }
        }
        self.batch = Some(batch);
    }

    /// Sends what there is to send from another socket.
    pub fn send_from(&mut self, socket: &UdpSocket) {
        let Quic { server, machine, .. } = self;
        machine.send(Instant::now(), |bytes| {
            let _ = socket.send_to(bytes, *server);
        });
    }

    /// Sends a PING, and takes nothing of what comes: so nothing is confirmed.
    pub fn ping_deaf(&mut self) {
        self.inner().ping();
        self.machine.settle(Instant::now());
        self.send();
    }

    /// The socket alone, with nothing that would answer.
    pub fn into_socket(self) -> UdpSocket {
        self.socket
    }

    /// Sends what there is to send.
    pub fn send(&mut self) {
        let Quic { socket, server, machine, .. } = self;
        machine.send(Instant::now(), |bytes| {
            // A server that is away gets it never, as on any network.
            let _ = socket.send_to(bytes, *server);
        });
    }

    /// Turns until `done` gives something.
    ///
    /// # Panics
    /// It does not in time.
    pub fn until<R>(&mut self, what: &str, mut done: impl FnMut(&mut Quic) -> Option<R>) -> R {
        let began = Instant::now();
        loop {
            if let Some(result) = done(self) {
                return result;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {:?}", self.lost());
            self.turn();
        }
    }

    /// Opens a stream.
    pub fn open(&mut self, dir: Dir) -> StreamId {
        self.until("no stream may be opened", |quic| {
            assert!(quic.lost().is_none(), "the connection is over: {:?}", quic.lost());
            quic.inner().streams().open(dir)
        })
    }

    /// Writes all of these bytes to a stream.
    pub fn write(&mut self, id: StreamId, bytes: &[u8]) {
        let mut left = bytes;
        self.until("the server takes nothing", |quic| {
            while !left.is_empty() {
                match quic.inner().send_stream(id).write(left) {
                    Ok(n) => left = &left[n..],
                    Err(quinn_proto::WriteError::Blocked) => return None,
                    // It wants no more.
                    Err(_) => break,
                }
            }
            Some(())
        });
    }

    /// Writes as many of these bytes to a stream as it takes now.
    pub fn write_some(&mut self, id: StreamId, bytes: &[u8]) -> usize {
        self.inner().send_stream(id).write(bytes).unwrap_or(0)
    }

    /// Ends a stream.
    pub fn finish(&mut self, id: StreamId) {
        // One that the server has stopped is over.
        let _ = self.inner().send_stream(id).finish();
        self.send();
    }

    /// Gives a stream up.
    pub fn reset(&mut self, id: StreamId, code: u32) {
        let _ = self.inner().send_stream(id).reset(code.into());
        self.send();
    }

    /// Wants no more of a stream.
    pub fn stop(&mut self, id: StreamId, code: u32) {
        let _ = self.inner().recv_stream(id).stop(code.into());
        self.send();
    }

    /// The next bytes of a stream: `None` where there are none now; empty at its end.
    ///
    /// # Errors
    /// The server has reset it, with this code.
    pub fn read(&mut self, id: StreamId) -> Result<Option<Bytes>, u64> {
        self.machine.read(id)
    }

    /// Closes the connection.
    pub fn close(&mut self, code: u32) {
        self.inner().close(Instant::now(), VarInt::from_u32(code), Bytes::new());
        self.send();
    }
}

/// A socket at a port of the kernel's choice, which joins datagrams where it can.
fn socket(from: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((from, 0)).expect("a socket");
    socket.set_nonblocking(true).expect("a socket");
    let _ = set_join(&socket);
    socket
}
