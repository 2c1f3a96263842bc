//! Each try at an upstream server has a span of its own.

use testkit::{each_driver, wait_until};

use super::traced;

#[test]
fn each_try_has_a_span_with_its_outcome() {
    each_driver(|driver| {
        let (collector, weir) = traced(
            driver,
            "interval 1ms;",
            "upstream app { server 127.0.0.1:%PORT1%; server 127.0.0.1:%PORT0% backup; }
             server {
                 listen 127.0.0.1:%PORT0%;
                 location /up/ok { return 200 ok; }
                 location /up/bad { return 404; }
                 location / {
                     otel_trace on;
                     otel_upstream_spans on;
                     proxy_pass http://app/up/;
                 }
                 location /alone { otel_trace on; otel_upstream_spans on; return 204; }
                 location /off { otel_trace on; proxy_pass http://app/up/ok; }
             }",
        );
        assert_eq!(weir.get("/ok").status, 200);
        let spans = collector.wait_for_spans(3);
        let [request, refused, taken] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((request.kind, &*request.name, request.status), (2, "/", 0));
        for span in [refused, taken] {
            assert_eq!((span.kind, &*span.name), (3, "GET"));
            assert_eq!(span.trace_id, request.trace_id);
            assert_eq!(span.parent_id, request.span_id);
            assert_ne!(span.span_id, request.span_id);
            assert!(span.start_ns <= span.end_ns && span.start_ns > 1_600_000_000_000_000_000);
            assert_eq!(span.text("server.address"), Some("127.0.0.1"));
            assert_eq!(span.text("http.request.method"), Some("GET"));
            assert_eq!(span.text("url.scheme"), Some("http"));
        }
        assert_ne!(refused.span_id, taken.span_id);
        assert_eq!((refused.status, refused.text("error.type")), (2, Some("_OTHER")));
        assert_eq!(refused.number("http.response.status_code"), None);
        assert_eq!(refused.number("server.port"), Some(weir.port(1).into()));
        assert_eq!(refused.number("http.request.resend_count"), None);
        assert_eq!((taken.status, taken.text("error.type")), (0, None));
        assert_eq!(taken.number("http.response.status_code"), Some(200));
        assert_eq!(taken.number("server.port"), Some(weir.port(0).into()));
        assert_eq!(taken.number("http.request.resend_count"), Some(1));

        // The server that refused is left out for a while.
        assert_eq!(weir.get("/bad").status, 404);
        let spans = collector.wait_for_spans(5);
        assert_eq!((spans[4].status, spans[4].text("error.type")), (2, Some("404")));
        assert_eq!(spans[4].number("http.response.status_code"), Some(404));

        // No tries, and none that are wanted.
        assert_eq!(weir.get("/alone").status, 204);
        assert_eq!(weir.get("/off").status, 200);
        assert_eq!(weir.get("/alone").status, 204);
        wait_until("all spans", || collector.spans().len() >= 8);
        let names: Vec<String> = collector.spans().into_iter().map(|span| span.name).collect();
        assert_eq!(names[5..], ["/alone", "/off", "/alone"]);
    });
}
