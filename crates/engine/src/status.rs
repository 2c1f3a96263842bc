//! The object that `stub_status json` answers with: each worker reports its own counters in shared
//! memory, modules add sections of their own ([`Module::status`](crate::Module::status)), and
//! whichever worker is asked writes one object of it all.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::json::Object;
use event::{Pool, Pools};
use net::moves::{Kind, Stay};

use crate::session::Session;
use crate::stats::{Field, MoveReport, PoolReport, Stats};

/// The interval at which a worker reports, in milliseconds.
const EVERY_MS: u64 = 1_000;

/// Adds a module's section: the numbers of its zones, its upstreams and the like.
pub type Section<S> = fn(&<S as Session>::Main, &mut Object<'_>);

/// Set when some location of this process's configuration shows the object.
static SHOWN: AtomicBool = AtomicBool::new(false);

/// Makes workers report, as the object will be asked for. Called when a location is built.
pub fn show() {
    SHOWN.store(true, Ordering::Relaxed);
}

/// The pools of a worker: those that the configuration names, and its own.
fn all_pools(pools: &Pools) -> Vec<Pool> {
    let mut all = pools.all();
    if all.iter().all(|pool| pool.name() != event::pool::DEFAULT_NAME) {
        all.insert(0, event::pool::default());
    }
    all.push(event::pool::for_logs());
    all
}

/// Reports this worker's counters now.
fn report(stats: &Stats, pools: &Pools) {
    let pools = all_pools(pools);
    let reports = pools.iter().map(|pool| (pool.name(), pool.counters()));
    stats.report(&event::stats(), crate::logs::dropped(), reports);
}

/// Reports this worker's counters from now on while `serves`, if some location shows them.
pub fn begin(stats: &Rc<Stats>, pools: &Rc<Pools>, serves: impl Fn() -> bool + 'static) {
    if !SHOWN.load(Ordering::Relaxed) {
        return;
    }
    report(stats, pools);
    let (stats, pools) = (stats.clone(), pools.clone());
    event::spawn(async move {
        loop {
            event::sleep(EVERY_MS).await;
            if !serves() {
                return;
            }
            report(&stats, &pools);
        }
    });
}

/// The whole object, with a line feed; `sections` adds those of the modules.
pub fn object(stats: &Stats, pools: &Pools, sections: impl FnOnce(&mut Object<'_>)) -> Vec<u8> {
    report(stats, pools);
    let mut out = Vec::with_capacity(2048);
    Object::write(&mut out, |o| {
        connections(stats, o);
        work(stats, pools, o);
        sections(o);
    });
    out.push(b'\n');
    out
}

fn connections(stats: &Stats, o: &mut Object<'_>) {
    o.object("connections", |o| {
        for (name, field) in [
            ("accepted", Field::Accepted),
            ("handled", Field::Handled),
            ("active", Field::Active),
            ("reading", Field::Reading),
            ("writing", Field::Writing),
            ("waiting", Field::Waiting),
        ] {
            o.number(name, stats.sum(field));
        }
    });
    o.number("requests", stats.sum(Field::Requests));
}

fn work(stats: &Stats, pools: &Pools, o: &mut Object<'_>) {
    let workers = stats.workers();
    let total = stats.work();
    o.object("loop", |o| {
        o.number("turns", total.turns);
        o.number("polls", total.polls);
        o.number("busy_ms", total.busy_ms);
        o.number("wait_ms", total.wait_ms);
        o.number("tasks", workers.iter().map(|w| w.tasks).sum());
        let longest = workers.iter().map(|w| w.longest_turn_ms).max();
        o.number("longest_turn_ms", longest.unwrap_or(0));
    });
    o.object("overload", |o| {
        let overload = stats.overload();
        o.number("step", overload.step);
        for (name, n) in ["closes", "sheds", "refusals"].into_iter().zip(overload.begun) {
            o.number(name, n);
        }
        o.number("closed", overload.closed);
        o.number("refused", overload.refused);
        o.number("preferred", overload.preferred);
        o.number("displaced", overload.displaced);
    });
    o.object("handover", |o| {
        for kind in Kind::ALL {
            let MoveReport { moved, sent, received, stayed } = stats.moves(kind);
            o.object(kind.name(), |o| {
                o.number("moved", moved);
                o.number("sent", sent);
                o.number("received", received);
                o.object("stayed", |o| {
                    for (why, n) in Stay::ALL.into_iter().zip(stayed) {
                        o.number(why.name(), n);
                    }
                });
            });
        }
    });
    o.object("logs", |o| o.number("dropped", total.dropped));
    o.object("pools", |o| {
        for pool in all_pools(pools) {
            let PoolReport { queued, running, done, refused, longest_wait_us } =
                stats.pool(pool.name());
            o.object(pool.name(), |o| {
                o.number("threads", pool.threads() as u64);
                o.number("max_queue", pool.max_queue() as u64);
                o.number("queued", queued);
                o.number("running", running);
                o.number("done", done);
                o.number("refused", refused);
                o.number("longest_wait_us", longest_wait_us);
            });
        }
    });
    o.list("workers", workers.iter(), |o, worker| {
        o.number("pid", worker.pid);
        o.number("active", worker.active);
        o.number("tasks", worker.tasks);
        o.number("longest_turn_ms", worker.longest_turn_ms);
        o.number("silent_ms", crate::beat::silent_ms(worker.slot).unwrap_or(0));
    });
}
