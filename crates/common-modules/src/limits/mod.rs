//! `limit_req`, `limit_conn` and `limit_auth`: rates and numbers of sessions and of failed logins,
//! counted by a key over all workers.
//!
//! An engine lists [`Zones`] of the kind in scope `Main`, calls [`map_zones`] when all directives
//! are read, and keeps the limits of a place in a value of its own.

pub mod auth;
pub mod conn;
mod conn_sync;
pub mod req;

use std::cell::{Cell, OnceCell};
use std::io;
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use conf::template::Template;
use conf::value::{set_enum, set_flag, set_num_within};
use conf::{ConfError, Node, Word};
use engine::metrics::{Kind, ZoneRef};
use engine::settings::Conf;
use engine::zones::name_and_size;
use engine::{Cx, LoadEnv, Session};
use fleet::Touched;
use shm::{Entry, Journal, Locked, Record, Table, ZoneState};

/// The record that a kind of limit keeps by key.
pub trait Counted: Record + 'static {
    /// The directive, and with `_zone` behind it the one that defines a zone.
    const NAME: &'static str;
    /// Longest key in bytes.
    const KEY_MAX: usize;
    /// Sessions hold entries, and give them back by [`Counted::give_back`].
    const HELD: bool;

    /// The kind of its zones' counters, for an engine's sessions.
    fn kind<S: Session>() -> Kind;

    /// Takes back the hold of a session that is over. `touched` are the entries that other servers
    /// are to hear of.
    fn give_back(t: &mut Locked<'_, Self>, entry: Entry, touched: Option<&Touched>);

    /// Shares a zone with other servers, if it is to be.
    fn share(zone: &Zone<Self>, fleet: &fleet::Fleet) {
        let _ = (zone, fleet);
    }
}

/// A zone's memory, which all workers share.
pub(crate) struct Shared<R> {
    /// The key as it was written: the counts of another key are of no use.
    key: Bytes,
    table: Table<R>,
    /// The entries that each worker holds, for a kind whose entries are held.
    journal: Option<Journal>,
    /// The entries that other servers are to hear of, for a zone that is shared with them.
    touched: Option<Touched>,
}

/// Bytes of a table's cell: see [`Entry::cell`].
const CELL: usize = 64;

/// A worker with more connections than this may leave some of them counted when it dies.
const JOURNAL_PLACES: usize = 16 << 10;

impl<R: Counted> Shared<R> {
    fn new(key: Bytes, bytes: usize, is_synced: bool, env: &LoadEnv) -> io::Result<Shared<R>> {
        let slots = env.slots();
        let journal = match R::HELD {
            true => Some(Journal::new(slots, env.connections.min(JOURNAL_PLACES))?),
            false => None,
        };
        let table = Table::new(bytes)?;
        let touched = match is_synced {
            true => Some(Touched::new(table.bytes() / CELL)?),
            false => None,
        };
        Ok(Shared { key, table, journal, touched })
    }
}

impl<R: Counted> ZoneState for Shared<R> {
    fn died(&self, pid: u32, slot: usize) {
        self.table.free_of(pid);
        let held = self.journal.iter().flat_map(|journal| journal.take(slot));
        let touched = self.touched.as_ref();
        held.for_each(|entry| R::give_back(&mut self.table.lock(), entry, touched));
    }

    fn fill(&self) -> Option<shm::Fill> {
        Some(self.table.fill())
    }
}

/// A zone: named by limits, defined by one directive somewhere in the block.
pub struct Zone<R> {
    name: Bytes,
    /// The word that names it first.
    at: Word,
    bytes: Cell<usize>,
    key: OnceCell<Template>,
    key_text: OnceCell<Bytes>,
    /// `limit_req_zone`: thousandths of a request a second.
    rate: Cell<i64>,
    /// `sync`: the word that shares the zone with other servers.
    synced: OnceCell<Word>,
    /// The state of the connection to other servers, where the zone is shared.
    status: OnceCell<Rc<fleet::Status>>,
    /// `sync=strict`: each request asks the engine.
    strict: OnceCell<req::Strict>,
    shared: OnceCell<Rc<Shared<R>>>,
    /// Its counters.
    counted: OnceCell<ZoneRef>,
}

#[cfg(test)]
impl<R: Counted> Zone<R> {
    /// A zone with this rate in thousandths of a request per second, and without memory.
    fn for_tests(rate: i64) -> Rc<Zone<R>> {
        let pos = conf::Pos { file: std::path::Path::new("t").into(), line: 1, column: 1 };
        Rc::new(Zone {
            name: Bytes::from_static(b"z"),
            at: Word { text: Bytes::new(), pos, quoted: false },
            bytes: Cell::new(0),
            key: OnceCell::new(),
            key_text: OnceCell::new(),
            rate: Cell::new(rate),
            synced: OnceCell::new(),
            status: OnceCell::new(),
            strict: OnceCell::new(),
            shared: OnceCell::new(),
            counted: OnceCell::new(),
        })
    }
}

impl<R: Counted> Zone<R> {
    fn shown(&self) -> String {
        base::log::lossy(&self.name).into_owned()
    }

    fn key_shown(&self) -> String {
        base::log::lossy(self.key_text.get().map_or(b"", |text| text)).into_owned()
    }

    /// Appends the session's key. False where the zone does not count the session.
    fn key<S: Session>(&self, s: &mut S, out: &mut Vec<u8>) -> bool {
        out.clear();
        if let Some(key) = self.key.get() {
            key.eval_into(s, out);
        }
        if out.len() > R::KEY_MAX {
            let (key, value) = (self.key_shown(), base::log::lossy(out).into_owned());
            let max = R::KEY_MAX;
            s.log(
                Level::Error,
                format_args!(
                    "the value of the \"{key}\" key is more than {max} bytes: \"{value}\""
                ),
            );
            return false;
        }
        !out.is_empty()
    }

    /// Attaches the memory: that of the configuration before, if it counts the same.
    fn map<S: Session>(&self, cx: &Cx<S>) -> Result<(), ConfError> {
        let (name, shown) = (R::NAME, self.shown());
        let Some(key) = self.key_text.get() else {
            return Err(ConfError::at(
                &self.at,
                format!("zero size shared memory zone \"{shown}\""),
            ));
        };
        if cx.env.zones.is_put(&self.name) {
            // By another engine: its block counts by its own rate, and in other memory.
            let conflict = shm::ZoneConflict::OtherUse(self.name.to_vec());
            return Err(ConfError::at(&self.at, conflict.to_string()));
        }
        let bytes = self.bytes.get();
        let kept = cx.env.zones.kept::<Shared<R>>(&self.name);
        let zone = format_args!("zone \"{shown}\" starts anew");
        let log = base::log::default();
        let is_synced = self.synced.get().is_some();
        let shared = match kept {
            Some(kept) if kept.key == key && kept.touched.is_some() == is_synced => kept,
            kept => {
                if kept.as_ref().is_some_and(|kept| kept.key == key) {
                    let told = if is_synced { "is shared now" } else { "is not shared any more" };
                    base::log!(log, Level::Notice, None, "{zone}: it {told}");
                } else if let Some(kept) = kept {
                    // Counts by another key are of no use.
                    let (key, old) = (self.key_shown(), base::log::lossy(&kept.key));
                    let told = format_args!("its key is \"{key}\" now, and was \"{old}\"");
                    base::log!(log, Level::Notice, None, "{zone}: {told}");
                } else if let Some((user, old)) = cx.env.zones.other_shape(&self.name) {
                    let now = format_args!("it is {name} of {bytes} bytes now");
                    let told = format_args!("{now}, and was {user} of {old} bytes");
                    base::log!(log, Level::Notice, None, "{zone}: {told}");
                }
                let shared = Shared::new(key.clone(), bytes, is_synced, &cx.env).map_err(|e| {
                    let e = base::log::os_error(&e);
                    let message = format!("mmap(MAP_ANON|MAP_SHARED, {bytes}) failed {e}");
                    ConfError::at(&self.at, message)
                })?;
                Rc::new(shared)
            }
        };
        cx.env.zones.put(&self.name, shared.clone());
        let _ = self.shared.set(shared);
        let _ = self.counted.set(cx.env.metrics.declare(R::kind::<S>(), &self.name));
        Ok(())
    }

    /// Counts an outcome, which is a word of the zone's counters.
    fn count<S: Session>(&self, s: &S, outcome: usize) {
        let metrics = s.metrics();
        let row = self.counted.get().and_then(|zone| metrics.row_of(*zone));
        if let Some(counters) = row.and_then(|row| metrics.counters(row)) {
            counters.add(outcome, 1);
        }
    }
}

/// All zones of one kind: the value of scope `Main` that an engine lists.
pub struct Zones<R>(Vec<Rc<Zone<R>>>);

impl<R> Default for Zones<R> {
    fn default() -> Self {
        Zones(Vec::new())
    }
}

impl<R: Counted> Conf for Zones<R> {
    fn merge(&mut self, _: &Self) -> Result<(), ConfError> {
        Ok(())
    }
}

/// The zone of that name, made at its first mention.
///
/// # Errors
/// The name is taken for something else, or with another size.
fn refer<S: Session, R: Counted>(
    cx: &mut Cx<S>,
    word: &Word,
    name: &[u8],
    bytes: Option<usize>,
) -> Result<Rc<Zone<R>>, ConfError> {
    cx.declare_zone(word, name, bytes, R::NAME)?;
    let zones = &mut cx.main::<Zones<R>>().0;
    if let Some(zone) = zones.iter().find(|zone| zone.name == name) {
        return Ok(zone.clone());
    }
    let zone = Rc::new(Zone {
        name: Bytes::copy_from_slice(name),
        at: word.clone(),
        bytes: Cell::new(0),
        key: OnceCell::new(),
        key_text: OnceCell::new(),
        rate: Cell::new(0),
        synced: OnceCell::new(),
        status: OnceCell::new(),
        strict: OnceCell::new(),
        shared: OnceCell::new(),
        counted: OnceCell::new(),
    });
    zones.push(zone.clone());
    Ok(zone)
}

/// `limit_…_zone KEY zone=NAME:SIZE …`; `other` reads the parameters that are the directive's own.
fn define<S: Session, R: Counted>(
    cx: &mut Cx<S>,
    n: &Node,
    other: impl FnMut(&Word) -> Result<bool, ConfError>,
) -> Result<Rc<Zone<R>>, ConfError> {
    let word = n.arg(0)?;
    let key = Key { value: Some(cx.template(word)?), text: word.text.clone() };
    define_by::<S, R>(cx, n, key, &n.args[1..], other)
}

/// The key that a zone counts by.
struct Key {
    /// None where the owner of the zone makes it.
    value: Option<Template>,
    /// As it is shown.
    text: Bytes,
}

/// `limit_…_zone … zone=NAME:SIZE …` with the parameters `words`.
fn define_by<S: Session, R: Counted>(
    cx: &mut Cx<S>,
    n: &Node,
    key: Key,
    words: &[Word],
    mut other: impl FnMut(&Word) -> Result<bool, ConfError>,
) -> Result<Rc<Zone<R>>, ConfError> {
    let mut named = None;
    for word in words {
        if let Some(text) = word.bytes().strip_prefix(b"zone=") {
            named = Some((word, name_and_size(word, text)?));
        } else if !other(word)? {
            return Err(ConfError::at(word, format!("invalid parameter \"{}\"", word.lossy())));
        }
    }
    let directive = n.name.lossy();
    let Some((word, (name, bytes))) = named.filter(|(_, (name, _))| !name.is_empty()) else {
        return Err(ConfError::at(
            &n.name,
            format!("\"{directive}\" must have \"zone\" parameter"),
        ));
    };
    let zone = refer::<S, R>(cx, word, &name, Some(bytes))?;
    if zone.key_text.get().is_some() {
        let (name, key) = (zone.shown(), zone.key_shown());
        let message = format!("{directive} \"{name}\" is already bound to key \"{key}\"");
        return Err(ConfError::at(word, message));
    }
    if let Some(value) = key.value {
        let _ = zone.key.set(value);
    }
    let _ = zone.key_text.set(key.text);
    zone.bytes.set(bytes);
    Ok(zone)
}

/// Gives every zone that is named its memory, when all directives are read.
///
/// # Errors
/// A zone is named and not defined, or memory cannot be mapped.
pub fn map_zones<S: Session, R: Counted>(cx: &mut Cx<S>) -> Result<(), ConfError> {
    let zones: Vec<_> = cx.main::<Zones<R>>().0.clone();
    zones.iter().try_for_each(|zone| {
        zone.map(cx)?;
        R::share(zone, &cx.env.fleet);
        Ok(())
    })
}

engine::settings! {
    /// The treatment of refused sessions: `limit_…_log_level`, `_status` and `_dry_run`.
    #[derive(Clone, Copy)]
    pub struct Refusing {
        log_level: Option<Level>,
        status: Option<u64>,
        dry_run: Option<bool>,
    }
}

impl Refusing {
    /// Reads `limit_…_log_level`.
    ///
    /// # Errors
    /// The argument is no such level, or the directive is duplicate.
    pub fn set_log_level(&mut self, n: &Node) -> Result<(), ConfError> {
        set_enum(&mut self.log_level, n, LEVELS)
    }

    /// Reads `limit_…_status`.
    ///
    /// # Errors
    /// The argument is no status of an error, or the directive is duplicate.
    pub fn set_status(&mut self, n: &Node) -> Result<(), ConfError> {
        set_num_within(&mut self.status, n, (400, 599))
    }

    /// Reads `limit_…_dry_run`.
    ///
    /// # Errors
    /// The argument is neither `on` nor `off`, or the directive is duplicate.
    pub fn set_dry_run(&mut self, n: &Node) -> Result<(), ConfError> {
        set_flag(&mut self.dry_run, n)
    }

    /// The level at which refusals are logged.
    pub fn level(&self) -> Level {
        self.log_level.unwrap_or(Level::Error)
    }

    /// Sessions are counted and logged, and none is refused.
    pub fn dry_run(&self) -> bool {
        self.dry_run == Some(true)
    }

    /// The status of HTTP that refused requests are answered with.
    pub fn status(&self) -> u16 {
        self.status.unwrap_or(503) as u16
    }
}

/// `limit_…_log_level`
static LEVELS: &[(&str, Level)] = &[
    ("info", Level::Info),
    ("notice", Level::Notice),
    ("warn", Level::Warn),
    ("error", Level::Error),
];

/// Memory in which keys are put together, kept from session to session.
#[derive(Default)]
struct Scratch(Cell<Vec<u8>>);

impl Scratch {
    /// Larger ones are not kept.
    const KEEP: usize = 4096;

    fn take(&self) -> Vec<u8> {
        self.0.take()
    }

    fn give(&self, text: Vec<u8>) {
        if text.capacity() <= Self::KEEP {
            self.0.set(text);
        }
    }
}

/// A number that directives want positive, as nginx reads it.
fn positive(text: &[u8]) -> Option<i64> {
    base::ascii::parse_i63(text).filter(|n| *n > 0)
}
