//! The counters of `status_zone=`: queries by type, answers by code, over all workers.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use proto::dns::kind;
use shm::{Zone, ZoneState};

/// The counters of one zone.
pub struct Status(Zone);

/// Names of the counters, in their order.
pub const NAMES: [(&str, &str); 11] = [
    ("requests", "name"),
    ("requests", "srv"),
    ("requests", "addr"),
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
        self.add(match kind {
            kind::SRV => 1,
            kind::PTR => 2,
            _ => 0,
        });
    }

    pub(super) fn answered(&self, code: u8) {
        self.add(if code < 6 { 3 + usize::from(code) } else { 10 });
    }

    pub(super) fn timed_out(&self) {
        self.add(9);
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
        status.asked(kind::PTR);
        status.answered(3);
        status.answered(0);
        status.answered(99);
        status.timed_out();
        let values = status.values();
        let of = |name: &str| {
            NAMES.iter().zip(values).find(|((_, n), _)| *n == name).map(|(_, value)| value)
        };
        for name in ["name", "srv", "addr", "nxdomain", "noerror", "unknown", "timedout"] {
            assert_eq!(of(name), Some(1), "{name}");
        }
        assert_eq!(of("refused"), Some(0));
    }
}
