//! Scripts that mean harm, in each hook: endless ones, those that take all memory, that throw, that
//! wait for servers which never answer, that break the language's own objects. Each costs its own
//! request or session. Others are served meanwhile, the worker lives, and its memory stays as it
//! was.
//!
//! A round has 144 requests. 350 rounds on each of two drivers are 100,000 requests, which take
//! about 20 minutes, and the waits of other clients are printed:
//!
//! ```text
//! WEIR_HOSTILE_ROUNDS=350 WEIR_HOSTILE_BINARY=target/release/weir \
//!     cargo test -p weir --test hostile_scripts -- --nocapture
//! ```

#![cfg(feature = "script")]
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testkit::{Driver, PATIENCE, Scripted, Site, Weir, built_binary, each_driver};

const SCRIPT: &str = r#"
import crypto from 'crypto';

const server = n => `http://127.0.0.1:${n}/`;
let kept;

// Each kind ends by an exception, a limit, or a wait that the caller does not have.
const kinds = {
    loop() { for (;;); },
    caught() { for (;;) try { for (;;); } catch (e) {} finally { continue; } },
    promises() { (function again() { Promise.resolve().then(again); })(); },
    expression() { /^(([a-z])+.)+[A-Z]([a-z])+$/.test('a'.repeat(60)); },
    recursion() { (function deeper() { deeper(); })(); },
    string() { let s = 'abcdefgh'; for (;;) s += s; },
    array() { const all = []; for (;;) all.push(new Array(1000).fill(1)); },
    buffer() { Buffer.alloc(2 ** 30); },
    natives() { const b = Buffer.alloc(1 << 20); for (;;) crypto.createHash('sha256').update(b); },
    json() { const t = '[' + '1,'.repeat(1e5) + '1]'; for (;;) JSON.parse(t); },
    throws() { throw new TypeError('hostile'); },
    rejects() { Promise.reject(new RangeError('hostile')); },
    pollutes(o) {
        Object.prototype.then = () => { throw new Error('polluted'); };
        Array.prototype.push = Promise.prototype.then = JSON.parse = null;
        Object.defineProperty(Object.prototype, 'value', { get() { throw new Error('hostile'); } });
        throw new Error('hostile');
    },
    later(o) { kept ??= o; kept.variables.pid; throw new Error('hostile'); },
    sleeps() { return new Promise(done => setTimeout(done, 3_600_000)); },
    dead() { return ngx.fetch(server(1)); },
    slow(o, ports) { return ngx.fetch(server(ports[0])); },
    endless(o, ports) { return ngx.fetch(server(ports[1])); },
};

const ports = o => o.variables.ports.split(' ');
const run = (o, kind) => kinds[kind](o, ports(o));

function set(r) { run(r, r.variables.kind); return 'computed'; }
function access(r) { return run(r, r.variables.kind); }
function content(r) { return run(r, r.variables.kind); }
function header(r) { run(r, r.variables.kind); }
function body(r, data, flags) { run(r, r.variables.kind); }

function sAccess(s) { return run(s, s.variables.kind); }
function sPreread(s) { s.on('upload', data => data ? run(s, s.variables.kind) : undefined); }
function sFilter(s) { s.on('upload', data => run(s, s.variables.kind)); }

export default { set, access, content, header, body, sAccess, sPreread, sFilter };
"#;

const KINDS: &[&str] = &[
    "loop",
    "caught",
    "promises",
    "expression",
    "recursion",
    "string",
    "array",
    "buffer",
    "natives",
    "json",
    "throws",
    "rejects",
    "pollutes",
    "later",
    "sleeps",
    "dead",
    "slow",
    "endless",
];

/// Hooks of HTTP that may wait, and others.
const WAITING: &[&str] = &["access", "content"];
const SYNC: &[&str] = &["set", "header", "body"];
/// Hooks of `stream`; each kind has an address of its own, see [`address`].
const STREAM: &[&str] = &["sAccess", "sPreread", "sFilter"];

fn rounds() -> usize {
    std::env::var("WEIR_HOSTILE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2)
}

/// The server: that of this build, unless another one is named, from the root of the repository.
fn binary() -> PathBuf {
    match std::env::var_os("WEIR_HOSTILE_BINARY") {
        Some(path) => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path),
        None => built_binary(),
    }
}

/// All hooks, in the order of a round.
fn hooks() -> impl Iterator<Item = &'static str> {
    WAITING.iter().chain(SYNC).chain(STREAM).copied()
}

/// The waits of another client, each with the hostile script that ran when it began, and the one
/// that ran when it ended, as numbers of [`Now`].
type Waits = Vec<(Duration, usize, usize)>;

/// The hostile script that runs, as a number.
#[derive(Default)]
struct Now(AtomicUsize);

impl Now {
    fn set(&self, kind: usize, hook: &str) {
        let hook = hooks().position(|name| name == hook).unwrap();
        self.0.store(kind * hooks().count() + hook, Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn name(number: usize) -> String {
        let count = hooks().count();
        format!("{} {}", hooks().nth(number % count).unwrap(), KINDS[number / count])
    }
}

/// Prints how long another client waited, and beside which scripts it waited longest.
fn print(driver: Driver, mut waits: Waits) {
    waits.sort_unstable_by_key(|(wait, ..)| std::cmp::Reverse(*wait));
    let at = |part: usize| waits[waits.len() * part / 1000].0;
    let (p50, p99, p999, most) = (at(500), at(10), at(1), waits[0].0);
    let count = waits.len();
    println!(
        "{driver:?}: another client had {count} answers; p50 {p50:?}, p99 {p99:?}, p99.9 {p999:?}, \
         longest {most:?}"
    );
    for (wait, began, ended) in &waits[..waits.len().min(8)] {
        println!("{driver:?}:   {wait:?} from {} to {}", Now::name(*began), Now::name(*ended));
    }
}

/// Servers that answer nothing, and without end.
fn servers() -> (Scripted, Scripted) {
    let slow = Scripted::start(|mut stream, _| {
        let mut page = [0; 1000];
        while let Ok(1..) = stream.read(&mut page) {}
    });
    let endless = Scripted::start(|mut stream, _| {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunk = [b"1000\r\n".as_slice(), &[b'x'; 0x1000], b"\r\n"].concat();
        let mut sent = stream.write_all(head);
        while sent.is_ok() {
            sent = stream.write_all(&chunk);
        }
    });
    (slow, endless)
}

/// The address of the servers of `stream` for a kind.
fn address(kind: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 2 + u8::try_from(kind).unwrap())
}

fn start(driver: Driver, slow: u16, endless: u16) -> Weir {
    let common = format!(
        "js_import t.js; js_time_limit 10ms; js_cpu_limit 50ms; js_memory_limit 4m;
         js_fetch_timeout 20ms; js_fetch_max_response_buffer_size 64k;
         map _ $ports {{ default '{slow} {endless}'; }}"
    );
    let mut http = String::new();
    for kind in KINDS {
        let _ = write!(
            http,
            "location /set/{kind} {{ set $kind {kind}; return 200 'value:$computed'; }}
             location /access/{kind} {{ set $kind {kind}; js_access t.access;
                 try_files /a.txt =404; }}
             location /content/{kind} {{ set $kind {kind}; js_content t.content; }}
             location /header/{kind} {{ set $kind {kind}; js_header_filter t.header;
                 alias html/a.txt; }}
             location /body/{kind} {{ set $kind {kind}; js_body_filter t.body;
                 alias html/a.txt; }}\n"
        );
    }
    let (mut stream, mut map) = (String::new(), String::new());
    for (i, hook) in STREAM.iter().enumerate() {
        let directive = ["js_access", "js_preread", "js_filter"][i];
        for (k, kind) in KINDS.iter().enumerate() {
            let (ip, n) = (address(k), 1 + i);
            if i == 0 {
                let _ = writeln!(map, "{ip} {kind};");
            }
            let _ = writeln!(
                stream,
                "server {{ listen {ip}:%PORT{n}%; {directive} t.{hook}; \
                 proxy_pass 127.0.0.1:%PORT0%; }}"
            );
        }
    }
    Site::new(binary(), driver)
        .file("html/a.txt", "small\n")
        .file("conf/t.js", SCRIPT)
        .config(&format!(
            "worker_processes 1; events {{ worker_connections 512; }}
             http {{ {common} js_set $computed t.set; access_log off; js_context_reuse 4;
                 server {{ listen 127.0.0.1:%PORT0%; root html;
                     location /plain {{ return 200 plain; }} {http} }} }}
             stream {{ {common} preread_timeout 20ms; map $server_addr $kind {{ {map} }} {stream} }}"
        ))
        .start()
}

/// All that comes back for some bytes; `leaves`: the client does not wait for it.
fn sent(to: (Ipv4Addr, u16), bytes: &str, leaves: bool) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut all = Vec::new();
    if leaves {
        let _ = stream.shutdown(Shutdown::Both);
    } else if let Err(e) = stream.read_to_end(&mut all) {
        // The session may end with bytes of ours unread.
        assert_eq!(e.kind(), std::io::ErrorKind::ConnectionReset, "{to:?}: {e}");
    }
    String::from_utf8_lossy(&all).into_owned()
}

fn get(weir: &Weir, path: &str, leaves: bool) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    sent((Ipv4Addr::LOCALHOST, weir.port(0)), &request, leaves)
}

/// One request for each hook and kind.
fn round(weir: &Weir, now: &Now) {
    for (k, kind) in KINDS.iter().enumerate() {
        for hook in WAITING {
            now.set(k, hook);
            let leaves = *kind == "sleeps";
            let answer = get(weir, &format!("/{hook}/{kind}"), leaves);
            assert!(leaves || answer.starts_with("HTTP/1.1 500 "), "{hook} {kind}: {answer}");
        }
        for hook in SYNC {
            now.set(k, hook);
            let answer = get(weir, &format!("/{hook}/{kind}"), false);
            match *hook {
                // The variable of a script that fails has no value.
                "set" => assert!(answer.ends_with("\r\n\r\nvalue:"), "{kind}: {answer}"),
                "header" => assert!(answer.starts_with("HTTP/1.1 500 "), "{kind}: {answer}"),
                _ => assert!(!answer.ends_with("small\n"), "{kind}: {answer}"),
            }
        }
        for (i, hook) in STREAM.iter().enumerate() {
            now.set(k, hook);
            let answer = sent((address(k), weir.port(1 + i)), "x\r\n\r\n", *kind == "sleeps");
            assert_eq!(answer, "", "{hook} {kind}");
        }
    }
}

/// The memory of the worker, KB.
fn resident_kb(weir: &Weir) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", weir.workers()[0])).unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// More than rounds may add to the memory of a worker that has seen each kind twice: pages that the
/// allocator keeps.
const GROWTH_KB: u64 = 24 << 10;

fn run(driver: Driver) {
    let (slow, endless) = servers();
    let weir = start(driver, slow.port, endless.port);
    let workers = weir.workers();
    let (ends, now) = (AtomicBool::new(false), Now::default());
    let waits = std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            let mut waits = Waits::new();
            while !ends.load(Ordering::Relaxed) {
                let (began, beside) = (Instant::now(), now.get());
                assert!(get(&weir, "/plain", false).ends_with("plain"));
                waits.push((began.elapsed(), beside, now.get()));
            }
            waits
        });
        // Ends the other client, too, where a round fails.
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let ending = Ends(&ends);
        round(&weir, &now);
        round(&weir, &now);
        let before = resident_kb(&weir);
        (0..rounds()).for_each(|_| round(&weir, &now));
        let after = resident_kb(&weir);
        assert!(after <= before + GROWTH_KB, "{before} KB before, {after} KB after");
        println!("{driver:?}: {before} KB before, {after} KB after");
        drop(ending);
        others.join().unwrap()
    });
    assert!(!waits.is_empty());
    print(driver, waits);
    assert_eq!(weir.workers(), workers, "the worker lives");
    let log = weir.stop_and_read("error.log");
    for line in [
        "js was ended: the script ran for more than 10 ms at a stretch at loop (",
        "js was ended: the script ran for more than 10 ms at a stretch at caught (",
        "js call exception: TypeError: hostile at throws (",
        "t.js:",
        "async operation inside \"t.header\" header filter",
    ] {
        assert!(log.contains(line), "{line}");
    }
}

#[test]
fn hostile_scripts_harm_themselves_alone() {
    each_driver(run);
}
