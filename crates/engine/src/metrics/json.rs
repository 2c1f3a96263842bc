//! The counters of zones as members of JSON objects, in the shape of nginx's API of version 9.

use base::json::Object;

use super::{Reading, word};

/// `responses`: by class, in all, and by status.
pub fn responses(o: &mut Object<'_>, reading: &Reading) {
    o.object("responses", |o| {
        let mut total = 0;
        for (name, class) in [("1xx", 1), ("2xx", 2), ("3xx", 3), ("4xx", 4), ("5xx", 5)] {
            let n = reading.class(class);
            total += n;
            o.number(name, n);
        }
        o.object("codes", |o| {
            for (code, n) in reading.codes() {
                o.number(&code.to_string(), n);
            }
        });
        o.number("total", total);
    });
}

/// The members of `ssl`.
pub fn ssl(o: &mut Object<'_>, reading: &Reading) {
    o.number("handshakes", reading.get(word::HANDSHAKES));
    o.number("session_reuses", reading.get(word::SESSION_REUSES));
    o.number("handshakes_failed", reading.get(word::HANDSHAKES_FAILED));
}

/// A virtual server of HTTP.
pub fn http_server(o: &mut Object<'_>, reading: &Reading) {
    o.number("processing", reading.get(word::PROCESSING));
    location(o, reading);
    o.object("ssl", |o| ssl(o, reading));
}

/// Writes the counters of a location's zone.
pub fn location(o: &mut Object<'_>, reading: &Reading) {
    o.number("requests", reading.begun());
    responses(o, reading);
    o.number("discarded", reading.get(word::DISCARDED));
    o.number("received", reading.get(word::RECEIVED));
    o.number("sent", reading.get(word::SENT));
}

/// Writes the counters of a server's zone in `stream`.
pub fn stream_server(o: &mut Object<'_>, reading: &Reading) {
    o.number("processing", reading.get(word::PROCESSING));
    o.number("connections", reading.begun());
    o.object("sessions", |o| {
        let classes = [("2xx", 2), ("4xx", 4), ("5xx", 5)];
        for (name, class) in classes {
            o.number(name, reading.class(class));
        }
        o.number("total", classes.iter().map(|(_, class)| reading.class(*class)).sum());
    });
    o.number("discarded", reading.get(word::DISCARDED));
    o.number("received", reading.get(word::RECEIVED));
    o.number("sent", reading.get(word::SENT));
    o.object("ssl", |o| ssl(o, reading));
}

/// A zone of `limit_req`.
pub fn limit_req(o: &mut Object<'_>, reading: &Reading) {
    o.number("passed", reading.get(word::PASSED));
    o.number("delayed", reading.get(word::DELAYED));
    o.number("rejected", reading.get(word::REJECTED));
    o.number("delayed_dry_run", reading.get(word::DELAYED_DRY_RUN));
    o.number("rejected_dry_run", reading.get(word::REJECTED_DRY_RUN));
}

/// A zone of `limit_conn`.
pub fn limit_conn(o: &mut Object<'_>, reading: &Reading) {
    o.number("passed", reading.get(word::PASSED));
    o.number("rejected", reading.get(word::REJECTED));
    o.number("rejected_dry_run", reading.get(word::REJECTED_DRY_RUN));
}

/// The same of a server of an upstream.
pub fn own_of_peer(o: &mut Object<'_>, reading: &Reading) {
    own(o, reading);
    o.number("answering", reading.get(word::ANSWERING));
    o.object("header", |o| {
        o.number("count", reading.get(word::HEADERS));
        o.number("sum_us", reading.get(word::HEADER_US));
    });
}

/// Weir's own: what version 9 has no name for.
pub fn own(o: &mut Object<'_>, reading: &Reading) {
    o.number("lost", reading.get(word::LOST));
    o.object("closed", |o| {
        for (code, n) in reading.codes().filter(|(code, _)| matches!(code, 444 | 499)) {
            o.number(&code.to_string(), n);
        }
    });
    o.object("time", |o| {
        o.number("count", reading.times());
        o.number("sum_us", reading.get(word::TIME_US));
        o.object("buckets", |o| {
            let seconds = |us| (us as f64 / 1e6).to_string();
            let bounds = word::BOUNDS_US.into_iter().map(seconds).chain(["+Inf".to_owned()]);
            for (bound, n) in bounds.zip(reading.buckets()).filter(|(_, n)| *n > 0) {
                o.number(&bound, n);
            }
        });
    });
}
