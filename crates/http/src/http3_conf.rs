//! The settings of HTTP/3 and of QUIC under it, as written and in effect.

use std::rc::Rc;

use conf::ConfError;
use engine::settings::ConfSet;
use engine::tls_files::Named;
use quic::{Settings, Transport};

engine::settings! {
    /// The settings of a server, as written.
    pub(crate) struct ServerSettings {
        pub enable: Option<bool>,
        pub max_streams: Option<u64>,
        pub stream_buffer: Option<usize>,
        pub active_ids: Option<u64>,
        pub gso: Option<bool>,
        pub retry: Option<Retry>,
        pub host_key: Option<Named>,
    }
}

/// `quic_retry`: when clients prove that their addresses are their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Retry {
    /// Never before the handshake.
    Off,
    /// Always.
    On,
    /// While many handshakes are under way.
    #[default]
    Auto,
}

/// The settings of a server.
pub(crate) struct Http3 {
    /// Its clients may speak HTTP/3.
    pub enabled: bool,
    /// Streams that a client may have open at once.
    pub max_streams: u32,
    /// The terms of its connections.
    pub transport: Transport,
    /// When clients prove their addresses.
    pub retry: Retry,
    /// The secret that tokens are made with, where a file has it.
    pub host_key: Option<Rc<[u8]>>,
}

/// The most bytes of a connection's field sections that wait for entries of the table.
pub(crate) const BLOCKED_MAX: usize = 128 << 10;

/// Streams whose field sections may wait for entries of the table.
pub(crate) const BLOCKED_STREAMS: u64 = 16;

impl Http3 {
    /// The settings of a server.
    ///
    /// # Errors
    /// The file of its key cannot be read.
    pub(crate) fn of(set: &ConfSet, idle_ms: u64) -> Result<Http3, ConfError> {
        let none = ServerSettings::default();
        let written = set.get::<ServerSettings>().unwrap_or(&none);
        let usual = Settings::default();
        let settings = Settings {
            streams: written.max_streams.unwrap_or(usual.streams),
            stream_buffer: written.stream_buffer.map_or(usual.stream_buffer, |n| n as u64),
            idle_ms: idle_ms.max(1),
            segmentation: written.gso.unwrap_or(usual.segmentation),
        };
        let host_key = written.host_key.as_ref().map(read_key).transpose()?;
        Ok(Http3 {
            enabled: written.enable.unwrap_or(true),
            max_streams: u32::try_from(settings.streams).unwrap_or(u32::MAX),
            transport: Transport::new(&settings),
            retry: written.retry.unwrap_or_default(),
            host_key,
        })
    }

    /// The protocols that a client may choose.
    pub(crate) fn alpn(&self) -> &'static [&'static [u8]] {
        if self.enabled { &[b"h3"] } else { &[] }
    }
}

fn read_key(named: &Named) -> Result<Rc<[u8]>, ConfError> {
    let failed = |what: &str| {
        let m = format!("{what} of quic_host_key \"{}\"", named.shown());
        ConfError::at(&named.word, m)
    };
    match std::fs::read(&named.path) {
        Ok(key) if key.is_empty() => Err(failed("empty file")),
        Ok(key) => Ok(key.into()),
        Err(e) => Err(failed(&format!("open() failed {}", base::log::os_error(&e)))),
    }
}
