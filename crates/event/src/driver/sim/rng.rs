//! The one source of chance in a simulation.

/// splitmix64: small, quick, and good enough to choose faults with.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `max`, both included.
    pub(crate) fn up_to(&mut self, max: u64) -> u64 {
        match max.checked_add(1) {
            Some(count) => self.next() % count,
            None => self.next(),
        }
    }

    /// True with a probability of `times` in a thousand.
    pub(crate) fn per_mille(&mut self, times: u16) -> bool {
        times > 0 && self.next() % 1000 < u64::from(times)
    }
}
