//! TLS with servers, over real connections: the server is another one of the same configuration.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Instant;

use crate::tls::{self, Pair, socket};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use testkit::certificates::{Extension, KeyKind, ListDraft, der};
use testkit::{
    Conn, Driver, Json, Scripted, Site, Weir, built_binary, each_driver, listener, pattern,
    wait_until,
};

/// The server at `%PORT1%` is `good`'s, `%PORT2%` that of an expired certificate, `%PORT3%` that of
/// a revoked one, all of one authority; `%PORT0%` passes requests.
fn start(driver: Driver, locations: &str) -> Weir {
    site(driver, "", locations).start()
}

fn site(driver: Driver, main: &str, locations: &str) -> Site {
    let root = Pair::authority("CN=root");
    let alt = || Extension::alt_names(&[(0x82, b"good.example")]);
    let good = root.issue("CN=root", "CN=good.example", 2, |d| d.with(alt()));
    let expired = root.issue("CN=root", "CN=good.example", 3, |mut d| {
        d.validity.1 = "210101000000Z".to_owned();
        d.with(alt())
    });
    let revoked = root.issue("CN=root", "CN=good.example", 4, |d| d.with(alt()));
    let other = Pair::own(KeyKind::P256, "other.example");
    let list = ListDraft::new("CN=root").revoking(&[4]).sign(&root.key);
    let mut site = Site::new(built_binary(), driver)
        .file("conf/crl.pem", der::pem("X509 CRL", &list))
        .file("html/big", pattern(3_000_000, 1));
    let pairs = [(&root, "root"), (&good, "good"), (&expired, "expired"), (&revoked, "revoked")];
    for (pair, name) in pairs.into_iter().chain([(&other, "other")]) {
        site = pair.on(site, name);
    }
    let back = |port: usize, name: &str| {
        format!(
            "server {{ listen 127.0.0.1:%PORT{port}% ssl; client_max_body_size 10m; root html;
            ssl_certificate {name}.pem; ssl_certificate_key {name}.key;
            ssl_verify_client optional_no_ca; ssl_client_certificate root.pem;
            keepalive_requests 100000;
            location = /big {{ }}
            location / {{ return 200
'$ssl_server_name,$ssl_session_reused,$ssl_client_s_dn,$connection_requests,$ssl_protocol'; }}
            location /length {{ client_body_in_file_only clean;
            proxy_pass http://127.0.0.1:%PORT0%/told; proxy_pass_request_body off;
            proxy_set_header Content-Length ''; proxy_set_header X-Length $content_length; }} }}\n"
        )
    };
    let (good, expired, revoked) = (back(1, "good"), back(2, "expired"), back(3, "revoked"));
    site.http(&format!(
        "{main}\n{good}{expired}{revoked}
        server {{ listen 127.0.0.1:%PORT0%; client_max_body_size 10m;
        location = /told {{ return 200 $http_x_length; }}
        {locations} }}"
    ))
}

const VERIFY: &str = "proxy_ssl_verify on; proxy_ssl_trusted_certificate root.pem;";

#[test]
fn servers_are_verified_where_that_is_asked_for() {
    each_driver(|driver| {
        let weir = start(
            driver,
            &format!(
                "location /any {{ proxy_pass https://127.0.0.1:%PORT2%/; }}
                location /good {{ {VERIFY} proxy_ssl_name good.example;
                    proxy_pass https://127.0.0.1:%PORT1%/; }}
                location /name {{ {VERIFY} proxy_ssl_name bad.example;
                    proxy_pass https://127.0.0.1:%PORT1%/; }}
                location /address {{ {VERIFY} proxy_pass https://127.0.0.1:%PORT1%/; }}
                location /untrusted {{ {VERIFY} proxy_ssl_trusted_certificate other.pem;
                    proxy_ssl_name good.example; proxy_pass https://127.0.0.1:%PORT1%/; }}
                location /expired {{ {VERIFY} proxy_ssl_name good.example;
                    proxy_pass https://127.0.0.1:%PORT2%/; }}
                location /revoked {{ {VERIFY} proxy_ssl_name good.example; proxy_ssl_crl crl.pem;
                    proxy_pass https://127.0.0.1:%PORT3%/; }}
                location /listed {{ {VERIFY} proxy_ssl_name good.example; proxy_ssl_crl crl.pem;
                    proxy_pass https://127.0.0.1:%PORT1%/; }}"
            )
            .replace(
                &format!("{VERIFY} proxy_ssl_trusted_certificate other.pem;"),
                "proxy_ssl_verify on; proxy_ssl_trusted_certificate other.pem;",
            ),
        );
        weir.answers_with(&[
            ("GET", "/any", 200),
            ("GET", "/good", 200),
            ("GET", "/listed", 200),
            ("GET", "/name", 502),
            ("GET", "/address", 502),
            ("GET", "/untrusted", 502),
            ("GET", "/expired", 502),
            ("GET", "/revoked", 502),
        ]);
        for text in [
            "upstream SSL certificate does not match \"bad.example\"",
            "upstream SSL certificate does not match \"127.0.0.1\"",
            "upstream SSL certificate verify error: (21:unable to verify the first certificate)",
            "upstream SSL certificate verify error: (10:certificate has expired)",
            "upstream SSL certificate verify error: (23:certificate revoked)",
        ] {
            let line = weir.wait_for_log("error.log", text);
            assert!(line.contains("[error]"), "{line}");
            assert!(line.contains("while SSL handshaking to upstream"), "{line}");
        }
    });
}

#[test]
fn servers_are_told_names_where_that_is_asked_for() {
    each_driver(|driver| {
        let weir = start(
            driver,
            "proxy_ssl_session_reuse off;
            location /none { proxy_pass https://localhost:%PORT1%/; }
            location /on { proxy_ssl_server_name on; proxy_pass https://localhost:%PORT1%/; }
            location /named { proxy_ssl_server_name on; proxy_ssl_name $arg_n;
                proxy_set_header Host $arg_n; proxy_pass https://127.0.0.1:%PORT1%/; }
            location /address { proxy_ssl_server_name on; proxy_pass https://127.0.0.1:%PORT1%/; }
            location /12 { proxy_ssl_protocols TLSv1.2; proxy_pass https://127.0.0.1:%PORT1%/; }",
        );
        weir.gives(&[
            ("/none", ",.,,1,TLSv1.3"),
            ("/on", "localhost,.,,1,TLSv1.3"),
            ("/named?n=localhost", "localhost,.,,1,TLSv1.3"),
            ("/address", ",.,,1,TLSv1.3"),
            ("/12", ",.,,1,TLSv1.2"),
        ]);
    });
}

#[test]
fn servers_see_our_certificate() {
    each_driver(|driver| {
        let weir = start(
            driver,
            "location /fixed { proxy_ssl_certificate good.pem; proxy_ssl_certificate_key good.key;
                proxy_pass https://127.0.0.1:%PORT1%/; }
            location /named { proxy_ssl_certificate $arg_n.pem;
                proxy_ssl_certificate_key $arg_n.key; proxy_pass https://127.0.0.1:%PORT1%/; }
            location /cached { proxy_ssl_certificate $arg_n.pem;
                proxy_ssl_certificate_cache max=2;
                proxy_ssl_certificate_key $arg_n.key; proxy_pass https://127.0.0.1:%PORT1%/; }
            location /12 { proxy_ssl_certificate good.pem; proxy_ssl_certificate_key good.key;
                proxy_ssl_protocols TLSv1.2; proxy_pass https://127.0.0.1:%PORT1%/; }
            location /command { proxy_ssl_certificate good.pem; proxy_ssl_certificate_key good.key;
                proxy_ssl_conf_command Certificate other.pem;
                proxy_ssl_conf_command PrivateKey other.key; proxy_pass https://127.0.0.1:%PORT1%/; }
            location /alone { proxy_ssl_conf_command Certificate other.pem;
                proxy_ssl_conf_command PrivateKey other.key; proxy_pass https://127.0.0.1:%PORT1%/; }",
        );
        let shown = |path: &str| {
            let answer = weir.get(path);
            assert_eq!(answer.status, 200, "{path}");
            answer.text().split(',').nth(2).unwrap_or_default().to_owned()
        };
        for _ in 0..2 {
            assert_eq!(shown("/fixed"), "CN=good.example");
            assert_eq!(shown("/12"), "CN=good.example");
            assert_eq!(shown("/command"), "CN=other.example");
            assert_eq!(shown("/alone"), "CN=other.example");
            for path in ["/named", "/cached"] {
                assert_eq!(shown(&format!("{path}?n=good")), "CN=good.example");
                assert_eq!(shown(&format!("{path}?n=other")), "CN=other.example");
                assert_eq!(weir.get(&format!("{path}?n=none")).status, 500);
            }
        }
        weir.wait_for_log("error.log", "cannot load certificate \"none.pem\"");
    });
}

#[test]
fn sessions_are_resumed_and_connections_kept() {
    each_driver(|driver| {
        let weir = site(
            driver,
            "upstream kept { server 127.0.0.1:%PORT1%; keepalive 4; }",
            "proxy_http_version 1.1; proxy_set_header Connection '';
            location /13 { proxy_pass https://127.0.0.1:%PORT1%/; }
            location /12 { proxy_ssl_protocols TLSv1.2; proxy_pass https://127.0.0.1:%PORT1%/; }
            location /off { proxy_ssl_session_reuse off; proxy_pass https://127.0.0.1:%PORT1%/; }
            location /kept { proxy_pass https://kept/; }",
        )
        .start();
        for path in ["/13", "/12", "/off"] {
            let reused: Vec<String> = (0..3)
                .map(|_| weir.get(path).text().split(',').nth(1).unwrap_or_default().to_owned())
                .collect();
            let expected = if path == "/off" { [".", ".", "."] } else { [".", "r", "r"] };
            assert_eq!(reused, expected, "{path}");
        }
        for n in 1..20 {
            let text = weir.get("/kept").text();
            assert_eq!(text.split(',').nth(3), Some(n.to_string().as_str()), "{text}");
        }
    });
}

#[test]
fn the_next_server_is_asked_where_one_speaks_no_tls() {
    each_driver(|driver| {
        let weir = site(
            driver,
            "upstream plain_first { server 127.0.0.1:%PORT0% max_fails=0;
                server 127.0.0.1:%PORT1% backup; }",
            "location /next { proxy_pass https://plain_first/; }
            location /only { proxy_pass https://127.0.0.1:%PORT0%/; }",
        )
        .start();
        weir.answers_with(&[("GET", "/next", 200), ("GET", "/only", 502)]);
        let line = weir.wait_for_log("error.log", "SSL_do_handshake() failed");
        assert!(line.contains("while SSL handshaking to upstream"), "{line}");
    });
}

#[test]
fn servers_that_close_or_stay_silent_in_the_handshake() {
    each_driver(|driver| {
        let ((closing, closing_port), (_silent, silent_port)) = (listener(), listener());
        let weir = start(
            driver,
            &format!(
                "location /closing {{ proxy_pass https://127.0.0.1:{closing_port}; }}
                location /silent {{ proxy_connect_timeout 300ms;
                    proxy_pass https://127.0.0.1:{silent_port}; }}"
            ),
        );
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = closing.accept().unwrap();
                let mut some = [0; 5];
                stream.read_exact(&mut some).unwrap();
            });
            assert_eq!(weir.get("/closing").status, 502);
        });
        weir.wait_for_log("error.log", "peer closed connection in SSL handshake");
        assert_eq!(weir.get("/silent").status, 504);
        let line = weir.wait_for_log("error.log", "upstream timed out (110");
        assert!(line.contains("while SSL handshaking to upstream"), "{line}");
    });
}

#[test]
fn bodies_go_whole_in_both_directions() {
    each_driver(|driver| {
        let weir = start(
            driver,
            "proxy_http_version 1.1;
            location /a/ { proxy_pass https://127.0.0.1:%PORT1%/; }
            location /b/ { proxy_request_buffering off; proxy_buffering off;
                proxy_pass https://127.0.0.1:%PORT1%/; }
            location /c/ { proxy_ssl_protocols TLSv1.2; proxy_request_buffering off;
                proxy_pass https://127.0.0.1:%PORT1%/; }",
        );
        for place in ["a", "b", "c"] {
            let got = weir.get(&format!("/{place}/big"));
            assert!(got.body == pattern(3_000_000, 1), "{place}: {} bytes", got.body.len());
            let mut conn = Conn::tcp(weir.port(0));
            conn.send(format!(
                "PUT /{place}/length HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n"
            ));
            conn.send(pattern(3_000_000, 2));
            assert_eq!(conn.response().text(), "3000000", "{place}");
        }
    });
}

#[test]
fn checks_of_health_have_the_tls_of_their_location() {
    const OURS: &str = "proxy_ssl_server_name on; proxy_ssl_name good.example;
        proxy_ssl_certificate good.pem; proxy_ssl_certificate_key good.key;";
    let group = |name: &str, port: u16| {
        format!("upstream {name} {{ zone {name} 64k; server 127.0.0.1:%PORT{port}%; }}\n")
    };
    let groups = [("good", 1), ("kept", 1), ("expired", 2), ("plain", 0), ("tcp", 1)];
    let groups: String = groups.iter().map(|(name, port)| group(name, *port)).collect();
    each_driver(|driver| {
        let weir = site(
            driver,
            &format!(
                "match ours {{ body ~ '^good.example,.,CN=good.example,1,TLSv1.2$'; }}
                log_format told '$connection_requests $ssl_protocol $request_uri';
                access_log logs/told.log told; {groups}"
            ),
            &format!(
                "location /good {{ {VERIFY} {OURS} proxy_ssl_protocols TLSv1.2;
                    proxy_pass https://good/;
                    health_check interval=50ms mandatory match=ours; }}
                location /kept {{ proxy_pass https://kept/; health_check interval=50ms
                    mandatory uri=/kept keepalive_time=1h; }}
                location /expired {{ {VERIFY} {OURS} proxy_pass https://expired/;
                    health_check interval=50ms mandatory; }}
                location /plain {{ proxy_pass https://plain/;
                    health_check interval=50ms mandatory type=tcp; }}
                location /tcp {{ proxy_pass https://tcp/;
                    health_check interval=50ms mandatory type=tcp; }}"
            ),
        )
        .start();
        for name in ["good", "tcp", "kept"] {
            weir.wait_for_log("error.log", &format!("in upstream \"{name}\" is healthy"));
        }
        for (name, why) in [
            ("expired", "upstream SSL certificate verify error: (10:certificate has expired)"),
            ("plain", "SSL_do_handshake() failed (SSL: "),
        ] {
            let text = format!("in upstream \"{name}\" is unhealthy: {why}");
            weir.wait_for_log("error.log", &text);
        }
        weir.wait_for_log("told.log", "3 TLSv1.3 /kept");
        weir.answers_with(&[
            ("GET", "/good", 200),
            ("GET", "/tcp", 200),
            ("GET", "/kept", 200),
            ("GET", "/expired", 502),
            ("GET", "/plain", 502),
        ]);
    });
}

#[test]
fn commands_name_a_certificate_and_its_key_together() {
    let needs = |command, other| {
        format!("the command \"{command}\" of OpenSSL's configuration needs \"{other}\" beside it")
    };
    for (line, message) in [
        ("proxy_ssl_conf_command Certificate good.pem;", needs("Certificate", "PrivateKey")),
        ("proxy_ssl_conf_command PrivateKey good.key;", needs("PrivateKey", "Certificate")),
        (
            "proxy_ssl_conf_command Certificate good.pem; proxy_ssl_conf_command PrivateKey other.key;",
            "key values mismatch".to_owned(),
        ),
    ] {
        let locations = format!("location / {{ {line} proxy_pass https://127.0.0.1:1; }}");
        site(Driver::Epoll, "", &locations).is_refused(&message);
        let server = line.replace("proxy_", "");
        let server = format!(
            "server {{ listen 127.0.0.1:%PORT4% ssl; {server}
            ssl_certificate good.pem; ssl_certificate_key good.key; }}"
        );
        site(Driver::Epoll, &server, "").is_refused(&message);
    }
}

#[test]
fn checks_of_health_know_no_request() {
    for (line, end) in [
        ("proxy_ssl_name $host;", "_ssl_name"),
        ("proxy_ssl_certificate $host; proxy_ssl_certificate_key a;", "_ssl_certificate"),
        (
            "proxy_ssl_certificate good.pem; proxy_ssl_certificate_key $host;",
            "_ssl_certificate_key",
        ),
    ] {
        let locations = format!("location / {{ {line} proxy_pass https://u; health_check; }}");
        site(Driver::Epoll, "upstream u { zone u 64k; server 127.0.0.1:1; }", &locations)
            .is_refused(&format!("\"health_check\" requires \"proxy{end}\" without variables"));
    }
}

#[test]
fn an_upgraded_connection_goes_through_tls_at_both_ends() {
    each_driver(|driver| {
        let (echo, port) = listener();
        let up = "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection Upgrade;";
        let weir = site(
            driver,
            &format!(
                "server {{ listen 127.0.0.1:%PORT4% ssl; {up}
                ssl_certificate good.pem; ssl_certificate_key good.key;
                location / {{ proxy_pass https://127.0.0.1:%PORT5%; }} }}
                server {{ listen 127.0.0.1:%PORT5% ssl; {up}
                ssl_certificate good.pem; ssl_certificate_key good.key;
                location / {{ proxy_pass http://127.0.0.1:{port}; }} }}"
            ),
            "",
        )
        .start();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = echo.accept().unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    head.push(byte[0]);
                }
                let answer = "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
                stream.write_all(answer.as_bytes()).unwrap();
                let mut bytes = vec![0; 4096];
                while let Ok(n @ 1..) = stream.read(&mut bytes) {
                    stream.write_all(&bytes[..n]).unwrap();
                }
            });
            let client = tls::Client::of("good.example");
            let (mut conn, _) = client.over(socket(weir.port(4)), b"").unwrap();
            conn.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
            assert_eq!(conn.response_to("HEAD").status, 101);
            for n in 0..20 {
                let bytes = pattern(n * 1000 + 1, n);
                conn.send(&bytes);
                assert!(conn.read_exact(bytes.len()) == bytes);
            }
        });
    });
}

#[test]
fn handshakes_with_servers_are_counted() {
    each_driver(|driver| {
        let locations = format!(
            "location / {{ proxy_pass https://127.0.0.1:%PORT1%; }}
            location /expired {{ {VERIFY} proxy_ssl_name good.example;
            proxy_pass https://127.0.0.1:%PORT2%; }}
            location /api {{ api; }}"
        );
        let weir = start(driver, &locations);
        for (path, status) in [("/", 200), ("/", 200), ("/expired", 502)] {
            assert_eq!(weir.get(path).status, status, "{path}");
        }
        // Servers that no upstream block has are found by host and port.
        let of = |port: usize| {
            let path = format!("/api/9/http/upstreams/127.0.0.1:{}", weir.port(port));
            Json::parse(&weir.get(&path).text())
        };
        let (good, expired) = (of(1), of(2));
        assert_eq!(
            (good.number("peers.0.requests"), good.number("peers.0.ssl.handshakes")),
            (2, 2)
        );
        assert_eq!(good.number("peers.0.ssl.session_reuses"), 1);
        assert_eq!(good.number("peers.0.ssl.handshakes_failed"), 0);
        let numbers = ["handshakes", "handshakes_failed"];
        let failed = numbers.map(|name| expired.number(&format!("peers.0.ssl.{name}")));
        assert_eq!(failed, [0, 1]);
    });
}

/// A server that sends nothing between its handshake and the response, so that the kernel delays
/// the acknowledgement of the handshake's end by 40 ms.
fn silent(pair: &Pair) -> Scripted {
    let key = PrivateKeyDer::from_pem_slice(pair.key.pem().as_bytes()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = builder.with_single_cert(vec![pair.certificate.clone().into()], key).unwrap();
    config.send_tls13_tickets = 0;
    let config = Arc::new(config);
    Scripted::start(move |stream, _| {
        let session = ServerConnection::new(config.clone()).unwrap();
        let (mut tls, mut text, mut page) =
            (StreamOwned::new(session, stream), Vec::new(), [0; 4096]);
        while !text.ends_with(b"\r\n\r\n") {
            let Ok(n @ 1..) = tls.read(&mut page) else { return };
            text.extend_from_slice(&page[..n]);
        }
        let _ = tls.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    })
}

/// The request on a new connection goes out behind the end of the handshake, whatever has been
/// acknowledged: with `tcp_nodelay off` it waits.
#[test]
fn requests_do_not_wait_for_acknowledgements() {
    let server = silent(&Pair::own(KeyKind::P256, "a.example"));
    each_driver(|driver| {
        let pass = format!("proxy_pass https://127.0.0.1:{};", server.port);
        let locations = format!(
            "location = /at-once {{ {pass} }} location = /late {{ tcp_nodelay off; {pass} }}"
        );
        let weir = start(driver, &locations);
        let took = |path: &str| {
            let began = Instant::now();
            let mut conn = Conn::tcp(weir.port(0));
            conn.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
            assert_eq!(conn.response().body, b"ok");
            began.elapsed()
        };
        // All of these wait for 40 ms. On a busy machine each request may be late, but not all are.
        let late = (0..10).map(|_| took("/late")).min().unwrap();
        wait_until("a request that does not wait", || took("/at-once") < late * 3 / 4);
    });
}

/// nginx compares the name with DNS names alone.
#[test]
fn servers_are_verified_by_addresses_of_their_certificates() {
    each_driver(|driver| {
        let root = Pair::authority("CN=root");
        let mut v6 = [0; 16];
        v6[15] = 1;
        let alt = Extension::alt_names(&[(0x87, &[127, 0, 0, 1]), (0x87, &v6), (0x82, b"a.b")]);
        let own = root.issue("CN=root", "CN=own", 2, |d| d.with(alt));
        let verify = "proxy_ssl_verify on; proxy_ssl_trusted_certificate root.pem;";
        let text = format!(
            "http {{
                 server {{ listen 127.0.0.1:%PORT1% ssl; return 200 ok;
                           ssl_certificate own.pem; ssl_certificate_key own.key; }}
                 server {{
                     listen 127.0.0.1:%PORT0%;
                     {verify}
                     location /literal {{ proxy_pass https://127.0.0.1:%PORT1%; }}
                     location /name {{ proxy_pass https://127.0.0.1:%PORT1%;
                                       proxy_ssl_name $arg_name; }}
                     location /grpc {{ grpc_pass grpcs://127.0.0.1:%PORT1%; grpc_ssl_verify on;
                                       grpc_ssl_trusted_certificate root.pem;
                                       grpc_ssl_name 127.0.0.2; }}
                 }}
             }}
             stream {{
                 {verify} proxy_ssl on;
                 server {{ listen 127.0.0.1:%PORT2%; proxy_pass 127.0.0.1:%PORT1%;
                           proxy_ssl_name 127.0.0.1; }}
                 server {{ listen 127.0.0.1:%PORT3%; proxy_pass 127.0.0.1:%PORT1%;
                           proxy_ssl_name 127.0.0.3; }}
             }}"
        );
        let site = own.on(root.on(Site::new(built_binary(), driver), "root"), "own");
        let weir = site.config(&format!("worker_processes 1; events {{}} {text}")).start();
        for (path, status) in [
            ("/literal", 200),
            ("/name?name=127.0.0.1", 200),
            ("/name?name=::1", 200),
            ("/name?name=[::1]", 200),
            ("/name?name=[::1]:443", 200),
            ("/name?name=127.0.0.1:443", 200),
            ("/name?name=0:0:0:0:0:0:0:1", 200),
            ("/name?name=a.b", 200),
            ("/name?name=127.0.0.2", 502),
            ("/name?name=::2", 502),
            ("/grpc", 502),
        ] {
            assert_eq!(weir.get(path).status, status, "{path}");
        }
        weir.wait_for_log("error.log", "certificate does not match \"127.0.0.2\"");
        let asks = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let mut good = Conn::tcp(weir.port(2));
        good.send(asks);
        assert_eq!(good.response().text(), "ok");
        let mut bad = Conn::tcp(weir.port(3));
        bad.send(asks);
        assert!(bad.is_closed());
        weir.wait_for_log("error.log", "certificate does not match \"127.0.0.3\"");
    });
}
