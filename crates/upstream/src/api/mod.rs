//! Upstreams and servers as objects of the API: shown as JSON, and changed by it.

mod json;

use std::rc::Rc;

use base::json::Object;
use base::time::format_utc_ms;
use bytes::Bytes;
use conf::value::{parse_msec, parse_sec};
use engine::metrics::json::{responses, ssl};
use engine::metrics::word;
use os::SockAddr;

use crate::block::ROUTE_MAX;
use crate::group::Group;
use crate::peer::{self, Peer, ServerSpec, down};
use json::{Fault, Value, object};

/// The refusal of a request, with the code by which clients know the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The status.
    pub status: u16,
    /// The code of the error in the answer, for example `UpstreamNotFound`.
    pub code: &'static str,
    /// The reason.
    pub text: String,
}

impl Refusal {
    /// A refusal with its status, code and text for people.
    pub fn new(status: u16, code: &'static str, text: impl Into<String>) -> Refusal {
        Refusal { status, code, text: text.into() }
    }
}

/// A change of an upstream's servers.
pub enum Change {
    /// Adds one.
    Add,
    /// Changes one's settings.
    Set(Rc<Peer>),
    /// Takes one out.
    Remove(Rc<Peer>),
}

/// The engine of an upstream: which members its servers have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// HTTP.
    Http,
    /// `stream`.
    Stream,
}

fn bad(why: impl Into<String>) -> Refusal {
    Refusal::new(400, "UpstreamConfFormatError", why)
}

/// A time as clients write it: in seconds where it is a number of those.
fn ms_text(ms: u64) -> String {
    if ms.is_multiple_of(1000) { format!("{}s", ms / 1000) } else { format!("{ms}ms") }
}

/// A server's settings.
pub fn settings(o: &mut Object<'_>, peer: &Peer, kind: EngineKind) {
    let s = &peer.spec;
    let down = peer.down();
    o.number("id", peer.number());
    o.text("server", &peer.name);
    if s.server != peer.name {
        o.text("name", &s.server);
    }
    o.number("weight", s.weight.unsigned_abs());
    o.number("max_conns", s.max_conns);
    o.number("max_fails", s.max_fails);
    o.text("fail_timeout", format!("{}s", s.fail_timeout).as_bytes());
    o.text("slow_start", ms_text(s.slow_start).as_bytes());
    if kind == EngineKind::Http {
        o.text("route", &s.route);
    }
    o.flag("backup", s.backup);
    o.flag("down", down & down::DOWN != 0);
    if down & down::DRAINING != 0 {
        o.flag("drain", true);
    }
}

/// A server's state, in nginx's words.
pub fn state(peer: &Peer) -> &'static str {
    let why = peer.down();
    let now = base::time::unix_secs() as i64;
    match why {
        _ if why & down::DOWN != 0 => "down",
        _ if why & down::UNHEALTHY != 0 => "unhealthy",
        _ if why & down::UNCHECKED != 0 => "checking",
        _ if peer.has_failed(now) => "unavail",
        _ if why & down::DRAINING != 0 => "draining",
        _ => "up",
    }
}

/// A server with its state and its counters.
pub fn peer(o: &mut Object<'_>, p: &Peer, kind: EngineKind) {
    let reading = p.reading();
    o.number("id", p.number());
    o.text("server", &p.name);
    o.text("name", &p.spec.server);
    o.flag("backup", p.spec.backup);
    o.number("weight", p.spec.weight.unsigned_abs());
    o.text("state", state(p).as_bytes());
    o.number("active", p.active(&reading));
    if p.spec.max_conns > 0 {
        o.number("max_conns", p.spec.max_conns);
    }
    match kind {
        EngineKind::Http => {
            o.number("requests", reading.begun());
            responses(o, &reading);
            o.number(
                "header_time",
                reading.average_ms(word::HEADER_US, reading.get(word::HEADERS)),
            );
        }
        EngineKind::Stream => {
            let times = reading.times();
            o.number("connections", reading.begun());
            o.number("connect_time", reading.average_ms(word::CONNECT_US, times));
            let first = reading.average_ms(word::HEADER_US, reading.get(word::HEADERS));
            o.number("first_byte_time", first);
        }
    }
    o.number("response_time", reading.average_ms(word::TIME_US, reading.times()));
    o.number("sent", reading.get(word::SENT));
    o.number("received", reading.get(word::RECEIVED));
    o.number("fails", reading.get(word::FAILS));
    o.number("unavail", reading.get(word::UNAVAILABLE));
    o.object("ssl", |o| ssl(o, &reading));
    health(o, p);
    let since = p.get(peer::word::OUT_SINCE);
    let now = base::time::unix_ms();
    let out = if since == 0 { 0 } else { now.saturating_sub(since) };
    o.number("downtime", p.get(peer::word::OUT_MS) + out);
    if since != 0 && !matches!(state(p), "up" | "draining") {
        o.text("downstart", format_utc_ms(since).as_bytes());
    }
    let selected = reading.get(word::SELECTED_MS);
    if selected != 0 {
        o.text("selected", format_utc_ms(selected).as_bytes());
    }
}

fn health(o: &mut Object<'_>, p: &Peer) {
    use peer::word::{CHECKS, CHECKS_FAILED, STREAK, UNHEALTHY};
    o.object("health_checks", |o| {
        o.number("checks", p.get(CHECKS));
        o.number("fails", p.get(CHECKS_FAILED));
        o.number("unhealthy", p.get(UNHEALTHY));
        if p.get(CHECKS) > 0 {
            o.flag("last_passed", p.get(STREAK) > 0);
        }
    });
}

/// The members of a group beside its servers.
pub fn group(o: &mut Object<'_>, group: &Group, kind: EngineKind) {
    if kind == EngineKind::Http {
        o.number("keepalive", group.idle());
    }
    o.number("zombies", group.servers.zombies());
    if let Some(queue) = &group.queue {
        o.object("queue", |o| {
            let meter = group.servers.group_meter();
            o.number("size", meter.map_or(0, |meter| meter.queued()));
            o.number("max_size", queue.max() as u64);
            o.number("overflows", meter.map_or(0, |meter| meter.overflows()));
        });
    }
    o.text("zone", group.zone.as_deref().unwrap_or(b""));
}

/// The settings of a server after the members of a body.
struct Settings {
    spec: ServerSpec,
    /// `down` and `drain`, if they are given.
    down: Option<bool>,
    drain: Option<bool>,
}

/// The longest address of a server in a body.
const ADDRESS_MAX: usize = 255;

fn time(v: Value, in_ms: bool) -> Option<u64> {
    match v {
        Value::Number(n) => n.checked_mul(if in_ms { 1000 } else { 1 }),
        Value::Text(t) if in_ms => parse_msec(t.as_bytes()),
        Value::Text(t) => parse_sec(t.as_bytes()),
        _ => None,
    }
}

fn count(v: Value) -> Option<u64> {
    match v {
        Value::Number(n) if n <= u32::MAX.into() => Some(n),
        _ => None,
    }
}

/// Reads a body. `known` is the server that is changed; without one, an address is needed.
fn read_settings(body: &[u8], known: Option<&Peer>) -> Result<Settings, Refusal> {
    let members = object(body).map_err(|fault| match fault {
        Fault::Syntax => Refusal::new(415, "JsonError", "the body is not JSON"),
        Fault::Nested => bad("nested object or list"),
    })?;
    let mut spec = match known {
        Some(peer) => peer.spec.clone(),
        None => ServerSpec::new(address(&members)?),
    };
    let (mut down, mut drain) = (None, None);
    for (name, value) in members {
        let wrong = || bad(format!("invalid value of \"{name}\""));
        let flag = |v: Value| if let Value::Bool(b) = v { Ok(b) } else { Err(wrong()) };
        match name.as_str() {
            "server" if known.is_none() => {}
            "backup" if known.is_none() => spec.backup = flag(value)?,
            "weight" => {
                let weight = count(value).filter(|n| *n > 0).ok_or_else(wrong)?;
                spec.weight = weight as i64;
            }
            "max_conns" => spec.max_conns = count(value).ok_or_else(wrong)?,
            "max_fails" => spec.max_fails = count(value).ok_or_else(wrong)?,
            "fail_timeout" => {
                let secs = time(value, false).filter(|n| *n <= u32::MAX.into());
                spec.fail_timeout = secs.ok_or_else(wrong)? as i64;
            }
            "slow_start" => spec.slow_start = time(value, true).ok_or_else(wrong)?,
            "route" if known.is_none() => match value {
                Value::Text(t) if is_route(&t) => spec.route = Bytes::from(t),
                _ => return Err(wrong()),
            },
            "down" => down = Some(flag(value)?),
            "drain" => drain = Some(flag(value)?),
            // Clients send all that they know of a server.
            _ if known.is_some_and(|peer| is_as_before(peer, &name, &value)) => {}
            "id" | "server" | "backup" | "route" => {
                return Err(bad(format!("\"{name}\" cannot be changed")));
            }
            "service" | "name" => {
                return Err(bad(format!("\"{name}\" is not supported")));
            }
            _ => return Err(bad(format!("unknown parameter \"{name}\""))),
        }
    }
    Ok(Settings { spec, down, drain })
}

/// Whether a parameter that cannot be changed has the value that it has.
fn is_as_before(peer: &Peer, name: &str, value: &Value) -> bool {
    match (name, value) {
        ("id", Value::Number(id)) => *id == peer.number(),
        ("server", Value::Text(server)) => {
            peer.name == server.as_bytes()
                || address_of(server).is_some_and(|addr| addr == peer.spec.addr)
        }
        ("name", Value::Text(name)) => peer.spec.server == name.as_bytes(),
        ("backup", Value::Bool(backup)) => *backup == peer.spec.backup,
        ("route", Value::Text(route)) => peer.spec.route == route.as_bytes(),
        _ => false,
    }
}

fn is_route(text: &str) -> bool {
    text.len() <= ROUTE_MAX
        && text.bytes().all(|b| b.is_ascii_graphic() && !b"\"'\\;{}".contains(&b))
}

fn address(members: &[(String, Value)]) -> Result<SockAddr, Refusal> {
    let text = members.iter().find_map(|(name, value)| match value {
        Value::Text(t) if name == "server" => Some(t),
        _ => None,
    });
    let text = text.ok_or_else(|| bad("missing \"server\" argument"))?;
    // A name would have to be looked up, by every worker.
    let addr = address_of(text);
    let why = "\"server\" is not an address";
    addr.ok_or_else(|| Refusal::new(400, "UpstreamBadAddress", why))
}

fn address_of(text: &str) -> Option<SockAddr> {
    let plain = text.len() <= ADDRESS_MAX
        && text.bytes().all(|b| b.is_ascii_graphic() && !b"\"'\\;{}$".contains(&b));
    let url = crate::url::parse(&Bytes::copy_from_slice(text.as_bytes()), 80, false);
    url.ok().filter(|_| plain).and_then(|u| u.addr)
}

/// Makes a change; gives the server that was added or changed.
///
/// # Errors
/// The upstream has no zone or no room; the body is wrong.
pub fn apply(group: &Group, change: Change, body: &[u8]) -> Result<Option<Rc<Peer>>, Refusal> {
    let servers = &group.servers;
    if !servers.is_shared() {
        return Err(Refusal::new(400, "UpstreamStatic", "upstream is static: it has no zone"));
    }
    let number = match change {
        Change::Add => {
            let mut w = read_settings(body, None)?;
            w.spec.down |= if w.down == Some(true) { down::DOWN } else { 0 };
            w.spec.down |= if w.drain == Some(true) { down::DRAINING } else { 0 };
            let full = |_| {
                let name = base::log::lossy(&group.name);
                let text = format!("upstream \"{name}\" memory exhausted");
                Refusal::new(507, "UpstreamOutOfMemory", text)
            };
            servers.add(&w.spec).map_err(full)?
        }
        Change::Set(peer) => {
            let w = read_settings(body, Some(&peer))?;
            if w.spec != peer.spec {
                let _lock = servers.lock();
                servers.set_locked(&peer, &w.spec);
            }
            let bit = |told: Option<bool>, is: bool, bit| if told == Some(is) { bit } else { 0 };
            let both = |is| bit(w.down, is, down::DOWN) | bit(w.drain, is, down::DRAINING);
            servers.set_down(&peer, both(true), both(false));
            peer.number()
        }
        Change::Remove(peer) => {
            let _lock = servers.lock();
            servers.remove_locked(&peer);
            return Ok(None);
        }
    };
    Ok(servers.lists().all().find(|p| p.number() == number).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Settings, String> {
        read_settings(body.as_bytes(), None).map_err(|refusal| refusal.text)
    }

    #[test]
    fn bodies() {
        let w = read(
            r#"{"server":"10.0.0.1:81","weight":3,"max_conns":4,"fail_timeout":"1m","down":true,
                "slow_start":"2s","route":"a","backup":true,"max_fails":0}"#,
        )
        .unwrap();
        assert_eq!(w.spec.addr.to_string(), "10.0.0.1:81");
        assert_eq!((w.spec.weight, w.spec.max_conns, w.spec.max_fails), (3, 4, 0));
        assert_eq!((w.spec.fail_timeout, w.spec.slow_start), (60, 2000));
        assert!(w.spec.backup && w.down == Some(true) && w.drain.is_none());
        assert_eq!(read(r#"{"server":"10.0.0.1"}"#).unwrap().spec.addr.port(), 80);
        assert!(read(r#"{"server":"unix:/tmp/a.sock"}"#).unwrap().spec.addr.is_unix());
        for (body, why) in [
            ("x", "the body is not JSON"),
            (r#"{"server":["1.1.1.1"]}"#, "nested object or list"),
            ("{}", "missing \"server\" argument"),
            (r#"{"server":"name.example"}"#, "\"server\" is not an address"),
            (r#"{"server":"unix:/tmp/a;b"}"#, "\"server\" is not an address"),
            (r#"{"server":"1.1.1.1","weight":0}"#, "invalid value of \"weight\""),
            (r#"{"server":"1.1.1.1","down":1}"#, "invalid value of \"down\""),
            (r#"{"server":"1.1.1.1","route":"a b"}"#, "invalid value of \"route\""),
            (r#"{"server":"1.1.1.1","x":1}"#, "unknown parameter \"x\""),
        ] {
            assert_eq!(read(body).err().as_deref(), Some(why), "{body}");
        }
    }
}
