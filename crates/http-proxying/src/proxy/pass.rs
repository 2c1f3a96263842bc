//! `proxy_pass`: where requests go.

use std::rc::Rc;

use ::upstream::url::{self, Url};
use ::upstream::{Group, GroupRef, NoPort, Target, Upstreams};
use base::future::boxed;
use base::log::Level;
use bytes::Bytes;
use conf::template::Template;
use conf::{ConfError, Node};
use engine::TempPath;
use http::cx::{Cx, LocationCx};
use http::module::{Conf, Dry, LocView, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use http::server::location::LocKind;
use http_upstream::conf::Conf as UpConf;
use http_upstream::{Job, Protocol};

use super::ProxyConf;
use super::http2::Http2;
use super::protocol::Http;
use super::redirect::{Redirects, Rewrite};
use super::request::{Head, Version};
use super::uri::Uri;
use crate::health::{self, Servers, Speaks};

/// The values of `Host` and `$proxy_host`, and the URI that replaces the location's name.
#[derive(Clone, Default, Debug)]
pub(crate) struct Vars {
    pub host: Bytes,
    pub port: Bytes,
    pub uri: Bytes,
    /// The prefix of cache keys, unless they are set.
    pub key: Bytes,
    /// The server is spoken to under TLS.
    pub tls: bool,
}

impl Vars {
    /// `text` is the whole address, as it was written.
    pub fn of(url: &Url, tls: bool, text: &Bytes) -> Vars {
        let default_port = default_port(tls);
        let uri = url.uri.clone();
        let key = text.slice(..text.len().saturating_sub(uri.len()));
        if url.addr.as_ref().is_some_and(os::SockAddr::is_unix) {
            let host = Bytes::from_static(b"localhost");
            return Vars { host, port: Bytes::new(), uri, key, tls };
        }
        if url.no_port || url.port == default_port {
            let port = Bytes::from_static(if tls { b"443" } else { b"80" });
            return Vars { host: url.host.clone(), port, uri, key, tls };
        }
        let mut host = url.host.to_vec();
        host.push(b':');
        host.extend_from_slice(&url.port_text);
        Vars { host: Bytes::from(host), port: url.port_text.clone(), uri, key, tls }
    }
}

/// `proxy_pass` without variables.
#[derive(Clone)]
pub(super) struct Fixed {
    group: GroupRef,
    pub vars: Vars,
    /// The whole argument.
    pub url: Bytes,
    /// The location's name; empty where it cannot be replaced.
    pub location: Bytes,
}

/// The `proxy_pass` of one level.
#[derive(Default, Clone)]
pub(crate) struct Pass {
    pub(super) fixed: Option<Rc<Fixed>>,
    pub(super) template: Option<Template>,
    /// The folder of responses that fit no buffer, unless `proxy_temp_path` names one.
    folder: Option<TempPath>,
}

impl Conf for Pass {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        if self.fixed.is_none() && self.template.is_none() {
            self.clone_from(prev);
        }
        Ok(())
    }
}

fn prefixed(url: &[u8], prefix: &[u8]) -> bool {
    url.len() >= prefix.len() && url[..prefix.len()].eq_ignore_ascii_case(prefix)
}

/// The length of the scheme in an address, and whether it stands for TLS.
fn scheme(url: &[u8]) -> Option<(usize, bool)> {
    let schemes: [(&[u8], bool); 2] = [(b"http://", false), (b"https://", true)];
    let found = schemes.iter().find(|(prefix, _)| prefixed(url, prefix));
    found.map(|(prefix, tls)| (prefix.len(), *tls))
}

fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

pub(super) fn set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let pass = cx.loc::<Pass>();
    if pass.fixed.is_some() || pass.template.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let word = n.arg(0)?;
    let folder = http_upstream::conf::default_folder(cx, "proxy");
    cx.loc::<Pass>().folder = Some(folder);
    let template = cx.template(word)?;
    let Some(text) = template.as_const() else {
        cx.loc::<Pass>().template = Some(template);
        return Ok(());
    };
    let Some((prefix, tls)) = scheme(text) else {
        return Err(ConfError::at(word, "invalid URL prefix"));
    };
    let url = url::parse(&text.slice(prefix..), default_port(tls), true).map_err(|e| {
        let rest = String::from_utf8_lossy(&text[prefix..]).into_owned();
        ConfError::at(word, format!("{e} in upstream \"{rest}\""))
    })?;
    let vars = Vars::of(&url, tls, text);
    let (kind, name) = match (cx.here(), cx.location()) {
        (conf::table::Contexts::LOCATION, Some((kind, name))) => (*kind, name.clone()),
        _ => (LocKind::If, Bytes::new()),
    };
    let replaceable = matches!(kind, LocKind::Exact | LocKind::Prefix | LocKind::PrefixNoRegex);
    if !replaceable && !vars.uri.is_empty() {
        return Err(ConfError::at(
            word,
            "\"proxy_pass\" cannot have URI part in location given by regular expression, \
             or inside named location, or inside \"if\" statement, or inside \
             \"limit_except\" block",
        ));
    }
    let location = if replaceable { name } else { Bytes::new() };
    let group = cx.main::<Upstreams>().refer(url, word);
    cx.loc::<Pass>().fixed = Some(Rc::new(Fixed { group, vars, url: text.clone(), location }));
    Ok(())
}

/// The destination of a location's requests.
enum Destination {
    Group { group: Rc<Group>, vars: Rc<Vars>, uri: Rc<Uri> },
    Template { url: Template, upstreams: Rc<Upstreams> },
}

struct Handler {
    to: Destination,
    conf: Rc<UpConf>,
    head: Rc<Head>,
}

/// Fields that say things of the server that ours says itself, or that are meant for us.
const HIDDEN: &[&str] = &[
    "Date",
    "Server",
    "X-Pad",
    "X-Accel-Expires",
    "X-Accel-Redirect",
    "X-Accel-Limit-Rate",
    "X-Accel-Buffering",
    "X-Accel-Charset",
];

pub(super) fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if !l.set_here_or_around::<Pass>() {
        return Ok(());
    }
    let (pass, proxy) = (l.conf::<Pass>(), l.conf::<ProxyConf>());
    let Some(folder) = &pass.folder else { return Ok(()) };
    let conf = proxy.up.finish("proxy", HIDDEN, folder)?.at("proxy", l);
    let conf = conf.with_cache(proxy.cache.finish::<ProxyConf>(l)?);
    let tls = match &pass.fixed {
        Some(fixed) => fixed.vars.tls,
        None => true,
    };
    let version = proxy.version.unwrap_or(Version::Http11);
    let alpn: &[&str] = if version == Version::Http2 { &["h2"] } else { &[] };
    let conf = if tls { conf.with_tls(proxy.up.ssl.finish("proxy", alpn)?) } else { conf };
    let upstreams = l.conf::<Upstreams>();
    let mut redirects = Vec::new();
    if let Some(list) = &proxy.redirects {
        redirects.extend(list.rewrites().iter().cloned());
    }
    let to = match (&pass.fixed, &pass.template) {
        (Some(f), _) => {
            if proxy.redirects.is_none() {
                redirects.push(Rewrite::default_of(f));
            }
            let Some(group) = upstreams.group(f.group) else { return Ok(()) };
            let speak = match version {
                Version::Http2 => Speaks::Http2,
                Version::Http10 | Version::Http11 => Speaks::Http1,
            };
            let servers = Servers { prefix: "proxy", name: &f.vars.host, speak };
            health::install(l, &group, &conf, &servers)?;
            let uri = Uri::Replace { with: f.vars.uri.clone(), location: f.location.len() };
            Destination::Group { group, vars: Rc::new(f.vars.clone()), uri: Rc::new(uri) }
        }
        (None, Some(t)) => Destination::Template { url: t.clone(), upstreams },
        (None, None) => return Ok(()),
    };
    let off = matches!(proxy.redirects, Some(Redirects::Off));
    let head = Rc::new(Head::new(&proxy, &conf, if off { Vec::new() } else { redirects }));
    p.auto_redirect = true;
    p.content_handler = Some(Box::new(Handler { to, conf, head }));
    Ok(())
}

impl PhaseHandler for Handler {
    fn dry(&self) -> Dry {
        Dry::Looks
    }

    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let (target, uri, vars) = match &self.to {
            Destination::Group { group, vars, uri } => {
                (Target::Group(group.clone()), uri.clone(), vars.clone())
            }
            Destination::Template { url, upstreams } => match evaluate(r, url, upstreams) {
                Ok((target, uri, vars)) => (target, Rc::new(uri), Rc::new(vars)),
                Err(status) => return Verdict::Status(status).into(),
            },
        };
        let u = r.upstream_mut();
        u.scheme = if vars.tls { "https://" } else { "http://" };
        u.host.clone_from(&vars.host);
        u.port.clone_from(&vars.port);
        let tls = vars.tls.then(|| vars.host.clone());
        let (head, conf) = (self.head.clone(), self.conf.clone());
        let protocol: Box<dyn Protocol> = match head.version {
            Version::Http2 => Box::new(Http2::of_proxy(head, uri, vars)),
            Version::Http10 | Version::Http11 => Box::new(Http::new(head, conf, uri, vars)),
        };
        let job = Job { conf: self.conf.clone(), target, protocol, tls };
        Step::Wait(boxed(|| http_upstream::run(r, job)))
    }
}

/// The server that variables name.
fn evaluate(
    r: &mut Request,
    url: &Template,
    upstreams: &Upstreams,
) -> Result<(Target, Uri, Vars), u16> {
    let text = url.eval(r);
    let shown = |b: &[u8]| base::log::lossy(b).into_owned();
    let Some((prefix, tls)) = scheme(&text) else {
        r.log(Level::Error, format_args!("invalid URL prefix in \"{}\"", shown(&text)));
        return Err(500);
    };
    let rest = text.slice(prefix..);
    let url = match url::parse(&rest, default_port(tls), true) {
        Ok(u) => u,
        Err(e) => {
            r.log(Level::Error, format_args!("{e} in upstream \"{}\"", shown(&rest)));
            return Err(500);
        }
    };
    let mut vars = Vars::of(&url, tls, &text);
    if vars.uri.first() == Some(&b'?') {
        let mut uri = b"/".to_vec();
        uri.extend_from_slice(&vars.uri);
        vars.uri = Bytes::from(uri);
    }
    let uri = match vars.uri.is_empty() {
        false => Uri::Whole(vars.uri.clone()),
        true => Uri::Replace { with: Bytes::new(), location: 0 },
    };
    let target = upstreams.target(r, &url).map_err(|NoPort| 500_u16)?;
    Ok((target, uri, vars))
}
