//! A `location` block: the annotations of one path.

use std::collections::BTreeSet;

use super::{
    Ing, Location, PathType, Server, Target, auth, canary, limits, needs_rewrite, responses,
};
use crate::annotations::Annotations;
use crate::check;
use crate::conf::{Block, Usual, Word, plain, template, text, w};
use crate::cx::Cx;
use crate::keys::Config;
use crate::objects::{Key, PortRef};

/// Parts of a server that its locations make.
#[derive(Default)]
pub(super) struct Parts {
    /// Directives of the server.
    pub server: Block,
    /// Internal locations.
    pub internal: Block,
    /// The locations themselves.
    pub locations: Block,
    /// Internal locations that exist already, by name.
    pub seen: BTreeSet<String>,
}

/// How a location forwards requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Https,
    Auto,
    Grpc,
    Grpcs,
    FastCgi,
}

impl Protocol {
    fn of(ann: &Annotations) -> Protocol {
        let name = ann.trimmed("backend-protocol").unwrap_or("HTTP").to_ascii_uppercase();
        match name.as_str() {
            "HTTPS" => Protocol::Https,
            "AUTO_HTTP" => Protocol::Auto,
            "GRPC" => Protocol::Grpc,
            "GRPCS" => Protocol::Grpcs,
            "FCGI" => Protocol::FastCgi,
            _ => Protocol::Http,
        }
    }

    /// The directive that sets fields of requests to the backend.
    pub fn set_header(self) -> &'static str {
        match self {
            Protocol::Grpc | Protocol::Grpcs => "grpc_set_header",
            _ => "proxy_set_header",
        }
    }

    fn pass(self, block: &mut Block, group: &str) {
        match self {
            Protocol::Http => block.add("proxy_pass", [w(format!("http://{group}"))]),
            Protocol::Https => block.add("proxy_pass", [w(format!("https://{group}"))]),
            Protocol::Auto => block.add("proxy_pass", [w(format!("$scheme://{group}"))]),
            Protocol::Grpc => block.add("grpc_pass", [w(format!("grpc://{group}"))]),
            Protocol::Grpcs => block.add("grpc_pass", [w(format!("grpcs://{group}"))]),
            Protocol::FastCgi => block.add("fastcgi_pass", [w(group)]),
        }
    }
}

/// A setting of a location: its annotation, or else the ConfigMap's key of the same name.
pub(super) fn either<'a>(ann: &'a Annotations, config: &'a Config, name: &'static str) -> &'a str {
    ann.trimmed(name).unwrap_or_else(|| config.get(name))
}

/// Writes a location and what belongs to it.
pub(super) fn render(
    cx: &mut Cx,
    ings: &[Ing],
    server: &Server,
    location: &Location,
    regex: bool,
    parts: &mut Parts,
) {
    let none = Annotations::default();
    let ing = location.ing.map(|i| &ings[i]);
    let ann = ing.map_or(&none, |ing| &ing.ann);
    let owner = ing.map(|ing| ing.owner);
    for block in [&mut parts.server, &mut parts.internal, &mut parts.locations] {
        block.owned_by(owner);
    }
    let mut block = Block::of(owner);
    if let Some(ing) = ing {
        app_root(ing, parts);
    }
    let denied = ing.and_then(|ing| auth::denied(cx, ing, ann));
    if let (Some(ing), Some(reason)) = (ing, denied) {
        variables(&mut block, ing, location, "");
        let m = format!("{}{} answers 503: {reason}", server.host, location.path);
        cx.warn(ing.object.clone(), "Denied", m);
        block.add("return", ["503"]);
    } else {
        allowed(cx, ings, ing, ann, server, location, parts, &mut block);
    }
    parts.locations.block("location", head(location, regex), block);
}

fn head(location: &Location, regex: bool) -> Vec<Word> {
    if regex {
        return vec![w("~*"), plain(format!("^{}", location.path))];
    }
    match location.kind {
        PathType::Exact => vec![w("="), plain(&location.path)],
        _ => vec![plain(&location.path)],
    }
}

fn app_root(ing: &Ing, parts: &mut Parts) {
    let Some(root) = ing.ann.trimmed("app-root") else { return };
    if !parts.seen.insert("app-root".to_owned()) {
        return;
    }
    let mut body = Block::of(Some(ing.owner));
    let to = format!("$pass_access_scheme://$best_http_host{root}");
    body.add("return", [w("302"), template(to)]);
    parts.server.if_compared("uri", "=", &w("/"), body);
}

/// The variables that locations set, for formats of logs and for the answer to a lack of servers.
pub(super) const VARIABLES: [&str; 8] = [
    "$namespace",
    "$ingress_name",
    "$service_name",
    "$service_port",
    "$location_path",
    "$proxy_upstream_name",
    "$proxy_alternative_upstream_name",
    "$weir_group",
];

/// Sets those of log formats.
fn variables(block: &mut Block, ing: &Ing, location: &Location, group: &str) {
    let (service, port) = match &location.target {
        Target::Service { service, port } => (service.as_str(), port_text(port)),
        Target::Default => ("", String::new()),
    };
    block.add("set", [w("$namespace"), text(&ing.key.namespace)]);
    block.add("set", [w("$ingress_name"), text(&ing.key.name)]);
    block.add("set", [w("$service_name"), text(service)]);
    block.add("set", [w("$service_port"), text(port)]);
    block.add("set", [w("$location_path"), text(&location.ingress_path)]);
    block.add("set", [w("$proxy_upstream_name"), text(group)]);
    block.add("set", [w("$proxy_alternative_upstream_name"), text("")]);
}

pub(super) fn port_text(port: &PortRef) -> String {
    port.number.map_or_else(|| port.name.clone(), |number| number.to_string())
}

#[allow(clippy::too_many_arguments)]
fn allowed(
    cx: &mut Cx,
    ings: &[Ing],
    ing: Option<&Ing>,
    ann: &Annotations,
    server: &Server,
    location: &Location,
    parts: &mut Parts,
    block: &mut Block,
) {
    let (Some(ing), Target::Service { service, port }) = (ing, &location.target) else {
        default_location(cx, location, block);
        return;
    };
    let key = Key::new(&ing.key.namespace, service);
    let whole = ann.bool("service-upstream").unwrap_or_else(|| cx.config.bool("service-upstream"));
    let backend = match cx.backend(&key, port, whole, false) {
        Ok(backend) => backend,
        Err(message) => {
            variables(block, ing, location, "");
            common(cx, ing, ann, server, location, Protocol::Http, parts, block);
            let m = format!("{}{} answers 503: {message}", server.host, location.path);
            cx.warn(ing.object.clone(), "NoBackend", m);
            finish(cx, ing, ann, Protocol::Http, block);
            block.add("return", ["503"]);
            return;
        }
    };
    let protocol = Protocol::of(ann);
    variables(block, ing, location, &backend.name);
    common(cx, ing, ann, server, location, protocol, parts, block);
    // The backend of `default-backend` answers for a Service without endpoints.
    let stand_in = match backend.servers.is_empty() {
        true => responses::default_backend(cx, ing, ann),
        false => None,
    };
    if let Some((name, group)) = stand_in {
        responses::unavailable_fields(block);
        block.add("set", [w("$proxy_upstream_name"), plain(name)]);
        responses::errors(cx, ing, ann, None, parts, block);
        finish(cx, ing, ann, Protocol::Http, block);
        rewrite(ann, location, Protocol::Http, ings, block);
        Protocol::Http.pass(block, &group);
        return;
    }
    let settings = canary::balancing(cx, ing, ann);
    let group = cx.upstream(&backend, settings, Some(ing.owner));
    let group = match &location.canary {
        Some((index, target)) => canary::choose(cx, ing, &ings[*index], target, &group, block),
        None => {
            block.add("set", [w("$weir_group"), plain(&group)]);
            group
        }
    };
    let on_no_server = Some("@weir_no_endpoints");
    responses::errors(cx, ing, ann, on_no_server, parts, block);
    no_endpoints(parts);
    finish(cx, ing, ann, protocol, block);
    if let Some(url) = redirect(ann) {
        block.add("return", url);
        return;
    }
    rewrite(ann, location, protocol, ings, block);
    protocol.pass(block, &group);
    proxy_redirect(cx, ann, protocol, block);
}

/// What answers for paths of no Ingress: the default backend, or 404.
fn default_location(cx: &mut Cx, location: &Location, block: &mut Block) {
    block.add("set", [w("$proxy_upstream_name"), plain("upstream-default-backend")]);
    block.add("set", [w("$location_path"), text(&location.path)]);
    if !cx.config.bool("enable-access-log-for-default-backend") {
        block.add("access_log", ["off"]);
    }
    match global_default(cx) {
        Some(group) => {
            block.add("proxy_set_header", [w("Host"), w("$best_http_host")]);
            block.add("proxy_set_header", [w("X-Real-IP"), w("$remote_addr")]);
            block.add("proxy_set_header", [w("X-Forwarded-For"), w("$weir_forwarded_for")]);
            Protocol::Http.pass(block, &group);
        }
        None => block.add("return", ["404"]),
    }
}

/// The group of the default backend of all hosts.
pub(crate) fn global_default(cx: &mut Cx) -> Option<String> {
    let key = cx.options.default_backend.clone()?;
    let service = cx.objects.services.get(&key)?;
    let number = service.spec.ports.first().map(|p| p.port);
    let port = PortRef { number, name: String::new() };
    let mut backend = cx.backend(&key, &port, false, false).ok()?;
    backend.name = "upstream-default-backend".to_owned();
    Some(cx.upstream(&backend, Vec::new(), None))
}

/// 503 instead of 502 if a group has no server that could be asked.
fn no_endpoints(parts: &mut Parts) {
    if !parts.seen.insert("@weir_no_endpoints".to_owned()) {
        return;
    }
    let mut body = Block::default();
    let mut unavailable = Block::default();
    unavailable.add("return", ["503"]);
    body.if_compared("upstream_addr", "=", &w("$weir_group"), unavailable);
    body.add("return", ["502"]);
    parts.internal.owned_by(None);
    parts.internal.block("location", ["@weir_no_endpoints"], body);
}

/// What applies to a location whatever answers its requests.
#[allow(clippy::too_many_arguments)]
fn common(
    cx: &mut Cx,
    ing: &Ing,
    ann: &Annotations,
    server: &Server,
    location: &Location,
    protocol: Protocol,
    parts: &mut Parts,
    block: &mut Block,
) {
    https(cx, ann, server, location, block);
    if ann.bool("enable-access-log") == Some(false) {
        block.add("access_log", ["off"]);
    }
    if ann.is_on("enable-rewrite-log") {
        block.add("rewrite_log", ["on"]);
    }
    tracing(cx, ann, block);
    access(cx, ann, block);
    responses::cors(cx, ing, ann, block);
    auth::render(cx, ing, ann, server, location, protocol, parts, block);
    limits::render(cx, ing, ann, block);
    responses::mirror(ing, ann, parts, block);
}

/// The redirect to HTTPS.
fn https(cx: &mut Cx, ann: &Annotations, server: &Server, location: &Location, block: &mut Block) {
    let port = ann.is_on("use-port-in-redirects");
    block.add("port_in_redirect", [if port { "on" } else { "off" }]);
    let skipped = cx.config.list("no-tls-redirect-locations");
    if skipped.iter().any(|prefix| location.path.starts_with(prefix)) {
        return;
    }
    let force =
        ann.bool("force-ssl-redirect").unwrap_or_else(|| cx.config.bool("force-ssl-redirect"));
    let own = ann.bool("ssl-redirect").unwrap_or_else(|| cx.config.bool("ssl-redirect"));
    if !(force || (own && server.certificate.is_some())) {
        return;
    }
    let uri = match ann.is_on("preserve-trailing-slash") {
        true => "$request_uri",
        false => "$weir_uri_no_slash",
    };
    let number = cx.options.https_port;
    let to = match port {
        true => format!("https://$weir_redirect_host:{number}{uri}"),
        false => format!("https://$weir_redirect_host{uri}"),
    };
    let mut body = Block::default();
    body.add("return", [plain(cx.config.get("http-redirect-code")), w(to)]);
    block.if_set("weir_plain", body);
}

fn tracing(cx: &Cx, ann: &Annotations, block: &mut Block) {
    let config = &cx.config;
    let on =
        ann.bool("enable-opentelemetry").unwrap_or_else(|| config.bool("enable-opentelemetry"));
    if config.some("otlp-collector-host").is_none() || !on {
        if ann.bool("enable-opentelemetry") == Some(false) && config.bool("enable-opentelemetry") {
            block.add("otel_trace", ["off"]);
        }
        return;
    }
    block.add("otel_trace", [w(crate::global::SAMPLER)]);
    let trust = ann
        .bool("opentelemetry-trust-incoming-span")
        .unwrap_or_else(|| config.bool("opentelemetry-trust-incoming-span"));
    block.add("otel_trace_context", [if trust { "propagate" } else { "inject" }]);
    let name = ann.trimmed("opentelemetry-operation-name");
    if let Some(name) = name.or_else(|| config.some("opentelemetry-operation-name")) {
        block.add("otel_span_name", [template(name)]);
    }
}

/// `deny` and `allow`.
fn access(cx: &Cx, ann: &Annotations, block: &mut Block) {
    let config = &cx.config;
    let denied = either(ann, config, "denylist-source-range");
    for address in check::list(denied).filter_map(check::cidr) {
        block.add("deny", [plain(address)]);
    }
    let allowed = ann
        .trimmed("allowlist-source-range")
        .unwrap_or_else(|| either(ann, config, "whitelist-source-range"));
    let mut any = false;
    for address in check::list(allowed).filter_map(check::cidr) {
        block.add("allow", [plain(address)]);
        any = true;
    }
    if any {
        block.add("deny", ["all"]);
    }
}

/// The annotations that change a line of [`usual`]: a location with one of them has its own lines.
const UNUSUAL: [&str; 17] = [
    "upstream-vhost",
    "connection-proxy-header",
    "proxy-connect-timeout",
    "proxy-send-timeout",
    "proxy-read-timeout",
    "proxy-next-upstream",
    "proxy-next-upstream-timeout",
    "proxy-next-upstream-tries",
    "proxy-buffering",
    "proxy-buffer-size",
    "proxy-buffers-number",
    "proxy-busy-buffers-size",
    "proxy-max-temp-file-size",
    "proxy-request-buffering",
    "proxy-http-version",
    "proxy-cookie-domain",
    "proxy-cookie-path",
];

/// Whether a location has the lines of [`usual`].
fn is_usual(ann: &Annotations, protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Http | Protocol::Https | Protocol::Auto)
        && UNUSUAL.iter().all(|name| ann.trimmed(name).is_none())
}

/// The directives of a location without annotations that forwards requests by HTTP: those before
/// the limit of bodies, and those after it.
pub(crate) fn usual(cx: &mut Cx) -> Usual {
    let ann = Annotations::default();
    let [mut before, mut after] = [Block::of(cx.config_owner()), Block::of(cx.config_owner())];
    fields(cx, &ann, Protocol::Http, &mut before);
    timeouts(cx, &ann, Protocol::Http, &mut before);
    buffers(cx, &ann, &mut after);
    Usual(vec![before, after])
}

/// Fields, timeouts, buffers and snippets of a location that forwards requests.
fn finish(cx: &mut Cx, ing: &Ing, ann: &Annotations, protocol: Protocol, block: &mut Block) {
    let is_usual = is_usual(ann, protocol);
    if is_usual {
        block.usual(0);
    } else {
        fields(cx, ann, protocol, block);
        timeouts(cx, ann, protocol, block);
    }
    let body_size = either(ann, &cx.config, "proxy-body-size");
    block.add("client_max_body_size", [plain(body_size)]);
    if let Some(size) = ann.trimmed("client-body-buffer-size") {
        block.add("client_body_buffer_size", [plain(size)]);
    }
    match is_usual {
        true => block.usual(1),
        false => buffers(cx, ann, block),
    }
    if protocol == Protocol::FastCgi {
        fastcgi(cx, ing, ann, block);
    }
    auth::proxy_ssl(cx, ing, ann, protocol, block);
    responses::custom_headers(cx, ing, ann, block);
    if let Some(satisfy) = ann.trimmed("satisfy") {
        block.add("satisfy", [plain(satisfy)]);
    }
    if ann.is_on("relative-redirects") {
        block.add("absolute_redirect", ["off"]);
    }
    if let Some(text) = ann.get("configuration-snippet") {
        block.raw(text);
    }
    if let Some(text) = cx.config.some("location-snippet").map(str::to_owned) {
        block.owned_by(cx.config_owner());
        block.raw(&text);
        block.owned_by(Some(ing.owner));
    }
}

fn fields(cx: &mut Cx, ann: &Annotations, protocol: Protocol, block: &mut Block) {
    let set = protocol.set_header();
    match ann.trimmed("upstream-vhost") {
        Some(host) => block.add(set, [w("Host"), template(host)]),
        None => block.add(set, [w("Host"), w("$best_http_host")]),
    }
    if protocol.set_header() == "proxy_set_header" {
        block.add(set, [w("Upgrade"), w("$http_upgrade")]);
        match ann.trimmed("connection-proxy-header") {
            Some(value) => block.add(set, [w("Connection"), plain(value)]),
            None => block.add(set, [w("Connection"), w("$connection_upgrade")]),
        }
    }
    let fixed = [
        ("X-Request-ID", "$req_id"),
        ("X-Real-IP", "$remote_addr"),
        ("X-Forwarded-For", "$weir_forwarded_for"),
        ("X-Forwarded-Host", "$best_http_host"),
        ("X-Forwarded-Port", "$pass_port"),
        ("X-Forwarded-Proto", "$pass_access_scheme"),
        ("X-Forwarded-Scheme", "$pass_access_scheme"),
        ("X-Scheme", "$pass_access_scheme"),
        ("X-Original-Forwarded-For", "$weir_original_forwarded_for"),
        ("X-Original-Forwarded-Host", "$weir_original_forwarded_host"),
        ("Proxy", ""),
    ];
    for (name, value) in fixed {
        block.add(set, [w(name), w(value)]);
    }
    if cx.config.bool("proxy-add-original-uri-header") {
        block.add(set, [w("X-Original-URI"), w("$request_uri")]);
    }
    for (name, value) in crate::global::fields_of(cx, "proxy-set-headers") {
        block.add(set, [plain(name), template(value)]);
    }
}

fn timeouts(cx: &Cx, ann: &Annotations, protocol: Protocol, block: &mut Block) {
    let config = &cx.config;
    let seconds = |name| plain(format!("{}s", either(ann, config, name)));
    let (connect, send, read) = match protocol {
        Protocol::Grpc | Protocol::Grpcs => {
            ("grpc_connect_timeout", "grpc_send_timeout", "grpc_read_timeout")
        }
        Protocol::FastCgi => {
            ("fastcgi_connect_timeout", "fastcgi_send_timeout", "fastcgi_read_timeout")
        }
        _ => ("proxy_connect_timeout", "proxy_send_timeout", "proxy_read_timeout"),
    };
    block.add(connect, [seconds("proxy-connect-timeout")]);
    block.add(send, [seconds("proxy-send-timeout")]);
    block.add(read, [seconds("proxy-read-timeout")]);
    let conditions = either(ann, config, "proxy-next-upstream");
    let mut words: Vec<Word> =
        conditions.split_whitespace().filter(|word| *word != "non_idempotent").map(plain).collect();
    let off = conditions.split_whitespace().any(|word| word == "off");
    let retry = config.bool("retry-non-idempotent") || conditions.contains("non_idempotent");
    if retry && !off {
        words.push(w("non_idempotent"));
    }
    let (next, timeout, tries) = match protocol {
        Protocol::Grpc | Protocol::Grpcs => {
            ("grpc_next_upstream", "grpc_next_upstream_timeout", "grpc_next_upstream_tries")
        }
        Protocol::FastCgi => (
            "fastcgi_next_upstream",
            "fastcgi_next_upstream_timeout",
            "fastcgi_next_upstream_tries",
        ),
        _ => ("proxy_next_upstream", "proxy_next_upstream_timeout", "proxy_next_upstream_tries"),
    };
    block.add(next, words);
    block.add(timeout, [seconds("proxy-next-upstream-timeout")]);
    block.add(tries, [plain(either(ann, config, "proxy-next-upstream-tries"))]);
}

fn buffers(cx: &Cx, ann: &Annotations, block: &mut Block) {
    let config = &cx.config;
    let value = |name| plain(either(ann, config, name));
    block.add("proxy_buffering", [value("proxy-buffering")]);
    block.add("proxy_buffer_size", [value("proxy-buffer-size")]);
    block.add("proxy_buffers", [value("proxy-buffers-number"), value("proxy-buffer-size")]);
    let busy = either(ann, config, "proxy-busy-buffers-size");
    if !busy.is_empty() {
        block.add("proxy_busy_buffers_size", [plain(busy)]);
    }
    block.add("proxy_max_temp_file_size", [value("proxy-max-temp-file-size")]);
    block.add("proxy_request_buffering", [value("proxy-request-buffering")]);
    block.add("proxy_http_version", [value("proxy-http-version")]);
    for (name, directive) in
        [("proxy-cookie-domain", "proxy_cookie_domain"), ("proxy-cookie-path", "proxy_cookie_path")]
    {
        let words = either(ann, config, name).split_whitespace().map(plain);
        block.add(directive, words.take(2).collect::<Vec<_>>());
    }
}

fn fastcgi(cx: &mut Cx, ing: &Ing, ann: &Annotations, block: &mut Block) {
    const PARAMS: [(&str, &str); 20] = [
        ("QUERY_STRING", "$query_string"),
        ("REQUEST_METHOD", "$request_method"),
        ("CONTENT_TYPE", "$content_type"),
        ("CONTENT_LENGTH", "$content_length"),
        ("SCRIPT_NAME", "$fastcgi_script_name"),
        ("REQUEST_URI", "$request_uri"),
        ("DOCUMENT_URI", "$document_uri"),
        ("DOCUMENT_ROOT", "$document_root"),
        ("SERVER_PROTOCOL", "$server_protocol"),
        ("REQUEST_SCHEME", "$scheme"),
        ("HTTPS", "$https"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", "weir"),
        ("REMOTE_ADDR", "$remote_addr"),
        ("REMOTE_PORT", "$remote_port"),
        ("SERVER_ADDR", "$server_addr"),
        ("SERVER_PORT", "$server_port"),
        ("SERVER_NAME", "$server_name"),
        ("REDIRECT_STATUS", "200"),
        ("HTTP_PROXY", ""),
    ];
    for (name, value) in PARAMS {
        block.add("fastcgi_param", [w(name), w(value)]);
    }
    if let Some(index) = ann.trimmed("fastcgi-index") {
        block.add("fastcgi_index", [plain(index)]);
    }
    let Some(name) = ann.trimmed("fastcgi-params-configmap") else { return };
    let key = Key::parse(name, &ing.key.namespace);
    if let Some(map) = cx.objects.config_maps.get(&key) {
        for (name, value) in &map.data {
            block.add("fastcgi_param", [plain(name), template(value)]);
        }
    }
}

/// The words of `return` for `permanent-redirect` and `temporal-redirect`.
fn redirect(ann: &Annotations) -> Option<Vec<Word>> {
    let code = |name, default| {
        let code = ann.int(name).filter(|code| (300..=308).contains(code));
        plain(code.unwrap_or(default).to_string())
    };
    if let Some(url) = ann.trimmed("temporal-redirect") {
        return Some(vec![code("temporal-redirect-code", 302), text(url)]);
    }
    let url = ann.trimmed("permanent-redirect")?;
    Some(vec![code("permanent-redirect-code", 301), text(url)])
}

fn rewrite(
    ann: &Annotations,
    location: &Location,
    protocol: Protocol,
    ings: &[Ing],
    block: &mut Block,
) {
    if !needs_rewrite(location, ings) {
        return;
    }
    let to = ann.trimmed("rewrite-target").unwrap_or_default();
    block.add("rewrite", [plain(format!("(?i){}", location.path)), template(to), w("break")]);
    if let Some(prefix) = ann.trimmed("x-forwarded-prefix") {
        block.add(protocol.set_header(), [w("X-Forwarded-Prefix"), template(prefix)]);
    }
}

fn proxy_redirect(cx: &Cx, ann: &Annotations, protocol: Protocol, block: &mut Block) {
    if !matches!(protocol, Protocol::Http | Protocol::Https | Protocol::Auto) {
        return;
    }
    let from = either(ann, &cx.config, "proxy-redirect-from");
    let to = either(ann, &cx.config, "proxy-redirect-to");
    match from {
        "off" => block.add("proxy_redirect", ["off"]),
        // With a group chosen by variables there is no default to derive.
        "default" => {}
        from if to != "off" => block.add("proxy_redirect", [text(from), text(to)]),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::ANNOTATIONS;
    use crate::conf::write;

    #[test]
    fn unusual_annotations_are_those_that_change_a_usual_line() {
        let (objects, options, refused) = Default::default();
        let mut cx = Cx::new(&objects, &options, &refused);
        let mut lines = |ann: &Annotations| {
            let mut block = Block::default();
            fields(&mut cx, ann, Protocol::Http, &mut block);
            timeouts(&cx, ann, Protocol::Http, &mut block);
            buffers(&cx, ann, &mut block);
            write(&block).text
        };
        let usual = lines(&Annotations::default());
        for name in ANNOTATIONS.iter().map(|known| known.name) {
            let is_unusual = lines(&Annotations::of(name, "7")) != usual;
            assert_eq!(is_unusual, UNUSUAL.contains(&name), "{name}");
        }
    }
}
