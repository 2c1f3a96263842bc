//! The byte stream under a client, with a limit of time on everything.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::client::ReadWrite;
use crate::{AnyCertificate, PATIENCE};

/// The end of a connection's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By FIN, behind `close_notify` over TLS.
    Closed,
    /// Over TLS, without `close_notify`.
    Cut,
    /// By a reset.
    Reset,
}

/// A connection.
pub struct Wire(Kind);

enum Kind {
    /// A stream, and the socket below it, for its times.
    Socket(Box<dyn ReadWrite + Send>, TcpStream),
    Memory(Memory),
}

/// Bytes that a test carries to the server and back by itself.
#[derive(Default)]
struct Memory {
    sent: Vec<u8>,
    received: Vec<u8>,
    ended: Option<Ended>,
}

impl Wire {
    /// In memory: nothing waits. See [`Wire::take_sent`] and [`Wire::give`].
    pub fn memory() -> Self {
        Self(Kind::Memory(Memory::default()))
    }

    /// In clear, to 127.0.0.1.
    pub fn tcp(port: u16) -> Self {
        let socket = connect(port);
        let copy = socket.try_clone().expect("share the socket");
        Self(Kind::Socket(Box::new(socket), copy))
    }

    /// Over TLS, to 127.0.0.1 as `localhost`, with any certificate; `h2` must be chosen.
    pub fn tls(port: u16) -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has all versions")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let wire = Self::tls_with(Arc::new(config), "localhost", port);
        let (wire, chosen) = wire.unwrap_or_else(|e| panic!("TLS handshake: {e}"));
        assert_eq!(chosen.as_deref(), Some(&b"h2"[..]), "the server's choice of protocol");
        wire
    }

    /// Over TLS with a configuration and a server's name; the protocol that the server chose is
    /// beside.
    fn tls_with(
        config: Arc<ClientConfig>,
        name: &str,
        port: u16,
    ) -> io::Result<(Self, Option<Vec<u8>>)> {
        let mut socket = connect(port);
        let copy = socket.try_clone().expect("share the socket");
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        let chosen = tls.alpn_protocol().map(<[u8]>::to_vec);
        Ok((Self(Kind::Socket(Box::new(StreamOwned::new(tls, socket)), copy)), chosen))
    }

    /// Over any stream above a socket.
    pub fn over(stream: impl Read + Write + Send + 'static, socket: TcpStream) -> Self {
        Self(Kind::Socket(Box::new(stream), socket))
    }

    fn memory_of(&mut self) -> &mut Memory {
        match &mut self.0 {
            Kind::Memory(memory) => memory,
            Kind::Socket(..) => panic!("the connection is not in memory"),
        }
    }

    /// Takes the bytes that were sent, in memory.
    pub fn take_sent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.memory_of().sent)
    }

    /// Gives bytes to read, in memory.
    pub fn give(&mut self, bytes: &[u8]) {
        self.memory_of().received.extend_from_slice(bytes);
    }

    /// Ends the stream behind the bytes that were given, in memory.
    pub fn end(&mut self, ended: Ended) {
        self.memory_of().ended = Some(ended);
    }

    /// The socket below.
    pub fn socket(&self) -> &TcpStream {
        match &self.0 {
            Kind::Socket(_, socket) => socket,
            Kind::Memory(_) => panic!("a connection in memory has no socket"),
        }
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        match &mut self.0 {
            Kind::Socket(stream, _) => {
                stream.write_all(bytes.as_ref()).and_then(|()| stream.flush())
            }
            Kind::Memory(memory) => {
                memory.sent.extend_from_slice(bytes.as_ref());
                Ok(())
            }
        }
    }

    /// Says that nothing more will be sent, below TLS.
    pub fn finish_sending(&self) {
        self.socket().shutdown(Shutdown::Write).expect("shut down the writing side");
    }

    /// Reads once, until a moment: bytes, `Err(None)` when the time is over, or the stream's end.
    /// In memory there is no time: what was not given does not come.
    pub fn read(&mut self, until: Instant) -> Result<Vec<u8>, Option<Ended>> {
        match &mut self.0 {
            Kind::Socket(stream, socket) => read(stream, socket, until),
            Kind::Memory(memory) if memory.received.is_empty() => Err(memory.ended),
            Kind::Memory(memory) => Ok(std::mem::take(&mut memory.received)),
        }
    }
}

fn read(
    stream: &mut impl Read,
    socket: &TcpStream,
    until: Instant,
) -> Result<Vec<u8>, Option<Ended>> {
    let mut buffer = vec![0; 65_536];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(None);
        }
        let left = left.max(Duration::from_millis(1));
        socket.set_read_timeout(Some(left)).expect("set the socket's timeout");
        match stream.read(&mut buffer) {
            Ok(0) => return Err(Some(Ended::Closed)),
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(e) => match e.kind() {
                ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                ErrorKind::UnexpectedEof => return Err(Some(Ended::Cut)),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                    return Err(Some(Ended::Reset));
                }
                _ => panic!("read: {e}"),
            },
        }
    }
}

fn connect(port: u16) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", port)).expect("connect over TCP");
    socket.set_nodelay(true).expect("set TCP_NODELAY");
    socket.set_read_timeout(Some(PATIENCE)).expect("set the socket's timeout");
    socket.set_write_timeout(Some(PATIENCE)).expect("set the socket's timeout");
    socket
}
