//! Errors, fields of responses, CORS, and copies of requests.

use super::Ing;
use super::canary::escape;
use super::location::{Parts, global_default};
use crate::annotations::Annotations;
use crate::check;
use crate::conf::{Block, plain, template, text, w};
use crate::cx::{Cx, digest};
use crate::objects::{Key, PortRef};

/// The group of `default-backend`, if its Service has endpoints: name and group.
pub(super) fn default_backend(
    cx: &mut Cx,
    ing: &Ing,
    ann: &Annotations,
) -> Option<(String, String)> {
    let name = ann.trimmed("default-backend")?;
    let key = Key::new(&ing.key.namespace, name);
    let Some(service) = cx.objects.services.get(&key) else {
        let m = format!("default-backend: Service {key} does not exist");
        cx.warn(ing.object.clone(), "NoBackend", m);
        return None;
    };
    let port = PortRef { number: service.spec.ports.first().map(|p| p.port), name: String::new() };
    let mut backend = cx.backend(&key, &port, false, false).ok()?;
    if backend.servers.is_empty() {
        return None;
    }
    backend.name = format!("custom-default-backend-{}-{name}", key.namespace);
    let group = cx.upstream(&backend, Vec::new(), Some(ing.owner));
    Some((backend.name, group))
}

/// What a default backend learns about a Service without endpoints.
pub(super) fn unavailable_fields(block: &mut Block) {
    let set = "proxy_set_header";
    block.add(set, ["X-Code", "503"]);
    block.add(set, ["X-Format", "$http_accept"]);
    block.add(set, ["X-Namespace", "$namespace"]);
    block.add(set, ["X-Ingress-Name", "$ingress_name"]);
    block.add(set, ["X-Service-Name", "$service_name"]);
    block.add(set, ["X-Service-Port", "$service_port"]);
}

/// `custom-http-errors`, and 503 for groups without servers.
pub(super) fn errors(
    cx: &mut Cx,
    ing: &Ing,
    ann: &Annotations,
    on_no_server: Option<&'static str>,
    parts: &mut Parts,
    block: &mut Block,
) {
    let own = ann.trimmed("custom-http-errors");
    let codes: Vec<String> = check::list(own.unwrap_or(cx.config.get("custom-http-errors")))
        .map(str::to_owned)
        .collect();
    let off = ann
        .bool("disable-proxy-intercept-errors")
        .unwrap_or_else(|| cx.config.bool("disable-proxy-intercept-errors"));
    if !codes.is_empty() {
        if !off {
            block.add("proxy_intercept_errors", ["on"]);
        }
        // Without a backend of its own, that of all hosts answers.
        let backend = default_backend(cx, ing, ann).map(|(_, group)| group);
        let group = backend.or_else(|| global_default(cx));
        for code in &codes {
            let name = error_location(group.as_deref(), code, parts);
            block.add("error_page", [plain(code), w("="), plain(name)]);
        }
    }
    let intercepts = !codes.is_empty() && !off;
    if let Some(name) = on_no_server.filter(|_| !intercepts && !codes.iter().any(|c| c == "502")) {
        block.add("error_page", ["502", "=", name]);
    }
}

/// The location that asks a backend for the page of an error.
fn error_location(group: Option<&str>, code: &str, parts: &mut Parts) -> String {
    let name = format!("@custom_{}_{code}", group.unwrap_or("none"));
    if !parts.seen.insert(name.clone()) {
        return name;
    }
    let mut body = Block::default();
    match group {
        None => body.add("return", [plain(code)]),
        Some(group) => {
            body.add("proxy_intercept_errors", ["off"]);
            let set = "proxy_set_header";
            body.add(set, [w("X-Code"), plain(code)]);
            body.add(set, ["X-Format", "$http_accept"]);
            body.add(set, ["X-Original-URI", "$request_uri"]);
            body.add(set, ["X-Namespace", "$namespace"]);
            body.add(set, ["X-Ingress-Name", "$ingress_name"]);
            body.add(set, ["X-Service-Name", "$service_name"]);
            body.add(set, ["X-Service-Port", "$service_port"]);
            body.add(set, ["X-Request-ID", "$req_id"]);
            body.add(set, ["X-Forwarded-For", "$remote_addr"]);
            body.add(set, ["Host", "$best_http_host"]);
            body.add("rewrite", ["(.*)", "/", "break"]);
            body.add("proxy_pass", [plain(format!("http://{group}"))]);
        }
    }
    parts.internal.block("location", [plain(&name)], body);
    name
}

/// The fields of a ConfigMap in all responses.
pub(super) fn custom_headers(cx: &mut Cx, ing: &Ing, ann: &Annotations, block: &mut Block) {
    let Some(name) = ann.trimmed("custom-headers") else { return };
    let key = Key::parse(name, &ing.key.namespace);
    let Some(map) = cx.objects.config_maps.get(&key) else { return };
    for (name, value) in &map.data {
        block.add("more_set_headers", [text(format!("{name}: {value}"))]);
    }
}

/// An expression that matches one of these origins; each may have one asterisk, which stands for
/// `any`.
pub(crate) fn cors_regex(origins: &[&str], any: &str) -> String {
    let each = origins.iter().map(|origin| escape(origin).replacen("\\*", any, 1));
    format!("~*^({})$", each.collect::<Vec<_>>().join("|"))
}

/// The fields of CORS, and an answer to preflight requests.
pub(super) fn cors(cx: &mut Cx, ing: &Ing, ann: &Annotations, block: &mut Block) {
    const METHODS: &str = "GET, PUT, POST, DELETE, PATCH, OPTIONS";
    const HEADERS: &str = "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,\
                           Cache-Control,Content-Type,Range,Authorization";
    if !ann.is_on("enable-cors") {
        return;
    }
    let list = ann.get("cors-allow-origin").unwrap_or("*");
    let origins: Vec<&str> = check::list(list).collect();
    let any = origins == ["*"] || origins.is_empty();
    let origin = if any { "*".to_owned() } else { allowed_origin(cx, ing, list, &origins) };
    let methods = ann.trimmed("cors-allow-methods").unwrap_or(METHODS);
    let headers = ann.trimmed("cors-allow-headers").unwrap_or(HEADERS);
    let age = ann.signed("cors-max-age").unwrap_or(1_728_000);
    let mut fields = vec![
        ("Allow-Origin", origin.clone()),
        ("Allow-Methods", methods.to_owned()),
        ("Allow-Headers", headers.to_owned()),
        ("Max-Age", age.to_string()),
    ];
    if ann.bool("cors-allow-credentials") != Some(false) {
        fields.push(("Allow-Credentials", "true".to_owned()));
    }
    if let Some(exposed) = ann.trimmed("cors-expose-headers") {
        fields.push(("Expose-Headers", exposed.to_owned()));
    }
    let id = cors_id(list);
    for (name, value) in fields {
        let value = match any || name == "Allow-Origin" {
            true => value,
            // Empty for other origins, and so removed.
            false => cors_value(cx, ing, &id, name, &value),
        };
        block.add("more_set_headers", [w(format!("Access-Control-{name}: {value}"))]);
    }
    let condition = match any {
        true => "weir_preflight".to_owned(),
        false => preflight(cx, ing, &id),
    };
    let mut body = Block::of(Some(ing.owner));
    body.add("return", ["204"]);
    block.if_set(&condition, body);
}

fn cors_id(list: &str) -> String {
    digest(&[list.as_bytes()])
}

/// The variable with the request's origin, if it is among those allowed.
fn allowed_origin(cx: &mut Cx, ing: &Ing, list: &str, origins: &[&str]) -> String {
    let variable = format!("$cors_{}", cors_id(list));
    if cx.first(&variable) {
        let mut map = Block::of(Some(ing.owner));
        map.entry(w("default"), [""]);
        map.entry(plain(cors_regex(origins, "[A-Za-z0-9-]+")), ["$http_origin"]);
        cx.http.block("map", [w("$http_origin"), w(&variable)], map);
    }
    variable
}

/// A variable with this value for origins that are allowed.
fn cors_value(cx: &mut Cx, ing: &Ing, id: &str, name: &str, value: &str) -> String {
    let tag = digest(&[id.as_bytes(), name.as_bytes(), value.as_bytes()]);
    let variable = format!("$cors_value_{tag}");
    if cx.first(&variable) {
        let mut map = Block::of(Some(ing.owner));
        map.entry(w(""), [""]);
        map.entry(w("default"), [text(value)]);
        cx.http.block("map", [w(format!("$cors_{id}")), w(&variable)], map);
    }
    variable
}

/// The variable that is set for preflight requests of origins that are allowed.
fn preflight(cx: &mut Cx, ing: &Ing, id: &str) -> String {
    let name = format!("preflight_{id}");
    if cx.first(&name) {
        let mut map = Block::of(Some(ing.owner));
        map.entry(w("default"), [""]);
        map.entry(w("~^OPTIONS.+"), ["1"]);
        let source = format!("$request_method$cors_{id}");
        cx.http.block("map", [w(source), w(format!("${name}"))], map);
    }
    name
}

/// A copy of each request for another server.
pub(super) fn mirror(ing: &Ing, ann: &Annotations, parts: &mut Parts, block: &mut Block) {
    let Some(target) = ann.trimmed("mirror-target") else { return };
    let id = digest(&[ing.key.to_string().as_bytes()]);
    let path = format!("/_mirror-{id}");
    block.add("mirror", [plain(&path)]);
    let body = ann.trimmed("mirror-request-body").unwrap_or("on");
    block.add("mirror_request_body", [plain(body)]);
    if !parts.seen.insert(path.clone()) {
        return;
    }
    let rest = target.split_once("://").map_or(target, |(_, rest)| rest);
    let end = rest.find(['/', '$', '?']).unwrap_or(rest.len());
    let host = ann.trimmed("mirror-host").unwrap_or(&rest[..end]);
    let mut inner = Block::of(Some(ing.owner));
    inner.add("internal", [] as [&str; 0]);
    if body == "off" {
        inner.add("proxy_pass_request_body", ["off"]);
        inner.add("proxy_set_header", ["Content-Length", ""]);
    }
    inner.add("proxy_set_header", [w("Host"), template(host)]);
    // Through a variable, so that a name that cannot be resolved does not fail the load.
    inner.add("set", [w("$target"), template(target)]);
    inner.add("proxy_pass", [w("$target")]);
    parts.internal.block("location", [w("="), plain(path)], inner);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_become_one_expression() {
        let regex = cors_regex(&["https://*.a.example", "http://b.example:8080"], "[A-Za-z0-9-]+");
        assert_eq!(
            regex,
            "~*^(https\\://[A-Za-z0-9-]+\\.a\\.example|http\\://b\\.example\\:8080)$"
        );
    }
}
