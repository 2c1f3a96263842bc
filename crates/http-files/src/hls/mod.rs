//! `hls`: MP4 files as HTTP live streams. For a file `film.mp4`, `film.mp4.m3u8` is the playlist,
//! and `film.mp4.ts?start=SECONDS&end=SECONDS` a fragment, made when it is requested.

mod answer;

use conf::table::{Args, Contexts, Directive};
use conf::value::{self, Bufs, set_bufs, set_flag, set_size};
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, PhaseHandler, Pipeline, Scope, Step};
use http::request::Request;
use http_wire::h1::Method;

use crate::mp4::walk::Limits;
use crate::static_file::not_a_file;

/// The module's table.
pub static MODULE: Module = Module {
    confs: &[ConfType::of::<HlsConf>(Scope::Location), ConfType::of::<HlsHandler>(Scope::Location)],
    ..Module::of::<HlsConf>("hls", DIRECTIVES, install)
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "hls",
        Contexts::LOCATION,
        Args::NONE,
        "",
        "Serves MP4 files as HTTP live streams: `FILE.m3u8` and `FILE.ts`.",
        |cx, _| {
            cx.loc::<HlsHandler>().on = true;
            Ok(())
        },
    ),
    directive(
        "hls_fragment",
        HSL,
        Args::T1,
        "5s",
        "The least length of a fragment; a request may set another one with `len`.",
        |cx, n| value::set_once(&mut cx.loc::<HlsConf>().fragment, n, fragment_length),
    ),
    directive(
        "hls_buffers",
        HSL,
        Args::T2,
        "8 2m",
        "The number and size of buffers of a playlist or fragment; a larger one is a 500.",
        |cx, n| set_bufs(&mut cx.loc::<HlsConf>().buffers, n),
    ),
    directive(
        "hls_forward_args",
        HSL,
        Args::FLAG,
        "off",
        "Adds the arguments of the playlist's request to the URIs of its fragments.",
        |cx, n| set_flag(&mut cx.loc::<HlsConf>().forward_args, n),
    ),
    directive(
        "hls_mp4_buffer_size",
        HSL,
        Args::T1,
        "512k",
        "The initial size of the buffer for an MP4 file's index (moov).",
        |cx, n| set_size(&mut cx.loc::<HlsConf>().buffer_size, n),
    ),
    directive(
        "hls_mp4_max_buffer_size",
        HSL,
        Args::T1,
        "10m",
        "The maximum size of an MP4 file's index (moov), else 500.",
        |cx, n| set_size(&mut cx.loc::<HlsConf>().max_buffer_size, n),
    ),
];

engine::settings! {
    struct HlsConf {
        /// Milliseconds.
        fragment: Option<u64>,
        buffers: Option<Bufs>,
        forward_args: Option<bool>,
        buffer_size: Option<usize>,
        max_buffer_size: Option<usize>,
    }
}

/// A time that is not 0, in milliseconds.
fn fragment_length(n: &Node) -> Result<u64, ConfError> {
    let mut length = None;
    value::set_msec(&mut length, n)?;
    let length = length.filter(|length| *length > 0);
    length.ok_or_else(|| ConfError::directive(n, "invalid value"))
}

/// Whether the handler stands in a location, which is not inherited.
#[derive(Default)]
struct HlsHandler {
    on: bool,
}

impl Conf for HlsHandler {}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.set_here_or_around::<HlsHandler>() {
        let conf = l.conf::<HlsConf>();
        p.content_handler = Some(Box::new(Hls {
            index: Limits {
                buffer: conf.buffer_size.unwrap_or(512 << 10),
                moov_max: conf.max_buffer_size.unwrap_or(10 << 20) as u64,
                directive: "hls_mp4_max_buffer_size",
            },
            fragment_ms: conf.fragment.unwrap_or(5000),
            buffers: conf.buffers.unwrap_or(Bufs { num: 8, size: 2 << 20 }),
            forward_args: conf.forward_args.unwrap_or(false),
        }));
    }
    Ok(())
}

struct Hls {
    index: Limits,
    fragment_ms: u64,
    buffers: Bufs,
    forward_args: bool,
}

impl Hls {
    /// The most bytes of a response.
    fn bytes_max(&self) -> u64 {
        (self.buffers.num as u64).saturating_mul(self.buffers.size as u64)
    }
}

/// The two kinds of response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Playlist,
    Fragment,
}

impl Kind {
    /// The kind that a URI asks for, by its suffix.
    fn of(uri: &[u8]) -> Option<(Kind, &'static [u8])> {
        [(Kind::Playlist, &b".m3u8"[..]), (Kind::Fragment, b".ts")]
            .into_iter()
            .find(|(_, suffix)| uri.ends_with(suffix))
    }
}

impl PhaseHandler for Hls {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let Some((kind, suffix)) = Kind::of(&r.target.uri) else {
            // The film itself, for example.
            return Step::Now(http::module::Verdict::Next);
        };
        match not_a_file(r, &[Method::Get, Method::Head]) {
            Some(verdict) => Step::Now(verdict),
            None => Step::Wait(Box::pin(self.answer(r, kind, suffix))),
        }
    }
}
