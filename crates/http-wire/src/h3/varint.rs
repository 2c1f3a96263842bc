//! Integers of QUIC (RFC 9000 section 16): the two upper bits of the first byte say how many bytes
//! there are.

/// The largest one.
pub const MAX: u64 = (1 << 62) - 1;

/// Bytes of the longest one.
pub const LEN_MAX: usize = 8;

/// Bytes of an integer that begins with this one.
#[inline]
pub(super) fn len_of(first: u8) -> usize {
    1 << (first >> 6)
}

/// The integer at the beginning of `input`, and its bytes. `None`: some are missing.
#[inline]
pub fn read(input: &[u8]) -> Option<(u64, usize)> {
    let first = *input.first()?;
    if first < 0x40 {
        return Some((u64::from(first), 1));
    }
    let len = len_of(first);
    let bytes = input.get(1..len)?;
    let value = bytes.iter().fold(u64::from(first & 0x3f), |n, byte| n << 8 | u64::from(*byte));
    Some((value, len))
}

/// Takes an integer off `input`.
#[inline]
pub fn take(input: &mut &[u8]) -> Option<u64> {
    let (value, len) = read(input)?;
    *input = input.get(len..)?;
    Some(value)
}

/// Bytes that `value` takes.
#[inline]
pub const fn len(value: u64) -> usize {
    match value {
        ..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

/// Writes `value`, which is [`MAX`] at most.
#[inline]
pub fn write(value: u64, out: &mut Vec<u8>) {
    match len(value) {
        1 => out.push(value as u8),
        2 => out.extend_from_slice(&(0x4000 | value as u16).to_be_bytes()),
        4 => out.extend_from_slice(&(0x8000_0000 | value as u32).to_be_bytes()),
        _ => out.extend_from_slice(&(3 << 62 | value.min(MAX)).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_round_trip() {
        let edges = [0, 1, 0x3f, 0x40, 0x3fff, 0x4000, 0x3fff_ffff, 0x4000_0000, MAX - 1, MAX];
        for value in edges {
            let mut out = Vec::new();
            write(value, &mut out);
            assert_eq!(out.len(), len(value));
            assert_eq!(read(&out), Some((value, out.len())));
            for cut in 0..out.len() {
                assert_eq!(read(&out[..cut]), None);
            }
        }
        let mut out = Vec::new();
        write(u64::MAX, &mut out);
        assert_eq!(read(&out), Some((MAX, 8)));
    }

    #[test]
    fn the_examples_of_rfc_9000() {
        let cases: [(&[u8], u64); 5] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (bytes, value) in cases {
            assert_eq!(read(bytes), Some((value, bytes.len())));
        }
    }
}
