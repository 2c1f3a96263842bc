use std::collections::BTreeSet;
use std::rc::Rc;

use super::*;
use crate::model::{INTERVAL_MS, Network, Random, settings};
use crate::{Node, Status};

/// A cache of keys: each is there until it is purged.
#[derive(Default)]
struct Cache {
    keys: RefCell<BTreeSet<Vec<u8>>>,
    own: RefCell<Vec<Purge>>,
    peeked: Cell<usize>,
    /// What stands beside the cache on the disk.
    kept: RefCell<Option<Cursor>>,
    /// The steps so far.
    made: RefCell<Vec<(Vec<Purge>, Cursor)>>,
}

impl Cache {
    fn purge(&self, purge: &Purge) {
        self.keys.borrow_mut().retain(|key| match purge {
            Purge::Key(text) => key != text,
            Purge::Prefix(text) => !key.starts_with(text),
            // Of a key, the last letter is its tag.
            Purge::Tag(text) => key.last() != text.first(),
        });
    }

    /// A client's purge.
    fn purge_here(&self, purge: Purge) {
        self.purge(&purge);
        self.own.borrow_mut().push(purge);
    }
}

impl Purges for Rc<Cache> {
    fn peek(&self, max: usize, out: &mut Vec<Purge>) {
        let before = out.len();
        out.extend(self.own.borrow().iter().take(max).cloned());
        self.peeked.set(out.len() - before);
    }

    fn sent(&self) {
        self.own.borrow_mut().drain(..self.peeked.get());
    }

    fn cursor(&self) -> Option<Cursor> {
        self.kept.borrow().clone()
    }

    fn perform(&self, purges: Vec<Purge>, cursor: Cursor) {
        purges.iter().for_each(|purge| self.purge(purge));
        self.made.borrow_mut().push((purges, cursor.clone()));
        *self.kept.borrow_mut() = Some(cursor);
    }
}

fn node(i: usize, cache: &Rc<Cache>) -> Node {
    let part: Rc<dyn Part> = Rc::new(PurgePart::new("c", cache.clone()));
    let status = Rc::new(Status::new().unwrap());
    Node::new(settings(), status, vec![part], (format!("n{i}"), "host"))
}

fn network(count: usize, seed: u64) -> (Network, Vec<Rc<Cache>>) {
    let caches: Vec<_> = (0..count).map(|_| Rc::<Cache>::default()).collect();
    let nodes = caches.iter().enumerate().map(|(i, cache)| node(i, cache)).collect();
    (Network::new(nodes, seed), caches)
}

fn fill(caches: &[Rc<Cache>]) {
    for cache in caches {
        let keys = ["/a/1x", "/a/2y", "/b/1x", "/b/2y"];
        cache.keys.borrow_mut().extend(keys.map(|key| key.as_bytes().to_vec()));
    }
}

fn keys(cache: &Cache) -> Vec<String> {
    let keys = cache.keys.borrow();
    keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
}

#[test]
fn purges_hold_everywhere_within_two_intervals() {
    for (purge, left) in [
        (Purge::Key(b"/a/1x".to_vec()), vec!["/a/2y", "/b/1x", "/b/2y"]),
        (Purge::Prefix(b"/a/".to_vec()), vec!["/b/1x", "/b/2y"]),
        (Purge::Tag(b"y".to_vec()), vec!["/a/1x", "/b/1x"]),
    ] {
        let (mut network, caches) = network(3, 1);
        network.pass(500);
        fill(&caches);
        caches[1].purge_here(purge);
        network.pass(2 * INTERVAL_MS + 10);
        caches.iter().for_each(|cache| assert_eq!(keys(cache), left));
    }
}

#[test]
fn a_server_that_was_cut_off_hears_of_all() {
    let (mut network, caches) = network(3, 2);
    network.pass(500);
    fill(&caches);
    network.servers[2].is_cut = true;
    network.pass(2_000);
    caches[0].purge_here(Purge::Key(b"/a/1x".to_vec()));
    caches[2].purge_here(Purge::Tag(b"y".to_vec()));
    network.pass(60_000);
    assert_eq!(keys(&caches[2]), ["/a/1x", "/b/1x"]);
    network.servers[2].is_cut = false;
    network.pass(1_500);
    caches.iter().for_each(|cache| assert_eq!(keys(cache), ["/b/1x"]));
    // Nothing is purged twice.
    fill(&caches);
    network.pass(1_000);
    assert_eq!(keys(&caches[2]).len(), 4);
}

#[test]
fn too_many_missed_purges_purge_everything_and_one_line_says_so() {
    let (mut network, caches) = network(2, 3);
    network.pass(500);
    network.servers[1].is_cut = true;
    network.pass(1_500);
    fill(&caches);
    for n in 0..KEPT + 5 {
        caches[0].purge_here(Purge::Key(format!("other{n}").into_bytes()));
    }
    network.pass(10_000);
    network.servers[1].lines.clear();
    network.servers[1].is_cut = false;
    network.pass(1_500);
    assert_eq!((keys(&caches[0]).len(), keys(&caches[1]).len()), (4, 0));
    let lines = &network.servers[1].lines;
    let count = lines.iter().filter(|line| line.contains("all of it is purged")).count();
    assert_eq!(count, 1, "{lines:?}");
}

#[test]
fn an_emptied_engine_purges_those_alone_that_were_away() {
    let (mut network, caches) = network(2, 4);
    caches[0].purge_here(Purge::Key(b"first".to_vec()));
    network.pass(1_000);
    fill(&caches);
    network.servers[1].is_cut = true;
    network.pass(4_000);
    network.engine.empty();
    network.pass(500);
    caches[0].purge_here(Purge::Key(b"/a/1x".to_vec()));
    network.pass(500);
    network.servers[1].is_cut = false;
    network.pass(1_500);
    assert_eq!((keys(&caches[0]).len(), keys(&caches[1]).len()), (3, 0));
}

#[test]
fn a_restart_goes_on_where_it_was() {
    let (mut network, caches) = network(2, 5);
    network.pass(500);
    fill(&caches);
    caches[0].purge_here(Purge::Key(b"/a/1x".to_vec()));
    network.pass(500);
    network.servers.pop();
    caches[0].purge_here(Purge::Key(b"/b/1x".to_vec()));
    network.pass(500);
    let others = Network::new(vec![node(7, &caches[1])], 6);
    network.servers.extend(others.servers);
    network.pass(500);
    assert_eq!(keys(&caches[1]), ["/a/2y", "/b/2y"]);
}

/// A replica takes over without the last purges, and gets as many others before a server that was
/// cut off looks again: its cursor is one of both lists.
#[test]
fn a_list_that_went_back_and_on_is_noticed() {
    for (away_ms, left) in [(200, 3), (5_000, 0)] {
        let (mut network, caches) = network(2, 8);
        caches[0].purge_here(Purge::Key(b"one".to_vec()));
        network.pass(500);
        let replica = network.engine.clone();
        caches[0].purge_here(Purge::Key(b"two".to_vec()));
        network.pass(500);
        assert_eq!(caches[1].kept.borrow().as_ref().unwrap().version, 2);
        fill(&caches);
        network.servers[1].is_cut = true;
        network.pass(away_ms);
        network.engine = replica;
        network.engine.run(&purge_call("n0", b"k/a/1x"), 1_700_000_100_000);
        network.pass(1_200);
        network.servers[1].is_cut = false;
        network.pass(2_000);
        // Heard of a moment ago: the list is made again. Else the whole cache is purged.
        let is_there = keys(&caches[1]).len();
        assert!(is_there == left || is_there == 0, "{away_ms} ms: {is_there}");
        assert!(!keys(&caches[1]).contains(&"/a/1x".to_owned()), "{away_ms} ms");
    }
}

/// The primary is lost with a purge that the other server has not heard of: it is sent again,
/// however long nobody hears of the engine.
#[test]
fn a_purge_that_a_failover_lost_is_sent_again() {
    for outage_ms in [0, 60_000] {
        let (mut network, caches) = network(2, 10);
        caches[0].purge_here(Purge::Key(b"one".to_vec()));
        network.pass(1_000);
        fill(&caches);
        let replica = network.engine.clone();
        network.servers[1].is_cut = true;
        caches[0].purge_here(Purge::Key(b"/a/1x".to_vec()));
        network.pass(300);
        network.servers[0].is_cut = outage_ms > 0;
        network.pass(outage_ms);
        network.engine = replica;
        network.servers.iter_mut().for_each(|server| server.is_cut = false);
        network.pass(2_500);
        // The other one has either heard of it again or purged everything.
        assert!(!keys(&caches[1]).contains(&"/a/1x".to_owned()), "{outage_ms} ms");
        let at = network.engine.run(&pull_call(), 1_700_000_200_000);
        let listed = list(&at).unwrap().purges;
        let is_listed = listed.iter().any(|of| of.purge == Purge::Key(b"/a/1x".to_vec()));
        assert!(is_listed, "{outage_ms} ms");
        // Once.
        fill(&caches);
        network.pass(2_000);
        caches.iter().for_each(|cache| assert_eq!(keys(cache).len(), 4));
    }
}

/// The whole list.
fn pull_call() -> Call {
    let args = vec![b"0".to_vec(), KEPT.to_string().into_bytes()];
    Call { script: &PURGES, args, keys: purge_call("", b"").keys }
}

/// A purge that another server sends.
fn purge_call(node: &str, text: &[u8]) -> Call {
    let keys = ["v", "p", "e"].map(|what| format!("weir:{{c:cache/c}}:{what}").into_bytes());
    let args = vec![node.as_bytes().to_vec(), KEPT.to_string().into_bytes(), text.to_vec()];
    Call { script: &PURGE, keys: keys.to_vec(), args }
}

/// Purges are made in the order of the list, and the cursor of each step is that of its last one.
#[test]
fn purges_are_made_in_order_and_cursors_follow() {
    let (mut network, caches) = network(2, 9);
    network.pass(500);
    network.servers[1].is_cut = true;
    network.pass(1_200);
    let count = 2 * ROUND_MAX + 7;
    for n in 0..count {
        caches[0].purge_here(Purge::Key(format!("{n}").into_bytes()));
    }
    network.pass(2_000);
    caches[1].made.borrow_mut().clear();
    network.servers[1].is_cut = false;
    network.pass(2_000);
    let made = caches[1].made.borrow();
    let all: Vec<_> = made.iter().flat_map(|(purges, _)| purges.clone()).collect();
    let wanted: Vec<_> = (0..count).map(|n| Purge::Key(format!("{n}").into_bytes())).collect();
    assert_eq!(all, wanted);
    let mut before = 0;
    for (purges, cursor) in made.iter() {
        assert_eq!(cursor.version - before, purges.len() as u64);
        before = cursor.version;
    }
    assert!(made.len() >= 3, "{} steps", made.len());
}

#[test]
fn random_purges_with_loss_leave_nothing_stale() {
    for seed in 0..200 {
        let (mut network, caches) = network(3, seed);
        let mut random = Random::new(seed ^ 0xcac4e);
        network.pass(500);
        (network.delay_ms, network.loss) = (random.below(20), random.below(100));
        fill(&caches);
        for n in 0..40 {
            if random.below(6) == 0 {
                network.servers[random.below(3) as usize].is_cut ^= true;
            }
            let key = format!("/k{n}");
            for cache in &caches {
                cache.keys.borrow_mut().insert(key.clone().into_bytes());
            }
            caches[random.below(3) as usize].purge_here(Purge::Key(key.into_bytes()));
            let ms = random.below(150);
            network.pass(ms);
        }
        network.loss = 0;
        network.servers.iter_mut().for_each(|server| server.is_cut = false);
        network.pass(2_000);
        for cache in &caches {
            assert!(!keys(cache).iter().any(|key| key.starts_with("/k")), "seed {seed}");
        }
    }
}

#[test]
fn cursors_and_lists_are_read_as_written() {
    for mark in [None, Some(77)] {
        let cursor = Cursor { epoch: "17-n1".to_owned(), version: 9, mark };
        assert_eq!(Cursor::from_text(&cursor.to_text()), Some(cursor));
    }
    for text in ["", "9", "9 e", "x e\n", "9 e x\n"] {
        assert_eq!(Cursor::from_text(text), None, "{text}");
    }
    let bytes = |text: &str| Answer::Bytes(text.as_bytes().to_vec());
    let fixed = || vec![bytes("e"), bytes("7"), Answer::Int(3)];
    let with = |text: &str| Answer::List([fixed(), vec![bytes(text)]].concat());
    let answer = with("7 n1 k/a b");
    let read = list(&answer).unwrap();
    let mark = base::crc::crc32(b"7 n1 k/a b");
    let purge = Purge::Key(b"/a b".to_vec());
    assert_eq!(read.purges, [Listed { version: 7, node: "n1", purge, mark }]);
    for text in ["", "7", "7 n1", "7 n1 ", "7 n1 x", "x n1 ka"] {
        assert!(list(&with(text)).is_none(), "{text}");
    }
    assert!(list(&Answer::List(fixed()[..2].to_vec())).is_none());
    assert!(list(&Answer::List(vec![bytes("e 1"), bytes("7"), Answer::Int(3)])).is_none());
}
