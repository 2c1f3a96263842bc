//! The end of a connection whose client may still be sending: closing it at once would reset it,
//! and take the last answer from the client.

use event::Deadline;
use mem::Page;

use super::conn::Conn;

/// Drops the client's remaining bytes, for `lingering_time` at most; closed first if room is short.
pub(crate) async fn linger(c: &Conn) {
    let core = c.server().root.core.clone();
    if c.sock().shutdown_write().is_err() {
        return;
    }
    let end = Deadline::in_ms(core.lingering_time);
    let mut page = Page::new();
    while !end.has_passed() {
        let step = Deadline::in_ms(core.lingering_timeout);
        match c.sock().recv_owed(&mut page, step).await {
            Ok(n) if n > 0 => page.clear(),
            _ => return,
        }
    }
}
