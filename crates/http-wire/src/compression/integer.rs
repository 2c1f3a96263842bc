//! Integers (RFC 7541 section 5.1): a prefix of some bits, then seven bits a byte.

use super::Malformed;

/// Bytes that an integer of HPACK may take behind its prefix: enough for 21 bits, more than any
/// index, and than the length of any text that is taken.
const SHORT_BYTES: u32 = 3;

/// The same for QPACK: the 62 bits of stream identifiers (RFC 9204 section 4.1.1).
const LONG_BYTES: u32 = 9;

/// The largest integer of QPACK.
pub(crate) const LONG_MAX: u64 = (1 << 62) - 1;

/// Takes an integer of HPACK off `input`; its first byte is there already.
#[inline]
pub(crate) fn read(first: u8, bits: u32, input: &mut &[u8]) -> Result<usize, Malformed> {
    let mask = (1 << bits) - 1;
    let value = first & mask;
    if value < mask { Ok(usize::from(value)) } else { read_short(mask, input) }
}

fn read_short(mask: u8, input: &mut &[u8]) -> Result<usize, Malformed> {
    Ok(read_rest::<SHORT_BYTES>(mask, input)? as usize)
}

/// Takes an integer of QPACK off `input`; its first byte is there already. `bits` may be 8.
#[inline]
pub(crate) fn read_long(first: u8, bits: u32, input: &mut &[u8]) -> Result<u64, Malformed> {
    let mask = u8::MAX >> (8 - bits);
    let value = first & mask;
    if value < mask { Ok(u64::from(value)) } else { read_longer(mask, input) }
}

fn read_longer(mask: u8, input: &mut &[u8]) -> Result<u64, Malformed> {
    let value = read_rest::<LONG_BYTES>(mask, input)?;
    if value > LONG_MAX { Err(Malformed::Integer) } else { Ok(value) }
}

/// Nine bytes of seven bits and a prefix fit into 64 bits.
#[inline]
fn read_rest<const BYTES_MAX: u32>(mask: u8, input: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = u64::from(mask);
    for n in 0..BYTES_MAX {
        let (&byte, rest) = input.split_first().ok_or(Malformed::CutInteger)?;
        *input = rest;
        value += u64::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed::Integer)
}

/// Writes `value` behind the upper bits of `flags`; `bits` are those of the prefix.
#[inline]
pub(crate) fn write(flags: u8, bits: u32, value: usize, out: &mut Vec<u8>) {
    write_long(flags, bits, value as u64, out);
}

/// The same for identifiers of streams.
#[inline]
pub(crate) fn write_long(flags: u8, bits: u32, value: u64, out: &mut Vec<u8>) {
    let mask = u64::from(u8::MAX >> (8 - bits));
    if value < mask {
        out.push(flags | value as u8);
    } else {
        write_rest(flags | mask as u8, value - mask, out);
    }
}

fn write_rest(first: u8, mut rest: u64, out: &mut Vec<u8>) {
    out.push(first);
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_integers_have_62_bits() {
        for value in [0, 1, 62, 63, 64, 127, 190, 191, 1 << 21, 1 << 32, LONG_MAX - 1, LONG_MAX] {
            for bits in 1..=8 {
                let mut out = Vec::new();
                write_long(0, bits, value, &mut out);
                let mut rest = &out[1..];
                assert_eq!(read_long(out[0], bits, &mut rest), Ok(value));
                assert!(rest.is_empty());
                for cut in 1..out.len() {
                    let cut = read_long(out[0], bits, &mut &out[1..cut]);
                    assert_eq!(cut, Err(Malformed::CutInteger));
                }
            }
        }
        for value in [LONG_MAX + 1, 1 << 63, u64::MAX] {
            let mut out = Vec::new();
            write_long(0, 6, value, &mut out);
            assert_eq!(read_long(out[0], 6, &mut &out[1..]), Err(Malformed::Integer));
        }
        assert_eq!(read_long(0x3f, 6, &mut &[0x80, 0x80, 0][..]), Ok(63), "padded");
    }
}
