//! The error log as text and as JSON.

use testkit::{Json, Site, Weir, built_binary, each_driver, refused};

const CONF: &str = r#"
    ssi on;
    server {
        listen 127.0.0.1:%PORT0%;
        server_name a.test;
        error_log logs/text.log;
        error_log logs/json.log format=json;
        error_log logs/grave.log format=json crit;
        location /missing { root html; }
        location /gone { proxy_pass http://127.0.0.1:%PORT2%/up; }
        location /page { default_type text/html;
                         return 200 '<!--#include virtual="/missing/part" -->'; }
        location /sys { error_log syslog:server=127.0.0.1:%PORT1%,tag=weir,nohostname error format=json;
                        root html; }
    }"#;

/// The lines about something in both logs, from the connection's number on: what stands before is
/// compared here.
fn both(weir: &Weir, what: &str) -> (String, String) {
    let text = weir.wait_for_log("text.log", what);
    let json = weir.wait_for_log("json.log", what);
    let (_, text) = text.split_at("2026/11/20 09:53:24 ".len());
    let (level, rest) = text.split_once("] ").expect("a level");
    let (ids, text) = rest.split_once(": *").expect("a connection");
    let (pid, tid) = ids.split_once('#').expect("two ids");
    let (number, text) = text.split_once(' ').expect("a message");
    let (time, json) = json.split_at("{\"time\":\"2026-11-20T09:53:24.123+00:00".len());
    assert!(time.starts_with("{\"time\":\"2") && time.as_bytes()[19] == b'T', "{time}");
    let level = level.strip_prefix('[').expect("a level");
    let head =
        format!("\",\"level\":\"{level}\",\"pid\":{pid},\"tid\":{tid},\"connection\":{number},");
    assert!(json.starts_with(&head), "{json} does not begin with {head}");
    (text.to_owned(), json[head.len()..].to_owned())
}

#[test]
fn both_forms_tell_the_same() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver).http(CONF).start();
        let dir = weir.prefix().display().to_string();
        let why = "(2: No such file or directory)";

        let mut conn = weir.connect();
        conn.send(
            b"GET /missing/%01%22\\x HTTP/1.1\r\nHost: a.test\r\nReferer: http://r/\t\"q\xff\"\r\n\
             Connection: close\r\n\r\n",
        );
        assert_eq!(conn.response().status, 404);
        let (text, json) = both(&weir, "%01");
        let message = format!("open() \"{dir}/html/missing/\\x01\"\\x\" failed {why}");
        let line = "GET /missing/%01%22\\x HTTP/1.1";
        let want = format!(
            "{message}, client: 127.0.0.1, server: a.test, request: \"{line}\", \
             host: \"a.test\", referrer: \"http://r/\\x09\"q\u{fffd}\"\""
        );
        assert_eq!(text, want);
        let want = format!(
            "\"message\":\"open() \\\"{dir}/html/missing/\\u0001\\\"\\\\x\\\" failed {why}\",\
             \"client\":\"127.0.0.1\",\"server\":\"a.test\",\
             \"request\":\"GET /missing/%01%22\\\\x HTTP/1.1\",\"host\":\"a.test\",\
             \"referrer\":\"http://r/\\t\\\"q\u{fffd}\\\"\"}}"
        );
        assert_eq!(json, want);

        // Nobody writes a line of his own.
        weir.get("/missing/%0a2026/11/20%2009:53:24%20[error]%20forged%c2%9b");
        let (text, json) = both(&weir, "forged");
        assert!(text.contains("/missing/\\x0A2026/11/20 09:53:24 [error] forged\\xC2\\x9B\""));
        assert!(json.contains("/missing/\\n2026/11/20 09:53:24 [error] forged"), "{json}");

        weir.get("/gone");
        let (text, json) = both(&weir, "/gone");
        assert!(text.contains(", upstream: \"http://127.0.0.1:"), "{text}");
        assert!(json.contains("while connecting to upstream\",\"client\":\"127.0.0.1\""), "{json}");
        assert!(json.contains("\"upstream\":\"http://127.0.0.1:"), "{json}");

        weir.get("/page");
        let (text, json) = both(&weir, "/page");
        assert!(text.contains(", subrequest: \"/missing/part\""), "{text}");
        assert!(json.contains(",\"subrequest\":\"/missing/part\","), "{json}");
        assert_eq!(weir.log("grave.log"), "");
    });
}

#[test]
fn lines_have_tags_and_the_names_of_nginx_plus() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .http(
                r#"
                error_log_tag tenant t-$arg_t;
                server {
                    listen 127.0.0.1:%PORT0%;
                    error_log logs/plus.log json;
                    error_log logs/text.log;
                    error_log logs/json.log format=json;
                    root html;
                    location /outer { }
                    location /own {
                        set $rewritten new;
                        error_log_tag "by id" $request_method-$rewritten;
                        error_page 404 /away;
                    }
                    location /away { }
                }"#,
            )
            .start();
        weir.get("/outer?t=%22a");
        let line = weir.wait_for_log("plus.log", "/outer");
        let json = Json::parse(&line);
        let text = |text: &str| Json::Text(text.to_owned());
        assert_eq!(*json.at("tenant"), text("t-%22a"));
        assert_eq!((json.number("errno"), json.number("cnum") > 0), (2, true));
        assert_eq!(*json.at("errtext"), text("No such file or directory"));
        assert_eq!(*json.at("request"), text("GET /outer?t=%22a HTTP/1.1"));
        assert!(line.contains("/html/outer\\\" failed\",\"client\":"), "{line}");
        assert!(line.starts_with("{\"level\":\"error\",\"timestamp\":\"2"), "{line}");
        let (text, json) = both(&weir, "/outer");
        assert!(text.ends_with("\", tenant: \"t-%22a\""), "{text}");
        assert!(json.ends_with(",\"tenant\":\"t-%22a\"}"), "{json}");

        // A level with tags has none of those around it. A redirect takes none along, and has no
        // arguments.
        weir.get("/own/x?t=b");
        let (text, json) = both(&weir, "html/own/x");
        assert!(text.ends_with("\", by id: \"GET-new\""), "{text}");
        assert!(json.ends_with(",\"by id\":\"GET-new\"}") && !json.contains("tenant"), "{json}");
        let away = weir.wait_for_log("text.log", "html/away");
        assert!(away.ends_with("\", tenant: \"t-\""), "{away}");
    });
}

#[test]
fn tags_and_rates_that_are_refused() {
    refused(
        "* server { }",
        &[
            ("error_log_tag a;", "invalid number of arguments in \"error_log_tag\""),
            ("error_log_tag '' a;", "the name of a tag is empty"),
            ("error_log_tag msg a;", "\"msg\" is a field of every log line"),
            ("error_log_tag a 1; error_log_tag a 2;", "duplicate tag \"a\""),
            ("error_log_tag a $none;", "unknown \"none\" variable"),
            ("error_log e.log rate=1;", "invalid rate \"1\": lines a second, as in \"100/s\""),
            ("error_log e.log json format=json;", "duplicate log format \"json\""),
        ],
    );
}

#[test]
fn a_rate_leaves_lines_out_and_says_how_many() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .config(
                "worker_processes 1; events { }
                 http { server { listen 127.0.0.1:%PORT0%; root html;
                                 error_log logs/all.log; error_log logs/few.log rate=2/s; } }",
            )
            .start();
        let paths = (0..40).map(|n| format!("/none/{n}"));
        paths.for_each(|path| assert_eq!(weir.get(&path).status, 404));
        weir.wait_for_log("few.log", "left out of this log: more than 2 a second");
        let all = weir.stop_and_read("all.log").lines().count();
        let few = weir.log("few.log");
        let told = |line: &str| {
            let (_, text) = line.split_once(": ").expect("a message");
            let (n, _) = text.split_once(" left out of")?;
            n.split(' ').next()?.parse::<usize>().ok()
        };
        let left_out: usize = few.lines().filter_map(told).sum();
        let written = few.lines().filter(|line| told(line).is_none()).count();
        assert_eq!((all, written + left_out), (40, 40), "{few}");
    });
}

#[test]
fn syslog_takes_json_too() {
    each_driver(|driver| {
        let mut site = Site::new(built_binary(), driver).http(CONF);
        let syslog = site.datagrams(1);
        let weir = site.start();
        weir.get("/sys");
        let mut buf = [0; 4096];
        let n = syslog.recv(&mut buf).unwrap();
        let got = String::from_utf8_lossy(&buf[..n]);
        assert!(got.starts_with("<187>") && got.contains(" weir: {\"time\":\""), "{got}");
        assert!(got.ends_with("\"}") && got.contains("\"request\":\"GET /sys HTTP/1."), "{got}");
    });
}

#[test]
fn clients_of_debug_connection_are_logged_in_full() {
    for (from, is_in_full) in [("127.0.0.0/8", true), ("10.0.0.0/8", false)] {
        each_driver(|driver| {
            let weir = Site::new(built_binary(), driver)
                .config(&format!(
                    "worker_processes 1;
                     error_log logs/error.log error;
                     events {{ debug_connection {from}; }}
                     http {{ server {{ listen 127.0.0.1:%PORT0%; root html; }} }}"
                ))
                .start();
            assert_eq!(weir.get("/none").status, 404);
            weir.wait_for_log("error.log", "open() \"");
            let log = weir.stop_and_read("error.log");
            assert_eq!(log.contains(" [debug] "), is_in_full, "{from}");
        });
    }
}
