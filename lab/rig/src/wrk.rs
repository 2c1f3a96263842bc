//! The load: `wrk` on CPU 1, with one thread.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Outcome;

const REPORT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/wrk/report.lua");
const PIPELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/wrk/pipeline.lua");
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/wrk/files.lua");
const TOKENS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/wrk/tokens.lua");

/// The requests of a load.
pub struct Load<'a> {
    /// The port on 127.0.0.1.
    pub port: u16,
    /// The path.
    pub path: &'a str,
    /// Connections.
    pub connections: usize,
    /// Its duration.
    pub seconds: u32,
    /// Sixteen requests at once on each connection.
    pub pipeline: bool,
    /// A connection for each request.
    pub close: bool,
    /// `path` is a folder with this number of files, named by numbers from 1, requested at random.
    pub files: Option<usize>,
}

/// Its results.
#[derive(Clone, Copy, Default)]
pub struct Result {
    /// Answered requests.
    pub requests: u64,
    /// Its real duration.
    pub duration_us: u64,
    /// Bytes received, those of unfinished answers included.
    pub bytes: u64,
    /// Failures to connect, read and write, timeouts, and statuses from 400 up.
    pub errors: [u64; 5],
    /// Median latency.
    pub p50_us: u64,
    /// The latency that one in a hundred exceeds.
    pub p99_us: u64,
    /// Mean latency.
    pub mean_us: u64,
    /// Its standard deviation.
    pub deviation_us: u64,
    /// The longest latency; 0 if the client measured none.
    pub longest_us: u64,
}

impl Result {
    /// Answered requests in a second.
    pub fn rate(&self) -> f64 {
        self.requests as f64 * 1e6 / self.duration_us.max(1) as f64
    }

    /// All failures.
    pub fn failures(&self) -> u64 {
        self.errors.iter().sum()
    }
}

/// Starts it; `finish` waits for its end.
pub fn start(load: &Load<'_>) -> Outcome<Child> {
    start_with(load, None, "http")
}

/// The same with a field that each request has besides, under that scheme.
fn start_with(load: &Load<'_>, header: Option<&str>, scheme: &str) -> Outcome<Child> {
    let script = match (load.files, load.pipeline) {
        (Some(_), _) => FILES,
        (None, true) => PIPELINE,
        (None, false) => REPORT,
    };
    let mut command = command(load, script);
    if let Some(header) = header {
        command.args(["-H", header]);
    }
    spawn(command, load, scheme)
}

/// The command without an address.
fn command(load: &Load<'_>, script: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", "1", "wrk", "-t1", "--timeout"]);
    // A slow disk delays the clients of its files, and that is no error.
    command.arg(if load.files.is_some() { "120s" } else { "10s" });
    command.args(["-c", &load.connections.to_string(), "-d", &format!("{}s", load.seconds)]);
    command.args(["-s", script]).env("FILES", load.files.unwrap_or(1).to_string());
    if load.close {
        command.args(["-H", "Connection: close"]);
    }
    command
}

fn spawn(mut command: Command, load: &Load<'_>, scheme: &str) -> Outcome<Child> {
    command.arg(format!("{scheme}://127.0.0.1:{}{}", load.port, load.path));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start taskset and wrk: {e}"))
}

/// Waits for the end and reads the figures.
pub fn finish(child: Child) -> Outcome<Result> {
    let output = child.wait_with_output().map_err(|e| format!("wrk: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text).ok_or_else(|| {
        format!("wrk gave no figures: {text} {}", String::from_utf8_lossy(&output.stderr))
    })
}

/// Runs it to its end.
pub fn run(load: &Load<'_>) -> Outcome<Result> {
    finish(start(load)?)
}

/// The same with a field that each request has besides.
pub fn run_with(load: &Load<'_>, header: Option<&str>) -> Outcome<Result> {
    finish(start_with(load, header, "http")?)
}

/// Runs it with the bearer tokens of a file, a token a line, one after the other.
pub fn run_with_tokens(load: &Load<'_>, file: &Path) -> Outcome<Result> {
    let mut command = command(load, TOKENS);
    command.env("TOKENS", file);
    finish(spawn(command, load, "http")?)
}

/// Starts it over TLS; it takes every certificate.
pub fn start_over_tls(load: &Load<'_>) -> Outcome<Child> {
    start_with(load, None, "https")
}

/// Runs it over TLS to its end.
pub fn run_over_tls(load: &Load<'_>) -> Outcome<Result> {
    finish(start_over_tls(load)?)
}

/// Reads a line of figures.
pub fn parse(text: &str) -> Option<Result> {
    let line = text.lines().find_map(|l| l.strip_prefix("RESULT "))?;
    let n: Vec<u64> =
        line.split(' ').map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
    let [
        requests,
        duration_us,
        bytes,
        counts @ ..,
        p50_us,
        p99_us,
        mean_us,
        deviation_us,
        longest_us,
    ] = n.as_slice()
    else {
        return None;
    };
    let &[connect, read, write, status, timeout] = counts else { return None };
    Some(Result {
        requests: *requests,
        duration_us: *duration_us,
        bytes: *bytes,
        errors: [connect, read, write, timeout, status],
        p50_us: *p50_us,
        p99_us: *p99_us,
        mean_us: *mean_us,
        deviation_us: *deviation_us,
        longest_us: *longest_us,
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_line_of_figures_is_read() {
        let text = "Running 1s test\nRESULT 100 2000000 5 1 2 3 4 5 60 70 65 8 90\nx";
        let result = parse(text).unwrap();
        assert_eq!((result.requests, result.p50_us, result.p99_us), (100, 60, 70));
        assert_eq!((result.mean_us, result.deviation_us, result.longest_us), (65, 8, 90));
        assert_eq!(result.errors, [1, 2, 3, 5, 4]);
        assert_eq!(result.rate(), 50.0);
        assert!(parse("RESULT 1 2").is_none());
    }
}
