//! The end of a connection whose client may still be sending: closing it at once would reset it,
//! and take the last answer from the client.

use event::Deadline;

use super::conn::Conn;

/// Reads and drops the client's remaining bytes, for `lingering_time` at most.
pub(crate) async fn linger(c: &Conn) {
    let core = c.server().root.core.clone();
    if c.sock.shutdown_write().is_err() {
        return;
    }
    let end = Deadline::in_ms(core.lingering_time);
    while !end.has_passed() {
        let step = Deadline::in_ms(core.lingering_timeout);
        match c.sock.recv(1, step).await {
            Ok(page) if !page.filled().is_empty() => {}
            _ => return,
        }
    }
}
