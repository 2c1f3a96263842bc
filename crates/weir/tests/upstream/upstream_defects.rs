//! Fields for which clients of HTTP/2 and HTTP/3 discard a whole response: they are left out. The
//! clients of these tests fail on any of them.

use std::io::Write;

use testkit::certificates::KeyKind;
use testkit::h2::{Client, Reply, Request, origin};
use testkit::h3;
use testkit::{Driver, Pair, Scripted, Site, Weir, built_binary, each_driver, read_until};

/// The head of a response with defects.
const BAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\x01\r\nX-First: 1\r\nX(): v\r\n\
                   X-Bell: a\x07b\r\nTE: gzip\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n\
                   Upgrade: h2c\r\nProxy-Connection: close\r\nX-Tab: a\tb\r\nETag: \"\x7f\"\r\n\
                   X-Last: 1\r\n";

fn backend() -> Scripted {
    Scripted::start(|mut s, _| {
        let Some(asked) = read_until(&mut s, |bytes| bytes.ends_with(b"\r\n\r\n")) else { return };
        let text = String::from_utf8_lossy(&asked);
        let rest = match () {
            () if text.contains("/trailers") => {
                "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Bell: \x07\r\nX-Sum: 1\r\n\r\n"
            }
            () => "Content-Length: 2\r\n\r\nok",
        };
        let hints = match text.contains("/hints") {
            true => {
                "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: X-Hop, upgrade\r\n\
                 Upgrade: h2c\r\nX-Hop: 1\r\nX-Bell: \x07\r\nKeep-Alive: 1\r\n\r\n"
            }
            false => "",
        };
        // The client may be gone.
        let _ = s.write_all(format!("{hints}{BAD}{rest}").as_bytes());
    })
}

fn site(driver: Driver, behind: u16, behind_h2: u16) -> Weir {
    let text =
        "ignore_invalid_headers off; proxy_http_version 1.1; early_hints 1; proxy_pass_trailers on;
        location / { proxy_pass http://127.0.0.1:%BACK%; }
        location /h2/ { proxy_pass http://127.0.0.1:%BACK2%; proxy_http_version 2;
                        proxy_set_header X-Decoded $uri; proxy_set_header X-Given 1; }
        location /added { add_header X-First 1; add_header 'X()' 1; add_header TE x;
                          add_header :status 204; add_header X-Spaces ' a ';
                          add_header X-Decoded $uri; add_header X-Last 1;
                          add_trailer X-Decoded $uri; add_trailer X-Sum 1; return 200 ok; }
        location /moved { return 301 $uri; }";
    let text = text.replace("%BACK2%", &behind_h2.to_string());
    let text = text.replace("%BACK%", &behind.to_string());
    let site = Site::new(built_binary(), driver);
    Pair::own(KeyKind::P256, "localhost")
        .on(site, "a")
        .http(&format!(
            "server {{ listen 127.0.0.1:%PORT0%; http2 on; {text} }}
             server {{ listen 127.0.0.1:%PORT1% quic; {text}
                       ssl_certificate a.pem; ssl_certificate_key a.key; }}"
        ))
        .start()
}

/// A response over either protocol.
struct Got {
    status: u16,
    fields: Vec<(String, String)>,
    interim: Vec<(u16, Vec<(String, String)>)>,
    body: Vec<u8>,
    trailers: Vec<(String, String)>,
}

impl Got {
    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(other, _)| other == name)
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| &value[..])
    }
}

/// Asks over HTTP/2 and HTTP/3.
fn both(weir: &Weir, path: &str) -> [Got; 2] {
    let two = Client::tcp(weir.port(0)).get(path);
    assert_eq!(two.reset, None, "{path}");
    let three = h3::Client::connect(weir.port(1), "localhost").get(path);
    assert_eq!(three.reset, None, "{path}");
    [
        Got {
            status: two.status,
            fields: two.fields,
            interim: two.interim,
            body: two.body,
            trailers: two.trailers,
        },
        Got {
            status: three.status,
            fields: three.headers,
            interim: three.interim.into_iter().map(|status| (status, Vec::new())).collect(),
            body: three.body,
            trailers: three.trailers,
        },
    ]
}

#[test]
fn fields_with_defects_are_left_out_of_an_upstreams_response() {
    each_driver(|driver| {
        let back = backend();
        let weir = site(driver, back.port, back.port);
        for path in ["/bad", "/trailers", "/hints", "/bad"] {
            for r in both(&weir, path) {
                assert_eq!((r.status, &r.body[..]), (200, &b"ok"[..]), "{path}");
                for name in ["x()", "x-bell", "te", "x-hop", "content-type", "etag"] {
                    assert!(!r.has(name), "{path} {name}");
                }
                assert_eq!((r.value("x-first"), r.value("x-last")), (Some("1"), Some("1")));
                assert_eq!(r.value("x-tab"), Some("a\tb"));
                let trailers: Vec<_> = r.trailers.iter().map(|(name, _)| &name[..]).collect();
                let expected: &[&str] = if path == "/trailers" { &["x-sum"] } else { &[] };
                assert_eq!(trailers, expected, "{path}");
                assert_eq!(r.interim.len(), usize::from(path == "/hints"));
                for (_, fields) in r.interim.iter().filter(|(_, fields)| !fields.is_empty()) {
                    assert_eq!(fields, &[("link".to_owned(), "</a>".to_owned())]);
                }
            }
        }
        for (name, why, count) in [
            ("X()", "invalid name", 8),
            ("X-Bell", "control character", 12),
            ("TE", "field of requests", 8),
            ("content-type", "control character", 8),
        ] {
            let line = format!("response header \"{name}\" is not sent: {why}");
            weir.wait_for_count("error.log", &line, count);
        }
        // HTTP/1 passes on what its clients take, but nothing that was about the connection.
        let mut conn = weir.connect();
        conn.send("GET /hints HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let text = String::from_utf8_lossy(&conn.read_to_end()).into_owned();
        let (hints, rest) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(hints, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nX-Bell: \x07");
        assert!(rest.contains("\r\nX(): v\r\n") && !rest.contains("X-Hop"), "{rest}");
    });
}

#[test]
fn fields_with_defects_are_left_out_of_our_own_responses() {
    each_driver(|driver| {
        let back = backend();
        let weir = site(driver, back.port, back.port);
        for r in both(&weir, "/added/%07") {
            assert_eq!((r.status, &r.body[..]), (200, &b"ok"[..]));
            for name in ["x()", "te", ":status", "x-decoded"] {
                assert!(!r.has(name), "{name}");
            }
            assert_eq!((r.value("x-first"), r.value("x-last")), (Some("1"), Some("1")));
            assert_eq!(r.value("x-spaces"), Some("a"));
            assert_eq!(r.trailers, [("x-sum".to_owned(), "1".to_owned())]);
        }
        for r in both(&weir, "/moved%07") {
            assert_eq!(r.status, 301);
            assert!(r.value("location").unwrap().ends_with("/moved%07"));
        }
    });
}

#[test]
fn a_server_of_http_2_gets_and_gives_no_field_with_a_defect() {
    each_driver(|driver| {
        let answer = |request: &Request, _: usize| {
            let given = format!("{:?} {:?}", request.field("x-given"), request.field("x-decoded"));
            assert!(request.fields.iter().all(|(name, _)| name != "x()" && name != "x-bell"));
            Reply::of("ok").with("x-given", &given).with("x-bell", "\x07").trailer("x-bell", "\x07")
        };
        let (back, old) = (origin(answer), backend());
        let weir = site(driver, old.port, back.port);
        for r in both(&weir, "/h2/%07") {
            assert_eq!((r.status, &r.body[..]), (200, &b"ok"[..]));
            assert_eq!((r.value("x-given"), r.has("x-bell")), (Some("Some(\"1\") None"), false));
            assert_eq!(r.trailers, []);
        }
        let r = weir.request("GET", "/h2/a", "X-Bell: \x07\r\nX(): 1\r\n");
        assert_eq!((r.status, r.header("X-Given")), (200, Some("Some(\"1\") Some(\"/h2/a\")")));
        weir.wait_for_log("error.log", "request header \"X()\" is not sent to upstream");
    });
}

#[test]
fn requests_with_fields_of_a_connection_or_control_characters_are_malformed() {
    each_driver(|driver| {
        let back = backend();
        let weir = site(driver, back.port, back.port);
        for (name, value) in [
            ("connection", "close"),
            ("keep-alive", "1"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("te", "gzip"),
            ("x-bell", "a\x07b"),
            ("x-delete", "\x7f"),
        ] {
            let fields = [(name, value)];
            let r = Client::tcp(weir.port(0)).request("GET", "/moved", &fields, b"");
            assert_eq!(r.status, 400, "{name} over HTTP/2");
            let mut three = h3::Client::connect(weir.port(1), "localhost");
            let r = three.request("GET", "/moved", &fields, b"");
            assert_eq!(r.status, 400, "{name} over HTTP/3");
        }
        let fields = [("te", "trailers"), ("x-tab", "a\tb")];
        assert_eq!(Client::tcp(weir.port(0)).request("GET", "/moved", &fields, b"").status, 301);
    });
}
