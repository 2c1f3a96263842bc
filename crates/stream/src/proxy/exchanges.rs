//! The results of a session's tries to reach a server: for `$upstream_…` and log lines.

use std::num::NonZeroU32;

use base::ascii::{write_millis, write_u64};
use base::time::now_ms;
use bytes::Bytes;
use engine::metrics::RowId;

use crate::module::VarDef;
use crate::session::StreamSession;

/// One server that was tried. A session keeps it to its end: it is small.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Its address, or the group's name where no server was live.
    pub peer: Bytes,
    /// The time of its beginning; once it is over, its length.
    clock_ms: u64,
    is_over: bool,
    connected: Mark,
    first_byte: Mark,
    /// The server's counters.
    pub row: Option<RowId>,
    /// Bytes sent to it.
    pub sent: u64,
    /// Bytes received from it.
    pub received: u64,
}

/// Milliseconds from an attempt's beginning to something, and one more; none before that.
#[derive(Clone, Copy, Default, Debug)]
struct Mark(Option<NonZeroU32>);

impl Mark {
    fn set(&mut self, ms: u64) {
        let ms = u32::try_from(ms).unwrap_or(u32::MAX);
        self.0 = NonZeroU32::new(ms.saturating_add(1));
    }

    fn ms(self) -> Option<u64> {
        self.0.map(|ms| u64::from(ms.get() - 1))
    }
}

impl Attempt {
    fn begin(peer: Bytes, row: Option<RowId>) -> Attempt {
        let (connected, first_byte) = (Mark::default(), Mark::default());
        let (clock_ms, is_over, sent, received) = (now_ms(), false, 0, 0);
        Attempt { peer, clock_ms, is_over, connected, first_byte, row, sent, received }
    }

    fn passed_ms(&self) -> u64 {
        now_ms().saturating_sub(self.clock_ms)
    }

    /// Milliseconds until the connection stood.
    pub(crate) fn connect_ms(&self) -> Option<u64> {
        self.connected.ms()
    }

    /// Milliseconds until its first byte came.
    pub(crate) fn first_byte_ms(&self) -> Option<u64> {
        self.first_byte.ms()
    }

    /// Its length in milliseconds, once it is over.
    pub(crate) fn session_ms(&self) -> Option<u64> {
        self.is_over.then_some(self.clock_ms)
    }
}

/// All servers that were tried. One attempt is all that most sessions have.
#[derive(Debug, Default)]
pub struct Exchanges {
    last: Option<Attempt>,
    earlier: Option<Box<Earlier>>,
}

/// The attempts before the last one.
#[derive(Debug, Default)]
struct Earlier(Vec<Attempt>);

impl Exchanges {
    /// Another server is tried.
    pub fn begin(&mut self, peer: Bytes, row: Option<RowId>) {
        if let Some(before) = self.last.replace(Attempt::begin(peer, row)) {
            self.earlier.get_or_insert_default().0.push(before);
        }
    }

    /// All of them.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        self.earlier.iter().flat_map(|earlier| &earlier.0).chain(&self.last)
    }

    /// The present one.
    pub fn now(&mut self) -> Option<&mut Attempt> {
        self.last.as_mut()
    }

    /// The connection stands.
    pub fn connected(&mut self) {
        if let Some(a) = self.now() {
            a.connected.set(a.passed_ms());
        }
    }

    /// Its first byte came now.
    pub fn first_byte_now(&mut self) {
        if let Some(a) = self.now()
            && a.first_byte_ms().is_none()
        {
            a.first_byte.set(a.passed_ms());
        }
    }

    /// Milliseconds until the first byte of the present one.
    pub fn first_byte_ms(&self) -> Option<u64> {
        self.last.as_ref()?.first_byte_ms()
    }

    /// It is over.
    pub fn over(&mut self) {
        if let Some(a) = self.now()
            && !a.is_over
        {
            (a.clock_ms, a.is_over) = (a.passed_ms(), true);
        }
    }

    /// The server of the present attempt.
    pub fn peer(&self) -> Option<&Bytes> {
        self.last.as_ref().map(|a| &a.peer)
    }

    /// Bytes from and to the server, while a connection stands.
    pub fn bytes_now(&self) -> Option<(u64, u64)> {
        let a = self.last.as_ref().filter(|a| a.connect_ms().is_some())?;
        Some((a.received, a.sent))
    }

    fn write(&self, out: &mut Vec<u8>, write: fn(&Attempt, &mut Vec<u8>)) {
        for (i, attempt) in self.attempts().enumerate() {
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
    VarDef::new("upstream_connect_time", |s, out| {
        each(s, out, |a, out| millis(a.connect_ms(), out))
    }),
    VarDef::new("upstream_first_byte_time", |s, out| {
        each(s, out, |a, out| millis(a.first_byte_ms(), out))
    }),
    VarDef::new("upstream_session_time", |s, out| {
        each(s, out, |a, out| millis(a.session_ms(), out))
    }),
];

/// Writes one value for each server that was tried.
fn each(s: &mut StreamSession, out: &mut Vec<u8>, write: fn(&Attempt, &mut Vec<u8>)) -> bool {
    let Some(x) = s.exchanges.as_ref().filter(|x| x.last.is_some()) else { return false };
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
        assert_eq!(text(|a, out| millis(a.first_byte_ms(), out)), "-, -");
        assert!(text(|a, out| millis(a.connect_ms(), out)).starts_with("-, 0.0"));
    }
}
