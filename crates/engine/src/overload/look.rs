//! A resource, how much of it is in use, and the step that this asks for.

use std::fmt;

use super::{SLACK, Step};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Resource {
    Memory,
    Descriptors,
    Connections,
    Latency,
}

pub(super) const RESOURCES: usize = 4;

/// A resource and how much of it is in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub resource: Resource,
    pub used: u64,
    pub of: u64,
    /// The share in percent from which on connections are refused.
    pub limit: u64,
}

impl Look {
    /// The step that the share asks for, where `now` is the one that holds.
    pub fn step(&self, now: Step) -> Step {
        if self.limit == 0 || self.of == 0 {
            return Step::None;
        }
        let reaches = |step: Step, below: u64| {
            let slack = if now >= step { SLACK } else { 0 };
            self.used * 100 >= self.of * self.limit.saturating_sub(below + slack)
        };
        // Closing connections makes a loop no faster: it has nothing but the last step.
        let gradual = self.resource != Resource::Latency;
        match () {
            () if reaches(Step::Refuse, 0) => Step::Refuse,
            () if gradual && reaches(Step::Shed, 5) => Step::Shed,
            () if gradual && reaches(Step::Close, 10) => Step::Close,
            () => Step::None,
        }
    }

    /// Whether half of what is left beyond the limit is in use.
    pub(crate) fn is_beyond(&self) -> bool {
        self.limit > 0 && self.used * 200 >= self.of * (100 + self.limit)
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Look { used, of, .. } = self;
        match self.resource {
            Resource::Memory => {
                write!(f, "{} of {} MB of the control group's memory", used >> 20, of >> 20)
            }
            Resource::Descriptors => write!(f, "{used} of {of} descriptors"),
            Resource::Connections => write!(f, "{used} of {of} worker_connections"),
            Resource::Latency => write!(f, "{used} ms of lateness of the event loop"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(resource: Resource, used: u64) -> Look {
        Look { resource, used, of: 200, limit: 95 }
    }

    #[test]
    fn steps_begin_and_end_by_the_share() {
        let step = |used, now| look(Resource::Memory, used).step(now);
        for (used, begins) in [
            (169, Step::None),
            (170, Step::Close),
            (179, Step::Close),
            (180, Step::Shed),
            (190, Step::Refuse),
            (500, Step::Refuse),
        ] {
            assert_eq!(step(used, Step::None), begins, "{used}");
        }
        // Each ends three percent below.
        assert_eq!(step(184, Step::Refuse), Step::Refuse);
        assert_eq!(step(183, Step::Refuse), Step::Shed);
        assert_eq!(step(164, Step::Refuse), Step::Close);
        assert_eq!(step(163, Step::Refuse), Step::None);
    }

    #[test]
    fn a_late_loop_has_the_last_step_alone() {
        let of = |used| Look { limit: 100, ..look(Resource::Latency, used) };
        assert_eq!(of(199).step(Step::None), Step::None);
        assert_eq!(of(200).step(Step::None), Step::Refuse);
    }

    #[test]
    fn a_small_or_absent_resource() {
        // All but the last of ten would be less than 95 percent.
        let few = |used| Look { of: 10, ..look(Resource::Connections, used) };
        assert_eq!((few(9).step(Step::None), few(10).step(Step::None)), (Step::Shed, Step::Refuse));
        assert_eq!(Look { limit: 0, ..few(10) }.step(Step::None), Step::None);
        assert_eq!(Look { of: 0, ..few(10) }.step(Step::None), Step::None);
    }

    #[test]
    fn half_of_what_is_left_is_for_clients_with_few_connections() {
        let at = |used| look(Resource::Connections, used);
        assert!(!at(194).is_beyond() && at(195).is_beyond());
        assert!(!Look { limit: 0, ..at(200) }.is_beyond());
    }
}
