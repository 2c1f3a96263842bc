//! The local time zone.

use std::sync::Once;

/// Seconds that local time is ahead of UTC at `unix_secs`; 0 when the zone is unknown.
pub fn utc_offset_secs(unix_secs: i64) -> i32 {
    static ZONE: Once = Once::new();
    unsafe extern "C" {
        fn tzset();
    }
    // SAFETY: tzset reads TZ and the zone file. It runs once, before any other thread could change
    // the environment: the first log line or the first configuration is read by a lone thread.
    ZONE.call_once(|| unsafe { tzset() });
    let mut tm = std::mem::MaybeUninit::<libc::tm>::uninit();
    // SAFETY: localtime_r reads the time given and fills `tm`, or returns null.
    if unsafe { libc::localtime_r(&unix_secs, tm.as_mut_ptr()) }.is_null() {
        return 0;
    }
    // SAFETY: not null means filled.
    unsafe { tm.assume_init() }.tm_gmtoff as i32
}

/// The monotonic clock, microseconds since the system started: the clock that systemd compares
/// with.
pub fn monotonic_usec() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000
}

#[cfg(test)]
mod tests {
    #[test]
    fn offset_is_within_a_day_and_a_bit() {
        for t in [0, 1_700_000_000, 1_720_000_000] {
            assert!(super::utc_offset_secs(t).abs() <= 15 * 3600);
        }
        assert_eq!(super::utc_offset_secs(i64::MAX), 0);
    }
}
