//! Limits of clients over HTTP/3: budgets, connections, times, and sizes of heads.
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use testkit::certificates::KeyKind;
use testkit::h3::{Client, Dir, Options, Quic, StreamId};
use testkit::{Conn, Driver, Pair, Site, Weir, built_binary, each_site};

/// A server over QUIC with these directives in it; `main` stands before it, and `http` beside it.
fn start(driver: Driver, main: &str, server: &str, http: &str) -> Weir {
    let site = Site::new(built_binary(), driver);
    Pair::own(KeyKind::P256, "localhost")
        .on(site, "a")
        .file("html/a.txt", "hello")
        .file("html/large.bin", "0123456789abcdef".repeat(400_000))
        .config(&format!(
            "worker_processes 1; {main}
             error_log logs/error.log info;
             http {{
                 log_format h '$request|$status';
                 access_log logs/access.log h;
                 ssl_certificate a.pem; ssl_certificate_key a.key;
                 server {{ listen 127.0.0.1:%PORT0% quic; root html; {server} }}
                 {http}
             }}"
        ))
        .start()
}

fn with(driver: Driver, server: &str) -> Weir {
    start(driver, "events {}", server, "")
}

fn from(weir: &Weir, last: u8) -> Client {
    let options = Options { from: Ipv4Addr::new(127, 0, 0, last), ..Options::default() };
    Client::with(weir.port(0), &options)
}

/// Begins requests and gives each up; says whether the connection is over.
fn give_up(c: &mut Client, path: &str, n: usize) -> bool {
    for _ in 0..n {
        let begun = c.quic().inner().streams().open(Dir::Bi);
        let Some(id) = begun else {
            c.quic().turn();
            continue;
        };
        let head = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", path),
        ];
        let section = c.section(&head);
        c.quic().write(id, &section);
        c.quic().finish(id);
        c.quic().stop(id, 0x10c);
    }
    c.quic().turn();
    c.quic().lost().is_some()
}

/// The end of the connection, as the server tells it.
fn end(c: &mut Client) -> u64 {
    c.quic().until("no end", |quic| quic.lost_code())
}

/// Turns for that long.
fn wait(c: &mut Client, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time && c.quic().lost().is_none() {
        c.quic().turn();
    }
}

#[test]
fn resets_have_a_budget_that_connections_of_an_address_share() {
    each_site(
        |driver| {
            start(
                driver,
                "events {}",
                "location / { return 200 ok; }
                 location /slow { proxy_pass http://127.0.0.1:%PORT1%; }",
                "server { listen 127.0.0.1:%PORT1%; limit_rate 1; return 200 'slow response'; }",
            )
        },
        |weir| {
            // A connection alone.
            let mut c = from(&weir, 2);
            assert!((0..200).any(|_| give_up(&mut c, "/slow", 50)), "10,000 resets");
            assert_eq!(c.quic().lost_code(), Some(0x107));
            weir.wait_for_log("error.log", "client sent too many streams that were reset");
            // Many that stay below that.
            let is_cut_off = (0..200).any(|_| give_up(&mut from(&weir, 3), "/slow", 100));
            assert!(is_cut_off, "20,000 resets came from one address");
            weir.wait_for_log("error.log", "that were reset by connections of one address");
            // A neighbour who resets little is not cut off, nor is anybody elsewhere.
            for last in [3, 4] {
                let mut c = from(&weir, last);
                assert!(!give_up(&mut c, "/slow", 10));
                assert_eq!(c.get("/").body, b"ok");
            }
            let lines = weir.error_log();
            assert_eq!(lines.matches("connections of one address").count(), 1, "one line");
        },
    );
}

/// A stream with a part of a head on it.
fn half_a_head(c: &mut Client) -> StreamId {
    let id = c.quic().open(Dir::Bi);
    c.quic().write(id, &[1, 90, 0, 0]);
    c.quic().turn();
    id
}

#[test]
fn idle_connections_make_room() {
    each_site(
        |driver| {
            start(
                driver,
                "events { worker_connections 24; }",
                "location / { return 200 ok; }
                 location /slow { limit_rate 1k; alias html/large.bin; }",
                "server { listen 127.0.0.1:%PORT1%; return 200 ok; }",
            )
        },
        |weir| {
            // Until the response's end is confirmed, 25 ms later at most: a connection that has not
            // confirmed it makes no room.
            let ask = |last| {
                let mut c = from(&weir, last);
                assert_eq!(c.get("/").body, b"ok");
                wait(&mut c, Duration::from_millis(30));
                c
            };
            let mut rare = ask(2);
            let mut busy = ask(2);
            let id = busy.begin_with("GET", "/slow", &[]);
            busy.quic().finish(id);
            busy.response_until(id, |r| r.status == 200);
            let mut many: Vec<_> = (0..60).map(|_| ask(3)).collect();
            // The client with the most has made room: those that were idle longest.
            assert_eq!(end(&mut many[0]), 0x100);
            many[59].quic().turn();
            assert!(many[59].quic().lost().is_none());
            rare.quic().turn();
            assert_eq!(rare.get("/").body, b"ok");
            busy.quic().turn();
            assert!(busy.quic().lost().is_none());
            // Heads that do not come make room before that.
            let halves: Vec<_> = (0..60)
                .map(|_| {
                    let mut c = from(&weir, 4);
                    half_a_head(&mut c);
                    c
                })
                .collect();
            assert_eq!(rare.get("/").body, b"ok");
            drop(halves);
            // So do they for connections over TCP.
            let mut tcp = Conn::tcp(weir.port(1));
            tcp.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            assert!(tcp.read_some().is_ok_and(|bytes| bytes.starts_with(b"HTTP/1.1 200")));
        },
    );
}

#[test]
fn a_head_has_a_time() {
    each_site(
        |driver| with(driver, "client_header_timeout 500ms;"),
        |weir| {
            let mut c = from(&weir, 1);
            let half = half_a_head(&mut c);
            // Of this one nothing has come but for a frame's first byte.
            let none = c.quic().open(Dir::Bi);
            c.quic().write(none, &[1]);
            assert_eq!(c.get("/a.txt").body, b"hello");
            for id in [half, none] {
                let code = c.quic().until("no reset", |quic| quic.read(id).err());
                assert_eq!(code, 0x101);
            }
            assert_eq!(c.get("/a.txt").body, b"hello", "the connection goes on");
            weir.wait_for_log("access.log", "|408");
            // The client would have to acknowledge a graceful end.
            let access = weir.end_and_read("access.log");
            assert_eq!(access.matches("|408").count(), 1, "{access}");
            let log = weir.log("error.log");
            let m = "client timed out (110: Connection timed out) while reading client request";
            assert_eq!(log.matches(m).count(), 1, "{log}");
        },
    );
}

#[test]
fn a_handshake_has_a_time() {
    each_site(
        |driver| with(driver, "client_header_timeout 300ms;"),
        |weir| {
            testkit::wait_until("no handshake has timed out", || {
                // The first packets alone: what comes is not read.
                Quic::new(weir.port(0), &Options::default()).send();
                weir.log("error.log").contains("timed out) while SSL handshaking")
            });
        },
    );
}

#[test]
fn signs_of_life_do_not_keep_an_idle_connection() {
    each_site(
        |driver| with(driver, "keepalive_timeout 2s;"),
        |weir| {
            for requests in [0, 1] {
                let began = Instant::now();
                let mut c = from(&weir, 1);
                (0..requests).for_each(|_| assert_eq!(c.get("/a.txt").status, 200));
                let code = c.quic().until("no end", |quic| {
                    quic.inner().ping();
                    quic.lost_code()
                });
                assert_eq!(code, 0x100);
                assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
            }
        },
    );
}

#[test]
fn bodies_and_responses_have_times() {
    each_site(
        |driver| {
            start(
                driver,
                "events {}",
                "client_body_timeout 300ms; send_timeout 300ms;
                 location /up { proxy_pass http://127.0.0.1:%PORT1%; }",
                "server { listen 127.0.0.1:%PORT1%; return 200 ok; }",
            )
        },
        |weir| {
            let options = Options { window: 1_000, ..Options::default() };
            let mut c = Client::with(weir.port(0), &options);
            let up = c.begin_with("POST", "/up", &[("content-length", "10")]);
            c.send(up, b"part");
            // Nobody reads more than the window of this one.
            let down = c.begin_with("GET", "/large.bin", &[]);
            c.quic().finish(down);
            let code = c.quic().until("no reset", |quic| quic.read(up).err());
            assert_eq!(code, 0x101);
            weir.wait_for_log("access.log", "POST /up HTTP/3.0|408");
            weir.wait_for_log("access.log", "GET /large.bin HTTP/3.0|200");
            wait(&mut c, Duration::from_millis(100));
            assert_eq!(c.response(down).reset, Some(0x101));
            for what in ["reading client request body", "sending response to client"] {
                weir.wait_for_log("error.log", &format!("timed out) while {what}"));
            }
            assert_eq!(c.get("/a.txt").body, b"hello");
        },
    );
}

#[test]
fn heads_beyond_the_buffers_are_answered() {
    each_site(
        |driver| {
            with(
                driver,
                "large_client_header_buffers 2 1k;
                 error_page 494 /large; location = /large { return 431; }",
            )
        },
        |weir| {
            let mut c = from(&weir, 1);
            let text = |len: usize| "v".repeat(len);
            for (what, fields, status) in [
                ("it fits", vec![("x-a", text(900))], 200),
                ("a field", vec![("x-a", text(1_100))], 431),
                ("all of them", (0..3).map(|_| ("x-a", text(800))).collect(), 431),
                // Larger than the buffers as they come.
                ("their compressed form", vec![("x-a", "{".repeat(3_000))], 431),
            ] {
                let given: Vec<_> = fields.iter().map(|(name, v)| (*name, &v[..])).collect();
                assert_eq!(c.request("GET", "/a.txt", &given, b"").status, status, "{what}");
                if status == 431 {
                    let r = c.request("POST", "/a.txt", &given, b"a body");
                    assert_eq!(r.status, status, "{what}");
                }
            }
            assert_eq!(c.get("/a.txt").body, b"hello");
            weir.wait_for_log("error.log", "client sent too large header field while reading");
            weir.wait_for_log("error.log", "client sent too large header while reading");
        },
    );
}

#[test]
fn entries_and_sections_of_the_table_have_limits() {
    each_site(
        |driver| with(driver, "large_client_header_buffers 4 512;"),
        |weir| {
            let insert = |len: usize| {
                // A capacity of 4096, and `:authority` with such a value.
                let mut wire = vec![2, 0x3f, 0xe1, 0x1f, 0xc0, 0x7f];
                let rest = len - 127;
                wire.extend([(rest & 0x7f) as u8 | 0x80, (rest >> 7) as u8]);
                wire.extend(vec![b'v'; len]);
                wire
            };
            let mut c = from(&weir, 1);
            let encoder = c.quic().open(Dir::Uni);
            c.quic().write(encoder, &insert(512));
            assert_eq!(c.get("/a.txt").body, b"hello");
            // The entry may be named more often than there is room for.
            let section = |n: usize| {
                [&[1, 0x40 | ((n + 2) >> 8) as u8, (n + 2) as u8, 2, 0][..], &vec![0x80; n]]
                    .concat()
            };
            let id = c.quic().open(Dir::Bi);
            assert_eq!(section(4).len(), 9);
            c.quic().write(id, &section(4));
            c.quic().finish(id);
            c.quic().until("no answer", |quic| quic.read(id).ok().flatten());
            assert!(c.quic().lost().is_none(), "it is answered");
            let id = c.quic().open(Dir::Bi);
            c.quic().write(id, &section(200));
            assert_eq!(end(&mut c), 0x200);
            let mut c = from(&weir, 1);
            let encoder = c.quic().open(Dir::Uni);
            c.quic().write(encoder, &insert(513));
            assert_eq!(end(&mut c), 0x107);
            weir.wait_for_log("error.log", "client sent too large field line");
        },
    );
}

/// Hundredths of a second that a process has run.
fn ran(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Memory of a process that is no file's, KB.
fn memory_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_client_that_takes_nothing_costs_little() {
    each_site(
        |driver| with(driver, "access_log off;"),
        |weir| {
            assert_eq!(from(&weir, 1).get("/large.bin").status, 200);
            let pid = weir.workers()[0];
            let memory = memory_kb(pid);
            let options = Options { window: 0, ..Options::default() };
            let mut c = Client::with(weir.port(0), &options);
            for _ in 0..120 {
                let id = c.begin_with("GET", "/large.bin", &[]);
                c.quic().finish(id);
            }
            wait(&mut c, Duration::from_millis(500));
            let before = ran(pid);
            wait(&mut c, Duration::from_secs(2));
            let more = ran(pid) - before;
            assert!(more < 60, "the worker has run for {more} hundredths of two seconds");
            let grown = memory_kb(pid).saturating_sub(memory);
            assert!(grown < 5_000, "{grown} KB");
        },
    );
}

#[test]
fn instructions_without_an_end_are_a_flood() {
    each_site(
        |driver| with(driver, ""),
        |weir| {
            for (what, instructions) in [
                ("capacities", [0x20, 0x3f, 0xe1, 0x1f].repeat(4_096)),
                ("entries", [&[0xc0, 0x64][..], &[b'v'; 100]].concat().repeat(160)),
            ] {
                let mut c = from(&weir, 1);
                let encoder = c.quic().open(Dir::Uni);
                c.quic().write(encoder, &[2, 0x3f, 0xe1, 0x1f]);
                let (all, mut sent) = (instructions.repeat(400), 0);
                let code = c.quic().until(what, |quic| {
                    sent += quic.write_some(encoder, &all[sent..]);
                    quic.lost_code()
                });
                assert_eq!(code, 0x107, "{what}");
            }
        },
    );
}
