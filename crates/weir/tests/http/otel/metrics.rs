//! Metrics go to the collector: the sums of all workers, whichever of them dies.

use std::io::Write;
use std::process::{Command, Stdio};

use testkit::collector::Point;
use testkit::{Backend, Collector, Driver, Json, Site, Weir, built_binary, each_driver};
use testkit::{refused, wait_for, wait_until};

fn site(driver: Driver, collector: u16, backend: u16) -> Site {
    Site::new(built_binary(), driver).config(&format!(
        "worker_processes 2; events {{}} http {{
         otel_exporter {{ endpoint 127.0.0.1:{collector}; interval 1ms; }}
         otel_metrics on interval=10ms;
         otel_service_name shop;
         upstream app {{ zone app 64k; server 127.0.0.1:{backend}; }}
         server {{ listen 127.0.0.1:%PORT0%; server_name \"m\\\"x\";
             location / {{ return 200 x; }}
             location /app {{ proxy_pass http://app; }}
             location /traced {{ otel_trace on; status_zone traced; return 204; }}
             location /api {{ api write=on; }} }} }}"
    ))
}

/// Waits until a metric has the value that is wanted in its first point; returns that point.
fn wait_for_point(collector: &Collector, name: &str, is: impl Fn(&Point) -> bool) -> Point {
    wait_for(name, || collector.points(name).into_iter().find(&is))
}

fn requests(point: &Point) -> u64 {
    point.counts.iter().sum()
}

fn get_all(weir: &Weir) {
    for path in ["/a", "/app", "/app"] {
        assert_eq!(weir.get(path).status, 200, "{path}");
    }
}

#[test]
fn counters_go_on_over_deaths_and_reloads() {
    each_driver(|driver| {
        let (collector, backend) = (Collector::start(), Backend::start());
        let weir = site(driver, collector.port(), backend.port).allow("exited on signal 9").start();
        get_all(&weir);
        assert_eq!(weir.get("/traced").status, 204);
        let name = "http.server.request.duration";
        let first = wait_for_point(&collector, name, |point| requests(point) == 4);
        assert_eq!((first.kind, &*first.unit), ("histogram", "s"));
        assert_eq!(first.text("server_zone"), Some("m\"x"));
        assert!(0 < first.start_ns && first.start_ns < first.time_ns);
        assert_eq!((first.bounds.len(), first.bounds[0]), (21, 0.0001));
        let span = collector.wait_for_spans(1).remove(0);
        // Each worker keeps exemplars of its own.
        assert!(first.exemplars.iter().all(|(id, value)| *id == span.trace_id && *value < 10.0));
        let upstream =
            wait_for_point(&collector, "http.client.request.duration", |p| requests(p) == 2);
        assert_eq!(upstream.text("upstream"), Some("app"));
        let of = |name: &str| wait_for_point(&collector, name, |_| true);
        let total = wait_for_point(&collector, "nginx.requests", |point| point.value == 4.0);
        assert_eq!(total.kind, "sum");
        assert_eq!(of("http.server.active_requests").kind, "up_down");
        assert_eq!((of("nginx.up").kind, of("nginx.up").start_ns), ("gauge", 0));
        let codes = "nginxplus.server_zone_responses_codes";
        for (code, n) in [("200", 3.0), ("204", 1.0)] {
            wait_for_point(&collector, codes, |p| p.text("code") == Some(code) && p.value == n);
        }

        // The worker that sends dies, as all do: the sums and their start remain.
        for worker in weir.workers() {
            weir.signal_to(worker, "KILL");
            weir.wait_until_left(&[worker]);
        }
        wait_until("two workers", || weir.workers().len() == 2);
        get_all(&weir);
        let second = wait_for_point(&collector, name, |point| requests(point) == 7);
        assert_eq!(second.start_ns, first.start_ns);
        let old = weir.workers();
        weir.reload();
        weir.wait_until_left(&old);
        get_all(&weir);
        let third = wait_for_point(&collector, name, |point| requests(point) == 10);
        assert_eq!(third.start_ns, first.start_ns);
        assert_eq!(of("nginx.requests").start_ns, of("nginx.connections_accepted").start_ns);

        // A reset begins anew, later.
        let path = "/api/9/http/server_zones/m%22x";
        assert_eq!(weir.request("DELETE", path, "").status, 204);
        weir.get("/a");
        let reset = wait_for_point(&collector, name, |point| requests(point) < 10);
        assert!(reset.start_ns > third.start_ns, "{reset:?} {third:?}");
        let call = collector.calls().into_iter().rfind(|call| !call.points.is_empty()).unwrap();
        let names: Vec<&str> = call.resource.iter().map(|(name, _)| &**name).collect();
        assert_eq!((&names[..], &*call.scope), (&["host.name", "service.name"][..], "weir"));
        let path = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
        assert_eq!(call.field(":path"), Some(path));
    });
}

#[test]
fn the_last_sums_are_sent_when_the_server_leaves() {
    each_driver(|driver| {
        let (collector, backend) = (Collector::start(), Backend::start());
        let text = format!(
            "worker_processes 1; events {{}} http {{
             otel_exporter {{ endpoint 127.0.0.1:{}; }} otel_metrics on;
             server {{ listen 127.0.0.1:%PORT0%; location / {{ return 200 x; }} }} }}",
            collector.port()
        );
        drop(backend);
        for signal in ["QUIT", "TERM"] {
            let before = collector.calls().len();
            let mut weir = Site::new(built_binary(), driver).config(&text).start();
            weir.get("/");
            weir.signal(signal);
            assert!(weir.wait_for_end().success());
            assert_eq!(collector.calls().len(), before + 1, "{signal}");
            assert_eq!(collector.points("nginx.requests")[0].value, 1.0);
        }
    });
}

#[test]
fn a_collector_that_does_not_take_them_is_told_in_the_log() {
    each_driver(|driver| {
        let collector = Collector::answering(|call| match call {
            1 => Some(Collector::refusal(14, "later")),
            2 => Some(Collector::reply(b"\xff\xff").trailer("grpc-status", "x")),
            // No answer at all.
            3 => None,
            _ => Some(Collector::taken()),
        });
        let backend = Backend::start();
        let weir = site(driver, collector.port(), backend.port).start();
        collector.wait_for_calls(3);
        let line = weir.wait_for_log("error.log", "OTel export of metrics failed");
        assert!(line.contains("[error]") && line.contains("grpc-status 14: later"), "{line}");
        // Requests go on; the third call is waited for, and holds up nobody.
        get_all(&weir);
        let log = weir.error_log();
        assert_eq!(log.matches("OTel export of metrics failed").count(), 1, "{log}");
    });
}

/// Google's decoder with the messages of OpenTelemetry, if they are installed.
const DECODER: &str = "
import json, sys
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
m = ExportMetricsServiceRequest.FromString(sys.stdin.buffer.read())
from google.protobuf import unknown_fields
assert len(unknown_fields.UnknownFieldSet(m)) == 0
out = []
for metric in m.resource_metrics[0].scope_metrics[0].metrics:
    data = getattr(metric, metric.WhichOneof('data'))
    if metric.WhichOneof('data') != 'gauge':
        assert data.aggregation_temporality == 2, metric
    for p in data.data_points:
        if metric.WhichOneof('data') == 'histogram':
            n = list(p.bucket_counts)
            assert p.count == sum(n) and len(n) == len(p.explicit_bounds) + 1
        else:
            n = [int(getattr(p, p.WhichOneof('value')))]
        out.append([metric.name, sorted(a.key for a in p.attributes), n])
json.dump(out, sys.stdout)
";

#[test]
fn a_foreign_decoder_reads_the_same() {
    let found = Command::new("python3").args(["-c", "import opentelemetry.proto"]).output();
    if !found.is_ok_and(|out| out.status.success()) {
        eprintln!("left out: no opentelemetry-proto for python3 on this machine (pip)");
        return;
    }
    let (collector, backend) = (Collector::start(), Backend::start());
    let weir = site(Driver::usual(), collector.port(), backend.port).start();
    get_all(&weir);
    wait_for_point(&collector, "http.client.request.duration", |point| requests(point) == 2);
    let call = collector.calls().into_iter().rfind(|call| !call.points.is_empty()).unwrap();
    let mut child = Command::new("python3")
        .args(["-c", DECODER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&call.message).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    let want = call.points.iter().map(|point| {
        let mut names: Vec<_> =
            point.attributes.iter().map(|(n, _)| Json::Text(n.clone())).collect();
        names.sort_by_key(|name| format!("{name:?}"));
        let numbers = match point.kind {
            "histogram" => point.counts.iter().map(|n| Json::Number(*n as f64)).collect(),
            _ => vec![Json::Number(point.value.trunc())],
        };
        Json::List(vec![Json::Text(point.name.clone()), Json::List(names), Json::List(numbers)])
    });
    let got = Json::parse(&String::from_utf8(out.stdout).unwrap());
    assert_eq!(got, Json::List(want.collect()));
}

#[test]
fn refused_settings() {
    refused(
        "* server { }",
        &[
            ("otel_metrics on;", "\"otel_exporter\" block is missing"),
            ("otel_metrics maybe;", "invalid value \"maybe\" in \"otel_metrics\""),
            ("otel_metrics on interval=0;", "invalid parameter \"interval=0\""),
            ("otel_metrics on every=1s;", "invalid parameter \"every=1s\" of \"otel_metrics\""),
            ("otel_metrics on; otel_metrics off;", "\"otel_metrics\" directive is duplicate"),
            (
                "otel_exporter { endpoint http://a:1/spans; } otel_metrics on;",
                "needs an \"endpoint\" whose path ends in \"/traces\"",
            ),
        ],
    );
}
