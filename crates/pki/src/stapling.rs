//! When the staple of a certificate is fetched, and how long it is sent.
//!
//! ```text
//!            is_due, once a handshake asks
//!  idle ─────────────────────────────────▶ fetching
//!    ▲    fetched: sent until nextUpdate      │
//!    └────────────────────────────────────────┘
//!         failed: the one before is sent on until its own end; again in five minutes
//! ```

use bytes::Bytes;

use crate::ocsp::{Answer, CertStatus};

/// The time between attempts, at least, seconds. nginx's value.
const RETRY: i64 = 300;

/// A staple is fetched again after this time, at the latest, seconds. nginx's value.
const REFRESH: i64 = 3600;

/// A staple is fetched again so long before its end, seconds. nginx's value.
const AHEAD: i64 = 300;

/// The staple of one certificate. Times are in seconds since 1970.
#[derive(Debug)]
pub struct Staple {
    response: Option<Bytes>,
    /// The last second in which the response is sent.
    valid_until: i64,
    /// It is fetched after this second.
    refresh_at: i64,
    fetching: bool,
}

impl Staple {
    /// A staple that is to be fetched from a responder.
    pub fn to_fetch() -> Staple {
        Staple { response: None, valid_until: 0, refresh_at: 0, fetching: false }
    }

    /// The staple of a file (`ssl_stapling_file`): sent for ever, and never fetched.
    pub fn of_file(response: Bytes) -> Staple {
        let (valid_until, refresh_at) = (i64::MAX, i64::MAX);
        Staple { response: Some(response), valid_until, refresh_at, fetching: false }
    }

    /// The response for a handshake that asks for one.
    pub fn response(&self, now: i64) -> Option<&Bytes> {
        self.response.as_ref().filter(|_| self.valid_until >= now)
    }

    /// Whether the caller is to fetch a response now. If so, it must call [`Staple::fetched`] or
    /// [`Staple::failed`] in the end; nobody else is told to fetch until then.
    pub fn is_due(&mut self, now: i64) -> bool {
        let due = !self.fetching && self.refresh_at < now;
        self.fetching |= due;
        due
    }

    /// A response was fetched and checked. One that says anything but good is not sent: an error,
    /// for the log, as if nothing had been fetched.
    ///
    /// # Errors
    /// The status.
    pub fn fetched(
        &mut self,
        response: Bytes,
        answer: &Answer,
        now: i64,
    ) -> Result<(), CertStatus> {
        if answer.status != CertStatus::Good {
            self.failed(now);
            return Err(answer.status);
        }
        self.fetching = false;
        self.response = Some(response);
        self.valid_until = answer.next_update.unwrap_or(i64::MAX);
        let before_its_end = self.valid_until.saturating_sub(AHEAD);
        let latest = now.saturating_add(REFRESH);
        self.refresh_at = before_its_end.min(latest).max(now.saturating_add(RETRY));
        Ok(())
    }

    /// Nothing was fetched, or nothing of use.
    pub fn failed(&mut self, now: i64) {
        self.fetching = false;
        self.refresh_at = now.saturating_add(RETRY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn good(next_update: Option<i64>) -> Answer {
        Answer { status: CertStatus::Good, next_update }
    }

    fn text(staple: &Staple, now: i64) -> &[u8] {
        staple.response(now).map_or(b"", |bytes| bytes)
    }

    /// The first second in which it would be fetched again.
    fn next(staple: &mut Staple) -> i64 {
        let at = staple.refresh_at + 1;
        assert!(!staple.is_due(at - 1) && staple.is_due(at) && !staple.is_due(at));
        at
    }

    #[test]
    fn one_at_a_time_fetches() {
        let mut staple = Staple::to_fetch();
        assert_eq!(text(&staple, NOW), b"");
        assert!(staple.is_due(NOW));
        assert!(!staple.is_due(NOW + 86_400));
        staple.failed(NOW);
        assert_eq!(next(&mut staple), NOW + 301);
    }

    #[test]
    fn the_next_fetch_is_before_the_end_and_within_an_hour() {
        for (next_update, wanted) in [
            (None, 3_600),
            (Some(NOW + 86_400), 3_600),
            (Some(NOW + 3_900), 3_600),
            (Some(NOW + 2_000), 1_700),
            (Some(NOW + 500), 300),
            (Some(NOW - 200), 300),
        ] {
            let mut staple = Staple::to_fetch();
            assert!(staple.is_due(NOW));
            staple.fetched(Bytes::from_static(b"a"), &good(next_update), NOW).unwrap();
            assert_eq!(next(&mut staple), NOW + wanted + 1, "{next_update:?}");
        }
    }

    #[test]
    fn a_staple_outlives_failures_until_its_end() {
        let mut staple = Staple::to_fetch();
        staple.fetched(Bytes::from_static(b"a"), &good(Some(NOW + 1_000)), NOW).unwrap();
        assert!(staple.is_due(NOW + 701));
        staple.failed(NOW + 701);
        let revoked = Answer { status: CertStatus::Revoked, next_update: None };
        assert!(staple.is_due(NOW + 1_002));
        let error = staple.fetched(Bytes::from_static(b"b"), &revoked, NOW + 1_002);
        assert_eq!(error, Err(CertStatus::Revoked));
        assert_eq!((text(&staple, NOW + 1_000), text(&staple, NOW + 1_001)), (&b"a"[..], &b""[..]));
        assert!(staple.is_due(NOW + 1_303));
        staple.fetched(Bytes::from_static(b"c"), &good(None), NOW + 1_303).unwrap();
        assert_eq!(text(&staple, i64::MAX), b"c");
    }

    #[test]
    fn that_of_a_file_stays() {
        let mut staple = Staple::of_file(Bytes::from_static(b"f"));
        assert_eq!(text(&staple, i64::MAX), b"f");
        assert!(!staple.is_due(i64::MAX));
    }
}
