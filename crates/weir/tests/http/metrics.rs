//! `prometheus`, `ready` and the log format `json`.

use std::collections::{BTreeMap, HashSet};

use testkit::{Backend, Driver, Json, Site, built_binary, each_driver, wait_until};

fn config(port: u16) -> String {
    format!(
        "worker_processes 2; events {{}} http {{
         upstream app {{ zone app 64k; server 127.0.0.1:{port}; }}
         server {{ listen 127.0.0.1:%PORT0%; server_name main;
             location / {{ status_zone \"a\\\"\\\\b\"; return 200 x; }}
             location /app {{ proxy_pass http://app; }}
             location /metrics {{ prometheus; }}
             location /vts {{ prometheus vts; }} }} }}"
    )
}

/// The samples of a text, checked as Prometheus reads them: each family once, with its help and
/// type, and each sample once.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let (mut families, mut found) = (HashSet::new(), BTreeMap::new());
    let (mut family, mut kind) = (String::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split(' ').next().unwrap().to_owned();
            assert!(families.insert(family.clone()), "twice: {family}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of) = rest.split_once(' ').unwrap();
            assert_eq!(name, family);
            kind = of.to_owned();
            let is_counter = kind == "counter";
            assert_eq!(name.ends_with("_total"), is_counter, "{line}");
        } else {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let of = name.split('{').next().unwrap();
            let suffix = of.strip_prefix(family.as_str()).unwrap();
            let allowed: &[&str] = match kind.as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(allowed.contains(&suffix), "{line} in {family}");
            assert!(found.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{line}");
        }
    }
    found
}

#[test]
fn counters_have_the_names_of_the_exporter() {
    each_driver(|driver| {
        let b = Backend::start();
        let weir = Site::new(built_binary(), driver).config(&config(b.port)).start();
        for path in ["/", "/app", "/app"] {
            assert_eq!(weir.get(path).status, 200);
        }
        let zone = "nginxplus_location_zone_requests{location_zone=\"a\\\"\\\\b\"}";
        let look = || samples(&weir.get("/metrics").text());
        wait_until("all is counted", || {
            look().get("nginxplus_server_zone_processing{server_zone=\"main\"}") == Some(&0.0)
        });
        let found = look();
        for name in [
            "nginx_up",
            "nginx_connections_accepted",
            "nginx_connections_active",
            "nginx_connections_handled",
            "nginx_connections_reading",
            "nginx_connections_waiting",
            "nginx_connections_writing",
            "nginx_http_requests_total",
            "nginxplus_http_requests_total",
            "nginxplus_ssl_handshakes",
            "weir_loop_turns_total",
            "weir_http_requests_lost_total{server_zone=\"main\"}",
        ] {
            assert!(found.contains_key(name), "{name}");
        }
        assert_eq!(found[zone], 1.0);
        let server = format!("upstream=\"app\",server=\"127.0.0.1:{}\"", b.port);
        let of = |name: &str, more: &str| found[&format!("{name}{{{server}{more}}}")];
        assert_eq!(of("nginxplus_upstream_server_state", ""), 1.0);
        assert_eq!(of("nginxplus_upstream_server_responses", ",code=\"2xx\""), 2.0);
        let times = "weir_upstream_response_duration_seconds";
        assert_eq!(of(&format!("{times}_count"), ""), 2.0);
        assert_eq!(of(&format!("{times}_bucket"), ",le=\"+Inf\""), 2.0);
        let response = weir.get("/metrics");
        assert_eq!(response.header("Content-Type"), Some("text/plain; version=0.0.4"));
        assert_eq!(weir.request("POST", "/metrics", "").status, 405);
    });
}

#[test]
fn names_of_vhost_traffic_status() {
    let b = Backend::start();
    let weir = Site::new(built_binary(), Driver::usual()).config(&config(b.port)).start();
    weir.get("/app");
    let received = "nginx_vts_server_bytes_total{host=\"main\",direction=\"in\"}";
    let look = || samples(&weir.get("/vts").text());
    wait_until("a request is over", || look()[received] > 0.0);
    let found = look();
    assert!(found.contains_key("nginx_up"));
    let server = format!("upstream=\"app\",backend=\"127.0.0.1:{}\"", b.port);
    let requests = format!("nginx_vts_upstream_requests_total{{{server},code=\"2xx\"}}");
    assert_eq!(found[&requests], 1.0);
    assert!(!found.keys().any(|name| name.starts_with("nginxplus_")));
}

#[test]
fn what_is_wrong_is_refused() {
    for (directive, message) in [
        ("prometheus json;", "invalid parameter \"json\""),
        ("prometheus; prometheus;", "\"prometheus\" directive is duplicate"),
        ("ready; ready;", "\"ready\" directive is duplicate"),
        ("status_zone a; status_zone b;", "\"status_zone\" directive is duplicate"),
        ("status_zone \"\";", "the name of a zone is empty"),
        ("status_zone $none;", "unknown \"none\" variable"),
    ] {
        let site = Site::new(built_binary(), Driver::usual());
        let config = format!("server {{ listen 127.0.0.1:1; location / {{ {directive} }} }}");
        site.http(&config).is_refused(message);
    }
}

#[test]
fn a_worker_that_leaves_is_not_ready() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .http("server { listen 127.0.0.1:%PORT0%; location /ready { ready; } }")
            .start();
        let mut kept = weir.connect();
        kept.send("GET /ready HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(kept.response().status, 200);
        // A part of a request keeps the worker that has it.
        kept.send("GET /ready HTTP/1.1\r\nHo");
        let old = weir.workers();
        weir.reload();
        wait_until("the other worker serves", || weir.workers() != old);
        weir.wait_for_log("error.log", "gracefully shutting down");
        kept.send("st: a\r\n\r\n");
        assert_eq!(kept.response().status, 503);
        assert_eq!(weir.get("/ready").status, 200);
    });
}

#[test]
fn lines_of_the_access_log_are_objects() {
    let weir = Site::new(built_binary(), Driver::usual())
        .http(
            "server { listen 127.0.0.1:%PORT0%; access_log logs/own.log json;
             location / { return 200 x; } }",
        )
        .start();
    weir.request("GET", "/a?b=\"c\\", "User-Agent: \"x\\\r\n");
    let line = weir.wait_for_log("own.log", "}");
    let line = Json::parse(line.trim());
    assert_eq!(*line.at("request_uri"), Json::Text("/a?b=\"c\\".to_owned()));
    assert_eq!(*line.at("status"), Json::Number(200.0));
    assert!(line.number("bytes_sent") > line.number("body_bytes_sent"));
    let own = "log_format json own$status; server { listen 127.0.0.1:%PORT0%;
               access_log logs/own.log json; return 200; }";
    let weir = Site::new(built_binary(), Driver::usual()).http(own).start();
    weir.get("/");
    assert!(weir.wait_for_log("own.log", "own200").starts_with("own200"));
}

#[test]
fn the_dashboard_is_one_page_with_its_api_below() {
    let b = Backend::start();
    let config = format!(
        "events {{}} http {{ upstream app {{ zone app 64k; server 127.0.0.1:{}; }}
         server {{ listen 127.0.0.1:%PORT0%;
             location /look {{ dashboard; }} location /run/ {{ dashboard write=on; }} }} }}",
        b.port
    );
    let weir = Site::new(built_binary(), Driver::usual()).config(&config).start();
    let page = weir.get("/look");
    assert_eq!(page.status, 200);
    assert!(page.body.len() <= 100_000);
    let policy = page.header("Content-Security-Policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert!(page.text().contains("const WRITE = false;"));
    assert!(weir.get("/run/").text().contains("const WRITE = true;"));
    assert_eq!(weir.get("/look/none").status, 404);
    let zones = Json::parse(&weir.get("/look/api/9/http/upstreams").text());
    assert_eq!(zones.names(), ["app"]);
    let change = |prefix: &str| {
        let mut c = weir.connect();
        c.send(format!(
            "PATCH {prefix}/api/9/http/upstreams/app/servers/1 HTTP/1.1\r\nHost: a\r\n\
             Origin: http://a\r\nContent-Length: 13\r\n\r\n{{\"down\":true}}"
        ));
        c.response().status
    };
    assert_eq!((change("/look"), change("/run")), (405, 200));
    let exact = "server { listen 127.0.0.1:1; location = /x { dashboard; } }";
    let message = "\"dashboard\" directive needs a location with a prefix";
    Site::new(built_binary(), Driver::usual()).http(exact).is_refused(message);
}
