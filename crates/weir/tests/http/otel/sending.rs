//! Spans go to the collector, whatever it answers.

use testkit::certificates::KeyKind;
use testkit::h2::Frame;
use testkit::{Collector, Pair, Site, built_binary, each_driver, wait_until};

use super::{site, traced};

/// A server of which each request is traced.
const PLAIN: &str =
    "otel_trace on; server { listen 127.0.0.1:%PORT0%; location / { return 204; } }";

#[test]
fn batches_are_full_or_have_waited() {
    each_driver(|driver| {
        let (collector, weir) = traced(driver, "interval 1h; batch_size 3; batch_count 3;", PLAIN);
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
        let weir =
            site(driver, collector.port(), "interval 1h; batch_size 2; batch_count 2;", PLAIN)
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
        let weir = site(driver, collector.port(), "interval 1ms;", PLAIN).start();
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
        let log = weir.stop_and_read("error.log");
        assert_eq!(log.matches("OTel export failure").count(), 1);
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
        let weir = site(driver, collector.port(), "interval 1ms;", PLAIN).start();
        weir.get("/a");
        let spans = collector.wait_for_spans(2);
        assert_eq!(spans[0], spans[1]);
        weir.wait_for_log("error.log", "spans lost so far: 0");
    });
}

#[test]
fn a_collector_that_is_away_holds_no_worker() {
    each_driver(|driver| {
        let mut site = site(driver, 1, "interval 1ms;", PLAIN);
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
            let (collector, mut weir) = traced(driver, "interval 1h;", PLAIN);
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
        let long = "x".repeat(2_000);
        let (collector, weir) = traced(
            driver,
            "interval 1h; batch_size 20;",
            &format!(
                "otel_trace on;
                 server {{ listen 127.0.0.1:%PORT0%; set $x {long}; location / {{
                     otel_span_attr long $x$x$x$x$x$x$x$x$x$x;
                     otel_span_attr bytes $arg_b;
                     return 204;
                 }} }}"
            ),
        );
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
        weir.wait_for_log("error.log", "OTel export failure: status 503");
    });
}
