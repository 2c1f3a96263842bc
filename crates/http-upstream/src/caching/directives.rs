//! The cache directives, which every proxying module has under its own prefix
//! ([`Group::CACHING`](crate::directives::Group::CACHING)), and `*_cache_path`.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use base::json::Object;
use bytes::Bytes;
use cache::{Cache, Keys, Layout, Pace, Settings, methods};
use conf::template::Template;
use conf::value::{parse_msec, parse_offset, parse_sec, parse_size, set_bitmask};
use conf::{ConfError, Node, Word};
use engine::module::Helping;
use engine::{Help, Helper, Seat, TempPath};
use http::cx::Cx;
use http::module::{Conf, ConfType, Module, Scope};
use http::request::Request;
use http::server::HttpMain;

use super::conf::{Draft, Which};
use super::sharing;
use crate::directives::Shared;

/// The module that owns all caches of a configuration.
pub static MODULE: Module = Module {
    name: "cache",
    confs: &[ConfType::of::<Caches>(Scope::Main)],
    init: Some(init),
    start: Some(start),
    helps: &[MANAGER, LOADER, SHARING],
    status: Some(status),
    ..Module::EMPTY
};

const MANAGER: Helping<Request> = Helping {
    helper: Helper::CacheManager,
    wants: |main| !super::all(main).is_empty(),
    prepare: |_| (),
    run: |main, seat| help(main, Helper::CacheManager, seat),
};

const LOADER: Helping<Request> = Helping {
    helper: Helper::CacheLoader,
    wants: |main| super::all(main).iter().any(|cache| !cache.is_known()),
    prepare: |_| (),
    run: |main, seat| help(main, Helper::CacheLoader, seat),
};

/// The shared state process purges what other servers have purged.
const SHARING: Helping<Request> = Helping {
    helper: Helper::SharedState,
    wants: |main| super::all(main).iter().any(|cache| cache.shares.get().is_some()),
    prepare: |_| (),
    run: |main, seat| {
        super::all(main).iter().for_each(|cache| cache.use_slot(seat.slot));
        Box::pin(std::future::ready(()))
    },
};

/// In a worker: attaches the process to all caches.
fn start(main: &Rc<HttpMain>, seat: &Seat) -> io::Result<()> {
    cache::start(super::all(main), seat.slot)
}

/// In a helper process (cache manager or loader): its task for all caches.
fn help(main: &Rc<HttpMain>, helper: Helper, seat: &Seat) -> Help {
    let caches = super::all(main);
    caches.iter().for_each(|cache| cache.use_slot(seat.slot));
    Box::pin(cache::help(caches, helper, main.life.gate.clone()))
}

/// Writes each cache's counters for `stub_status json`.
fn status(main: &HttpMain, o: &mut Object<'_>) {
    o.list("zones", super::all(main).iter(), |o, cache| {
        let report = cache.report();
        o.text("zone", &report.name);
        o.number("entries", report.entries);
        o.number("bytes", report.bytes);
        if let Some(max) = report.max_bytes {
            o.number("max_bytes", max);
        }
        o.object("requests", |o| {
            for (status, count) in &report.requests {
                o.number(&status.to_ascii_lowercase(), *count);
            }
        });
        o.number("fills", report.fills);
        o.number("waits", report.waits);
        o.number("evictions", report.evictions);
        o.number("expired", report.expired);
        o.number("no_room", report.no_room);
        o.number("faults", report.faults);
        o.object("faults_by_cause", |o| {
            for (cause, count) in &report.faults_by {
                o.number(cause, *count);
            }
        });
        o.number("purged", report.purged);
        o.number("indexed", report.indexed);
        o.number("unindexed", report.unindexed);
        o.flag("loaded", report.is_loaded);
        o.number("files_met", report.loaded);
    });
}

/// A module configuration with cache settings.
pub trait Caching: Shared {
    /// The prefix of the directives; zones of different prefixes are separate.
    const PREFIX: &'static str;
    /// Whether HEAD becomes GET by default. True for modules whose requests have a URI, which is
    /// also their default cache key.
    const CONVERTS_HEAD: bool = false;

    /// The cache settings of this level.
    fn caching(&mut self) -> &mut Draft;
}

/// A parsed `*_cache_path`.
struct Defined {
    prefix: &'static str,
    name: Bytes,
    bytes: usize,
    at: Word,
    settings: Settings,
    /// Other servers hear of its purges.
    is_synced: bool,
}

/// All caches of a configuration.
#[derive(Default)]
pub struct Caches {
    defined: Vec<Defined>,
    made: RefCell<Vec<(&'static str, Rc<Cache>)>>,
}

impl Conf for Caches {}

impl Caches {
    /// The cache with this prefix and zone name.
    pub(crate) fn find(&self, prefix: &str, name: &[u8]) -> Option<Rc<Cache>> {
        let made = self.made.borrow();
        made.iter().find(|(p, c)| *p == prefix && c.name == name).map(|(_, c)| c.clone())
    }

    /// All caches of a prefix.
    pub(crate) fn of(&self, prefix: &str) -> Vec<Rc<Cache>> {
        let made = self.made.borrow();
        made.iter().filter(|(p, _)| *p == prefix).map(|(_, c)| c.clone()).collect()
    }

    /// The caches of all `*_cache_path` directives.
    pub fn all(&self) -> Vec<Rc<Cache>> {
        self.made.borrow().iter().map(|(_, c)| c.clone()).collect()
    }
}

/// Called after all directives were read: maps the zones.
fn init(cx: &mut Cx) -> Result<(), ConfError> {
    let defined = std::mem::take(&mut cx.main::<Caches>().defined);
    for d in defined {
        let keys = keys(cx, &d)?;
        let cache = Rc::new(Cache::new(&d.name, keys, d.settings));
        if d.is_synced {
            let outbox = sharing::outbox(cx, &d.at, &d.name)?;
            sharing::share(cx, &cache, outbox);
        }
        cx.main::<Caches>().made.borrow_mut().push((d.prefix, cache));
    }
    Ok(())
}

/// Maps the zone of a cache, or reuses that of the previous configuration.
fn keys(cx: &mut Cx, d: &Defined) -> Result<Rc<Keys>, ConfError> {
    let Defined { name, bytes, at, settings, .. } = d;
    let layout = &settings.layout;
    let shown = base::log::lossy(name);
    let keys = match cx.env.zones.kept::<Keys>(name) {
        Some(kept) if kept.layout == *layout => kept,
        Some(kept) if kept.layout.folder == layout.folder => {
            let m = format!("cache \"{shown}\" had previously different levels");
            return Err(ConfError::at(at, m));
        }
        Some(kept) => {
            let (now, old) = (layout.folder.display(), kept.layout.folder.display());
            let m = format!(
                "cache \"{shown}\" uses the \"{now}\" cache path while previously it used the \
                 \"{old}\" cache path"
            );
            return Err(ConfError::at(at, m));
        }
        None => {
            let env = &cx.env;
            let slots = env.slots();
            let made = env.bells.make(slots).and_then(|()| {
                Keys::new(*bytes, layout.clone(), env.bells.clone(), slots, env.connections)
            });
            let keys = made.map_err(|e| {
                let e = base::log::os_error(&e);
                let m = format!("mmap(MAP_ANON|MAP_SHARED, {bytes}) failed {e}");
                ConfError::at(at, m)
            })?;
            Rc::new(keys)
        }
    };
    cx.env.zones.put(name, keys.clone());
    Ok(keys)
}

/// The cache settings at the level of the directive.
pub fn draft<T: Caching>(cx: &mut Cx) -> &mut Draft {
    cx.loc::<T>().caching()
}

/// `*_cache zone | off`
///
/// # Errors
/// `is duplicate`, or the zone has another purpose.
pub fn set_cache<T: Caching>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if draft::<T>(cx).which.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let word = n.arg(0)?;
    if word.bytes() != b"off" && cx.loc::<T>().shared().keeps_files() {
        let m = format!("is incompatible with \"{}_store\"", T::PREFIX);
        return Err(ConfError::directive(n, m));
    }
    let which = match word.bytes() {
        b"off" => Which::Off,
        _ => {
            let t = cx.template(word)?;
            match t.as_const() {
                None => Which::Template(t, word.clone()),
                Some(name) => {
                    let name = name.clone();
                    cx.declare_zone(word, &name, None, T::PREFIX)?;
                    Which::Named(word.clone())
                }
            }
        }
    };
    draft::<T>(cx).which = Some(which);
    Ok(())
}

/// `*_cache_key`
///
/// # Errors
/// `is duplicate`.
pub fn set_key<T: Caching>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if draft::<T>(cx).key.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let key = cx.template(n.arg(0)?)?;
    draft::<T>(cx).key = Some(key);
    Ok(())
}

/// `*_cache_methods`
///
/// # Errors
/// As [`set_bitmask`].
pub(crate) fn set_methods<T: Caching>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    set_bitmask(&mut draft::<T>(cx).methods, n, methods::WORDS)
}

/// `*_cache_use_stale`
///
/// # Errors
/// As [`set_bitmask`].
pub(crate) fn set_use_stale<T: Caching>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    set_bitmask(&mut draft::<T>(cx).use_stale, n, T::NEXT_UPSTREAM)
}

/// Adds values, one of which must be neither empty nor "0" for the condition to hold.
fn conditions<T: Caching>(
    cx: &mut Cx,
    n: &Node,
    of: fn(&mut Draft) -> &mut Option<Vec<Template>>,
) -> Result<(), ConfError> {
    for word in &n.args {
        let t = cx.template(word)?;
        of(draft::<T>(cx)).get_or_insert_default().push(t);
    }
    Ok(())
}

/// `*_cache_bypass`
///
/// # Errors
/// None of its own.
pub(crate) fn set_bypass<T: Caching>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    conditions::<T>(cx, n, |draft| &mut draft.bypass)
}

/// `*_no_cache`
///
/// # Errors
/// None of its own.
pub(crate) fn set_no_cache<T: Caching>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    conditions::<T>(cx, n, |draft| &mut draft.no_cache)
}

/// `*_cache_purge`
///
/// # Errors
/// The arguments are those of the module ngx_cache_purge, whose directive has the same name: a zone
/// and a key, or a method and addresses. Taken as conditions, they would purge at every request.
pub(crate) fn set_purge<T: Caching>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if n.args.len() > 1 && !n.args[0].bytes().contains(&b'$') && n.args[0].bytes() != b"0" {
        let what = "is not that of ngx_cache_purge: use a variable that a map makes of \
                    $request_method, as with NGINX Plus";
        return Err(ConfError::directive(n, what));
    }
    conditions::<T>(cx, n, |draft| &mut draft.purge)
}

/// `*_cache_valid [status …] time`
///
/// # Errors
/// `invalid time value`, `invalid status`.
pub fn set_valid<T: Caching>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let Some((time, statuses)) = n.args.split_last() else {
        return Err(ConfError::directive(n, "invalid number of arguments"));
    };
    let secs = parse_sec(time.bytes())
        .ok_or_else(|| ConfError::at(time, format!("invalid time value \"{}\"", time.lossy())))?;
    let list = draft::<T>(cx).valid.get_or_insert_default();
    if statuses.is_empty() {
        list.extend([200, 301, 302].map(|status| (status, secs)));
    }
    for word in statuses {
        let status = match word.bytes() {
            b"any" => 0,
            text => base::ascii::parse_u64(text).filter(|n| (100..600).contains(n)).ok_or_else(
                || ConfError::at(word, format!("invalid status \"{}\"", word.lossy())),
            )? as u16,
        };
        list.push((status, secs));
    }
    Ok(())
}

/// The default pace of cache loader and manager: files per batch, the pause after a batch and the
/// maximum time of a batch, in milliseconds.
const PACE: Pace = Pace { files: 100, sleep_ms: 50, threshold_ms: 200 };

/// The pace of the purger, if it is on.
const PURGER: Pace = Pace { files: 10, sleep_ms: 50, threshold_ms: 50 };

/// `*_cache_path`
///
/// # Errors
/// An invalid parameter; the message is nginx's.
pub(crate) fn cache_path<T: Caching>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    let folder = word.bytes().strip_suffix(b"/").unwrap_or(word.bytes());
    let folder: PathBuf = cx.env.path(folder);
    let mut path = CachePath::new(folder);
    let (mut zone, mut is_synced) = (None, false);
    for word in &n.args[1..] {
        if *word == *"sync" {
            cx.env.fleet.check(word)?;
            is_synced = true;
            continue;
        }
        match word.bytes().strip_prefix(b"keys_zone=") {
            Some(text) => zone = Some((word, keys_zone(word, text)?)),
            None => path.parameter(word)?,
        }
    }
    let CachePath { mut settings, purger, purges } = path;
    settings.purger = purges.then_some(purger);
    let Some((at, (name, bytes))) = zone else {
        let m = format!("\"{}\" must have \"keys_zone\" parameter", n.name.lossy());
        return Err(ConfError::at(&n.name, m));
    };
    let folder = TempPath::named(settings.layout.folder.clone(), settings.layout.levels);
    cx.need_folder(&folder);
    cx.declare_zone(at, &name, Some(bytes), T::PREFIX)?;
    let caches = cx.main::<Caches>();
    if caches.defined.iter().any(|d| d.name == name) {
        let m = format!("duplicate zone \"{}\"", base::log::lossy(&name));
        return Err(ConfError::at(at, m));
    }
    let at = at.clone();
    caches.defined.push(Defined { prefix: T::PREFIX, name, bytes, at, settings, is_synced });
    Ok(())
}

fn keys_zone(word: &Word, text: &[u8]) -> Result<(Bytes, usize), ConfError> {
    let parsed = memchr::memchr(b':', text)
        .and_then(|colon| Some((&text[..colon], parse_size(&text[colon + 1..])?)))
        .filter(|(name, _)| !name.is_empty());
    let Some((name, bytes)) = parsed else {
        let m = format!("invalid keys zone size \"{}\"", word.lossy());
        return Err(ConfError::at(word, m));
    };
    if bytes < 2 * os::limits::page_size() {
        return Err(ConfError::at(word, format!("keys zone \"{}\" is too small", word.lossy())));
    }
    Ok((Bytes::copy_from_slice(name), bytes))
}

/// The parameters of `*_cache_path`.
struct CachePath {
    settings: Settings,
    /// The pace of the purger, if it is on.
    purger: Pace,
    purges: bool,
}

/// The types of parameters.
enum Value {
    Levels(fn(&mut CachePath) -> &mut [u8; 3]),
    Flag(fn(&mut CachePath) -> &mut bool),
    /// Seconds.
    Secs(fn(&mut CachePath) -> &mut u32),
    /// Milliseconds.
    Msecs(fn(&mut CachePath) -> &mut u64),
    /// A number with a minimum.
    Count(u64, fn(&mut CachePath) -> &mut u64),
    /// A memory size in bytes.
    Size(fn(&mut CachePath) -> &mut usize),
    /// A disk size in bytes.
    Offset(fn(&mut CachePath) -> &mut u64),
}

fn loader(path: &mut CachePath) -> &mut Pace {
    path.settings.loader.get_or_insert(PACE)
}

/// All parameters but `keys_zone`.
const PARAMETERS: &[(&[u8], Value)] = &[
    (b"levels", Value::Levels(|p| &mut p.settings.layout.levels)),
    (b"use_temp_path", Value::Flag(|p| &mut p.settings.use_temp_path)),
    (b"inactive", Value::Secs(|p| &mut p.settings.inactive)),
    (b"max_size", Value::Offset(|p| p.settings.max_size.get_or_insert_default())),
    (b"min_free", Value::Offset(|p| &mut p.settings.min_free)),
    (b"memory", Value::Size(|p| &mut p.settings.memory)),
    (b"loader_files", Value::Count(0, |p| &mut loader(p).files)),
    (b"loader_sleep", Value::Msecs(|p| &mut loader(p).sleep_ms)),
    (b"loader_threshold", Value::Msecs(|p| &mut loader(p).threshold_ms)),
    (b"manager_files", Value::Count(0, |p| &mut p.settings.manager.files)),
    (b"manager_sleep", Value::Msecs(|p| &mut p.settings.manager.sleep_ms)),
    (b"manager_threshold", Value::Msecs(|p| &mut p.settings.manager.threshold_ms)),
    (b"purger", Value::Flag(|p| &mut p.purges)),
    (b"purger_files", Value::Count(1, |p| &mut p.purger.files)),
    (b"purger_sleep", Value::Msecs(|p| &mut p.purger.sleep_ms)),
    (b"purger_threshold", Value::Msecs(|p| &mut p.purger.threshold_ms)),
];

impl CachePath {
    /// A path with default parameters.
    fn new(folder: PathBuf) -> CachePath {
        let settings = Settings {
            layout: Layout { folder, levels: [0; 3] },
            use_temp_path: true,
            inactive: 600,
            max_size: None,
            min_free: 0,
            memory: 0,
            loader: None,
            manager: PACE,
            purger: None,
        };
        CachePath { settings, purger: PURGER, purges: false }
    }

    /// Parses a parameter other than `keys_zone`.
    fn parameter(&mut self, word: &Word) -> Result<(), ConfError> {
        let invalid = |what: &str| ConfError::at(word, format!("invalid {what}"));
        let unknown = || invalid(&format!("parameter \"{}\"", word.lossy()));
        let text = word.bytes();
        let equals = memchr::memchr(b'=', text).ok_or_else(unknown)?;
        let (name, text) = (&text[..equals], &text[equals + 1..]);
        let found = PARAMETERS.iter().find(|(n, _)| *n == name);
        let (_, value) = found.ok_or_else(unknown)?;
        value.set(self, text).ok_or_else(|| {
            let (name, word) = (base::log::lossy(name), word.lossy());
            invalid(&match value {
                Value::Levels(_) => format!("\"{name}\" \"{word}\""),
                Value::Flag(_) => {
                    format!("{name} value \"{word}\", it must be \"on\" or \"off\"")
                }
                _ => format!("{name} value \"{word}\""),
            })
        })
    }
}

impl Value {
    /// Sets a parameter; `None` if the value is invalid.
    fn set(&self, path: &mut CachePath, text: &[u8]) -> Option<()> {
        match self {
            Value::Levels(of) => *of(path) = levels(text)?,
            Value::Flag(of) => {
                *of(path) = match text {
                    b"on" => true,
                    b"off" => false,
                    _ => return None,
                }
            }
            Value::Secs(of) => *of(path) = u32::try_from(parse_sec(text)?).unwrap_or(u32::MAX),
            Value::Msecs(of) => *of(path) = parse_msec(text)?,
            Value::Count(least, of) => {
                *of(path) = base::ascii::parse_u64(text).filter(|n| n >= least)?;
            }
            Value::Size(of) => *of(path) = parse_size(text)?,
            Value::Offset(of) => *of(path) = parse_offset(text)?,
        }
        Some(())
    }
}

/// Parses `levels`, for example `1:2`: up to three levels of 1 or 2 digits.
fn levels(text: &[u8]) -> Option<[u8; 3]> {
    let mut levels = [0; 3];
    for (i, part) in text.split(|b| *b == b':').enumerate() {
        *levels.get_mut(i)? = match part {
            b"1" => 1,
            b"2" => 2,
            _ => return None,
        };
    }
    Some(levels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_as_nginx_takes_them() {
        assert_eq!(levels(b"1"), Some([1, 0, 0]));
        assert_eq!(levels(b"1:2"), Some([1, 2, 0]));
        assert_eq!(levels(b"2:2:2"), Some([2, 2, 2]));
        for bad in ["", "3", "0", "1:", ":1", "1:2:1:1", "12", "1:x"] {
            assert_eq!(levels(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn parameters_of_a_path() {
        let mut path = CachePath::new(PathBuf::new());
        let pos = conf::Pos { file: Rc::from(PathBuf::new()), line: 1, column: 1 };
        let mut take = |text: &str| {
            let text = Bytes::copy_from_slice(text.as_bytes());
            let word = Word { text, pos: pos.clone(), quoted: false };
            path.parameter(&word).map_err(|e| e.message)
        };
        for good in [
            "levels=1:2",
            "use_temp_path=off",
            "inactive=1h",
            "max_size=2g",
            "min_free=1m",
            "memory=8k",
            "loader_sleep=7ms",
            "manager_files=5",
            "purger=on",
            "purger_threshold=1s",
        ] {
            assert_eq!(take(good), Ok(()), "{good}");
        }
        for (bad, m) in [
            ("levels=3", "invalid \"levels\" \"levels=3\""),
            ("purger=x", "invalid purger value \"purger=x\", it must be \"on\" or \"off\""),
            ("purger_files=0", "invalid purger_files value \"purger_files=0\""),
            ("max_size=", "invalid max_size value \"max_size=\""),
            ("other=1", "invalid parameter \"other=1\""),
            ("levels", "invalid parameter \"levels\""),
        ] {
            assert_eq!(take(bad), Err(m.to_owned()));
        }
        let CachePath { settings, purger, purges } = path;
        assert_eq!((settings.layout.levels, settings.use_temp_path), ([1, 2, 0], false));
        assert_eq!((settings.inactive, settings.max_size), (3600, Some(2 << 30)));
        assert_eq!((settings.min_free, settings.memory), (1 << 20, 8 << 10));
        assert_eq!(settings.loader, Some(Pace { sleep_ms: 7, ..PACE }));
        assert_eq!(settings.manager, Pace { files: 5, ..PACE });
        assert_eq!((purges, purger), (true, Pace { threshold_ms: 1000, ..PURGER }));
    }
}
