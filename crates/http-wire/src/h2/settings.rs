//! The parameters of a connection (RFC 9113 section 6.5.2, RFC 8441, RFC 9218).

use super::frame::{ErrorCode, FRAME_MAX};
use super::read::Fault;
use super::window::{INITIAL, MAX};

/// Identifiers of parameters.
#[allow(missing_docs)]
pub mod id {
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    pub const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// The peer's parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The size of the table for field compression, bytes.
    pub header_table: u32,
    /// Streams that we may have open at once; a server opens none.
    pub max_streams: u32,
    /// The window that streams begin with, bytes.
    pub window: u32,
    /// The longest payload that the peer takes, bytes.
    pub frame_max: u32,
    /// Requests may ask for another protocol with CONNECT (RFC 8441).
    pub connect_protocol: bool,
    /// The peer does not use the priorities of RFC 7540.
    pub no_tree: bool,
}

impl Default for Settings {
    /// The values before any SETTINGS frame.
    fn default() -> Settings {
        Settings {
            header_table: 4096,
            max_streams: u32::MAX,
            window: INITIAL,
            frame_max: FRAME_MAX as u32,
            connect_protocol: false,
            no_tree: false,
        }
    }
}

impl Settings {
    /// Takes the payload of a SETTINGS frame, whose length was checked.
    ///
    /// # Errors
    /// A value out of its range, which ends the connection.
    pub fn take(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let (pairs, _) = payload.as_chunks::<6>();
        for [i0, i1, v0, v1, v2, v3] in pairs {
            let value = u32::from_be_bytes([*v0, *v1, *v2, *v3]);
            let protocol = |what| Err(Fault::connection(ErrorCode::PROTOCOL_ERROR, what));
            match u16::from_be_bytes([*i0, *i1]) {
                id::HEADER_TABLE_SIZE => self.header_table = value,
                id::ENABLE_PUSH if value > 1 => {
                    return protocol("SETTINGS frame with incorrect ENABLE_PUSH value");
                }
                id::MAX_CONCURRENT_STREAMS => self.max_streams = value,
                id::INITIAL_WINDOW_SIZE if value > MAX => {
                    let what = "SETTINGS frame with incorrect INITIAL_WINDOW_SIZE value";
                    return Err(Fault::connection(ErrorCode::FLOW_CONTROL_ERROR, what));
                }
                id::INITIAL_WINDOW_SIZE => self.window = value,
                id::MAX_FRAME_SIZE => {
                    if !(FRAME_MAX as u32..1 << 24).contains(&value) {
                        return protocol("SETTINGS frame with incorrect MAX_FRAME_SIZE value");
                    }
                    self.frame_max = value;
                }
                id::ENABLE_CONNECT_PROTOCOL => {
                    if value > 1 || self.connect_protocol && value == 0 {
                        return protocol("SETTINGS frame with incorrect ENABLE_CONNECT_PROTOCOL");
                    }
                    self.connect_protocol = value == 1;
                }
                id::NO_RFC7540_PRIORITIES => {
                    if value > 1 {
                        return protocol("SETTINGS frame with incorrect NO_RFC7540_PRIORITIES");
                    }
                    self.no_tree = value == 1;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
