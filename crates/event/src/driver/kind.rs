//! The choice of a driver.

use super::sim::plan::Plan;
use super::uring;

/// The choice of a loop's driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DriverKind {
    /// epoll(7), edge-triggered.
    #[default]
    Epoll,
    /// io_uring(7); epoll where there is none.
    Uring,
    /// poll(2).
    Poll,
    /// select(2): no descriptor of [`SELECT_MAX`](crate::SELECT_MAX) or above.
    Select,
    /// A simulated network and clock, for tests.
    Sim(Plan),
}

impl DriverKind {
    /// The name in the `use` directive.
    pub fn name(self) -> &'static str {
        match self {
            DriverKind::Epoll => "epoll",
            DriverKind::Uring => "io_uring",
            DriverKind::Poll => "poll",
            DriverKind::Select => "select",
            DriverKind::Sim(_) => "sim",
        }
    }

    /// Whether this machine has it, now and for this process.
    pub fn is_available(self) -> bool {
        self != DriverKind::Uring || uring::is_available()
    }
}
