//! Clients that were cut off for a flood. For a minute the error log has at most 16 lines about
//! their requests, and the number of the lines left out, because an attacker that reconnects again
//! and again would otherwise fill the disk. The access log has all requests. With IPv6, a client is
//! a block of 64 bits ([`block_of`]).
//!
//! # Defences against clients that cost more than they bring (HTTP/2 and HTTP/3)
//!
//! - **Budget.** Frames that make work and bring nothing are paid for from a budget
//!   (`http_wire::waste`), which grows with time and with requests. Window updates for ended
//!   streams are free up to the bytes that were sent on these, because clients read late. The
//!   connections of an address share a second budget and a limit on the memory of their requests
//!   (`http_wire::address`).
//! - **Memory.** The header sections of a connection's requests hold 768 KB at most. While a client
//!   has not taken 128 KB of output, nothing is received from it.
//! - **No reading.** A client may have N streams open. If the ends of N responses are sent but TCP
//!   has not acknowledged them, the client still considers those streams open. If it opens more, it
//!   does not read: its requests are refused and it is cut off (`http::h2::unread`).
//! - **Time.** A suspect client (cut off lately, or with many resets) gets a fifth of the usual
//!   time before other clients have their turn (`http::channel::streams::slice`). Its requests
//!   begin only after all frames that were received with them have been read, so that a rapid reset
//!   costs little: a request that is reset by then is logged with status 499 and does nothing else.
//! - **Log.** The error log has one line a minute for a client that is cut off
//!   (`http::channel::streams::tell_fault`), and few lines about its requests (this module).

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;

use os::sockaddr::block_of;

/// The time for which a client is treated as a flooder, in milliseconds.
const FOR_MS: u64 = 60_000;

/// The most lines about requests of a flooder within that time.
const LINES_MAX: u64 = 16;

/// The table is swept for expired clients when it has at least this many.
const CLIENTS_MIN: usize = 1_024;

struct Flooder {
    /// The time of the last flood.
    at_ms: u64,
    /// Lines about its requests since it was first cut off, written or not.
    lines: u64,
    /// Lines that were left out and whose number has not been logged yet.
    left_out: u64,
}

impl Flooder {
    /// Whether its minute is over.
    fn is_old(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.at_ms) >= FOR_MS
    }
}

#[derive(Default)]
struct Flooders {
    all: HashMap<IpAddr, Flooder>,
    /// The number of clients at which expired ones are removed.
    full: usize,
}

thread_local! {
    static FLOODERS: RefCell<Flooders> = RefCell::default();
}

impl Flooders {
    fn cut_off(&mut self, client: IpAddr, now_ms: u64) {
        if let Some(flooder) = self.all.get_mut(&client).filter(|flooder| !flooder.is_old(now_ms)) {
            flooder.at_ms = now_ms;
            return;
        }
        if self.all.len() >= self.full {
            self.all.retain(|_, flooder| !flooder.is_old(now_ms));
            self.full = CLIENTS_MIN.max(self.all.len() * 2);
        }
        let left_out = self.all.get(&client).map_or(0, |flooder| flooder.left_out);
        self.all.insert(client, Flooder { at_ms: now_ms, lines: 0, left_out });
    }

    fn has(&self, client: IpAddr, now_ms: u64) -> bool {
        self.all.get(&client).is_some_and(|flooder| !flooder.is_old(now_ms))
    }

    fn gets_line(&mut self, client: IpAddr, now_ms: u64) -> bool {
        let Some(flooder) = self.all.get_mut(&client) else { return true };
        if flooder.is_old(now_ms) {
            return true;
        }
        flooder.lines += 1;
        let gets_line = flooder.lines <= LINES_MAX;
        flooder.left_out += u64::from(!gets_line);
        gets_line
    }
}

/// Notes that a client was cut off for a flood.
pub fn cut_off(ip: Option<IpAddr>) {
    let Some(ip) = ip else { return };
    let now_ms = base::time::now_ms();
    FLOODERS.with_borrow_mut(|flooders| flooders.cut_off(block_of(ip), now_ms));
}

/// Whether a client was cut off within the last minute.
pub fn has(ip: Option<IpAddr>) -> bool {
    let Some(ip) = ip else { return false };
    FLOODERS.with_borrow(|flooders| {
        !flooders.all.is_empty() && flooders.has(block_of(ip), base::time::now_ms())
    })
}

/// Whether a line about a request of this client may be written to the error log; counts it.
pub fn gets_line(ip: Option<IpAddr>) -> bool {
    let Some(ip) = ip else { return true };
    FLOODERS.with_borrow_mut(|flooders| {
        flooders.all.is_empty() || flooders.gets_line(block_of(ip), base::time::now_ms())
    })
}

/// Returns the number of lines about requests of a client that were left out since the last call.
pub fn take_left_out(ip: Option<IpAddr>) -> u64 {
    let Some(ip) = ip else { return 0 };
    FLOODERS.with_borrow_mut(|flooders| {
        let flooder = flooders.all.get_mut(&block_of(ip));
        flooder.map_or(0, |flooder| std::mem::take(&mut flooder.left_out))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_flood_get_a_few_lines_for_a_minute() {
        let mut flooders = Flooders::default();
        let ip = |n: u32| IpAddr::from(n.to_be_bytes());
        assert!((0..100).all(|_| flooders.gets_line(ip(1), 1)), "it has done nothing");
        flooders.cut_off(ip(1), 10);
        let lines = |flooders: &mut Flooders, now_ms| {
            (0..100).filter(|_| flooders.gets_line(ip(1), now_ms)).count()
        };
        assert_eq!(lines(&mut flooders, 10), 16);
        assert_eq!(flooders.all[&ip(1)].left_out, 84);
        flooders.cut_off(ip(1), 40_000);
        assert_eq!(lines(&mut flooders, 99_999), 0, "the next flood is a part of the first");
        assert!(flooders.gets_line(ip(2), 99_999), "another client");
        assert!(flooders.has(ip(1), 99_999) && !flooders.has(ip(2), 99_999));
        assert!(!flooders.has(ip(1), 100_000));
        assert_eq!(lines(&mut flooders, 100_000), 100);
        flooders.cut_off(ip(1), 200_000);
        assert_eq!(lines(&mut flooders, 200_000), 16);
        assert_eq!(flooders.all[&ip(1)].left_out, 84 + 100 + 84);
    }

    #[test]
    fn clients_are_forgotten() {
        let mut flooders = Flooders::default();
        for n in 0..100_000u32 {
            flooders.cut_off(IpAddr::from(n.to_be_bytes()), u64::from(n) * 100);
        }
        assert!(flooders.all.len() <= CLIENTS_MIN.max(2 * 600), "{}", flooders.all.len());
    }
}
