//! The settings of HTTP/2, as written and in effect.

use engine::settings::ConfSet;

engine::settings! {
    /// The settings of a server, as written.
    pub(crate) struct ServerSettings {
        pub enable: Option<bool>,
        pub max_streams: Option<u64>,
        pub preread: Option<usize>,
    }
}

engine::settings! {
    /// `http2_chunk_size`.
    pub(crate) struct ChunkSize(pub Option<usize>);
}

/// The settings of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Http2 {
    /// Its clients may speak HTTP/2.
    pub enabled: bool,
    /// Streams that a client may have open at once.
    pub max_streams: u32,
    /// The window of a stream's body before it is asked for, bytes.
    pub preread: u32,
}

/// The largest payload of DATA frames where none is set.
const CHUNK: usize = 8 << 10;

/// The longest payload that there can be.
pub(crate) const CHUNK_MAX: usize = (1 << 24) - 1;

impl Http2 {
    /// The settings of a server; `listens` says that an address of it is one of HTTP/2.
    pub(crate) fn of(set: &ConfSet, listens: bool) -> Http2 {
        let none = ServerSettings::default();
        let written = set.get::<ServerSettings>().unwrap_or(&none);
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Http2 {
            enabled: listens || written.enable.unwrap_or(false),
            max_streams: written.max_streams.map_or(128, small),
            preread: written.preread.map_or(65_536, |n| small(n as u64)),
        }
    }
}

/// The largest payload of DATA frames with these settings of a location, bytes.
pub(crate) fn chunk(set: &ConfSet) -> usize {
    set.get::<ChunkSize>().and_then(|size| size.0).unwrap_or(CHUNK)
}

/// The largest window (RFC 9113 section 6.9.1).
pub(crate) const WINDOW_MAX: usize = http_wire::h2::window::MAX as usize;
