//! The first message of a TLS client, ClientHello (RFC 8446 §4.1.2), before a session exists.
//!
//! [`parse`] takes the bytes of a connection from its beginning: records, in which the message may
//! be split and joined at any byte. [`parse_message`] takes the message alone, as QUIC carries it.
//! The structure of the message and of the extensions that [`ClientHello`] shows is checked;
//! whether a handshake can come of it is the TLS library's decision.
//!
//! [`fingerprint`] has JA3 and JA4 of a hello, [`crate::tls_names`] the names of its numbers.

mod error;
pub mod fingerprint;
mod loose;
mod message;
mod records;
mod view;

pub use error::Malformed;
pub use loose::{LooseHello, loose};
pub use view::{Alpn, ClientHello, Extension, Extensions, U16s};

/// The most bytes that a hello may take, the headers of its records included. Hellos with
/// post-quantum keys take 2 KB, with a ticket that holds a chain of certificates 20 KB.
pub const INPUT_MAX: usize = 1 << 16;

/// Numbers of extensions.
pub mod extension {
    /// The name of the server that the client wants.
    pub const SERVER_NAME: u16 = 0;
    /// Groups for the key exchange.
    pub const SUPPORTED_GROUPS: u16 = 10;
    /// Forms of points on curves.
    pub(crate) const EC_POINT_FORMATS: u16 = 11;
    /// Signature schemes that the client verifies.
    pub const SIGNATURE_ALGORITHMS: u16 = 13;
    /// Application protocols.
    pub const ALPN: u16 = 16;
    /// Algorithms for compressed certificates (RFC 8879).
    pub(crate) const COMPRESS_CERTIFICATE: u16 = 27;
    /// A session ticket of TLS 1.2 (RFC 5077).
    pub const SESSION_TICKET: u16 = 35;
    /// Keys of earlier sessions.
    pub const PRE_SHARED_KEY: u16 = 41;
    /// Data follows the hello at once.
    pub(crate) const EARLY_DATA: u16 = 42;
    /// Versions of TLS.
    pub(crate) const SUPPORTED_VERSIONS: u16 = 43;
    /// Key shares.
    pub const KEY_SHARE: u16 = 51;
    /// The handshake that this one renegotiates (RFC 5746).
    pub const RENEGOTIATION_INFO: u16 = 0xff01;
    /// An encrypted hello inside this one (RFC 9849).
    pub const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
}

/// The result of [`parse`].
#[derive(Debug)]
pub enum Verdict<'a> {
    /// The hello is not complete.
    Incomplete {
        /// The length of input, bytes, below which it stays so. A caller that waits for it parses a
        /// hello a few times only, however small its records are.
        wanted: usize,
    },
    /// This is no TLS: plain text, or anything else that begins otherwise.
    NotTls,
    /// Something else than a well-formed hello in TLS.
    Malformed(Malformed),
    /// A hello.
    Hello(ClientHello<'a>),
}

/// Reads the hello at the beginning of a connection. After [`Verdict::Incomplete`], call again with
/// more bytes behind the same. A beginning of an input has the verdict of the whole or is
/// incomplete.
///
/// Bytes are copied only when the message is split over records.
pub fn parse(input: &[u8]) -> Verdict<'_> {
    match records::gather(input) {
        Ok(records::Gathered { message, len }) => match message::read(message, len) {
            Ok(hello) => Verdict::Hello(hello),
            Err(malformed) => Verdict::Malformed(malformed),
        },
        Err(records::Stop::Incomplete { wanted }) => Verdict::Incomplete { wanted },
        Err(records::Stop::NotTls) => Verdict::NotTls,
        Err(records::Stop::Malformed(malformed)) => Verdict::Malformed(malformed),
    }
}

/// Reads the hello at the beginning of a handshake's messages, as QUIC carries them without
/// records. The verdict is never [`Verdict::NotTls`].
pub fn parse_message(input: &[u8]) -> Verdict<'_> {
    let read = || {
        let Some(head) = records::Head::read(input)? else { return Ok(None) };
        let total = head.total();
        if total > INPUT_MAX {
            return Err(Malformed::TooLong);
        }
        let Some(body) = input.get(records::Head::LEN..total) else { return Ok(None) };
        message::read(body.into(), total).map(Some)
    };
    match read() {
        Ok(Some(hello)) => Verdict::Hello(hello),
        Ok(None) => {
            let total = records::Head::read(input).ok().flatten().map(|head| head.total());
            Verdict::Incomplete { wanted: total.unwrap_or(records::Head::LEN) }
        }
        Err(malformed) => Verdict::Malformed(malformed),
    }
}

/// Whether a number of a cipher suite, an extension, a group, a signature scheme or a version is
/// reserved for GREASE (RFC 8701): clients send such numbers to see that servers ignore them.
pub(crate) fn is_grease(number: u16) -> bool {
    number & 0x0f0f == 0x0a0a && number >> 8 == number & 0xff
}

#[cfg(test)]
mod tests;
