//! `gzip`: responses compressed on their way out.

pub mod deflate;
pub mod negotiate;
pub mod statics;

use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::value::{Bufs, set_bufs, set_flag, set_num_within, set_once, set_size, size};
use conf::{ConfError, Node};
use http::core_directives::{HSL, HSLI, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Pipeline, Scope, Verdict};
use http::output::{BodyFilter, FilterStep};
use http::request::Request;
use http::types::TypeList;
use http::vars::VarDef;
use mem::Chain;

use self::deflate::{Compressor, Settings, Until};
use self::negotiate::Accept;

/// The module's table.
pub static MODULE: Module = Module {
    name: "gzip",
    directives: DIRECTIVES,
    variables: &[VarDef::kept("gzip_ratio", ratio_variable)],
    confs: &[ConfType::of::<GzipConf>(Scope::Location)],
    install: Some(install),
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
        Args::T1,
        "1",
        "From 1, the fastest, to 9, the smallest.",
        |cx, n| set_num_within(&mut cx.loc::<GzipConf>().level, n, (1, 9)),
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

const DEFAULT_TYPE: &str = "text/html";

#[derive(Default)]
struct GzipConf {
    on: Option<bool>,
    buffers: Option<Bufs>,
    types: Option<TypeList>,
    level: Option<u64>,
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
        self.level = self.level.or(prev.level);
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

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<GzipConf>();
    if conf.on != Some(true) {
        return Ok(());
    }
    let page = os::limits::page_size();
    let buffers = conf.buffers.unwrap_or(Bufs { num: (128 << 10) / page, size: page });
    let gzip = Gzip {
        accept: Accept::of(l),
        types: conf.types.clone().unwrap_or_else(|| TypeList::of(&[DEFAULT_TYPE])),
        min_length: conf.min_length.unwrap_or(20) as u64,
        plan: Plan {
            settings: Settings {
                level: conf.level.unwrap_or(1) as i32,
                window_bits: conf.window_bits.unwrap_or(15),
                mem_level: conf.mem_level.unwrap_or(8),
            },
            output_max: buffers.num.saturating_mul(buffers.size),
            postpone: conf.postpone.unwrap_or(0) as u64,
            no_buffer: conf.no_buffer.unwrap_or(false),
        },
    };
    p.header_filters.push(Box::new(move |r: &mut Request| {
        gzip.run(r);
        Verdict::Next
    }));
    Ok(())
}

/// How a body is compressed.
#[derive(Clone, Copy)]
struct Plan {
    settings: Settings,
    /// How much compressed output is made before it is sent.
    output_max: usize,
    postpone: u64,
    no_buffer: bool,
}

struct Gzip {
    accept: Accept,
    types: TypeList,
    min_length: u64,
    plan: Plan,
}

impl Gzip {
    fn run(&self, r: &mut Request) {
        if !matches!(r.status(), 200 | 403 | 404)
            || r.flags.header_only
            || r.out.content_length.is_some_and(|len| len < self.min_length)
            || r.out.header(b"Content-Encoding").is_some_and(|coding| !coding.is_empty())
            || !self.types.has(&r.out)
        {
            return;
        }
        r.out.vary_encoding |= self.accept.vary;
        if !self.accept.takes_gzip(r) {
            return;
        }
        r.out.add("Content-Encoding", Bytes::from_static(b"gzip"));
        r.out.body_changes();
        r.out.remove(b"Accept-Ranges");
        r.out.weaken_etag();
        r.body_filters.push(Box::new(Body::new(self.plan)));
    }
}

/// The body filter: one response being compressed.
struct Body {
    plan: Plan,
    /// What waits for more to come (`postpone_gzipping`).
    postponed: Chain,
    compressor: Option<Compressor>,
    ended: bool,
}

impl Body {
    fn new(plan: Plan) -> Body {
        Body { plan, postponed: Chain::new(), compressor: None, ended: false }
    }
}

impl BodyFilter for Body {
    fn is_coding(&self) -> bool {
        true
    }

    fn filter(
        &mut self,
        r: &mut Request,
        input: &mut Chain,
        last: bool,
        out: &mut Chain,
    ) -> FilterStep {
        if self.ended {
            input.clear();
            return FilterStep::Go;
        }
        let until = if last {
            Until::Ended
        } else if r.out.flush || self.plan.no_buffer {
            Until::Flushed
        } else {
            Until::Free
        };
        if self.compressor.is_none() {
            self.postponed.append(input);
            if until == Until::Free && self.postponed.len() < self.plan.postpone {
                return FilterStep::Go;
            }
            *input = self.postponed.take();
        }
        let settings = self.plan.settings;
        let compressor = self.compressor.get_or_insert_with(|| Compressor::take(settings));
        match compressor.run(input, until, out, self.plan.output_max) {
            Ok(false) => return FilterStep::More,
            Ok(true) => {}
            Err(_) => {
                let log = base::log::Level::Alert;
                r.log(log, format_args!("deflate() failed"));
                return FilterStep::Fail;
            }
        }
        if compressor.ended() {
            *r.ctx_mut() = Ratio { before: compressor.total_in(), after: compressor.total_out() };
            self.compressor = None;
            self.ended = true;
        }
        FilterStep::Go
    }
}

/// How much a response was compressed.
#[derive(Default)]
struct Ratio {
    before: u64,
    after: u64,
}

fn ratio_variable(r: &mut Request, out: &mut Vec<u8>) -> bool {
    match r.ctx::<Ratio>() {
        Some(&Ratio { before, after }) if after > 0 => {
            write_ratio(before, after, out);
            true
        }
        _ => false,
    }
}

/// With two digits behind the point, rounded.
fn write_ratio(before: u64, after: u64, out: &mut Vec<u8>) {
    let before = u128::from(before);
    let thousandths = (before * 1000 / u128::from(after)) as u64;
    let hundredths = thousandths / 10 + u64::from(thousandths % 10 > 4);
    base::ascii::write_u64(out, hundredths / 100);
    out.push(b'.');
    out.push(b'0' + (hundredths / 10 % 10) as u8);
    out.push(b'0' + (hundredths % 10) as u8);
}

#[cfg(test)]
mod tests;
