//! Traces of requests for OpenTelemetry collectors.

mod context;
mod logs;
mod metrics;
mod sending;
mod tries;

use testkit::collector::{Attribute, Call};
use testkit::{Collector, Driver, Site, Weir, built_binary, each_driver, refused, wait_until};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01";
const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT_ID: &str = "b9c7c989f97918e1";
const STATE: &str = "congo=ucfJifl5GOE,rojo=00f067aa0ba902b7";

/// A server whose `http` has the exporter and these lines; `interval` is part of the exporter's.
fn site(driver: Driver, collector: u16, exporter: &str, http: &str) -> Site {
    let text = format!(
        "load_module modules/ngx_otel_module.so;
         worker_processes 1;
         events {{ }}
         http {{
             otel_exporter {{ endpoint 127.0.0.1:{collector}; {exporter} }}
             {http}
         }}"
    );
    Site::new(built_binary(), driver).config(&text)
}

/// The same, started, with its collector.
fn traced(driver: Driver, exporter: &str, http: &str) -> (Collector, Weir) {
    let collector = Collector::start();
    let weir = site(driver, collector.port(), exporter, http).start();
    (collector, weir)
}

fn parent(value: &str) -> String {
    format!("Traceparent: {value}\r\nTracestate: {STATE}\r\n")
}

#[test]
fn spans_have_the_attributes_of_nginx_otel() {
    each_driver(|driver| {
        let (collector, weir) = traced(
            driver,
            "interval 1ms; header X-Token \"a b\"; header authorization x;",
            "otel_trace on;
             otel_resource_attr my.name 'my name';
             otel_service_name test;
             server {
                 listen 127.0.0.1:%PORT0%;
                 server_name one;
                 location /ok { return 200 OK; }
                 location /err { return 500 ERR; }
                 location ~ ^/custom {
                     otel_span_name custom_$arg_n;
                     otel_span_attr http.request.completion $request_completion;
                     otel_span_attr http.response.header.content.type $sent_http_content_type;
                     otel_span_attr empty '';
                     return 200 OK;
                 }
             }",
        );
        let fields = "User-Agent: test/1\r\nContent-Length: 0\r\n";
        assert_eq!(weir.request("GET", "/ok?a=%20b", fields).status, 200);
        let span = collector.wait_for_spans(1).remove(0);
        assert_eq!((&*span.name, span.kind, span.status), ("/ok", 2, 0));
        assert_eq!((span.trace_id.len(), span.span_id.len(), &*span.parent_id), (32, 16, ""));
        assert!(span.end_ns >= span.start_ns && span.start_ns > 1_600_000_000_000_000_000);
        let names: Vec<&str> = span.attributes.iter().map(|(name, _)| &**name).collect();
        let want = [
            "http.method",
            "http.target",
            "http.route",
            "http.scheme",
            "http.flavor",
            "http.user_agent",
            "http.request_content_length",
            "http.response_content_length",
            "http.status_code",
            "net.host.name",
            "net.host.port",
            "net.sock.peer.addr",
            "net.sock.peer.port",
        ];
        assert_eq!(names, want);
        for (name, value) in [
            ("http.method", "GET"),
            ("http.target", "/ok?a=%20b"),
            ("http.route", "/ok"),
            ("http.scheme", "http"),
            ("http.flavor", "1.1"),
            ("http.user_agent", "test/1"),
            ("net.host.name", "one"),
            ("net.sock.peer.addr", "127.0.0.1"),
        ] {
            assert_eq!(span.text(name), Some(value), "{name}");
        }
        assert_eq!(span.number("http.response_content_length"), Some(2));
        assert_eq!(span.number("http.request_content_length"), Some(0));
        assert_eq!(span.number("http.status_code"), Some(200));
        assert_eq!(span.number("net.host.port"), Some(weir.port(0).into()));
        assert!(span.number("net.sock.peer.port").unwrap() >= 1024);

        assert_eq!(weir.get("/err").status, 500);
        let span = collector.wait_for_spans(2).remove(1);
        assert_eq!((&*span.name, span.status), ("/err", 2));
        assert_eq!(span.number("http.status_code"), Some(500));

        assert_eq!(weir.get("/custom?n=7").status, 200);
        let span = collector.wait_for_spans(3).remove(2);
        assert_eq!((&*span.name, span.text("http.route")), ("custom_7", Some("^/custom")));
        assert_eq!(span.text("http.request.completion"), Some("OK"));
        assert_eq!(span.text("empty"), Some(""));
        let kind = span.attribute("http.response.header.content.type");
        assert_eq!(kind, Some(&Attribute::Texts(vec!["text/plain".to_owned()])));

        let call = &collector.calls()[0];
        check_call(call);
        // All over one connection.
        assert_eq!(collector.connections(), 1);
    });
}

fn check_call(call: &Call) {
    for (name, value) in [
        (":path", "/opentelemetry.proto.collector.trace.v1.TraceService/Export"),
        (":method", "POST"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("x-token", "a b"),
        ("authorization", "x"),
    ] {
        assert_eq!(call.field(name), Some(value), "{name}");
    }
    let text = |text: &str| Attribute::Text(text.to_owned());
    let resource =
        [("my.name".to_owned(), text("my name")), ("service.name".to_owned(), text("test"))];
    assert_eq!(call.resource, resource);
    assert_eq!(call.scope, "weir");
}

#[test]
fn whether_a_request_is_traced_is_configured_or_computed() {
    each_driver(|driver| {
        let (collector, weir) = traced(
            driver,
            "interval 1ms;",
            "split_clients $otel_trace_id $all { * on; }
             split_clients $otel_trace_id $none { * off; }
             server {
                 listen 127.0.0.1:%PORT0%;
                 otel_trace $arg_t;
                 location / { return 204; }
                 location /all { otel_trace $all; return 204; }
                 location /none { otel_trace $none; return 204; }
                 location /off { otel_trace off; return 204; }
                 location /sampled {
                     otel_trace $otel_parent_sampled;
                     otel_trace_context extract;
                     return 204;
                 }
                 location /inside { rewrite ^ /all last; }
                 location /traced { otel_trace on; rewrite ^ /off last; }
                 location /page { otel_trace on; error_page 404 /off; return 404; }
             }",
        );
        for path in ["/x?t=0", "/x?t=off", "/x", "/none", "/off", "/inside"] {
            assert_eq!(weir.get(path).status, 204, "{path}");
        }
        let unsampled = parent(&PARENT.replace("-01", "-00"));
        assert_eq!(weir.request("GET", "/sampled/no", &unsampled).status, 204);
        assert_eq!(weir.request("GET", "/sampled/bad", &parent("00-x")).status, 204);
        let mut want = Vec::new();
        for path in ["/x?t=on", "/x?t=1", "/all", "/traced", "/page"] {
            weir.get(path);
            want.push(path.to_owned());
        }
        weir.request("GET", "/sampled/yes", &parent(PARENT));
        want.push("/sampled/yes".to_owned());
        let spans = collector.wait_for_spans(want.len());
        let targets: Vec<_> = spans.iter().map(|s| s.text("http.target").unwrap()).collect();
        assert_eq!(targets, want);
        // The location that the request ended in names the span.
        assert_eq!(spans[3].name, "/off");
        assert_eq!(spans[5].parent_id, PARENT_ID);
    });
}

#[test]
fn workers_have_ids_of_their_own() {
    let collector = Collector::start();
    let text = format!(
        "worker_processes 4; events {{ }}
         http {{
             otel_exporter {{ endpoint http://127.0.0.1:{}; interval 1ms; }}
             otel_trace on;
             server {{ listen 127.0.0.1:%PORT0% reuseport; location / {{ return 204; }} }}
         }}",
        collector.port()
    );
    let weir = Site::new(built_binary(), Driver::usual()).config(&text).start();
    for _ in 0..100 {
        weir.get("/");
    }
    let spans = collector.wait_for_spans(100);
    let ids: std::collections::HashSet<_> = spans.iter().map(|s| &s.trace_id).collect();
    assert_eq!(ids.len(), 100);
    wait_until("calls of several workers", || collector.connections() > 1);
}

#[test]
fn what_is_refused() {
    refused(
        "* server { }",
        &[
            ("otel_exporter { }", "\"otel_exporter\" requires \"endpoint\""),
            ("otel_exporter { endpoint http://; }", "\"otel_exporter\" requires \"endpoint\""),
            ("otel_trace on;", "\"otel_exporter\" block is missing"),
            ("otel_exporter { endpoint a:1; } otel_exporter { endpoint a:1; }", "is duplicate"),
            (
                "otel_exporter { endpoint a:1; endpoint b:1; }",
                "\"endpoint\" directive is duplicate",
            ),
            ("otel_exporter { endpoint a:0; }", "invalid port in \"endpoint\" \"a:0\""),
            ("otel_exporter { endpoint a:1; interval x; }", "\"interval\" directive invalid value"),
            ("otel_exporter { endpoint a:1; batch_size 0; }", "must not be 0"),
            ("otel_exporter { endpoint a:1; foo 0; }", "unknown directive \"foo\""),
            (
                "otel_exporter { endpoint a:1; header a; }",
                "invalid number of arguments in \"header\"",
            ),
            ("otel_exporter { endpoint a:1; header 'a b' c; }", "has invalid header name"),
            ("otel_exporter { endpoint a:1; header a 'b\tc'; }", "has invalid header value"),
            ("otel_exporter { endpoint a:1; trusted_certificate no; }", "(2: No such file"),
            ("otel_exporter { endpoint https://a:1; trusted_certificate weir.conf; }", "weir.conf"),
            ("otel_trace_context all;", "invalid value \"all\""),
            ("otel_span_attr a;", "invalid number of arguments in \"otel_span_attr\""),
            (
                "otel_service_name a; otel_service_name b;",
                "\"otel_service_name\" directive is duplicate",
            ),
        ],
    );
}
