//! `limit_req` and `limit_conn`: counts shared by workers, kept by reloads, given back by who
//! leaves.

use std::time::Duration;

use testkit::{Conn, Driver, Site, Weir, built_binary, each_driver, refused, wait_for};

const LIMITS: &str = "
    limit_req_zone $arg_k zone=slow:1m rate=1r/m;
    limit_req_zone $arg_k zone=pair:1m rate=2r/m;
    limit_req_zone $arg_d zone=delay:1m rate=2r/s;
    limit_conn_zone $arg_c zone=conn:1m;
    limit_conn_zone $arg_e zone=other:1m;
    add_header X-Req $limit_req_status always;
    add_header X-Conn $limit_conn_status always;
    server {
        listen 127.0.0.1:%PORT0%;
        location / { limit_req zone=slow; }
        location /burst { alias html; limit_req zone=slow burst=3 nodelay; }
        location /both { alias html; limit_req zone=slow burst=5 nodelay; limit_req zone=pair; }
        location /dry { alias html; limit_req zone=slow; limit_req_dry_run on; }
        location /status {
            alias html;
            limit_req zone=slow;
            limit_req_status 429;
            limit_req_log_level info;
        }
        location /held { alias html; limit_conn conn 1; }
        location /delayed { alias html; limit_req zone=delay burst=100; }
        location /two { alias html; limit_conn other 5; limit_conn conn 1; }
        location /conndry { alias html; limit_conn conn 1; limit_conn_dry_run on; }
        location /moved/ { alias html/; limit_conn conn 1; index a.txt; }
    }";

fn config(workers: usize, limits: &str) -> String {
    format!("worker_processes {workers};\nevents {{}}\nhttp {{\n{limits}\n}}\n")
}

fn site(driver: Driver, workers: usize) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/a.txt", b"hello")
        .file("html/big.bin", vec![b'x'; 16 << 20])
        .allow("exited on signal 9")
        .config(&config(workers, LIMITS))
        .start()
}

fn status(weir: &Weir, path: &str) -> u16 {
    weir.get(path).status
}

#[test]
fn rates() {
    each_driver(|driver| {
        let weir = site(driver, 1);
        assert_eq!(weir.get("/a.txt?k=1").header("x-req"), Some("PASSED"));
        let refused = weir.get("/a.txt?k=1");
        assert_eq!((refused.status, refused.header("x-req")), (503, Some("REJECTED")));
        assert_eq!(weir.get("/a.txt").header("x-req"), None);
        let log = weir.wait_for_log("error.log", "limiting requests, excess: ");
        assert!(log.contains(" by zone \"slow\", client: 127.0.0.1, server: , request: "), "{log}");

        let many: Vec<_> = (0..6).map(|_| status(&weir, "/burst/a.txt?k=2")).collect();
        assert_eq!(many, [200, 200, 200, 200, 503, 503]);
        // One zone's refusal leaves the other's bucket as it was.
        let many: Vec<_> = (0..3).map(|_| status(&weir, "/both/a.txt?k=3")).collect();
        assert_eq!(many, [200, 503, 503]);
        let many: Vec<_> = (0..6).map(|_| status(&weir, "/burst/a.txt?k=3")).collect();
        assert_eq!(many, [200, 200, 200, 503, 503, 503]);

        let dry = (status(&weir, "/dry/a.txt?k=1"), weir.get("/dry/a.txt?k=1"));
        assert_eq!((dry.0, dry.1.status), (200, 200));
        assert_eq!(dry.1.header("x-req"), Some("REJECTED_DRY_RUN"));
        weir.wait_for_log("error.log", "limiting requests, dry run, excess: ");

        assert_eq!(status(&weir, "/status/a.txt?k=1"), 429);
        weir.wait_for_log("error.log", "[info]");
    });
}

#[test]
fn delays_in_order() {
    each_driver(|driver| {
        let weir = site(driver, 1);
        let began = std::time::Instant::now();
        let passed = weir.get("/delayed/a.txt?d=1");
        assert_eq!(passed.header("x-req"), Some("PASSED"));
        let delayed = weir.get("/delayed/a.txt?d=1");
        assert_eq!((delayed.status, delayed.header("x-req")), (200, Some("DELAYED")));
        assert!(began.elapsed() >= Duration::from_millis(450), "{:?}", began.elapsed());
        weir.wait_for_log("error.log", "[warn]");
        let log = weir.wait_for_log("error.log", "delaying request, excess: ");
        assert!(log.contains(", by zone \"delay\""), "{log}");
        // A client that leaves in the middle of the delay is noticed at once.
        let mut conn = weir.connect();
        conn.send("GET /delayed/a.txt?d=1 HTTP/1.0\r\n\r\n");
        assert!(conn.is_silent_for(Duration::from_millis(50)));
        drop(conn);
        weir.wait_for_log("error.log", "client prematurely closed connection");
    });
}

/// A request that stays under way because its client does not read the answer.
fn hold(weir: &Weir, n: usize) -> Conn {
    let mut conn = weir.connect();
    conn.send(format!("GET /held/big.bin?c={n} HTTP/1.0\r\n\r\n"));
    conn.read_exact(1);
    conn
}

#[test]
fn connections_are_given_back() {
    each_driver(|driver| {
        let weir = site(driver, 1);
        let conn = hold(&weir, 1);
        let refused = weir.get("/two/a.txt?c=1");
        assert_eq!((refused.status, refused.header("x-conn")), (503, Some("REJECTED")));
        weir.wait_for_log("error.log", "limiting connections by zone \"conn\"");
        let dry = weir.get("/conndry/a.txt?c=1");
        assert_eq!((dry.status, dry.header("x-conn")), (200, Some("REJECTED_DRY_RUN")));
        weir.wait_for_log("error.log", "limiting connections, dry run, by zone \"conn\"");
        assert_eq!(weir.get("/two/a.txt?c=2").header("x-conn"), Some("PASSED"));
        assert_eq!(weir.get("/two/a.txt").header("x-conn"), None);

        drop(conn);
        wait_for("the place of who left", || {
            (status(&weir, "/two/a.txt?c=1") == 200).then_some(())
        });

        // So it is when the worker is killed that serves it.
        let conn = hold(&weir, 3);
        assert_eq!(status(&weir, "/two/a.txt?c=3"), 503);
        let worker = weir.workers()[0];
        weir.signal_to(worker, "KILL");
        wait_for("another worker", || (!weir.workers().contains(&worker)).then_some(()));
        drop(conn);
        wait_for("the place of the dead", || {
            (weir.workers().len() == 1 && status(&weir, "/two/a.txt?c=3") == 200).then_some(())
        });

        // Redirects inside the server do not count twice, and the request's end gives back all.
        for _ in 0..3 {
            let moved = weir.get("/moved/?c=5&e=5");
            assert_eq!((moved.status, moved.header("x-conn")), (200, Some("PASSED")));
        }
        let mut kept = weir.connect();
        for _ in 0..3 {
            kept.send("GET /two/a.txt?c=6&e=6 HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(kept.response().status, 200);
            assert_eq!(status(&weir, "/two/a.txt?c=6&e=6"), 200);
        }
    });
}

#[test]
fn all_workers_count_together_and_reloads_keep_the_count() {
    each_driver(|driver| {
        let mut weir = site(driver, 3);
        assert_eq!(status(&weir, "/burst/a.txt?k=1"), 200);
        for _ in 0..3 {
            assert_eq!(status(&weir, "/burst/a.txt?k=1"), 200);
        }
        for _ in 0..12 {
            assert_eq!(status(&weir, "/burst/a.txt?k=1"), 503);
        }
        weir.reload();
        assert_eq!(status(&weir, "/burst/a.txt?k=1"), 503);
        // Another size is another zone.
        weir.set_config(&config(2, &LIMITS.replace("slow:1m", "slow:2m")));
        let before = weir.workers();
        weir.reload();
        weir.wait_until_left(&before);
        let notice = "[notice] ";
        let told = "zone \"slow\" starts anew: it is limit_req of 2097152 bytes now, and was \
                    limit_req of 1048576 bytes";
        let line = weir.wait_for_log("error.log", told);
        assert!(line.contains(notice), "{line}");
        assert_eq!(status(&weir, "/burst/a.txt?k=1"), 200);
        let many: Vec<_> = (0..4).map(|_| status(&weir, "/burst/a.txt?k=1")).collect();
        assert_eq!(many, [200, 200, 200, 503]);
        // So is another key.
        weir.set_config(&config(2, &LIMITS.replace("$arg_k zone=slow:1m", "$uri zone=slow:2m")));
        let before = weir.workers();
        weir.reload();
        weir.wait_until_left(&before);
        let told = "zone \"slow\" starts anew: its key is \"$uri\" now, and was \"$arg_k\"";
        let line = weir.wait_for_log("error.log", told);
        assert!(line.contains(notice), "{line}");
        let many: Vec<_> = (0..5).map(|_| status(&weir, "/burst/a.txt?k=1")).collect();
        assert_eq!(many, [200, 200, 200, 200, 503]);
    });
}

#[test]
fn what_is_refused_at_load() {
    refused(
        "*",
        &[
            (
                "limit_req_zone $uri zone=a:1m;",
                "invalid number of arguments in \"limit_req_zone\" directive",
            ),
            ("limit_req_zone $uri zone=a:1k rate=1r/s;", "zone \"zone=a:1k\" is too small"),
            ("limit_req_zone $uri zone=a rate=1r/s;", "invalid zone size \"zone=a\""),
            ("limit_req_zone $uri zone=a:1m rate=0r/s;", "invalid rate \"rate=0r/s\""),
            ("limit_req_zone $uri zone=a:1m burst=1;", "invalid parameter \"burst=1\""),
            (
                "limit_req_zone $uri rate=1r/s rate=1r/s;",
                "\"limit_req_zone\" must have \"zone\" parameter",
            ),
            ("limit_req zone=a;", "zero size shared memory zone \"a\""),
            ("limit_req burst=1;", "\"limit_req\" must have \"zone\" parameter"),
            ("limit_req zone=a burst=0;", "invalid burst value \"burst=0\""),
            ("limit_req zone=a delay=x;", "invalid delay value \"delay=x\""),
            ("limit_req zone=a; limit_req zone=a;", "\"limit_req\" directive is duplicate"),
            ("limit_req_status 200;", "value must be between 400 and 599"),
            ("limit_req_log_level debug;", "invalid value \"debug\""),
            (
                "limit_conn_zone $uri zone=a:1m; limit_conn_zone $host zone=a:1m;",
                "limit_conn_zone \"a\" is already bound to key \"$uri\"",
            ),
            (
                "limit_conn_zone $uri zone=a:1m; limit_conn a 0;",
                "invalid number of connections \"0\"",
            ),
            (
                "limit_conn_zone $uri zone=a:1m; limit_conn a 65536;",
                "connection limit must be less 65536",
            ),
            (
                "limit_conn_zone $uri zone=a:1m; limit_req zone=a;",
                "the shared memory zone \"a\" is already declared for a different use",
            ),
            (
                "limit_conn_zone $uri zone=a:1m; limit_conn_zone $uri zone=a:2m;",
                "the size 2097152 of shared memory zone \"a\" conflicts with already declared size 1048576",
            ),
        ],
    );
}
