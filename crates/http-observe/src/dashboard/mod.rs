//! `dashboard`: one page that shows what the API knows, and the API itself below it.
//!
//! Every two seconds the page asks for what is new in the overview of the API
//! ([`crate::api`]: `/weir/v1/overview`); the hour of history before is the server's.
//!
//! The page is one file without foreign parts: its policy allows nothing but the script and the
//! style that are in it, by their hashes, and requests to this server.

use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::{ConfError, Node};
use http::core_directives::directive;
use http::cx::{Cx, LocationCx};
use http::module::{Conf, LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use http::server::location::LocKind;
use http_wire::h1::Method;
use sha2::{Digest, Sha256};

use crate::api::{Api, writes};

/// The module's table.
pub static MODULE: Module = Module::of::<Dashboard>("dashboard", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "dashboard",
    C::LOCATION,
    Args::NONE.or(Args::T1),
    "",
    "Serves a status page; write=on adds controls that change upstream servers.",
    set,
)];

#[derive(Default)]
struct Dashboard(Option<bool>);

impl Conf for Dashboard {}

fn set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let write = writes(n)?;
    let prefix = [LocKind::Prefix, LocKind::PrefixNoRegex];
    if !cx.location().is_some_and(|(kind, _)| prefix.contains(kind)) {
        let m = "needs a location with a prefix, as its API is below it";
        return Err(ConfError::directive(n, m));
    }
    if cx.loc::<Dashboard>().0.replace(write).is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    cx.env.metrics.show();
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.set_here_or_around::<Dashboard>()
        && let Some(write) = l.conf::<Dashboard>().0
    {
        engine::status::show();
        let path = l.info.name.strip_suffix(b"/").unwrap_or(&l.info.name);
        let api = Api::new([path, b"/api"].concat().into(), write);
        let (page, policy) = page(write);
        p.answers_always = true;
        p.content_handler =
            Some(Box::new(Page { path: Bytes::copy_from_slice(path), page, policy, api }));
    }
    Ok(())
}

const HTML: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// The parts of the script, in order: each uses those before it.
const SCRIPT: &str = concat!(
    include_str!("base.js"),
    include_str!("charts.js"),
    include_str!("views.js"),
    include_str!("panel.js"),
    include_str!("page.js"),
);

/// The most bytes of the page: it is sent whole, over any network.
#[cfg(test)]
const PAGE_MAX: usize = 100_000;

/// The page, and the policy for it.
fn page(write: bool) -> (Bytes, Bytes) {
    let script = match write {
        true => SCRIPT.replace("/*WRITE*/false", "true"),
        false => SCRIPT.replace("/*WRITE*/false", "false"),
    };
    let hash = |text: &str| {
        let mut out = Vec::new();
        base::base64::encode(&Sha256::digest(text.as_bytes()), &mut out);
        String::from_utf8_lossy(&out).into_owned()
    };
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash(&script),
        hash(STYLE)
    );
    let page = HTML.replace("/*STYLE*/", STYLE).replace("/*SCRIPT*/", &script);
    (page.into(), policy.into())
}

struct Page {
    /// The location's, without a slash at its end.
    path: Bytes,
    page: Bytes,
    policy: Bytes,
    api: Api,
}

impl PhaseHandler for Page {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let Some(rest) = r.target.uri.strip_prefix(&self.path[..]) else {
            return Verdict::Status(404).into();
        };
        if rest == b"/api" || rest.starts_with(b"/api/") {
            return self.api.run(r);
        }
        if !rest.is_empty() && rest != b"/" {
            return Verdict::Status(404).into();
        }
        if !r.method_is(&[Method::Get, Method::Head]) {
            return Verdict::Status(405).into();
        }
        r.respond(200, Bytes::from_static(b"text/html; charset=utf-8"), self.page.clone());
        for (name, value) in [
            ("Content-Security-Policy", self.policy.clone()),
            ("Cache-Control", Bytes::from_static(b"no-store")),
            ("X-Content-Type-Options", Bytes::from_static(b"nosniff")),
            ("Referrer-Policy", Bytes::from_static(b"no-referrer")),
        ] {
            r.out.add(name, value);
        }
        Verdict::Done.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_whole() {
        for write in [false, true] {
            let (page, policy) = page(write);
            let text = String::from_utf8(page.to_vec()).unwrap();
            assert!(text.len() <= PAGE_MAX, "{}", text.len());
            assert!(!text.contains("/*STYLE*/") && !text.contains("/*SCRIPT*/"));
            assert!(text.contains(&format!("const WRITE = {write};")));
            // Nothing is fetched from elsewhere, and no handler or style stands in an attribute.
            for foreign in ["http://", "https://", " onclick=", " style=", "innerHTML", "eval("] {
                let found = text.matches(foreign).count();
                let name_space = usize::from(foreign == "http://") * 2;
                assert_eq!(found, name_space, "{foreign}");
            }
            assert!(policy.starts_with(b"default-src 'none'; script-src 'sha256-"));
        }
    }
}
