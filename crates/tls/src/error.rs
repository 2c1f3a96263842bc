//! Why a session failed.

use std::fmt;

use rustls::{CertificateError, InvalidMessage, PeerMisbehaved};

use crate::record::alert;

/// A session's fault, and the alert that tells the peer.
#[derive(Clone, Debug)]
pub struct Error {
    /// The description of the alert to send; `None` when the peer sent one itself.
    pub(crate) alert: Option<u8>,
    /// The peer's fault, or its mere wish: nothing that an operator can mend.
    by_peer: bool,
    /// The peer ended the session itself.
    is_end_by_peer: bool,
    text: String,
}

impl Error {
    /// The peer did something that it may not do.
    pub(crate) fn peer(alert: u8, text: impl Into<String>) -> Error {
        Error { alert: Some(alert), by_peer: true, is_end_by_peer: false, text: text.into() }
    }

    /// The peer ended the session with an alert.
    pub(crate) fn told(text: impl Into<String>) -> Error {
        Error { alert: None, by_peer: true, is_end_by_peer: true, text: text.into() }
    }

    /// A fault of our own.
    pub(crate) fn internal(text: impl Into<String>) -> Error {
        let (alert, text) = (Some(alert::INTERNAL_ERROR), text.into());
        Error { alert, by_peer: false, is_end_by_peer: false, text }
    }

    /// An error of rustls in a handshake that it sent no alert for, which peers and tests of
    /// protocols expect.
    pub(crate) fn unsent(error: &rustls::Error) -> Error {
        let mut own = Error::rustls(error);
        own.alert = match error {
            rustls::Error::AlertReceived(_) => None,
            rustls::Error::InvalidMessage(_) => {
                Error::better_alert(error).or(Some(alert::DECODE_ERROR))
            }
            rustls::Error::PeerMisbehaved(
                PeerMisbehaved::RejectedEarlyDataInterleavedWithHandshakeMessage,
            ) => Some(alert::BAD_RECORD_MAC),
            rustls::Error::PeerMisbehaved(_) => Some(alert::UNEXPECTED_MESSAGE),
            // In TLS 1.2: the client cannot verify what our key can sign.
            rustls::Error::General(text) if text == "incompatible signing key" => {
                let text = rustls::PeerIncompatible::NoSignatureSchemesInCommon;
                (own.by_peer, own.text) = (true, rustls::Error::from(text).to_string());
                Some(alert::HANDSHAKE_FAILURE)
            }
            _ => Some(alert::INTERNAL_ERROR),
        };
        own
    }

    /// The alert for a fault that the library has a wrong one for.
    pub(crate) fn better_alert(error: &rustls::Error) -> Option<u8> {
        let error = match error {
            rustls::Error::InvalidMessage(error) => error,
            // It is no certificate, rather than a bad one.
            rustls::Error::InvalidCertificate(CertificateError::BadEncoding) => {
                return Some(alert::DECODE_ERROR);
            }
            // RFC 7627 section 5.3 has the handshake aborted, as it is with OpenSSL.
            rustls::Error::PeerMisbehaved(PeerMisbehaved::ResumptionAttemptedWithVariedEms) => {
                return Some(alert::HANDSHAKE_FAILURE);
            }
            _ => return None,
        };
        match error {
            // RFC 8446 section 5: another type, a CCS that is none, more than one in a record, a
            // fragment of no bytes.
            InvalidMessage::InvalidContentType
            | InvalidMessage::InvalidCcs
            | InvalidMessage::TrailingData("ChangeCipherSpecPayload")
            | InvalidMessage::InvalidEmptyPayload => Some(alert::UNEXPECTED_MESSAGE),
            InvalidMessage::MessageTooLarge => Some(alert::RECORD_OVERFLOW),
            InvalidMessage::UnknownProtocolVersion => Some(alert::PROTOCOL_VERSION),
            _ => None,
        }
    }

    /// rustls's error; it has sent the alert.
    pub(crate) fn rustls(error: &rustls::Error) -> Error {
        let by_peer = !matches!(
            error,
            rustls::Error::General(_)
                | rustls::Error::FailedToGetCurrentTime
                | rustls::Error::FailedToGetRandomBytes
        );
        let text = match error {
            rustls::Error::AlertReceived(alert) => alert_text(u8::from(*alert)),
            other => other.to_string(),
        };
        let is_end_by_peer = matches!(error, rustls::Error::AlertReceived(_));
        Error { alert: None, by_peer, is_end_by_peer, text }
    }

    /// Whether the peer ended the session itself, so that it wants to hear no reason.
    pub fn is_end_by_peer(&self) -> bool {
        self.is_end_by_peer
    }

    /// Whether the fault is the peer's: a line of level info, no more.
    pub fn is_by_peer(&self) -> bool {
        self.by_peer
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// An alert of the peer, in OpenSSL's words.
pub(crate) fn alert_text(description: u8) -> String {
    let name = match description {
        10 => "unexpected message",
        20 => "bad record mac",
        22 => "record overflow",
        40 => "handshake failure",
        42 => "bad certificate",
        43 => "unsupported certificate",
        44 => "certificate revoked",
        45 => "certificate expired",
        46 => "certificate unknown",
        47 => "illegal parameter",
        48 => "unknown ca",
        49 => "access denied",
        50 => "decode error",
        51 => "decrypt error",
        70 => "protocol version",
        71 => "insufficient security",
        80 => "internal error",
        86 => "inappropriate fallback",
        90 => "user cancelled",
        100 => "no renegotiation",
        109 => "missing extension",
        110 => "unsupported extension",
        112 => "unrecognized name",
        113 => "bad certificate status response",
        115 => "unknown psk identity",
        116 => "certificate required",
        120 => "no application protocol",
        other => return format!("alert number {other}"),
    };
    format!("alert {name}: SSL alert number {description}")
}
