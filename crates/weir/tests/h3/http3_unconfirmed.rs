//! Clients over HTTP/3 that do not confirm what they were sent, and slow ones that do.

use std::time::{Duration, Instant};

use testkit::certificates::KeyKind;
use testkit::h3::{Client, Options, StreamId};
use testkit::{Driver, PATIENCE, Pair, Site, Weir, built_binary, each_driver, pattern};

/// The whole of it has room in QUIC: its request is over at once.
const LEN: usize = 1_000_000;

fn start(driver: Driver, http: &str) -> Weir {
    Pair::own(KeyKind::P256, "localhost")
        .on(Site::new(built_binary(), driver), "a")
        .file("html/page", pattern(LEN, 1))
        .config(&format!(
            "worker_processes 1; events {{}}
             http {{
                 log_format h '$status|$body_bytes_sent';
                 access_log logs/access.log h;
                 ssl_certificate a.pem; ssl_certificate_key a.key; {http}
                 server {{ listen 127.0.0.1:%PORT0% quic; root html; }}
             }}"
        ))
        .start()
}

fn ask(weir: &Weir) -> (Client, StreamId) {
    let options = Options { window: 2 << 20, ..Options::default() };
    let mut c = Client::with(weir.port(0), &options);
    let id = c.begin_with("GET", "/page", &[]);
    c.quic().finish(id);
    weir.wait_for_log("access.log", &format!("200|{LEN}"));
    (c, id)
}

#[test]
fn a_client_that_confirms_nothing_is_not_waited_for() {
    each_driver(|driver| {
        let weir = start(driver, "send_timeout 1s;");
        let (mut c, id) = ask(&weir);
        let began = Instant::now();
        let m = "client timed out (110: Connection timed out) while sending response to client";
        while !weir.log("error.log").contains(m) {
            assert!(began.elapsed() < PATIENCE, "it is waited for");
            c.quic().ping_deaf();
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(c.response(id).reset, Some(0x101));
    });
}

/// The server leaves: without an end of such responses, the worker would be there for ever.
#[test]
fn such_a_client_keeps_no_worker() {
    each_driver(|driver| {
        let weir = start(driver, "send_timeout 1s;");
        let (mut c, _) = ask(&weir);
        let before = weir.workers();
        weir.reload();
        let began = Instant::now();
        while weir.workers().iter().any(|pid| before.contains(pid)) {
            assert!(began.elapsed() < PATIENCE, "the worker is there");
            c.quic().ping_deaf();
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

/// Takes and confirms what has come, after a pause each; says whether the response came whole.
fn take_slowly(c: &mut Client, id: StreamId, pause: Duration) -> bool {
    loop {
        std::thread::sleep(pause);
        c.quic().turn();
        c.look();
        let r = c.so_far(id).expect("a response");
        if r.is_over() {
            return r.body == pattern(LEN, 1);
        }
    }
}

#[test]
fn a_slow_client_gets_all() {
    each_driver(|driver| {
        // Long beside a pause: on a busy machine, pauses may last a second more.
        let weir = start(driver, "send_timeout 4s;");
        let (mut c, id) = ask(&weir);
        let began = Instant::now();
        assert!(take_slowly(&mut c, id, Duration::from_millis(700)));
        assert!(began.elapsed() > Duration::from_secs(4), "it was too fast to show anything");
    });
}

#[test]
fn a_client_below_the_minimum_rate_is_not_waited_for() {
    each_driver(|driver| {
        let weir = start(driver, "send_min_rate 2m 1s;");
        let (mut c, id) = ask(&weir);
        assert!(!take_slowly(&mut c, id, Duration::from_millis(700)));
        let m = "client is slower than the minimum rate while sending response to client";
        weir.wait_for_log("error.log", m);
    });
}
