use fleet::model::{Fault, INTERVAL_MS, Network, Random, settings};
use fleet::{Node, Part, Status, Touched};
use shm::Table;

use super::super::{Answer, ReqLimit, ask};
use super::*;

/// A server: its zone, and the limit that requests are held to.
struct Server {
    shared: Rc<Shared<Bucket>>,
    limit: ReqLimit,
}

/// Requests that a server has let pass, of one key.
impl Server {
    fn new(rate: i64, burst: i64) -> Server {
        let table = Table::new(1 << 16).unwrap();
        let touched = Some(Touched::new((1 << 16) / 64).unwrap());
        let key = bytes::Bytes::new();
        let shared = Rc::new(Shared { key, table, journal: None, touched });
        let limit = ReqLimit { zone: Zone::for_tests(rate), burst: burst * 1000, delay: i64::MAX };
        Server { shared, limit }
    }

    fn part(&self) -> Rc<dyn Part> {
        let buckets = ReqBuckets::new(self.shared.clone(), self.limit.zone.rate.get());
        Rc::new(LimitPart::new("z", "$k", buckets.rate, buckets))
    }

    fn passes(&self, key: &[u8], now: u64) -> bool {
        let key = self.shared.table.key(key);
        let mut t = self.shared.table.lock();
        match ask(&mut t, key, true, self.limit.terms(), now, true) {
            Answer::Counted { entry, .. } => {
                self.shared.touch(entry);
                true
            }
            _ => false,
        }
    }
}

fn network(count: usize, rate: i64, burst: i64, seed: u64) -> (Network, Vec<Server>) {
    let servers: Vec<_> = (0..count).map(|_| Server::new(rate, burst)).collect();
    let node = |(i, server): (usize, &Server)| {
        let status = Rc::new(Status::new().unwrap());
        Node::new(settings(), status, vec![server.part()], (format!("n{i}"), "host"))
    };
    let nodes = servers.iter().enumerate().map(node).collect();
    (Network::new(nodes, seed), servers)
}

/// Some milliseconds of so many requests a second on each server; those that passed, by server.
fn load(network: &mut Network, servers: &[Server], ms: u64, per_s: &[u64]) -> Vec<u64> {
    let mut passed = vec![0; servers.len()];
    let mut random = Random::new(ms);
    for _ in 0..ms {
        network.step();
        for (i, server) in servers.iter().enumerate() {
            let (whole, rest) = (per_s[i] / 1000, per_s[i] % 1000);
            let count = whole + u64::from(random.below(1000) < rest);
            passed[i] += (0..count).filter(|_| server.passes(b"k", network.now_ms)).count() as u64;
        }
    }
    passed
}

#[test]
fn the_sum_of_all_servers_is_the_rate() {
    for (count, burst) in [(1, 5), (2, 5), (3, 5), (3, 20), (5, 10)] {
        let (mut network, servers) = network(count, 100_000, burst, 7);
        let passed = load(&mut network, &servers, 60_000, &vec![400; count]);
        let sum: u64 = passed.iter().sum();
        assert!((5_700..=6_300).contains(&sum), "{count} servers, burst {burst}: {passed:?}");
    }
}

#[test]
fn unequal_loads_share_the_rate() {
    let (mut network, servers) = network(3, 100_000, 10, 8);
    let passed = load(&mut network, &servers, 60_000, &[10, 50, 900]);
    let sum: u64 = passed.iter().sum();
    assert!((5_700..=6_300).contains(&sum), "{passed:?}");
    // Below the rate nothing is refused.
    let passed = load(&mut network, &servers, 5_000, &[0, 0, 0]);
    assert_eq!(passed, [0, 0, 0]);
    let (mut network, servers) = self::network(3, 100_000, 20, 9);
    let passed = load(&mut network, &servers, 30_000, &[20, 20, 20]);
    let sum: u64 = passed.iter().sum();
    assert!(sum > 1_700, "{passed:?}");
}

#[test]
fn an_engine_that_is_away_leaves_local_limits_and_its_return_the_sum() {
    for seed in 0..20 {
        let (mut network, servers) = network(3, 100_000, 10, seed);
        load(&mut network, &servers, 5_000, &[400; 3]);
        network.is_stopped = true;
        load(&mut network, &servers, 1_500, &[400; 3]);
        for passed in load(&mut network, &servers, 30_000, &[400; 3]) {
            assert!((2_900..=3_100).contains(&passed), "local limit: {passed}");
        }
        network.is_stopped = false;
        if seed % 2 == 0 {
            network.engine.empty();
        }
        let is_back = |server: &fleet::model::Server| {
            server.lines.last().is_some_and(|line| line.contains("is back after"))
        };
        while !network.servers.iter().all(is_back) {
            load(&mut network, &servers, 1, &[400; 3]);
        }
        load(&mut network, &servers, 2 * INTERVAL_MS, &[400; 3]);
        let sum: u64 = load(&mut network, &servers, 5_000, &[400; 3]).iter().sum();
        assert!((475..=525).contains(&sum), "seed {seed}: {sum}");
    }
}

#[test]
fn a_server_that_was_cut_off_alone_brings_no_debt() {
    for seed in 0..20 {
        let (mut network, servers) = network(3, 100_000, 10, seed);
        load(&mut network, &servers, 3_000, &[400; 3]);
        network.servers[1].is_cut = true;
        load(&mut network, &servers, 2_000, &[400; 3]);
        network.servers[1].is_cut = false;
        while network.servers[1].lines.last().is_none_or(|line| !line.contains("is back")) {
            load(&mut network, &servers, 1, &[400; 3]);
        }
        load(&mut network, &servers, 2 * INTERVAL_MS, &[400; 3]);
        let sum: u64 = load(&mut network, &servers, 5_000, &[400; 3]).iter().sum();
        assert!((475..=525).contains(&sum), "seed {seed}: {sum}");
    }
}

#[test]
fn many_keys_of_an_outage_are_levels_and_those_after_it_are_added() {
    let (mut network, servers) = network(1, 100_000, 10, 3);
    let key = |n: u32| n.to_le_bytes();
    network.pass(300);
    network.is_stopped = true;
    network.pass(2_000);
    let touched = servers[0].shared.touched.as_ref().unwrap();
    for n in (0..5).flat_map(|n| [n; 9]) {
        servers[0].passes(&key(n), network.now_ms);
    }
    let buckets = ReqBuckets::new(servers[0].shared.clone(), 100_000);
    buckets.outage_ended();
    servers[0].passes(&key(9), network.now_ms);
    let mut all = Vec::new();
    assert!(buckets.take(10, network.now_ms, Some(500), &mut all));
    let amounts: Vec<_> = all.iter().map(|delta| delta.amount).collect();
    assert_eq!(amounts[..5], [Amount::Raise(8_000); 5]);
    assert_eq!(amounts[5..], [Amount::Add(500)]);
    assert!(touched.is_empty());
}

#[test]
fn a_slow_network_costs_little() {
    let (mut network, servers) = network(3, 100_000, 20, 11);
    network.delay_ms = 40;
    network.servers[1].skew_ms = 600_000;
    let sum: u64 = load(&mut network, &servers, 60_000, &[400; 3]).iter().sum();
    assert!((5_700..=6_400).contains(&sum), "{sum}");
}

#[test]
fn very_many_hot_keys_are_all_sent() {
    let (mut network, servers) = network(2, 1_000, 5, 12);
    for round in 0..20_u32 {
        for n in 0..300_u32 {
            servers[0].passes(&n.to_le_bytes(), network.now_ms);
        }
        network.pass(100 + u64::from(round % 2));
    }
    network.pass(300);
    let touched = servers[0].shared.touched.as_ref().unwrap();
    assert!(touched.is_empty());
}

/// An engine at the edge of the timeout, or that refuses again and again, is no outage.
#[test]
fn every_other_round_fails() {
    for (fault, delay_ms, most) in [
        (Fault::Busy, 2, 105),
        (Fault::Busy, 100, 105),
        (Fault::Late, 2, 105),
        (Fault::Late, 450, 105),
        // What is lost on its way is not counted.
        (Fault::Lost, 2, 120),
    ] {
        for seed in 0..2 {
            let (mut network, servers) = network(5, 100_000, 10, seed);
            network.fault = Some(fault);
            network.delay_ms = delay_ms;
            // Until the first answers, each server lets the rate pass.
            load(&mut network, &servers, 20_000, &[400; 5]);
            let sum: u64 = load(&mut network, &servers, 60_000, &[400; 5]).iter().sum();
            assert!((5_000..=60 * most).contains(&sum), "{fault:?}, {delay_ms} ms: {sum}");
        }
    }
}
