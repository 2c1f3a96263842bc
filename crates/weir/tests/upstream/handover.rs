//! `keepalive N shared`: idle connections to servers that any worker may take over.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};

use testkit::{Conn, Driver, Site, Weir, built_binary, each_driver, listener, wait_until};

/// The number of concurrent clients.
const CLIENTS: usize = 12;
const WORKERS: usize = 3;
/// `keepalive`.
const KEPT: usize = 32;

/// Requests of `/slow` that wait for their answer until the test lets them go.
#[derive(Default)]
struct Hold {
    state: Mutex<Held>,
    changed: Condvar,
}

#[derive(Default)]
struct Held {
    waiting: usize,
    /// Increased by one to answer all that wait.
    round: usize,
}

impl Hold {
    fn wait(&self) {
        let mut held = self.state.lock().unwrap();
        held.waiting += 1;
        let round = held.round;
        drop(self.changed.wait_while(held, |held| held.round == round).unwrap());
    }

    fn waiting(&self) -> usize {
        self.state.lock().unwrap().waiting
    }

    fn release(&self) {
        let mut held = self.state.lock().unwrap();
        (held.waiting, held.round) = (0, held.round + 1);
        self.changed.notify_all();
    }
}

/// A server that answers a request of `/together` when as many have come as there are clients, so
/// that each of them has a connection of its own.
struct Together {
    port: u16,
    hold: Arc<Hold>,
    accepted: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl Together {
    fn start() -> Together {
        let (listener, port) = listener();
        let (accepted, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let barrier = Arc::new(Barrier::new(CLIENTS));
        let hold = Arc::new(Hold::default());
        let held = hold.clone();
        let (a, o) = (accepted.clone(), open.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, open) = (stream.expect("a connection"), o.clone());
                a.fetch_add(1, Ordering::Relaxed);
                open.fetch_add(1, Ordering::Relaxed);
                let (barrier, hold) = (barrier.clone(), held.clone());
                std::thread::spawn(move || {
                    serve(stream, &barrier, &hold);
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Together { port, hold, accepted, open }
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

fn serve(mut s: TcpStream, barrier: &Barrier, hold: &Hold) {
    let mut buf = Vec::new();
    loop {
        let mut page = [0; 4096];
        match s.read(&mut page) {
            Ok(n @ 1..) => buf.extend_from_slice(&page[..n]),
            _ => return,
        }
        if !buf.ends_with(b"\r\n\r\n") {
            continue;
        }
        let path = String::from_utf8_lossy(&buf).split(' ').nth(1).unwrap_or("").to_owned();
        buf.clear();
        if path == "/together" {
            barrier.wait();
        }
        // The answer says whose it is.
        let body = format!("answer to {path}");
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        if path == "/slow" {
            hold.wait();
        }
        if s.write_all((head + &body).as_bytes()).is_err() || path == "/last" {
            return;
        }
    }
}

fn site(driver: Driver, b: &Together, keepalive: &str) -> Weir {
    Site::new(built_binary(), driver)
        .allow("exited on signal 9")
        .config(&format!(
            "worker_processes {WORKERS}; events {{}}
             http {{ access_log off;
                 upstream behind {{ server 127.0.0.1:{0}; keepalive {KEPT}{keepalive}; }}
                 upstream other {{ server 127.0.0.1:{0}; server localhost:{0}; keepalive 8 shared; }}
                 server {{ listen 127.0.0.1:%PORT0%;
                     location / {{ proxy_pass http://behind; }}
                     location /other/ {{ proxy_pass http://other/; }} }} }}",
            b.port
        ))
        .start()
}

/// All clients ask once, each over a connection of its own: whichever workers take them.
fn round(weir: &Weir) {
    let mut clients: Vec<Conn> = (0..CLIENTS).map(|_| weir.connect()).collect();
    for c in &mut clients {
        c.send("GET /together HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    }
    for c in &mut clients {
        assert_eq!(c.response().text(), "answer to /together");
    }
}

#[test]
fn workers_take_over_connections() {
    each_driver(|driver| {
        let b = Together::start();
        let weir = site(driver, &b, " shared");
        for _ in 0..10 {
            round(&weir);
        }
        // Each worker keeps one at hand, which others cannot have; all the rest is used again.
        let most = CLIENTS + WORKERS;
        assert!(b.accepted() <= most, "{} connections for 120 requests", b.accepted());
        assert!(b.open() <= most, "{} are open", b.open());
        // With two names for one address, and then for several, nothing is mixed up.
        for n in 0..40 {
            let path = format!("/other/{n}");
            assert_eq!(weir.get(&path).text(), format!("answer to /{n}"));
        }
    });
}

/// A server that has shared connections of one round.
fn after_a_round(driver: Driver) -> (Together, Weir) {
    let b = Together::start();
    let weir = site(driver, &b, " shared");
    round(&weir);
    (b, weir)
}

#[test]
fn a_worker_that_dies_takes_nothing_along_but_its_own() {
    each_driver(|driver| {
        let (b, weir) = after_a_round(driver);
        for _ in 0..3 {
            // Some are busy, some hand over what they have just used.
            let mut busy: Vec<Conn> = (0..CLIENTS).map(|_| weir.connect()).collect();
            for c in &mut busy {
                c.send("GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            }
            wait_until("all to be under way", || b.hold.waiting() == CLIENTS);
            let before = weir.workers();
            weir.signal_to(before[0], "KILL");
            b.hold.release();
            let mut answered = 0;
            for c in &mut busy {
                // The dead worker's connections end; the others have their own answers.
                let got = String::from_utf8_lossy(&c.read_to_end()).into_owned();
                assert!(got.is_empty() || got.ends_with("answer to /slow"), "{got}");
                answered += usize::from(!got.is_empty());
            }
            wait_until("another worker", || {
                let now = weir.workers();
                now.len() == WORKERS && !now.contains(&before[0])
            });
            assert!(answered <= CLIENTS);
            let known = b.accepted();
            round(&weir);
            round(&weir);
            let new = b.accepted() - known;
            assert!(new <= CLIENTS + WORKERS, "{new} new connections: the counts went wrong");
        }
        wait_until("connections of dead workers to end", || b.open() <= CLIENTS + 2 * WORKERS);
    });
}

#[test]
fn reloads_and_ends_leave_no_descriptors() {
    each_driver(|driver| {
        let (b, weir) = after_a_round(driver);
        weir.reload();
        round(&weir);
        wait_until("the old workers", || weir.workers().len() == WORKERS);
        // The old configuration's queue went with its last worker. Its connections are the new
        // workers' by now, of which more are not kept than may be.
        wait_until("all above the limit to end", || b.open() <= KEPT + WORKERS);
        let master = weir.open_descriptors(weir.pid());
        for _ in 0..4 {
            weir.reload();
            round(&weir);
            wait_until("the old workers", || weir.workers().len() == WORKERS);
        }
        // The master closes what it has of a worker when it has learned of its end, which may have
        // been after the first count: of four reloads, more would be left than that.
        wait_until("queues to go with their workers", || {
            weir.open_descriptors(weir.pid()) <= master
        });
        wait_until("all above the limit to end", || b.open() <= KEPT + WORKERS);
        // The end of a connection by its server is noticed in the queue as well, without any
        // request.
        let empty = site(driver, &b, " shared; keepalive_timeout 1s");
        let workers = empty.workers();
        let idle = |w: &Weir| workers.iter().map(|pid| w.open_descriptors(*pid)).sum::<usize>();
        round(&empty);
        let least = idle(&empty);
        let open = b.open();
        wait_until("idle connections to end", || {
            b.open() + CLIENTS - WORKERS <= open && idle(&empty) <= least
        });
    });
}
