//! The `$upstream_…` variables.

use std::io::Write;

use base::ascii::{eq_ignore_case, is_name_of_field, write_millis, write_u64};
use http::exchanges::{Attempt, Exchanges};
use http::request::Request;
use http::vars::VarDef;
use http_wire::h1::FieldId;

/// Writes one value per attempt, with nginx's separators.
fn each(r: &Request, out: &mut Vec<u8>, write: fn(&Attempt, &mut Vec<u8>)) -> bool {
    let Some(u) = r.upstream() else { return false };
    let list = &u.attempts;
    if list.is_empty() {
        return false;
    }
    let mut i = 0;
    loop {
        write(&list[i], out);
        i += 1;
        match list.get(i) {
            None => return true,
            Some(a) if a.peer.is_some() => out.extend_from_slice(b", "),
            Some(_) => {
                out.extend_from_slice(b" : ");
                i += 1;
                if i == list.len() {
                    return true;
                }
            }
        }
    }
}

fn millis(ms: Option<u64>, out: &mut Vec<u8>) {
    match ms {
        None => out.push(b'-'),
        Some(ms) => write_millis(out, ms),
    }
}

fn named(fields: &Exchanges, name: &[u8], out: &mut Vec<u8>) -> bool {
    let text = &fields.text;
    let mut found = false;
    for f in fields.head.fields.iter().filter(|f| !f.ignored) {
        if is_name_of_field(name, f.name.of(text)) {
            join(&mut found, f.value.of(text), out);
        }
    }
    found
}

fn join(found: &mut bool, value: &[u8], out: &mut Vec<u8>) {
    if *found {
        out.extend_from_slice(b", ");
    }
    out.extend_from_slice(value);
    *found = true;
}

fn trailer(r: &mut Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(u) = r.upstream() else { return false };
    let mut found = false;
    for (n, v) in &u.trailers {
        if is_name_of_field(name, n) {
            join(&mut found, v, out);
        }
    }
    found
}

fn cookie(r: &mut Request, name: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(u) = r.upstream() else { return false };
    for f in u.head.fields.all(FieldId::SetCookie) {
        let value = f.value.of(&u.text);
        let Some((n, rest)) = value.split_at_checked(name.len()) else { continue };
        if !eq_ignore_case(n, name) {
            continue;
        }
        let Some(rest) = behind_spaces(rest).strip_prefix(b"=") else { continue };
        let rest = behind_spaces(rest);
        let end = memchr::memchr(b';', rest).unwrap_or(rest.len());
        out.extend_from_slice(&rest[..end]);
        return true;
    }
    false
}

fn behind_spaces(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|byte| **byte == b' ').count();
    &text[spaces..]
}

/// The host of a server address, without its port.
fn host_of(server: &[u8]) -> &[u8] {
    let is_port = |p: &[u8]| !p.is_empty() && p.iter().all(u8::is_ascii_digit);
    match memchr::memrchr(b':', server) {
        Some(i) if is_port(&server[i + 1..]) && !server.starts_with(b"unix:") => &server[..i],
        _ => server,
    }
}

/// The table of variables.
pub(crate) static VARIABLES: &[VarDef] = &[
    VarDef::new("upstream_addr", |r, out| {
        each(r, out, |a, out| out.extend_from_slice(a.peer.as_deref().unwrap_or_default()))
    }),
    VarDef::new("upstream_status", |r, out| {
        each(r, out, |a, out| match a.status {
            0 => out.push(b'-'),
            s => write_u64(out, s.into()),
        })
    }),
    VarDef::new("upstream_connect_time", |r, out| each(r, out, |a, out| millis(a.connect_ms, out))),
    VarDef::new("upstream_header_time", |r, out| each(r, out, |a, out| millis(a.header_ms, out))),
    VarDef::new("upstream_response_time", |r, out| {
        each(r, out, |a, out| millis(a.response_ms, out))
    }),
    VarDef::new("upstream_response_length", |r, out| {
        each(r, out, |a, out| write_u64(out, a.response_length))
    }),
    VarDef::new("upstream_bytes_received", |r, out| {
        each(r, out, |a, out| write_u64(out, a.received))
    }),
    VarDef::new("upstream_bytes_sent", |r, out| each(r, out, |a, out| write_u64(out, a.sent))),
    VarDef::new("upstream_last_server_name", |r, out| {
        let last = r.upstream().and_then(|u| u.last.as_ref());
        let Some(peer) = last.filter(|peer| !peer.spec.server.is_empty()) else { return false };
        out.extend_from_slice(host_of(&peer.spec.server));
        true
    }),
    VarDef::new("upstream_last_addr", |r, out| {
        let Some(peer) = r.upstream().and_then(|u| u.last.as_ref()) else { return false };
        let written = match peer.spec.addr.ip_addr() {
            Some(ip) => write!(out, "{ip}"),
            None => write!(out, "{}", peer.spec.addr),
        };
        written.is_ok()
    }),
    VarDef::new("upstream_cache_status", |r, out| {
        let text = r.exchanges().and_then(|u| u.cache_status.text());
        text.map(|text| out.extend_from_slice(text.as_bytes())).is_some()
    }),
    VarDef::new("upstream_cache_age", |r, out| {
        let since = r.exchanges().and_then(|u| u.cached_since);
        let age = since.map(|since| (base::time::unix_secs() as i64).saturating_sub(since));
        age.map(|age| write_u64(out, u64::try_from(age).unwrap_or(0))).is_some()
    }),
    VarDef::new("upstream_cache_last_modified", |r, out| {
        let changed = r.cached_validators().0;
        changed.map(|t| out.extend_from_slice(&base::time::format_http_date(t))).is_some()
    }),
    VarDef::new("upstream_cache_etag", |r, out| {
        r.cached_validators().1.map(|etag| out.extend_from_slice(etag)).is_some()
    }),
    VarDef::prefix("upstream_http_", |r, name, out| {
        r.upstream().is_some_and(|u| named(u, name, out))
    }),
    VarDef::prefix("upstream_trailer_", trailer),
    VarDef::prefix("upstream_cookie_", cookie),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let text = |ms| {
            let mut out = Vec::new();
            millis(ms, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(None), "-");
        assert_eq!(text(Some(0)), "0.000");
        assert_eq!(text(Some(61_045)), "61.045");
    }

    #[test]
    fn servers_without_their_ports() {
        for (server, host) in [
            ("a.example:80", "a.example"),
            ("a.example", "a.example"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("unix:/tmp/a:1", "unix:/tmp/a:1"),
        ] {
            assert_eq!(host_of(server.as_bytes()), host.as_bytes());
        }
    }
}
