//! A response on its way from the upstream to a file, and to clients at the same time.
//!
//! A task of its own reads the upstream as fast as it gives, whoever takes part: the client that
//! asked first may go, or read slowly, without the others or the file noticing. What was received
//! lies in memory until it is in the file, and a little longer for those who read along; who falls
//! behind reads the file.
//!
//! ```text
//!  upstream ─▶ tail (memory) ─▶ file ─▶ header, rename ─▶ the zone knows it
//!                 │               │
//!                 └──── readers ──┘
//! ```
//!
//! Requests of other workers read the file as it grows ([`super::streams`]). It is made early and
//! written piece by piece where one of them waits; the room for all of it is set aside before, so
//! that a disk that fills does not cut them off. A response whose length is not known is not shown.
//!
//! Where the file cannot be written the response goes on without it: then the upstream is read no
//! faster than the slowest reader reads.

mod reader;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use base::time::{now_ms, unix_secs};
use bytes::Bytes;
use event::{Notify, Pool};
use mem::{Chain, FileHandle};
use os::file::FileMeta;
use proto::cache_index::Entry;
use proto::h1::ResponseHead;

pub(crate) use self::reader::Reader;
use super::faults::Cause;
use super::format::{Header, UNFINISHED};
use super::key::{self, Hash};
use super::keys::{Hold, Placing, Room, Showing, Turn};
use super::marks::Since;
use super::rules::Forbids;
use super::store::{self, Making, Temp};
use super::tags;
use super::zone::{Admitted, Cache};
use crate::upstream::source::{Ending, Fail, Source};
use files::FileError;

/// Bodies from here on begin with a page of their file: less is sent too quickly for that to be
/// worth the space.
const ALIGNED_FROM: u64 = 32 << 10;

/// How much is written to the file at once.
const WRITE: u64 = 256 << 10;

/// How much may be received that is neither in the file nor with all readers.
const AHEAD: u64 = 1 << 20;

/// How much of what is in the file stays in memory for readers close behind.
const TAIL: u64 = 256 << 10;

/// How much of a file is given to a reader at once.
const FILE_PIECE: u64 = 1 << 20;

/// How long a file waits for others of the same key that get their places, milliseconds.
const TURN_MS: u64 = 10_000;

/// How often it looks, at last, milliseconds.
const TURN_REST_MS: u64 = 64;

/// See the module's documentation.
pub(crate) struct Fill {
    header: Header,
    /// Its head, parsed when somebody wants it.
    head: OnceCell<Option<ResponseHead>>,
    forbids: Forbids,
    /// Where in the file the body begins.
    body_start: Cell<u64>,
    /// Its tags, with a space between two.
    tags: Vec<u8>,
    /// The hash of its key, of which it may be a variant.
    main: Hash,
    /// What had been purged when it was asked for.
    since: Since,
    state: RefCell<State>,
    /// See [`Plan::has_end`].
    has_end: bool,
    /// What is received is not to be used for others: the key was made invalid meanwhile.
    spoilt: Cell<bool>,
    /// Something was received, or it is over.
    moved: Notify,
    /// A reader took something, or went.
    taken: Notify,
    /// For requests of other workers; `None` where they are to wait for the end.
    showing: Option<Showing>,
    /// One of them began to wait.
    asked: Notify,
}

#[derive(Default)]
struct State {
    /// The last bytes received.
    tail: VecDeque<Bytes>,
    /// Where in the body they begin.
    tail_start: u64,
    /// Bytes of the body received.
    total: u64,
    /// Bytes of the body in the file.
    written: u64,
    file: Option<FileHandle>,
    /// All of the body was received.
    ended: bool,
    /// It cannot be finished.
    broken: bool,
    /// Nothing is done any more.
    over: bool,
    /// For the reader that logs: why.
    fail: Option<Fail>,
    ending: Ending,
    /// Bytes received from the upstream that no request knows of yet.
    fresh: u64,
    /// Where readers are, by their places.
    readers: Vec<Option<u64>>,
}

impl State {
    fn push(&mut self, piece: Bytes) {
        self.total += piece.len() as u64;
        self.tail.push_back(piece);
    }

    /// What of the tail is not in the file yet.
    fn unwritten(&self) -> Vec<Bytes> {
        let mut skip = self.written - self.tail_start;
        let mut out = Vec::new();
        for piece in &self.tail {
            let len = piece.len() as u64;
            if skip < len {
                out.push(piece.slice(skip as usize..));
            }
            skip = skip.saturating_sub(len);
        }
        out
    }

    fn slowest(&self) -> Option<u64> {
        self.readers.iter().flatten().min().copied()
    }

    /// Forgets what is in the file, or was read by all where there is none.
    fn trim(&mut self, in_file: bool) {
        let slowest = self.slowest().unwrap_or(self.total);
        let most = match in_file {
            true => self.written.min(slowest.max(self.total.saturating_sub(TAIL))),
            false => slowest,
        };
        while let Some(first) = self.tail.front() {
            let end = self.tail_start + first.len() as u64;
            if end > most {
                break;
            }
            self.tail_start = end;
            self.tail.pop_front();
        }
    }

    /// What there is from `pos` on, about `most` bytes.
    fn take(&self, pos: u64, most: u64, body_start: u64) -> Chain {
        let mut out = Chain::new();
        if pos < self.tail_start {
            if let Some(file) = &self.file {
                let end = self.tail_start.min(self.written).min(pos + FILE_PIECE);
                out.push_file(file.clone(), body_start + pos, body_start + end);
            }
            return out;
        }
        let mut skip = pos - self.tail_start;
        for piece in &self.tail {
            let len = piece.len() as u64;
            if skip < len {
                out.push_bytes(piece.slice(skip as usize..));
                if out.len() >= most {
                    break;
                }
            }
            skip = skip.saturating_sub(len);
        }
        out
    }
}

/// What a fill needs besides the response.
pub(crate) struct Plan {
    pub cache: Rc<Cache>,
    pub hash: Hash,
    pub header: Header,
    /// What had been purged when the response was asked for.
    pub since: Since,
    /// The right to fetch, given back at the end.
    pub hold: Option<Hold>,
    pub temp: Temp,
    pub pool: Option<Pool>,
    /// The length of the body, where the upstream told it.
    pub length: Option<u64>,
    /// The end of the body is told from that of the connection.
    pub has_end: bool,
    /// Keeps the worker from leaving before the end.
    #[expect(dead_code, reason = "kept for its drop")]
    pub stay: crate::conn::Hold,
}

impl Fill {
    /// Begins to fill, in a task of its own. `source` is what reads the upstream; `early` is what
    /// it gave already.
    pub fn start(mut plan: Plan, source: Source) -> Rc<Fill> {
        if plan.length.is_some_and(|len| len >= ALIGNED_FROM) {
            plan.header.align();
        }
        let body_start = Cell::new(plan.header.body_start() as u64);
        let is_here = source.has_ended();
        let shows = plan.hold.is_some() && plan.length.is_some() && !is_here;
        let showing = || Showing::new(&plan.cache.keys, &plan.hash);
        let fill = Rc::new(Fill {
            header: plan.header.clone(),
            head: OnceCell::new(),
            forbids: Forbids::default(),
            tags: tags::of_header(&plan.header),
            main: key::hash(&plan.header.key),
            since: plan.since,
            body_start,
            state: RefCell::default(),
            has_end: plan.has_end,
            spoilt: Cell::new(false),
            moved: Notify::new(),
            taken: Notify::new(),
            showing: shows.then(showing).flatten(),
            asked: Notify::new(),
        });
        plan.cache.fills.borrow_mut().insert(plan.hash, fill.clone());
        let mut work = Work {
            fill: fill.clone(),
            path: plan.cache.settings.layout.path(&plan.hash),
            room: Room::new(&plan.cache.keys),
            plan,
            making: None,
            storing: true,
            writing: None,
        };
        let mut source = source;
        // What is here already is known to whoever reads first, all of it maybe.
        if let Some(piece) = source.ready() {
            work.received(piece);
        }
        if source.has_ended() {
            work.ended(&mut source);
        }
        // It begins before all who wait are served: see [`Work::let_waiters_go_first`].
        let (cache, hash) = (work.plan.cache.clone(), work.plan.hash);
        event::spawn(work.run(source));
        // Requests of this worker that waited for the head read along from here.
        cache.waiters.wake_for(&hash, &fill);
        fill
    }

    /// Another process rang: maybe one of its requests waits for this response.
    pub fn asked_for(&self) {
        if self.is_wanted() {
            self.asked.notify_all();
        }
    }

    /// Whether a request of another process waits for it, and is to get it as it comes.
    fn is_wanted(&self) -> bool {
        self.showing.as_ref().is_some_and(Showing::is_wanted)
    }

    /// Others are told how much there is for them, if anything.
    fn show(&self, making: &Making) {
        if let Some(showing) = &self.showing {
            showing.progress(making.number(), self.state.borrow().written);
        }
    }

    /// What is to be kept of the response, but for the length of its body.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Its key was made invalid: nobody joins it any more, and it is not kept.
    pub fn spoil(&self) {
        self.spoilt.set(true);
        if let Some(showing) = &self.showing {
            showing.hide();
        }
    }

    /// The head of the response for those who read along.
    pub fn head(&self) -> Option<&ResponseHead> {
        self.head.get_or_init(|| super::serve::parsed(&self.header)).as_ref()
    }

    /// What its fields say against keeping it.
    pub fn forbids(&self) -> &Forbids {
        &self.forbids
    }

    /// Whether others may read along. `ended` wants all of it to be there. Where only the
    /// connection's end will tell the body's, nobody is bound to it before: its time as the one
    /// who fetches may be over first (`*_cache_lock_age`).
    pub fn can_be_joined(&self, ended: bool) -> bool {
        let state = self.state.borrow();
        !self.spoilt.get() && !state.broken && (state.ended || !ended && self.has_end)
    }

    /// Whether it was purged since it was asked for: it is not for those who ask now.
    pub fn is_purged(&self, cache: &Cache) -> bool {
        let Fill { since, main, header, tags, .. } = self;
        self.spoilt.get() || cache.keys.marks.purged_since(*since, main, &header.key, tags)
    }

    /// Waits until it is over: kept, or not.
    pub async fn kept(&self) {
        while !self.state.borrow().over {
            self.moved.notified().await;
        }
    }

    /// The length of the body, where all of it was received.
    pub fn whole_len(&self) -> Option<u64> {
        let state = self.state.borrow();
        state.ended.then_some(state.total)
    }

    /// The body, where all of it is in memory.
    pub fn whole(&self) -> Option<Chain> {
        let state = self.state.borrow();
        (state.ended && state.tail_start == 0)
            .then(|| state.take(0, u64::MAX, self.body_start.get()))
    }
}

/// What a write in a thread came to.
struct Written {
    making: Making,
    /// How many bytes of the body are in the file.
    total: u64,
    /// Others may read it.
    is_shown: bool,
}

/// A write in a thread.
type Writing = Pin<Box<dyn Future<Output = Wrote>>>;

/// What came of it; nothing where there was no room on the disk.
type Wrote = io::Result<Result<Option<Written>, FileError>>;

/// A file that has its place.
struct Placed {
    meta: FileMeta,
    /// What made room for it and could not be deleted.
    deleted: Option<FileError>,
}

/// What came of giving a file its place.
enum Ended {
    Placed(Placed),
    /// It was written for those who read it.
    NotKept,
    /// There is not enough room on the disk.
    NoRoom,
}

/// The task that fills.
struct Work {
    fill: Rc<Fill>,
    plan: Plan,
    path: Vec<u8>,
    making: Option<Making>,
    /// What it takes of the limits.
    room: Room,
    /// The file is still wanted, and nothing is wrong with it.
    storing: bool,
    writing: Option<Writing>,
}

/// What the task waits for.
enum Came {
    Piece(Result<Option<Chain>, Fail>),
    Written(Wrote),
    /// Somebody of another process waits for it.
    Asked,
}

impl Work {
    async fn run(mut self, mut source: Source) {
        let mut over = self.fill.state.borrow().ended;
        while !over {
            self.write(if self.fill.is_wanted() { 1 } else { WRITE });
            if self.is_too_far_ahead() {
                if self.writing.is_some() {
                    self.written_once().await;
                } else if self.fill.state.borrow().slowest().is_none() {
                    // Nobody reads it, and nothing is kept.
                    break;
                } else {
                    self.fill.taken.notified().await;
                }
                continue;
            }
            match self.next(&mut source).await {
                Came::Written(done) => self.written(done),
                Came::Asked => {}
                Came::Piece(Ok(Some(piece))) => {
                    self.fill.state.borrow_mut().fresh += source.take_fresh();
                    self.received(piece);
                }
                Came::Piece(Ok(None)) => {
                    over = true;
                    self.ended(&mut source);
                }
                Came::Piece(Err(fail)) => {
                    self.broke(fail, &mut source);
                    break;
                }
            }
        }
        drop(source);
        while self.writing.is_some() {
            self.written_once().await;
        }
        if over && self.storing {
            self.let_waiters_go_first().await;
            if self.fill.showing.as_ref().is_some_and(Showing::is_shown) {
                // Who reads the file has the last bytes before it has its place.
                self.write(1);
                self.written_once().await;
            }
            self.commit().await;
        }
        self.done();
    }

    /// All is here, and to give it its place takes time, which those have to wait who were woken
    /// for it and share a processor with that. It comes behind them, unless requests of other
    /// workers wait for the file.
    async fn let_waiters_go_first(&self) {
        let Plan { cache, hash, .. } = &self.plan;
        for _ in 0..cache.waiters.turns(hash) {
            if cache.keys.is_awaited(hash) {
                return;
            }
            event::task::yield_now().await;
        }
    }

    fn received(&mut self, piece: Chain) {
        let mut piece = piece;
        let mut state = self.fill.state.borrow_mut();
        while let Some(buf) = piece.pop_front() {
            if let Some(bytes) = buf.into_bytes().filter(|b| !b.is_empty()) {
                state.push(bytes);
            }
        }
        state.trim(self.storing);
        drop(state);
        self.fill.moved.notify_all();
    }

    fn ended(&mut self, source: &mut Source) {
        self.storing &= source.is_whole();
        let mut state = self.fill.state.borrow_mut();
        state.fresh += source.take_fresh();
        state.ending = source.ending();
        state.ended = true;
        drop(state);
        self.fill.moved.notify_all();
    }

    fn broke(&mut self, fail: Fail, source: &mut Source) {
        let mut state = self.fill.state.borrow_mut();
        state.ending = source.ending();
        state.broken = true;
        state.fail = Some(fail);
    }

    fn is_too_far_ahead(&self) -> bool {
        let state = self.fill.state.borrow();
        match self.storing {
            true => state.total - state.written >= AHEAD,
            false => state.slowest().is_none_or(|at| state.total - at >= AHEAD),
        }
    }

    /// The next piece, or the end of the write that is under way.
    async fn next(&mut self, source: &mut Source) -> Came {
        let mut piece = pin!(source.pump(WRITE));
        let is_shown = self.fill.showing.is_none() || self.fill.is_wanted();
        let asked = (!is_shown).then(|| self.fill.asked.notified());
        let mut asked = pin!(asked);
        let writing = &mut self.writing;
        std::future::poll_fn(|cx| {
            if let Some(task) = writing
                && let Poll::Ready(done) = task.as_mut().poll(cx)
            {
                *writing = None;
                return Poll::Ready(Came::Written(done));
            }
            if let Some(asked) = asked.as_mut().as_pin_mut()
                && asked.poll(cx).is_ready()
            {
                return Poll::Ready(Came::Asked);
            }
            piece.as_mut().poll(cx).map(Came::Piece)
        })
        .await
    }

    async fn written_once(&mut self) {
        if let Some(task) = &mut self.writing {
            let done = task.as_mut().await;
            self.writing = None;
            self.written(done);
        }
    }

    /// The file is about to be made, and `total` bytes of a body are here, whose length maybe was
    /// not told.
    fn align(&mut self, total: u64) {
        if self.making.is_none() && total >= ALIGNED_FROM {
            self.plan.header.align();
            self.fill.body_start.set(self.plan.header.body_start() as u64);
        }
    }

    /// Begins a write if there is enough to be written, and none is under way.
    fn write(&mut self, least: u64) {
        let state = self.fill.state.borrow();
        if !self.storing || self.writing.is_some() || state.total - state.written < least {
            return;
        }
        let (pieces, at) = (state.unwritten(), state.written);
        let total = state.total;
        drop(state);
        self.align(total);
        let Some(admitted) = self.admit(total) else { return };
        let layout = self.plan.cache.settings.layout.clone();
        let (temp, path) = (self.plan.temp.clone(), self.path.clone());
        let (making, start) = (self.making.take(), self.fill.body_start.get());
        let pool = self.plan.pool.clone();
        let showing = self.fill.showing.as_ref().filter(|s| s.is_wanted());
        let was_shown = showing.is_some_and(Showing::is_shown);
        let begin = showing.filter(|s| !s.is_shown()).and(self.plan.length).map(|length| {
            let header = Header { body_len: UNFINISHED, ..self.plan.header.clone() };
            (header.encode(), start.saturating_add(length))
        });
        self.writing = Some(Box::pin(async move {
            store::elsewhere(pool.as_ref(), move || {
                // What could not be deleted is met by the next who makes room, or by the loader.
                if !admitted.settle(&layout).0 {
                    return Ok(None);
                }
                let making = match making {
                    Some(making) => making,
                    None => Making::create(&temp, &path)?,
                };
                let mut is_shown = was_shown;
                if let Some((header, len)) = begin
                    && making.reserve(len)?
                {
                    making.write(&[Bytes::from(header)], 0)?;
                    is_shown = true;
                }
                making.write(&pieces, start + at)?;
                Ok(Some(Written { making, total, is_shown }))
            })
            .await
        }));
    }

    fn written(&mut self, done: Wrote) {
        match done {
            Ok(Ok(None)) => {
                self.plan.cache.is_low(true);
                self.no_room(Cause::MinFree);
            }
            Ok(Ok(Some(Written { making, total: written, is_shown }))) => {
                let mut state = self.fill.state.borrow_mut();
                state.file = Some(making.handle().clone());
                state.written = written;
                state.trim(true);
                drop(state);
                if is_shown {
                    self.fill.show(&making);
                }
                self.making = Some(making);
            }
            Ok(Err(e)) => self.failed(Cause::Write, format_args!("{e}")),
            Err(e) => self.failed(Cause::Write, format_args!("{e}")),
        }
    }

    /// Takes room for a file with so much of a body, or with all of it where its length is known;
    /// without room the response goes on without a file.
    fn admit(&mut self, total: u64) -> Option<Admitted> {
        let body = total.max(self.plan.length.unwrap_or(0));
        let bytes = (self.plan.header.body_start() as u64).saturating_add(body);
        if self.room.covers(bytes.div_ceil(self.plan.cache.block())) {
            // It has all its room since its file was begun.
            return Some(Admitted::default());
        }
        let admitted = self.plan.cache.admit(&mut self.room, bytes);
        if admitted.is_none() {
            self.no_room(Cause::MaxSize);
        }
        admitted
    }

    /// The response goes on without a file, as a limit has no room for one.
    #[cold]
    fn no_room(&mut self, limit: Cause) {
        let what = if limit == Cause::MaxSize { "max_size" } else { "min_free" };
        self.making = None;
        self.failed(limit, format_args!("\"{what}\" leaves no room for a response, not kept"));
    }

    /// The response goes on without a file.
    #[cold]
    fn failed(&mut self, cause: Cause, message: std::fmt::Arguments<'_>) {
        self.storing = false;
        self.room = Room::new(&self.plan.cache.keys);
        self.not_shown();
        self.plan.cache.tell(cause, message);
    }

    /// All was received: writes what is left, and the header, and gives the file its place. One
    /// that was purged meanwhile gets none, since there may be a newer one already; it is written
    /// to its end for those who read it.
    async fn commit(&mut self) {
        let placing = self.turn().await;
        if placing.is_none() && !self.fill.showing.as_ref().is_some_and(Showing::is_shown) {
            return;
        }
        let (pieces, at, total) = {
            let state = self.fill.state.borrow();
            (state.unwritten(), state.written, state.total)
        };
        self.align(total);
        let Some(admitted) = self.admit(total) else { return };
        let header = Header { body_len: total, ..self.plan.header.clone() };
        let (temp, path) = (self.plan.temp.clone(), self.path.clone());
        let making = self.making.take();
        let start = self.fill.body_start.get();
        let layout = self.plan.cache.settings.layout.clone();
        let pool = self.plan.pool.clone();
        let is_to_be_kept = placing.is_some();
        let task = move || -> Result<Ended, FileError> {
            let (is_there, deleted) = admitted.settle(&layout);
            if !is_there {
                return Ok(Ended::NoRoom);
            }
            let mut making = match making {
                Some(making) => making,
                None => Making::create(&temp, &path)?,
            };
            match at {
                0 => {
                    // One write, of the header and all of a small body.
                    let mut all = vec![Bytes::from(header.encode())];
                    all.extend(pieces);
                    making.write(&all, 0)?;
                }
                _ => {
                    making.write(&pieces, start + at)?;
                    making.write(&[Bytes::from(header.encode())], 0)?;
                }
            }
            if !is_to_be_kept {
                return Ok(Ended::NotKept);
            }
            let meta = making.place(&path)?;
            Ok(Ended::Placed(Placed { meta, deleted }))
        };
        let going = |is: bool| placing.iter().for_each(|placing| placing.is_under_way(is));
        going(true);
        let ended = store::elsewhere(pool.as_ref(), task).await;
        going(false);
        match (ended, placing) {
            (Ok(Ok(Ended::Placed(placed))), Some(placing)) => self.placed(placed, &placing).await,
            (Ok(Ok(Ended::Placed(_) | Ended::NotKept)), _) => {}
            (Ok(Ok(Ended::NoRoom)), _) => {
                self.plan.cache.is_low(true);
                self.no_room(Cause::MinFree);
            }
            (Ok(Err(e)), _) => self.failed(Cause::Rename, format_args!("{e}")),
            (Err(e), _) => self.failed(Cause::Rename, format_args!("{e}")),
        }
    }

    /// The right to give the file its place, once nobody else has it; `None` where it is not to be
    /// kept.
    async fn turn(&mut self) -> Option<Placing> {
        let (until, mut rest) = (now_ms() + TURN_MS, 1);
        loop {
            let Plan { cache, hash, pool, .. } = &self.plan;
            let (inactive, mut evicted) = (cache.settings.inactive, Vec::new());
            let is_purged = || self.fill.is_purged(cache);
            let turn = cache.keys.turn(hash, inactive, is_purged, &mut evicted);
            cache.discard(evicted, pool.as_ref());
            match turn {
                Turn::Ours(placing) => return Some(placing),
                Turn::Busy if now_ms() < until => {}
                Turn::Full => {
                    let m = format_args!("could not allocate node in cache keys zone");
                    cache.tell(Cause::ZoneFull, m);
                    return None;
                }
                Turn::Busy | Turn::Purged => return None,
            }
            // Many may wait for the same.
            event::sleep(rest).await;
            rest = (rest * 2).min(TURN_REST_MS);
        }
    }

    /// Those of other processes get no more than they have.
    fn not_shown(&self) {
        if let Some(showing) = &self.fill.showing {
            showing.end();
        }
    }

    /// The file has its place: it is taken in, or deleted again where it was purged meanwhile.
    async fn placed(&mut self, placed: Placed, placing: &Placing) {
        let Placed { meta, deleted } = placed;
        if let Some(e) = deleted {
            self.plan.cache.tell(Cause::Delete, format_args!("{e}"));
        }
        let Plan { cache, hash, pool, .. } = &self.plan;
        let header = &self.fill.header;
        let is_variant = self.fill.main != *hash;
        if is_variant {
            cache.keys.has_variant();
        }
        let expire = unix_secs().saturating_add(cache.settings.inactive.into());
        let entry = Entry {
            hash: *hash,
            blocks: store::blocks(&meta, cache.block()),
            expire: u32::try_from(expire).unwrap_or(u32::MAX),
            date: u32::try_from(header.date).unwrap_or(0),
            version: 0,
            file: store::identity(&meta),
            uses: 1,
            is_variant,
            key: &header.key,
            tags: &self.fill.tags,
        };
        let version = placing.stored(&entry, || self.fill.is_purged(cache));
        cache.stirred.notify_all();
        cache.memory.borrow_mut().forget(hash);
        if version.is_none() {
            // Before another one may take its place.
            cache.tell_gone(hash);
            store::take_away(cache, hash, pool.as_ref()).await;
        }
        cache.is_low(false);
    }

    /// The end, whatever it was.
    fn done(&mut self) {
        let mut fills = self.plan.cache.fills.borrow_mut();
        if fills.get(&self.plan.hash).is_some_and(|f| Rc::ptr_eq(f, &self.fill)) {
            fills.remove(&self.plan.hash);
        }
        drop(fills);
        let mut state = self.fill.state.borrow_mut();
        state.broken |= !state.ended;
        state.over = true;
        drop(state);
        self.fill.moved.notify_all();
        self.not_shown();
        self.plan.hold = None;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // A task that is cancelled ends what it did as well.
        self.done();
    }
}
