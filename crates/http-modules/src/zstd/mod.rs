//! `zstd` and `zstd_static` (Weir's own, with the directives of the module that nginx users know):
//! responses compressed with Zstandard.

mod encode;

use conf::table::Directive;
use http::cx::Cx;
use http::module::{LocView, Module};
use http::request::Request;
use http::vars::VarDef;

use crate::compress::body::Make;
use crate::compress::coder::Coder;
use crate::compress::precompressed::Mode;
use crate::compress::settings::{self, Coded, Names, Settings};
use crate::compress::{self, Coding, Offer};

/// The module's table.
pub static MODULE: Module = Module {
    variables: &[VarDef::kept("zstd_ratio", ratio)],
    ..Module::with_conf::<ZstdConf>("zstd", DIRECTIVES)
};

static DIRECTIVES: &[Directive<Cx>] = &TABLE;

const TABLE: [Directive<Cx>; 6] = {
    let [on, level, types, min_length, buffers] = settings::directives::<ZstdConf>(Names {
        on: ("zstd", "Compresses responses with Zstandard for clients that accept it."),
        level: (
            "zstd_comp_level",
            "1",
            "Compression level, 1 (fastest) to 22 (smallest). Slow work moves to a thread pool; \
             `threads` or `threads=POOL` moves all but short responses.",
        ),
        types: "zstd_types",
        min_length: "zstd_min_length",
        buffers: "zstd_buffers",
    });
    let statics = settings::statics::<ZstdConf>(
        "zstd_static",
        "Serves FILE.zst in place of FILE if it exists: to clients that accept zstd, or always.",
    );
    [on, level, types, min_length, buffers, statics]
};

engine::settings! {
    struct ZstdConf {
        settings: Settings,
    }
}

impl Coded for ZstdConf {
    const LEVELS: (u64, u64) = (1, 22);

    const COSTS: &'static [u64] = &[
        5, 6, 12, 18, 23, 32, 38, 48, 55, 78, 120, 130, 350, 430, 600, 420, 420, 620, 760, 700,
        730, 700,
    ];

    fn settings(&mut self) -> &mut Settings {
        &mut self.settings
    }
}

/// The coding as a location offers it.
pub fn offer(l: &LocView<'_>) -> Option<Offer> {
    let settings = &l.conf::<ZstdConf>().settings;
    let level = settings.level(1);
    settings.offer::<ZstdConf, _>(Coding::Zstd, level, || {
        move |len| -> Make {
            Box::new(move || Ok(Box::new(encode::Zstd::take(level as i32, len)?) as Box<dyn Coder>))
        }
    })
}

/// `zstd_static` in a location.
pub(crate) fn statics(l: &LocView<'_>) -> Mode {
    l.conf::<ZstdConf>().settings.statics()
}

fn ratio(r: &mut Request, out: &mut Vec<u8>) -> bool {
    compress::write_ratio_of(r, Coding::Zstd, out)
}
