//! A client of TLS that takes every certificate and tells what it saw.
#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, StreamOwned,
    SupportedProtocolVersion,
};
pub use testkit::Pair;
use testkit::{AnyCertificate, AnySignature, Conn, PATIENCE};

pub static BOTH: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// The client's view.
pub struct Seen {
    pub certificate: Vec<u8>,
    pub version: ProtocolVersion,
    pub suite: CipherSuite,
    pub kind: HandshakeKind,
    pub alpn: Option<Vec<u8>>,
}

/// A client's settings.
#[derive(Clone)]
pub struct Client {
    pub name: Option<String>,
    pub config: Arc<ClientConfig>,
}

fn config(
    versions: &[&'static SupportedProtocolVersion],
    provider: CryptoProvider,
    shown: Option<&[&Pair]>,
) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate));
    let mut config = match shown {
        None => builder.with_no_client_auth(),
        Some(pairs) => {
            let chain = pairs.iter().map(|p| p.certificate.clone().into()).collect();
            let key = PrivateKeyDer::from_pem_slice(pairs[0].key.pem().as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

impl Client {
    /// Of both versions.
    pub fn of(name: &str) -> Client {
        Client::with(name, &BOTH, None)
    }

    pub fn with(
        name: &str,
        versions: &[&'static SupportedProtocolVersion],
        shown: Option<&[&Pair]>,
    ) -> Client {
        let config = config(versions, aws_lc_rs::default_provider(), shown);
        Client { name: Some(name.to_owned()), config }
    }

    /// With the suites and schemes of keys of these names alone.
    pub fn limited(name: &str, version: &'static SupportedProtocolVersion, suite: &str) -> Client {
        let mut provider = aws_lc_rs::default_provider();
        provider.cipher_suites.retain(|s| format!("{:?}", s.suite()).contains(suite));
        Client { name: Some(name.to_owned()), config: config(&[version], provider, None) }
    }

    pub fn without_name(mut self) -> Client {
        let mut config = (*self.config).clone();
        config.enable_sni = false;
        (self.config, self.name) = (Arc::new(config), None);
        self
    }

    pub fn with_alpn(mut self, protocols: &[&str]) -> Client {
        let mut config = (*self.config).clone();
        config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
        self.config = Arc::new(config);
        self
    }

    /// With signatures of all schemes.
    pub fn with_signatures(mut self) -> Client {
        let mut config = (*self.config).clone();
        config.dangerous().set_certificate_verifier(Arc::new(AnySignature));
        self.config = Arc::new(config);
        self
    }

    pub fn with_sessions(mut self) -> Client {
        let mut config = (*self.config).clone();
        config.resumption = Resumption::in_memory_sessions(8);
        self.config = Arc::new(config);
        self
    }

    /// The session before its first byte.
    pub fn session(&self) -> ClientConnection {
        let name = self.name.clone().unwrap_or_else(|| "unnamed.example".to_owned());
        ClientConnection::new(self.config.clone(), ServerName::try_from(name).unwrap()).unwrap()
    }

    /// The bytes of a hello.
    pub fn hello(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.session().write_tls(&mut bytes).unwrap();
        bytes
    }

    /// A connection after its handshake.
    pub fn try_connect(&self, port: u16) -> io::Result<(Conn, Seen)> {
        self.over(socket(port), b"")
    }

    pub fn connect(&self, port: u16) -> Conn {
        self.try_connect(port).unwrap().0
    }

    pub fn see(&self, port: u16) -> Seen {
        self.try_connect(port).unwrap().1
    }

    /// The handshake over a stream; `early` goes with the handshake's last bytes.
    pub fn over<S: Read + Write + Send + 'static>(
        &self,
        mut stream: S,
        early: &[u8],
    ) -> io::Result<(Conn, Seen)> {
        let mut tls = self.session();
        tls.writer().write_all(early)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        while tls.wants_write() {
            tls.write_tls(&mut stream)?;
        }
        let seen = Seen {
            certificate: tls.peer_certificates().map(|c| c[0].to_vec()).unwrap_or_default(),
            version: tls.protocol_version().unwrap(),
            suite: tls.negotiated_cipher_suite().unwrap().suite(),
            kind: tls.handshake_kind().unwrap(),
            alpn: tls.alpn_protocol().map(<[u8]>::to_vec),
        };
        Ok((Conn::over(StreamOwned::new(tls, stream)), seen))
    }

    /// A request on a connection of its own, which ends with `close_notify`.
    pub fn get(&self, port: u16, path: &str) -> testkit::Response {
        let mut conn = self.connect(port);
        let host = self.name.as_deref().unwrap_or("unnamed.example");
        conn.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        let response = conn.response();
        assert!(conn.read_to_end().is_empty(), "more after the response");
        response
    }

    /// The error that a connection's handshake ends with.
    pub fn refusal(&self, port: u16) -> String {
        match self.try_connect(port) {
            Ok(_) => panic!("no refusal"),
            Err(e) => e.to_string(),
        }
    }
}

pub fn socket(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A stream whose writes are of a few bytes.
pub struct Trickle(pub TcpStream, pub usize);

impl Read for Trickle {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Trickle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&bytes[..bytes.len().min(self.1)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
