//! `more_set_headers` and its companions.

use testkit::{Driver, Response, Site, Weir, built_binary, each_driver, refused};

fn site(driver: Driver) -> Site {
    Site::new(built_binary(), driver)
        .file("html/a.txt", "hello")
        .file("html/a.html", "<p>hello")
        .file("html/b.css", "b{}")
}

fn fields(r: &Response, name: &str) -> Vec<String> {
    r.all(name).map(str::to_owned).collect()
}

const OUTPUT: &str = r#"
    more_set_headers "Server: mine" "X-Http: $host";
    server {
        listen 127.0.0.1:%PORT0%;
        root html;
        location = /status {
            more_set_headers -s 404 -s '500 503' 'X-Bad: yes' 'X-Other: too';
            return 503;
        }
        location = /ok { more_set_headers -s '404 503' 'X-Bad: yes'; return 200; }
        location = /a.txt { more_set_headers -t 'text/html text/plain' 'X-Type: hit'; }
        location = /b.css { default_type text/css; more_set_headers -t 'text/html text/plain' 'X-Type: hit'; }
        location = /both {
            more_set_headers -s 404 -t text/html 'X-Both: hit';
            default_type text/html;
            return 404 x;
        }
        location /own/ {
            alias html/;
            more_clear_headers Server Date Last-Modified ETag Content-Type X-Http;
        }
        location /type/ { alias html/; charset utf-8; more_set_headers 'Content-Type: text/css; charset=x'; }
        location /plain/ { alias html/; charset utf-8; more_set_headers 'Content-Type: text/css'; charset_types text/css; }
        location /length/ { alias html/; more_clear_headers Content-Length; }
        location /again/ {
            alias html/;
            more_set_headers 'X-A: 1' 'X-A: 2';
            more_set_headers -a 'X-A: 3';
            more_set_headers 'X-B: 1';
            more_set_headers 'X-B';
            more_set_headers 'X-C: ';
        }
        location /add/ { alias html/; add_header X-Add 1; more_clear_headers X-Add; }
        location /if/ {
            alias html/;
            more_set_headers 'X-Place: location' 'X-Outer: yes';
            if ($arg_x) { more_set_headers "X-Place: if $arg_x"; }
        }
        location /etag/ { alias html/; more_set_headers 'ETag: "t"' 'Last-Modified: Mon, 28 Sep 1970 06:00:00 GMT'; }
        location = /moved { more_set_headers 'Location: /there'; return 302 /here; }
        location = /value { more_set_headers "X-V: $arg_v"; return 200; }
        location /proxy/ {
            proxy_pass http://127.0.0.1:%PORT1%/;
            more_clear_headers 'X-Hidden-*' x-gone;
            more_set_headers 'Cache-Control: private';
        }
    }
    server {
        listen 127.0.0.1:%PORT1%;
        add_header X-Hidden-A 1; add_header X-Hidden-B 2; add_header X-Gone 3; add_header X-Stays 4;
        add_header Cache-Control no-store; add_header Cache-Control no-cache;
        location / { return 200 ok; }
    }
"#;

fn output(driver: Driver) -> Weir {
    site(driver).http(OUTPUT).start()
}

#[test]
fn responses_are_changed_by_status_and_type() {
    each_driver(|driver| {
        let weir = output(driver);
        let has = |path: &str, name: &str| weir.get(path).header(name).is_some();
        assert!(has("/status", "x-bad") && has("/status", "x-other"));
        assert!(!has("/ok", "x-bad"));
        assert!(has("/a.txt", "x-type") && has("/a.html", "x-http"));
        assert!(!has("/b.css", "x-type") && has("/both", "x-both"));
        // All statuses, and error pages.
        let r = weir.get("/nothing");
        let own = (r.header("server"), r.header("x-http"));
        assert_eq!((r.status, own), (404, (Some("mine"), Some("localhost"))));
    });
}

#[test]
fn the_server_s_own_fields_can_be_cleared_and_set() {
    each_driver(|driver| {
        let weir = output(driver);
        let r = weir.get("/own/a.txt");
        for name in ["server", "date", "last-modified", "etag", "content-type", "x-http"] {
            assert_eq!(r.header(name), None, "{name}");
        }
        assert_eq!((r.header("content-length"), r.text().as_str()), (Some("5"), "hello"));
        let of_type = |path: &str| weir.get(path).header("content-type").map(str::to_owned);
        assert_eq!(of_type("/type/a.txt").as_deref(), Some("text/css; charset=x"));
        assert_eq!(of_type("/plain/a.txt").as_deref(), Some("text/css; charset=utf-8"));
        let r = weir.get("/length/a.txt");
        assert_eq!((r.header("content-length"), r.text().as_str()), (None, "hello"));
        let r = weir.get("/etag/a.txt");
        assert_eq!(fields(&r, "etag"), ["\"t\""]);
        assert_eq!(fields(&r, "last-modified"), ["Mon, 28 Sep 1970 06:00:00 GMT"]);
        let r = weir.get("/moved");
        let to = format!("http://localhost:{}/there", weir.port(0));
        assert_eq!((r.status, fields(&r, "location")), (302, vec![to]));
    });
}

#[test]
fn directives_run_in_order_from_the_outermost() {
    each_driver(|driver| {
        let weir = output(driver);
        let r = weir.get("/again/a.txt");
        assert_eq!(fields(&r, "x-a"), ["2", "3"]);
        assert_eq!((r.header("x-b"), r.header("x-c")), (None, None));
        assert_eq!(fields(&r, "x-http"), ["localhost"]);
        // As in nginx, what add_header adds comes later.
        assert_eq!(fields(&weir.get("/add/a.txt"), "x-add"), ["1"]);
        assert_eq!(fields(&weir.get("/if/a.txt"), "x-place"), ["location"]);
        let r = weir.get("/if/a.txt?x=1");
        assert_eq!(
            (fields(&r, "x-place"), fields(&r, "x-outer")),
            (vec!["if 1".to_owned()], vec!["yes".to_owned()])
        );
    });
}

#[test]
fn an_upstream_s_fields_are_cleared_by_their_beginning() {
    each_driver(|driver| {
        let weir = output(driver);
        let r = weir.get("/proxy/");
        for name in ["x-hidden-a", "x-hidden-b", "x-gone"] {
            assert_eq!(r.header(name), None, "{name}");
        }
        assert_eq!(r.header("x-stays"), Some("4"));
        assert_eq!(fields(&r, "cache-control"), ["private"]);
    });
}

#[test]
fn a_value_ends_no_line() {
    each_driver(|driver| {
        let weir = output(driver);
        let r = weir.get("/value?v=a%0d%0aX-Evil:1");
        assert_eq!((r.header("x-v"), r.header("x-evil")), (Some("a%0d%0aX-Evil:1"), None));
        assert_eq!(weir.get("/value").header("x-v"), None);
    });
}

const INPUT: &str = r#"
    server {
        listen 127.0.0.1:%PORT0%;
        proxy_set_header Host $host;
        root html;
        location = /own {
            set $my dog;
            more_set_input_headers "Host: My.$my:81" 'User-Agent: faked' 'X-A: 1';
            rewrite ^ /see break;
            proxy_pass http://127.0.0.1:%PORT1%;
        }
        location = /host {
            more_set_input_headers 'Host: Other:81';
            proxy_set_header Host $host; proxy_set_header X-B "$http_host $host";
            proxy_pass http://127.0.0.1:%PORT1%/;
        }
        location = /replace {
            more_set_input_headers -r 'X-A: new' 'X-B: new';
            proxy_pass http://127.0.0.1:%PORT1%/;
        }
        location = /typed {
            more_set_input_headers -t 'text/css text/plain' 'X-A: typed';
            proxy_pass http://127.0.0.1:%PORT1%/;
        }
        location = /clear {
            more_clear_input_headers 'X-*' Cookie;
            proxy_pass http://127.0.0.1:%PORT1%/;
        }
        location = /a.txt { more_clear_input_headers Range; }
        location = /if {
            proxy_pass http://127.0.0.1:%PORT1%;
            if ($arg_x) { more_set_input_headers "X-A: $arg_x"; proxy_pass http://127.0.0.1:%PORT1%; }
        }
        location = /page.html {
            ssi on;
            more_set_input_headers 'X-A: parent';
        }
        location = /part {
            more_set_input_headers -r 'X-A: child of $http_x_a';
            proxy_pass http://127.0.0.1:%PORT1%/;
        }
        location = /body {
            more_set_input_headers 'Content-Length: 999' 'X-A: b';
            proxy_pass http://127.0.0.1:%PORT1%/;
        }
        location = /left { more_set_input_headers 'X-A: left'; rewrite ^ /kept; }
        location = /kept { proxy_pass http://127.0.0.1:%PORT1%/; }
        location = /auth {
            auth_basic closed;
            auth_basic_user_file html/users;
            more_set_input_headers 'Authorization: Basic dTpw';
            proxy_pass http://127.0.0.1:%PORT1%/;
        }
    }
    server {
        listen 127.0.0.1:%PORT1%;
        location / {
            return 200 "$http_host|$http_user_agent|$http_x_a|$http_x_b|$http_cookie|$content_length";
        }
    }
"#;

fn input(driver: Driver) -> Weir {
    let users = "u:{PLAIN}p\n";
    site(driver)
        .file("html/page.html", "<!--#include virtual=\"/part\" -->")
        .file("html/users", users)
        .file("conf/html/users", users)
        .http(INPUT)
        .start()
}

const SENT: &str = "User-Agent: me\r\nX-A: a\r\nX-A: b\r\nCookie: c=1\r\nCookie: d=2\r\n";

#[test]
fn requests_are_changed_for_all_that_read_them() {
    each_driver(|driver| {
        let weir = input(driver);
        let seen = |path: &str, headers: &str| weir.request("GET", path, headers).text();
        assert_eq!(seen("/own", SENT), "my.dog|faked|1||c=1; d=2|");
        assert_eq!(seen("/host", ""), "other|||Other:81 other||");
        assert_eq!(seen("/replace", SENT), "localhost|me|new||c=1; d=2|");
        assert_eq!(seen("/replace", ""), "localhost|||||");
        assert_eq!(seen("/clear", SENT), "localhost|me||||");
        assert_eq!(seen("/typed", "X-A: a\r\n"), "localhost||a|||");
        let typed = "X-A: a\r\nContent-Type: Text/Plain; charset=utf-8\r\n";
        assert_eq!(seen("/typed", typed), "localhost||typed|||");
        assert_eq!(weir.request("GET", "/a.txt", "Range: bytes=0-1\r\n").status, 200);
        assert_eq!(weir.get("/auth").status, 200);
    });
}

#[test]
fn requests_are_changed_behind_rewriting_and_in_subrequests() {
    each_driver(|driver| {
        let weir = input(driver);
        let seen = |path: &str| weir.request("GET", path, "X-A: a\r\n").text();
        assert_eq!(seen("/if"), "localhost||a|||");
        assert_eq!(seen("/if?x=7"), "localhost||7|||");
        assert_eq!(seen("/left"), "localhost||left|||");
        assert_eq!(seen("/page.html"), "localhost||child of parent|||");
    });
}

#[test]
fn the_body_keeps_its_own_length() {
    each_driver(|driver| {
        let weir = input(driver);
        let mut conn = weir.connect();
        for _ in 0..2 {
            conn.send("POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
            assert_eq!(conn.response().text(), "h||b|||3");
        }
    });
}

#[test]
fn mistakes_are_told() {
    refused(
        "server { listen 127.0.0.1:%PORT0%; * }",
        &[
            ("more_set_headers -s 4x4 'A: b';", "invalid status \"4x4\" in "),
            ("more_set_headers -s 99 'A: b';", "invalid status \"99\" in "),
            (
                "more_set_headers -t;",
                "a value is missing behind \"-t\" in \"more_set_headers\" in ",
            ),
            ("more_set_headers -t text/css;", "\"more_set_headers\" directive names no field in "),
            ("more_set_headers -r 'A: b';", "unknown option \"-r\" in \"more_set_headers\" in "),
            ("more_clear_headers -a A;", "unknown option \"-a\" in \"more_clear_headers\" in "),
            ("more_set_input_headers -s 404 A;", "unknown option \"-s\" in \"more_set_input"),
            ("more_clear_input_headers -r A;", "unknown option \"-r\" in \"more_clear_input"),
            ("more_set_headers 'A b: c';", "invalid field name \"A b: c\" in "),
            ("more_set_headers ': c';", "invalid field name \": c\" in "),
            ("more_set_headers 'A: $no_such';", "unknown \"no_such\" variable in "),
            ("if ($args) { more_set_headers 'A: b'; }", "directive is not allowed here in "),
        ],
    );
}

/// All of it was compared with nginx 1.22 and the module.
#[test]
fn expires_is_cleared_by_its_name() {
    each_driver(|driver| {
        let text = "server { listen 127.0.0.1:%PORT0%; expires 1h;
            location /cleared { more_clear_headers Expires; return 200 ok; }
            location /empty { more_set_headers 'expires:'; return 200 ok; }
            location /epoch { expires epoch; more_clear_headers Expires; return 200 ok; }
            location /set { more_set_headers 'Expires: x'; return 200 ok; }
            location /begin { more_clear_headers 'Exp*'; return 200 ok; }
            location /other { more_clear_headers -s 404 Expires; return 200 ok; }
            location /added { add_header Expires x; more_clear_headers Expires; return 200 ok; } }";
        let weir = Site::new(built_binary(), driver).http(text).start();
        for (path, expires, control) in [
            ("/cleared", None, "max-age=3600"),
            ("/empty", None, "max-age=3600"),
            ("/epoch", None, "no-cache"),
            ("/set", Some(false), "max-age=3600"),
            ("/begin", Some(false), "max-age=3600"),
            ("/other", Some(false), "max-age=3600"),
            ("/added", Some(true), "max-age=3600"),
        ] {
            let r = weir.get(path);
            assert_eq!(r.header("Expires").map(|value| value == "x"), expires, "{path}");
            assert_eq!(r.header("Cache-Control"), Some(control), "{path}");
        }
    });
}
