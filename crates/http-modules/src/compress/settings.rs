//! The directives that `gzip`, `brotli` and `zstd` have in common, each under its own prefix.

use conf::table::{Args, Directive};
use conf::value::{Bufs, set_bufs, set_flag, set_size};
use http::core_directives::{HSL, HSLI, directive};
use http::cx::Cx;
use http::module::Conf;
use http::types::TypeList;

use super::body::{Make, Plan};
use super::level::{Level, set_level};
use super::precompressed::{Mode, set_mode};
use super::{Coding, DEFAULT_TYPE, Offer};

engine::settings! {
    /// The values of these directives.
    pub struct Settings {
        on: Option<bool>,
        level: Option<Level>,
        types: Option<TypeList>,
        min_length: Option<usize>,
        buffers: Option<Bufs>,
        statics: Option<Mode>,
    }
}

/// A module's configuration, with these settings in it.
pub trait Coded: Conf {
    /// From the least to the greatest level.
    const LEVELS: (u64, u64);

    /// The nanoseconds that a byte of text takes at each of them, about.
    const COSTS: &'static [u64];

    /// The settings.
    fn settings(&mut self) -> &mut Settings;
}

/// The names of a module's directives, and what is said of them.
pub struct Names {
    /// The one that switches it on, with its line of the reference.
    pub on: (&'static str, &'static str),
    /// `…_comp_level`: its default, and its line.
    pub level: (&'static str, &'static str, &'static str),
    /// `…_types`
    pub types: &'static str,
    /// `…_min_length`
    pub min_length: &'static str,
    /// `…_buffers`
    pub buffers: &'static str,
}

/// The table of these directives for a module.
pub const fn directives<C: Coded>(names: Names) -> [Directive<Cx>; 5] {
    let (level, default, doc) = names.level;
    [
        directive(names.on.0, HSLI, Args::FLAG, "off", names.on.1, |cx, n| {
            set_flag(&mut cx.loc::<C>().settings().on, n)
        }),
        directive(level, HSL, Args::T12, default, doc, |cx, n| {
            set_level(cx, n, C::LEVELS, |cx| &mut cx.loc::<C>().settings().level)
        }),
        directive(
            names.types,
            HSL,
            Args::ONE_MORE,
            "text/html",
            "MIME types to compress in addition to text/html; `*` matches all.",
            |cx, n| TypeList::set(&mut cx.loc::<C>().settings().types, n, Some(DEFAULT_TYPE)),
        ),
        directive(
            names.min_length,
            HSL,
            Args::T1,
            "20",
            "The minimum response length to compress, in bytes.",
            |cx, n| set_size(&mut cx.loc::<C>().settings().min_length, n),
        ),
        directive(
            names.buffers,
            HSL,
            Args::T2,
            "32 4k|16 8k",
            "The number and size of the buffers for compressed output.",
            |cx, n| set_bufs(&mut cx.loc::<C>().settings().buffers, n),
        ),
    ]
}

pub(crate) const fn statics<C: Coded>(name: &'static str, doc: &'static str) -> Directive<Cx> {
    directive(name, HSL, Args::T1, "off", doc, |cx, n| {
        set_mode(&mut cx.loc::<C>().settings().statics, n)
    })
}

impl Settings {
    /// The level, or a module's usual one.
    pub fn level(&self, usual: u64) -> u64 {
        self.level.as_ref().map_or(usual, |level| level.level)
    }

    /// The length from which on a thread compresses at this level.
    fn thread_min<C: Coded>(&self, level: u64) -> u64 {
        /// Where a thread was asked for, less than this takes no longer than to ask it.
        const ASKED: u64 = 8 << 10;
        /// For so long the worker itself may compress, and others wait for it.
        const HELD_UP_NS: u64 = 2_000_000;

        if self.level.as_ref().is_some_and(|level| level.pool.is_some()) {
            return ASKED;
        }
        let at = level.saturating_sub(C::LEVELS.0) as usize;
        HELD_UP_NS / C::COSTS.get(at).copied().unwrap_or(1)
    }

    pub(crate) fn statics(&self) -> Mode {
        self.statics.unwrap_or_default()
    }

    /// The offer of a location where it is on, at a level; `make` makes the compressor for a
    /// response.
    pub fn offer<C: Coded, M: Fn(Option<u64>) -> Make + 'static>(
        &self,
        coding: Coding,
        level: u64,
        make: impl FnOnce() -> M,
    ) -> Option<Offer> {
        if self.on != Some(true) {
            return None;
        }
        Some(Offer {
            coding,
            types: self.types.clone().unwrap_or_else(|| TypeList::of(&[DEFAULT_TYPE])),
            min_length: self.min_length.unwrap_or(20) as u64,
            plan: Plan {
                output_max: output_max(self.buffers),
                postpone: 0,
                no_buffer: false,
                pool: self.level.as_ref().and_then(|level| level.pool.clone()),
                thread_min: self.thread_min::<C>(level),
            },
            make: Box::new(make()),
        })
    }
}

/// The length of output that is made at once.
fn output_max(buffers: Option<Bufs>) -> usize {
    let page = os::limits::page_size();
    let buffers = buffers.unwrap_or(Bufs { num: (128 << 10) / page, size: page });
    buffers.num.saturating_mul(buffers.size)
}
