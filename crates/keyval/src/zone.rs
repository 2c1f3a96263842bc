//! A table as a configuration names it.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::rc::Rc;

use base::log::{Level, lossy};
use bytes::Bytes;
use conf::table::Contexts;
use conf::{ConfError, Word};
use engine::settings::Conf;
use engine::{Cx, Session};

use crate::state::{Format, StateFile};
use crate::store::{Change, Kind, Pair, Refused, Store};
use crate::sync::TablePart;

/// The time until a change by a variable is in the state file, milliseconds: so many changes are
/// written together.
const SAVE_AFTER_MS: u64 = 200;

/// What `keyval_zone` says of a zone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub bytes: usize,
    pub kind: Kind,
    pub timeout_ms: Option<u64>,
    pub state: Option<std::path::PathBuf>,
    pub evicts: bool,
    pub format: Format,
    /// Other servers share it.
    pub synced: bool,
}

/// A zone of a configuration.
pub struct Zone {
    /// The name that `keyval_zone` gave it.
    pub name: Bytes,
    at: Word,
    pub(crate) settings: RefCell<Option<Settings>>,
    store: OnceCell<Rc<Store>>,
    state: OnceCell<Rc<StateFile>>,
    /// A task of this worker is about to save.
    pending: Cell<bool>,
}

/// The zones of an engine: a value of scope `Main`.
#[derive(Default)]
pub struct Zones(pub(crate) Vec<Rc<Zone>>);

impl Conf for Zones {}

/// The zones of an engine, for the API ([`engine::metrics::Metrics::parts`]).
pub struct AllZones {
    /// They are of the stream engine, not of HTTP.
    pub is_stream: bool,
    /// The zones of all `keyval_zone` directives.
    pub zones: Vec<Rc<Zone>>,
}

impl Zone {
    pub(crate) fn new(name: Bytes, at: &Word) -> Zone {
        Zone {
            name,
            at: at.clone(),
            settings: RefCell::default(),
            store: OnceCell::new(),
            state: OnceCell::new(),
            pending: Cell::new(false),
        }
    }

    /// A zone of texts with that memory, which no configuration has.
    #[cfg(test)]
    pub(crate) fn for_tests(settings: Settings) -> Rc<Zone> {
        let pos = conf::Pos { file: std::path::Path::new("t").into(), line: 1, column: 1 };
        let at = Word { text: Bytes::new(), pos, quoted: false };
        let zone = Zone::new(Bytes::from_static(b"z"), &at);
        let store = Store::new(settings.kind, settings.bytes).expect("memory");
        store.set_synced(settings.synced).expect("memory");
        let _ = zone.store.set(Rc::new(store));
        zone.settings.replace(Some(settings));
        Rc::new(zone)
    }

    /// Attaches the memory: that of the configuration before, if keys are compared as there.
    pub(crate) fn map<S: Session>(self: &Rc<Self>, cx: &Cx<S>) -> Result<(), ConfError> {
        let shown = lossy(&self.name).into_owned();
        let Some(settings) = self.settings.borrow().clone() else {
            let m = format!("zero size shared memory zone \"{shown}\"");
            return Err(ConfError::at(&self.at, m));
        };
        let kept = cx.env.zones.kept::<Store>(&self.name);
        let is_new = kept.as_ref().is_none_or(|kept| kept.kind != settings.kind);
        let store = match kept.filter(|_| !is_new) {
            Some(kept) => Rc::new(kept.again()),
            None => {
                let bytes = settings.bytes;
                let made = Store::new(settings.kind, bytes).map_err(|e| {
                    let e = base::log::os_error(&e);
                    ConfError::at(
                        &self.at,
                        format!("mmap(MAP_ANON|MAP_SHARED, {bytes}) failed {e}"),
                    )
                })?;
                Rc::new(made)
            }
        };
        if let Some(path) = settings.state {
            let state = Rc::new(StateFile::new(path, settings.format));
            if is_new {
                state.load(&store);
            }
            let _ = self.state.set(state);
        }
        *store.state.borrow_mut() = self.state.get().cloned();
        cx.env.zones.put(&self.name, store.clone());
        store.set_synced(settings.synced).map_err(|e| {
            let e = base::log::os_error(&e);
            ConfError::at(&self.at, format!("mmap(MAP_ANON|MAP_SHARED) failed {e}"))
        })?;
        let _ = self.store.set(store);
        if settings.synced {
            let is_stream = S::BLOCK.intersects(Contexts::STREAM);
            cx.env.fleet.add(Rc::new(TablePart::new(self.clone(), is_stream)));
        }
        Ok(())
    }

    /// Its memory.
    ///
    /// # Panics
    /// Before the configuration is loaded.
    pub fn store(&self) -> &Rc<Store> {
        self.store.get().expect("zones are mapped at the end of loading")
    }

    /// Whether pairs expire.
    pub fn has_timeout(&self) -> bool {
        self.settings.borrow().as_ref().is_some_and(|s| s.timeout_ms.is_some())
    }

    /// The bytes that the configuration gives it.
    pub fn capacity(&self) -> usize {
        self.settings.borrow().as_ref().map_or(0, |s| s.bytes)
    }

    /// Whether old pairs make room for new ones.
    pub fn evicts(&self) -> bool {
        self.settings.borrow().as_ref().is_some_and(|s| s.evicts)
    }

    /// When a pair that is stored now expires, with a lifetime of its own or the zone's.
    pub fn expiry(&self, lifetime_ms: Option<u64>) -> u64 {
        let timeout_ms = self.settings.borrow().as_ref().and_then(|s| s.timeout_ms);
        let ms = lifetime_ms.or(timeout_ms);
        ms.map_or(0, |ms| base::time::unix_ms().saturating_add(ms))
    }

    /// Stores a pair. [`Zone::save`] or [`Zone::save_soon`] is to follow.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn put(&self, change: Change, pair: &Pair) -> Result<(), Refused> {
        self.store().put(change, self.evicts(), pair)
    }

    /// The effect of an assignment to a variable: the value is stored, or why not is logged.
    pub fn assign<S: Session>(self: &Rc<Self>, s: &mut S, key: &[u8], value: &[u8]) {
        let pair = Pair { expires_ms: self.expiry(None), ..Pair::new(key, value) };
        let Err(refused) = self.put(Change::Set, &pair) else { return self.save_soon() };
        let why = match refused {
            Refused::BadKey => "the key is no address or network, or too long",
            Refused::TooLong => "key and value are too long",
            Refused::Full | Refused::Exists | Refused::Missing => "the zone is full",
        };
        let name = lossy(&self.name).into_owned();
        s.log(Level::Error, format_args!("keyval zone \"{name}\": a pair is not stored: {why}"));
    }

    /// Writes the state file, if there is one.
    ///
    /// # Errors
    /// The system's.
    pub async fn save(&self) -> io::Result<()> {
        match self.state.get() {
            Some(state) => state.save(self.store()).await,
            None => Ok(()),
        }
    }

    /// Has the state file written a moment later, together with other changes.
    pub fn save_soon(self: &Rc<Self>) {
        if self.state.get().is_none() || self.pending.replace(true) {
            return;
        }
        let zone = self.clone();
        // The file is to have the change although the worker leaves: after a reload, for example.
        let hold = event::hold();
        event::task::spawn(async move {
            event::sleep(SAVE_AFTER_MS).await;
            zone.pending.set(false);
            if let (Err(e), Some(state)) = (zone.save().await, zone.state.get()) {
                let (path, e) = (state.path().display(), base::log::os_error(&e));
                let log = base::log::default();
                base::log!(log, Level::Error, None, "state file \"{path}\" cannot be written {e}");
            }
            drop(hold);
        });
    }
}
