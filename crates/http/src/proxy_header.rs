//! `listen … proxy_protocol`: the line or block that a balancer sends before the first request.

use crate::conn::Conn;

/// Reads the header within `patience_ms`.
pub(crate) async fn read(_c: &Conn, _patience_ms: u64) -> Result<(), ()> {
    Err(())
}
