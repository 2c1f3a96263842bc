//! The examples of RFC 9204 appendix B, and what the sections forbid.

mod decoder;
mod encoder;
mod examples;
mod limits;

use super::*;
use crate::h3::{Code, Ends, Fault};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

const LIMITS: Limits = Limits {
    table_capacity: 4096,
    blocked_streams: 4,
    blocked_bytes: 1000,
    section: 20_000,
    text: 20_000,
};

/// Bytes in hexadecimal; blanks are skipped.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn fields(list: &[(&str, &str)]) -> Fields {
    list.iter().map(|(name, value)| (name.as_bytes().into(), value.as_bytes().into())).collect()
}

/// The fields of a section that does not wait.
fn decode(decoder: &mut Decoder, stream: u64, section: &[u8]) -> Result<Fields, Fault> {
    let mut fields = Fields::new();
    let decoded =
        decoder.decode(stream, section, |name, value| fields.push((name.into(), value.into())))?;
    assert_eq!(decoded, Decoded::Whole);
    Ok(fields)
}

/// Those of one that waited.
fn decode_held(decoder: &mut Decoder, held: &Held) -> Result<Fields, Fault> {
    let mut fields = Fields::new();
    decoder.decode_held(held, |name, value| fields.push((name.into(), value.into())))?;
    Ok(fields)
}

fn instructions(decoder: &mut Decoder) -> Vec<u8> {
    let mut out = Vec::new();
    decoder.write_instructions(&mut out);
    assert!(!decoder.has_instructions());
    out
}

/// A decoder behind these instructions, which are in hexadecimal.
fn behind(instructions: &str) -> Decoder {
    let mut decoder = Decoder::new(LIMITS);
    decoder.encoder_stream(&hex(instructions)).unwrap();
    decoder
}
