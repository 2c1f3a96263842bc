//! A worker's pending spans.
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
use http::server::HttpMain;

use crate::counts::{Count, Counts};
use crate::exemplars::Exemplars;
use crate::outcome::Told;

/// The size at which a batch is full regardless of the number of spans, in bytes: collectors accept
/// messages up to 4 MB by default.
const BATCH_MAX: usize = 1 << 20;

/// `batch_size`, `batch_count` and `interval`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of spans in a batch.
    pub spans: usize,
    /// The maximum number of batches.
    pub batches: usize,
    /// The maximum time for which a batch is filled, in milliseconds.
    pub interval_ms: u64,
}

/// A batch of spans, sent in one request.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The encoded spans.
    pub spans: Bytes,
    /// The number of spans.
    pub count: usize,
}

/// The pending spans of a worker.
pub struct Batches {
    pub limits: Limits,
    pub counts: Counts,
    pub exemplars: Exemplars,
    /// The batch being filled.
    open: RefCell<Vec<u8>>,
    open_count: Cell<usize>,
    /// The time at which the open batch is sent.
    due: Cell<Deadline>,
    ready: RefCell<VecDeque<Batch>>,
    /// The number of batches that the task has taken and not finished.
    taken: Cell<usize>,
    writer: Cell<SpanWriter>,
    /// Keeps the worker alive while spans are pending.
    work: RefCell<Option<Work>>,
    /// Wakes the task: at the first span of a batch, at a full batch, and at any span during
    /// shutdown.
    pub stirred: Notify,
    /// Notified when no spans are pending any more.
    emptied: Notify,
    told: Told,
    dropped: Cell<u64>,
}

impl Batches {
    pub fn new(limits: Limits, counts: Counts) -> Batches {
        Batches {
            limits,
            counts,
            exemplars: Exemplars::default(),
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

    /// Whether there is room for another span.
    pub fn has_room(&self) -> bool {
        self.open_count.get() > 0 || self.held() < self.limits.batches
    }

    fn held(&self) -> usize {
        self.ready.borrow().len() + self.taken.get()
    }

    /// Counts a dropped span; logs at most one line a minute.
    #[cold]
    pub(crate) fn drop_span(&self, r: &Request) {
        self.dropped.set(self.dropped.get() + 1);
        self.counts.add(Count::Dropped, 1);
        if self.told.may_tell() {
            let dropped = self.dropped.get();
            r.log(Level::Warn, format_args!("OTel dropped records: {dropped}"));
        }
    }

    /// Counts a dropped log record; logs at most one line a minute.
    #[cold]
    pub(crate) fn drop_record(&self) {
        self.dropped.set(self.dropped.get() + 1);
        self.counts.add(Count::Dropped, 1);
        if self.told.may_tell() {
            let (log, dropped) = (base::log::default(), self.dropped.get());
            base::log!(log, Level::Warn, None, "OTel dropped log records: {dropped}");
        }
    }

    /// Takes the span writer, which [`Batches::add`] takes back.
    pub(crate) fn take_writer(&self) -> SpanWriter {
        self.writer.take()
    }

    /// Adds the span in `writer` to the open batch, which is closed if it is full.
    pub fn add(&self, r: &Request, mut writer: SpanWriter) {
        if !self.push(&r.main, writer.len(), |open| writer.end(open)) {
            self.drop_span(r);
        }
        self.writer.set(writer);
    }

    /// Adds a record of `len` bytes that `write` writes; says whether it was added.
    pub fn push(&self, main: &HttpMain, len: usize, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let open = &mut *self.open.borrow_mut();
        if len > BATCH_MAX || os::memory::reserve(open, len).is_err() {
            return false;
        }
        write(open);
        let count = self.open_count.get() + 1;
        self.open_count.set(count);
        if count == 1 {
            self.due.set(Deadline::in_ms(self.limits.interval_ms));
            self.work.borrow_mut().get_or_insert_with(|| main.life.work());
        }
        let is_full = count >= self.limits.spans || open.len() >= BATCH_MAX;
        if is_full {
            self.close(open);
        }
        if is_full || count == 1 || main.life.is_leaving() {
            self.stirred.notify_one();
        }
        true
    }

    fn close(&self, open: &mut Vec<u8>) {
        // The next batch will probably have the same size.
        let spans = std::mem::take(open);
        let count = self.open_count.replace(0);
        self.ready.borrow_mut().push_back(Batch { spans: spans.into(), count });
    }

    /// Closes the open batch, if there is one, so that it is sent.
    pub fn flush(&self) {
        if self.open_count.get() > 0 {
            self.close(&mut self.open.borrow_mut());
        }
    }

    /// The time at which to flush the open batch; `None` if there is none.
    pub fn due(&self) -> Option<Deadline> {
        (self.open_count.get() > 0).then(|| self.due.get())
    }

    /// Takes the next ready batch. Call [`Batches::done`] after it was sent or given up.
    pub fn take(&self) -> Option<Batch> {
        let batch = self.ready.borrow_mut().pop_front()?;
        self.taken.set(self.taken.get() + 1);
        Some(batch)
    }

    /// A taken batch was sent or given up.
    pub fn done(&self) {
        self.taken.set(self.taken.get().saturating_sub(1));
        self.rest();
    }

    /// Drops all pending batches; returns the number of spans in them.
    pub fn clear(&self) -> usize {
        self.flush();
        let spans = self.ready.take().iter().map(|batch| batch.count).sum();
        self.rest();
        spans
    }

    /// Lets the worker exit if no spans are pending.
    fn rest(&self) {
        if self.is_empty() {
            self.work.take();
            self.emptied.notify_all();
        }
    }

    /// Whether no spans are pending.
    pub fn is_empty(&self) -> bool {
        self.held() == 0 && self.open_count.get() == 0
    }

    /// Waits until no spans are pending.
    pub async fn emptied(&self) {
        while !self.is_empty() {
            self.emptied.notified().await;
        }
    }
}
