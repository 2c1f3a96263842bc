//! `gzip`: responses compressed on their way out.

pub mod deflate;
pub mod negotiate;
pub mod statics;

use conf::table::{Args, Directive};
use conf::value::{Bufs, set_bufs, set_flag, set_once, set_size, size};
use conf::{ConfError, Node};
use http::core_directives::{HSL, HSLI, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Scope};
use http::request::Request;
use http::types::TypeList;
use http::vars::VarDef;

use self::deflate::{Compressor, Settings};
use crate::compress::body::{Make, Plan};
use crate::compress::coder::Coder;
use crate::compress::level::{Level, set_level};
use crate::compress::{self, Coding, DEFAULT_TYPE, Offer};

/// The module's table.
pub static MODULE: Module = Module {
    name: "gzip",
    directives: DIRECTIVES,
    variables: &[VarDef::kept("gzip_ratio", ratio_variable)],
    confs: &[ConfType::of::<GzipConf>(Scope::Location)],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive("gzip", HSLI, Args::FLAG, "off", "Compresses responses.", |cx, n| {
        set_flag(&mut cx.loc::<GzipConf>().on, n)
    }),
    directive(
        "gzip_buffers",
        HSL,
        Args::T2,
        "32 4k|16 8k",
        "How many buffers, and of which size, hold what is compressed and not sent yet.",
        |cx, n| set_bufs(&mut cx.loc::<GzipConf>().buffers, n),
    ),
    directive(
        "gzip_types",
        HSL,
        Args::ONE_MORE,
        "text/html",
        "MIME types of responses that are compressed, beside text/html; * is all.",
        |cx, n| TypeList::set(&mut cx.loc::<GzipConf>().types, n, Some(DEFAULT_TYPE)),
    ),
    directive(
        "gzip_comp_level",
        HSL,
        Args::T12,
        "1",
        "From 1, the fastest, to 9, the smallest; `threads` or `threads=POOL` compresses in a \
         thread (weir's own).",
        |cx, n| set_level(cx, n, (1, 9), |cx| &mut cx.loc::<GzipConf>().level),
    ),
    directive(
        "gzip_window",
        HSL,
        Args::T1,
        "32k",
        "How far back repetitions are looked for.",
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
        "Memory for what is about to be compressed.",
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
        "Compressing begins when so much of a response is there.",
        |cx, n| set_size(&mut cx.loc::<GzipConf>().postpone, n),
    ),
    directive(
        "gzip_no_buffer",
        HSL,
        Args::FLAG,
        "off",
        "Sends what is compressed with each piece of the response, instead of holding it back.",
        |cx, n| set_flag(&mut cx.loc::<GzipConf>().no_buffer, n),
    ),
    directive(
        "gzip_min_length",
        HSL,
        Args::T1,
        "20",
        "Responses that are shorter are not compressed.",
        |cx, n| set_size(&mut cx.loc::<GzipConf>().min_length, n),
    ),
];

#[derive(Default)]
struct GzipConf {
    on: Option<bool>,
    buffers: Option<Bufs>,
    types: Option<TypeList>,
    level: Option<Level>,
    window_bits: Option<i32>,
    mem_level: Option<i32>,
    postpone: Option<usize>,
    no_buffer: Option<bool>,
    min_length: Option<usize>,
}

impl Conf for GzipConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        self.on = self.on.or(prev.on);
        self.buffers = self.buffers.or(prev.buffers);
        self.types = self.types.take().or_else(|| prev.types.clone());
        self.level = self.level.take().or_else(|| prev.level.clone());
        self.window_bits = self.window_bits.or(prev.window_bits);
        self.mem_level = self.mem_level.or(prev.mem_level);
        self.postpone = self.postpone.or(prev.postpone);
        self.no_buffer = self.no_buffer.or(prev.no_buffer);
        self.min_length = self.min_length.or(prev.min_length);
        Ok(())
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

/// What a location offers.
pub fn offer(l: &LocView<'_>) -> Option<Offer> {
    let conf = l.conf::<GzipConf>();
    if conf.on != Some(true) {
        return None;
    }
    let settings = Settings {
        level: conf.level.as_ref().map_or(1, |level| level.level) as i32,
        window_bits: conf.window_bits.unwrap_or(15),
        mem_level: conf.mem_level.unwrap_or(8),
    };
    let make = move |len: Option<u64>| -> Make {
        Box::new(move || Ok(Box::new(Compressor::take(settings.fitted(len))) as Box<dyn Coder>))
    };
    Some(Offer {
        coding: Coding::Gzip,
        types: compress::types_or_default(&conf.types),
        min_length: conf.min_length.unwrap_or(20) as u64,
        plan: Plan {
            output_max: compress::output_max(conf.buffers),
            postpone: conf.postpone.unwrap_or(0) as u64,
            no_buffer: conf.no_buffer.unwrap_or(false),
            pool: conf.level.as_ref().and_then(|level| level.pool.clone()),
        },
        make: Box::new(make),
    })
}

fn ratio_variable(r: &mut Request, out: &mut Vec<u8>) -> bool {
    compress::write_ratio_of(r, Coding::Gzip, out)
}

#[cfg(test)]
mod tests;
