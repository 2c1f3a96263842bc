//! Reasons for which something is refused. No text has bytes of a token, a secret or a request.

use std::fmt;

/// The reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The provider's metadata are unusable.
    Metadata(&'static str),
    /// The provider's metadata or keys are no unambiguous JSON, or have no usable key.
    Document(jose::Error),
    /// The request to the redirect URI, or to a URI for logouts, is malformed.
    Request(&'static str),
    /// No login of this browser has the `state`: it is forged, was used, or is too old.
    UnknownState,
    /// The provider's response to a token or user info request is unusable.
    Response(&'static str),
    /// The provider refused, with this error code.
    Refused(String),
    /// A token's signature or form is refused.
    Token(jose::Error),
    /// A claim of a token is missing or has the wrong value.
    Claim(&'static str),
}

impl Error {
    /// Whether other keys of the provider could make the token valid: it may have changed them.
    pub fn may_be_of_other_keys(&self) -> bool {
        use jose::Error::{NoKey, Signature, UnknownKid};
        matches!(self, Error::Token(NoKey | Signature | UnknownKid))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Metadata(what) => write!(f, "metadata of the provider: {what}"),
            Error::Document(e) => write!(f, "document of the provider: {e}"),
            Error::Request(what) => f.write_str(what),
            Error::UnknownState => {
                f.write_str("no login of this browser has the state: forged, used or too old")
            }
            Error::Response(what) => write!(f, "response of the provider: {what}"),
            Error::Refused(code) => write!(f, "the provider refused: {code}"),
            Error::Token(e) => write!(f, "token refused: {e}"),
            Error::Claim(what) => write!(f, "token refused: {what}"),
        }
    }
}

impl std::error::Error for Error {}

/// An error code of the provider (RFC 6749 sections 4.1.2.1 and 5.2), for the log: anything that is
/// none is replaced, because a browser can send whatever it likes.
pub(crate) fn code(text: &str) -> String {
    let is_code = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    match !text.is_empty() && text.len() <= 64 && text.bytes().all(is_code) {
        true => text.to_owned(),
        false => "an error code that is none".to_owned(),
    }
}
