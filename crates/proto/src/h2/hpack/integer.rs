//! Integers (section 5.1): a prefix of some bits, then seven bits a byte.

use super::HpackError;

/// Bytes that an integer may take behind its prefix: enough for 21 bits, more than any index, and
/// than the length of any text that is taken.
const BYTES_MAX: u32 = 3;

/// Takes an integer off `input`; its first byte is there already.
#[inline]
pub(super) fn read(first: u8, bits: u32, input: &mut &[u8]) -> Result<usize, HpackError> {
    let mask = (1 << bits) - 1;
    let value = first & mask;
    if value < mask { Ok(usize::from(value)) } else { read_rest(mask, input) }
}

fn read_rest(mask: u8, input: &mut &[u8]) -> Result<usize, HpackError> {
    let mut value = usize::from(mask);
    for n in 0..BYTES_MAX {
        let (&byte, rest) = input.split_first().ok_or(HpackError::CutInteger)?;
        *input = rest;
        value += usize::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(HpackError::Integer)
}

/// Writes `value` behind the upper bits of `flags`; `bits` are those of the prefix.
#[inline]
pub(super) fn write(flags: u8, bits: u32, value: usize, out: &mut Vec<u8>) {
    let mask = (1 << bits) - 1;
    if value < mask {
        out.push(flags | value as u8);
    } else {
        write_rest(flags | mask as u8, value - mask, out);
    }
}

fn write_rest(first: u8, mut rest: usize, out: &mut Vec<u8>) {
    out.push(first);
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
