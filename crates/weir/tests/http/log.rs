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

/// The lines of a log as JSON.
fn objects(weir: &Weir, name: &str) -> Vec<serde_json::Value> {
    let lines = weir.log(name);
    lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

#[test]
fn members_of_json_have_their_types() {
    each_driver(|driver| {
        let text = "upstream two { server 127.0.0.1:%PORT2%; server 127.0.0.1:%PORT1% backup; }
            log_json own {
                when $msec; 'a \"quoted\" name' \"$request_method '$uri'\"; status $status string;
                query $arg_n number; none $arg_none; empty $arg_none number; took $request_time;
                tries $upstream_status; answered $upstream_response_time; all $upstream_addr;
            }
            server { listen 127.0.0.1:%PORT0%; access_log logs/own.log own; access_log logs/j.log json;
                location / { return 200 ok; }
                location /up { proxy_pass http://two; } }
            server { listen 127.0.0.1:%PORT1%; access_log off; return 404 no; }";
        let weir = Site::new(built_binary(), driver).http(text).start();
        weir.get("/a%22b?n=12");
        weir.get("/up?n=1x");
        weir.wait_for_lines("own.log", 2);
        weir.wait_for_lines("j.log", 2);
        let own = objects(&weir, "own.log");
        assert_eq!(own[0]["a \"quoted\" name"], "GET '/a\"b'");
        assert_eq!((&own[0]["status"], &own[0]["query"]), (&"200".into(), &12.into()));
        assert!(own[0]["when"].is_f64() && own[0]["took"].is_f64(), "{}", own[0]);
        assert_eq!((&own[0]["none"], own[0]["empty"].is_null()), (&"".into(), true));
        assert!(own[0]["tries"].is_null() && own[0]["answered"].is_null(), "{}", own[0]);
        // Nothing listens at the first server.
        assert_eq!((&own[1]["tries"], own[1]["query"].is_null()), (&404.into(), true));
        assert!(own[1]["answered"].is_f64(), "{}", own[1]);
        let all = format!("127.0.0.1:{}, 127.0.0.1:{}", weir.port(2), weir.port(1));
        assert_eq!(own[1]["all"], all);
        let json = objects(&weir, "j.log");
        assert_eq!((&json[0]["status"], &json[1]["upstream_status"]), (&200.into(), &404.into()));
        assert!(json[0]["bytes_sent"].is_u64() && json[0]["request_time"].is_f64(), "{}", json[0]);
        let time = json[0]["time"].as_str().unwrap();
        assert!(time.len() == 29 && &time[10..11] == "T" && &time[19..20] == ".", "{time}");
    });
}

#[test]
fn samples_have_a_share_of_lines_and_those_that_matter() {
    each_driver(|driver| {
        let text = "log_format uri $uri;
            server { listen 127.0.0.1:%PORT0%;
                access_log logs/some.log uri sample=10% failed;
                access_log logs/failed.log uri failed;
                access_log logs/slow.log uri slow=1h;
                access_log logs/all.log uri sample=100%;
                access_log logs/each.log uri slow=0;
                location / { return 200; }
                location /bad { return 500; } }";
        let weir = Site::new(built_binary(), driver).http(text).start();
        for i in 0..500 {
            weir.get(if i % 50 == 0 { "/bad" } else { "/" });
        }
        weir.wait_for_lines("all.log", 500);
        weir.wait_for_lines("each.log", 500);
        weir.wait_for_lines("failed.log", 10);
        assert_eq!(weir.log("slow.log"), "");
        let text = weir.stop_and_read("some.log");
        assert_eq!(text.lines().filter(|line| *line == "/bad").count(), 10);
        // 49 of 490 are expected; none of this is left to chance in a thousand years.
        let others = text.lines().count() - 10;
        assert!((5..150).contains(&others), "{others}");
    });
}

#[test]
fn mistakes_of_json_and_samples_are_told() {
    refused(
        "*",
        &[
            ("log_json a { }", "\"log_json\" directive has no members in"),
            ("log_json a { b; }", "invalid number of parameters in"),
            ("log_json a { b $uri text; }", "invalid type \"text\" in"),
            ("log_json a { b $uri; b $uri; }", "duplicate member \"b\" in"),
            ("log_json a { b x$uri number; }", "a number is a single variable, not \"x$uri\" in"),
            ("log_json a { b { } }", "unexpected \"{\" in"),
            (
                "log_json a { b $uri; } log_json a { b $uri; }",
                "duplicate \"log_format\" name \"a\"",
            ),
            ("log_json combined { b $uri; }", "the format \"combined\" is predefined in"),
            ("access_log a combined sample=10;", "invalid share of lines \"10\" in"),
            ("access_log a combined sample=101%;", "invalid share of lines \"101%\" in"),
            ("access_log a combined slow=x;", "invalid time \"x\" in"),
            ("access_log a combined fail;", "invalid parameter \"fail\" in"),
        ],
    );
}
