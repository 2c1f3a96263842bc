//! CRC-32 as in ISO 3309 and gzip (reflected polynomial 0xEDB88320), which nginx uses for cache
//! file headers, `hash` without `consistent` and `ip_hash`-like choices.

const POLYNOMIAL: u32 = 0xEDB8_8320;

/// `TABLES[k][b]` is the remainder of byte `b` followed by `k` zero bytes: eight at a time.
static TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut rest = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            rest = if rest & 1 != 0 { rest >> 1 ^ POLYNOMIAL } else { rest >> 1 };
            bit += 1;
        }
        tables[0][byte] = rest;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[k - 1][byte];
            tables[k][byte] = before >> 8 ^ tables[0][(before & 255) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
};

/// A checksum fed piece by piece.
#[derive(Clone, Copy, Debug)]
pub struct Crc32(u32);

impl Crc32 {
    /// The checksum of nothing.
    pub const fn new() -> Crc32 {
        Crc32(!0)
    }

    /// Takes in more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        let mut crc = self.0;
        let (eights, rest) = bytes.as_chunks::<8>();
        for &[a, b, c, d, e, f, g, h] in eights {
            let low = crc ^ u32::from_le_bytes([a, b, c, d]);
            let [a, b, c, d] = low.to_le_bytes();
            let at = |table: usize, byte: u8| TABLES[table][usize::from(byte)];
            crc = at(7, a) ^ at(6, b) ^ at(5, c) ^ at(4, d);
            crc ^= at(3, e) ^ at(2, f) ^ at(1, g) ^ at(0, h);
        }
        for &byte in rest {
            crc = crc >> 8 ^ TABLES[0][((crc ^ u32::from(byte)) & 255) as usize];
        }
        self.0 = crc;
    }

    /// The checksum of all bytes so far.
    pub const fn finish(self) -> u32 {
        !self.0
    }
}

impl Default for Crc32 {
    fn default() -> Crc32 {
        Crc32::new()
    }
}

/// The CRC-32 of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc32::new();
    crc.update(bytes);
    crc.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_checksums() {
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b"The quick brown fox jumps over the lazy dog"), 0x414F_A339);
    }

    #[test]
    fn pieces_equal_the_whole_at_every_split() {
        let text: Vec<u8> = (0..100u8).collect();
        for at in 0..text.len() {
            let mut crc = Crc32::new();
            crc.update(&text[..at]);
            crc.update(&text[at..]);
            assert_eq!(crc.finish(), crc32(&text), "split at {at}");
        }
    }
}
