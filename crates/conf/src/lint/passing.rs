//! Proxied requests.

use super::cx::{Cx, Part, has, named, parts};
use super::{Entry, Found, Severity, entry, locations, patterns};
use crate::Node;

pub(super) const ENTRIES: &[Entry] = &[
    entry("ssrf", Severity::Error, "clients choose the upstream server (SSRF)", ssrf),
    entry(
        "proxy-pass-resolver",
        Severity::Warning,
        "a server name in a variable needs a resolver",
        resolver,
    ),
    entry(
        "proxy-pass-slash",
        Severity::Warning,
        "only one of location and proxy_pass ends in a slash",
        slash,
    ),
];

const PASSES: &[&[u8]] =
    &[b"proxy_pass", b"fastcgi_pass", b"uwsgi_pass", b"scgi_pass", b"grpc_pass", b"memcached_pass"];

/// The parts of the server's name and port in a URL.
fn authority(url: &[u8]) -> Vec<Part<'_>> {
    let start = url.windows(3).position(|w| w == b"://").map_or(0, |at| at + 3);
    let rest = &url[start..];
    // A slash within `${…}` cannot be.
    let end = rest.iter().position(|&b| b == b'/').unwrap_or(rest.len());
    let mut all = parts(&rest[..end]);
    // Behind the host, variables are the path: `http://backend$request_uri`.
    let is_path = |part: &Part<'_>| {
        matches!(
            part,
            Part::Variable(b"request_uri" | b"uri" | b"document_uri" | b"is_args" | b"args")
        )
    };
    if let Some(at) = all.iter().position(is_path).filter(|at| *at > 0) {
        all.truncate(at);
    }
    all
}

/// Whether the value is the client's to choose.
fn is_clients(cx: &Cx<'_>, name: &[u8], depth: u8) -> bool {
    let starts = [&b"arg_"[..], b"http_", b"cookie_"];
    if starts.iter().any(|start| name.starts_with(start)) && !name.starts_with(b"http_x_accel") {
        return true;
    }
    if matches!(name, b"uri" | b"document_uri" | b"request_uri" | b"args" | b"query_string") {
        return true;
    }
    if name.iter().all(u8::is_ascii_digit) || patterns::is_group(cx, name) {
        return true;
    }
    // Values that `set` and `map` derive from it: a map may have the client's text in its values.
    let values = cx.values(name).filter(|_| depth > 0).unwrap_or_default();
    values.iter().any(|word| {
        authority(word.bytes()).iter().any(|part| match part {
            Part::Variable(inner) if *inner != name => is_clients(cx, inner, depth - 1),
            _ => false,
        })
    })
}

fn ssrf(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(url) = n.args.first().filter(|_| PASSES.contains(&n.name.bytes())) else { return };
    let is_internal = |block: &Node| has(block.children(), "internal");
    let is_named = |block: &Node| block.args.first().is_some_and(|w| w.bytes().starts_with(b"@"));
    let locations = || cx.outward().filter(|block| block.name == *"location");
    if locations().any(|l| is_internal(l) || is_named(l)) {
        return;
    }
    let clients_scheme = url.bytes().windows(3).position(|w| w == b"://").is_some_and(|end| {
        parts(&url.bytes()[..end]).iter().any(|part| match part {
            Part::Variable(name) => is_clients(cx, name, 3),
            Part::Text(_) => false,
        })
    });
    if clients_scheme {
        return found
            .add(url, "clients choose the protocol to the upstream: write \"http\" or \"https\"");
    }
    let authority = authority(url.bytes());
    for (at, part) in authority.iter().enumerate() {
        let Part::Variable(name) = part else { continue };
        let is_narrow = patterns::is_narrow_group(cx, name);
        // `$1.internal.example`: within a domain of the configuration's.
        let ends_in_domain = authority[at + 1..].iter().any(
            |later| matches!(later, Part::Text(text) if text.starts_with(b".") && text.len() > 1),
        );
        // `127.0.0.1:$1`: the host is the configuration's.
        let is_port = matches!(at.checked_sub(1).map(|before| authority[before]),
            Some(Part::Text(text)) if text.ends_with(b":") && text.len() > 1);
        if !(is_port || ends_in_domain && is_narrow) && is_clients(cx, name, 3) {
            let name = String::from_utf8_lossy(name);
            found.add(
                url,
                format_args!(
                    "\"${name}\" lets clients choose the upstream server: use a \"map\" that lists \
                     the allowed servers"
                ),
            );
            return;
        }
    }
}

/// Whether the text is an address, and no name to look up.
pub(super) fn is_address(host: &[u8]) -> bool {
    let host = host.strip_prefix(b"[").unwrap_or(host);
    host.starts_with(b"unix:")
        || (!host.is_empty()
            && host.iter().all(|b| b.is_ascii_hexdigit() || b".:]".contains(b))
            && host.iter().any(|b| b".:".contains(b))
            && host.iter().any(u8::is_ascii_digit))
}

/// The host of a URL or of its end, without port.
pub(super) fn host_of(text: &[u8]) -> &[u8] {
    let start = text.windows(3).position(|w| w == b"://").map_or(0, |at| at + 3);
    let rest = &text[start..];
    if rest.starts_with(b"unix:") || rest.starts_with(b"[") {
        return rest;
    }
    let end = rest.iter().position(|b| b":/".contains(b)).unwrap_or(rest.len());
    &rest[..end]
}

fn resolver(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(url) = n.args.first().filter(|_| PASSES.contains(&n.name.bytes())) else { return };
    // A part of a configuration has its resolver and its groups elsewhere.
    if !cx.is_whole() || cx.is_set("resolver") || !url.bytes().contains(&b'$') {
        return;
    }
    let authority = authority(url.bytes());
    let names: Vec<&[u8]> = authority
        .iter()
        .filter_map(|part| match part {
            Part::Variable(name) => Some(*name),
            Part::Text(_) => None,
        })
        .collect();
    // Without a variable in the host the name is looked up at the start where it is a group; a URL
    // with variables elsewhere is still looked up for each request.
    let needs = match &authority[..] {
        [Part::Text(host)] => !known_host(cx, host_of(host)),
        // Only the port is a variable.
        [Part::Text(host), ..] if host.ends_with(b":") => !known_host(cx, host_of(host)),
        _ => names.iter().any(|name| may_be_name(cx, name)),
    };
    if needs {
        found.add(
            url,
            "the server name is resolved for each request, but no \"resolver\" is set: set one, \
             or use an \"upstream\"",
        );
    }
}

fn known_host(cx: &Cx<'_>, host: &[u8]) -> bool {
    is_address(host) || cx.is_upstream(host)
}

/// Whether a value of the variable may be a name to look up, as far as the configuration tells.
fn may_be_name(cx: &Cx<'_>, name: &[u8]) -> bool {
    if matches!(name, b"server_addr" | b"remote_addr" | b"server_port" | b"scheme" | b"proxy_port")
    {
        return false;
    }
    let Some(values) = cx.values(name) else { return true };
    values.iter().any(|word| {
        let text = word.bytes();
        !text.is_empty() && !text.contains(&b'$') && !known_host(cx, host_of(text))
    })
}

fn slash(cx: &Cx<'_>, n: &Node, found: &mut Found<'_>) {
    let Some(url) = n.args.first().filter(|_| n.name == *"proxy_pass") else { return };
    let Some(name) = cx.block().and_then(locations::prefix) else { return };
    let text = url.bytes();
    let Some(scheme) = text.windows(3).position(|w| w == b"://") else { return };
    let Some(path_at) = text[scheme + 3..].iter().position(|&b| b == b'/') else { return };
    let path = &text[scheme + 3 + path_at..];
    if text.contains(&b'$') || cx.block().is_some_and(drops_uri) {
        return;
    }
    let (shown, path_shown) = (name.lossy(), String::from_utf8_lossy(path));
    match (name.bytes().ends_with(b"/"), path.ends_with(b"/")) {
        (false, true) => found.add(
            url,
            format_args!(
                "\"{shown}/x\" is forwarded as \"{path_shown}/x\", with a slash too many: end both \
                 with a slash, or neither"
            ),
        ),
        (true, false) if !is_query(path) => found.add(
            url,
            format_args!(
                "\"{shown}x\" is forwarded as \"{path_shown}x\": end both with a slash, or neither"
            ),
        ),
        _ => {}
    }
}

/// Whether a location has a `rewrite` that ends in `break`: the path that it makes is passed on,
/// and that of `proxy_pass` has no effect.
fn drops_uri(location: &Node) -> bool {
    let ends = |n: &Node| n.args.get(2).is_some_and(|flag| *flag == *"break");
    let of = |nodes: &[Node]| {
        let broken = has(nodes, "break") && has(nodes, "rewrite");
        broken || named(nodes, "rewrite").any(ends)
    };
    of(location.children()) || named(location.children(), "if").any(|n| of(n.children()))
}

/// `/search?q=`: what is appended is the value of an argument.
fn is_query(path: &[u8]) -> bool {
    path.ends_with(b"=") || path.contains(&b'?')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for (text, host) in [
            ("http://a:1/x", "a"),
            ("a", "a"),
            ("http://unix:/s:", "unix:/s:"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(host_of(text.as_bytes()), host.as_bytes(), "{text}");
        }
        assert!(is_address(b"10.0.0.1") && is_address(b"[::1]:80") && is_address(b"unix:/x"));
        assert!(!is_address(b"backend") && !is_address(b"dead.beef.example") && !is_address(b""));
        let of = |url: &'static str| authority(url.as_bytes());
        assert_eq!(of("http://b$request_uri"), [Part::Text(b"b")]);
        assert_eq!(of("http://$host:80/x$y"), [Part::Variable(b"host"), Part::Text(b":80")]);
    }
}
