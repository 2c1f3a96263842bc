//! `listen … proxy_protocol`: the header that a balancer sends before the first request, in the
//! name of its client.

use std::fmt;
use std::io;

use base::log::Level;
use event::{Deadline, Gate, Wake};
use mem::Page;
use proto::proxy_protocol::{Header, Parsed, parse};

use crate::channel::conn::Conn;

/// The reason why there is no header.
enum Fail {
    /// The connection ended, or the worker wants it back: as it may, before its first request.
    Gone,
    /// With a message at this level.
    Say(Level, String),
}

/// Reads the header within `timeout_ms`; gives the bytes behind it that came already.
///
/// # Errors
/// The connection is to be closed; the reason was logged.
pub(crate) async fn read(c: &Conn, gate: &Gate, timeout_ms: u64) -> Result<Page, ()> {
    match receive(c, gate, Deadline::in_ms(timeout_ms)).await {
        Ok((page, header)) => {
            if let Some(h) = header {
                let _ = c.proxy.set(h);
            }
            Ok(page)
        }
        Err(fail) => {
            if let Fail::Say(level, m) = fail {
                say(c, level, format_args!("{m} while reading PROXY protocol"));
            }
            Err(())
        }
    }
}

/// The header, and the bytes behind it.
async fn receive(
    c: &Conn,
    gate: &Gate,
    until: Deadline,
) -> Result<(Page, Option<Box<Header>>), Fail> {
    match c.sock.readable_or(gate, until).await.map_err(|e| failed(&e))? {
        Wake::Ready => {}
        Wake::Gate | Wake::Reclaim => return Err(Fail::Gone),
    }
    let mut page = c.sock.recv(1, until).await.map_err(|e| failed(&e))?;
    loop {
        if page.is_empty() {
            return Err(Fail::Say(Level::Info, "client closed connection".to_owned()));
        }
        match parse(&page) {
            Ok(Parsed::Done { len, header }) => {
                page.consume(len);
                return Ok((page, header));
            }
            Ok(Parsed::More) => {
                let n = c.sock.recv_into(&mut page, until).await.map_err(|e| failed(&e))?;
                if n == 0 {
                    // The end in the middle of a header: the bytes so far are not a header.
                    let m = proto::proxy_protocol::ProxyError::Broken.message(&page);
                    return Err(Fail::Say(Level::Error, m));
                }
            }
            Err(e) => return Err(Fail::Say(Level::Error, e.message(&page))),
        }
    }
}

fn failed(e: &io::Error) -> Fail {
    Fail::Say(
        Level::Info,
        match e.kind() {
            io::ErrorKind::TimedOut => "client timed out (110: Connection timed out)".to_owned(),
            _ => format!("recv() failed {}", base::log::os_error(e)),
        },
    )
}

#[cold]
fn say(c: &Conn, level: Level, m: fmt::Arguments<'_>) {
    let log = &c.listen.default.root.core.error_log;
    if c.log_enabled(log, level) {
        c.log_write(log, level, m, c);
    }
}
