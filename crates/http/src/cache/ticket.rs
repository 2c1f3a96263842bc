//! The business of one request with a cache.

use cache::{Hash, variant};

pub(crate) use crate::exchanges::Ticket;
use crate::request::Request;

impl Ticket {
    /// Whether a variant of the key was looked up.
    pub fn is_secondary(&self) -> bool {
        self.hash != self.main
    }

    /// The hash of the variant of the key that a request asks for.
    pub fn variant(&self, r: &Request, vary: &[u8]) -> Hash {
        variant(&self.main, vary, self.conf.rfc9111, || r.headers())
    }

    /// Leaves a status behind, which is answered instead of asking the upstream for some time.
    pub fn leave_error(&mut self, status: u16, until: i64) {
        match &self.hold {
            Some(hold) if *hold.hash() == self.hash => hold.leave_error(status, until),
            _ => self.cache.keys.leave_error(&self.hash, status, until),
        }
    }
}
