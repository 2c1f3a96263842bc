//! `shared-purges`: purges on one of three servers while another one is cut off. After its return,
//! no response that was purged may come from its cache.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rig::Outcome;
use rig::options::Options;

use crate::engine::Engine;
use crate::node::{self, Node};
use crate::path::{Relay, Way};
use crate::{Bounds, INTERVAL_MS, NODES, pass, wait_until};

/// Paths of each kind: purged by key, by prefix, and by tag.
const PATHS: usize = 200;
const KINDS: [&str; 3] = ["key", "prefix", "tag"];

/// Purges that are more than the engine keeps.
const OVERRUN: usize = 10_100;

/// A server behind the caches, whose responses have a version.
struct Origin {
    port: u16,
    version: Arc<AtomicU64>,
}

impl Origin {
    fn start() -> Outcome<Origin> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        let version = Arc::new(AtomicU64::new(1));
        let of_thread = version.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let version = of_thread.load(Ordering::SeqCst);
                std::thread::spawn(move || drop(answer(client, version)));
            }
        });
        Ok(Origin { port, version })
    }
}

fn answer(mut client: TcpStream, version: u64) -> std::io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    // `/cached/tag/N` has the tag `tag`.
    let tag = if head.windows(12).any(|text| text == b"/cached/tag/") { "tag" } else { "other" };
    let body = version.to_string();
    let response = format!(
        "HTTP/1.1 200 OK\r\nCache-Tag: {tag}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n\
         {body}",
        body.len()
    );
    client.write_all(response.as_bytes())
}

/// Sends a purge; the status.
fn purge(node: &Node, path: &str, fields: &str) -> Outcome<u16> {
    let request = || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, node.port()))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let request =
            format!("PURGE {path} HTTP/1.1\r\nHost: x\r\n{fields}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0))
    };
    request().map_err(|e: std::io::Error| format!("PURGE {path}: {e}"))
}

/// The versions that a server gives for all paths.
fn versions(node: &Node) -> Outcome<Vec<u64>> {
    let paths =
        KINDS.iter().flat_map(|kind| (0..PATHS).map(move |n| format!("/cached/{kind}/{n}")));
    paths.map(|path| node.get(&path)?.parse().map_err(|_| format!("{path}: no version"))).collect()
}

pub(crate) fn run(options: &Options) -> Outcome {
    let (engine, origin) = (Engine::start()?, Origin::start()?);
    let relays =
        [Relay::start(engine.port)?, Relay::start(engine.port)?, Relay::start(engine.port)?];
    let nodes = node::fleet(options, Some(relays.each_ref().map(|relay| relay.port)), origin.port)?;
    let (first, last, cut) = (&nodes[0], &nodes[NODES - 1], &relays[NODES - 1]);
    let mut bounds = Bounds::default();
    // A response is cached at the second look, when its file has its place.
    for node in &nodes {
        versions(node)?;
        versions(node)?;
    }
    cut.set(Way::Silent);
    wait_until("one is cut off", || last.is("away"))?;
    origin.version.store(2, Ordering::SeqCst);
    let keys = (0..PATHS).map(|n| (format!("/cached/key/{n}"), ""));
    let others = [("/cached/prefix/*", ""), ("/cached/", "Cache-Tag: tag\r\n")];
    for (path, fields) in keys.chain(others.map(|(path, fields)| (path.to_owned(), fields))) {
        let status = purge(first, &path, fields)?;
        bounds.check(status < 300, format!("PURGE {path}: status {status}"));
    }
    pass(options.seconds_or(60) * 1000);
    let stale = |node: &Node, now| -> Outcome<usize> {
        Ok(versions(node)?.into_iter().filter(|version| *version != now).count())
    };
    let before = stale(last, 2)?;
    cut.set(Way::Open);
    let back = wait_until("it is back", || last.is("joined"))?;
    pass(2 * INTERVAL_MS);
    let mut after = Vec::new();
    for node in &nodes {
        after.push(stale(node, 2)?);
    }
    println!(
        "{} paths purged by key, prefix and tag; cut off for {} s: {before} stale there meanwhile, \
         back after {} ms, then stale on each server: {after:?}",
        PATHS * KINDS.len(),
        options.seconds_or(60),
        back.as_millis(),
    );
    bounds.check(before == PATHS * KINDS.len(), "the cut had no effect".to_owned());
    bounds.check(after.iter().all(|n| *n == 0), format!("stale: {after:?}"));
    overrun(&mut bounds, &origin, (first, last), cut)?;
    bounds.end()
}

/// More purges than the engine keeps, of keys that nobody has: the whole cache is purged, and the
/// log says so.
fn overrun(
    bounds: &mut Bounds,
    origin: &Origin,
    (first, last): (&Node, &Node),
    cut: &Relay,
) -> Outcome {
    cut.set(Way::Silent);
    wait_until("one is cut off", || last.is("away"))?;
    origin.version.store(3, Ordering::SeqCst);
    for n in 0..OVERRUN {
        purge(first, &format!("/cached/nothing/{n}"), "")?;
    }
    wait_until("all are sent", || first.number("sent").is_some_and(|n| n as usize >= OVERRUN))?;
    pass(2 * INTERVAL_MS);
    cut.set(Way::Open);
    wait_until("it is back", || last.is("joined"))?;
    pass(2 * INTERVAL_MS);
    let stale = versions(last)?.into_iter().filter(|version| *version != 3).count();
    let lines = last.lines().iter().filter(|line| line.contains("were missed")).count();
    println!("{OVERRUN} purges while it was cut off: {stale} stale, {lines} line says so");
    bounds.check((stale, lines) == (0, 1), format!("overrun: {stale} stale, {lines} lines"));
    Ok(())
}
