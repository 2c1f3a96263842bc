//! A module that never returns: the program of the test is also the server, with that module.

#![allow(clippy::unwrap_used)]

mod common;

use std::process::ExitCode;

use cli::Added;
use http::Module;
use http::module::Verdict;
use http::request::Request;
use testkit::{Driver, Site, Weir, on_all_drivers, wait_for};

static MODULE: Module = Module {
    name: "endless",
    install: Some(|_, pipeline| {
        pipeline.access.push(Box::new(|r: &mut Request| {
            while r.target.uri.starts_with(b"/spin") {
                std::hint::spin_loop();
            }
            Verdict::Next
        }));
        Ok(())
    }),
    ..Module::EMPTY
};

static ADDED: &[Added] = &[Added { name: "endless", version: "1", module: &MODULE }];

fn start(driver: Driver, listen: &str) -> Weir {
    let server = format!(
        "server {{ listen 127.0.0.1:%PORT0%{listen}; location / {{ return 200 $pid; }} \
         location /spin {{ }} }}"
    );
    let site = Site::new(std::env::current_exe().unwrap(), driver);
    site.config(&common::config(2, "worker_watchdog 4s;", &server))
        .allow("is killed")
        .allow("exited on signal 9")
        .start()
}

fn spinning_is_ended(driver: Driver, listen: &str) {
    let weir = start(driver, listen);
    let workers = weir.workers();
    let mut client = weir.connect();
    client.send("GET /spin HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let line = weir.wait_for_log("error.log", "stands still");
    let last = "last in the access phase of connection 1 from 127.0.0.1 in module endless; \
                1 connections, 1 with a request";
    assert!(line.contains("running on its processor, ") && line.contains(last), "{line}");
    let pid = |body: &[u8]| String::from_utf8_lossy(body).parse::<u32>().unwrap();
    for _ in 0..16 {
        let by = pid(&weir.get("/").body);
        assert!(!line.contains(&format!("worker process {by} stands still")), "{line}");
    }
    weir.wait_for_log("error.log", "is killed: running on its processor, last in the access");
    wait_for("another in its place", || {
        let now = weir.workers();
        (now.len() == 2 && now != workers).then_some(())
    });
    assert_eq!(weir.get("/").status, 200);
}

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "-p") {
        return cli::run(ADDED);
    }
    // At once: each waits for the watchdog.
    std::thread::scope(|scope| {
        for listen in ["", " reuseport", " reuseport=steered"] {
            scope.spawn(move || on_all_drivers(|driver| spinning_is_ended(driver, listen)));
        }
    });
    ExitCode::SUCCESS
}
