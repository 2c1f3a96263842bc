//! The flight recorder: slow and failed requests, and no others.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use testkit::{
    Json, Scripted, Site, Weir, built_binary, each_driver, listener, read_until, wait_until,
};

/// A server that answers each request after a time, which may change.
fn backend() -> (Scripted, Arc<AtomicU64>) {
    let delay_ms = Arc::new(AtomicU64::new(0));
    let delay = delay_ms.clone();
    let server = Scripted::start(move |mut stream, _| {
        let ends = |bytes: &[u8]| bytes.ends_with(b"\r\n\r\n");
        let Some(head) = read_until(&mut stream, ends) else { return };
        std::thread::sleep(Duration::from_millis(delay.load(Ordering::Relaxed)));
        let length = if head.starts_with(b"GET /cut") { 100 } else { 2 };
        let answer = format!("HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\nok");
        let _ = stream.write_all(answer.as_bytes());
    });
    (server, delay_ms)
}

fn config(good: u16, refuses: u16) -> String {
    format!(
        "worker_processes 2; events {{}} http {{
         slow_request_time 1h;
         upstream app {{ zone app 64k; server 127.0.0.1:{good}; }}
         server {{ listen 127.0.0.1:%PORT0%; server_name main;
             location / {{ proxy_pass http://app; }}
             location /slow {{ slow_request_time 0; proxy_pass http://app; }}
             location /refused {{ proxy_pass http://127.0.0.1:{refuses}; }}
             location /closed {{ return 503; }}
             location /unseen {{ slow_request_time off; proxy_pass http://127.0.0.1:{refuses}; }}
             location /waits {{ slow_request_time 0; auth_request /auth; proxy_pass http://app; }}
             location = /auth {{ internal; slow_request_time 0; proxy_pass http://app/slow; }}
             location /api {{ api; }} }} }}"
    )
}

fn records(weir: &Weir, args: &str) -> Vec<Json> {
    match Json::parse(&weir.get(&format!("/api/9/weir/slow_requests{args}")).text()) {
        Json::List(records) => records,
        other => panic!("{other:?}"),
    }
}

/// The records, once there are so many: a request is recorded when its client has the answer.
fn all(weir: &Weir, count: usize) -> Vec<Json> {
    wait_until("the records", || records(weir, "").len() >= count);
    records(weir, "")
}

fn text<'a>(record: &'a Json, path: &str) -> &'a str {
    match record.at(path) {
        Json::Text(text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn slow_and_failed_requests_are_recorded() {
    each_driver(|driver| {
        let ((app, delay_ms), (refuses, dead)) = (backend(), listener());
        drop(refuses);
        let site = Site::new(built_binary(), driver).config(&config(app.port, dead));
        let weir = site.start();
        assert!(records(&weir, "").is_empty());
        for (path, status) in [("/fast", 200), ("/closed", 503), ("/unseen", 502)] {
            assert_eq!(weir.get(path).status, status, "{path}");
        }
        assert_eq!(weir.get("/refused?a=1").status, 502);
        all(&weir, 1);
        delay_ms.store(300, Ordering::Relaxed);
        assert_eq!(weir.get("/slow").status, 200);
        let all = all(&weir, 2);
        assert_eq!(all.len(), 2, "{all:?}");
        let (slow, failed) = (&all[0], &all[1]);
        assert_eq!((text(failed, "uri"), failed.number("status")), ("/refused?a=1", 502));
        assert_eq!((text(failed, "location"), text(failed, "server")), ("/refused", "main"));
        assert_eq!(*failed.at("failed"), Json::Bool(true));
        let server = format!("127.0.0.1:{dead}");
        assert_eq!(text(failed, "tries.0.server"), server);
        assert_eq!((text(slow, "uri"), slow.at("failed")), ("/slow", &Json::Bool(false)));
        assert_eq!(text(slow, "client"), "127.0.0.1");
        assert!(slow.number("tries.0.header_ms") >= 290, "{slow:?}");
        let times = ["total", "content"].map(|name| slow.number(&format!("times_us.{name}")));
        assert!(times[0] >= times[1] && times[1] >= 290_000, "{slow:?}");
        // The list goes on over a reload.
        weir.reload();
        assert_eq!(records(&weir, "?since=1").len(), 1);
        assert_eq!(records(&weir, "?last=1&fields=id")[0].names(), ["id"]);
        assert_eq!(records(&weir, "?since=2").len(), 0);
    });
}

#[test]
fn the_time_of_a_subrequest_is_told_apart() {
    each_driver(|driver| {
        let (app, delay_ms) = backend();
        let weir = Site::new(built_binary(), driver).config(&config(app.port, 1)).start();
        delay_ms.store(250, Ordering::Relaxed);
        assert_eq!(weir.get("/waits").status, 200);
        let all = all(&weir, 2);
        let whole = all.iter().find(|record| text(record, "uri") == "/waits").unwrap();
        assert!(whole.number("times_us.access") >= 240_000, "{whole:?}");
        assert!(whole.number("times_us.content") >= 240_000, "{whole:?}");
        let inner = all.iter().find(|record| text(record, "uri") == "/auth").unwrap();
        assert!(inner.number("tries.0.header_ms") >= 240, "{inner:?}");
    });
}

#[test]
fn responses_that_break_off_have_failed() {
    each_driver(|driver| {
        let (app, _) = backend();
        let weir = Site::new(built_binary(), driver).config(&config(app.port, 1)).start();
        let _ = weir.raw("GET /cut HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let all = all(&weir, 1);
        assert_eq!((all.len(), all[0].number("status")), (1, 200));
        assert_eq!(*all[0].at("failed"), Json::Bool(true));
    });
}

#[test]
fn the_setting_is_checked() {
    for (text, message) in [
        ("slow_request_time 1x;", "\"slow_request_time\" directive invalid value"),
        (
            "slow_request_time 1s; slow_request_time 2s;",
            "\"slow_request_time\" directive is duplicate",
        ),
    ] {
        let http = format!("{text} server {{ listen 127.0.0.1:%PORT0%; }}");
        let site = Site::new(built_binary(), testkit::Driver::usual()).http(&http);
        site.is_refused(message);
    }
}
