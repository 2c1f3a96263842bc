//! `welcome_page` (Weir's own): the built-in page that `weir serve` shows when it is given no
//! folder.

use bytes::Bytes;
use conf::ConfError;
use conf::table::Directive;
use http::cx::Cx;
use http::module::{Conf, LocView, Module, Pipeline, Verdict};
use http::request::Request;
use http_wire::h1::Method;

use crate::handled_here::handled_here;

/// The module's table.
pub static MODULE: Module = Module::of::<WelcomeConf>("welcome", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[handled_here::<WelcomeConf>(
    "welcome_page",
    "Serves a built-in welcome page with the version and the event driver. Weir's own.",
)];

#[derive(Default)]
struct WelcomeConf;

impl Conf for WelcomeConf {}

const PAGE: &str = include_str!("welcome.html");

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.set_here::<WelcomeConf>() {
        p.content_handler = Some(Box::new(handle));
    }
    Ok(())
}

fn handle(r: &mut Request) -> Verdict {
    if !r.method_is(&[Method::Get, Method::Head]) {
        return Verdict::Status(405);
    }
    let address = r.c().local().map(ToString::to_string).unwrap_or_default();
    let page = fill(&address, event::driver_name());
    r.respond(200, Bytes::from_static(b"text/html; charset=utf-8"), Bytes::from(page));
    r.out.add("Cache-Control", Bytes::from_static(b"no-store"));
    Verdict::Done
}

fn fill(address: &str, driver: &str) -> String {
    PAGE.replace("{{version}}", env!("CARGO_PKG_VERSION"))
        .replace("{{driver}}", driver)
        .replace("{{address}}", address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_placeholder_is_left() {
        let page = fill("127.0.0.1:8080", "epoll");
        assert!(!page.contains("{{"));
        assert!(page.contains("127.0.0.1:8080"));
        assert!(page.contains(env!("CARGO_PKG_VERSION")));
    }
}
