//! The state of the connection to the engine, and its counters: one writer, the shared state
//! process; readers are the workers that show them. The memory outlives reloads.

use std::sync::atomic::{AtomicU64, Ordering};

use shm::Zone;

/// The state of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// There is no `shared_state`, or its process has not begun.
    Off,
    /// The first connection is being made.
    Starting,
    /// The engine answers.
    Joined,
    /// It does not, or refuses.
    Away,
}

impl State {
    /// Its name in the status.
    pub fn name(self) -> &'static str {
        match self {
            State::Off => "off",
            State::Starting => "starting",
            State::Joined => "joined",
            State::Away => "away",
        }
    }
}

/// A counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    /// Rounds that the engine answered.
    Rounds,
    /// Rounds that it did not answer, or refused.
    Failures,
    /// Changes from joined to away.
    Fallbacks,
    /// Keys and pairs that were sent.
    Sent,
    /// Pairs of others that were received.
    Received,
    /// Changes that were lost here, for lack of room.
    Dropped,
    /// Keys that belong to another program.
    Foreign,
    /// Answers that made no sense.
    Malformed,
    /// Requests that waited for the engine: those of strict limits alone.
    Waits,
}

impl Counter {
    /// All, in the order of the status.
    pub const ALL: [Counter; 9] = [
        Counter::Rounds,
        Counter::Failures,
        Counter::Fallbacks,
        Counter::Sent,
        Counter::Received,
        Counter::Dropped,
        Counter::Foreign,
        Counter::Malformed,
        Counter::Waits,
    ];

    /// Its name in the status.
    pub fn name(self) -> &'static str {
        match self {
            Counter::Rounds => "rounds",
            Counter::Failures => "failures",
            Counter::Fallbacks => "fallbacks",
            Counter::Sent => "sent",
            Counter::Received => "received",
            Counter::Dropped => "dropped",
            Counter::Foreign => "foreign",
            Counter::Malformed => "malformed",
            Counter::Waits => "waits",
        }
    }
}

/// Words of the zone before the counters.
const STATE: usize = 0;
const SINCE_MS: usize = 1;
const ANSWERED_MS: usize = 2;
const ROUND_US: usize = 3;
const PEERS: usize = 4;
const NODE: usize = 5;
const COUNTERS: usize = 8;
/// Texts: the reason for being away, and the names of peers. Each is a length and bytes.
const REASON: usize = 24;
const REASON_WORDS: usize = 24;
const NAMES: usize = REASON + REASON_WORDS;
const NAMES_WORDS: usize = 128;
const WORDS: usize = NAMES + NAMES_WORDS;

/// See the head of the file.
#[derive(Debug, Default)]
pub struct Status(Option<Zone>);

/// The numbers at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The state.
    pub state: State,
    /// Milliseconds since the state changed.
    pub state_ms: u64,
    /// Milliseconds since the engine answered last; `None` if it never did.
    pub lag_ms: Option<u64>,
    /// Microseconds that the last round took.
    pub round_us: u64,
    /// The servers of the last 10 seconds with this prefix, this one among them.
    pub peers: u64,
    /// Their host names, separated by spaces.
    pub names: String,
    /// The reason for being away.
    pub reason: String,
    /// The counters, as in [`Counter::ALL`].
    pub counters: [u64; Counter::ALL.len()],
}

impl Status {
    /// Maps the memory, before the fork.
    ///
    /// # Errors
    /// The system's, when memory cannot be mapped.
    pub fn new() -> std::io::Result<Status> {
        Ok(Status(Some(Zone::anonymous(WORDS * 8)?)))
    }

    fn word(&self, at: usize) -> Option<&AtomicU64> {
        self.0.as_ref()?.words().get(at)
    }

    fn get(&self, at: usize) -> u64 {
        self.word(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn put(&self, at: usize, value: u64) {
        if let Some(word) = self.word(at) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Adds to a counter; several processes may.
    pub fn add(&self, counter: Counter, n: u64) {
        if n != 0
            && let Some(word) = self.word(COUNTERS + counter as usize)
        {
            word.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// The value of a counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.get(COUNTERS + counter as usize)
    }

    /// This server's number among all, the same for all its shared state processes; `new` at the
    /// first call.
    pub fn node(&self, new: u64) -> u64 {
        let Some(word) = self.word(NODE) else { return new };
        match word.compare_exchange(0, new.max(1), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => new.max(1),
            Err(known) => known,
        }
    }

    /// The state.
    pub fn state(&self) -> State {
        match self.get(STATE) {
            1 => State::Starting,
            2 => State::Joined,
            3 => State::Away,
            _ => State::Off,
        }
    }

    pub(crate) fn set_state(&self, state: State, now_ms: u64, reason: &str) {
        self.put(SINCE_MS, now_ms);
        self.put_text(REASON, REASON_WORDS, reason);
        self.put(STATE, state as u64);
    }

    pub(crate) fn since_ms(&self) -> u64 {
        self.get(SINCE_MS)
    }

    pub(crate) fn answered(&self, now_ms: u64, round_us: u64) {
        self.put(ANSWERED_MS, now_ms.max(1));
        self.put(ROUND_US, round_us);
    }

    pub(crate) fn set_peers(&self, count: u64, names: &str) {
        self.put(PEERS, count);
        self.put_text(NAMES, NAMES_WORDS, names);
    }

    fn put_text(&self, at: usize, words: usize, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min((words - 1) * 8)];
        for (n, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.put(at + 1 + n, u64::from_le_bytes(word));
        }
        self.put(at, bytes.len() as u64);
    }

    /// A text. It may be a mix of an old and a new one while it changes.
    fn text(&self, at: usize, words: usize) -> String {
        let len = usize::try_from(self.get(at)).unwrap_or(0).min((words - 1) * 8);
        let mut bytes = Vec::with_capacity(len);
        for n in 0..len.div_ceil(8) {
            bytes.extend_from_slice(&self.get(at + 1 + n).to_le_bytes());
        }
        bytes.truncate(len);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The numbers at this moment.
    pub fn snapshot(&self, now_ms: u64) -> Snapshot {
        let answered = self.get(ANSWERED_MS);
        Snapshot {
            state: self.state(),
            state_ms: now_ms.saturating_sub(self.get(SINCE_MS)),
            lag_ms: (answered != 0).then(|| now_ms.saturating_sub(answered)),
            round_us: self.get(ROUND_US),
            peers: self.get(PEERS),
            names: self.text(NAMES, NAMES_WORDS),
            reason: self.text(REASON, REASON_WORDS),
            counters: Counter::ALL.map(|counter| self.counter(counter)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_read_as_written() {
        let status = Status::new().unwrap();
        assert_eq!(status.state(), State::Off);
        status.set_state(State::Away, 1000, "it does not answer");
        status.add(Counter::Dropped, 3);
        status.set_peers(2, "a b");
        status.answered(900, 77);
        let shown = status.snapshot(1500);
        assert_eq!((shown.state, shown.state_ms, shown.lag_ms), (State::Away, 500, Some(600)));
        assert_eq!((shown.reason.as_str(), shown.names.as_str()), ("it does not answer", "a b"));
        assert_eq!((shown.peers, shown.round_us, shown.counters[5]), (2, 77, 3));
        status.set_state(State::Joined, 1500, "");
        assert_eq!(status.snapshot(1500).reason, "");
        assert_eq!((status.node(7), status.node(8)), (7, 7));
        status.set_peers(900, &"long ".repeat(900));
        assert_eq!(status.snapshot(0).names.len(), (NAMES_WORDS - 1) * 8);
    }

    #[test]
    fn without_memory_nothing_is_kept() {
        let status = Status::default();
        status.set_state(State::Joined, 1, "x");
        status.add(Counter::Rounds, 1);
        assert_eq!((status.state(), status.counter(Counter::Rounds)), (State::Off, 0));
    }
}
