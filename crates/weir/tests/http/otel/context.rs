//! Traces go on from clients to upstreams.

use testkit::certificates::KeyKind;
use testkit::{Collector, Pair, each_driver};

use super::{PARENT, PARENT_ID, STATE, TRACE_ID, parent, site, traced};

/// A request as an upstream sees it.
const ECHO: &str = "location /echo {
    otel_trace off;
    otel_trace_context ignore;
    add_header X-Parent $http_traceparent;
    add_header X-State $http_tracestate;
    return 204;
}";

#[test]
fn traces_come_from_clients_and_go_to_upstreams() {
    each_driver(|driver| {
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
        let (collector, weir) = traced(
            driver,
            "interval 1ms;",
            &format!(
                "otel_trace on;
                 server {{ listen 127.0.0.1:%PORT0%; {locations} {ECHO} }}"
            ),
        );
        let mut count = 0;
        let mut ask = |path: &str, fields: &str| {
            let r = weir.request("GET", path, fields);
            count += 1;
            let span = collector.wait_for_spans(count).pop().unwrap();
            (r.header("X-Parent").map(str::to_owned), r.header("X-State").map(str::to_owned), span)
        };
        let given = parent(PARENT);
        for path in ["/ignore", "/extract", "/inject", "/propagate"] {
            let (extracts, injects) = (
                matches!(path, "/extract" | "/propagate"),
                matches!(path, "/inject" | "/propagate"),
            );
            let (got, state, span) = ask(path, &given);
            let is_child = (span.trace_id == TRACE_ID, span.parent_id == PARENT_ID);
            assert_eq!(is_child, (extracts, extracts), "{path}");
            assert_eq!(span.state, if extracts { STATE } else { "" });
            let want = if injects { span.traceparent() } else { PARENT.to_owned() };
            assert_eq!(got, Some(want), "{path}");
            let keeps = extracts || !injects;
            assert_eq!(state.as_deref(), keeps.then_some(STATE), "{path}");

            let (got, state, span) = ask(path, "");
            assert_eq!(got, injects.then(|| span.traceparent()), "{path}");
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
            assert_eq!(
                (got, state, &*span.parent_id),
                (Some(span.traceparent()), None, ""),
                "{bad}"
            );
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
        let (collector, weir) = traced(
            driver,
            "interval 1ms;",
            "server {
                 listen 127.0.0.1:%PORT0%;
                 add_header X-Ids $otel_trace_id/$otel_span_id/$otel_parent_id/$otel_parent_sampled;
                 location / { return 204; }
                 location /on { otel_trace on; otel_trace_context extract; return 204; }
             }",
        );
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
        let behind = origin(|request, _| {
            let parent = request.field("traceparent").unwrap_or("none").to_owned();
            Reply::of("").with("x-parent", &parent).trailer("grpc-status", "0")
        });
        let port = behind.port;
        let (collector, weir) = traced(
            driver,
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
        );
        let mut client = testkit::h2::Client::tcp(weir.port(0));
        for (n, path) in ["/grpc", "/http2"].into_iter().enumerate() {
            let got = client.request("GET", path, &[], b"");
            let span = collector.wait_for_spans(n + 1).remove(n);
            let want = span.traceparent();
            assert_eq!(got.header("x-parent"), Some(&*want), "{path}");
        }
    });
}

#[test]
fn gateways_get_the_trace() {
    each_driver(|driver| {
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
        let (collector, weir) = traced(
            driver,
            "interval 1ms;",
            &format!(
                "otel_trace on; otel_trace_context inject;
                 server {{ listen 127.0.0.1:%PORT0%; {locations} }}"
            ),
        );
        for (n, path) in ["/fastcgi", "/uwsgi", "/scgi"].into_iter().enumerate() {
            assert_eq!(weir.get(path).status, 502, "{path}");
            let span = collector.wait_for_spans(n + 1).remove(n);
            assert_eq!(span.status, 2);
            let want = span.traceparent();
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
        let want = spans[0].traceparent();
        assert_eq!(r.header("X-Got"), Some(&*want));
        assert_eq!(r.header("X-Id"), Some(&*spans[0].span_id));
    });
}
