//! What a rule's filters, timeouts and retries do to requests and responses.

use std::collections::BTreeMap;

use super::http::{Entry, entry_id};
use super::matching::Path;
use super::refs;
use super::types::{Cors, Filter, HeaderModifier, Mirror, PathChange, Redirect, RouteRule};
use crate::check;
use crate::conf::{Block, Owner, Word, plain, text, w};
use crate::cx::{Cx, digest};
use crate::ingress::{cors_regex, header_variable};

/// Adds the fields that a filter sets, adds and removes.
pub(super) fn request_headers(
    cx: &mut Cx,
    owner: Owner,
    change: &HeaderModifier,
    fields: &mut BTreeMap<String, Word>,
) {
    for field in &change.set {
        if header_variable(&field.name).is_some() && check::is_clean(&field.value) {
            fields.insert(field.name.clone(), text(&field.value));
        }
    }
    for field in &change.add {
        let Some(variable) = header_variable(&field.name) else { continue };
        if !check::is_clean(&field.value) {
            continue;
        }
        let tag = digest(&[variable.as_bytes(), field.value.as_bytes()]);
        let added = format!("$gw_add_{tag}");
        if cx.first(&added) {
            let value = field.value.replace('$', "${literal_dollar}");
            let mut map = Block::of(Some(owner));
            map.entry(w("default"), [plain(format!("{variable},{value}"))]);
            map.entry(w(""), [plain(value)]);
            cx.http.block("map", [w(variable), w(&added)], map);
        }
        fields.insert(field.name.clone(), w(added));
    }
    for name in &change.remove {
        if header_variable(name).is_some() {
            fields.insert(name.clone(), w(""));
        }
    }
}

pub(super) fn response_headers(filters: &[&Filter], block: &mut Block) {
    for change in filters.iter().filter_map(|f| f.response_header_modifier.as_ref()) {
        let good =
            |name: &str, value: &str| header_variable(name).is_some() && check::is_clean(value);
        for name in change.remove.iter().filter(|name| good(name, "")) {
            block.add("more_clear_headers", [plain(name)]);
        }
        for field in change.set.iter().filter(|f| good(&f.name, &f.value)) {
            block.add("more_set_headers", [text(format!("{}: {}", field.name, field.value))]);
        }
        for field in change.add.iter().filter(|f| good(&f.name, &f.value)) {
            block.add("add_header", [plain(&field.name), text(&field.value), w("always")]);
        }
    }
}

/// A duration of the Gateway API (`1h30m`, `500ms`) as one of nginx; `None` for zero, which is no
/// limit.
fn duration(text: &str) -> Option<String> {
    let zero = text.bytes().all(|b| !b.is_ascii_digit() || b == b'0');
    let good = text.bytes().all(|b| b.is_ascii_digit() || b"hms".contains(&b)) && !text.is_empty();
    (good && !zero).then(|| text.to_owned())
}

pub(super) fn timeouts(rule: &RouteRule, grpc: bool, block: &mut Block) {
    let of = |text: &Option<String>| text.as_deref().and_then(duration);
    let (request, backend) = (of(&rule.timeouts.request), of(&rule.timeouts.backend_request));
    let pick = |proxy: &'static str, of_grpc: &'static str| if grpc { of_grpc } else { proxy };
    if let Some(time) = backend.or_else(|| request.clone()) {
        block.add(pick("proxy_read_timeout", "grpc_read_timeout"), [plain(&time)]);
        block.add(pick("proxy_send_timeout", "grpc_send_timeout"), [plain(&time)]);
        block.add(pick("proxy_connect_timeout", "grpc_connect_timeout"), [plain(time)]);
    }
    if let Some(time) = request {
        block.add(pick("proxy_next_upstream_timeout", "grpc_next_upstream_timeout"), [plain(time)]);
    }
    let name = pick("proxy_next_upstream", "grpc_next_upstream");
    let Some(retry) = &rule.retry else {
        block.add(name, ["error"]);
        return;
    };
    // Also on one server that is alone.
    let mut words = vec![w("error"), w("timeout"), w("non_idempotent"), w("again")];
    let known = [500, 502, 503, 504, 403, 404, 429];
    words.extend(
        retry.codes.iter().filter(|c| known.contains(c)).map(|code| w(format!("http_{code}"))),
    );
    block.add(name, words);
    let tries = retry.attempts.unwrap_or(1).saturating_add(1);
    block.add(
        pick("proxy_next_upstream_tries", "grpc_next_upstream_tries"),
        [plain(tries.to_string())],
    );
}

/// The prefix that a rule's match has, for filters that replace it.
fn prefix_of<'e>(entry: &'e Entry<'_>) -> &'e str {
    match &entry.m.path {
        Path::Prefix(path) | Path::Exact(path) => path,
        Path::Regex(_) => "",
    }
}

/// A variable with the changed path.
fn changed_path(cx: &mut Cx, entry: &Entry, change: &PathChange) -> Option<String> {
    if let Some(full) = &change.replace_full_path {
        let good = check::is_clean(full) && full.starts_with('/');
        return good.then(|| full.replace('$', "${literal_dollar}"));
    }
    let to = change.replace_prefix_match.as_ref().filter(|to| check::is_clean(to))?;
    let to = to.trim_end_matches('/').replace('$', "${literal_dollar}");
    let prefix = prefix_of(entry);
    let tag = digest(&[prefix.as_bytes(), to.as_bytes()]);
    let variable = format!("$gw_path_{tag}");
    if cx.first(&variable) {
        let mut map = Block::of(Some(entry.owner));
        map.entry(w("default"), [plain(if to.is_empty() { "/" } else { &to })]);
        let rest = format!("gw_rest_{tag}");
        let regex = format!("~^{}(?<{rest}>/.*)$", crate::ingress::escape(prefix));
        map.entry(plain(regex), [plain(format!("{to}${rest}"))]);
        cx.http.block("map", [w("$uri"), w(&variable)], map);
    }
    Some(variable)
}

pub(super) fn rewrite_path(cx: &mut Cx, entry: &Entry, rewrite: &Redirect, block: &mut Block) {
    let Some(change) = &rewrite.path else { return };
    if let Some(path) = changed_path(cx, entry, change) {
        block.add("rewrite", [w("^"), plain(path), w("break")]);
    }
}

pub(super) fn redirect(cx: &mut Cx, entry: &Entry, redirect: &Redirect, block: &mut Block) {
    let code =
        redirect.status_code.filter(|c| [301, 302, 303, 307, 308].contains(c)).unwrap_or(302);
    let scheme = redirect.scheme.as_deref().filter(|s| matches!(*s, "http" | "https"));
    let host = redirect.hostname.as_deref().filter(|h| check::is_host(h, false));
    let path = redirect.path.as_ref().and_then(|change| changed_path(cx, entry, change));
    let port = match (redirect.port, scheme) {
        (Some(80), Some("http")) | (Some(443), Some("https")) => String::new(),
        (Some(80), None) => "$gw_port_unless_80".to_owned(),
        (Some(443), None) => "$gw_port_unless_443".to_owned(),
        (Some(port), _) => format!(":{port}"),
        (None, Some(_)) => String::new(),
        (None, None) => "$gw_listener_port".to_owned(),
    };
    redirect_ports(cx);
    let to = format!(
        "{}://{}{port}{}",
        scheme.unwrap_or("$pass_access_scheme"),
        host.unwrap_or("$weir_redirect_host"),
        path.map_or("$request_uri".to_owned(), |path| format!("{path}$is_args$args")),
    );
    block.add("return", [plain(code.to_string()), plain(to)]);
}

/// The ports of redirects: none where the scheme says it.
fn redirect_ports(cx: &mut Cx) {
    if !cx.first("redirect ports") {
        return;
    }
    let variable = |cx: &mut Cx, name: &str, lines: &[(&str, &str)]| {
        let mut map = Block::default();
        for (from, to) in lines {
            map.entry(w(from), [w(to)]);
        }
        cx.http.block("map", ["$scheme:$server_port", name], map);
    };
    let own = [("default", ":$server_port"), ("http:80", ""), ("https:443", "")];
    variable(cx, "$gw_listener_port", &own);
    variable(cx, "$gw_port_unless_80", &[("default", ":80"), ("~^http:", "")]);
    variable(cx, "$gw_port_unless_443", &[("default", ":443"), ("~^https:", "")]);
}

pub(super) fn cors(cx: &mut Cx, owner: Owner, cors: &Cors, block: &mut Block) {
    let origins: Vec<&str> = cors
        .allow_origins
        .iter()
        .map(String::as_str)
        .filter(|o| check::Check::Origins.accepts(o))
        .collect();
    let any = origins.contains(&"*");
    let tag = digest(&[format!("{cors:?}").as_bytes()]);
    let origin = format!("$gw_cors_{tag}");
    if cx.first(&origin) {
        let mut map = Block::of(Some(owner));
        map.entry(w("default"), [""]);
        let regex = if any { "~.".to_owned() } else { cors_regex(&origins, ".+") };
        map.entry(plain(regex), ["$http_origin"]);
        cx.http.block("map", [w("$http_origin"), w(&origin)], map);
        let mut preflight = Block::of(Some(owner));
        preflight.entry(w("default"), [""]);
        // Also of origins that are not allowed: they are told nothing, and backends not asked.
        preflight.entry(w("~^OPTIONS [^|]+[|]."), ["1"]);
        let source = "$request_method $http_access_control_request_method|$http_origin";
        cx.http.block("map", [w(source), w(format!("$gw_preflight_{tag}"))], preflight);
    }
    let joined = |values: &[String]| {
        let good = values.iter().filter(|v| check::Check::BasicOrStar.accepts(v));
        good.map(String::as_str).collect::<Vec<_>>().join(", ")
    };
    let mut fields = vec![("Allow-Origin", origin.clone())];
    if cors.allow_credentials == Some(true) {
        fields.push(("Allow-Credentials", "true".to_owned()));
    }
    for (name, values) in [
        ("Allow-Methods", &cors.allow_methods),
        ("Allow-Headers", &cors.allow_headers),
        ("Expose-Headers", &cors.expose_headers),
    ] {
        if !values.is_empty() {
            fields.push((name, joined(values)));
        }
    }
    // With credentials, an asterisk means itself to browsers: what they ask for is allowed.
    let reflected = |name: &str, value: &str| match name {
        _ if cors.allow_credentials != Some(true) || value != "*" => None,
        "Allow-Methods" => Some(w("$http_access_control_request_method")),
        "Allow-Headers" => Some(w("$http_access_control_request_headers")),
        _ => None,
    };
    fields.push(("Max-Age", cors.max_age.unwrap_or(5).to_string()));
    for (name, value) in fields {
        let value = match name {
            "Allow-Origin" => value,
            _ => {
                let variable =
                    format!("$gw_cors_{}_{tag}", name.to_ascii_lowercase().replace('-', "_"));
                if cx.first(&variable) {
                    let mut map = Block::of(Some(owner));
                    map.entry(w(""), [""]);
                    let value = reflected(name, &value).unwrap_or_else(|| text(&value));
                    map.entry(w("default"), [value]);
                    cx.http.block("map", [w(&origin), w(&variable)], map);
                }
                variable
            }
        };
        block.add("more_set_headers", [w(format!("Access-Control-{name}: {value}"))]);
    }
    let mut body = Block::of(Some(owner));
    body.add("return", ["204"]);
    block.if_set(&format!("gw_preflight_{tag}"), body);
}

/// Copies of requests: a location for each, whose share may be less than all.
pub(super) fn mirrors(
    cx: &mut Cx,
    entry: &Entry,
    named: &mut BTreeMap<String, Block>,
    filters: &[&Filter],
    block: &mut Block,
) {
    let all = filters.iter().filter_map(|f| f.request_mirror.as_ref());
    for (number, mirror) in all.enumerate() {
        let found = refs::backend(cx, entry.kind, &entry.key.namespace, &mirror.backend_ref, false);
        let Ok((_, backend)) = found else { continue };
        let group = cx.upstream(&backend, Vec::new(), Some(entry.owner));
        let id = format!("{}_{number}", entry_id(entry));
        let target = share(cx, entry.owner, mirror, &id);
        // `mirror` sends to a location: a server of its own in each place would be too much.
        block.add("mirror", [plain(format!("/_gateway_mirror/{id}"))]);
        let mut inner = Block::of(Some(entry.owner));
        inner.add("internal", [] as [Word; 0]);
        if let Some(variable) = &target {
            let mut skip = Block::default();
            skip.add("return", ["204"]);
            inner.if_compared(&variable[1..], "=", &w("0"), skip);
        }
        inner.add("proxy_set_header", ["Host", "$best_http_host"]);
        inner.add("proxy_pass", [plain(format!("http://{group}$request_uri"))]);
        named.insert(format!("/_gateway_mirror/{id}"), inner);
    }
}

/// The variable that is 1 for the share of requests that are mirrored; `None` for all.
fn share(cx: &mut Cx, owner: Owner, mirror: &Mirror, id: &str) -> Option<String> {
    let hundredths = match (&mirror.percent, &mirror.fraction) {
        (Some(percent), _) => u64::from(*percent) * 100,
        (None, Some(f)) => {
            u64::from(f.numerator) * 10_000 / u64::from(f.denominator.unwrap_or(100).max(1))
        }
        (None, None) => return None,
    };
    let hundredths = hundredths.min(10_000);
    let variable = format!("$gw_mirror_{id}");
    if cx.first(&variable) {
        let mut split = Block::of(Some(owner));
        if hundredths > 0 {
            split.entry(plain(format!("{}.{:02}%", hundredths / 100, hundredths % 100)), ["1"]);
        }
        if hundredths < 10_000 {
            split.entry(w("*"), ["0"]);
        }
        cx.http.block("split_clients", [w(format!("${{request_id}}{id}")), w(&variable)], split);
    }
    Some(variable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("1h30m").as_deref(), Some("1h30m"));
        assert_eq!((duration("0s"), duration("1s; x"), duration("")), (None, None, None));
    }
}
