//! Waiting for the client's end.

use crate::conn::Conn;

/// Waits until the client is known to be gone. Of several waiters on one connection (a request and
/// its subrequests) only the first is woken; the others go on as if nothing had happened.
pub(crate) async fn client_end(c: &Conn) {
    if c.sock.closed_by_peer().await.is_err() {
        std::future::pending::<()>().await;
    }
}
