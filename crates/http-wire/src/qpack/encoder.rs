//! Fields into sections: by the static table and literals alone. The table of the peer's decoder
//! stays empty, so no section waits for anything.

use super::static_table::{self, Found};
use crate::compression::{Malformed, integer, literal};
use crate::h3::{Code, Fault};

/// A field of the static table (section 4.5.2).
const INDEXED: u8 = 0xc0;
/// A literal with a name of the static table (section 4.5.4).
const NAMED: u8 = 0x50;
/// A literal with a name of its own (section 4.5.6).
const LITERAL: u8 = 0x20;

/// Bytes of the longest instruction of a decoder: a first byte and an integer behind it.
const INSTRUCTION_MAX: usize = 10;

/// Encodes the field sections of one direction of a connection.
#[derive(Debug, Default)]
pub struct Encoder {
    /// The beginning of an instruction of the peer's decoder.
    begun: [u8; INSTRUCTION_MAX],
    begun_len: usize,
}

impl Encoder {
    /// An encoder with an empty table.
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// Begins a section: nothing is required of the dynamic table.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[0, 0]);
    }

    /// Writes `:status`; `code` has three digits.
    #[inline]
    pub fn status(&mut self, code: u16, out: &mut Vec<u8>) {
        if code == 200 {
            return out.push(INDEXED | 25);
        }
        let digit = |n: u16| b'0' + (code / n % 10) as u8;
        self.field(b":status", &[digit(100), digit(10), digit(1)], out);
    }

    /// Writes a field. `name` may have any case; `value` is written as it is.
    pub fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        match static_table::find(name, value) {
            Some(Found::Field(index)) => return integer::write(INDEXED, 6, index, out),
            Some(Found::Name(index)) => integer::write(NAMED, 4, index, out),
            None => literal::write_prefixed_name(LITERAL, 3, name, out),
        }
        literal::write_value(value, out);
    }

    /// Takes bytes of the peer's decoder stream, cut anywhere.
    ///
    /// # Errors
    /// An acknowledgement of what was not sent, which ends the connection (section 4.4).
    pub fn decoder_stream(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let mut rest = bytes;
        while let Some((&next, behind)) = rest.split_first() {
            // No instruction has more bytes than there is room for: an integer ends before.
            if let Some(place) = self.begun.get_mut(self.begun_len) {
                *place = next;
            }
            self.begun_len += 1;
            rest = behind;
            let begun = self.begun.get(..self.begun_len).unwrap_or(&self.begun);
            if instruction(begun)? {
                self.begun_len = 0;
            }
        }
        Ok(())
    }
}

/// Whether these bytes are an instruction, which says nothing new; otherwise one of which some are
/// missing.
fn instruction(bytes: &[u8]) -> Result<bool, Fault> {
    let refuse = |what| Err(Fault::connection(Code::QpackDecoderStreamError, what));
    let Some((&first, mut rest)) = bytes.split_first() else { return Ok(false) };
    let bits = if first & 0x80 != 0 { 7 } else { 6 };
    match integer::read_long(first, bits, &mut rest) {
        Err(Malformed::CutInteger) => Ok(false),
        Err(_) => refuse("too large integer on decoder stream"),
        Ok(_) if first & 0x80 != 0 => refuse("an acknowledgement of a section without entries"),
        Ok(_) if first & 0x40 == 0 => refuse("an increment of the insert count without insertions"),
        // A stream was cancelled: no entry is held for it.
        Ok(_) => Ok(true),
    }
}
