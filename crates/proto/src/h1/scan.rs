//! Byte classes and word-at-a-time searches.

/// Classes of the characters of a field name: bits of their own, those that a name may have first.
pub(super) mod name {
    use super::{HIGH, ONES, each};

    /// Letters, digits and `-`.
    pub const VALID: u8 = 0;
    /// `_`
    pub const UNDERSCORE: u8 = 1;
    /// Not of a name, but tolerated: the field is marked.
    pub const INVALID: u8 = 2;
    /// `:`
    pub const COLON: u8 = 4;
    /// Line ends.
    pub const END: u8 = 8;
    /// Control characters and space: the line is refused.
    pub const CONTROL: u8 = 16;

    pub static CLASS: [u8; 256] = classes();

    /// Names up to this length are looked for here.
    const SHORT: usize = 32;

    /// The length of the name that a line begins with, if its colon is near, and whether the name
    /// consists of letters and hyphens, as nearly all do.
    #[inline]
    pub fn find(line: &[u8]) -> Option<(usize, bool)> {
        if matches!(line.first()?, b'\r' | b'\n') {
            return None;
        }
        let short = line.get(..SHORT).unwrap_or(line);
        let (words, tail) = short.as_chunks::<8>();
        let (mut at, mut others) = (0, 0);
        for word in words {
            let word = u64::from_le_bytes(*word);
            let from_colon = word ^ each(b':');
            // The lowest set bit marks the first byte that is 0.
            let zero = from_colon.wrapping_sub(ONES) & !from_colon & HIGH;
            if zero != 0 {
                // The bits below that of the colon.
                others |= not_letters(word) & ((zero & zero.wrapping_neg()) - 1);
                return Some((at + (zero.trailing_zeros() / 8) as usize, others == 0));
            }
            others |= not_letters(word);
            at += 8;
        }
        tail.iter().position(|byte| *byte == b':').map(|i| (at + i, false))
    }

    /// The highest bit of each byte that is neither a letter nor a hyphen.
    #[inline]
    fn not_letters(word: u64) -> u64 {
        // Sums of numbers below 128 stay within their bytes.
        let low = word & !HIGH;
        let lower = low | each(0x20);
        let from_a = lower + each(0x80 - b'a');
        let behind_z = lower + each(0x7f - b'z');
        let not_hyphen = (low ^ each(b'-')) + each(0x7f);
        (!(from_a & !behind_z) & not_hyphen | word) & HIGH
    }

    const fn classes() -> [u8; 256] {
        let mut class = [INVALID; 256];
        let mut i = 0;
        while i < 256 {
            let byte = i as u8;
            if byte.is_ascii_alphanumeric() || byte == b'-' {
                class[i] = VALID;
            } else if byte <= 0x20 || byte == 0x7f {
                class[i] = CONTROL;
            }
            i += 1;
        }
        class[b'_' as usize] = UNDERSCORE;
        class[b':' as usize] = COLON;
        class[b'\r' as usize] = END;
        class[b'\n' as usize] = END;
        class
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// A word of eight times this byte.
const fn each(byte: u8) -> u64 {
    ONES * byte as u64
}

/// A longer field value is searched by memchr, whose start costs more than it saves below.
const SHORT: usize = 64;

/// Offset, at or behind `from`, of the first NUL, CR or LF; the buffer's length if there is none.
#[inline]
pub(crate) fn value_end(buf: &[u8], from: usize) -> usize {
    let Some(rest) = buf.get(from..) else { return buf.len() };
    let (short, long) = rest.split_at(rest.len().min(SHORT));
    let (words, tail) = short.as_chunks::<8>();
    let mut at = from;
    for word in words {
        let word = u64::from_le_bytes(*word);
        // The lowest set bit marks the first byte below 14 exactly; higher ones may be borrowed.
        let mut low = word.wrapping_sub(each(14)) & !word & HIGH;
        while low != 0 {
            let byte = (low.trailing_zeros() / 8) as usize;
            if ends_value((word >> (byte * 8)) as u8) {
                return at + byte;
            }
            low &= low - 1;
        }
        at += 8;
    }
    for (i, byte) in tail.iter().enumerate() {
        if ends_value(*byte) {
            return at + i;
        }
    }
    match memchr::memchr3(0, b'\r', b'\n', long) {
        Some(i) => from + SHORT + i,
        None => buf.len(),
    }
}

#[inline]
fn ends_value(byte: u8) -> bool {
    matches!(byte, 0 | b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use super::{name, value_end};

    #[test]
    fn a_near_colon_is_found_where_a_plain_search_finds_it() {
        for len in 0..70 {
            for at in 0..=len {
                for fill in [b'a', b';', b'9', b':' ^ 0x80, 0xff, 0] {
                    let mut line = vec![fill; len];
                    if let Some(byte) = line.get_mut(at) {
                        *byte = b':';
                    }
                    let found = line.iter().position(|byte| *byte == b':').filter(|i| *i < 32);
                    // The bytes behind the last whole word are not looked at.
                    let words = line.len().min(32) / 8 * 8;
                    let letters = |i: usize| i < words && (fill == b'a' || i == 0);
                    assert_eq!(name::find(&line), found.map(|i| (i, letters(i))), "{at} of {len}");
                }
            }
        }
        assert_eq!((name::find(b"\r\na: b"), name::find(b"\na: b")), (None, None));
    }

    #[test]
    fn a_name_of_letters_and_hyphens_is_known_by_any_of_its_bytes() {
        for byte in (0..=255).filter(|byte| *byte != b':') {
            for at in 0..14 {
                let mut line = *b"Content-Length: some value of it";
                line[at] = byte;
                let is = byte.is_ascii_alphabetic() || byte == b'-';
                if at > 0 || !matches!(byte, b'\r' | b'\n') {
                    assert_eq!(name::find(&line), Some((14, is)), "{byte} at {at}");
                }
            }
        }
    }

    #[test]
    fn value_end_agrees_with_a_plain_search() {
        let fill = [b'a', b'\t', 1, 13 - 1, 14, 0x7f, 0x80, 0xff];
        for len in 0..150 {
            for end in [0u8, b'\r', b'\n'] {
                for at in 0..=len {
                    let mut buf: Vec<u8> = (0..len).map(|i| fill[i % fill.len()]).collect();
                    if at < len {
                        buf[at] = end;
                    }
                    for from in [0, at / 2, at] {
                        assert_eq!(value_end(&buf, from), at, "len {len} at {at} from {from}");
                    }
                }
            }
        }
        assert_eq!(value_end(b"abc", 9), 3);
    }
}
