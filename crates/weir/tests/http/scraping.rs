//! Prometheus itself judges the metrics: its checker the text, the rules and the dashboard, and a
//! server of its own scrapes them. Where it is not installed, a test says so and ends.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::{Backend, Collector, Conn, Driver, Folder, Json, Peer, Site, Weir, built_binary};
use testkit::{each_driver, wait_for, wait_until};

/// What Prometheus sends.
const ACCEPT: &str = "Accept: application/openmetrics-text;version=1.0.0,\
    application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n";

/// A server in which every table has a line.
fn site(driver: Driver, backend: u16, collector: u16) -> Site {
    Site::new(built_binary(), driver).config(&format!(
        "worker_processes 1; events {{}} http {{
         otel_exporter {{ endpoint 127.0.0.1:{collector}; interval 1ms; }}
         upstream app {{ zone app 64k; server 127.0.0.1:{backend}; }}
         proxy_cache_path cache keys_zone=pages:1m;
         limit_req_zone $arg_a zone=req:1m rate=1r/s;
         limit_conn_zone $arg_a zone=conn:1m;
         server {{ listen 127.0.0.1:%PORT0%; server_name main;
             location / {{ status_zone \"\u{e9} \\\"\\\\\"; return 200 x; }}
             location /app {{ proxy_cache pages; limit_req zone=req burst=9 nodelay;
                              limit_conn conn 9; proxy_pass http://app; }}
             location /traced {{ otel_trace on; status_zone traced; return 204; }}
             location = /metrics {{ prometheus; }}
             location = /native {{ prometheus native; }}
             location /vts {{ prometheus vts; }} }} }}
         stream {{ upstream db {{ zone db 64k; server 127.0.0.1:{backend}; }}
             server {{ listen 127.0.0.1:%PORT1%; proxy_pass db; }} }}"
    ))
}

fn open_metrics(weir: &Weir) -> String {
    let response = weir.request("GET", "/metrics", ACCEPT);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(response.header("Content-Type"), Some(kind));
    response.text()
}

#[test]
fn openmetrics_is_for_those_who_ask_and_scrapes_do_not_count() {
    each_driver(|driver| {
        let (backend, collector) = (Backend::start(), Collector::start());
        let weir = site(driver, backend.port, collector.port()).start();
        for path in ["/a", "/app", "/traced"] {
            weir.get(path);
        }
        let plain = weir.get("/metrics");
        assert_eq!(plain.header("Content-Type"), Some("text/plain; version=0.0.4"));
        assert_eq!(plain.header("Vary"), Some("Accept"));
        assert!(!plain.text().contains("# EOF") && !plain.text().contains("trace_id"));
        wait_until("all is counted", || {
            open_metrics(&weir)
                .contains("\nnginxplus_server_zone_requests{server_zone=\"main\"} 3\n")
        });
        let text = open_metrics(&weir);
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        assert!(text.contains("\n# TYPE nginx_http_requests counter\nnginx_http_requests_total "));
        assert!(text.contains("\n# TYPE nginxplus_server_zone_requests unknown\n"), "{text}");
        // No scrape has been counted, nor is this one under way.
        for line in [
            "nginxplus_server_zone_requests{server_zone=\"main\"} 3",
            "nginxplus_server_zone_processing{server_zone=\"main\"} 0",
            "weir_http_requests_lost_total{server_zone=\"main\"} 0",
            "weir_http_request_duration_seconds_count{server_zone=\"main\"} 3",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}");
        }
        // The one request that was traced is an exemplar of both zones.
        let exemplars: Vec<&str> = text.lines().filter(|line| line.contains(" # {")).collect();
        let families: Vec<&str> =
            exemplars.iter().filter_map(|line| line.split('{').next()).collect();
        let bucket = |of: &str| format!("weir_{of}request_duration_seconds_bucket");
        assert_eq!(families, [bucket("http_"), bucket("location_")]);
        let span = collector.wait_for_spans(1).remove(0);
        let id = format!(" # {{trace_id=\"{}\"}} 0.", span.trace_id);
        assert!(exemplars.iter().all(|line| line.contains(&id)), "{exemplars:?}");
    });
}

/// Whether a program of Prometheus is there; says so if it is not.
fn is_there(name: &str) -> bool {
    let is_there = Peer::find(name).is_some();
    if !is_there {
        eprintln!("left out: no {name} on this machine (Debian: prometheus)");
    }
    is_there
}

/// Runs the checker on a text; gives its output.
fn promtool(arguments: &[&str], folder: &Path, input: &str) -> String {
    let mut child = Command::new(Peer::find("promtool").unwrap())
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let text = [out.stdout, out.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(out.status.success() || arguments[0] == "check", "{arguments:?}: {text}");
    text
}

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

#[test]
fn promtool_finds_nothing_wrong_with_the_text() {
    if !is_there("promtool") {
        return;
    }
    let (backend, collector) = (Backend::start(), Collector::start());
    let weir = site(Driver::usual(), backend.port, collector.port()).start();
    weir.get("/app?a=1");
    for path in ["/metrics", "/vts"] {
        let text = weir.get(path).text();
        let found = promtool(&["check", "metrics"], weir.prefix(), &text);
        // Those are the names of others.
        let ours: Vec<&str> = found.lines().filter(|line| !line.starts_with("nginx")).collect();
        assert!(ours.is_empty(), "{path}: {found}");
    }
}

#[test]
fn the_alert_rules_hold_what_they_promise() {
    if !is_there("promtool") {
        return;
    }
    let folder = packaging().join("prometheus");
    let found = promtool(&["check", "rules", "weir.rules.yml"], &folder, "");
    assert!(found.contains("SUCCESS: 12 rules found"), "{found}");
    promtool(&["test", "rules", "weir.rules.test.yml"], &folder, "");
}

/// The names of metrics in an expression: words with an underscore and one of the prefixes.
fn names_in(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| {
        word.starts_with("nginx_") || word.starts_with("nginxplus_") || word.starts_with("weir_")
    })
}

/// The expressions of the dashboard, with its variables filled in.
fn expressions(value: &Json, found: &mut Vec<String>) {
    match value {
        Json::Object(members) => {
            if let Some(Json::Text(expr)) = members.get("expr") {
                found.push(expr.replace("$__rate_interval", "5m").replace("$__interval", "5m"));
            }
            members.values().for_each(|value| expressions(value, found));
        }
        Json::List(items) => items.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

#[test]
fn dashboard_and_rules_name_metrics_that_are_there() {
    let read = |name: &str| std::fs::read_to_string(packaging().join(name)).unwrap();
    let mut all = Vec::new();
    expressions(&Json::parse(&read("grafana/weir.json")), &mut all);
    assert!(all.len() > 30, "{}", all.len());
    let rules = read("prometheus/weir.rules.yml");

    let (backend, collector) = (Backend::start(), Collector::start());
    let weir = site(Driver::usual(), backend.port, collector.port()).start();
    Conn::tcp(weir.port(1)).send("x");
    weir.get("/app?a=1");
    let text = weir.get("/metrics").text();
    let known: BTreeSet<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split([' ', '{']).next())
        .chain(text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()))
        .collect();
    let certificates = ["weir_certificate_expires_seconds", "weir_certificate_failures"];
    for expression in all.iter().map(String::as_str).chain([rules.as_str()]) {
        for name in names_in(expression) {
            let is_known = known.contains(name) || certificates.contains(&name);
            assert!(is_known, "{name} in {expression}");
        }
    }
    if is_there("promtool") {
        let folder = Folder::new("dashboard");
        let rules = all.iter().enumerate().map(|(i, expr)| {
            format!("  - record: r{i}\n    expr: '{}'\n", expr.replace('\'', "''"))
        });
        let rules = rules.collect::<String>();
        folder.write("rules.yml", format!("groups:\n- name: g\n  rules:\n{rules}"));
        let found = promtool(&["check", "rules", "rules.yml"], &folder, "");
        assert!(found.contains(&format!("SUCCESS: {} rules found", all.len())), "{found}");
    }
}

/// Starts a Prometheus that scrapes a path each second.
fn prometheus(weir: &Weir, path: &str, features: &str) -> Peer {
    let config = format!(
        "global: {{ scrape_interval: 1s }}\nscrape_configs:\n- job_name: weir\n  \
         metrics_path: {path}\n  static_configs:\n  - targets: ['127.0.0.1:{}']\n",
        weir.port(0)
    );
    Peer::start(
        "prometheus",
        "prometheus",
        &[("prometheus.yml", &config)],
        &[
            "--config.file=%DIR%/prometheus.yml",
            "--storage.tsdb.path=%DIR%/data",
            &format!("--enable-feature={features}"),
            "--web.listen-address=127.0.0.1:%PORT%",
        ],
    )
}

fn ask(prometheus: &Peer, path: &str) -> String {
    let mut conn = Conn::tcp(prometheus.port());
    conn.send(format!("GET /api/v1/{path} HTTP/1.0\r\nHost: p\r\n\r\n"));
    conn.response().text()
}

/// Waits until the answer to a question has a text.
fn wait_for_answer(prometheus: &Peer, path: &str, text: &str) {
    wait_for(path, || ask(prometheus, path).contains(text).then_some(()));
}

#[test]
fn prometheus_scrapes_it() {
    if !is_there("prometheus") {
        return;
    }
    let (backend, collector) = (Backend::start(), Collector::start());
    let weir = site(Driver::usual(), backend.port, collector.port()).start();
    for path in ["/a", "/app", "/traced"] {
        weir.get(path);
    }
    let prometheus = prometheus(&weir, "/metrics", "exemplar-storage");
    let found = |path: &str, text: &str| wait_for_answer(&prometheus, path, text);
    found("query?query=nginxplus_server_zone_requests", "\"server_zone\":\"main\"");
    found("query?query=weir_http_request_duration_seconds_bucket%7Ble=%221.0%22%7D", ",\"3\"]");
    found("query?query=nginxplus_location_zone_requests", "\"location_zone\":\"\u{e9} \\\"\\\\\"");
    found(
        "query_exemplars?query=weir_http_request_duration_seconds_bucket&start=0&end=9999999999",
        "trace_id",
    );
    found("targets?state=active", "\"lastError\":\"\"");
    let targets = ask(&prometheus, "targets?state=active");
    assert!(targets.contains("\"health\":\"up\""), "{targets}");
}

/// What Prometheus sends where native histograms are enabled.
const ACCEPT_NATIVE: &str = "Accept: application/vnd.google.protobuf;\
    proto=io.prometheus.client.MetricFamily;encoding=delimited,\
    application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n";

#[test]
fn native_histograms_are_for_those_who_ask() {
    each_driver(|driver| {
        let (backend, collector) = (Backend::start(), Collector::start());
        let weir = site(driver, backend.port, collector.port()).start();
        let kind = |path: &str, accept: &str| {
            let response = weir.request("GET", path, accept);
            response.header("Content-Type").expect("a type").split(';').next().map(str::to_owned)
        };
        let [protobuf, open] = ["vnd.google.protobuf", "openmetrics-text"]
            .map(|kind| Some(format!("application/{kind}")));
        assert_eq!(kind("/native", ACCEPT_NATIVE), protobuf);
        assert_eq!(kind("/native", ACCEPT), open);
        assert_eq!(kind("/metrics", ACCEPT_NATIVE), open);
        assert_eq!(kind("/native", ""), Some("text/plain".to_owned()));
    });
}

#[test]
fn prometheus_keeps_native_histograms() {
    if !is_there("prometheus") {
        return;
    }
    let (backend, collector) = (Backend::start(), Collector::start());
    let weir = site(Driver::usual(), backend.port, collector.port()).start();
    for path in ["/a", "/app", "/traced"] {
        weir.get(path);
    }
    let prometheus = prometheus(&weir, "/native", "native-histograms,exemplar-storage");
    let found = |path: &str, text: &str| wait_for_answer(&prometheus, path, text);
    let times = "weir_http_request_duration_seconds";
    found(&format!("query?query=histogram_count({times})"), ",\"3\"]");
    found(&format!("query?query=histogram_fraction(-1,60,{times})"), ",\"1\"]");
    found(&format!("query?query=histogram_quantile(0.99,{times})"), "\"server_zone\":\"main\"");
    // Without series for its buckets, but with counters, gauges and labels as in the texts.
    found("query?query=nginxplus_location_zone_requests", "\"location_zone\":\"\u{e9} \\\"\\\\\"");
    found("query?query=nginx_up", ",\"1\"]");
    assert!(ask(&prometheus, &format!("query?query={times}_bucket")).contains("\"result\":[]"));
    found(&format!("query_exemplars?query={times}&start=0&end=9999999999"), "trace_id");
    found("targets?state=active", "\"lastError\":\"\"");
}
