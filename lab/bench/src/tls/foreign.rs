//! TLS as other people's clients see it: `openssl s_time`, wrk and h2load, with our own client next
//! to them.
//!
//! Our client leaves servers no choice of version, key exchange and cipher. Other clients leave it
//! to the server, so these figures also contain what its defaults cost.

use std::process::{Command, Stdio};
use std::time::Instant;

use super::{Certificate, FILES, beside, handshakes, setup};
use crate::h2::{self, Scratch, h2load};
use crate::options::Options;
use crate::server::{Server, new_folder};
use crate::subject::{self, Subject};
use crate::{Outcome, wrk};

/// The clients of HTTP/1 and of bare handshakes.
enum Client {
    /// `openssl s_time`: one connection after the other, each with a request.
    STime { version: &'static str, resumes: bool },
    /// Our own: 16 threads, no request.
    Own { kind: &'static str },
    /// wrk with a connection for each request.
    Wrk,
}

/// What is measured: the client in words, the unit, and the client.
const ROWS: &[(&str, &str, Client)] = &[
    ("openssl s_time -new -tls1_3", "conn", Client::STime { version: "-tls1_3", resumes: false }),
    ("our own client, full handshakes, TLS 1.3", "handshake", Client::Own { kind: "full" }),
    ("openssl s_time -reuse -tls1_3", "conn", Client::STime { version: "-tls1_3", resumes: true }),
    ("our own client, resumed, TLS 1.3", "handshake", Client::Own { kind: "resumed" }),
    ("openssl s_time -new -tls1_2", "conn", Client::STime { version: "-tls1_2", resumes: false }),
    ("openssl s_time -reuse -tls1_2", "conn", Client::STime { version: "-tls1_2", resumes: true }),
    ("wrk -c16 with Connection: close", "req", Client::Wrk),
];

/// Streams of each of the connections of h2load.
const STREAMS: [usize; 2] = [1, 32];

/// Runs every client against every real server.
pub fn run(options: &Options, _: &str) -> Outcome {
    let certificate = Certificate::new(false)?;
    let mut subjects = Vec::new();
    for &kind in options.servers.iter().filter(|kind| kind.is_real()) {
        let (setup, port) = setup(&certificate, FILES, None)?;
        let (server, _) = Server::start(options, kind, &setup)?;
        subjects.push(Subject::server_at(server, port));
    }
    for (name, unit, client) in ROWS {
        println!("\n### {name}");
        subject::measure(options, &mut subjects, |port, seconds| match *client {
            Client::STime { version, resumes } => s_time(port, version, resumes, seconds),
            Client::Own { kind } => handshakes(&beside(options, "handshakes"), port, seconds, kind),
            Client::Wrk => wrk::run_over_tls(&wrk::Load {
                port,
                path: "/1k.txt",
                connections: 16,
                seconds,
                pipeline: false,
                close: true,
                files: None,
            }),
        })?;
        subject::print(&subjects, unit);
        subjects.iter_mut().for_each(Subject::forget);
    }
    drop(subjects);
    over_h2(options, &certificate)
}

/// 1 KB over HTTP/2 by h2load.
fn over_h2(options: &Options, certificate: &Certificate) -> Outcome {
    let mut subjects = Vec::new();
    for &kind in options.servers.iter().filter(|kind| kind.is_real()) {
        // Nothing is proxied, so the backend's port does not matter.
        let (setup, ports) = h2::setup(kind, certificate, 1)?;
        let (server, _) = Server::start(options, kind, &setup)?;
        subjects.push(Subject::server_at(server, ports.tls));
    }
    let scratch = Scratch(new_folder()?);
    for streams in STREAMS {
        println!("\n### h2load -c8 -m{streams}");
        subject::measure(options, &mut subjects, |port, seconds| {
            let (path, copies, connections, tls, body) = ("/1k.txt", 1, 8, true, None);
            let load =
                h2load::Load { port, path, copies, connections, streams, seconds, tls, body };
            h2load::run(&load, &scratch.0)
        })?;
        subject::print(&subjects, "req");
        subjects.iter_mut().for_each(Subject::forget);
    }
    Ok(())
}

/// Connections of `openssl s_time`. One of another kind than the wanted one is an error of status.
fn s_time(port: u16, version: &str, resumes: bool, seconds: u32) -> Outcome<wrk::Result> {
    let mut command = Command::new("taskset");
    command.args(["-c", "1", "openssl", "s_time", "-www", "/1k.txt", version]);
    command.arg(if resumes { "-reuse" } else { "-new" });
    command.args(["-connect", &format!("127.0.0.1:{port}"), "-time", &seconds.to_string()]);
    let began = Instant::now();
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("openssl: {e}"))?;
    let took_us = began.elapsed().as_micros() as u64;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text, resumes, took_us).ok_or_else(|| {
        format!("s_time gave no figures: {text}{}", String::from_utf8_lossy(&output.stderr))
    })
}

/// The figures of its report: `1234 connections in 3 real seconds`, after a line with one letter
/// per connection, `r` if it was resumed. It measures no latencies.
fn parse(report: &str, resumes: bool, took_us: u64) -> Option<wrk::Result> {
    let count = report.lines().find(|line| line.contains(" real seconds"))?;
    let requests: u64 = count.split_whitespace().next()?.parse().ok()?;
    let letters = report.lines().max_by_key(|line| line.len() * usize::from(is_letters(line)))?;
    let resumed = letters.bytes().filter(|letter| *letter == b'r').count() as u64;
    let wanted = if resumes { resumed } else { requests.saturating_sub(resumed) };
    let other = requests.saturating_sub(wanted);
    let errors = [0, 0, 0, 0, other];
    Some(wrk::Result { requests, duration_us: took_us, errors, ..wrk::Result::default() })
}

/// Whether a line has a letter for each connection.
fn is_letters(line: &str) -> bool {
    !line.contains(' ')
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn connections_of_the_wrong_kind_are_errors() {
        let report = "Collecting connection statistics for 1 seconds\n**r*\n\n\
            4 connections in 0.01s; 400.00 connections/user sec, bytes read 5\n\
            4 connections in 2 real seconds, 1 bytes read per connection\n";
        let new = parse(report, false, 2_000_000).unwrap();
        assert_eq!((new.requests, new.errors, new.rate()), (4, [0, 0, 0, 0, 1], 2.0));
        assert_eq!(parse(report, true, 1).unwrap().errors, [0, 0, 0, 0, 3]);
        assert!(parse("no figures", true, 1).is_none());
    }
}
