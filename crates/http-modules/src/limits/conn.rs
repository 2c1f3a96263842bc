//! `limit_conn`: how many requests of one key may be under way at once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::log::Level;
use conf::table::{Args, Contexts, Directive};
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Pipeline, Scope, Verdict};
use http::request::Request;
use http::vars::VarDef;
use shm::{Entry, Locked, Place, Record};

use super::{Counted, Refusing, Scratch, Shared, Zone, Zones, define, map_zones, positive, refer};

/// The module's table.
pub static MODULE: Module = Module {
    name: "limit_conn",
    directives: DIRECTIVES,
    variables: &[VarDef::new("limit_conn_status", status_variable)],
    confs: &[ConfType::of::<Zones<Count>>(Scope::Main), ConfType::of::<ConnConf>(Scope::Location)],
    init: Some(map_zones::<Count>),
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "limit_conn_zone",
        Contexts::HTTP,
        Args::T2,
        "",
        "A zone that counts by a key the connections whose request is being served.",
        |cx, n| define::<Count>(cx, n, |_| Ok(false)).map(|_| ()),
    ),
    directive(
        "limit_conn",
        HSL,
        Args::T2,
        "",
        "The most connections of one key that may be served at once.",
        limit_conn,
    ),
    directive(
        "limit_conn_log_level",
        HSL,
        Args::T1,
        "error",
        "At which level refused requests are logged.",
        |cx, n| cx.loc::<ConnConf>().refusing.set_log_level(n),
    ),
    directive(
        "limit_conn_status",
        HSL,
        Args::T1,
        "503",
        "The status of refused requests.",
        |cx, n| cx.loc::<ConnConf>().refusing.set_status(n),
    ),
    directive(
        "limit_conn_dry_run",
        HSL,
        Args::FLAG,
        "off",
        "Counts and logs, and lets all requests through.",
        |cx, n| cx.loc::<ConnConf>().refusing.set_dry_run(n),
    ),
];

/// How many there are of one key.
#[derive(Clone, Copy)]
struct Count(u64);

impl Record for Count {
    const WORDS: usize = 1;

    fn to_words(self) -> [u64; 4] {
        [self.0, 0, 0, 0]
    }

    fn from_words(words: [u64; 4]) -> Count {
        Count(words[0])
    }
}

impl Counted for Count {
    const NAME: &'static str = "limit_conn";
    const KEY_MAX: usize = 255;
    const HELD: bool = true;

    fn give_back(t: &mut Locked<'_, Count>, entry: Entry) {
        match t.value(entry) {
            Some(Count(0 | 1)) => t.remove(entry),
            Some(Count(n)) => t.set(entry, Count(n - 1)),
            None => {}
        }
    }
}

/// One connection counted; given back when dropped, in whatever way the request ends.
struct Hold {
    shared: Rc<Shared<Count>>,
    entry: Entry,
    /// Where the journal has it, for the case of this process's sudden death.
    place: Option<Place>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut t = self.shared.table.lock();
        if let (Some(journal), Some(place)) = (&self.shared.journal, self.place) {
            journal.forget(place);
        }
        Count::give_back(&mut t, self.entry);
    }
}

/// Why a zone does not take one more.
enum Refusal {
    Limit,
    NoRoom,
}

impl Hold {
    fn take(
        shared: &Rc<Shared<Count>>,
        key: &[u8],
        limit: u64,
        slot: usize,
    ) -> Result<Hold, Refusal> {
        let key = shared.table.key(key);
        let mut t = shared.table.lock();
        let entry = match t.find(key) {
            None => t.insert(key, Count(1)).map_err(|_| Refusal::NoRoom)?,
            Some(entry) => {
                let Count(n) = t.value(entry).unwrap_or(Count(0));
                if n >= limit {
                    return Err(Refusal::Limit);
                }
                t.set(entry, Count(n + 1));
                entry
            }
        };
        let place = shared.journal.as_ref().and_then(|journal| journal.note(slot, entry));
        drop(t);
        Ok(Hold { shared: shared.clone(), entry, place })
    }
}

/// What became of a request; with its subrequests it is held to limits once.
#[derive(Default)]
struct Outcome {
    status: Cell<Option<&'static str>>,
    holds: RefCell<Vec<Hold>>,
}

fn status_variable(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let text = r.shared::<Outcome>().status.get();
    out.extend_from_slice(text.unwrap_or_default().as_bytes());
    text.is_some()
}

#[derive(Clone)]
struct Limit {
    zone: Rc<Zone<Count>>,
    connections: u64,
}

#[derive(Default)]
struct ConnConf {
    limits: Option<Vec<Limit>>,
    refusing: Refusing,
}

impl Conf for ConnConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        if self.limits.is_none() {
            self.limits.clone_from(&prev.limits);
        }
        self.refusing.merge(&prev.refusing);
        Ok(())
    }
}

fn limit_conn(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let (name, count) = (n.arg(0)?, n.arg(1)?);
    let zone = refer::<Count>(cx, name, name.bytes(), None)?;
    let limits = cx.loc::<ConnConf>().limits.get_or_insert_default();
    if limits.iter().any(|limit| Rc::ptr_eq(&limit.zone, &zone)) {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let connections = positive(count.bytes()).ok_or_else(|| {
        ConfError::at(count, format!("invalid number of connections \"{}\"", count.lossy()))
    })?;
    if connections > 65535 {
        return Err(ConfError::at(count, "connection limit must be less 65536"));
    }
    limits.push(Limit { zone, connections: connections as u64 });
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<ConnConf>();
    let Some(limits) = conf.limits.clone() else { return Ok(()) };
    let handler = LimitConn { limits, refusing: conf.refusing, scratch: Scratch::default() };
    p.preaccess.push(Box::new(move |r: &mut Request| handler.run(r)));
    Ok(())
}

struct LimitConn {
    limits: Vec<Limit>,
    refusing: Refusing,
    scratch: Scratch,
}

impl LimitConn {
    fn run(&self, r: &mut Request) -> Verdict {
        if r.shared::<Outcome>().status.get().is_some() {
            return Verdict::Next;
        }
        let mut key = self.scratch.take();
        let verdict = self.hold_all(r, &mut key);
        self.scratch.give(key);
        verdict
    }

    fn hold_all(&self, r: &mut Request, key: &mut Vec<u8>) -> Verdict {
        for limit in &self.limits {
            let Some(shared) = limit.zone.shared.get() else { continue };
            if !limit.zone.key(r, key) {
                continue;
            }
            match Hold::take(shared, key, limit.connections, r.main.stats.slot()) {
                Ok(hold) => {
                    let outcome = r.shared::<Outcome>();
                    outcome.status.set(Some("PASSED"));
                    outcome.holds.borrow_mut().push(hold);
                }
                Err(refusal) => return self.refuse(r, &limit.zone, refusal),
            }
        }
        Verdict::Next
    }

    #[cold]
    fn refuse(&self, r: &mut Request, zone: &Zone<Count>, refusal: Refusal) -> Verdict {
        let name = zone.shown();
        match refusal {
            Refusal::Limit => {
                let dry = if self.refusing.dry_run() { ", dry run," } else { "" };
                let level = self.refusing.level();
                r.log(level, format_args!("limiting connections{dry} by zone \"{name}\""));
            }
            Refusal::NoRoom => {
                let log = base::log::default();
                base::log!(
                    log,
                    Level::Crit,
                    None,
                    "ngx_slab_alloc() failed: no memory in limit_conn_zone \"{name}\""
                );
            }
        }
        // What was counted for this request in zones before is given back.
        let outcome = r.shared::<Outcome>();
        outcome.holds.borrow_mut().clear();
        let text = if self.refusing.dry_run() { "REJECTED_DRY_RUN" } else { "REJECTED" };
        outcome.status.set(Some(text));
        self.refusing.verdict()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shm::{Journal, Table, ZoneState};

    fn shared(bytes: usize) -> Rc<Shared<Count>> {
        let journal = Some(Journal::new(2, 32).unwrap());
        Rc::new(Shared { key: Bytes::new(), table: Table::new(bytes).unwrap(), journal })
    }

    fn count(shared: &Shared<Count>, key: &[u8]) -> Option<u64> {
        let t = shared.table.lock();
        let entry = t.find(shared.table.key(key))?;
        t.value(entry).map(|Count(n)| n)
    }

    #[test]
    fn holds_count_and_give_back() {
        let shared = shared(1 << 16);
        let first = Hold::take(&shared, b"a", 2, 0).ok().unwrap();
        let second = Hold::take(&shared, b"a", 2, 0).ok().unwrap();
        assert!(matches!(Hold::take(&shared, b"a", 2, 0), Err(Refusal::Limit)));
        let other = Hold::take(&shared, b"b", 2, 0).ok().unwrap();
        assert_eq!((count(&shared, b"a"), count(&shared, b"b")), (Some(2), Some(1)));
        drop(first);
        assert_eq!(count(&shared, b"a"), Some(1));
        drop((second, other));
        assert_eq!((count(&shared, b"a"), count(&shared, b"b")), (None, None));
        assert!(shared.table.lock().is_empty());
    }

    #[test]
    fn the_dead_hold_nothing() {
        let shared = shared(1 << 16);
        let mine = Hold::take(&shared, b"a", 9, 0).ok().unwrap();
        for key in [b"a", b"a", b"b"] {
            // What a process holds that is killed is never dropped.
            std::mem::forget(Hold::take(&shared, key, 9, 1).ok().unwrap());
        }
        assert_eq!((count(&shared, b"a"), count(&shared, b"b")), (Some(3), Some(1)));
        shared.died(0, 1);
        assert_eq!((count(&shared, b"a"), count(&shared, b"b")), (Some(1), None));
        drop(mine);
        assert_eq!(count(&shared, b"a"), None);
    }

    #[test]
    fn a_full_zone_refuses_and_keeps_what_it_has() {
        let shared = shared(4096);
        let mut holds = Vec::new();
        let refusal = loop {
            match Hold::take(&shared, &holds.len().to_le_bytes(), 1, 0) {
                Ok(hold) => holds.push(hold),
                Err(refusal) => break refusal,
            }
        };
        assert!(matches!(refusal, Refusal::NoRoom));
        assert_eq!(holds.len(), shared.table.capacity());
        holds.pop();
        assert!(Hold::take(&shared, b"new", 1, 0).is_ok());
    }
}
