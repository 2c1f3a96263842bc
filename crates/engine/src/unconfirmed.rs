//! Responses that were given to QUIC whole, and whose ends their client does not confirm.
//!
//! Nothing waits for them: their requests are over. But they take up to the connection's send
//! window in memory, and a client that confirms nothing and sends something now and then, which
//! keeps the connection, would hold that for ever. So `send_timeout` and `send_min_rate` hold for
//! these, too: what counts is what the client confirms, of whatever stream.

use crate::min_rate::{Credit, MinRate};

/// The longest time between two looks, milliseconds.
const LOOK_MS: u64 = 1000;

/// The terms of a client.
#[derive(Clone, Copy)]
pub struct Terms {
    /// `send_timeout`, milliseconds.
    pub timeout_ms: u64,
    /// `send_min_rate`.
    pub min: MinRate,
}

/// The state of such responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// There are none.
    Nothing,
    /// There are some, which are to be looked at then at the latest, milliseconds.
    Until(u64),
    /// The client has had its time: it was silent, or too slow.
    Late {
        /// It was too slow.
        too_slow: bool,
    },
}

/// How far the client was when it was looked at.
#[derive(Default)]
pub struct Unconfirmed {
    is_on: bool,
    looked_ms: u64,
    /// The last time at which more was confirmed than before.
    moved_ms: u64,
    /// None before the first look.
    confirmed: Option<u64>,
    credit: Credit,
}

impl Unconfirmed {
    /// Looks how the client gets on, where it has responses to confirm. `confirmed` gives the bytes
    /// that it has confirmed on its path.
    pub fn look(
        &mut self,
        is_any: bool,
        terms: Terms,
        now_ms: u64,
        confirmed: impl FnOnce() -> u64,
    ) -> Found {
        if !is_any {
            self.is_on = false;
            return Found::Nothing;
        }
        let Terms { timeout_ms, min } = terms;
        let every_ms = LOOK_MS.min(timeout_ms);
        if !self.is_on {
            *self = Unconfirmed {
                is_on: true,
                looked_ms: now_ms,
                moved_ms: now_ms,
                ..Unconfirmed::default()
            };
        }
        if now_ms >= self.looked_ms + every_ms {
            let now = confirmed();
            // On another path it begins anew.
            let moved = self.confirmed.replace(now).map(|b| now.checked_sub(b).unwrap_or(now));
            if let Some(moved) = moved {
                self.credit.moved(min, now_ms - self.looked_ms, moved);
            }
            if moved != Some(0) {
                self.moved_ms = now_ms;
            }
            self.looked_ms = now_ms;
        }
        let too_slow = self.credit.limit(min, timeout_ms) == 0;
        let ends_ms = self.moved_ms.saturating_add(timeout_ms);
        match too_slow || now_ms >= ends_ms {
            true => Found::Late { too_slow },
            false => Found::Until(ends_ms.min(self.looked_ms + every_ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { timeout_ms: 60_000, min: MinRate { rate: 240, grace_ms: 60_000 } };

    /// When a client that confirms `bytes` each `ms` is late, within an hour.
    fn is_late(terms: Terms, ms: u64, bytes: u64) -> Option<(u64, bool)> {
        let (mut state, mut now) = (Unconfirmed::default(), 0);
        while now < 3_600_000 {
            match state.look(true, terms, now, || now / ms * bytes) {
                Found::Until(next) => now = next.max(now + 1),
                Found::Late { too_slow } => return Some((now, too_slow)),
                Found::Nothing => unreachable!(),
            }
        }
        None
    }

    #[test]
    fn silent_and_dripping_clients_are_late() {
        let off = Terms { min: MinRate::OFF, ..TERMS };
        assert_eq!(is_late(off, 1, 0), Some((61_000, false)));
        assert_eq!(is_late(TERMS, 1, 0), Some((61_000, true)));
        // With 100 bytes a second of 240, 35 of 60 seconds are lost.
        let Some((ms, true)) = is_late(TERMS, 1_000, 100) else { panic!("it is waited for") };
        assert!((100_000..110_000).contains(&ms), "{ms}");
        assert_eq!(is_late(TERMS, 1_000, 240), None);
        // 30 kB/s, with pauses of 50 s.
        assert_eq!(is_late(TERMS, 50_000, 1_500_000), None);
        assert_eq!(is_late(off, 50_000, 1), None);
    }

    #[test]
    fn the_time_begins_anew_with_the_next_responses() {
        let mut state = Unconfirmed::default();
        assert_eq!(state.look(true, TERMS, 0, || 7), Found::Until(1_000));
        assert_eq!(state.look(true, TERMS, 59_000, || 7), Found::Until(60_000));
        assert_eq!(state.look(false, TERMS, 59_500, || 7), Found::Nothing);
        assert_eq!(state.look(true, TERMS, 100_000, || 7), Found::Until(101_000));
        // A look that comes early asks nobody.
        assert_eq!(state.look(true, TERMS, 100_999, || panic!()), Found::Until(101_000));
    }
}
