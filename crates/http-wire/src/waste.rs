//! The account of frames that make a server work and bring nothing, over HTTP/2 and HTTP/3: the
//! client pays for them with time, or with requests.

use crate::{h2, h3};

/// Frames without a request that a client may send at once.
const FRAMES: u32 = 4_000;

/// Frames that it may send a second, beyond those at once.
const FRAMES_A_SECOND: u64 = 1_000;

/// Frames that come with a request: a client may ask for its window in small parts.
const FRAMES_A_STREAM: u32 = 8;

/// Resets that a client may cause a second, beyond those at once.
const RESETS_A_SECOND: u64 = 50;

/// The same for all connections of an address: ten clients that do their worst.
const ADDRESS_FRAMES: u64 = 40_000;
const ADDRESS_FRAMES_A_SECOND: u64 = 10_000;
const ADDRESS_RESETS: u64 = 2_000;
const ADDRESS_RESETS_A_SECOND: u64 = 500;

/// A WINDOW_UPDATE of at least this number of bytes is worth its work.
const UPDATE_MIN: u32 = 1024;

/// A peer sends too much that brings nothing: the connection ends. Holds the fault in words, for
/// the log, behind `client sent ` or `upstream sent `.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flood(pub &'static str);

impl From<Flood> for h2::read::Fault {
    fn from(flood: Flood) -> h2::read::Fault {
        h2::read::Fault::connection(h2::frame::ErrorCode::ENHANCE_YOUR_CALM, flood.0)
    }
}

impl From<Flood> for h3::Fault {
    fn from(flood: Flood) -> h3::Fault {
        h3::Fault::connection(h3::Code::ExcessiveLoad, flood.0)
    }
}

/// The account of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Waste {
    frames: u32,
    resets: u32,
    resets_max: u32,
    /// The time of the last credit, milliseconds.
    at_ms: u64,
}

impl Waste {
    /// The account of a connection that may have `streams` open at once: it may cancel all of them
    /// twice.
    pub fn new(streams: u32, now_ms: u64) -> Waste {
        let resets_max = streams.max(100).saturating_mul(2);
        Waste { frames: FRAMES, resets: resets_max, resets_max, at_ms: now_ms }
    }

    /// The frames and resets that are not made up for by time.
    pub fn used(&self) -> (u32, u32) {
        (FRAMES - self.frames, self.resets_used())
    }

    /// Charges frames and resets that were caused before, as far as there is room.
    pub fn charge(&mut self, (frames, resets): (u32, u32)) {
        self.frames = self.frames.saturating_sub(frames);
        self.resets = self.resets.saturating_sub(resets);
    }

    /// A stream was opened.
    #[inline]
    pub fn stream(&mut self) {
        self.frames = (self.frames + FRAMES_A_STREAM).min(FRAMES);
    }

    fn credit(&mut self, now_ms: u64) {
        let passed = now_ms.saturating_sub(self.at_ms).min(60_000);
        let (frames, resets) = (passed * FRAMES_A_SECOND / 1000, passed * RESETS_A_SECOND / 1000);
        if resets > 0 {
            self.frames = (self.frames + frames as u32).min(FRAMES);
            self.resets = (self.resets + resets as u32).min(self.resets_max);
            self.at_ms = now_ms;
        }
    }

    /// A frame that carries nothing.
    ///
    /// # Errors
    /// The client sends too many of them.
    #[inline]
    pub fn frame(&mut self, now_ms: u64) -> Result<(), Flood> {
        self.frames(1, now_ms)
    }

    /// The same for so many frames, or for work that is worth as many.
    ///
    /// # Errors
    /// As [`Waste::frame`].
    pub fn frames(&mut self, n: u32, now_ms: u64) -> Result<(), Flood> {
        if self.frames < n {
            self.credit(now_ms);
        }
        match self.frames.checked_sub(n) {
            Some(left) => self.frames = left,
            None => return calm("too many frames without data"),
        }
        Ok(())
    }

    /// Whether a WINDOW_UPDATE of `n` bytes counts as a frame that carries nothing.
    #[inline]
    pub fn is_small(n: u32) -> bool {
        n < UPDATE_MIN
    }

    /// Resets that were caused and are not made up for by time.
    pub(crate) fn resets_used(&self) -> u32 {
        self.resets_max - self.resets
    }

    /// A stream was reset, by the client or for a fault of the client's.
    ///
    /// # Errors
    /// There were too many of them.
    pub fn reset(&mut self, now_ms: u64) -> Result<(), Flood> {
        self.credit(now_ms);
        match self.resets.checked_sub(1) {
            Some(left) => self.resets = left,
            None => return calm("too many streams that were reset"),
        }
        Ok(())
    }
}

/// The account of all connections of an address, beside each one's own: a client that opens many
/// connections, or one after the other, gets no more for that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressWaste {
    frames: Budget,
    resets: Budget,
}

impl AddressWaste {
    /// The account of an address that was not seen lately.
    pub fn new(now_ms: u64) -> AddressWaste {
        AddressWaste {
            frames: Budget::new(ADDRESS_FRAMES, ADDRESS_FRAMES_A_SECOND, now_ms),
            resets: Budget::new(ADDRESS_RESETS, ADDRESS_RESETS_A_SECOND, now_ms),
        }
    }

    /// Frames that carry nothing, of a connection that has opened so many streams meanwhile; false
    /// where there were too many.
    pub fn frames(&mut self, n: u32, streams: u32, now_ms: u64) -> bool {
        let n = n.saturating_sub(streams.saturating_mul(FRAMES_A_STREAM));
        self.frames.take(n.into(), now_ms)
    }

    /// A stream was reset; false where there were too many.
    pub fn reset(&mut self, now_ms: u64) -> bool {
        self.resets.take(1, now_ms)
    }

    /// Whether more than half of the resets are spent.
    pub fn is_strained(&mut self, now_ms: u64) -> bool {
        self.resets.credit(now_ms);
        self.resets.left < self.resets.max / 2
    }

    /// Whether the account is as good as a new one.
    pub(crate) fn is_rested(&mut self, now_ms: u64) -> bool {
        self.frames.is_full(now_ms) && self.resets.is_full(now_ms)
    }
}

/// Units that are spent, and come back with time.
#[derive(Clone, Copy, Debug)]
struct Budget {
    left: u64,
    max: u64,
    a_second: u64,
    at_ms: u64,
}

impl Budget {
    fn new(max: u64, a_second: u64, now_ms: u64) -> Budget {
        Budget { left: max, max, a_second, at_ms: now_ms }
    }

    fn credit(&mut self, now_ms: u64) {
        let more = now_ms.saturating_sub(self.at_ms).min(60_000) * self.a_second / 1000;
        if more > 0 {
            self.left = (self.left + more).min(self.max);
            self.at_ms = now_ms;
        }
    }

    /// Takes `n`; where fewer are left, all of them.
    fn take(&mut self, n: u64, now_ms: u64) -> bool {
        self.credit(now_ms);
        let suffices = self.left >= n;
        self.left = self.left.saturating_sub(n);
        suffices
    }

    fn is_full(&mut self, now_ms: u64) -> bool {
        self.credit(now_ms);
        self.left == self.max
    }
}

#[cold]
fn calm(what: &'static str) -> Result<(), Flood> {
    Err(Flood(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wasted_is_paid_for_with_time() {
        let mut waste = Waste::new(128, 1000);
        for _ in 0..FRAMES {
            waste.frame(1000).unwrap();
        }
        assert_eq!(waste.frame(1000), Err(Flood("too many frames without data")));
        for _ in 0..1000 {
            waste.frame(2000).unwrap();
        }
        assert!(waste.frame(2000).is_err());
        waste.stream();
        assert!(waste.frame(2000).is_ok(), "a request earns some frames");
    }

    #[test]
    fn a_long_life_of_few_frames_costs_nothing() {
        // A stream of gRPC with two messages a second, each acknowledged by a small frame.
        let mut waste = Waste::new(128, 1000);
        for n in 0..3 * u64::from(FRAMES) {
            waste.frame(1000 + n * 500).unwrap();
        }
    }

    #[test]
    fn resets_have_a_budget_of_their_own() {
        let mut waste = Waste::new(10, 1000);
        for _ in 0..200 {
            waste.stream();
            waste.reset(1000).unwrap();
        }
        assert!(waste.reset(1000).is_err());
        assert!(waste.reset(1100).is_ok());
    }

    #[test]
    fn large_window_updates_cost_nothing() {
        assert!(Waste::is_small(UPDATE_MIN - 1) && !Waste::is_small(UPDATE_MIN));
    }

    #[test]
    fn connections_of_an_address_share_an_account() {
        let mut waste = AddressWaste::new(5_000);
        assert!((0..ADDRESS_RESETS).all(|_| waste.reset(5_000)));
        assert!(!waste.reset(5_001) && waste.reset(5_002), "one in two milliseconds comes back");
        assert!(waste.is_strained(6_900) && !waste.is_strained(7_100));
        assert!(waste.frames(ADDRESS_FRAMES as u32, 0, 5_000) && !waste.frames(1, 0, 5_000));
        assert!(!waste.is_rested(8_000), "resets come back in four seconds");
        assert!(waste.is_rested(9_100));
        assert!(waste.frames(ADDRESS_FRAMES as u32, 0, 9_100) && !waste.frames(1, 0, 9_100));
    }
}
