//! LDAP (RFC 4511) as far as a client needs it that finds users and checks their passwords: simple
//! binds, searches for names, StartTLS.
//!
//! Values of requests are never put into a filter's text: a filter is built in its binary form, so
//! that no name of a user can add to it.
//!
//! ```text
//!  ldap://host/dc=example,dc=com?uid?sub?(objectClass=person)   Url
//!                                        └──── Filter::parse ┘
//!  request::{bind, search, start_tls} ─▶ bytes ─▶ server ─▶ bytes ─▶ response::parse
//! ```

mod ber;
mod filter;
pub mod request;
pub mod response;
mod url;

pub use filter::{Filter, escape};
pub use request::Scope;
pub use response::{Message, Operation, Outcome, Parsed};
pub use url::{BadUrl, Url};

/// The longest response, bytes. Entries are requested without attributes, so a longer one is no
/// answer to a request from here.
pub const MESSAGE_MAX: usize = 256 << 10;

/// The object identifier of StartTLS (RFC 4511 section 4.14), and of its response.
pub const START_TLS: &[u8] = b"1.3.6.1.4.1.1466.20037";

/// The object identifier of the unsolicited notice of disconnection (RFC 4511 section 4.4.1).
pub const DISCONNECTION: &[u8] = b"1.3.6.1.4.1.1466.20036";
