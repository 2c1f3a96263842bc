//! The subjects of a measurement, which take turns: servers, and programs beside them.

use std::time::Duration;

use crate::helper::Helper;
use crate::options::Options;
use crate::report::{self, median, row};
use crate::server::{Kind, Server};
use crate::{Outcome, proc, wrk};

enum Running {
    Server(Server),
    Helper(Helper),
}

/// One subject with its figures, a value of each for each round.
pub struct Subject {
    name: &'static str,
    port: u16,
    running: Running,
    rate: Vec<f64>,
    cpu_us: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    longest: Vec<f64>,
    errors: u64,
}

impl Subject {
    fn new(name: &'static str, port: u16, running: Running) -> Self {
        let [rate, cpu_us, p50, p99, longest] = [const { Vec::new() }; 5];
        Self { name, port, running, rate, cpu_us, p50, p99, longest, errors: 0 }
    }

    /// A server at its usual port.
    pub fn server(server: Server) -> Self {
        let port = server.port;
        Self::server_at(server, port)
    }

    /// A server at another port of its own.
    pub fn server_at(server: Server, port: u16) -> Self {
        Self::new(server.kind.name(), port, Running::Server(server))
    }

    /// The same under another name, where a server stands there twice.
    pub fn called(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Another program.
    pub fn helper(name: &'static str, helper: Helper) -> Self {
        let port = helper.port;
        Self::helper_at(name, helper, port)
    }

    /// Another program at another port of its own.
    pub fn helper_at(name: &'static str, helper: Helper, port: u16) -> Self {
        Self::new(name, port, Running::Helper(helper))
    }

    /// Drops the figures of the rounds so far.
    pub fn forget(&mut self) {
        let Self { rate, cpu_us, p50, p99, longest, .. } = self;
        for figures in [rate, cpu_us, p50, p99, longest] {
            figures.clear();
        }
        self.errors = 0;
    }

    fn pids(&self) -> Vec<u32> {
        match &self.running {
            Running::Server(server) => server.pids(),
            Running::Helper(helper) => helper.pids(),
        }
    }
}

/// Gives each subject a load on its port for so many seconds, round after round; before that a
/// second each, so that all are warm.
pub fn measure(
    options: &Options,
    subjects: &mut [Subject],
    load: impl Fn(u16, u32) -> Outcome<wrk::Result>,
) -> Outcome {
    for subject in &*subjects {
        load(subject.port, 1)?;
    }
    for _ in 0..options.rounds {
        for subject in &mut *subjects {
            let pids = subject.pids();
            let before = proc::cpu_ns(&pids);
            let result = load(subject.port, options.seconds)?;
            let cpu_ns = proc::cpu_ns(&pids) - before;
            subject.rate.push(result.rate());
            subject.cpu_us.push(cpu_ns as f64 / 1000.0 / result.requests.max(1) as f64);
            subject.p50.push(result.p50_us as f64);
            subject.p99.push(result.p99_us as f64);
            subject.longest.push(result.longest_us as f64);
            subject.errors += result.failures();
            // Sockets of the round before settle.
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    Ok(())
}

/// The median of latencies; `-` if the client measured none.
fn measured(us: &[f64]) -> String {
    match median(us) {
        0.0 => "-".to_string(),
        us => format!("{us:.0}"),
    }
}

/// Prints the figures, and the ratios to nginx. `unit` is what was counted, in short.
pub fn print(subjects: &[Subject], unit: &str) {
    let (rate, cpu) = (format!("{unit}/s"), format!("CPU us/{unit}"));
    let mut rows = vec![row(["server", &rate, &cpu, "p50 us", "p99 us", "longest ms", "errors"])];
    for s in subjects {
        rows.push(row([
            s.name,
            &format!("{:.0}", median(&s.rate)),
            &format!("{:.2}", median(&s.cpu_us)),
            &measured(&s.p50),
            &measured(&s.p99),
            &report::longest(&s.longest),
            &s.errors.to_string(),
        ]));
    }
    report::table(&rows);
    print_ratios(subjects, unit, Kind::Nginx.name());
}

/// Prints the ratios to the subject of this name.
pub fn print_ratios(subjects: &[Subject], unit: &str, to: &str) {
    for s in subjects.iter().filter(|s| s.name != to) {
        print_ratio(subjects, unit, s.name, to);
    }
}

/// The CPU time of a subject's request in microseconds, the median of the rounds.
pub fn cpu_us(subjects: &[Subject], name: &str) -> Option<f64> {
    subjects.iter().find(|s| s.name == name).map(|s| median(&s.cpu_us))
}

/// Prints the ratios of one subject to another one.
pub fn print_ratio(subjects: &[Subject], unit: &str, of: &str, to: &str) {
    let named = |name: &str| subjects.iter().find(|s| s.name == name);
    if let (Some(s), Some(reference)) = (named(of), named(to)) {
        let p99 = match median(&reference.p99) > 0.0 {
            true => format!(", p99 {}", report::ratios(&s.p99, &reference.p99)),
            false => String::new(),
        };
        println!(
            "{} / {to}: CPU {}, {unit}/s {}{p99}",
            s.name,
            report::ratios(&s.cpu_us, &reference.cpu_us),
            report::ratios(&s.rate, &reference.rate),
        );
    }
}
