//! Workers whose loop stands still: others serve, the log says why, and they are killed in time.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use common::{BINARY, config, proc_field, stop};
use testkit::{Driver, Site, StallingFolder, Weir, on_all_drivers, udp, wait_for};

/// The limit of a new connection's wait, with an allowance for a busy machine.
const WAIT: Duration = Duration::from_millis(2_200 + 2_800);

fn server(listen: &str) -> String {
    format!("server {{ listen 127.0.0.1:%PORT0%{listen}; location / {{ return 200 $pid; }} }}")
}

/// The worker that answered a connection of its own, and after how long.
fn answer(port: u16) -> (u32, Duration) {
    let began = Instant::now();
    let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    stream.set_read_timeout(Some(testkit::PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer, although a worker stands still");
    let body = text.rsplit("\r\n\r\n").next().unwrap_or_default();
    (body.parse().unwrap(), began.elapsed())
}

/// Connections that are made one after the other, and at the same time, while `stuck` stands still.
fn all_are_served(weir: &Weir, stuck: &[u32]) {
    let port = weir.port(0);
    let waits: Vec<(u32, Duration)> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..16).map(|_| scope.spawn(|| answer(port))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for (worker, wait) in waits {
        assert!(!stuck.contains(&worker) && wait < WAIT, "{worker} of {stuck:?} after {wait:?}");
    }
    for _ in 0..8 {
        assert!(!stuck.contains(&answer(port).0));
    }
}

fn start(driver: Driver, workers: usize, main: &str, http: &str) -> Weir {
    let site = Site::new(BINARY, driver).config(&config(workers, main, http));
    site.allow("is killed").allow("exited on signal 9").start()
}

/// A stopped worker is noticed, others serve, it is killed and replaced.
fn stopped_is_replaced(driver: Driver, workers: usize, listen: &str, main: &str) {
    let main = format!("worker_watchdog 4s; {main}");
    let weir = start(driver, workers, &main, &server(listen));
    let before = weir.workers();
    let stuck = *before.last().unwrap();
    stop(&weir, stuck);
    all_are_served(&weir, &[stuck]);
    let line = weir.wait_for_log("error.log", &format!("worker process {stuck} stands still"));
    assert!(line.contains("[warn]") && line.contains("stopped by a signal, last in "), "{line}");
    let line = weir.wait_for_log("error.log", "ms and is killed: stopped by a signal, last in ");
    assert!(line.contains("[alert]") && line.contains(" connections, "), "{line}");
    weir.wait_for_log("error.log", &format!("worker process {stuck} exited on signal 9"));
    wait_for("as many workers as before", || {
        let now = weir.workers();
        (now.len() == workers && !now.contains(&stuck)).then_some(())
    });
    all_are_served(&weir, &[stuck]);
}

#[test]
fn a_stopped_worker_on_a_shared_socket() {
    on_all_drivers(|driver| stopped_is_replaced(driver, 2, "", ""));
}

#[test]
fn a_stopped_worker_with_its_own_socket() {
    on_all_drivers(|driver| stopped_is_replaced(driver, 2, " reuseport", ""));
}

#[test]
fn a_stopped_worker_with_a_steered_socket() {
    on_all_drivers(|driver| stopped_is_replaced(driver, 2, " reuseport=steered", ""));
}

#[test]
fn the_only_worker_is_stopped() {
    on_all_drivers(|driver| stopped_is_replaced(driver, 1, "", ""));
}

#[test]
fn all_workers_are_stopped() {
    let weir = start(Driver::usual(), 2, "worker_watchdog 60s;", &server(""));
    let stuck = weir.workers();
    stuck.iter().for_each(|&worker| stop(&weir, worker));
    all_are_served(&weir, &stuck);
    stuck.iter().for_each(|&worker| weir.signal_to(worker, "CONT"));
}

#[test]
fn the_accept_lock_of_a_stopped_worker_is_freed() {
    on_all_drivers(|driver| {
        let text = config(2, "", &server("")).replace("events {", "events { accept_mutex on;");
        let weir = Site::new(BINARY, driver).config(&text).start();
        let workers = weir.workers();
        for stuck in workers {
            stop(&weir, stuck);
            let (by, wait) = answer(weir.port(0));
            assert!(by != stuck && wait < WAIT, "{wait:?}");
            weir.signal_to(stuck, "CONT");
        }
    });
}

#[test]
fn a_worker_that_runs_again_leaves_to_its_stand_in() {
    let weir = start(Driver::usual(), 1, "worker_watchdog 60s;", &server(""));
    let stuck = weir.workers()[0];
    // A connection of its own, which it has accepted before.
    let mut kept = weir.connect();
    kept.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(kept.response().body, stuck.to_string().into_bytes());
    // It goes on to the log phase when the client has its answer.
    let is_asleep = || proc_field(stuck, "status", "State").starts_with('S');
    wait_for("the worker's sleep", || is_asleep().then_some(()));
    stop(&weir, stuck);
    all_are_served(&weir, &[stuck]);
    let line = weir.wait_for_log("error.log", &format!("worker process {stuck} stands still"));
    let last = "last in the log phase of connection 1 from 127.0.0.1; 1 connections, 0 with";
    assert!(line.contains(last), "{line}");
    kept.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    weir.signal_to(stuck, "CONT");
    assert_eq!(kept.response().body, stuck.to_string().into_bytes());
    wait_for("its end", || (!weir.workers().contains(&stuck)).then_some(()));
    assert_eq!(weir.workers().len(), 1);
    all_are_served(&weir, &[stuck]);
}

#[test]
fn a_worker_that_runs_again_stays_where_others_served() {
    let weir = start(Driver::usual(), 2, "worker_watchdog 60s;", &server(""));
    let workers = weir.workers();
    stop(&weir, workers[0]);
    all_are_served(&weir, &workers[..1]);
    weir.wait_for_log("error.log", &format!("worker process {} stands still", workers[0]));
    weir.signal_to(workers[0], "CONT");
    weir.wait_for_log("error.log", &format!("worker process {} runs again after ", workers[0]));
    assert_eq!(weir.workers(), workers);
}

#[test]
fn nothing_is_watched_with_off() {
    let weir = start(Driver::usual(), 2, "worker_watchdog off;", &server(" reuseport"));
    let stuck = weir.workers()[0];
    stop(&weir, stuck);
    std::thread::sleep(Duration::from_millis(2_500));
    weir.signal_to(stuck, "CONT");
    assert!(weir.workers().contains(&stuck));
    assert!(!weir.stop_and_read("error.log").contains("stands still"));
}

#[test]
fn datagrams_of_a_stopped_worker_are_served() {
    let text = "worker_processes 2; events {} stream { server { \
                listen 127.0.0.1:%PORT0% udp reuseport; listen 127.0.0.1:%PORT0%; return $pid; } }";
    let weir = Site::new(BINARY, Driver::usual()).config(text).start();
    let stuck = weir.workers()[0];
    stop(&weir, stuck);
    weir.wait_for_log("error.log", "stands still");
    for _ in 0..16 {
        let answer = udp::ask(&udp::client(weir.port(0)), b"ask");
        assert_ne!(answer, stuck.to_string().as_bytes(), "another worker answers");
    }
    weir.signal_to(stuck, "CONT");
}

#[test]
fn a_disk_that_does_not_answer_is_named() {
    let http = "aio off; server { listen 127.0.0.1:%PORT0%; root html; \
                location /pid { return 200 $pid; } location = / { return 200 $pid; } }";
    let site = Site::new(BINARY, Driver::usual()).config(&config(1, "", http));
    let files = vec![("slow.txt".to_owned(), b"slow".to_vec())];
    let Some(folder) = StallingFolder::try_mount(&site.prefix().join("html/disk"), files) else {
        return;
    };
    let weir = site.start();
    let stuck = weir.workers()[0];
    folder.stall();
    let mut client = weir.connect();
    client.send("GET /disk/slow.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let line = weir.wait_for_log("error.log", &format!("worker process {stuck} stands still"));
    assert!(line.contains("last in the content phase of connection 1 from 127.0.0.1"), "{line}");
    all_are_served(&weir, &[stuck]);
    folder.go_on();
    assert_eq!(client.response().body, b"slow");
}
