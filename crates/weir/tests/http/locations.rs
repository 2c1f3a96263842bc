//! Locations, server names, URIs, error pages, and the small content modules, over real
//! connections.

use testkit::{Site, Weir, built_binary, each_driver, refused};

fn check(weir: &Weir, expected: &[(&str, &str)]) {
    for &(uri, want) in expected {
        assert_eq!(weir.get(uri).text(), want, "{uri}");
    }
}

#[test]
fn the_order_of_locations() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .http(
                r#"server {
                    listen 127.0.0.1:%PORT0%;
                    location = / { return 200 exact-root; }
                    location / { return 200 root; }
                    location ^~ /images/ { return 200 images; }
                    location ~* \.(gif|jpg)$ { return 200 picture; }
                    location ~ ^/(?<first>[a-z]+)/named { return 200 "named $first $1"; }
                    location = /foo { return 200 exact-foo; }
                    location /foo { return 200 foo; }
                    location /outer/ {
                        location /outer/in/ { return 200 inner; }
                        location = /outer/exact { return 200 inner-exact; }
                        location ~ \.gif$ { return 200 inner-picture; }
                        location ^~ /outer/no/ {
                            location ~ \.txt$ { return 200 inner-text; }
                            return 200 inner-no;
                        }
                        return 200 outer;
                    }
                    location ~ ^/regex/ {
                        location ~ \.txt$ { return 200 regex-text; }
                        return 200 regex;
                    }
                    location /private { internal; return 200 private; }
                    location /to-private { rewrite ^ /private last; }
                    location "/a b" { return 200 space; }
                }"#,
            )
            .start();
        check(
            &weir,
            &[
                ("/", "exact-root"),
                ("/x", "root"),
                ("/images/a.gif", "images"),
                ("/a.GIF", "picture"),
                ("/word/named.gif", "picture"),
                ("/word/named", "named word word"),
                ("/foo", "exact-foo"),
                ("/foo/", "foo"),
                ("/foobar", "foo"),
                ("/outer/", "outer"),
                ("/outer/in/x", "inner"),
                ("/outer/exact", "inner-exact"),
                ("/outer/x.gif", "inner-picture"),
                ("/outer/x.jpg", "picture"),
                ("/outer/in/x.jpg", "picture"),
                ("/outer/no/x", "inner-no"),
                ("/outer/no/x.txt", "inner-text"),
                // The inner `^~` stops expressions of its own level alone.
                ("/outer/no/x.jpg", "picture"),
                ("/outer/no/x.gif", "picture"),
                ("/regex/x", "regex"),
                ("/regex/x.txt", "regex-text"),
                ("/to-private", "private"),
                ("/a%20b", "space"),
                ("/%66oo", "exact-foo"),
                ("/x/../foo", "exact-foo"),
                ("//foo", "exact-foo"),
            ],
        );
        assert_eq!(weir.get("/private").status, 404);
    });
}

#[test]
fn servers_by_name() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .http(
                &r#"
                server { %L% server_name first; return 200 "$server_name"; }
                server { %L% server_name ""; return 200 "empty"; }
                server { %L% server_name a.test B.Test; return 200 "$server_name"; }
                server { %L% server_name *.wild.test; return 200 "$server_name"; }
                server { %L% server_name wild.*; return 200 "$server_name"; }
                server { %L% server_name .dot.test; return 200 "$server_name"; }
                server {
                    listen 127.0.0.1:%PORT0%;
                    server_name ~^(?<user>[a-z]+)\Q.users.test\E$;
                    return 200 "$user $server_name";
                }"#
                .replace("%L%", "listen 127.0.0.1:%PORT0%;"),
            )
            .start();
        for (host, want) in [
            ("nobody", "first"),
            ("a.test", "a.test"),
            ("b.test:99", "a.test"),
            ("A.TEST.", "a.test"),
            ("x.wild.test", "*.wild.test"),
            ("wild.test", "wild.*"),
            ("dot.test", "dot.test"),
            ("x.dot.test", "dot.test"),
            ("ANNA.users.test", r"anna ~^(?<user>[a-z]+)\Q.users.test\E$"),
            ("a1.users.test", "first"),
        ] {
            let request = format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n");
            let answer = String::from_utf8(weir.raw(request)).unwrap();
            assert!(answer.ends_with(&format!("\r\n\r\n{want}")), "{host}: {answer}");
        }
        assert!(weir.raw("GET / HTTP/1.0\r\n\r\n").ends_with(b"empty"));
    });
}

#[test]
fn of_long_lists_of_expressions_the_first_that_matches_wins() {
    each_driver(|driver| {
        let many = |line: &dyn Fn(usize) -> String| (0..300).map(line).collect::<String>();
        let map = many(&|i| format!("~*\\bname{i}\\.(test|example)\\b found{i}-$1; "));
        let locations = many(&|i| format!("location ~ ^/p{i}x/(\\d+)$ {{ return 200 {i}:$1; }} "));
        let ends =
            many(&|i| format!("location ~* \\.(ext{i}|abc{i})$ {{ return 200 \"$1 $by\"; }} "));
        let names = many(&|i| format!("~^(?<user>[a-z]+)\\.n{i}\\.test$ "));
        let referers = many(&|i| format!("~friend{i}\\. "));
        let weir = Site::new(built_binary(), driver)
            .http(&format!(
                r#"map $http_referer $by {{ {map} ~^last.(.*)$ last-$1; default none; }}
                server {{
                    listen 127.0.0.1:%PORT0%;
                    location / {{ return 200 "$by"; }}
                    location /checked {{
                        valid_referers {referers};
                        return 200 "$invalid_referer";
                    }}
                    location ~ ^/p1\d*x/7$ {{ return 200 before; }}
                    {locations}
                    {ends}
                }}
                server {{
                    listen 127.0.0.1:%PORT0%;
                    server_name {names};
                    return 200 "$user";
                }}"#
            ))
            .start();
        for (uri, referer, want) in [
            ("/", "http://NAME299.test/", "found299-test"),
            ("/", "http://x/?name7.example&name3.test", "found3-test"),
            ("/", "http://name3.testing/", "none"),
            ("/", "last name299.example", "found299-example"),
            ("/", "last name400.example", "last-name400.example"),
            ("/", "", "none"),
            ("/p0x/12", "", "0:12"),
            ("/p299x/3", "", "299:3"),
            ("/p17x/7", "", "before"),
            ("/p17x/8", "", "17:8"),
            ("/p17x/x", "name1.test", "found1-test"),
            ("/a.EXT299", "name2.test", "EXT299 found2-test"),
            ("/a.abc5", "x", "abc5 none"),
            ("/a.abc5x", "x", "none"),
            ("/checked", "http://a.friend299.test/", ""),
            ("/checked", "http://a.friend300.test/", "1"),
        ] {
            let request =
                format!("GET {uri} HTTP/1.0\r\nHost: nobody\r\nReferer: {referer}\r\n\r\n");
            let answer = String::from_utf8(weir.raw(request)).unwrap();
            let body = answer.split_once("\r\n\r\n").unwrap().1;
            assert_eq!(body, want, "{uri} from {referer}");
        }
        let named = weir.raw("GET / HTTP/1.0\r\nHost: anna.n299.test\r\n\r\n");
        assert!(named.ends_with(b"\r\n\r\nanna"));
    });
}

#[test]
fn a_match_that_is_given_up_fails_the_request() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .allow("regular expression match was given up")
            .http(
                r#"server {
                    listen 127.0.0.1:%PORT0%;
                    location / { return 200 open; }
                    location ~ ^/(?=(a+)+$)(a|aa)+$(?!x) { return 403; }
                }"#,
            )
            .start();
        assert_eq!(weir.get("/x").text(), "open");
        // Whether the deny rule holds is not known, so the request must not pass it.
        assert_eq!(weir.get(&format!("/{}!", "a".repeat(80))).status, 500);
    });
}

#[test]
fn error_pages() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .http(
                r#"server {
                    listen 127.0.0.1:%PORT0%;
                    error_page 404 /page?from=conf;
                    error_page 410 =200 @named;
                    error_page 403 http://elsewhere.test/$status;
                    error_page 402 = @other;
                    location /page { internal; return 200 "page $args $request_uri $status"; }
                    location @named { return 200 "named $uri"; }
                    location @other { return 409 "other"; }
                    location /gone { return 410; }
                    location /denied { return 403; }
                    location /paid { return 402; }
                    location /inner { error_page 404 /nothing; return 404; }
                }"#,
            )
            .start();
        let answer = |uri: &str| {
            let r = weir.get(uri);
            (r.status, r.header("Location").map_or_else(|| r.text(), str::to_owned))
        };
        assert_eq!(answer("/gone"), (200, "named /gone".into()));
        assert_eq!(answer("/denied"), (302, "http://elsewhere.test/403".into()));
        assert_eq!(answer("/paid"), (409, "other".into()));
        let (status, text) = answer("/missing");
        assert_eq!(status, 404);
        assert!(text.starts_with("page from=conf /missing"), "{text}");
        // The page's own status does not lead to another page.
        let (status, text) = answer("/inner");
        assert_eq!(status, 404);
        assert!(text.contains("404 Not Found"), "{text}");
    });
}

#[test]
fn small_content() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .http(
                r#"server {
                    listen 127.0.0.1:%PORT0%;
                    location /gif { empty_gif; }
                    location /status { stub_status; }
                    location /json { stub_status json; }
                    location /old { stub_status on; }
                    location /vars { return 200 "$connections_active $connections_writing"; }
                }"#,
            )
            .start();
        let gif = weir.get("/gif");
        assert_eq!(gif.header("Content-Type"), Some("image/gif"));
        assert_eq!(gif.header("Last-Modified"), Some("Mon, 28 Sep 1970 06:00:00 GMT"));
        assert!(gif.body.starts_with(b"GIF89a\x01\0\x01\0") && gif.body.len() == 43);
        assert_eq!(weir.request("POST", "/gif", "Content-Length: 0\r\n").status, 405);
        // A connection ends a moment behind its response.
        let alone = |path: &str| {
            let what = format!("{path} to show one connection");
            testkit::wait_for(&what, || {
                let answer = weir.get(path);
                let text = answer.text();
                let one = ["Active connections: 1 ", "\"active\":1,"];
                one.iter().any(|one| text.contains(one)).then_some(answer)
            })
        };
        let status = alone("/status");
        assert_eq!(status.header("Content-Type"), Some("text/plain"));
        let text = status.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "server accepts handled requests");
        let counts: Vec<u32> = lines[2].split(' ').filter_map(|n| n.parse().ok()).collect();
        assert!(counts[0] >= 3 && counts == [counts[0]; 3], "{text}");
        assert_eq!(lines[3], "Reading: 0 Writing: 1 Waiting: 0 ");
        assert_eq!(alone("/old").text().lines().next(), Some("Active connections: 1 "));
        let json = alone("/json");
        assert_eq!(json.header("Content-Type"), Some("application/json"));
        assert!(json.text().contains("\"active\":1,\"reading\":0,\"writing\":1,\"waiting\":0"));
        testkit::wait_for("one connection", || (weir.get("/vars").text() == "1 1").then_some(()));
        // A connection that says nothing waits; one in the middle of a head is being read.
        let silent = weir.connect();
        let mut talking = weir.connect();
        talking.send("GET / HTTP/1.1\r\n");
        let seen = testkit::wait_for("one connection read, one waiting", || {
            let text = weir.get("/status").text();
            text.contains("Reading: 1 Writing: 1 Waiting: 1").then_some(text)
        });
        assert!(seen.starts_with("Active connections: 3"), "{seen}");
        drop((silent, talking));
    });
}

#[test]
fn what_is_wrong_is_told() {
    refused(
        "server { * }",
        &[
            ("location /a {} location /a {}", "duplicate location \"/a\""),
            ("location = /a { location /a/b {} }", "cannot be inside the exact location \"/a\""),
            ("location @a { location /b {} }", "cannot be inside the named location \"@a\""),
            ("location /a { location @b {} }", "can be on the server level only"),
            ("location /a { location /b {} }", "location \"/b\" is outside location \"/a\""),
            ("location !~ /a {}", "invalid location modifier \"!~\""),
            ("location ~ ( {}", "does not compile"),
            ("server_name *;", "server name \"*\" is invalid"),
            ("server_name a..b ~b;", "invalid server name or wildcard \"a..b\" on 0.0.0.0:80 in"),
            ("server_name ~;", "empty regex in server name \"~\""),
        ],
    );
}
