//! Which requests routes take, what they do with them, and statuses.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::common::{self, Folder, ask};
use crate::world::{World, gateway, route, service, to};

/// Routes by paths, methods, fields and parameters.
fn routes_that_match() -> Vec<Value> {
    vec![
        route(
            "paths",
            &["paths.example"],
            &json!([
                { "matches": [{ "path": { "type": "Exact", "value": "/one" } }],
                    "backendRefs": to("v1") },
                { "matches": [{ "path": { "type": "PathPrefix", "value": "/one/two" } }],
                    "backendRefs": to("v2") },
                { "matches": [{ "path": { "type": "PathPrefix", "value": "/three/" } }],
                    "backendRefs": to("v3") },
                { "matches": [{ "path": { "type": "RegularExpression",
                    "value": "^/re/[0-9]+$" } }], "backendRefs": to("v1") },
            ]),
        ),
        route(
            "methods",
            &["methods.example"],
            &json!([
                { "matches": [{ "method": "POST" }], "backendRefs": to("v1") },
                { "matches": [{ "method": "GET" }], "backendRefs": to("v2") },
                { "matches": [{ "method": "PATCH", "path": { "value": "/path5" } },
                    { "method": "PUT", "headers": [{ "name": "version", "value": "four" }] }],
                        "backendRefs": to("v3") },
            ]),
        ),
        route(
            "fields",
            &["fields.example"],
            &json!([
                { "matches": [{ "headers": [{ "name": "version", "value": "one" }] }],
                    "backendRefs": to("v1") },
                { "matches": [{ "headers": [{ "name": "version", "value": "two" }] }],
                    "backendRefs": to("v2") },
                { "matches": [{ "headers": [{ "name": "version", "value": "two" },
                    { "name": "color", "value": "orange" }] }], "backendRefs": to("v1") },
                { "matches": [{ "headers": [{ "name": "color", "value": "blue" }] },
                    { "headers": [{ "name": "color", "value": "green" }] }],
                        "backendRefs": to("v1") },
                { "matches": [{ "headers": [{ "type": "RegularExpression", "name": "shape",
                    "value": "r.+d" }] }], "backendRefs": to("v3") },
            ]),
        ),
        route(
            "params",
            &["params.example"],
            &json!([
                { "matches": [{ "queryParams": [{ "name": "animal", "value": "whale" }] }],
                    "backendRefs": to("v1") },
                { "matches": [{ "queryParams": [{ "name": "animal", "value": "dolphin" }] }],
                    "backendRefs": to("v2") },
                { "matches": [{ "queryParams": [{ "name": "animal", "value": "dolphin" },
                    { "name": "color", "value": "blue" }] }], "backendRefs": to("v3") },
            ]),
        ),
        route(
            "order",
            &["order.example"],
            &json!([
                { "matches": [{ "path": { "value": "/a" }, "headers": [{ "name": "x",
                    "value": "1" }] }], "backendRefs": to("v1") },
                { "matches": [{ "path": { "value": "/" } }], "backendRefs": to("v2") },
                { "matches": [{ "path": { "type": "Exact", "value": "/a/b" },
                    "method": "PUT" }], "backendRefs": to("v3") },
            ]),
        ),
    ]
}

#[test]
fn paths_methods_fields_and_parameters() {
    let world = World::start("gw-matching", |_, _| routes_that_match());
    let none: &[(&str, &str)] = &[];
    for (path, to) in [
        ("/one", "v1"),
        ("/one/", "404"),
        ("/one/two", "v2"),
        ("/one/two/x", "v2"),
        ("/one/twox", "404"),
        ("/three", "v3"),
        ("/three/x", "v3"),
        ("/re/12", "v1"),
        ("/re/x", "404"),
        ("/", "404"),
        ("/One", "404"),
    ] {
        world.goes("GET", "paths.example", path, none, to);
    }
    for (method, path, fields, to) in [
        ("POST", "/", none, "v1"),
        ("GET", "/", none, "v2"),
        ("HEAD", "/x", none, "404"),
        ("PATCH", "/path5", none, "v3"),
        ("PATCH", "/", none, "404"),
        ("GET", "/path5", none, "v2"),
        ("PUT", "/", &[("version", "four")][..], "v3"),
        ("PUT", "/", &[("version", "Four")], "404"),
    ] {
        if method != "HEAD" {
            world.goes(method, "methods.example", path, fields, to);
        }
    }
    for (fields, to) in [
        (&[("version", "one")][..], "v1"),
        (&[("Version", "two")], "v2"),
        (&[("version", "two"), ("color", "orange")], "v1"),
        (&[("color", "blue")], "v1"),
        (&[("color", "green")], "v1"),
        (&[("color", "red")], "404"),
        (&[("version", "ONE")], "404"),
        (&[("shape", "round")], "v3"),
        (&[("shape", "square")], "404"),
    ] {
        world.goes("GET", "fields.example", "/", fields, to);
    }
    for (path, to) in [
        ("/?animal=whale", "v1"),
        ("/?animal=dolphin", "v2"),
        ("/?animal=dolphin&color=blue", "v3"),
        ("/?color=blue&animal=dolphin", "v3"),
        ("/?animal=shark", "404"),
        ("/?animal=whales", "404"),
        ("/?xanimal=whale", "404"),
        ("/", "404"),
        ("/?animal=whale&otherparam=x", "v1"),
    ] {
        world.goes("GET", "params.example", path, none, to);
    }
    for (method, path, fields, to) in [
        ("GET", "/a", &[("x", "1")][..], "v1"),
        ("GET", "/a/c", none, "v2"),
        ("GET", "/a/b", &[("x", "1")], "v1"),
        ("PUT", "/a/b", &[("x", "1")], "v3"),
        ("GET", "/a/b", none, "v2"),
    ] {
        world.goes(method, "order.example", path, fields, to);
    }
    world.goes("GET", "unknown.example", "/", none, "404");
}

#[test]
fn names_of_listeners_and_routes() {
    let world = World::start("gw-names", |_, _| {
        vec![
            route(
                "exact",
                &["very.specific.com"],
                &json!([{ "matches": [{ "path": { "value": "/s1" } }], "backendRefs": to("v1") }]),
            ),
            route("wild", &["*.specific.com"], &json!([{ "backendRefs": to("v2") }])),
            route(
                "all",
                &[],
                &json!([{ "matches": [{ "path": { "value": "/all" } }], "backendRefs": to("v3") }]),
            ),
        ]
    });
    for (host, path, to) in [
        ("very.specific.com", "/s1", "v1"),
        ("very.specific.com", "/other", "v2"),
        ("a.specific.com", "/", "v2"),
        ("a.b.specific.com", "/", "v2"),
        ("specific.com", "/all", "v3"),
        ("any.example", "/all/x", "v3"),
        ("any.example", "/", "404"),
        ("VERY.specific.com", "/s1", "v1"),
        ("very.specific.com:1234", "/s1", "v1"),
    ] {
        world.goes("GET", host, path, &[], to);
    }
    for name in ["exact", "wild", "all"] {
        world.condition(name, "Accepted", ("True", "Accepted"));
        world.condition(name, "ResolvedRefs", ("True", "ResolvedRefs"));
    }
    assert_eq!(world.status("Gateway", "gateway")["listeners"][0]["attachedRoutes"], 3);
}

/// Routes that change requests and responses.
fn routes_with_filters() -> Vec<Value> {
    let redirect = |host: &str, filter: Value| {
        route(
            &host.replace('.', "-"),
            &[host],
            &json!([{ "matches": [{ "path": { "value": "/old" } }],
            "filters": [{ "type": "RequestRedirect", "requestRedirect": filter }] }]),
        )
    };
    vec![
        route(
            "fields",
            &["fields.example"],
            &json!([{ "backendRefs": to("v1"), "filters": [
                { "type": "RequestHeaderModifier", "requestHeaderModifier": {
                    "set": [{ "name": "X-Set", "value": "new $value" }],
                    "add": [{ "name": "X-Add", "value": "added" }], "remove": ["X-Remove"] } },
                { "type": "ResponseHeaderModifier", "responseHeaderModifier": {
                    "set": [{ "name": "X-User", "value": "set" }],
                    "add": [{ "name": "X-More", "value": "more" }], "remove": ["X-Gone"] } } ] }]),
        ),
        route(
            "rewrite",
            &["rewrite.example"],
            &json!([
                { "matches": [{ "path": { "value": "/prefix/one" } }], "backendRefs": to("v1"),
                    "filters": [
                    { "type": "URLRewrite",
                        "urlRewrite": { "path": { "type": "ReplacePrefixMatch",
                            "replacePrefixMatch": "/one" } } }] },
                { "matches": [{ "path": { "value": "/strip" } }], "backendRefs": to("v1"),
                    "filters": [
                    { "type": "URLRewrite",
                        "urlRewrite": { "path": { "type": "ReplacePrefixMatch",
                            "replacePrefixMatch": "/" } } }] },
                { "matches": [{ "path": { "value": "/full" } }], "backendRefs": to("v1"),
                    "filters": [
                    { "type": "URLRewrite", "urlRewrite": { "hostname": "one.example",
                        "path": { "type": "ReplaceFullPath", "replaceFullPath": "/all" } } }] },
            ]),
        ),
        redirect("host.example", json!({ "hostname": "example.org", "statusCode": 301 })),
        redirect("scheme.example", json!({ "scheme": "https" })),
        redirect("port.example", json!({ "port": 8083 })),
        redirect(
            "path.example",
            json!({ "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": "/new" },
                    "statusCode": 307 }),
        ),
        redirect(
            "full.example",
            json!({ "hostname": "example.org", "port": 443, "scheme": "https",
                    "path": { "type": "ReplaceFullPath", "replaceFullPath": "/all" },
                        "statusCode": 308 }),
        ),
        redirect("see.example", json!({ "hostname": "example.org", "statusCode": 303 })),
        route(
            "cors",
            &["cors.example"],
            &json!([{ "backendRefs": to("v1"), "filters": [
                { "type": "CORS", "cors": { "allowOrigins": ["https://www.foo.example",
                    "https://*.bar.example"],
                    "allowMethods": ["GET", "OPTIONS"], "allowHeaders": ["x-header-1",
                        "x-header-2"],
                    "exposeHeaders": ["x-header-3"], "allowCredentials": true,
                        "maxAge": 3600 } }] }]),
        ),
        route(
            "mirror",
            &["mirror.example"],
            &json!([{ "backendRefs": to("v1"), "filters": [
                { "type": "RequestMirror", "requestMirror": { "backendRef": { "name": "v2",
                    "port": 8080 } } },
                { "type": "RequestMirror", "requestMirror": { "backendRef": { "name": "v3",
                    "port": 8080 }, "percent": 0 } }] }]),
        ),
        route(
            "unknown",
            &["unknown.example"],
            &json!([{ "backendRefs": to("v1"), "filters": [
                { "type": "ExtensionRef" }] }]),
        ),
    ]
}

#[test]
fn filters_change_requests_and_responses() {
    let world = World::start("gw-filters", |_, _| routes_with_filters());
    let reply = world.ask(
        "GET",
        "fields.example",
        "/",
        &[("X-Set", "old"), ("X-Add", "old"), ("X-Remove", "x"), ("X-Reply-Header", "X-Gone=yes")],
    );
    assert_eq!(reply.seen("x-set").as_deref(), Some("new $value"));
    assert_eq!(reply.seen("x-add").as_deref(), Some("old,added"));
    assert_eq!(reply.seen("x-remove"), None);
    assert_eq!(reply.field("x-user").as_deref(), Some("set"));
    assert_eq!(reply.field("x-more").as_deref(), Some("more"));
    assert_eq!(reply.field("x-gone"), None);
    for (path, target) in [
        ("/prefix/one/two?a=b", "/one/two?a=b"),
        ("/prefix/one", "/one"),
        ("/strip/three", "/three"),
        ("/strip", "/"),
        ("/full/x", "/all"),
    ] {
        let reply = world.ask("GET", "rewrite.example", path, &[]);
        let line = reply.body.lines().nth(2).unwrap_or_default().to_owned();
        assert_eq!(line.split(' ').nth(1), Some(target), "{path}");
        if path == "/full/x" {
            assert_eq!(reply.seen("host").as_deref(), Some("one.example"));
        }
    }
    let port = world.port;
    for (host, path, status, location) in [
        ("host.example", "/old", 301, format!("http://example.org:{port}/old")),
        ("scheme.example", "/old/x?y", 302, "https://scheme.example/old/x?y".to_owned()),
        ("port.example", "/old", 302, "http://port.example:8083/old".to_owned()),
        ("path.example", "/old/lemon", 307, format!("http://path.example:{port}/new/lemon")),
        ("full.example", "/old/lemon?a=b", 308, "https://example.org/all?a=b".to_owned()),
        ("see.example", "/old", 303, format!("http://example.org:{port}/old")),
    ] {
        let reply = world.ask("GET", host, path, &[]);
        assert_eq!((reply.status, reply.field("location")), (status, Some(location)), "{host}");
    }
    let reply = world.ask(
        "OPTIONS",
        "cors.example",
        "/",
        &[("Origin", "https://x.bar.example"), ("Access-Control-Request-Method", "GET")],
    );
    assert_eq!(reply.status, 204);
    assert_eq!(
        reply.field("access-control-allow-origin").as_deref(),
        Some("https://x.bar.example")
    );
    assert_eq!(reply.field("access-control-allow-methods").as_deref(), Some("GET, OPTIONS"));
    assert_eq!(reply.field("access-control-max-age").as_deref(), Some("3600"));
    let reply = world.ask("GET", "cors.example", "/", &[("Origin", "https://evil.example")]);
    assert_eq!((reply.status, reply.field("access-control-allow-origin")), (200, None));
    world.goes("GET", "mirror.example", "/copied", &[], "v1");
    // The copy is sent by its own task.
    while !world.echoes[1].seen.lock().unwrap().iter().any(|r| r.starts_with("GET /copied ")) {
        std::thread::yield_now();
    }
    assert!(!world.echoes[2].seen.lock().unwrap().iter().any(|r| r.contains("/copied")));
    world.goes("GET", "unknown.example", "/", &[], "500");
}

#[test]
fn backends_weights_and_references() {
    let world = World::start("gw-backends", |_, ports| {
        let mut all = vec![
            route(
                "weights",
                &["weights.example"],
                &json!([{ "backendRefs": [
                { "name": "v1", "port": 8080, "weight": 70 }, { "name": "v2", "port": 8080,
                    "weight": 30 },
                { "name": "v3", "port": 8080, "weight": 0 }] }]),
            ),
            route("none", &["none.example"], &json!([{}])),
            route(
                "zero",
                &["zero.example"],
                &json!([{ "backendRefs": [{ "name": "v1", "port": 8080, "weight": 0 }] }]),
            ),
            route("missing", &["missing.example"], &json!([{ "backendRefs": to("missing") }])),
            route(
                "kind",
                &["kind.example"],
                &json!([{ "backendRefs": [{ "kind": "NonExistent", "group": "x", "name": "v1",
                    "port": 8080 }] }]),
            ),
            route(
                "half",
                &["half.example"],
                &json!([{ "backendRefs": [
                { "name": "v1", "port": 8080 }, { "name": "missing", "port": 8080 }] }]),
            ),
            route(
                "foreign",
                &["foreign.example"],
                &json!([{ "backendRefs": [{ "name": "far", "namespace": "other",
                    "port": 8080 }] }]),
            ),
            route(
                "granted",
                &["granted.example"],
                &json!([{ "backendRefs": [{ "name": "near", "namespace": "friendly",
                    "port": 8080 }] }]),
            ),
            json!({ "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
                "metadata": { "name": "grant", "namespace": "friendly" }, "spec": {
                    "from": [{ "group": "gateway.networking.k8s.io", "kind": "HTTPRoute",
                        "namespace": "default" }],
                    "to": [{ "group": "", "kind": "Service", "name": "near" }] } }),
            route(
                "own",
                &["own.example"],
                &json!([{ "backendRefs": [
                { "name": "v1", "port": 8080, "filters": [{ "type": "RequestHeaderModifier",
                    "requestHeaderModifier": { "set": [{ "name": "X-Own", "value": "one" }] } }] },
                { "name": "v2", "port": 8080, "filters": [{ "type": "URLRewrite",
                    "urlRewrite": { "path": { "type": "ReplaceFullPath",
                        "replaceFullPath": "/two" } } }] }] }]),
            ),
            route(
                "timeout",
                &["timeout.example"],
                &json!([{ "backendRefs": to("v1"), "timeouts": { "request": "500ms",
                    "backendRequest": "250ms" },
                "retry": { "codes": [500, 503], "attempts": 3 } }]),
            ),
        ];
        all.extend(service("other", "far", ports[1], ""));
        all.extend(service("friendly", "near", ports[2], ""));
        all
    });
    let mut counts = BTreeMap::new();
    for _ in 0..500 {
        let reply = world.ask("GET", "weights.example", "/", &[]);
        *counts.entry(reply.seen("backend").unwrap()).or_insert(0) += 1;
    }
    let (one, two) = (counts["v1"], counts["v2"]);
    assert!(one + two == 500 && (280..=420).contains(&one), "{counts:?}");
    let statuses: std::collections::BTreeSet<u16> =
        (0..60).map(|_| world.ask("GET", "half.example", "/", &[]).status).collect();
    assert_eq!(statuses, [200, 500].into());
    let mut backends = std::collections::BTreeSet::new();
    for _ in 0..60 {
        let reply = world.ask("GET", "own.example", "/x", &[]);
        let line = reply.body.lines().nth(2).unwrap_or_default().to_owned();
        let backend = reply.seen("backend").unwrap();
        match backend.as_str() {
            "v1" => assert_eq!(
                (reply.seen("x-own").as_deref(), &*line),
                (Some("one"), "GET /x HTTP/1.1")
            ),
            _ => assert_eq!((reply.seen("x-own").as_deref(), &*line), (None, "GET /two HTTP/1.1")),
        }
        backends.insert(backend);
    }
    assert_eq!(backends.len(), 2);
    for (host, to) in [
        ("none.example", "500"),
        ("zero.example", "500"),
        ("missing.example", "500"),
        ("kind.example", "500"),
        ("foreign.example", "500"),
        ("granted.example", "v3"),
        ("timeout.example", "v1"),
    ] {
        world.goes("GET", host, "/", &[], to);
    }
    world.condition("missing", "ResolvedRefs", ("False", "BackendNotFound"));
    world.condition("missing", "Accepted", ("True", "Accepted"));
    world.condition("kind", "ResolvedRefs", ("False", "InvalidKind"));
    world.condition("foreign", "ResolvedRefs", ("False", "RefNotPermitted"));
    world.condition("granted", "ResolvedRefs", ("True", "ResolvedRefs"));
    for part in [
        "proxy_read_timeout 250ms;",
        "proxy_next_upstream_timeout 500ms;",
        "http_503",
        "proxy_next_upstream_tries 4;",
    ] {
        assert!(world.rendered.conf.contains(part), "{part}");
    }
}

#[test]
fn parents_that_do_not_fit() {
    let world = World::start("gw-parents", |https, _| {
        let with = |name: &str, parent: Value| {
            let mut r = route(name, &["p.example"], &json!([{ "backendRefs": to("v1") }]));
            r["spec"]["parentRefs"] = json!([parent]);
            r
        };
        let mut other =
            with("other-namespace", json!({ "name": "gateway", "namespace": "default" }));
        other["metadata"]["namespace"] = json!("elsewhere");
        let mut narrow = route("narrow", &["no.match.com"], &json!([{ "backendRefs": to("v1") }]));
        narrow["spec"]["parentRefs"] = json!([{ "name": "narrow" }]);
        let mut selected = with("selected", json!({ "name": "selector", "namespace": "default" }));
        selected["metadata"]["namespace"] = json!("labelled");
        vec![
            with("port", json!({ "name": "gateway", "port": 81 })),
            with("section", json!({ "name": "gateway", "sectionName": "nope" })),
            other,
            narrow,
            selected,
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "labelled",
                "labels": { "team": "a" } } }),
            gateway(
                "narrow",
                &json!([{ "name": "http", "port": https, "protocol": "HTTP",
                    "hostname": "only.example" }]),
            ),
            gateway(
                "selector",
                &json!([{ "name": "http", "port": https, "protocol": "HTTP",
                    "hostname": "sel.example",
                "allowedRoutes": { "namespaces": { "from": "Selector",
                    "selector": { "matchLabels": { "team": "a" } } } } }]),
            ),
            gateway(
                "kinds",
                &json!([{ "name": "http", "port": https, "protocol": "HTTP",
                    "hostname": "kinds.example",
                "allowedRoutes": { "kinds": [{ "kind": "TCPRoute" }] } }]),
            ),
            gateway("protocol", &json!([{ "name": "x", "port": https, "protocol": "SCTP" }])),
            gateway(
                "certificate",
                &json!([{ "name": "https", "port": 9443, "protocol": "HTTPS",
                    "tls": { "certificateRefs": [{ "name": "missing" }] } }]),
            ),
        ]
    });
    world.condition("port", "Accepted", ("False", "NoMatchingParent"));
    world.condition("section", "Accepted", ("False", "NoMatchingParent"));
    world.condition("other-namespace", "Accepted", ("False", "NotAllowedByListeners"));
    world.condition("narrow", "Accepted", ("False", "NoMatchingListenerHostname"));
    world.condition("selected", "Accepted", ("False", "NoMatchingListenerHostname"));
    let condition = |gateway: &str, kind: &str| {
        let status = world.status("Gateway", gateway);
        let all = status["listeners"][0]["conditions"].as_array().unwrap().clone();
        let one = all.iter().find(|c| c["type"] == kind).unwrap().clone();
        format!("{} {}", one["status"].as_str().unwrap(), one["reason"].as_str().unwrap())
    };
    assert_eq!(condition("gateway", "Accepted"), "True Accepted");
    assert_eq!(condition("kinds", "ResolvedRefs"), "False InvalidRouteKinds");
    assert_eq!(condition("protocol", "Accepted"), "False UnsupportedProtocol");
    assert_eq!(condition("certificate", "ResolvedRefs"), "False InvalidCertificateRef");
    assert_eq!(condition("certificate", "Programmed"), "False Invalid");
    let class = world.status("GatewayClass", "weir");
    assert_eq!(class["conditions"][0]["status"], "True");
    assert!(class["supportedFeatures"].as_array().unwrap().len() > 30);
}

#[test]
fn https_and_tls_by_name() {
    let folder = Folder::new("gw-certificates");
    let (certificate, key) = common::certificate(&folder.0, "secure.example", None);
    let [passing, tcp] = common::free_ports::<2>();
    let world = World::start("gw-tls", |https, ports| {
        let mut secure =
            route("secure", &["secure.example"], &json!([{ "backendRefs": to("v1") }]));
        secure["spec"]["parentRefs"] = json!([{ "name": "tls", "sectionName": "https" }]);
        vec![
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "cert" },
                "stringData": { "tls.crt": certificate, "tls.key": key } }),
            gateway(
                "tls",
                &json!([
                    { "name": "https", "port": https, "protocol": "HTTPS",
                        "tls": { "certificateRefs": [{ "name": "cert" }] } },
                    { "name": "pass", "port": passing, "protocol": "TLS",
                        "tls": { "mode": "Passthrough" } },
                    { "name": "tcp", "port": tcp, "protocol": "TCP" },
                ]),
            ),
            secure,
            json!({ "apiVersion": "gateway.networking.k8s.io/v1alpha2", "kind": "TLSRoute",
                "metadata": { "name": "t" },
                "spec": { "parentRefs": [{ "name": "tls" }], "hostnames": ["abc.example"],
                    "rules": [{ "backendRefs": to("v2") }] } }),
            json!({ "apiVersion": "gateway.networking.k8s.io/v1alpha2", "kind": "TCPRoute",
                "metadata": { "name": "c" },
                "spec": { "parentRefs": [{ "name": "tls", "sectionName": "tcp" }],
                    "rules": [{ "backendRefs": [{ "name": "v3", "port": 8080 }] }] } }),
            json!({ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GRPCRoute",
                "metadata": { "name": "g" },
                "spec": { "parentRefs": [{ "name": "gateway" }], "hostnames": ["grpc.example"],
                    "rules": [
                    { "matches": [{ "method": { "service": "a.Echo", "method": "Say" } }],
                        "backendRefs": to("v1") }] } }),
            json!({ "apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy",
                "metadata": { "name": "policy" },
                "spec": { "targetRefs": [{ "group": "", "kind": "Service", "name": "tlsbackend" }],
                    "validation": { "hostname": "backend.example",
                        "wellKnownCACertificates": "System" } } }),
            route("policy", &["policy.example"], &json!([{ "backendRefs": to("tlsbackend") }])),
        ]
        .into_iter()
        .chain(service("default", "tlsbackend", ports[0], ""))
        .chain(service("default", "h2c", ports[0], "kubernetes.io/h2c"))
        .collect()
    });
    let request = "GET / HTTP/1.1\r\nHost: secure.example\r\nConnection: close\r\n\r\n";
    let reply = common::ask_tls(world.https, "secure.example", request, None);
    assert_eq!(reply.seen("backend").as_deref(), Some("v1"), "{}", world.rendered.conf);
    assert_eq!(reply.seen("x-forwarded-proto").as_deref(), Some("https"));
    let reply = ask(tcp, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "127.0.0.1");
    assert_eq!(reply.seen("backend").as_deref(), Some("v3"));
    for part in [
        "server_name abc.example;",
        "ssl_preread on;",
        "location = /a.Echo/Say",
        "grpc_pass grpc://",
        "proxy_ssl_name backend.example;",
        "proxy_ssl_verify on;",
        "proxy_pass https://default-tlsbackend-8080;",
    ] {
        assert!(world.rendered.conf.contains(part), "no {part} in {}", world.rendered.conf);
    }
    let policy = world.status("BackendTLSPolicy", "policy");
    assert_eq!(policy["ancestors"][0]["conditions"][0]["status"], "True");
}
