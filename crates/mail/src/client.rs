//! What a session says to its client before the proxied part, and how it ends then. Shared by the
//! dialogue and by the login at the mail server, which the dialogue calls.

use std::io;

use base::log::Level;
use bytes::Bytes;
use engine::Client;
use event::Deadline;
use mem::Chain;
use net::Transport;

use crate::session::MailSession;

/// The session is over; the connection is to be closed.
pub(crate) struct Over;

/// A client that is logged in at its mail server.
pub(crate) struct LoggedIn {
    /// The connection to it.
    pub server: Transport,
    /// The bytes that the client is sent before the server's further ones.
    pub first: Vec<u8>,
    /// The bytes that the client has sent already.
    pub pending: Vec<u8>,
}

/// Tells the client that something here is wrong: the session is over.
pub(crate) async fn internal_error(s: &MailSession) -> Over {
    let text = s.server.dialogue.protocol.internal_error();
    let until = Deadline::in_ms(s.server.core.timeout);
    send(s, Bytes::from_static(text), until).await.err().unwrap_or(Over)
}

/// Sends a text to the client.
pub(crate) async fn send(s: &MailSession, text: Bytes, until: Deadline) -> Result<(), Over> {
    let Some(sock) = s.sock() else { return Err(Over) };
    let mut chain = Chain::new();
    chain.push_bytes(text);
    sock.send(&mut chain, until).await.map_err(|e| gone(s, &e, "send()"))
}

/// Tells the log why a client is gone.
pub(crate) fn gone(s: &MailSession, e: &io::Error, what: &str) -> Over {
    if e.kind() == io::ErrorKind::TimedOut && e.raw_os_error().is_none() {
        s.log(Level::Info, format_args!("client timed out (110: Connection timed out)"));
    } else {
        match e.kind() {
            io::ErrorKind::OutOfMemory => s.tell_displaced(),
            _ => s.log_os(Level::Info, format_args!("{what}"), e),
        }
    }
    Over
}
