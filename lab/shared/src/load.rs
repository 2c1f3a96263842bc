//! wrk against each server of a fleet at the same time, on CPU 1.

use std::process::{Child, Command, Stdio};

use rig::{Outcome, wrk};

const STATUSES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/wrk/statuses.lua");

/// The load on each server.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub connections: usize,
    pub seconds: u64,
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
    pub seconds: f64,
}

/// Runs a load, and waits for its end.
pub(crate) fn run(ports: &[u16], load: Load) -> Outcome<Counts> {
    let begin = |port: &u16| {
        Command::new("taskset")
            .args(["-c", "1", "wrk", "-t1", "--timeout", "10s", "-s", STATUSES])
            .args(["-c", &load.connections.to_string(), "-d", &format!("{}s", load.seconds)])
            .arg(format!("http://127.0.0.1:{port}/1k.txt"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start taskset and wrk: {e}"))
    };
    let running = ports.iter().map(begin).collect::<Outcome<Vec<Child>>>()?;
    let mut sum = Counts::default();
    for child in running {
        let output = child.wait_with_output().map_err(|e| format!("wrk: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (Some(result), Some([passed, refused, failed])) = (wrk::parse(&text), statuses(&text))
        else {
            return Err(format!("wrk gave no figures: {text}"));
        };
        let [connect, read, write, timeout, _] = result.errors;
        sum.requests += result.requests;
        sum.passed += passed;
        sum.refused += refused;
        sum.failed += failed;
        sum.broken += connect + read + write + timeout;
        sum.seconds = sum.seconds.max(result.duration_us as f64 / 1e6);
    }
    Ok(sum)
}

/// Reads the line of counts by status.
fn statuses(text: &str) -> Option<[u64; 3]> {
    let line = text.lines().find_map(|line| line.strip_prefix("STATUSES "))?;
    let numbers: Option<Vec<u64>> = line.split(' ').map(|n| n.parse().ok()).collect();
    numbers?.try_into().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn counts_by_status_are_read() {
        assert_eq!(super::statuses("Running\nSTATUSES 1 20 3\nRESULT"), Some([1, 20, 3]));
        assert_eq!(super::statuses("STATUSES 1 2"), None);
    }
}
