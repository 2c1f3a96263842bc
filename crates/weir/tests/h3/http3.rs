//! HTTP/3 to clients, as the whole server speaks it.

use testkit::certificates::KeyKind;
use testkit::h3::{Client, Dir, Options, Quic};
use testkit::{Driver, Pair, Site, Weir, built_binary, each_site};

fn site(driver: Driver) -> Weir {
    let site = Site::new(built_binary(), driver);
    Pair::own(KeyKind::P256, "localhost")
        .on(site, "a")
        .file("html/a.txt", "hello")
        .file("html/59k.txt", "x".repeat(59 * 1024))
        .file("html/large.bin", "0123456789abcdef".repeat(40_000))
        .config(
            &"worker_processes 1; events {}
             http {
                 log_format h '$request|$status|$http3|$request_length|$host';
                 access_log logs/access.log h;
                 ssl_certificate a.pem; ssl_certificate_key a.key;
                 server {
                     listen 127.0.0.1:%PORT0% quic;
                     root html;
                     location /echo { proxy_pass http://127.0.0.1:%PORT1%; }
                     location /vars { return 200 '$http3 $server_protocol $http_cookie $scheme'; }
                     location /body { client_max_body_size 5; proxy_pass http://127.0.0.1:%PORT1%/echo; }
                     location /long { set $long '%LONG%'; return 200 $long$long$long; }
                     location /slow { limit_rate 100k; alias html/large.bin; }
                     location /slower { limit_rate 1k; alias html/large.bin; }
                 }
                 server {
                     listen 127.0.0.1:%PORT1%;
                     location /echo {
                         client_max_body_size 0;
                         client_body_in_single_buffer on;
                         client_body_buffer_size 2m;
                         add_header X-Length $content_length;
                         proxy_pass http://127.0.0.1:%PORT1%/given;
                         proxy_set_header X-Body $request_body;
                     }
                     location /given { return 200 $http_x_body; }
                 }
             }"
            .replace("%LONG%", &"long text ".repeat(300)),
        )
        .start()
}

#[test]
fn requests_share_a_connection() {
    each_site(site, |weir| {
        let mut c = Client::connect(weir.port(0), "localhost");
        let all = c.get_all(&["/a.txt", "/none", "/large.bin", "/a.txt"]);
        let statuses: Vec<_> = all.iter().map(|r| r.status).collect();
        assert_eq!(statuses, [200, 404, 200, 200]);
        assert_eq!((&all[0].body[..], all[2].body.len()), (&b"hello"[..], 640_000));
        assert_eq!(all[0].header("content-length"), Some("5"));
        assert_eq!(c.get("/a.txt").body, b"hello");
        assert_eq!(c.get("/long").body, "long text ".repeat(900).into_bytes());
        let large = "0123456789abcdef".repeat(40_000).into_bytes();
        assert_eq!(c.get("/large.bin").body, large);
        assert_eq!(c.get("/vars").body, b"h3 HTTP/3.0  https");
        weir.wait_for_log("access.log", "GET /a.txt HTTP/3.0|200|h3|");
    });
}

#[test]
fn bodies_come_whole() {
    each_site(site, |weir| {
        let mut c = Client::connect(weir.port(0), "localhost");
        let r = c.request("POST", "/echo", &[("content-length", "4")], b"body");
        assert_eq!((r.status, &r.body[..]), (200, &b"body"[..]));
        assert_eq!(r.header("x-length"), Some("4"));
        let r = c.request("POST", "/echo", &[], b"body");
        assert_eq!((r.status, &r.body[..]), (200, &b"body"[..]));
        let r = c.request("POST", "/body", &[], b"too long");
        assert_eq!(r.status, 413);
        let r = c.request("POST", "/body", &[("content-length", "9")], b"too short");
        assert_eq!(r.status, 413);
    });
}

fn with_a(driver: Driver) -> Site {
    let site = Site::new(built_binary(), driver);
    Pair::own(KeyKind::P256, "localhost").on(site, "a")
}

/// A server over QUIC with these directives in it, and `http` beside it.
fn start(driver: Driver, server: &str, http: &str) -> Weir {
    with_a(driver)
        .http(&format!(
            "log_format h '$request|$status|$http3|$request_length|$host';
             access_log logs/access.log h;
             ssl_certificate a.pem; ssl_certificate_key a.key;
             server {{ listen 127.0.0.1:%PORT0% quic; {server} }}
             {http}"
        ))
        .start()
}

#[test]
fn a_client_that_reads_slowly_gets_all_of_it() {
    each_site(site, |weir| {
        let options = Options { window: 20_000, ..Options::default() };
        let mut c = Client::with(weir.port(0), &options);
        let large = "0123456789abcdef".repeat(40_000).into_bytes();
        let all = c.get_all(&["/large.bin", "/59k.txt", "/large.bin"]);
        assert!(all[0].body == large && all[2].body == large);
        assert_eq!(all[1].body.len(), 59 * 1024);
    });
}

#[test]
fn heads_without_bodies() {
    each_site(site, |weir| {
        let mut c = Client::connect(weir.port(0), "localhost");
        let r = c.request("HEAD", "/a.txt", &[], b"");
        assert_eq!((r.status, r.header("content-length"), r.body.len()), (200, Some("5"), 0));
        let etag = c.get("/a.txt").header("etag").unwrap().to_owned();
        let r = c.request("GET", "/a.txt", &[("if-none-match", &etag)], b"");
        assert_eq!((r.status, r.body.len()), (304, 0));
    });
}

#[test]
fn a_response_that_is_paced_comes_whole() {
    each_site(site, |weir| {
        let mut c = Client::connect(weir.port(0), "localhost");
        let began = std::time::Instant::now();
        let slower = c.begin_with("GET", "/slower", &[]);
        c.quic().finish(slower);
        c.response_until(slower, |r| !r.body.is_empty());
        assert!(began.elapsed().as_secs() < 10, "a piece of a file takes 65 s");
        let id = c.begin_with("GET", "/slow", &[]);
        c.quic().finish(id);
        c.response_until(id, |r| r.body.len() >= 100_000);
        // The rest takes some seconds more, for which nobody waits.
        c.quic().stop(id, 0x10c);
        let r = c.get("/a.txt");
        assert_eq!(r.status, 200, "the connection goes on");
        weir.wait_for_log("access.log", "GET /slow HTTP/3.0|200|h3|");
    });
}

#[test]
fn a_file_at_a_low_rate_begins_at_once() {
    each_site(
        |driver| {
            with_a(driver)
                .file("html/large.bin", "0123456789abcdef".repeat(10_000))
                .http(
                    "ssl_certificate a.pem; ssl_certificate_key a.key;
                     server { listen 127.0.0.1:%PORT0% quic; root html; limit_rate 1k; }",
                )
                .start()
        },
        |weir| {
            let mut c = Client::connect(weir.port(0), "localhost");
            let id = c.begin_with("GET", "/large.bin", &[]);
            c.quic().finish(id);
            // The first piece that is read of the file would take a minute.
            c.response_until(id, |r| r.status == 200 && !r.body.is_empty());
            c.response_until(id, |r| r.body.len() >= 2048);
        },
    );
}

#[test]
fn a_client_gives_requests_up() {
    each_site(
        |driver| {
            start(
                driver,
                "location / { proxy_pass http://127.0.0.1:%PORT1%; }
                 location = /now { return 200; }
                 location /up { client_max_body_size 1m; proxy_pass http://127.0.0.1:%PORT1%; }",
                "server { listen 127.0.0.1:%PORT1%; limit_rate 1; return 200 'a slow response'; }",
            )
        },
        |weir| {
            let mut c = Client::connect(weir.port(0), "localhost");
            // In the middle of its body.
            let head = [("content-length", "1000")];
            let id = c.begin_with("POST", "/up", &head);
            c.send(id, b"a part");
            assert_eq!(c.get("/now").status, 200, "the request before has begun");
            c.quic().reset(id, 0x10c);
            c.quic().turn();
            weir.wait_for_log("access.log", "POST /up HTTP/3.0|499|h3|");
            // While its response comes.
            let id = c.begin_with("GET", "/down", &[]);
            c.quic().finish(id);
            assert_eq!(c.get("/now").status, 200);
            c.quic().stop(id, 0x10c);
            c.quic().turn();
            weir.wait_for_log("access.log", "GET /down HTTP/3.0|499|h3|");
            assert!(c.quic().lost().is_none());
        },
    );
}

#[test]
fn a_client_that_takes_no_response_is_cut_off() {
    each_site(
        |driver| {
            start(
                driver,
                "location / { return 200 ok; }
                 location /slow { proxy_pass http://127.0.0.1:%PORT1%; }",
                "server { listen 127.0.0.1:%PORT1%; limit_rate 1; return 200 'a slow response'; }",
            )
        },
        |weir| {
            // Heads that are never whole leave their streams to others.
            let mut c = Client::connect(weir.port(0), "localhost");
            for _ in 0..100 {
                let id = c.quic().open(Dir::Bi);
                c.quic().write(id, &[1, 90, 0, 0]);
                c.quic().turn();
                c.quic().reset(id, 0x10c);
            }
            assert_eq!(c.get("/").status, 200);
            // Some responses may be given up beside such as are taken.
            let give_up = |c: &mut Client| {
                let id = c.begin_with("GET", "/slow", &[]);
                c.quic().finish(id);
                c.quic().stop(id, 0x10c);
                c.quic().turn();
            };
            for _ in 0..20 {
                (0..5).for_each(|_| give_up(&mut c));
                assert_eq!(c.get("/").status, 200);
            }
            let mut c = Client::connect(weir.port(0), "localhost");
            let most = (0..2_000).find(|_| {
                give_up(&mut c);
                c.quic().lost().is_some()
            });
            assert!(most.is_some_and(|n| n >= 250), "{most:?}");
            assert_eq!(c.quic().lost_code(), Some(0x107));
            weir.wait_for_log("error.log", "client sent too many streams that were reset");
        },
    );
}

#[test]
fn the_name_chooses_the_server_and_its_certificate() {
    each_site(
        |driver| {
            let site = with_a(driver);
            Pair::own(KeyKind::P256, "b.example")
                .on(site, "b")
                .http(
                    "ssl_certificate a.pem; ssl_certificate_key a.key;
                     server { listen 127.0.0.1:%PORT0% quic; return 200 'a $ssl_server_name'; }
                     server { listen 127.0.0.1:%PORT0% quic; server_name b.example;
                         ssl_certificate b.pem; ssl_certificate_key b.key;
                         return 200 'b $ssl_server_name $ssl_protocol $https $ssl_session_reused'; }
                     server { listen 127.0.0.1:%PORT0% quic; server_name no.example;
                         ssl_reject_handshake on; }
                     server { listen 127.0.0.1:%PORT0% quic; server_name off.example; http3 off; }",
                )
                .start()
        },
        |weir| {
            let get = |name: &str| Client::connect(weir.port(0), name).get("/").body;
            assert_eq!(get("other.example"), b"a other.example");
            assert_eq!(get("b.example"), b"b b.example TLSv1.3 on .");
            assert_eq!(refused(&weir, "no.example"), 0x100 + 112);
            assert_eq!(refused(&weir, "off.example"), 0x100 + 120);
            // The name of the request chooses, too.
            let mut c = Client::connect(weir.port(0), "localhost");
            let head = [
                (":method", "GET"),
                (":scheme", "https"),
                (":authority", "b.example"),
                (":path", "/"),
            ];
            let id = c.begin(&head);
            c.quic().finish(id);
            assert_eq!(c.response(id).body, b"b localhost TLSv1.3 on .");
        },
    );
}

/// The code with which a handshake is refused.
fn refused(weir: &Weir, name: &str) -> u64 {
    let options = Options { name: name.to_owned(), ..Options::default() };
    let mut quic = Quic::new(weir.port(0), &options);
    quic.until("no end", |quic| quic.lost_code())
}

#[test]
fn what_breaks_the_rules_ends_the_connection() {
    each_site(site, |weir| {
        for (what, bytes, code) in [
            ("data before a head", &[0, 1, 7][..], 0x105),
            ("settings on a request", &[4, 0], 0x105),
            ("a frame of HTTP/2", &[6, 0], 0x105),
            ("a head that is none", &[1, 2, 0xff, 0xff], 0x200),
            ("a frame that is cut", &[1, 9, 0, 0], 0x106),
        ] {
            let mut c = Client::connect(weir.port(0), "localhost");
            let id = c.quic().open(Dir::Bi);
            c.quic().write(id, bytes);
            c.quic().finish(id);
            assert_eq!(c.quic().until(what, |quic| quic.lost_code()), code, "{what}");
        }
        for (what, bytes, code) in [
            ("a second control stream", &[0, 4, 0][..], 0x103),
            ("a push", &[1, 0], 0x103),
            ("an instruction that is none", &[2, 0x3f, 0xe2, 0x1f], 0x201),
        ] {
            let mut c = Client::connect(weir.port(0), "localhost");
            let id = c.quic().open(Dir::Uni);
            c.quic().write(id, bytes);
            assert_eq!(c.quic().until(what, |quic| quic.lost_code()), code, "{what}");
        }
        weir.wait_for_log("error.log", "client sent ");
    });
}

#[test]
fn a_malformed_request_is_answered_and_others_go_on() {
    each_site(site, |weir| {
        let mut c = Client::connect(weir.port(0), "localhost");
        let head = [(":method", "GET"), (":scheme", "https"), (":path", "/a.txt")];
        let id = c.begin(&head);
        c.quic().finish(id);
        assert_eq!(c.response(id).status, 400, "there is no host");
        let r = c.request("GET", "/a.txt", &[("connection", "close")], b"");
        assert_eq!(r.status, 400);
        let r = c.request("POST", "/echo", &[("content-length", "5")], b"four");
        assert_eq!(r.status, 400);
        assert_eq!(c.get("/a.txt").status, 200);
    });
}

#[test]
fn a_client_that_says_nothing_for_long_is_cut_off() {
    each_site(site, |weir| {
        let mut c = Client::connect(weir.port(0), "localhost");
        let id = c.quic().open(Dir::Bi);
        // Frames of a reserved type and of no length.
        let empty = [0x21, 0].repeat(20_000);
        c.quic().write(id, &empty);
        assert_eq!(c.quic().until("not cut off", |quic| quic.lost_code()), 0x107);
    });
}

/// The highest identifier of a client's stream: with it GOAWAY rejects nothing.
const LAST_ID: u64 = (1 << 62) - 4;

fn wait_for_goaway(c: &mut Client, id: u64) {
    let began = std::time::Instant::now();
    while c.goaway != Some(id) {
        assert!(began.elapsed() < testkit::PATIENCE, "GOAWAY {:?}, not {id}", c.goaway);
        c.quic().turn();
        c.look();
    }
}

#[test]
fn the_first_request_is_answered_without_keep_alive() {
    each_site(
        |driver| start(driver, "keepalive_timeout 0; return 200 ok;", ""),
        |weir| {
            let mut c = Client::connect(weir.port(0), "localhost");
            assert_eq!(c.get("/").body, b"ok");
            wait_for_goaway(&mut c, LAST_ID);
            wait_for_goaway(&mut c, 4);
            assert_eq!(c.quic().until("not closed", |quic| quic.lost_code()), 0x100);
        },
    );
}

#[test]
fn a_connection_that_had_its_requests_is_ended_in_good_order() {
    each_site(
        |driver| start(driver, "keepalive_requests 3; return 200 ok;", ""),
        |weir| {
            let mut c = Client::connect(weir.port(0), "localhost");
            for _ in 0..3 {
                assert_eq!(c.get("/").body, b"ok");
            }
            wait_for_goaway(&mut c, LAST_ID);
            // Requests that the client sent before it knew are answered.
            assert_eq!(c.get("/").body, b"ok");
            wait_for_goaway(&mut c, 16);
            assert_eq!(c.quic().until("not closed", |quic| quic.lost_code()), 0x100);
        },
    );
}

#[test]
fn clients_prove_their_addresses_first() {
    each_site(
        |driver| start(driver, "quic_retry on; return 200 ok;", ""),
        |weir| {
            let mut c = Client::connect(weir.port(0), "localhost");
            assert_eq!(c.get("/").body, b"ok");
            assert!(c.quic().was_retried());
        },
    );
}

#[test]
fn a_token_of_a_retry_that_cannot_be_read_ends_the_connection() {
    each_site(
        |driver| start(driver, "return 200 ok;", ""),
        |weir| {
            let with = |len| Options { token: Some(vec![7; len]), ..Options::default() };
            for len in [57, 69] {
                let mut quic = Quic::new(weir.port(0), &with(len));
                assert_eq!(quic.until("no end", |quic| quic.lost_code()), 0xb, "{len}");
            }
            // Others count as none: they may be old, or another server's.
            for len in [1, 46, 56, 70] {
                assert_eq!(Client::with(weir.port(0), &with(len)).get("/").body, b"ok", "{len}");
            }
        },
    );
}

#[test]
fn a_client_moves_to_another_address() {
    each_site(
        |driver| start(driver, "return 200 $remote_port;", ""),
        |weir| {
            let mut c = Client::connect(weir.port(0), "localhost");
            let before = c.get("/").body;
            c.quic().rebind();
            let port = c.quic().port().to_string();
            assert_ne!(before, port.as_bytes());
            // It is believed when it has proved the address.
            let began = std::time::Instant::now();
            while c.get("/").body != port.as_bytes() {
                assert!(began.elapsed() < testkit::PATIENCE);
            }
        },
    );
}

#[test]
fn requests_come_in_early_data() {
    each_site(
        |driver| {
            start(
                driver,
                "ssl_early_data on; ssl_session_cache shared:a:1m;
                 return 200 '$ssl_session_reused $ssl_early_data $request_uri';",
                "",
            )
        },
        |weir| {
            let options = Options { early: true, ..Options::default() };
            let options = Options { tls: Some(options.tls()), ..options };
            let mut c = Client::with(weir.port(0), &options);
            assert_eq!(c.get("/a").body, b".  /a");
            c.quic().close(0x100);
            // The client draws the fixed bit of packets at random now (RFC 9287).
            let mut early = 0;
            for _ in 0..8 {
                let mut c = Client::start(weir.port(0), &options);
                assert!(c.is_open(), "a session is there");
                let id = c.begin_with("GET", "/b", &[]);
                c.quic().finish(id);
                let body = c.response(id).body;
                assert!(body == b"r 1 /b" || body == b"r  /b", "{}", body.escape_ascii());
                early += u32::from(body == b"r 1 /b");
                let end = "no end of the handshake";
                c.quic().until(end, |quic| quic.is_connected().then_some(()));
                assert!(c.quic().inner().accepted_0rtt());
                assert_eq!(c.get("/c").body, b"r  /c");
                c.quic().close(0x100);
            }
            // The handshake may have come to its end before the request was looked at.
            assert!(early > 0);
        },
    );
}

#[test]
fn other_versions_are_told_the_one_that_is_spoken() {
    each_site(site, |weir| {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(testkit::PATIENCE)).unwrap();
        let mut packet = vec![0xc0, 0x0a, 0x0a, 0x0a, 0x0a, 8, 1, 2, 3, 4, 5, 6, 7, 8, 3, 7, 8, 9];
        packet.resize(1200, 0);
        socket.send_to(&packet, ("127.0.0.1", weir.port(0))).unwrap();
        let mut buffer = [0; 1500];
        let n = socket.recv(&mut buffer).unwrap();
        let answer = &buffer[..n];
        assert_eq!(&answer[1..5], [0; 4], "it is a packet of Version Negotiation");
        assert_eq!(&answer[5..18], [3, 7, 8, 9, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(answer[18..].chunks(4).any(|version| version == [0, 0, 0, 1]));
        // A smaller datagram gets no answer, which would be more than it is.
        packet.truncate(1199);
        socket.send_to(&packet, ("127.0.0.1", weir.port(0))).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
        assert!(socket.recv(&mut buffer).is_err());
    });
}

#[test]
fn responses_beyond_the_window_of_a_connection() {
    each_site(site, |weir| {
        let mut c = Client::connect(weir.port(0), "localhost");
        let large = "0123456789abcdef".repeat(40_000).into_bytes();
        for response in c.get_all(&["/large.bin"; 12]) {
            assert!(response.body == large, "{} {:?}", response.status, response.reset);
        }
    });
}

#[test]
fn connections_outlive_a_reload() {
    each_site(
        |driver| {
            with_a(driver)
                .file("html/slow", "slow ".repeat(8_000))
                .http(
                    "ssl_certificate a.pem; ssl_certificate_key a.key;
                     server { listen 127.0.0.1:%PORT0% quic; root html;
                         location /slow { limit_rate 8k; }
                         location /here { return 200 here; } }",
                )
                .start()
        },
        |weir| {
            let mut before: Vec<_> =
                (0..3).map(|_| Client::connect(weir.port(0), "localhost")).collect();
            let mut ids = Vec::new();
            for c in &mut before {
                assert_eq!(c.get("/here").body, b"here");
                let id = c.begin_with("GET", "/slow", &[]);
                c.quic().finish(id);
                c.response_until(id, |r| r.status == 200);
                ids.push(id);
            }
            let old = weir.workers();
            weir.signal("HUP");
            testkit::wait_for("new workers", || {
                let now = weir.workers();
                now.iter().any(|pid| !old.contains(pid)).then_some(())
            });
            // The elder answers what it has begun, by way of the new worker, which has others.
            for (c, id) in before.iter_mut().zip(ids) {
                assert!(c.response(id).body == b"slow ".repeat(8_000));
            }
            let mut c = Client::connect(weir.port(0), "localhost");
            assert_eq!(c.get("/here").body, b"here");
            for c in &mut before {
                assert_eq!(c.quic().until("no end", |quic| quic.lost_code()), 0x100);
            }
        },
    );
}

/// The request goes on behind its response, whose end the client confirms meanwhile.
#[test]
fn a_request_that_goes_on_keeps_no_connection() {
    each_site(
        |driver| {
            start(
                driver,
                "location / { return 200 ok; post_action @behind; }
                 location @behind { proxy_pass http://127.0.0.1:%PORT1%; }",
                "server { listen 127.0.0.1:%PORT1%; limit_rate 100; return 200 'some text'; }",
            )
        },
        |weir| {
            let mut c = Client::connect(weir.port(0), "localhost");
            assert_eq!(c.get("/").body, b"ok");
            c.quic().turn();
            weir.wait_for_log("access.log", "GET / HTTP/3.0|200|h3|");
            weir.signal("HUP");
            assert_eq!(c.quic().until("no end", |quic| quic.lost_code()), 0x100);
        },
    );
}

/// The client wants no response before its request is there, and then gives it up.
#[test]
fn a_request_that_was_stopped_keeps_no_connection() {
    each_site(
        |driver| start(driver, "return 200 ok;", ""),
        |weir| {
            let mut c = Client::connect(weir.port(0), "localhost");
            for part in [&b"\x01"[..], b""] {
                let id = c.quic().open(Dir::Bi);
                c.quic().write(id, part);
                c.quic().stop(id, 0x10c);
                assert_eq!(c.get("/").body, b"ok", "the stream before was looked at");
                c.quic().reset(id, 0x10c);
            }
            assert_eq!(c.get("/").body, b"ok");
            weir.signal("HUP");
            assert_eq!(c.quic().until("no end", |quic| quic.lost_code()), 0x100);
        },
    );
}

#[test]
fn early_data_needs_no_cache_of_sessions() {
    each_site(
        |driver| start(driver, "ssl_early_data on; return 200 $ssl_session_reused;", ""),
        |weir| {
            let options = Options::default();
            let options = Options { tls: Some(options.tls()), ..options };
            for reused in [".", "r", "r"] {
                let mut c = Client::with(weir.port(0), &options);
                assert_eq!(c.get("/").body, reused.as_bytes());
                c.quic().close(0x100);
            }
        },
    );
}

/// The client's encoder may hold entries of its table for sections that nobody reads any more (RFC
/// 9204 section 2.2.2.2).
#[test]
fn a_request_that_is_not_read_to_its_end_is_cancelled_for_the_decoder() {
    each_site(site, |weir| {
        let mut c = Client::connect(weir.port(0), "localhost");
        assert_eq!(c.get("/a.txt").status, 200);
        assert_eq!(c.decoder_instructions, b"", "a whole request needs none");
        let discarded = c.begin_with("POST", "/vars", &[]);
        let large = c.begin_with("POST", "/body", &[("content-length", "10")]);
        let given_up = c.begin_with("POST", "/echo", &[]);
        for (id, status) in [(discarded, 200), (large, 413)] {
            c.response_until(id, |r| r.status != 0);
            assert_eq!(c.so_far(id).unwrap().status, status);
        }
        c.give_up(given_up, 0x10c);
        // Stream Cancellation: 01, and the number of the stream.
        let mut expected: Vec<u8> =
            [discarded, large, given_up].map(|id| 0x40 | u64::from(id) as u8).into();
        expected.sort_unstable();
        let began = std::time::Instant::now();
        loop {
            let mut told = c.decoder_instructions.clone();
            told.sort_unstable();
            if told == expected {
                break;
            }
            assert!(began.elapsed() < testkit::PATIENCE, "{told:x?}, not {expected:x?}");
            c.quic().turn();
            c.look();
        }
    });
}
