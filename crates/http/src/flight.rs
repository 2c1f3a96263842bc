//! `slow_request_time`: requests that were slow, or failed, are kept in the flight recorder.

use bytes::Bytes;
use conf::table::{Args, Directive, directive};
use conf::value::{self, set_once};
use conf::{ConfError, Node};
use engine::flight::{Record, Try};

use crate::core_conf::CoreLocDraft;
use crate::core_directives::HSL;
use crate::cx::Cx;
use crate::exchanges::Attempt;
use crate::module::Module;
use crate::request::Request;

/// The module: its setting is the core's.
pub static MODULE: Module =
    Module { name: "flight_recorder", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "slow_request_time",
    HSL,
    Args::T1,
    "1s",
    "Records failed requests, and those whose response is not ready within this time.",
    |cx, n| set(&mut cx.loc::<CoreLocDraft>().slow_request_us, n),
)];

/// Nothing is recorded.
pub(crate) const OFF: u64 = u64::MAX;

fn set(field: &mut Option<u64>, n: &Node) -> Result<(), ConfError> {
    set_once(field, n, |n| match n.arg(0)?.bytes() {
        b"off" => Ok(OFF),
        _ => Ok(value::msec(n, 0)?.saturating_mul(1000).min(OFF - 1)),
    })
}

/// The request, or subrequest, is over.
#[inline]
pub(crate) fn end(r: &Request) {
    let ready_us = r.account.times.ready_us.min(r.account.elapsed_us());
    if ready_us >= r.loc.core.slow_request_us || r.status() >= 500 || is_cut_short(r) {
        keep(r, ready_us);
    }
}

fn is_cut_short(r: &Request) -> bool {
    r.work.exchanges.as_ref().is_some_and(|exchanges| exchanges.cut_short)
}

/// Whether it failed. A 503 that no server was asked for is meant: limits, pages for maintenance.
fn has_failed(r: &Request) -> bool {
    let asked =
        || r.work.exchanges.as_ref().is_some_and(|exchanges| !exchanges.attempts.is_empty());
    let status = r.status();
    status >= 500 && (status != 503 || asked()) || is_cut_short(r)
}

#[cold]
fn keep(r: &Request, ready_us: u64) {
    let (slow_us, failed) = (r.loc.core.slow_request_us, has_failed(r));
    if slow_us == OFF || !failed && ready_us < slow_us || r.is_traced() {
        return;
    }
    let exchanges = r.work.exchanges.as_deref();
    let made: Vec<(&Bytes, &Attempt)> = exchanges
        .iter()
        .flat_map(|exchanges| &exchanges.attempts)
        .filter_map(|attempt| Some((attempt.peer.as_ref()?, attempt)))
        .collect();
    let tries = made.iter().map(|(server, attempt)| Try {
        server,
        status: attempt.status.into(),
        connect_ms: attempt.connect_ms,
        header_ms: attempt.header_ms,
        response_ms: attempt.response_ms,
    });
    let (total_us, times) = (r.account.elapsed_us(), r.account.times);
    let before_us = times.head_us + times.access_us;
    let (client, at) = (r.peer().host().to_string(), r.loc.info.at.to_string());
    let cache = exchanges.and_then(|exchanges| exchanges.cache_status.text());
    let record = Record {
        at_ms: base::time::unix_ms(),
        pid: std::process::id().into(),
        connection: r.c().number,
        status: r.status().into(),
        failed,
        total_us,
        head_us: times.head_us,
        access_us: times.access_us,
        content_us: ready_us.saturating_sub(before_us),
        send_us: total_us.saturating_sub(ready_us),
        received: r.length(),
        sent: r.account.bytes_sent,
        cache: cache.unwrap_or_default().as_bytes(),
        client: client.as_bytes(),
        server: &r.server.name,
        location: &r.loc.info.name,
        at: at.as_bytes(),
        method: r.method_name(),
        host: &r.target.host,
        target: if r.is_subrequest() { &r.target.uri } else { r.unparsed_uri() },
        attempts: made.len() as u64,
        tries: tries.collect(),
    };
    r.main.stats.flight.keep(&record);
}
