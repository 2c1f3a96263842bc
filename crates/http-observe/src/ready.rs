//! `ready`: whether this server takes requests, for load balancers and orchestrators that ask.

use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::{ConfError, Node};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{Conf, LocView, Module, Pipeline, Verdict};
use http::request::Request;
use http_wire::h1::Method;

/// The module's table.
pub static MODULE: Module = Module::of::<Ready>("ready", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "ready",
    C::LOCATION,
    Args::NONE,
    "",
    "A readiness check: 200 while the worker serves, 503 while it shuts down.",
    set,
)];

#[derive(Default)]
struct Ready(bool);

impl Conf for Ready {}

fn set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if std::mem::replace(&mut cx.loc::<Ready>().0, true) {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.set_here_or_around::<Ready>() && l.conf::<Ready>().0 {
        p.answers_always = true;
        p.content_handler = Some(Box::new(handle));
    }
    Ok(())
}

fn handle(r: &mut Request) -> Verdict {
    if !r.method_is(&[Method::Get, Method::Head]) {
        return Verdict::Status(405);
    }
    let (status, text): (u16, &'static [u8]) = match r.main.life.is_leaving() {
        false => (200, b"ready\n"),
        true => (503, b"leaving\n"),
    };
    r.respond(status, Bytes::from_static(b"text/plain"), Bytes::from_static(text));
    r.out.add("Cache-Control", Bytes::from_static(b"no-store"));
    Verdict::Done
}
