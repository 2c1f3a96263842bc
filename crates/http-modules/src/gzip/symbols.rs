//! The alphabet of deflate (RFC 1951, section 3.2.5), and bits.

use std::sync::LazyLock;

use super::code::Codes;

/// Literals, the end of a block, and lengths.
pub(crate) const LITERALS: usize = 286;
pub(crate) const DISTANCES: usize = 30;
/// The symbol for the end of a block.
pub const END: usize = 256;

/// A symbol and the bits that go with it: their value, and how many.
#[derive(Clone, Copy)]
pub struct Symbol {
    /// Its number in its alphabet.
    pub symbol: usize,
    /// The value of the extra bits that are written after its code.
    pub extra: u32,
    /// The number of extra bits.
    pub extra_bits: u32,
}

/// The symbol for a length of 3 to 258.
#[inline]
pub(crate) fn of_length(len: usize) -> Symbol {
    if len == 258 {
        return Symbol { symbol: 285, extra: 0, extra_bits: 0 };
    }
    let n = len as u32 - 3;
    if n < 8 {
        return Symbol { symbol: 257 + n as usize, extra: 0, extra_bits: 0 };
    }
    // Four symbols to each power of two.
    let bits = n.ilog2() - 2;
    let symbol = 257 + 4 * bits + (n >> bits);
    Symbol { symbol: symbol as usize, extra: n & ((1 << bits) - 1), extra_bits: bits }
}

/// The symbol for a distance of 1 to 32768.
#[inline]
pub(crate) fn of_distance(distance: usize) -> Symbol {
    let n = distance as u32 - 1;
    if n < 4 {
        return Symbol { symbol: n as usize, extra: 0, extra_bits: 0 };
    }
    // Two symbols to each power of two.
    let bits = n.ilog2() - 1;
    let symbol = 2 * bits + (n >> bits);
    Symbol { symbol: symbol as usize, extra: n & ((1 << bits) - 1), extra_bits: bits }
}

/// The codes of blocks that bring none of their own (section 3.2.6).
pub fn fixed() -> &'static Codes {
    static FIXED: LazyLock<Codes> = LazyLock::new(|| {
        let mut codes = Codes::default();
        for (symbol, bits) in codes.literal_bits.iter_mut().enumerate() {
            *bits = match symbol {
                0..144 => 8,
                144..256 => 9,
                256..280 => 7,
                _ => 8,
            };
        }
        codes.distance_bits.fill(5);
        codes.number();
        codes
    });
    &FIXED
}

/// Writes bits, the lowest first, to the end of a vector.
pub struct Bits<'a> {
    out: &'a mut Vec<u8>,
    held: u64,
    count: u32,
}

impl Bits<'_> {
    /// A writer that begins with a whole byte.
    pub fn new(out: &mut Vec<u8>) -> Bits<'_> {
        Bits { out, held: 0, count: 0 }
    }

    /// Writes `count` bits, 32 at most; those above them are zero.
    #[inline]
    pub fn put(&mut self, bits: u32, count: u32) {
        self.held |= u64::from(bits) << self.count;
        self.count += count;
        if self.count >= 32 {
            self.out.extend_from_slice(&(self.held as u32).to_le_bytes());
            self.held >>= 32;
            self.count -= 32;
        }
    }

    /// Fills the last byte up.
    pub fn finish(&mut self) {
        let bytes = self.held.to_le_bytes();
        self.out.extend_from_slice(&bytes[..self.count.div_ceil(8) as usize]);
        (self.held, self.count) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables of the RFC, taken from the ends of their rows.
    #[test]
    fn symbols_of_lengths_and_distances() {
        for (len, symbol, extra_bits, extra) in [
            (3, 257, 0, 0),
            (10, 264, 0, 0),
            (11, 265, 1, 0),
            (12, 265, 1, 1),
            (18, 268, 1, 1),
            (19, 269, 2, 0),
            (34, 272, 2, 3),
            (35, 273, 3, 0),
            (66, 276, 3, 7),
            (67, 277, 4, 0),
            (130, 280, 4, 15),
            (131, 281, 5, 0),
            (257, 284, 5, 30),
            (258, 285, 0, 0),
        ] {
            let s = of_length(len);
            assert_eq!((s.symbol, s.extra_bits, s.extra), (symbol, extra_bits, extra), "{len}");
        }
        for (distance, symbol, extra_bits, extra) in [
            (1, 0, 0, 0),
            (4, 3, 0, 0),
            (5, 4, 1, 0),
            (8, 5, 1, 1),
            (9, 6, 2, 0),
            (24, 8, 3, 7),
            (25, 9, 3, 0),
            (1024, 19, 8, 255),
            (1025, 20, 9, 0),
            (24577, 29, 13, 0),
            (32768, 29, 13, 8191),
        ] {
            let s = of_distance(distance);
            assert_eq!(
                (s.symbol, s.extra_bits, s.extra),
                (symbol, extra_bits, extra),
                "{distance}"
            );
        }
    }

    #[test]
    fn bits_go_lowest_first() {
        let mut out = vec![0xff];
        let mut bits = Bits::new(&mut out);
        bits.put(0b1, 1);
        bits.put(0b01, 2);
        bits.put(0xffff_ffff, 32);
        bits.put(0, 3);
        bits.finish();
        assert_eq!(out, [0xff, 0b1111_1011, 0xff, 0xff, 0xff, 0b0000_0111]);
    }
}
