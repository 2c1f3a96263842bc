//! `ssl_handshake_threads`: hellos are answered in a pool, and nobody else waits for it.

use std::io::{Read, Write};

use crate::disk::{ask, others_are_served, told};
use crate::tls::{self, Client, Pair, socket};
use rustls::HandshakeKind::{Full, Resumed};
use testkit::certificates::KeyKind;
use testkit::{
    Conn, Driver, Site, StallingFolder, Weir, built_binary, each_driver, pattern, wait_until,
};

/// The alert internal_error.
const INTERNAL_ERROR: &[u8] = &[21, 3, 3, 0, 2, 2, 80];

fn pairs(site: Site) -> Site {
    let site = Pair::own(KeyKind::Rsa, "a.example").on(site, "rsa");
    Pair::own(KeyKind::P256, "a.example").on(site, "p256")
}

/// A server that signs in the pool `hands` at port 1, one that signs itself at port 2; the pool's
/// one thread reads the files of `/disk`, too, which a test can hold up.
fn site(driver: Driver, pool: &str) -> Option<(StallingFolder, Weir)> {
    let site = Site::new(built_binary(), driver);
    let files = vec![("held.txt".to_owned(), b"held".to_vec())];
    let folder = StallingFolder::try_mount(&site.prefix().join("html/disk"), files)?;
    let tls = "ssl_certificate rsa.pem; ssl_certificate_key rsa.key;";
    let weir = pairs(site)
        .file("html/fast.txt", "fast")
        .file("html/fast.bin", pattern(300_000, 9))
        .config(&format!(
            "worker_processes 1; thread_pool hands {pool}; error_log logs/error.log info;
            events {{}} http {{ access_log off;
            server {{ listen 127.0.0.1:%PORT0%; root html;
                location = /json {{ stub_status json; }}
                location /disk {{ aio threads=hands; }} }}
            server {{ listen 127.0.0.1:%PORT1% ssl; {tls} ssl_handshake_threads hands;
                client_header_timeout 10s; location / {{ return 200 there; }} }}
            server {{ listen 127.0.0.1:%PORT2% ssl; {tls} location / {{ return 200 here; }} }}
            server {{ listen 127.0.0.1:%PORT3% ssl; {tls} ssl_handshake_threads hands;
                client_header_timeout 50ms; }} }}"
        ))
        .start();
    Some((folder, weir))
}

/// Holds the pool's thread with a request for a file, until the disk goes on.
fn hold(disk: &StallingFolder, weir: &Weir) -> Conn {
    disk.stall();
    let held = ask(weir, "/disk/held.txt");
    wait_until("the pool's thread to be held", || disk.waiting() == 1);
    held
}

/// The server's answer to a client that says hello and waits.
fn answer(client: &Client, port: u16) -> Vec<u8> {
    let (mut stream, mut bytes) = (socket(port), Vec::new());
    stream.write_all(&client.hello()).unwrap();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn others_are_served_while_hellos_wait_for_a_thread() {
    each_driver(|driver| {
        let Some((disk, weir)) = site(driver, "threads=1") else { return };
        let client = Client::of("a.example");
        let mut kept = client.connect(weir.port(1));
        let mut held = hold(&disk, &weir);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| client.get(weir.port(1), "/").text());
            // Two that do not wait for their answers.
            for _ in 0..2 {
                socket(weir.port(1)).write_all(&client.hello()).unwrap();
            }
            wait_until("hellos in the queue", || told(&weir, &["hands", "queued"]) == 3);
            others_are_served(&weir);
            assert_eq!(client.get(weir.port(2), "/").text(), "here");
            kept.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
            assert_eq!(kept.response().text(), "there");
            disk.go_on();
            assert_eq!(waiting.join().unwrap(), "there");
        });
        assert_eq!(held.response().body, b"held");
        wait_until("the queue's end", || told(&weir, &["hands", "queued"]) == 0);
        assert_eq!(client.get(weir.port(1), "/").text(), "there");
    });
}

#[test]
fn time_outs_hold_while_hellos_wait_for_a_thread() {
    each_driver(|driver| {
        let Some((disk, weir)) = site(driver, "threads=1") else { return };
        let mut held = hold(&disk, &weir);
        assert_eq!(answer(&Client::of("a.example"), weir.port(3)), INTERNAL_ERROR);
        let line = weir.wait_for_log("error.log", "did not come to the handshake in time");
        assert!(line.contains("while SSL handshaking, client: 127.0.0.1"), "{line}");
        disk.go_on();
        assert_eq!(held.response().body, b"held");
    });
}

#[test]
fn a_full_queue_refuses_handshakes() {
    each_driver(|driver| {
        let Some((disk, weir)) = site(driver, "threads=1 max_queue=0") else { return };
        let mut held = hold(&disk, &weir);
        assert_eq!(answer(&Client::of("a.example"), weir.port(1)), INTERNAL_ERROR);
        weir.wait_for_log("error.log", "thread pool \"hands\" queue overflow: 0 tasks waiting");
        weir.wait_for_log("error.log", "the queue of the thread pool is full while SSL handsh");
        disk.go_on();
        assert_eq!(held.response().body, b"held");
        assert_eq!(Client::of("a.example").get(weir.port(1), "/").text(), "there");
    });
}

#[test]
fn every_kind_of_handshake_goes_through_the_pool() {
    each_driver(|driver| {
        let weir = pairs(Site::new(built_binary(), driver))
            .config(
                "thread_pool hands threads=2; events {} http { ssl_handshake_threads hands;
                server { listen 127.0.0.1:%PORT0%; location / { stub_status json; } }
                server { listen 127.0.0.1:%PORT1% ssl; ssl_verify_client optional_no_ca;
                    ssl_certificate rsa.pem; ssl_certificate_key rsa.key;
                    ssl_certificate p256.pem; ssl_certificate_key p256.key;
                    location / { return 200 '$ssl_protocol $ssl_server_name $ssl_client_s_dn'; } }
                server { listen 127.0.0.1:%PORT2% ssl; ssl_ecdh_curve secp384r1;
                    ssl_certificate $ssl_server_name.pem; ssl_certificate_key $ssl_server_name.key;
                    location / { return 200 '$ssl_curve'; } } }",
            )
            .start();
        let shown = Pair::own(KeyKind::P256, "me");
        let mut hellos = 0;
        for (version, name) in tls::BOTH.into_iter().zip(["TLSv1.2", "TLSv1.3"]) {
            let client = Client::with("a.example", &[version], Some(&[&shown]));
            let got = client.get(weir.port(1), "/").text();
            assert_eq!(got, format!("{name} a.example CN=me"));
            let client = Client::with("a.example", &[version], None).with_sessions();
            for (n, kind) in [Full, Resumed, Resumed].into_iter().enumerate() {
                let (mut conn, seen) = client.try_connect(weir.port(1)).unwrap();
                assert_eq!(seen.kind, kind, "session {n} of {name}");
                conn.send("GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
                assert_eq!(conn.response().text(), format!("{name} a.example "));
                assert!(conn.read_to_end().is_empty());
            }
            hellos += 4;
            assert_eq!(told(&weir, &["hands", "done"]), hellos);
        }
        for name in ["rsa", "p256"] {
            // No key at hand for the one group: a client of TLS 1.3 says hello twice.
            let text = Client::of(name).get(weir.port(2), "/").text();
            assert_eq!(text, "secp384r1");
            hellos += 2;
        }
        assert_eq!(told(&weir, &["hands", "done"]), hellos);
        // A session that fails there sends its alert.
        let refusal = Client::limited("rsa", tls::BOTH[0], "ECDSA").refusal(weir.port(2));
        assert!(refusal.contains("HandshakeFailure"), "{refusal}");
    });
}

#[test]
fn a_pool_must_be_there() {
    let cases = [
        ("ssl_handshake_threads nope;", "unknown thread pool \"nope\" in"),
        ("ssl_handshake_threads threads=x;", "unknown thread pool \"threads=x\" in"),
        ("ssl_handshake_threads on off;", "invalid number of arguments"),
        ("ssl_handshake_threads on; ssl_handshake_threads off;", "is duplicate"),
        ("location / { ssl_handshake_threads on; }", "is not allowed here"),
    ];
    testkit::refused("server { listen 127.0.0.1:%PORT0%; * }", &cases);
    let site = Site::new(built_binary(), Driver::usual());
    let server = "server { listen 127.0.0.1:%PORT0%; return x;\nssl_handshake_threads nope; }";
    let told = site.stream(server).is_refused("unknown thread pool \"nope\" in");
    assert!(told.contains("weir.conf:5"), "{told}");
}
