//! What runs in the workers, for `stub_status json`: each worker tells of itself in shared memory,
//! modules add sections of their own ([`Module::status`](crate::module::Module::status)), and
//! whichever worker is asked writes one object of it all.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::ascii::write_u64;
use event::Pool;

use crate::server::HttpMain;
use crate::stats::{Field, PoolReport};

/// How often a worker tells of itself, in milliseconds.
const EVERY_MS: u64 = 1_000;

/// Adds a module's section: the numbers of its zones, its upstreams and the like.
pub type Section = fn(&HttpMain, &mut Object<'_>);

/// A JSON object in the making. Names and values come in the order in which they are added; each
/// name is to be added once.
pub struct Object<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl<'a> Object<'a> {
    /// Writes an object to `out`, with what `fill` adds.
    pub fn write(out: &'a mut Vec<u8>, fill: impl FnOnce(&mut Object<'_>)) {
        out.push(b'{');
        fill(&mut Object { out, empty: true });
        out.push(b'}');
    }

    fn name(&mut self, name: &str) {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        string(self.out, name.as_bytes());
        self.out.push(b':');
    }

    /// A number.
    pub fn number(&mut self, name: &str, n: u64) {
        self.name(name);
        write_u64(self.out, n);
    }

    /// A text. Bytes that are no UTF-8 are shown as U+FFFD.
    pub fn text(&mut self, name: &str, text: &[u8]) {
        self.name(name);
        string(self.out, text);
    }

    /// A word of the configuration that is on or off.
    pub fn flag(&mut self, name: &str, on: bool) {
        self.name(name);
        self.out.extend_from_slice(if on { b"true" } else { b"false" });
    }

    /// An object within this one.
    pub fn object(&mut self, name: &str, fill: impl FnOnce(&mut Object<'_>)) {
        self.name(name);
        Object::write(self.out, fill);
    }

    /// A list of objects, one for each item.
    pub fn list<T>(
        &mut self,
        name: &str,
        items: impl Iterator<Item = T>,
        fill: impl Fn(&mut Object<'_>, T),
    ) {
        self.name(name);
        self.out.push(b'[');
        for (i, item) in items.enumerate() {
            if i > 0 {
                self.out.push(b',');
            }
            Object::write(self.out, |o| fill(o, item));
        }
        self.out.push(b']');
    }
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
            '\0'..='\x1f' => out.extend_from_slice(format!("\\u{:04x}", c as u32).as_bytes()),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// Whether some location of this process's configuration shows the object.
static WANTED: AtomicBool = AtomicBool::new(false);

/// The object will be asked for: workers tell of themselves. Called when a location is built.
pub fn want() {
    WANTED.store(true, Ordering::Relaxed);
}

/// The pools of a worker: those that the configuration names, and its own.
fn pools(main: &HttpMain) -> Vec<Pool> {
    let mut all = main.pools.all();
    if all.iter().all(|pool| pool.name() != event::pool::DEFAULT_NAME) {
        all.insert(0, event::pool::default());
    }
    all.push(event::pool::for_logs());
    all
}

/// Tells of this worker now.
fn tell(main: &HttpMain) {
    let pools = pools(main);
    let reports = pools.iter().map(|pool| (pool.name(), pool.counters()));
    main.stats.tell(&event::stats(), net::logs::dropped(), reports);
}

/// Tells of this worker from now on, if anybody will ask.
pub(crate) fn begin(main: &Rc<HttpMain>) {
    if !WANTED.load(Ordering::Relaxed) {
        return;
    }
    tell(main);
    let main = Rc::downgrade(main);
    event::spawn(async move {
        loop {
            event::sleep(EVERY_MS).await;
            match main.upgrade() {
                // One that leaves still works, until it has nothing to do.
                Some(main) if !main.gate.is_closed() || main.active() > 0 => tell(&main),
                _ => return,
            }
        }
    });
}

/// The whole object, with a line feed.
pub fn object(main: &HttpMain) -> Vec<u8> {
    tell(main);
    let mut out = Vec::with_capacity(2048);
    Object::write(&mut out, |o| {
        connections(main, o);
        work(main, o);
        for (name, section) in &main.sections {
            o.object(name, |o| section(main, o));
        }
    });
    out.push(b'\n');
    out
}

fn connections(main: &HttpMain, o: &mut Object<'_>) {
    let stats = &main.stats;
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

fn work(main: &HttpMain, o: &mut Object<'_>) {
    let workers = main.stats.workers();
    let total = main.stats.work();
    o.object("loop", |o| {
        o.number("turns", total.turns);
        o.number("polls", total.polls);
        o.number("busy_ms", total.busy_ms);
        o.number("wait_ms", total.wait_ms);
        o.number("tasks", workers.iter().map(|w| w.tasks).sum());
        let longest = workers.iter().map(|w| w.longest_turn_ms).max();
        o.number("longest_turn_ms", longest.unwrap_or(0));
    });
    o.object("logs", |o| o.number("dropped", total.dropped));
    o.object("pools", |o| {
        for pool in pools(main) {
            let PoolReport { queued, running, done, refused, longest_wait_us } =
                main.stats.pool(pool.name());
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
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_json() {
        let mut out = Vec::new();
        Object::write(&mut out, |o| {
            o.number("a", 1);
            o.text("b\"", b"x\\\n\xff\xc3\xa4");
            o.object("c", |_| {});
            o.flag("on", true);
            o.list("l", [1, 2].into_iter(), |o, n| o.number("n", n));
        });
        let text = String::from_utf8(out).unwrap();
        let want = "{\"a\":1,\"b\\\"\":\"x\\\\\\u000a\u{fffd}\u{e4}\",\"c\":{},\"on\":true,\
                    \"l\":[{\"n\":1},{\"n\":2}]}";
        assert_eq!(text, want);
    }
}
