//! What became of sessions and datagrams, and what of it a killed worker explains.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::backends::locked;
use crate::report::{self, row};

/// A kill explains what was cut or lost when a session had last moved this long before it.
const NEAR: Duration = Duration::from_secs(2);
/// Failures that are printed in full.
const SHOWN: usize = 20;

/// A kind of session: the server of Weir's that it goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `least_conn` over two backends, one of which comes and goes.
    Balanced,
    /// `proxy_half_close on`.
    Half,
    /// TLS ends at Weir.
    Tls,
    /// TLS begins at Weir.
    ToTls,
    /// TLS that is passed on by its name.
    NamedFirst,
    /// The same to another backend.
    NamedSecond,
    /// A header of the PROXY protocol on both sides.
    Proxied,
    /// Sessions over UDP that stay.
    Kept,
    /// Sessions over UDP that end with their answer.
    Answered,
}

/// How a session ended.
pub enum Ending {
    /// With all of its bytes.
    Done,
    /// By its client, on purpose.
    GivenUp,
    /// Before its last byte.
    Cut {
        /// When it had last moved.
        last: Instant,
        /// Whether no byte of the answer had come.
        untouched: bool,
        /// Where it was.
        text: String,
    },
    /// It did not move for a long time.
    Stuck(String),
    /// With a byte that is not its own.
    Wrong(String),
}

/// The sessions of a kind.
#[derive(Clone, Default)]
struct Sessions {
    done: u64,
    given_up: u64,
    cut_by_kill: u64,
    cut_by_stop: u64,
    failed: u64,
    received: u64,
}

/// Datagrams over UDP.
#[derive(Default)]
pub struct Datagrams {
    /// Questions that were sent.
    pub sent: AtomicU64,
    /// Answers that came and were compared.
    pub answers: AtomicU64,
    /// Answers that were to come.
    pub due: AtomicU64,
    /// Those of them that were to come near no kill.
    pub due_in_peace: AtomicU64,
    /// Answers that did not come, near a kill.
    pub lost_by_kill: AtomicU64,
    /// Answers that did not come, near no kill but near a reload.
    pub lost_at_reload: AtomicU64,
    /// Answers that did not come at any other time.
    pub lost_in_peace: AtomicU64,
    /// Answers that came when nobody waited for them any more; they count as lost, too.
    pub late: AtomicU64,
    /// Answers that came behind one to a later question.
    pub out_of_order: AtomicU64,
}

/// All of it, and the disturbances so far.
#[derive(Default)]
pub struct Counts {
    kinds: Mutex<BTreeMap<Kind, Sessions>>,
    /// When workers were killed.
    pub kills: Mutex<Vec<Instant>>,
    /// When a backend stopped.
    pub stops: Mutex<Vec<Instant>>,
    /// When Weir was reloaded.
    pub reloads: Mutex<Vec<Instant>>,
    /// Datagrams.
    pub udp: Datagrams,
    /// Sessions of TLS that ended without a `close_notify`.
    pub no_close_notify: AtomicU64,
    /// Wrong bytes, each one an error.
    pub wrong: Mutex<Vec<String>>,
    /// Everything else that must not be.
    pub failures: Mutex<Vec<String>>,
}

/// Adds one.
pub fn one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn any_since(times: &Mutex<Vec<Instant>>, since: Instant) -> bool {
    locked(times).iter().rev().any(|time| *time + NEAR >= since)
}

impl Counts {
    /// A session is over.
    pub fn ended(&self, kind: Kind, ending: Ending, received: u64) {
        let mut kinds = locked(&self.kinds);
        let sessions = kinds.entry(kind).or_default();
        sessions.received += received;
        match ending {
            Ending::Done => sessions.done += 1,
            Ending::GivenUp => sessions.given_up += 1,
            Ending::Cut { last, .. } if any_since(&self.kills, last) => sessions.cut_by_kill += 1,
            Ending::Cut { last, untouched: true, .. }
                if kind == Kind::Balanced && any_since(&self.stops, last) =>
            {
                sessions.cut_by_stop += 1;
            }
            Ending::Cut { text, .. } => {
                sessions.failed += 1;
                locked(&self.failures).push(format!("{kind:?}: cut without a kill: {text}"));
            }
            Ending::Stuck(text) => {
                sessions.failed += 1;
                locked(&self.failures).push(format!("{kind:?}: stuck: {text}"));
            }
            Ending::Wrong(text) => {
                sessions.failed += 1;
                locked(&self.wrong).push(format!("{kind:?}: {text}"));
            }
        }
    }

    /// Whether a worker was killed shortly before that time, or since.
    pub fn near_kill(&self, since: Instant) -> bool {
        any_since(&self.kills, since)
    }

    /// Counts answers that did not come to a question of that time.
    pub fn lost(&self, sent: Instant, answers: u64) {
        let counter = match () {
            () if self.near_kill(sent) => &self.udp.lost_by_kill,
            () if any_since(&self.reloads, sent) => &self.udp.lost_at_reload,
            () => &self.udp.lost_in_peace,
        };
        counter.fetch_add(answers, Ordering::Relaxed);
    }

    /// All sessions over TCP and UDP, and all bytes of their answers.
    pub fn totals(&self) -> (u64, u64) {
        let kinds = locked(&self.kinds);
        let all = |of: fn(&Sessions) -> u64| kinds.values().map(of).sum();
        (
            all(|k| k.done + k.given_up + k.cut_by_kill + k.cut_by_stop + k.failed),
            all(|k| k.received),
        )
    }

    /// Prints the tables.
    pub fn print(&self) {
        let mut rows = vec![row([
            "sessions",
            "done",
            "given up",
            "cut by a kill",
            "cut by a stop",
            "failed",
            "MB received",
        ])];
        for (kind, k) in &*locked(&self.kinds) {
            let mut cells = vec![format!("{kind:?}")];
            let counts = [k.done, k.given_up, k.cut_by_kill, k.cut_by_stop, k.failed];
            cells.extend(counts.map(|n| n.to_string()));
            cells.push(report::megabytes(k.received as f64));
            rows.push(cells);
        }
        report::table(&rows);
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let udp = &self.udp;
        println!(
            "datagrams: {} sent, {} answers of {}; lost {} near kills, {} near reloads, {} else; \
             {} late, {} out of order; loss away from kills {:.4} %",
            of(&udp.sent),
            of(&udp.answers),
            of(&udp.due),
            of(&udp.lost_by_kill),
            of(&udp.lost_at_reload),
            of(&udp.lost_in_peace),
            of(&udp.late),
            of(&udp.out_of_order),
            100.0 * self.loss_in_peace(),
        );
        println!("sessions of TLS without close_notify: {}", of(&self.no_close_notify));
        for (what, texts) in [("wrong", &self.wrong), ("failed", &self.failures)] {
            let texts = locked(texts);
            println!("{what}: {}", texts.len());
            texts.iter().take(SHOWN).for_each(|text| println!("  {text}"));
        }
    }

    /// What must not be, in a line.
    pub fn complaints(&self) -> Option<String> {
        let (wrong, failed) = (locked(&self.wrong).len(), locked(&self.failures).len());
        (wrong + failed > 0).then(|| format!("{wrong} wrong, {failed} failed"))
    }

    /// The share of answers near no kill that did not come.
    pub fn loss_in_peace(&self) -> f64 {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let lost = of(&self.udp.lost_at_reload) + of(&self.udp.lost_in_peace);
        lost / of(&self.udp.due_in_peace).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Counts, Ending, Kind};
    use crate::backends::locked;

    fn cut(counts: &Counts, kind: Kind, last: Instant) -> usize {
        let ending = Ending::Cut { last, untouched: true, text: String::new() };
        counts.ended(kind, ending, 0);
        locked(&counts.failures).len()
    }

    #[test]
    fn a_cut_is_explained_by_a_kill_only_near_it() {
        let counts = Counts::default();
        let kill = Instant::now() + Duration::from_secs(100);
        assert_eq!(cut(&counts, Kind::Tls, kill), 1, "no kill at all");
        locked(&counts.kills).push(kill);
        assert_eq!(cut(&counts, Kind::Tls, kill), 1);
        assert_eq!(cut(&counts, Kind::Tls, kill - Duration::from_secs(9)), 1, "it had a pause");
        assert_eq!(cut(&counts, Kind::Tls, kill + Duration::from_secs(3)), 2, "it moved after it");
    }

    #[test]
    fn a_stopped_backend_explains_cuts_of_its_own_sessions() {
        let counts = Counts::default();
        let stop = Instant::now();
        locked(&counts.stops).push(stop);
        assert_eq!(cut(&counts, Kind::Balanced, stop), 0);
        assert_eq!(cut(&counts, Kind::Half, stop), 1);
    }
}
