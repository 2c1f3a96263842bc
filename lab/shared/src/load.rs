//! wrk against each server of a fleet at the same time, on CPU 1.

use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rig::{Outcome, wrk};

const STATUSES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/wrk/statuses.lua");

/// The load on each server.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub connections: usize,
    pub seconds: u64,
    /// The mean pause of a connection between two requests, milliseconds; 0 for none.
    pub pause_ms: u64,
}

/// The results of all servers together.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub requests: u64,
    /// Statuses below 400, below 500, and from 500 up.
    pub passed: u64,
    pub refused: u64,
    pub failed: u64,
    /// Connections that broke, and requests without an answer.
    pub broken: u64,
    /// The worst of the servers.
    pub p99_us: u64,
    pub seconds: f64,
}

/// A load that runs.
pub(crate) struct Running(Vec<Child>);

pub(crate) fn start(ports: &[u16], load: Load) -> Outcome<Running> {
    let one = |port: &u16| {
        Command::new("taskset")
            .args(["-c", "1", "wrk", "-t1", "--timeout", "10s", "-s", STATUSES])
            .args(["-c", &load.connections.to_string(), "-d", &format!("{}s", load.seconds)])
            .arg(format!("http://127.0.0.1:{port}/1k.txt"))
            .env("PAUSE_MS", load.pause_ms.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start taskset and wrk: {e}"))
    };
    Ok(Running(ports.iter().map(one).collect::<Outcome<_>>()?))
}

impl Running {
    /// Waits for the end.
    pub fn finish(self) -> Outcome<Counts> {
        let mut sum = Counts::default();
        for child in self.0 {
            let output = child.wait_with_output().map_err(|e| format!("wrk: {e}"))?;
            let text = String::from_utf8_lossy(&output.stdout);
            let (Some(result), Some([passed, refused, failed])) =
                (wrk::parse(&text), statuses(&text))
            else {
                return Err(format!("wrk gave no figures: {text}"));
            };
            let [connect, read, write, timeout, _] = result.errors;
            sum.requests += result.requests;
            sum.passed += passed;
            sum.refused += refused;
            sum.failed += failed;
            sum.broken += connect + read + write + timeout;
            sum.p99_us = sum.p99_us.max(result.p99_us);
            sum.seconds = sum.seconds.max(result.duration_us as f64 / 1e6);
        }
        Ok(sum)
    }
}

/// The length of a slice, seconds, and the time before its end at which the next one begins, so
/// that the load never stops, in milliseconds.
const SLICE_S: u64 = 2;
const OVERLAP_MS: u64 = 100;

/// Runs a load in slices, in a thread of its own. The latency is the median of the slices, so that
/// another program that has the processor for a moment changes little.
pub(crate) fn slices(ports: &[u16], load: Load) -> JoinHandle<Outcome<Counts>> {
    let step_ms = SLICE_S * 1000 - OVERLAP_MS;
    let (ports, count) = (ports.to_vec(), (load.seconds * 1000).div_ceil(step_ms).max(1));
    let slice = Load { seconds: SLICE_S, ..load };
    std::thread::spawn(move || {
        let (mut all, mut running) = (Vec::new(), start(&ports, slice)?);
        for _ in 1..count {
            std::thread::sleep(Duration::from_millis(step_ms));
            let next = start(&ports, slice)?;
            all.push(std::mem::replace(&mut running, next).finish()?);
        }
        all.push(running.finish()?);
        Ok(together(&all))
    })
}

/// The sums of slices, and their median latency.
fn together(slices: &[Counts]) -> Counts {
    let mut sum = Counts::default();
    for one in slices {
        sum.requests += one.requests;
        sum.passed += one.passed;
        sum.refused += one.refused;
        sum.failed += one.failed;
        sum.broken += one.broken;
        sum.seconds += one.seconds;
    }
    let mut latencies: Vec<_> = slices.iter().map(|one| one.p99_us).collect();
    latencies.sort_unstable();
    sum.p99_us = latencies.get(latencies.len() / 2).copied().unwrap_or(0);
    sum
}

pub(crate) fn run(ports: &[u16], load: Load) -> Outcome<Counts> {
    start(ports, load)?.finish()
}

/// Reads the line of counts by status.
fn statuses(text: &str) -> Option<[u64; 3]> {
    let line = text.lines().find_map(|line| line.strip_prefix("STATUSES "))?;
    let numbers: Option<Vec<u64>> = line.split(' ').map(|n| n.parse().ok()).collect();
    numbers?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::{Counts, together};

    #[test]
    fn slices_are_added_and_their_latencies_are_not() {
        let one = |requests, p99_us| Counts { requests, p99_us, ..Counts::default() };
        let sum = together(&[one(1, 900), one(2, 100), one(3, 200)]);
        assert_eq!((sum.requests, sum.p99_us), (6, 200));
    }

    #[test]
    fn counts_by_status_are_read() {
        assert_eq!(super::statuses("Running\nSTATUSES 1 20 3\nRESULT"), Some([1, 20, 3]));
        assert_eq!(super::statuses("STATUSES 1 2"), None);
    }
}
