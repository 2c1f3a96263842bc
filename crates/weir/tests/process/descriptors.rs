//! Running out of descriptors: active clients are served, idle ones make room.

use std::io::Write;
use std::net::TcpStream;

use crate::common::BINARY;
use testkit::{Site, each_driver, on_all_drivers};

#[test]
fn half_sent_heads_make_room() {
    on_all_drivers(|driver| {
        let weir = Site::new(BINARY, driver)
            .file("html/a.txt", b"hello")
            .config(
                "worker_processes 1; worker_rlimit_nofile 64;
                 events { worker_connections 512; }
                 http { server { listen 127.0.0.1:%PORT0%; root html; } }",
            )
            .start();
        let mut kept = weir.connect();
        let mut ask = || {
            kept.send("GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n");
            let answer = kept.response();
            assert_eq!(answer.text(), "hello", "{}", answer.status);
        };
        let slow: Vec<_> = (0..150)
            .map(|_| {
                // Requests are served meanwhile.
                ask();
                let mut client =
                    TcpStream::connect(("127.0.0.1", weir.port(0))).expect("connected");
                client.write_all(b"GET /a.txt HTTP/1.1\r\nHo").expect("written");
                client
            })
            .collect();
        weir.wait_for_log("error.log", "64 open files are not enough, reusing connections");
        weir.wait_for_log("error.log", "with an incomplete request to make room");
        for _ in 0..20 {
            assert_eq!(weir.get("/a.txt").body, b"hello");
        }
        drop(slow);
    });
}

#[test]
fn a_worker_has_room_for_its_connections_from_the_beginning() {
    // select(2) has room for 1,024 only.
    each_driver(|driver| {
        let weir = Site::new(BINARY, driver)
            .file("html/a.txt", b"hello")
            .config(
                "worker_processes 1; worker_rlimit_nofile 4000;
                 events { worker_connections 3000; }
                 http { server { listen 127.0.0.1:%PORT0%; root html; } }",
            )
            .start();
        assert_eq!(weir.get("/a.txt").body, b"hello");
        let status = std::fs::read_to_string(format!("/proc/{}/status", weir.workers()[0]));
        let status = status.expect("a worker");
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).expect("a size");
        // A table that grows later has the worker sleep until all processors have noticed.
        assert!(size.trim().parse::<usize>().expect("a number") >= 3000, "{size}");
    });
}
