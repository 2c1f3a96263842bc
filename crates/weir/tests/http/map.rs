//! `map`, `split_clients` and `$invalid_referer` over real connections.

use testkit::{Site, Weir, built_binary, each_driver, refused};

fn body(weir: &Weir, uri: &str) -> String {
    let response = weir.get(uri);
    assert_eq!(response.status, 200, "{uri}");
    response.text()
}

#[test]
fn maps() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .file("conf/more.conf", b"included from-file;")
            .http(
                r#"
                map_hash_max_size 4096;
                map_hash_bucket_size 128;
                map $arg_a $plain { default none; one 1; ONE-a a; include more.conf; "" empty; }
                map $host $site {
                    hostnames;
                    default other;
                    example.com exact;
                    *.example.com below;
                    www.* www;
                }
                map "$arg_a:$arg_b" $both { "1:2" both; ~^(?<left>.*):x$ "left $left"; ~(.):(.)$ $2$1; }
                map $arg_a $nested { default "<$plain>"; }
                map $uri $kept { ~^/kept/(.*)$ $1; default none; }
                map $uri $fresh { volatile; ~^/fresh/(.*)$ $1; default none; }
                map $arg_a $circle { default $other; }
                map $arg_a $other { default "a$circle"; }
                server {
                    listen 127.0.0.1:%PORT0%;
                    location /plain { return 200 $plain; }
                    location /site { return 200 $site; }
                    location /both { return 200 $both; }
                    location /nested { return 200 $nested; }
                    location /circle { return 200 "[$circle]"; }
                    location /kept { set $a $kept; rewrite ^ /x; return 200 "$a $kept"; }
                    location /fresh { set $a $fresh; rewrite ^ /x; return 200 "$a $fresh"; }
                }"#,
            )
            .start();
        for (uri, want) in [
            ("/plain", "empty"),
            ("/plain?a=one", "1"),
            ("/plain?a=OnE-A", "a"),
            ("/plain?a=included", "from-file"),
            ("/plain?a=two", "none"),
            ("/site", "other"),
            ("/both?a=1&b=2", "both"),
            ("/both?a=l&b=x", "left l"),
            ("/both?a=3&b=4", "43"),
            ("/both?a=33&b=", ""),
            ("/nested?a=one", "<1>"),
            ("/kept/a", "a a"),
            ("/fresh/a", "a none"),
            ("/circle", "[a]"),
        ] {
            assert_eq!(body(&weir, uri), want, "{uri}");
        }
        weir.wait_for_log("error.log", "cycle while evaluating variable \"circle\"");
        for (host, want) in [
            ("example.com", "exact"),
            ("EXAMPLE.COM.", "exact"),
            ("a.example.com:80", "below"),
            ("www.example.org", "www"),
        ] {
            let request = format!("GET /site HTTP/1.0\r\nHost: {host}\r\n\r\n");
            let answer = String::from_utf8(weir.raw(request)).unwrap();
            assert!(answer.ends_with(&format!("\r\n\r\n{want}")), "{host}: {answer}");
        }
    });
}

#[test]
fn shares() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .http(
                r#"
                split_clients $arg_key $variant { 51.2% one; 10% two; * three; }
                split_clients a$arg_key $rest { 0.01% hit; }
                server {
                    listen 127.0.0.1:%PORT0%;
                    location / { return 200 $variant; }
                    location /rest { return 200 "[$rest]"; }
                }"#,
            )
            .start();
        // The keys land where nginx puts them.
        let variants: Vec<_> = (2..=21).map(|n| body(&weir, &format!("/?key={n}"))).collect();
        let count = |want: &str| variants.iter().filter(|v| *v == want).count();
        assert_eq!((count("one"), count("two"), count("three")), (12, 2, 6));
        assert_eq!(body(&weir, "/rest?key=2"), "[]");
    });
}

#[test]
fn referers() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .http(
                r#"server {
                    listen 127.0.0.1:%PORT0%;
                    server_name own.example ~^re[0-9]+\.example$;
                    referer_hash_max_size 2048;
                    location /all { return 200 "[$invalid_referer]"; }
                    location /names {
                        valid_referers none blocked server_names *.example.org example.*/path ~\.test/x;
                        return 200 "[$invalid_referer]";
                    }
                    location /strict {
                        valid_referers www.example.org;
                        return 200 "[$invalid_referer]";
                        location /strict/inner { return 200 "[$invalid_referer]"; }
                    }
                }"#,
            )
            .start();
        let valid = |uri: &str, referer: Option<&str>| {
            let field = referer.map(|r| format!("Referer: {r}\r\n")).unwrap_or_default();
            match weir.request("GET", uri, &field).text().as_str() {
                "[]" => true,
                "[1]" => false,
                other => unreachable!("{uri}: {other}"),
            }
        };
        assert!(valid("/all", None) && valid("/all", Some("http://elsewhere.test/")));
        for (referer, want) in [
            (None, true),
            (Some("http://own.example/"), true),
            (Some("http://OWN.example:80/x"), true),
            (Some("https://re12.example"), true),
            (Some("http://rex.example"), false),
            (Some("http://a.example.org/"), true),
            (Some("http://example.org/"), false),
            (Some("http://example.org/path/x"), true),
            (Some("http://example.org:81/path"), true),
            (Some("http://example.org/Path"), false),
            (Some("http://a.test/x"), true),
            (Some("http://a.TEST/X"), true),
            (Some("http://a.test/y"), false),
            (Some("XXXX:+++++"), true),
        ] {
            assert_eq!(valid("/names", referer), want, "{referer:?}");
        }
        for (referer, want) in [
            (None, false),
            (Some("http://www.example.org/"), true),
            (Some("http://own.example/"), false),
            (Some("www.example.org"), false),
        ] {
            assert_eq!(valid("/strict", referer), want, "{referer:?}");
            assert_eq!(valid("/strict/inner", referer), want, "{referer:?}");
        }
    });
}

#[test]
fn what_is_wrong_is_told() {
    refused(
        "*",
        &[
            ("map $uri x {}", "invalid variable name \"x\""),
            ("map $uri $uri {}", "the duplicate \"uri\" variable"),
            ("map $nope $x {} server { return 200 $x; }", "unknown \"nope\" variable"),
            ("map $uri $x { a $nope; }", "unknown \"nope\" variable"),
            ("map $uri $x { a b; a c; }", "conflicting parameter \"a\""),
            ("split_clients $uri $x { 60% a; 60% b; }", "percent total is greater than 100%"),
            ("server { valid_referers none; }", "without any valid referer"),
            ("server { valid_referers a..b; }", "invalid hostname or wildcard \"a..b\""),
            ("server { valid_referers a.b a.b/x; }", "conflicting parameter \"a.b\""),
            ("server { valid_referers ~; }", "empty regex in \"~\""),
        ],
    );
}
