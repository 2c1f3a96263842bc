//! The results of a session's tries to reach a server: for `$upstream_…` and log lines.

use base::ascii::{write_millis, write_u64};
use base::time::now_ms;
use bytes::Bytes;
use engine::metrics::RowId;

use crate::module::VarDef;
use crate::session::StreamSession;

/// One server that was tried.
#[derive(Clone, Debug, Default)]
pub struct Attempt {
    /// Its address, or the group's name where no server was live.
    pub peer: Bytes,
    start_ms: u64,
    pub(crate) connect_ms: Option<u64>,
    pub(crate) first_byte_ms: Option<u64>,
    pub(crate) session_ms: Option<u64>,
    /// The server's counters.
    pub row: Option<RowId>,
    /// Bytes sent to it.
    pub sent: u64,
    /// Bytes received from it.
    pub received: u64,
}

/// All servers that were tried.
#[derive(Debug, Default)]
pub struct Exchanges {
    attempts: Vec<Attempt>,
    is_connected: bool,
}

impl Exchanges {
    /// Another server is tried.
    pub fn begin(&mut self, peer: Bytes, row: Option<RowId>) {
        self.is_connected = false;
        // One attempt is all that most sessions have.
        self.attempts.reserve_exact(1);
        self.attempts.push(Attempt { peer, start_ms: now_ms(), row, ..Attempt::default() });
    }

    /// All of them.
    pub(crate) fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// The present one.
    pub fn now(&mut self) -> Option<&mut Attempt> {
        self.attempts.last_mut()
    }

    /// The connection stands.
    pub fn connected(&mut self) {
        self.is_connected = true;
        if let Some(a) = self.now() {
            a.connect_ms = Some(now_ms().saturating_sub(a.start_ms));
        }
    }

    /// Its first byte came `ms` milliseconds after the connection stood.
    pub fn first_byte(&mut self, ms: u64) {
        if let Some(a) = self.now() {
            a.first_byte_ms.get_or_insert(a.connect_ms.unwrap_or(0) + ms);
        }
    }

    /// Its first byte came now.
    pub fn first_byte_now(&mut self) {
        if let Some(a) = self.now() {
            a.first_byte_ms.get_or_insert(now_ms().saturating_sub(a.start_ms));
        }
    }

    /// Milliseconds until the first byte of the present one.
    pub fn first_byte_ms(&self) -> Option<u64> {
        self.attempts.last()?.first_byte_ms
    }

    /// It is over.
    pub fn over(&mut self) {
        if let Some(a) = self.now() {
            a.session_ms = Some(now_ms().saturating_sub(a.start_ms));
        }
    }

    /// The server of the present attempt.
    pub fn peer(&self) -> Option<&Bytes> {
        self.attempts.last().map(|a| &a.peer)
    }

    /// Bytes from and to the server, while a connection stands.
    pub fn bytes_now(&self) -> Option<(u64, u64)> {
        let a = self.attempts.last().filter(|_| self.is_connected)?;
        Some((a.received, a.sent))
    }

    fn write(&self, out: &mut Vec<u8>, write: fn(&Attempt, &mut Vec<u8>)) {
        for (i, attempt) in self.attempts.iter().enumerate() {
            if i > 0 {
                out.extend_from_slice(b", ");
            }
            write(attempt, out);
        }
    }
}

/// `$upstream_…`
pub(crate) static VARIABLES: &[VarDef] = &[
    VarDef::new("upstream_addr", |s, out| each(s, out, |a, out| out.extend_from_slice(&a.peer))),
    VarDef::new("upstream_bytes_sent", |s, out| each(s, out, |a, out| write_u64(out, a.sent))),
    VarDef::new("upstream_bytes_received", |s, out| {
        each(s, out, |a, out| write_u64(out, a.received))
    }),
    VarDef::new("upstream_connect_time", |s, out| each(s, out, |a, out| millis(a.connect_ms, out))),
    VarDef::new("upstream_first_byte_time", |s, out| {
        each(s, out, |a, out| millis(a.first_byte_ms, out))
    }),
    VarDef::new("upstream_session_time", |s, out| each(s, out, |a, out| millis(a.session_ms, out))),
];

/// Writes one value for each server that was tried.
fn each(s: &mut StreamSession, out: &mut Vec<u8>, write: fn(&Attempt, &mut Vec<u8>)) -> bool {
    let Some(x) = s.exchanges.as_ref().filter(|x| !x.attempts.is_empty()) else { return false };
    x.write(out, write);
    true
}

fn millis(ms: Option<u64>, out: &mut Vec<u8>) {
    match ms {
        None => out.push(b'-'),
        Some(ms) => write_millis(out, ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_servers_are_joined() {
        let mut x = Exchanges::default();
        x.begin(Bytes::from_static(b"127.0.0.1:1"), None);
        x.over();
        x.begin(Bytes::from_static(b"127.0.0.1:2"), None);
        assert_eq!(x.bytes_now(), None);
        x.connected();
        x.now().unwrap().sent = 7;
        assert_eq!(x.bytes_now(), Some((0, 7)));
        let text = |write| {
            let mut out = Vec::new();
            x.write(&mut out, write);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(|a, out| out.extend_from_slice(&a.peer)), "127.0.0.1:1, 127.0.0.1:2");
        assert_eq!(text(|a, out| write_u64(out, a.sent)), "0, 7");
        assert_eq!(text(|a, out| millis(a.first_byte_ms, out)), "-, -");
        assert!(text(|a, out| millis(a.connect_ms, out)).starts_with("-, 0.0"));
    }
}
