//! `slice`: a large response fetched as a row of ranges, each by a subrequest of its own.
//!
//! ```text
//!  client:  Range: bytes=25-44                            slice 10
//!  main:    $slice_range = bytes=20-29 ─▶ 206, bytes 20-29/100 ─▶ goes out as 206, bytes 25-44/100
//!  body:    |20…29| of the main request, cut by the range filter to |25…29|
//!           |30…39| and |40…49| of subrequests, the last one cut to |40…44| here
//! ```
//!
//! Without a range in the response (a filter changes the body, or the range is not served), the
//! main request's slice is dropped unless it is the first, and all slices come from subrequests.
//!
//! A slice of another version than the first one ends the response, whose head has gone out. So
//! that the next response is whole, the first slice leaves the cache; a cached slice that may be
//! the older one leaves it, too, and is fetched again at once.
//!
//! Only who uses `$slice_range` gets slices; the module cannot know by which header an upstream is
//! asked for a range.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use cache::{CacheEntry, CacheStatus};
use conf::ConfError;
use conf::table::{Args, Directive};
use conf::value::set_size;
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{HeaderFilter, LocView, Module, Pipeline, Verdict};
use http::output::{BodyFilter, FilterStep, Piece, Until};
use http::request::Request;
use http::subrequest::Subrequest;
use http::vars::VarDef;
use http_wire::h1::FieldId;
use http_wire::range::ContentRange;

use crate::range::Cut;

/// The module's table.
pub static MODULE: Module = Module {
    variables: &[VarDef::new("slice_range", slice_range)],
    ..Module::of::<SliceConf>("slice", DIRECTIVES, install)
};

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "slice",
    HSL,
    Args::T1,
    "0",
    "Fetches responses from the upstream in ranges of this size; 0 disables.",
    |cx, n| set_size(&mut cx.loc::<SliceConf>().size, n),
)];

engine::settings! {
    struct SliceConf {
        size: Option<usize>,
    }
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if let Some(size @ 1..) = l.conf::<SliceConf>().size {
        p.header_filters.push(Box::new(Filter { size: size as u64 }));
        p.background_states.push(background_state);
    }
    Ok(())
}

/// The state that the slices of one response share.
struct Slices {
    size: u64,
    /// The beginning of the slice that is being fetched, or of the next one.
    start: Cell<u64>,
    /// The part of the slices that goes out, as far as it is known.
    part: Cell<(u64, u64)>,
    etag: RefCell<Option<Bytes>>,
    /// The length of the whole, as the first slice has it.
    length: Cell<Option<u64>>,
    /// The slice that was asked for last has come.
    came: Cell<bool>,
    /// The first slice's entry of a cache.
    first: RefCell<Option<CacheEntry>>,
    /// The entry of a slice that is of an older version than the first one, and that is to be
    /// fetched anew.
    older: RefCell<Option<CacheEntry>>,
    /// The slice that is being fetched is so for the second time.
    again: Cell<bool>,
}

impl Slices {
    fn range(&self) -> Bytes {
        let start = self.start.get();
        let last = start.saturating_add(self.size - 1);
        Bytes::from(format!("bytes={start}-{last}"))
    }
}

/// A request's own slice.
#[derive(Default)]
struct Slice {
    all: Option<Rc<Slices>>,
    range: Bytes,
}

fn slice_range(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if r.ctx::<Slice>().is_none() {
        let begun = r.is_subrequest() || r.out.status != 0;
        let Some(size) = size(r).filter(|_| !begun) else { return false };
        let start = start(r) / size * size;
        let all = Slices {
            size,
            start: Cell::new(start),
            part: Cell::new((0, u64::MAX)),
            etag: RefCell::new(None),
            length: Cell::new(None),
            came: Cell::new(false),
            first: RefCell::new(None),
            older: RefCell::new(None),
            again: Cell::new(false),
        };
        let range = all.range();
        *r.ctx_mut() = Slice { all: Some(Rc::new(all)), range };
    }
    match r.ctx::<Slice>() {
        Some(Slice { range, .. }) => {
            out.extend_from_slice(range);
            true
        }
        None => false,
    }
}

/// A fetch behind a client's back asks for the slice that the client is served.
fn background_state(r: &Request) -> Option<Box<dyn Any>> {
    let range = r.ctx::<Slice>()?.range.clone();
    Some(Box::new(Slice { all: None, range }))
}

fn size(r: &Request) -> Option<u64> {
    let conf = r.loc.confs.get::<SliceConf>()?;
    conf.size.filter(|size| *size > 0).map(|size| size as u64)
}

/// The beginning of the client's range; 0 where that is not known before the length is, or where
/// no ranges are served.
fn start(r: &Request) -> u64 {
    if r.header(FieldId::IfRange).is_some() || r.loc.core.max_ranges == 0 {
        return 0;
    }
    r.header(FieldId::Range).and_then(http_wire::range::start_of_one).unwrap_or(0)
}

struct Filter {
    size: u64,
}

impl HeaderFilter for Filter {
    fn in_subrequests(&self) -> bool {
        true
    }

    fn run(&self, r: &mut Request) -> Verdict {
        let Some(all) = r.ctx::<Slice>().and_then(|slice| slice.all.clone()) else {
            return Verdict::Next;
        };
        if r.status() != 206 && !r.is_subrequest() {
            // The upstream does not do ranges, or has none of it: that is the whole response.
            r.ctx_mut::<Slice>().all = None;
            return Verdict::Next;
        }
        match self.came(r, &all) {
            Ok((range, length)) => self.announce(r, all, range, length),
            Err(misfit) => {
                r.log(Level::Error, format_args!("{}", misfit.what));
                if !r.is_subrequest() {
                    r.out.remove(b"Content-Range");
                    return Verdict::Status(502);
                }
                let fetches_again = misfit.changed && changed(r, &all);
                r.out.filters.push(match fetches_again {
                    true => Box::new(Cut { skip: 0, left: 0 }),
                    false => Box::new(Wrong),
                });
            }
        }
        Verdict::Next
    }
}

/// The reason why a slice does not follow those before it.
struct Misfit {
    what: String,
    /// The whole has changed since the slices before were fetched, or this one was.
    changed: bool,
}

impl From<&str> for Misfit {
    fn from(what: &str) -> Misfit {
        Misfit { what: what.to_owned(), changed: false }
    }
}

impl Misfit {
    fn of_change(what: String) -> Misfit {
        Misfit { what, changed: true }
    }
}

/// A slice is of another version than the first one. A cached one may be older: true, it is fetched
/// anew. Otherwise the first one is, which must not spoil all later responses until it is stale.
fn changed(r: &mut Request, all: &Slices) -> bool {
    let exchanges = r.exchanges();
    let status = exchanges.map_or(CacheStatus::None, |u| u.cache_status);
    if matches!(status, CacheStatus::Hit | CacheStatus::Stale | CacheStatus::Updating)
        && let Some(entry) = exchanges.and_then(|u| u.cache_entry.clone())
        && !all.again.replace(true)
    {
        *all.older.borrow_mut() = Some(entry);
        return true;
    }
    if let Some(first) = all.first.take() {
        event::spawn(first.invalidate(r.pool().ok().flatten()));
    }
    false
}

impl Filter {
    /// The range that came, and the length of the whole; what is wrong where it is not what was
    /// asked for.
    fn came(&self, r: &Request, all: &Slices) -> Result<(ContentRange, u64), Misfit> {
        let status = r.status();
        if status != 206 {
            let what = format!("unexpected status code {status} in slice response");
            return Err(Misfit { what, changed: matches!(status, 200 | 404 | 410 | 416) });
        }
        let before = all.etag.borrow();
        if before.is_some() && *before != r.out.etag {
            return Err(Misfit::of_change("etag mismatch in slice response".to_owned()));
        }
        let range = r.out.header(b"Content-Range").and_then(|value| ContentRange::parse(value));
        let range = range.ok_or("invalid range in slice response")?;
        let length = range.length.ok_or("no complete length in slice response")?;
        if let Some(before) = all.length.get().filter(|before| *before != length) {
            let what = format!("length {length} in slice response, {before} before");
            return Err(Misfit::of_change(what));
        }
        let start = all.start.get();
        let end = start.saturating_add(self.size).min(length);
        if range.start != start || range.end != end {
            let what = format!(
                "unexpected range in slice response: {}-{}, expected: {start}-{end}",
                range.start, range.end
            );
            return Err(Misfit { what, changed: false });
        }
        Ok((range, length))
    }

    fn announce(&self, r: &mut Request, all: Rc<Slices>, range: ContentRange, length: u64) {
        if let Some(etag) = &r.out.etag {
            *all.etag.borrow_mut() = Some(etag.clone());
        }
        all.start.set(range.end);
        all.came.set(true);
        all.again.set(false);
        if all.length.replace(Some(length)).is_none() {
            *all.first.borrow_mut() = r.exchanges().and_then(|u| u.cache_entry.clone());
        }
        r.set_status(200);
        r.out.content_length = Some(length);
        r.out.part_from = Some(range.start);
        r.out.remove(b"Content-Range");
        r.out.remove(b"Accept-Ranges");
        if r.is_subrequest() {
            let (from, until) = all.part.get();
            let start = range.start.max(from);
            let left = range.end.min(until).saturating_sub(start);
            if range.start < start || range.end > until {
                let skip = start - range.start;
                r.out.filters.push(Box::new(Cut { skip, left }));
            }
        } else {
            r.out.allow_ranges = true;
            let from = range.start;
            let body = Body { all, from, length, begun: false, restarts: false, ended: None };
            r.out.filters.push(Box::new(body));
        }
    }
}

/// A slice that must not go out: the page ends before it, and without its end.
struct Wrong;

impl BodyFilter for Wrong {
    fn filter(&mut self, _: &mut Request, _: Piece<'_>) -> FilterStep {
        FilterStep::Fail
    }
}

/// The body filter of the main request: behind its own slice come the others, one by one.
struct Body {
    all: Rc<Slices>,
    /// The beginning of the request's own slice.
    from: u64,
    length: u64,
    begun: bool,
    /// The response is the whole, and its beginning lies before the request's own slice: a filter
    /// or the range itself has led to that. The slice is dropped, and fetched again at its place.
    restarts: bool,
    /// The end of the subrequest that runs.
    ended: Option<Until>,
}

impl Body {
    /// The part that goes out is known when all header filters have run.
    fn begin(&mut self, r: &Request) {
        self.begun = true;
        if r.out.part.is_none() && self.from > 0 {
            self.restarts = true;
            self.all.start.set(0);
        }
        let part = r.out.part.clone().unwrap_or(0..self.length);
        self.all.part.set((part.start, part.end));
        if self.all.start.get().saturating_add(self.all.size) <= part.start {
            // The range was counted from the end, and is not in the first slices.
            self.all.start.set(part.start / self.all.size * self.all.size);
        }
    }
}

impl BodyFilter for Body {
    fn takes_files(&self) -> bool {
        true
    }

    fn filter(&mut self, r: &mut Request, Piece { input, last, out }: Piece<'_>) -> FilterStep {
        if !self.begun {
            self.begin(r);
        }
        match self.restarts {
            true => input.clear(),
            false => out.append(input),
        }
        if !last {
            return FilterStep::Go;
        }
        if let Some(ended) = self.ended.take() {
            return FilterStep::Wait(ended);
        }
        if let Some(older) = self.all.older.take() {
            self.all.came.set(true);
            let pool = r.pool().ok().flatten();
            return FilterStep::Wait(Box::pin(async move {
                older.invalidate(pool).await;
                Ok(())
            }));
        }
        if !self.all.came.replace(false) {
            r.log(Level::Error, format_args!("missing slice response"));
            return FilterStep::Fail;
        }
        if self.all.start.get() >= self.all.part.get().1 {
            return FilterStep::Go;
        }
        let (uri, args) =
            (Bytes::copy_from_slice(&r.target.uri), Bytes::copy_from_slice(&r.target.args));
        let slice = Slice { all: Some(self.all.clone()), range: self.all.range() };
        let ask = Subrequest {
            is_clone: true,
            same_method: true,
            ctx: Some(Box::new(slice)),
            ..Subrequest::new(uri, args)
        };
        match r.subrequest(ask) {
            Ok(handle) => {
                self.ended = Some(Box::pin(handle.ended()));
                FilterStep::Include(handle)
            }
            Err(_) => FilterStep::Fail,
        }
    }
}
