//! Names and values as the encoder looks them up: a few words of their bytes.

/// A field's name in any case.
#[derive(Clone, Copy)]
pub(crate) struct Name<'a> {
    /// The name as it was given.
    pub text: &'a [u8],
    words: Words,
}

/// The first eight bytes and the last eight; they overlap where there are fewer than sixteen.
#[derive(Clone, Copy)]
struct Words {
    first: u64,
    last: u64,
}

impl Words {
    #[inline]
    const fn new(text: &[u8]) -> Words {
        if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
            return Words { first: u64::from_le_bytes(*first), last: u64::from_le_bytes(*last) };
        }
        if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
            let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
            return Words { first: first as u64, last: last as u64 };
        }
        match *text {
            [] => Words { first: 0, last: 0 },
            [a] => Words { first: a as u64, last: 0 },
            [a, b] => Words { first: u16::from_le_bytes([a, b]) as u64, last: 0 },
            [a, b, c, ..] => Words { first: u32::from_le_bytes([a, b, c, 0]) as u64, last: 0 },
        }
    }
}

impl<'a> Name<'a> {
    #[inline]
    pub const fn new(text: &'a [u8]) -> Name<'a> {
        let Words { first, last } = Words::new(text);
        Name { text, words: Words { first: lower(first), last: lower(last) } }
    }

    /// Whether it is `lowered`, which is in lower case.
    #[inline]
    pub fn is(&self, lowered: &[u8]) -> bool {
        let len = lowered.len();
        if len != self.text.len() {
            return false;
        }
        let words = Words::new(lowered);
        (words.first == self.words.first && words.last == self.words.last)
            && (len <= 16 || self.text[8..len - 8].eq_ignore_ascii_case(&lowered[8..len - 8]))
    }

    /// A hash of the name; that of another case is the same.
    #[inline]
    pub const fn hash(&self) -> u32 {
        let hash = self.wide_hash();
        (hash >> 32) as u32
    }

    #[inline]
    const fn wide_hash(&self) -> u64 {
        let len = self.text.len() as u64;
        fold(
            self.words.first ^ 0x9e37_79b9_7f4a_7c15,
            self.words.last ^ len << 56 ^ 0xd6e8_feb8_6659_fd93,
        )
    }

    /// A hash of the name with a value. It takes 24 bytes of the value: those that differ between
    /// two dates, and few enough for a policy of a kilobyte to cost what a short value does.
    #[inline]
    pub(crate) fn field_hash(&self, value: &[u8]) -> u32 {
        let Words { first, last } = Words::new(value);
        let middle = match value.len().checked_sub(16).map(|at| value[at..].first_chunk()) {
            Some(Some(chunk)) => u64::from_le_bytes(*chunk),
            _ => 0,
        };
        let len = value.len() as u64;
        let hash = fold(
            first ^ middle.rotate_left(29) ^ 0xa076_1d64_78bd_642f,
            last ^ len.rotate_right(16) ^ 0xe703_7ed1_a0b4_28db,
        );
        ((hash ^ self.wide_hash()) >> 32) as u32
    }
}

/// Whether two values are the same. Most are short, and a call of `memcmp` costs more than they do.
#[inline]
pub(crate) fn same_value(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match (a.first_chunk::<16>(), b.first_chunk(), a.last_chunk::<16>(), b.last_chunk()) {
        (Some(first), Some(other), Some(last), Some(other_last)) => {
            u128::from_le_bytes(*first) == u128::from_le_bytes(*other)
                && u128::from_le_bytes(*last) == u128::from_le_bytes(*other_last)
                && (a.len() <= 32 || a == b)
        }
        _ => {
            let (words, others) = (Words::new(a), Words::new(b));
            words.first == others.first && words.last == others.last
        }
    }
}

/// Both halves of a product, mixed.
#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Eight letters in lower case at once; other bytes are what they were.
#[inline]
const fn lower(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let ascii = word & (0x7f * ONES);
    let from_a = ascii + (0x80 - b'A' as u64) * ONES;
    let above_z = ascii + (0x7f - b'Z' as u64) * ONES;
    let upper = (from_a & !above_z & !word) & (0x80 * ONES);
    word | upper >> 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_is_that_of_ascii() {
        for byte in 0..=255u8 {
            for place in 0..8 {
                let mut bytes = *b"aZ[\x80\xc1 @z";
                bytes[place] = byte;
                let word = lower(u64::from_le_bytes(bytes));
                assert_eq!(word.to_le_bytes(), bytes.map(|b| b.to_ascii_lowercase()));
            }
        }
    }

    #[test]
    fn a_name_is_found_in_any_case() {
        let long = b"X-Some-Rather-Long-Name".repeat(3);
        for len in 0..long.len() {
            let (given, lowered) = (&long[..len], long[..len].to_ascii_lowercase());
            let (name, same) = (Name::new(given), Name::new(&lowered));
            assert!(name.is(&lowered) && same.is(&lowered));
            assert_eq!(name.hash(), same.hash());
            assert_eq!(name.field_hash(given), same.field_hash(given));
            for at in 0..len {
                let mut other = lowered.clone();
                other[at] = b'!';
                assert!(!name.is(&other), "{len} {at}");
            }
            assert!(!name.is(&[&lowered[..], b"!"].concat()));
        }
    }
}
