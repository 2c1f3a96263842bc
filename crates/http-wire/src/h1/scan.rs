//! Byte classes, and searches that look at a chunk of bytes in one step.

use wide::u8x16;

/// The bytes of one step.
const CHUNK: usize = 16;

/// Classes of the bytes of a field name. Each but [`VALID`](name::VALID) is a bit, so that the
/// classes of all bytes of a name can be combined with `|`; from `COLON` on, a name may not have
/// them.
pub(super) mod name {
    use super::CHUNK;
    use wide::u8x16;

    /// Letters, digits and `-`.
    pub const VALID: u8 = 0;
    /// `_`
    pub(crate) const UNDERSCORE: u8 = 1;
    /// Not of a name, but tolerated: the field is marked.
    pub const INVALID: u8 = 2;
    /// `:`
    pub(crate) const COLON: u8 = 4;
    /// Control characters and space: the line is refused, as is one that ends before its colon.
    pub const CONTROL: u8 = 8;

    pub static CLASS: [u8; 256] = classes();

    /// Chunks at the start of a line that are searched for its colon; in a line with fewer chunks,
    /// the bytes after the last one are searched, too.
    const NEAR: usize = 2;

    /// The length of the name that a line begins with, if its colon is near, and whether the name
    /// is known to consist of letters and hyphens alone, as nearly all do. `false` if the colon is
    /// after the last whole chunk, because nothing is checked then.
    #[inline]
    pub fn find(line: &[u8]) -> Option<(usize, bool)> {
        if matches!(line.first()?, b'\r' | b'\n') {
            return None;
        }
        let (chunks, tail) = line.as_chunks::<CHUNK>();
        let (mut at, mut others) = (0, 0);
        for chunk in chunks.iter().take(NEAR) {
            let chunk = u8x16::new(*chunk);
            let colon = chunk.simd_eq(u8x16::splat(b':')).to_bitmask();
            others |= not_letters(chunk) & before_lowest(colon);
            if colon != 0 {
                return Some((at + colon.trailing_zeros() as usize, others == 0));
            }
            at += CHUNK;
        }
        if chunks.len() >= NEAR {
            return None;
        }
        tail.iter().position(|byte| *byte == b':').map(|i| (at + i, false))
    }

    /// The bits below the lowest one of `bits`; all, if there is none.
    #[inline]
    fn before_lowest(bits: u32) -> u32 {
        !bits & bits.wrapping_sub(1)
    }

    /// A bit for each byte that is neither a letter nor a hyphen.
    #[inline]
    fn not_letters(chunk: u8x16) -> u32 {
        let lower = chunk | u8x16::splat(0x20);
        let from_a = lower.max(u8x16::splat(b'a')).simd_eq(lower);
        let to_z = lower.min(u8x16::splat(b'z')).simd_eq(lower);
        let hyphen = chunk.simd_eq(u8x16::splat(b'-'));
        !(from_a & to_z | hyphen).to_bitmask() & 0xffff
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
        class
    }
}

/// A longer field value is searched by memchr, whose start costs more than it saves below.
const SHORT: usize = 64;

/// Offset, at or behind `from`, of the first NUL, CR or LF; the buffer's length if there is none.
#[inline]
pub(crate) fn value_end(buf: &[u8], from: usize) -> usize {
    let Some(rest) = buf.get(from..) else { return buf.len() };
    let (short, long) = rest.split_at(rest.len().min(SHORT));
    let (chunks, tail) = short.as_chunks::<CHUNK>();
    let mut at = from;
    for chunk in chunks {
        let bytes = u8x16::new(*chunk);
        let mut low = bytes.min(u8x16::splat(13)).simd_eq(bytes).to_bitmask();
        // Of the bytes below 14, a tab is the only one that a value may hold, and the others are
        // rare.
        while low != 0 {
            let i = low.trailing_zeros() as usize;
            if chunk.get(i).is_some_and(|byte| ends_value(*byte)) {
                return at + i;
            }
            low &= low - 1;
        }
        at += CHUNK;
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

/// Whether a value has none of the bytes at which [`value_end`] stops.
#[inline]
pub(crate) fn is_value(value: &[u8]) -> bool {
    let is_high = |chunk: &[u8; CHUNK]| {
        let bytes = u8x16::new(*chunk);
        bytes.min(u8x16::splat(13)).simd_eq(bytes).none()
    };
    let sound = match value.last_chunk::<CHUNK>() {
        // The last chunk overlaps those before it, where the length is no multiple.
        Some(last) if value.len() <= SHORT => {
            let (chunks, _) = value.as_chunks::<CHUNK>();
            is_high(last) && chunks.iter().all(is_high)
        }
        Some(_) => false,
        None => {
            let mut chunk = [b' '; CHUNK];
            for (to, from) in chunk.iter_mut().zip(value) {
                *to = *from;
            }
            is_high(&chunk)
        }
    };
    // Of the bytes below 14, a tab is the only one that a value may hold.
    sound || value_end(value, 0) == value.len()
}

#[inline]
fn ends_value(byte: u8) -> bool {
    matches!(byte, 0 | b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use super::{is_value, name, value_end};

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
                    // The bytes behind the last whole chunk are not looked at.
                    let chunks = line.len().min(32) / 16 * 16;
                    let letters = |i: usize| i < chunks && (fill == b'a' || i == 0);
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
                    assert_eq!(is_value(&buf), at == len, "len {len} at {at}");
                }
            }
        }
        assert_eq!(value_end(b"abc", 9), 3);
    }
}
