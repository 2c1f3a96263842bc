//! Requests passed on to other servers.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use testkit::{Backend, Scripted, Site, Weir, built_binary, on_all_drivers, read_until, wait_for};

/// A server in front of a backend, `%UP%`, on each driver.
fn proxied(http: &str, locations: &str, test: impl Fn(Weir, Backend) + Sync) {
    on_all_drivers(|driver| {
        let b = Backend::start();
        let text = format!("{http} server {{ listen 127.0.0.1:%PORT0% sndbuf=32k; {locations} }}");
        let weir = Site::new(built_binary(), driver)
            .file("html/a.txt", "from the file")
            .http(&text.replace("%UP%", &format!("127.0.0.1:{}", b.port)))
            .start();
        test(weir, b);
    });
}

#[test]
fn uris_and_fields() {
    proxied(
        "upstream named { server %UP%; }",
        "location / { proxy_pass http://%UP%; }
             location /replaced/ { proxy_pass http://%UP%/new/; }
             location = /exact { proxy_pass http://%UP%/other; }
             location /var/ { proxy_pass http://%UP%$request_uri; }
             location /name/ { proxy_pass http://$arg_to/x; }
             location ~ ^/re/ { proxy_pass http://%UP%; }
             location /set/ {
                 proxy_pass http://named;
                 proxy_set_header Host $host:1;
                 proxy_set_header X-For $proxy_add_x_forwarded_for;
                 proxy_set_header X-Gone '';
                 proxy_set_header Cookie '';
                 proxy_hide_header X-Hidden;
             }
             location /old/ { proxy_pass http://named; proxy_http_version 1.0; }
             location /own/ { proxy_pass http://named; proxy_method PUT; proxy_set_body b=$arg_b; }
             location /bare/ { proxy_pass http://named; proxy_pass_request_headers off;
                               proxy_pass_request_body off; }",
        |weir, b| {
            let line = |path: &str| {
                let body = weir.get(path).text();
                body.lines().next().unwrap_or_default().to_owned()
            };
            assert_eq!(line("/x%20y/?a=%20"), "GET /x%20y/?a=%20 HTTP/1.1");
            assert_eq!(line("/a/../b%2fc"), "GET /a/../b%2fc HTTP/1.1");
            assert_eq!(line("/replaced/x%20y?q=1"), "GET /new/x%20y?q=1 HTTP/1.1");
            assert_eq!(line("/replaced/a/../b"), "GET /new/b HTTP/1.1");
            assert_eq!(line("/exact?q"), "GET /other?q HTTP/1.1");
            assert_eq!(line("/var/%41?x"), "GET /var/%41?x HTTP/1.1");
            assert_eq!(line("/name/?to=named"), "GET /x HTTP/1.1");
            assert_eq!(line("/re/%41"), "GET /re/%41 HTTP/1.1");
            assert_eq!(line("/old/"), "GET /old/ HTTP/1.0");
            let r = weir.request("GET", "/", "X-One: 1\r\nTE: x\r\nUpgrade: y\r\nCookie: z\r\n");
            let asked = r.text();
            assert!(asked.contains(&format!("Host: 127.0.0.1:{}\r\n", b.port)), "{asked}");
            assert!(asked.contains("X-One: 1\r\n") && asked.contains("Cookie: z\r\n"), "{asked}");
            assert!(!asked.contains("TE:") && !asked.contains("Upgrade:"), "{asked}");
            assert!(!asked.contains("Connection:"), "{asked}");
            assert_eq!(r.header("X-Hidden"), Some("1"));
            let r = weir.request(
                "GET",
                "/set/",
                "X-Forwarded-For: 1.2.3.4\r\nX-Gone: 1\r\nCookie: z\r\n",
            );
            let asked = r.text();
            assert!(asked.contains("Host: localhost:1\r\n"), "{asked}");
            assert!(asked.contains("X-For: 1.2.3.4, 127.0.0.1\r\n"), "{asked}");
            assert!(!asked.contains("X-Gone") && !asked.contains("Cookie"), "{asked}");
            assert_eq!(r.header("X-Hidden"), None);
            let r = weir.raw(
            "POST /own/?b=7 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc",
        );
            let asked = String::from_utf8_lossy(&r).into_owned();
            assert!(
                asked.contains("PUT /own/?b=7 HTTP/1.1") && asked.ends_with("\r\n\r\nb=7"),
                "{asked}"
            );
            let asked = weir.request("GET", "/bare/", "X-One: 1\r\n").text();
            assert!(!asked.contains("X-One"), "{asked}");
        },
    );
}

#[test]
fn kept_connections() {
    proxied(
        "upstream kept { server %UP%; keepalive 4; }
             upstream few { server %UP%; keepalive 4; keepalive_requests 2; }
             upstream none { server %UP%; keepalive 0; }",
        "location / { proxy_pass http://kept; }
             location /few/ { proxy_pass http://few; }
             location /none/ { proxy_pass http://none; }
             location /direct/ { proxy_pass http://%UP%; }",
        |weir, b| {
            let used = |path: &str, n: usize| {
                let before = b.connections();
                (0..n).for_each(|_| assert_eq!(weir.get(path).status, 200, "{path}"));
                b.connections() - before
            };
            assert_eq!(used("/", 5), 1);
            assert_eq!(used("/chunked", 3), 0);
            assert_eq!(weir.request("HEAD", "/", "").status, 200);
            assert_eq!(used("/", 1), 0);
            assert_eq!(used("/few/", 5), 3);
            assert_eq!(used("/none/", 3), 3);
            assert_eq!(used("/direct/", 3), 3);
            assert!(!weir.error_log().contains("[error]"));
            // Ended by the server when it was idle: noticed, or found out and asked again.
            for _ in 0..5 {
                assert_eq!(weir.get("/close-after").text(), "last one");
            }
            // Ended just when it was used again: asked again over a new one, if that is safe.
            assert_eq!(weir.get("/").status, 200);
            assert_eq!(weir.get("/gone-if-kept").status, 200);
            weir.wait_for_log("error.log", "upstream prematurely closed connection");
            assert_eq!(weir.request("POST", "/gone-if-kept", "Content-Length: 0\r\n").status, 502);
        },
    );
}

#[test]
fn bodies_of_requests() {
    proxied(
        "client_max_body_size 8m; upstream kept { server %UP%; }",
        "location / { proxy_pass http://kept; }
             location /now/ { proxy_pass http://kept; proxy_request_buffering off; }
             location /early-413 { proxy_pass http://kept; proxy_request_buffering off; }",
        |weir, _| {
            let big = "0123456789".repeat(100_000);
            for path in ["/", "/now/"] {
                for body in ["", "small", &big] {
                    let length = format!("Content-Length: {}\r\n\r\n{body}", body.len());
                    let chunked = match body {
                        "" => "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
                        b => format!(
                            "Transfer-Encoding: chunked\r\n\r\n3\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
                            &b[..3],
                            b.len() - 3,
                            &b[3..]
                        ),
                    };
                    for rest in [length, chunked] {
                        let head =
                            format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n");
                        let got = weir.raw(head + &rest);
                        assert!(got.starts_with(b"HTTP/1.1 200"), "{path} {}", body.len());
                        assert!(got.ends_with(format!("\r\n\r\n{body}").as_bytes()), "{path}");
                    }
                }
            }
            // Passed on as it comes, in the chunked coding where its length is not known.
            let mut c = weir.connect();
            c.send(
                "POST /now/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n",
            );
            std::thread::sleep(Duration::from_millis(50));
            c.send("0\r\n\r\n");
            let asked = c.response().text();
            assert!(
                asked.contains("Transfer-Encoding: chunked") && asked.ends_with("four"),
                "{asked}"
            );
            // An answer before the end of the body is an answer.
            let mut c = weir.connect();
            c.send(
                "POST /early-413 HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nonly this",
            );
            assert_eq!(c.response().status, 413);
        },
    );
}

#[test]
fn what_goes_wrong() {
    let dead = testkit::Port::reserve();
    let http = format!(
        "upstream dead {{ server 127.0.0.1:{0}; }}
             upstream half {{ server 127.0.0.1:{0}; server %UP%; }}
             upstream down {{ server %UP% down; }}
             log_format up '$upstream_addr|$upstream_status';
             proxy_read_timeout 300ms;",
        dead.number()
    );
    proxied(
        &http,
        "access_log logs/up.log up;
             location / { proxy_pass http://%UP%; }
             location /dead { proxy_pass http://dead; }
             location /half { proxy_pass http://half; }
             location /no-socket { proxy_pass http://unix:%PREFIX%/none.sock; }
             location /large/ { proxy_pass http://%UP%/; proxy_buffer_size 128k;
                                proxy_buffers 4 128k; }
             location /down { proxy_pass http://down; }
             location /unknown { proxy_pass http://$arg_name; }
             location /status { proxy_pass http://%UP%; proxy_intercept_errors on;
                                error_page 404 = /a.txt; }
             location /needs-name { proxy_pass http://%UP%; proxy_intercept_errors on;
                                    error_page 401 /a.txt; }
             location /a.txt { }",
        |weir, b| {
            let status = |path: &str| weir.get(path).status;
            let logged = |text: &str| weir.wait_for_log("error.log", text);
            assert_eq!(status("/dead"), 502);
            let log =
                logged("connect() failed (111: Connection refused) while connecting to upstream");
            let upstream = format!("upstream: \"http://127.0.0.1:{}/dead\", host:", dead.number());
            assert!(log.contains(&upstream), "{log}");
            assert_eq!(status("/half"), 200);
            let two = format!("127.0.0.1:{}, 127.0.0.1:{}|502, 200", dead.number(), b.port);
            weir.wait_for_log("up.log", &two);
            logged("upstream server temporarily disabled while connecting to upstream");
            assert_eq!(status("/down"), 502);
            logged("no live upstreams while connecting to upstream");
            weir.wait_for_log("up.log", "down|502");
            assert_eq!(status("/unknown?name=nobody"), 502);
            logged("no resolver defined to resolve nobody");
            assert_eq!(status("/gone"), 502);
            logged(
                "upstream prematurely closed connection while reading response header from upstream",
            );
            assert_eq!(status("/garbage"), 502);
            logged("upstream sent invalid header: \"bad\\x01...\"");
            assert_eq!(status("/long-head"), 502);
            logged("upstream sent too big header while reading response header from upstream");
            assert_eq!(status("/silent"), 504);
            logged("upstream timed out (110: Connection timed out) while reading response header");
            // Promised bytes are missing: the end of the connection tells the client.
            let got = weir.raw("GET /short HTTP/1.1\r\nHost: a\r\n\r\n");
            assert!(got.ends_with(b"\r\n\r\nshort"));
            logged("upstream prematurely closed connection while reading upstream");
            assert!(weir.raw("GET /stalls HTTP/1.1\r\nHost: a\r\n\r\n").ends_with(b"\r\n\r\nhalf"));
            logged("upstream timed out (110: Connection timed out) while reading upstream");
            let got = weir.raw("GET /bad-chunk HTTP/1.1\r\nHost: a\r\n\r\n");
            assert!(!got.ends_with(b"0\r\n\r\n"));
            logged("upstream sent invalid chunked response while reading upstream");
            assert_eq!(weir.get("/too-much").text(), "four");
            logged(
                "upstream sent more data than specified in \"Content-Length\" header while reading",
            );
            assert_eq!(status("/no-socket"), 502);
            logged("none.sock failed (2: No such file or directory) while connecting to upstream");
            let long = weir.get("/large/long-head");
            assert_eq!(long.header("X-Long").map(str::len), Some(64 << 10));
            let r = weir.get("/status?418");
            assert_eq!((r.status, r.status_line.contains("418 Chosen")), (418, true));
            assert_eq!(weir.get("/status?404").text(), "from the file");
            let r = weir.get("/needs-name");
            assert_eq!((r.status, r.header("WWW-Authenticate")), (401, Some("Basic realm=\"up\"")));
        },
    );
}

#[test]
fn a_client_that_goes_away_ends_it() {
    proxied("", "location / { proxy_pass http://%UP%; }", |weir, b| {
        let mut c = weir.connect();
        c.send("GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_for("the upstream's connection", || (b.connections() == 1).then_some(()));
        drop(c);
        weir.wait_for_log("error.log", "so upstream connection is closed too");
        weir.wait_for_log("access.log", "\" 499 ");
    });
}

#[test]
fn bodies_of_responses() {
    proxied(
        "upstream kept { server %UP%; }",
        "location / { proxy_pass http://kept; }
             location /trailers/ { proxy_pass http://kept/; proxy_pass_trailers on; }
             location /now/ { proxy_pass http://kept/; proxy_buffering off; }
             location /memory/ { proxy_pass http://kept/; proxy_max_temp_file_size 0; }",
        |weir, _| {
            assert_eq!(weir.get("/chunked").text(), "hello world");
            assert_eq!(weir.get("/till-close").text(), "until the end");
            assert_eq!(weir.get("/two-heads").text(), "after hints");
            let raw =
                weir.raw("GET /trailers/chunked HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            assert!(raw.ends_with(b"0\r\nX-T: end\r\n\r\n"), "{}", String::from_utf8_lossy(&raw));
            let n = 12 << 20;
            let filed = "an upstream response is buffered to a temporary file";
            let want: Vec<u8> = (0..n).map(|i| (i % 251) as u8).collect();
            for path in ["/big", "/now/big", "/memory/big"] {
                assert!(weir.get(&format!("{path}?1000")).body == want[..1000], "{path}");
                // A client that waits before it reads: the rest is held in memory, a file, or back.
                let mut c = weir.connect();
                c.send(format!("GET {path}?{n} HTTP/1.1\r\nHost: a\r\n\r\n"));
                if path == "/big" {
                    weir.wait_for_log("error.log", filed);
                } else {
                    std::thread::sleep(Duration::from_millis(100));
                }
                assert!(c.response().body == want, "{path}");
            }
            weir.wait_for_log("error.log", filed);
            let log = weir.stop_and_read("error.log");
            let files = log.matches(filed).count();
            assert_eq!(files, 1, "{log}");
            assert!(weir.prefix().join("proxy_temp").is_dir());
        },
    );
}

#[test]
fn what_responses_say() {
    proxied(
        "",
        "location / { proxy_pass http://%UP%; }
             location /one/ { proxy_pass http://%UP%/; }
             location /rules/ {
                 proxy_pass http://%UP%/;
                 proxy_redirect ~^http://other/(.*)$ /o/$1;
                 proxy_cookie_path /one/ /rules/;
                 proxy_cookie_domain up.example $host;
                 proxy_cookie_flags a secure samesite=lax;
             }
             location /off/ { proxy_pass http://%UP%/; proxy_redirect off; }
             location /accel { proxy_pass http://%UP%; }
             location /files/ { internal; alias html/; }",
        |weir, b| {
            let to = |path: &str| weir.get(path).header("Location").unwrap_or_default().to_owned();
            let own = format!("http://localhost:{}", weir.port(0));
            let up = format!("http://127.0.0.1:{}", b.port);
            assert_eq!(to(&format!("/one/redirect?{up}/x")), format!("{own}/one/x"));
            assert_eq!(to(&format!("/redirect?{up}/x")), format!("{own}/x"));
            assert_eq!(to("/one/redirect?/plain"), "/plain");
            assert_eq!(to("/rules/redirect?http://other/y"), format!("{own}/o/y"));
            assert_eq!(to(&format!("/off/redirect?{up}/x")), format!("{up}/x"));
            let cookie = weir.get("/rules/cookie");
            let want = "a=b; Path=/rules/; Domain=localhost; Secure; SameSite=Lax";
            assert_eq!(cookie.header("Set-Cookie"), Some(want));
            let r = weir.get("/accel?/files/a.txt");
            assert_eq!((r.status, r.text().as_str()), (200, "from the file"));
            assert_eq!(r.header("Set-Cookie"), Some("kept=1"));
            assert_eq!((r.header("X-Lost"), r.header("X-Accel-Redirect")), (None, None));
        },
    );
}

#[test]
fn upgraded_connections() {
    proxied(
        "",
        "location / { proxy_pass http://%UP%; proxy_set_header Upgrade $http_upgrade;
                          proxy_set_header Connection upgrade; }",
        |weir, _| {
            let mut c = weir.connect();
            c.send(
            "GET /upgrade HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: upgrade\r\n\r\nearly",
        );
            let head = String::from_utf8_lossy(&c.read_until(b"\r\n\r\n")).into_owned();
            assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
            assert!(head.contains("Upgrade: echo\r\n") && head.contains("Connection: upgrade\r\n"));
            assert_eq!(c.read_exact(12), b"welcomeEARLY");
            for _ in 0..3 {
                c.send("ping");
                assert_eq!(c.read_exact(4), b"PING");
            }
            c.finish_sending();
            assert!(c.read_to_end().is_empty());
        },
    );
}

#[test]
fn an_upgraded_connection_ends_when_a_side_takes_nothing_in_time() {
    on_all_drivers(|driver| {
        // One sends without end, the other reads nothing.
        let servers = [true, false].map(|sends| {
            Scripted::start(move |mut stream, _| {
                read_until(&mut stream, |bytes| bytes.ends_with(b"\r\n\r\n"));
                let head = b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
                stream.write_all(head).unwrap();
                if !sends {
                    return std::mem::forget(stream);
                }
                while stream.write_all(&[b'x'; 4096]).is_ok() {}
            })
        });
        let text = format!(
            "proxy_set_header Upgrade x; proxy_set_header Connection upgrade;
             server {{
                 listen 127.0.0.1:%PORT0% sndbuf=32k; send_timeout 400ms;
                 # Looks at the time often: that is no reason for the client to have more of it.
                 location / {{ proxy_pass http://127.0.0.1:{}; proxy_read_timeout 60ms; }}
                 location /up {{ proxy_pass http://127.0.0.1:{}; proxy_send_timeout 400ms; }}
             }}",
            servers[0].port, servers[1].port
        );
        let weir = Site::new(built_binary(), driver).http(&text).start();
        let ask = |path: &str| {
            let mut c = TcpStream::connect(("127.0.0.1", weir.port(0))).unwrap();
            let fields = "Host: a\r\nUpgrade: x\r\nConnection: upgrade\r\n";
            c.write_all(format!("GET {path} HTTP/1.1\r\n{fields}\r\n").as_bytes()).unwrap();
            c
        };
        let late = "timed out (110: Connection timed out) while proxying upgraded connection";
        let silent = ask("/");
        weir.wait_for_log("error.log", &format!("client {late}"));
        drop(silent);
        let mut sender = ask("/up");
        while sender.write_all(&[b'x'; 4096]).is_ok() {}
        weir.wait_for_log("error.log", &format!("upstream {late}"));
    });
}

#[test]
fn unix_sockets_and_bad_configurations() {
    proxied(
        "server { listen unix:%PREFIX%/up.sock; return 200 'over unix: $uri $http_host'; }",
        "location / { proxy_pass http://unix:%PREFIX%/up.sock:/x; }
             location /plain { proxy_pass http://unix:%PREFIX%/up.sock; }",
        |weir, _| {
            assert_eq!(weir.get("/a").text(), "over unix: /xa localhost");
            assert_eq!(weir.get("/plain").text(), "over unix: /plain localhost");
            for (text, error) in [
                ("proxy_pass ftp://x;", "invalid URL prefix"),
                (
                    "proxy_pass http://127.0.0.1:99999;",
                    "invalid port in upstream \"127.0.0.1:99999\"",
                ),
                (
                    "proxy_pass http://nobody.invalid;",
                    "host not found in upstream \"nobody.invalid\"",
                ),
                ("proxy_pass http://u:80;", "upstream \"u\" may not have port 80"),
                ("proxy_redirect default;", "should be placed after the \"proxy_pass\" directive"),
                ("proxy_buffers 1 4k; proxy_pass http://u;", "at least 2 \"proxy_buffers\""),
                (
                    "proxy_pass https://u; proxy_ssl_verify on;",
                    "no proxy_ssl_trusted_certificate for proxy_ssl_verify",
                ),
                ("if ($uri) { proxy_pass http://u/x; }", "cannot have URI part"),
            ] {
                let up = "upstream u { server 127.0.0.1:1; }";
                let site = Site::new(built_binary(), weir.driver()).http(&format!(
                    "{up} server {{ listen 127.0.0.1:%PORT0%; location / {{ {text} }} }}"
                ));
                let out = site.run(&["-t"]);
                let said = String::from_utf8_lossy(&out.stderr).into_owned();
                assert!(!out.status.success() && said.contains(error), "{text}\n{said}");
            }
        },
    );
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

#[test]
fn responses_are_never_mixed() {
    proxied(
        "upstream kept { server %UP%; keepalive 3; }",
        "location / { proxy_pass http://kept; }",
        |weir, b| {
            std::thread::scope(|scope| {
                for t in 0..4 {
                    let weir = &weir;
                    scope.spawn(move || one_client(weir, t));
                }
            });
            assert!(b.connections() < 4 * 150, "connections are used again");
        },
    );
}

/// Sends requests for targets of its own, and goes away half-way now and then.
fn one_client(weir: &Weir, t: u64) {
    let mut dice = Dice(t + 1);
    let mut c = weir.connect();
    for n in 0..150 {
        let tag = format!("/tag-{t}-{n}-{}", "x".repeat(dice.below(3000) as usize));
        let body = "b".repeat(dice.below(20_000) as usize);
        let len = body.len();
        c.send(format!("PUT {tag} HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"));
        match dice.below(6) {
            0 => c = weir.connect(),
            1 => {
                c.send(&body[..len / 2]);
                c = weir.connect();
            }
            2 => {
                c.send(&body);
                c.read_exact(20);
                c = weir.connect();
            }
            _ => {
                c.send(&body);
                let r = c.response();
                let text = r.text();
                assert_eq!(r.status, 200, "{text}");
                assert!(text.starts_with(&format!("PUT {tag} HTTP/1.1\r\n")), "{text}");
                assert!(text.ends_with(&format!("\r\n\r\n{body}")));
            }
        }
    }
}
