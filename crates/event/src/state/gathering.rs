//! The group of tasks that wait for one another, so that all of them take their next step together.

use base::time::Limit;

/// The largest group of waiting tasks: what they hold while they wait has to fit into the caches,
/// and is memory in use.
const GROUP: usize = 32;

/// The longest wait of a group's first task, in microseconds: its response is ready, and waits only
/// for those of other clients. The time is looked at after each poll, so the wait can be longer by
/// the poll that exceeds it.
const WAIT_US: u64 = 150;

/// The group of tasks that wait in `gather`.
#[derive(Default)]
pub(crate) struct Gathering {
    /// The tasks that wait.
    pub(crate) aside: Vec<u32>,
    /// The number of tasks that are polled after the current one in this round, and may join.
    pub(crate) behind: usize,
    /// When the group stops waiting.
    until: Option<Limit>,
}

impl Gathering {
    /// Whether the running task has others to wait for: tasks that are still to be polled in this
    /// round, or that wait already. It is false for a task that has waited in this round;
    /// otherwise that task could wait again and again for others that have much to do.
    pub(crate) fn has_others(&self) -> bool {
        self.behind > 0 || !self.aside.is_empty()
    }

    pub(crate) fn put_aside(&mut self, task: u32) {
        if self.aside.is_empty() {
            self.until = Some(Limit::in_us(WAIT_US));
        }
        self.aside.push(task);
    }

    /// Whether the group continues now: it is large enough, nobody else can join, or its time is
    /// over.
    pub(crate) fn is_full(&self) -> bool {
        match self.aside.len() {
            0 => false,
            n => n >= GROUP || self.behind == 0 || self.until.is_some_and(Limit::is_over),
        }
    }
}
