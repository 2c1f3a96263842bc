//! The server as a whole: connections, requests, workers, TLS, resolvers. Their counters are kept
//! elsewhere; a reset notes their values.

use std::rc::Rc;

use base::json::Object;
use engine::metrics::{Kind, Metrics, Reading, Zone, json, word};
use engine::stats::{Field, WorkerReport};
use http::request::Request;
use http::server::HttpMain;
use net::resolver::STATUS_NAMES;

use ::upstream::resolver::NamedStatus;

use super::document::{Fields, Writer, collection, object};

/// The words of values at the last reset, behind those that anything is counted in.
#[derive(Clone, Copy)]
pub(super) enum Base {
    Accepted = word::TIMES as isize,
    Handled,
    Requests,
    Respawned,
    Resolver,
}

fn at_reset(metrics: &Metrics) -> Zone<'_> {
    metrics.any(Kind::Whole, b"")
}

fn since(metrics: &Metrics, base: Base, now: u64) -> u64 {
    now.wrapping_sub(at_reset(metrics).base(base as usize))
}

/// Processes that took the place of others.
pub(crate) fn respawned(main: &HttpMain) -> u64 {
    since(&main.metrics, Base::Respawned, main.stats.respawned())
}

/// Connections accepted, and of these dropped.
pub(crate) fn accepted(main: &HttpMain) -> (u64, u64) {
    let accepted = since(&main.metrics, Base::Accepted, main.stats.sum(Field::Accepted));
    let handled = since(&main.metrics, Base::Handled, main.stats.sum(Field::Handled));
    // The counters are read one after the other.
    (accepted, accepted.saturating_sub(handled))
}

/// Connections with a request, and without.
pub(crate) fn open(main: &HttpMain) -> (u64, u64) {
    let idle = main.stats.sum(Field::Waiting);
    (main.stats.sum(Field::Active).saturating_sub(idle), idle)
}

/// Requests, and of these under way.
pub(crate) fn all_requests(main: &HttpMain) -> (u64, u64) {
    let total = since(&main.metrics, Base::Requests, main.stats.sum(Field::Requests));
    (total, main.stats.sum(Field::Writing))
}

pub(super) fn connections(o: &mut Object<'_>, main: &HttpMain) {
    let ((accepted, dropped), (active, idle)) = (accepted(main), open(main));
    o.number("accepted", accepted);
    o.number("dropped", dropped);
    o.number("active", active);
    o.number("idle", idle);
}

pub(super) fn requests(o: &mut Object<'_>, main: &HttpMain) {
    let (total, current) = all_requests(main);
    o.number("total", total);
    o.number("current", current);
}

/// Handshakes with clients of all servers.
pub(crate) fn handshakes(metrics: &Metrics) -> Reading {
    let kinds = [Kind::HttpServer, Kind::StreamServer];
    let zones = kinds.into_iter().flat_map(|kind| metrics.zones(kind));
    let mut sum = Reading::default();
    zones.for_each(|zone| sum.add(&zone.read()));
    sum
}

pub(super) fn ssl(o: &mut Object<'_>, metrics: &Metrics) {
    json::ssl(o, &handshakes(metrics));
}

pub(super) fn worker(o: &mut Object<'_>, id: usize, worker: &WorkerReport) {
    o.number("id", id as u64);
    o.number("pid", worker.pid);
    o.object("connections", |o| {
        o.number("accepted", worker.accepted);
        o.number("dropped", worker.accepted.saturating_sub(worker.handled));
        o.number("active", worker.active.saturating_sub(worker.waiting));
        o.number("idle", worker.waiting);
    });
    o.object("http", |o| {
        o.object("requests", |o| {
            o.number("total", worker.requests);
            o.number("current", worker.writing);
        });
    });
}

/// A list of all workers.
pub(super) fn workers(main: &HttpMain, fields: Fields) -> Writer {
    let workers = main.stats.workers();
    let fields = fields.filter(|fields| !fields.is_empty());
    let mut i = 0;
    Box::new(move |out| {
        out.push(if i == 0 { b'[' } else { b',' });
        if let Some(report) = workers.get(i) {
            Object::write_only(out, fields.as_deref(), |o| worker(o, i, report));
        }
        i += 1;
        if i >= workers.len() {
            out.extend_from_slice(b"]\n");
        }
        i < workers.len()
    })
}

/// The resolvers that have counters.
pub(crate) fn resolvers(r: &Request) -> Vec<Rc<NamedStatus>> {
    r.main.metrics.parts()
}

fn resolver_row(name: &[u8]) -> Vec<u8> {
    [b"resolver ", name].concat()
}

/// The counters of a resolver since the last reset, in the order of [`STATUS_NAMES`].
pub(crate) fn resolver_values(metrics: &Metrics, part: &NamedStatus) -> Vec<u64> {
    let row = resolver_row(&part.name);
    let zone = metrics.any(Kind::Whole, &row);
    let values = part.status.values().into_iter().zip(Base::Resolver as usize..);
    values.map(|(value, at)| value.wrapping_sub(zone.base(at))).collect()
}

fn write_resolver(o: &mut Object<'_>, metrics: &Metrics, part: &NamedStatus) {
    let values = resolver_values(metrics, part);
    for group in ["requests", "responses"] {
        o.object(group, |o| {
            for ((of, name), value) in STATUS_NAMES.iter().zip(&values) {
                if *of == group {
                    o.number(name, *value);
                }
            }
        });
    }
}

/// All resolvers, or the one of that name.
pub(super) fn resolver(r: &Request, name: Option<&[u8]>, fields: Fields) -> Writer {
    let (metrics, all) = (r.main.metrics.clone(), resolvers(r));
    match name {
        Some(name) => {
            let one = all.into_iter().find(|part| part.name == name);
            object(fields, move |o| {
                if let Some(part) = &one {
                    write_resolver(o, &metrics, part);
                }
            })
        }
        None => {
            let names = all.iter().map(|part| part.name.to_vec()).collect();
            collection(fields, names, move |o, i| write_resolver(o, &metrics, &all[i]))
        }
    }
}

pub(super) mod reset {
    use super::*;

    fn note(main: &HttpMain, values: &[(Base, u64)]) {
        let zone = at_reset(&main.metrics);
        values.iter().for_each(|(base, value)| zone.set_base(*base as usize, *value));
    }

    pub fn connections(main: &HttpMain) {
        let (accepted, handled) = (main.stats.sum(Field::Accepted), main.stats.sum(Field::Handled));
        note(main, &[(Base::Accepted, accepted), (Base::Handled, handled)]);
    }

    pub fn requests(main: &HttpMain) {
        note(main, &[(Base::Requests, main.stats.sum(Field::Requests))]);
    }

    pub fn processes(main: &HttpMain) {
        note(main, &[(Base::Respawned, main.stats.respawned())]);
    }

    pub fn resolver(metrics: &Metrics, part: &NamedStatus) {
        let row = resolver_row(&part.name);
        let zone = metrics.any(Kind::Whole, &row);
        for (value, at) in part.status.values().into_iter().zip(Base::Resolver as usize..) {
            zone.set_base(at, value);
        }
    }
}
