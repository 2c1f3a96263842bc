//! Lines of logs go to the collector.

use testkit::collector::LogRecord;
use testkit::{Collector, Driver, Site, built_binary, each_driver, refused, wait_for, wait_until};

fn site(driver: Driver, collector: u16, exporter: &str) -> Site {
    Site::new(built_binary(), driver).config(&format!(
        "worker_processes 1; error_log logs/error.log notice; error_log otel:main warn;
         events {{}}
         http {{
             log_format short '$request_method $uri $status';
             otel_exporter {{ endpoint 127.0.0.1:{collector}; {exporter} }}
             server {{
                 listen 127.0.0.1:%PORT0%; server_name site;
                 root html;
                 access_log otel:web short;
                 access_log logs/access.log;
                 location / {{ return 200 x; }}
                 location /none {{ error_log otel:; }}
                 location /traced {{ otel_trace on; return 204; }}
                 location = /metrics {{ access_log off; prometheus; }}
             }}
         }}
         stream {{
             log_format one '$protocol $status';
             server {{ listen 127.0.0.1:%PORT1%; return y; access_log otel:tcp one; }}
         }}"
    ))
}

fn wait_for_record(collector: &Collector, body: &str) -> LogRecord {
    wait_for(body, || collector.records().into_iter().find(|r| r.body.contains(body)))
}

#[test]
fn lines_of_all_logs_are_records() {
    each_driver(|driver| {
        let collector = Collector::start();
        let weir = site(driver, collector.port(), "interval 1ms;").start();
        weir.get("/a?b");
        let record = wait_for_record(&collector, "GET /a");
        assert_eq!((&*record.body, record.severity), ("GET /a 200", 0));
        assert_eq!((record.text("weir.log"), record.attributes.len()), (Some("web"), 1));
        assert_eq!((&*record.trace_id, &*record.span_id), ("", ""));
        assert!(record.time_ns > 1_600_000_000_000_000_000);

        weir.get("/traced");
        let record = wait_for_record(&collector, "/traced");
        let span = collector.wait_for_spans(1).remove(0);
        assert_eq!((&record.trace_id, &record.span_id), (&span.trace_id, &span.span_id));

        weir.get("/none/x");
        let record = wait_for_record(&collector, "open() ");
        assert!(record.body.ends_with("/x\" failed (2: No such file or directory)"), "{record:?}");
        assert_eq!((record.severity, &*record.level), (17, "error"));
        assert_eq!(record.text("weir.log"), Some("error"));
        assert_eq!(record.text("request"), Some("GET /none/x HTTP/1.1"));
        assert_eq!(
            (record.text("client"), record.text("server")),
            (Some("127.0.0.1"), Some("site"))
        );
        assert_eq!(record.number("pid"), Some(weir.workers()[0].into()));
        assert!(record.number("connection").is_some());

        let mut conn = testkit::Conn::tcp(weir.port(1));
        assert_eq!(conn.read_to_end(), b"y");
        let record = wait_for_record(&collector, "TCP ");
        assert_eq!((&*record.body, record.text("weir.log")), ("TCP 200", Some("tcp")));

        let call = collector.calls().into_iter().find(|call| !call.records.is_empty()).unwrap();
        let path = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
        assert_eq!((call.field(":path"), &*call.scope), (Some(path), "weir"));
        assert!(call.resource.iter().any(|(name, _)| name == "host.name"));
        // The next worker sends the lines after a reload, and the last ones when it leaves.
        let old = weir.workers();
        weir.reload();
        weir.wait_until_left(&old);
        weir.get("/after");
        wait_for_record(&collector, "GET /after");
        let text = weir.get("/metrics").text();
        assert!(text.contains("\nweir_otel_logs_dropped_total 0\n"), "{text}");
    });
}

#[test]
fn lines_beyond_the_batches_are_dropped_and_counted() {
    each_driver(|driver| {
        // It never answers.
        let collector = Collector::answering(|_| None);
        let weir =
            site(driver, collector.port(), "interval 1h; batch_size 2; batch_count 2;").start();
        for n in 0..20 {
            assert_eq!(weir.get(&format!("/{n}")).status, 200);
        }
        weir.wait_for_log("error.log", "OTel dropped log records: 1");
        // Two batches of two; the warning about the first dropped line had no room, either.
        wait_until("all is counted", || {
            let text = weir.get("/metrics").text();
            let dropped =
                text.lines().find_map(|l| l.strip_prefix("weir_otel_logs_dropped_total "));
            dropped == Some("16")
        });
        weir.wait_for_count("access.log", " 200 ", 20);
        weir.signal("QUIT");
    });
}

#[test]
fn refused_settings() {
    refused(
        "* server { }",
        &[
            ("access_log otel:web;", "\"http\" has no \"otel_exporter\" block"),
            ("error_log otel:;", "\"http\" has no \"otel_exporter\" block"),
            (
                "otel_exporter { endpoint http://a:1/spans; } access_log otel:;",
                "path that does not end in \"/traces\"",
            ),
            ("otel_exporter { endpoint a:1; } access_log otel:a/b;", "invalid name of a log in"),
            (
                "otel_exporter { endpoint a:1; } access_log otel: combined buffer=1k;",
                "logs to a collector cannot be buffered",
            ),
            ("otel_exporter { endpoint a:1; } error_log otel: debug;", "has no debug lines"),
            ("otel_exporter { endpoint a:1; } error_log otel: json;", "has no format"),
            ("otel_exporter { endpoint a:1; } error_log otel: rate=1/s;", "has no rate"),
        ],
    );
}
