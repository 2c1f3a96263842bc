//! TLS: sessions without I/O, and the settings' own languages. The types of rustls stay inside this
//! crate; certificates and their verification are in the crate `pki`, which does not know it.
//!
//! A connection under TLS is another kind of `net::Transport`, so the engines do not know of it. A
//! server's settings are `common_modules::ssl`, those of TLS to servers `upstream::ssl`, the same
//! for all engines. Files are read once per configuration (`engine::tls_objects`).
//!
//! 1. **Hello.** `common_modules::ssl::handshake` waits for the client's hello. `proto::tls_hello`
//!    parses it before there is a session, so the server is chosen by name with all of its
//!    settings; certificate names with variables are evaluated then. A client that speaks plain
//!    text continues in plain text and gets an error response.
//! 2. **Handshake.** [`Session`] uses rustls's unbuffered interface. With `ssl_handshake_threads`
//!    the session goes to a thread of a pool for each hello, with the received bytes ([`Step`],
//!    `net::transport::shake`); until it comes back, nothing of it is left at the connection.
//!    Keys of TLS 1.3 are derived by `kdf`, not by the library.
//! 3. **Records.** After the handshake the secrets go to our own record layer ([`record`], some 250
//!    lines), because rustls's allocates for each record and copies it three times. Records are
//!    sealed in a buffer of the worker, which stays in the processor's cache, and are opened in
//!    place. An idle connection holds no buffer.
//! 4. **Client certificates.** The handshake only checks that the client has the certificate's key,
//!    by its signature. The chain is checked by [`pki::verify`] when a request arrives, because a
//!    client with a bad chain gets an HTTP response (495, 496), which a failed handshake could not
//!    carry.
//! 5. **Resumption** from tickets or from a zone. Both carry a hash of the server's certificates
//!    and rules ([`SessionContext`]); without it, a session of one server would open another.
#![forbid(unsafe_code)]

mod certificate_compression;
pub mod certified;
pub mod ciphers;
mod client;
pub(crate) mod client_sessions;
pub mod conf_command;
mod config_error;
mod error;
pub mod groups;
mod info;
mod kdf;
mod key_log;
mod peer;
pub mod protocols;
pub mod quic;
mod record;
mod server;
mod session;
pub mod session_cache;
mod session_context;
mod signatures;
#[cfg(test)]
mod tests;
pub mod tickets;

pub use client::{ClientConfig, ClientOptions};
pub use client_sessions::ClientSessions;
pub use config_error::ConfigError;
pub use error::Error;
pub use info::{Info, Own};
pub use key_log::KeyLog;
pub use record::MAX_PLAIN;
pub use server::{ServerConfig, ServerOptions, VerifyMode};
pub use session::{Received, Session, Step, Taken};
pub use session_cache::{SessionCache, SharedSessions};
pub use session_context::SessionContext;
pub use tickets::{SharedKeys, TicketKey, Tickets};

/// Seconds since 1970, read now: the cached time is that of the loop, and handshakes may run on
/// other threads.
fn unix_secs() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // A system clock before 1970 reads as 1970.
    now.unwrap_or_default().as_secs()
}
