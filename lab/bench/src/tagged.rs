//! Numbered requests over shared upstream connections, many of them given up by their clients: no
//! answer may belong to another request.
//!
//! A client gives up before its request is whole, before the answer, or within it, by a close or a
//! reset. The server's treatment of the upstream connection then decides who gets the rest of the
//! answer.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::backends::{self, Answer, Backend, Seen, long_tag, message, one, tag};
use crate::options::Options;
use crate::server::{Kind, Server};
use crate::tiers::Tiers;
use crate::{Outcome, client};
use testkit::rng::Rng;

const CLIENTS: u64 = 32;
/// The limit of an answer.
const LIMIT: Duration = Duration::from_secs(60);
/// Requests of a hundred that are given up.
const GIVEN_UP: usize = 25;

#[derive(Default)]
struct Counts {
    ok: AtomicU64,
    given_up: AtomicU64,
    lost: AtomicU64,
    mixed: AtomicU64,
}

fn connect(port: u16) -> Outcome<(TcpStream, Vec<u8>)> {
    let stream = client::connect(port, LIMIT).map_err(|e| e.to_string())?;
    Ok((stream, Vec::new()))
}

/// Goes away in one of the ways in which clients do.
fn give_up(mut stream: TcpStream, request: &[u8], rng: &mut Rng) {
    let way = rng.below(4);
    let len = if way == 0 { 1 + rng.below(request.len() - 1) } else { request.len() };
    let _ = stream.write_all(&request[..len]);
    match way {
        // Within the answer.
        2 => {
            let _ = stream.read(&mut [0; 100]);
        }
        // While the backend thinks, most likely.
        3 => std::thread::sleep(Duration::from_micros(rng.below(3000) as u64)),
        _ => {}
    }
    if rng.percent(50) {
        // A reset instead of an end.
        let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
    }
}

/// Whether head and body are those of the answer to that number.
fn is_of(n: u64, head: &str, body: &[u8]) -> bool {
    // HTTP/2 has names in lower case.
    let of = |line: &str| -> Option<String> {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("x-number").then(|| value.to_owned())
    };
    head.lines().find_map(of) == Some(n.to_string()) && body == long_tag(n)
}

fn ask(port: u16, client: u64, requests: u64, seed: u64, counts: &Counts) -> Outcome {
    let mut rng = Rng::new(seed.wrapping_mul(1000).wrapping_add(client));
    let (mut stream, mut buf) = connect(port)?;
    for n in (client << 32)..(client << 32) + requests {
        let post = rng.percent(30);
        let mut text = if post {
            let len = tag(n).len();
            format!("POST /n{n} HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n").into_bytes()
        } else {
            format!("GET /n{n} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
        };
        if post {
            text.extend_from_slice(&tag(n));
        }
        if rng.percent(GIVEN_UP) {
            give_up(stream, &text, &mut rng);
            one(&counts.given_up);
            (stream, buf) = connect(port)?;
            continue;
        }
        let sent = stream.write_all(&text);
        match sent.ok().and_then(|()| message(&mut stream, &mut buf)) {
            Some((head, body)) if head.starts_with("HTTP/1.1 200") => {
                let good = is_of(n, &head, &body) && buf.is_empty();
                one(if good { &counts.ok } else { &counts.mixed });
            }
            _ => {
                one(&counts.lost);
                (stream, buf) = connect(port)?;
            }
        }
    }
    Ok(())
}

/// Runs the load.
pub fn run(options: &Options, _: &str) -> Outcome {
    println!("server  keepalive      answered  given up  lost  POST twice  mixed up  connections");
    let mut wrong = 0;
    for kind in options.servers.iter().copied().filter(|k| k.is_real()) {
        for keepalive in ["16", "16 shared", "HTTP/2"] {
            if kind == Kind::Nginx && keepalive != "16" {
                continue;
            }
            let seen = Arc::new(Seen { answer: Answer::LongTag, ..Seen::default() });
            let behind: Vec<Backend> =
                (0..3).map(|_| Backend::new(&seen)).collect::<Outcome<_>>()?;
            let (server, _between) = match keepalive {
                "HTTP/2" => {
                    let Tiers { outer, inner } = Tiers::start(options, kind, &behind, 1_000_000)?;
                    (outer, inner)
                }
                keepalive => {
                    let setup = backends::setup(&behind, 2, keepalive);
                    (Server::start(options, kind, &setup)?.0, Vec::new())
                }
            };
            let counts = Counts::default();
            let each = options.tagged_requests.div_ceil(CLIENTS);
            std::thread::scope(|scope| {
                let (port, counts) = (server.port, &counts);
                let clients: Vec<_> = (1..=CLIENTS)
                    .map(|n| scope.spawn(move || ask(port, n, each, options.seed, counts)))
                    .collect();
                let joined = clients.into_iter().map(|c| c.join().map_err(|_| "a client panicked"));
                joined.into_iter().try_for_each(|done| done?)
            })?;
            let of = |c: &AtomicU64| c.load(Ordering::Relaxed);
            let twice = backends::twice(&seen);
            println!(
                "{:<7} {keepalive:<12} {:>10} {:>9} {:>5} {twice:>11} {:>9} {:>12}",
                kind.name(),
                of(&counts.ok),
                of(&counts.given_up),
                of(&counts.lost),
                of(&counts.mixed),
                of(&seen.connections)
            );
            if server.alerts() > 0 {
                return Err(format!("{} alerts: {}", kind.name(), server.complaints()));
            }
            if kind != Kind::Nginx {
                wrong += twice + of(&counts.mixed) + of(&counts.lost);
            }
        }
    }
    if wrong > 0 { Err(format!("{wrong} answers mixed up, lost or repeated")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::{is_of, long_tag};

    #[test]
    fn an_answer_belongs_to_its_number() {
        let head = "HTTP/1.1 200 OK\r\nX-Number: 64\r\nContent-Length: 1\r\n\r\n";
        let body = long_tag(64);
        assert!(is_of(64, head, &body));
        assert!(!is_of(65, head, &long_tag(65)), "another's head");
        assert!(!is_of(64, head, &long_tag(65)), "another's body");
        assert!(!is_of(64, head, &body[..body.len() - 1]), "a part of it");
        let mixed = [&body[..100], &long_tag(128)[100..body.len()]].concat();
        assert!(!is_of(64, head, &mixed), "another's end");
    }
}
