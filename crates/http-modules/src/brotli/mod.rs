//! `brotli` and `brotli_static` (Weir's own, with the directives of the module that nginx users
//! know): responses compressed with Brotli.

mod encode;

use conf::ConfError;
use conf::table::{Args, Directive};
use conf::value::{set_once, size};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{LocView, Module};
use http::request::Request;
use http::vars::VarDef;

use self::encode::Brotli;
use crate::compress::body::Make;
use crate::compress::coder::Coder;
use crate::compress::precompressed::Mode;
use crate::compress::settings::{self, Coded, Names, Settings};
use crate::compress::{self, Coding, Offer};

/// The module's table.
pub static MODULE: Module = Module {
    variables: &[VarDef::kept("brotli_ratio", ratio)],
    ..Module::with_conf::<BrotliConf>("brotli", DIRECTIVES)
};

static DIRECTIVES: &[Directive<Cx>] = &TABLE;

const TABLE: [Directive<Cx>; 7] = {
    let [on, level, types, min_length, buffers] = settings::directives::<BrotliConf>(Names {
        on: ("brotli", "Compresses responses with Brotli for clients that accept it."),
        level: (
            "brotli_comp_level",
            "6",
            "Compression level, 0 (fastest) to 11 (smallest). Slow work moves to a thread pool; \
             `threads` or `threads=POOL` moves all but short responses.",
        ),
        types: "brotli_types",
        min_length: "brotli_min_length",
        buffers: "brotli_buffers",
    });
    let statics = settings::statics::<BrotliConf>(
        "brotli_static",
        "Serves FILE.br in place of FILE if it exists: to clients that accept Brotli, or always.",
    );
    [on, level, types, min_length, buffers, WINDOW, statics]
};

const WINDOW: Directive<Cx> = directive(
    "brotli_window",
    HSL,
    Args::T1,
    "512k",
    "The compression window: a power of two, 1k to 16m.",
    |cx, n| {
        set_once(&mut cx.loc::<BrotliConf>().window, n, |n| {
            let bytes = size(n, 0)?;
            let fits = bytes.is_power_of_two() && (1 << 10..=16 << 20).contains(&bytes);
            let exponent = fits.then(|| bytes.trailing_zeros() as i32);
            exponent.ok_or_else(|| ConfError::directive(n, "must be a power of two, 1k to 16m"))
        })
    },
);

/// 512 KB, as a power of two.
const WINDOW_BITS: i32 = 19;

engine::settings! {
    struct BrotliConf {
        settings: Settings,
        window: Option<i32>,
    }
}

impl Coded for BrotliConf {
    const LEVELS: (u64, u64) = (0, 11);

    const COSTS: &'static [u64] = &[18, 27, 35, 40, 95, 105, 120, 160, 190, 190, 1000, 1900];

    fn settings(&mut self) -> &mut Settings {
        &mut self.settings
    }
}

/// The coding as a location offers it.
pub fn offer(l: &LocView<'_>) -> Option<Offer> {
    let conf = l.conf::<BrotliConf>();
    let level = conf.settings.level(6);
    let window = conf.window.unwrap_or(WINDOW_BITS);
    conf.settings.offer::<BrotliConf, _>(Coding::Brotli, level, || {
        move |len| -> Make {
            Box::new(move || Ok(Box::new(Brotli::new(level as i32, window, len)) as Box<dyn Coder>))
        }
    })
}

/// `brotli_static` in a location.
pub(crate) fn statics(l: &LocView<'_>) -> Mode {
    l.conf::<BrotliConf>().settings.statics()
}

fn ratio(r: &mut Request, out: &mut Vec<u8>) -> bool {
    compress::write_ratio_of(r, Coding::Brotli, out)
}
