//! Spans of a request's tries at upstream servers: children of the request's span. Their attributes
//! are those of OpenTelemetry's stable conventions for HTTP clients.

use std::rc::Rc;

use http::exchanges::Attempt;
use http::request::Request;

use crate::batches::Batches;
use crate::context::{self, Context};
use crate::otlp::{Side, Span, SpanWriter, Value};

/// The status that stands for a server that did not answer in time.
const TIMED_OUT: u16 = 504;

/// Adds a span for each try of the request, in their order.
pub fn end(r: &Request, context: &Context, batches: &Rc<Batches>) {
    let Some(exchanges) = r.upstream() else { return };
    let method = exchanges.method.map_or(r.method_name(), |method| method.name().as_bytes());
    let scheme = exchanges.scheme.strip_suffix("://").unwrap_or(exchanges.scheme);
    for (n, attempt) in exchanges.attempts.iter().filter(|a| a.peer.is_some()).enumerate() {
        if !batches.has_room() {
            batches.drop_span(r);
            continue;
        }
        let mut writer = batches.take_writer();
        begin(context, method, attempt, &mut writer);
        writer.attribute(b"http.request.method", Value::Text(method));
        writer.attribute(b"url.scheme", Value::Text(scheme.as_bytes()));
        describe(attempt, &mut writer);
        if n > 0 {
            let resends = i64::try_from(n).unwrap_or(i64::MAX);
            writer.attribute(b"http.request.resend_count", Value::Number(resends));
        }
        batches.add(r, writer);
    }
}

fn begin(context: &Context, method: &[u8], attempt: &Attempt, writer: &mut SpanWriter) {
    let ago_ms = base::time::now_ms().saturating_sub(attempt.start_ms);
    let start_ns = base::time::unix_ms().saturating_sub(ago_ms) * 1_000_000;
    // A try that was broken off has no end of its own.
    let took_ms = attempt.response_ms.unwrap_or(ago_ms);
    writer.begin(&Span {
        trace_id: context.own.trace_id,
        span_id: context::id(),
        parent_id: Some(context.own.span_id),
        state: &context.state,
        name: method,
        side: Side::Client,
        start_ns,
        end_ns: start_ns + took_ms * 1_000_000,
    });
}

/// The server's address, its status, and the error.
fn describe(attempt: &Attempt, writer: &mut SpanWriter) {
    let (host, port) = address(attempt.peer.as_deref().unwrap_or_default());
    writer.attribute(b"server.address", Value::Text(host));
    if let Some(port) = port {
        writer.attribute(b"server.port", Value::Number(port));
    }
    let has_answered = attempt.header_ms.is_some() && attempt.status > 0;
    if has_answered {
        let status = i64::from(attempt.status);
        writer.attribute(b"http.response.status_code", Value::Number(status));
    }
    let number = attempt.status.to_string();
    let error: &[u8] = match (has_answered, attempt.status) {
        (true, 400..) => number.as_bytes(),
        (true, _) => return,
        (false, TIMED_OUT) => b"timeout",
        (false, _) => b"_OTHER",
    };
    writer.attribute(b"error.type", Value::Text(error));
    writer.error();
}

/// Host and port of `127.0.0.1:80`, `[::1]:80`, `unix:/path` or a name.
fn address(peer: &[u8]) -> (&[u8], Option<i64>) {
    if let Some(path) = peer.strip_prefix(b"unix:") {
        return (path, None);
    }
    let colon = peer.iter().rposition(|b| *b == b':');
    let split = colon.and_then(|at| {
        let port = base::ascii::parse_u64(&peer[at + 1..])?;
        Some((&peer[..at], i64::try_from(port).ok()?))
    });
    let Some((host, port)) = split else { return (peer, None) };
    let bare = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]"));
    (bare.unwrap_or(host), Some(port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_servers() {
        for (peer, host, port) in [
            ("127.0.0.1:8080", "127.0.0.1", Some(8080)),
            ("[::1]:80", "::1", Some(80)),
            ("unix:/run/app:1", "/run/app:1", None),
            ("backend", "backend", None),
            ("", "", None),
        ] {
            assert_eq!(address(peer.as_bytes()), (host.as_bytes(), port), "{peer}");
        }
    }
}
