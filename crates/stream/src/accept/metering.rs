//! Counting sessions in the zones of servers, and connections in those of servers of upstreams.
//! Where no location of HTTP shows the counters, each function ends with its first test.

use engine::metrics::status_zone::ZoneName;
use engine::metrics::word;

use crate::counted::Counted;
use crate::phases::status;
use crate::server::{Server, StreamMain};
use crate::session::StreamSession;

/// A session begins.
pub(crate) fn begin(s: &mut StreamSession) {
    if !s.main.metrics.is_on() {
        return;
    }
    let server = s.server.clone();
    let Some(row) = server.zone.row(s) else { return };
    let metrics = s.main.metrics.clone();
    if let Some(counters) = metrics.counters(row) {
        counters.add(word::PROCESSING, 1);
        s.counted = Some(Counted { metrics: metrics.clone(), row, is_over: false });
    }
}

/// A session is over.
pub(crate) fn end(s: &mut StreamSession) {
    let Some(mut counted) = s.counted.take() else { return };
    counted.leave();
    let server = s.server.clone();
    let row = server.zone.row(s);
    let us = base::time::now_ms().saturating_sub(s.start_ms) * 1000;
    let metrics = &s.main.metrics;
    if let Some(counters) = row.and_then(|row| metrics.counters(row)) {
        counters.add(word::DONE, 1);
        counters.add(word::RECEIVED, s.received.get());
        counters.add(word::SENT, s.sent.get());
        counters.add(word::TIME_US, us);
        counters.add(word::of_time(us), 1);
        match word::of_code(s.status) {
            Some(code) if s.is_served || s.status != status::OK => counters.add(code, 1),
            _ => counters.add(word::DISCARDED, 1),
        }
    }
    for attempt in s.exchanges.iter().flat_map(|x| x.attempts()) {
        let Some(counters) = attempt.row.and_then(|row| metrics.counters(row)) else { continue };
        counters.add(word::RECEIVED, attempt.received);
        counters.add(word::SENT, attempt.sent);
        if let Some(ms) = attempt.connect_ms {
            counters.add(word::CONNECT_US, ms * 1000);
        }
        if let Some(ms) = attempt.first_byte_ms {
            counters.add(word::HEADER_US, ms * 1000);
            counters.add(word::HEADERS, 1);
        }
        if let Some(ms) = attempt.session_ms {
            counters.add(word::TIME_US, ms * 1000);
            counters.add(word::of_time(ms * 1000), 1);
        }
    }
}

/// A handshake with a client of a server is over.
pub(crate) fn handshake(main: &StreamMain, server: &Server, outcome: Result<bool, ()>) {
    let ZoneName::Fixed(zone) = &server.zone else { return };
    let row = main.metrics.row_of(*zone);
    let Some(counters) = row.and_then(|row| main.metrics.counters(row)) else { return };
    counters.add(word::HANDSHAKES, outcome.is_ok().into());
    counters.add(word::SESSION_REUSES, (outcome == Ok(true)).into());
    counters.add(word::HANDSHAKES_FAILED, outcome.is_err().into());
}
