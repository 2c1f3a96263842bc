//! The machine of a client's connection, without a socket and without a clock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quinn_proto::congestion::CubicConfig;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Endpoint,
    EndpointConfig, Event, IdleTimeout, ReadError, StreamId, TokenStore, TransportConfig,
};

use super::Options;

/// The same token each time.
#[derive(Debug)]
struct OneToken(Vec<u8>);

impl TokenStore for OneToken {
    fn insert(&self, _: &str, _: Bytes) {}

    fn take(&self, _: &str) -> Option<Bytes> {
        Some(self.0.clone().into())
    }
}

/// A client's end of a connection.
pub struct Machine {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Connection,
    is_connected: bool,
    lost: Option<ConnectionError>,
    /// Retry packets that came.
    retries: u32,
}

impl Machine {
    /// Begins to connect.
    pub fn new(now: Instant, server: SocketAddr, options: &Options) -> Machine {
        let tls = options.tls.clone().unwrap_or_else(|| options.tls());
        let mut transport = TransportConfig::default();
        transport
            .stream_receive_window(options.window.into())
            .max_idle_timeout(options.idle.and_then(|idle| IdleTimeout::try_from(idle).ok()))
            .keep_alive_interval(options.keep_alive);
        if options.script.is_some() {
            // One that means harm waits for no confirmation.
            let mut congestion = CubicConfig::default();
            congestion.initial_window(1 << 20);
            transport.congestion_controller_factory(Arc::new(congestion));
        }
        let tls = Arc::new(QuicClientConfig::try_from(tls).expect("suites of TLS 1.3"));
        let mut config = ClientConfig::new(match &options.script {
            Some(script) => script.over(tls),
            None => tls,
        });
        config.transport_config(Arc::new(transport));
        if let Some(token) = &options.token {
            config.token_store(Arc::new(OneToken(token.clone())));
        }
        let secret = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &[7; 32]);
        let endpoint_config = Arc::new(EndpointConfig::new(Arc::new(secret)));
        let mut endpoint = Endpoint::new(endpoint_config, None, true, None);
        let (handle, connection) =
            endpoint.connect(now, config, server, &options.name).expect("a name and an address");
        Machine { endpoint, handle, connection, is_connected: false, lost: None, retries: 0 }
    }

    /// The connection's state.
    pub fn inner(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Why the connection is over, if it is.
    pub fn lost(&self) -> Option<&ConnectionError> {
        self.lost.as_ref()
    }

    /// Whether the handshake is at its end.
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Whether the server had it prove its address first.
    pub fn was_retried(&self) -> bool {
        self.retries > 0
    }

    /// Takes a datagram.
    pub fn take(&mut self, now: Instant, from: SocketAddr, data: BytesMut) {
        // The long form, of type 3.
        self.retries += u32::from(data.first().is_some_and(|first| first & 0xf0 == 0xf0));
        let mut answer = Vec::new();
        let event = self.endpoint.handle(now, from, None, None, data, &mut answer);
        match event {
            Some(DatagramEvent::ConnectionEvent(_, event)) => self.connection.handle_event(event),
            Some(DatagramEvent::Response(_)) | None => {}
            Some(DatagramEvent::NewConnection(_)) => panic!("a client was called"),
        }
    }

    /// Does what the time asks for, and what came.
    pub fn settle(&mut self, now: Instant) {
        if self.connection.poll_timeout().is_some_and(|at| at <= now) {
            self.connection.handle_timeout(now);
        }
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.is_connected = true,
                Event::ConnectionLost { reason } => self.lost = Some(reason),
                _ => {}
            }
        }
    }

    /// Gives each datagram that is to be sent.
    pub fn send(&mut self, now: Instant, mut each: impl FnMut(&[u8])) {
        let mut bytes = Vec::new();
        while let Some(sent) = self.connection.poll_transmit(now, 1, &mut bytes) {
            each(&bytes[..sent.size]);
            bytes.clear();
        }
    }

    /// The next bytes of a stream: `None` where there are none now; empty at its end.
    ///
    /// # Errors
    /// The server has reset it, with this code.
    pub fn read(&mut self, id: StreamId) -> Result<Option<Bytes>, u64> {
        let mut stream = self.connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return Ok(Some(Bytes::new())) };
        let read = match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => Ok(Some(chunk.bytes)),
            Ok(None) => Ok(Some(Bytes::new())),
            Err(ReadError::Blocked) => Ok(None),
            Err(ReadError::Reset(code)) => Err(code.into_inner()),
        };
        let _ = chunks.finalize();
        read
    }
}
