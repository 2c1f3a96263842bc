//! `empty_gif`: a transparent picture of one pixel, from memory.

use bytes::Bytes;
use conf::ConfError;
use conf::table::Directive;
use http::cx::Cx;
use http::module::{Conf, LocView, Module, Pipeline, Verdict};
use http::request::Request;
use http_wire::h1::Method;

use crate::handled_here::handled_here;

/// The module's table.
pub static MODULE: Module = Module::of::<EmptyGif>("empty_gif", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] =
    &[handled_here::<EmptyGif>("empty_gif", "Returns a transparent 1x1 GIF.")];

#[derive(Default)]
struct EmptyGif;

impl Conf for EmptyGif {}

/// GIF 89a: a screen of 1×1 with two colours, of which the second is transparent, and one pixel of
/// it.
static GIF: [u8; 43] = *b"GIF89a\x01\0\x01\0\x80\x01\0\0\0\0\xff\xff\xff\
    !\xf9\x04\x01\0\0\x01\0,\0\0\0\0\x01\0\x01\0\0\x02\x02L\x01\0;";

/// The time that nginx gives it: 28 September 1970.
const LAST_MODIFIED: i64 = 23_349_600;

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.set_here_or_around::<EmptyGif>() {
        p.content_handler = Some(Box::new(handle));
    }
    Ok(())
}

fn handle(r: &mut Request) -> Verdict {
    if !r.method_is(&[Method::Get, Method::Head]) {
        return Verdict::Status(405);
    }
    r.respond(200, Bytes::from_static(b"image/gif"), Bytes::from_static(&GIF));
    r.out.last_modified = Some(LAST_MODIFIED);
    Verdict::Done
}
