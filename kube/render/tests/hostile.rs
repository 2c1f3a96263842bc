//! Hostile objects: whatever stands in a text of an object, it never becomes a directive.
//!
//! Each text of a set of objects is replaced by each hostile text, one after the other, and then by
//! chance in several places at once. The configuration is read by the server's own parser.

#![allow(clippy::unwrap_used, clippy::panic)] // that is how a test fails

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use weir_kube_render::annotations::ANNOTATIONS;
use weir_kube_render::keys::KEYS;
use weir_kube_render::{Key, Objects, Options, render};

const HOSTILE: &[&str] = &[
    "; evil_marker x;",
    "a; evil_marker x; #",
    "} evil_marker { x y;",
    "a } } evil_marker x;",
    "\"; evil_marker x; \"",
    "a\\\"; evil_marker x; \"",
    "\\\\\"; evil_marker x; #",
    "'; evil_marker x; '",
    "a\nevil_marker x;\n",
    "a\r\nevil_marker x;\r\n",
    "\\\nevil_marker x;",
    "x { evil_marker y; }",
    "/a { } evil_marker x;",
    "/$1; evil_marker x;",
    "$evil{ evil_marker x;",
    "${{; evil_marker x; }",
    "${env:HOME}",
    "${env:HOME:-; evil_marker x;}",
    "include",
    "include evil_marker",
    "default",
    "~",
    "~(",
    "~*^(a|b)$; evil_marker x;",
    "\\",
    "\\\\",
    "\"",
    "#",
    "# evil_marker",
    "a\u{0}; evil_marker x;",
    "\u{feff}; evil_marker x;",
    "\t;\tevil_marker\tx;",
    "../../../etc/passwd",
    "-----BEGIN CERTIFICATE-----\n; evil_marker x;\n-----END CERTIFICATE-----",
    "127.0.0.1:80; evil_marker x;",
    "a.example; evil_marker x",
    "200; evil_marker x",
    "CN=x\"; evil_marker x; \"",
    "CN=a); evil_marker x; (",
    "",
];

/// A set of objects in which most of what the renderer reads occurs.
fn objects() -> Vec<Value> {
    let mut annotations: BTreeMap<String, Value> = BTreeMap::new();
    for a in ANNOTATIONS {
        if let Some(value) = good(a.name) {
            annotations.insert(format!("nginx.ingress.kubernetes.io/{}", a.name), json!(value));
        }
    }
    let backend = json!({ "service": { "name": "web", "port": { "number": 80 } } });
    let paths = json!([
        { "path": "/a/(.*)", "pathType": "ImplementationSpecific", "backend": backend },
        { "path": "/exact", "pathType": "Exact", "backend": { "service": { "name": "web",
            "port": { "name": "http" } } } },
    ]);
    let ingress = |name: &str, annotations: Value, paths: &Value| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": { "name": name, "annotations": annotations },
            "spec": {
                "ingressClassName": "nginx",
                "tls": [{ "hosts": ["a.example"], "secretName": "tls" }],
                "rules": [{ "host": "a.example", "http": { "paths": paths } }],
            },
        })
    };
    let canary = json!({
        "nginx.ingress.kubernetes.io/canary": "true",
        "nginx.ingress.kubernetes.io/canary-by-header": "X-C",
        "nginx.ingress.kubernetes.io/canary-by-header-value": "yes",
        "nginx.ingress.kubernetes.io/canary-by-cookie": "c",
        "nginx.ingress.kubernetes.io/canary-weight": "10",
    });
    let pattern = json!({
        "nginx.ingress.kubernetes.io/canary": "true",
        "nginx.ingress.kubernetes.io/canary-by-header": "X-C",
        "nginx.ingress.kubernetes.io/canary-by-header-pattern": "a+",
    });
    let plain = json!([{ "path": "/p", "pathType": "Prefix", "backend": backend }]);
    let mut out = vec![
        ingress("main", json!(annotations), &paths),
        ingress("canary", canary, &paths),
        ingress("plain", json!({}), &plain),
        ingress("pattern", pattern, &plain),
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
            "spec": { "clusterIP": "10.0.0.1", "ports": [{ "name": "http", "port": 80,
                "appProtocol": "http" }] } }),
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "ext" },
            "spec": { "type": "ExternalName", "externalName": "ext.example",
                "ports": [{ "port": 80 }] } }),
        json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": "web-1", "labels": { "kubernetes.io/service-name": "web" } },
            "endpoints": [{ "addresses": ["10.1.0.1"] }],
            "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }] }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "tls" }, "stringData": {
            "tls.crt": "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n",
            "tls.key": "-----BEGIN PRIVATE KEY-----\nMAMCAQE=\n-----END PRIVATE KEY-----\n",
            "ca.crt": "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n",
            "auth": "a:b\n" } }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "fields" },
            "data": { "X-Field": "value $host" } }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "tcp" },
            "data": { "9000": "default/web:80:PROXY:PROXY" } }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "ca" },
            "data": { "ca.crt":
                "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n" } }),
        config(),
    ];
    out.extend(gateways());
    out
}

/// The ConfigMap with all keys that are no snippets.
fn config() -> Value {
    let mut data: BTreeMap<&str, String> = BTreeMap::new();
    for key in KEYS.iter().filter(|k| !k.name.ends_with("-snippet")) {
        if !key.default.is_empty() {
            data.insert(key.name, key.default.to_owned());
        }
    }
    for (name, value) in [
        ("use-forwarded-headers", "true"),
        ("use-proxy-protocol", "true"),
        ("compute-full-forwarded-for", "true"),
        ("use-gzip", "true"),
        ("enable-brotli", "true"),
        ("enable-opentelemetry", "true"),
        ("otlp-collector-host", "otel.example"),
        ("otel-sampler", "TraceIdRatioBased"),
        ("add-headers", "default/fields"),
        ("proxy-set-headers", "default/fields"),
        ("global-allowed-response-headers", "X-Field"),
        ("hide-headers", "X-A,X-B"),
        ("block-user-agents", "bad,~^curl"),
        ("block-referers", "bad"),
        ("block-cidrs", "10.9.0.0/16"),
        ("skip-access-log-urls", "/m,~^/h"),
        ("gzip-disable", "msie6"),
        ("access-log-params", "buffer=4k"),
        ("http-access-log-path", "/tmp/a.log"),
        ("custom-http-errors", "404"),
        ("worker-cpu-affinity", "auto"),
    ] {
        data.insert(name, value.to_owned());
    }
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "config" },
        "data": data })
}

fn gateways() -> Vec<Value> {
    let group = "gateway.networking.k8s.io/v1";
    let field = |name: &str| json!([{ "name": name, "value": "v" }]);
    let filters = json!([
        { "type": "RequestHeaderModifier", "requestHeaderModifier": { "set": field("X-S"),
            "add": field("X-A"), "remove": ["X-R"] } },
        { "type": "ResponseHeaderModifier", "responseHeaderModifier": { "set": field("X-S"),
            "add": field("X-A"), "remove": ["X-R"] } },
        { "type": "URLRewrite", "urlRewrite": { "hostname": "b.example",
            "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": "/new" } } },
        { "type": "CORS", "cors": { "allowOrigins": ["https://o.example"], "allowMethods": ["GET"],
            "allowHeaders": ["X-H"], "exposeHeaders": ["X-E"] } },
        { "type": "RequestMirror", "requestMirror": { "backendRef": { "name": "web",
            "port": 80 } } },
    ]);
    let matches = json!([
        { "path": { "type": "PathPrefix", "value": "/p" }, "method": "GET",
          "headers": [{ "name": "X-M", "value": "v" }], "queryParams": [{ "name": "q",
              "value": "v" }] },
        { "path": { "type": "RegularExpression", "value": "/r.*" },
          "headers": [{ "type": "RegularExpression", "name": "X-M", "value": "v+" }] },
    ]);
    let redirect = json!([{ "type": "RequestRedirect", "requestRedirect": { "scheme": "https",
        "hostname": "c.example", "path": { "type": "ReplaceFullPath",
            "replaceFullPath": "/full" } } }]);
    let refs = json!([{ "name": "web", "port": 80 }, { "name": "ext", "port": 80, "weight": 2 }]);
    vec![
        json!({ "apiVersion": group, "kind": "GatewayClass", "metadata": { "name": "weir" },
            "spec": { "controllerName": "weir.dev/gateway-controller" } }),
        json!({ "apiVersion": group, "kind": "Gateway", "metadata": { "name": "g" }, "spec": {
            "gatewayClassName": "weir", "listeners": [
                { "name": "http", "port": 8080, "protocol": "HTTP", "hostname": "*.example" },
                { "name": "https", "port": 8443, "protocol": "HTTPS",
                    "tls": { "certificateRefs": [{ "name": "tls" }] } },
                { "name": "tls", "port": 9443, "protocol": "TLS",
                    "tls": { "mode": "Passthrough" } } ] } }),
        json!({ "apiVersion": group, "kind": "HTTPRoute", "metadata": { "name": "h" }, "spec": {
            "parentRefs": [{ "name": "g" }], "hostnames": ["h.example"], "rules": [
                { "matches": matches, "filters": filters, "backendRefs": refs,
                  "timeouts": { "request": "10s", "backendRequest": "5s" } },
                { "matches": [{ "path": { "value": "/red" } }], "filters": redirect } ] } }),
        json!({ "apiVersion": group, "kind": "GRPCRoute", "metadata": { "name": "r" }, "spec": {
            "parentRefs": [{ "name": "g" }], "rules": [{
                "matches": [{ "method": { "service": "a.B", "method": "C" } }],
                    "backendRefs": refs }] } }),
        json!({ "apiVersion": group, "kind": "TLSRoute", "metadata": { "name": "t" }, "spec": {
            "parentRefs": [{ "name": "g" }], "hostnames": ["t.example"],
                "rules": [{ "backendRefs": refs }] } }),
        json!({ "apiVersion": group, "kind": "BackendTLSPolicy", "metadata": { "name": "p" },
            "spec": {
            "targetRefs": [{ "group": "", "kind": "Service", "name": "ext" }],
            "validation": { "hostname": "ext.example", "caCertificateRefs": [{ "kind": "ConfigMap",
                "name": "ca" }] } } }),
    ]
}

/// A value that an annotation accepts and that has effect beside the others.
fn good(name: &str) -> Option<&'static str> {
    Some(match name {
        "rewrite-target" => "/$1",
        "x-forwarded-prefix" => "/pre",
        "app-root" => "/root",
        "server-alias" => "alias.example,~^re\\.example$",
        "affinity" => "cookie",
        "session-cookie-name" => "S",
        "session-cookie-path" => "/p",
        "session-cookie-domain" => "a.example",
        "session-cookie-samesite" => "Lax",
        "auth-url" => "http://auth.example/$request_uri",
        "auth-signin" => "https://login.example/?x=y",
        "auth-response-headers" => "X-User",
        "auth-cache-key" => "$remote_user",
        "auth-cache-duration" => "200 1m",
        "auth-request-redirect" => "https://back.example",
        "auth-proxy-set-headers" | "custom-headers" | "fastcgi-params-configmap" => "fields",
        "auth-keepalive" => "0",
        "auth-tls-secret" | "proxy-ssl-secret" => "tls",
        "auth-tls-match-cn" => "CN=(a|b)",
        "auth-tls-error-page" => "https://errors.example/x",
        "auth-secret" => "tls",
        "auth-type" => "basic",
        "auth-realm" => "a realm",
        "cors-allow-origin" => "https://*.o.example",
        "enable-cors" => "true",
        "cors-allow-methods" => "GET, POST",
        "cors-allow-headers" => "X-H",
        "cors-expose-headers" => "X-E, *",
        "custom-http-errors" => "404,500",
        "default-backend" => "web",
        "upstream-vhost" => "vhost.example",
        "proxy-redirect-from" => "http://a/",
        "proxy-redirect-to" => "http://b/",
        "proxy-cookie-path" => "/a /b",
        "proxy-cookie-domain" => "a.example b.example",
        "proxy-next-upstream" => "error timeout",
        "proxy-ssl-name" => "ssl.example",
        "mirror-target" => "http://mirror.example$request_uri",
        "mirror-host" => "mirror.example",
        "whitelist-source-range" | "denylist-source-range" | "limit-whitelist" => "10.0.0.0/8",
        "limit-rps" | "limit-rpm" | "limit-connections" => "5",
        "ssl-ciphers" => "HIGH",
        "satisfy" => "any",
        _ => return None,
    })
}

/// The pointers of all texts in a value, also of the names of members that objects' authors choose.
fn texts(value: &Value, at: &str, out: &mut Vec<String>) {
    match value {
        Value::String(_) => out.push(at.to_owned()),
        Value::Array(values) => {
            for (i, v) in values.iter().enumerate() {
                texts(v, &format!("{at}/{i}"), out);
            }
        }
        Value::Object(members) => {
            for (name, v) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                texts(v, &format!("{at}/{name}"), out);
            }
        }
        _ => {}
    }
}

fn options() -> Options {
    Options {
        config_map: Some(Key::new("default", "config")),
        tcp_services: Some(Key::new("default", "tcp")),
        default_certificate: Some(Key::new("default", "tls")),
        ssl_passthrough: true,
        resolvers: vec!["10.0.0.10".to_owned()],
        addresses: vec!["192.0.2.1".to_owned()],
        ..Options::default()
    }
}

/// Renders, reads the result with the server's parser, and looks for directives that nobody meant.
fn check(values: &[Value], what: &str) {
    let mut objects = Objects::default();
    for value in values {
        objects.put(value.clone());
    }
    let rendered = render(&objects, &options(), &BTreeMap::new());
    let parse = weir_conf::parse::Options { keep_includes: true, ..Default::default() };
    let text = bytes::Bytes::from(rendered.conf.clone());
    let tree = match weir_conf::parse::parse_bytes(Path::new("nginx.conf"), text, &parse) {
        Ok(tree) => tree,
        Err(error) => panic!("{what}: {error:?}\n{}", rendered.conf),
    };
    let mut includes = 0;
    walk(&tree.nodes, &mut |node: &weir_conf::Node| {
        assert!(node.name != *"evil_marker", "{what}: a directive was injected\n{}", rendered.conf);
        if node.name == *"include" {
            includes += 1;
        }
        for word in std::iter::once(&node.name).chain(&node.args) {
            let text = word.lossy();
            assert!(!text.contains("${env:"), "{what}: {text}");
        }
    });
    assert_eq!(includes, 1, "{what}\n{}", rendered.conf);
    for name in rendered.files.keys() {
        assert!(name.starts_with("files/") && !name[6..].contains('/'), "{what}: {name}");
    }
    let names: Vec<_> = tree.nodes.iter().map(|n| n.name.lossy().into_owned()).collect();
    assert_eq!(names.iter().filter(|n| *n == "http").count(), 1, "{what}");
}

fn walk(nodes: &[weir_conf::Node], see: &mut impl FnMut(&weir_conf::Node)) {
    for node in nodes {
        see(node);
        walk(node.children(), see);
    }
}

#[test]
fn the_objects_themselves_are_served() {
    let mut objects = Objects::default();
    self::objects().into_iter().for_each(|o| drop(objects.put(o)));
    let rendered = render(&objects, &options(), &BTreeMap::new());
    for part in ["a.example", "h.example", "t.example", "9000", "auth_request", "sticky cookie S"] {
        assert!(rendered.conf.contains(part), "no {part} in\n{}", rendered.conf);
    }
    let is_refused = |e: &&weir_kube_render::Event| {
        e.reason == "Rejected" && e.object.kind != weir_kube_render::Kind::ConfigMap
    };
    let refused: Vec<_> = rendered.events.iter().filter(is_refused).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn no_text_becomes_a_directive() {
    let base = objects();
    let (mut tried, mut count) = (0, 0);
    for (index, object) in base.iter().enumerate() {
        let mut pointers = Vec::new();
        texts(object, "", &mut pointers);
        for pointer in pointers {
            // Each text in an eighth of the places of each object, another eighth for each text.
            for (_, hostile) in HOSTILE.iter().enumerate().filter(|(i, _)| (i + tried) % 8 == 0) {
                let mut values = base.clone();
                *values[index].pointer_mut(&pointer).unwrap() = json!(hostile);
                check(&values, &format!("{}{pointer} = {hostile:?}", object["kind"]));
                count += 1;
            }
            tried += 1;
        }
    }
    assert!(count > 1000, "{count}");
}

/// Names of members that authors choose: fields, keys, ports.
#[test]
fn no_name_becomes_a_directive() {
    let base = objects();
    for (index, object) in base.iter().enumerate() {
        for member in ["data", "stringData"] {
            for hostile in HOSTILE {
                let mut values = base.clone();
                let Some(map) = values[index][member].as_object_mut() else { continue };
                map.insert((*hostile).to_owned(), json!("default/web:80"));
                check(&values, &format!("{} {member} {hostile:?}", object["kind"]));
            }
        }
    }
}

/// Several hostile texts at once, and pieces of them put together by chance.
#[test]
fn no_mixture_becomes_a_directive() {
    let base = objects();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below.max(1) as u64) as usize
    };
    let pieces = [
        ";",
        "{",
        "}",
        "\"",
        "'",
        "\\",
        "\n",
        "$",
        "${",
        "#",
        " ",
        "evil_marker",
        "~",
        "a",
        "/",
        "(",
        ")",
        "%",
        "\t",
    ];
    for round in 0..400 {
        let mut values = base.clone();
        for _ in 0..1 + random(4) {
            let index = random(values.len());
            let mut pointers = Vec::new();
            texts(&values[index], "", &mut pointers);
            let pointer = pointers[random(pointers.len())].clone();
            let text: String = match random(3) {
                0 => HOSTILE[random(HOSTILE.len())].to_owned(),
                _ => (0..1 + random(8)).map(|_| pieces[random(pieces.len())]).collect(),
            };
            let place = values[index].pointer_mut(&pointer).unwrap();
            let old = place.as_str().unwrap_or_default().to_owned();
            *place = json!(if random(2) == 0 { text } else { format!("{old}{text}") });
        }
        check(&values, &format!("round {round}"));
    }
}

/// A snippet that passes its check stays within its block, however it is put together.
#[test]
fn no_snippet_leaves_its_block() {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let pieces = [
        ";", "{", "}", "\"", "'", "\\", "\n", "$", "${", "$ {", "#", " ", "a", "b c;", "if (x) {",
        ")", "\t", "\r", "a \"x\";", "};", "{{", "}}", "\\\\", "\\\"",
    ];
    let (mut good, mut contained) = (0, 0);
    for _ in 0..60_000 {
        let text: String = (0..1 + random(12)).map(|_| pieces[random(pieces.len())]).collect();
        if weir_kube_render::snippet::check(&text).is_err() {
            continue;
        }
        good += 1;
        let whole = format!("outer {{\n{text}\n}}\nafter;\n");
        let parse = weir_conf::parse::Options::default();
        let tree = weir_conf::parse::parse_bytes(Path::new("x"), bytes::Bytes::from(whole), &parse);
        // What does not load is refused by the test of the configuration.
        let Ok(tree) = tree else { continue };
        contained += 1;
        let names: Vec<_> = tree.nodes.iter().map(|n| n.name.lossy().into_owned()).collect();
        assert_eq!(names, ["outer", "after"], "{text:?}");
    }
    assert!(good > 500 && contained > 500, "{good} {contained}");
}
