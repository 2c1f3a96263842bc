//! `flv`: Flash video from a place on. Players ask for `?start=BYTES`, where they know that a key
//! frame begins, and want the format's header before it.

use std::task::{Poll, ready};

use bytes::Bytes;
use conf::ConfError;
use conf::table::Directive;
use http::cx::Cx;
use http::files;
use http::module::{Conf, LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::output::Body;
use http::request::Request;
use http_wire::h1::Method;
use mem::Chain;

use crate::handled_here::handled_here;
use crate::static_file::{not_a_file, not_opened, send_file};

/// The module's table.
pub static MODULE: Module = Module::of::<FlvConf>("flv", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[handled_here::<FlvConf>(
    "flv",
    "Serves Flash video from the byte offset in the argument `start`.",
)];

/// Signature, version 1, audio and video, length of the header, size of the tag before the first.
const HEADER: &[u8; 13] = b"FLV\x01\x05\0\0\0\x09\0\0\0\0";

#[derive(Default)]
struct FlvConf;

impl Conf for FlvConf {}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.set_here_or_around::<FlvConf>() {
        p.content_handler = Some(Box::new(Flv));
    }
    Ok(())
}

struct Flv;

impl PhaseHandler for Flv {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        match not_a_file(r, &[Method::Get, Method::Head]) {
            Some(verdict) => Step::Now(verdict),
            None => files::step(r, serve),
        }
    }
}

fn serve(r: &mut Request) -> Poll<Verdict> {
    let path = r.map_path();
    let file = match ready!(files::try_open(r, &path)) {
        Ok(file) if file.meta().is_file() => file,
        Ok(_) => return Poll::Ready(Verdict::Next),
        Err(e) => return Poll::Ready(not_opened(r, &path, &e)),
    };
    r.flags.root_tested = !r.flags.error_page;
    let size = file.meta().size;
    let start = r.arg(b"start").and_then(base::ascii::parse_u64);
    let verdict = send_file(r, &file);
    if let Some(start) = start.filter(|start| (1..size).contains(start)) {
        let mut body = Chain::new();
        body.push_bytes(Bytes::from_static(HEADER));
        file.append_to(&mut body, start, size);
        r.out.content_length = Some(body.len());
        r.out.body = Body::Chain(body);
    }
    Poll::Ready(verdict)
}
