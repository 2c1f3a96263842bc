//! A response on its way from the upstream to a file, and to clients at the same time.
//!
//! A task of its own reads the upstream as fast as it gives, whoever takes part: the client that
//! asked first may go, or read slowly, without the others or the file noticing. Bytes that were
//! received lie in memory until they are in the file, and a little longer for requests that read
//! along; a request that falls behind reads the file.
//!
//! ```text
//!  upstream ─▶ tail (memory) ─▶ file ─▶ header, rename ─▶ the zone knows it
//!                 │               │
//!                 └──── readers ──┘
//! ```
//!
//! Requests of other workers read the file as it grows ([`crate::streams`]). It is made early and
//! written piece by piece where one of them waits; the room for all of it is set aside before, so
//! that a disk that fills does not cut them off. A response of unknown length is not published.
//!
//! Where the file cannot be written the response goes on without it: then the upstream is read no
//! faster than the slowest reader reads.

mod reader;
mod received;
mod task;
mod writing;

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use event::{Notify, Pool};
use http_wire::h1::ResponseHead;
use mem::Chain;

use self::received::Received;
use self::task::FillTask;
use crate::file_header::Header;
use crate::instance::Cache;
use crate::kept_head;
use crate::key::{self, Hash};
use crate::keys::{Hold, PublishedFill};
use crate::purge_marks::Since;
use crate::rules::Forbids;
use crate::store::{TempPlace, UnfinishedFile};
use crate::tags;

pub use self::reader::{FillPiece, FillReader};

/// Bodies of this length and more begin with a page of their file: smaller ones are sent too
/// quickly for that to be worth the space. Bytes.
const ALIGNED_FROM: u64 = 32 << 10;

/// The body of a response, as it comes from an upstream.
pub trait Feed {
    /// The reason why a body broke off, for the request that asked the upstream.
    type Failure: 'static;

    /// The bytes of the body that are here already.
    fn ready(&mut self) -> Option<Chain>;

    /// Whether all of the body was received.
    fn has_ended(&self) -> bool;

    /// Whether a body that has ended is the whole response, as far as the protocol says.
    fn is_whole(&self) -> bool;

    /// The next piece of the body, about `most` bytes; `None` at its end. May be dropped and begun
    /// again.
    fn pump(&mut self, most: u64) -> impl Future<Output = Result<Option<Chain>, Self::Failure>>;

    /// Bytes received since the last call.
    fn take_received(&mut self) -> u64;

    /// The news at the end of the body.
    fn ending(&mut self) -> FeedEnding;
}

/// The news at the end of a body that was read without its request.
#[derive(Default)]
pub struct FeedEnding {
    /// Lines for the log.
    pub messages: Vec<(Level, String)>,
    /// Fields behind the body.
    pub trailers: Vec<(Bytes, Bytes)>,
}

/// A response on its way.
pub struct Fill {
    header: Header,
    /// Its head, parsed at its first use.
    head: OnceCell<Option<ResponseHead>>,
    forbids: Forbids,
    /// Where in the file the body begins.
    body_start: Cell<u64>,
    /// Its tags, with a space between two.
    tags: Vec<u8>,
    /// The hash of its key, of which it may be a variant.
    main: Hash,
    /// The state of purges when it was asked for.
    since: Since,
    state: RefCell<Received>,
    /// See [`Plan::has_end`].
    has_end: bool,
    /// The key was made invalid meanwhile: the response is not for other requests.
    spoilt: Cell<bool>,
    /// Something was received, or it is over.
    moved: Notify,
    /// A reader took something, or went.
    taken: Notify,
    /// For requests of other workers; `None` where they are to wait for the end.
    published: Option<PublishedFill>,
    /// One of them began to wait.
    asked: Notify,
}

/// The parameters of a fill.
pub struct Plan {
    /// The cache that the response goes to.
    pub cache: Rc<Cache>,
    /// The hash of the key, or of its variant.
    pub hash: Hash,
    /// The header of the file, but for the length of the body.
    pub header: Header,
    /// The state of purges when the response was asked for.
    pub since: Since,
    /// The right to fetch, given back at the end.
    pub hold: Option<Hold>,
    /// The place of the file while it is written.
    pub temp: TempPlace,
    /// The pool that writes; `None`: the loop does.
    pub pool: Option<Pool>,
    /// The length of the body, where the upstream's head has it.
    pub length: Option<u64>,
    /// The body has an end of its own, other than that of the connection.
    pub has_end: bool,
    /// Keeps the worker from leaving before the end.
    pub stay: Box<dyn Any>,
}

impl Fill {
    /// Begins to fill, in a task of its own; `feed` reads the upstream.
    pub fn start(mut plan: Plan, feed: impl Feed + 'static) -> Rc<Fill> {
        if plan.length.is_some_and(|len| len >= ALIGNED_FROM) {
            plan.header.align();
        }
        let body_start = Cell::new(plan.header.body_start() as u64);
        let is_here = feed.has_ended();
        let shows = plan.hold.is_some() && plan.length.is_some() && !is_here;
        let published = || PublishedFill::new(&plan.cache.keys, &plan.hash);
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
            published: shows.then(published).flatten(),
            asked: Notify::new(),
        });
        plan.cache.fills.borrow_mut().insert(plan.hash, fill.clone());
        let mut task = FillTask::new(fill.clone(), plan);
        let mut feed = feed;
        // The first reader knows of the bytes that are here already, maybe all of them.
        if let Some(piece) = feed.ready() {
            task.received(piece);
        }
        if feed.has_ended() {
            task.ended(&mut feed);
        }
        // It begins before all waiters are served: see [`FillTask::let_waiters_go_first`].
        let (cache, hash) = (task.plan.cache.clone(), task.plan.hash);
        event::spawn(task.run(feed));
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
        self.published.as_ref().is_some_and(PublishedFill::is_wanted)
    }

    /// Publishes the length of the file for readers of other workers, if there are any.
    fn show(&self, file: &UnfinishedFile) {
        if let Some(published) = &self.published {
            published.progress(file.number(), self.state.borrow().written);
        }
    }

    /// The header of the file, but for the length of its body.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Its key was made invalid: no request joins it any more, and it is not kept.
    pub fn spoil(&self) {
        self.spoilt.set(true);
        if let Some(published) = &self.published {
            published.hide();
        }
    }

    /// The head of the response for requests that read along.
    pub fn head(&self) -> Option<&ResponseHead> {
        self.head.get_or_init(|| kept_head::parsed(&self.header)).as_ref()
    }

    /// The prohibitions in its fields against keeping it.
    pub fn forbids(&self) -> &Forbids {
        &self.forbids
    }

    /// Whether other requests may read along; `ended`: only once all of it is here. Where the end
    /// of the connection alone ends the body, no request is bound to it before: its lock may expire
    /// first (`*_cache_lock_age`).
    pub fn can_be_joined(&self, ended: bool) -> bool {
        let state = self.state.borrow();
        !self.spoilt.get() && !state.broken && (state.ended || !ended && self.has_end)
    }

    /// Whether it was purged since it was asked for: it is not for later requests.
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

    /// Bytes received and lines for the log since the last call, for the request that asked the
    /// upstream.
    pub fn take_report(&self) -> (u64, Vec<(Level, String)>) {
        let mut state = self.state.borrow_mut();
        let received = std::mem::take(&mut state.fresh);
        (received, std::mem::take(&mut state.ending.messages))
    }

    /// The fields behind the body, for the same request.
    pub fn take_trailers(&self) -> Vec<(Bytes, Bytes)> {
        std::mem::take(&mut self.state.borrow_mut().ending.trailers)
    }

    /// The reason why the body broke off, for the same request: a [`Feed::Failure`].
    pub fn take_failure(&self) -> Option<Box<dyn Any>> {
        self.state.borrow_mut().failure.take()
    }

    /// The body, where all of it is in memory.
    pub fn whole(&self) -> Option<Chain> {
        let state = self.state.borrow();
        (state.ended && state.tail_start == 0)
            .then(|| state.take(0, u64::MAX, self.body_start.get()))
    }
}
