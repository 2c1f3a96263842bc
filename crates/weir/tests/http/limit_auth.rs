//! `limit_auth`: clients whose passwords or tokens are refused too often get 429 before another one
//! is checked.

use testkit::{Conn, Driver, Response, Site, Weir, built_binary, each_driver, wait_for};

const TOKENS: &str = include_str!("auth_jwt.json");

const CONF: &str = "
    limit_auth_zone zone=logins:64k rate=1r/m;
    set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP;
    auth_basic_user_file passwords; auth_jwt_key_file public.json; auth_jwt_key_file secret.json;
    add_header X-Pid $pid always;
    server {
        listen 127.0.0.1:%PORT0%;
        limit_auth zone=logins burst=1;
        location / { auth_basic a; alias html/; }
        location /page/ { auth_basic a; error_page 401 429 /page/a.txt; alias html/; }
        location /token/ { auth_jwt t; alias html/; }
        location /any/ { satisfy any; auth_basic a; auth_jwt t; alias html/; }
        location /claim/ { if ($jwt_claim_sub = '') { return 402; } auth_jwt t; alias html/; }
        location /open/ { alias html/; }
        location /unlimited/ { limit_auth off; auth_basic a; alias html/; }
        location /dry/ {
            limit_auth_dry_run on; limit_auth_log_level warn; auth_basic a; alias html/;
        }
        location /metrics { prometheus; }
        location /api/ { api; }
    }";

fn start(driver: Driver) -> Weir {
    let tokens: serde_json::Value = serde_json::from_str(TOKENS).expect("valid JSON");
    Site::new(built_binary(), driver)
        .file("html/a.txt", "hello")
        .file("conf/passwords", PASSWORDS)
        .file("conf/public.json", tokens["public"].to_string())
        .file("conf/secret.json", tokens["secret"].to_string())
        .config(&format!("worker_processes 2; events {{ }} http {{ {CONF} }}"))
        .start()
}

/// The passwords are "secret" and "password".
const PASSWORDS: &str = "plain:{PLAIN}secret\n\
    costly:$2b$04$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm\n";

const RIGHT: &str = "Authorization: Basic cGxhaW46c2VjcmV0\r\n";
const WRONG: &str = "Authorization: Basic cGxhaW46d3Jvbmc=\r\n";
const NOBODY: &str = "Authorization: Basic bm9ib2R5OnNlY3JldA==\r\n";
const COSTLY_RIGHT: &str = "Authorization: Basic Y29zdGx5OnBhc3N3b3Jk\r\n";
const COSTLY_WRONG: &str = "Authorization: Basic Y29zdGx5Ondyb25n\r\n";

fn ask(weir: &Weir, path: &str, ip: &str, credentials: &str) -> Response {
    weir.request("GET", path, &format!("X-Real-IP: {ip}\r\n{credentials}"))
}

fn status(weir: &Weir, path: &str, ip: &str, credentials: &str) -> u16 {
    ask(weir, path, ip, credentials).status
}

fn token(name: &str) -> String {
    let tokens: serde_json::Value = serde_json::from_str(TOKENS).expect("valid JSON");
    format!("Authorization: Bearer {}\r\n", tokens["tokens"][name].as_str().expect("a token"))
}

/// The zone's counters: requests that were let through, that failed, and that were refused, or
/// would have been.
fn counted(weir: &Weir) -> [u64; 4] {
    let text = weir.get("/metrics").text();
    ["passed", "failed", "rejected", "rejected_dry_run"].map(|name| {
        let start = format!("weir_limit_auth_{name}_total{{zone=\"logins\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.expect(&text).parse().unwrap()
    })
}

fn send(c: &mut Conn, path: &str, ip: &str, credentials: &str) {
    c.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Real-IP: {ip}\r\n{credentials}\r\n"));
}

/// A connection to each of the two workers.
fn of_both_workers(weir: &Weir) -> [Conn; 2] {
    let mut all: Vec<(String, Conn)> = Vec::new();
    wait_for("a connection to each worker", || {
        let mut c = weir.connect();
        send(&mut c, "/open/a.txt", "192.0.2.99", "");
        let pid = c.response().header("X-Pid").expect("the worker").to_owned();
        all.push((pid, c));
        all.iter().any(|(other, _)| *other != all[0].0).then_some(())
    });
    let (_, last) = all.pop().expect("the other worker's");
    [all.swap_remove(0).1, last]
}

#[test]
fn failures_count_over_all_workers() {
    each_driver(|driver| {
        let weir = start(driver);
        let [mut a, mut b] = of_both_workers(&weir);
        let mut asked = |of_a: bool, ip: &str, credentials: &str| {
            let c = if of_a { &mut a } else { &mut b };
            send(c, "/a.txt", ip, credentials);
            c.response()
        };
        // Good ones do not count, and take no failure back.
        for i in 0..6 {
            assert_eq!(asked(i % 2 == 0, "192.0.2.1", RIGHT).status, 200);
        }
        assert_eq!(asked(true, "192.0.2.1", WRONG).status, 401);
        assert_eq!(asked(false, "192.0.2.1", RIGHT).status, 200);
        assert_eq!(asked(false, "192.0.2.1", NOBODY).status, 401);
        for (of_a, credentials) in [(true, RIGHT), (false, RIGHT), (true, WRONG), (false, WRONG)] {
            let refused = asked(of_a, "192.0.2.1", credentials);
            assert_eq!((refused.status, refused.header("WWW-Authenticate")), (429, None));
            let secs: u64 = refused.header("Retry-After").expect("a time").parse().unwrap();
            assert!((1..=63).contains(&secs), "{secs}");
        }
        // Nothing is guessed without credentials. Other clients, and places without the limit.
        assert_eq!(asked(true, "192.0.2.1", "").status, 401);
        assert_eq!(asked(true, "192.0.2.2", RIGHT).status, 200);
        assert_eq!(status(&weir, "/unlimited/a.txt", "192.0.2.1", RIGHT), 200);
        assert_eq!(status(&weir, "/unlimited/a.txt", "192.0.2.1", WRONG), 401);
        assert_eq!(counted(&weir), [10, 2, 4, 0]);
        let slabs = weir.get("/api/9/slabs/logins");
        assert!(slabs.text().contains("\"pages\""), "{}", slabs.text());
        drop((a, b));
        let log = weir.stop_and_read("error.log");
        let lines: Vec<_> =
            log.lines().filter(|line| line.contains("limiting logins, excess: ")).collect();
        assert_eq!(lines.len(), 1, "{log}");
        assert!(lines[0].contains("[error]") && lines[0].contains("client: 192.0.2.1"), "{log}");
        assert!(lines[0].contains("by zone \"logins\""), "{log}");
    });
}

#[test]
fn a_block_of_ipv6_is_a_client_and_reloads_keep_the_count() {
    each_driver(|driver| {
        let weir = start(driver);
        assert_eq!(status(&weir, "/a.txt", "2001:db8::1", WRONG), 401);
        assert_eq!(status(&weir, "/a.txt", "2001:db8::2", WRONG), 401);
        weir.reload();
        assert_eq!(status(&weir, "/a.txt", "2001:db8::3", RIGHT), 429);
        assert_eq!(status(&weir, "/a.txt", "2001:db8:0:1::1", RIGHT), 200);
    });
}

#[test]
fn many_guesses_at_once_gain_nothing_and_good_ones_are_not_refused() {
    each_driver(|driver| {
        let weir = start(driver);
        let at_once = |ip: &str, credentials: &str| -> Vec<u16> {
            let mut all: Vec<Conn> = (0..12).map(|_| weir.connect()).collect();
            all.iter_mut().for_each(|c| send(c, "/a.txt", ip, credentials));
            let mut statuses: Vec<_> = all.iter_mut().map(|c| c.response().status).collect();
            statuses.sort_unstable();
            statuses
        };
        assert_eq!(at_once("192.0.2.1", COSTLY_RIGHT), [200; 12]);
        let wrong = at_once("192.0.2.1", COSTLY_WRONG);
        assert_eq!((&wrong[..2], &wrong[2..]), (&[401; 2][..], &[429; 10][..]));
    });
}

#[test]
fn forged_tokens_count_and_old_ones_do_not() {
    each_driver(|driver| {
        let weir = start(driver);
        let (forged, good, ip) = (token("forged"), token("oct"), "192.0.2.1");
        for _ in 0..4 {
            assert_eq!(status(&weir, "/token/a.txt", ip, &token("expired")), 401);
            assert_eq!(status(&weir, "/token/a.txt", ip, &good), 200);
        }
        // A request counts once, also where a variable had the token checked before, or the page
        // of its error has it checked again.
        assert_eq!(status(&weir, "/claim/a.txt", ip, &forged), 402);
        assert_eq!(status(&weir, "/page/a.txt", ip, WRONG), 401);
        assert_eq!(status(&weir, "/claim/a.txt", ip, &good), 402);
        for path in ["/token/a.txt", "/page/a.txt", "/any/a.txt"] {
            let credentials = if path == "/page/a.txt" { RIGHT } else { &good };
            let refused = ask(&weir, path, ip, credentials);
            assert_eq!((refused.status, refused.header("WWW-Authenticate")), (429, None), "{path}");
            assert_eq!(refused.all("Retry-After").count(), 1, "{path}");
        }
        assert_eq!(status(&weir, "/any/a.txt", "192.0.2.2", &good), 200);
        let log = weir.stop_and_read("error.log");
        assert!(!log.contains("eyJ"), "a token is in the log: {log}");
    });
}

#[test]
fn a_dry_run_refuses_nobody() {
    each_driver(|driver| {
        let weir = start(driver);
        (0..3).for_each(|_| assert_eq!(status(&weir, "/dry/a.txt", "192.0.2.1", WRONG), 401));
        assert_eq!(status(&weir, "/dry/a.txt", "192.0.2.1", RIGHT), 200);
        assert_eq!(counted(&weir), [2, 2, 0, 2]);
        let log = weir.wait_for_log("error.log", "limiting logins, dry run, excess: ");
        assert!(log.contains("[warn]"), "{log}");
    });
}

#[test]
fn what_is_wrong_is_refused() {
    let zone = "limit_auth_zone zone=one:1m rate=5r/m;";
    let mail = format!("{zone} }} mail {{ {zone}");
    for (http, message) in [
        ("limit_auth zone=one;", "zero size shared memory zone \"one\""),
        ("limit_auth_zone zone=one:1m zone=one:1m;", "must have \"rate\" parameter"),
        ("server { location / { limit_auth burst=5; } }", "must have \"zone\" parameter"),
        ("server { limit_auth_zone zone=one:1m rate=5r/m; }", "is not allowed here"),
        (&mail, "zone \"one\" is already declared for a different use"),
    ] {
        let site = Site::new(built_binary(), Driver::usual());
        site.config(&format!("events {{ }} http {{ {http} }}")).is_refused(message);
    }
}
