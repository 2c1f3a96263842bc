use std::cell::RefCell;

use super::*;
use crate::model::{Network, settings};
use crate::status::Snapshot;

/// A part that asks one thing and keeps what it hears.
struct Asks {
    name: &'static str,
    definition: &'static str,
    heard: RefCell<Vec<String>>,
}

impl Part for Asks {
    fn name(&self) -> &str {
        self.name
    }

    fn definition(&self) -> &str {
        self.definition
    }

    fn ask(&self, round: &Round, out: &mut Vec<Call>) {
        let keys = vec![format!("{}:x", round.prefix).into_bytes()];
        let args = ["1000", "200", "1000"].map(|text| text.as_bytes().to_vec()).to_vec();
        out.push(Call { script: &crate::scripts::LIMIT, keys, args });
    }

    fn answered(&self, _: &Round, answers: &[Answer]) -> Result<(), PartError> {
        self.heard.borrow_mut().push(format!("{answers:?}"));
        match answers {
            [Answer::List(list)] if list[0].int().is_some() => Ok(()),
            _ => Err(PartError::Foreign),
        }
    }

    fn unanswered(&self) {
        self.heard.borrow_mut().push("nothing".to_owned());
    }

    fn joined(&self) {}
}

fn node(id: &str, definition: &'static str) -> (Node, Rc<Asks>, Rc<Status>) {
    let part = Rc::new(Asks { name: "z", definition, heard: RefCell::default() });
    let status = Rc::new(Status::new().unwrap());
    let parts: Vec<Rc<dyn Part>> = vec![part.clone()];
    let host = format!("host-{id}");
    (Node::new(settings(), status.clone(), parts, (id.to_owned(), &host)), part, status)
}

fn said(network: &mut Network) -> Vec<String> {
    std::mem::take(&mut network.servers[0].lines)
}

#[test]
fn one_line_a_change() {
    let (node, part, status) = node("a", "d");
    let mut network = Network::new(vec![node], 1);
    network.is_stopped = true;
    network.pass(3_000);
    let away = "shared state: redis://sim:6379 is away: timed out; limits hold for this server \
                alone, tables keep what they have";
    assert_eq!(said(&mut network), [away]);
    assert_eq!(status.state(), State::Away);
    assert!(part.heard.borrow().iter().all(|text| text == "nothing"));
    network.is_stopped = false;
    network.pass(2_000);
    let lines = said(&mut network);
    assert!(lines.len() == 1 && lines[0].contains("is back after 1."), "{lines:?}");
    network.engine.refuses = Some("OOM command not allowed\r\nforged".to_owned());
    network.pass(1_000);
    let lines = said(&mut network);
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("away: OOM command not allowedforged;"), "{lines:?}");
    network.engine.refuses = None;
    network.pass(1_000);
    assert!(said(&mut network)[0].contains("is back"));
    let Snapshot { state, lag_ms, counters, .. } = status.snapshot(network.now_ms);
    assert_eq!((state, counters[2]), (State::Joined, 1));
    assert!(lag_ms.unwrap() <= 110, "{lag_ms:?}");
}

#[test]
fn peers_are_known_and_another_fleet_is_noticed() {
    let (one, _, status) = node("a", "limit 10r/s");
    let (two, ..) = node("b", "limit 10r/s");
    let mut network = Network::new(vec![one, two], 2);
    network.pass(2_500);
    let shown = status.snapshot(network.now_ms);
    assert_eq!((shown.peers, shown.names.as_str()), (2, "host-a host-b"));
    assert_eq!(said(&mut network).len(), 1, "it has joined");
    let (three, ..) = node("c", "limit 99r/s");
    let others = Network::new(vec![three], 3);
    network.servers.extend(others.servers);
    network.pass(3_500);
    let lines = said(&mut network);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("zone \"z\" is defined otherwise on host-c"), "{lines:?}");
    network.servers.truncate(2);
    network.pass(12_000);
    assert_eq!(status.snapshot(network.now_ms).peers, 2);
}

#[test]
fn keys_of_another_program_concern_their_zone_alone() {
    let (node, part, status) = node("a", "d");
    let mut network = Network::new(vec![node], 4);
    network.engine.foreign.insert(b"weir:x".to_vec());
    network.pass(1_000);
    let lines = said(&mut network);
    assert_eq!(lines.len(), 2, "{lines:?}");
    let text = "zone \"z\" with prefix \"weir\" is not shared: another program has keys";
    assert!(lines[1].contains(text), "{lines:?}");
    assert_eq!(status.state(), State::Joined);
    network.engine.foreign.clear();
    network.pass(500);
    assert_eq!(said(&mut network), ["shared state: zone \"z\" is shared again"]);
    assert!(part.heard.borrow().len() > 10);
}

#[test]
fn answers_of_another_number_are_refused() {
    let (mut node, part, status) = node("a", "d");
    node.joined();
    assert_eq!(node.begin(1).len(), 2);
    assert!(!node.end(2, 1000, Ok(vec![Answer::Nil])));
    assert_eq!(status.state(), State::Away);
    assert_eq!(*part.heard.borrow(), ["nothing"]);
    // Garbage in the place of an announcement does no harm.
    node.begin(200);
    assert!(node.end(201, 1000, Ok(vec![Answer::Nil, Answer::Nil])));
    assert_eq!(status.state(), State::Joined);
}

#[test]
fn errors_of_a_zone_and_of_the_engine() {
    let hello = || Answer::List(vec![Answer::Int(1), Answer::List(Vec::new())]);
    let error = |text: &str| Answer::Error(text.to_owned());
    let state = |answers: [Answer; 2]| {
        let (mut node, _, status) = node("a", "d");
        node.joined();
        assert_eq!(node.begin(1).len(), 2);
        let stays = node.end(2, 1_000, Ok(answers.to_vec()));
        (status.state(), stays)
    };
    for text in [
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "ERR Error running script (call to f_1): @user_script:9: -WRONGTYPE Operation against",
        "ERR user_script:12: attempt to perform arithmetic on a nil value",
        "ERR value is not an integer or out of range",
    ] {
        assert_eq!(state([hello(), error(text)]), (State::Joined, true), "{text}");
        assert_eq!(state([error(text), Answer::Nil]), (State::Away, true), "{text}");
    }
    for text in [
        "OOM command not allowed when used memory > 'maxmemory'.",
        "ERR Error running script (call to f_1): @user_script:9: -OOM command not allowed",
        "NOPERM this user has no permissions to run the 'evalsha' command",
        "ERR ACL failure in script: User weir has no permissions to run the 'time' command",
        "MISCONF Redis is configured to save RDB snapshots",
        "BUSY Redis is busy running a script.",
        "NOREPLICAS Not enough good replicas to write.",
        "TRYAGAIN Multiple keys request during rehashing of slot",
    ] {
        assert_eq!(state([hello(), error(text)]), (State::Away, true), "{text}");
    }
    for text in [
        "READONLY You can't write against a read only replica.",
        "LOADING Redis is loading the dataset in memory",
        "NOAUTH Authentication required.",
        "CLUSTERDOWN The cluster is down",
        "MASTERDOWN Link with MASTER is down",
    ] {
        assert_eq!(state([hello(), error(text)]), (State::Away, false), "{text}");
    }
}
