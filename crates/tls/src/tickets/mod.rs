//! Session tickets: sessions that the client keeps, sealed with a key of ours.
//!
//! ```text
//!  ┌──────────┬───────────┬───────────────────────────────┬───────┐
//!  │ key name │   nonce   │ time of creation ‖ session    │  tag  │   16 + 12 + 8 + n + 16 bytes
//!  └──────────┴───────────┴───────────────────────────────┴───────┘
//!                         sealed, bound to the key's name and the session context
//! ```
//!
//! Tickets are sealed with AES-256-GCM-SIV: keys of files may be used for years, and random nonces
//! would make a key of plain GCM unsafe after 2³² tickets.

mod key;
mod shared;

pub use key::{BadKeyFile, TicketKey};
pub use shared::SharedKeys;

use std::fmt;
use std::sync::Arc;

use rustls::server::ProducesTickets;

use crate::SessionContext;

/// The longest session in bytes that is put into a ticket. Client certificates are part of it, and
/// the client sends a ticket in its first flight.
const SESSION_MAX: usize = 16 << 10;

/// The longest lifetime that TLS 1.3 allows (RFC 8446, section 4.6.1), in seconds.
const LIFETIME_MAX_S: u32 = 7 * 24 * 60 * 60;

/// The lifetime that clients are told of sessions with this timeout, in seconds.
pub(crate) fn announced(timeout_s: u32) -> u32 {
    timeout_s.min(LIFETIME_MAX_S)
}

/// The tickets of one server's configuration.
#[derive(Clone)]
pub struct Tickets(Arc<Ticketer>);

struct Ticketer {
    keys: Keys,
    context: SessionContext,
    timeout_s: u32,
}

enum Keys {
    /// The first encrypts, all decrypt.
    Files(Vec<TicketKey>),
    Shared(SharedKeys),
}

impl Tickets {
    /// Tickets with keys from files (`ssl_session_ticket_key`). The first key encrypts. Sessions
    /// end after `timeout_s` seconds (`ssl_session_timeout`). `None` without a key.
    pub fn with_keys(
        keys: Vec<TicketKey>,
        context: SessionContext,
        timeout_s: u32,
    ) -> Option<Tickets> {
        let keys = (!keys.is_empty()).then_some(Keys::Files(keys))?;
        Some(Tickets(Arc::new(Ticketer { keys, context, timeout_s })))
    }

    /// Tickets with random keys that all workers share. The keys are replaced in time for sessions
    /// of `timeout_s` seconds (`ssl_session_timeout`).
    pub fn with_shared(keys: &SharedKeys, context: SessionContext, timeout_s: u32) -> Tickets {
        keys.serve(timeout_s);
        let keys = Keys::Shared(keys.clone());
        Tickets(Arc::new(Ticketer { keys, context, timeout_s }))
    }

    /// Seals a session at `now`, in seconds since 1970. `None` when it is too long for a ticket or
    /// the system has no random bytes.
    pub fn seal(&self, now: u64, session: &[u8]) -> Option<Vec<u8>> {
        if session.len() > SESSION_MAX {
            return None;
        }
        let Ticketer { keys, context, .. } = &*self.0;
        match keys {
            Keys::Files(keys) => keys.first()?.seal(context, now, session),
            Keys::Shared(keys) => keys.at(now)?.current.seal(context, now, session),
        }
    }

    /// The session of a ticket at `now`, in seconds since 1970. `None` unless the ticket was sealed
    /// with one of the keys, for this context, and within the timeout.
    pub fn open(&self, now: u64, ticket: &[u8]) -> Option<Vec<u8>> {
        let Ticketer { keys, context, timeout_s } = &*self.0;
        let (created, session) = match keys {
            Keys::Files(keys) => keys.iter().find_map(|key| key.open(context, ticket))?,
            Keys::Shared(keys) => {
                let keys = keys.at(now)?;
                let current = keys.current.open(context, ticket);
                current.or_else(|| keys.previous.as_ref()?.open(context, ticket))?
            }
        };
        // A ticket of another machine may be from a clock that is ahead.
        (now.saturating_sub(created) < u64::from(*timeout_s)).then_some(session)
    }

    pub(crate) fn producer(&self) -> Arc<dyn ProducesTickets> {
        Arc::new(self.clone())
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        announced(self.0.timeout_s)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(crate::unix_secs(), plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(crate::unix_secs(), cipher)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ticketer { keys, context, timeout_s } = &*self.0;
        let keys = match keys {
            Keys::Files(keys) => keys.len(),
            Keys::Shared(_) => 2,
        };
        write!(f, "Tickets {{ keys: {keys}, {context:?}, timeout_s: {timeout_s} }}")
    }
}

#[cfg(test)]
mod tests;
