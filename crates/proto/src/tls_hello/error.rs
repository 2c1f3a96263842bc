//! The faults of a hello, each with its alert.

use std::fmt;

/// Why a hello is refused. The text is the reason that OpenSSL gives, as nginx logs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// A hello of SSL 2, perhaps for the newer version it names: `0x0002`, or `0x03xx`.
    Sslv2(u16),
    /// A record that is not of SSL 3 or TLS.
    RecordVersion,
    /// A record longer than RFC 8446 §5.1 allows.
    RecordTooLong,
    /// A record without content, which §5.1 forbids.
    EmptyRecord,
    /// A record of another kind inside the hello.
    UnexpectedRecord,
    /// Another message of the handshake.
    UnexpectedMessage,
    /// Longer than [`INPUT_MAX`](super::INPUT_MAX).
    TooLong,
    /// There is no memory to join the parts of the hello.
    NoMemory,
    /// A length that contradicts another one.
    LengthMismatch,
    /// No cipher suite.
    NoCiphers,
    /// No compression method, not even the null one.
    NoCompression,
    /// An extension that breaks its own rules, or the list that holds it.
    BadExtension(u16),
    /// An extension that comes twice.
    DuplicateExtension(u16),
    /// `pre_shared_key` is not the last extension.
    PskNotLast,
    /// A server name that is too long or has a zero byte.
    ServerName,
}

impl Malformed {
    /// The alert's description for the client (RFC 8446 §6).
    pub fn alert(self) -> u8 {
        const UNEXPECTED_MESSAGE: u8 = 10;
        const RECORD_OVERFLOW: u8 = 22;
        const ILLEGAL_PARAMETER: u8 = 47;
        const DECODE_ERROR: u8 = 50;
        const PROTOCOL_VERSION: u8 = 70;
        const INTERNAL_ERROR: u8 = 80;
        const UNRECOGNIZED_NAME: u8 = 112;
        match self {
            Malformed::Sslv2(_) | Malformed::RecordVersion => PROTOCOL_VERSION,
            Malformed::RecordTooLong => RECORD_OVERFLOW,
            Malformed::UnexpectedRecord | Malformed::UnexpectedMessage => UNEXPECTED_MESSAGE,
            Malformed::TooLong
            | Malformed::NoCiphers
            | Malformed::DuplicateExtension(_)
            | Malformed::PskNotLast => ILLEGAL_PARAMETER,
            Malformed::NoMemory => INTERNAL_ERROR,
            Malformed::EmptyRecord
            | Malformed::LengthMismatch
            | Malformed::NoCompression
            | Malformed::BadExtension(_) => DECODE_ERROR,
            Malformed::ServerName => UNRECOGNIZED_NAME,
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::Sslv2(_) => "unsupported protocol",
            Malformed::RecordVersion => "wrong version number",
            Malformed::RecordTooLong => "packet length too long",
            Malformed::EmptyRecord => "bad length",
            Malformed::UnexpectedRecord => "unexpected record",
            Malformed::UnexpectedMessage => "unexpected message",
            Malformed::TooLong => "excessive message size",
            Malformed::NoMemory => "malloc failure",
            Malformed::LengthMismatch => "length mismatch",
            Malformed::NoCiphers => "no ciphers specified",
            Malformed::NoCompression => "no compression specified",
            Malformed::BadExtension(_)
            | Malformed::DuplicateExtension(_)
            | Malformed::PskNotLast
            | Malformed::ServerName => "bad extension",
        })
    }
}

impl std::error::Error for Malformed {}
