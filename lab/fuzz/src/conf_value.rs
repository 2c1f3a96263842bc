//! Sizes, offsets and times.

use conf::value::{parse_msec, parse_offset, parse_sec, parse_size};

/// A text that two readers accept means the same to both, and no value exceeds nginx's range.
pub fn run(data: &[u8]) {
    const MAX: u64 = i64::MAX as u64;
    let size = parse_size(data).map(|size| size as u64);
    let offset = parse_offset(data);
    assert!(size.is_none_or(|size| Some(size) == offset));
    assert!(offset.is_none_or(|offset| offset <= MAX));
    let (msec, sec) = (parse_msec(data), parse_sec(data));
    assert!(msec.is_none_or(|msec| msec <= MAX) && sec.is_none_or(|sec| sec <= MAX));
    if let (Some(msec), Some(sec)) = (msec, sec) {
        assert_eq!(msec, sec * 1000);
    }
    if !data.is_empty() && data.iter().all(u8::is_ascii_digit) {
        assert_eq!(offset, sec, "a bare number");
    }
}
