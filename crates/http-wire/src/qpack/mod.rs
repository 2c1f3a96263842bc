//! QPACK (RFC 9204): compression of the fields of HTTP/3.
//!
//! Three kinds of bytes come from the peer: field sections, in HEADERS frames; the instructions of
//! its encoder, which change the table that sections refer to; and those of its decoder, which say
//! what of our sections it has read. Nothing orders the streams they come on: a section may refer
//! to entries that are still under way, and waits for them.
//!
//! ```text
//! encoder stream ── Decoder::encoder_stream ──> table ──┐
//! field section ─── Decoder::decode ────────────────────┴──> fields, or it is held
//!                   Decoder::write_instructions ──> our decoder stream
//! fields ────────── Encoder ──> field section           (static table and literals)
//! decoder stream ── Encoder::decoder_stream
//! ```

mod decoder;
mod encoder;
mod held;
mod instruction;
mod section;
mod static_table;

pub use decoder::{Decoded, Decoder, Limits};
pub use encoder::Encoder;
pub use held::Held;

/// The capacity of a dynamic table that we announce, as nginx does.
pub const TABLE_CAPACITY: usize = 4096;

/// Bytes that an entry of the table, or a field of a section, counts beside its text (section
/// 3.2.1, RFC 9114 section 4.2.2).
pub const OVERHEAD: usize = 32;

#[cfg(test)]
mod tests;
