//! Which frames may come where, and that pieces give what the whole gives.

mod control;
mod message;
mod settings;

use super::*;

fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write_head(&mut out, kind, payload.len() as u64);
    out.extend_from_slice(payload);
    out
}

fn varint(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint::write(value, &mut out);
    out
}
