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

/// Writes a time as `strftime` does, in UTC (called GMT) or the local zone; `None` where that would
/// be longer than `max` bytes, or the format holds a NUL.
pub fn strftime(format: &[u8], unix_secs: i64, local: bool, max: usize) -> Option<Vec<u8>> {
    // An empty result and one that is too long look alike: a byte in front makes the difference.
    let mut with_mark = Vec::with_capacity(format.len() + 1);
    with_mark.push(b' ');
    with_mark.extend_from_slice(format);
    let format = std::ffi::CString::new(with_mark).ok()?;
    // The zone's name and offset are read first, once.
    utc_offset_secs(unix_secs);
    let mut tm = std::mem::MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both read the time given and fill `tm`, or return null.
    let filled = unsafe {
        match local {
            true => libc::localtime_r(&unix_secs, tm.as_mut_ptr()),
            false => libc::gmtime_r(&unix_secs, tm.as_mut_ptr()),
        }
    };
    if filled.is_null() {
        return None;
    }
    let mut out = vec![0u8; max + 2];
    // SAFETY: `out` has room for the length given, `format` ends with NUL, and `tm` is filled: not
    // null. Its zone name is a string of the C library's that lives as long as the process.
    let n =
        unsafe { libc::strftime(out.as_mut_ptr().cast(), out.len(), format.as_ptr(), tm.as_ptr()) };
    if n == 0 {
        return None;
    }
    out.truncate(n);
    out.remove(0);
    Some(out)
}

/// The monotonic clock in microseconds since the system started, as systemd uses it.
pub fn monotonic_usec() -> u64 {
    monotonic_nsec() / 1_000
}

/// The same in nanoseconds.
pub fn monotonic_nsec() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// The time that the calling thread had on a processor, microseconds.
pub fn thread_usec() -> u64 {
    let ran = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    ran.tv_sec.unsigned_abs() * 1_000_000 + ran.tv_nsec.unsigned_abs() / 1_000
}

#[cfg(test)]
mod tests {
    use super::strftime;

    #[test]
    fn formats_of_times() {
        let at = |format: &str, max| strftime(format.as_bytes(), 1_700_000_000, false, max);
        let long = at("%A, %d-%b-%Y %H:%M:%S %Z", 100);
        assert_eq!(long.as_deref(), Some(&b"Tuesday, 14-Nov-2023 22:13:20 GMT"[..]));
        assert_eq!(at("", 10).as_deref(), Some(&b""[..]));
        assert_eq!(at("%Y", 4).as_deref(), Some(&b"2023"[..]));
        assert_eq!(at("%Y", 3), None);
        assert_eq!(at("a\0b", 10), None);
    }

    #[test]
    fn offset_is_within_a_day_and_a_bit() {
        for t in [0, 1_700_000_000, 1_720_000_000] {
            assert!(super::utc_offset_secs(t).abs() <= 15 * 3600);
        }
        assert_eq!(super::utc_offset_secs(i64::MAX), 0);
    }
}
