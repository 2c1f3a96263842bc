//! Counting requests in the zones of servers and locations, and exchanges in those of servers of
//! upstreams. Where no location shows the counters, each function ends with its first test.

use cache::CacheStatus;
use engine::metrics::facts::{Ended, Exchanged};
use engine::metrics::status_zone::ZoneName;
use engine::metrics::word;

use crate::request::{Counted, Request};
use crate::status_line::CLIENT_CLOSED;

/// The request's server is known.
#[inline]
pub(crate) fn begin(r: &mut Request) {
    if r.main.metrics.is_on() {
        count(r);
    }
}

fn count(r: &mut Request) {
    let server = r.server.clone();
    let Some(row) = server.zone.row(r) else { return };
    if let Some(counters) = r.main.metrics.counters(row) {
        counters.add(word::PROCESSING, 1);
        r.account.counted = Some(Counted { metrics: r.main.metrics.clone(), row, is_over: false });
    }
}

/// The request is over: its log phase begins.
pub(crate) fn end(r: &mut Request) {
    let Some(mut counted) = r.account.counted.take() else { return };
    let loc = r.loc.clone();
    let of_location = match &loc.zone {
        ZoneName::Off => None,
        zone => zone.row(r),
    };
    let ended = facts(r);
    if let Some(counters) = counted.end() {
        ended.count(&counters);
    }
    if let Some(counters) = of_location.and_then(|row| r.main.metrics.counters(row)) {
        ended.count(&counters);
    }
    exchanges(r);
}

/// The facts of a request that are counted.
fn facts(r: &Request) -> Ended {
    // Statuses that stand for no response are counted as such.
    let status = match r.flags.header_sent {
        true if r.out.status != 0 => r.out.status,
        _ => r.status(),
    };
    let is_response = r.flags.header_sent && !matches!(status, 444 | CLIENT_CLOSED);
    let code = match is_response || matches!(status, 444 | CLIENT_CLOSED) {
        true => word::of_code(status),
        false => None,
    };
    Ended {
        time_us: r.account.elapsed_us(),
        received: r.length(),
        sent: r.account.bytes_sent,
        code,
        discarded: !is_response,
    }
}

/// Counts the exchanges of a request, or of a subrequest, that is over.
pub(crate) fn exchanges(r: &Request) {
    let Some(exchanges) = &r.work.exchanges else { return };
    let metrics = &r.main.metrics;
    for attempt in &exchanges.attempts {
        let Some(counters) = attempt.row.and_then(|row| metrics.counters(row)) else { continue };
        let exchanged = Exchanged {
            received: attempt.received,
            sent: attempt.sent,
            connect_ms: attempt.connect_ms,
            first_ms: attempt.header_ms,
            end_ms: attempt.response_ms,
            code: word::of_code(attempt.status),
        };
        exchanged.count(&counters);
    }
    if let Some(counters) = exchanges.cache_row.and_then(|row| metrics.counters(row)) {
        counters.add(word::CACHE_BYTES + exchanges.cache_status as usize, r.account.bytes_sent);
    }
}

const _: () = assert!(CacheStatus::Hit as usize + word::CACHE_BYTES < word::TIMES);
