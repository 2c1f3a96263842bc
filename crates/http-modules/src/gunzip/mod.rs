//! `gunzip`: unpacks responses that came with gzip if the client does not accept gzip, and always
//! in subrequests, because the filters of the including page need plain text.

mod inflate;

use base::log::Level;
use conf::ConfError;
use conf::table::{Args, Directive};
use conf::value::{Bufs, set_bufs, set_flag, set_num, set_offset};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{HeaderFilter, LocView, Module, Pipeline, Verdict};
use http::output::{BodyFilter, FilterStep, Piece};
use http::request::Request;

use self::inflate::{Failure, Inflater};
use crate::gzip::negotiate::Accept;

/// The module's table.
pub static MODULE: Module = Module::of::<GunzipConf>("gunzip", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "gunzip",
        HSL,
        Args::FLAG,
        "off",
        "Decompresses gzip responses for clients that do not accept gzip.",
        |cx, n| set_flag(&mut cx.loc::<GunzipConf>().on, n),
    ),
    directive(
        "gunzip_buffers",
        HSL,
        Args::T2,
        "32 4k|16 8k",
        "The number and size of the buffers for decompressed output.",
        |cx, n| set_bufs(&mut cx.loc::<GunzipConf>().buffers, n),
    ),
    directive(
        "gunzip_max_ratio",
        HSL,
        Args::T1,
        "0",
        "The maximum ratio of decompressed to compressed size after 10 MB; 0 is no limit.",
        |cx, n| set_num(&mut cx.loc::<GunzipConf>().max_ratio, n),
    ),
    directive(
        "gunzip_max_size",
        HSL,
        Args::T1,
        "0",
        "The maximum size of a decompressed response; 0 is no limit.",
        |cx, n| set_offset(&mut cx.loc::<GunzipConf>().max_size, n),
    ),
];

/// A response may unpack to this size whatever its ratio, because only larger ones are bombs. There
/// is no limit on the ratio by default: text hardly exceeds 20, but tables of zeros and sparse
/// images reach 1032, the highest that deflate has, and are no bombs.
const FREE_OF_RATIO: u64 = 10 << 20;

engine::settings! {
    struct GunzipConf {
        on: Option<bool>,
        buffers: Option<Bufs>,
        max_ratio: Option<u64>,
        max_size: Option<u64>,
    }
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<GunzipConf>();
    if conf.on == Some(true) {
        let page = os::limits::page_size();
        let buffers = conf.buffers.unwrap_or(Bufs { num: (128 << 10) / page, size: page });
        let limits = Limits {
            output_max: buffers.num.saturating_mul(buffers.size),
            ratio: conf.max_ratio.unwrap_or(0),
            size: conf.max_size.unwrap_or(0),
        };
        p.header_filters.push(Box::new(Gunzip { accept: Accept::of(l), limits }));
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Limits {
    /// The length of output that is unpacked before it is sent.
    output_max: usize,
    /// `gunzip_max_ratio`
    ratio: u64,
    /// `gunzip_max_size`
    size: u64,
}

impl Limits {
    /// The limit exceeded by a response that has become `after` bytes from `before`.
    fn exceeded(&self, before: u64, after: u64) -> Option<&'static str> {
        if self.size > 0 && after > self.size {
            return Some("gunzip_max_size");
        }
        let bomb = after > FREE_OF_RATIO && after / self.ratio.max(1) > before;
        (self.ratio > 0 && bomb).then_some("gunzip_max_ratio")
    }
}

struct Gunzip {
    accept: Accept,
    limits: Limits,
}

impl HeaderFilter for Gunzip {
    fn in_subrequests(&self) -> bool {
        true
    }

    fn run(&self, r: &mut Request) -> Verdict {
        let coding = r.out.header(b"Content-Encoding");
        if !coding.is_some_and(|coding| base::ascii::eq_ignore_case(coding, b"gzip")) {
            return Verdict::Next;
        }
        r.out.vary_encoding |= self.accept.vary;
        if self.accept.takes_gzip(r) {
            return Verdict::Next;
        }
        r.out.remove(b"Content-Encoding");
        r.out.body_changes();
        r.out.weaken_etag();
        let inflater = Inflater::new();
        r.out.filters.push(Box::new(Body { limits: self.limits, inflater }));
        Verdict::Next
    }
}

/// The body filter: one response being unpacked.
struct Body {
    limits: Limits,
    inflater: Inflater,
}

impl BodyFilter for Body {
    fn filter(&mut self, r: &mut Request, Piece { input, last, out }: Piece<'_>) -> FilterStep {
        let done = match self.inflater.run(input, out, self.limits.output_max) {
            Ok(done) => done,
            Err(Failure(code, what)) => {
                // Behind nginx's words, which end in zlib's flush (none) and error.
                r.log(Level::Error, format_args!("inflate() failed: 0, {code} ({what})"));
                return FilterStep::Fail;
            }
        };
        let (before, after) = (self.inflater.total_in(), self.inflater.total_out());
        if let Some(limit) = self.limits.exceeded(before, after) {
            let m = "the response is cut off";
            r.log(
                Level::Error,
                format_args!("\"{limit}\" exceeded by {after} bytes unpacked from {before}: {m}"),
            );
            return FilterStep::Fail;
        }
        if !done {
            return FilterStep::More;
        }
        // If no byte came, the response has no body, for example to HEAD: no stream was cut.
        if last && before > 0 && !self.inflater.ended() {
            r.log(Level::Error, format_args!("inflate() returned -5 on response end"));
            return FilterStep::Fail;
        }
        FilterStep::Go
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bombs_are_told_from_what_compresses_well() {
        let limits = Limits { output_max: 1, ratio: 100, size: 0 };
        assert_eq!(limits.exceeded(1, FREE_OF_RATIO), None);
        assert_eq!(limits.exceeded(1000, FREE_OF_RATIO + 1), Some("gunzip_max_ratio"));
        assert_eq!(limits.exceeded(1 << 20, 100 << 20), None);
        assert_eq!(limits.exceeded((1 << 20) - 1, 100 << 20), Some("gunzip_max_ratio"));
        let limits = Limits { output_max: 1, ratio: 0, size: 1000 };
        assert_eq!(limits.exceeded(1, 1000), None);
        assert_eq!(limits.exceeded(900, 1001), Some("gunzip_max_size"));
        assert_eq!(Limits { size: 0, ..limits }.exceeded(1, u64::MAX), None);
    }
}
