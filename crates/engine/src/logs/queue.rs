//! The loop's side of a log: lines are handed over, and a thread writes them.
//!
//! ```text
//!  lines of a turn ──▶ waiting (16 MB at most) ──▶ a thread: one write for all that waits
//!                                                        │
//!  what went wrong is logged ◀── a task of the loop ◀────┘
//! ```
//!
//! Nothing here waits for a disk while the loop runs. A write to the page cache cannot be asked
//! whether it would wait: ext4 has no `RWF_NOWAIT` for writes, and those that have it may write a
//! part, which would tear a line where several workers share a file. So all of it goes to a thread,
//! and is handed over once in some milliseconds, which costs less than a write in every turn.
//!
//! The caller writes where there is no loop: in the master, at the start and at the very end. It
//! never waits for the reader of a pipe: the master has to answer signals, and drops such lines.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use base::log::Level;
use event::{Notify, Presence};

use super::write::{Call, Coding, Report, Shared, Trouble};
use crate::overload::{self, Step};

/// Bytes that may wait for a disk, a file, where the configuration does not say.
pub const QUEUE_MAX: usize = 16 << 20;

/// The time for which lines gather, if others were written a moment ago. A handover costs more than
/// a write, so it has to carry many lines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Haste {
    /// None: a line that somebody may be waiting for.
    Now,
    /// Short: lines for debugging.
    Soon,
    /// The longest: the buffer of a log, which fills again.
    Later,
}

impl Haste {
    /// The longest time since the last write, milliseconds.
    const fn ms(self) -> u64 {
        match self {
            Haste::Now => 0,
            Haste::Soon => 2,
            Haste::Later => 5,
        }
    }
}

/// The longest wait, in milliseconds, of a request that ends its connection for its log line: a
/// client that sees the end finds the line in the log, as with nginx, unless the disk is slow.
const SETTLE_MS: u64 = 50;

/// The interval of messages about a failing file in the error log, seconds.
const COMPLAIN_SECS: u64 = 60;

/// The longest delay of a process's exit by disks that do not take the last lines.
const LAST_WAIT: Duration = Duration::from_secs(3);

/// The stack of the thread that writes them, bytes.
const END_STACK: usize = 128 << 10;

thread_local! {
    static DROPPED: Cell<u64> = const { Cell::new(0) };
}

/// Log lines that this process has dropped, because they came faster than a disk took them.
pub fn dropped() -> u64 {
    DROPPED.get()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Waits for lines.
    Idle,
    /// Wrote a moment ago; new lines gather.
    Pacing,
    /// A thread writes.
    Writing,
}

/// The writer of a queue's lines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A thread, as long as there is a loop.
    Thread,
    /// The caller: the loop has ended.
    Here,
    /// Nobody: the loop has ended, and the disk did not take the last lines.
    Lost,
}

/// The signals to the task of a queue.
struct Signals {
    wake: Notify,
    stage: Cell<Stage>,
    /// The haste of the most urgent line that waits.
    haste: Cell<Haste>,
    /// Rounds of writing so far, and the tasks that wait for the next one.
    rounds: Cell<u64>,
    round: Notify,
    /// A round took too long: nobody waits for it any more.
    slow: Cell<bool>,
}

/// Lines on their way to one place, in order.
pub struct LogQueue {
    shared: Arc<Shared>,
    /// The name in messages: a path.
    name: String,
    me: Weak<LogQueue>,
    limit: Rc<Cell<usize>>,
    signals: Rc<Signals>,
    started: Cell<bool>,
    way: Cell<Way>,
    /// Lines that were dropped since the disk last took some.
    dropped: Cell<u64>,
    complains: Cell<bool>,
    complained_at: Cell<Option<u64>>,
    troubles: RefCell<Vec<Trouble>>,
    /// Until then the end of the process may be delayed by its last lines.
    last: Cell<Option<Instant>>,
}

impl std::fmt::Debug for LogQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogQueue({:?})", self.name)
    }
}

impl LogQueue {
    pub(super) fn new(path: PathBuf, name: String, limit: Rc<Cell<usize>>) -> Rc<LogQueue> {
        let signals = Signals {
            wake: Notify::new(),
            stage: Cell::new(Stage::Idle),
            haste: Cell::new(Haste::Later),
            rounds: Cell::new(0),
            round: Notify::new(),
            slow: Cell::new(false),
        };
        Rc::new_cyclic(|me| LogQueue {
            shared: Arc::new(Shared::new(path)),
            name,
            me: me.clone(),
            limit,
            signals: Rc::new(signals),
            started: Cell::new(false),
            way: Cell::new(Way::Thread),
            dropped: Cell::new(0),
            complains: Cell::new(false),
            complained_at: Cell::new(None),
            troubles: RefCell::default(),
            last: Cell::new(None),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether no line waits or is being written.
    pub(crate) fn is_idle(&self) -> bool {
        self.shared.bytes() == 0
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Failures to write are logged from now on: an error log's own would be logged in itself.
    pub(super) fn complain(&self) {
        self.complains.set(true);
    }

    /// Takes whole lines and leaves an empty buffer.
    pub(super) fn append(&self, lines: &mut Vec<u8>, coding: Option<Coding>, haste: Haste) {
        if lines.is_empty() {
            return;
        }
        if !self.shared.put(lines, coding, self.limit.get()) {
            let count = memchr::memchr_iter(b'\n', lines).count();
            lines.clear();
            self.overflow(count as u64);
        }
        self.kick(haste);
    }

    /// Takes one line.
    pub(super) fn line(&self, line: &[u8], haste: Haste) {
        if !self.shared.put_line(line, self.limit.get()) {
            self.overflow(1);
        }
        self.kick(haste);
    }

    /// Takes work that counts like a line of `bytes` bytes.
    pub fn call(&self, bytes: usize, call: Call) {
        if !self.shared.put_call(call, bytes, self.limit.get()) {
            self.overflow(1);
        }
        self.kick(Haste::Now);
    }

    /// Waits until what was appended before is written, for a short while at most, and not at all
    /// while the disk is slow, or connections are needed.
    pub async fn settled(&self) {
        let signals = self.signals.clone();
        let is_needed = self.way.get() == Way::Thread && self.shared.bytes() > 0;
        if !is_needed || signals.slow.get() || overload::step() > Step::None {
            return;
        }
        // A round that is under way may have taken it, or not.
        let more = if signals.stage.get() == Stage::Writing { 2 } else { 1 };
        let need = signals.rounds.get() + more;
        let written = async {
            while signals.rounds.get() < need && self.shared.bytes() > 0 {
                signals.round.notified().await;
            }
        };
        if event::timeout(SETTLE_MS, written).await.is_err() {
            signals.slow.set(true);
        }
    }

    pub(super) fn reopen(&self, owner: Option<u32>) {
        self.shared.put_reopen(owner);
        self.kick(Haste::Now);
    }

    pub(super) fn redirect_stderr(&self) {
        self.shared.put_stderr();
        self.kick(Haste::Now);
    }

    #[cold]
    fn overflow(&self, lines: u64) {
        DROPPED.set(DROPPED.get() + lines);
        let before = self.dropped.replace(self.dropped.get() + lines);
        if before == 0 {
            let (name, log) = (&self.name, base::log::default());
            let why = match self.shared.bytes() {
                0 => "nothing reads them".to_owned(),
                bytes => format!("{bytes} bytes wait to be written"),
            };
            base::log!(log, Level::Error, None, "lines for \"{name}\" are dropped: {why}");
        }
    }

    fn kick(&self, haste: Haste) {
        match (self.way.get(), event::presence()) {
            (Way::Lost, _) => {}
            (Way::Here, _) | (Way::Thread, Presence::Absent) => self.write_here(),
            // The next line takes it along.
            (Way::Thread, Presence::InUse) => {}
            (Way::Thread, Presence::Free) => self.wake(haste),
        }
    }

    fn wake(&self, haste: Haste) {
        if !self.started.replace(true) {
            event::spawn(writer(self.me.clone(), self.shared.clone(), self.signals.clone()));
        }
        let signals = &self.signals;
        let more = haste < signals.haste.get();
        if more {
            signals.haste.set(haste);
        }
        match signals.stage.get() {
            Stage::Idle => signals.wake.notify_one(),
            Stage::Pacing if more => signals.wake.notify_one(),
            Stage::Pacing | Stage::Writing => {}
        }
    }

    fn write_here(&self) {
        let until = self.last.get().unwrap_or_else(Instant::now);
        let report = self.shared.write_all(Some(until));
        self.written(report);
    }

    /// A round of writing is over.
    fn written(&self, report: Report) {
        if !report.troubles.is_empty() {
            self.troubles.borrow_mut().extend(report.troubles);
            self.tell();
        }
        if report.dropped > 0 {
            self.overflow(report.dropped);
        } else if self.dropped.get() > 0 && self.shared.is_empty() {
            let (lines, name) = (self.dropped.take(), &self.name);
            base::log!(
                base::log::default(),
                Level::Error,
                None,
                "lines for \"{name}\" are written again: {lines} were dropped"
            );
        }
    }

    /// Logs the failures of the last round. Logging may call back here, so nothing is borrowed
    /// meanwhile.
    #[cold]
    fn tell(&self) {
        let log = base::log::default();
        for trouble in self.troubles.take() {
            if trouble.of_writing && !self.may_complain() {
                continue;
            }
            let Trouble { level, connection, message, error, .. } = trouble;
            match error {
                Some(e) => {
                    let e = base::log::os_error(&e);
                    base::log!(log, level, connection, "{message} failed {e}");
                }
                None => base::log!(log, level, connection, "{message}"),
            }
        }
    }

    fn may_complain(&self) -> bool {
        let now = base::time::unix_secs();
        if !self.complains.get()
            || self.complained_at.get().is_some_and(|at| now < at + COMPLAIN_SECS)
        {
            return false;
        }
        self.complained_at.set(Some(now));
        true
    }

    /// Starts writing the last lines in a thread of its own: the loop has ended. `None` if nothing
    /// waits.
    fn begin_end(&self) -> Option<mpsc::Receiver<Report>> {
        if self.shared.bytes() == 0 && self.shared.is_empty() {
            self.way.set(Way::Here);
            return None;
        }
        let (sender, receiver) = mpsc::channel();
        let shared = self.shared.clone();
        let spawned = os::thread::start("logs", END_STACK, move || {
            // The receiver may have given up waiting.
            let _ = sender.send(shared.write_all(None));
        });
        if spawned.is_err() {
            self.write_here();
            self.way.set(Way::Here);
            return None;
        }
        Some(receiver)
    }
}

/// Writes the lines that wait in these queues. The loop has ended: later lines are written by the
/// caller. A disk that does not take them within some seconds is left.
pub(super) fn end(queues: &[Rc<LogQueue>]) {
    let until = Instant::now() + LAST_WAIT;
    queues.iter().for_each(|queue| queue.last.set(Some(until)));
    let begun: Vec<_> = queues.iter().map(|q| (q, q.begin_end())).collect();
    let mut lost = Vec::new();
    for (queue, receiver) in begun {
        let Some(receiver) = receiver else { continue };
        match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(report) => {
                queue.way.set(Way::Here);
                queue.written(report);
            }
            Err(_) => {
                queue.way.set(Way::Lost);
                lost.push(queue);
            }
        }
    }
    for queue in lost {
        let (name, bytes, log) = (&queue.name, queue.shared.bytes(), base::log::default());
        base::log!(
            log,
            Level::Error,
            None,
            "the last {bytes} bytes for \"{name}\" could not be written in time"
        );
    }
}

impl Drop for LogQueue {
    fn drop(&mut self) {
        if self.started.get() {
            // The task finds the queue gone and ends.
            self.signals.wake.notify_one();
        }
        if self.way.get() == Way::Lost || self.shared.is_empty() {
            return;
        }
        let shared = self.shared.clone();
        // A failure now can no longer be logged.
        match event::presence() {
            Presence::Free => {
                let _ = event::pool::for_logs().detach(move || drop(shared.write_all(None)));
            }
            Presence::Absent | Presence::InUse => drop(shared.write_all(Some(Instant::now()))),
        }
    }
}

/// The task of a queue: hands over the waiting lines, again and again.
async fn writer(queue: Weak<LogQueue>, shared: Arc<Shared>, signals: Rc<Signals>) {
    let mut last_ms: Option<u64> = None;
    loop {
        if shared.is_empty() {
            signals.stage.set(Stage::Idle);
            signals.wake.notified().await;
        }
        loop {
            let since = last_ms.map_or(u64::MAX, |last| base::time::now_ms().saturating_sub(last));
            let left = signals.haste.get().ms().saturating_sub(since);
            if left == 0 {
                break;
            }
            signals.stage.set(Stage::Pacing);
            event::race(event::sleep(left), signals.wake.notified()).await;
        }
        signals.haste.set(Haste::Later);
        if queue.strong_count() == 0 {
            return;
        }
        if shared.is_empty() {
            continue;
        }
        signals.stage.set(Stage::Writing);
        let of_thread = shared.clone();
        let written = event::pool::for_logs().run(move || of_thread.write_all(None)).await;
        last_ms = Some(base::time::now_ms());
        signals.rounds.set(signals.rounds.get() + 1);
        signals.slow.set(false);
        signals.round.notify_all();
        let Some(queue) = queue.upgrade() else { return };
        match written {
            Ok(report) => queue.written(report),
            // No thread can be started: blocking the loop is better than losing lines.
            Err(_) => queue.write_here(),
        }
    }
}
