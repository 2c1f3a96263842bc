//! The parameters of a connection (RFC 9114 section 7.2.4, RFC 9204 section 5, RFC 9220).

use super::frame::{self, kind};
use super::stream::{self, Kind};
use super::{Code, Fault, varint};

/// Identifiers of parameters.
#[allow(missing_docs)]
pub mod id {
    pub(crate) const QPACK_MAX_TABLE_CAPACITY: u64 = 1;
    pub(crate) const MAX_FIELD_SECTION_SIZE: u64 = 6;
    pub(crate) const QPACK_BLOCKED_STREAMS: u64 = 7;
    pub const ENABLE_CONNECT_PROTOCOL: u64 = 8;
    /// Settings of HTTP/2 that HTTP/3 has not, which may not be sent (RFC 9114 section 7.2.4.1).
    pub const OF_HTTP_2: [u64; 5] = [0, 2, 3, 4, 5];
}

/// The parameters of one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// The largest dynamic table that its decoder takes, bytes.
    pub table_capacity: u64,
    /// Streams that may be blocked at its decoder.
    pub blocked_streams: u64,
    /// Bytes of a field section that it takes, with 32 for each field; `None`: it does not say.
    pub section_max: Option<u64>,
    /// Requests may ask for another protocol with CONNECT (RFC 9220).
    pub connect_protocol: bool,
}

impl Settings {
    /// Reads the payload of a SETTINGS frame.
    ///
    /// # Errors
    /// The connection ends.
    pub fn parse(payload: &[u8]) -> Result<Settings, Fault> {
        let mut settings = Settings::default();
        let (mut rest, mut seen) = (payload, 0u32);
        while !rest.is_empty() {
            let (Some(id), Some(value)) = (varint::take(&mut rest), varint::take(&mut rest)) else {
                return Err(Fault::connection(Code::FrameError, "a SETTINGS frame that is cut"));
            };
            if id::OF_HTTP_2.contains(&id) {
                return refuse("a parameter of HTTP/2 in SETTINGS frame");
            }
            let bit = 1u32.checked_shl(u32::try_from(id).unwrap_or(u32::MAX)).unwrap_or(0);
            if seen & bit != 0 {
                return refuse("a parameter twice in SETTINGS frame");
            }
            seen |= bit;
            match id {
                id::QPACK_MAX_TABLE_CAPACITY => settings.table_capacity = value,
                id::QPACK_BLOCKED_STREAMS => settings.blocked_streams = value,
                id::MAX_FIELD_SECTION_SIZE => settings.section_max = Some(value),
                id::ENABLE_CONNECT_PROTOCOL if value > 1 => {
                    return refuse("SETTINGS frame with incorrect ENABLE_CONNECT_PROTOCOL");
                }
                id::ENABLE_CONNECT_PROTOCOL => settings.connect_protocol = value == 1,
                _ => {}
            }
        }
        Ok(settings)
    }

    /// Writes the beginning of our control stream: its type, and these settings.
    pub fn write_preface(&self, out: &mut Vec<u8>) {
        let section_max = self.section_max.map(|max| (id::MAX_FIELD_SECTION_SIZE, max));
        let connect = self.connect_protocol.then_some((id::ENABLE_CONNECT_PROTOCOL, 1));
        let table = [
            (id::QPACK_MAX_TABLE_CAPACITY, self.table_capacity),
            (id::QPACK_BLOCKED_STREAMS, self.blocked_streams),
        ];
        let mut payload = Vec::new();
        for (id, value) in table.into_iter().chain(section_max).chain(connect) {
            varint::write(id, &mut payload);
            varint::write(value, &mut payload);
        }
        stream::write_kind(out, Kind::Control);
        frame::write_head(out, kind::SETTINGS, payload.len() as u64);
        out.extend_from_slice(&payload);
    }
}

#[cold]
fn refuse<T>(what: &'static str) -> Result<T, Fault> {
    Err(Fault::connection(Code::SettingsError, what))
}
