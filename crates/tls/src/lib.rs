//! TLS: sessions without I/O, keys and certificates, their verification, and the settings' own
//! languages. The types of rustls stay inside of this crate.
#![forbid(unsafe_code)]

mod certificate_compression;
pub mod certified;
pub mod ciphers;
mod client;
pub mod client_sessions;
pub mod conf_command;
mod error;
pub mod groups;
mod info;
pub mod issue;
mod key_log;
pub mod ocsp;
mod peer;
pub mod pem;
pub mod protocols;
pub mod quic;
mod record;
mod server;
mod session;
pub mod session_cache;
mod session_context;
mod signatures;
pub mod stapling;
#[cfg(test)]
mod tests;
pub mod tickets;
pub mod verify;
pub mod x509;

pub use client::{ClientConfig, ClientOptions};
pub use client_sessions::ClientSessions;
pub use error::Error;
pub use info::Info;
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
