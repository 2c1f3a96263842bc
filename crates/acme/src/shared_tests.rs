use event::sim::{self, Faults, Plan};

use super::*;
use crate::folder::tests::Scratch;
use crate::keep::tests::issuer;

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
    let of = SharedPath { engine: fleet::model::settings(), keys: vec![scratch.0.join("key")] };
    let shared = Shared::new(&issuer, &of, &files, &log);
    (shared, Sealer::new([&b"secret"[..]], "p one".to_owned()).unwrap())
}

/// The outcome of an exchange of the list `e`.
fn outcome(sealer: &Sealer, fence: Option<u64>, version: u64, files: &[(&str, &str)]) -> Outcome {
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
    follower.take(outcome(&sealer, None, 3, &[("a.key", "key")]), nothing(), &sealer, 1);
    assert_eq!(on_disk(), 3);
    // A folder in its place: nothing can be written there, not even by root.
    std::fs::create_dir(scratch.0.join("a.crt")).unwrap();
    follower.take(outcome(&sealer, None, 4, &[("a.crt", "chain")]), nothing(), &sealer, 1);
    assert_eq!(follower.files.read("a.crt").unwrap().as_slice(), b"chain");
    follower.take(outcome(&sealer, None, 5, &[("a.key", "key")]), nothing(), &sealer, 1);
    assert_eq!((on_disk(), follower.cursor.borrow().version), (3, 5));
    std::fs::remove_dir(scratch.0.join("a.crt")).unwrap();
    follower.take(outcome(&sealer, None, 5, &[]), nothing(), &sealer, 1);
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
        leader.take(outcome(&sealer, Some(1), 1, &[]), nothing(), &sealer, 1);
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
        let files = [(&*state, "old"), (&*key, "same"), ("gone", "old"), ("account.key", "old")];
        leader.take(outcome(&sealer, fence, 1, &files), nothing(), &sealer, 1);
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
    follower.take(outcome(&sealer, None, 9, &[("a.crt", "chain")]), nothing(), &sealer, 1);
    assert_eq!(follower.from().version, 9);
    fails(&follower);
    assert_eq!(follower.from(), Cursor::default());
    follower.take(outcome(&sealer, None, 9, &[("a.crt", "other")]), nothing(), &sealer, 1);
    assert_eq!(follower.files.read("a.crt").unwrap().as_slice(), b"other");
    assert_eq!(follower.from().version, 9);
}

/// An engine whose calls and answers take time.
#[derive(Clone)]
struct Far {
    engine: Rc<RefCell<fleet::model::Engine>>,
    /// Until a call arrives, and from then until its answer does, in milliseconds.
    ways_ms: Rc<Cell<(u64, u64)>>,
}

impl Way for Far {
    async fn run(&mut self, call: Call) -> Result<Answer, Failure> {
        let (there_ms, back_ms) = self.ways_ms.get();
        event::sleep(there_ms).await;
        let now = base::time::unix_ms().cast_signed();
        let answer = self.engine.borrow_mut().run(&call, now);
        event::sleep(back_ms).await;
        Ok(answer)
    }
}

/// Two servers with one engine. The way back of answers becomes longer and longer, beyond the
/// lifetime of the lock: no two of them lead at a time, and both do.
#[test]
fn two_servers_never_lead_at_a_time_however_late_answers_are() {
    let ran = sim::run(Plan::new(0, Faults::NONE), async {
        let engine = Rc::new(RefCell::new(fleet::model::Engine::default()));
        let gate = Gate::new();
        let mut servers = Vec::new();
        let scratches = ["far1", "far2"].map(Scratch::new);
        for scratch in &scratches {
            let (shared, sealer) = shared(scratch);
            let far = Far { engine: engine.clone(), ways_ms: Rc::new(Cell::new((5, 5))) };
            let (own, mut way, closing) = (shared.clone(), far.clone(), gate.clone());
            event::spawn(async move { own.exchanges(&mut way, &sealer, &closing).await });
            servers.push((shared, far));
        }
        let mut led = [0_u32; 2];
        for step in 0..6_000_u64 {
            event::sleep(10).await;
            // Each server in turn hears late.
            let slow = (step / 1_000 % 2) as usize;
            servers[slow].1.ways_ms.set((5, 1_000 * (1 + step / 1_000)));
            servers[1 - slow].1.ways_ms.set((5, 5));
            let leads = [0, 1].map(|i| servers[i].0.fence().is_some());
            assert_ne!(leads, [true, true], "step {step}");
            (0..2).for_each(|i| led[i] += u32::from(leads[i]));
        }
        gate.close();
        assert!(led.iter().all(|steps| *steps > 100), "{led:?}");
    });
    ran.unwrap();
}

/// The lock was granted long before the answer arrived.
#[test]
fn a_lock_counts_from_before_it_was_asked_for() {
    let ran = sim::run(Plan::new(0, Faults::NONE), async {
        let scratch = Scratch::new("late");
        let (shared, sealer) = shared(&scratch);
        let begun_ms = now_ms();
        event::sleep(2_000).await;
        shared.take(outcome(&sealer, Some(1), 1, &[]), nothing(), &sealer, begun_ms);
        assert_eq!(shared.fence(), Some(1));
        // Too late for a request without another exchange.
        let settled = event::race(shared.settle(), event::sleep(1)).await;
        assert!(settled.is_second());
        shared.lost(1).await;
        assert!((5_000..5_100).contains(&(now_ms() - begun_ms)), "{}", now_ms() - begun_ms);
        assert_eq!(shared.fence(), None);
    });
    ran.unwrap();
}

/// Who leads seals again what an old key has sealed, and says when nothing is left.
#[test]
fn files_of_an_old_key_are_sealed_again() {
    let scratch = Scratch::new("keys");
    let (log, lines) = log::capture(Level::Notice);
    let (shared, old) = shared(&scratch);
    let shared = Shared { log, ..Rc::try_unwrap(shared).ok().expect("it has one owner") };
    let both = Sealer::new([&b"new"[..], b"secret"], "p one".to_owned()).unwrap();
    let of_old = |fence| outcome(&old, fence, 2, &[("a.key", "key"), ("a.crt", "chain")]);
    shared.take(of_old(None), nothing(), &both, 1);
    assert!(!shared.files.is_changed(), "a follower writes nothing");
    shared.take(outcome(&both, Some(1), 2, &[]), nothing(), &both, 1);
    let names: Vec<_> = shared.files.take_changed().into_iter().collect();
    assert!(["a.crt", "a.key"].iter().all(|name| names.iter().any(|n| n == name)), "{names:?}");
    let sealed = |name: &str, text: &[u8]| (name.to_owned(), both.seal(name, text));
    let sent = vec![sealed("a.crt", b"chain"), sealed("a.key", b"key")];
    shared.take(outcome(&both, Some(1), 4, &[]), (names, sent), &both, 1);
    assert!(!shared.files.is_changed());
    assert!(lines.take().contains("encrypted with the first key of \"sync\" now"));
    // The old key alone opens nothing any more; the new one alone does.
    let new = Sealer::new([&b"new"[..]], "p one".to_owned()).unwrap();
    shared.take(outcome(&both, None, 5, &[("a.key", "key")]), nothing(), &new, 1);
    assert!(shared.state.get() == State::Works);
    shared.take(of_old(None), nothing(), &new, 1);
    assert!(shared.state.get() == State::Sealed);
}
