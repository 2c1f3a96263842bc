//! `limit_rate`: the bytes of a response that may go by now.

use crate::request::Request;

/// The bytes a second that a response may take; 0 is any number.
pub(crate) fn rate(r: &mut Request) -> u64 {
    if let Some(rate) = r.client.rates.limit {
        return rate;
    }
    match r.loc.core.limit_rate.clone() {
        None => 0,
        Some(t) => {
            let v = r.eval(&t);
            let rate = conf::value::parse_size(&v).unwrap_or(0) as u64;
            r.client.rates.limit = Some(rate);
            rate
        }
    }
}

/// The pace of a response.
pub(crate) struct Pace {
    rate: u64,
    /// Bytes at its beginning that are free.
    after: u64,
}

/// The next step of a paced response.
pub(crate) enum Allowed {
    /// So many bytes may go now.
    Bytes(u64),
    /// None before this number of milliseconds has passed.
    After(u64),
}

impl Pace {
    /// The pace of a response that may take `rate` bytes a second, which is not 0.
    pub(crate) fn new(r: &mut Request, rate: u64) -> Pace {
        let after = match (r.client.rates.after, r.loc.core.limit_rate_after.clone()) {
            (Some(after), _) => after,
            (None, Some(t)) => conf::value::parse_offset(&r.eval(&t)).unwrap_or(0),
            (None, None) => 0,
        };
        Pace { rate, after }
    }

    /// As much as the time since the response's start allows, of which `sent` bytes went.
    pub(crate) fn allowed(&self, r: &Request, sent: u64) -> Allowed {
        let secs = r.account.elapsed_ms() / 1000 + 1;
        let budget = self.rate.saturating_mul(secs).saturating_add(self.after);
        match budget.checked_sub(sent) {
            None | Some(0) => Allowed::After((sent - budget) * 1000 / self.rate + 1),
            Some(left) => Allowed::Bytes(left),
        }
    }

    /// Milliseconds to wait behind `n` bytes that followed `sent` others; free ones take none.
    pub(crate) fn pause(&self, sent: u64, n: u64) -> u64 {
        let paid = (sent + n).saturating_sub(self.after) - sent.saturating_sub(self.after);
        match paid {
            0 => 0,
            paid => paid.saturating_mul(1000) / self.rate + 1,
        }
    }
}
