//! TLS with clients, over real connections.

use std::io::{Read, Write};

use crate::tls::{BOTH, Client, Pair, Trickle, socket};
use rustls::ProtocolVersion;
use rustls::version::{TLS12, TLS13};
use testkit::certificates::{Extension, KeyKind, ListDraft, der};
use testkit::{Conn, Driver, Site, Weir, built_binary, each_driver, pattern, refused};

const BIG: usize = 3_000_000;

/// A site with the certificates `a` and `b` and their keys; `a` is every server's.
fn site(driver: Driver) -> Site {
    let a = Pair::own(KeyKind::P256, "a.example");
    let b = Pair::own(KeyKind::P256, "b.example");
    b.on(a.on(Site::new(built_binary(), driver), "a"), "b")
}

fn with_a(http: &str) -> String {
    format!("ssl_certificate a.pem; ssl_certificate_key a.key;\n{http}")
}

fn start(driver: Driver, http: &str) -> Weir {
    site(driver).http(&with_a(http)).start()
}

fn der_of(weir: &Weir, name: &str) -> Vec<u8> {
    let text = std::fs::read(weir.prefix().join("conf").join(name)).unwrap();
    use rustls::pki_types::pem::PemObject;
    rustls::pki_types::CertificateDer::from_pem_slice(&text).unwrap().to_vec()
}

#[test]
fn the_name_chooses_the_server_and_its_certificate() {
    each_driver(|driver| {
        let weir = site(driver)
            .http(
                "server { listen 127.0.0.1:%PORT0% ssl; server_name a.example;
                    ssl_certificate a.pem; ssl_certificate_key a.key; return 200 a; }
                server { listen 127.0.0.1:%PORT0% ssl; server_name b.example *.b.example;
                    ssl_certificate b.pem; ssl_certificate_key b.key; return 200 b; }
                server { listen 127.0.0.1:%PORT0% ssl; server_name c.example; return 200 c; }
                server { listen 127.0.0.1:%PORT0% ssl; server_name d.example;
                    ssl_reject_handshake on; }",
            )
            .start();
        let (a, b) = (der_of(&weir, "a.pem"), der_of(&weir, "b.pem"));
        for version in BOTH {
            for (name, certificate, body) in [
                ("a.example", &a, "a"),
                ("b.example", &b, "b"),
                ("X.B.EXAMPLE", &b, "b"),
                ("c.example", &a, "c"),
                ("other.example", &a, "a"),
            ] {
                let client = Client::with(name, &[version], None);
                assert!(client.see(weir.port(0)).certificate == *certificate, "{name}");
                assert_eq!(client.get(weir.port(0), "/").text(), body, "{name}");
            }
            let unnamed = Client::with("b.example", &[version], None).without_name();
            assert!(unnamed.see(weir.port(0)).certificate == a);
            let refusal = Client::with("d.example", &[version], None).refusal(weir.port(0));
            assert!(refusal.contains("UnrecognisedName"), "{refusal}");
        }
        weir.wait_for_log("error.log", "SSL_do_handshake() failed");
    });
}

#[test]
fn handshakes_without_a_known_name_are_refused_by_the_default_server() {
    each_driver(|driver| {
        let weir = site(driver)
            .http(
                "server { listen 127.0.0.1:%PORT0% ssl; ssl_reject_handshake on; }
                server { listen 127.0.0.1:%PORT0% ssl; server_name b.example;
                    ssl_certificate b.pem; ssl_certificate_key b.key; return 200 b; }",
            )
            .start();
        assert_eq!(Client::of("b.example").get(weir.port(0), "/").text(), "b");
        assert!(Client::of("a.example").refusal(weir.port(0)).contains("UnrecognisedName"));
        let unnamed = Client::of("b.example").without_name();
        assert!(unnamed.refusal(weir.port(0)).contains("UnrecognisedName"));
    });
}

#[test]
fn a_request_in_plain_text_is_told_what_the_port_is_for() {
    each_driver(|driver| {
        let weir = start(
            driver,
            "server { listen 127.0.0.1:%PORT0% ssl; }
            server { listen 127.0.0.1:%PORT1% ssl; error_page 497 =307 https://$host$request_uri; }
            server { listen 127.0.0.1:%PORT2% ssl; listen 127.0.0.1:%PORT3%;
                return 200 $scheme,$https,$ssl_protocol; }",
        );
        let told = weir.get("/");
        assert_eq!(told.status, 400);
        let text = "The plain HTTP request was sent to HTTPS port";
        assert!(told.text().contains(text), "{}", told.text());
        weir.wait_for_log("error.log", "client sent plain HTTP request to HTTPS port");
        let mut conn = Conn::tcp(weir.port(1));
        conn.send("GET /x?y HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let moved = conn.response();
        assert_eq!((moved.status, moved.header("Location")), (307, Some("https://a.example/x?y")));
        assert!(conn.is_closed());
        // Both kinds of address in one server.
        assert_eq!(Client::of("a.example").get(weir.port(2), "/").text(), "https,on,TLSv1.3");
        let mut conn = Conn::tcp(weir.port(3));
        conn.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(conn.response().text(), "http,,");
    });
}

/// An authority, one below it, and what clients show.
struct Clients {
    root: Pair,
    middle: Pair,
    good: Pair,
    below: Pair,
    revoked: Pair,
    expired: Pair,
    stranger: Pair,
}

fn clients() -> Clients {
    let root = Pair::authority("CN=root");
    let middle =
        root.issue("CN=root", "CN=middle", 2, |d| d.with(Extension::basic(true, None).critical()));
    let good = root.issue("CN=root", "CN=good/O=Some, Inc", 3, |d| d);
    let below = middle.issue("CN=middle", "CN=below", 4, |d| d);
    let revoked = root.issue("CN=root", "CN=revoked", 5, |d| d);
    let expired = root.issue("CN=root", "CN=expired", 6, |mut d| {
        d.validity.1 = "210101000000Z".to_owned();
        d
    });
    let stranger = Pair::own(KeyKind::P256, "stranger");
    Clients { root, middle, good, below, revoked, expired, stranger }
}

impl Clients {
    fn on(&self, site: Site) -> Site {
        let list = ListDraft::new("CN=root").revoking(&[5]).sign(&self.root.key);
        site.file("conf/root.pem", self.root.pem())
            .file("conf/crl.pem", der::pem("X509 CRL", &list))
    }
}

#[test]
fn clients_are_let_in_by_their_certificates() {
    each_driver(|driver| {
        let c = clients();
        let server = |n: usize, own: &str| {
            format!(
                "server {{ listen 127.0.0.1:%PORT{n}% ssl; {own}
                ssl_client_certificate root.pem;
                error_page 495 /495; error_page 496 /496;
                location / {{ return 200 $ssl_client_verify; }}
                location = /495 {{ return 200 \"page 495 $ssl_client_verify\"; }}
                location = /496 {{ return 200 \"page 496 $ssl_client_verify\"; }} }}\n"
            )
        };
        let http = [
            "ssl_verify_client on;",
            "ssl_verify_client optional;",
            "ssl_verify_client optional_no_ca;",
            "ssl_verify_client on; ssl_verify_depth 2;",
            "ssl_verify_client on; ssl_crl crl.pem;",
            "ssl_verify_client off;",
        ];
        let http: String = http.iter().enumerate().map(|(n, own)| server(n, own)).collect();
        let weir = c.on(site(driver)).http(&with_a(&http)).start();
        let unknown = "self-signed certificate";
        let expired = "certificate has expired";
        let revoked = "certificate revoked";
        let bad = |why: &str| format!("page 495 FAILED:{why}");
        let missing = || "page 496 NONE".to_owned();
        let ok = || "SUCCESS".to_owned();
        for version in BOTH {
            let get = |n: usize, shown: Option<&[&Pair]>| {
                let client = Client::with("a.example", &[version], shown);
                client.get(weir.port(n), "/").text()
            };
            assert_eq!(get(0, None), missing());
            assert_eq!(get(0, Some(&[&c.good])), ok());
            assert_eq!(get(0, Some(&[&c.stranger])), bad(unknown));
            assert_eq!(get(0, Some(&[&c.expired])), bad(expired));
            assert_eq!(get(0, Some(&[&c.revoked])), ok());
            assert_eq!(get(0, Some(&[&c.below, &c.middle])), ok());
            assert_eq!(get(1, None), "NONE");
            assert_eq!(get(1, Some(&[&c.good])), ok());
            assert_eq!(get(1, Some(&[&c.stranger])), bad(unknown));
            assert_eq!(get(2, None), "NONE");
            assert_eq!(get(2, Some(&[&c.stranger])), format!("FAILED:{unknown}"));
            assert_eq!(get(2, Some(&[&c.expired])), bad(expired));
            assert_eq!(get(3, Some(&[&c.below, &c.middle])), ok());
            assert_eq!(get(4, Some(&[&c.good])), ok());
            assert_eq!(get(4, Some(&[&c.revoked])), bad(revoked));
            assert_eq!(get(5, Some(&[&c.good])), "NONE");
        }
        weir.wait_for_log("error.log", "client sent no required SSL certificate");
        let line = weir.wait_for_log("error.log", "client SSL certificate verify error: (18:");
        assert!(line.contains("(18:self-signed certificate)"), "{line}");
        weir.wait_for_log("error.log", "(10:certificate has expired)");
        weir.wait_for_log("error.log", "(23:certificate revoked)");
    });
}

#[test]
fn refused_certificates_have_nginx_pages() {
    each_driver(|driver| {
        let c = clients();
        let http = "server { listen 127.0.0.1:%PORT0% ssl; ssl_verify_client on;
            ssl_client_certificate root.pem; }";
        let weir = c.on(site(driver)).http(&with_a(http)).start();
        let answer = Client::of("a.example").get(weir.port(0), "/");
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains("No required SSL certificate was sent"));
        let client = Client::with("a.example", &BOTH, Some(&[&c.stranger]));
        let answer = client.get(weir.port(0), "/");
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains("The SSL certificate error"));
        let logged = weir.wait_for_log("access.log", "\" 400 ");
        assert!(logged.contains("GET / HTTP/1.1"), "{logged}");
    });
}

#[test]
fn variables_tell_of_the_client_s_certificate() {
    each_driver(|driver| {
        let c = clients();
        let http = "server { listen 127.0.0.1:%PORT0% ssl; ssl_verify_client on;
            ssl_client_certificate root.pem;
            return 200 '$ssl_client_s_dn|$ssl_client_i_dn|$ssl_client_serial|$ssl_client_v_start|\
            $ssl_client_v_end|$ssl_client_s_dn_legacy|$ssl_client_raw_cert'; }";
        let weir = c.on(site(driver)).http(&with_a(http)).start();
        for version in BOTH {
            let client = Client::with("a.example", &[version], Some(&[&c.good]));
            let text = client.get(weir.port(0), "/").text();
            let expected = format!(
                "O=Some\\, Inc,CN=good|CN=root|03|Jan  1 00:00:00 2020 GMT|\
                Jan  1 00:00:00 2040 GMT|/CN=good/O=Some, Inc|{}",
                c.good.pem()
            );
            assert_eq!(text.trim_end(), expected.replace("            ", "").trim_end());
        }
    });
}

#[test]
fn a_verifying_server_is_not_had_by_another_name() {
    each_driver(|driver| {
        let c = clients();
        let http = "server { listen 127.0.0.1:%PORT0% ssl; server_name a.example; return 200 a; }
            server { listen 127.0.0.1:%PORT0% ssl; server_name b.example; return 200 b; }
            server { listen 127.0.0.1:%PORT0% ssl; server_name c.example; return 200 c;
            ssl_certificate b.pem; ssl_certificate_key b.key;
            ssl_verify_client optional; ssl_client_certificate root.pem; }";
        let weir = c.on(site(driver)).http(&with_a(http)).start();
        let mut conn = Client::of("a.example").connect(weir.port(0));
        conn.send("GET / HTTP/1.1\r\nHost: b.example\r\n\r\n");
        assert_eq!(conn.response().text(), "b");
        conn.send("GET / HTTP/1.1\r\nHost: c.example\r\n\r\n");
        assert_eq!(conn.response().status, 421);
        let line = "client attempted to request the server name different from the one that was";
        weir.wait_for_log("error.log", line);
        // A name that no server has chose nothing.
        let mut conn = Client::of("unknown.example").connect(weir.port(0));
        conn.send("GET / HTTP/1.1\r\nHost: c.example\r\n\r\n");
        assert_eq!(conn.response().text(), "c");
        assert_eq!(Client::of("c.example").get(weir.port(0), "/").text(), "c");
    });
}

/// A request over a session whose name may end in a dot, as OpenSSL sends it. Gives status and
/// body.
fn over_openssl(port: u16, name: &str, request: &str) -> (String, String) {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &format!("127.0.0.1:{port}")])
        .args(if name.is_empty() { vec!["-noservername"] } else { vec!["-servername", name] })
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().unwrap();
    input.write_all(request.as_bytes()).unwrap();
    let output = client.wait_with_output().unwrap();
    drop(input);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    (head.split(' ').nth(1).unwrap_or_default().to_owned(), body.to_owned())
}

/// All of it was compared with nginx 1.22.
#[test]
fn the_name_of_a_session_may_end_in_a_dot_and_does_not_stand_for_a_host() {
    each_driver(|driver| {
        let c = clients();
        let verify = "ssl_verify_client optional; ssl_client_certificate root.pem;";
        let http = format!(
            "server {{ listen 127.0.0.1:%PORT0% ssl; server_name d.example; return 200 d; }}
             server {{ listen 127.0.0.1:%PORT0% ssl; server_name a.example; return 200 a; }}
             server {{ listen 127.0.0.1:%PORT0% ssl; server_name v.example; return 200 v;
                       {verify} }}
             server {{ listen 127.0.0.1:%PORT1% ssl; server_name d.example; return 200 d;
                       {verify} }}
             server {{ listen 127.0.0.1:%PORT1% ssl; server_name a.example; return 200 a; }}
             server {{ listen 127.0.0.1:%PORT2% ssl; server_name d.example; return 200 d; }}
             server {{ listen 127.0.0.1:%PORT2% ssl; server_name ''; return 200 empty; }}
             server {{ listen 127.0.0.1:%PORT2% ssl; server_name a.example; return 200 a; }}"
        );
        let weir = c.on(site(driver)).http(&with_a(&http)).start();
        // Port, name of the session, host of the request: status, server.
        for (port, name, host, status, server) in [
            (0, "", "", "200", "d"),
            (0, "a.example", "", "200", "d"),
            (0, "v.example.", "", "200", "d"),
            (0, "v.example.", "v.example", "200", "v"),
            (0, "v.example", "v.example.", "200", "v"),
            (0, "V.example.", "v.EXAMPLE.", "200", "v"),
            (0, "v.example.", "a.example", "200", "a"),
            (0, "a.example.", "v.example", "421", ""),
            (0, "a.example.", "v.example.", "421", ""),
            (0, "none.example.", "v.example.", "200", "v"),
            (1, "a.example", "", "421", ""),
            (1, "a.example.", "a.example", "200", "a"),
            (1, "d.example", "d.example", "200", "d"),
            (1, "none.example", "", "200", "d"),
            (1, "", "", "200", "d"),
            (2, "a.example", "", "200", "empty"),
        ] {
            let host = if host.is_empty() { String::new() } else { format!("Host: {host}\r\n") };
            let request = format!("GET / HTTP/1.0\r\n{host}\r\n");
            let (got, body) = over_openssl(weir.port(port), name, &request);
            assert_eq!(got, status, "{port} {name} {host}");
            assert!(status == "421" || body == server, "{port} {name} {host}: {body}");
        }
    });
}

#[test]
fn a_verifying_server_is_not_had_by_another_name_over_quic() {
    each_driver(|driver| {
        let c = clients();
        let http = "server { listen 127.0.0.1:%PORT0% quic; server_name a.example; return 200 a; }
            server { listen 127.0.0.1:%PORT0% quic; server_name c.example; return 200 c;
            ssl_verify_client optional; ssl_client_certificate root.pem; }";
        let weir = c.on(site(driver)).http(&with_a(http)).start();
        let mut conn = testkit::h3::Client::connect(weir.port(0), "a.example");
        assert_eq!(conn.get("/").body, b"a");
        let id = conn.begin(&[
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/"),
            (":authority", "c.example"),
        ]);
        conn.quic().finish(id);
        assert_eq!(conn.response(id).status, 421);
        let mut conn = testkit::h3::Client::connect(weir.port(0), "c.example");
        assert_eq!(conn.get("/").body, b"c");
    });
}

#[test]
fn variables_tell_of_the_session() {
    each_driver(|driver| {
        let weir = start(
            driver,
            "server { listen 127.0.0.1:%PORT0% ssl;
            return 200 '$scheme|$https|$ssl_protocol|$ssl_cipher|$ssl_server_name|\
$ssl_session_reused|$ssl_alpn_protocol|$ssl_client_verify'; }",
        );
        let cases = [
            (&TLS12, "AES_256_GCM", "TLSv1.2|ECDHE-ECDSA-AES256-GCM-SHA384"),
            (&TLS13, "AES_128_GCM", "TLSv1.3|TLS_AES_128_GCM_SHA256"),
            (&TLS13, "CHACHA20", "TLSv1.3|TLS_CHACHA20_POLY1305_SHA256"),
        ];
        for (version, suite, expected) in cases {
            let client = Client::limited("a.example", version, suite).with_alpn(&["http/1.1"]);
            let text = client.get(weir.port(0), "/").text();
            assert_eq!(text, format!("https|on|{expected}|a.example|.|http/1.1|NONE"));
        }
        let client = Client::of("a.example").without_name();
        let text = client.get(weir.port(0), "/").text();
        assert!(text.ends_with("||.||NONE"), "{text}");
        let client = Client::of("a.example").with_alpn(&["nothing"]);
        let refusal = client.refusal(weir.port(0));
        assert!(refusal.contains("NoApplicationProtocol"), "{refusal}");
    });
}

#[test]
fn redirects_have_the_scheme_and_the_port() {
    each_driver(|driver| {
        let weir = site(driver)
            .file("html/dir/x", "x")
            .http(&with_a(
                "server { listen 127.0.0.1:%PORT0% ssl; root html;
                location /off/ { port_in_redirect off; alias html/; } }",
            ))
            .start();
        let answer = Client::of("a.example").get(weir.port(0), "/dir");
        let expected = format!("https://a.example:{}/dir/", weir.port(0));
        assert_eq!((answer.status, answer.header("Location")), (301, Some(expected.as_str())));
        let answer = Client::of("a.example").get(weir.port(0), "/off/dir");
        assert_eq!(answer.header("Location"), Some("https://a.example/off/dir/"));
    });
}

#[test]
fn versions_suites_and_kinds_of_keys_are_those_of_the_server() {
    each_driver(|driver| {
        let rsa = Pair::own(KeyKind::Rsa, "a.example");
        let http = "server { listen 127.0.0.1:%PORT0% ssl; ssl_protocols TLSv1.2; return 200 x; }
            server { listen 127.0.0.1:%PORT1% ssl; ssl_protocols TLSv1.3; return 200 x; }
            server { listen 127.0.0.1:%PORT2% ssl;
            ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256; return 200 x; }
            server { listen 127.0.0.1:%PORT3% ssl; return 200 x;
            ssl_certificate a.pem; ssl_certificate_key a.key;
            ssl_certificate rsa.pem; ssl_certificate_key rsa.key; }";
        let weir = rsa.on(site(driver), "rsa").http(&with_a(http)).start();
        let (old, new) = (Client::with("a.example", &[&TLS12], None), Client::of("a.example"));
        assert_eq!(new.see(weir.port(0)).version, ProtocolVersion::TLSv1_2);
        assert_eq!(new.see(weir.port(1)).version, ProtocolVersion::TLSv1_3);
        assert!(old.refusal(weir.port(1)).contains("ProtocolVersion"));
        let only_12 = Client::with("a.example", &[&TLS13], None);
        assert!(only_12.refusal(weir.port(0)).contains("ProtocolVersion"));
        let suite = format!("{:?}", old.see(weir.port(2)).suite);
        assert_eq!(suite, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256");
        let other = Client::limited("a.example", &TLS12, "CHACHA20").refusal(weir.port(2));
        assert!(other.contains("HandshakeFailure"), "{other}");
        let of = |suite| Client::limited("a.example", &TLS12, suite).see(weir.port(3)).certificate;
        assert!(of("ECDHE_RSA") == rsa.certificate);
        assert!(of("ECDHE_ECDSA") == der_of(&weir, "a.pem"));
    });
}

#[test]
fn certificates_are_named_by_variables() {
    each_driver(|driver| {
        let weir = site(driver)
            .http(
                "server { listen 127.0.0.1:%PORT0% ssl; return 200 x;
                ssl_certificate $ssl_server_name.pem; ssl_certificate_key $ssl_server_name.key; }
                server { listen 127.0.0.1:%PORT1% ssl; return 200 x;
                ssl_certificate_cache max=10 valid=1h inactive=1h;
                ssl_certificate $ssl_server_name.pem; ssl_certificate_key $ssl_server_name.key; }",
            )
            .start();
        let b = Pair::own(KeyKind::P256, "b");
        let c = Pair::own(KeyKind::P256, "b");
        let put = |pair: &Pair| {
            weir.write("conf/b.test.pem", pair.pem());
            weir.write("conf/b.test.key", pair.key.pem());
        };
        put(&b);
        for version in BOTH {
            let client = Client::with("b.test", &[version], None);
            assert!(client.see(weir.port(0)).certificate == b.certificate);
            assert!(client.see(weir.port(1)).certificate == b.certificate);
            let refusal = Client::with("no.test", &[version], None).refusal(weir.port(0));
            assert!(refusal.contains("HandshakeFailure"), "{refusal}");
        }
        let line = weir.wait_for_log("error.log", "cannot load certificate \"no.test.pem\"");
        assert!(line.contains("[error]"), "{line}");
        put(&c);
        let client = Client::of("b.test");
        assert!(client.see(weir.port(0)).certificate == c.certificate, "nothing is kept");
        assert!(client.see(weir.port(1)).certificate == b.certificate, "it is kept");
    });
}

#[test]
fn a_hello_comes_in_pieces_and_a_request_with_the_handshake() {
    each_driver(|driver| {
        let weir = start(driver, "server { listen 127.0.0.1:%PORT0% ssl; return 200 $uri; }");
        let request = b"GET /early HTTP/1.1\r\nHost: a.example\r\n\r\n";
        for version in BOTH {
            let client = Client::with("a.example", &[version], None);
            for size in [1, 2, 3, 5, 100] {
                let (mut conn, _) = client.over(Trickle(socket(weir.port(0)), size), b"").unwrap();
                conn.send(request);
                assert_eq!(conn.response().text(), "/early", "by {size}");
            }
            let (mut conn, _) = client.over(socket(weir.port(0)), request).unwrap();
            assert_eq!(conn.response().text(), "/early");
            // Every place where the hello can be split.
            let hello = client.hello();
            for at in 1..hello.len() {
                let mut stream = socket(weir.port(0));
                stream.write_all(&hello[..at]).unwrap();
                stream.write_all(&hello[at..]).unwrap();
                let mut first = [0];
                stream.read_exact(&mut first).unwrap();
                assert_eq!(first, [22], "split at {at}");
            }
        }
    });
}

#[test]
fn what_is_no_handshake_ends_the_connection_alone() {
    each_driver(|driver| {
        let weir = start(
            driver,
            "client_header_timeout 300ms;
            server { listen 127.0.0.1:%PORT0% ssl; return 200 x; }",
        );
        let end = |bytes: &[&[u8]]| {
            let mut conn = weir.connect();
            for part in bytes {
                conn.try_send(part).unwrap();
            }
            // A reset is an end as well: bytes were not read.
            while conn.read_some().is_ok_and(|more| !more.is_empty()) {}
        };
        let hello = Client::of("a.example").hello();
        end(&[b""]);
        end(&[&hello[..hello.len() / 2]]);
        end(&[&hello]);
        end(&[&hello, b"GET / HTTP/1.1\r\n\r\n"]);
        end(&[b"\x16\x03\x01\x00\x05nonsense of all kinds"]);
        end(&[b"\x16\x03\x01\xff\xff"]);
        end(&[&hello, &[21, 3, 3, 0, 2, 2, 40]]);
        end(&[&hello, &[22, 3, 3, 0, 4, 20, 0, 0, 0]]);
        end(&[&[0x80; 100]]);
        assert_eq!(Client::of("a.example").get(weir.port(0), "/").text(), "x");
        weir.wait_for_log("error.log", "client timed out");
        weir.wait_for_log("error.log", "SSL_do_handshake() failed");
        let log = weir.stop_and_read("error.log");
        assert!(!log.contains("[crit]") && !log.contains("[error]"), "{log}");
    });
}

#[test]
fn big_files_and_bodies_go_whole() {
    each_driver(|driver| {
        let weir = site(driver)
            .file("html/big", pattern(BIG, 1))
            .http(&with_a(
                "server { listen 127.0.0.1:%PORT0% ssl; root html; client_max_body_size 10m;
                listen 127.0.0.1:%PORT1%;
                location /put/ { proxy_pass http://127.0.0.1:%PORT1%/echo/; }
                location /unbuffered/ { proxy_request_buffering off; proxy_http_version 1.1;
                proxy_pass http://127.0.0.1:%PORT1%/echo/; }
                location /echo/ { client_body_in_file_only clean; client_body_buffer_size 1k;
                proxy_pass http://127.0.0.1:%PORT1%/length; proxy_pass_request_body off;
                proxy_set_header Content-Length ''; proxy_set_header X-Length $content_length; }
                location /length { return 200 $http_x_length; } }
                server { listen 127.0.0.1:%PORT2% ssl; root html; sendfile on; ssl_buffer_size 4k;
                output_buffers 1 5k; }",
            ))
            .start();
        for version in BOTH {
            let client = Client::with("a.example", &[version], None);
            for port in [0, 2] {
                let got = client.get(weir.port(port), "/big");
                assert!(got.body == pattern(BIG, 1), "{} bytes", got.body.len());
            }
            for path in ["/put/x", "/unbuffered/x"] {
                let mut conn = client.connect(weir.port(0));
                conn.send(format!(
                    "PUT {path} HTTP/1.1\r\nHost: a.example\r\nContent-Length: {BIG}\r\n\r\n"
                ));
                conn.send(pattern(BIG, 2));
                assert_eq!(conn.response().text(), BIG.to_string(), "{path}");
            }
        }
    });
}

#[test]
fn requests_follow_each_other_on_a_connection() {
    each_driver(|driver| {
        let weir = start(driver, "server { listen 127.0.0.1:%PORT0% ssl; return 200 $uri; }");
        for version in BOTH {
            let mut conn = Client::with("a.example", &[version], None).connect(weir.port(0));
            let request = |n: usize| format!("GET /{n} HTTP/1.1\r\nHost: a.example\r\n\r\n");
            conn.send((0..50).map(request).collect::<String>());
            for (n, response) in conn.responses(50).iter().enumerate() {
                assert_eq!(response.text(), format!("/{n}"));
            }
            // Idle, a reload passes, and the connection goes on in a new worker.
            conn.send(request(50));
            assert_eq!(conn.response().text(), "/50");
            weir.reload();
            conn.send(request(51));
            assert_eq!(conn.response().text(), "/51");
        }
    });
}

#[test]
fn every_connection_ends_with_the_session_s_end() {
    each_driver(|driver| {
        let weir = start(
            driver,
            "keepalive_timeout 200ms;
            server { listen 127.0.0.1:%PORT0% ssl; return 200 x; }
            server { listen 127.0.0.1:%PORT1% ssl; return 200 x; access_log off; }
            server { listen 127.0.0.1:%PORT2% ssl; return 444; }",
        );
        for version in BOTH {
            for port in [0, 1] {
                let client = Client::with("a.example", &[version], None);
                // Both read to the end, which fails without the alert.
                client.get(weir.port(port), "/");
                let mut idle = client.connect(weir.port(port));
                idle.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
                idle.response();
                assert!(idle.read_to_end().is_empty());
                let mut bad = client.connect(weir.port(port));
                bad.send("nonsense\r\n\r\n");
                assert_eq!(bad.response().status, 400);
                assert!(bad.read_to_end().is_empty());
            }
            let mut dropped = Client::with("a.example", &[version], None).connect(weir.port(2));
            dropped.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
            assert!(dropped.read_to_end().is_empty());
        }
    });
}

#[test]
fn the_proxy_protocol_comes_before_tls() {
    each_driver(|driver| {
        let weir = start(
            driver,
            "server { listen 127.0.0.1:%PORT0% ssl proxy_protocol;
            return 200 $proxy_protocol_addr,$ssl_protocol; }",
        );
        for size in [1, 1000] {
            let mut stream = Trickle(socket(weir.port(0)), size);
            stream.write_all(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n").unwrap();
            let (mut conn, _) = Client::of("a.example").over(stream, b"").unwrap();
            conn.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
            assert_eq!(conn.response().text(), "192.0.2.1,TLSv1.3");
        }
        // The header and the hello in one segment.
        struct Before(Vec<u8>, std::net::TcpStream);
        impl Read for Before {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.1.read(buffer)
            }
        }
        impl Write for Before {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                let mut all = std::mem::take(&mut self.0);
                all.extend_from_slice(bytes);
                self.1.write_all(&all).map(|()| bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let header = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n".to_vec();
        let stream = Before(header, socket(weir.port(0)));
        let (mut conn, _) = Client::of("a.example").over(stream, b"").unwrap();
        conn.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(conn.response().text(), "192.0.2.1,TLSv1.3");
    });
}

#[test]
fn a_bad_reload_changes_nothing_and_a_good_one_shows_new_certificates() {
    each_driver(|driver| {
        let weir = site(driver)
            .allow("cannot load certificate")
            .allow("SSL_CTX_use_PrivateKey(")
            .http(&with_a(
                "ssl_password_file passwords;
                server { listen 127.0.0.1:%PORT0% ssl; return 200 x; }",
            ));
        let weir = weir.file("conf/passwords", "wrong\n").start();
        let before = der_of(&weir, "a.pem");
        let shown = || Client::of("a.example").see(weir.port(0)).certificate;
        let read = |name: &str| std::fs::read(weir.prefix().join("conf").join(name)).unwrap();
        let (a_pem, a_key, b_key) = (read("a.pem"), read("a.key"), read("b.key"));
        let refused = |message: &str| {
            weir.signal("HUP");
            let line = weir.wait_for_log("error.log", message);
            assert!(line.contains("weir.conf:"), "{line}");
            assert!(shown() == before);
        };
        weir.write("conf/a.key", b_key);
        refused("SSL_CTX_use_PrivateKey(");
        weir.write("conf/a.key", include_str!("encrypted.key"));
        refused("cannot load certificate key");
        weir.write("conf/a.key", a_key);
        weir.write("conf/a.pem", "garbage");
        refused("cannot load certificate \"");
        weir.write("conf/a.pem", a_pem);
        let new = Pair::own(KeyKind::P256, "a.example");
        weir.write("conf/a.pem", new.pem());
        weir.write("conf/a.key", new.key.pem());
        weir.reload();
        testkit::wait_until("the new certificate", || shown() == new.certificate);
    });
}

#[test]
fn arguments_of_the_session_cache_are_checked() {
    refused(
        "server { listen 127.0.0.1:%PORT0%; ssl_session_cache *; }",
        &[
            ("nonsense", "invalid session cache \"nonsense\""),
            ("shared:x", "invalid session cache \"shared:x\""),
            ("shared:x:1", "too small"),
            ("builtin:x", "invalid session cache \"builtin:x\""),
        ],
    );
    refused(
        "server { listen 127.0.0.1:%PORT0% ssl; * }",
        &[("", "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive")],
    );
}
