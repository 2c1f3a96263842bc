//! The access log: formats, conditions, buffers, paths with variables, reopening, syslog.

use std::time::{Duration, Instant};

use testkit::{Conn, Site, Weir, built_binary, each_driver, refused, wait_for};

const CONF: &str = r#"
    log_format short "$uri:$status";
    log_format esc escape=default "$uri|$arg_b";
    log_format json escape=json '{"a":"$uri","b":"$arg_b"}';
    log_format none escape=none "$uri|$arg_b";
    log_format all "$pipe $request_length $bytes_sent $body_bytes_sent ${request_method}x $request_time";
    server {
        listen 127.0.0.1:%PORT0%;
        location /default { return 200 OK; }
        location /off { access_log off; return 200 OK; location /off/on { access_log logs/on.log short; return 200; } }
        location /if { access_log logs/if.log short if=$arg_log; return 200; }
        location /two { access_log logs/one.log short; access_log logs/two.log short; return 204; }
        location /esc { access_log logs/esc.log esc; access_log logs/json.log json;
                        access_log logs/none.log none; return 200; }
        location /all { access_log logs/all.log all; return 200 OK; }
        location /held { access_log logs/held.log short buffer=1k flush=200ms; return 200; }
        location /full { access_log logs/full.log short buffer=64; return 200; }
        location /var { access_log logs/var-$arg_n.log short; return 200; }
        location /cached { access_log logs/cached-$arg_n.log short;
                           open_log_file_cache max=2 valid=60s; return 200; }
        location /noroot { root nowhere; access_log logs/noroot-$arg_n.log short; return 200; }
        location /sys { access_log syslog:server=127.0.0.1:%PORT1%,tag=weir,facility=local3 short; return 200; }
        location /gz { access_log logs/gz.log short gzip flush=200ms; return 200; }
    }"#;

/// Waits until a log holds a text and nothing else: a client can have its answer before the line is
/// written.
fn expect(weir: &Weir, name: &str, want: &str) {
    wait_for(&format!("{name} to be {want:?}"), || (weir.log(name) == want).then_some(()));
}

/// Lines whose last word is a time in seconds with three decimals, with `T` for it.
fn without_times(text: &str) -> String {
    let line = |line: &str| {
        let (rest, time) = line.rsplit_once(' ').expect("words");
        let (secs, millis) = time.split_once('.').expect("decimals");
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        assert!(digits(secs) && !secs.is_empty() && digits(millis) && millis.len() == 3, "{time}");
        format!("{rest} T\n")
    };
    text.lines().map(line).collect()
}

fn expect_lines(weir: &Weir, name: &str, count: usize) {
    let lines = || weir.log(name).lines().count();
    wait_for(&format!("{count} lines in {name}"), || (lines() == count).then_some(()));
}

#[test]
fn lines_go_where_they_are_sent() {
    each_driver(|driver| {
        let mut site = Site::new(built_binary(), driver).http(CONF);
        let syslog = site.datagrams(1);
        let weir = site.start();
        for path in ["/default", "/off", "/off/on", "/if", "/if?log=0", "/if?log=1", "/two"] {
            assert!(weir.get(path).status < 300, "{path}");
        }
        let line = weir.wait_for_log("access.log", "/default");
        assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
        assert!(line.ends_with("\"GET /default HTTP/1.1\" 200 2 \"-\" \"-\""), "{line}");
        expect(&weir, "on.log", "/off/on:200\n");
        expect(&weir, "if.log", "/if:200\n");
        expect(&weir, "one.log", "/two:204\n");
        expect(&weir, "two.log", "/two:204\n");
        weir.get("/esc%22%5C%09%01%C3%A4");
        expect(&weir, "esc.log", "/esc\\x22\\x5C\\x09\\x01\\xC3\\xA4|-\n");
        expect(&weir, "json.log", "{\"a\":\"/esc\\\"\\\\\\t\\u0001\u{e4}\",\"b\":\"\"}\n");
        expect(&weir, "none.log", "/esc\"\\\t\u{1}\u{e4}|\n");
        weir.get("/sys");
        let mut datagram = [0; 512];
        let n = syslog.recv(&mut datagram).unwrap();
        let text = String::from_utf8_lossy(&datagram[..n]).into_owned();
        assert!(text.starts_with("<158>") && text.ends_with(" weir: /sys:200"), "{text}");
        assert_eq!(weir.stop_and_read("access.log").lines().count(), 1);
    });
}

#[test]
fn numbers_of_a_request() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver).http(CONF).start();
        let get = "GET /all HTTP/1.1\r\nHost: h\r\n\r\n";
        let last = "GET /all HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        let mut c = Conn::tcp(weir.port(0));
        c.send(format!("{get}{last}"));
        let all = c.read_to_end();
        let second = all.windows(8).rposition(|w| w == b"HTTP/1.1").unwrap();
        let want = format!(
            ". {} {second} 2 GETx T\np {} {} 2 GETx T\n",
            get.len(),
            last.len(),
            all.len() - second
        );
        assert_eq!(without_times(&weir.wait_for_lines("all.log", 2)), want);
    });
}

#[test]
fn buffers_are_written_in_time() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver).http(CONF).start();
        weir.get("/held");
        expect(&weir, "held.log", "");
        weir.wait_for_log("held.log", "/held:200");
        for _ in 0..200 {
            weir.get("/held");
        }
        weir.wait_for_lines("held.log", 201);
        // Whole lines, whenever the next no longer fits.
        for _ in 0..10 {
            weir.get("/full");
        }
        expect(&weir, "full.log", &"/full:200\n".repeat(6));
        weir.signal("USR1");
        weir.wait_for_lines("full.log", 10);
        weir.get("/gz");
        let bytes = wait_for("a compressed log", || {
            std::fs::read(weir.prefix().join("logs/gz.log")).ok().filter(|b| !b.is_empty())
        });
        assert_eq!(bytes[..2], [0x1f, 0x8b]);
    });
}

#[test]
fn paths_with_variables() {
    each_driver(|driver| {
        let site = Site::new(built_binary(), driver).http(CONF).file("html/a", "");
        let weir = site.allow("testing \"").start();
        // Workers of a server that runs as root are somebody else.
        let logs = weir.prefix().join("logs");
        std::fs::set_permissions(&logs, std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .unwrap();
        for n in ["a", "b", "a", "c", "a"] {
            weir.get(&format!("/var?n={n}"));
            weir.get(&format!("/cached?n={n}"));
        }
        for kind in ["var", "cached"] {
            for (n, count) in [("a", 3), ("b", 1), ("c", 1)] {
                expect_lines(&weir, &format!("{kind}-{n}.log"), count);
            }
        }
        weir.get("/noroot?n=x");
        weir.wait_for_log("error.log", "testing \"");
        assert!(!logs.join("noroot-x.log").exists());
    });
}

#[test]
fn files_are_reopened() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver).http(CONF).start();
        weir.get("/two");
        let (new, old) = (weir.prefix().join("logs/one.log"), weir.prefix().join("logs/one.old"));
        std::fs::rename(&new, &old).unwrap();
        weir.get("/two");
        expect_lines(&weir, "one.old", 2);
        weir.signal("USR1");
        wait_for("the new file", || new.exists().then_some(()));
        wait_for("a line in the new file", || {
            weir.get("/two");
            (!weir.log("one.log").is_empty()).then_some(())
        });
    });
}

#[test]
fn what_is_wrong_is_told() {
    refused(
        "* server { listen 127.0.0.1:%PORT0%; }",
        &[
            ("log_format a $uri; log_format a $uri;", "duplicate \"log_format\" name \"a\""),
            ("log_format combined $uri;", "duplicate \"log_format\" name \"combined\""),
            ("log_format a escape=xml $uri;", "unknown log format escaping \"xml\""),
            ("log_format a $nope;", "unknown \"nope\" variable"),
            ("access_log logs/x nope;", "unknown log format \"nope\""),
            ("access_log off combined;", "invalid parameter \"combined\""),
            (
                "access_log logs/x combined flush=1s;",
                "no buffer is defined for access_log \"logs/x\"",
            ),
            ("access_log logs/x combined buffer=0;", "invalid buffer size \"0\""),
            ("access_log logs/x combined gzip=10;", "invalid compression level \"10\""),
            (
                "access_log logs/$uri combined buffer=1k;",
                "buffered logs cannot have variables in name",
            ),
            (
                "access_log syslog:server=127.0.0.1 combined buffer=1k;",
                "logs to syslog cannot be buffered",
            ),
            (
                "access_log logs/x combined buffer=1k; access_log logs/x combined buffer=2k;",
                "access_log \"logs/x\" already defined with conflicting parameters",
            ),
            (
                "open_log_file_cache valid=1s;",
                "\"open_log_file_cache\" must have \"max\" parameter",
            ),
            ("open_log_file_cache max=x;", "invalid \"open_log_file_cache\" parameter \"max=x\""),
        ],
    );
}

#[test]
fn a_client_that_has_seen_the_end_finds_its_request_in_the_log() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .http("server { listen 127.0.0.1:%PORT0%; location / { return 200 x; } }")
            .start();
        // Where a write takes longer than that, the end comes before it, and so may the next end:
        // the disk counts as slow until the write is done.
        let longest_wait = Duration::from_millis(50);
        let (mut behind, mut in_time) = (false, 0);
        for n in 1..=60 {
            let asked = Instant::now();
            let answer = weir.raw("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            let waited = asked.elapsed();
            assert!(answer.ends_with(b"x"));
            let is_there = weir.log("access.log").lines().count() == n;
            let is_excused = behind || waited >= longest_wait;
            assert!(is_there || is_excused, "line {n} is missing after {waited:?}");
            weir.wait_for_lines("access.log", n);
            (behind, in_time) = (!is_there, in_time + usize::from(is_there));
        }
        assert!(in_time > 0, "no line was there at the end of its connection");
    });
}

#[test]
fn lines_of_json_are_utf_8_whatever_clients_send() {
    each_driver(|driver| {
        let text = "log_format j escape=json '{\"agent\":\"$http_user_agent\",\"uri\":\"$uri\"}';
            server { listen 127.0.0.1:%PORT0%; access_log logs/j.log j; return 200 ok; }";
        let weir = Site::new(built_binary(), driver).http(text).start();
        let head = b"GET /a%ff%22 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
                     User-Agent: \xc3\xa9\xff\xed\xa0\x80\xc3\r\n\r\n";
        weir.raw(head);
        weir.wait_for_log("j.log", "agent");
        let bytes = std::fs::read(weir.prefix().join("logs/j.log")).unwrap();
        let line: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(line["uri"], "/a\u{fffd}\"");
        let agent = line["agent"].as_str().unwrap();
        assert!(agent.starts_with("\u{e9}\u{fffd}") && agent.ends_with('\u{fffd}'), "{agent}");
    });
}
