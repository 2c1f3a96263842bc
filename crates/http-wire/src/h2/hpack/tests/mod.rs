//! The examples of RFC 7541 appendix C, and what the sections forbid.

mod decoder;
mod encoder;
mod examples;
mod resumed;

use super::*;
use crate::compression::name::Name;
use crate::compression::{huffman, integer};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// Bytes in hexadecimal; blanks are skipped.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let mut fields = Fields::new();
    decoder.decode(block, |name, value| fields.push((name.to_vec(), value.to_vec())))?;
    Ok(fields)
}

fn fields(list: &[(&str, &str)]) -> Fields {
    list.iter().map(|(name, value)| (name.as_bytes().into(), value.as_bytes().into())).collect()
}

/// A block of fields that may be indexed.
fn encode(encoder: &mut Encoder, list: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.begin(&mut out);
    for (name, value) in list {
        encoder.field(name.as_bytes(), value.as_bytes(), &mut out);
    }
    out
}
