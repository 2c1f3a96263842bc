//! Memory and descriptors of the server's processes over time, by what they are.

use std::time::Instant;

use crate::proc;
use crate::server::Server;

/// The processes of one kind, all together.
#[derive(Clone, Copy, Default)]
pub struct Kind {
    pub processes: usize,
    pub pss: u64,
    pub private_dirty: u64,
    /// As [`proc::own_memory`] says.
    pub own: u64,
    pub descriptors: usize,
}

impl Kind {
    /// The own memory of a process on the average, MB. Those that just ended have none.
    pub fn each_mb(&self) -> Option<f64> {
        let mb = self.own as f64 / f64::from(1 << 20);
        (self.own > 0).then_some(mb / self.processes as f64)
    }
}

/// The state at a time.
#[derive(Clone, Copy, Default)]
pub struct Sample {
    /// Seconds from the beginning.
    pub at: f64,
    pub master: Kind,
    pub workers: Kind,
    pub helpers: Kind,
    /// Right answers so far.
    pub right: u64,
}

/// Whether a process is a helper: not the master, not a worker.
pub fn is_helper(pid: u32) -> bool {
    let title = proc::title(pid);
    title.contains("cache") || title.contains("acme")
}

/// The server's processes but for the master: workers and helpers.
pub fn children(server: &Server) -> (Vec<u32>, Vec<u32>) {
    let master = server.pid();
    let all = server.pids().into_iter().filter(|&pid| pid != master && proc::is_running(pid));
    all.partition(|&pid| !is_helper(pid))
}

fn kind(pids: &[u32]) -> Kind {
    let memory = proc::memory(pids);
    Kind {
        processes: pids.len(),
        pss: memory.pss,
        private_dirty: memory.private_dirty,
        own: proc::own_memory(pids),
        descriptors: proc::descriptors(pids),
    }
}

impl Sample {
    pub fn take(server: &Server, began: Instant, right: u64) -> Self {
        let (workers, helpers) = children(server);
        Self {
            at: began.elapsed().as_secs_f64(),
            master: kind(&[server.pid()]),
            workers: kind(&workers),
            helpers: kind(&helpers),
            right,
        }
    }

    pub fn kinds(&self) -> [(&'static str, Kind); 3] {
        [("master", self.master), ("workers", self.workers), ("helpers", self.helpers)]
    }

    /// The heads of [`Sample::line`].
    pub fn heads() -> String {
        let mut out = "seconds\tright".to_string();
        for kind in ["master", "workers", "helpers"] {
            for what in ["processes", "pss_kb", "private_dirty_kb", "own_kb", "descriptors"] {
                out.push_str(&format!("\t{kind}_{what}"));
            }
        }
        out
    }

    /// All of it with tabs between.
    pub fn line(&self) -> String {
        let mut out = format!("{:.0}\t{}", self.at, self.right);
        for (_, kind) in self.kinds() {
            let [pss, dirty, own] = [kind.pss, kind.private_dirty, kind.own].map(|n| n >> 10);
            out.push_str(&format!(
                "\t{}\t{pss}\t{dirty}\t{own}\t{}",
                kind.processes, kind.descriptors
            ));
        }
        out
    }

    /// A short line for the output.
    pub fn text(&self) -> String {
        let mb = |bytes: u64| crate::report::megabytes(bytes as f64);
        let part = |(name, k): (&str, Kind)| {
            let (pss, dirty) = (mb(k.pss), mb(k.private_dirty));
            format!("{} {name} PSS {pss} dirty {dirty} MB {} fds", k.processes, k.descriptors)
        };
        format!("{:.0} s: {}; {} right", self.at, self.kinds().map(part).join("; "), self.right)
    }
}

/// A straight line through points, by least squares: its value at 0, and its slope.
pub fn fit(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let n = points.len() as f64;
    if points.len() < 3 {
        return None;
    }
    let (sx, sy) = points.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0, y + p.1));
    let (mx, my) = (sx / n, sy / n);
    let sxy: f64 = points.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    let sxx: f64 = points.iter().map(|p| (p.0 - mx) * (p.0 - mx)).sum();
    if sxx == 0.0 {
        return None;
    }
    let slope = sxy / sxx;
    Some((my - slope * mx, slope))
}

#[cfg(test)]
mod tests {
    use super::fit;

    #[test]
    fn lines_are_fitted() {
        let (at, slope) = fit(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]).unwrap();
        assert!((at - 1.0).abs() < 1e-9 && (slope - 2.0).abs() < 1e-9);
        assert!(fit(&[(1.0, 1.0), (1.0, 3.0), (1.0, 5.0)]).is_none());
    }
}
