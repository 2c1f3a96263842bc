//! `zstd` and `zstd_static` (Weir's own, with the directives of the module that nginx users know):
//! responses compressed with Zstandard.

mod encode;

use conf::ConfError;
use conf::table::{Args, Directive};
use conf::value::{Bufs, set_bufs, set_flag, set_size};
use http::core_directives::{HSL, HSLI, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Scope};
use http::request::Request;
use http::types::TypeList;
use http::vars::VarDef;

use crate::compress::body::{Make, Plan};
use crate::compress::coder::Coder;
use crate::compress::level::{Level, set_level};
use crate::compress::precompressed::{Mode, set_mode};
use crate::compress::{self, Coding, DEFAULT_TYPE, Offer};

/// The module's table.
pub static MODULE: Module = Module {
    name: "zstd",
    directives: DIRECTIVES,
    variables: &[VarDef::kept("zstd_ratio", ratio)],
    confs: &[ConfType::of::<ZstdConf>(Scope::Location)],
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "zstd",
        HSLI,
        Args::FLAG,
        "off",
        "Compresses responses with Zstandard for clients that take it.",
        |cx, n| set_flag(&mut cx.loc::<ZstdConf>().on, n),
    ),
    directive(
        "zstd_comp_level",
        HSL,
        Args::T12,
        "1",
        "From 1, the fastest, to 22, the smallest; `threads` or `threads=POOL` compresses in a \
         thread.",
        |cx, n| set_level(cx, n, (1, 22), |cx| &mut cx.loc::<ZstdConf>().level),
    ),
    directive(
        "zstd_types",
        HSL,
        Args::ONE_MORE,
        "text/html",
        "MIME types of responses that are compressed, beside text/html; * is all.",
        |cx, n| TypeList::set(&mut cx.loc::<ZstdConf>().types, n, Some(DEFAULT_TYPE)),
    ),
    directive(
        "zstd_min_length",
        HSL,
        Args::T1,
        "20",
        "Responses that are shorter are not compressed.",
        |cx, n| set_size(&mut cx.loc::<ZstdConf>().min_length, n),
    ),
    directive(
        "zstd_buffers",
        HSL,
        Args::T2,
        "32 4k|16 8k",
        "How many buffers, and of which size, hold what is compressed and not sent yet.",
        |cx, n| set_bufs(&mut cx.loc::<ZstdConf>().buffers, n),
    ),
    directive(
        "zstd_static",
        HSL,
        Args::T1,
        "off",
        "Sends a file's neighbour with `.zst` behind its name: to clients that take it, or always.",
        |cx, n| set_mode(&mut cx.loc::<ZstdConf>().statics, n),
    ),
];

#[derive(Default)]
struct ZstdConf {
    on: Option<bool>,
    level: Option<Level>,
    types: Option<TypeList>,
    min_length: Option<usize>,
    buffers: Option<Bufs>,
    statics: Option<Mode>,
}

impl Conf for ZstdConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        self.on = self.on.or(prev.on);
        self.level = self.level.take().or_else(|| prev.level.clone());
        self.types = self.types.take().or_else(|| prev.types.clone());
        self.min_length = self.min_length.or(prev.min_length);
        self.buffers = self.buffers.or(prev.buffers);
        self.statics = self.statics.or(prev.statics);
        Ok(())
    }
}

/// What a location offers.
pub fn offer(l: &LocView<'_>) -> Option<Offer> {
    let conf = l.conf::<ZstdConf>();
    if conf.on != Some(true) {
        return None;
    }
    let level = conf.level.as_ref().map_or(1, |level| level.level) as i32;
    let make = move |len: Option<u64>| -> Make {
        Box::new(move || Ok(Box::new(encode::Zstd::take(level, len)?) as Box<dyn Coder>))
    };
    Some(Offer {
        coding: Coding::Zstd,
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

/// `zstd_static` in a location.
pub fn statics(l: &LocView<'_>) -> Mode {
    l.conf::<ZstdConf>().statics.unwrap_or_default()
}

fn ratio(r: &mut Request, out: &mut Vec<u8>) -> bool {
    compress::write_ratio_of(r, Coding::Zstd, out)
}
