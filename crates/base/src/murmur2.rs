//! MurmurHash2 (Austin Appleby, public domain) with seed 0: the hash that defines `split_clients`,
//! so that a key lands in the same share here as in nginx.

const M: u32 = 0x5bd1_e995;
const R: u32 = 24;

/// The 32-bit hash of `bytes`; words are read in little-endian order on every machine.
pub fn murmur2(bytes: &[u8]) -> u32 {
    let mut hash = bytes.len() as u32;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> R;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (place, &byte) in rest.iter().enumerate() {
            hash ^= u32::from(byte) << (place * 8);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        // From the reference implementation with seed 0.
        assert_eq!(murmur2(b""), 0);
        assert_eq!(murmur2(b"a"), 0x9268_5f5e);
        assert_eq!(murmur2(b"abc"), 0x1357_7c9b);
    }

    #[test]
    fn every_length_of_tail_counts() {
        let hashes: Vec<u32> = (0..9).map(|n| murmur2(&b"12345678"[..n])).collect();
        let mut sorted = hashes.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), hashes.len());
    }
}
