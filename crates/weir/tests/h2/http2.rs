//! HTTP/2 to clients, as the whole server speaks it.

use std::io::{ErrorKind, Write};

use testkit::h2::{Client, Frame, Options, block, code, flag, kind, scan, setting};
use testkit::{Driver, PATIENCE, Site, Weir, built_binary, each_site};

fn site(driver: Driver) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/a.txt", "hello")
        .file("html/59k.txt", "x".repeat(59 * 1024))
        .file("html/large.bin", "0123456789abcdef".repeat(40_000))
        .config(
            &"worker_processes 1; events {}
             http {
                 log_format h '$request|$status|$http2|$request_length|$host|$body_bytes_sent';
                 access_log logs/access.log h;
                 http2 on;
                 server {
                     listen 127.0.0.1:%PORT0%;
                     root html;
                     location /echo { proxy_pass http://127.0.0.1:%PORT1%; }
                     location /stream {
                         proxy_pass http://127.0.0.1:%PORT1%/echo;
                         proxy_request_buffering off;
                         proxy_http_version 1.1;
                     }
                     location /vars { return 200 '$http2 $server_protocol $http_cookie $scheme'; }
                     location /body { client_max_body_size 5; proxy_pass http://127.0.0.1:%PORT1%/echo; }
                     location /long { set $long '%LONG%'; return 200 $long$long$long; }
                     location /slow { limit_rate 100k; alias html/large.bin; }
                 }
                 server {
                     listen 127.0.0.1:%PORT0%;
                     server_name old.test;
                     http2 off;
                     return 200 old;
                 }
                 server {
                     listen 127.0.0.1:%PORT1%;
                     location /echo {
                         client_max_body_size 0;
                         client_body_in_single_buffer on;
                         client_body_buffer_size 2m;
                         add_header X-Length $content_length;
                         add_header X-Sum '<$http_x_sum>';
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
        let mut c = Client::tcp(weir.port(0));
        let all = c.get_all(&["/a.txt", "/none", "/large.bin", "/a.txt"]);
        let statuses: Vec<_> = all.iter().map(|r| r.status).collect();
        assert_eq!(statuses, [200, 404, 200, 200]);
        assert_eq!((&all[0].body[..], all[2].body.len()), (&b"hello"[..], 640_000));
        assert_eq!(all[0].header("content-length"), Some("5"));
        assert_eq!(c.get("/a.txt").body, b"hello");
        assert_eq!(c.get("/long").body, "long text ".repeat(900).into_bytes());
        let large = "0123456789abcdef".repeat(40_000).into_bytes();
        assert_eq!(c.get("/large.bin").body, large);
        weir.wait_for_log("access.log", "GET /a.txt HTTP/2.0|200|h2c|");
        // The heads of frames are not the body's.
        for (path, body) in [("/a.txt", 5), ("/large.bin", 640_000), ("/long", 9000)] {
            let log = weir.wait_for_log("access.log", &format!("GET {path} HTTP/2.0|200"));
            let line = log.lines().find(|line| line.contains(path)).unwrap();
            assert!(line.ends_with(&format!("|{body}")), "{line}");
        }
    });
}

#[test]
fn requests_that_repeat_are_answered_anew() {
    each_site(site, |weir| {
        let mut c = Client::tcp(weir.port(0));
        let mut tags = Vec::new();
        // Heads are copied from the third time on.
        for text in ["hello", "others", "and others"] {
            weir.write("html/a.txt", text);
            for _ in 0..5 {
                let r = c.get("/a.txt");
                assert_eq!((r.status, &r.body[..]), (200, text.as_bytes()));
                assert_eq!(r.header("content-length"), Some(&text.len().to_string()[..]));
                assert_eq!(r.header("content-type"), Some("text/plain"));
                tags.push(r.header("etag").map(str::to_owned));
            }
        }
        tags.dedup();
        assert_eq!(tags.len(), 3, "{tags:?}");
        for _ in 0..4 {
            let r = c.request("GET", "/a.txt", &[("if-none-match", "*")], b"");
            assert_eq!((r.status, r.header("content-length")), (304, None));
            let r = c.request("HEAD", "/a.txt", &[], b"");
            assert_eq!((r.status, r.header("content-length"), r.body.len()), (200, Some("10"), 0));
            assert_eq!(c.get("/none").status, 404);
            // The same head with a body and without, and with another body.
            for body in [&b"one"[..], b"", b"three"] {
                assert_eq!(c.request("POST", "/echo", &[], body).body, body);
            }
            assert_eq!(c.get("/vars").body, b"h2c HTTP/2.0  http");
        }
    });
}

#[test]
fn requests_that_differ_in_their_paths_get_what_they_ask_for() {
    each_site(site, |weir| {
        for n in 0..20 {
            weir.write(&format!("html/page-{n}.txt"), format!("page {n}"));
        }
        let mut c = Client::tcp(weir.port(0));
        for round in 0..3 {
            for n in 0..20 {
                let answer = c.get(&format!("/page-{n}.txt?round={round}"));
                assert_eq!(answer.text(), format!("page {n}"));
            }
            assert_eq!(c.get("/../page-0.txt").status, 400);
            assert_eq!(c.get("/x/%2e%2e/page-1.txt").text(), "page 1");
            assert_eq!(c.get("/vars?a").text(), "h2c HTTP/2.0  http");
        }
        weir.wait_for_log("access.log", "GET /page-19.txt?round=2 HTTP/2.0|200|h2c|");
        weir.wait_for_log("access.log", "GET /x/%2e%2e/page-1.txt HTTP/2.0|200|h2c|");
    });
}

/// More requests at once than a connection has answered before others have their turns.
#[test]
fn a_burst_of_requests_is_answered_whole() {
    each_site(site, |weir| {
        let (mut c, mut other) = (Client::tcp(weir.port(0)), Client::tcp(weir.port(0)));
        c.settings();
        let mut frames = Vec::new();
        for n in 0..1_000 {
            let path = ["/a.txt", "/none", "/vars", "/echo"][n % 4];
            let head = c.head("GET", path, &[]);
            frames.push(Frame::headers(1 + 2 * n as u32, head, true));
        }
        // As many as may be open at once.
        for some in frames.chunks(100) {
            c.send_frames(some);
            assert_eq!(other.get("/a.txt").body, b"hello");
            for frame in some {
                let answer = c.response(frame.stream);
                let expected = [200, 404, 200, 200][(frame.stream as usize / 2) % 4];
                assert_eq!(answer.status, expected, "{}", frame.stream);
            }
        }
    });
}

#[test]
fn http1_goes_on_beside_it() {
    each_site(site, |weir| {
        let mut c = weir.connect();
        c.send("GET /vars HTTP/1.1\r\nHost: x\r\nCookie: a=b\r\n\r\n");
        assert_eq!(c.response().body, b" HTTP/1.1 a=b http");
        let mut h2 = Client::tcp(weir.port(0));
        let r = h2.request("GET", "/vars", &[("cookie", "a=b"), ("cookie", "c=d")], b"");
        assert_eq!(r.body, b"h2c HTTP/2.0 a=b; c=d http");
    });
}

#[test]
fn bodies_are_read_whole_or_as_they_come() {
    each_site(site, |weir| {
        let mut c = Client::tcp(weir.port(0));
        let body = "x".repeat(3000);
        for path in ["/echo", "/stream"] {
            let r = c.request("POST", path, &[], body.as_bytes());
            assert_eq!((r.status, r.body.len()), (200, body.len()), "{path}");
            let sized = c.request("POST", path, &[("content-length", "3000")], body.as_bytes());
            assert_eq!((sized.status, sized.header("x-length")), (200, Some("3000")), "{path}");
        }
        let too_large = c.request("POST", "/body", &[], b"123456");
        assert_eq!(too_large.status, 413);
        let stream = c.open("POST", "/stream", &[], false);
        c.data(stream, b"one ", false);
        c.data(stream, b"two", true);
        assert_eq!(c.response(stream).body, b"one two");
    });
}

#[test]
fn trailers_of_requests_end_a_body_and_go_no_further() {
    each_site(site, |weir| {
        let mut c = Client::tcp(weir.port(0));
        for path in ["/echo", "/stream"] {
            let stream = c.open("POST", path, &[("trailer", "x-sum")], false);
            c.data(stream, b"body", false);
            c.send_frame(&Frame::headers(stream, block(&[("x-sum", "42")]), true));
            let r = c.response(stream);
            assert_eq!((r.status, &r.body[..]), (200, &b"body"[..]), "{path}");
            assert_eq!(r.header("x-sum"), Some("<>"), "{path}");
        }
    });
}

/// A stream whose request is malformed gets a page, and then a reset.
fn refused(c: &mut Client, stream: u32) {
    c.wait_for("the reset", |c| c.so_far(stream)?.reset);
    let r = c.so_far(stream).unwrap();
    assert!(r.ended && r.body.starts_with(b"<html>"), "{r:?}");
    assert_eq!((r.status, r.reset), (400, Some(code::PROTOCOL_ERROR)));
}

#[test]
fn a_body_of_another_length_is_refused() {
    each_site(site, |weir| {
        let mut c = Client::tcp(weir.port(0));
        for (declared, body) in [("5", "1234"), ("3", "1234")] {
            let stream = c.open("POST", "/echo", &[("content-length", declared)], false);
            c.data(stream, body, true);
            refused(&mut c, stream);
        }
        assert_eq!(c.get("/a.txt").status, 200);
    });
}

#[test]
fn malformed_requests_get_a_page_and_a_reset() {
    each_site(site, |weir| {
        let mut c = Client::tcp(weir.port(0));
        for field in [("connection", "close"), ("te", "gzip"), ("Upper", "x"), ("x", "a\nb")] {
            let stream = c.start("GET", "/a.txt", &[field], b"");
            refused(&mut c, stream);
        }
        weir.wait_for_log("error.log", "client sent \"Connection\" header");
        assert_eq!(c.get("/a.txt").status, 200);
    });
}

#[test]
fn a_server_without_http2_is_not_to_be_had_over_it() {
    each_site(site, |weir| {
        let options = Options { authority: "old.test".into(), ..Options::default() };
        let mut c = Client::with(weir.port(0), options);
        assert_eq!(c.get("/").status, 421);
    });
}

/// A client whose window has let a thousand bytes through, and the stream that waits for more.
fn held_up(weir: &Weir) -> (Client, u32) {
    let options = Options::default().withholding().set(setting::INITIAL_WINDOW_SIZE, 1000);
    let mut c = Client::with(weir.port(0), options);
    let large = c.start("GET", "/large.bin", &[], b"");
    c.wait_for_length(large, 1000);
    (c, large)
}

#[test]
fn windows_are_kept() {
    each_site(site, |weir| {
        let (mut c, large) = held_up(&weir);
        assert_eq!(c.get("/a.txt").body, b"hello", "another stream goes on");
        c.grant(large, 500);
        c.wait_for_length(large, 1500);
        c.change_settings(&[(setting::INITIAL_WINDOW_SIZE, 3000)]);
        c.wait_for_length(large, 3500);
    });
}

#[test]
fn a_reset_ends_a_request_and_nothing_else() {
    each_site(site, |weir| {
        let (mut c, large) = held_up(&weir);
        c.reset(large, code::CANCEL);
        assert_eq!(c.get("/a.txt").status, 200);
        weir.wait_for_log("error.log", "client canceled stream 1");
        weir.wait_for_log("access.log", "GET /large.bin HTTP/2.0|200|h2c");
    });
}

/// A client with forty responses that wait for windows.
fn all_held_up(weir: &Weir) -> Client {
    let options = Options::default().withholding().set(setting::INITIAL_WINDOW_SIZE, 10);
    let mut c = Client::with(weir.port(0), options);
    for _ in 0..40 {
        let stream = c.start("GET", "/large.bin", &[], b"");
        c.wait_for_length(stream, 10);
    }
    c
}

#[test]
fn the_end_of_a_connection_with_many_streams_takes_a_few_lines() {
    let broken_off = |weir: &Weir| {
        weir.wait_for_lines("access.log", 40);
        weir.error_log().matches("prematurely closed connection while sending response").count()
    };
    each_site(site, |weir| {
        let mut c = all_held_up(&weir);
        c.send_frame(&Frame::new(kind::DATA, 0, 0, "x"));
        assert_eq!(c.goaway().code, code::PROTOCOL_ERROR);
        c.wait_for_close();
        assert_eq!(broken_off(&weir), 0, "the client did not close it");
        weir.wait_for_log("error.log", "client sent ");
    });
    each_site(site, |weir| {
        drop(all_held_up(&weir));
        assert_eq!(broken_off(&weir), 16);
    });
}

#[test]
fn streams_that_are_reset_take_a_few_lines() {
    each_site(site, |weir| {
        let mut c = Client::tcp(weir.port(0));
        c.settings();
        // Each waits for its body until it is reset.
        for _ in 0..3 {
            let mut streams = Vec::new();
            for _ in 0..8 {
                streams.push(c.open("POST", "/stream", &[], false));
                // It has begun.
                c.ping();
            }
            streams.iter().for_each(|stream| c.reset(*stream, code::CANCEL));
            c.ping();
        }
        // The server behind has a line for each, too.
        weir.wait_for_lines("access.log", 2 * 24);
        let log = weir.error_log();
        for what in ["client canceled stream", "client prematurely closed stream"] {
            assert_eq!(log.matches(what).count(), 16, "{what}: {log}");
        }
    });
}

/// Lines of the error log with that text.
fn lines(weir: &Weir, text: &str) -> usize {
    weir.error_log().matches(text).count()
}

#[test]
fn a_flood_of_resets_takes_one_line() {
    each_site(site, |weir| {
        let options = || Options::default().withholding().set(setting::INITIAL_WINDOW_SIZE, 0);
        for _ in 0..3 {
            let mut c = Client::with(weir.port(0), options());
            c.settings();
            (0..30).for_each(|_| resets(&mut c, "/large.bin", 100));
            assert_eq!(c.goaway().code, code::ENHANCE_YOUR_CALM);
            c.wait_for_close();
        }
        assert_eq!(lines(&weir, "[warn]"), 1, "{}", weir.error_log());
        assert_eq!(lines(&weir, "client sent too many streams that were reset"), 1);
        assert_eq!(lines(&weir, "client canceled stream"), 0, "{}", weir.error_log());
    });
}

#[test]
fn requests_that_a_flooder_resets_at_once_do_not_begin() {
    each_site(site, |weir| {
        let options = || Options::default().withholding().set(setting::INITIAL_WINDOW_SIZE, 0);
        let mut flooder = Client::with(weir.port(0), options());
        flooder.settings();
        (0..30).for_each(|_| resets(&mut flooder, "/large.bin", 100));
        assert_eq!(flooder.goaway().code, code::ENHANCE_YOUR_CALM);
        flooder.wait_for_close();
        let mut c = Client::tcp(weir.port(0));
        resets(&mut c, "/echo", 10);
        assert_eq!(c.get("/a.txt").body, b"hello", "others are answered");
        weir.wait_for_log("access.log", "GET /a.txt HTTP/2.0|200");
        let canceled = "GET /echo HTTP/2.0|499|h2c|";
        let log = weir.wait_for_count("access.log", canceled, 10);
        assert_eq!(log.matches(canceled).count(), 10, "{log}");
        assert!(!log.contains("GET /echo HTTP/1"), "one was passed on: {log}");
        assert_eq!(lines(&weir, "while connecting to upstream"), 0, "{}", weir.error_log());
        assert_eq!(c.get("/echo").status, 200);
    });
}

#[test]
fn a_fault_that_is_repeated_takes_one_line() {
    each_site(site, |weir| {
        for _ in 0..3 {
            let mut c = Client::tcp(weir.port(0));
            c.send_frame(&Frame::new(kind::DATA, 0, 1, "x"));
            assert_eq!(c.goaway().code, code::PROTOCOL_ERROR);
            c.wait_for_close();
        }
        assert_eq!(lines(&weir, "client sent DATA frame for an idle stream"), 1);
    });
}

/// Asks for a file that is not there until the server has had enough, and reads nothing.
fn asks_and_does_not_read(weir: &Weir) {
    let mut stream = scan::connect(weir.port(0)).expect("a connection to the server");
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let wide = scan::start(&[(setting::INITIAL_WINDOW_SIZE, 0x7fff_ffff)]);
    let head = scan::head("GET", "/none");
    let mut sent = stream.write_all(&wide);
    for n in 0..2_000 {
        if sent.is_err() {
            break;
        }
        let frames = (0..100).map(|i| Frame::headers(200 * n + 2 * i + 1, &head, true).encode());
        sent = stream.write_all(&frames.flatten().collect::<Vec<_>>());
    }
    let e = sent.expect_err("200,000 requests were taken, and no answer was read");
    assert!(matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{e}");
}

#[test]
fn a_client_that_asks_and_does_not_read_is_cut_off() {
    each_site(site, |weir| {
        // The answers below wait for no thread: otherwise too many streams would be open at once.
        assert_eq!(Client::tcp(weir.port(0)).get("/none").status, 404);
        asks_and_does_not_read(&weir);
        weir.wait_for_log("error.log", "[warn]");
        // On a machine that is busy, more streams wait than may be open, and are refused.
        let limits = ["requests without an end, and reads no responses", "too many streams that"];
        assert_eq!(
            limits.map(|limit| lines(&weir, &format!("client sent {limit}"))).iter().sum::<usize>(),
            1
        );
        // The kernel holds some answers for it, and the file's absence has a line each.
        let answered = lines(&weir, "open() ");
        assert!(answered < 10_000, "{answered} requests were answered");
        asks_and_does_not_read(&weir);
        assert_eq!(lines(&weir, "[warn]"), 1);
        assert!(lines(&weir, "open() ") <= answered + 16, "a client that floods gets few lines");
        let mut c = Client::tcp(weir.port(0));
        assert_eq!(c.get("/a.txt").body, b"hello", "others go on");
    });
}

#[test]
fn nothing_follows_a_reset() {
    each_site(site, |weir| {
        let options = Options::default().set(setting::INITIAL_WINDOW_SIZE, 100);
        let mut c = Client::with(weir.port(0), options);
        c.settings();
        // The page of the first does not fit the window, and the second may not come.
        let malformed = Frame::headers(1, block(&[("x", "y")]), false);
        c.send_frames(&[malformed.clone(), malformed]);
        let r = c.response(1);
        assert_eq!((r.status, r.reset, r.ended), (400, Some(code::PROTOCOL_ERROR), false));
        c.ping();
        assert_eq!(c.get("/a.txt").body, b"hello");
    });
}

/// A client that uploads much at once, all of which is refused: what was under way is no fault.
#[test]
fn bodies_of_all_streams_that_were_reset_are_passed_over() {
    each_site(site, |weir| {
        let mut c = Client::tcp(weir.port(0));
        c.settings();
        let streams: Vec<_> = (0..100).map(|_| c.open("POST", "/a.txt", &[], false)).collect();
        for &stream in &streams {
            c.wait_for("the reset", |c| c.so_far(stream)?.reset);
            assert_eq!(c.response(stream).status, 405);
        }
        for _ in 0..4 {
            let frames = streams.iter().map(|stream| Frame::data(*stream, b"part", false));
            c.send_frames(&frames.collect::<Vec<_>>());
        }
        assert_eq!(c.get("/a.txt").body, b"hello");
    });
}

/// Some clients fill a frame without a look at the window.
#[test]
fn the_longest_frame_fits_the_first_window() {
    each_site(site, |weir| {
        let mut c = Client::tcp(weir.port(0));
        let told = c.settings();
        let (longest, window) =
            (told[&setting::MAX_FRAME_SIZE], told[&setting::INITIAL_WINDOW_SIZE]);
        assert!(longest <= window, "{longest} bytes in a window of {window}");
        let stream = c.open("POST", "/a.txt", &[], false);
        c.send_frame(&Frame::data(stream, vec![b'x'; longest as usize], true));
        let r = c.response(stream);
        assert_eq!((r.status, r.reset), (405, None), "a file takes no POST");
    });
}

/// Opens streams that stay open, and resets them.
fn resets(c: &mut Client, path: &str, n: u32) {
    let first = c.next_stream();
    let head = c.head("GET", path, &[]);
    let streams = (0..n).map(|i| first + 2 * i);
    let pair = |id| [Frame::headers(id, &head, true), Frame::reset(id, code::CANCEL)];
    let frames: Vec<Frame> = streams.flat_map(pair).collect();
    // The server may have closed before it has taken them all.
    let _ = c.try_send_frames(&frames);
}

#[test]
fn connections_of_an_address_share_a_budget_of_resets() {
    each_site(site, |weir| {
        let options = || Options::default().withholding().set(setting::INITIAL_WINDOW_SIZE, 0);
        // Each of them stays below its own budget, which is 256.
        let cut_off = (0..100).any(|_| {
            let mut c = Client::with(weir.port(0), options());
            resets(&mut c, "/large.bin", 200);
            let _ = c.try_send_frames(&[Frame::ping([1; 8])]);
            c.wait_for("the answer or the end", |c| {
                let pong = |f: &Frame| f.kind == kind::PING && f.has(flag::ACK);
                (c.seen().iter().any(pong) || !c.goaways().is_empty()).then_some(())
            });
            c.goaways().iter().any(|goaway| goaway.code == code::ENHANCE_YOUR_CALM)
        });
        assert!(cut_off, "20,000 resets came from one address");
        weir.wait_for_log("error.log", "that were reset by connections of one address");
        // A neighbour who resets little is not cut off.
        let mut c = Client::with(weir.port(0), Options::default());
        resets(&mut c, "/large.bin", 10);
        assert_eq!(c.get("/a.txt").body, b"hello");
        let lines = weir.error_log();
        assert_eq!(lines.matches("connections of one address").count(), 1, "one line");
    });
}

#[test]
fn windows_of_streams_that_are_over_are_returned_late() {
    const UPDATES: usize = 59;
    each_site(site, |weir| {
        let mut c = Client::with(weir.port(0), Options::default().withholding());
        let late = |c: &mut Client, stream| {
            let updates = vec![Frame::window_update(stream, 1024); UPDATES];
            c.try_send_frames(&updates)
        };
        let mut last = 0;
        for _ in 0..200 {
            let stream = c.start("GET", "/59k.txt", &[], b"");
            c.wait_for_length(stream, UPDATES * 1024);
            assert!(c.response(stream).ended);
            c.grant(0, UPDATES as u32 * 1024);
            late(&mut c, stream).unwrap();
            last = stream;
        }
        assert_eq!(c.get("/a.txt").body, b"hello");
        assert!(c.goaways().is_empty());
        // Beyond what was sent they are a flood.
        (0..400).any(|_| late(&mut c, last).is_err());
        assert_eq!(c.goaway().code, code::ENHANCE_YOUR_CALM);
    });
}

#[test]
fn a_rate_holds_for_a_stream() {
    each_site(site, |weir| {
        let mut c = Client::tcp(weir.port(0));
        let slow = c.start("GET", "/slow", &[], b"");
        c.wait_for("the first part", |c| c.so_far(slow).filter(|r| !r.body.is_empty()).map(|_| ()));
        assert_eq!(c.get("/a.txt").body, b"hello");
        assert!(c.so_far(slow).unwrap().body.len() < 640_000, "the slow one goes on");
        c.reset(slow, code::CANCEL);
    });
}

#[test]
fn a_worker_that_leaves_loses_no_stream() {
    each_site(site, |weir| {
        let (mut c, large) = held_up(&weir);
        weir.reload();
        c.wait_for("the first GOAWAY", |c| c.goaways().first().map(|_| ()));
        let first = c.goaways()[0].clone();
        assert_eq!((first.last_stream, first.code), (0x7fff_ffff, code::NO_ERROR));
        let late = c.start("GET", "/a.txt", &[], b"");
        c.wait_for("the final GOAWAY", |c| c.goaways().get(1).map(|_| ()));
        assert_eq!(c.response(late).body, b"hello", "it was on its way");
        assert_eq!(c.goaways()[1].last_stream, late);
        c.grant(large, 1 << 20);
        c.grant(0, 1 << 20);
        assert_eq!(c.response(large).body.len(), 640_000);
        c.wait_for_close();
    });
}

#[test]
fn frames_that_may_not_come_end_the_connection() {
    each_site(site, |weir| {
        for (frame, code) in [
            (Frame::new(kind::PUSH_PROMISE, 0, 1, [0; 4]), code::PROTOCOL_ERROR),
            (Frame::new(kind::DATA, 0, 1, "x"), code::PROTOCOL_ERROR),
            (Frame::new(kind::PING, 0, 0, [0; 7]), code::FRAME_SIZE_ERROR),
            (Frame::window_update(0, 0x7fff_ffff), code::FLOW_CONTROL_ERROR),
            (Frame::new(kind::HEADERS, flag::END_HEADERS, 1, [0xff]), code::FRAME_SIZE_ERROR),
            (Frame::new(kind::HEADERS, flag::END_HEADERS, 1, [0xbe]), code::COMPRESSION_ERROR),
        ] {
            let mut c = Client::tcp(weir.port(0));
            c.send_frame(&frame);
            assert_eq!(c.goaway().code, code, "{frame:?}");
            c.wait_for_close();
        }
    });
}

#[test]
fn websocket_reaches_servers_of_http1() {
    let site = |driver| {
        Site::new(built_binary(), driver)
            .config(
                "worker_processes 1; events {}
                 http {
                     server {
                         listen 127.0.0.1:%PORT0%;
                         http2 on;
                         location / {
                             proxy_pass http://127.0.0.1:%PORT1%;
                             proxy_http_version 1.1;
                             proxy_set_header Upgrade $http_upgrade;
                             proxy_set_header Connection $http_connection;
                         }
                     }
                 }",
            )
            .start()
    };
    each_site(site, |weir| {
        let backend = testkit::listen(weir.port(1));
        let serving = std::thread::spawn(move || {
            use std::io::{Read, Write};
            let (mut s, _) = backend.accept().unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                s.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: "));
            let accept = testkit::websocket_accept(key.unwrap());
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                 Connection: upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\nhi"
            );
            s.write_all(answer.as_bytes()).unwrap();
            let mut said = [0; 4];
            s.read_exact(&mut said).unwrap();
            s.write_all(&said).unwrap();
            let mut rest = Vec::new();
            s.read_to_end(&mut rest).unwrap();
            head.to_ascii_lowercase()
        });
        let mut c = Client::tcp(weir.port(0));
        assert_eq!(c.settings().get(&8), Some(&1), "ENABLE_CONNECT_PROTOCOL");
        let stream = c.websocket("/chat");
        let head = c.response_head(stream);
        assert_eq!((head.status, head.header("sec-websocket-accept")), (200, None));
        c.data(stream, b"ping", false);
        c.wait_for_body(stream, b"hiping");
        c.data(stream, b"", true);
        c.response(stream);
        let head = serving.join().unwrap();
        assert!(head.starts_with("get /chat http/1.1\r\n"), "{head}");
        for field in ["upgrade: websocket", "connection: upgrade", "sec-websocket-key: "] {
            assert!(head.contains(field), "{field} in {head}");
        }
    });
}

/// Browsers and curl send their first request behind the handshake, not with the preface: it may
/// come when the server has answered the client's SETTINGS and is at rest.
#[test]
fn the_first_request_is_answered_whatever_ends_the_connection() {
    for end in ["keepalive_timeout 0;", "keepalive_requests 1;", "keepalive_time 0;"] {
        let start = |driver| {
            let server = "listen 127.0.0.1:%PORT0%; return 200 fine;";
            let http = format!("http2 on; {end} server {{ {server} }}");
            Site::new(built_binary(), driver).http(&http).start()
        };
        each_site(start, |weir| {
            let mut c = Client::tcp(weir.port(0));
            c.settings();
            c.ping();
            assert!(c.goaways().is_empty(), "{end} {:?}", c.goaways());
            assert_eq!(c.get("/").body, b"fine", "{end}");
            c.wait_for("the final GOAWAY", |c| c.goaways().get(1).map(|_| ()));
            assert_eq!(c.goaways()[1].code, code::NO_ERROR);
            c.wait_for_close();
        });
    }
}
