//! HTTP/3 over networks that lose, double, delay, cut and change datagrams: every response and
//! every upload is right to the byte, and connections whose clients are away come to an end.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use testkit::certificates::KeyKind;
use testkit::h3::{Client, Options, StreamId};
use testkit::udp_relay::{Faults, Relay, Way};
use testkit::{Driver, Pair, Site, Weir, built_binary, each_site, pattern, wait_until};

const LARGE: usize = 1 << 20;
const MEDIUM: usize = 100_000;

/// A server with these directives of `http`'s.
fn start(driver: Driver, http: &str) -> Weir {
    start_with(driver, &["localhost"], http)
}

/// The same with a certificate of these names.
fn start_with(driver: Driver, names: &[&str], http: &str) -> Weir {
    // The workers must be able to write what the test makes: they stay who it is.
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let user = if is_root { "user root;" } else { "" };
    Pair::own_of(KeyKind::P256, names)
        .on(Site::new(built_binary(), driver), "a")
        .file("html/small", "hello")
        .file("html/medium", pattern(MEDIUM, 1))
        .file("html/large", pattern(LARGE, 2))
        .file("html/up/none", "")
        .config(&format!(
            "{user} worker_processes 1; events {{}} http {{
             ssl_certificate a.pem; ssl_certificate_key a.key; client_max_body_size 0; {http}
             server {{
                 listen 127.0.0.1:%PORT0% quic;
                 root html;
                 location /proxied/ {{ proxy_pass http://127.0.0.1:%PORT1%/; }}
                 location /streamed/ {{
                     proxy_pass http://127.0.0.1:%PORT1%/;
                     proxy_buffering off; proxy_request_buffering off; proxy_http_version 1.1;
                 }}
                 location /up/ {{ dav_methods PUT; }}
                 location /slow/ {{ limit_rate 40k; alias html/; }}
             }}
             server {{
                 listen 127.0.0.1:%PORT1%;
                 root html;
                 location /up/ {{ dav_methods PUT; }}
                 location /status {{ stub_status; }}
             }}
             }}"
        ))
        .start()
}

fn usual(driver: Driver) -> Weir {
    start(driver, "")
}

/// A server whose first flight is more than three times a client's.
fn start_large(driver: Driver) -> Weir {
    let names: Vec<_> = (0..500).map(|n| format!("server-{n}.example.org")).collect();
    let names: Vec<_> = ["localhost"].into_iter().chain(names.iter().map(|n| &n[..])).collect();
    start_with(driver, &names, "keepalive_timeout 2s;")
}

/// Checks what a name stands for.
fn is_right(name: &str, body: &[u8]) -> bool {
    match name.rsplit('/').next() {
        Some("small") => body == b"hello",
        Some("medium") => body == pattern(MEDIUM, 1),
        _ => body == pattern(LARGE, 2),
    }
}

/// Begins to GET a path.
fn ask(c: &mut Client, path: &str) -> StreamId {
    let id = c.begin_with("GET", path, &[]);
    c.quic().finish(id);
    id
}

/// All of these at once, each of which is answered rightly.
fn get_all(c: &mut Client, paths: &[&str]) {
    for (path, r) in paths.iter().zip(c.get_all(paths)) {
        let (got, lost) = (r.body.len(), c.quic().lost());
        assert!(is_right(path, &r.body), "{path}: {} {got} {:?} {lost:?}", r.status, r.reset);
    }
}

/// Uploads a body below a path, and checks what the server has stored.
fn put(weir: &Weir, c: &mut Client, below: &str, name: &str, len: usize) {
    let body = pattern(len, 3);
    let r = c.request("PUT", &format!("{below}/up/{name}"), &[], &body);
    let lost = c.quic().lost();
    assert_eq!(r.status, 201, "{below} {name}: {:?} {lost:?}", r.reset);
    let stored = std::fs::read(weir.prefix().join("html/up").join(name)).unwrap();
    assert!(stored == body, "{below} {name}: {} bytes of {len}", stored.len());
}

/// The connections that the server has, beside the one that asks.
fn active(weir: &Weir) -> usize {
    let mut conn = testkit::Conn::tcp(weir.port(1));
    conn.send("GET /status HTTP/1.0\r\n\r\n");
    let text = conn.response().text();
    let first = text.lines().next().and_then(|line| line.strip_prefix("Active connections: "));
    first.and_then(|n| n.trim().parse::<usize>().ok()).expect("a number of connections") - 1
}

#[test]
fn handshakes_that_lose_datagrams() {
    each_site(
        |driver| start(driver, "quic_retry off;"),
        |weir| {
            for seed in 0..8 {
                let relay = Relay::start(weir.port(0), seed, Faults::HOSTILE);
                let mut c = Client::connect(relay.port, "localhost");
                get_all(&mut c, &["/small", "/proxied/small"]);
                c.quic().close(0x100);
            }
        },
    );
}

#[test]
fn handshakes_with_proofs_of_addresses_that_lose_datagrams() {
    each_site(
        |driver| start(driver, "quic_retry on;"),
        |weir| {
            for seed in 0..8 {
                let relay = Relay::start(weir.port(0), seed, Faults::HOSTILE);
                let mut c = Client::connect(relay.port, "localhost");
                assert!(c.quic().was_retried());
                get_all(&mut c, &["/small"]);
            }
        },
    );
}

#[test]
fn long_handshakes_that_lose_datagrams() {
    each_site(start_large, |weir| {
        for seed in 100..104 {
            let relay = Relay::start(weir.port(0), seed, Faults::ROUGH);
            let mut c = Client::connect(relay.port, "localhost");
            get_all(&mut c, &["/small"]);
        }
    });
}

#[test]
fn large_bodies_on_a_rough_path() {
    each_site(usual, |weir| {
        let relay = Relay::start(weir.port(0), 1, Faults::ROUGH);
        let mut c = Client::connect(relay.port, "localhost");
        get_all(&mut c, &["/large"]);
        get_all(&mut c, &["/proxied/large"]);
        put(&weir, &mut c, "", "direct", LARGE);
        put(&weir, &mut c, "/streamed", "streamed", LARGE);
    });
}

#[test]
fn many_streams_on_a_rough_path() {
    each_site(usual, |weir| {
        let relay = Relay::start(weir.port(0), 2, Faults::ROUGH);
        let mut c = Client::connect(relay.port, "localhost");
        let kinds = ["/small", "/medium", "/proxied/small", "/streamed/medium", "/proxied/medium"];
        let all: Vec<_> = kinds.iter().copied().cycle().take(60).collect();
        get_all(&mut c, &all);
        let many = ["/small"; 400];
        get_all(&mut c, &many);
    });
}

#[test]
fn bodies_on_a_hostile_path() {
    each_site(usual, |weir| {
        for seed in 10..13 {
            let relay = Relay::start(weir.port(0), seed, Faults::HOSTILE);
            let mut c = Client::connect(relay.port, "localhost");
            relay.set(Faults { lost: 18, changed: 6, ..Faults::HOSTILE });
            get_all(&mut c, &["/medium", "/small", "/proxied/medium", "/streamed/small"]);
            put(&weir, &mut c, "", &format!("direct-{seed}"), MEDIUM);
            put(&weir, &mut c, "/streamed", &format!("streamed-{seed}"), MEDIUM);
            put(&weir, &mut c, "/proxied", &format!("proxied-{seed}"), MEDIUM);
        }
    });
}

#[test]
fn a_client_that_reads_slowly_on_a_rough_path() {
    each_site(usual, |weir| {
        let relay = Relay::start(weir.port(0), 20, Faults::ROUGH);
        let options = Options { window: 5_000, ..Options::default() };
        let mut c = Client::with(relay.port, &options);
        get_all(&mut c, &["/medium", "/proxied/medium", "/streamed/medium"]);
    });
}

/// Turns until more of a response has come than this.
fn some(c: &mut Client, id: StreamId, len: usize) {
    c.response_until(id, |r| r.body.len() > len);
}

#[test]
fn paths_that_carry_nothing_for_a_while() {
    each_site(usual, |weir| {
        for (seed, ways) in [(30, &[Way::Up][..]), (31, &[Way::Down]), (32, &[Way::Up, Way::Down])]
        {
            let relay = Relay::start(weir.port(0), seed, Faults::ROUGH);
            let mut c = Client::connect(relay.port, "localhost");
            let id = ask(&mut c, "/large");
            some(&mut c, id, 50_000);
            ways.iter().for_each(|&way| relay.cut(way, true));
            for _ in 0..40 {
                c.quic().turn();
                c.look();
            }
            ways.iter().for_each(|&way| relay.cut(way, false));
            assert!(is_right("large", &c.response(id).body), "{ways:?}");
            get_all(&mut c, &["/small"]);
        }
    });
}

#[test]
fn clients_whose_addresses_change() {
    each_site(usual, |weir| {
        let relay = Relay::start(weir.port(0), 40, Faults::ROUGH);
        let mut c = Client::connect(relay.port, "localhost");
        for path in ["/large", "/proxied/large"] {
            let id = ask(&mut c, path);
            for part in 1..4 {
                some(&mut c, id, part * 200_000);
                relay.rebind();
                // A server cannot find a client that says nothing.
                c.quic().inner().ping();
            }
            assert!(is_right(path, &c.response(id).body), "{path}");
        }
        relay.rebind();
        put(&weir, &mut c, "", "moved", MEDIUM);
    });
}

#[test]
fn paths_that_carry_short_datagrams_alone() {
    let short = Faults { len_max: 1200, ..Faults::NONE };
    each_site(usual, |weir| {
        // From the beginning.
        let relay = Relay::start(weir.port(0), 50, short);
        let mut c = Client::connect(relay.port, "localhost");
        get_all(&mut c, &["/large", "/proxied/medium"]);
        put(&weir, &mut c, "", "short", MEDIUM);
        // Longer ones have passed before.
        let relay = Relay::start(weir.port(0), 51, Faults::NONE);
        let mut c = Client::connect(relay.port, "localhost");
        get_all(&mut c, &["/large"]);
        let id = ask(&mut c, "/large");
        some(&mut c, id, 50_000);
        relay.set(short);
        assert!(is_right("large", &c.response(id).body));
        put(&weir, &mut c, "/streamed", "shortened", LARGE);
    });
}

#[test]
fn clients_that_vanish_leave_nothing() {
    each_site(
        |driver| start(driver, "keepalive_timeout 2s;"),
        |weir| {
            let relay = Relay::start(weir.port(0), 60, Faults::NONE);
            let mut clients = Vec::new();
            for n in 0..5 {
                let mut c = Client::connect(relay.port, "localhost");
                match n {
                    // In the middle of responses that it does not get, and of an upload.
                    0 => _ = ask(&mut c, "/slow/large"),
                    1 => _ = ask(&mut c, "/streamed/large"),
                    2 => {
                        let id = c.begin_with("PUT", "/streamed/up/part", &[]);
                        c.send(id, b"a part");
                    }
                    3 => get_all(&mut c, &["/small"]),
                    _ => {}
                }
                c.quic().turn();
                clients.push(c);
            }
            assert!(active(&weir) >= 5);
            // As if they were gone: neither do they hear anything, nor is anything heard of them.
            relay.cut(Way::Up, true);
            relay.cut(Way::Down, true);
            drop(clients);
            wait_until("the end of all connections", || active(&weir) == 0);
            let log = weir.wait_for_log("error.log", "client timed out");
            assert!(!log.contains("panicked"), "{log}");
            let worker = weir.workers();
            weir.signal("QUIT");
            weir.wait_until_left(&worker);
        },
    );
}

#[test]
fn clients_that_vanish_in_handshakes_leave_nothing() {
    each_site(start_large, |weir| {
        for datagrams in 1..5 {
            let relay = Relay::start(weir.port(0), 70, Faults::NONE);
            relay.cut_up_after(datagrams);
            let options = Options::default();
            let mut quic = testkit::h3::Quic::new(relay.port, &options);
            for _ in 0..20 {
                quic.turn();
            }
        }
        wait_until("the end of all connections", || active(&weir) == 0);
        let mut c = Client::connect(weir.port(0), "localhost");
        get_all(&mut c, &["/small"]);
    });
}

#[test]
fn a_server_that_is_not_heard_gives_up() {
    each_site(
        |driver| start(driver, "keepalive_timeout 2s; send_timeout 2s;"),
        |weir| {
            let relay = Relay::start(weir.port(0), 80, Faults::NONE);
            let mut clients: Vec<_> =
                (0..3).map(|_| Client::connect(relay.port, "localhost")).collect();
            for (c, path) in clients.iter_mut().zip(["/large", "/slow/large", "/proxied/large"]) {
                let id = ask(c, path);
                some(c, id, 10_000);
            }
            // The clients go on to send, and to ask for more.
            relay.cut(Way::Down, true);
            relay.cut(Way::Up, true);
            wait_until("the end of all connections", || {
                clients.iter_mut().for_each(|c| c.quic().turn());
                active(&weir) == 0
            });
            relay.cut(Way::Down, false);
            relay.cut(Way::Up, false);
            let mut c = Client::connect(relay.port, "localhost");
            get_all(&mut c, &["/small"]);
        },
    );
}

/// The server sends no more than three times what it got while it does not know that the client
/// is where it says (RFC 9000 section 8.1).
#[test]
fn clients_without_proof_get_little() {
    each_site(start_large, |weir| {
        for datagrams in 2..5 {
            let relay = Relay::start(weir.port(0), 90, Faults::NONE);
            relay.cut_up_after(datagrams);
            // What it does not hear it does not acknowledge.
            relay.cut(Way::Down, true);
            let mut quic = testkit::h3::Quic::new(relay.port, &Options::default());
            wait_until("an answer", || {
                quic.turn();
                relay.counts().down.datagrams > 0
            });
            // Enough for several repetitions of what is not acknowledged.
            for _ in 0..150 {
                std::thread::sleep(Duration::from_millis(20));
                let counts = relay.counts();
                assert!(counts.down.bytes <= 3 * counts.up.bytes, "{counts:?}");
            }
            let counts = relay.counts();
            assert!(counts.up.datagrams <= datagrams, "{counts:?}");
        }
    });
}
