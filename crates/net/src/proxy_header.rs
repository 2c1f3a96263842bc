//! `listen … proxy_protocol`: the header that a balancer sends before the first byte of a
//! connection, in the name of its client.

use std::io;

use base::log::Level;
use event::{Deadline, Gate, Wake};
use mem::Page;
use proto::proxy_protocol::{Header, Parsed, ProxyError, parse};

use crate::Transport;

/// The reason why there is no header.
#[derive(Debug)]
pub enum NoHeader {
    /// The worker wants the connection back.
    Gone,
    /// The client closed the connection before it sent anything.
    Closed,
    /// The client was too slow, or cannot be read from.
    Client(String),
    /// The bytes are no header.
    Malformed(String),
}

impl NoHeader {
    /// The line for the log, with its level.
    pub fn line(&self) -> Option<(Level, &str)> {
        match self {
            NoHeader::Gone => None,
            NoHeader::Closed => Some((Level::Info, "client closed connection")),
            NoHeader::Client(m) => Some((Level::Info, m)),
            NoHeader::Malformed(m) => Some((Level::Error, m)),
        }
    }
}

/// Reads the header within `timeout_ms`, `page` of which was read already; gives the bytes behind
/// it that came with it. A worker that leaves, whose gate is closed, waits for it all the same.
///
/// # Errors
/// The connection is to be closed.
pub async fn read(
    sock: &Transport,
    mut page: Page,
    gate: &Gate,
    timeout_ms: u64,
) -> Result<(Page, Option<Box<Header>>), NoHeader> {
    let until = Deadline::in_ms(timeout_ms);
    if page.is_empty() && sock.try_recv_into(&mut page).map_err(|e| failed(&e))?.is_none() {
        match sock.owed_or(gate, until).await.map_err(|e| failed(&e))? {
            Wake::Ready => {}
            // The worker is leaving: the header may be on its way.
            Wake::Gate => sock.readable(until).await.map_err(|e| failed(&e))?,
            Wake::Reclaim => return Err(NoHeader::Gone),
        }
        receive(sock, &mut page, until).await?;
    }
    loop {
        if page.is_empty() {
            return Err(NoHeader::Closed);
        }
        match parse(&page) {
            Ok(Parsed::Done { len, header }) => {
                page.consume(len);
                if let Some(ip) = header.as_ref().and_then(|header| header.source.ip) {
                    sock.set_client(ip);
                }
                return Ok((page, header));
            }
            Ok(Parsed::More) => {
                if receive(sock, &mut page, until).await? == 0 {
                    // The end in the middle of a header: the bytes so far are not a header.
                    return Err(NoHeader::Malformed(ProxyError::Broken.message(&page)));
                }
            }
            Err(e) => return Err(NoHeader::Malformed(e.message(&page))),
        }
    }
}

/// Receives more of the header; the connection is parked meanwhile.
async fn receive(sock: &Transport, page: &mut Page, until: Deadline) -> Result<usize, NoHeader> {
    sock.recv_owed(page, until).await.map_err(|e| match e.kind() {
        io::ErrorKind::ConnectionAborted => NoHeader::Gone,
        _ => failed(&e),
    })
}

fn failed(e: &io::Error) -> NoHeader {
    NoHeader::Client(match e.kind() {
        io::ErrorKind::TimedOut => "client timed out (110: Connection timed out)".to_owned(),
        _ => format!("recv() failed {}", base::log::os_error(e)),
    })
}
