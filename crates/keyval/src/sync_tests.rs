use std::collections::BTreeMap;

use fleet::model::{INTERVAL_MS, Network, Random, settings};
use fleet::{Node, Status};

use super::*;
use crate::store::{Change, Refused};
use crate::zone::Settings;

/// Servers with a table each.
struct Fleet {
    network: Network,
    zones: Vec<Rc<Zone>>,
}

fn zone(bytes: usize) -> Rc<Zone> {
    Zone::for_tests(Settings { bytes, synced: true, evicts: true, ..Settings::default() })
}

fn node(i: usize, zone: &Rc<Zone>) -> Node {
    let status = Rc::new(Status::new().unwrap());
    let parts: Vec<Rc<dyn Part>> = vec![Rc::new(TablePart::new(zone.clone(), false))];
    Node::new(settings(), status, parts, (format!("n{i}"), "host"))
}

impl Fleet {
    fn new(count: usize, seed: u64) -> Fleet {
        Fleet::with(256 << 10, count, seed)
    }

    /// Tables of that size.
    fn with(bytes: usize, count: usize, seed: u64) -> Fleet {
        let zones: Vec<_> = (0..count).map(|_| zone(bytes)).collect();
        let nodes = zones.iter().enumerate().map(|(i, zone)| node(i, zone)).collect();
        Fleet { network: Network::new(nodes, seed), zones }
    }

    fn put(&self, i: usize, key: &str, value: &str, ms: u64) {
        self.network.enter(i);
        let expires_ms = if ms == 0 { 0 } else { base::time::unix_ms() + ms };
        let pair = Pair { expires_ms, ..Pair::new(key.as_bytes(), value.as_bytes()) };
        assert_eq!(self.zones[i].put(Change::Set, &pair), Ok::<(), Refused>(()));
    }

    fn remove(&self, i: usize, key: &str) {
        self.network.enter(i);
        self.zones[i].store().remove(key.as_bytes());
    }

    fn get(&self, i: usize, key: &str) -> Option<String> {
        self.network.enter(i);
        let pair = self.zones[i].store().get(key.as_bytes());
        pair.map(|pair| String::from_utf8(pair.value).unwrap())
    }

    fn all(&self, i: usize) -> BTreeMap<String, String> {
        self.network.enter(i);
        let (mut next, mut all) = (0, BTreeMap::new());
        while let Some(pairs) = self.zones[i].store().some(&mut next, 64) {
            for pair in pairs {
                let [key, value] = [pair.key, pair.value].map(|b| String::from_utf8(b).unwrap());
                assert!(all.insert(key, value).is_none());
            }
        }
        all
    }

    fn pass(&mut self, ms: u64) {
        self.network.pass(ms);
    }
}

#[test]
fn what_one_server_writes_all_have_within_two_intervals() {
    let mut fleet = Fleet::new(3, 1);
    fleet.network.servers[1].skew_ms = 300_000;
    fleet.network.servers[2].skew_ms = -600_000;
    fleet.pass(1_000);
    for round in 0..50 {
        fleet.put(round % 3, "a", &round.to_string(), 0);
        fleet.pass(2 * INTERVAL_MS + 10);
        for i in 0..3 {
            assert_eq!(fleet.get(i, "a"), Some(round.to_string()), "round {round}, server {i}");
        }
    }
    fleet.remove(1, "a");
    fleet.pass(2 * INTERVAL_MS + 10);
    assert!((0..3).all(|i| fleet.get(i, "a").is_none()));
    assert!(fleet.zones.iter().all(|zone| zone.store().lock().is_empty()), "no tombstone stays");
}

#[test]
fn lifetimes_travel_whatever_the_clocks() {
    let mut fleet = Fleet::new(2, 2);
    fleet.network.servers[1].skew_ms = 300_000;
    fleet.pass(1_000);
    fleet.put(0, "a", "1", 2_000);
    fleet.pass(500);
    assert_eq!(fleet.get(1, "a").as_deref(), Some("1"));
    fleet.pass(1_400);
    assert_eq!(fleet.get(1, "a").as_deref(), Some("1"));
    fleet.pass(200);
    assert_eq!((fleet.get(0, "a"), fleet.get(1, "a")), (None, None));
}

#[test]
fn a_new_server_has_everything_soon() {
    let mut fleet = Fleet::new(1, 3);
    fleet.pass(500);
    for n in 0..1500 {
        fleet.put(0, &format!("k{n}"), &"v".repeat(20), 0);
    }
    fleet.pass(1_000);
    let zone = zone(256 << 10);
    let others = Network::new(vec![node(1, &zone)], 4);
    fleet.network.servers.extend(others.servers);
    fleet.zones.push(zone);
    fleet.pass(500);
    assert_eq!(fleet.all(1).len(), 1500);
    assert_eq!(fleet.all(0), fleet.all(1));
}

#[test]
fn an_emptied_engine_is_filled_again() {
    let mut fleet = Fleet::new(2, 5);
    fleet.pass(500);
    (0..20).for_each(|n| fleet.put(n % 2, &format!("k{n}"), "v", 0));
    fleet.pass(500);
    fleet.network.engine.empty();
    fleet.remove(0, "k3");
    fleet.pass(500);
    let zone = zone(256 << 10);
    let others = Network::new(vec![node(2, &zone)], 6);
    fleet.network.servers.extend(others.servers);
    fleet.zones.push(zone);
    fleet.pass(500);
    assert_eq!(fleet.all(2).len(), 19);
    assert!((0..3).all(|i| fleet.all(i) == fleet.all(2)));
}

#[test]
fn a_server_cut_off_for_an_hour_keeps_what_it_has_and_then_agrees() {
    let mut fleet = Fleet::new(3, 7);
    fleet.pass(500);
    for key in ["stays", "goes", "changes", "both"] {
        fleet.put(0, key, "old", 0);
    }
    fleet.pass(500);
    fleet.network.servers[2].is_cut = true;
    fleet.pass(2_000);
    fleet.remove(0, "goes");
    fleet.put(1, "changes", "new", 0);
    fleet.put(2, "both", "first", 0);
    fleet.put(2, "mine", "mine", 0);
    fleet.pass(1_000);
    fleet.put(1, "both", "second", 0);
    fleet.pass(3_600_000);
    assert_eq!(fleet.get(2, "goes").as_deref(), Some("old"));
    fleet.network.servers[2].is_cut = false;
    fleet.pass(2_000);
    let expected = [("both", "second"), ("changes", "new"), ("mine", "mine"), ("stays", "old")];
    let expected: BTreeMap<_, _> = expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    (0..3).for_each(|i| assert_eq!(fleet.all(i), expected, "server {i}"));
}

/// A removal at a server that is cut off holds against older writes elsewhere, and not against
/// newer ones; it takes room until the engine knows, and none after that.
#[test]
fn a_removal_at_a_server_that_is_cut_off_is_not_undone_by_an_older_write() {
    for is_emptied in [false, true] {
        let mut fleet = Fleet::new(3, 12);
        fleet.pass(500);
        let keys = ["older", "newer", "untouched"];
        keys.iter().for_each(|key| fleet.put(0, key, "1", 0));
        fleet.pass(500);
        fleet.network.servers[2].is_cut = true;
        fleet.pass(2_000);
        fleet.put(1, "older", "2", 0);
        fleet.pass(1_000);
        keys.iter().for_each(|key| fleet.remove(2, key));
        let room = fleet.zones[2].store().lock().len();
        assert_eq!(room, 3, "three removals that nobody knows of");
        fleet.pass(1_000);
        fleet.put(1, "newer", "2", 0);
        fleet.pass(1_000);
        if is_emptied {
            fleet.network.engine.empty();
            fleet.pass(1_000);
        }
        fleet.network.servers[2].is_cut = false;
        fleet.pass(2_000);
        for i in 0..3 {
            let got = ["older", "untouched"].map(|key| fleet.get(i, key));
            assert_eq!(got, [None, None], "server {i}, {is_emptied}");
            // An engine that was emptied does not know how new its pairs are.
            let newer = fleet.get(i, "newer");
            assert!(is_emptied || newer.as_deref() == Some("2"), "server {i}: {newer:?}");
        }
        assert_eq!(fleet.zones[2].store().lock().len(), fleet.all(2).len(), "no removal stays");
    }
}

/// Two servers have "a" and "b", and hear nothing for two days. Then the engine is as it was, or
/// empty.
fn after_two_days(is_empty: bool) -> Fleet {
    let mut fleet = Fleet::new(2, 10);
    fleet.pass(500);
    fleet.put(0, "a", "1", 0);
    fleet.put(1, "b", "2", 0);
    fleet.pass(500);
    fleet.network.servers[1].is_cut = true;
    fleet.pass(2_000);
    fleet.remove(0, "a");
    fleet.pass(2_000);
    fleet.network.is_stopped = true;
    fleet.network.now_ms += 2 * TOMBSTONE_MS;
    fleet.pass(2_000);
    if is_empty {
        fleet.network.engine.empty();
    }
    fleet.network.is_stopped = false;
    fleet.put(0, "c", "3", 0);
    fleet.pass(2_000);
    fleet.network.servers[1].is_cut = false;
    fleet.pass(3_000);
    fleet
}

#[test]
fn an_engine_that_is_empty_after_days_takes_no_pair_from_a_server() {
    let fleet = after_two_days(true);
    let expected = [("a", "1"), ("b", "2"), ("c", "3")];
    let expected: BTreeMap<_, _> = expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    (0..2).for_each(|i| assert_eq!(fleet.all(i), expected, "server {i}"));
}

#[test]
fn what_was_removed_days_ago_does_not_come_back() {
    let fleet = after_two_days(false);
    let expected = [("b", "2"), ("c", "3")];
    let expected: BTreeMap<_, _> = expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    (0..2).for_each(|i| assert_eq!(fleet.all(i), expected, "server {i}"));
}

#[test]
fn without_the_engines_time_nothing_hurries() {
    let fleet = Fleet::new(1, 11);
    (0..1_000).for_each(|n| fleet.put(0, &format!("k{n}"), "v", 0));
    let mut node = node(0, &fleet.zones[0]);
    node.joined();
    let now_ms = fleet.network.now_ms;
    assert_eq!(node.begin(now_ms).len(), 2, "an announcement and a pull");
    let [empty, zero] = [b"".to_vec(), b"0".to_vec()].map(Answer::Bytes);
    let pulled = Answer::List(vec![empty, zero, Answer::Int(0)]);
    assert!(node.end(now_ms, 1_000, Ok(vec![Answer::Nil, pulled])));
    assert!(!node.has_more());
}

/// Writes at random, while servers are cut off, messages are lost and the engine stops. At the end
/// all servers have the same pairs, and of each key the latest write.
fn storm(seed: u64) {
    let mut random = Random::new(seed ^ 0xf1ee7);
    let count = 2 + random.below(3) as usize;
    let mut fleet = Fleet::with(32 << 10, count, seed);
    for server in &mut fleet.network.servers {
        server.skew_ms = random.below(600_000).cast_signed() - 300_000;
    }
    fleet.pass(300);
    (fleet.network.delay_ms, fleet.network.loss) = (random.below(8), random.below(50));
    // The latest write of each key, and whether it is clearly later than the one before.
    let mut expected: BTreeMap<String, (u64, Option<String>, bool)> = BTreeMap::new();
    for n in 0..60 {
        match random.below(12) {
            0 => {
                let i = random.below(count as u64) as usize;
                fleet.network.servers[i].is_cut ^= true;
            }
            1 => fleet.network.is_stopped ^= true,
            _ => {
                let (i, key) = (random.below(count as u64) as usize, random.below(8).to_string());
                let value = (random.below(4) != 0).then(|| format!("v{n}"));
                // A key that this server does not know cannot be taken out here.
                if value.is_none() && fleet.get(i, &key).is_none() {
                    continue;
                }
                match &value {
                    Some(value) => fleet.put(i, &key, value, 0),
                    None => fleet.remove(i, &key),
                }
                let now = fleet.network.now_ms;
                let is_clear = expected.get(&key).is_none_or(|(at, ..)| now - at > 40);
                expected.insert(key, (now, value, is_clear));
            }
        }
        let ms = random.below(60);
        fleet.pass(ms);
    }
    (fleet.network.is_stopped, fleet.network.loss) = (false, 0);
    fleet.network.servers.iter_mut().for_each(|server| server.is_cut = false);
    fleet.pass(1_000 + 5 * INTERVAL_MS);
    for i in 0..count {
        assert_eq!(fleet.all(i), fleet.all(0), "seed {seed}, server {i}");
    }
    for (key, (_, value, _)) in expected.iter().filter(|(_, (.., is_clear))| *is_clear) {
        assert_eq!(fleet.get(0, key), *value, "seed {seed}, key {key}");
    }
}

#[test]
fn a_thousand_storms_end_in_agreement() {
    (0..1_000).for_each(storm);
}

#[test]
fn a_full_table_drops_and_counts() {
    let zone = zone(64 << 10);
    let mut network = Network::new(vec![node(0, &zone)], 9);
    network.is_stopped = true;
    network.enter(0);
    for n in 0..2_000 {
        let pair = Pair::new(format!("k{n}").as_bytes(), &[b'v'; 100]);
        zone.put(Change::Set, &pair).unwrap();
    }
    assert!(zone.store().dropped() > 500);
    network.is_stopped = false;
    network.pass(1_000);
    assert!((0..zone.store().lock().used()).all(|n| {
        let t = zone.store().lock();
        t.nth(n).and_then(|entry| zone.store().meta(&t, entry)).is_none_or(|meta| !meta.has(DIRTY))
    }));
}
