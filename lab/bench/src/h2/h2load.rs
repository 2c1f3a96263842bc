//! The load over HTTP/2: `h2load` on CPU 1, with one thread.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::{Outcome, wrk};

/// The requests of a load.
#[derive(Clone, Copy)]
pub struct Load<'a> {
    /// The port on 127.0.0.1.
    pub port: u16,
    /// The path.
    pub path: &'a str,
    /// Paths: the one above, and its copies by [`copy_of`].
    pub copies: usize,
    /// Connections, and streams at once on each.
    pub connections: usize,
    pub streams: usize,
    /// Its duration.
    pub seconds: u32,
    /// Whether it goes over TLS.
    pub tls: bool,
    /// A file to be posted.
    pub body: Option<&'a Path>,
}

/// Runs it to its end. `folder` is for the list of latencies.
pub fn run(load: &Load<'_>, folder: &Path) -> Outcome<wrk::Result> {
    let log = folder.join("latencies.tsv");
    let _ = fs::remove_file(&log);
    let mut command = Command::new("taskset");
    command.args(["-c", "1", "h2load", "-t1", "-c", &load.connections.to_string()]);
    command.args(["-m", &load.streams.to_string(), "-D", &load.seconds.to_string()]);
    // No choice, so that all servers do the same work.
    command.args(["--tls13-ciphers=TLS_AES_256_GCM_SHA384", "--groups=X25519"]);
    command.args(["--ciphers=ECDHE-ECDSA-AES256-GCM-SHA384", "--npn-list=h2"]);
    command.arg(format!("--log-file={}", log.display()));
    if let Some(body) = load.body {
        command.arg("-d").arg(body);
    }
    let scheme = if load.tls { "https" } else { "http" };
    for n in 0..load.copies {
        command.arg(format!("{scheme}://127.0.0.1:{}{}", load.port, copy_of(load.path, n)));
    }
    let began = Instant::now();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| format!("cannot start taskset and h2load: {e}"))?;
    let took = began.elapsed();
    let text = String::from_utf8_lossy(&output.stdout);
    let latencies = fs::read_to_string(&log).unwrap_or_default();
    let parsed = parse(&text, &latencies, took.as_micros() as u64);
    let result = parsed.ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("h2load gave no figures (Debian: nghttp2-client): {text} {errors}")
    })?;
    if load.tls && !text.contains("TLS Protocol: TLSv1.3") {
        return Err(format!("not TLS 1.3: {text}"));
    }
    match result.requests {
        0 => Err(format!("no request was answered: {text}")),
        _ => Ok(result),
    }
}

/// The path of a copy of a file; that of number 0 is the file itself.
pub fn copy_of(path: &str, n: usize) -> String {
    match path.rsplit_once('.') {
        Some((stem, extension)) if n > 0 => format!("{stem}-{n}.{extension}"),
        _ => path.to_string(),
    }
}

/// The figures of its report, and of its list: start, status and microseconds of each request.
/// Statuses from 300 up count as errors.
fn parse(report: &str, list: &str, took_us: u64) -> Option<wrk::Result> {
    let line = |start: &str| report.lines().find_map(|l| l.strip_prefix(start));
    let count = |text: &str, of: &str| -> Option<u64> {
        let entry = text.split(',').find(|e| e.trim_end().ends_with(of))?;
        entry.split_whitespace().next()?.parse().ok()
    };
    let requests = line("requests: ")?;
    let codes = line("status codes: ")?;
    let bytes = line("traffic: ")?.split_once('(')?.1.split_once(')')?.0.parse().ok()?;
    let failed = count(requests, "failed")? + count(requests, "errored")?;
    let statuses = count(codes, "3xx")? + count(codes, "4xx")? + count(codes, "5xx")?;
    let mut latencies: Vec<u64> = Vec::new();
    for row in list.lines() {
        latencies.push(row.split('\t').nth(2)?.parse().ok()?);
    }
    latencies.sort_unstable();
    let quantile = |of: usize| {
        let at = latencies.len() * of / 100;
        latencies.get(at.min(latencies.len().saturating_sub(1))).copied().unwrap_or(0)
    };
    let mean_us = latencies.iter().sum::<u64>() / latencies.len().max(1) as u64;
    Some(wrk::Result {
        requests: count(requests, "succeeded")?,
        duration_us: took_us,
        bytes,
        errors: [0, failed, 0, count(requests, "timeout")?, statuses],
        p50_us: quantile(50),
        p99_us: quantile(99),
        mean_us,
        deviation_us: 0,
        longest_us: latencies.last().copied().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn reports_and_lists_are_read() {
        let report = "finished in 1.00s, 3.00 req/s, 9.00KB/s\n\
            requests: 9 total, 9 started, 8 done, 7 succeeded, 1 failed, 2 errored, 3 timeout\n\
            status codes: 7 2xx, 1 3xx, 2 4xx, 3 5xx\n\
            traffic: 12.00KB (12345) total, 1B (1) headers (space savings 9.00%), 1B (1) data\n";
        let list = "1\t200\t30\n2\t200\t10\n3\t200\t20\n";
        let result = parse(report, list, 1_000_000).unwrap();
        assert_eq!((result.requests, result.bytes), (7, 12_345));
        assert_eq!(result.errors, [0, 3, 0, 3, 6]);
        assert_eq!((result.p50_us, result.p99_us, result.mean_us), (20, 30, 20));
        assert_eq!(result.longest_us, 30);
        assert!(parse("requests: none", list, 1).is_none());
    }
}
