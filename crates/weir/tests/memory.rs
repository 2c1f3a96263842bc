//! Memory: behaviour without any left, and the return of unused memory.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use common::{SERVER, config};
use testkit::{Driver, Folder, Site, Weir, each_driver, wait_for};

/// Address space of each process of the server beyond what it has at its start, KB. The start's
/// part is mostly the program, whose size depends on how it was built.
const ROOM_KB: u64 = 28_000;

/// Address space of a worker with nothing to do, KB.
fn size_at_start() -> u64 {
    let weir =
        Site::new(env!("CARGO_BIN_EXE_weir"), Driver::usual()).config(&config(1, "", SERVER));
    let weir = weir.start();
    let text = fs::read_to_string(format!("/proc/{}/status", weir.workers()[0])).unwrap();
    let line = text.lines().find(|line| line.starts_with("VmPeak:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A program that runs the server with little address space; in a folder that is removed with it.
struct Limited(Folder);

impl Limited {
    fn new(name: &str) -> Limited {
        let limit = size_at_start() + ROOM_KB;
        let (folder, binary) = (Folder::new(name), env!("CARGO_BIN_EXE_weir"));
        let text = format!("#!/bin/sh\nulimit -v {limit}\nexec {binary} \"$@\"\n");
        testkit::write_script(&folder.join("limited"), &text);
        Limited(folder)
    }

    fn site(&self, driver: Driver) -> Site {
        Site::new(self.0.join("limited"), driver).file("html/a.txt", b"hello")
    }
}

/// Clients that send all but the end of a body that the server keeps in memory. The server may
/// close them.
fn slow_bodies(weir: &Weir, count: usize, each: usize) -> Vec<TcpStream> {
    let body = vec![b'x'; each];
    let clients = (0..count).map(|_| {
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, weir.port(0))).unwrap();
        client.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let head = format!("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", each + 9);
        let _ = client.write_all(head.as_bytes()).and_then(|()| client.write_all(&body));
        client
    });
    clients.collect()
}

/// The bytes up to the server's close, which may come at any time.
fn ask_for(weir: &Weir, request: &[u8]) -> Vec<u8> {
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, weir.port(0))).unwrap();
    let mut answer = Vec::new();
    let _ = client.write_all(request).and_then(|()| client.read_to_end(&mut answer));
    answer
}

#[test]
fn a_worker_outlives_a_lack_of_memory() {
    let limited = Limited::new("short");
    each_driver(|driver| {
        let weir = limited
            .site(driver)
            .http(
                "client_max_body_size 10m; client_body_buffer_size 2m; \
                 server { listen 127.0.0.1:%PORT0%; root html; \
                 location /up { proxy_pass http://127.0.0.1:1; } }",
            )
            .start();
        let workers = weir.workers();
        // Twice as much as there is.
        let clients = slow_bodies(&weir, 80, 1 << 20);
        weir.wait_for_log("error.log", "memory is short: ");
        // At the worst moment it may be a client like this one that has to try again.
        let ask = b"GET /a.txt HTTP/1.0\r\n\r\n";
        wait_for("an answer beside them", || ask_for(&weir, ask).ends_with(b"hello").then_some(()));
        drop(clients);
        weir.wait_for_log("error.log", "memory suffices again after ");
        assert_eq!(weir.get("/a.txt").body, b"hello");
        assert_eq!(weir.workers(), workers);
    });
}

#[test]
fn a_configuration_that_does_not_fit_is_refused() {
    let limited = Limited::new("reload");
    let mut weir = limited
        .site(Driver::usual())
        .config(&config(1, "", SERVER))
        .allow("the old configuration stays")
        .start();
    let workers = weir.workers();
    let (master, blocks) = (weir.pid(), "server { server_name %.test; location /a { } }\n");
    let many: String = (0..20_000).map(|n| blocks.replace('%', &n.to_string())).collect();
    weir.set_config(&config(1, "", &format!("{SERVER}\n{many}")));
    weir.signal("HUP");
    weir.wait_for_log("error.log", "the old configuration stays");
    assert_eq!(weir.get("/a.txt").body, b"hello");
    assert_eq!((weir.workers(), weir.pid()), (workers, master));
    // One that fits is taken.
    weir.set_config(&config(1, "", SERVER));
    weir.reload();
    assert_eq!(weir.get("/a.txt").body, b"hello");
}

/// Private dirty memory of a process, bytes.
fn private_dirty(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find(|line| line.starts_with("Private_Dirty:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

const READERS: usize = 48;
const LEN: u64 = 6 << 20;

#[test]
fn slow_readers_of_long_answers_hold_little_memory() {
    each_driver(|driver| {
        let weir = Site::new(env!("CARGO_BIN_EXE_weir"), driver)
            .file("html/big.bin", b"")
            .http(
                "access_log off; \
                 server { listen 127.0.0.1:%PORT0%; location / { \
                 proxy_pass http://127.0.0.1:%PORT1%; } } \
                 server { listen 127.0.0.1:%PORT1%; root html; \
                 access_log logs/passed.log; }",
            )
            .start();
        let file = fs::File::options().write(true).open(weir.prefix().join("html/big.bin"));
        file.unwrap().set_len(LEN).unwrap();
        let worker = weir.workers()[0];
        let before = private_dirty(worker);
        let readers: Vec<TcpStream> = (0..READERS)
            .map(|_| {
                let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, weir.port(0))).unwrap();
                client.write_all(b"GET /big.bin HTTP/1.0\r\n\r\n").unwrap();
                client.read_exact(&mut [0; 100]).unwrap();
                client
            })
            .collect();
        // All of it has been read from the upstream, and lies in temporary files.
        weir.wait_for_lines("passed.log", READERS);
        let during = private_dirty(worker);
        // The amount in flight to the temporary files depends on the threads' speed; the memory
        // kept without them was more than 100 MB.
        assert!(during < before + (36 << 20), "{before} bytes before, {during} during");
        drop(readers);
        wait_for("memory to be given back", || {
            (private_dirty(worker) < before + (4 << 20)).then_some(())
        });
    });
}

/// Memory that a process has asked for, bytes.
fn data(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with("VmData:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

const SWITCH: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n";

/// The header section that is next in a stream.
fn head(stream: &mut TcpStream) -> Vec<u8> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    head
}

/// A server that opens tunnels, and keeps them open.
fn tunnels() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            head(&mut stream);
            stream.write_all(SWITCH).unwrap();
            open.push(stream);
        }
    });
    port
}

const TUNNELS: u64 = 150;

/// One page of 16 KB at most where they were opened, and none when they have moved.
#[test]
fn tunnels_hold_few_pages() {
    each_driver(|driver| {
        let http = format!(
            "access_log off; server {{ listen 127.0.0.1:%PORT0%; proxy_http_version 1.1; \
             proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; \
             location / {{ proxy_pass http://127.0.0.1:{}; }} }}",
            tunnels()
        );
        let weir = Site::new(env!("CARGO_BIN_EXE_weir"), driver).http(&http).start();
        let port = weir.port(0);
        let open = || {
            let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            let ask = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n";
            client.write_all(ask).unwrap();
            assert!(head(&mut client).starts_with(b"HTTP/1.1 101"));
            client
        };
        let _first = open();
        let old = weir.workers();
        let before = data(old[0]);
        let _clients: Vec<TcpStream> = (0..TUNNELS).map(|_| open()).collect();
        let each = (data(old[0]) - before) / TUNNELS;
        assert!(each < 36 << 10, "{each}");
        weir.reload();
        weir.wait_until_left(&old);
        let each = data(weir.workers()[0]).saturating_sub(before) / TUNNELS;
        assert!(each < 24 << 10, "{each}, after they have moved");
    });
}
