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

#[derive(Default)]
struct Told {
    /// The time of the last line, by client and subject.
    last: HashMap<(IpAddr, &'static str), u64>,
    /// The number at which old ones are removed.
    full: usize,
}

thread_local! {
    static TOLD: RefCell<Told> = RefCell::default();
}

impl Told {
    fn is_due(&mut self, client: (IpAddr, &'static str), now_ms: u64) -> bool {
        let is_old = |last: u64| now_ms.saturating_sub(last) >= EVERY_MS;
        if self.last.get(&client).is_some_and(|last| !is_old(*last)) {
            return false;
        }
        if self.last.len() >= self.full {
            self.last.retain(|_, last| !is_old(*last));
            self.full = CLIENTS_MIN.max(self.last.len() * 2);
        }
        self.last.insert(client, now_ms);
        true
    }
}

/// Whether a line of this subject about a client is due; it is written then. Clients without an
/// address are always told.
pub fn is_due(ip: Option<IpAddr>, subject: &'static str) -> bool {
    let Some(ip) = ip else { return true };
    let now_ms = base::time::now_ms();
    TOLD.with_borrow_mut(|told| told.is_due((block_of(ip), subject), now_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_told_once_a_minute_of_each_subject() {
        let mut told = Told::default();
        let ip = |n: u32| IpAddr::from(n.to_be_bytes());
        assert!(told.is_due((ip(1), "a"), 5));
        assert!(!told.is_due((ip(1), "a"), 60_004));
        assert!(told.is_due((ip(1), "b"), 60_004) && told.is_due((ip(2), "a"), 60_004));
        assert!(told.is_due((ip(1), "a"), 60_005));
        for n in 0..100_000 {
            told.is_due((ip(n), "c"), 60_005 + u64::from(n) * 100);
        }
        assert!(told.last.len() <= CLIENTS_MIN.max(2_000), "{}", told.last.len());
    }
}
