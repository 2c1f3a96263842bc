//! The scripts on a real engine against their models.

use fleet::model::{Engine, Random};
use fleet::scripts::{CONNECTIONS, HELLO, LIMIT, PULL, PUSH};
use testkit::Peer;

use super::*;

fn engine() -> (Peer, Link) {
    let conf = "bind 127.0.0.1\nport %PORT%\nsave \"\"\nappendonly no\ndir %DIR%\n";
    let files = [("redis.conf", conf)];
    let peer = Peer::start("redis-server", "redis-server", &files, &["%DIR%/redis.conf"]);
    let mut settings = fleet::model::settings();
    settings.addresses = vec![Address::Tcp("127.0.0.1".to_owned(), peer.port())];
    let link = Link::connect(&settings, &Secrets::default()).unwrap();
    (peer, link)
}

fn texts<const N: usize>(all: [&str; N]) -> Vec<Vec<u8>> {
    all.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn table() -> Vec<Vec<u8>> {
    texts(["p:{t}:v", "p:{t}:d", "p:{t}:z", "p:{t}:e", "p:{t}:x"])
}

/// The same call on both; their answers, which are of the same millisecond where the engine says
/// which one it is.
fn both(link: &mut Link, model: &mut Engine, call: &Call) -> (Answer, Answer) {
    let real = link.exchange(std::slice::from_ref(call)).unwrap().remove(0);
    let at = if call.script.name == "pull" { 2 } else { 0 };
    let now = real.list().and_then(|list| list.get(at)?.int()).unwrap_or(0);
    let modelled = model.run(call, now);
    (real, modelled)
}

/// Epochs and stamps are of different nodes of time: what they say of order is compared.
fn plain(answer: &Answer) -> String {
    format!("{answer:?}")
}

#[test]
fn tables_are_as_their_model() {
    let (_peer, mut link) = engine();
    let mut model = Engine::default();
    let mut random = Random::new(7);
    for n in 0..400 {
        let mut args = texts([["n1", "n2"][random.below(2) as usize], "86400000"]);
        for _ in 0..=random.below(3) {
            let key = format!("key{}", random.below(6));
            let at = random.below(40).to_string();
            let left = if random.below(4) == 0 { "100000" } else { "0" };
            let kind = ["s", "s", "t", "o"][random.below(4) as usize];
            let value = if kind == "t" { String::new() } else { format!("value\n{n}") };
            args.extend(texts([&key, &at, left, kind, &value]));
        }
        let push = Call { script: &PUSH, keys: table(), args };
        let (real, modelled) = both(&mut link, &mut model, &push);
        assert_eq!(plain(&real), plain(&modelled), "push {n}");
        let after = random.below(60).to_string();
        let most = (1 + random.below(8)).to_string();
        let pull = Call { script: &PULL, keys: table(), args: texts([&after, &most, "60"]) };
        let (real, modelled) = both(&mut link, &mut model, &pull);
        assert_eq!(plain(&real), plain(&modelled), "pull {n}");
        assert!(fleet::pull(&real).is_some_and(|pull| pull.malformed == 0));
    }
}

#[test]
fn expired_records_go() {
    let (_peer, mut link) = engine();
    let push = |left: &str| {
        let args = texts(["n1", "86400000", "k", "0", left, "s", "v"]);
        Call { script: &PUSH, keys: table(), args }
    };
    let pull = Call { script: &PULL, keys: table(), args: texts(["0", "9", "999"]) };
    link.exchange(&[push("1")]).unwrap();
    testkit::wait_until("the record is swept", || {
        let other = texts(["n1", "86400000", "other", "0", "0", "s", "v"]);
        let other = Call { script: &PUSH, keys: table(), args: other };
        let answers = link.exchange(&[other, pull.clone()]).unwrap();
        fleet::pull(&answers[1]).unwrap().records.len() == 1
    });
}

#[test]
fn expired_records_do_not_pile_up() {
    let (_peer, mut link) = engine();
    let push = |name: &str, left: &str| {
        let mut args = texts(["n1", "86400000"]);
        for n in 0..200 {
            args.extend(texts([&format!("{name}{n}"), "0", left, "s", "v"]));
        }
        Call { script: &PUSH, keys: table(), args }
    };
    link.exchange(&[push("a", "1"), push("b", "1")]).unwrap();
    // The engine's clock passes the millisecond in which they expire.
    let hello = Call { script: &HELLO, keys: texts(["p:n"]), args: texts(["n1 host", "n1"]) };
    let mut now =
        || link.exchange(std::slice::from_ref(&hello)).unwrap()[0].list().unwrap()[0].int();
    let begin = now();
    testkit::wait_until("they expire", || now() > begin.map(|ms| ms + 2));
    let pull = Call { script: &PULL, keys: table(), args: texts(["0", "999", "99999"]) };
    let answers = link.exchange(&[push("c", "0"), pull]).unwrap();
    assert_eq!(fleet::pull(&answers[1]).unwrap().records.len(), 200);
}

#[test]
fn a_clock_that_was_set_back_freezes_nothing() {
    let (_peer, mut link) = engine();
    let own = |link: &mut Link, command: [&str; 4]| {
        let mut cmd = redis::cmd(command[0]);
        cmd.arg(&command[1..]);
        link.run(&[cmd]).unwrap()
    };
    own(&mut link, ["HSET", "p:{t}:d", "k", "1 99999999999999 n9 0 s\nfuture"]);
    let args = texts(["n1", "86400000", "k", "1", "0", "s", "v"]);
    let answers = link.exchange(&[Call { script: &PUSH, keys: table(), args }]).unwrap();
    assert_eq!(answers[0].list().unwrap()[1], Answer::Int(1));
    own(&mut link, ["HSET", "p:{c}", "n9", "3 99999999999999"]);
    let args = texts(["n1", "5000", "1"]);
    let call = Call { script: &CONNECTIONS, keys: texts(["p:{c}"]), args };
    assert_eq!(link.exchange(&[call]).unwrap()[0].list().unwrap()[..], [Answer::Int(0)]);
}

#[test]
fn limits_are_as_their_model() {
    let (_peer, mut link) = engine();
    let mut model = Engine::default();
    let mut random = Random::new(8);
    let hello = Call { script: &HELLO, keys: texts(["p:n"]), args: texts(["n1 host", "n1"]) };
    for n in 0..200 {
        let (now, _) = both(&mut link, &mut model, &hello);
        let now = now.list().unwrap()[0].int().unwrap();
        let amount = (random.below(3) * 1000).to_string();
        let keys = texts(["p:{l}:a", "p:{l}:b"]);
        // It leaks a thousandth in 60 ms: both clocks give the same.
        let args = texts(["16", "200", &amount, "1000"]);
        let limit = Call { script: &LIMIT, keys, args };
        let real = link.exchange(std::slice::from_ref(&limit)).unwrap().remove(0);
        let modelled = model.run(&limit, now);
        let sums = |answer: &Answer| -> Vec<i64> {
            answer.list().unwrap().iter().map(|n| n.int().unwrap()).collect()
        };
        for (real, modelled) in sums(&real).into_iter().zip(sums(&modelled)) {
            assert!((real - modelled).abs() <= 2 + n, "{n}: {real} {modelled}");
        }
    }
}

#[test]
fn announcements_are_as_their_model() {
    let (_peer, mut link) = engine();
    let mut model = Engine::default();
    for text in ["n1 host z=1", "n2 host z=1", "n1 host z=2", "n10 other"] {
        let id = text.split(' ').next().unwrap();
        let hello = Call { script: &HELLO, keys: texts(["p:n"]), args: texts([text, id]) };
        let (real, modelled) = both(&mut link, &mut model, &hello);
        let names = |answer: &Answer| {
            let mut names: Vec<_> = answer.list().unwrap()[1].list().unwrap().to_vec();
            names.sort_by_key(plain);
            names
        };
        assert_eq!(names(&real), names(&modelled), "{text}");
    }
}

#[test]
fn keys_of_other_programs_are_named() {
    let (_peer, mut link) = engine();
    let own = |link: &mut Link, command: &[&str]| {
        let mut cmd = redis::cmd(command[0]);
        for text in &command[1..] {
            cmd.arg(*text);
        }
        link.run(&[cmd]).unwrap()
    };
    own(&mut link, &["LPUSH", "p:{l}:a", "theirs"]);
    own(&mut link, &["SET", "p:{l}:b", "theirs"]);
    let keys = texts(["p:{l}:a", "p:{l}:b", "p:{l}:c"]);
    let args = texts(["1000", "200", "1000", "1000", "1000"]);
    let answers = link.exchange(&[Call { script: &LIMIT, keys, args }]).unwrap();
    let foreign = Answer::Bytes(b"foreign".to_vec());
    assert_eq!(answers[0].list().unwrap()[..2], [foreign.clone(), foreign]);
    assert!(answers[0].list().unwrap()[2].int().is_some());
    own(&mut link, &["SET", "p:{t}:d", "theirs"]);
    let args = texts(["n1", "86400000", "k", "0", "0", "s", "v"]);
    let answers = link.exchange(&[Call { script: &PUSH, keys: table(), args }]).unwrap();
    assert!(matches!(&answers[0], Answer::Error(text) if text.contains("WRONGTYPE")));
}
