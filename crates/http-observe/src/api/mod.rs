//! `api`: what the server knows of itself as JSON, in the shape of nginx's API of version 9, and,
//! with `write=on`, changes of upstreams' servers and resets of counters.
//!
//! ```text
//!  /                     the versions           /9/   the sections
//!  /9/nginx  /9/processes  /9/connections  /9/slabs/  /9/ssl  /9/workers/  /9/license
//!  /9/resolvers/   /9/http/…   /9/stream/…   /9/weir/…  (what version 9 has no name for)
//! ```
//!
//! Without a number the path is that of version 9. Who may ask is a matter of the location:
//! `allow`, `auth_basic` and their like. docs/STATUS.md says which member is what.

pub(crate) mod caches;
mod change;
pub(crate) mod document;
mod keyvals;
mod overview;
mod path;
mod resources;
pub(crate) mod upstreams;
pub(crate) mod whole;

use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::{ConfError, Node};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{Conf, LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use http_wire::h1::Method;

use ::upstream::api::Refusal;
use base::json::Object;
use document::Fields;

/// The module's table.
pub static MODULE: Module = Module::of::<ApiConf>("api", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "api",
    C::LOCATION,
    Args::NONE.or(Args::T1),
    "",
    "Serves the nginx Plus API (JSON); write=on allows changing upstream servers.",
    set,
)];

/// Reads `[write=on|off]`.
///
/// # Errors
/// `invalid parameter`.
pub(crate) fn writes(n: &Node) -> Result<bool, ConfError> {
    match n.args.first() {
        None => Ok(false),
        Some(w) => match w.bytes() {
            b"write=on" => Ok(true),
            b"write=off" => Ok(false),
            _ => Err(ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))),
        },
    }
}

#[derive(Default)]
struct ApiConf(Option<bool>);

impl Conf for ApiConf {}

fn set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let write = writes(n)?;
    if cx.loc::<ApiConf>().0.replace(write).is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    cx.env.metrics.show();
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.set_here_or_around::<ApiConf>()
        && let Some(write) = l.conf::<ApiConf>().0
    {
        engine::status::show();
        p.answers_always = true;
        p.content_handler = Some(Box::new(Api { prefix: l.info.name.clone(), write }));
    }
    Ok(())
}

/// The API below a prefix.
pub(crate) struct Api {
    prefix: Bytes,
    write: bool,
}

/// The page that describes the members.
const HREF: &str = "https://nginx.org/en/docs/http/ngx_http_api_module.html";

fn refuse(r: &mut Request, refusal: &Refusal) -> Verdict {
    let mut out = Vec::new();
    Object::write(&mut out, |o| {
        o.object("error", |o| {
            o.number("status", refusal.status.into());
            o.text("text", refusal.text.as_bytes());
            o.text("code", refusal.code.as_bytes());
        });
        let mut id = Vec::new();
        base::ascii::write_hex(&mut id, &os::random::number().to_be_bytes());
        base::ascii::write_hex(&mut id, &os::random::number().to_be_bytes());
        o.text("request_id", &id);
        o.text("href", HREF.as_bytes());
    });
    out.push(b'\n');
    document::answer(r, refusal.status, b"application/json", document::text(out))
}

/// The names in `fields=`: the value is a list with commas.
fn fields(args: &[u8]) -> Fields {
    let mut values = args.split(|b| *b == b'&').filter_map(|arg| arg.strip_prefix(b"fields="));
    let names = values.next()?.split(|b| *b == b',').filter(|name| !name.is_empty());
    Some(names.map(<[u8]>::to_vec).collect())
}

/// The number behind a name in the arguments, like `since=`.
fn number(args: &[u8], name: &[u8]) -> Option<u64> {
    let mut values = args.split(|b| *b == b'&').filter_map(|arg| arg.strip_prefix(name));
    base::ascii::parse_u64(values.next()?)
}

impl Api {
    /// The API below `prefix`, with changes or without.
    pub(crate) fn new(prefix: Bytes, write: bool) -> Api {
        Api { prefix, write }
    }

    fn look(&self, r: &mut Request) -> Result<document::Writer, Refusal> {
        let found = path::find(r, &self.prefix)?;
        keyvals::check(&found)?;
        let fields = fields(&r.target.args);
        Ok(resources::write(r, found, fields))
    }
}

impl PhaseHandler for Api {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        if r.method_is(&[Method::Get, Method::Head]) {
            return match self.look(r) {
                Ok(write) => document::answer(r, 200, b"application/json", write),
                Err(refusal) => refuse(r, &refusal),
            }
            .into();
        }
        if !self.write || !r.method_is(&[Method::Post, Method::Patch, Method::Delete]) {
            return refuse(r, &Refusal::new(405, "MethodDisabled", "method disabled")).into();
        }
        if let Some(text) = change::foreign_origin(r) {
            let m = format_args!("api: a change is refused: {text}");
            r.log(base::log::Level::Error, m);
            return refuse(r, &Refusal::new(403, "ForeignOrigin", text)).into();
        }
        Step::Wait(Box::pin(async move {
            match change::run(r, &self.prefix).await {
                Ok(change::Done { status, write }) => {
                    document::answer(r, status, b"application/json", write)
                }
                Err(change::Stop::Refuse(refusal)) => refuse(r, &refusal),
                Err(change::Stop::End(verdict)) => verdict,
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_a_list() {
        let names = |args: &str| fields(args.as_bytes()).map(|names| names.join(&b' '));
        assert_eq!(names(""), None);
        assert_eq!(names("a=1"), None);
        assert_eq!(names("fields="), Some(Vec::new()));
        assert_eq!(names("a=1&fields=b,c"), Some(b"b c".to_vec()));
    }
}
