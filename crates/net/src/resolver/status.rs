//! The counters of `status_zone=`: queries by type, answers by code, over all workers.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use proto::dns::kind;
use shm::{Zone, ZoneState};

/// The counters of one zone.
pub struct Status(Zone);

/// Names of the counters, in their order.
pub const NAMES: [(&str, &str); 10] = [
    ("requests", "name"),
    ("requests", "srv"),
    ("responses", "noerror"),
    ("responses", "formerr"),
    ("responses", "servfail"),
    ("responses", "nxdomain"),
    ("responses", "notimp"),
    ("responses", "refused"),
    ("responses", "timedout"),
    ("responses", "unknown"),
];

impl Status {
    /// All counters at zero, made before the fork.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new() -> io::Result<Status> {
        Zone::anonymous(NAMES.len() * 8).map(Status)
    }

    fn word(&self, i: usize) -> &AtomicU64 {
        &self.0.words()[i]
    }

    fn add(&self, i: usize) {
        self.word(i).fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn asked(&self, kind: u16) {
        self.add(usize::from(kind == kind::SRV));
    }

    pub(super) fn answered(&self, code: u8) {
        self.add(if code < 6 { 2 + usize::from(code) } else { 9 });
    }

    pub(super) fn timed_out(&self) {
        self.add(8);
    }

    /// The counters, in the order of [`NAMES`].
    pub fn values(&self) -> [u64; NAMES.len()] {
        std::array::from_fn(|i| self.word(i).load(Ordering::Relaxed))
    }
}

impl ZoneState for Status {
    fn died(&self, _: u32, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_their_names() {
        let status = Status::new().unwrap();
        status.asked(kind::A);
        status.asked(kind::SRV);
        status.answered(3);
        status.answered(0);
        status.answered(99);
        status.timed_out();
        let values = status.values();
        let of = |name: &str| {
            NAMES.iter().zip(values).find(|((_, n), _)| *n == name).map(|(_, value)| value)
        };
        for name in ["name", "srv", "nxdomain", "noerror", "unknown", "timedout"] {
            assert_eq!(of(name), Some(1), "{name}");
        }
        assert_eq!(of("refused"), Some(0));
    }
}
