//! A listening socket for each worker: `reuseport`, and `reuseport=steered`.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::common::{BINARY, config, site, stop};
use testkit::{Site, Weir, on_all_drivers, wait_for};

/// A published configuration, without its part for streams.
const PUBLISHED: &str = "# Socket sharding in http and stream.
worker_processes 4;
events { }

http {
    server {
        listen 80 reuseport;
        server_name localhost;
        location / { return 200 \"OK\"; }
    }
}
";

const STEERED: &str = "server { listen 127.0.0.1:%PORT0% reuseport=steered; \
                       location / { return 200 $pid; } }";
const PLAIN: &str = "server { listen 127.0.0.1:%PORT0% reuseport; \
                     location / { return 200 $pid; } }";

/// The worker that answered, within `patience`.
fn answer(port: u16, patience: Duration) -> std::io::Result<u32> {
    let addr = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&addr, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let body = text.rsplit("\r\n\r\n").next().unwrap_or_default();
    body.parse().map_err(|_| std::io::Error::other(text.clone()))
}

fn all_answer(weir: &Weir) -> HashSet<u32> {
    (0..60).map(|_| answer(weir.port(0), Duration::from_secs(10)).unwrap()).collect()
}

/// Stops a worker while `f` runs. A busy machine must not look like a stuck worker for longer than
/// a test may wait, so the stop is long.
fn while_stopped<T>(weir: &Weir, worker: u32, f: impl FnOnce() -> T) -> T {
    stop(weir, worker);
    let result = f();
    weir.signal_to(worker, "CONT");
    result
}

#[test]
fn a_published_configuration_runs() {
    on_all_drivers(|driver| {
        let checked = Site::new(BINARY, driver).config(PUBLISHED).run(&["-t"]);
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        // Port 80 is not everybody's.
        assert!(checked.status.success() || said.contains("bind() to 0.0.0.0:80 failed"), "{said}");
        let text = PUBLISHED.replace("listen 80 ", "listen 127.0.0.1:%PORT0% ");
        let weir = Site::new(BINARY, driver).config(&text).start();
        assert_eq!(weir.workers().len(), 4);
        for _ in 0..20 {
            let answer = weir.get("/any");
            assert_eq!((answer.status, &answer.body[..]), (200, &b"OK"[..]));
        }
    });
}

#[test]
fn a_stuck_worker_holds_up_no_new_connection() {
    on_all_drivers(|driver| {
        let text = config(2, "", STEERED);
        let weir = Site::new(BINARY, driver).config(&text).start();
        let workers: HashSet<u32> = weir.workers().into_iter().collect();
        assert_eq!(all_answer(&weir), workers);
        let stuck = weir.workers()[0];
        let waits = while_stopped(&weir, stuck, || {
            let wait = |_| {
                let began = Instant::now();
                let by = answer(weir.port(0), Duration::from_secs(10));
                assert_ne!(by.expect("an answer, although a worker is stuck"), stuck);
                began.elapsed()
            };
            (0..40).map(wait).collect::<Vec<_>>()
        });
        // A machine that is busy may hold up some.
        let long = waits.iter().filter(|wait| wait.as_millis() > 100).count();
        assert!(long <= 5, "{waits:?}");
        wait_for("both workers", || (all_answer(&weir) == workers).then_some(()));
    });
}

#[test]
fn without_steering_a_stuck_worker_holds_up_its_share() {
    let weir = site(2, "", PLAIN).start();
    let stuck = weir.workers()[0];
    while_stopped(&weir, stuck, || {
        let patience = Duration::from_millis(300);
        let held = (0..64).map(|_| answer(weir.port(0), patience)).find(|a| a.is_err());
        assert!(held.is_some(), "the kernel gives a stopped worker its connections");
    });
}

#[test]
fn steering_follows_the_number_of_workers() {
    let mut weir = site(3, "", STEERED).start();
    for (workers, http) in [(2, STEERED), (4, STEERED), (3, PLAIN), (1, STEERED), (2, STEERED)] {
        weir.set_config(&config(workers, "", http));
        let before: HashSet<u32> = weir.workers().into_iter().collect();
        weir.reload();
        let now = wait_for("the old workers' end", || {
            let now: HashSet<u32> = weir.workers().into_iter().collect();
            (now.len() == workers && now.is_disjoint(&before)).then_some(now)
        });
        wait_for("each of them", || (all_answer(&weir) == now).then_some(()));
        if http == STEERED && workers > 1 {
            let stuck = *now.iter().next().unwrap();
            while_stopped(&weir, stuck, || assert!(!all_answer(&weir).contains(&stuck)));
        }
    }
}
