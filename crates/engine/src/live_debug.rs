//! Clients whose connections are logged in full for a while: the master adds them while the server
//! runs (`weir debug`), workers look them up. `debug_connection` is the same for as long as the
//! configuration holds.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};

use base::time::now_ms;
use net::Cidr;
use os::SockAddr;
use shm::Zone;

/// The most ranges at a time.
pub const RANGES_MAX: usize = 16;

/// Words of a range.
const ROW: usize = 4;

/// Words of a row.
#[derive(Clone, Copy)]
enum Of {
    /// The time of its end on the monotonic clock, which all processes share; 0 is none.
    Until,
    /// The number of bits, and 256 for IPv4.
    Bits,
    High,
    Low,
}

/// The ranges, in shared memory: the master alone writes.
pub struct LiveDebug(Zone);

impl LiveDebug {
    /// None yet.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new() -> io::Result<LiveDebug> {
        Ok(LiveDebug(Zone::anonymous((1 + RANGES_MAX * ROW) * 8)?))
    }

    /// Not 0 once there was a range.
    fn used(&self) -> &AtomicU64 {
        &self.0.words()[0]
    }

    fn rows(&self) -> impl Iterator<Item = &[AtomicU64]> {
        self.0.words()[1..].chunks_exact(ROW).take(RANGES_MAX)
    }

    /// Whether there was a range since the server's start.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.used().load(Ordering::Relaxed) != 0
    }

    /// In the master: clients of that range are logged in full for so long; 0 ends that. False:
    /// there are too many ranges.
    pub fn set(&self, range: Cidr, for_ms: u64) -> bool {
        let now = now_ms();
        let words = words_of(range);
        let same = |row: &&[AtomicU64]| row_words(row) == words;
        let over = |row: &&[AtomicU64]| row[Of::Until as usize].load(Ordering::Relaxed) <= now;
        let Some(row) = self.rows().find(same).or_else(|| self.rows().find(over)) else {
            return for_ms == 0;
        };
        row[Of::Until as usize].store(0, Ordering::Release);
        let at = [Of::Bits, Of::High, Of::Low].map(|of| of as usize);
        at.into_iter().zip(words).for_each(|(at, word)| row[at].store(word, Ordering::Relaxed));
        let until = if for_ms == 0 { 0 } else { now.saturating_add(for_ms) };
        row[Of::Until as usize].store(until, Ordering::Release);
        self.used().store(1, Ordering::Relaxed);
        true
    }

    /// Whether the connections of this client are logged in full now.
    pub fn matches(&self, client: &SockAddr) -> bool {
        if !self.is_used() {
            return false;
        }
        let Some(ip) = client.ip_addr() else { return false };
        let now = now_ms();
        let live = |row: &&[AtomicU64]| row[Of::Until as usize].load(Ordering::Acquire) > now;
        self.rows().filter(live).filter_map(range_of).any(|range| range.contains(ip))
    }
}

fn words_of(range: Cidr) -> [u64; 3] {
    let bits = u64::from(range.bits());
    match range.network() {
        IpAddr::V4(ip) => [256 | bits, 0, u64::from(ip.to_bits())],
        IpAddr::V6(ip) => [bits, (ip.to_bits() >> 64) as u64, ip.to_bits() as u64],
    }
}

fn row_words(row: &[AtomicU64]) -> [u64; 3] {
    [Of::Bits, Of::High, Of::Low].map(|of| row[of as usize].load(Ordering::Relaxed))
}

fn range_of(row: &[AtomicU64]) -> Option<Cidr> {
    let [bits, high, low] = row_words(row);
    let ip = match bits & 256 {
        0 => IpAddr::V6(Ipv6Addr::from(u128::from(high) << 64 | u128::from(low))),
        _ => IpAddr::V4((low as u32).into()),
    };
    Cidr::new(ip, (bits & 255) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Cidr {
        Cidr::parse(text.as_bytes()).unwrap().0
    }

    fn from(text: &str) -> SockAddr {
        SockAddr::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn clients_are_logged_for_a_while() {
        base::time::pin(10_000, 0);
        let live = LiveDebug::new().unwrap();
        let one = from("192.0.2.7:1");
        assert!(!live.matches(&one) && !live.is_used());
        assert!(live.set(range("192.0.2.0/24"), 1000));
        assert!(live.set(range("2001:db8::/32"), 3000));
        assert!(live.matches(&one) && live.matches(&from("[2001:db8::1]:9")));
        assert!(!live.matches(&from("192.0.3.7:1")) && !live.matches(&from("[2001:db9::1]:9")));
        assert!(!live.matches(&SockAddr::unix(b"/x").unwrap()));
        base::time::pin(11_000, 0);
        assert!(!live.matches(&one) && live.matches(&from("[2001:db8::1]:9")));
        assert!(live.set(range("2001:db8::/32"), 0));
        assert!(!live.matches(&from("[2001:db8::1]:9")));
        base::time::unpin();
    }

    #[test]
    fn there_are_no_more_ranges_than_there_is_room_for() {
        base::time::pin(10_000, 0);
        let live = LiveDebug::new().unwrap();
        let nth = |n: usize| range(&format!("10.0.{n}.0/24"));
        assert!((0..RANGES_MAX).all(|n| live.set(nth(n), 1000)));
        assert!(!live.set(nth(100), 1000));
        // One that is there is changed, one that is not ends without a word.
        assert!(live.set(nth(3), 5000) && live.set(nth(100), 0));
        base::time::pin(11_000, 0);
        assert!(live.set(nth(100), 1000) && live.matches(&from("10.0.3.1:1")));
        base::time::unpin();
    }
}
