//! `listen … proxy_protocol`: the header that a balancer sends before the first request.

use event::Gate;
use mem::Page;

use crate::channel::conn::Conn;

/// Reads the rest of the header (after `read`) within `timeout_ms`; returns the bytes after it.
///
/// # Errors
/// The connection is to be closed; the reason was logged.
pub(crate) async fn read(c: &Conn, read: Page, gate: &Gate, timeout_ms: u64) -> Result<Page, ()> {
    match net::proxy_header::read(c.sock(), read, gate, timeout_ms).await {
        Ok((page, header)) => {
            if let Some(h) = header {
                let _ = c.proxy.set(h);
            }
            c.look_for_room();
            Ok(page)
        }
        Err(none) => {
            let log = &c.listen.default.root.core.error_log;
            if let Some((level, m)) = none.line().filter(|(level, _)| c.log_enabled(log, *level)) {
                let m = format_args!("{m} while reading PROXY protocol");
                c.log_write(log, level, m, c);
            }
            Err(())
        }
    }
}
