//! `limit_conn`: a limit on the sessions of one key that are under way at once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::log::Level;
use conf::table::Contexts;
use conf::{ConfError, Node};
use engine::metrics::{Kind, word};
use engine::{Cx, Session};
use fleet::{State, Touched};
use shm::{Entry, Key, Locked, Place, Record};

use super::conn_sync::ConnPart;
use super::{Counted, Refusing, Scratch, Shared, Zone, define, positive, refer};

/// The number of sessions of one key.
#[derive(Clone, Copy)]
pub struct Count(pub(super) u64);

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

    fn kind<S: Session>() -> Kind {
        if S::BLOCK == Contexts::HTTP { Kind::HttpLimitConn } else { Kind::StreamLimitConn }
    }

    fn give_back(t: &mut Locked<'_, Count>, entry: Entry, touched: Option<&Touched>) {
        match (t.value(entry), touched) {
            (Some(Count(0 | 1)), None) => t.remove(entry),
            (Some(Count(n)), touched) => {
                t.set(entry, Count(n.saturating_sub(1)));
                // An entry without sessions goes when no server has any of its key.
                if let Some(touched) = touched {
                    touched.add(entry, 1);
                }
            }
            (None, _) => {}
        }
    }

    fn share(zone: &Zone<Count>, fleet: &fleet::Fleet) {
        if let (Some(_), Some(shared)) = (zone.synced.get(), zone.shared.get()) {
            let _ = zone.status.set(fleet.status().clone());
            fleet.add(Rc::new(ConnPart::new(zone, shared.clone())));
        }
    }
}

/// One session counted; given back when dropped, in whatever way the session ends.
pub(super) struct Hold {
    shared: Rc<Shared<Count>>,
    entry: Entry,
    /// Its place in the journal, for the case of this process's sudden death.
    place: Option<Place>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut t = self.shared.table.lock();
        if let (Some(journal), Some(place)) = (&self.shared.journal, self.place) {
            journal.forget(place);
        }
        Count::give_back(&mut t, self.entry, self.shared.touched.as_ref());
    }
}

/// The reason that a zone does not take one more.
pub(super) enum Refusal {
    Limit,
    NoRoom,
}

impl Hold {
    pub(super) fn take(
        shared: &Rc<Shared<Count>>,
        key: &[u8],
        (limit, is_joined): (u64, bool),
        slot: usize,
    ) -> Result<Hold, Refusal> {
        let key = shared.table.key(key);
        let touched = shared.touched.as_ref();
        let mut t = shared.table.lock();
        let entry = match t.find(key) {
            None => insert(&mut t, key, touched)?,
            Some(entry) => {
                let Count(n) = t.value(entry).unwrap_or(Count(0));
                let others = touched.filter(|_| is_joined).map_or(0, |all| all.noted(entry));
                if n.saturating_add(others) >= limit {
                    return Err(Refusal::Limit);
                }
                t.set(entry, Count(n + 1));
                entry
            }
        };
        touched.map(|touched| touched.add(entry, 1));
        let place = shared.journal.as_ref().and_then(|journal| journal.note(slot, entry));
        drop(t);
        Ok(Hold { shared: shared.clone(), entry, place })
    }
}

/// So many of the oldest entries are looked at for one that makes room for another key.
const EMPTY_MAX: usize = 8;

fn insert(
    t: &mut Locked<'_, Count>,
    key: Key<'_>,
    touched: Option<&Touched>,
) -> Result<Entry, Refusal> {
    let mut made = t.insert(key, Count(1));
    for _ in 0..EMPTY_MAX {
        let is_full = made.is_err();
        if !is_full || !touched.is_some_and(|touched| make_room(t, touched)) {
            break;
        }
        made = t.insert(key, Count(1));
    }
    made.map_err(|_| Refusal::NoRoom)
}

/// Removes an entry without sessions here, if there is one. Most of them are keys that others have
/// sessions of, and without its entry a key counts here from 0 until the next exchange. So one of
/// which no others are known goes first.
fn make_room(t: &mut Locked<'_, Count>, touched: &Touched) -> bool {
    let (mut next, mut empty) = (t.oldest(), None);
    for _ in 0..EMPTY_MAX {
        let Some(entry) = next else { break };
        next = t.newer(entry);
        match t.value(entry) {
            Some(Count(0)) if touched.noted(entry) == 0 => {
                t.remove(entry);
                return true;
            }
            Some(Count(0)) => empty = empty.or(Some(entry)),
            // The next time, others are looked at.
            _ => t.touch(entry),
        }
    }
    empty.inspect(|entry| t.remove(*entry)).is_some()
}

/// The outcome for a session: it and the sessions that it made (subrequests) count once.
#[derive(Default)]
struct ConnOutcome {
    status: Cell<Option<&'static str>>,
    holds: RefCell<Vec<Hold>>,
}

/// `$limit_conn_status`
pub fn status<S: Session>(s: &mut S, out: &mut Vec<u8>) -> bool {
    let text = s.shared::<ConnOutcome>().status.get();
    out.extend_from_slice(text.unwrap_or_default().as_bytes());
    text.is_some()
}

/// One zone that the sessions of a place are held to.
#[derive(Clone)]
pub(crate) struct ConnLimit {
    zone: Rc<Zone<Count>>,
    connections: u64,
}

engine::settings! {
    /// The `limit_conn` directives of one block.
    pub struct ConnLimits {
        limits: Option<Vec<ConnLimit>>,
        /// The treatment of refused sessions.
        pub refusing: Refusing,
    }
}

/// Reads `limit_conn_zone`.
///
/// # Errors
/// A parameter is wrong, or the zone is defined twice.
pub fn set_zone<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let mut synced = None;
    let zone = define::<S, Count>(cx, n, |word| {
        let is_sync = *word == *"sync";
        if is_sync {
            synced = Some(word.clone());
        }
        Ok(is_sync)
    })?;
    if let Some(word) = synced {
        cx.env.fleet.check(&word)?;
        let _ = zone.synced.set(word);
    }
    Ok(())
}

/// Reads `limit_conn` into the [`ConnLimits`] of its block.
///
/// # Errors
/// The number is no number of connections, or the zone is limited twice in the block.
pub fn set_limit<S: Session>(cx: &mut Cx<S>, n: &Node) -> Result<(), ConfError> {
    let (name, count) = (n.arg(0)?, n.arg(1)?);
    let zone = refer::<S, Count>(cx, name, name.bytes(), None)?;
    let limits = cx.loc::<ConnLimits>().limits.get_or_insert_default();
    if limits.iter().any(|limit| Rc::ptr_eq(&limit.zone, &zone)) {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let connections = positive(count.bytes()).ok_or_else(|| {
        ConfError::at(count, format!("invalid number of connections \"{}\"", count.lossy()))
    })?;
    if connections > 65535 {
        return Err(ConfError::at(count, "connection limit must be less 65536"));
    }
    limits.push(ConnLimit { zone, connections: connections as u64 });
    Ok(())
}

impl ConnLimits {
    /// The limiter of a place; `None` where nothing is limited.
    pub fn limiter(&self) -> Option<ConnLimiter> {
        let limits = self.limits.clone()?;
        Some(ConnLimiter { limits, refusing: self.refusing, scratch: Scratch::default() })
    }
}

/// The limits of one place, ready to use.
pub struct ConnLimiter {
    limits: Vec<ConnLimit>,
    refusing: Refusing,
    scratch: Scratch,
}

impl ConnLimiter {
    /// The treatment of refused sessions.
    pub fn refusing(&self) -> &Refusing {
        &self.refusing
    }

    /// Twice the same, for two handlers.
    pub fn shared(self) -> (Rc<ConnLimiter>, Rc<ConnLimiter>) {
        let limiter = Rc::new(self);
        (limiter.clone(), limiter)
    }

    /// Counts a session that another process has admitted and gives to this one, whatever the
    /// limit: it has been counted there until now.
    pub fn resume<S: Session>(&self, s: &mut S) {
        let mut key = self.scratch.take();
        for limit in &self.limits {
            let Some(shared) = limit.zone.shared.get() else { continue };
            if limit.zone.key(s, &mut key)
                && let Ok(hold) = Hold::take(shared, &key, (u64::MAX, false), s.stats().slot())
            {
                let outcome = s.shared::<ConnOutcome>();
                outcome.status.set(Some("PASSED"));
                outcome.holds.borrow_mut().push(hold);
            }
        }
        self.scratch.give(key);
    }

    /// Counts a session in all zones. False where it is to be refused.
    pub fn admit<S: Session>(&self, s: &mut S) -> bool {
        if s.shared::<ConnOutcome>().status.get().is_some() {
            return true;
        }
        let mut key = self.scratch.take();
        let admitted = self.hold_all(s, &mut key);
        self.scratch.give(key);
        admitted
    }

    fn hold_all<S: Session>(&self, s: &mut S, key: &mut Vec<u8>) -> bool {
        for limit in &self.limits {
            let Some(shared) = limit.zone.shared.get() else { continue };
            if !limit.zone.key(s, key) {
                continue;
            }
            let terms = (limit.connections, limit.zone.is_joined());
            match Hold::take(shared, key, terms, s.stats().slot()) {
                Ok(hold) => {
                    let outcome = s.shared::<ConnOutcome>();
                    outcome.status.set(Some("PASSED"));
                    outcome.holds.borrow_mut().push(hold);
                    limit.zone.count(s, word::PASSED);
                }
                Err(refusal) => return self.refuse(s, &limit.zone, refusal),
            }
        }
        true
    }

    #[cold]
    fn refuse<S: Session>(&self, s: &mut S, zone: &Zone<Count>, refusal: Refusal) -> bool {
        let name = zone.shown();
        match refusal {
            Refusal::Limit => {
                let dry = if self.refusing.dry_run() { ", dry run," } else { "" };
                let level = self.refusing.level();
                s.log(level, format_args!("limiting connections{dry} by zone \"{name}\""));
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
        // The counts of this session in zones before are given back.
        let outcome = s.shared::<ConnOutcome>();
        outcome.holds.borrow_mut().clear();
        let (text, word) = match self.refusing.dry_run() {
            true => ("REJECTED_DRY_RUN", word::REJECTED_DRY_RUN),
            false => ("REJECTED", word::REJECTED),
        };
        zone.count(s, word);
        outcome.status.set(Some(text));
        self.refusing.dry_run()
    }
}

impl Zone<Count> {
    /// Whether the others' counts are those of now.
    fn is_joined(&self) -> bool {
        self.status.get().is_some_and(|status| status.state() == State::Joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use shm::{Journal, Table, ZoneState};

    fn shared(bytes: usize) -> Rc<Shared<Count>> {
        let journal = Some(Journal::new(2, 32).unwrap());
        let table = Table::new(bytes).unwrap();
        Rc::new(Shared { key: Bytes::new(), table, journal, touched: None })
    }

    fn count(shared: &Shared<Count>, key: &[u8]) -> Option<u64> {
        let t = shared.table.lock();
        let entry = t.find(shared.table.key(key))?;
        t.value(entry).map(|Count(n)| n)
    }

    #[test]
    fn holds_count_and_give_back() {
        let shared = shared(1 << 16);
        let first = Hold::take(&shared, b"a", (2, false), 0).ok().unwrap();
        let second = Hold::take(&shared, b"a", (2, false), 0).ok().unwrap();
        assert!(matches!(Hold::take(&shared, b"a", (2, false), 0), Err(Refusal::Limit)));
        let other = Hold::take(&shared, b"b", (2, false), 0).ok().unwrap();
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
        let mine = Hold::take(&shared, b"a", (9, false), 0).ok().unwrap();
        for key in [b"a", b"a", b"b"] {
            // The holds of a killed process are never dropped.
            std::mem::forget(Hold::take(&shared, key, (9, false), 1).ok().unwrap());
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
            match Hold::take(&shared, &holds.len().to_le_bytes(), (1, false), 0) {
                Ok(hold) => holds.push(hold),
                Err(refusal) => break refusal,
            }
        };
        assert!(matches!(refusal, Refusal::NoRoom));
        assert_eq!(holds.len(), shared.table.capacity());
        holds.pop();
        assert!(Hold::take(&shared, b"new", (1, false), 0).is_ok());
    }
    #[test]
    fn entries_without_sessions_make_room_and_those_that_others_have_go_last() {
        let table = Table::new(4096).unwrap();
        let touched = Some(Touched::new(4096 / 64).unwrap());
        let shared = Rc::new(Shared { key: Bytes::new(), table, journal: None, touched });
        let take = |key: &[u8]| Hold::take(&shared, key, (1, true), 0).ok();
        let find = |key: &[u8]| shared.table.lock().find(shared.table.key(key));
        for key in [b"a", b"b", b"c"] {
            drop(take(key));
        }
        for key in [b"a", b"c"] {
            shared.touched.as_ref().unwrap().note(find(key).unwrap(), 1);
        }
        let mut holds: Vec<_> = (0_u32..).map_while(|n| take(&n.to_le_bytes())).collect();
        // Each of the three made room, and then there was none.
        assert_eq!(holds.len(), shared.table.capacity());
        assert!([b"a", b"b", b"c"].iter().all(|key| find(*key).is_none()));
        holds.clear();
        let order = || {
            let t = shared.table.lock();
            std::iter::successors(t.oldest(), |entry| t.newer(*entry)).collect::<Vec<_>>()
        };
        let (all, touched) = (order(), shared.touched.as_ref().unwrap());
        all.iter().enumerate().for_each(|(n, entry)| touched.note(*entry, u64::from(n != 2)));
        let _new = take(b"new").unwrap();
        assert_eq!((order()[..2].to_vec(), order()[2]), (all[..2].to_vec(), all[3]));
        let _newer = take(b"newer").unwrap();
        assert_eq!(order()[0], all[1]);
    }
}
