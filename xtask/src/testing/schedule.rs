//! The order in which test programs run: those that wait for one another's processors side by
//! side, then those that look at their own memory, and last those that measure the machine, one by
//! one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::options::Options;
use super::output::Outcome;
use super::program::Program;

/// Programs that look at their own memory once they have been idle for a while: a busy machine
/// would disturb them, but they do not disturb one another.
const IDLE: &[&str] = &[
    "weir-event/heap",
    "weir-event/memory",
    "weir-http-modules/idle_memory",
    "weir-stream-modules/idle_memory",
];

/// Programs, by target, that measure the server's memory, descriptors or share of the processors,
/// bring the machine to its limits, or compile a server: nothing runs beside them.
const ALONE: &[&str] = &[
    "built",
    "fairness",
    "fd_set",
    "memory",
    "control_groups",
    "overload",
    "pool_threads",
    "short",
    "spinning",
    "starved",
    "watchdog",
];

/// The packages with end-to-end tests. Their programs take longest, so they begin first.
const LONGEST: &[&str] = &["weir/", "weir-kube-render/", "weir-script/"];

/// Runs all programs and returns their outcomes in the same order. `ended` is called for each as
/// soon as it has ended.
pub fn run(
    programs: &[&Program],
    options: &Options,
    ended: impl Fn(&Program, &Outcome) + Sync,
) -> Vec<Outcome> {
    let outcomes: Vec<Mutex<Outcome>> = programs.iter().map(|_| Mutex::default()).collect();
    let run_one = |index: usize, threads: usize| {
        let (program, began) = (programs[index], Instant::now());
        let outcome = program.run(&[], threads);
        let failed = match outcome.failed.len() {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let seconds = began.elapsed().as_secs_f64();
        println!("{}: {} passed{failed} ({seconds:.1} s)", program.name, outcome.passed);
        ended(program, &outcome);
        // Only a panic of another thread leaves it poisoned, and that one ends us all.
        *outcomes[index].lock().unwrap_or_else(|e| e.into_inner()) = outcome;
    };
    let all = |indices: Vec<usize>, jobs: usize| {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    while let Some(&index) = indices.get(next.fetch_add(1, Ordering::Relaxed)) {
                        run_one(index, options.threads);
                    }
                });
            }
        });
    };
    let (idle, others): (Vec<usize>, Vec<usize>) =
        (0..programs.len()).partition(|&index| IDLE.contains(&programs[index].name.as_str()));
    let (alone, beside): (Vec<usize>, Vec<usize>) =
        others.into_iter().partition(|&index| is_alone(&programs[index].name));
    all(longest_first(programs, beside), options.jobs);
    let each = idle.len();
    all(idle, each);
    all(alone, 1);
    outcomes.into_iter().map(|o| o.into_inner().unwrap_or_else(|e| e.into_inner())).collect()
}

fn is_alone(program: &str) -> bool {
    program.split('/').nth(1).is_some_and(|target| ALONE.contains(&target))
}

fn longest_first(programs: &[&Program], mut indices: Vec<usize>) -> Vec<usize> {
    let is_longest = |index: usize| LONGEST.iter().any(|of| programs[index].name.starts_with(of));
    indices.sort_by_key(|&index| !is_longest(index));
    indices
}

#[cfg(test)]
mod tests {
    use super::is_alone;

    #[test]
    fn programs_that_measure_run_alone() {
        assert!(is_alone("weir/control_groups") && is_alone("weir-event/fd_set"));
        assert!(!is_alone("weir/http") && !is_alone("weir-mem/weir_mem") && !is_alone("memory"));
    }
}
