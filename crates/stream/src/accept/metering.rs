//! Counts sessions in the servers' zones, and connections in the upstream servers' zones. If no
//! HTTP location shows the counters, each function returns at its first test.

use engine::metrics::facts::{Ended, Exchanged};
use engine::metrics::word;

use crate::counted::Counted;
use crate::phases::status;
use crate::session::StreamSession;

/// Counts the start of a session.
pub(crate) fn begin(s: &mut StreamSession) {
    if !s.main.metrics.is_on() {
        return;
    }
    let server = s.server.clone();
    let Some(row) = server.zone.row(s) else { return };
    let metrics = s.main.metrics.clone();
    if let Some(counters) = metrics.counters(row) {
        counters.add(word::PROCESSING, 1);
        s.set_counted(Counted { metrics: metrics.clone(), row, is_over: false });
    }
}

/// The session goes on in another process, which counts it.
pub(crate) fn leave(s: &mut StreamSession) {
    if let Some(mut counted) = s.take_counted() {
        counted.leave();
    }
}

/// Counts the end of a session.
pub(crate) fn end(s: &mut StreamSession) {
    let Some(mut counted) = s.take_counted() else { return };
    counted.leave();
    let server = s.server.clone();
    let row = server.zone.row(s);
    let us = base::time::now_ms().saturating_sub(s.start_ms) * 1000;
    let metrics = &s.main.metrics;
    if let Some(counters) = row.and_then(|row| metrics.counters(row)) {
        let code = word::of_code(s.status).filter(|_| s.is_served || s.status != status::OK);
        let ended = Ended {
            time_us: us,
            received: s.received.get(),
            sent: s.sent.get(),
            code,
            discarded: code.is_none(),
        };
        ended.count(&counters);
    }
    for attempt in s.exchanges.attempts() {
        let Some(counters) = attempt.row().and_then(|row| metrics.counters(row)) else { continue };
        let exchanged = Exchanged {
            received: attempt.received,
            sent: attempt.sent,
            connect_ms: attempt.connect_ms(),
            first_ms: attempt.first_byte_ms(),
            end_ms: attempt.session_ms(),
            code: None,
        };
        exchanged.count(&counters);
    }
}
