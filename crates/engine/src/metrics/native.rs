//! The histogram of a row in the buckets of Prometheus' native histograms.

use super::Reading;
use super::word::{BOUNDS_US, BUCKETS, FIRST_POWER, POWERS_US};

/// The schema: four buckets for each doubling.
pub const SCHEMA: i32 = 2;

/// Times up to this one, in seconds, are in the bucket for zero: 2 to the power of -14.
pub const ZERO_THRESHOLD: f64 = 1.0 / 16_384.0;

/// A histogram: the number of times up to [`ZERO_THRESHOLD`], and by bucket. The bucket of an index
/// i reaches from 2^((i-1)/4) seconds to 2^(i/4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Native {
    /// The number of times in the bucket for zero.
    pub zero: u64,
    /// The numbers of the other buckets, from [`Native::FIRST_INDEX`] on. The last one has longer
    /// times as well: from 64 seconds on, they are not told apart.
    pub counts: [u64; POWERS_US.len()],
}

impl Native {
    /// The index of the first of [`Native::counts`].
    pub const FIRST_INDEX: i32 = FIRST_POWER + 1;

    /// The histogram of a row.
    pub fn of(reading: &Reading) -> Native {
        let mut native = Native { zero: 0, counts: [0; POWERS_US.len()] };
        for (i, n) in reading.buckets().enumerate().take(BUCKETS) {
            let power = match BOUNDS_US.get(i) {
                Some(us) => POWERS_US.partition_point(|power| power < us),
                None => POWERS_US.len(),
            };
            match power.checked_sub(1) {
                None => native.zero += n,
                Some(at) => native.counts[at] += n,
            }
        }
        native
    }
}

#[cfg(test)]
mod tests {
    use super::super::word;
    use super::*;

    #[test]
    fn each_time_is_in_the_bucket_of_its_power() {
        for (us, index) in [
            (0, None),
            (61, None),
            (62, Some(-55)),
            (72, Some(-55)),
            (73, Some(-54)),
            (100, Some(-53)),
            (1_000_000, Some(0)),
            (1_000_001, Some(1)),
            (1_189_207, Some(1)),
            (1_189_208, Some(2)),
            (2_500_000, Some(6)),
            (60_000_000, Some(24)),
            (64_000_000, Some(24)),
            (64_000_001, Some(25)),
            (u64::MAX, Some(25)),
        ] {
            let mut reading = Reading::default();
            reading.0[word::of_time(us)] += 1;
            let native = Native::of(&reading);
            assert_eq!(native.zero, u64::from(index.is_none()), "{us}");
            let at = native.counts.iter().position(|n| *n == 1);
            assert_eq!(at.map(|at| at as i32 + Native::FIRST_INDEX), index, "{us}");
        }
    }
}
