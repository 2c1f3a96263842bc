//! ACME (RFC 8555), the client's side, without I/O: signed requests, the server's answers, and what
//! follows from them. With challenges for IP addresses (RFC 8738) and by ALPN (RFC 8737), renewal
//! information (RFC 9773) and profiles (draft-ietf-acme-profiles).
//!
//! ```text
//!  directory ─▶ account ─▶ order ─▶ authorizations ─▶ challenges ─▶ finalize ─▶ certificate
//!                            ▲                                                      │
//!                            └───────────────── renewal information ◀───────────────┘
//! ```
//!
//! Each arrow is a [`Call`]: it asks for bytes to be sent ([`Ask`]) and takes the answer, as often
//! as nonces make it necessary.

mod call;
mod identifier;
mod json;
mod jws;
mod links;
mod payload;
mod problem;
mod renewal;
mod resources;
mod timing;

pub use call::{Answer, Ask, Call, Failure, Method, Nonces, NotAsked, Reply};
pub use identifier::{BadIdentifier, Identifier};
pub use jws::{SignFailed, Signer, external_account, key_authorization, thumbprint};
pub use links::resolve;
pub use payload::{finalize, find_account, key_change, new_account, new_order};
pub use problem::Problem;
pub use renewal::{RenewalInfo, certificate_id, moment, window_of};
pub use resources::{
    Account, Authorization, AuthorizationStatus, Challenge, ChallengeStatus, Directory, Order,
    OrderStatus, OrderStep,
};
pub use timing::{Backoff, parse_rfc3339, retry_after};

/// The longest answer that is read, bytes: certificates with their chains have less than 20 KB.
pub const ANSWER_MAX: usize = 256 << 10;

/// An answer that is not what it has to be; the part that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the server sent {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Appends the text of `bytes` in the alphabet for URLs, without padding.
fn base64url(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    base::base64::encode_url(bytes, &mut out);
    String::from_utf8(out).expect("the alphabet is ASCII")
}

#[cfg(test)]
mod tests;
