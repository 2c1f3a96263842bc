//! The module `zlib`: DEFLATE (RFC 1951), bare or in the zlib format (RFC 1950).

use rquickjs::object::Property;
use rquickjs::{Ctx, Exception, Object, Result, Value};
use zlib_rs::{
    Deflate, DeflateConfig, DeflateFlush, Inflate, InflateError, InflateFlush, Status, Strategy,
};

use crate::buffer;
use crate::native::{self, Call, to_i64};
use crate::{raw, state};

/// What the module exports.
pub(crate) const EXPORTS: &[&str] =
    &["deflateRawSync", "deflateSync", "inflateRawSync", "inflateSync", "constants"];

/// Bytes that the output grows by; the limit on memory is checked as often.
const STEP: usize = 16 << 10;

/// The most input of one call of the library, between which the clock is looked at.
const PIECE: usize = 64 << 10;

pub fn module<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let module = Object::new(ctx.clone())?;
    native::methods(
        &module,
        &[
            ("deflateRawSync", 2, |call| deflate(call, true)),
            ("deflateSync", 2, |call| deflate(call, false)),
            ("inflateRawSync", 2, |call| inflate(call, true)),
            ("inflateSync", 2, |call| inflate(call, false)),
        ],
    )?;
    let constants = Object::new(ctx.clone())?;
    for (name, value) in [
        ("Z_NO_COMPRESSION", 0),
        ("Z_BEST_SPEED", 1),
        ("Z_BEST_COMPRESSION", 9),
        ("Z_FILTERED", 1),
        ("Z_HUFFMAN_ONLY", 2),
        ("Z_RLE", 3),
        ("Z_FIXED", 4),
        ("Z_DEFAULT_STRATEGY", 0),
    ] {
        constants.prop(name, Property::from(value).enumerable())?;
    }
    module.prop("constants", Property::from(constants).configurable())?;
    Ok(module)
}

/// The options object, where members are integers within ranges.
struct Options<'a, 'b, 'js>(&'b Call<'a, 'js>, Option<Object<'js>>);

impl<'a, 'b, 'js> Options<'a, 'b, 'js> {
    fn of(call: &'b Call<'a, 'js>) -> Options<'a, 'b, 'js> {
        Options(call, call.arg(1).into_object())
    }

    fn member(&self, name: &str) -> Result<Option<Value<'js>>> {
        let Some(object) = &self.1 else { return Ok(None) };
        let value: Value<'js> = object.get(name)?;
        Ok(Some(value).filter(|value| !value.is_undefined()))
    }

    fn integer(&self, name: &str, default: i32, low: i32, high: i32) -> Result<i32> {
        let Some(value) = self.member(name)? else { return Ok(default) };
        let number = to_i64(&value)?;
        match i32::try_from(number) {
            Ok(number) if (low..=high).contains(&number) => Ok(number),
            _ => {
                let range = format!("{name} must be in the range {low}..{high}");
                Err(self.0.range_error(&range))
            }
        }
    }

    /// nginx takes the size of its output pieces. Here it has no effect, but the same limit.
    fn check_chunk_size(&self) -> Result<()> {
        match self.member("chunkSize")? {
            Some(size) if to_i64(&size)? < 64 => Err(self.0.range_error("chunkSize must be >= 64")),
            _ => Ok(()),
        }
    }

    /// The base-two logarithm of the window; negative for bare data.
    fn window_bits(&self, raw: bool, least: i32) -> Result<i32> {
        match raw {
            true => self.integer("windowBits", -15, -15, -least),
            false => self.integer("windowBits", 15, least, 15),
        }
    }

    fn dictionary(&self) -> Result<Option<Vec<u8>>> {
        self.member("dictionary")?.map(|value| buffer::bytes_of(&value)).transpose()
    }
}

fn deflate<'js>(call: &Call<'_, 'js>, raw: bool) -> Result<Value<'js>> {
    let ctx = call.ctx();
    let options = Options::of(call);
    options.check_chunk_size()?;
    let level = options.integer("level", -1, -1, 9)?;
    let window_bits = options.window_bits(raw, 9)?;
    let mem_level = options.integer("memLevel", 8, 1, 9)?;
    let strategy = match options.member("strategy")?.map(|v| to_i64(&v)).transpose()? {
        None | Some(0) => Strategy::Default,
        Some(1) => Strategy::Filtered,
        Some(2) => Strategy::HuffmanOnly,
        Some(3) => Strategy::Rle,
        Some(4) => Strategy::Fixed,
        Some(other) => return Err(call.range_error(&format!("unknown strategy: {other}"))),
    };
    let dictionary = options.dictionary()?;
    let input = buffer::bytes_of(&call.arg(0))?;
    let config =
        DeflateConfig { level, window_bits, mem_level, strategy, ..DeflateConfig::default() };
    let mut deflate = Deflate::new_with_config(config);
    if let Some(dictionary) = dictionary {
        deflate
            .set_dictionary(&dictionary)
            .map_err(|_| Exception::throw_internal(ctx, "deflateSetDictionary() failed"))?;
    }
    let state = state::of(ctx);
    let limit = state.memory_max();
    let mut out = vec![0; STEP];
    loop {
        let (read, written) = (deflate.total_in() as usize, deflate.total_out() as usize);
        if written == out.len() {
            if written > limit {
                return Err(state::out_of_memory(ctx));
            }
            out.resize(written + STEP, 0);
        }
        if read > 0 && state.meter.must_end() {
            return Err(raw::interrupt(ctx));
        }
        let end = input.len().min(read + PIECE);
        let flush = if end == input.len() { DeflateFlush::Finish } else { DeflateFlush::NoFlush };
        match deflate.compress(&input[read..end], &mut out[written..], flush) {
            Ok(Status::StreamEnd) => {
                let written = deflate.total_out() as usize;
                return buffer::new(ctx, &out[..written]);
            }
            Ok(_) => {}
            Err(e) => {
                let message = format!("failed to deflate the data: {}", e.as_str());
                return Err(Exception::throw_internal(ctx, &message));
            }
        }
    }
}

fn inflate<'js>(call: &Call<'_, 'js>, raw: bool) -> Result<Value<'js>> {
    let ctx = call.ctx();
    let options = Options::of(call);
    options.check_chunk_size()?;
    let window_bits = options.window_bits(raw, 8)?;
    let mut dictionary = options.dictionary()?;
    let input = buffer::bytes_of(&call.arg(0))?;
    let mut inflate = Inflate::new(!raw, window_bits.unsigned_abs() as u8);
    let refused = |_| Exception::throw_internal(ctx, "inflateSetDictionary() failed");
    if raw && let Some(dictionary) = dictionary.take() {
        inflate.set_dictionary(&dictionary).map_err(refused)?;
    }
    let failed = |inflate: &Inflate, text: &str| {
        let text = inflate.error_message().unwrap_or(text);
        Exception::throw_internal(ctx, &format!("failed to inflate the data: {text}"))
    };
    let state = state::of(ctx);
    let limit = state.memory_max();
    let mut out = vec![0; STEP];
    loop {
        let (read, written) = (inflate.total_in() as usize, inflate.total_out() as usize);
        if written == out.len() {
            if written > limit {
                return Err(state::out_of_memory(ctx));
            }
            out.resize(written + STEP, 0);
        }
        if read > 0 && state.meter.must_end() {
            return Err(raw::interrupt(ctx));
        }
        match inflate.decompress(&input[read..], &mut out[written..], InflateFlush::NoFlush) {
            Ok(Status::StreamEnd) => {
                let written = inflate.total_out() as usize;
                return buffer::new(ctx, &out[..written]);
            }
            // There is room, so that the input is at its end and incomplete.
            Ok(Status::BufError) => return Err(failed(&inflate, "buffer error")),
            Ok(Status::Ok) => {}
            // The header names a dictionary: the zlib format asks for it there.
            Err(InflateError::NeedDict { .. }) => match dictionary.take() {
                Some(dictionary) => {
                    inflate.set_dictionary(&dictionary).map_err(refused)?;
                }
                None => {
                    let message = "failed to inflate, dictionary is required";
                    return Err(call.type_error(message));
                }
            },
            Err(e) => return Err(failed(&inflate, e.as_str())),
        }
    }
}
