//! The scripts on a real engine against their models.

use fleet::folder::{Cursor, Folder, Want};
use fleet::model::{Engine, Random};
use fleet::scripts::{CONNECTIONS, HELLO, LIMIT, PULL, PURGE, PURGES, PUSH, STRICT};
use testkit::Peer;

use super::*;

/// A server, and the settings for connections to it.
fn server() -> (Peer, Settings) {
    let peer = Peer::redis();
    let mut settings = fleet::model::settings();
    settings.addresses = vec![Address::Tcp("127.0.0.1".to_owned(), peer.port())];
    (peer, settings)
}

fn engine() -> (Peer, Link) {
    let (peer, settings) = server();
    let link = Link::connect(&settings, &Secrets::default()).unwrap();
    (peer, link)
}

#[test]
fn the_database_is_chosen_and_the_library_named() {
    let (_peer, mut settings) = server();
    settings.database = 3;
    let mut link = Link::connect(&settings, &Secrets::default()).unwrap();
    let mut info = redis::cmd("CLIENT");
    info.arg("INFO");
    let answers = link.run(&[info]).unwrap();
    let info = String::from_utf8_lossy(answers[0].bytes().unwrap()).into_owned();
    assert!(info.contains(" db=3 "), "{info}");
    // Since Redis 7.2.
    let is_named = info.contains(" lib-name=weir ");
    assert!(is_named || !info.contains(" lib-name="), "{info}");
    settings.database = 9_999;
    let failed = Link::connect(&settings, &Secrets::default()).err().unwrap();
    assert!(failed.reason.starts_with("database 9999: "), "{}", failed.reason);
    assert!(failed.reason.contains("out of range"), "{}", failed.reason);
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
        let amount = match random.below(4) {
            3 => format!("={}", random.below(300_000)),
            requests => (requests * 1000).to_string(),
        };
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

/// The time of the engine, for models of scripts that do not return it.
fn clock(link: &mut Link) -> i64 {
    let hello = Call { script: &HELLO, keys: texts(["p:n"]), args: texts(["n1 host", "n1"]) };
    link.exchange(&[hello]).unwrap()[0].list().unwrap()[0].int().unwrap()
}

#[test]
fn strict_limits_are_as_their_model() {
    let (_peer, mut link) = engine();
    let (mut model, mut random) = (Engine::default(), Random::new(9));
    let (mut passed, mut refused) = (0, 0);
    for n in 0..300 {
        let key = ["p:{s}:a", "p:{s}:b"][random.below(2) as usize];
        // A thousandth leaks in 60 ms, and a burst is full after six requests.
        let args = texts(["16", "5000"]);
        let call = Call { script: &STRICT, keys: texts([key]), args };
        let before = clock(&mut link);
        let real = link.exchange(std::slice::from_ref(&call)).unwrap().remove(0);
        let modelled = model.run(&call, before);
        let [real, modelled] = [&real, &modelled].map(|answer| {
            let list = answer.list().unwrap();
            (list[0].int().unwrap(), list[1].int().unwrap())
        });
        assert_eq!(real.0, modelled.0, "{n}");
        assert!((real.1 - modelled.1).abs() <= 2 + n, "{n}: {real:?} {modelled:?}");
        passed += real.0;
        refused += 1 - real.0;
    }
    assert!(passed >= 12 && refused > 100, "{passed} {refused}");
}

#[test]
fn connections_are_as_their_model() {
    let (_peer, mut link) = engine();
    let (mut model, mut random) = (Engine::default(), Random::new(10));
    for n in 0..300 {
        let node = ["n1", "n2", "n3"][random.below(3) as usize];
        let counts = [0, 1].map(|_| random.below(4).to_string());
        let args = texts([node, "60000", &counts[0], &counts[1]]);
        let call = Call { script: &CONNECTIONS, keys: texts(["p:{n}:a", "p:{n}:b"]), args };
        let now = clock(&mut link);
        let real = link.exchange(std::slice::from_ref(&call)).unwrap().remove(0);
        assert_eq!(real, model.run(&call, now), "{n}");
    }
}

#[test]
fn purges_are_as_their_model() {
    let (_peer, mut link) = engine();
    let (mut model, mut random) = (Engine::default(), Random::new(11));
    let keys = || texts(["p:{c}:v", "p:{c}:p", "p:{c}:e"]);
    let mut epochs = Vec::new();
    for n in 0..300 {
        let node = ["n1", "n2"][random.below(2) as usize];
        let mut args = texts([node, "20"]);
        args.extend((0..random.below(4)).map(|i| format!("k/{n}/{i}").into_bytes()));
        let after = random.below(3 * n + 1).to_string();
        let most = (1 + random.below(30)).to_string();
        let pull = Call { script: &PURGES, keys: keys(), args: texts([&after, &most]) };
        let calls = [Call { script: &PURGE, keys: keys(), args }, pull];
        let now = clock(&mut link);
        let real = link.exchange(&calls).unwrap();
        let modelled = calls.each_ref().map(|call| model.run(call, now));
        assert_eq!(real[0], modelled[0], "{n}");
        let [real, modelled] = [&real[1], &modelled[1]].map(|answer| {
            let (epoch, rest) = answer.list().unwrap().split_first().unwrap();
            // Numbers of older engines are texts.
            let numbers = rest[..2].iter().map(|n| n.int().unwrap()).collect::<Vec<_>>();
            epochs.push(epoch.bytes().unwrap().is_empty());
            (numbers, rest[2..].to_vec())
        });
        assert_eq!(real, modelled, "{n}");
    }
    assert!(epochs.chunks(2).all(|two| two[0] == two[1]));
}

#[test]
fn folders_are_as_their_model() {
    let (_peer, mut link) = engine();
    let (mut model, mut random) = (Engine::default(), Random::new(12));
    // They have the millisecond of their begin, which is another one in the model.
    let mut epochs = [String::new(), String::new()];
    let folders = ["n1", "n2"].map(|node| Folder {
        prefix: "p".to_owned(),
        name: "one".to_owned(),
        node: node.to_owned(),
        // It does not end while the test runs: the model's clock is not the engine's.
        lock_ms: 600_000,
    });
    for n in 0..300 {
        let folder = &folders[random.below(2) as usize];
        let want = match random.below(4) {
            0 => Want::Look,
            1 => Want::Get,
            _ => Want::Keep(1 + random.below(n / 4 + 2)),
        };
        let files: Vec<_> = (0..random.below(3))
            .map(|_| {
                (format!("f{}", random.below(5)), (random.below(4) > 0).then(|| b"x\0y".to_vec()))
            })
            .collect();
        let (version, is_known) = (random.below(n + 1), random.below(4) > 0);
        let [call, modelled] = epochs.each_ref().map(|epoch| {
            let epoch = if is_known { epoch.clone() } else { "another".to_owned() };
            folder.call(want, &Cursor { epoch, version }, &files)
        });
        let now = clock(&mut link);
        let real = link.exchange(&[call]).unwrap().remove(0);
        let modelled = model.run(&modelled, now);
        let [mut real, mut modelled] =
            [&real, &modelled].map(|answer| fleet::folder::outcome(answer).unwrap());
        epochs = [&mut real, &mut modelled].map(|of| std::mem::take(&mut of.cursor.epoch));
        assert_eq!(epochs[0].is_empty(), epochs[1].is_empty(), "{n}");
        assert_eq!(real, modelled, "{n}: {want:?}");
    }
}

#[test]
fn a_file_that_was_removed_long_ago_leaves_the_index() {
    let (_peer, mut link) = engine();
    let texts = ["p", "one", "n1"].map(str::to_owned);
    let [prefix, name, node] = texts;
    let folder = Folder { prefix, name, node, lock_ms: 600_000 };
    let run = |link: &mut Link, want, files: &[(&str, Option<&str>)]| {
        let file = |(name, text): &(&str, Option<&str>)| {
            ((*name).to_owned(), text.map(|text| text.as_bytes().to_vec()))
        };
        let files: Vec<_> = files.iter().map(file).collect();
        let call = folder.call(want, &Cursor::default(), &files);
        fleet::folder::outcome(&link.exchange(&[call]).unwrap()[0]).unwrap().files
    };
    run(&mut link, Want::Get, &[]);
    run(&mut link, Want::Keep(1), &[("x", Some("1")), ("y", Some("2"))]);
    run(&mut link, Want::Keep(1), &[("x", None), ("y", None)]);
    let mut long_ago = redis::cmd("ZADD");
    long_ago.arg("p:{a:one}:g").arg(1).arg("x");
    link.run(&[long_ago]).unwrap();
    let files = run(&mut link, Want::Keep(1), &[("z", Some("3"))]);
    assert_eq!(files, [("y".to_owned(), None), ("z".to_owned(), Some(b"3".to_vec()))]);
    // An older server brings a file back and leaves the note that it is gone.
    run(&mut link, Want::Keep(1), &[("y", Some("4"))]);
    let mut long_ago = redis::cmd("ZADD");
    long_ago.arg("p:{a:one}:g").arg(1).arg("y");
    link.run(&[long_ago]).unwrap();
    let files = run(&mut link, Want::Keep(1), &[("z", Some("5"))]);
    let file = |name: &str, text: &str| (name.to_owned(), Some(text.as_bytes().to_vec()));
    assert_eq!(files, [file("y", "4"), file("z", "5")]);
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
