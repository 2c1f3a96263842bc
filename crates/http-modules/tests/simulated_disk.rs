//! Work on disks under simulation: threads that take long, pools that refuse, disks that fail,
//! clients that leave or fall silent, and a worker that leaves, is replaced or is stopped while
//! tasks are under way. Every seed is a scenario of its own.
//!
//! Whatever happens, files are whole or as they were, each answer is the right one or is cut off,
//! each has its line in the log, and nothing is left: no connection, task, temporary file or
//! descriptor.

#![allow(clippy::unwrap_used, clippy::panic)]

mod scenario;
mod simulation;

use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use event::sim::{self, Faults, Plan};
use scenario::{Ending, Place, Scenario, World};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// The memory that the test's own reports may take, in bytes: less than one request.
const SLACK: usize = 2_000;

fn live() -> usize {
    let s = ALLOCATOR.stats();
    s.bytes_allocated - s.bytes_deallocated
}

/// Waits until nothing is left. Threads that end late keep memory and descriptors for a moment:
/// those that write the last lines of the log, and those that answer for a file system. The limit
/// only ends a test that would hang.
fn soon(mut left: impl FnMut() -> usize) -> usize {
    for _ in 0..30_000 {
        if left() == 0 {
            return 0;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    left()
}

/// One scenario at a time: descriptors and memory are counted.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Runs scenarios of some seeds from `first` on, on drivers that report readiness and on those that
/// complete. `WEIR_SCENARIOS` tells of how many, where more are wanted.
fn run(name: &'static str, first: u64, faults: Faults, world: World) {
    let _alone = alone();
    let count = std::env::var("WEIR_SCENARIOS").ok().and_then(|n| n.parse().ok()).unwrap_or(8);
    for seed in first..first + count {
        let plan = Plan::new(seed, faults);
        one(name, plan, world);
        one(name, plan.completing(), world);
    }
    // The process has made its permanent objects by now.
    let plan = Plan::new(first, faults);
    let before = live();
    for _ in 0..3 {
        one(name, plan, world);
    }
    let more = soon(|| live().saturating_sub(before) / SLACK);
    assert_eq!(more, 0, "times {SLACK} bytes are left of three scenarios, {plan:?} {world:?}");
}

/// Plays a scenario on a thread of its own, with which all goes that threads keep.
fn one(name: &'static str, plan: Plan, world: World) {
    let Some(place) = Place::prepare(name, world.failing > 0) else { return };
    let place = Arc::new(place);
    let before = descriptors();
    let of_player = place.clone();
    let player = std::thread::spawn(move || {
        let scenario = Rc::new(Scenario::new(&of_player, plan.seed, world));
        sim::run(plan, scenario::play(scenario.clone())).map_err(|e| e.to_string())?;
        // The loop has gone with all that was left on it.
        scenario.check_disk()
    });
    let played = player.join().unwrap_or_else(|_| Err("a panic".to_owned()));
    played.unwrap_or_else(|e| panic!("{plan:?} {world:?}: {e}"));
    let left = soon(|| descriptors().saturating_sub(before));
    assert_eq!(left, 0, "descriptors are left, {plan:?} {world:?}");
}

const CALM: World = World { steady: true, refusing: false, failing: 0, ending: Ending::Idle };

#[test]
fn slow_disks_change_nothing_but_times() {
    run("slow", 0, Faults::STALLING, CALM);
}

#[test]
fn clients_that_leave_and_connections_that_break_leave_nothing() {
    let faults = Faults { reset: 4, ..Faults::STALLING };
    run("leaving", 10_000, faults, World { steady: false, ..CALM });
}

#[test]
fn a_pool_that_refuses_fails_one_request_alone() {
    let faults = Faults { refused: 100, ..Faults::STALLING };
    run("refusing", 20_000, faults, World { refusing: true, ..CALM });
}

#[test]
fn a_worker_that_leaves_ends_what_it_has_begun() {
    run("quitting", 30_000, Faults::STALLING, World { ending: Ending::Quit, ..CALM });
    let faults = Faults { reset: 4, refused: 20, ..Faults::STALLING };
    let world = World { steady: false, refusing: true, ending: Ending::Quit, ..CALM };
    run("quitting-broken", 35_000, faults, world);
}

#[test]
fn a_configuration_that_is_replaced_ends_what_it_has_begun() {
    run("replaced", 40_000, Faults::STALLING, World { ending: Ending::Replace, ..CALM });
}

#[test]
fn a_worker_that_is_stopped_leaves_no_half_of_a_file() {
    let world = World { steady: false, ending: Ending::Stop, ..CALM };
    run("stopped", 50_000, Faults::STALLING, world);
}

#[test]
fn a_disk_that_fails_is_told_to_who_asked() {
    let faults = Faults { stalls: 50, ..Faults::ROUGH };
    for (name, seed, per_mille) in [("failing", 60_000, 20), ("failing-often", 70_000, 150)] {
        let world = World { failing: per_mille, ..CALM };
        run(name, seed, faults, world);
    }
}
