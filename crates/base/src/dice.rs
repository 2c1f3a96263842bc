//! Random numbers for decisions that nobody gains from guessing: which server, which log line.

use std::cell::Cell;
use std::hash::BuildHasher;

/// A generator (xorshift64*) that is seeded from the system's random numbers at its first use, so
/// that processes forked from one another draw different numbers.
#[derive(Default, Debug)]
pub struct Dice(Cell<u64>);

impl Dice {
    /// A generator with a seed of its own, for tests; 0 counts as none.
    pub fn seeded(seed: u64) -> Dice {
        Dice(Cell::new(seed))
    }

    /// A number below 2^63.
    pub fn roll(&self) -> u64 {
        let mut x = self.0.get();
        if x == 0 {
            x = std::hash::RandomState::new().hash_one(std::process::id()) | 1;
        }
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 1
    }

    /// True with a chance of `share` in `whole`.
    pub fn hits(&self, share: u64, whole: u64) -> bool {
        self.roll() % whole < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_as_frequent_as_asked() {
        let dice = Dice::default();
        assert!((0..1000).all(|_| dice.hits(1, 1) && !dice.hits(0, 1)));
        let hits = (0..100_000).filter(|_| dice.hits(10, 100)).count();
        assert!((9_000..11_000).contains(&hits), "{hits}");
        assert_ne!(dice.roll(), Dice::default().roll());
    }
}
