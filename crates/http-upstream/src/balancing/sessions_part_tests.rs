use fleet::model::{INTERVAL_MS, Network, settings};
use fleet::{Node, Status};

use super::super::sessions::Sessions;
use super::*;

const TIMEOUT_MS: u64 = 60_000;

fn network(count: usize, seed: u64) -> (Network, Vec<Sessions>) {
    let sessions: Vec<_> = (0..count).map(|_| Sessions::for_tests(256 << 10, TIMEOUT_MS)).collect();
    let node = |(i, sessions): (usize, &Sessions)| {
        let part: Rc<dyn Part> = Rc::new(SessionsPart::new("z", sessions.shared(), TIMEOUT_MS));
        let status = Rc::new(Status::new().unwrap());
        Node::new(settings(), status, vec![part], (format!("n{i}"), "host"))
    };
    let nodes = sessions.iter().enumerate().map(node).collect();
    (Network::new(nodes, seed), sessions)
}

fn is_on(sessions: &Sessions, id: &[u8], server: &[u8]) -> bool {
    sessions.find(id).is_some_and(|mark| mark.is_of(server))
}

#[test]
fn a_session_is_known_to_all_and_the_later_server_stays() {
    let (mut network, all) = network(3, 1);
    (network.servers[1].skew_ms, network.servers[2].skew_ms) = (400_000, -400_000);
    network.pass(500);
    network.enter(0);
    all[0].put(b"one", b"a", true);
    network.pass(2 * INTERVAL_MS + 10);
    for (i, sessions) in all.iter().enumerate() {
        network.enter(i);
        assert!(is_on(sessions, b"one", b"a"), "server {i}");
    }
    network.enter(2);
    all[2].put(b"one", b"b", true);
    network.pass(2 * INTERVAL_MS + 10);
    for (i, sessions) in all.iter().enumerate() {
        network.enter(i);
        assert!(is_on(sessions, b"one", b"b"), "server {i}");
    }
}

#[test]
fn uses_on_one_server_keep_a_session_on_all() {
    let (mut network, all) = network(2, 2);
    network.pass(500);
    network.enter(0);
    all[0].put(b"one", b"a", true);
    for _ in 0..10 {
        network.pass(TIMEOUT_MS / 3);
        network.enter(0);
        all[0].put(b"one", b"a", false);
    }
    network.pass(500);
    network.enter(1);
    assert!(is_on(&all[1], b"one", b"a"));
    network.pass(TIMEOUT_MS);
    network.enter(1);
    assert!(all[1].find(b"one").is_none());
}

#[test]
fn a_server_that_was_cut_off_and_an_emptied_engine_catch_up() {
    let (mut network, all) = network(2, 3);
    network.pass(500);
    network.servers[1].is_cut = true;
    network.enter(0);
    (0..900_u32).for_each(|n| all[0].put(&n.to_le_bytes(), b"a", true));
    network.pass(5_000);
    network.engine.empty();
    network.pass(500);
    network.servers[1].is_cut = false;
    network.pass(2_500);
    network.enter(1);
    let known = (0..900_u32).filter(|n| is_on(&all[1], &n.to_le_bytes(), b"a")).count();
    assert_eq!(known, 900);
}
