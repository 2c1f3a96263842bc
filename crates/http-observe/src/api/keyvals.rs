//! Tables of keys and values as JSON, and changes of them.

use std::rc::Rc;

use ::upstream::api::{EngineKind, Refusal};
use base::json::string;
use http::request::Request;
use http_wire::h1::Method;
use keyval::pairs::{members, write};
use keyval::{AllZones, Change, Pair, Refused, Zone};
use serde_json::Value;

use super::document::{Fields, Writer, collection, text};
use super::path::Resource;

/// Places of a table that are read at once.
const STEP: u32 = 32;

/// Entries that are removed at once.
const CLEARED: usize = 256;

/// Pairs of a body that are checked or stored between two turns of the loop: less than 1 ms.
const STORED: usize = 256;

/// A longer body is parsed on a thread: 1 MB takes tens of milliseconds.
const PARSED_HERE_MAX: usize = 16 << 10;

/// The tables of an engine.
pub(super) fn zones(r: &Request, kind: EngineKind) -> Vec<Rc<Zone>> {
    let parts = r.main.metrics.parts::<AllZones>();
    let of_kind = parts.iter().filter(|part| part.is_stream == (kind == EngineKind::Stream));
    of_kind.flat_map(|part| part.zones.iter().cloned()).collect()
}

/// The key in the arguments: `key=`.
pub(super) fn key(args: &[u8]) -> Option<Vec<u8>> {
    let value = args.split(|b| *b == b'&').find_map(|arg| arg.strip_prefix(b"key="))?;
    let mut key = Vec::with_capacity(value.len());
    http_wire::uri::unescape(value, http_wire::uri::Unescape::All, &mut key);
    Some(key)
}

/// Refuses to show a pair that is not there.
pub(super) fn check(resource: &Resource) -> Result<(), Refusal> {
    match resource {
        Resource::Pair(zone, key) if zone.store().get(key).is_none() => Err(no_key()),
        _ => Ok(()),
    }
}

fn no_key() -> Refusal {
    Refusal::new(404, "KeyvalKeyNotFound", "keyval key not found")
}

/// One pair as an object.
pub(super) fn pair(zone: &Zone, key: &[u8]) -> Writer {
    let mut out = b"{".to_vec();
    if let Some(pair) = zone.store().get(key) {
        write(&pair, &mut out);
    }
    out.extend_from_slice(b"}\n");
    text(out)
}

/// All pairs of a table.
pub(super) fn one(zone: Rc<Zone>) -> Writer {
    let mut pairs = Pairs::default();
    Box::new(move |out| {
        if pairs.write(&zone, out) {
            return true;
        }
        out.push(b'\n');
        false
    })
}

/// The pairs of all tables, each table a member; with no fields at all, a list of their names.
pub(super) fn all(zones: Vec<Rc<Zone>>, fields: Fields) -> Writer {
    if fields.is_some_and(|fields| fields.is_empty()) {
        let names = zones.iter().map(|zone| zone.name.to_vec()).collect();
        return collection(Some(Rc::new([])), names, |_, _| {});
    }
    let (mut at, mut pairs) = (0, None);
    Box::new(move |out| {
        let Some(zone) = zones.get(at) else {
            out.extend_from_slice(if at == 0 { b"{}\n" } else { b"}\n" });
            return false;
        };
        let pairs_of = pairs.get_or_insert_with(|| {
            out.push(if at == 0 { b'{' } else { b',' });
            string(out, &zone.name);
            out.push(b':');
            Pairs::default()
        });
        if !pairs_of.write(zone, out) {
            (at, pairs) = (at + 1, None);
        }
        true
    })
}

/// How far a table is written.
#[derive(Default)]
struct Pairs {
    next: u32,
    has_begun: bool,
}

impl Pairs {
    /// Writes the next pairs; false at the end.
    fn write(&mut self, zone: &Zone, out: &mut Vec<u8>) -> bool {
        let Some(pairs) = zone.store().some(&mut self.next, STEP) else {
            out.extend_from_slice(if self.has_begun { b"}" } else { b"{}" });
            return false;
        };
        for pair in &pairs {
            out.push(if self.has_begun { b',' } else { b'{' });
            self.has_begun = true;
            write(pair, out);
        }
        true
    }
}

/// What a body says about a key.
enum Said {
    /// `null`
    Remove,
    Value(String, Option<u64>),
    /// `{"expire": MS}`
    Expire(u64),
}

fn format_error(text: impl Into<String>) -> Refusal {
    Refusal::new(400, "KeyvalFormatError", text.into())
}

fn said(zone: &Zone, value: &Value) -> Result<Said, Refusal> {
    let parts = match value {
        Value::Null => return Ok(Said::Remove),
        Value::String(text) => return Ok(Said::Value(text.clone(), None)),
        Value::Number(number) => return Ok(Said::Value(number.to_string(), None)),
        Value::Object(parts) => parts,
        _ => return Err(format_error("a value is a string, a number, null, or an object")),
    };
    if parts.keys().any(|name| name != "value" && name != "expire") {
        return Err(format_error("unknown member beside \"value\" and \"expire\""));
    }
    let expire = parts.get("expire").map(|ms| match ms.as_u64().filter(|ms| *ms > 0) {
        None => Err(format_error("\"expire\" is a number of milliseconds")),
        Some(_) if !zone.has_timeout() => Err(format_error("keyval timeout is not enabled")),
        Some(ms) => Ok(ms),
    });
    match (parts.get("value"), expire.transpose()?) {
        (Some(Value::String(text)), expire) => Ok(Said::Value(text.clone(), expire)),
        (None, Some(ms)) => Ok(Said::Expire(ms)),
        _ => Err(format_error("a value is a string")),
    }
}

fn refusal(refused: Refused) -> Refusal {
    match refused {
        Refused::BadKey => format_error("invalid key format"),
        Refused::TooLong => format_error("key and value are too long"),
        Refused::Full => Refusal::new(507, "KeyvalZoneFull", "there is no room in the zone"),
        Refused::Exists => Refusal::new(409, "KeyvalKeyExists", "key already exists"),
        Refused::Missing => Refusal::new(404, "KeyvalKeyNotFound", "key not found"),
    }
}

/// Lets others run after every [`STORED`] pairs; `n` is the number of the last one.
async fn rest(n: usize) {
    if n % STORED == STORED - 1 {
        event::task::next_turn().await;
    }
}

/// The members of a body's object.
async fn parsed(r: &mut Request, body: Vec<u8>) -> Result<Vec<(String, Value)>, Refusal> {
    let parsed = match body.len() > PARSED_HERE_MAX {
        false => members(&body),
        true => r.on_disk(move || members(&body)).await.map_err(|e| {
            Refusal::new(503, "NoThread", format!("no thread parses the body: {e}"))
        })?,
    };
    parsed.map_err(|e| Refusal::new(415, "JsonError", format!("invalid JSON: {e}")))
}

/// Makes a change; gives the status of the answer.
pub(super) async fn change(
    r: &mut Request,
    zone: &Zone,
    method: Method,
    body: Vec<u8>,
) -> Result<u16, Refusal> {
    if method == Method::Delete {
        while zone.store().clear_some(CLEARED) {
            event::task::next_turn().await;
        }
        return Ok(204);
    }
    let members = parsed(r, body).await?;
    let put = |change, key: &str, value: &str, expire| {
        let expires_ms = zone.expiry(expire);
        let pair = Pair { expires_ms, ..Pair::new(key.as_bytes(), value.as_bytes()) };
        zone.put(change, &pair).map_err(refusal)
    };
    match (&members[..], method) {
        ([], _) => Err(format_error("key required")),
        (several, Method::Post) => {
            // All are checked before the first is stored.
            let mut pairs = Vec::with_capacity(several.len());
            for (n, (key, value)) in several.iter().enumerate() {
                let Said::Value(value, expire) = said(zone, value)? else {
                    return Err(format_error("a value is needed"));
                };
                pairs.push((key, value, expire));
                rest(n).await;
            }
            if several.len() > 1 && !zone.store().is_empty() {
                return Err(format_error("only one key can be added"));
            }
            for (n, (key, value, expire)) in pairs.into_iter().enumerate() {
                put(Change::Add, key, &value, expire)?;
                rest(n).await;
            }
            Ok(201)
        }
        ([(key, value)], _) => {
            let is_there = zone.store().get(key.as_bytes()).is_some();
            match said(zone, value)? {
                _ if !is_there => return Err(no_key()),
                Said::Remove => drop(zone.store().remove(key.as_bytes())),
                Said::Value(value, expire) => put(Change::Set, key, &value, expire)?,
                Said::Expire(ms) => {
                    zone.store().set_expiry(key.as_bytes(), zone.expiry(Some(ms)));
                }
            }
            Ok(204)
        }
        _ => Err(format_error("only one key can be updated")),
    }
}
