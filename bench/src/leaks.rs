//! Many requests through each filter of bodies: what the worker's memory is before and after.

use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Server, Setup};
use crate::{Outcome, proc, wrk};

const CONFIG: &str = include_str!("../configs/leaks.conf");

/// A path for each filter, with the coding that is asked for.
const PATHS: &[(&str, Option<&'static str>)] = &[
    ("/gzip/1k.json", Some("Accept-Encoding: gzip")),
    ("/br/1k.json", Some("Accept-Encoding: br")),
    ("/zstd/1k.json", Some("Accept-Encoding: zstd")),
    ("/threads/text.html", Some("Accept-Encoding: gzip")),
    ("/gunzip/1k.json", None),
    ("/sub/1k.json?x=name", None),
    ("/slice/1k.json", None),
    ("/ssi/1k.json", None),
    ("/flv/1k.json?start=10", None),
];

/// Runs each filter for `--rounds` times `--seconds`; a quarter of that before, to fill pools.
pub fn run(options: &Options, _: &str) -> Outcome {
    let setup = Setup { template: CONFIG, ..Setup::default() };
    let mut rows = vec![row(["path", "requests", "RSS MB before", "after", "errors"])];
    for &(path, header) in PATHS {
        let (server, _) = Server::start(options, Kind::Weir, &setup)?;
        let load = |seconds| wrk::Load {
            port: server.port,
            path,
            connections: 16,
            seconds,
            pipeline: false,
            close: false,
            files: None,
        };
        let seconds = options.seconds * options.rounds as u32;
        wrk::run_with(&load((seconds / 4).max(1)), header)?;
        let before = proc::memory(&server.pids()).rss as f64;
        let result = wrk::run_with(&load(seconds), header)?;
        let after = proc::memory(&server.pids()).rss as f64;
        rows.push(row([
            path,
            &result.requests.to_string(),
            &report::megabytes(before),
            &report::megabytes(after),
            &result.failures().to_string(),
        ]));
    }
    report::table(&rows);
    Ok(())
}
