//! Weir beside stock nginx and a bare responder, on one machine, in one run.
//!
//! Each server has one worker on CPU 0; the load is on CPU 1. Rounds are interleaved (server after
//! server, again and again), because machines drift: ratios are taken within a round, and printed
//! as their median with the smallest and the largest beside it.

#![forbid(unsafe_code)]

mod accept;
mod asks;
mod backends;
mod blocks;
mod cache;
mod cached;
mod cold;
mod counts;
mod differential;
mod drivers;
mod floods;
mod h2;
mod h3;
mod http_client;
mod idle;
mod js;
mod leaks;
mod limit_soak;
mod mail;
mod memory;
mod messages;
mod metered;
mod mixed;
mod modules_off;
mod mysql;
mod overload;
mod proxied;
mod reported;
mod signed;
mod soak;
mod standstill;
mod storm;
mod strain;
mod stream;
mod tagged;
mod throughput;
mod tiers;
mod tls;
mod tunnels;
mod turns;
mod upstream_h2;
mod upstream_stall;

use std::process::ExitCode;

use rig::{
    Outcome, cgroup, client, deploy, disk, helper, options, proc, report, server, subject,
    syscalls, wrk,
};

use options::Options;

/// A load by name.
struct Load {
    name: &'static str,
    help: &'static str,
    /// Whether it runs when no load is named.
    by_default: bool,
    run: fn(&Options, &str) -> Outcome,
}

const LOADS: &[Load] = &[
    load("1k", "1 KB file, keep-alive, 64 connections", true, throughput::run),
    load("1k-cache", "the same with open_file_cache", true, throughput::run),
    load("1k-cache-500", "the same, 500 connections", false, throughput::run),
    load("1k-cache-1000", "the same, 1,000 connections", false, throughput::run),
    load("1k-500", "1 KB file, keep-alive, 500 connections", false, throughput::run),
    load("100k", "100 KB file, keep-alive, 64 connections", true, throughput::run),
    load("1m", "1 MB file, keep-alive, 64 connections", true, throughput::run),
    load("close", "1 KB file, a connection each", true, throughput::run),
    load("close-reuseport", "the same with a listening socket a worker", false, throughput::run),
    load("close-deferred", "the same with \"deferred\" for nginx, too", false, throughput::run),
    load("close-log", "the same with an access log", false, throughput::run),
    load("1k-log", "1 KB file, keep-alive, with an access log", false, throughput::run),
    load("pipe", "1 KB file, 16 requests pipelined", true, throughput::run),
    load("pipe-return", "return 200, 16 requests pipelined", true, throughput::run),
    load("idle", "10,000 idle keep-alive connections: memory each", true, idle::run),
    load("blocks", "start and reload with 1, 1,000 and 10,000 servers", true, blocks::run),
    load("syscalls", "system calls a request, 1 KB file", true, syscalls::run),
    load("proxy", "1 KB passed on over kept connections, 64 connections", true, proxied::run),
    load("proxy-h2", "1 KB passed on over HTTP/1 and HTTP/2", false, |o, _| upstream_h2::proxy(o)),
    load("grpc", "calls of 100 bytes, HTTP/2 on both sides", false, |o, _| upstream_h2::grpc(o)),
    load(
        "proxy-h2-stall",
        "8 clients that do not read, 64 that do, one HTTP/2 connection behind",
        false,
        |o, _| upstream_stall::run(o),
    ),
    load("proxy-1m", "1 MB passed on, buffered", false, proxied::run),
    load("proxy-1m-unbuffered", "the same without buffering", false, proxied::run),
    load("cache", "1 KB that a cache keeps, 64 connections", true, proxied::run),
    load("cache-1m", "1 MB that a cache keeps", false, proxied::run),
    load("cache-lock", "1,000 clients on one missing key: who waits how long", false, cache::lock),
    load("cache-disk-full", "100 clients, unique objects, a disk that fills", false, cache::full),
    load("cache-zone-full", "the same with a zone of keys that fills", false, cache::full),
    load(
        "cache-restart",
        "a million files: starts with and without an index",
        false,
        cache::restart,
    ),
    load("cache-purge", "a tenth of a million purged, and what others notice", false, cache::purge),
    load("cache-kills", "200 kills during fills: what is served then", false, cache::kills),
    load("three-disks", "a cache over three disks, one of them slow", false, cache::disks),
    load("tls-handshake-ecdsa", "full handshakes of TLS 1.3, ECDSA P-256", true, tls::run),
    load("tls-handshake-rsa", "the same with RSA 2048", true, tls::run),
    load("tls-resumed", "handshakes resumed with tickets", true, tls::run),
    load("tls-1k", "1 KB file over TLS, keep-alive, 64 connections", true, tls::run),
    load("tls-100k", "100 KB file over TLS", true, tls::run),
    load("tls-1m", "1 MB file over TLS", true, tls::run),
    load("tls-proxy", "1 KB that comes over TLS and is passed on over TLS", true, tls::run),
    load("tls-idle", "10,000 idle connections over TLS: memory each", true, idle::run),
    load("h2-1k", "1 KB file over HTTP/2, 8 connections of 32 streams", false, h2::run),
    load("h2-1k-one", "the same, a connection of 100 streams", false, h2::run),
    load("h2-1k-many", "the same, 256 connections of 8 streams", false, h2::run),
    load("h2-1k-paths", "the same, 8 of 32, a hundred paths in turn", false, h2::run),
    load("h2-100k", "100 KB file over HTTP/2", false, h2::run),
    load("h2-1m", "1 MB file over HTTP/2", false, h2::run),
    load("h2-post", "POST of 10 KB over HTTP/2, passed on", false, h2::run),
    load("h2-tls-1k", "1 KB file over HTTP/2 and TLS", false, h2::run),
    load("h2-tls-100k", "100 KB file over HTTP/2 and TLS", false, h2::run),
    load("h2-idle", "10,000 idle connections of HTTP/2: memory each", false, idle::run),
    load("h2-tls-idle", "the same over TLS", false, idle::run),
    load("h2-header-bomb", "large fields on stalled streams: memory held", false, h2::bomb::run),
    load("h2-reload", "reload every 200 ms under HTTP/2: lost streams", false, h2::reload::run),
    load("h2-floods", "attacks over HTTP/2: cut off, cost, p99 of others", false, h2::floods::run),
    load("h3-1k", "1 KB file over HTTP/3, 8 connections of 32 streams", false, h3::run),
    load("h3-1k-return", "the same, a response of the configuration", false, h3::run),
    load("h3-1k-one", "the same, a connection of 100 streams", false, h3::run),
    load("h3-1k-many", "the same, 64 connections of one stream", false, h3::run),
    load("h3-100k", "100 KB file over HTTP/3", false, h3::run),
    load("h3-1m", "1 MB file over HTTP/3", false, h3::run),
    load("h3-post", "POST of 10 KB over HTTP/3, passed on", false, h3::run),
    load("h3-handshakes", "HTTP/3: a connection for each request of 1 KB", false, h3::run),
    load("h3-idle", "idle connections of HTTP/3: memory each", false, idle::run),
    load("h3-floods", "attacks over HTTP/3: cut off, cost, p99 of others", false, h3::floods::run),
    load("h3-settings", "HTTP/3: the floor's settings, 1 KB", false, h3::settings),
    load("h3-settings-100k", "HTTP/3: the floor's settings, 100 KB", false, h3::settings),
    load("fastcgi", "1 KB from php-fpm over kept connections", false, proxied::run),
    load("stream-1k", "stream: 1 KB answers over 64 sessions", false, proxied::run),
    load("stream-close", "stream: a session each", false, proxied::run),
    load("stream-tls", "stream: TLS ended, 1 KB answers over 64 sessions", false, stream::run),
    load("stream-bulk", "stream: as many bytes as iperf3 sends", false, stream::run),
    load("stream-dns", "stream: datagrams of dnsperf, a session each", false, stream::run),
    load("stream-dns-kept", "stream: the same, over ten sessions", false, stream::run),
    load("stream-idle", "stream: memory of an idle session", false, idle::run),
    load("stream-udp-idle", "stream: the same over UDP", false, idle::run),
    load("mail-idle", "mail: memory of an idle session", false, idle::run),
    load(
        "stream-storm",
        "stream: reload every 200 ms under TCP and UDP",
        false,
        stream::storm::run,
    ),
    load("stream-mixed", "stream: every byte, reloads, killed workers", false, stream::mixed::run),
    load(
        "stream-many",
        "stream: ten million datagrams, a million connections: memory",
        false,
        stream::many::run,
    ),
    load("stream-echo", "stream: 64 bytes echoed over 1,000 sessions", false, proxied::run),
    load("websocket", "messages of 64 bytes over 1,000 upgraded connections", false, proxied::run),
    load("gzip", "100 KB of text with gzip at level 5", true, throughput::run),
    load("gzip-json", "1 KB of JSON with gzip at level 5", true, throughput::run),
    load("sub-filter", "20 texts replaced in 100 KB", true, throughput::run),
    load("xslt", "a list of 200 files: XML made HTML by a stylesheet", false, throughput::run),
    load("leaks", "memory over a million requests of each filter", false, leaks::run),
    load("turns", "the longest turn of the loop that each work causes", false, turns::run),
    load("drivers", "weir on epoll, weir on io_uring, and nginx", false, drivers::run),
    load("accept", "who accepts: policies, and a worker that is stuck", false, accept::run),
    load("cached", "1 KB, 100 KB and 1 MB in memory: what aio costs", false, cached::run),
    load("cold-disk", "a hot file while 200 clients read from a slow disk", false, cold::run),
    load("backends", "backends killed and restarted at random: what is lost", false, backends::run),
    load("backends-h2", "servers over HTTP/2 killed and reloaded: lost", false, tiers::run),
    load("tagged", "100,000 requests, many given up: none mixed", false, tagged::run),
    load("tunnels-reload", "reload every 500 ms: requests, tunnels", false, tunnels::run),
    load("moves", "reloads and upgrades under open connections: lost, moved", false, moves::run),
    load("shared-rate", "three servers, one limit: exact? what it costs", false, shared::run),
    load("shared-faults", "each fault of Redis and its network: what fails", false, shared::run),
    load("shared-purges", "purges while a server is cut off: what is stale", false, shared::run),
    load("shared-tables", "a write on one server: when all have it", false, shared::run),
    load("reuse", "how many connections requests take", false, backends::reuse),
    load("differential", "the same requests to both: what differs", false, differential::run),
    load(
        "differential-heads",
        "the same odd responses of an upstream to both: what differs",
        false,
        differential::run_heads,
    ),
    load(
        "differential-certificates",
        "the same chains to `openssl verify`: what is accepted",
        false,
        |options, _| {
            let Options { requests, seed, only, .. } = *options;
            chains::run(&chains::Options { requests, seed, only })
        },
    ),
    load("tls-foreign", "TLS by s_time, wrk and h2load, and our client", false, tls::foreign::run),
    load(
        "tls-interop",
        "1,000 handshakes each of curl, s_client, Go and Python",
        false,
        tls::interop::run,
    ),
    load("differential-config", "bad values to both: the same words", false, messages::run),
    load("h2spec", "h2spec's cases, in the clear and over TLS: what fails", false, h2::spec::run),
    load("mixed", "everything, clients that go, reloads: leaks, hangs", false, mixed::run),
    load("soak", "every protocol, full disks, lying names, kills; a report", false, soak::run),
    load("strain", "clients that drip, 1,200 half heads: who is served", false, strain::run),
    load("overload", "twice the clients that fit: goodput, status", false, overload::run),
    load("standstill", "a worker is stopped or spins: who waits", false, standstill::run),
    load("modules-off", "instructions that modules cost unused", false, modules_off::run),
    load("limit-req", "1 KB under limit_req, one key, two workers", true, throughput::run),
    load("limit-soak", "limit_req, ten million requests, workers killed", false, limit_soak::run),
    load("metered", "what counting costs: files, a backend, a cache", false, metered::run),
    load("signed", "what tokens of auth_jwt and look-ups of keyval cost", false, signed::run),
    load("js", "what scripts cost: each hook beside the same without", false, js::run),
    load("reported", "what logs in JSON and OTLP cost: a 1 KB file", false, reported::run),
    load("counts", "ten million requests, reloads, kills: what is counted", false, counts::run),
    load("mysql", "a blocking client library, on the loop and on threads", false, mysql::run),
    load("memory-short", "4,000 slow clients in 60 to 134 MB: who is served", false, memory::short),
    load("slow-readers", "80 slow readers of 50 MB passed on: memory", false, memory::readers),
    load("storm", "reload every 200 ms under load: what fails", false, storm::run),
    load("tls-storm", "the same over TLS: what fails, what is resumed", false, tls::storm::run),
    load("storm-upgrade", "the same with a binary upgrade half-way", false, storm::run),
];

const fn load(
    name: &'static str,
    help: &'static str,
    by_default: bool,
    run: fn(&Options, &str) -> Outcome,
) -> Load {
    Load { name, help, by_default, run }
}

/// Words for several loads.
const GROUPS: &[(&str, &[&str])] = &[
    ("h2", h2::LOADS),
    ("h3", h3::LOADS),
    ("stream", stream::LOADS),
    ("shared", &["shared-rate", "shared-faults", "shared-purges", "shared-tables"]),
];

fn main() -> ExitCode {
    let mut options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("{message}\n\n{}", options::USAGE);
            for load in LOADS {
                eprintln!("  {:<14} {}", load.name, load.help);
            }
            for (name, loads) in GROUPS {
                eprintln!("  {name:<14} {}", loads.join(", "));
            }
            return ExitCode::from(2);
        }
    };
    for (group, loads) in GROUPS {
        if options.loads.iter().any(|name| name == group) {
            options.loads.retain(|name| name != group);
            options.loads.extend(loads.iter().map(ToString::to_string));
        }
    }
    if let Some(unknown) = options.loads.iter().find(|n| !LOADS.iter().any(|l| l.name == **n)) {
        eprintln!("bench: no load is called {unknown:?}; --help lists them");
        return ExitCode::from(2);
    }
    if options.loads.iter().any(|name| disk::LOADS.contains(&name.as_str())) {
        // Before anything is printed. Where it is not allowed, the load reports it.
        let _ = disk::enter();
    }
    if let Err(message) = deploy::set_user(&options.user) {
        eprintln!("bench: {message}");
        return ExitCode::from(2);
    }
    proc::raise_descriptor_limit();
    report::machine(&options);
    let mut failed = false;
    for load in LOADS {
        let chosen = match options.loads.as_slice() {
            [] => load.by_default,
            names => names.iter().any(|n| n == load.name),
        };
        if chosen {
            println!("\n## {}: {}", load.name, load.help);
            if let Err(message) = (load.run)(&options, load.name) {
                println!("failed: {message}");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
