//! The values that go with a session to another process (`net::moves`): facts that handlers and
//! modules have found out, which the other process cannot find again.

use bytes::Bytes;
use conf::template::VarId;

use super::values::Slot;
use super::{Evaluation, store, value};
use crate::session::Session;

/// Variables that change until a session is logged, or that cost much: the other process computes
/// them.
const LIVE: &[&str] = &[
    "body_bytes_sent",
    "bytes_received",
    "bytes_sent",
    "connection_time",
    "connections_active",
    "connections_reading",
    "connections_waiting",
    "connections_writing",
    "limit_rate",
    "msec",
    "pid",
    "realpath_root",
    "request_body",
    "request_body_file",
    "request_completion",
    "request_time",
    "session_time",
    "status",
    "time_iso8601",
    "time_local",
    "time_rfc3339",
    "upstream_addr",
    "upstream_bytes_received",
    "upstream_bytes_sent",
    "upstream_connect_time",
    "upstream_first_byte_time",
    "upstream_header_time",
    "upstream_last_addr",
    "upstream_response_length",
    "upstream_response_time",
    "upstream_session_time",
    "upstream_status",
];

/// Families of such variables, and those whose values travel with the header section.
const LIVE_FAMILIES: &[&str] = &["arg_", "cookie_", "http_", "tcpinfo_"];

/// Whether a variable's value does not change any more once bytes are relayed.
fn is_past(name: &[u8]) -> bool {
    !LIVE.iter().any(|live| live.as_bytes() == name)
        && !LIVE_FAMILIES.iter().any(|family| name.starts_with(family.as_bytes()))
}

/// The values of a session's variables that another process is to go on with: those that are kept,
/// and those of the session's past. `None` is "not found".
pub fn carried<S: Session>(s: &mut S) -> Vec<(Bytes, Option<Bytes>)> {
    let all = s.variables().clone();
    let mut carried = Vec::new();
    for (i, var) in all.vars.iter().enumerate() {
        let id = VarId(i as u32);
        let value = match s.values().with(id, Slot::clone) {
            Slot::Value(v) => Some(v),
            Slot::NotFound => None,
            Slot::Busy => continue,
            Slot::Unset => match &var.evaluation {
                Evaluation::Write(_) | Evaluation::Kept(_) | Evaluation::Prefix(..)
                    if is_past(&var.name) =>
                {
                    value(s, id)
                }
                Evaluation::Capture(n) if s.captures().get(*n).is_some() => value(s, id),
                _ => continue,
            },
        };
        carried.push((var.name.clone(), value));
    }
    carried
}

/// Keeps a value that [`carried`] gave, if the configuration names the variable.
pub fn keep<S: Session>(s: &mut S, name: &[u8], value: Option<&[u8]>) {
    let id = s.variables().by_name.get(name).copied();
    if let Some(id) = id {
        store(s, VarId(id), value.map(Bytes::copy_from_slice));
    }
}
