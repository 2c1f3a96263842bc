//! Limits of control groups. Memory: the kernel kills a process that goes beyond the limit, so new
//! requests are refused before. Processors: there are as many workers as the quota has room for.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::{Driver, Folder, Site, Weir, each_driver, wait_until};

const LIMIT: u64 = 64 << 20;
/// Bodies that take half as much again as there is.
const BODIES: usize = 480;
const BODY: usize = 200_000;

/// A control group, and a program that runs the server within it. Both go with the value.
struct Limited {
    group: PathBuf,
    folder: Folder,
}

impl Limited {
    /// A limit of memory; `None` where this process may not make groups, or the memory is not
    /// limited by them.
    fn new(name: &str, driver: Driver) -> Option<Limited> {
        let bytes = LIMIT.to_string();
        let memory = ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", &*bytes);
        Limited::by(name, driver, [memory, ("/sys/fs/cgroup", "memory.max", &bytes)])
    }

    /// A group with one of these limits, each with the root of the groups, the file and its text.
    fn by(name: &str, driver: Driver, limits: [(&str, &str, &str); 2]) -> Option<Limited> {
        let name = format!("weir-{name}-{}-{}", driver.name(), std::process::id());
        let make = |(root, file, limit): (&str, &str, &str)| {
            // Beside groups of version 1 that is a folder like any other.
            let groups = Path::new(root).join("cgroup.procs");
            groups.exists().then_some(())?;
            let group = Path::new(root).join(&name);
            fs::create_dir(&group).ok()?;
            match fs::write(group.join(file), limit) {
                Ok(()) => Some(group),
                Err(_) => {
                    let _ = fs::remove_dir(&group);
                    None
                }
            }
        };
        let group = limits.into_iter().find_map(make)?;
        let folder = Folder::new(&name);
        let (door, binary) = (group.join("cgroup.procs"), env!("CARGO_BIN_EXE_weir"));
        let text = format!("#!/bin/sh\necho $$ > {}\nexec {binary} \"$@\"\n", door.display());
        testkit::write_script(&folder.join("limited"), &text);
        Some(Limited { group, folder })
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // The kernel lets go of a group a moment after its last process.
        for _ in 0..500 {
            match fs::remove_dir(&self.group) {
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
                Ok(()) => return,
            }
        }
    }
}

#[test]
fn there_are_as_many_workers_as_the_quota_has_room_for() {
    each_driver(|driver| {
        let version_1 = ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "150000");
        let version_2 = ("/sys/fs/cgroup", "cpu.max", "150000 100000");
        let Some(limited) = Limited::by("quota", driver, [version_1, version_2]) else {
            eprintln!("left out: no control group with a quota can be made here");
            return;
        };
        let config = common::config(1, "", "server { listen 127.0.0.1:%PORT0%; return 200; }")
            .replace("worker_processes 1;", "worker_processes auto;");
        assert!(config.contains("auto"));
        let site = |program: &Path| Site::new(program, driver).config(&config).start();
        let weir = site(Path::new(env!("CARGO_BIN_EXE_weir")));
        assert_eq!(weir.workers().len(), os::limits::cpus());
        assert_eq!(site(&limited.folder.join("limited")).workers().len(), 1);
    });
}

/// A client that sends all but the end of a body. It may be refused.
fn unfinished(weir: &Weir) -> TcpStream {
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, weir.port(0))).unwrap();
    client.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let head = format!("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", BODY + 9);
    let _ = client.write_all(head.as_bytes()).and_then(|()| client.write_all(&[b'x'; BODY]));
    client
}

/// Whether a page is there. While memory is scarce a connection may end without an answer, since it
/// is refused before its request was read.
fn has_page(weir: &Weir, path: &str) -> bool {
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, weir.port(0))).unwrap();
    let mut answer = Vec::new();
    let _ = client.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes());
    let _ = client.read_to_end(&mut answer);
    answer.starts_with(b"HTTP/1.1 200 ")
}

/// A site in a group of its own that reads uploads to `/up` into memory; none where no such group
/// can be made.
fn uploads(name: &str, driver: Driver) -> Option<(Limited, Weir)> {
    let Some(limited) = Limited::new(name, driver) else {
        eprintln!("left out: no control group with a limit of memory can be made here");
        return None;
    };
    let weir = Site::new(limited.folder.join("limited"), driver)
        .file("html/a.txt", b"hello")
        .config(
            "worker_processes 1; events { worker_connections 900; }
             http { client_body_buffer_size 256k;
                 server { listen 127.0.0.1:%PORT0%; root html;
                 location /up { proxy_pass http://127.0.0.1:%PORT0%/taken; }
                 location /taken { return 200; }
                 location /status { stub_status; } } }",
        )
        .start();
    Some((limited, weir))
}

#[test]
fn bodies_beyond_the_groups_memory_are_refused() {
    each_driver(|driver| {
        let Some((_limited, weir)) = uploads("bodies", driver) else { return };
        let workers = weir.workers();
        let clients: Vec<_> = (0..BODIES).map(|_| unfinished(&weir)).collect();
        wait_until("the status page", || has_page(&weir, "/status"));
        weir.wait_for_log("error.log", "of the control group's memory are in use: refusing new");
        assert_eq!(weir.workers(), workers, "a worker was killed");
        drop(clients);
        // The worker learns a moment later that its clients are gone, and refuses until then.
        wait_until("room", || has_page(&weir, "/a.txt"));
        assert_eq!(weir.workers(), workers);
    });
}

#[test]
fn free_memory_of_the_heap_goes_back_while_requests_come() {
    each_driver(|driver| {
        let Some((_limited, weir)) = uploads("free", driver) else { return };
        let worker = weir.workers()[0];
        // With the master's memory and the kernel's it is scarce then, and nobody is closed yet.
        let mut clients = Vec::new();
        while resident(worker) < LIMIT / 100 * 83 {
            assert!(clients.len() < BODIES, "{} of {LIMIT}", resident(worker));
            clients.push(unfinished(&weir));
            // The worker has looked at all that came before.
            assert_eq!(weir.get("/a.txt").status, 200);
        }
        // The clients that stay lie between others that go.
        let mut number = 0;
        clients.retain(|_| {
            number += 1;
            number % 5 == 0
        });
        // Not in a quiet time, and as far as memory is about to be scarce: a look may come while
        // only some of them are gone.
        wait_until("memory that is given back", || {
            (0..50).for_each(|_| drop(weir.get("/a.txt")));
            resident(worker) < LIMIT / 100 * 75
        });
        drop(clients);
    });
}

/// The resident memory of a process, bytes.
fn resident(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kb = line.and_then(|kb| kb.split_whitespace().next()?.parse::<u64>().ok());
    kb.unwrap_or(0) << 10
}

/// A client that asks for a long answer, and takes nothing of it.
fn deaf(weir: &Weir) -> TcpStream {
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, weir.port(0))).unwrap();
    let _ = client.write_all(b"GET /passed/long HTTP/1.0\r\n\r\n");
    client
}

#[test]
fn responses_are_read_at_the_clients_pace_where_memory_is_scarce() {
    each_driver(|driver| {
        let Some(limited) = Limited::new("responses", driver) else {
            eprintln!("left out: no control group with a limit of memory can be made here");
            return;
        };
        let origin = Site::new(env!("CARGO_BIN_EXE_weir"), Driver::usual())
            .file("html/long", [b'x'; 1_000_000])
            .config(&common::config(1, "", "server { listen 127.0.0.1:%PORT0%; root html; }"))
            .start();
        let http = format!(
            "worker_processes 1; events {{ worker_connections 900; }}
             http {{ proxy_max_temp_file_size 0; proxy_buffers 50 16k;
                 server {{ listen 127.0.0.1:%PORT0% sndbuf=16k;
                 location /passed/ {{ proxy_pass http://127.0.0.1:{}/; }}
                 location /status {{ stub_status; }} }} }}",
            origin.port(0)
        );
        let weir = Site::new(limited.folder.join("limited"), driver).config(&http).start();
        let workers = weir.workers();
        // Each would take 800 KB of buffers.
        let clients: Vec<_> = (0..200).map(|_| deaf(&weir)).collect();
        wait_until("buffers", || resident(workers[0]) > LIMIT / 100 * 70);
        for _ in 0..20 {
            assert_eq!(weir.get("/status").status, 200);
        }
        assert_eq!(weir.workers(), workers, "a worker was killed");
        assert!(!weir.error_log().contains("memory is short"), "buffers grew to the end");
        drop(clients);
    });
}

/// Whether a process has a temporary file of a response open.
fn has_temp_file(pid: u32) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let names = files.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    names.into_iter().any(|name| name.to_string_lossy().contains("/proxy_temp/"))
}

#[test]
fn responses_are_not_written_to_files_where_the_page_cache_has_no_room() {
    each_driver(|driver| {
        let Some(limited) = Limited::new("cache", driver) else {
            eprintln!("left out: no control group with a limit of memory can be made here");
            return;
        };
        let origin = Site::new(env!("CARGO_BIN_EXE_weir"), Driver::usual())
            .file("html/long", vec![b'x'; 20 << 20])
            .config(&common::config(1, "", "server { listen 127.0.0.1:%PORT0%; root html; }"))
            .start();
        let http = format!(
            "worker_processes 1; events {{ worker_connections 900; }}
             http {{ client_body_buffer_size 256k;
                 server {{ listen 127.0.0.1:%PORT0% sndbuf=16k;
                 location /passed/ {{ proxy_pass http://127.0.0.1:{}/; }}
                 location /up {{ proxy_pass http://127.0.0.1:%PORT0%/taken; }}
                 location /taken {{ return 200; }}
                 location /status {{ stub_status; }} }} }}",
            origin.port(0)
        );
        let weir = Site::new(limited.folder.join("limited"), driver).config(&http).start();
        let worker = weir.workers()[0];
        let mut uploads = Vec::new();
        while resident(worker) < LIMIT / 100 * 68 {
            assert!(uploads.len() < BODIES, "{} of {LIMIT}", resident(worker));
            uploads.push(unfinished(&weir));
            assert!(has_page(&weir, "/status"));
        }
        // The worker has looked at its memory since.
        std::thread::sleep(Duration::from_millis(500));
        let reader = deaf(&weir);
        std::thread::sleep(Duration::from_secs(1));
        assert!(!has_temp_file(worker), "written to a file without room for it");
        drop(uploads);
        wait_until("a temporary file", || has_temp_file(worker));
        drop(reader);
    });
}
