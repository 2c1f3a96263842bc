//! A worker's spans that wait to be sent.
//!
//! ```text
//!  add ─▶ open batch ─(full, or waited `interval`)─▶ ready batches ─▶ task
//!           └───────────── `batch_count` in all, the one on its way among them ─────┘
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::otlp::SpanWriter;
use base::log::Level;
use bytes::Bytes;
use engine::life::Work;
use event::{Deadline, Notify};
use http::request::Request;

use crate::counts::{Count, Counts};
use crate::outcome::Told;

/// Bytes of spans at which a batch is full, however few they are: collectors take 4 MB at most
/// unless they are configured otherwise.
const BATCH_MAX: usize = 1 << 20;

/// `batch_size`, `batch_count` and `interval`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Spans in a batch.
    pub spans: usize,
    /// Batches.
    pub batches: usize,
    /// The time for which a batch waits for spans, milliseconds.
    pub interval_ms: u64,
}

/// Spans that are sent together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The spans, encoded.
    pub spans: Bytes,
    /// Their number.
    pub count: usize,
}

/// The spans of a worker.
pub struct Batches {
    pub limits: Limits,
    pub counts: Counts,
    /// The open batch.
    open: RefCell<Vec<u8>>,
    open_count: Cell<usize>,
    /// The moment at which the open batch is sent.
    due: Cell<Deadline>,
    ready: RefCell<VecDeque<Batch>>,
    /// Batches that the task has taken and not yet done with.
    taken: Cell<usize>,
    writer: Cell<SpanWriter>,
    /// Keeps the worker from leaving while anything is held.
    work: RefCell<Option<Work>>,
    /// There is something to do: a first span, a full batch, or any while the worker leaves.
    pub stirred: Notify,
    /// Nothing is held any more.
    emptied: Notify,
    told: Told,
    dropped: Cell<u64>,
}

impl Batches {
    pub fn new(limits: Limits, counts: Counts) -> Batches {
        Batches {
            limits,
            counts,
            open: RefCell::default(),
            open_count: Cell::new(0),
            due: Cell::new(Deadline::NEVER),
            ready: RefCell::default(),
            taken: Cell::new(0),
            writer: Cell::default(),
            work: RefCell::default(),
            stirred: Notify::new(),
            emptied: Notify::new(),
            told: Told::default(),
            dropped: Cell::new(0),
        }
    }

    /// Whether another span is taken.
    pub fn has_room(&self) -> bool {
        self.open_count.get() > 0 || self.held() < self.limits.batches
    }

    fn held(&self) -> usize {
        self.ready.borrow().len() + self.taken.get()
    }

    /// Notes a span that is not taken; the log has a line a minute.
    #[cold]
    pub fn drop_span(&self, r: &Request) {
        self.dropped.set(self.dropped.get() + 1);
        self.counts.add(Count::Dropped, 1);
        if self.told.may_tell() {
            let dropped = self.dropped.get();
            r.log(Level::Warn, format_args!("OTel dropped records: {dropped}"));
        }
    }

    /// The writer of spans, for [`Batches::add`].
    pub fn take_writer(&self) -> SpanWriter {
        self.writer.take()
    }

    /// Adds the span that was written.
    pub fn add(&self, r: &Request, mut writer: SpanWriter) {
        let len = writer.len();
        let open = &mut *self.open.borrow_mut();
        if len > BATCH_MAX || os::memory::reserve(open, len).is_err() {
            self.drop_span(r);
            return;
        }
        writer.end(open);
        self.writer.set(writer);
        let count = self.open_count.get() + 1;
        self.open_count.set(count);
        if count == 1 {
            self.due.set(Deadline::in_ms(self.limits.interval_ms));
            self.work.borrow_mut().get_or_insert_with(|| r.main.life.work());
        }
        let is_full = count >= self.limits.spans || open.len() >= BATCH_MAX;
        if is_full {
            self.close(open);
        }
        if is_full || count == 1 || r.main.life.is_leaving() {
            self.stirred.notify_one();
        }
    }

    fn close(&self, open: &mut Vec<u8>) {
        // The next one is likely to be as long.
        let spans = std::mem::take(open);
        let count = self.open_count.replace(0);
        self.ready.borrow_mut().push_back(Batch { spans: spans.into(), count });
    }

    /// Makes the open batch ready, if there is one.
    pub fn flush(&self) {
        if self.open_count.get() > 0 {
            self.close(&mut self.open.borrow_mut());
        }
    }

    /// The moment at which the open batch is to be flushed; `None`: there is none.
    pub fn due(&self) -> Option<Deadline> {
        (self.open_count.get() > 0).then(|| self.due.get())
    }

    /// Takes the next batch; [`Batches::done`] follows.
    pub fn take(&self) -> Option<Batch> {
        let batch = self.ready.borrow_mut().pop_front()?;
        self.taken.set(self.taken.get() + 1);
        Some(batch)
    }

    /// A batch was sent or is given up.
    pub fn done(&self) {
        self.taken.set(self.taken.get().saturating_sub(1));
        self.rest();
    }

    /// Forgets all that waits; gives the number of spans.
    pub fn clear(&self) -> usize {
        self.flush();
        let spans = self.ready.take().iter().map(|batch| batch.count).sum();
        self.rest();
        spans
    }

    /// Lets the worker leave where nothing is held.
    fn rest(&self) {
        if self.is_empty() {
            self.work.take();
            self.emptied.notify_all();
        }
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.held() == 0 && self.open_count.get() == 0
    }

    /// Waits until nothing is held.
    pub async fn emptied(&self) {
        while !self.is_empty() {
            self.emptied.notified().await;
        }
    }
}
