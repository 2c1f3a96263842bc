//! Memory and descriptors of Weir's processes while a load runs.

use std::time::Instant;

use crate::server::{self, Server};
use crate::{proc, report};

/// Memory in bytes, and descriptors, at a time.
#[derive(Clone, Copy, Default)]
pub struct Sample {
    /// Seconds from the beginning.
    pub at: f64,
    /// Workers, leaving ones as well.
    pub workers: usize,
    /// The workers' memory, all together.
    pub memory: proc::Memory,
    /// The workers' descriptors, all together.
    pub descriptors: usize,
    /// Those that sessions need, one over UDP and two over TCP; 0 where nobody asked for them.
    pub sessions_descriptors: u64,
    /// The master's memory.
    pub master: proc::Memory,
    /// The master's descriptors.
    pub master_descriptors: usize,
}

/// The workers' process ids.
pub fn workers(server: &Server) -> Vec<u32> {
    let master = server.pid();
    server.pids().into_iter().filter(|&pid| pid != master && proc::is_running(pid)).collect()
}

impl Sample {
    /// Takes one.
    pub fn take(server: &Server, began: Instant) -> Self {
        let (master, workers) = (server.pid(), workers(server));
        Self {
            at: began.elapsed().as_secs_f64(),
            workers: workers.len(),
            memory: proc::memory(&workers),
            descriptors: proc::descriptors(&workers),
            sessions_descriptors: 0,
            master: proc::memory(&[master]),
            master_descriptors: proc::descriptors(&[master]),
        }
    }

    /// Takes one, and counts the sessions of the zones `datagrams` and `connections`.
    pub fn take_with_sessions(server: &Server, began: Instant) -> Self {
        let text = server::get(server.port, "localhost", "/api/9/stream/server_zones");
        let text = text.unwrap_or_default();
        let zone = |name: &str| text.split(name).nth(1).map_or(0, first_processing);
        let sessions_descriptors = zone("\"datagrams\":") + 2 * zone("\"connections\":{");
        Self { sessions_descriptors, ..Self::take(server, began) }
    }

    /// Prints it, with what else is to be said, and a bar for the memory of a worker.
    pub fn print(&self, more: &str) {
        let mb = |bytes: u64| report::megabytes(bytes as f64);
        let mean = self.pss_mean();
        println!(
            "{:6.0} s: {} workers, RSS {} PSS {} MB, {} descriptors; master RSS {} MB, {} \
             descriptors; {more} {}",
            self.at,
            self.workers,
            mb(self.memory.rss),
            mb(self.memory.pss),
            self.descriptors,
            mb(self.master.rss),
            self.master_descriptors,
            "#".repeat((mean / f64::from(1 << 20)) as usize),
        );
    }

    /// The memory of a worker, bytes.
    pub fn pss_mean(&self) -> f64 {
        self.memory.pss as f64 / self.workers.max(1) as f64
    }
}

/// What the API tells of sessions under way, where there are none.
pub fn sessions_under_way(server: &Server) -> Option<String> {
    ["/api/9/stream/server_zones", "/api/9/stream/upstreams"].into_iter().find_map(|path| {
        match server::get(server.port, "localhost", path) {
            Ok(text) => (busy(&text) > 0).then(|| format!("{path} has sessions: {text}")),
            Err(e) => Some(format!("{path}: {e}")),
        }
    })
}

/// The sessions under way in an answer of the API, all together.
fn busy(text: &str) -> u64 {
    let after = |name: &str| text.split(name).skip(1).map(leading_number).sum::<u64>();
    after("\"processing\":") + after("\"active\":")
}

fn first_processing(text: &str) -> u64 {
    text.split("\"processing\":").nth(1).map_or(0, leading_number)
}

fn leading_number(text: &str) -> u64 {
    let digits = text.trim_start();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

/// The first and the last quarter of values behind a warm-up of a tenth of them, each by its
/// median; `None` where there are too few.
pub fn quarters(values: &[f64]) -> Option<(f64, f64)> {
    let warm = &values[values.len() / 10..];
    if warm.len() < 8 {
        return None;
    }
    let quarter = warm.len() / 4;
    let last = &warm[warm.len() - quarter..];
    Some((report::median(&warm[..quarter]), report::median(last)))
}

/// How much the greatest value of all is above the greatest up to the end of the first quarter.
pub fn more_at_most(values: &[f64]) -> f64 {
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    most(values) - most(&values[..values.len() * 3 / 10])
}

/// Prints smallest, median and last of a value, and says whether its last quarter is above its
/// first one by more than a share and a constant.
pub fn has_grown(name: &str, values: &[f64], unit: f64, share: f64, constant: f64) -> bool {
    let min = values.iter().copied().fold(f64::INFINITY, f64::min);
    let last = values.last().copied().unwrap_or(0.0);
    let (min, median, last) = (min / unit, report::median(values) / unit, last / unit);
    print!("{name}: smallest {min:.1}, median {median:.1}, last {last:.1}");
    let Some((from, to)) = quarters(values) else {
        println!(" (too short a run to compare quarters)");
        return false;
    };
    let grown = to > from * (1.0 + share) + constant;
    let verdict = if grown { "GROWN" } else { "flat" };
    println!("; first quarter {:.1}, last quarter {:.1}: {verdict}", from / unit, to / unit);
    grown
}

#[cfg(test)]
mod tests {
    use super::{busy, has_grown, quarters};

    #[test]
    fn quarters_leave_the_warm_up_out() {
        let mut values = vec![1.0; 4];
        values.extend(vec![10.0; 36]);
        assert_eq!(quarters(&values), Some((10.0, 10.0)));
        assert_eq!(quarters(&values[..5]), None);
    }

    #[test]
    fn sessions_under_way_are_added_up() {
        let text = r#"{"a":{"processing":2,"x":9},"b":{"processing": 0,"peers":[{"active":3}]}}"#;
        assert_eq!(busy(text), 5);
    }

    #[test]
    fn growth_is_seen() {
        let rising: Vec<f64> = (0..40).map(|n| 100.0 + f64::from(n)).collect();
        assert!(has_grown("rising", &rising, 1.0, 0.05, 1.0));
        assert!(!has_grown("flat", &vec![100.0; 40], 1.0, 0.05, 1.0));
    }
}
