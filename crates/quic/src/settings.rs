//! Settings of connections, and their conversion to quinn-proto's configuration.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{
    AckFrequencyConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt, crypto,
};
use tls::quic::QuicConfig;

use crate::congestion::Counting;

/// The QUIC settings of a virtual server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The maximum number of concurrent request streams of a client.
    pub streams: u64,
    /// The receive window of a stream: the bytes that a client may send before the server reads
    /// them.
    pub stream_buffer: u64,
    /// The idle timeout, in milliseconds.
    pub idle_ms: u64,
    /// Whether to send several datagrams in one call (UDP_SEGMENT), if the kernel supports it.
    pub segmentation: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { streams: 128, stream_buffer: 64 << 10, idle_ms: 75_000, segmentation: true }
    }
}

/// The maximum number of unidirectional streams of a client. HTTP/3 uses three; clients also open
/// some of reserved types, which servers must ignore.
const CONTROL_STREAMS: u32 = 8;

/// The receive window of a connection, in windows of a single stream.
const WINDOW_STREAMS: u64 = 16;

/// The send window: the maximum of unacknowledged bytes on all streams of a connection. Allows 160
/// Mbit/s at a round-trip time of 100 ms.
const SEND_WINDOW: u64 = 2 << 20;

/// The maximum number of handshake bytes that are buffered out of order.
const HANDSHAKE_MAX: usize = 32 << 10;

/// The settings as quinn-proto's configuration; cheap to clone.
#[derive(Clone)]
pub struct Transport(pub(crate) Arc<TransportConfig>);

impl Transport {
    /// Converts the settings. Numbers above 2^62 - 1 are capped, because the transport parameters
    /// cannot hold them.
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

/// The virtual server chosen for a client: its TLS configuration and its transport settings.
pub struct Choice {
    pub(crate) crypto: Arc<dyn crypto::ServerConfig>,
    pub(crate) transport: Transport,
}

impl Choice {
    /// Continues the handshake with a server's certificates.
    pub fn new(config: Arc<QuicConfig>, transport: &Transport) -> Choice {
        Choice { crypto: config, transport: transport.clone() }
    }

    /// Ends the handshake with a TLS alert; `why` is for the log.
    pub fn refuse(alert: u8, why: String, transport: &Transport) -> Choice {
        Choice { crypto: tls::quic::refusal(alert, why), transport: transport.clone() }
    }
}
