//! Whose bytes go next over HTTP/2.

use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use testkit::h2::{Client, Frame, Options, Wire, code, flag, kind, setting};
use testkit::{Driver, Site, Weir, built_binary, each_site};

/// The window of a connection that nobody has enlarged.
const WINDOW: usize = 65_535;

fn site(driver: Driver) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/filler.bin", "f".repeat(WINDOW))
        .file("html/long.bin", "l".repeat(300_000))
        .file("html/short.bin", "s".repeat(40_000))
        .file("html/hero.bin", "h".repeat(300_000))
        .file("html/image.bin", "i".repeat(4_000_000))
        .config(
            "worker_processes 1; events {}
             http {
                 http2 on;
                 server {
                     listen 127.0.0.1:%PORT0%;
                     root html;
                     location = /hero.bin { add_header Priority 'u=1;why=hero'; }
                     location /proxied/ { proxy_pass http://127.0.0.1:%PORT1%/; }
                 }
                 server { listen 127.0.0.1:%PORT1%; root html; }
             }",
        )
        .start()
}

/// A connection whose window is used up: streams get theirs, but nothing is sent on them yet.
fn full(weir: &Weir) -> Client {
    let options = Options::default().set(setting::INITIAL_WINDOW_SIZE, 1 << 24).withholding();
    let mut client = Client::with(weir.port(0), options);
    assert_eq!(client.get("/filler.bin").body.len(), WINDOW);
    client
}

fn get(client: &mut Client, path: &str, priority: &str) -> u32 {
    let fields = [("priority", priority)];
    client.start("GET", path, if priority.is_empty() { &[] } else { &fields }, b"")
}

/// Opens the window, and gives the streams of the frames that come until all responses are whole.
fn order(client: &mut Client, streams: &[u32]) -> Vec<u32> {
    for stream in streams {
        client.response_head(*stream);
    }
    let before = client.seen().len();
    client.grant(0, 1 << 24);
    for stream in streams {
        assert!(client.response(*stream).ended);
    }
    let frames = client.seen()[before..].iter();
    frames.filter(|frame| frame.kind == kind::DATA).map(|frame| frame.stream).collect()
}

/// Each stream once, in the order of runs of frames.
fn runs(mut order: Vec<u32>) -> Vec<u32> {
    order.dedup();
    order
}

#[test]
fn the_most_urgent_goes_first_to_its_end() {
    each_site(site, |weir| {
        for folder in ["", "/proxied"] {
            let path = format!("{folder}/long.bin");
            let mut client = full(&weir);
            let streams = ["u=5", "u=3", "u=0", "u=7"].map(|p| get(&mut client, &path, p));
            let [five, three, zero, seven] = streams;
            let order = order(&mut client, &streams);
            match folder {
                "" => assert_eq!(runs(order), [zero, three, five, seven]),
                // A response that is still on its way here does not hold up others.
                _ => assert_eq!(order[0], zero),
            }
        }
    });
}

#[test]
fn whole_responses_go_one_after_the_other() {
    each_site(site, |weir| {
        let mut client = full(&weir);
        let streams = [0; 3].map(|_| get(&mut client, "/long.bin", "u=3"));
        assert_eq!(runs(order(&mut client, &streams)), streams);
    });
}

#[test]
fn incremental_responses_take_turns() {
    each_site(site, |weir| {
        // Frames of a turn, and turns. Each response has five frames; the first goes alone.
        for (priority, frames_max, turns) in [("u=3, i", 2, 9), ("", 4, 6)] {
            let mut client = full(&weir);
            let [a, b, c] = [0; 3].map(|_| get(&mut client, "/short.bin", priority));
            let order = order(&mut client, &[a, b, c]);
            // The first to be read begins.
            let mut in_turn = order.chunk_by(|a, b| a == b);
            assert!(in_turn.all(|turn| turn.len() <= frames_max), "{priority}: {order:?}");
            let runs = runs(order.clone());
            let mut turns = runs[..turns].windows(3);
            let each = |turn: &[u32]| [a, b, c].iter().all(|stream| turn.contains(stream));
            assert!(turns.all(each), "{priority}: {order:?}");
        }
    });
}

#[test]
fn the_response_has_its_own_view() {
    each_site(site, |weir| {
        let mut client = full(&weir);
        let other = get(&mut client, "/long.bin", "u=2");
        let hero = get(&mut client, "/hero.bin", "u=5");
        assert_eq!(runs(order(&mut client, &[other, hero])), [hero, other]);
    });
}

#[test]
fn priorities_come_before_streams_and_change() {
    each_site(site, |weir| {
        let mut client = full(&weir);
        let next = client.next_stream();
        client.send_frame(&Frame::priority_update(next + 2, "u=0"));
        let streams = ["u=2", "u=6", "u=1"].map(|p| get(&mut client, "/long.bin", p));
        let [two, zero, one] = streams;
        client.response_head(one);
        client.send_frame(&Frame::priority_update(two, "u=7"));
        client.ping();
        assert_eq!(runs(order(&mut client, &streams)), [zero, one, two]);
    });
}

#[test]
fn clients_may_say_so_but_not_for_any_number_of_streams() {
    each_site(site, |weir| {
        let mut client = Client::tcp(weir.port(0));
        assert_eq!(client.settings()[&setting::NO_RFC7540_PRIORITIES], 1);
        let updates: Vec<Frame> =
            (0..128).map(|n| Frame::priority_update(1 + 2 * n, "u=1")).collect();
        client.send_frames(&updates);
        assert_eq!(client.get("/short.bin").status, 200);
        client.send_frame(&Frame::priority_update(2 * 128 + 1, "u=1"));
        assert_eq!(client.get("/short.bin").status, 200, "the first is open no more");
        client.send_frame(&Frame::priority_update(2 * 128 + 3, "u=1"));
        assert_eq!(client.get("/short.bin").status, 200);
        client.send_frame(&Frame::priority_update(2 * 128 + 5, "u=1"));
        client.send_frame(&Frame::priority_update(2 * 128 + 7, "u=1"));
        assert_eq!(client.goaway().code, code::PROTOCOL_ERROR);
    });
}

/// HEADERS with a priority of RFC 7540; the weight is what is on the wire, one less than meant.
fn get_below(client: &mut Client, path: &str, parent: u32, exclusive: bool, weight: u8) -> u32 {
    let stream = client.next_stream();
    let head = client.head("GET", path, &[]);
    let place = Frame::priority(stream, parent, exclusive, weight).payload;
    let frame = Frame::headers(stream, [place, head].concat(), true).with(flag::PRIORITY);
    client.send_frame(&frame);
    stream
}

#[test]
fn weights_are_shares() {
    each_site(site, |weir| {
        let mut client = full(&weir);
        let heavy = get_below(&mut client, "/long.bin", 0, false, 191);
        let light = get_below(&mut client, "/long.bin", 0, false, 63);
        let order = order(&mut client, &[heavy, light]);
        let together = &order[..order.iter().rposition(|s| *s == heavy).unwrap() + 1];
        let shares = together.iter().filter(|s| **s == light).count();
        let all = together.len() - shares;
        assert_eq!(all, 300_000 / 8192 + 1);
        assert!((shares * 3).abs_diff(all) <= 3, "{shares} beside {all}: {order:?}");
    });
}

#[test]
fn a_stream_waits_for_the_one_that_it_depends_on() {
    each_site(site, |weir| {
        let mut client = full(&weir);
        let next = client.next_stream();
        let places = [(next + 2, 0), (next, next + 2)];
        client.send_frames(&places.map(|(of, on)| Frame::priority(of, on, false, 15)));
        let child = client.start("GET", "/long.bin", &[], b"");
        let parent = client.start("GET", "/long.bin", &[], b"");
        assert_eq!(runs(order(&mut client, &[child, parent])), [parent, child]);
    });
}

#[test]
fn an_exclusive_dependency_goes_before_the_others() {
    each_site(site, |weir| {
        let mut client = full(&weir);
        let a = get_below(&mut client, "/long.bin", 0, false, 255);
        let b = get_below(&mut client, "/long.bin", 0, false, 255);
        let first = get_below(&mut client, "/long.bin", 0, true, 0);
        let order = order(&mut client, &[a, b, first]);
        let end = order.iter().rposition(|s| *s == first).unwrap();
        assert!(order[..end].iter().all(|s| *s == first), "{order:?}");
        assert_eq!(order[end + 1..][..4], [a, b, a, b]);
    });
}

#[test]
fn a_newer_signal_ends_the_tree() {
    each_site(site, |weir| {
        let mut client = full(&weir);
        let a = get_below(&mut client, "/long.bin", 0, false, 0);
        let b = get_below(&mut client, "/long.bin", 0, false, 255);
        let c = get(&mut client, "/long.bin", "u=1");
        assert_eq!(runs(order(&mut client, &[a, b, c])), [c, a, b]);
    });
}

#[test]
fn announced_settings_end_the_tree() {
    each_site(site, |weir| {
        let options = Options::default()
            .set(setting::INITIAL_WINDOW_SIZE, 1 << 24)
            .set(setting::NO_RFC7540_PRIORITIES, 1)
            .withholding();
        let mut client = Client::with(weir.port(0), options);
        assert_eq!(client.get("/filler.bin").body.len(), WINDOW);
        let a = get_below(&mut client, "/short.bin", 0, false, 0);
        let b = get_below(&mut client, "/short.bin", 0, false, 255);
        assert_eq!(runs(order(&mut client, &[a, b]))[..4], [a, b, a, b]);
    });
}

#[test]
fn a_stream_without_a_window_does_not_block_others() {
    each_site(site, |weir| {
        let options = Options::default().set(setting::INITIAL_WINDOW_SIZE, 0).withholding();
        let mut client = Client::with(weir.port(0), options);
        client.grant(0, 1 << 24);
        let urgent = get(&mut client, "/long.bin", "u=0");
        let others = ["u=0", "u=0, i", "u=6"].map(|p| get(&mut client, "/long.bin", p));
        client.response_head(urgent);
        for other in others {
            client.grant(other, 1 << 24);
        }
        for other in others {
            assert!(client.response(other).ended);
        }
        assert_eq!(client.so_far(urgent).map(|r| r.body.len()), Some(0));
        client.grant(urgent, 1 << 24);
        assert_eq!(client.response(urgent).body.len(), 300_000);
    });
}

/// The next frame, of a client that takes 8 MB a second.
fn slow_frame(client: &mut Client) -> Frame {
    let frame = client.frame().expect("the connection goes on");
    sleep(Duration::from_micros(frame.payload.len() as u64 / 8));
    frame
}

#[test]
fn what_is_urgent_overtakes_what_was_asked_for_before() {
    each_site(site, |weir| {
        let socket = TcpStream::connect(("127.0.0.1", weir.port(0))).unwrap();
        os::socket::set_rcvbuf(&socket, 64 << 10).unwrap();
        let wire = Wire::over(socket.try_clone().unwrap(), socket);
        let options = Options::default().set(setting::INITIAL_WINDOW_SIZE, 1 << 30).withholding();
        let mut client = Client::over(wire, options);
        client.grant(0, 1 << 30);
        let images = [0; 4].map(|_| get(&mut client, "/image.bin", "u=5, i"));
        // Long enough for the kernel to learn how much it could hold for such a client.
        let mut came = 0;
        while came < 2_000_000 {
            came += slow_frame(&mut client).payload.len();
        }
        let style = get(&mut client, "/short.bin", "u=0");
        let mut before = 0;
        while !client.so_far(style).is_some_and(|r| r.ended) {
            let frame = slow_frame(&mut client);
            before += if images.contains(&frame.stream) { frame.payload.len() } else { 0 };
        }
        assert!(before < 1_000_000, "{before} bytes went before");
    });
}
