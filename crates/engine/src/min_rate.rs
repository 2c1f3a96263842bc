//! Minimum rates (`client_body_min_rate` and `send_min_rate` of HTTP, `proxy_min_rate` of
//! `stream`): clients that let bytes drip are not waited for.
//!
//! A request has a credit of time for each direction, a session one for both. It begins at the
//! grace. Waiting for the client uses it up; every `rate` bytes that move restore a second, up to
//! the grace. So a pause is never longer than the grace, and a client that is faster than the rate
//! never notices. Time that the server itself takes (a disk, an upstream, `limit_rate`) costs none.

use std::net::IpAddr;

use conf::value;
use conf::{ConfError, Node};

use crate::told;

/// A rate that a client must keep up while it is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MinRate {
    /// Bytes a second; 0 is off.
    pub rate: u64,
    /// The longest pause, and the time in which the rate need not be kept at first, milliseconds.
    pub grace_ms: u64,
}

impl MinRate {
    /// The default of HTTP: far below what a slow telephone reaches.
    pub const DEFAULT: MinRate = MinRate { rate: 240, grace_ms: 60_000 };
    /// None.
    pub const OFF: MinRate = MinRate { rate: 0, grace_ms: 0 };

    /// `RATE [GRACE]`, or `off`.
    ///
    /// # Errors
    /// The arguments have another form.
    pub fn parse(n: &Node) -> Result<MinRate, ConfError> {
        if n.arg(0)?.bytes() == b"off" {
            return match n.args.get(1) {
                None => Ok(MinRate::OFF),
                Some(w) => Err(ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))),
            };
        }
        let rate = value::size(n, 0)? as u64;
        let grace_ms = match n.args.get(1) {
            Some(_) => value::msec(n, 1)?,
            None => MinRate::DEFAULT.grace_ms,
        };
        if rate > 0 && grace_ms == 0 {
            let m = "the time that a client may rest must not be 0";
            return Err(ConfError::at(n.arg(1)?, m));
        }
        Ok(MinRate { rate, grace_ms })
    }
}

/// The time for which a client may still be waited for.
#[derive(Clone, Copy, Default, Debug)]
pub struct Credit {
    /// The part of the grace that is used up, in milliseconds.
    used_ms: u64,
}

impl Credit {
    /// The limit of the next wait, milliseconds.
    pub fn limit(&self, min: MinRate, timeout_ms: u64) -> u64 {
        match min.rate {
            0 => timeout_ms,
            _ => timeout_ms.min(min.grace_ms.saturating_sub(self.used_ms)),
        }
    }

    /// Accounts for a wait of `waited_ms` in which `bytes` bytes came or went.
    #[inline]
    pub fn moved(&mut self, min: MinRate, waited_ms: u64, bytes: u64) {
        if waited_ms == 0 && self.used_ms == 0 || min.rate == 0 {
            return;
        }
        let earned_ms = bytes.saturating_mul(1000) / min.rate;
        self.used_ms = (self.used_ms + waited_ms).saturating_sub(earned_ms);
    }

    /// Whether a wait that ended without a byte was shorter than the timeout would have been.
    pub fn is_why(&self, min: MinRate, timeout_ms: u64) -> bool {
        self.limit(min, timeout_ms) < timeout_ms
    }
}

/// The words of the log for a wait that has ended: the client was silent, or too slow. `None` if it
/// was too slow and the log has recently said so.
pub fn reason(too_slow: bool, client: Option<IpAddr>) -> Option<&'static str> {
    match too_slow {
        true => told::is_due(client, "min_rate").then_some(TOO_SLOW),
        false => Some("client timed out (110: Connection timed out)"),
    }
}

/// The words of the log for a client that is too slow.
pub const TOO_SLOW: &str = "client is slower than the minimum rate";

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: MinRate = MinRate { rate: 200, grace_ms: 10_000 };

    /// Whether a client that moves `bytes` after each pause of `ms` is waited for, for an hour.
    fn lasts(ms: u64, bytes: u64) -> bool {
        let mut credit = Credit::default();
        (0..3_600_000 / ms).all(|_| {
            let waits = credit.limit(MIN, 60_000) > ms;
            credit.moved(MIN, ms, bytes);
            waits
        })
    }

    #[test]
    fn slow_clients_are_waited_for_and_dripping_ones_are_not() {
        assert!(!lasts(1_000, 1));
        assert!(!lasts(9_000, 1));
        assert!(!lasts(1_000, 190));
        assert!(lasts(1_000, 200));
        assert!(lasts(5_000, 1_000));
        // 30 kB/s, with pauses of 5 s.
        assert!(lasts(5_000, 30_000));
        // A pause that is longer than the grace.
        assert!(!lasts(10_001, 1 << 30));
    }

    #[test]
    fn bytes_restore_no_more_than_the_grace() {
        let mut credit = Credit::default();
        credit.moved(MIN, 1, u64::MAX);
        assert_eq!(credit.limit(MIN, 60_000), 10_000);
        credit.moved(MIN, 4_000, 0);
        assert_eq!(credit.limit(MIN, 60_000), 6_000);
        assert_eq!(credit.limit(MIN, 5_000), 5_000);
        assert!(credit.is_why(MIN, 60_000) && !credit.is_why(MIN, 5_000));
        credit.moved(MIN, 60_000, 0);
        assert_eq!(credit.limit(MIN, 60_000), 0);
    }

    #[test]
    fn without_a_rate_the_timeout_holds() {
        let mut credit = Credit::default();
        credit.moved(MinRate::OFF, 1 << 40, 0);
        assert_eq!(credit.limit(MinRate::OFF, 60_000), 60_000);
    }
}
