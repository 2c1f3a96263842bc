//! Log lines about a client, at most one a minute, however many connections it has. A block
//! of 64 bits of IPv6 is a client ([`block_of`]).

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;

use os::sockaddr::block_of;

/// The time between two lines about a client, milliseconds.
const EVERY_MS: u64 = 60_000;

/// Clients above which those are looked for that may be told again.
const CLIENTS_MIN: usize = 1_024;

/// A line about a client.
struct Line {
    /// Its time.
    at_ms: u64,
    /// Lines of the same subject that were left out since.
    left_out: u64,
}

#[derive(Default)]
struct Told {
    /// The last line, by client and subject.
    last: HashMap<(IpAddr, &'static str), Line>,
    /// The number at which old ones are removed.
    full: usize,
}

thread_local! {
    static TOLD: RefCell<Told> = RefCell::default();
}

impl Told {
    fn due(&mut self, client: (IpAddr, &'static str), now_ms: u64) -> Option<u64> {
        let is_old = |line: &Line| now_ms.saturating_sub(line.at_ms) >= EVERY_MS;
        if let Some(line) = self.last.get_mut(&client).filter(|line| !is_old(line)) {
            line.left_out += 1;
            return None;
        }
        let line = self.last.remove(&client);
        if self.last.len() >= self.full {
            self.last.retain(|_, line| !is_old(line));
            self.full = CLIENTS_MIN.max(self.last.len() * 2);
        }
        self.last.insert(client, Line { at_ms: now_ms, left_out: 0 });
        Some(line.map_or(0, |line| line.left_out))
    }
}

/// Whether a line of this subject about a client is due; it is written then. Clients without an
/// address are always told.
pub fn is_due(ip: Option<IpAddr>, subject: &'static str) -> bool {
    due(ip, subject).is_some()
}

/// The same, with the number of lines that were left out since the last one.
pub fn due(ip: Option<IpAddr>, subject: &'static str) -> Option<u64> {
    let Some(ip) = ip else { return Some(0) };
    let now_ms = base::time::now_ms();
    TOLD.with_borrow_mut(|told| told.due((block_of(ip), subject), now_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_once_a_minute_of_each_subject() {
        let mut told = Told::default();
        let ip = |n: u32| IpAddr::from(n.to_be_bytes());
        assert_eq!(told.due((ip(1), "a"), 5), Some(0));
        assert_eq!(told.due((ip(1), "a"), 60_003), None);
        assert_eq!(told.due((ip(1), "a"), 60_004), None);
        assert_eq!(told.due((ip(1), "b"), 60_004), Some(0));
        assert_eq!(told.due((ip(2), "a"), 60_004), Some(0));
        assert_eq!(told.due((ip(1), "a"), 60_005), Some(2), "two were left out");
        assert_eq!(told.due((ip(1), "a"), 120_005), Some(0));
        for n in 0..100_000 {
            told.due((ip(n), "c"), 60_005 + u64::from(n) * 100);
        }
        assert!(told.last.len() <= CLIENTS_MIN.max(2_000), "{}", told.last.len());
    }
}
