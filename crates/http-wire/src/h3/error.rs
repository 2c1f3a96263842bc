//! Codes of errors (RFC 9114 section 8.1, RFC 9204 section 6), and what ends by a fault.

/// The reason for the end of a stream or a connection, as QUIC carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
#[allow(missing_docs)]
pub enum Code {
    NoError = 0x100,
    GeneralProtocolError = 0x101,
    InternalError = 0x102,
    StreamCreationError = 0x103,
    ClosedCriticalStream = 0x104,
    FrameUnexpected = 0x105,
    FrameError = 0x106,
    ExcessiveLoad = 0x107,
    IdError = 0x108,
    SettingsError = 0x109,
    MissingSettings = 0x10a,
    RequestRejected = 0x10b,
    RequestCancelled = 0x10c,
    RequestIncomplete = 0x10d,
    MessageError = 0x10e,
    ConnectError = 0x10f,
    VersionFallback = 0x110,
    QpackDecompressionFailed = 0x200,
    QpackEncoderStreamError = 0x201,
    QpackDecoderStreamError = 0x202,
}

impl Code {
    /// All of them.
    pub const ALL: [Code; 20] = [
        Code::NoError,
        Code::GeneralProtocolError,
        Code::InternalError,
        Code::StreamCreationError,
        Code::ClosedCriticalStream,
        Code::FrameUnexpected,
        Code::FrameError,
        Code::ExcessiveLoad,
        Code::IdError,
        Code::SettingsError,
        Code::MissingSettings,
        Code::RequestRejected,
        Code::RequestCancelled,
        Code::RequestIncomplete,
        Code::MessageError,
        Code::ConnectError,
        Code::VersionFallback,
        Code::QpackDecompressionFailed,
        Code::QpackEncoderStreamError,
        Code::QpackDecoderStreamError,
    ];

    /// Its number on the wire.
    #[inline]
    pub const fn number(self) -> u64 {
        self as u64
    }
}

/// The extent of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ends {
    /// The stream on which it came, in both directions.
    Stream,
    /// The connection ends.
    Connection,
}

/// Something that may not be received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The stream or the connection ends by it.
    pub ends: Ends,
    /// The code for the peer.
    pub code: Code,
    /// The fault in words, for the log, behind `client sent `.
    pub what: &'static str,
}

impl Fault {
    /// A fault that ends the connection.
    #[cold]
    pub const fn connection(code: Code, what: &'static str) -> Fault {
        Fault { ends: Ends::Connection, code, what }
    }

    /// A fault that ends a stream.
    #[cold]
    pub const fn stream(code: Code, what: &'static str) -> Fault {
        Fault { ends: Ends::Stream, code, what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_their_numbers() {
        let numbers = Code::ALL.map(Code::number);
        let expected: Vec<u64> = (0x100..=0x110).chain(0x200..=0x202).collect();
        assert_eq!(numbers[..], expected[..]);
    }
}
