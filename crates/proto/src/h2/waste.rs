//! The account of frames that make a server work and bring nothing: the client pays for them with
//! time, or with requests.

use super::frame::ErrorCode;
use super::read::Fault;

/// Frames without a request that a client may send at once.
const FRAMES: u32 = 4_000;

/// Frames that it may send a second, beyond those at once.
const FRAMES_A_SECOND: u64 = 1_000;

/// Frames that come with a request: a client may ask for its window in small parts.
const FRAMES_A_STREAM: u32 = 8;

/// Resets that a client may cause a second, beyond those at once.
const RESETS_A_SECOND: u64 = 50;

/// A WINDOW_UPDATE of so many bytes or more is worth its work.
const UPDATE_MIN: u32 = 1024;

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
    pub fn new(streams: u32) -> Waste {
        let resets_max = streams.max(100).saturating_mul(2);
        Waste { frames: FRAMES, resets: resets_max, resets_max, at_ms: 0 }
    }

    /// A stream was opened.
    #[inline]
    pub fn stream(&mut self) {
        self.frames = (self.frames + FRAMES_A_STREAM).min(FRAMES);
    }

    fn credit(&mut self, now_ms: u64) {
        let passed = now_ms.saturating_sub(self.at_ms).min(60_000);
        if self.at_ms == 0 {
            self.at_ms = now_ms;
            return;
        }
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
    pub fn frame(&mut self, now_ms: u64) -> Result<(), Fault> {
        if self.frames == 0 {
            self.credit(now_ms);
        }
        match self.frames.checked_sub(1) {
            Some(left) => self.frames = left,
            None => return calm("too many frames without data"),
        }
        Ok(())
    }

    /// A WINDOW_UPDATE of `n` bytes.
    ///
    /// # Errors
    /// The client sends too many small ones.
    #[inline]
    pub fn update(&mut self, n: u32, now_ms: u64) -> Result<(), Fault> {
        if n < UPDATE_MIN { self.frame(now_ms) } else { Ok(()) }
    }

    /// A stream was reset, by the client or for a fault of the client's.
    ///
    /// # Errors
    /// There were too many of them.
    pub fn reset(&mut self, now_ms: u64) -> Result<(), Fault> {
        self.credit(now_ms);
        match self.resets.checked_sub(1) {
            Some(left) => self.resets = left,
            None => return calm("too many streams that were reset"),
        }
        Ok(())
    }
}

#[cold]
fn calm(what: &'static str) -> Result<(), Fault> {
    Err(Fault::connection(ErrorCode::ENHANCE_YOUR_CALM, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wasted_is_paid_for_with_time() {
        let mut waste = Waste::new(128);
        for _ in 0..FRAMES {
            waste.frame(1000).unwrap();
        }
        assert_eq!(waste.frame(1000).unwrap_err().code, ErrorCode::ENHANCE_YOUR_CALM);
        for _ in 0..1000 {
            waste.frame(2000).unwrap();
        }
        assert!(waste.frame(2000).is_err());
        waste.stream();
        assert!(waste.frame(2000).is_ok(), "a request earns some frames");
    }

    #[test]
    fn resets_have_a_budget_of_their_own() {
        let mut waste = Waste::new(10);
        for _ in 0..200 {
            waste.stream();
            waste.reset(1000).unwrap();
        }
        assert!(waste.reset(1000).is_err());
        assert!(waste.reset(1100).is_ok());
    }

    #[test]
    fn large_window_updates_cost_nothing() {
        let mut waste = Waste::new(10);
        for _ in 0..=2 * FRAMES {
            waste.update(UPDATE_MIN, 1000).unwrap();
        }
        assert!((0..=FRAMES).any(|_| waste.update(1, 1000).is_err()));
    }
}
