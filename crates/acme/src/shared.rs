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
//! - **The lock** lasts five seconds. Without an answer from the engine nobody can know who has it,
//!   so nothing is ordered while the engine is away; certificates stay in use.
//! - **Files are encrypted** by AES-256-GCM under a key from the content of `FILE`, with the names
//!   of the fleet, the issuer and the file as context: who can read the engine learns no key, and
//!   who can write it can neither forge a file nor put one in the place of another.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base::log;
use base::log::{Level, Log};
use base::time::now_ms;
use event::{Gate, Notify, race};
use fleet::folder::{self, Cursor, File, Outcome, Want};
use fleet_link::{Caller, Secrets};
use pki::issue::{hmac_sha256, random};

use crate::folder::Folder;
use crate::issuer::{Issuer, SharedPath};

/// The interval of exchanges, and the pause after one that failed, in milliseconds.
const EVERY_MS: u64 = 400;
const PAUSE_MS: u64 = 1_000;

/// The lifetime of the lock, in milliseconds.
const LOCK_MS: u64 = 5_000;

/// The longest time since the last exchange at which this server is still sure that it leads.
const SURE_MS: u64 = 1_500;

/// The time in which the other servers show a new challenge response, milliseconds: they have an
/// exchange each [`EVERY_MS`], and the engine may be slow.
const SPREAD_MS: u64 = 1_000;

/// What followers say of an order.
const OTHER: &str = "another server orders it";
const AWAY: &str = "the engine of \"shared_state\" does not answer: nothing is ordered";
const SEALED: &str = "the files on the engine have another key than \"sync\" names";

/// Encrypts files.
struct Sealer {
    key: RandomizedNonceKey,
    /// The names of the fleet and the issuer.
    context: String,
}

impl Sealer {
    fn new(secret: &[u8], context: String) -> Option<Sealer> {
        let key = hmac_sha256(secret, b"weir: files of an ACME issuer");
        Some(Sealer { key: RandomizedNonceKey::new(&AES_256_GCM, &key).ok()?, context })
    }

    fn aad(&self, name: &str) -> Aad<Vec<u8>> {
        Aad::from(format!("{} {name}", self.context).into_bytes())
    }

    fn seal(&self, name: &str, text: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = text.to_vec();
        let nonce = self.key.seal_in_place_append_tag(self.aad(name), &mut sealed).ok()?;
        Some([&nonce.as_ref()[..], &sealed].concat())
    }

    fn open(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, rest) = sealed.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = rest.to_vec();
        let len = self.key.open_in_place(nonce, self.aad(name), &mut text).ok()?.len();
        text.truncate(len);
        Some(text)
    }
}

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
    /// The last exchange that worked, by the monotonic clock.
    answered_ms: Cell<u64>,
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
            answered_ms: Cell::new(0),
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
        self.fence.get()
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
        while self.fence.get() == Some(fence) {
            self.exchanged.notified().await;
        }
    }

    /// See [`Folder::settle`].
    pub async fn settle(&self) {
        let before = self.fence.get();
        let is_sure = now_ms().saturating_sub(self.answered_ms.get()) < SURE_MS;
        if before.is_some() && is_sure && !self.files.is_changed() {
            return;
        }
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
        let mut caller = Caller::new(&of.engine, &secrets);
        while !gate.is_closed() {
            let covered = self.asked.get();
            self.exchange(&mut caller, &sealer).await;
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
        let (secrets, secret) = match self.issuer.secrets.shared.get() {
            Some(Ok(read)) => read,
            Some(Err(e)) => return Err(e.clone()),
            None => return Err("the key of \"sync\" is not read".to_owned()),
        };
        let context = format!("{} {}", of.engine.prefix, self.issuer.name);
        let sealer = Sealer::new(secret, context).ok_or("the key of \"sync\" is of no use")?;
        Ok((secrets.clone(), sealer))
    }

    async fn exchange(&self, caller: &mut Caller, sealer: &Sealer) {
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
        let answer = caller.run(call).await;
        base::time::update();
        let outcome = match answer {
            Ok(answer) => folder::outcome(&answer)
                .ok_or_else(|| "another program has keys of its name".to_owned()),
            Err(failure) => Err(failure.reason),
        };
        match outcome {
            Ok(outcome) => self.take(outcome, (names.into_iter().collect(), sent), sealer),
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

    /// Takes over the outcome of an exchange that has sent these files.
    fn take(&self, outcome: Outcome, (names, sent): (Vec<String>, Vec<File>), sealer: &Sealer) {
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
                    Some(text) => Some(text),
                    None => {
                        self.fence.set(None);
                        return self.turn_to(State::Sealed, "");
                    }
                },
            };
            opened.push((name, text));
        }
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
        self.fence.set(fence);
        self.led.set(fence);
        self.is_anew.set(false);
        self.answered_ms.set(now_ms());
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
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;
    use crate::keep::tests::issuer;

    #[test]
    fn files_are_of_their_key_name_and_fleet() {
        let sealer =
            |secret: &[u8], context: &str| Sealer::new(secret, context.to_owned()).unwrap();
        let own = sealer(b"secret", "p one");
        let sealed = own.seal("a.key", b"text").unwrap();
        assert_ne!(sealed, own.seal("a.key", b"text").unwrap());
        assert!(!sealed.windows(4).any(|part| part == b"text"));
        assert_eq!(own.open("a.key", &sealed).as_deref(), Some(&b"text"[..]));
        assert_eq!(own.open("b.key", &sealed), None);
        assert_eq!(sealer(b"other", "p one").open("a.key", &sealed), None);
        assert_eq!(sealer(b"secret", "q one").open("a.key", &sealed), None);
        assert_eq!(own.open("a.key", &sealed[..sealed.len() - 1]), None);
        assert_eq!(own.open("a.key", b""), None);
    }

    #[test]
    fn the_cursor_is_read_again() {
        let cursor = Cursor { epoch: "12-n 1".to_owned(), version: 7 };
        let text = format!("abc {}", cursor.to_text());
        assert_eq!(parse(&text), Some(("abc".to_owned(), cursor)));
        assert_eq!(parse("abc"), None);
        assert_eq!(parse(""), None);
    }

    /// A shared folder on the disk, and its key.
    fn shared(scratch: &Scratch) -> (Rc<Shared>, Sealer) {
        let (log, _lines) = log::capture(Level::Info);
        let issuer = issuer(&scratch.0, 1);
        let files = Rc::new(Folder::new(Some(&scratch.0), "one", &log));
        files.prepare();
        let of = SharedPath { engine: fleet::model::settings(), key: scratch.0.join("key") };
        let shared = Shared::new(&issuer, &of, &files, &log);
        (shared, Sealer::new(b"secret", "p one".to_owned()).unwrap())
    }

    /// The outcome of an exchange of the list `e`.
    fn outcome(
        sealer: &Sealer,
        fence: Option<u64>,
        version: u64,
        files: &[(&str, &str)],
    ) -> Outcome {
        let sealed = |(name, text): &(&str, &str)| {
            let text = Some(text).filter(|text| !text.is_empty());
            let text = text.map(|text| sealer.seal(name, text.as_bytes()).unwrap());
            ((*name).to_owned(), text)
        };
        let cursor = Cursor { epoch: "e".to_owned(), version };
        Outcome { fence, cursor, files: files.iter().map(sealed).collect() }
    }

    fn nothing() -> (Vec<String>, Vec<File>) {
        Default::default()
    }

    #[test]
    fn the_cursor_on_the_disk_waits_for_the_files() {
        let scratch = Scratch::new("full");
        let (follower, sealer) = shared(&scratch);
        let on_disk = || {
            let text = std::fs::read_to_string(scratch.0.join(".one.sync")).unwrap();
            parse(&text).unwrap().1.version
        };
        follower.take(outcome(&sealer, None, 3, &[("a.key", "key")]), nothing(), &sealer);
        assert_eq!(on_disk(), 3);
        // A folder in its place: nothing can be written there, not even by root.
        std::fs::create_dir(scratch.0.join("a.crt")).unwrap();
        follower.take(outcome(&sealer, None, 4, &[("a.crt", "chain")]), nothing(), &sealer);
        assert_eq!(follower.files.read("a.crt").unwrap().as_slice(), b"chain");
        follower.take(outcome(&sealer, None, 5, &[("a.key", "key")]), nothing(), &sealer);
        assert_eq!((on_disk(), follower.cursor.borrow().version), (3, 5));
        std::fs::remove_dir(scratch.0.join("a.crt")).unwrap();
        follower.take(outcome(&sealer, None, 5, &[]), nothing(), &sealer);
        assert_eq!(std::fs::read(scratch.0.join("a.crt")).unwrap(), b"chain");
        assert_eq!(on_disk(), 5);
        assert!(!follower.files.is_changed(), "what came from others is not sent");
    }

    /// The engine answers no more, and the replica that takes over lacks the last changes.
    fn fails(shared: &Shared) {
        shared.fence.set(None);
        shared.is_anew.set(true);
        shared.turn_to(State::Away, "test");
    }

    #[test]
    fn who_leads_again_sends_what_the_engine_has_lost() {
        for (fence, is_lost) in [(Some(2), false), (Some(3), true), (None, true)] {
            let scratch = Scratch::new("lost");
            let (leader, sealer) = shared(&scratch);
            leader.take(outcome(&sealer, Some(1), 1, &[]), nothing(), &sealer);
            let id = &*leader.issuer.orders[0].id;
            let [state, key, chain] = ["state", "key", "crt"].map(|end| format!("{id}.{end}"));
            leader.files.write(&state, b"new");
            leader.files.write(&chain, b"new");
            leader.files.write(&key, b"same");
            // They were sent.
            leader.files.take_changed();
            // One was not.
            leader.files.write("account.key", b"unsent");
            fails(&leader);
            let files =
                [(&*state, "old"), (&*key, "same"), ("gone", "old"), ("account.key", "old")];
            leader.take(outcome(&sealer, fence, 1, &files), nothing(), &sealer);
            let read = |name: &str| leader.files.read(name).map(|text| text.to_vec());
            let changed: Vec<_> = leader.files.take_changed().into_iter().collect();
            if is_lost {
                // Another server led in between, or leads.
                assert_eq!(read(&state).unwrap(), b"old", "{fence:?}");
                assert_eq!(read("account.key").unwrap(), b"old", "{fence:?}");
                assert!(!changed.contains(&state), "{fence:?}: {changed:?}");
            } else {
                assert_eq!(read(&state).unwrap(), b"new");
                assert_eq!(read("account.key").unwrap(), b"unsent");
                let mut wanted = vec![state, chain, "gone".to_owned(), "account.key".to_owned()];
                wanted.sort();
                assert_eq!(changed, wanted);
                assert_eq!(read("gone"), None);
            }
        }
    }

    /// The cursor may be one of both lists: all files are asked for.
    #[test]
    fn a_list_that_may_have_gone_back_is_read_anew() {
        let scratch = Scratch::new("back");
        let (follower, sealer) = shared(&scratch);
        assert_eq!(follower.from(), Cursor::default());
        follower.take(outcome(&sealer, None, 9, &[("a.crt", "chain")]), nothing(), &sealer);
        assert_eq!(follower.from().version, 9);
        fails(&follower);
        assert_eq!(follower.from(), Cursor::default());
        follower.take(outcome(&sealer, None, 9, &[("a.crt", "other")]), nothing(), &sealer);
        assert_eq!(follower.files.read("a.crt").unwrap().as_slice(), b"other");
        assert_eq!(follower.from().version, 9);
    }
}
