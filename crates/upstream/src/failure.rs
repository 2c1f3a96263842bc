//! Log lines of connections to servers that failed, in the words that every engine has for them.

use std::io;

use base::log::{Level, lossy, os_error};
use engine::Client;

use crate::peer::Peer;
use crate::ssl::NoSession;

/// The words of log lines for a handshake.
pub const SHAKING: &str = "SSL handshaking to upstream";

/// The fault of an attempt to reach a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotReached {
    /// The server's, or the way's: it took too long.
    Late,
    /// The server's, or the way's.
    Failed,
    /// Ours: no server can be reached so.
    Ours,
}

/// Whether an error of a socket is the network's doing: EPIPE, ECONNRESET, ETIMEDOUT and their
/// like.
pub fn by_network(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), None | Some(32 | 100 | 101 | 104 | 107 | 110..=113))
}

/// Whether a failed send leaves a connection that may still have a response: the peer has closed
/// or reset it, so that the end of what it sent is near. A file that became shorter while it was
/// sent, for example, leaves a peer that waits for the rest.
pub fn may_have_answered(e: &io::Error) -> bool {
    e.kind() != io::ErrorKind::UnexpectedEof && by_network(e)
}

/// Nothing came, or nothing was taken, in time.
#[cold]
pub fn timed_out(client: &dyn Client, doing: &str) {
    let m = "upstream timed out (110: Connection timed out) while";
    client.log(Level::Error, format_args!("{m} {doing}"));
}

/// No connection came about.
#[cold]
pub fn not_connected(client: &dyn Client, peer: &Peer, e: &io::Error) -> NotReached {
    const DOING: &str = "connecting to upstream";
    if e.kind() == io::ErrorKind::TimedOut && e.raw_os_error().is_none() {
        timed_out(client, DOING);
        return NotReached::Late;
    }
    // A refusal at once is logged with the address, as nginx does.
    let later =
        !peer.spec.addr.is_unix() && matches!(e.raw_os_error(), Some(104 | 110 | 111 | 113));
    let to = match later {
        true => String::new(),
        false => format!("to {} ", lossy(&peer.name)),
    };
    let busy = e.kind() == io::ErrorKind::WouldBlock;
    let level = if busy || by_network(e) { Level::Error } else { Level::Crit };
    client.log(level, format_args!("connect() {to}failed {} while {DOING}", os_error(e)));
    NotReached::Failed
}

/// No session of TLS came about over a connection.
#[cold]
pub fn no_session(client: &dyn Client, fault: &NoSession) -> NotReached {
    match fault {
        NoSession::TimedOut => {
            timed_out(client, SHAKING);
            NotReached::Late
        }
        NoSession::Failed(level, m) => {
            client.log(*level, format_args!("{m} while {SHAKING}"));
            NotReached::Failed
        }
        NoSession::NoCertificate(m) => {
            client.log(Level::Error, format_args!("{m} while {SHAKING}"));
            NotReached::Ours
        }
    }
}
