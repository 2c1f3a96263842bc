//! The end of a connection: at once, or by lingering.

use super::connection::After;
use super::stream;
use crate::channel::conn::Conn;
use crate::core_conf::Lingering;
use crate::request::Request;

/// Closing a socket with unread bytes resets it, and the client may lose the answer.
pub(super) fn close_or_linger(c: &Conn, r: &mut Request) -> After {
    if c.has_moved.get() {
        return After::Close;
    }
    let s = stream(r);
    let pending = s.lingering && !s.body.is_finished() || s.input.len() > s.used();
    match r.loc.core.lingering_close {
        Lingering::Off => After::Close,
        Lingering::Always => After::Linger,
        Lingering::On if pending || has_unread(c) => After::Linger,
        Lingering::On => After::Close,
    }
}

/// Whether bytes came that nobody asked for; asks the kernel only where the driver saw some arrive.
fn has_unread(c: &Conn) -> bool {
    matches!(c.sock().try_recv(), Ok(Some(page)) if !page.filled().is_empty())
}
