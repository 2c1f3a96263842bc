//! A response that one worker fetches and requests of others wait for.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use testkit::{
    Conn, Driver, Scripted, Site, Weir, built_binary, each_driver, read_until, wait_for,
};

const LEN: usize = 400_000;
const HALF: usize = LEN / 2;

fn body(fetch: usize) -> Vec<u8> {
    (0..LEN).map(|i| ((i / 7 + fetch * 31) % 251) as u8).collect()
}

/// The progress that an origin may make, and the progress it has made.
#[derive(Default)]
struct Gate {
    state: Mutex<(usize, usize)>,
    moved: Condvar,
}

impl Gate {
    /// Lets the origin take so many steps in all.
    fn open(&self, steps: usize) {
        self.state.lock().unwrap().0 = steps;
        self.moved.notify_all();
    }

    /// In the origin: waits until that step may be taken.
    fn pass(&self, step: usize) {
        let mut state = self.state.lock().unwrap();
        state.1 = state.1.max(step);
        self.moved.notify_all();
        let patience = Duration::from_secs(20);
        drop(self.moved.wait_timeout_while(state, patience, |s| s.0 < step).unwrap());
    }

    /// Waits until the origin stands before that step.
    fn reached(&self, step: usize) {
        let state = self.state.lock().unwrap();
        let patience = Duration::from_secs(20);
        let waited = self.moved.wait_timeout_while(state, patience, |s| s.1 < step).unwrap();
        assert!(!waited.1.timed_out(), "the origin is not asked");
    }
}

/// An origin that answers in three steps: its head with half of the body, the rest, and the end.
struct Origin {
    server: Scripted,
    gate: Arc<Gate>,
}

impl Origin {
    /// `cut`: the first answer breaks off after a half.
    fn start(chunked: bool, cut: bool) -> Origin {
        let gate = Arc::new(Gate::default());
        let of_server = gate.clone();
        let server = Scripted::start(move |mut stream, fetch| {
            let whole = |all: &[u8]| all.windows(4).any(|w| w == b"\r\n\r\n");
            let Some(asked) = read_until(&mut stream, whole) else { return };
            if asked.starts_with(b"POST ") {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                return;
            }
            let body = body(fetch);
            let framing = match chunked {
                true => "Transfer-Encoding: chunked".to_owned(),
                false => format!("Content-Length: {LEN}"),
            };
            let piece = |part: &[u8]| match chunked {
                true => [format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat(),
                false => part.to_vec(),
            };
            let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n{framing}\r\n\r\n");
            of_server.pass(1);
            let first = [head.as_bytes(), &piece(&body[..HALF])].concat();
            let _ = stream.write_all(&first);
            of_server.pass(2);
            if cut && fetch == 1 {
                return;
            }
            let mut last = piece(&body[HALF..]);
            if chunked {
                last.extend_from_slice(b"0\r\n\r\n");
            }
            let _ = stream.write_all(&last);
        });
        Origin { server, gate }
    }
}

fn start(driver: Driver, origin: &Origin, path: &str) -> Weir {
    let text = format!(
        "worker_processes 2;
         events {{}}
         http {{
             proxy_cache_path cache levels=1:2 keys_zone=one:1m {path};
             add_header X-Cache $upstream_cache_status;
             server {{
                 listen 127.0.0.1:%PORT0%;
                 location = /pid {{ return 200 $pid; }}
                 location = /json {{ stub_status json; }}
                 location / {{
                     proxy_pass http://127.0.0.1:{0};
                     proxy_http_version 1.1;
                     proxy_cache one;
                     proxy_cache_lock on;
                     proxy_cache_lock_timeout 60s;
                     proxy_cache_lock_age 60s;
                 }}
                 location /rfc {{
                     proxy_pass http://127.0.0.1:{0};
                     proxy_cache one;
                     proxy_cache_lock on;
                     proxy_cache_rfc9111 on;
                 }}
             }}
         }}",
        origin.server.port
    );
    Site::new(built_binary(), driver).config(&text).allow("exited on signal 9").start()
}

/// Two connections to each of two workers, and the first one's process.
fn of_both(weir: &Weir) -> ([Vec<Conn>; 2], u32) {
    let mut found: Vec<(u32, Vec<Conn>)> = Vec::new();
    wait_for("connections to both workers", || {
        let mut conn = weir.connect();
        conn.send(b"GET /pid HTTP/1.1\r\nHost: a\r\n\r\n");
        let pid = conn.response().text().parse().unwrap();
        match found.iter_mut().find(|(p, _)| *p == pid) {
            Some((_, conns)) => conns.push(conn),
            None => found.push((pid, vec![conn])),
        }
        (found.len() == 2 && found.iter().all(|(_, conns)| conns.len() >= 2)).then_some(())
    });
    let (second, first) = (found.pop().unwrap(), found.pop().unwrap());
    ([first.1, second.1], first.0)
}

fn ask(conn: &mut Conn) {
    conn.send(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
}

/// Reads a head and the first half of a body.
fn first_half(conn: &mut Conn, fetch: usize) {
    let head = String::from_utf8(conn.read_until(b"\r\n\r\n")).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(conn.read_exact(HALF) == body(fetch)[..HALF], "the first half");
}

#[test]
fn waiters_of_all_workers_read_along() {
    each_driver(|driver| {
        for path in ["use_temp_path=off", ""] {
            let origin = Origin::start(false, false);
            let weir = start(driver, &origin, path);
            let ([mut here, mut there], _) = of_both(&weir);
            ask(&mut here[0]);
            origin.gate.reached(1);
            // These wait for a head that is not there yet.
            ask(&mut here[1]);
            ask(&mut there[0]);
            origin.gate.open(1);
            first_half(&mut here[0], 1);
            first_half(&mut here[1], 1);
            first_half(&mut there[0], 1);
            // And this one comes behind it.
            ask(&mut there[1]);
            first_half(&mut there[1], 1);
            origin.gate.open(2);
            for conn in here.iter_mut().take(2).chain(there.iter_mut().take(2)) {
                assert!(conn.read_exact(LEN - HALF) == body(1)[HALF..], "the rest");
                // The connection can be used on.
                ask(conn);
                let again = conn.response();
                assert!(again.body == body(1) && again.header("X-Cache") == Some("HIT"));
            }
            assert_eq!(origin.server.connections(), 1);
        }
    });
}

/// Waits until so many requests wait for another's fetch.
fn waiting(weir: &Weir, count: usize) {
    let text = format!("\"waits\":{count},");
    wait_for("requests that wait", || weir.get("/json").text().contains(&text).then_some(()));
}

/// One worker fetches, and its origin has not answered yet.
struct Fetching {
    /// Before the origin: it is to end first.
    weir: Weir,
    origin: Origin,
    /// Connections to the worker that fetches, the first one's being what for, and to the other.
    here: Vec<Conn>,
    there: Vec<Conn>,
    worker: u32,
}

/// `cut`: see [`Origin::start`].
fn fetching(driver: Driver, cut: bool) -> Fetching {
    let origin = Origin::start(false, cut);
    let weir = start(driver, &origin, "use_temp_path=off");
    let ([mut here, there], worker) = of_both(&weir);
    ask(&mut here[0]);
    origin.gate.reached(1);
    Fetching { weir, origin, here, there, worker }
}

#[test]
fn a_fetch_that_dies_keeps_nobody_waiting() {
    each_driver(|driver| {
        let Fetching { weir, origin, here: _here, mut there, worker } = fetching(driver, false);
        there.iter_mut().take(2).for_each(ask);
        waiting(&weir, 2);
        weir.signal_to(worker, "KILL");
        // One of them asks for both, while the first answer is still to come.
        wait_for("another fetch", || (origin.server.connections() == 2).then_some(()));
        origin.gate.open(2);
        for conn in there.iter_mut().take(2) {
            assert!(conn.response().body == body(2));
        }
        assert_eq!(origin.server.connections(), 2);
    });
}

#[test]
fn a_fetch_that_dies_with_all_who_wait_is_nobody_s() {
    each_driver(|driver| {
        let Fetching { weir, origin, here: _here, mut there, worker } = fetching(driver, false);
        let all = weir.workers();
        ask(&mut there[0]);
        waiting(&weir, 1);
        // None of them does anything between the end of the one and that of the other.
        all.iter().for_each(|pid| weir.signal_to(*pid, "STOP"));
        all.iter().for_each(|pid| weir.signal_to(*pid, "KILL"));
        assert!(all.contains(&worker));
        // A ring accepts for its worker until that is gone: such a client would be lost with it.
        weir.wait_until_left(&all);
        let mut conn = weir.connect();
        ask(&mut conn);
        wait_for("another fetch", || (origin.server.connections() == 2).then_some(()));
        origin.gate.open(2);
        assert!(conn.response().body == body(2));
        assert_eq!(origin.server.connections(), 2);
    });
}

#[test]
fn what_is_changed_meanwhile_is_not_kept() {
    each_driver(|driver| {
        let origin = Origin::start(false, false);
        let weir = start(driver, &origin, "use_temp_path=off");
        let ([mut here, mut there], _) = of_both(&weir);
        let get = |conn: &mut Conn| conn.send(b"GET /rfc HTTP/1.1\r\nHost: a\r\n\r\n");
        get(&mut here[0]);
        origin.gate.reached(1);
        get(&mut here[1]);
        origin.gate.open(1);
        first_half(&mut here[0], 1);
        first_half(&mut here[1], 1);
        let post = b"POST /rfc HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
        there[0].send(post);
        assert_eq!(there[0].response().status, 200);
        // A new request does not get the response begun before; the requests before get all of it.
        get(&mut there[1]);
        origin.gate.open(2);
        for conn in here.iter_mut().take(2) {
            assert!(conn.read_exact(LEN - HALF) == body(1)[HALF..], "the rest");
        }
        assert!(there[1].response().body == body(3));
        for conn in [&mut here[0], &mut there[0]] {
            wait_for("what is new to be kept", || {
                get(conn);
                let again = conn.response();
                assert!(again.body == body(3));
                (again.header("X-Cache") == Some("HIT")).then_some(())
            });
        }
    });
}

#[test]
fn a_fetch_that_dies_cuts_those_who_read_along() {
    each_driver(|driver| {
        let Fetching { weir, origin, here: _here, mut there, worker } = fetching(driver, false);
        ask(&mut there[0]);
        origin.gate.open(1);
        first_half(&mut there[0], 1);
        weir.signal_to(worker, "KILL");
        assert_eq!(there[0].read_to_end().len(), 0, "nothing that is wrong, and the end");
        weir.wait_for_log("error.log", "could not be read to its end");
        origin.gate.open(2);
        // Another one fetches, whole.
        ask(&mut there[1]);
        assert!(there[1].response().body == body(2));
    });
}

#[test]
fn an_answer_that_breaks_off_does_so_for_all() {
    each_driver(|driver| {
        let Fetching { weir, origin, mut here, mut there, .. } = fetching(driver, true);
        ask(&mut there[0]);
        origin.gate.open(1);
        first_half(&mut here[0], 1);
        first_half(&mut there[0], 1);
        origin.gate.open(2);
        assert_eq!(here[0].read_to_end().len(), 0);
        assert_eq!(there[0].read_to_end().len(), 0);
        for conn in [&mut here[1], &mut there[1]] {
            ask(conn);
            assert!(conn.response().body == body(2));
        }
        wait_for("files", || (weir.cached_files("cache").len() == 1).then_some(()));
    });
}

#[test]
fn what_has_no_length_is_waited_for() {
    each_driver(|driver| {
        let origin = Origin::start(true, false);
        let weir = start(driver, &origin, "");
        let ([mut here, mut there], _) = of_both(&weir);
        ask(&mut here[0]);
        origin.gate.reached(1);
        ask(&mut there[0]);
        origin.gate.open(2);
        for conn in [&mut here[0], &mut there[0]] {
            assert!(conn.response().body == body(1));
        }
        assert_eq!(origin.server.connections(), 1);
    });
}
