//! The event drivers of the server, and tests that run on several of them.

use crate::Weir;

/// An event driver of the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// `use epoll;`
    Epoll,
    /// `use io_uring;`, which becomes epoll on machines without it.
    Uring,
    /// `use poll;`
    Poll,
    /// `use select;`
    Select,
}

impl Driver {
    /// The drivers that work on this machine.
    pub const ALL: &'static [Self] = &[Self::Epoll, Self::Uring, Self::Poll, Self::Select];

    /// A driver of each kind: epoll reports readiness, as poll and select do, and the ring reports
    /// completed operations. They are also those that servers run.
    const KINDS: &'static [Self] = &[Self::Epoll, Self::Uring];

    /// For tests that do not depend on the driver: epoll, or the first name in `WEIR_TEST_DRIVERS`.
    pub fn usual() -> Self {
        let chosen = std::env::var("WEIR_TEST_DRIVERS").unwrap_or_default();
        let first = chosen.split(',').next();
        let named = Self::ALL.iter().find(|driver| Some(driver.name()) == first);
        named.copied().unwrap_or(Self::Epoll)
    }

    /// Its name in the `use` directive.
    pub fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::Uring => "io_uring",
            Self::Poll => "poll",
            Self::Select => "select",
        }
    }
}

/// Runs a test on epoll and on io_uring, at the same time: most of a test is waiting. A failure's
/// output shows the driver by the thread's name.
///
/// With `WEIR_TEST_ALL_DRIVERS=1` in the environment it runs on poll and select as well;
/// `WEIR_TEST_DRIVERS`, names with commas between, chooses the drivers instead.
pub fn each_driver(test: impl Fn(Driver) + Sync) {
    let all = std::env::var("WEIR_TEST_ALL_DRIVERS").is_ok_and(|value| value == "1");
    run(if all { Driver::ALL } else { Driver::KINDS }, test);
}

/// As [`each_driver`] on all four drivers, for tests whose subject is what drivers do differently:
/// accepting (many connections, descriptors that run out, sockets of each worker, workers that
/// stand still), both directions of a tunnel or session, datagrams, files that the ring, a thread
/// or the loop reads and disks that stall or fail under them, sockets that a reload or a new binary
/// takes over, and deadlines of connections. The rest of the server sees no driver.
pub fn on_all_drivers(test: impl Fn(Driver) + Sync) {
    run(Driver::ALL, test);
}

/// Runs a test on the server that `start` makes, as [`each_driver`].
pub fn each_site(start: impl Fn(Driver) -> Weir + Sync, test: impl Fn(Weir) + Sync) {
    each_driver(|driver| test(start(driver)));
}

/// Runs a test on the server that `start` makes, as [`on_all_drivers`].
pub fn site_on_all_drivers(start: impl Fn(Driver) -> Weir + Sync, test: impl Fn(Weir) + Sync) {
    on_all_drivers(|driver| test(start(driver)));
}

fn run(drivers: &[Driver], test: impl Fn(Driver) + Sync) {
    let named = std::env::var("WEIR_TEST_DRIVERS").ok();
    let drivers = match &named {
        Some(names) => {
            let is_named = |driver: &&Driver| names.split(',').any(|name| name == driver.name());
            Driver::ALL.iter().filter(is_named).copied().collect()
        }
        None => drivers.to_vec(),
    };
    assert!(!drivers.is_empty(), "WEIR_TEST_DRIVERS names none of the drivers");
    let test = &test;
    let failed: Vec<&str> = std::thread::scope(|scope| {
        let spawn = |driver: Driver| {
            let thread = std::thread::Builder::new().name(driver.name().to_string());
            let run = thread.spawn_scoped(scope, move || test(driver)).expect("a thread starts");
            (driver, run)
        };
        let runs: Vec<_> = drivers.into_iter().map(spawn).collect();
        let ended = runs.into_iter().map(|(driver, run)| (driver, run.join()));
        ended.filter(|(_, result)| result.is_err()).map(|(driver, _)| driver.name()).collect()
    });
    assert!(failed.is_empty(), "failed on: {}", failed.join(", "));
}
