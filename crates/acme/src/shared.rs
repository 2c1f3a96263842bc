//! `state_path PATH sync=FILE`: the engine of `shared_state` keeps the folders of all servers the
//! same, and decides which of them orders.
//!
//! ```text
//!          get the lock                        lost, or the engine is away
//!  follows ────────────▶ leads: orders, writes ───────────────────────────▶ follows
//! ```
//!
//! - **Exchanges** send the files that were changed here and bring those that others have changed.
//!   There is one every 400 ms, and one before each request to the authority: so a server that
//!   takes over, wherever the leader was killed, continues the same order.
//! - **The lock** lasts five seconds, which the leader counts from before it sent the request: the
//!   engine may have granted the lock long before its answer arrives. Without an answer nobody can
//!   know who has it, so nothing is ordered while the engine is away; certificates stay in use.
//! - **Files are encrypted** by AES-256-GCM under a key from the content of `FILE`, with the names
//!   of the fleet, the issuer and the file as context ([`crate::sealer`]): who can read the engine
//!   learns no key, and who can write it can neither forge a file nor put one in the place of
//!   another. The leader seals files again that another key than the first one has sealed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use base::log;
use base::log::{Level, Log};
use base::time::{exact_ms, now_ms};
use event::{Gate, Notify, race};
use fleet::folder::{self, Cursor, File, Outcome, Want};
use fleet::{Answer, Call, Failure};
use fleet_link::{Caller, Secrets};
use pki::issue::random;

use crate::folder::Folder;
use crate::issuer::{Issuer, SharedPath};
use crate::sealer::{Opened, Sealer};

/// The interval of exchanges, and the pause after one that failed, in milliseconds.
const EVERY_MS: u64 = 400;
const PAUSE_MS: u64 = 1_000;

/// The lifetime of the lock, in milliseconds.
const LOCK_MS: u64 = 5_000;

/// The longest time since the begin of the last exchange at which a request is sent without another
/// exchange, and the longest one at which it is sent at all: the lock lasts for the rest of
/// [`LOCK_MS`], while the request is on its way. In milliseconds.
const SURE_MS: u64 = 1_500;
const LATE_MS: u64 = 3_500;

/// The time in which the other servers show a new challenge response, milliseconds: they have an
/// exchange each [`EVERY_MS`], and the engine may be slow.
const SPREAD_MS: u64 = 1_000;

/// What followers say of an order.
const OTHER: &str = "another server orders it";
const AWAY: &str = "the engine of \"shared_state\" does not answer: nothing is ordered";
const SEALED: &str = "the files on the engine have another key than \"sync\" names";

/// The state of the exchanges.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Starting,
    Works,
    Away,
    /// The files have another key.
    Sealed,
}

/// See the head of the file.
pub(crate) struct Shared {
    issuer: Rc<Issuer>,
    files: Rc<Folder>,
    log: Log,
    place: folder::Folder,
    cursor: RefCell<Cursor>,
    /// The cursor in the file: it is never ahead of the files on the disk.
    kept: RefCell<Cursor>,
    fence: Cell<Option<u64>>,
    /// The fence of the last answer.
    led: Cell<Option<u64>>,
    /// The next exchange is the first one, or that after a failure: a replica without the last
    /// changes may have taken over, and have got as many others since, so that the cursor says
    /// nothing.
    is_anew: Cell<bool>,
    state: Cell<State>,
    /// The begin of the last exchange that worked, by the monotonic clock: a lock that it kept
    /// lasts for [`LOCK_MS`] from then at least.
    begun_ms: Cell<u64>,
    /// Files on the engine that another key than the first one has sealed.
    old: RefCell<BTreeSet<String>>,
    /// Exchanges that were asked for, and those of them that are over.
    asked: Cell<u64>,
    done: Cell<u64>,
    wakes: Notify,
    exchanged: Notify,
}

impl Shared {
    pub fn new(issuer: &Rc<Issuer>, of: &SharedPath, files: &Rc<Folder>, log: &Log) -> Rc<Shared> {
        let kept = files.read(&file_name(&issuer.name)).unwrap_or_default();
        let kept = parse(&String::from_utf8_lossy(&kept));
        let is_new = kept.is_none();
        let (node, cursor) =
            kept.unwrap_or_else(|| (format!("{:016x}", random()), Cursor::default()));
        // A folder may have been copied from another host, whose process is not this one's.
        let host: String =
            os::process::hostname().chars().filter(|c| c.is_ascii_graphic()).take(64).collect();
        let place = folder::Folder {
            prefix: of.engine.prefix.clone(),
            name: issuer.name.clone(),
            node: format!("{host}-{node}"),
            lock_ms: LOCK_MS,
        };
        let shared = Rc::new(Shared {
            issuer: issuer.clone(),
            files: files.clone(),
            log: log.clone(),
            place,
            kept: RefCell::new(cursor.clone()),
            cursor: RefCell::new(cursor),
            fence: Cell::new(None),
            led: Cell::new(None),
            is_anew: Cell::new(true),
            state: Cell::new(State::Starting),
            begun_ms: Cell::new(0),
            old: RefCell::default(),
            asked: Cell::new(0),
            done: Cell::new(0),
            wakes: Notify::new(),
            exchanged: Notify::new(),
        });
        files.share(Rc::downgrade(&shared));
        if is_new {
            shared.keep();
        }
        shared
    }

    /// The fence, while this server leads.
    pub fn fence(&self) -> Option<u64> {
        self.fence.get().filter(|_| self.age_ms() < LOCK_MS)
    }

    /// The time since the begin of the last exchange that worked, milliseconds.
    fn age_ms(&self) -> u64 {
        now_ms().saturating_sub(self.begun_ms.get())
    }

    /// What is said of an order here while another server leads.
    pub fn who(&self) -> &'static str {
        match self.state.get() {
            State::Starting | State::Works => OTHER,
            State::Away => AWAY,
            State::Sealed => SEALED,
        }
    }

    /// Waits for the end of an exchange.
    pub async fn next_exchange(&self) {
        self.exchanged.notified().await;
    }

    /// Waits until this server leads no more, or does so anew.
    pub async fn lost(&self, fence: u64) {
        while self.fence() == Some(fence) {
            // An exchange may take longer than the lock lasts.
            let left_ms = LOCK_MS.saturating_sub(self.age_ms());
            race(self.exchanged.notified(), event::sleep(left_ms)).await;
        }
    }

    /// See [`Folder::settle`].
    pub async fn settle(&self) {
        let before = self.fence.get();
        if before.is_some() && self.age_ms() < SURE_MS && !self.files.is_changed() {
            return;
        }
        loop {
            let mine = self.asked.get() + 1;
            self.asked.set(mine);
            self.wakes.notify_one();
            while self.done.get() < mine {
                self.exchanged.notified().await;
            }
            if before.is_none() || self.fence.get() != before {
                // Whoever waits is dropped: another server may lead now.
                std::future::pending::<()>().await;
            }
            if self.age_ms() < LATE_MS {
                return;
            }
        }
    }

    /// See [`Folder::spread`].
    pub async fn spread(&self) {
        self.settle().await;
        event::sleep(SPREAD_MS).await;
    }

    /// Exchanges for ever.
    pub async fn run(self: Rc<Shared>, gate: Gate) {
        let Some(of) = &self.issuer.shared else { return };
        let (secrets, sealer) = match self.prepare(of) {
            Ok(prepared) => prepared,
            Err(reason) => {
                let m = format_args!("acme: {reason}: nothing is ordered");
                log!(self.log, Level::Error, None, "{m}, issuer: \"{}\"", self.issuer.name);
                self.state.set(State::Away);
                // Who waits for an exchange shows why there is none.
                return self.exchanged.notify_all();
            }
        };
        self.exchanges(&mut Caller::new(&of.engine, &secrets), &sealer, &gate).await;
    }

    async fn exchanges(&self, engine: &mut impl Way, sealer: &Sealer, gate: &Gate) {
        while !gate.is_closed() {
            let covered = self.asked.get();
            self.exchange(engine, sealer).await;
            self.done.set(covered);
            self.exchanged.notify_all();
            let pause_ms = if self.state.get() == State::Away { PAUSE_MS } else { EVERY_MS };
            // One that failed is not repeated at once, whoever waits.
            let may_wake = self.state.get() != State::Away;
            let woken = async {
                match may_wake {
                    true => self.wakes.notified().await,
                    false => std::future::pending().await,
                }
            };
            race(race(event::sleep(pause_ms), woken), gate.closed()).await;
        }
    }

    fn prepare(&self, of: &SharedPath) -> Result<(Secrets, Sealer), String> {
        let (secrets, keys) = match self.issuer.secrets.shared.get() {
            Some(Ok(read)) => read,
            Some(Err(e)) => return Err(e.clone()),
            None => return Err("the key of \"sync\" is not read".to_owned()),
        };
        let context = format!("{} {}", of.engine.prefix, self.issuer.name);
        let keys = keys.iter().map(|key| key.as_slice());
        let sealer = Sealer::new(keys, context).ok_or("the key of \"sync\" is of no use")?;
        Ok((secrets.clone(), sealer))
    }

    async fn exchange(&self, engine: &mut impl Way, sealer: &Sealer) {
        let fence = self.fence.get();
        let want = match fence {
            Some(fence) => Want::Keep(fence),
            None if self.state.get() == State::Sealed => Want::Look,
            None => Want::Get,
        };
        // Without the lock, nothing is sent: another server may have changed the same file.
        let names = if fence.is_some() { self.files.take_changed() } else { Default::default() };
        let mut sent = Vec::new();
        for name in &names {
            let text = self.files.read(name);
            let sealed = text.map(|text| sealer.seal(name, &text));
            match sealed {
                None => sent.push((name.clone(), None)),
                Some(Some(sealed)) => sent.push((name.clone(), Some(sealed))),
                Some(None) => {}
            }
        }
        let call = self.place.call(want, &self.from(), &sent);
        let begun_ms = exact_ms();
        let answer = engine.run(call).await;
        base::time::update();
        let outcome = match answer {
            Ok(answer) => folder::outcome(&answer)
                .ok_or_else(|| "another program has keys of its name".to_owned()),
            Err(failure) => Err(failure.reason),
        };
        match outcome {
            Ok(outcome) => {
                let sent = (names.into_iter().collect(), sent);
                self.take(outcome, sent, sealer, begun_ms);
            }
            Err(reason) => {
                self.files.put_changed(names);
                self.fence.set(None);
                self.is_anew.set(true);
                self.turn_to(State::Away, &reason);
            }
        }
    }

    /// The cursor from which the next exchange asks.
    fn from(&self) -> Cursor {
        match self.is_anew.get() {
            true => Cursor::default(),
            false => self.cursor.borrow().clone(),
        }
    }

    /// Takes over the outcome of an exchange that was begun then and has sent these files.
    fn take(
        &self,
        outcome: Outcome,
        (names, sent): (Vec<String>, Vec<File>),
        sealer: &Sealer,
        begun_ms: u64,
    ) {
        let Outcome { fence, cursor, files } = outcome;
        if fence.is_none() {
            // They were not written.
            self.files.put_changed(names);
        }
        let mut opened = Vec::new();
        for file in files.iter().filter(|file| fence.is_none() || !sent.contains(*file)) {
            let (name, sealed) = file;
            let text = match sealed {
                None => None,
                Some(sealed) => match sealer.open(name, sealed) {
                    Some(opened) => Some(opened),
                    None => {
                        self.fence.set(None);
                        return self.turn_to(State::Sealed, "");
                    }
                },
            };
            opened.push((name, text));
        }
        self.note_old(&opened, &sent, fence.is_some());
        let opened: Vec<_> =
            opened.into_iter().map(|(name, of)| (name, of.map(|of| of.text))).collect();
        // Who led before the failure, and leads again with nobody in between, has the newest files,
        // whatever the engine has lost.
        let next = self.led.get().and_then(|led| led.checked_add(1));
        let has_newest = self.is_anew.get() && fence.is_some() && fence == next;
        for (name, text) in &opened {
            match has_newest {
                true if self.files.has(name, text.as_deref()) => {}
                true => self.files.put_changed([(*name).clone()]),
                false => self.files.apply(name, text.as_deref()),
            }
        }
        let is_other = {
            let before = self.cursor.borrow();
            let is_behind = cursor.version < before.version;
            cursor.epoch.is_empty() || cursor.epoch != before.epoch || is_behind
        };
        if fence.is_some() && (is_other || has_newest) && sent.is_empty() {
            // The engine was emptied, has lost them, or never had them: it gets what it lacks.
            let own = self.own_files();
            let lacks = |name: &String| !files.iter().any(|(known, _)| known == name);
            self.files.put_changed(own.into_iter().filter(lacks));
        }
        if fence.is_some() {
            self.files.put_changed(self.old.borrow().iter().cloned());
        }
        self.fence.set(fence);
        self.led.set(fence);
        self.is_anew.set(false);
        self.begun_ms.set(begun_ms);
        self.turn_to(State::Works, "");
        *self.cursor.borrow_mut() = cursor;
        if fence.is_none() {
            // After the disk was full. Who leads does so with each turn.
            self.files.flush_as_is();
        }
        if self.files.is_whole() && *self.kept.borrow() != *self.cursor.borrow() {
            self.keep();
        }
    }

    /// Keeps in mind which files on the engine an old key has sealed: those of an exchange that
    /// were opened, and those that were sent and, if this server `leads`, written.
    fn note_old(&self, opened: &[(&String, Option<Opened>)], sent: &[File], leads: bool) {
        let mut old = self.old.borrow_mut();
        let before = old.len();
        for (name, of) in opened {
            match of {
                Some(of) if of.is_old => old.insert((*name).clone()),
                _ => old.remove(*name),
            };
        }
        for (name, _) in sent.iter().filter(|_| leads) {
            old.remove(name);
        }
        if before > 0 && old.is_empty() {
            let m = "acme: all shared files are encrypted with the first key of \"sync\" now";
            log!(self.log, Level::Notice, None, "{m}, issuer: \"{}\"", self.issuer.name);
        }
    }

    /// The files here that are the issuer's.
    fn own_files(&self) -> Vec<String> {
        let (issuer, orders) = (&self.issuer.name, &self.issuer.orders);
        let is_own = |name: &String| {
            let is_account = name.starts_with("account.") && !name.ends_with(".rollover");
            is_account
                || *name == format!("{issuer}.account.state")
                || orders.iter().any(|order| {
                    name.strip_prefix(&*order.id).is_some_and(|rest| rest.starts_with('.'))
                })
        };
        self.files.list("").into_iter().filter(is_own).collect()
    }

    /// Writes down how new the folder is, and by which name the engine knows this server.
    fn keep(&self) {
        let node = self.place.node.rsplit('-').next().unwrap_or_default();
        let text = format!("{node} {}", self.cursor.borrow().to_text());
        self.files.write(&file_name(&self.issuer.name), text.as_bytes());
        self.kept.replace(self.cursor.borrow().clone());
    }

    fn turn_to(&self, state: State, reason: &str) {
        let before = self.state.replace(state);
        if before == state {
            return;
        }
        let of = format_args!("issuer: \"{}\"", self.issuer.name);
        match state {
            State::Away => {
                let told = "certificates stay in use, and nothing is ordered";
                let m = format_args!("acme: the shared folder is away: {reason}; {told}");
                log!(self.log, Level::Warn, None, "{m}, {of}");
            }
            State::Sealed => log!(self.log, Level::Error, None, "acme: {SEALED}, {of}"),
            State::Works if before == State::Starting => {}
            _ => log!(self.log, Level::Notice, None, "acme: the shared folder is back, {of}"),
        }
    }
}

/// The way to the engine.
trait Way {
    /// Runs a call.
    async fn run(&mut self, call: Call) -> Result<Answer, Failure>;
}

impl Way for Caller {
    async fn run(&mut self, call: Call) -> Result<Answer, Failure> {
        Caller::run(self, call).await
    }
}

/// The file with this server's name and cursor.
fn file_name(issuer: &str) -> String {
    format!(".{issuer}.sync")
}

/// Reads that file: `NODE VERSION EPOCH`.
fn parse(text: &str) -> Option<(String, Cursor)> {
    let (node, cursor) = text.split_once(' ')?;
    Some((node.to_owned(), Cursor::from_text(cursor)?))
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
