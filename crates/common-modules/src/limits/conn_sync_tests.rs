use bytes::Bytes;
use fleet::model::{INTERVAL_MS, Network, settings};
use fleet::{Node, State, Status, Touched};
use shm::Table;

use super::super::conn::Hold;
use super::*;

struct Server {
    shared: Rc<Shared<Count>>,
    status: Rc<Status>,
}

impl Server {
    fn new() -> Server {
        let table = Table::new(1 << 16).unwrap();
        let touched = Some(Touched::new((1 << 16) / 64).unwrap());
        let shared = Shared { key: Bytes::new(), table, journal: None, touched };
        Server { shared: Rc::new(shared), status: Rc::new(Status::new().unwrap()) }
    }

    /// A connection of a key whose limit is 3.
    fn connect(&self, key: &[u8]) -> Option<Hold> {
        let is_joined = self.status.state() == State::Joined;
        Hold::take(&self.shared, key, (3, is_joined), 0).ok()
    }

    fn entries(&self) -> usize {
        self.shared.table.lock().len()
    }
}

fn network(count: usize) -> (Network, Vec<Server>) {
    let servers: Vec<_> = (0..count).map(|_| Server::new()).collect();
    let zone: Rc<Zone<Count>> = Zone::for_tests(0);
    let _ = zone.key_text.set(Bytes::from_static(b"$k"));
    let node = |(i, server): (usize, &Server)| {
        let part: Rc<dyn Part> = Rc::new(ConnPart::new(&zone, server.shared.clone()));
        Node::new(settings(), server.status.clone(), vec![part], (format!("n{i}"), "host"))
    };
    let nodes = servers.iter().enumerate().map(node).collect();
    (Network::new(nodes, 5), servers)
}

/// Every count is repeated within this time.
const ALL_MS: u64 = 12 * INTERVAL_MS;

#[test]
fn connections_of_all_servers_count() {
    let (mut network, servers) = network(3);
    network.pass(300);
    let mut first: Vec<_> = (0..2).map(|_| servers[0].connect(b"k").unwrap()).collect();
    network.pass(2 * INTERVAL_MS + 10);
    // The other server has not heard of the key before.
    let one = servers[1].connect(b"k").unwrap();
    network.pass(2 * INTERVAL_MS + 10);
    assert!(servers[1].connect(b"k").is_none());
    network.pass(ALL_MS);
    assert!(servers[0].connect(b"k").is_none(), "two here and one there");
    assert!(servers[1].connect(b"other").is_some());
    first.pop();
    network.pass(ALL_MS);
    let two = servers[1].connect(b"k").unwrap();
    drop((one, two, first));
    network.pass(ALL_MS);
    assert!(servers.iter().all(|server| server.entries() == 0));
}

/// A client that has all its connections at one server, and tries another one again and again.
#[test]
fn a_key_that_has_no_connections_here_any_more_is_known() {
    let (mut network, servers) = network(2);
    network.pass(300);
    let held: Vec<_> = (0..3).map(|_| servers[0].connect(b"k").unwrap()).collect();
    network.pass(ALL_MS);
    drop(servers[1].connect(b"k").expect("nothing is known of the key here"));
    network.pass(2 * INTERVAL_MS + 10);
    for _ in 0..30 {
        assert!(servers[1].connect(b"k").is_none());
        network.pass(INTERVAL_MS);
    }
    drop(held);
    network.pass(ALL_MS);
    assert!(servers.iter().all(|server| server.entries() == 0), "nothing stays");
    assert!(servers[1].connect(b"k").is_some());
}

#[test]
fn counts_of_a_server_that_is_gone_do_not_stay() {
    let (mut network, servers) = network(2);
    network.pass(300);
    let _held: Vec<_> = (0..3).map(|_| servers[0].connect(b"k").unwrap()).collect();
    let own = servers[1].connect(b"k").unwrap();
    network.pass(ALL_MS);
    assert!(servers[1].connect(b"k").is_none());
    network.servers[0].is_cut = true;
    network.pass(LIFETIME_MS + ALL_MS);
    assert!(servers[1].connect(b"k").is_some());
    // One that is cut off decides by its own count.
    drop(own);
    assert!(servers[0].connect(b"k").is_none());
    assert!(servers[0].connect(b"l").is_some());
}
