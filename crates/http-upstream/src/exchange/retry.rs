//! Handles attempts without a response: tries another server, serves a stored response, or ends
//! with a status.

use std::rc::Rc;

use base::log::Level;
use base::time::now_ms;
use cache::CacheStatus;
use http::module::Verdict;
use http::request::Request;
use http_wire::h1::Method;
use upstream::Target;
use upstream::balance::{AnyPicker, ServerOutcome};
use upstream::peer::Peer;

use super::Exchange;
use crate::caching::decisions;
use crate::conf::next;
use crate::failure::Stop;

/// The number of refusals after which a request fails.
const REFUSALS_MAX: u32 = 3;

impl Exchange {
    pub(super) fn may_retry(&self, r: &Request, bit: u64) -> bool {
        let unsafe_method = matches!(r.target.method, Method::Post | Method::Lock | Method::Patch);
        let bits = if self.sent && unsafe_method { bit | next::NON_IDEMPOTENT } else { bit };
        let timeout = self.conf.next_upstream_timeout;
        self.conf.next_upstream & bits == bits
            && !(self.sent && self.body.is_streamed())
            && !(timeout > 0 && now_ms().saturating_sub(self.start_ms) >= timeout)
    }

    /// Whether the servers are asked once more when all were (`proxy_next_upstream again`).
    pub(super) fn asks_again(&self) -> bool {
        self.conf.next_upstream & next::AGAIN != 0
    }

    /// Chooses as if no server had been asked yet.
    #[cold]
    pub(super) fn first_again(&mut self, r: &mut Request) -> Option<Rc<Peer>> {
        let Target::Group(group) = &self.target else { return None };
        let picker = AnyPicker::begin(group.balancer.as_ref(), r);
        let lease = self.lease.as_mut()?;
        lease.begin_again(picker);
        lease.take_next(r)
    }

    /// An attempt has ended without a response. Returns `None` if another server is to be tried.
    pub(super) fn ended(&mut self, r: &mut Request, stop: Stop) -> Option<Verdict> {
        let a = r.upstream_mut().now();
        a.response_ms.get_or_insert(now_ms().saturating_sub(a.start_ms));
        match stop {
            Stop::ClientGone => {
                r.upstream_mut().asking = false;
                Some(r.abandon())
            }
            Stop::Verdict(v) => {
                r.upstream_mut().asking = false;
                Some(v)
            }
            Stop::Stored(status) => self.serve_stored(r, status),
            Stop::Status(s) => {
                self.lease = None;
                r.upstream_mut().asking = false;
                Some(Verdict::Status(s))
            }
            Stop::Next(_) | Stop::Refused if self.protocol.until().has_passed() => {
                Some(self.late(r))
            }
            Stop::Next(bit) => self.next(r, bit),
            Stop::Refused => self.again(r),
        }
    }

    /// The exchange's own deadline has passed, which is no failure of the server.
    #[cold]
    fn late(&mut self, r: &mut Request) -> Verdict {
        if let Some(lease) = &mut self.lease {
            lease.done(ServerOutcome::Next);
        }
        let u = r.upstream_mut();
        u.now().status = 504;
        u.asking = false;
        Verdict::Status(504)
    }

    /// The server has not processed the request: retries on the same or another one.
    #[cold]
    fn again(&mut self, r: &mut Request) -> Option<Verdict> {
        let is_lost = self.sent && self.body.is_streamed();
        self.refusals += 1;
        if is_lost || self.refusals > REFUSALS_MAX || self.conf.next_upstream & next::ERROR == 0 {
            return self.next(r, next::ERROR);
        }
        self.sent = false;
        r.upstream_mut().now().status = 502;
        if let Some(lease) = &mut self.lease {
            lease.done(ServerOutcome::Next);
        }
        None
    }

    fn next(&mut self, r: &mut Request, bit: u64) -> Option<Verdict> {
        let status = match bit {
            next::TIMEOUT | next::HTTP_504 => 504,
            next::HTTP_500 => 500,
            next::HTTP_503 => 503,
            next::HTTP_403 | next::DENIED => 403,
            next::HTTP_404 => 404,
            next::HTTP_429 => 429,
            _ => 502,
        };
        r.upstream_mut().now().status = status;
        if bit != next::NO_LIVE
            && let Some(lease) = &mut self.lease
        {
            let outcome = match bit {
                next::HTTP_403 | next::HTTP_404 => ServerOutcome::Next,
                _ => ServerOutcome::Failed,
            };
            let again = self.conf.next_upstream & next::AGAIN != 0;
            self.tries = match lease.is_single() && !again {
                true => 0,
                false => self.tries.saturating_sub(1),
            };
            // The server may have closed the kept connection while we wrote: does not count as a
            // failure.
            if self.cached && bit == next::ERROR {
                self.tries += 1;
            }
            if lease.done(outcome) {
                let m = "upstream server temporarily disabled while";
                let doing = match r.upstream_mut().now().connect_ms {
                    None => "connecting to upstream",
                    Some(_) => "reading response header from upstream",
                };
                r.log(Level::Warn, format_args!("{m} {doing}"));
            }
        }
        if bit == next::NO_LIVE || self.tries == 0 || !self.may_retry(r, bit) {
            if decisions::instead_of_failure(r, bit) {
                return self.serve_stored(r, CacheStatus::Stale);
            }
            if matches!(status, 502 | 504) {
                decisions::keep_error(r, status, &self.conf, false);
            }
            r.upstream_mut().asking = false;
            return Some(Verdict::Status(status));
        }
        None
    }

    /// Serves the stored response although it is stale.
    pub(super) fn serve_stored(&mut self, r: &mut Request, status: CacheStatus) -> Option<Verdict> {
        self.lease = None;
        let served = decisions::serve(r, status, &self.conf, self.protocol.as_ref());
        Some(served.map_or(Verdict::Status(500), |(_, _, verdict)| verdict))
    }
}
