//! Connections without streams move to the new workers at a reload: no GOAWAY, no reconnect.

use std::sync::atomic::{AtomicBool, Ordering};

use testkit::certificates::KeyKind;
use testkit::h2::{
    Client, Frame, Options, block, code, indexed, literal_indexed, setting, table_size,
};
use testkit::{
    Conn, Driver, Json, Pair, Site, Weir, built_binary, each_driver, pattern, wait_until,
};

/// Ports: 0 in clear, 1 over TLS, 2 tells the status.
fn config(in_server: &str) -> String {
    format!(
        "worker_processes 2;\nerror_log logs/error.log info;\nevents {{}}\n\
         http {{ access_log off; http2 on; ssl_certificate a.pem; ssl_certificate_key a.key;\n\
         server {{ listen 127.0.0.1:%PORT0%; listen 127.0.0.1:%PORT1% ssl; {in_server}\n\
         add_header X-Facts \"$connection $connection_requests $http2 $ssl_alpn_protocol\";\n\
         location = /large {{ root html; try_files /large.bin =404; }}\n\
         location / {{ return 200 \"$request_uri $http_x_long\"; }} }}\n\
         server {{ listen 127.0.0.1:%PORT2%; http2 off; location / {{ stub_status json; }} }} }}\n"
    )
}

fn start(driver: Driver, text: &str) -> Weir {
    let pair = Pair::own(KeyKind::P256, "localhost");
    let site = pair.on(Site::new(built_binary(), driver), "a").config(text);
    site.file("html/large.bin", pattern(640_000, 1)).start()
}

fn status(weir: &Weir) -> Json {
    let mut conn = Conn::tcp(weir.port(2));
    conn.send("GET / HTTP/1.0\r\n\r\n");
    Json::parse(&conn.response().text())
}

fn reload(weir: &Weir) {
    let old = weir.workers();
    weir.reload();
    weir.wait_until_left(&old);
}

#[test]
fn connections_without_streams_outlive_their_workers() {
    each_driver(|driver| {
        let weir = start(driver, &config(""));
        let mut all = [Client::tcp(weir.port(0)), Client::tls(weir.port(1))];
        // One that has sent its preface alone.
        let mut fresh = Client::tcp(weir.port(0));
        fresh.settings();
        let mut numbers = [const { String::new() }; 2];
        for round in 1..=4 {
            for (c, number) in all.iter_mut().zip(&mut numbers) {
                let response = c.get(&format!("/{round}"));
                assert_eq!(response.text(), format!("/{round} "));
                let facts = response.header("x-facts").unwrap().trim_end();
                if number.is_empty() {
                    *number = facts.split(' ').next().unwrap().to_owned();
                }
                let h2 = if facts.ends_with(" h2 h2") { "h2 h2" } else { "h2c" };
                assert_eq!(facts, format!("{number} {round} {h2}"));
            }
            reload(&weir);
        }
        assert_eq!(fresh.get("/fresh").text(), "/fresh ");
        for c in all.iter().chain([&fresh]) {
            assert!(c.goaways().is_empty(), "{:?}", c.goaways());
        }
        wait_until("the last receiver", || {
            let now = status(&weir);
            let of = |what: &str| now.number(&format!("handover.http2.{what}"));
            of("moved") == 3 && of("sent") >= 4 * 3 && of("sent") == of("received")
        });
    });
}

/// The tables of both directions, settings and windows.
#[test]
fn the_state_of_a_connection_moves_along() {
    each_driver(|driver| {
        let weir = start(driver, &config(""));
        let options = Options::default()
            .set(setting::INITIAL_WINDOW_SIZE, 100)
            .set(setting::HEADER_TABLE_SIZE, 64);
        let mut c = Client::with(weir.port(0), options);
        let long = "v".repeat(300);
        let head =
            |c: &Client, path: &str, last: Vec<u8>| [c.head("GET", path, &[]), last].concat();
        let open = |c: &mut Client, block: Vec<u8>| {
            let stream = c.next_stream();
            c.send_frame(&Frame::headers(stream, block, true));
            stream
        };
        // The newest entry of the client's table; an older one behind it.
        for name in ["x-other", "x-long"] {
            let block = head(&c, "/a", literal_indexed(name, &long));
            let stream = open(&mut c, block);
            c.wait_for_length(stream, 100.min(3 + if name == "x-long" { 300 } else { 0 }));
            c.grant(stream, 1000);
            assert_eq!(c.response(stream).status, 200);
        }
        reload(&weir);
        let block = head(&c, "/b", indexed(62));
        let stream = open(&mut c, block);
        c.wait_for_length(stream, 100);
        assert_eq!(c.so_far(stream).unwrap().body.len(), 100, "the client's first window");
        c.grant(stream, 1000);
        assert_eq!(c.response(stream).text(), format!("/b {long}"));
        // A new entry makes the other one older, as before.
        let block = head(&c, "/c", [literal_indexed("x-new", "n"), indexed(63)].concat());
        let stream = open(&mut c, block);
        c.grant(stream, 1000);
        assert_eq!(c.response(stream).text(), format!("/c {long}"));
        reload(&weir);
        // The client empties its table: the index is none any more.
        let block = [table_size(0), head(&c, "/d", indexed(62))].concat();
        open(&mut c, block);
        assert_eq!(c.goaway().code, code::COMPRESSION_ERROR);
    });
}

/// All bytes that the connection's window has room for are used up before the move.
#[test]
fn a_window_that_is_used_up_stays_so() {
    each_driver(|driver| {
        let weir = start(driver, &config(""));
        let options = Options::default().withholding().set(setting::INITIAL_WINDOW_SIZE, 1 << 20);
        let mut c = Client::with(weir.port(0), options);
        let stream = c.start("GET", "/large", &[], b"");
        c.wait_for_length(stream, 65_535);
        c.reset(stream, code::CANCEL);
        c.ping();
        reload(&weir);
        let stream = c.start("GET", "/next", &[], b"");
        c.response_head(stream);
        c.ping();
        assert_eq!(c.so_far(stream).unwrap().body.len(), 0, "nothing fits");
        c.grant(0, 1000);
        assert_eq!(c.response(stream).text(), "/next ");
        // Frames of the stream that is over are no fault.
        c.send_frame(&Frame::window_update(1, 100));
        c.ping();
    });
}

#[test]
fn requests_that_come_during_a_move_are_answered() {
    each_driver(|driver| {
        let weir = start(driver, &config(""));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..4)
                .map(|i| {
                    let (weir, stop) = (&weir, &stop);
                    scope.spawn(move || {
                        let connect = || match i % 2 {
                            0 => Client::tcp(weir.port(0)),
                            _ => Client::tls(weir.port(1)),
                        };
                        let (mut c, mut done) = (connect(), 0);
                        while !stop.load(Ordering::Relaxed) {
                            let paths: Vec<String> =
                                (0..1 + done % 3).map(|n| format!("/{i}/{done}/{n}")).collect();
                            let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
                            for (path, response) in paths.iter().zip(c.get_all(&paths)) {
                                assert_eq!(response.text(), format!("{path} "));
                            }
                            done += 1;
                            // One that is never idle is told to end.
                            if !c.goaways().is_empty() {
                                c = connect();
                            }
                        }
                        done
                    })
                })
                .collect();
            (0..5).for_each(|_| reload(&weir));
            stop.store(true, Ordering::Relaxed);
            for client in clients {
                assert!(client.join().expect("every response") > 0);
            }
        });
    });
}

#[test]
fn other_parameters_or_handover_off_end_the_connection_as_before() {
    let first = config("");
    for (in_server, why) in
        [("http2_max_concurrent_streams 7;", "configuration"), ("handover off;", "off")]
    {
        let mut weir = start(Driver::usual(), &first);
        let mut c = Client::tcp(weir.port(0));
        assert_eq!(c.get("/a").status, 200);
        let old = weir.workers();
        weir.set_config(&config(in_server));
        weir.reload();
        wait_until("the decision", || {
            status(&weir).number(&format!("handover.http2.stayed.{why}")) == 1
        });
        c.wait_for("the first GOAWAY", |c| c.goaways().first().map(|_| ()));
        assert_eq!(c.goaways()[0].code, code::NO_ERROR);
        let late = c.start("GET", "/late", &[], b"");
        assert_eq!(c.response(late).text(), "/late ");
        weir.wait_until_left(&old);
    }
}

/// The client has sent the first part of a frame.
#[test]
fn a_part_of_a_frame_is_kept() {
    each_driver(|driver| {
        let weir = start(driver, &config(""));
        let mut c = Client::tls(weir.port(1));
        assert_eq!(c.get("/a").status, 200);
        let stream = c.next_stream();
        let head = [(":method", "GET"), (":scheme", "https"), (":authority", "x"), (":path", "/p")];
        let bytes = Frame::headers(stream, block(&head), true).encode();
        c.expect(stream);
        c.send(&bytes[..12]);
        let old = weir.workers();
        weir.reload();
        c.send(&bytes[12..]);
        assert_eq!(c.response(stream).text(), "/p ");
        weir.wait_until_left(&old);
    });
}
