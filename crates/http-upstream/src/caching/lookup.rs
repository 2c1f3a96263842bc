//! The cache lookup: decides whether a request is answered from the cache or by the upstream.

use std::rc::Rc;

use crate::conditions::any_set;
use base::future::{boxed, rarely};
use base::log::Level;
use base::time::{now_ms, unix_secs};
use bytes::Bytes;
use cache::rfc9111::{self, Asked, Reply, Reuse};
use cache::{
    CacheConf, CacheStatus, Count, FaultCause, FetchLock, Fill, GrowingFile, Header, Opened, Seen,
    Stored, StreamId, Ticket, Visit, range_begins_beyond,
};
use engine::metrics::Kind;
use files::FilePath;
use http::module::Verdict;
use http::request::Request;
use http_wire::h1::{FieldId, Method};

use super::conf::of_request;
use super::{purge, serve, stream_reader};
use crate::Protocol;
use crate::conf::{Conf, next};

/// How a request continues after the lookup.
pub(crate) enum Begin {
    /// It was answered, or ends with this verdict.
    Verdict(Verdict),
    /// It goes to the upstream. Its ticket, if any, holds the cache status.
    Upstream,
}

/// The result of a lookup.
enum Lookup {
    /// Serve this response with this cache status.
    Serve(Rc<Stored>, CacheStatus),
    /// Read along with a response that this worker is fetching.
    Join(Rc<Fill>),
    /// Read along with a response that another worker is fetching; the length of its body.
    Follow(Box<GrowingFile>, u64),
    /// An error with this status is cached.
    Error(u16),
    /// Ask the upstream.
    Ask,
    /// The client has disconnected.
    Gone,
}

/// Looks up a request in its location's cache.
pub(crate) async fn begin(
    r: &mut Request,
    conf: &Rc<CacheConf>,
    up: &Conf,
    protocol: &mut dyn Protocol,
) -> Begin {
    let purges = any_set(r, &conf.purge);
    if !purges && !conf.keeps(r.target.method) {
        if conf.rfc9111 && rfc9111::is_unsafe(r.target.method) {
            may_invalidate(r, conf, up, protocol);
        }
        return Begin::Upstream;
    }
    let cache = match of_request(conf, r) {
        Ok(Some(cache)) => cache,
        Ok(None) => return Begin::Upstream,
        Err(_) => return Begin::Verdict(Verdict::Status(500)),
    };
    if purges {
        let t = ticket(r, cache, conf, up, protocol);
        return Begin::Verdict(rarely(purge::purge(r, &t)).await);
    }
    if r.target.method == Method::Head && conf.convert_head {
        r.upstream_mut().method = Some(Method::Get);
    }
    let mut t = ticket(r, cache, conf, up, protocol);
    if any_set(r, &conf.bypass) {
        set_status(r, &t, CacheStatus::Bypass);
        t.bypass = true;
        r.upstream_mut().cache = Some(t);
        return Begin::Upstream;
    }
    r.upstream_mut().cache_status = CacheStatus::Miss;
    let verdict = match find(r, &mut t, up).await {
        Lookup::Serve(stored, status) => {
            set_status(r, &t, status);
            serve::stored(r, &t, &stored, up, protocol)
        }
        Lookup::Join(fill) => {
            set_status(r, &t, CacheStatus::Hit);
            serve::joined(r, &t, fill, up, protocol)
        }
        Lookup::Follow(growing, len) => {
            set_status(r, &t, CacheStatus::Hit);
            serve::followed(r, &t, growing, len, up, protocol)
        }
        Lookup::Error(status) => {
            set_status(r, &t, CacheStatus::Hit);
            Verdict::Status(status)
        }
        Lookup::Gone => r.abandon(),
        Lookup::Ask if t.asked.only_if_cached() => Verdict::Status(504),
        Lookup::Ask => {
            ask(r, t);
            return Begin::Upstream;
        }
    };
    Begin::Verdict(verdict)
}

/// Sends the request to the upstream, with its ticket.
fn ask(r: &mut Request, mut t: Box<Ticket>) {
    let range = r.header(FieldId::Range);
    if let (Some(range), Some(max)) = (range, t.conf.max_range_offset)
        && range_begins_beyond(range, max)
    {
        t.cacheable = false;
    }
    count_bytes(r, &t.cache);
    if r.upstream_mut().cache_status == CacheStatus::Miss {
        t.cache.keys.count(CacheStatus::Miss as usize);
    }
    r.upstream_mut().cache = Some(t);
}

/// The cache key of a request.
fn key(r: &mut Request, conf: &CacheConf, protocol: &mut dyn Protocol) -> Bytes {
    match &conf.key {
        Some(t) => t.eval(r),
        None => {
            let mut key = FilePath::new();
            protocol.cache_key(r, &mut key);
            Bytes::copy_from_slice(&key)
        }
    }
}

/// The name of the cache for a request, and its cache key; `None` if the request bypasses the
/// cache.
pub(crate) fn key_of(
    r: &mut Request,
    conf: &CacheConf,
    protocol: &mut dyn Protocol,
) -> Option<(Bytes, Bytes)> {
    if !conf.keeps(r.target.method) {
        return None;
    }
    let cache = of_request(conf, r).ok().flatten()?;
    if r.target.method == Method::Head && conf.convert_head {
        r.upstream_mut().method = Some(Method::Get);
    }
    Some((cache.name.clone(), key(r, conf, protocol)))
}

/// Creates the ticket of a request for its key.
fn ticket(
    r: &mut Request,
    cache: Rc<cache::Cache>,
    conf: &Rc<CacheConf>,
    up: &Conf,
    protocol: &mut dyn Protocol,
) -> Box<Ticket> {
    let key = key(r, conf, protocol);
    let main = cache::hash(&key);
    let since = cache.keys.marks.now(&main);
    Box::new(Ticket {
        cache,
        conf: conf.clone(),
        key,
        main,
        hash: main,
        since,
        cacheable: true,
        bypass: false,
        hold: r.adopted_hold(),
        stale: None,
        stale_error: false,
        strict: false,
        asked: if conf.rfc9111 { asked(r) } else { Asked::default() },
        family: None,
        ignored: up.ignore_headers,
    })
}

/// The client's Cache-Control. A background update has none.
fn asked(r: &Request) -> Asked {
    let authorized = r.header(FieldId::Authorization).is_some();
    if r.is_background() {
        return Asked::read(std::iter::empty(), None, authorized);
    }
    let bytes = r.head_bytes();
    let lines = r.head.fields.all(FieldId::CacheControl).map(|f| f.value.of(bytes));
    Asked::read(lines, r.header(FieldId::Pragma), authorized)
}

/// RFC 9111 section 4.4: prepares an unsafe request to invalidate the stored responses of its
/// target after success.
#[cold]
fn may_invalidate(r: &mut Request, conf: &Rc<CacheConf>, up: &Conf, protocol: &mut dyn Protocol) {
    if let Ok(Some(cache)) = of_request(conf, r) {
        let t = ticket(r, cache, conf, up, protocol);
        r.upstream_mut().invalidates = Some(t);
    }
}

/// Counts the request's bytes in the cache's zone.
fn count_bytes(r: &mut Request, cache: &cache::Cache) {
    let row = cache.row.get().copied().or_else(|| {
        let row = r.main.metrics.row_named(Kind::Cache, &cache.name)?;
        let _ = cache.row.set(row);
        Some(row)
    });
    r.upstream_mut().cache_row = row;
}

fn set_status(r: &mut Request, t: &Ticket, status: CacheStatus) {
    r.upstream_mut().cache_status = status;
    count_bytes(r, &t.cache);
    t.cache.keys.count(status as usize);
}

/// Looks up a key; once more if the file was found but unreadable, which was logged.
async fn find(r: &mut Request, t: &mut Ticket, up: &Conf) -> Lookup {
    if r.has_lost_file() {
        t.cache.fault(FaultCause::Read);
        return pass_by(t);
    }
    find_key(r, t, up).await
}

/// Looks up a key, or a variant of it. On a miss, one request gets the cache lock.
async fn find_key(r: &mut Request, t: &mut Ticket, up: &Conf) -> Lookup {
    let (cache, conf) = (t.cache.clone(), t.conf.clone());
    let inactive = cache.settings.inactive;
    let mut again = false;
    let mut waited = Waited::default();
    loop {
        if let Some(fill) = ended(t) {
            if fits_fill(r, t, &fill) && is_fresh(t, fill.header()) {
                return Lookup::Join(fill);
            }
            // It will be in the file in a moment and is checked then, unless it was purged.
            if !fill.is_purged(&cache) {
                fill.kept().await;
            }
        }
        let mut evicted = Vec::new();
        let visit = cache.keys.visit(&t.hash, conf.min_uses, inactive, again, &mut evicted);
        discard(r, &cache, evicted);
        again = true;
        let not_stored = matches!(visit, Visit::Absent { not_stored: true, .. });
        let (seen, scarce) = match visit {
            Visit::Full => {
                zone_is_full(r, &cache);
                return pass_by(t);
            }
            Visit::Error(status) => return Lookup::Error(status),
            Visit::There(seen) => (Some(seen), false),
            // A file may exist that the zone does not know. It is only used if the purge marks
            // are known, because it may have been purged.
            Visit::Absent { maybe: true, scarce, .. } => match cache.marks_are_known().await {
                true => (Some(Seen { version: 0, settled: 0 }), scarce),
                false if scarce => return pass_by(t),
                false => (None, false),
            },
            Visit::Absent { scarce: true, .. } => return pass_by(t),
            Visit::Absent { .. } => (None, false),
        };
        if let Some(seen) = seen {
            match open(r, t, seen).await {
                Opened::Failed => return pass_by(t),
                Opened::Missing if scarce => return pass_by(t),
                Opened::Missing => {}
                Opened::Found(stored) => match fits(r, t, &stored) {
                    _ if is_orphan(t, &stored) => {}
                    Fits::Yes => return judge(r, t, stored),
                    Fits::Other(hash) => {
                        t.hash = hash;
                        t.hold = t.hold.take().filter(|hold| *hold.hash() == hash);
                        again = false;
                        continue;
                    }
                    Fits::No => {}
                },
            }
        }
        if !conf.lock || not_stored || t.hold.is_some() || t.asked.only_if_cached() {
            return Lookup::Ask;
        }
        let locked = lock(r, t, up, &mut waited).await;
        if let Some(found) = locked.lookup(t) {
            return found;
        }
    }
}

/// Opens the stored response for the key, unless it was purged.
async fn open(r: &mut Request, t: &Ticket, seen: Seen) -> Opened {
    let opened = match cache::held(&t.cache, &t.hash, seen, &t.key) {
        Some(stored) => Opened::Found(stored),
        // Boxed, because requests that wait for a lock should not hold its space.
        None => boxed(|| open_file(r, t, seen.version)).await,
    };
    cache::unless_purged(&t.cache, &t.hash, seen, opened, || r.pool().ok().flatten())
}

async fn open_file(r: &mut Request, t: &Ticket, version: u32) -> Opened {
    let main = r.main.clone();
    let access = http::files::cache_access(r, &main);
    cache::open_file(&*r, &access, &t.cache, &t.hash, version, t.since, &t.key).await
}

/// Whether a response that is being fetched, or was just stored, is fresh enough for the request.
fn is_fresh(t: &Ticket, header: &Header) -> bool {
    let now = unix_secs() as i64;
    let valid = header.fresh_until(now);
    match t.conf.rfc9111 {
        true => valid > now && header.rfc9111 && !t.asked.is_choosy(),
        false => valid >= now,
    }
}

/// RFC 9111 section 4.4: whether this variant belongs to a key that was invalidated, which the
/// primary entry records.
fn is_orphan(t: &mut Ticket, stored: &Stored) -> bool {
    let family = stored.header.family;
    match t.is_secondary() {
        true => t.conf.rfc9111 && t.family != Some(family),
        false => {
            t.family = Some(family);
            false
        }
    }
}

#[cold]
fn zone_is_full(r: &Request, cache: &cache::Cache) {
    if cache.fault(FaultCause::ZoneFull) {
        let name = base::log::lossy(&cache.name);
        let m = format_args!("could not allocate node in cache keys zone \"{name}\"");
        r.log(Level::Alert, m);
    }
}

fn pass_by(t: &mut Ticket) -> Lookup {
    t.cacheable = false;
    Lookup::Ask
}

fn discard(r: &mut Request, cache: &Rc<cache::Cache>, evicted: Vec<cache::Evicted>) {
    if !evicted.is_empty() {
        let pool = r.pool().ok().flatten();
        cache.discard(evicted, pool.as_ref());
    }
}

/// Whether a file matches a request.
enum Fits {
    Yes,
    /// Another variant does.
    Other(cache::Hash),
    No,
}

fn fits(r: &Request, t: &Ticket, stored: &Stored) -> Fits {
    if stored.header.vary.is_empty() {
        return Fits::Yes;
    }
    let wanted = t.variant(&stored.header.vary, || r.headers());
    if wanted == stored.header.variant {
        return Fits::Yes;
    }
    if t.is_secondary() {
        if t.cache.fault(FaultCause::Damaged) {
            let path = t.cache.settings.layout.path(&t.hash);
            let path = base::log::lossy(&path);
            r.log(Level::Crit, format_args!("cache file \"{path}\" has incorrect vary hash"));
        }
        return Fits::No;
    }
    Fits::Other(wanted)
}

/// Decides how to use a stored response: serve it, serve it stale, or ask the upstream.
fn judge(r: &mut Request, t: &mut Ticket, stored: Rc<Stored>) -> Lookup {
    let now = unix_secs() as i64;
    let header = &stored.header;
    let valid = header.fresh_until(now);
    let may_update = t.conf.use_stale & next::UPDATING != 0;
    let mut behind = t.conf.background_update;
    let serve_stale = if t.conf.rfc9111 {
        let reply = || Reply::read(&stored.head, &stored.text(), t.ignored);
        match rfc9111::reuse(header, reply, &t.asked, now) {
            Reuse::Fresh => return Lookup::Serve(stored, CacheStatus::Hit),
            Reuse::Accepted => return Lookup::Serve(stored, CacheStatus::Stale),
            Reuse::Ask { updating, error, strict } => {
                t.stale_error = error;
                t.strict = strict;
                // RFC 5861 section 3: `stale-while-revalidate` serves the client at once, whatever
                // the configuration says.
                behind |= updating;
                updating || may_update && !strict && valid <= now
            }
        }
    } else if valid >= now {
        return Lookup::Serve(stored, CacheStatus::Hit);
    } else {
        let within = |secs: i64| valid.saturating_add(secs) >= now;
        t.stale_error = within(header.error);
        may_update || within(header.updating)
    };
    let background = r.is_background();
    if t.hold.is_none() {
        let (keys, age) = (&t.cache.keys, t.conf.lock_age);
        t.hold = keys.try_renew(&t.hash, age, &t.cache.wake);
        if t.hold.is_none() && serve_stale && !background {
            return Lookup::Serve(stored, CacheStatus::Updating);
        }
        // One request tries whether the upstream works again; the others do not wait for its
        // timeout.
        let on_error = t.conf.use_stale & !next::UPDATING != 0 || t.stale_error;
        if t.hold.is_none() && on_error && !t.strict && !background && keys.has_failed(&t.hash) {
            return Lookup::Serve(stored, CacheStatus::Stale);
        }
    }
    if behind
        && serve_stale
        && !background
        && let Some(hold) = t.hold.take()
    {
        // If the subrequest cannot be created, the client is served anyway, and the next request
        // tries again.
        r.background_update(Box::new(hold));
        return Lookup::Serve(stored, CacheStatus::Stale);
    }
    r.upstream_mut().cache_status = CacheStatus::Expired;
    t.stale = Some(stored);
    Lookup::Ask
}

/// The state of a request that waits for the cache lock.
#[derive(Default)]
struct Waited {
    /// The end of the wait, in milliseconds of the monotonic clock.
    until_ms: Option<u64>,
    /// The timeout has expired.
    over: bool,
    /// Another worker's fetch that turned out not to match the request.
    declined: Option<StreamId>,
}

enum Locked {
    /// This request holds the lock and fetches.
    Ours,
    /// It goes to the upstream without caching.
    PassBy,
    /// Look up again.
    Again,
    /// Read along with a fetch of this worker.
    Join(Rc<Fill>),
    /// Read along with a fetch of another worker.
    Follow(Box<GrowingFile>, u64),
    Gone,
}

impl Locked {
    /// The result of the lookup; `None` to look up again.
    fn lookup(self, t: &mut Ticket) -> Option<Lookup> {
        Some(match self {
            Locked::Ours => Lookup::Ask,
            Locked::PassBy => pass_by(t),
            Locked::Gone => Lookup::Gone,
            Locked::Join(fill) => Lookup::Join(fill),
            Locked::Follow(growing, len) => Lookup::Follow(growing, len),
            Locked::Again => return None,
        })
    }
}

async fn lock(r: &mut Request, t: &mut Ticket, up: &Conf, waited: &mut Waited) -> Locked {
    let (cache, conf) = (t.cache.clone(), t.conf.clone());
    let mut evicted = Vec::new();
    let inactive = cache.settings.inactive;
    let asked = cache.keys.try_lock(&t.hash, conf.lock_age, inactive, &cache.wake, &mut evicted);
    discard(r, &cache, evicted);
    let left = match asked {
        Some(FetchLock::Ours(hold)) => {
            t.hold = Some(hold);
            return Locked::Ours;
        }
        None => return Locked::PassBy,
        Some(FetchLock::Theirs(left)) => left,
    };
    if conf.lock_timeout == 0 || waited.over {
        return Locked::PassBy;
    }
    if let Some(fill) = joinable(r, t) {
        return Locked::Join(fill);
    }
    if let Some((growing, len)) = follow(r, t, up, waited).await {
        return Locked::Follow(growing, len);
    }
    let now = now_ms();
    let until = *waited.until_ms.get_or_insert_with(|| {
        cache.keys.count(Count::Waits as usize);
        now.saturating_add(conf.lock_timeout)
    });
    let ms = left.min(until.saturating_sub(now)).max(1);
    let hash = t.hash;
    let declined = waited.declined;
    let is_shown = || {
        let found = cache.keys.on_its_way(&hash);
        found.is_some_and(|f| f.number.is_some() && Some(f.id) != declined)
    };
    // It will be woken together with many others, so prefetch its state.
    r.foresee();
    event::task::foresee(t);
    let wait = cache.waiters.wait(&cache.keys, &hash, ms, is_shown);
    match event::race(wait, r.client_gone()).await {
        event::Either::First(Some(fill)) if suits(r, t, &fill) => return Locked::Join(fill),
        event::Either::First(_) => {}
        event::Either::Second(()) => {
            r.log(Level::Info, format_args!("client prematurely closed connection"));
            return Locked::Gone;
        }
    }
    if now_ms() >= until && cache.keys.is_fetched(&hash) {
        r.log(Level::Info, format_args!("cache lock timeout"));
        waited.over = true;
    }
    Locked::Again
}

/// A matching response that another worker is fetching. If it is not published yet, requests that.
async fn follow(
    r: &mut Request,
    t: &Ticket,
    up: &Conf,
    waited: &mut Waited,
) -> Option<(Box<GrowingFile>, u64)> {
    let keys = &t.cache.keys;
    let found = keys.on_its_way(&t.hash).filter(|found| waited.declined != Some(found.id))?;
    if found.number.is_none() {
        keys.want(&found);
        return None;
    }
    let growing = rarely(stream_reader::open(r, t, up, &found)).await;
    let growing = growing.filter(|g| !t.conf.rfc9111 || is_fresh(t, &g.header));
    let len = growing.as_ref().and_then(|g| cache::length(&g.header));
    if len.is_none() && keys.streams.written(found.id).is_some() {
        // This fetch does not match the request.
        waited.declined = Some(found.id);
    }
    growing.zip(len)
}

/// A response for the same key or variant that this worker has received completely and is about to
/// store.
fn ended(t: &Ticket) -> Option<Rc<Fill>> {
    let fills = t.cache.fills.borrow();
    if fills.is_empty() {
        return None;
    }
    fills.get(&t.hash).filter(|fill| fill.can_be_joined(true)).cloned()
}

/// A matching response that this worker is fetching.
fn joinable(r: &Request, t: &Ticket) -> Option<Rc<Fill>> {
    let fills = t.cache.fills.borrow();
    fills.get(&t.hash).filter(|fill| suits(r, t, fill)).cloned()
}

/// Whether a fetch matches the request; one that started some time ago may not be fresh any more.
fn suits(r: &Request, t: &Ticket, fill: &Fill) -> bool {
    let is_new = || !t.conf.rfc9111 && fill.whole_len().is_none();
    fill.can_be_joined(false) && fits_fill(r, t, fill) && (is_new() || is_fresh(t, fill.header()))
}

fn fits_fill(r: &Request, t: &Ticket, fill: &Fill) -> bool {
    let header = fill.header();
    !fill.is_purged(&t.cache)
        && header.key == t.key
        && (header.vary.is_empty() || t.variant(&header.vary, || r.headers()) == header.variant)
}
