//! Numbers in a `Buffer`: `readUInt16LE`, `writeDoubleBE` and the like.

use rquickjs::{Object, Result, Value};

use super::length;
use crate::native::{self, Call, to_i64, to_number};
use crate::raw;

/// Bits of a function's number: bytes (0 for those with an argument), signed, little-endian.
const fn form(size: u32, signed: u32, little: u32) -> u32 {
    size << 2 | signed << 1 | little
}

const INTEGERS: &[(&str, &str, u32)] = &[
    ("readInt8", "writeInt8", form(1, 1, 1)),
    ("readUInt8", "writeUInt8", form(1, 0, 1)),
    ("readInt16LE", "writeInt16LE", form(2, 1, 1)),
    ("readUInt16LE", "writeUInt16LE", form(2, 0, 1)),
    ("readInt16BE", "writeInt16BE", form(2, 1, 0)),
    ("readUInt16BE", "writeUInt16BE", form(2, 0, 0)),
    ("readInt32LE", "writeInt32LE", form(4, 1, 1)),
    ("readUInt32LE", "writeUInt32LE", form(4, 0, 1)),
    ("readInt32BE", "writeInt32BE", form(4, 1, 0)),
    ("readUInt32BE", "writeUInt32BE", form(4, 0, 0)),
    ("readIntLE", "writeIntLE", form(0, 1, 1)),
    ("readUIntLE", "writeUIntLE", form(0, 0, 1)),
    ("readIntBE", "writeIntBE", form(0, 1, 0)),
    ("readUIntBE", "writeUIntBE", form(0, 0, 0)),
];

const FLOATS: &[(&str, &str, u32)] = &[
    ("readFloatLE", "writeFloatLE", form(4, 1, 1)),
    ("readFloatBE", "writeFloatBE", form(4, 1, 0)),
    ("readDoubleLE", "writeDoubleLE", form(8, 1, 1)),
    ("readDoubleBE", "writeDoubleBE", form(8, 1, 0)),
];

/// Adds the methods to the prototype.
pub fn install(prototype: &Object<'_>) -> Result<()> {
    for &(read, write, number) in INTEGERS {
        let more = usize::from(number >> 2 == 0);
        native::numbered(prototype, read_integer, &[(read, 1 + more, number)])?;
        native::numbered(prototype, write_integer, &[(write, 1 + more, number)])?;
    }
    for &(read, write, number) in FLOATS {
        native::numbered(prototype, read_float, &[(read, 1, number)])?;
        native::numbered(prototype, write_float, &[(write, 2, number)])?;
    }
    native::numbered(prototype, swap, &[("swap16", 0, 2), ("swap32", 0, 4), ("swap64", 0, 8)])
}

/// The number of bytes: of the function's form, or of an argument.
fn size<'js>(call: &Call<'_, 'js>, number: u32, argument: usize, strict: bool) -> Result<usize> {
    if number >> 2 != 0 {
        return Ok((number >> 2) as usize);
    }
    let value = call.arg(argument);
    if strict && !value.is_number() {
        return Err(call.type_error("\"byteLength\" is not a number"));
    }
    match call.index(&value)? {
        size @ 1..=6 => Ok(size as usize),
        _ => Err(call.range_error("\"byteLength\" must be >= 1 and <= 6")),
    }
}

/// Checks that `size` bytes are there from `index` on.
fn position<'js>(call: &Call<'_, 'js>, index: u64, size: usize) -> Result<usize> {
    let length = length(&call.this())? as u64;
    if index.checked_add(size as u64).is_none_or(|end| end > length) {
        return Err(call.range_error(&format!("index {index} is outside the bound of the buffer")));
    }
    Ok(index as usize)
}

/// Up to eight bytes as one number.
fn load<'js>(call: &Call<'_, 'js>, at: usize, size: usize, little: bool) -> u64 {
    let mut bytes = [0; 8];
    if little {
        raw::read(&call.this(), at, &mut bytes[..size]);
        u64::from_le_bytes(bytes)
    } else {
        raw::read(&call.this(), at, &mut bytes[8 - size..]);
        u64::from_be_bytes(bytes)
    }
}

/// Writes the low bytes of a number; the result of the method is the position behind them.
fn store<'js>(
    call: &Call<'_, 'js>,
    at: usize,
    size: usize,
    little: bool,
    value: u64,
) -> Result<Value<'js>> {
    let (little_endian, big_endian) = (value.to_le_bytes(), value.to_be_bytes());
    let bytes = if little { &little_endian[..size] } else { &big_endian[8 - size..] };
    raw::write(&call.this(), at, bytes);
    call.number((at + size) as f64)
}

fn read_integer<'js>(call: &Call<'_, 'js>, number: u32) -> Result<Value<'js>> {
    length(&call.this())?;
    let index = call.index(&call.arg(0))?;
    let size = size(call, number, 1, true)?;
    let at = position(call, index, size)?;
    let value = load(call, at, size, number & 1 != 0);
    if number & 2 == 0 {
        return call.number(value as f64);
    }
    // The sign bit moves to the top, and back with its copies.
    let spare = 64 - 8 * size as u32;
    call.number(((value << spare) as i64 >> spare) as f64)
}

fn write_integer<'js>(call: &Call<'_, 'js>, number: u32) -> Result<Value<'js>> {
    length(&call.this())?;
    let index = call.index(&call.arg(1))?;
    let size = size(call, number, 2, false)?;
    position(call, index, size)?;
    let value = to_i64(&call.arg(0))?;
    let bits = 8 * size as u32;
    let (low, high) = match number & 2 {
        0 => (0, (1i64 << bits) - 1),
        _ => (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1),
    };
    if !(low..=high).contains(&value) {
        return Err(call.range_error("value is outside the range of representable values"));
    }
    // The conversion may have run code that made the buffer shorter.
    let at = position(call, index, size)?;
    store(call, at, size, number & 1 != 0, value as u64)
}

fn read_float<'js>(call: &Call<'_, 'js>, number: u32) -> Result<Value<'js>> {
    length(&call.this())?;
    let index = call.index(&call.arg(0))?;
    let size = (number >> 2) as usize;
    let at = position(call, index, size)?;
    let bits = load(call, at, size, number & 1 != 0);
    call.number(if size == 4 {
        f64::from(f32::from_bits(bits as u32))
    } else {
        f64::from_bits(bits)
    })
}

fn write_float<'js>(call: &Call<'_, 'js>, number: u32) -> Result<Value<'js>> {
    length(&call.this())?;
    let value = to_number(&call.arg(0))?;
    let index = call.index(&call.arg(1))?;
    let size = (number >> 2) as usize;
    let at = position(call, index, size)?;
    let bits = if size == 4 { u64::from((value as f32).to_bits()) } else { value.to_bits() };
    store(call, at, size, number & 1 != 0, bits)
}

fn swap<'js>(call: &Call<'_, 'js>, size: u32) -> Result<Value<'js>> {
    if !length(&call.this())?.is_multiple_of(size as usize) {
        let bits = size << 3;
        return Err(call.range_error(&format!("Buffer size must be a multiple of {bits}-bits")));
    }
    let mut bytes = raw::bytes(&call.this()).unwrap_or_default();
    bytes.chunks_exact_mut(size as usize).for_each(<[u8]>::reverse);
    raw::write(&call.this(), 0, &bytes);
    Ok(call.this())
}
