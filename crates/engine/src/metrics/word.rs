//! The words of a row of counters: twenty-three cache lines, of which the end of a request touches
//! three.

use shm::LINE_FIELDS;

/// Work under way.
pub const PROCESSING: usize = 0;
/// Work that ended: requests, sessions, exchanges with a server.
pub const DONE: usize = 1;
/// Bytes received.
pub const RECEIVED: usize = 2;
/// Bytes sent.
pub const SENT: usize = 3;
/// The sum of all times, microseconds.
pub const TIME_US: usize = 4;
/// Requests that ended without a response, sessions that had no content.
pub const DISCARDED: usize = 5;
/// Of a server of an upstream: exchanges under way whose answer has begun.
pub const ANSWERING: usize = 5;
/// Work that a worker had under way when it died.
pub const LOST: usize = 6;
/// Of a server of an upstream: the time of its last choice, milliseconds since 1970.
pub const SELECTED_MS: usize = 7;

/// The first word of the counters of responses by status: seven lines.
const CODES: usize = LINE_FIELDS;

/// The statuses with a counter of their own, in order. Others count in their class.
pub const CODES_KNOWN: [u16; 51] = [
    101, 103, 200, 201, 202, 204, 206, 207, 300, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404,
    405, 406, 408, 409, 410, 411, 412, 413, 414, 415, 416, 421, 422, 426, 428, 429, 431, 444, 451,
    494, 495, 496, 497, 499, 500, 501, 502, 503, 504, 505, 507, 508,
];

/// The first word of the counters of other statuses, one for each class.
const CODES_OTHER: usize = CODES + CODES_KNOWN.len();

/// The word of each status from 100 on.
static WORD_OF: [u8; 500] = words_of_codes();

const fn words_of_codes() -> [u8; 500] {
    let mut words = [0; 500];
    let mut code = 0;
    while code < 500 {
        words[code] = (CODES_OTHER + code / 100) as u8;
        code += 1;
    }
    let mut i = 0;
    while i < CODES_KNOWN.len() {
        words[CODES_KNOWN[i] as usize - 100] = (CODES + i) as u8;
        i += 1;
    }
    words
}

/// The word that counts responses with a status; `None` if the number is not a status.
#[inline]
pub fn of_code(status: u16) -> Option<usize> {
    let i = usize::from(status).checked_sub(100)?;
    WORD_OF.get(i).map(|word| usize::from(*word))
}

/// The words of the statuses of a class, 1 to 5: those with counters of their own with their
/// statuses, and the rest with 0.
pub(crate) fn of_class(class: u16) -> impl Iterator<Item = (u16, usize)> {
    let known = CODES_KNOWN.iter().zip(CODES..);
    let of_class = known.filter(move |(code, _)| **code / 100 == class);
    of_class.map(|(code, word)| (*code, word)).chain([(0, CODES_OTHER + usize::from(class) - 1)])
}

/// The first word of the histogram of times.
pub const TIMES: usize = CODES_OTHER + 5;

/// The upper bounds of the histogram's buckets in microseconds; one more bucket has the rest. From
/// 61 microseconds on, none is more than 1.2 times the one before, so that a quantile taken from
/// them is off by a few percent. They include [`SCRAPED_US`] and [`POWERS_US`].
pub(crate) const BOUNDS_US: [u64; 106] = [
    20, 50, 61, 72, 86, 100, 102, 122, 145, 172, 205, 244, 250, 290, 300, 345, 410, 488, 500, 580,
    690, 821, 976, 1_000, 1_161, 1_381, 1_642, 1_953, 2_322, 2_500, 2_762, 3_000, 3_284, 3_906,
    4_645, 5_000, 5_524, 6_569, 7_812, 9_290, 10_000, 11_048, 13_139, 15_625, 18_581, 22_097,
    25_000, 26_278, 30_000, 31_250, 37_162, 44_194, 50_000, 52_556, 62_500, 74_325, 75_000, 88_388,
    100_000, 105_112, 125_000, 148_650, 176_776, 210_224, 250_000, 297_301, 300_000, 353_553,
    420_448, 500_000, 594_603, 707_106, 750_000, 840_896, 1_000_000, 1_189_207, 1_414_213,
    1_681_792, 2_000_000, 2_378_414, 2_500_000, 2_828_427, 3_000_000, 3_363_585, 4_000_000,
    4_756_828, 5_000_000, 5_656_854, 6_727_171, 7_500_000, 8_000_000, 9_513_656, 10_000_000,
    11_313_708, 13_454_342, 16_000_000, 19_027_313, 22_627_416, 26_908_685, 30_000_000, 32_000_000,
    38_054_627, 45_254_833, 53_817_370, 60_000_000, 64_000_000,
];

/// The bounds of native histograms of Prometheus: the powers of two to a quarter, in seconds, from
/// 2 to the power of [`FIRST_POWER`] / 4 on. In microseconds, rounded down, which is no difference
/// for whole microseconds.
pub const POWERS_US: [u64; 81] = [
    61, 72, 86, 102, 122, 145, 172, 205, 244, 290, 345, 410, 488, 580, 690, 821, 976, 1_161, 1_381,
    1_642, 1_953, 2_322, 2_762, 3_284, 3_906, 4_645, 5_524, 6_569, 7_812, 9_290, 11_048, 13_139,
    15_625, 18_581, 22_097, 26_278, 31_250, 37_162, 44_194, 52_556, 62_500, 74_325, 88_388,
    105_112, 125_000, 148_650, 176_776, 210_224, 250_000, 297_301, 353_553, 420_448, 500_000,
    594_603, 707_106, 840_896, 1_000_000, 1_189_207, 1_414_213, 1_681_792, 2_000_000, 2_378_414,
    2_828_427, 3_363_585, 4_000_000, 4_756_828, 5_656_854, 6_727_171, 8_000_000, 9_513_656,
    11_313_708, 13_454_342, 16_000_000, 19_027_313, 22_627_416, 26_908_685, 32_000_000, 38_054_627,
    45_254_833, 53_817_370, 64_000_000,
];

/// The exponent of the first of [`POWERS_US`], in quarters.
pub(crate) const FIRST_POWER: i32 = -56;

/// The bounds that Prometheus reads, microseconds: fewer, because each is a time series.
pub const SCRAPED_US: [u64; 21] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 75_000, 100_000, 250_000, 500_000,
    750_000, 1_000_000, 2_500_000, 5_000_000, 7_500_000, 10_000_000, 30_000_000, 60_000_000,
];

/// [`SCRAPED_US`] in seconds, as text.
pub const SCRAPED: [&str; 21] = [
    "0.0001", "0.00025", "0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.075",
    "0.1", "0.25", "0.5", "0.75", "1", "2.5", "5", "7.5", "10", "30", "60",
];

/// Buckets of a histogram, the one with the rest last.
pub const BUCKETS: usize = BOUNDS_US.len() + 1;

/// The word of the bucket of a time.
#[inline]
pub(crate) fn of_time(us: u64) -> usize {
    TIMES + bucket(us)
}

/// The bucket of a time.
#[inline]
pub fn bucket(us: u64) -> usize {
    BOUNDS_US.partition_point(|bound| *bound < us)
}

/// The time in microseconds that a share of all times do not exceed, estimated within its bucket
/// as if the times there were spread evenly. `times` has the [`BUCKETS`] numbers of a histogram.
/// `None` if there are no times, or if it lies beyond the last bound.
///
/// ```
/// use weir_engine::metrics::word::{BUCKETS, bucket, quantile_us};
///
/// let mut times = [0; BUCKETS];
/// times[bucket(108_000)] = 98;
/// times[bucket(221_000)] = 2;
/// assert_eq!(quantile_us(&times, 0.5), Some(115_258));
/// assert_eq!(quantile_us(&times, 0.99), Some(230_112));
/// ```
pub fn quantile_us(times: &[u64], share: f64) -> Option<u64> {
    let rank = (times.iter().sum::<u64>() as f64 * share).ceil() as u64;
    if rank == 0 {
        return None;
    }
    let (mut below, mut from) = (0, 0);
    for (&n, to) in times.iter().zip(BOUNDS_US) {
        if below + n >= rank {
            return Some(from + ((to - from) as f64 * (rank - below) as f64 / n as f64) as u64);
        }
        (below, from) = (below + n, to);
    }
    None
}

/// Nothing is counted here: the base of this word is the time of the last reset, milliseconds since
/// 1970.
pub(super) const RESET_MS: usize = TIMES + BUCKETS;

/// The last line differs from kind to kind.
const LAST: usize = 22 * LINE_FIELDS;

/// A server's TLS handshakes.
pub const HANDSHAKES: usize = LAST;
/// Those of the handshakes that failed.
pub const HANDSHAKES_FAILED: usize = LAST + 1;
/// Those of the handshakes that resumed a session.
pub const SESSION_REUSES: usize = LAST + 2;

/// Of a server of an upstream: the sum of times until the head, microseconds.
pub const HEADER_US: usize = LAST + 3;
/// The number of these times.
pub const HEADERS: usize = LAST + 4;
/// Failures.
pub const FAILS: usize = LAST + 5;
/// Times that it was taken out after failures.
pub const UNAVAILABLE: usize = LAST + 6;
/// The sum of times until the connection stood, microseconds.
pub const CONNECT_US: usize = LAST + 7;

/// Of a cache: the first word of bytes sent by the cache's part in the response.
pub const CACHE_BYTES: usize = CODES;

/// Sessions that a limit let pass.
pub const PASSED: usize = 1;
/// Sessions that were delayed.
pub const DELAYED: usize = 2;
/// Sessions that were refused.
pub const REJECTED: usize = 3;
/// As in [`DELAYED`], if it were not for the dry run.
pub const DELAYED_DRY_RUN: usize = 4;
/// As in [`REJECTED`], if it were not for the dry run.
pub const REJECTED_DRY_RUN: usize = 5;
/// Of a limit on logins: those that passed and failed. Nothing of a limit is under way, or lost.
pub const FAILED: usize = 6;

/// Lines of a row.
pub const LINES: usize = 23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_words_of_their_class() {
        let mut seen = Vec::new();
        for class in 1..=5 {
            for (code, word) in of_class(class) {
                assert!((CODES..TIMES).contains(&word));
                assert!(code == 0 || of_code(code) == Some(word) && code / 100 == class, "{code}");
                assert!(!seen.contains(&word));
                seen.push(word);
            }
        }
        assert_eq!(seen.len(), 56);
        assert_eq!(of_code(418), Some(CODES_OTHER + 3));
        assert_eq!(of_code(100), Some(CODES_OTHER));
        assert_eq!((of_code(0), of_code(99), of_code(600)), (None, None, None));
        assert!(CODES_KNOWN.is_sorted());
    }

    #[test]
    fn times_fall_into_buckets() {
        assert_eq!([0, 20, 21, 101].map(of_time), [TIMES, TIMES, TIMES + 1, TIMES + 6]);
        assert_eq!(of_time(64_000_000), TIMES + BUCKETS - 2);
        assert_eq!(of_time(u64::MAX), TIMES + BUCKETS - 1);
        const { assert!(RESET_MS < LAST && LAST < TIMES + BUCKETS + LINE_FIELDS) };
        assert_eq!(CONNECT_US, LINES * LINE_FIELDS - 1);
        for (us, text) in SCRAPED_US.iter().zip(SCRAPED) {
            assert!(BOUNDS_US.contains(us), "{us}");
            assert_eq!(text.parse::<f64>().unwrap(), *us as f64 / 1e6);
        }
    }

    #[test]
    fn powers_of_two_are_bounds() {
        assert!(BOUNDS_US.is_sorted() && POWERS_US.iter().all(|us| BOUNDS_US.contains(us)));
        for (us, quarters) in POWERS_US.iter().zip(FIRST_POWER..) {
            let seconds = 2f64.powf(f64::from(quarters) / 4.0);
            assert_eq!(*us, (seconds * 1e6 + 1e-9).floor() as u64, "{quarters}");
        }
    }

    #[test]
    fn quantiles_are_near_the_truth() {
        assert!(BOUNDS_US[2..].windows(2).all(|pair| pair[1] * 5 <= pair[0] * 6));
        let mut times = [0; BUCKETS];
        assert_eq!(quantile_us(&times, 0.5), None);
        // 1 to 100 ms, one of each.
        (1..=100).for_each(|ms| times[bucket(ms * 1000)] += 1);
        for (share, us) in [(0.5, 50_000), (0.9, 90_000), (0.99, 99_000), (1.0, 100_000)] {
            let found = quantile_us(&times, share).unwrap();
            assert!(found.abs_diff(us) <= us / 50, "{share}: {found}");
        }
        times[BUCKETS - 1] = 2;
        assert_eq!(quantile_us(&times, 0.99), None);
    }
}
