//! Upstreams and servers as rows of the API: shown as JSON, and changed by it.

mod json;

use std::rc::Rc;

use crate::block::ROUTE_MAX;
use crate::group::Group;
use crate::peer::{Peer, ServerSpec, down, word};
use bytes::Bytes;
use conf::value::{parse_msec, parse_sec};
use os::SockAddr;

use json::{Value, object};

pub use json::quote;

/// The status and text of a refusal.
pub type Refusal = (u16, String);

/// A change of an upstream's servers.
pub enum Change {
    /// Adds one.
    Add,
    /// Changes one's settings.
    Set(Rc<Peer>),
    /// Takes one out.
    Remove(Rc<Peer>),
}

fn bad(why: impl Into<String>) -> Refusal {
    (400, why.into())
}

/// Writes a server's settings.
pub fn settings(out: &mut String, peer: &Peer) {
    let s = &peer.spec;
    out.push_str(&format!("{{\"id\":{},\"server\":", peer.number()));
    quote(out, &peer.name);
    if s.server != peer.name {
        out.push_str(",\"name\":");
        quote(out, &s.server);
    }
    let down = peer.down();
    out.push_str(&format!(
        ",\"weight\":{},\"max_conns\":{},\"max_fails\":{},\"fail_timeout\":\"{}s\",\
         \"slow_start\":\"{}ms\",\"route\":",
        s.weight, s.max_conns, s.max_fails, s.fail_timeout, s.slow_start
    ));
    quote(out, &s.route);
    out.push_str(&format!(
        ",\"backup\":{},\"down\":{},\"drain\":{}}}",
        s.backup,
        down & down::DOWN != 0,
        down & down::DRAINING != 0
    ));
}

/// Writes the settings of all servers.
pub fn list(out: &mut String, group: &Group) {
    out.push('[');
    for (i, peer) in group.servers.lists().all().enumerate() {
        if i > 0 {
            out.push(',');
        }
        settings(out, peer);
    }
    out.push(']');
}

fn state(peer: &Peer) -> &'static str {
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

/// Writes an upstream with the state of its servers.
pub fn upstream(out: &mut String, group: &Group) {
    out.push_str(&format!("{{\"zone\":{},\"peers\":[", group.servers.is_shared()));
    for (i, p) in group.servers.lists().all().enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(&format!("{{\"id\":{},\"server\":", p.number()));
        quote(out, &p.name);
        out.push_str(",\"name\":");
        quote(out, &p.spec.server);
        out.push_str(&format!(
            ",\"backup\":{},\"weight\":{},\"state\":\"{}\",\"active\":{},\"requests\":{},\
             \"fails\":{},\"header_time\":{},\"response_time\":{},\
             \"health_checks\":{{\"checks\":{},\"fails\":{}}}}}",
            p.spec.backup,
            p.spec.weight,
            state(p),
            p.conns(),
            p.get(word::REQUESTS),
            p.get(word::FAILED),
            p.get(word::HEADER_TIME),
            p.get(word::RESPONSE_TIME),
            p.get(word::CHECKS),
            p.get(word::CHECKS_FAILED)
        ));
    }
    out.push_str("]}");
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
    let members = object(body).ok_or_else(|| bad("the body is not an object of plain values"))?;
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
            "id" | "server" | "backup" | "route" => {
                return Err(bad(format!("\"{name}\" cannot be changed")));
            }
            _ => return Err(bad(format!("unknown parameter \"{name}\""))),
        }
    }
    Ok(Settings { spec, down, drain })
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
    let text = text.ok_or_else(|| bad("\"server\" is missing"))?;
    let plain = text.len() <= ADDRESS_MAX
        && text.bytes().all(|b| b.is_ascii_graphic() && !b"\"'\\;{}$".contains(&b));
    let url = crate::url::parse(&Bytes::from(text.clone()), 80, false);
    let addr = url.ok().filter(|_| plain).and_then(|u| u.addr);
    // A name would have to be looked up, by every worker.
    addr.ok_or_else(|| bad("\"server\" is not an address"))
}

/// Makes a change; gives the row that is answered with.
///
/// # Errors
/// The upstream has no zone or no room; the body is wrong.
pub fn apply(group: &Group, change: Change, body: &[u8]) -> Result<String, Refusal> {
    let servers = &group.servers;
    if !servers.is_shared() {
        return Err((405, "the upstream has no zone".to_owned()));
    }
    let mut out = String::new();
    let number = match change {
        Change::Add => {
            let mut w = read_settings(body, None)?;
            w.spec.down |= if w.down == Some(true) { down::DOWN } else { 0 };
            w.spec.down |= if w.drain == Some(true) { down::DRAINING } else { 0 };
            let full = |_| (507, "the zone is full".to_owned());
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
            drop(_lock);
            list(&mut out, group);
            return Ok(out);
        }
    };
    let lists = servers.lists();
    if let Some(peer) = lists.all().find(|p| p.number() == number) {
        settings(&mut out, peer);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<Settings, String> {
        read_settings(body.as_bytes(), None).map_err(|(_, why)| why)
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
            ("x", "the body is not an object of plain values"),
            ("{}", "\"server\" is missing"),
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
