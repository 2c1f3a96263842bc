//! `internal_redirect`: another URI or named location, after limits and access were checked.

use conf::table::{Args, Contexts as C, Directive};
use conf::template::Template;
use conf::{ConfError, Node};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{LocView, Module, Pipeline, Verdict};
use http::request::Request;

/// The module's table.
pub static MODULE: Module = Module::of::<RedirectConf>("internal_redirect", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "internal_redirect",
    C::SERVER.or(C::LOCATION),
    Args::T1,
    "",
    "Redirects to a URI or a named location after limits and access were checked; empty: not.",
    set,
)];

engine::settings! {
    struct RedirectConf {
        target: Option<Template>,
    }
}

fn set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let target = cx.template(n.arg(0)?)?;
    if cx.loc::<RedirectConf>().target.replace(target).is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if let Some(target) = l.conf::<RedirectConf>().target.clone() {
        p.precontent.push(Box::new(move |r: &mut Request| redirect(r, &target)));
    }
    Ok(())
}

fn redirect(r: &mut Request, target: &Template) -> Verdict {
    let to = target.eval(r);
    // The target's location may have inherited the directive from the server.
    let is_here =
        to[..] == r.target.uri[..] || to[..] == r.loc.info.name[..] && to.starts_with(b"@");
    if to.is_empty() || is_here {
        return Verdict::Next;
    }
    if to[0] == b'@' {
        return r.named_redirect(&to);
    }
    let (uri, args) = match memchr::memchr(b'?', &to) {
        Some(mark) => (&to[..mark], &to[mark + 1..]),
        None => (&to[..], &b""[..]),
    };
    r.internal_redirect(uri, args)
}
