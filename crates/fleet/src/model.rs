//! The engine in memory, and a network of servers around it whose time is a number: for tests and
//! simulations. Nothing of it is part of a server.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::call::{Answer, Call};
use crate::node::{Failure, Node};

/// The numbers of nodes at one key, each with the time at which it ends.
type Counts = HashMap<Vec<u8>, (i64, i64)>;

/// The state that an engine keeps for the scripts.
#[derive(Clone, Default)]
pub struct Engine {
    buckets: HashMap<Vec<u8>, Bucket>,
    tables: HashMap<Vec<u8>, Table>,
    nodes: HashMap<Vec<u8>, BTreeMap<Vec<u8>, i64>>,
    lists: HashMap<Vec<u8>, List>,
    counts: HashMap<Vec<u8>, Counts>,
    folders: HashMap<Vec<u8>, Folder>,
    /// Keys of another program.
    pub foreign: HashSet<Vec<u8>>,
    /// An error for every call, for example `OOM command not allowed`.
    pub refuses: Option<String>,
}

#[derive(Clone)]
struct Bucket {
    last: i64,
    excess: i64,
    expires: i64,
}

/// The purges of a cache.
#[derive(Clone, Default)]
struct List {
    version: i64,
    epoch: Option<String>,
    purges: BTreeMap<i64, Vec<u8>>,
}

/// A folder of files.
#[derive(Clone, Default)]
struct Folder {
    /// The fence of the lock, its holder, and its end.
    lock: Option<(i64, Vec<u8>, i64)>,
    fence: i64,
    version: i64,
    epoch: Option<String>,
    /// The text of each file; none if it is gone. And the version of its last change.
    files: BTreeMap<Vec<u8>, (Vec<u8>, i64)>,
    /// When files were removed.
    gone: BTreeMap<Vec<u8>, i64>,
}

#[derive(Clone, Default)]
struct Table {
    version: i64,
    epoch: Option<String>,
    records: HashMap<Vec<u8>, Stored>,
    index: BTreeMap<i64, Vec<u8>>,
}

#[derive(Clone)]
struct Stored {
    stamp: i64,
    node: String,
    expires: i64,
    is_tombstone: bool,
    value: Vec<u8>,
    version: i64,
}

impl Stored {
    fn is_over(&self, now: i64) -> bool {
        self.expires != 0 && self.expires <= now
    }

    fn text(&self) -> Answer {
        let Stored { stamp, node, expires, .. } = self;
        let kind = if self.is_tombstone { 't' } else { 's' };
        let mut bytes = format!("1 {stamp} {node} {expires} {kind}\n").into_bytes();
        bytes.extend_from_slice(&self.value);
        Answer::Bytes(bytes)
    }
}

fn number(bytes: &[u8]) -> i64 {
    std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn text(n: i64) -> Answer {
    Answer::Bytes(n.to_string().into_bytes())
}

impl Engine {
    /// Loses everything, as `FLUSHALL` does.
    pub fn empty(&mut self) {
        *self = Engine { refuses: self.refuses.take(), ..Engine::default() };
    }

    /// Runs a call at that time of the engine's clock, milliseconds since 1970.
    pub fn run(&mut self, call: &Call, now: i64) -> Answer {
        if let Some(error) = &self.refuses {
            return Answer::Error(error.clone());
        }
        match call.script.name {
            "hello" => self.hello(call, now),
            "limit" => self.limit(call, now),
            "connections" => self.connections(call, now),
            "strict" => self.strict(call, now),
            "push" => self.push(call, now),
            "pull" => self.pull(call, now),
            "purge" => self.purge(call, now),
            "purges" => self.purges(call),
            "folder" => self.folder(call, now),
            other => Answer::Error(format!("ERR no model of {other}")),
        }
    }

    fn hello(&mut self, call: &Call, now: i64) -> Answer {
        let nodes = self.nodes.entry(call.keys[0].clone()).or_default();
        let own = [&call.args[1][..], b" "].concat();
        nodes.retain(|node, at| *at > now - 10_000 && !node.starts_with(&own));
        nodes.insert(call.args[0].clone(), now);
        let names = nodes.keys().take(100).cloned().map(Answer::Bytes).collect();
        Answer::List(vec![Answer::Int(now), Answer::List(names)])
    }

    fn limit(&mut self, call: &Call, now: i64) -> Answer {
        let (rate, window) = (number(&call.args[0]), number(&call.args[1]));
        let least = -(rate * window / 1000) - 1000;
        let mut out = Vec::new();
        for (key, amount) in call.keys.iter().zip(&call.args[2..]) {
            if self.foreign.contains(key) {
                out.push(Answer::Bytes(b"foreign".to_vec()));
                continue;
            }
            let old = self.buckets.get(key).filter(|bucket| bucket.expires > now);
            let (last, mut excess) = old.map_or((now, least), |old| (old.last, old.excess));
            excess -= rate * (now - last).max(0) / 1000;
            excess = excess.max(least);
            excess = match amount.strip_prefix(b"=") {
                Some(level) => excess.max(number(level)),
                None => excess + number(amount),
            };
            let mut ttl = window + 1000;
            if excess > 0 {
                ttl += (excess * 1000 + rate - 1) / rate;
            }
            self.buckets.insert(key.clone(), Bucket { last: now, excess, expires: now + ttl });
            out.push(Answer::Int(excess));
        }
        Answer::List(out)
    }

    fn connections(&mut self, call: &Call, now: i64) -> Answer {
        let (node, ttl) = (&call.args[0], number(&call.args[1]));
        let mut out = Vec::new();
        for (key, count) in call.keys.iter().zip(&call.args[2..]) {
            let counts = self.counts.entry(key.clone()).or_default();
            counts.retain(|_, (_, at)| *at > now - ttl && *at <= now + ttl);
            let others = counts.iter().filter(|(of, _)| *of != node);
            out.push(Answer::Int(others.map(|(_, (count, _))| count).sum()));
            match number(count) {
                0 => counts.remove(node),
                count => counts.insert(node.clone(), (count, now)),
            };
        }
        Answer::List(out)
    }

    fn strict(&mut self, call: &Call, now: i64) -> Answer {
        let (rate, burst) = (number(&call.args[0]), number(&call.args[1]));
        let old = self.buckets.get(&call.keys[0]).filter(|bucket| bucket.expires > now);
        let leaked = |old: &Bucket| rate * (now - old.last).max(0) / 1000;
        let excess = old.map_or(0, |old| (old.excess - leaked(old) + 1000).max(0));
        if excess > burst {
            return Answer::List(vec![Answer::Int(0), Answer::Int(excess)]);
        }
        let expires = now + ((excess + 1000) * 1000 + rate - 1) / rate + 1000;
        self.buckets.insert(call.keys[0].clone(), Bucket { last: now, excess, expires });
        Answer::List(vec![Answer::Int(1), Answer::Int(excess)])
    }

    fn push(&mut self, call: &Call, now: i64) -> Answer {
        let t = self.tables.entry(call.keys[0].clone()).or_default();
        let node = String::from_utf8_lossy(&call.args[0]).into_owned();
        let lifetime = number(&call.args[1]);
        t.epoch.get_or_insert_with(|| format!("{now}-{node}"));
        let mut gone: Vec<_> = t.records.iter().filter(|(_, record)| record.is_over(now)).collect();
        gone.sort_by_key(|(_, record)| record.expires);
        let most = 20.max(2 * (call.args.len().saturating_sub(2) / 5));
        let gone: Vec<_> = gone.into_iter().take(most).map(|(key, _)| key.clone()).collect();
        for key in gone {
            if let Some(record) = t.records.remove(&key) {
                t.index.remove(&record.version);
            }
        }
        let mut out = vec![Answer::Int(now)];
        for five in call.args[2..].chunks(5) {
            let [key, stamp, left, kind, value] = five else { continue };
            let stamp = if kind == b"o" { 0 } else { number(stamp).min(now) };
            let old = t.records.get(key).filter(|old| !old.is_over(now));
            if let Some(old) = old
                && (kind == b"o" || old.stamp <= now && (stamp, &node) < (old.stamp, &old.node))
            {
                out.push(old.text());
                continue;
            }
            let expires = match (&kind[..], number(left)) {
                (b"t", _) => now + lifetime,
                (_, 0) => 0,
                (_, left) => now + left,
            };
            t.version += 1;
            let record = Stored {
                stamp,
                node: node.clone(),
                expires,
                is_tombstone: kind == b"t",
                value: value.clone(),
                version: t.version,
            };
            if let Some(old) = t.records.insert(key.clone(), record) {
                t.index.remove(&old.version);
            }
            t.index.insert(t.version, key.clone());
            out.push(Answer::Int(1));
        }
        Answer::List(out)
    }

    fn purge(&mut self, call: &Call, now: i64) -> Answer {
        let list = self.lists.entry(call.keys[0].clone()).or_default();
        let node = String::from_utf8_lossy(&call.args[0]).into_owned();
        list.epoch.get_or_insert_with(|| format!("{now}-{node}"));
        for text in &call.args[2..] {
            list.version += 1;
            let head = format!("{} {node} ", list.version).into_bytes();
            list.purges.insert(list.version, [&head[..], text].concat());
        }
        while list.purges.len() as i64 > number(&call.args[1]) {
            list.purges.pop_first();
        }
        Answer::Int(1)
    }

    fn purges(&mut self, call: &Call) -> Answer {
        let list = self.lists.entry(call.keys[0].clone()).or_default();
        let (after, count) = (number(&call.args[0]), number(&call.args[1]));
        let first = list.purges.keys().next().copied().unwrap_or(list.version + 1);
        let epoch = list.epoch.clone().unwrap_or_default().into_bytes();
        let mut out = vec![Answer::Bytes(epoch), text(list.version), Answer::Int(first)];
        let range = list.purges.range(after + 1..).take(count.max(0) as usize);
        out.extend(range.map(|(_, text)| Answer::Bytes(text.clone())));
        Answer::List(out)
    }

    fn folder(&mut self, call: &Call, now: i64) -> Answer {
        let f = self.folders.entry(call.keys[0].clone()).or_default();
        let (node, fence, ttl) = (&call.args[0], number(&call.args[1]), number(&call.args[2]));
        let lock = f.lock.clone().filter(|(.., until)| *until > now);
        let is_free = lock.as_ref().is_none_or(|(_, holder, _)| holder == node);
        let is_held = lock.is_some_and(|(number, holder, _)| number == fence && holder == *node);
        let held = match fence {
            0 if ttl > 0 && is_free => {
                f.fence += 1;
                f.fence
            }
            0 => 0,
            fence => fence * i64::from(is_held),
        };
        if held > 0 {
            f.lock = Some((held, node.clone(), now + ttl));
        }
        let written = if held > 0 && fence > 0 { &call.args[5..] } else { &[] };
        for two in written.chunks(2) {
            let [name, text] = two else { continue };
            f.epoch.get_or_insert_with(|| format!("{now}-{}", String::from_utf8_lossy(node)));
            f.version += 1;
            f.files.insert(name.clone(), (text.clone(), f.version));
            match text.is_empty() {
                true => f.gone.insert(name.clone(), now),
                false => f.gone.remove(name),
            };
        }
        if !written.is_empty() {
            let (files, long_ago) = (&mut f.files, now - 2_592_000_000);
            f.gone.retain(|name, at| {
                let is_recent = *at > long_ago;
                if !is_recent && files.get(name).is_some_and(|(text, _)| text.is_empty()) {
                    files.remove(name);
                }
                is_recent
            });
        }
        let epoch = f.epoch.clone().unwrap_or_default().into_bytes();
        let known = number(&call.args[3]);
        let after = if epoch == call.args[4] && known <= f.version { known } else { 0 };
        let mut changed: Vec<_> = f.files.iter().filter(|(_, (_, at))| *at > after).collect();
        changed.sort_by_key(|(_, (_, at))| *at);
        let mut out = vec![Answer::Int(held), text(f.version), Answer::Bytes(epoch)];
        for (name, (text, _)) in changed {
            out.extend([Answer::Bytes(name.clone()), Answer::Bytes(text.clone())]);
        }
        Answer::List(out)
    }

    fn pull(&mut self, call: &Call, now: i64) -> Answer {
        let t = self.tables.entry(call.keys[0].clone()).or_default();
        let (after, count, most) =
            (number(&call.args[0]), number(&call.args[1]), number(&call.args[2]));
        let epoch = t.epoch.clone().unwrap_or_default().into_bytes();
        let mut out = vec![Answer::Bytes(epoch), text(t.version), Answer::Int(now)];
        let mut bytes = 0;
        for (version, key) in t.index.range(after + 1..).take(count.max(0) as usize) {
            let record = t.records.get(key).map_or(Answer::Bytes(Vec::new()), Stored::text);
            bytes += (key.len() + record.bytes().map_or(0, <[u8]>::len)) as i64;
            out.extend([Answer::Bytes(key.clone()), text(*version), record]);
            if bytes > most {
                break;
            }
        }
        Answer::List(out)
    }
}

/// Numbers that look random, the same for the same seed.
pub struct Random(u64);

impl Random {
    /// A sequence.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n.max(1)
    }
}

/// A round that is on its way.
struct Flight {
    /// The calls reach the engine then; `None` when they have, or never will.
    arrives: Option<u64>,
    calls: Vec<Call>,
    answers: Option<Vec<Answer>>,
    /// The answers, or the news that there are none, reach the server then.
    ends: u64,
    begun: u64,
}

/// A server of a simulation.
pub struct Server {
    /// Its node.
    pub node: Node,
    /// Its clock is wrong by this many milliseconds.
    pub skew_ms: i64,
    /// Nothing reaches it, and it reaches nothing.
    pub is_cut: bool,
    /// The lines that it logged.
    pub lines: Vec<String>,
    flight: Option<Flight>,
    next_ms: u64,
    is_joined: bool,
    /// The rounds that it has begun.
    rounds: u64,
}

/// What goes wrong with every other round of each server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The calls run, and the answers come too late.
    Late,
    /// The calls do not reach the engine.
    Lost,
    /// The engine refuses all calls but the announcement.
    Busy,
}

/// Servers around an engine. One step is a millisecond.
pub struct Network {
    /// The engine.
    pub engine: Engine,
    /// The servers.
    pub servers: Vec<Server>,
    /// Milliseconds since the begin of the monotonic clock.
    pub now_ms: u64,
    /// The longest way between a server and the engine, in milliseconds.
    pub delay_ms: u64,
    /// Of 1000 messages, so many are lost.
    pub loss: u64,
    /// What goes wrong with every other round.
    pub fault: Option<Fault>,
    /// The engine does nothing.
    pub is_stopped: bool,
    /// Chance.
    pub random: Random,
}

/// The time of the engine's clock at the monotonic time 0.
const EPOCH_MS: i64 = 1_700_000_000_000;
/// `interval=` and `timeout=` of simulated servers.
pub const INTERVAL_MS: u64 = 100;
const TIMEOUT_MS: u64 = 1_000;

impl Network {
    /// A network of these nodes.
    pub fn new(nodes: Vec<Node>, seed: u64) -> Network {
        let mut random = Random::new(seed);
        let server = |node| Server {
            node,
            skew_ms: 0,
            is_cut: false,
            lines: Vec::new(),
            flight: None,
            next_ms: 1_000 + random.below(INTERVAL_MS),
            is_joined: false,
            rounds: 0,
        };
        let servers = nodes.into_iter().map(server).collect();
        Network {
            engine: Engine::default(),
            servers,
            now_ms: 1_000,
            delay_ms: 2,
            loss: 0,
            fault: None,
            is_stopped: false,
            random,
        }
    }

    /// Sets this thread's clock to that of a server.
    pub fn enter(&self, i: usize) {
        let unix = EPOCH_MS + self.now_ms.cast_signed() + self.servers[i].skew_ms;
        base::time::pin(self.now_ms, unix.cast_unsigned());
        base::time::update();
    }

    /// A millisecond passes.
    pub fn step(&mut self) {
        self.now_ms += 1;
        for i in 0..self.servers.len() {
            if self.is_due(i) {
                self.enter(i);
                self.run_server(i);
            }
        }
    }

    fn is_due(&self, i: usize) -> bool {
        let server = &self.servers[i];
        match &server.flight {
            None => server.next_ms <= self.now_ms,
            Some(flight) => {
                let arrives = flight.arrives.is_some_and(|at| at <= self.now_ms);
                flight.ends <= self.now_ms || arrives && !self.is_stopped
            }
        }
    }

    /// Some milliseconds pass.
    pub fn pass(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.step());
    }

    fn run_server(&mut self, i: usize) {
        let now = self.now_ms;
        let server = &mut self.servers[i];
        if server.flight.is_none() && server.next_ms <= now {
            if !server.is_joined {
                server.node.joined();
                server.is_joined = true;
            }
            let calls = server.node.begin(now);
            server.rounds += 1;
            let is_lost = server.is_cut
                || self.random.below(1000) < self.loss
                || server.rounds.is_multiple_of(2) && self.fault == Some(Fault::Lost);
            let arrives = now + self.random.below(self.delay_ms + 1);
            let (arrives, ends) = (Some(arrives).filter(|_| !is_lost), now + TIMEOUT_MS);
            server.flight = Some(Flight { arrives, calls, answers: None, ends, begun: now });
        }
        let Some(flight) = &mut server.flight else { return };
        if flight.arrives.is_some_and(|at| at <= now) && !self.is_stopped {
            flight.arrives = None;
            let unix = EPOCH_MS + now.cast_signed();
            let fault = self.fault.filter(|_| server.rounds.is_multiple_of(2));
            let run = |call: &Call| match fault {
                Some(Fault::Busy) if call.script.name != "hello" => {
                    Answer::Error("BUSY a script runs".to_owned())
                }
                _ => self.engine.run(call, unix),
            };
            let answers = flight.calls.iter().map(run).collect();
            let is_lost = server.is_cut || self.random.below(1000) < self.loss;
            if !is_lost && fault != Some(Fault::Late) {
                flight.answers = Some(answers);
                flight.ends = now + self.random.below(self.delay_ms + 1);
            }
        }
        if flight.ends > now {
            return;
        }
        let flight = server.flight.take().expect("it was there a moment ago");
        let outcome = match flight.answers.filter(|_| !server.is_cut) {
            Some(answers) => Ok(answers),
            None => Err(Failure { reason: "timed out".to_owned(), reconnect: true }),
        };
        server.is_joined = server.node.end(now, (now - flight.begun) * 1000, outcome);
        server.lines.extend(server.node.lines().into_iter().map(|(_, line)| line));
        server.next_ms = match server.node.has_more() && server.is_joined {
            true => now,
            false => (flight.begun + INTERVAL_MS).max(now + 1),
        };
    }
}

/// Settings as `shared_state redis://sim;` has them.
///
/// # Panics
/// Never: the text is a fine one.
pub fn settings() -> crate::Settings {
    let text = bytes_of("shared_state redis://sim;");
    let options = conf::parse::Options::default();
    let tree = conf::parse::parse_bytes(std::path::Path::new("sim"), text.into(), &options);
    let tree = tree.expect("the text is well formed");
    crate::Settings::parse(&tree.nodes[0]).expect("the directive is well formed")
}

fn bytes_of(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripts::{CONNECTIONS, PUSH};

    const NOW: i64 = 1_700_000_000_000;
    const HOUR: i64 = 3_600_000;

    fn texts<const N: usize>(all: [&str; N]) -> Vec<Vec<u8>> {
        all.map(bytes_of).to_vec()
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_freeze_a_pair() {
        let mut engine = Engine::default();
        let mut push = |at: i64, kind: &str, value: &str| {
            let args = texts(["n1", "86400000", "k", &at.to_string(), "0", kind, value]);
            let answer = engine.run(&Call { script: &PUSH, keys: texts(["t"]), args }, at);
            answer.list().unwrap()[1] == Answer::Int(1)
        };
        assert!(push(NOW + HOUR, "s", "first"));
        assert!(!push(NOW, "o", "old"));
        assert!(push(NOW, "s", "second"));
        assert!(!push(NOW - 1, "o", "old"));
        assert!(push(NOW + 1, "s", "third"));
    }

    #[test]
    fn connections_of_the_far_future_are_none() {
        let mut engine = Engine::default();
        let mut others = |at: i64, node: &str| {
            let args = texts([node, "5000", "3"]);
            let answer = engine.run(&Call { script: &CONNECTIONS, keys: texts(["c"]), args }, at);
            answer.list().unwrap()[0].clone()
        };
        assert_eq!(others(NOW + HOUR, "n1"), Answer::Int(0));
        assert_eq!(others(NOW, "n2"), Answer::Int(0));
        assert_eq!(others(NOW - 4_000, "n1"), Answer::Int(3));
    }
}
