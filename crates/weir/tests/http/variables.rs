//! The core's variables, as headers and log lines show them.

use std::time::{SystemTime, UNIX_EPOCH};

use testkit::{Driver, Site, Weir, built_binary, each_driver, each_site};

/// A server that answers with variables in `X-V` and logs them.
fn site(driver: Driver, variables: &str) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/a.txt", "hello")
        .file("html/404.html", "lost")
        .config(&format!(
            "worker_processes 1; events {{}}
             http {{
                 log_format v '{variables}';
                 access_log logs/access.log v;
                 server_tokens off;
                 server {{
                     listen 127.0.0.1:%PORT0%;
                     server_name one.example two.example;
                     error_page 404 /404.html;
                     add_header X-V '{variables}' always;
                     location /alias/ {{ alias html/; }}
                     location /quiet/ {{ alias html/; keepalive_timeout 60s 30s; }}
                 }}
             }}"
        ))
        .start()
}

/// The values of the variables for a request with the given head.
fn seen(weir: &Weir, head: &str) -> String {
    let mut c = weir.connect();
    c.send(format!("{head}\r\n\r\n"));
    c.response().header("x-v").unwrap_or("(none)").to_owned()
}

#[test]
fn what_was_asked() {
    each_site(
        |driver| {
            site(
                driver,
                "$request_method|$request_uri|$uri|$document_uri|$args|$query_string|$is_args|\
             $arg_a|$arg_|$server_protocol|$request|$scheme|$https",
            )
        },
        |weir| {
            assert_eq!(
                seen(&weir, "GET /x/../a.txt?b=2&A=%31 HTTP/1.1\r\nHost: h"),
                "GET|/x/../a.txt?b=2&A=%31|/a.txt|/a.txt|b=2&A=%31|b=2&A=%31|?|%31||HTTP/1.1|\
             GET /x/../a.txt?b=2&A=%31 HTTP/1.1|http|"
            );
            assert_eq!(
                seen(&weir, "GET /none HTTP/1.0"),
                "GET|/none|/404.html|/404.html||||||HTTP/1.0|GET /none HTTP/1.0|http|"
            );
        },
    );
}

#[test]
fn fields_and_cookies() {
    each_site(
        |driver| {
            site(
                driver,
                "$http_x_many|$http_user_agent|$http_nothing|$http_cookie|$cookie_B|$content_type|\
             $content_length|$remote_user",
            )
        },
        |weir| {
            let head = "GET /a.txt HTTP/1.1\r\nHost: h\r\nX-Many: 1\r\nUser-Agent: me\r\nx-many: 2\r\n\
                    Cookie: a=1; b=two\r\nCookie: b=3\r\nContent-Type: text/x\r\n\
                    Content-Length: 0\r\n\
                    Authorization: Basic YW5uYTpzZWNyZXQ=";
            assert_eq!(seen(&weir, head), "1, 2|me||a=1; b=two; b=3|two|text/x|0|anna");
            assert_eq!(seen(&weir, "GET /a.txt HTTP/1.0"), "|||||||");
        },
    );
}

#[test]
fn hosts_and_ports() {
    each_site(
        |driver| site(driver, "$host|$http_host|$server_name|$request_port|$is_request_port"),
        |weir| {
            let asked = |host: &str| seen(&weir, &format!("GET /a.txt HTTP/1.1\r\nHost: {host}"));
            assert_eq!(asked("TWO.example:81"), "two.example|TWO.example:81|one.example|81|:");
            assert_eq!(asked("other"), "other|other|one.example||");
            assert_eq!(seen(&weir, "GET /a.txt HTTP/1.0"), "one.example||one.example||");
        },
    );
}

#[test]
fn addresses_and_files() {
    each_site(
        |driver| {
            site(
                driver,
                "$remote_addr|$remote_port|$server_addr|$server_port|$document_root|$realpath_root|\
             $request_filename",
            )
        },
        |weir| {
            let mut c = weir.connect();
            let port = c.local_port().unwrap();
            c.send("GET /alias/a.txt HTTP/1.0\r\n\r\n");
            let root = weir.prefix().join("html");
            let (root, real) = (root.display(), std::fs::canonicalize(&root).unwrap());
            assert_eq!(
                c.response().header("x-v").unwrap(),
                format!(
                    "127.0.0.1|{port}|127.0.0.1|{}|{root}/|{}|{root}/a.txt",
                    weir.port(0),
                    real.display()
                )
            );
        },
    );
}

#[test]
fn what_was_answered() {
    each_site(
        |driver| {
            site(
                driver,
                "$status|$sent_http_content_type|$sent_http_content_length|$sent_http_connection|\
             $sent_http_keep_alive|$sent_http_transfer_encoding|$sent_http_nothing|\
             $body_bytes_sent|$bytes_sent|$request_completion|$request_length",
            )
        },
        |weir| {
            let mut c = weir.connect();
            c.send("GET /quiet/a.txt HTTP/1.1\r\nHost: h\r\n\r\n");
            let first = c.read_until(b"hello");
            let log = weir.wait_for_log("access.log", "200|");
            let want =
                format!("200|text/plain|5|keep-alive|timeout=30|-|-|5|{}|OK|38", first.len());
            assert_eq!(log, want);
            c.send("GET /gone HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            assert_eq!(c.response().status, 404);
            let log = weir.wait_for_log("access.log", "404|text/html|4|close|-|-|-|4|");
            assert!(log.ends_with("|OK|50"), "{log}");
        },
    );
}

#[test]
fn times_and_counters() {
    each_site(
        |driver| {
            site(
                driver,
                "$pipe $connection_requests $connection $request_time $connection_time $msec \
             $time_iso8601 $time_local",
            )
        },
        |weir| {
            let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
            let mut c = weir.connect();
            let request = "GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n";
            c.send(format!("{request}{request}"));
            let values: Vec<Vec<String>> = c
                .responses(2)
                .iter()
                .map(|r| r.header("x-v").unwrap().split(' ').map(str::to_owned).collect())
                .collect();
            assert_eq!([&values[0][0], &values[1][0]], [".", "p"]);
            assert_eq!([&values[0][1], &values[1][1]], ["1", "2"]);
            assert_eq!(values[0][2], values[1][2]);
            for v in &values {
                for seconds in &v[3..5] {
                    let (whole, decimals) = seconds.split_once('.').unwrap();
                    assert!(whole == "0" && decimals.len() == 3, "{v:?}");
                }
                let now: f64 = v[5].parse().unwrap();
                assert!((before - 5.0..before + 10.0).contains(&now), "{v:?}");
                assert!(v[6].len() == 25 && v[6].as_bytes()[10] == b'T', "{v:?}");
                assert!(v[7].len() == 20 && v[8].len() == 5, "{v:?}");
            }
        },
    );
}

#[test]
fn the_server_itself() {
    each_site(
        |driver| {
            site(
                driver,
                "$pid|$nginx_version|$weir_version|$hostname|$request_id|$request_id|$tcpinfo_rtt|\
             $tcpinfo_snd_cwnd",
            )
        },
        |weir| {
            let value = seen(&weir, "GET /a.txt HTTP/1.0");
            let v: Vec<&str> = value.split('|').collect();
            assert_eq!(v[0], weir.workers()[0].to_string());
            assert_eq!((v[1], v[2]), (env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_VERSION")));
            assert!(!v[3].is_empty() && v[3] == v[3].to_lowercase(), "{v:?}");
            assert!(v[4].len() == 32 && v[4].bytes().all(|b| b.is_ascii_hexdigit()), "{v:?}");
            assert_eq!(v[4], v[5], "one request has one identifier");
            let other = seen(&weir, "GET /a.txt HTTP/1.0");
            assert!(!other.contains(v[4]), "another has another");
            assert!(v[6].parse::<u32>().unwrap() > 0 && v[7].parse::<u32>().unwrap() > 0, "{v:?}");
        },
    );
}

#[test]
fn requests_that_were_refused_have_no_path() {
    each_site(
        |driver| site(driver, "[$uri|$request_uri|$request_method|$request|$status]"),
        |weir| {
            assert!(weir.raw("GET /../x HTTP/1.0\r\n\r\n").starts_with(b"HTTP/1.1 400 "));
            weir.wait_for_log("access.log", "[|-|GET|GET /../x HTTP/1.0|400]");
            assert!(weir.raw("\x01\r\n\r\n").starts_with(b"HTTP/1.1 400 "));
            weir.wait_for_log("access.log", "[-|-|-|\\x01|400]");
        },
    );
}

#[test]
fn redirects_are_logged_as_sent() {
    each_driver(|driver| {
        let weir = Site::new(built_binary(), driver)
            .file("html/dir/a.txt", "hello")
            .config(
                "worker_processes 1; events {}
                 http {
                     log_format v '$status $sent_http_location';
                     access_log logs/access.log v;
                     server { listen 127.0.0.1:%PORT0%; }
                 }",
            )
            .start();
        assert_eq!(weir.get("/dir").status, 301);
        let port = weir.port(0);
        weir.wait_for_log("access.log", &format!("301 http://localhost:{port}/dir/"));
    });
}
