//! `gzip`: responses compressed on their way out.

mod code;
pub mod deflate;
pub mod negotiate;
pub mod small;
pub mod statics;
mod symbols;

use conf::table::{Args, Directive};
use conf::value::{set_flag, set_once, set_size, size};
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{LocView, Module};
use http::request::Request;
use http::vars::VarDef;

use self::deflate::Compressor;
use self::small::Small;
use crate::compress::body::Make;
use crate::compress::coder::Coder;
use crate::compress::settings::{self, Coded, Names, Settings};
use crate::compress::{self, Coding, Offer};

/// The module's table.
pub static MODULE: Module = Module {
    variables: &[VarDef::kept("gzip_ratio", ratio_variable)],
    ..Module::with_conf::<GzipConf>("gzip", DIRECTIVES)
};

static DIRECTIVES: &[Directive<Cx>] = &TABLE;

const TABLE: [Directive<Cx>; 9] = {
    let [on, level, types, min_length, buffers] = settings::directives::<GzipConf>(Names {
        on: ("gzip", "Compresses responses with gzip for clients that accept it."),
        level: (
            "gzip_comp_level",
            "1",
            "Compression level, 1 (fastest) to 9 (smallest). Slow work moves to a thread pool; \
             `threads` or `threads=POOL` (Weir's own) moves all but short responses.",
        ),
        types: "gzip_types",
        min_length: "gzip_min_length",
        buffers: "gzip_buffers",
    });
    let [window, hash, postpone, no_buffer] = OWN;
    [on, buffers, types, level, window, hash, postpone, no_buffer, min_length]
};

const OWN: [Directive<Cx>; 4] = [
    directive(
        "gzip_window",
        HSL,
        Args::T1,
        "32k",
        "The compression window: a power of two, 512 to 32k.",
        |cx, n| {
            power(
                &mut cx.loc::<GzipConf>().window_bits,
                n,
                |size| match size {
                    512..=0x8000 => Some(size.trailing_zeros() as i32),
                    _ => None,
                },
                "must be 512, 1k, 2k, 4k, 8k, 16k, or 32k",
            )
        },
    ),
    directive(
        "gzip_hash",
        HSL,
        Args::T1,
        "64k",
        "Memory of the compressor for pending input (zlib's memLevel).",
        |cx, n| {
            power(
                &mut cx.loc::<GzipConf>().mem_level,
                n,
                |size| match size {
                    512..=0x20000 => Some(size.trailing_zeros() as i32 - 8),
                    _ => None,
                },
                "must be 512, 1k, 2k, 4k, 8k, 16k, 32k, 64k, or 128k",
            )
        },
    ),
    directive(
        "postpone_gzipping",
        HSL,
        Args::T1,
        "0",
        "Starts compressing once this much of the response is available.",
        |cx, n| set_size(&mut cx.loc::<GzipConf>().postpone, n),
    ),
    directive(
        "gzip_no_buffer",
        HSL,
        Args::FLAG,
        "off",
        "Flushes the compressor after each piece of the response rather than accumulating output.",
        |cx, n| set_flag(&mut cx.loc::<GzipConf>().no_buffer, n),
    ),
];

engine::settings! {
    struct GzipConf {
        settings: Settings,
        window_bits: Option<i32>,
        mem_level: Option<i32>,
        postpone: Option<usize>,
        no_buffer: Option<bool>,
    }
}

impl Coded for GzipConf {
    const LEVELS: (u64, u64) = (1, 9);

    const COSTS: &'static [u64] = &[15, 18, 18, 22, 26, 35, 48, 52, 52];

    fn settings(&mut self) -> &mut Settings {
        &mut self.settings
    }
}

/// A size that is a power of two in a range.
fn power(
    field: &mut Option<i32>,
    n: &Node,
    of: fn(usize) -> Option<i32>,
    range: &str,
) -> Result<(), ConfError> {
    set_once(field, n, |n| {
        let bytes = size(n, 0)?;
        let exponent = of(bytes).filter(|_| bytes.is_power_of_two());
        exponent.ok_or_else(|| ConfError::directive(n, range))
    })
}

/// The coding as a location offers it.
pub fn offer(l: &LocView<'_>) -> Option<Offer> {
    let conf = l.conf::<GzipConf>();
    let level = conf.settings.level(1);
    let deflate = deflate::Settings {
        level: level as i32,
        window_bits: conf.window_bits.unwrap_or(15),
        mem_level: conf.mem_level.unwrap_or(8),
    };
    let mut offer = conf.settings.offer::<GzipConf, _>(Coding::Gzip, level, || {
        move |len: Option<u64>| -> Make {
            let fitted = deflate.fitted(len);
            Box::new(move || {
                Ok(match len {
                    Some(len) if len <= small::LEN_MAX as u64 => Box::new(Small::new(fitted)),
                    _ => Box::new(Compressor::take(fitted)) as Box<dyn Coder>,
                })
            })
        }
    })?;
    offer.plan.postpone = conf.postpone.unwrap_or(0) as u64;
    offer.plan.no_buffer = conf.no_buffer.unwrap_or(false);
    Some(offer)
}

fn ratio_variable(r: &mut Request, out: &mut Vec<u8>) -> bool {
    compress::write_ratio_of(r, Coding::Gzip, out)
}

#[cfg(test)]
mod tests;
