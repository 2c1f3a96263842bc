//! Several servers of Weir that share limits, a table and purges through a Redis of the system's
//! package: what sharing costs, how exact it is, and what faults of the engine and of the network
//! do to requests.

#![forbid(unsafe_code)]

mod engine;
mod faults;
mod load;
mod node;
mod open;
mod path;
mod purges;
mod rate;
mod tables;

use std::time::{Duration, Instant};

use rig::Outcome;
use rig::options::Options;

/// Runs a load of this name: `shared-rate`, `shared-faults`, `shared-purges` or `shared-tables`.
///
/// # Errors
/// A figure that is out of its bounds, or a program that is missing, as a sentence.
pub fn run(options: &Options, name: &str) -> Outcome {
    match name {
        "shared-rate" => rate::run(options),
        "shared-faults" => faults::run(options),
        "shared-purges" => purges::run(options),
        _ => tables::run(options),
    }
}

/// `interval=` of the servers, milliseconds.
const INTERVAL_MS: u64 = 100;

/// `timeout=` of the servers, milliseconds.
const TIMEOUT_MS: u64 = 1_000;

/// The rate of the shared limit, requests in a second, and its burst.
const RATE: f64 = 100.0;
const BURST: f64 = 10.0;

/// The servers of a fleet.
const NODES: usize = 3;

/// The longest wait for a state that has to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Looks every few milliseconds until something is so; the time that it took.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> Outcome<Duration> {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > PATIENCE {
            return Err(format!("not within {PATIENCE:?}: {what}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(began.elapsed())
}

fn pass(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Collects bounds that do not hold.
#[derive(Default)]
struct Bounds(Vec<String>);

impl Bounds {
    fn check(&mut self, holds: bool, what: String) {
        if !holds {
            self.0.push(what);
        }
    }

    fn end(self) -> Outcome {
        if self.0.is_empty() { Ok(()) } else { Err(self.0.join("; ")) }
    }
}
