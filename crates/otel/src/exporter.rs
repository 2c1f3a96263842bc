//! The export task of a worker.
//!
//! ```text
//!  wait ─▶ send ─▶ taken ─────────────────────▶ wait
//!           ▲  └─▶ failed ─▶ later, 5 times ─┐
//!           └────────────────────────────────┴▶ lost ─▶ wait
//! ```
//!
//! One batch is in flight at a time. Further ones wait, and spans beyond `batch_count` batches are
//! dropped. A worker that shuts down sends its spans at once, and gives up after [`LEAVE_MS`].

use std::pin::pin;
use std::rc::{Rc, Weak};

use crate::otlp::{Resource, Signal};
use base::log::{Level, Log};
use event::{Either, Gate, race, sleep, sleep_until};
use http::server::HttpMain;

use crate::batches::{Batch, Batches};
use crate::collector::Link;
use crate::counts::Count;
use crate::exporter_block::Exporter;
use crate::outcome::{Failure, Retry, Taken, Told};

/// The maximum number of attempts for a batch.
const ATTEMPTS: u32 = 5;

/// The delay before the second attempt, in milliseconds; it doubles with each further one.
const BACKOFF_MS: u64 = 1_000;

/// The maximum of these delays, in milliseconds.
const BACKOFF_MAX_MS: u64 = 5_000;

/// The maximum delay that a collector can request, in milliseconds.
const DELAY_MAX_MS: u64 = 30_000;

/// The time limit for exports during shutdown, in milliseconds.
const LEAVE_MS: u64 = 2_000;

/// The interval at which the task checks during shutdown whether its configuration was dropped, in
/// milliseconds.
const LOOK_MS: u64 = 1_000;

/// The export task.
pub struct Task {
    main: Weak<HttpMain>,
    gate: Gate,
    batches: Rc<Batches>,
    link: Link,
    log: Log,
    /// The name of what is sent, for the log.
    noun: &'static str,
    failures: Told,
    partials: Told,
    /// The number of lost spans, for the log.
    lost: u64,
}

impl Task {
    pub fn new(
        main: &Rc<HttpMain>,
        exporter: &Exporter,
        batches: &Rc<Batches>,
        (resource, signal): (Resource, Signal),
        log: &Log,
    ) -> Task {
        Task {
            main: Rc::downgrade(main),
            gate: main.life.gate.clone(),
            batches: batches.clone(),
            link: Link::new(&exporter.target, resource, signal),
            log: log.clone(),
            noun: if signal == Signal::Logs { "log records" } else { "spans" },
            failures: Told::default(),
            partials: Told::default(),
            lost: 0,
        }
    }

    /// Runs until the configuration is dropped, after which no spans can be added.
    pub async fn run(mut self) {
        while self.main.strong_count() > 0 || !self.batches.is_empty() {
            match self.batches.take() {
                Some(batch) => {
                    self.send(&batch).await;
                    self.batches.done();
                }
                None => self.wait().await,
            }
        }
    }

    /// Waits until a batch may be ready to be sent.
    async fn wait(&self) {
        let batches = &self.batches;
        let Some(due) = batches.due() else {
            let stirred = batches.stirred.notified();
            match self.gate.is_closed() {
                true => drop(race(stirred, sleep(LOOK_MS)).await),
                false => drop(race(stirred, self.gate.closed()).await),
            }
            return;
        };
        if due.has_passed() || self.gate.is_closed() {
            return batches.flush();
        }
        let stirred = race(batches.stirred.notified(), sleep_until(due));
        race(stirred, self.gate.closed()).await;
    }

    async fn send(&mut self, batch: &Batch) {
        for attempt in 1.. {
            let failure = match self.attempt(batch).await {
                Ok(taken) => return self.was_taken(batch, taken),
                Err(failure) => failure,
            };
            let delay = self.delay(attempt, failure.retry);
            let Some(delay) = delay else {
                self.is_lost(batch.count);
                if self.gate.is_closed() {
                    // The worker does not wait for an unreachable collector.
                    self.is_lost(self.batches.clear());
                }
                return self.tell(&failure);
            };
            self.tell(&failure);
            race(sleep(delay), self.gate.closed()).await;
        }
    }

    /// The delay before the next attempt, in milliseconds; `None` if the batch is given up.
    fn delay(&self, attempt: u32, retry: Retry) -> Option<u64> {
        if attempt >= ATTEMPTS || self.gate.is_closed() {
            return None;
        }
        let backoff = (BACKOFF_MS << (attempt - 1)).min(BACKOFF_MAX_MS);
        // Jitter of 20 %, so that the workers do not retry at the same time.
        let backoff = backoff * 4 / 5 + os::random::number() % (backoff * 2 / 5);
        match retry {
            Retry::Never => None,
            Retry::Later => Some(backoff),
            Retry::After(ms) => (ms <= DELAY_MAX_MS).then_some(ms.max(backoff)),
        }
    }

    async fn attempt(&mut self, batch: &Batch) -> Result<Taken, Failure> {
        let ends = || Failure::never("the worker leaves");
        let main = self.main.upgrade().ok_or_else(ends)?;
        let gate = self.gate.clone();
        let link = &mut self.link;
        let work = pin!(async move {
            let limit = async {
                gate.closed().await;
                sleep(LEAVE_MS).await;
            };
            race(pin!(link.export(batch)), pin!(limit)).await
        });
        match main.life.unless_given_up(work).await {
            Some(Either::First(done)) => done,
            Some(Either::Second(())) => Err(Failure::never("timed out while the worker leaves")),
            None => Err(ends()),
        }
    }

    fn is_lost(&mut self, spans: usize) {
        self.lost += spans as u64;
        self.batches.counts.add(Count::Failed, spans);
    }

    fn was_taken(&mut self, batch: &Batch, taken: Taken) {
        let rejected = taken.as_ref().map_or(0, |partial| partial.rejected);
        let rejected = usize::try_from(rejected).unwrap_or(usize::MAX).min(batch.count);
        self.batches.counts.add(Count::Exported, batch.count - rejected);
        let Some(partial) = taken else { return };
        self.is_lost(rejected);
        if self.partials.may_tell() {
            let (rejected, noun, endpoint) = (partial.rejected, self.noun, self.link.shown());
            let why = base::log::lossy(partial.message.as_bytes());
            base::log!(
                self.log,
                Level::Warn,
                None,
                "OTel collector rejected {rejected} {noun}: {why}, endpoint: \"{endpoint}\""
            );
        }
    }

    #[cold]
    fn tell(&self, failure: &Failure) {
        if self.failures.may_tell() {
            let (lost, noun, endpoint) = (self.lost, self.noun, self.link.shown());
            let why = base::log::lossy(failure.message.as_bytes());
            base::log!(
                self.log,
                Level::Error,
                None,
                "OTel export failure: {why}, endpoint: \"{endpoint}\", {noun} lost so far: {lost}"
            );
        }
    }
}
