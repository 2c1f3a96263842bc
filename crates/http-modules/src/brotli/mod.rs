//! `brotli` and `brotli_static` (Weir's own, with the directives of the module that nginx users
//! know): responses compressed with Brotli.

mod encode;

use conf::ConfError;
use conf::table::{Args, Directive};
use conf::value::{Bufs, set_bufs, set_flag, set_once, set_size, size};
use http::core_directives::{HSL, HSLI, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Scope};
use http::request::Request;
use http::types::TypeList;
use http::vars::VarDef;

use self::encode::Brotli;
use crate::compress::body::{Make, Plan};
use crate::compress::coder::Coder;
use crate::compress::level::{Level, set_level};
use crate::compress::precompressed::{Mode, set_mode};
use crate::compress::{self, Coding, DEFAULT_TYPE, Offer};

/// The module's table.
pub static MODULE: Module = Module {
    name: "brotli",
    directives: DIRECTIVES,
    variables: &[VarDef::kept("brotli_ratio", ratio)],
    confs: &[ConfType::of::<BrotliConf>(Scope::Location)],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "brotli",
        HSLI,
        Args::FLAG,
        "off",
        "Compresses responses with Brotli for clients that take it.",
        |cx, n| set_flag(&mut cx.loc::<BrotliConf>().on, n),
    ),
    directive(
        "brotli_comp_level",
        HSL,
        Args::T12,
        "6",
        "From 0, the fastest, to 11, the smallest; `threads` or `threads=POOL` compresses in a \
         thread.",
        |cx, n| set_level(cx, n, (0, 11), |cx| &mut cx.loc::<BrotliConf>().level),
    ),
    directive(
        "brotli_types",
        HSL,
        Args::ONE_MORE,
        "text/html",
        "MIME types of responses that are compressed, beside text/html; * is all.",
        |cx, n| TypeList::set(&mut cx.loc::<BrotliConf>().types, n, Some(DEFAULT_TYPE)),
    ),
    directive(
        "brotli_min_length",
        HSL,
        Args::T1,
        "20",
        "Responses that are shorter are not compressed.",
        |cx, n| set_size(&mut cx.loc::<BrotliConf>().min_length, n),
    ),
    directive(
        "brotli_buffers",
        HSL,
        Args::T2,
        "32 4k|16 8k",
        "How many buffers, and of which size, hold what is compressed and not sent yet.",
        |cx, n| set_bufs(&mut cx.loc::<BrotliConf>().buffers, n),
    ),
    directive(
        "brotli_window",
        HSL,
        Args::T1,
        "512k",
        "How far back repetitions are looked for: 1k to 16m, a power of two.",
        |cx, n| {
            set_once(&mut cx.loc::<BrotliConf>().window, n, |n| {
                let bytes = size(n, 0)?;
                let fits = bytes.is_power_of_two() && (1 << 10..=16 << 20).contains(&bytes);
                let exponent = fits.then(|| bytes.trailing_zeros() as i32);
                exponent.ok_or_else(|| ConfError::directive(n, "must be a power of two, 1k to 16m"))
            })
        },
    ),
    directive(
        "brotli_static",
        HSL,
        Args::T1,
        "off",
        "Sends a file's neighbour with `.br` behind its name: to clients that take it, or always.",
        |cx, n| set_mode(&mut cx.loc::<BrotliConf>().statics, n),
    ),
];

/// 512 KB, as a power of two.
const WINDOW: i32 = 19;

#[derive(Default)]
struct BrotliConf {
    on: Option<bool>,
    level: Option<Level>,
    types: Option<TypeList>,
    min_length: Option<usize>,
    buffers: Option<Bufs>,
    statics: Option<Mode>,
    window: Option<i32>,
}

impl Conf for BrotliConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        self.on = self.on.or(prev.on);
        self.level = self.level.take().or_else(|| prev.level.clone());
        self.types = self.types.take().or_else(|| prev.types.clone());
        self.min_length = self.min_length.or(prev.min_length);
        self.buffers = self.buffers.or(prev.buffers);
        self.statics = self.statics.or(prev.statics);
        self.window = self.window.or(prev.window);
        Ok(())
    }
}

/// What a location offers.
pub fn offer(l: &LocView<'_>) -> Option<Offer> {
    let conf = l.conf::<BrotliConf>();
    if conf.on != Some(true) {
        return None;
    }
    let level = conf.level.as_ref().map_or(6, |level| level.level) as i32;
    let window = conf.window.unwrap_or(WINDOW);
    let make = move |len: Option<u64>| -> Make {
        Box::new(move || Ok(Box::new(Brotli::new(level, window, len)) as Box<dyn Coder>))
    };
    Some(Offer {
        coding: Coding::Brotli,
        types: compress::types_or_default(&conf.types),
        min_length: conf.min_length.unwrap_or(20) as u64,
        plan: Plan {
            output_max: compress::output_max(conf.buffers),
            postpone: 0,
            no_buffer: false,
            pool: conf.level.as_ref().and_then(|level| level.pool.clone()),
        },
        make: Box::new(make),
    })
}

/// `brotli_static` in a location.
pub fn statics(l: &LocView<'_>) -> Mode {
    l.conf::<BrotliConf>().statics.unwrap_or_default()
}

fn ratio(r: &mut Request, out: &mut Vec<u8>) -> bool {
    compress::write_ratio_of(r, Coding::Brotli, out)
}
