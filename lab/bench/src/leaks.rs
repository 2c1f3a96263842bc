//! A million requests through each filter of bodies, and each module with state of a request: the
//! server's memory before and after.

use std::fs;

use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Server, Setup};
use crate::{Outcome, proc, wrk};

const CONFIG: &str = include_str!("../configs/leaks.conf");

const GZIP: Option<&str> = Some("Accept-Encoding: gzip");

/// The weight of a path's requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cost {
    /// Tens of thousands a second.
    Small,
    /// Some thousands: a tenth of the requests is sent.
    Large,
}

use Cost::{Large, Small};

/// A path for each, with a field of the request where it takes one.
const PATHS: &[(&str, Option<&str>, Cost)] = &[
    ("/gzip/1k.json", GZIP, Small),
    ("/gzip/page.html", GZIP, Small),
    ("/br/1k.json", Some("Accept-Encoding: br"), Large),
    ("/zstd/1k.json", Some("Accept-Encoding: zstd"), Small),
    ("/threads/page.html", GZIP, Small),
    ("/gunzip/1k.json", None, Small),
    ("/sub/1k.json?x=name", None, Small),
    ("/slice/1k.json", None, Large),
    ("/ssi/page.html", None, Small),
    ("/addition/1k.json", None, Small),
    ("/charset/1k.json", None, Small),
    ("/image/pixels.gif", None, Small),
    ("/flv/1k.json?start=10", None, Small),
    ("/mp4/film.mp4?start=0.5", None, Large),
    ("/ranges/1k.json", Some("Range: bytes=0-9,20-29,-5"), Small),
    ("/trailers/1k.json", None, Small),
    ("/auth/1k.json", None, Small),
    ("/mirror/1k.json", None, Small),
    ("/limited/1k.json", None, Small),
    ("/userid/1k.json", None, Small),
];

/// Growth of memory that is allowed over all requests of a path: pools that were never as full
/// before. The smallest piece that an allocator gives out is 16 bytes: one lost a request is more
/// than this even with 100,000 of them.
const SLACK: f64 = (1 << 20) as f64;

/// A white image of 4 by 4 pixels.
const GIF: &[u8] = b"GIF89a\x04\0\x04\0\x80\0\0\xff\xff\xff\0\0\0,\0\0\0\0\x04\0\x04\0\0\
    \x02\x04\x84\x8f\x09\x05\0;";

const PAGE: &str = "a<!--#set var=\"x\" value=\"1\" --><!--#if expr=\"$x = 1\" -->\
    <!--#include virtual=\"/1k.json\" --><!--#endif -->b<!--#echo var=\"x\" -->";

/// Sends each path its requests, and a quarter of that before.
pub fn run(options: &Options, _: &str) -> Outcome {
    let setup = Setup { template: CONFIG, ..Setup::default() };
    let mut rows = vec![row(["path", "requests", "RSS MB before", "after", "errors"])];
    let mut bad = Vec::new();
    let all = PATHS.iter().enumerate();
    for (_, &(path, header, cost)) in
        all.filter(|(n, _)| options.only.is_none_or(|only| only == *n))
    {
        let (server, _) = Server::start(options, Kind::Weir, &setup)?;
        for (name, bytes) in [
            ("page.html", PAGE.as_bytes().to_vec()),
            ("pixels.gif", GIF.to_vec()),
            ("film.mp4", film()),
        ] {
            fs::write(server.root().join(name), bytes).map_err(|e| format!("{name}: {e}"))?;
        }
        let count = options.leak_requests / if cost == Large { 10 } else { 1 };
        ask(&server, path, header, count / 4)?;
        let before = memory(&server);
        let (requests, errors) = ask(&server, path, header, count)?;
        let after = memory(&server);
        let columns = [
            path,
            &requests.to_string(),
            &report::megabytes(before),
            &report::megabytes(after),
            &errors.to_string(),
        ];
        println!("{}", columns.join("  "));
        rows.push(row(columns));
        if errors > 0 || after > before + SLACK || server.alerts() > 0 {
            bad.push(format!("{path} ({})", server.complaints().trim_end()));
        }
    }
    report::table(&rows);
    if bad.is_empty() { Ok(()) } else { Err(format!("memory grew, or answers failed: {bad:?}")) }
}

fn memory(server: &Server) -> f64 {
    proc::memory(&server.pids()).rss as f64
}

/// Sends requests until `count` were answered; returns the numbers of answers and failures.
fn ask(server: &Server, path: &str, header: Option<&str>, count: u64) -> Outcome<(u64, u64)> {
    let (mut requests, mut failures) = (0, 0);
    while requests < count {
        let load = wrk::Load {
            port: server.port,
            path,
            connections: 16,
            seconds: 5,
            pipeline: false,
            close: false,
            files: None,
        };
        let result = wrk::run_with(&load, header)?;
        if result.requests == 0 {
            return Err(format!("{path}: no answers: {}", server.complaints()));
        }
        requests += result.requests;
        failures += result.failures();
    }
    Ok((requests, failures))
}

/// A film of which the index is whole, as the fuzzer has it, and the pictures are zeros.
fn film() -> Vec<u8> {
    // The first four bytes are not the film's.
    let moov = &include_bytes!("../../fuzz/seeds/mp4_cut/film-0")[4..];
    let atom = |name: &[u8; 4], data: &[u8]| {
        [&(data.len() as u32 + 8).to_be_bytes()[..], name, data].concat()
    };
    let ftyp = atom(b"ftyp", b"isom\0\0\0\0isommp41");
    [ftyp, atom(b"moov", moov), atom(b"mdat", &vec![0; 1 << 20])].concat()
}
