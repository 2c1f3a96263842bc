//! The task that reads the upstream and fills the file.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use mem::Chain;

use super::writing::{WriteResult, Writing};
use super::{Feed, Fill, Plan};
use crate::keys::{PublishedFill, ReservedBlocks};
use crate::store::UnfinishedFile;

/// Bytes written to the file at once.
const WRITE: u64 = 256 << 10;

/// Bytes received at most that are neither in the file nor with all readers.
const AHEAD: u64 = 1 << 20;

pub(super) struct FillTask {
    pub(super) fill: Rc<Fill>,
    pub(super) plan: Plan,
    pub(super) path: Vec<u8>,
    pub(super) unfinished: Option<UnfinishedFile>,
    /// Its share of the limits.
    pub(super) room: ReservedBlocks,
    /// The response is to be kept, and no fault has come in between.
    pub(super) storing: bool,
    pub(super) writing: Option<Writing>,
}

/// The events that the task waits for.
enum Event<F> {
    Piece(Result<Option<Chain>, F>),
    Written(WriteResult),
    /// A request of another process waits for it.
    Asked,
}

impl FillTask {
    /// A task that has not begun.
    pub fn new(fill: Rc<Fill>, plan: Plan) -> FillTask {
        FillTask {
            fill,
            path: plan.cache.settings.layout.path(&plan.hash),
            room: ReservedBlocks::new(&plan.cache.keys),
            plan,
            unfinished: None,
            storing: true,
            writing: None,
        }
    }

    pub async fn run<F: Feed>(mut self, mut feed: F) {
        let mut over = self.fill.state.borrow().ended;
        while !over {
            self.write(if self.fill.is_wanted() { 1 } else { WRITE });
            if self.is_too_far_ahead() {
                if self.writing.is_some() {
                    self.written_once().await;
                } else if self.fill.state.borrow().slowest().is_none() {
                    // No client reads it, and nothing is kept.
                    break;
                } else {
                    self.fill.taken.notified().await;
                }
                continue;
            }
            match self.next(&mut feed).await {
                Event::Written(done) => self.written(done),
                Event::Asked => {}
                Event::Piece(Ok(Some(piece))) => {
                    self.fill.state.borrow_mut().fresh += feed.take_received();
                    self.received(piece);
                }
                Event::Piece(Ok(None)) => {
                    over = true;
                    self.ended(&mut feed);
                }
                Event::Piece(Err(failure)) => {
                    self.broke(failure, &mut feed);
                    break;
                }
            }
        }
        drop(feed);
        while self.writing.is_some() {
            self.written_once().await;
        }
        if over && self.storing {
            self.let_waiters_go_first().await;
            if self.fill.published.as_ref().is_some_and(PublishedFill::is_shown) {
                // Readers of the file get the last bytes before it is renamed.
                self.write(1);
                self.written_once().await;
            }
            self.commit().await;
        }
        self.done();
    }

    /// Lets the waiters go first: the rename takes time, and they share a processor with it. It
    /// does not wait for them where requests of other workers wait for the file.
    async fn let_waiters_go_first(&self) {
        let Plan { cache, hash, .. } = &self.plan;
        for _ in 0..cache.waiters.turns(hash) {
            if cache.keys.is_awaited(hash) {
                return;
            }
            event::task::yield_now().await;
        }
    }

    pub fn received(&mut self, piece: Chain) {
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

    pub fn ended(&mut self, feed: &mut impl Feed) {
        self.storing &= feed.is_whole();
        let mut state = self.fill.state.borrow_mut();
        state.fresh += feed.take_received();
        state.ending = feed.ending();
        state.ended = true;
        drop(state);
        self.fill.moved.notify_all();
    }

    fn broke<F: Feed>(&mut self, failure: F::Failure, feed: &mut F) {
        let mut state = self.fill.state.borrow_mut();
        state.ending = feed.ending();
        state.broken = true;
        state.failure = Some(Box::new(failure));
    }

    fn is_too_far_ahead(&self) -> bool {
        let state = self.fill.state.borrow();
        match self.storing {
            true => state.total - state.written >= AHEAD,
            false => state.slowest().is_none_or(|at| state.total - at >= AHEAD),
        }
    }

    /// The next piece, or the end of the write that is under way.
    async fn next<F: Feed>(&mut self, feed: &mut F) -> Event<F::Failure> {
        let mut piece = pin!(feed.pump(WRITE));
        let is_shown = self.fill.published.is_none() || self.fill.is_wanted();
        let asked = (!is_shown).then(|| self.fill.asked.notified());
        let mut asked = pin!(asked);
        let writing = &mut self.writing;
        std::future::poll_fn(|cx| {
            if let Some(task) = writing
                && let Poll::Ready(done) = task.as_mut().poll(cx)
            {
                *writing = None;
                return Poll::Ready(Event::Written(done));
            }
            if let Some(asked) = asked.as_mut().as_pin_mut()
                && asked.poll(cx).is_ready()
            {
                return Poll::Ready(Event::Asked);
            }
            piece.as_mut().poll(cx).map(Event::Piece)
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

impl Drop for FillTask {
    fn drop(&mut self) {
        // A task that is cancelled ends its fill as well.
        self.done();
    }
}
