//! The certificates of servers: their ends, and what variables tell of them; certificates of
//! clients that are none.

use std::process::Command;

use crate::tls::{Client, Pair};
use rustls::version::{TLS12, TLS13};
use testkit::certificates::{Draft, Key, KeyKind};
use testkit::{Driver, Site, built_binary, each_driver};

/// A time so many seconds from now, as certificates have it.
fn time(seconds: i64) -> String {
    let at = format!("{seconds} seconds");
    let output = Command::new("date").args(["-u", "-d", &at, "+%y%m%d%H%M%SZ"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A certificate that ends so many seconds from now.
fn ending(seconds: i64) -> Pair {
    let key = Key::generate(KeyKind::P256);
    let mut draft = Draft::new("CN=a.example", "CN=a.example", &key);
    draft.validity.1 = time(seconds);
    Pair { certificate: draft.sign(&key), key }
}

const DAY: i64 = 86_400;

fn server(port: usize, file: &str, rest: &str) -> String {
    format!(
        "server {{ listen 127.0.0.1:%PORT{port}% ssl; ssl_certificate {file}.pem;
        ssl_certificate_key {file}.key; {rest} }}\n"
    )
}

#[test]
fn loading_warns_of_certificates_that_end_soon() {
    let mut site = Site::new(built_binary(), Driver::Epoll);
    for (name, seconds) in [("over", -DAY), ("soon", 9 * DAY + 60), ("later", 15 * DAY)] {
        site = ending(seconds).on(site, name);
    }
    let site = site.http(&format!(
        "{}{}{}{}",
        server(0, "over", "server_name a.example;"),
        server(1, "soon", "server_name b.example;"),
        server(2, "soon", "server_name c.example;"),
        server(3, "later", "")
    ));
    let output = site.run(&["-t"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stderr).unwrap();
    let line = |part: &str| {
        text.lines().find(|l| l.contains(part)).unwrap_or_else(|| {
            panic!("{part}: {text}");
        })
    };
    let over = line("over.pem\" has expired, at ");
    assert!(over.contains("[warn]") && over.contains("server: \"a.example\" in "), "{over}");
    let soon = line("soon.pem\" expires in 9 days, at ");
    assert!(soon.contains("server: \"b.example\", \"c.example\" in "), "{soon}");
    assert!(!text.contains("later.pem"), "{text}");
}

#[test]
fn a_certificate_that_ends_while_it_is_served_is_logged() {
    // Building it may take longer than the certificate is good.
    let binary = built_binary();
    each_driver(|driver| {
        // It is still good when the server starts, even on a slow machine.
        let weir = ending(6).on(Site::new(binary.clone(), driver), "short");
        let weir = weir.http(&server(0, "short", "server_name a.example;")).start();
        let line = weir.wait_for_log("error.log", "short.pem\" has expired, at ");
        assert!(line.contains("[error]") && line.contains("server: \"a.example\""), "{line}");
    });
}

#[test]
fn the_status_tells_the_days_that_are_left() {
    each_driver(|driver| {
        let site = ending(100 * DAY + 60).on(Site::new(built_binary(), driver), "long");
        let site = ending(-60).on(site, "over");
        let names = "server_name a.example; location / { stub_status json; }";
        let text = format!(
            "server {{ listen 127.0.0.1:%PORT0%; {} }}{}",
            "location / { stub_status json; }",
            server(1, "long", names) + &server(2, "over", "")
        );
        let weir = site.http(&text).start();
        let status = weir.get("/").text();
        let ssl = status.split_once("\"ssl\":").expect(&status).1;
        for text in [
            "long.pem\",\"servers\":\"a.example\",\"not_after\":\"",
            " GMT\",\"days_left\":100,\"expired\":false}",
            "\"days_left\":0,\"expired\":true}",
        ] {
            assert!(ssl.contains(text), "{text}: {ssl}");
        }
    });
}

#[test]
fn variables_tell_of_the_certificate_that_was_chosen() {
    each_driver(|driver| {
        let site = Site::new(built_binary(), driver);
        let site = Pair::own(KeyKind::Rsa, "rsa.example").on(site, "rsa");
        let site = Pair::own(KeyKind::P256, "ec.example").on(site, "ec");
        let weir = site
            .http(
                "server { listen 127.0.0.1:%PORT0% ssl; listen 127.0.0.1:%PORT1%;
                ssl_certificate rsa.pem; ssl_certificate_key rsa.key;
                ssl_certificate ec.pem; ssl_certificate_key ec.key;
                location / { return 200 '$ssl_server_cert_type,$ssl_server_cert_s_dn,\
$ssl_server_cert_i_dn,$ssl_server_cert_serial,$ssl_server_cert_v_start,$ssl_server_cert_v_end'; }
                location /left { return 200 $ssl_server_cert_v_remain; }
                location /print { return 200 $ssl_server_cert_fingerprint; } }",
            )
            .start();
        let port = weir.port(0);
        let start = "Jan  1 00:00:00 2020 GMT,Jan  1 00:00:00 2040 GMT";
        for (client, kind, name) in [
            (Client::limited("x", &TLS12, "ECDSA"), "ecdsa", "ec"),
            (Client::limited("x", &TLS12, "_RSA_"), "rsa", "rsa"),
            (Client::with("x", &[&TLS13], None), "ecdsa", "ec"),
        ] {
            let name = format!("CN={name}.example");
            let body = client.get(port, "/").text();
            assert_eq!(body, format!("{kind},{name},{name},01,{start}"));
            let left: i64 = client.get(port, "/left").text().parse().unwrap();
            assert!(left > 1000, "{left}");
            assert_eq!(client.get(port, "/print").text().len(), 40);
        }
        // On a resumed session, too; there is none without TLS.
        let client = Client::of("x").with_sessions();
        for _ in 0..2 {
            assert!(client.get(port, "/").text().starts_with("ecdsa,CN=ec.example,"));
        }
        let mut conn = testkit::Conn::tcp(weir.port(1));
        conn.send("GET / HTTP/1.0\r\n\r\n");
        assert_eq!(conn.response().text(), ",,,,,");
    });
}

/// As OpenSSL has one place for the keys of a kind, nginx shows the last.
#[test]
fn the_last_certificate_of_a_kind_is_shown() {
    each_driver(|driver| {
        let mut site = Site::new(built_binary(), driver);
        let mut lines = String::new();
        for n in 1..=3 {
            for (kind, name) in [(KeyKind::Rsa, "rsa"), (KeyKind::P256, "ec")] {
                let name = format!("{name}{n}");
                site = Pair::own(kind, &format!("{name}.example")).on(site, &name);
                lines += &format!("ssl_certificate {name}.pem; ssl_certificate_key {name}.key;\n");
            }
        }
        let weir = site
            .http(&format!(
                "ssl_certificate_compression on;
                 server {{ listen 127.0.0.1:%PORT0% ssl; listen 127.0.0.1:%PORT1% quic; {lines}
                 return 200 '$ssl_server_cert_type,$ssl_server_cert_s_dn,$ssl_ja4'; }}"
            ))
            .start();
        for (client, kind, name) in [
            (Client::limited("x", &TLS12, "ECDSA"), "ecdsa", "ec3"),
            (Client::limited("x", &TLS12, "_RSA_"), "rsa", "rsa3"),
            (Client::with("x", &[&TLS13], None), "ecdsa", "ec3"),
        ] {
            let shown = client.see(weir.port(0)).certificate;
            let text = String::from_utf8_lossy(&shown).into_owned();
            assert!(text.contains(&format!("{name}.example")), "{name}");
            let body = client.get(weir.port(0), "/").text();
            assert!(body.starts_with(&format!("{kind},CN={name}.example,t1")), "{body}");
        }
        let mut three = testkit::h3::Client::connect(weir.port(1), "x");
        let body = String::from_utf8(three.get("/").body).unwrap();
        assert!(body.starts_with("ecdsa,CN=ec3.example,q13"), "{body}");
    });
}

/// RFC 5246 section 7.4.2, RFC 8446 section 4.4.2.
#[test]
fn an_entry_of_a_client_s_chain_is_a_certificate() {
    each_driver(|driver| {
        let config = server(0, "a", "ssl_verify_client optional_no_ca; return 200 $ssl_protocol;");
        let config = format!("error_log logs/error.log info; events {{}} http {{ {config} }}");
        let site = Pair::own(KeyKind::P256, "a.example").on(Site::new(built_binary(), driver), "a");
        let weir = site.config(&config).start();
        let own = Pair::own(KeyKind::P256, "me");
        let none = Pair { certificate: Vec::new(), key: Key::generate(KeyKind::P256) };
        let with = |version, chain: &[&Pair]| Client::with("a.example", &[version], Some(chain));
        for (version, name) in [(&TLS12, "TLSv1.2"), (&TLS13, "TLSv1.3")] {
            assert_eq!(with(version, &[&own]).get(weir.port(0), "/").text(), name);
        }
        // A client of TLS 1.3 is at its end before the server has its certificate.
        let _ = with(&TLS13, &[&own, &none]).try_connect(weir.port(0));
        weir.wait_for_log("error.log", "invalid peer certificate: BadEncoding");
        let refusal = with(&TLS12, &[&own, &none]).refusal(weir.port(0));
        assert!(refusal.contains("DecodeError"), "{refusal}");
    });
}
