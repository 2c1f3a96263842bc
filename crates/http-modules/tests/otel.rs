//! Traces of requests for OpenTelemetry collectors.

use testkit::certificates::KeyKind;
use testkit::collector::{Attribute, Call, Span};
use testkit::h2::Frame;
use testkit::{Collector, Driver, Pair, Site, built_binary, each_driver, refused, wait_until};

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

fn parent(value: &str) -> String {
    format!("Traceparent: {value}\r\nTracestate: {STATE}\r\n")
}

/// A request as an upstream sees it.
const ECHO: &str = "location /echo {
    otel_trace off;
    otel_trace_context ignore;
    add_header X-Parent $http_traceparent;
    add_header X-State $http_tracestate;
    return 204;
}";

#[test]
fn spans_have_the_attributes_of_nginx_otel() {
    each_driver(|driver| {
        let collector = Collector::start();
        let weir = site(
            driver,
            collector.port(),
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
        )
        .start();
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
        let collector = Collector::start();
        let weir = site(
            driver,
            collector.port(),
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
        )
        .start();
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
fn traces_come_from_clients_and_go_to_upstreams() {
    each_driver(|driver| {
        let collector = Collector::start();
        let locations: String = ["ignore", "extract", "inject", "propagate"]
            .iter()
            .map(|context| {
                format!(
                    "location /{context} {{
                         otel_trace_context {context};
                         proxy_pass http://127.0.0.1:%PORT0%/echo;
                     }}"
                )
            })
            .collect();
        let weir = site(
            driver,
            collector.port(),
            "interval 1ms;",
            &format!(
                "otel_trace on;
                 server {{ listen 127.0.0.1:%PORT0%; {locations} {ECHO} }}"
            ),
        )
        .start();
        let mut count = 0;
        let mut ask = |path: &str, fields: &str| {
            let r = weir.request("GET", path, fields);
            count += 1;
            let span = collector.wait_for_spans(count).pop().unwrap();
            (r.header("X-Parent").map(str::to_owned), r.header("X-State").map(str::to_owned), span)
        };
        let given = parent(PARENT);
        let own = |span: &Span| format!("00-{}-{}-01", span.trace_id, span.span_id);
        for path in ["/ignore", "/extract", "/inject", "/propagate"] {
            let (extracts, injects) = (
                matches!(path, "/extract" | "/propagate"),
                matches!(path, "/inject" | "/propagate"),
            );
            let (got, state, span) = ask(path, &given);
            let is_child = (span.trace_id == TRACE_ID, span.parent_id == PARENT_ID);
            assert_eq!(is_child, (extracts, extracts), "{path}");
            assert_eq!(span.state, if extracts { STATE } else { "" });
            let want = if injects { own(&span) } else { PARENT.to_owned() };
            assert_eq!(got, Some(want), "{path}");
            let keeps = extracts || !injects;
            assert_eq!(state.as_deref(), keeps.then_some(STATE), "{path}");

            let (got, state, span) = ask(path, "");
            assert_eq!(got, injects.then(|| own(&span)), "{path}");
            assert_eq!((state, &*span.parent_id), (None, ""), "{path}");
        }
        // A trace that is malformed, or given twice, begins anew.
        for bad in [
            parent(&PARENT.to_uppercase()),
            parent(&PARENT.replace("00-", "ff-")),
            parent(&PARENT.replace(PARENT_ID, "0000000000000000")),
            format!("{}Traceparent: {PARENT}\r\n", parent(PARENT)),
        ] {
            let (got, state, span) = ask("/propagate", &bad);
            assert_ne!(span.trace_id, TRACE_ID, "{bad}");
            assert_eq!((got, state, &*span.parent_id), (Some(own(&span)), None, ""), "{bad}");
        }
        // A later version is gone on with.
        let later = parent(&format!("{}-more", PARENT.replacen("00-", "01-", 1)));
        let (_, _, span) = ask("/propagate", &later);
        assert_eq!((&*span.trace_id, &*span.parent_id), (TRACE_ID, PARENT_ID));
    });
}

#[test]
fn variables_tell_the_ids() {
    each_driver(|driver| {
        let collector = Collector::start();
        let weir = site(
            driver,
            collector.port(),
            "interval 1ms;",
            "server {
                 listen 127.0.0.1:%PORT0%;
                 add_header X-Ids $otel_trace_id/$otel_span_id/$otel_parent_id/$otel_parent_sampled;
                 location / { return 204; }
                 location /on { otel_trace on; otel_trace_context extract; return 204; }
             }",
        )
        .start();
        let ids = |path: &str, fields: &str| {
            weir.request("GET", path, fields).header("X-Ids").unwrap().to_owned()
        };
        let got = ids("/on", &parent(PARENT));
        let span = collector.wait_for_spans(1).remove(0);
        assert_eq!(got, format!("{TRACE_ID}/{}/{PARENT_ID}/1", span.span_id));
        let got = ids("/on", "");
        let span = collector.wait_for_spans(2).remove(1);
        assert_eq!(got, format!("{}/{}//0", span.trace_id, span.span_id));
        // A request without a span has ids, too, and each its own.
        let (a, b) = (ids("/", &parent(PARENT)), ids("/", ""));
        assert!(a.ends_with("//0") && a.len() == 52 && !a.starts_with(TRACE_ID), "{a}");
        assert_ne!(a, b);
    });
}

#[test]
fn batches_are_full_or_have_waited() {
    each_driver(|driver| {
        let collector = Collector::start();
        let weir = site(
            driver,
            collector.port(),
            "interval 1h; batch_size 3; batch_count 3;",
            "otel_trace on; server { listen 127.0.0.1:%PORT0%; location / { return 204; } }",
        )
        .start();
        for _ in 0..7 {
            weir.get("/");
        }
        let calls = collector.wait_for_calls(2);
        let sizes: Vec<usize> = calls.iter().map(|call| call.spans.len()).collect();
        assert_eq!(sizes, [3, 3]);
        // The one that is left goes when the worker leaves.
        let workers = weir.workers();
        weir.reload();
        assert_eq!(collector.wait_for_spans(7).len(), 7);
        weir.wait_until_left(&workers);
    });
}

#[test]
fn what_a_slow_collector_leaves_no_room_for_is_dropped() {
    each_driver(|driver| {
        let collector = Collector::answering(|_| None);
        let weir = site(
            driver,
            collector.port(),
            "interval 1h; batch_size 2; batch_count 2;",
            "otel_trace on; server { listen 127.0.0.1:%PORT0%; location / { return 204; } }",
        )
        .start();
        for _ in 0..2 {
            weir.get("/");
        }
        // The first batch is on its way, and the second one waits.
        collector.wait_for_calls(1);
        for _ in 0..5 {
            assert_eq!(weir.get("/").status, 204);
        }
        let line = weir.wait_for_log("error.log", "OTel dropped records: 1");
        assert!(line.contains("[warn]"), "{line}");
        assert_eq!(weir.error_log().matches("OTel dropped").count(), 1);
        assert_eq!(collector.spans().len(), 2);
        weir.signal("QUIT");
    });
}

#[test]
fn a_collector_that_fails_for_a_while_gets_the_spans_later() {
    each_driver(|driver| {
        let collector = Collector::scripted(|peer, stream, call| {
            match call {
                1 => peer.reply(stream, &Collector::refusal(14, "not %66it yet")),
                // The connection is lost.
                2 => return false,
                3 => {
                    peer.send(&[Frame::goaway(stream, 0)]);
                    peer.reply(stream, &Collector::taken());
                }
                _ => peer.reply(stream, &Collector::taken()),
            }
            true
        });
        let weir = site(
            driver,
            collector.port(),
            "interval 1ms;",
            "otel_trace on; server { listen 127.0.0.1:%PORT0%; location / { return 204; } }",
        )
        .start();
        weir.get("/a");
        let line = weir.wait_for_log("error.log", "OTel export failure");
        assert!(line.contains("[error]") && line.contains("grpc-status 14: not fit yet"), "{line}");
        assert_eq!(collector.wait_for_calls(3).len(), 3);
        weir.get("/b");
        let calls = collector.wait_for_calls(4);
        let targets: Vec<_> =
            calls.iter().map(|call| call.spans[0].text("http.target").unwrap()).collect();
        assert_eq!(targets, ["/a", "/a", "/a", "/b"]);
        // A connection that is going away is left.
        assert_ne!(calls[2].connection, calls[3].connection);
        assert_eq!(weir.error_log().matches("OTel export failure").count(), 1);
    });
}

#[test]
fn what_a_collector_refuses_is_not_sent_again() {
    each_driver(|driver| {
        let collector = Collector::answering(|call| {
            Some(match call {
                // Nobody says when it recovers.
                1 => Collector::refusal(8, "exhausted"),
                2 => {
                    Collector::reply(b"\x0a\x0b\x08\x01\x12\x07too old").trailer("grpc-status", "0")
                }
                _ => Collector::taken(),
            })
        });
        let weir = site(
            driver,
            collector.port(),
            "interval 1ms;",
            "server {
                 listen 127.0.0.1:%PORT0%;
                 location / { otel_trace on; return 204; }
                 location = /metrics { prometheus; }
                 location = /status { stub_status json; }
             }",
        )
        .start();
        weir.get("/1");
        let line = weir.wait_for_log("error.log", "OTel export failure");
        assert!(line.contains("grpc-status 8: exhausted"), "{line}");
        assert!(line.ends_with("spans lost so far: 1"), "{line}");
        weir.get("/2");
        let line = weir.wait_for_log("error.log", "OTel collector rejected");
        assert!(line.contains("[warn]") && line.contains("rejected 1 spans: too old"), "{line}");
        weir.get("/3");
        let spans = collector.wait_for_spans(3);
        let targets: Vec<_> = spans.iter().map(|s| s.text("http.target").unwrap()).collect();
        assert_eq!(targets, ["/1", "/2", "/3"]);
        wait_until("the last answer", || {
            let text = weir.get("/metrics").text();
            text.contains("\nweir_otel_spans_exported_total 1\n")
                && text.contains("\nweir_otel_spans_failed_total 2\n")
                && text.contains("\nweir_otel_spans_dropped_total 0\n")
        });
        let status = weir.get("/status").text();
        assert!(
            status.contains("\"otel\":{\"exported\":1,\"dropped\":0,\"failed\":2}"),
            "{status}"
        );
    });
}

#[test]
fn resource_exhausted_waits_as_long_as_the_collector_says() {
    each_driver(|driver| {
        let collector = Collector::answering(|call| {
            Some(match call {
                // RetryInfo without a delay.
                1 => {
                    let details =
                        "CAgaLAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIA";
                    let mut reply = Collector::refusal(8, "busy");
                    reply.fields.push(("grpc-status-details-bin".to_owned(), details.to_owned()));
                    reply
                }
                _ => Collector::taken(),
            })
        });
        let weir = site(
            driver,
            collector.port(),
            "interval 1ms;",
            "otel_trace on; server { listen 127.0.0.1:%PORT0%; location / { return 204; } }",
        )
        .start();
        weir.get("/a");
        let spans = collector.wait_for_spans(2);
        assert_eq!(spans[0], spans[1]);
        assert!(weir.error_log().contains("spans lost so far: 0"));
    });
}

#[test]
fn a_collector_that_is_away_holds_no_worker() {
    each_driver(|driver| {
        let mut site = site(
            driver,
            1,
            "interval 1ms;",
            "otel_trace on; server { listen 127.0.0.1:%PORT0%; location / { return 204; } }",
        );
        let away = site.port(1);
        let text = std::fs::read_to_string(site.prefix().join("conf/weir.conf")).unwrap();
        let text = text.replace("127.0.0.1:1;", &format!("127.0.0.1:{away};"));
        std::fs::write(site.prefix().join("conf/weir.conf"), text).unwrap();
        let mut weir = site.start();
        weir.get("/");
        let line = weir.wait_for_log("error.log", "OTel export failure");
        assert!(line.contains("connect() failed (111: Connection refused)"), "{line}");
        weir.get("/");
        weir.signal("QUIT");
        assert!(weir.wait_for_end().success());
    });
}

#[test]
fn spans_of_the_last_requests_are_sent_before_the_worker_ends() {
    for signal in ["QUIT", "TERM"] {
        each_driver(|driver| {
            let collector = Collector::start();
            let mut weir = site(
                driver,
                collector.port(),
                "interval 1h;",
                "otel_trace on; server { listen 127.0.0.1:%PORT0%; location / { return 204; } }",
            )
            .start();
            for _ in 0..3 {
                weir.get("/");
            }
            weir.signal(signal);
            assert!(weir.wait_for_end().success());
            assert_eq!(collector.spans().len(), 3, "{signal}");
        });
    }
}

#[test]
fn a_large_batch_passes_small_windows() {
    each_driver(|driver| {
        let collector = Collector::start();
        let long = "x".repeat(2_000);
        let weir = site(
            driver,
            collector.port(),
            "interval 1h; batch_size 20;",
            &format!(
                "otel_trace on;
                 server {{ listen 127.0.0.1:%PORT0%; set $x {long}; location / {{
                     otel_span_attr long $x$x$x$x$x$x$x$x$x$x;
                     otel_span_attr bytes $arg_b;
                     return 204;
                 }} }}"
            ),
        )
        .start();
        for _ in 0..20 {
            let got = weir.raw(b"GET /?b=\xff HTTP/1.0\r\nUser-Agent: \xe4\r\n\r\n");
            assert!(got.starts_with(b"HTTP/1.1 204"));
        }
        let spans = collector.wait_for_spans(20);
        assert_eq!(collector.calls().len(), 1);
        for span in spans {
            assert_eq!(span.text("long"), Some(&*long.repeat(10)));
            // Other bytes than UTF-8 have a collector refuse all spans of a batch.
            assert_eq!(span.text("bytes"), Some("\u{fffd}"));
            assert_eq!(span.text("http.user_agent"), Some("\u{fffd}"));
        }
    });
}

#[test]
fn collectors_behind_tls_are_verified() {
    each_driver(|driver| {
        let collector = Collector::start();
        for (trusted, is_good) in [("a.pem", true), ("b.pem", false)] {
            let text = format!(
                "worker_processes 1; events {{ }}
                 http {{
                     otel_exporter {{
                         endpoint https://localhost:%PORT1%;
                         trusted_certificate {trusted};
                         interval 1ms;
                     }}
                     server {{ listen 127.0.0.1:%PORT0%; otel_trace on; location / {{ return 204; }} }}
                     server {{
                         listen 127.0.0.1:%PORT1% ssl; http2 on;
                         ssl_certificate a.pem; ssl_certificate_key a.key;
                         location / {{ grpc_pass 127.0.0.1:{}; }}
                     }}
                 }}",
                collector.port()
            );
            let site = Site::new(built_binary(), driver);
            let site = Pair::own(KeyKind::P256, "localhost").on(site, "a");
            let site = Pair::own(KeyKind::P256, "localhost").on(site, "b");
            let weir = site.config(&text).start();
            let before = collector.spans().len();
            weir.get("/");
            if is_good {
                assert_eq!(collector.wait_for_spans(before + 1).len(), before + 1);
                let call = collector.calls().pop().unwrap();
                assert_eq!(call.field(":method"), Some("POST"));
            } else {
                let line = weir.wait_for_log("error.log", "OTel export failure");
                assert!(line.contains("certificate verify error"), "{line}");
                assert_eq!(collector.spans().len(), before);
            }
        }
    });
}

#[test]
fn every_protocol_of_clients_is_traced() {
    each_driver(|driver| {
        let collector = Collector::start();
        let site = site(
            driver,
            collector.port(),
            "interval 1ms;",
            "otel_trace on; otel_trace_context propagate;
             ssl_certificate a.pem; ssl_certificate_key a.key;
             server {
                 listen 127.0.0.1:%PORT0%;
                 listen 127.0.0.1:%PORT1% ssl;
                 listen 127.0.0.1:%PORT1% quic;
                 http2 on;
                 location / { return 200 ok; }
             }",
        );
        let weir = Pair::own(KeyKind::P256, "localhost").on(site, "a").start();
        let fields = &[("traceparent", PARENT), ("tracestate", STATE)];
        let mut h2 = testkit::h2::Client::tls(weir.port(1));
        assert_eq!(h2.request("GET", "/2", fields, b"").status, 200);
        let mut h3 = testkit::h3::Client::connect(weir.port(1), "localhost");
        assert_eq!(h3.request("GET", "/3", fields, b"").status, 200);
        assert!(weir.raw("GET /9\r\n").ends_with(b"ok"));
        let spans = collector.wait_for_spans(3);
        for (span, version) in spans.iter().zip(["2.0", "3.0"]) {
            assert_eq!(span.text("http.flavor"), Some(version));
            assert_eq!(span.text("http.scheme"), Some("https"));
            assert!(span.number("http.response_content_length") >= Some(2));
            assert_eq!((&*span.trace_id, &*span.parent_id), (TRACE_ID, PARENT_ID));
            assert_eq!(span.state, STATE);
        }
        assert_eq!(spans[2].name, "/");
    });
}

#[test]
fn every_protocol_of_upstreams_gets_the_trace() {
    use testkit::h2::{Reply, origin};
    each_driver(|driver| {
        let collector = Collector::start();
        let behind = origin(|request, _| {
            let parent = request.field("traceparent").unwrap_or("none").to_owned();
            Reply::of("").with("x-parent", &parent).trailer("grpc-status", "0")
        });
        let port = behind.port;
        let weir = site(
            driver,
            collector.port(),
            "interval 1ms;",
            &format!(
                "otel_trace on; otel_trace_context inject;
                 server {{
                     listen 127.0.0.1:%PORT0%;
                     http2 on;
                     location /grpc {{ grpc_pass 127.0.0.1:{port}; }}
                     location /http2 {{ proxy_http_version 2; proxy_pass http://127.0.0.1:{port}; }}
                 }}"
            ),
        )
        .start();
        let mut client = testkit::h2::Client::tcp(weir.port(0));
        for (n, path) in ["/grpc", "/http2"].into_iter().enumerate() {
            let got = client.request("GET", path, &[], b"");
            let span = collector.wait_for_spans(n + 1).remove(n);
            let want = format!("00-{}-{}-01", span.trace_id, span.span_id);
            assert_eq!(got.header("x-parent"), Some(&*want), "{path}");
        }
    });
}

#[test]
fn gateways_get_the_trace() {
    each_driver(|driver| {
        let collector = Collector::start();
        let (sender, got) = std::sync::mpsc::channel();
        let sender = std::sync::Mutex::new(sender);
        let server = testkit::Scripted::start(move |mut stream, _| {
            // The value has 55 bytes, and two belong to it or follow it in each protocol.
            let name = b"HTTP_TRACEPARENT";
            let whole = |all: &[u8]| {
                let at = all.windows(name.len()).position(|part| part == name);
                at.is_some_and(|at| all.len() >= at + name.len() + 57)
            };
            if let Some(all) = testkit::read_until(&mut stream, whole) {
                let text = String::from_utf8_lossy(&all).into_owned();
                sender.lock().unwrap().send(text).unwrap();
            }
        });
        let locations: String = ["fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("location /{name} {{ {name}_pass 127.0.0.1:{}; }}\n", server.port))
            .collect();
        let weir = site(
            driver,
            collector.port(),
            "interval 1ms;",
            &format!(
                "otel_trace on; otel_trace_context inject;
                 server {{ listen 127.0.0.1:%PORT0%; {locations} }}"
            ),
        )
        .start();
        for (n, path) in ["/fastcgi", "/uwsgi", "/scgi"].into_iter().enumerate() {
            assert_eq!(weir.get(path).status, 502, "{path}");
            let span = collector.wait_for_spans(n + 1).remove(n);
            assert_eq!(span.status, 2);
            let want = format!("00-{}-{}-01", span.trace_id, span.span_id);
            let request = got.recv_timeout(testkit::PATIENCE).unwrap();
            assert!(request.contains(&want), "{path}: {want} in {request:?}");
        }
    });
}

#[test]
fn subrequests_are_parts_of_their_request() {
    each_driver(|driver| {
        let collector = Collector::start();
        let weir = site(
            driver,
            collector.port(),
            "interval 1ms;",
            "log_subrequest on;
             otel_trace on; otel_trace_context inject;
             server {
                 listen 127.0.0.1:%PORT0%;
                 location / { auth_request /check; auth_request_set $got $sent_http_x_parent;
                              add_header X-Got $got; add_header X-Id $otel_span_id; root html; }
                 location /check { proxy_pass http://127.0.0.1:%PORT1%; }
             }
             server {
                 listen 127.0.0.1:%PORT1%;
                 otel_trace off;
                 otel_trace_context ignore;
                 location / { add_header X-Parent $http_traceparent; return 204; }
             }",
        )
        .file("html/a", "a")
        .start();
        let r = weir.get("/a");
        assert_eq!(r.status, 200);
        weir.get("/a");
        let spans = collector.wait_for_spans(2);
        assert_eq!(spans.len(), 2);
        let want = format!("00-{}-{}-01", spans[0].trace_id, spans[0].span_id);
        assert_eq!(r.header("X-Got"), Some(&*want));
        assert_eq!(r.header("X-Id"), Some(&*spans[0].span_id));
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
fn otlp_over_http_where_the_endpoint_has_a_path() {
    each_driver(|driver| {
        let (sender, got) = std::sync::mpsc::channel();
        let sender = std::sync::Mutex::new(sender);
        let server = testkit::Scripted::start(move |mut stream, number| {
            use std::io::Write;
            let length = |all: &[u8]| {
                let text = String::from_utf8_lossy(all).to_ascii_lowercase();
                let head = text.find("\r\n\r\n")? + 4;
                let length = text.split("content-length: ").nth(1)?.split("\r\n").next()?;
                Some((
                    all.windows(4).position(|w| w == b"\r\n\r\n")? + 4,
                    head,
                    length.parse().ok()?,
                ))
            };
            let whole = |all: &[u8]| {
                length(all).is_some_and(|(at, _, len): (usize, usize, usize)| all.len() == at + len)
            };
            let Some(all) = testkit::read_until(&mut stream, whole) else { return };
            let (at, ..) = length(&all).unwrap();
            let head = String::from_utf8_lossy(&all[..at]).into_owned();
            let call = testkit::collector::read_request(&all[at..]);
            sender.lock().unwrap().send((head, call)).unwrap();
            let status = if number == 1 { "503 Later" } else { "200 OK" };
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        });
        let text = format!(
            "worker_processes 1; events {{ }}
             http {{
                 otel_exporter {{
                     endpoint http://127.0.0.1:{}/v1/traces;
                     interval 1ms;
                     header x-key k;
                 }}
                 otel_trace on;
                 server {{ listen 127.0.0.1:%PORT0%; location / {{ return 204; }} }}
             }}",
            server.port
        );
        let weir = Site::new(built_binary(), driver).config(&text).start();
        weir.get("/a");
        for _ in 0..2 {
            let (head, call) = got.recv_timeout(testkit::PATIENCE).unwrap();
            assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
            assert!(head.contains("Content-Type: application/x-protobuf\r\n"), "{head}");
            assert!(head.contains("x-key: k\r\n"), "{head}");
            assert_eq!(call.spans[0].text("http.target"), Some("/a"));
        }
        assert!(weir.error_log().contains("OTel export failure: status 503"));
    });
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
