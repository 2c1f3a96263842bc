//! Simulations: the running of a future on a network and a clock that exist in memory only, under
//! faults chosen by a seed.

use std::future::Future;
use std::io;

use crate::driver::{Driver, DriverKind};
use crate::runtime::inner::try_with;
use crate::runtime::turn::{Loop, Options};

pub use crate::driver::sim::plan::{Faults, Plan, STALL_MS};

/// Whether a simulated disk must be read although the data is in memory: at random, as often as a
/// ready socket is not ready after all. Never on a real driver. Code that tries memory first asks
/// this, so that simulations see both.
#[inline]
pub fn disk_is_cold() -> bool {
    try_with(|inner| match &mut inner.driver {
        Driver::Sim(sim) => sim.net.is_cold(),
        _ => false,
    })
    .unwrap_or(false)
}

/// Runs `future` on a simulated loop.
///
/// # Errors
/// When it panics, or waits for something that can never come.
pub fn run<T: 'static>(plan: Plan, future: impl Future<Output = T> + 'static) -> io::Result<T> {
    let driver = DriverKind::Sim(plan);
    Loop::new(Options { driver, ..Options::default() })?.block_on(future)
}
