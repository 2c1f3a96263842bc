//! The wire format of Protocol Buffers: tagged fields with numbers or length-prefixed bytes.

/// Wire type: a number, seven bits per byte.
const VARINT: u8 = 0;
/// Wire type: eight bytes, little-endian.
const FIXED64: u8 = 1;
/// Wire type: length-prefixed bytes (strings, messages).
const BYTES: u8 = 2;
/// Wire type: four bytes.
const FIXED32: u8 = 5;

/// The encoded length of a number, in bytes.
pub(crate) fn varint_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// The encoded length of a field with `len` bytes, whose field number is below 16.
pub(crate) fn bytes_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

/// Writes a number, seven bits a byte.
pub fn write_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes the tag and length of a field, whose `len` bytes follow.
pub fn write_head(out: &mut Vec<u8>, field: u8, len: usize) {
    out.push(field << 3 | BYTES);
    write_varint(out, len as u64);
}

/// Writes a field of bytes, a string or a message.
pub fn write_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    write_head(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// Writes a field with a number.
pub fn write_number(out: &mut Vec<u8>, field: u8, number: u64) {
    out.push(field << 3 | VARINT);
    write_varint(out, number);
}

/// Writes a field with eight bytes.
pub(crate) fn write_fixed64(out: &mut Vec<u8>, field: u8, number: u64) {
    out.push(field << 3 | FIXED64);
    out.extend_from_slice(&number.to_le_bytes());
}

/// Writes a field with a floating-point number.
pub fn write_double(out: &mut Vec<u8>, field: u8, number: f64) {
    write_fixed64(out, field, number.to_bits());
}

/// The value of a parsed field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field<'a> {
    /// A number.
    Number(u64),
    /// Bytes, a string or a message.
    Bytes(&'a [u8]),
    /// Another wire type, which no message here uses.
    Other,
}

/// Iterates over the fields of a message and their numbers; yields `None` for a malformed rest,
/// then ends.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Field<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_none() {
            self.0 = &[];
        }
        Some(read)
    }
}

impl<'a> Fields<'a> {
    fn read(&mut self) -> Option<(u64, Field<'a>)> {
        let tag = self.varint()?;
        let value = match (tag & 7) as u8 {
            VARINT => Field::Number(self.varint()?),
            FIXED64 => self.take(8).map(|_| Field::Other)?,
            BYTES => {
                let len = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(self.take(len)?)
            }
            FIXED32 => self.take(4).map(|_| Field::Other)?,
            _ => return None,
        };
        Some((tag >> 3, value))
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_as_many_bytes_as_said() {
        for number in [0, 1, 127, 128, 16_383, 16_384, 1 << 32, u64::MAX] {
            let mut out = Vec::new();
            write_varint(&mut out, number);
            assert_eq!(out.len(), varint_len(number), "{number}");
            assert_eq!(Fields(&out).varint(), Some(number));
        }
    }

    #[test]
    fn fields_are_read_up_to_what_is_malformed() {
        let message =
            [0x08, 0x96, 1, 0x12, 2, b'h', b'i', 0x19, 1, 2, 3, 4, 5, 6, 7, 8, 0x25, 1, 2];
        let read: Vec<_> = Fields(&message).collect();
        let want = [
            Some((1, Field::Number(150))),
            Some((2, Field::Bytes(b"hi"))),
            Some((3, Field::Other)),
            None,
        ];
        assert_eq!(read, want);
        for bad in [&[0x0b][..], &[0x12, 5, 1], &[0x80], &[0x08; 1], &[0xff; 11]] {
            assert_eq!(Fields(bad).collect::<Vec<_>>(), [None], "{bad:?}");
        }
    }
}
