//! The terms of connections.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{
    AckFrequencyConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt, crypto,
};
use tls::quic::QuicConfig;

use crate::congestion::Counting;

/// The terms of a server's connections.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The streams that a client may have open.
    pub streams: u64,
    /// Bytes that a client may send on a stream before they are read, and that are read ahead.
    pub stream_buffer: u64,
    /// The time without a sign of the client after which a connection is over, milliseconds.
    pub idle_ms: u64,
    /// Several datagrams leave in one call, where the kernel can.
    pub segmentation: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { streams: 128, stream_buffer: 64 << 10, idle_ms: 75_000, segmentation: true }
    }
}

/// The streams of control that a client may open: HTTP/3 has three, and clients send some that
/// servers are to pass over.
const CONTROL_STREAMS: u32 = 8;

/// A client's connection may send this many times as much as one stream.
const WINDOW_STREAMS: u64 = 16;

/// Bytes of all streams of a connection that its client has not confirmed: with round trips of a
/// tenth of a second, 160 Mbit/s.
const SEND_WINDOW: u64 = 2 << 20;

/// The most bytes of the handshake that come out of their order.
const HANDSHAKE_MAX: usize = 32 << 10;

/// The terms, compiled; cheap to clone.
#[derive(Clone)]
pub struct Transport(pub(crate) Arc<TransportConfig>);

impl Transport {
    /// Compiles settings.
    pub fn new(settings: &Settings) -> Transport {
        let number = |n: u64| VarInt::from_u64(n).unwrap_or(VarInt::MAX);
        let mut config = TransportConfig::default();
        config
            .max_concurrent_bidi_streams(number(settings.streams))
            .max_concurrent_uni_streams(CONTROL_STREAMS.into())
            .stream_receive_window(number(settings.stream_buffer))
            .receive_window(number(settings.stream_buffer.saturating_mul(WINDOW_STREAMS)))
            .send_window(SEND_WINDOW)
            .congestion_controller_factory(Arc::new(Counting::default()))
            .crypto_buffer_size(HANDSHAKE_MAX)
            .max_idle_timeout(IdleTimeout::try_from(Duration::from_millis(settings.idle_ms)).ok())
            .mtu_discovery_config(Some(MtuDiscoveryConfig::default()))
            .ack_frequency_config(Some(AckFrequencyConfig::default()))
            .enable_segmentation_offload(settings.segmentation)
            .datagram_receive_buffer_size(None);
        Transport(Arc::new(config))
    }
}

/// A client's server: how the handshake goes on, and the terms of the connection.
pub struct Choice {
    pub(crate) crypto: Arc<dyn crypto::ServerConfig>,
    pub(crate) transport: Transport,
}

impl Choice {
    /// The handshake with a server's certificates.
    pub fn new(config: Arc<QuicConfig>, transport: &Transport) -> Choice {
        Choice { crypto: config, transport: transport.clone() }
    }

    /// An end of the handshake with this alert.
    pub fn refuse(alert: u8, why: String, transport: &Transport) -> Choice {
        Choice { crypto: tls::quic::refusal(alert, why), transport: transport.clone() }
    }
}
