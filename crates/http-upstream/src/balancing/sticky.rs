//! `sticky cookie|route|learn`: session affinity: clients stay with their first server.
//!
//! With `cookie`, the client stores its server's id; with `route`, the request names the server;
//! with `learn`, sessions that the servers start are recorded in a zone.

use std::rc::Rc;

use ::upstream::Upstreams;
use ::upstream::balance::ServerOutcome;
use ::upstream::block::Block;
use ::upstream::lease::{Affinity, Binding};
use ::upstream::peer::Peer;
use ::upstream::servers::Servers;
use base::time::unix_secs;
use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::template::Template;
use conf::{ConfError, Node, Word, value};
use engine::Client;
use engine::zones::{self, BadSize};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{ConfType, Module, Scope};

use super::sessions::{Sessions, Taken};

/// The module's table.
pub static MODULE: Module =
    Module { name: "upstream_sticky", directives: DIRECTIVES, confs: CONFS, ..Module::EMPTY };

static CONFS: &[ConfType] = &[ConfType::of::<Taken>(Scope::Main)];

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "sticky",
    C::UPSTREAM,
    Args::TWO_MORE,
    "",
    "Session affinity: by a cookie, by a route in the request, or by learned sessions.",
    set,
)];

/// The parameters of `sticky`.
struct Sticky {
    /// Where to look for the server's or the session's id, in order.
    lookup: Vec<Template>,
    cookie: Option<Cookie>,
    learn: Option<Learn>,
}

struct Cookie {
    name: Bytes,
    expires: Option<Expires>,
    domain: Option<Template>,
    path: Option<Bytes>,
    samesite: Option<Template>,
    httponly: bool,
    secure: bool,
}

enum Expires {
    Max,
    In(u64),
}

struct Learn {
    /// Where to look for the id of a new session in the response, in order.
    create: Vec<Template>,
    /// `header`: learn as soon as the response headers arrive.
    at_header: bool,
    sessions: Rc<Sessions>,
}

fn set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<Block>().has_affinity() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let kind = n.arg(0)?;
    let words = &n.args[1..];
    let sticky = match kind.bytes() {
        b"cookie" => cookie(cx, n, words)?,
        b"route" => {
            let lookup = words.iter().map(|w| variable(cx, w, 0)).collect::<Result<_, _>>()?;
            Sticky { lookup, cookie: None, learn: None }
        }
        b"learn" => learn(cx, n, words)?,
        _ => {
            return Err(ConfError::at(kind, format!("unknown parameter \"{}\"", kind.lossy())));
        }
    };
    let sticky = Rc::new(sticky);
    let make = move |servers: &Rc<Servers>| {
        Rc::new(Bound { sticky, servers: servers.clone() }) as Rc<dyn Affinity>
    };
    cx.loc::<Block>().set_affinity(Box::new(make));
    Ok(())
}

/// Parses `word`, without its first `skip` bytes, as a single variable.
fn variable(cx: &mut Cx, w: &Word, skip: usize) -> Result<Template, ConfError> {
    if w.bytes().get(skip) != Some(&b'$') {
        return Err(ConfError::at(w, format!("invalid variable name \"{}\"", w.lossy())));
    }
    cx.template(&rest(w, skip))
}

/// The word without its first `skip` bytes.
fn rest(w: &Word, skip: usize) -> Word {
    Word { text: w.text.slice(skip..), ..w.clone() }
}

const SAMESITE: [&[u8]; 3] = [b"strict", b"lax", b"none"];

fn is_samesite(text: &[u8]) -> bool {
    SAMESITE.iter().any(|s| text.eq_ignore_ascii_case(s))
}

/// Sets a parameter; an error if it is already set.
fn once<T>(slot: &mut Option<T>, n: &Node, name: &str, value: T) -> Result<(), ConfError> {
    if slot.replace(value).is_some() {
        return Err(ConfError::directive(n, format!("parameter \"{name}\" is duplicate")));
    }
    Ok(())
}

fn cookie(cx: &mut Cx, n: &Node, words: &[Word]) -> Result<Sticky, ConfError> {
    let wrong = |what: &str| ConfError::directive(n, what);
    let Some((name, words)) = words.split_first().filter(|(name, _)| !name.text.is_empty()) else {
        return Err(wrong("empty cookie name"));
    };
    let mut c = Cookie {
        name: name.text.clone(),
        expires: None,
        domain: None,
        path: None,
        samesite: None,
        httponly: false,
        secure: false,
    };
    for w in words {
        let text = w.bytes();
        let after = |prefix: &str| text.strip_prefix(prefix.as_bytes());
        if let Some(v) = after("domain=") {
            if v.is_empty() {
                return Err(wrong("no value for \"domain\""));
            }
            let t = cx.template(&rest(w, 7))?;
            once(&mut c.domain, n, "domain", t)?;
        } else if let Some(v) = after("path=") {
            if v.is_empty() {
                return Err(wrong("no value for \"path\""));
            }
            once(&mut c.path, n, "path", w.text.slice_ref(v))?;
        } else if let Some(v) = after("expires=") {
            let value = match v {
                b"max" => Some(Expires::Max),
                _ => value::parse_sec(v).map(Expires::In),
            };
            let value = value.ok_or_else(|| wrong("invalid \"expires\" parameter value"))?;
            once(&mut c.expires, n, "expires", value)?;
        } else if let Some(v) = after("samesite=") {
            let t = cx.template(&rest(w, 9))?;
            if t.as_const().is_some() && !is_samesite(v) {
                return Err(wrong("invalid \"samesite\" parameter value"));
            }
            once(&mut c.samesite, n, "samesite", t)?;
        } else {
            let flag = match text {
                b"httponly" => &mut c.httponly,
                b"secure" => &mut c.secure,
                _ => {
                    let m = format!("unknown parameter \"{}\"", w.lossy());
                    return Err(ConfError::at(w, m));
                }
            };
            if std::mem::replace(flag, true) {
                return Err(wrong(&format!("parameter \"{}\" is duplicate", w.lossy())));
            }
        }
    }
    let mut of_cookie = b"$cookie_".to_vec();
    of_cookie.extend_from_slice(&name.text);
    let lookup = cx.template(&Word { text: of_cookie.into(), ..name.clone() })?;
    Ok(Sticky { lookup: vec![lookup], cookie: Some(c), learn: None })
}

/// The default timeout of a session, in milliseconds.
const TIMEOUT_MS: u64 = 600_000;

fn learn(cx: &mut Cx, n: &Node, words: &[Word]) -> Result<Sticky, ConfError> {
    let wrong = |what: &str| ConfError::directive(n, what);
    let (mut lookup, mut create) = (Vec::new(), Vec::new());
    let (mut zone, mut timeout_ms, mut at_header) = (None, None, false);
    let mut synced = None;
    for w in words {
        let text = w.bytes();
        let after = |prefix: &str| text.strip_prefix(prefix.as_bytes());
        if let Some(v) = after("zone=") {
            if zone.is_some() {
                return Err(wrong("duplicate zone"));
            }
            zone = Some((w, name_and_bytes(v).map_err(wrong)?));
        } else if let Some(v) = after("timeout=") {
            if timeout_ms.is_some() {
                return Err(wrong("duplicate timeout"));
            }
            let ms = value::parse_msec(v).filter(|ms| *ms > 0);
            timeout_ms = Some(ms.ok_or_else(|| wrong("invalid timeout"))?);
        } else if let Some(v) = after("create=") {
            if v.first() != Some(&b'$') {
                return Err(wrong("missing variable in the \"create\" parameter"));
            }
            create.push(variable(cx, w, 7)?);
        } else if let Some(v) = after("lookup=") {
            if v.first() != Some(&b'$') {
                return Err(wrong("missing variable in the \"lookup\" parameter"));
            }
            lookup.push(variable(cx, w, 7)?);
        } else if text == b"header" {
            at_header = true;
        } else if text == b"sync" {
            synced = Some(w);
        } else {
            return Err(ConfError::at(w, format!("unknown parameter \"{}\"", w.lossy())));
        }
    }
    if lookup.is_empty() {
        return Err(wrong("\"lookup\" parameter is not specified"));
    }
    if create.is_empty() {
        return Err(wrong("\"create\" parameter is not specified"));
    }
    let Some((word, (name, bytes))) = zone else {
        return Err(wrong("\"zone\" parameter is not specified"));
    };
    let upstream = cx.main::<Upstreams>().block_name();
    let timeout_ms = timeout_ms.unwrap_or(TIMEOUT_MS);
    let terms = (timeout_ms, synced);
    let sessions = Sessions::map(cx, word, &name, bytes, upstream, terms)?;
    Ok(Sticky { lookup, cookie: None, learn: Some(Learn { create, at_header, sessions }) })
}

fn name_and_bytes(text: &[u8]) -> Result<(Bytes, usize), &'static str> {
    let colon = memchr::memchr(b':', text).ok_or("zone size is not specified")?;
    if colon == 0 {
        return Err("zone name is not specified");
    }
    let bytes = zones::size(&text[colon + 1..]).map_err(|bad| match bad {
        BadSize::Invalid => "invalid zone size",
        BadSize::TooSmall => "zone is too small",
    })?;
    Ok((Bytes::copy_from_slice(&text[..colon]), bytes))
}

/// The first of the values that is not empty.
fn first(list: &[Template], client: &mut dyn Client) -> Bytes {
    list.iter().map(|t| client.eval(t)).find(|v| !v.is_empty()).unwrap_or_default()
}

struct Bound {
    sticky: Rc<Sticky>,
    servers: Rc<Servers>,
}

impl Affinity for Bound {
    fn begin(&self, client: &mut dyn Client) -> Box<dyn Binding> {
        let id = first(&self.sticky.lookup, client);
        let (sticky, servers) = (self.sticky.clone(), self.servers.clone());
        Box::new(OfRequest { sticky, servers, id, created: Bytes::new(), cookie: None })
    }
}

struct OfRequest {
    sticky: Rc<Sticky>,
    servers: Rc<Servers>,
    /// The id in the request: a server's, or a session's.
    id: Bytes,
    /// The id of the session that the response starts.
    created: Bytes,
    /// The Set-Cookie field for the client.
    cookie: Option<Bytes>,
}

impl OfRequest {
    fn remember(&self, peer: &Peer) {
        let Some(learn) = &self.sticky.learn else { return };
        match (self.created.is_empty(), self.id.is_empty()) {
            (false, _) => learn.sessions.put(&self.created, &peer.sid, true),
            (true, false) => learn.sessions.put(&self.id, &peer.sid, false),
            (true, true) => {}
        }
    }
}

impl Binding for OfRequest {
    fn bound(&mut self) -> Option<Bytes> {
        if self.id.is_empty() {
            return None;
        }
        let Some(learn) = &self.sticky.learn else { return Some(self.id.clone()) };
        let mark = learn.sessions.find(&self.id)?;
        self.servers.lists().all().find(|p| mark.is_of(&p.sid)).map(|p| p.sid.clone())
    }

    fn chosen(&mut self, client: &mut dyn Client, peer: &Peer) {
        if let Some(cookie) = &self.sticky.cookie {
            self.cookie = Some(cookie.field(client, &peer.sid));
        }
    }

    fn answered(&mut self, client: &mut dyn Client, peer: &Peer) -> Option<Bytes> {
        if let Some(learn) = &self.sticky.learn {
            self.created = first(&learn.create, client);
            if learn.at_header {
                self.remember(peer);
            }
        }
        self.cookie.take()
    }

    fn done(&mut self, peer: &Peer, outcome: ServerOutcome) {
        let at_end = self.sticky.learn.as_ref().is_some_and(|l| !l.at_header);
        if outcome == ServerOutcome::Ok && at_end {
            self.remember(peer);
        }
    }
}

impl Cookie {
    fn field(&self, client: &mut dyn Client, sid: &[u8]) -> Bytes {
        let mut out = self.name.to_vec();
        let mut put = |parts: &[&[u8]]| parts.iter().for_each(|p| out.extend_from_slice(p));
        put(&[b"=", sid]);
        match &self.expires {
            None => {}
            Some(Expires::Max) => {
                put(&[b"; expires=Thu, 31-Dec-37 23:55:55 GMT; max-age=315360000"]);
            }
            Some(Expires::In(secs)) => {
                let at = i64::try_from(unix_secs().saturating_add(*secs)).unwrap_or(i64::MAX);
                let age = secs.to_string();
                let date = base::time::format_cookie_date(at);
                put(&[b"; expires=", &date, b"; max-age=", age.as_bytes()]);
            }
        }
        if let Some(domain) = self.domain.as_ref().map(|t| client.eval(t)).filter(|d| !d.is_empty())
        {
            put(&[b"; domain=", &domain]);
        }
        if self.httponly {
            put(&[b"; httponly"]);
        }
        if self.secure {
            put(&[b"; secure"]);
        }
        if let Some(site) = self.samesite.as_ref().map(|t| client.eval(t)).filter(|s| !s.is_empty())
        {
            let site = if is_samesite(&site) { &site[..] } else { b"strict" };
            put(&[b"; samesite=", site]);
        }
        if let Some(path) = &self.path {
            put(&[b"; path=", path]);
        }
        out.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_of_sessions() {
        let read = |text: &str| name_and_bytes(text.as_bytes());
        assert_eq!(read("a:1m"), Ok((Bytes::from_static(b"a"), 1 << 20)));
        assert_eq!(read("a"), Err("zone size is not specified"));
        assert_eq!(read(":1m"), Err("zone name is not specified"));
        assert_eq!(read("a:x"), Err("invalid zone size"));
        assert_eq!(read("a:1k"), Err("zone is too small"));
    }

    #[test]
    fn sites() {
        assert!(is_samesite(b"Lax") && is_samesite(b"none") && !is_samesite(b"loose"));
    }
}
