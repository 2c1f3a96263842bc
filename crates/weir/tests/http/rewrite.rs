//! `rewrite`, `return`, `set`, `if` and `break` over real connections.

use testkit::{Driver, Site, Weir, built_binary, each_driver};

fn site(driver: Driver, servers: &str) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/file.txt", b"text")
        .file("html/folder/index.html", b"folder")
        .http(servers)
        .start()
}

/// Requests with their answers: status, then `Location` or the body's text.
fn check(weir: &Weir, expected: &[(&str, u16, &str)]) {
    for &(uri, status, text) in expected {
        let response = weir.get(uri);
        let got = match response.header("Location") {
            Some(to) => to.replace(&format!(":{}", weir.port(0)), ""),
            None => response.text(),
        };
        assert_eq!((response.status, got.as_str()), (status, text), "{uri}");
    }
}

#[test]
fn returns() {
    each_driver(|driver| {
        let weir = site(
            driver,
            r#"server {
                listen 127.0.0.1:%PORT0%;
                location /text { return 200 "text"; }
                location /var { return 201 "$request_method $arg_a"; }
                location /empty { return 200; }
                location /none { return 204; }
                location /gone { return 410; }
                location /own { return 404 "own\n"; }
                location /odd { return 306; }
                location /moved { return 301 /text$is_args$args; }
                location /address { return http://example.com/; }
                location /scheme { return $scheme://example.com$request_uri; }
                location /lines { return 302 http://example.com$uri; }
                location /page { error_page 410 =200 /text; return 410; }
                location /kept { error_page 410 /text; return 410; }
                location /first { return 200 one; return 200 two; }
                location /close { return 444; }
                location /late { return 408; }
                location /left { return 499; }
                location /said { return 408 late; }
            }"#,
        );
        check(
            &weir,
            &[
                ("/text", 200, "text"),
                ("/var?a=b", 201, "GET b"),
                ("/empty", 200, ""),
                ("/none", 204, ""),
                ("/own", 404, "own\n"),
                ("/odd", 306, ""),
                ("/moved?a", 301, "http://localhost/text?a"),
                ("/address", 302, "http://example.com/"),
                ("/scheme/%20", 302, "http://example.com/scheme/%20"),
                ("/lines/a%0d%0aX:y%20z", 302, "http://example.com/lines/a%0D%0AX:y z"),
                ("/page", 200, "text"),
                ("/kept", 410, "text"),
                ("/first", 200, "one"),
            ],
        );
        let gone = weir.get("/gone");
        assert_eq!(gone.status, 410);
        assert!(gone.text().contains("<h1>410 Gone</h1>"), "{}", gone.text());
        assert_eq!(weir.get("/text.html").header("Content-Type"), Some("text/html"));
        assert_eq!(weir.get("/text").header("Content-Type"), Some("text/plain"));
        assert_eq!(weir.get("/none").header("Content-Length"), None);
        for (path, status) in [("/close", " 444 "), ("/late", " 408 "), ("/left", " 499 ")] {
            assert_eq!(weir.raw(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")), b"", "{path}");
            let line = weir.wait_for_log("access.log", &format!("GET {path} "));
            assert!(line.contains(status), "{line}");
        }
        check(&weir, &[("/said", 408, "late")]);
        // Bodies are read past, so that the next request is found.
        let two = "POST /text HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nbodyx\
                   GET /own HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let answers = String::from_utf8(weir.raw(two)).unwrap();
        assert!(answers.contains("text") && answers.ends_with("own\n"), "{answers}");
    });
}

#[test]
fn rewrites() {
    each_driver(|driver| {
        let weir = site(
            driver,
            r#"server {
                listen 127.0.0.1:%PORT0%;
                rewrite ^/server/(.*)$ /show/$1;
                rewrite ^/over/(.*)$ /show/$1 last;
                rewrite ^/over/ /not-reached;
                location /show { return 200 "$uri?$args"; }
                location /last { rewrite ^/last(.*)$ /show$1?x=1 last; return 200 wrong; }
                location /drop { rewrite ^ /show? last; }
                location /own { rewrite ^ /show?x=1? last; }
                location /on { rewrite ^/on(.*) /a$1; rewrite ^/a(.*) /show$1; }
                location /break { rewrite ^ /file.txt break; return 200 wrong; }
                location /file { rewrite ^/file$ /file.txt; break; return 200 wrong; }
                location = /file.txt { internal; }
                location /capture { rewrite ^(.*) $1?c=d; return 200 "uri:$uri args:$args"; }
                location /dup { rewrite ^(.*) $1?c=$1; return 200 "uri:$uri args:$args"; }
                location /named { rewrite ^/named/(?<what>.*)$ /show/$what last; }
                location /cycle { rewrite ^ /cycle; }
                location /nothing { rewrite ^/nothing(.*)$ $1 last; }
                location /redirect { rewrite ^/redirect(.*)$ /show$1 redirect; }
                location /permanent { rewrite ^ /show?x=1 permanent; }
                location /address { rewrite ^(.*)$ http://example.com$1; return 200 wrong; }
                location /dropped { rewrite ^ http://example.com/? redirect; }
                location /lines { rewrite ^ http://example.com$uri? redirect; }
                location /flags { rewrite ^ http://example.com/ last; }
                location /none { rewrite ^/x /y last; return 200 "not matched"; }
            }"#,
        );
        check(
            &weir,
            &[
                ("/server/a?b=c", 200, "/show/a?b=c"),
                ("/over/a", 200, "/show/a?"),
                ("/last/a?b=c", 200, "/show/a?x=1&b=c"),
                ("/drop?b=c", 200, "/show?"),
                ("/own?b=c", 200, "/show?x=1"),
                ("/on/x", 200, "/show/x?"),
                ("/break", 200, "text"),
                ("/file", 200, "text"),
                ("/capture/%25?a=b", 200, "uri:/capture/% args:c=d&a=b"),
                ("/dup/%25?a=b", 200, "uri:/dup/% args:c=/dup/%25&a=b"),
                ("/dup/+?a=b", 200, "uri:/dup/+ args:c=/dup/%2B&a=b"),
                ("/dup/a", 200, "uri:/dup/a args:c=/dup/a"),
                ("/named/a%20b", 200, "/show/a b?"),
                ("/redirect/a%20%3fb?c", 302, "http://localhost/show/a%20?b?c"),
                ("/permanent?b", 301, "http://localhost/show?x=1&b"),
                ("/address/a", 302, "http://example.com/address/a"),
                ("/dropped?a", 302, "http://example.com/"),
                ("/lines/%0d%0aA:b", 302, "http://example.com/lines/%0D%0AA:b"),
                ("/flags", 302, "http://example.com/"),
                ("/none", 200, "not matched"),
            ],
        );
        assert_eq!(weir.get("/cycle").status, 500);
        assert_eq!(weir.get("/nothing").status, 500);
        weir.wait_for_log("error.log", "rewrite or internal redirection cycle while processing");
        weir.wait_for_log("error.log", "the rewritten URI has a zero length");
    });
}

const CONDITIONS: &str = r#"server {
    listen 127.0.0.1:%PORT0%;
    if ($arg_server) { return 200 "server"; }
    location /eq { if ($arg_a = "b c") { return 200 y; } return 200 n; }
    location /ne { if ($arg_a != $arg_b) { return 200 y; } return 200 n; }
    location /re { if ($arg_a ~ "^(.)(.)") { return 200 "$2$1"; } return 200 "n$1"; }
    location /any { if ( $arg_a ~* ^b ) { return 200 y; } return 200 n; }
    location /not { if ($arg_a !~ ^b) { return 200 y; } return 200 n; }
    location /f { if (-f $document_root$uri) { return 200 y; } return 200 n; }
    location /folder { if (-d $document_root$uri) { return 200 y; } return 200 n; }
    location /exists { if (!-e $document_root$arg_a) { return 200 n; } return 200 y; }
    location /x { if (-x $document_root$arg_a) { return 200 y; } return 200 n; }
    location /last { if ($uri ~ ^/last(.*)) { rewrite ^ /eq$1 last; } }
    location /order {
        set $a 1;
        if ($arg_a) { set $a "$a 2"; }
        set $a "$a 3";
        if ($arg_b) { set $a "$a 4"; break; }
        return 200 $a;
    }
    location /enter {
        add_header X-Kind outer;
        if ($arg_a) { add_header X-Kind inner; }
        if ($arg_b) { set $unused 1; }
        return 200 x;
    }
    location /both {
        if ($arg_a) { add_header X-Kind a; }
        if ($arg_b) { add_header X-Kind b; }
        return 200 x;
    }
    location /escaped { if ($uri ~ ^(.*)$) { set $x $1; } return 200 $x; }
    location /plain { rewrite ^(.*)$ $1; set $x $1; return 200 $x; }
}
"#;

#[test]
fn conditions() {
    each_driver(|driver| {
        let weir = site(driver, CONDITIONS);
        check(
            &weir,
            &[
                ("/eq?server=1", 200, "server"),
                ("/eq?server=0&a=b", 200, "n"),
                ("/eq", 200, "n"),
                ("/ne?a=1&b=1", 200, "n"),
                ("/ne?a=1", 200, "y"),
                ("/ne", 200, "n"),
                ("/re?a=xyz", 200, "yx"),
                ("/re?a=x", 200, "n"),
                ("/any?a=Bx", 200, "y"),
                ("/any?a=x", 200, "n"),
                ("/not?a=B", 200, "y"),
                ("/not?a=b", 200, "n"),
                ("/file.txt", 200, "y"),
                ("/file", 200, "n"),
                ("/folder", 200, "y"),
                ("/folderx", 200, "n"),
                ("/exists?a=/folder", 200, "y"),
                ("/exists?a=/nope", 200, "n"),
                ("/x?a=/folder", 200, "y"),
                ("/x?a=/file.txt", 200, "n"),
                ("/last", 200, "n"),
                ("/order", 200, "1 3"),
                ("/order?a=1", 200, "1 2 3"),
                ("/escaped/%25", 200, "/escaped/%25"),
                ("/escaped/a", 200, "/escaped/a"),
                ("/plain/%25", 200, "/plain/%"),
            ],
        );
        assert_eq!(weir.get("/order?b=1").status, 404);
        let kind = |uri: &str| weir.get(uri).header("X-Kind").unwrap_or("").to_owned();
        assert_eq!(kind("/enter"), "outer");
        assert_eq!(kind("/enter?a=1"), "inner");
        assert_eq!(kind("/enter?b=1"), "outer");
        assert_eq!(kind("/enter?a=1&b=1"), "inner");
        assert_eq!(kind("/both?a=1"), "a");
        assert_eq!(kind("/both?a=1&b=1"), "b");
    });
}

#[test]
fn variables() {
    each_driver(|driver| {
        let weir = site(
            driver,
            r#"
            map $arg_m $mapped { default "from map"; }
            server {
                listen 127.0.0.1:%PORT0%;
                location /unset { return 200 "[$never]"; }
                location /other { set $never 1; }
                location /quiet { uninitialized_variable_warn off; return 200 "[$silent]"; }
                location /other2 { set $silent 1; }
                location /family { return 200 "$arg_x $http_host"; }
                location /store {
                    set $arg_x stored;
                    set $http_host here;
                    return 200 "$arg_x $http_host";
                }
                location /args { set $args a=b; return 200 "$args $arg_a"; }
                location /braces { if ($uri ~ (.).$) { return 200 "${1}x"; } }
                location /group {
                    if ($arg_a ~ (?<g>x)) { return 200 "$g"; }
                    return 200 "none[$g]";
                }
                location /map { set $mapped stored; return 200 $mapped; }
                location /maps { return 200 $mapped; }
            }"#,
        );
        check(
            &weir,
            &[
                ("/unset", 200, "[]"),
                ("/quiet", 200, "[]"),
                ("/family?x=asked", 200, "asked localhost"),
                ("/store?x=asked", 200, "stored here"),
                ("/args?x=y", 200, "a=b b"),
                ("/braces", 200, "ex"),
                ("/group?a=x", 200, "x"),
                ("/group", 200, "none[]"),
                ("/map", 200, "stored"),
                ("/maps", 200, "from map"),
            ],
        );
        weir.wait_for_log("error.log", "using uninitialized \"never\" variable");
        let log = weir.error_log();
        assert!(!log.contains("\"silent\"") && !log.contains("\"g\""), "{log}");
    });
}

#[test]
fn rewrite_log() {
    each_driver(|driver| {
        let weir = site(
            driver,
            r#"server {
                listen 127.0.0.1:%PORT0%;
                error_log logs/error.log notice;
                rewrite_log on;
                location /a { rewrite ^/a(.*)$ /b$1?x; rewrite ^/c /d; return 200; }
                location /r { rewrite ^ http://x/ redirect; }
                location /q { rewrite_log off; rewrite ^/quiet /q; return 200; }
            }"#,
        );
        assert_eq!(weir.get("/a1").status, 200);
        assert_eq!(weir.get("/r").status, 302);
        assert_eq!(weir.get("/q").status, 200);
        weir.wait_for_log("error.log", "rewritten redirect: \"http://x/\"");
        let log = weir.stop_and_read("error.log");
        for line in [
            "[notice]",
            "\"^/a(.*)$\" matches \"/a1\", client: 127.0.0.1",
            "rewritten data: \"/b1\", args: \"x\"",
            "\"^/c\" does not match \"/b1\"",
        ] {
            assert!(log.contains(line), "{line} is not in:\n{log}");
        }
        assert!(!log.contains("quiet"), "{log}");
    });
}

#[test]
fn what_is_wrong_is_told() {
    let cases = [
        ("rewrite ^ '';", "empty replacement"),
        ("rewrite ^ /a first;", "invalid parameter \"first\""),
        ("rewrite ( /a;", "regular expression \"(\" does not compile"),
        ("return abc;", "invalid return code \"abc\""),
        ("return 1000;", "invalid return code \"1000\""),
        ("return http://a b;", "invalid return code \"http://a\""),
        ("set a b;", "invalid variable name \"a\""),
        ("set $uri b;", "the duplicate \"uri\" variable"),
        ("if ($a ~ (?<uri>x)) {}", "the duplicate \"uri\" variable"),
        ("if $a {}", "invalid condition \"$a\""),
        ("if ($a {}", "invalid condition \"$a\""),
        ("if () {}", "invalid condition"),
        ("if ($request_uri = ) {}", "invalid condition \"$request_uri\""),
        ("if ($request_uri == a) {}", "unexpected \"==\" in condition"),
        ("if (-z a) {}", "invalid condition \"-z\""),
        ("if (-f) {}", "invalid condition \"-f\""),
        ("if (a = b) {}", "invalid condition \"a\""),
        ("if ($nope) {}", "unknown \"nope\" variable"),
        ("if ($uri) { if ($uri) {} }", "\"if\" directive is not allowed here"),
        ("return 200 $nope;", "unknown \"nope\" variable"),
    ];
    testkit::refused("server { listen 127.0.0.1:%PORT0%; * }", &cases);
}

/// Rounds of rewriting that each repeat the path, or statements that repeat a value, would make
/// gigabytes of a request line, and end the worker.
#[test]
fn texts_that_grow_without_end_are_refused() {
    let doubled = "set $v $v$v;".repeat(40);
    let servers = format!(
        "server {{ listen 127.0.0.1:%PORT0%;
            location /path/ {{ rewrite ^/path/(.*)$ /path/$1$1$1$1$1$1$1$1$1 last; }}
            location /args {{ set $v $arg_a; {doubled} return 200 $v; }}
            location /query {{ rewrite ^(.*)$ $1?$args$args$args$args$args$args$args$args last; }}
            location /ok {{ return 200 ok; }} }}"
    );
    let long = "x".repeat(6000);
    each_driver(|driver| {
        let weir = site(driver, &servers);
        let worker = weir.workers()[0];
        for (uri, text) in [
            (format!("/path/{long}"), "4374006 bytes is longer than 1048576"),
            (format!("/args?a={long}"), "24576000 bytes is longer than 16777216"),
            (format!("/query?{long}"), "4374091 bytes is longer than 1048576"),
        ] {
            assert_eq!(weir.get(&uri).status, 500, "{uri:.10}");
            weir.wait_for_log("error.log", text);
        }
        assert_eq!(weir.get("/ok").text(), "ok");
        assert_eq!(weir.workers(), [worker]);
    });
}

#[test]
fn return_444_resets_where_connections_that_time_out_are_reset() {
    let text = "server { listen 127.0.0.1:%PORT0%; reset_timedout_connection on;
        location / { return 444; }
        location /page { error_page 404 = /none; return 404; }
        location /none { return 444; }
        location /408 { return 408; }
        location /off { reset_timedout_connection off; return 444; } }";
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver).http(text).start();
        for (path, resets) in [("/", true), ("/page", true), ("/408", false), ("/off", false)] {
            let mut conn = weir.connect();
            conn.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            let end = conn.read_some().map_err(|e| e.kind());
            let reset = Err(std::io::ErrorKind::ConnectionReset);
            assert_eq!(end, if resets { reset } else { Ok(Vec::new()) }, "{path}");
        }
    });
}
