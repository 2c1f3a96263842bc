//! `api`: upstreams and their servers as JSON, to look at and, with `write=on`, to change.
//!
//! ```text
//!  GET                    /http/upstreams[/NAME[/servers[/ID]]]   /resolvers[/NAME]
//!  POST                   /http/upstreams/NAME/servers
//!  PATCH, DELETE          /http/upstreams/NAME/servers/ID
//! ```
//!
//! A number before that (the version of such interfaces elsewhere) is passed over. Who may ask is a
//! matter of the location: `allow`, `auth_basic` and their like.

use std::rc::Rc;

use ::upstream::api::{self, Change, Refusal, quote};
use ::upstream::peer::Peer;
use ::upstream::resolver::Statuses;
use ::upstream::{Group, Upstreams};
use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::{ConfError, Node};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{Conf, LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use net::resolver::STATUS_NAMES;
use proto::h1::Method;

/// The module's table.
pub static MODULE: Module = Module::of::<ApiConf>("api", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "api",
    C::LOCATION,
    Args::NONE.or(Args::T1),
    "",
    "Answers with what is known of upstreams, as JSON; with write=on also changes their servers.",
    |cx, n| {
        let write = match n.args.first() {
            None => false,
            Some(w) => match w.bytes() {
                b"write=on" => true,
                b"write=off" => false,
                _ => {
                    let m = format!("invalid parameter \"{}\"", w.lossy());
                    return Err(ConfError::at(w, m));
                }
            },
        };
        set(cx, n, write)
    },
)];

#[derive(Default)]
struct ApiConf(Option<bool>);

impl Conf for ApiConf {}

fn set(cx: &mut Cx, n: &Node, write: bool) -> Result<(), ConfError> {
    if cx.loc::<ApiConf>().0.replace(write).is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.set_here_or_around::<ApiConf>()
        && let Some(write) = l.conf::<ApiConf>().0
    {
        let (prefix, upstreams) = (l.info.name.clone(), l.conf::<Upstreams>());
        p.content_handler =
            Some(Box::new(Api { prefix, write, upstreams, statuses: l.conf::<Statuses>() }));
    }
    Ok(())
}

struct Api {
    prefix: Bytes,
    write: bool,
    upstreams: Rc<Upstreams>,
    statuses: Rc<Statuses>,
}

/// Longest body of a change, in bytes.
const BODY_MAX: u64 = 64 << 10;

/// The thing that a path names.
enum Resource<'a> {
    Root,
    Upstreams,
    Upstream(&'a Rc<Group>),
    Servers(&'a Rc<Group>),
    Server(&'a Rc<Group>, Rc<Peer>),
    Resolvers,
    Resolver(usize),
}

fn not_found(what: &str) -> Refusal {
    (404, format!("{what} not found"))
}

impl Api {
    fn place(&self, uri: &[u8]) -> Result<Resource<'_>, Refusal> {
        let rest = uri.strip_prefix(&self.prefix[..]).unwrap_or(uri);
        let mut parts: Vec<&[u8]> = rest.split(|b| *b == b'/').filter(|p| !p.is_empty()).collect();
        if parts.first().is_some_and(|p| p.iter().all(u8::is_ascii_digit)) {
            parts.remove(0);
        }
        let group = |name: &[u8]| {
            let mut named = self.upstreams.named();
            named.find(|g| g.name == name).ok_or_else(|| not_found("upstream"))
        };
        Ok(match parts[..] {
            [] => Resource::Root,
            [b"http", b"upstreams"] => Resource::Upstreams,
            [b"http", b"upstreams", name] => Resource::Upstream(group(name)?),
            [b"http", b"upstreams", name, b"servers"] => Resource::Servers(group(name)?),
            [b"http", b"upstreams", name, b"servers", id] => {
                let group = group(name)?;
                let id = base::ascii::parse_u64(id).ok_or((400, "invalid server ID".to_owned()))?;
                let lists = group.servers.lists();
                let peer = lists.all().find(|p| p.number() == id).cloned();
                Resource::Server(group, peer.ok_or_else(|| not_found("server"))?)
            }
            [b"resolvers"] => Resource::Resolvers,
            [b"resolvers", name] => {
                let i = self.statuses.0.iter().position(|(n, _)| n == name);
                Resource::Resolver(i.ok_or_else(|| not_found("resolver"))?)
            }
            _ => return Err(not_found("path")),
        })
    }

    fn look(&self, place: &Resource<'_>) -> String {
        let mut out = String::new();
        match place {
            Resource::Root => out.push_str("[\"http\",\"resolvers\"]"),
            Resource::Upstreams => {
                let named = self.upstreams.named().map(|g| (&g.name[..], g));
                members(&mut out, named, |out, g| api::upstream(out, g));
            }
            Resource::Upstream(g) => api::upstream(&mut out, g),
            Resource::Servers(g) => api::list(&mut out, g),
            Resource::Server(_, peer) => api::settings(&mut out, peer),
            Resource::Resolvers => {
                let all = self.statuses.0.iter().enumerate().map(|(i, (n, _))| (&n[..], i));
                members(&mut out, all, |out, i| self.resolver(out, i));
            }
            Resource::Resolver(i) => self.resolver(&mut out, *i),
        }
        out
    }

    fn resolver(&self, out: &mut String, i: usize) {
        let values = self.statuses.0[i].1.values();
        let mut of = "";
        for ((group, name), value) in STATUS_NAMES.iter().zip(values) {
            match *group == of {
                true => out.push(','),
                false if of.is_empty() => out.push_str(&format!("{{\"{group}\":{{")),
                false => out.push_str(&format!("}},\"{group}\":{{")),
            }
            of = group;
            out.push_str(&format!("\"{name}\":{value}"));
        }
        out.push_str("}}");
    }
}

/// An object with a member for each name.
fn members<'a, T>(
    out: &mut String,
    all: impl Iterator<Item = (&'a [u8], T)>,
    mut write: impl FnMut(&mut String, T),
) {
    out.push('{');
    for (i, (name, value)) in all.enumerate() {
        if i > 0 {
            out.push(',');
        }
        quote(out, name);
        out.push(':');
        write(out, value);
    }
    out.push('}');
}

fn answer(r: &mut Request, status: u16, mut text: String) -> Verdict {
    text.push('\n');
    r.respond(status, Bytes::from_static(b"application/json"), text.into());
    r.out.add("Cache-Control", Bytes::from_static(b"no-store"));
    Verdict::Done
}

fn refuse(r: &mut Request, (status, why): Refusal) -> Verdict {
    let mut text = format!("{{\"error\":{{\"status\":{status},\"text\":");
    quote(&mut text, why.as_bytes());
    text.push_str("}}");
    answer(r, status, text)
}

impl PhaseHandler for Api {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let method = r.method;
        if matches!(method, Method::Get | Method::Head) {
            let done = self.place(&r.uri).map(|place| self.look(&place));
            return match done {
                Ok(text) => answer(r, 200, text),
                Err(refusal) => refuse(r, refusal),
            }
            .into();
        }
        if !self.write || !matches!(method, Method::Post | Method::Patch | Method::Delete) {
            return refuse(r, (405, "method disabled".to_owned())).into();
        }
        Step::Wait(Box::pin(self.change(r)))
    }
}

impl Api {
    async fn change(&self, r: &mut Request) -> Verdict {
        if r.head.content_length.is_some_and(|n| n > BODY_MAX) {
            return refuse(r, (413, "the body is too large".to_owned()));
        }
        if let Err(verdict) = r.read_body().await {
            return verdict;
        }
        let mut body = Vec::new();
        let read = r.write_body(&mut body);
        if !read || body.len() as u64 > BODY_MAX {
            return refuse(r, (413, "the body is too large".to_owned()));
        }
        let uri = r.uri.clone();
        let place = match self.place(&uri) {
            Ok(place) => place,
            Err(refusal) => return refuse(r, refusal),
        };
        let (group, change) = match (&place, r.method) {
            (Resource::Servers(g), Method::Post) => (*g, Change::Add),
            (Resource::Server(g, peer), Method::Patch) => (*g, Change::Set(peer.clone())),
            (Resource::Server(g, peer), Method::Delete) => (*g, Change::Remove(peer.clone())),
            _ => return refuse(r, (405, "method not allowed here".to_owned())),
        };
        let status = if matches!(change, Change::Add) { 201 } else { 200 };
        let done = match api::apply(group, change, &body) {
            Ok(text) => text,
            Err(refusal) => return refuse(r, refusal),
        };
        if let Err(e) = group.save().await {
            let name = base::log::lossy(&group.name).into_owned();
            let e = base::log::os_error(&e).to_string();
            r.log(
                base::log::Level::Error,
                format_args!("the state of upstream \"{name}\" cannot be saved {e}"),
            );
            return refuse(r, (500, format!("changed, but not saved {e}")));
        }
        answer(r, status, done)
    }
}
