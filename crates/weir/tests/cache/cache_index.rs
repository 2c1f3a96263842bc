//! The index of a cache: warm restarts, and purges by key, prefix and tag.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::origin::{Answer, Asked, Origin, ask, pair};
use cache::index_format::{FILE_HEADER, ReadStep, Record, read};
use testkit::{Driver, Site, Weir, built_binary, each_driver, wait_for};

/// Two workers, and two caches in front of an origin.
fn site(driver: Driver, origin: &Origin, path: &str, main: &str) -> Site {
    Site::new(built_binary(), driver).config(&text(origin, path, main, "1m"))
}

fn text(origin: &Origin, path: &str, main: &str, size: &str) -> String {
    format!(
        "{main} error_log logs/error.log info; events {{}}
         http {{
         proxy_cache_path cache levels=1:2 keys_zone=one:{size} inactive=10m {path};
         proxy_cache_path second keys_zone=two:1m inactive=10m use_temp_path=off;
         map $request_method $purges {{ PURGE 1; default 0; }}
         proxy_cache_key $uri;
         proxy_cache_purge $purges;
         add_header X-Cache $upstream_cache_status;
         server {{ listen 127.0.0.1:%PORT0%;
             location / {{ proxy_pass http://127.0.0.1:{0}; proxy_cache one; }}
             location /two/ {{ proxy_pass http://127.0.0.1:{0}; proxy_cache two; }}
             location = /status {{ stub_status json; }} }} }}",
        origin.port
    )
}

const TWO: &str = "worker_processes 2;";

/// Files of purged entries are deleted at once: without a pace, the rests between two deletions
/// grow with the time that a busy machine takes for one.
const AT_ONCE: &str = "purger=on purger_files=100 purger_sleep=1ms";

/// Tags are the letters of the last part of the path.
fn answer(asked: &Asked) -> Answer {
    let mut answer = Answer::of(format!("{} {}", asked.target, asked.count));
    let tags: Vec<String> =
        asked.target.rsplit('/').next().unwrap_or("").chars().map(String::from).collect();
    if let Some(accept) = asked.field("Accept-Language") {
        answer.fields += "Vary: Accept-Language\r\n";
        answer.body = format!("{accept} {}", asked.count).into();
    }
    answer.fields += &format!("Cache-Tag: {}\r\n", tags.join(", "));
    answer
}

/// Waits for the next second of the clock.
fn next_second() {
    let seconds = || std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_secs();
    let now = seconds();
    wait_for("the next second", || (seconds() > now).then_some(()));
}

/// Responses that all caches have kept so far.
fn fills(weir: &Weir) -> usize {
    counted(weir, "fills")
}

/// The sum of one counter over all caches.
fn counted(weir: &Weir, name: &str) -> usize {
    let status = weir.get("/status").text();
    let before = format!("\"{name}\":");
    let counts = status.split(&before).skip(1);
    counts.map(|rest| rest.split(',').next().unwrap().parse::<usize>().unwrap()).sum()
}

/// Requests a missing entry, and waits until it is kept, which happens behind the answer.
fn fetch(weir: &Weir, path: &str, fields: &str, body: &str) {
    let before = fills(weir);
    let response = weir.request("GET", path, fields);
    assert_eq!((response.header("X-Cache"), &response.text()[..]), (Some("MISS"), body), "{path}");
    wait_for("the file", || (fills(weir) > before).then_some(()));
}

fn purge(weir: &Weir, path: &str, fields: &str) -> String {
    let response = weir.request("PURGE", path, fields);
    assert_eq!(response.status, 200, "{path}");
    assert_eq!(response.header("Content-Type"), Some("application/json"));
    response.text()
}

fn purged(n: usize) -> String {
    format!("{{\"purged\":{n},\"complete\":true}}\n")
}

/// Files of responses.
fn kept(weir: &Weir, folder: &str) -> Vec<String> {
    let mut files = weir.files_below(folder);
    files.retain(|f| f.rsplit('/').next().is_some_and(|name| name.len() == 32));
    files
}

/// Files of the index.
fn index(weir: &Weir) -> Vec<String> {
    let mut files = weir.files_below("cache/.weir.index");
    files.retain(|f| std::fs::metadata(f).is_ok_and(|m| m.len() > 32));
    files
}

/// Asks for so many paths until they are kept, and waits until the index knows them.
fn fill(weir: &Weir, n: usize) {
    (0..n).for_each(|i| drop(ask(weir, &format!("/{i}"))));
    wait_for("the files", || (fills(weir) == n).then_some(()));
    assert_eq!(kept(weir, "cache").len(), n);
    wait_for("the journal", || has_indexed(weir, n).then_some(()));
}

fn all_hit(weir: &Weir, n: usize) {
    for i in 0..n {
        assert_eq!(ask(weir, &format!("/{i}")), pair("HIT", &format!("/{i} 1")));
    }
}

/// kill -9 of all processes.
fn kill(weir: &Weir) {
    let mut all = weir.children_of(weir.pid());
    all.insert(0, weir.pid());
    all.into_iter().for_each(|pid| weir.signal_to(pid, "KILL"));
}

/// Kills all processes and starts the server again.
fn kill_and_start(weir: &mut Weir) {
    kill(weir);
    weir.restart();
}

/// Waits until the indexes have the keys of all files that are met, in both caches.
fn wait_for_keys(weir: &Weir) {
    wait_for("the keys", || (counted(weir, "unindexed") == 0).then_some(()));
}

/// The loader of this start has seen all files of both caches.
fn wait_for_loader(weir: &Weir) {
    wait_for("the loader", || {
        let status = weir.get("/status").text();
        (status.matches("\"loaded\":true").count() == 2).then_some(())
    });
}

#[test]
fn warm_after_a_restart() {
    each_driver(|driver| {
        let origin = Origin::start(answer);
        let mut weir = site(driver, &origin, "", TWO).start();
        fill(&weir, 30);
        weir.restart();
        all_hit(&weir, 30);
        weir.wait_for_log("error.log", "30 entries of the index");
        wait_for_loader(&weir);
        all_hit(&weir, 30);
        // One that is asked for before the index is read is found by its file.
        wait_for_keys(&weir);
        let status = weir.get("/status").text();
        assert!(status.contains("\"entries\":30,"), "{status}");
        weir.restart();
        wait_for("the index", || {
            let status = weir.get("/status").text();
            status.contains("\"indexed\":30,\"unindexed\":0").then_some(())
        });
        // A file removed behind the server's back is noticed, and the others stay.
        std::fs::remove_file(&kept(&weir, "cache")[0]).unwrap();
        weir.restart();
        weir.wait_for_log("error.log", "1 files in");
        let hits = (0..30).filter(|i| ask(&weir, &format!("/{i}")).0 == "HIT").count();
        assert_eq!(hits, 29);
    });
}

#[test]
fn killed_in_the_midst() {
    let origin = Origin::start(answer);
    let mut weir = site(Driver::usual(), &origin, "", TWO).allow("signal 9").start();
    for round in 0..4 {
        let paths: Vec<String> = (0..40).map(|i| format!("/{round}-{i}")).collect();
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                for path in &paths {
                    // Killed under its client, or not up.
                    let _ = std::panic::catch_unwind(|| weir.get(path));
                }
            });
            std::thread::sleep(Duration::from_millis(10 * round));
            for pid in weir.processes() {
                testkit::signal(pid, "KILL");
            }
            asking.join().unwrap();
        });
        weir.restart();
        for path in &paths {
            let before = fills(&weir);
            let (status, body) = ask(&weir, path);
            let count = origin.count(path);
            assert!((1..=count).any(|n| body == format!("{path} {n}")), "{path}: {body}");
            assert!(status == "HIT" || body == format!("{path} {count}"), "{status} {body}");
            // Not by asking: another worker would fetch it, too, and be at it when all is purged.
            wait_for("the file", || (status == "HIT" || fills(&weir) > before).then_some(()));
            assert_eq!(ask(&weir, path).0, "HIT", "{path}");
        }
        // The index and the files agree.
        let all = 40 * (round as usize + 1);
        wait_for("the files", || (kept(&weir, "cache").len() == all).then_some(()));
        wait_for_loader(&weir);
        wait_for_keys(&weir);
        wait_for("the entries", || (counted(&weir, "entries") == all).then_some(()));
    }
    assert_eq!(purge(&weir, "/*", ""), purged(160));
}

/// The names of the files that the index tells of, in order; `None` where a file of the index was
/// replaced meanwhile.
fn indexed(weir: &Weir) -> Option<Vec<String>> {
    let mut all = BTreeSet::new();
    let mut files = index(weir);
    // The index before the journals, and these by their age.
    files.sort();
    for file in files {
        let bytes = std::fs::read(file).ok()?;
        let mut rest = &bytes[FILE_HEADER..];
        while let ReadStep::Record(record, len) = read(rest, true) {
            let name = |hash: &[u8]| hash.iter().map(|b| format!("{b:02x}")).collect::<String>();
            match record {
                Record::Put(entry) => drop(all.insert(name(&entry.hash))),
                Record::Gone(hash) => drop(all.remove(&name(&hash))),
                _ => {}
            }
            rest = &rest[len..];
        }
    }
    Some(all.into_iter().collect())
}

/// Whether the index tells of so many files.
fn has_indexed(weir: &Weir, n: usize) -> bool {
    indexed(weir).is_some_and(|names| names.len() == n)
}

/// Waits until the index and the files agree.
fn wait_for_index(weir: &Weir) {
    wait_for("the index", || {
        let names = kept(weir, "cache").into_iter();
        let mut names: Vec<_> = names.map(|f| f.rsplit('/').next().unwrap().to_owned()).collect();
        names.sort();
        (!names.is_empty() && Some(names) == indexed(weir)).then_some(())
    });
}

#[test]
fn what_is_gone_is_gone_from_the_index() {
    each_driver(|driver| {
        let origin = Origin::start(|asked| {
            let mut answer = answer(asked);
            answer.body = vec![b'x'; 100_000];
            answer
        });
        let mut weir = site(driver, &origin, "max_size=1m", TWO).start();
        wait_for_loader(&weir);
        // Workers make room themselves: the manager looks every ten seconds.
        for n in 0..60 {
            assert_eq!(weir.get(&format!("/{n}")).body.len(), 100_000);
        }
        // If threads are slow there is no room for some responses.
        let done = || fills(&weir) + counted(&weir, "no_room");
        wait_for("the files", || (done() == 60).then_some(()));
        assert!(kept(&weir, "cache").len() < 40);
        wait_for_index(&weir);
        // One that was cut behind the server's back, and one that is not there.
        let files = kept(&weir, "cache");
        let (cut, gone) = (files.first().unwrap(), files.last().unwrap());
        std::fs::write(cut, b"weir").unwrap();
        std::fs::remove_file(gone).unwrap();
        weir.restart();
        weir.wait_for_log("error.log", &format!("{} entries of the index", files.len()));
        wait_for_loader(&weir);
        wait_for_index(&weir);
    });
}

#[test]
fn a_damaged_index_is_not_believed() {
    let origin = Origin::start(answer);
    let mut weir = site(Driver::usual(), &origin, "", "").start();
    fill(&weir, 30);
    // A byte in the middle, the end cut off, another version, not ours, and none at all.
    let damages: [fn(&mut Vec<u8>); 5] = [
        |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        },
        |bytes| bytes.truncate(bytes.len() - 5),
        |bytes| bytes[8] = 9,
        |bytes| *bytes = vec![b'x'; 5000],
        Vec::clear,
    ];
    for (round, damage) in damages.into_iter().enumerate() {
        weir.signal("TERM");
        weir.wait_for_end();
        let files = index(&weir);
        assert!(!files.is_empty(), "{round}");
        for file in files {
            let mut bytes = std::fs::read(&file).unwrap();
            damage(&mut bytes);
            std::fs::write(&file, bytes).unwrap();
        }
        weir.write("logs/error.log", "");
        weir.restart();
        all_hit(&weir, 30);
        weir.wait_for_log("error.log", if round == 2 { "has version 9" } else { "damaged" });
        wait_for_loader(&weir);
        wait_for_keys(&weir);
        all_hit(&weir, 30);
    }
    // The damage may be found once more, by the task that writes the index: files are read again.
    wait_for("a whole index", || (purge(&weir, "/none*", "") == purged(0)).then_some(()));
    assert_eq!(purge(&weir, "/1*", ""), purged(11));
    assert_eq!(ask(&weir, "/1"), pair("MISS", "/1 2"));
    assert_eq!(ask(&weir, "/2"), pair("HIT", "/2 1"));
}

#[test]
fn a_reload_while_the_folder_is_read() {
    each_driver(|driver| {
        let origin = Origin::start(answer);
        let mut weir = site(driver, &origin, "loader_files=1 loader_sleep=100ms", TWO).start();
        fill(&weir, 30);
        weir.restart();
        weir.wait_for_log("error.log", "30 entries of the index");
        assert!(weir.get("/status").text().contains("\"loaded\":false"));
        weir.reload();
        wait_for_loader(&weir);
        assert_eq!(purge(&weir, "/*", ""), purged(30));
    });
}

#[test]
fn warm_after_a_reload_with_another_size() {
    let origin = Origin::start(answer);
    let mut weir = site(Driver::usual(), &origin, "", TWO).start();
    fill(&weir, 30);
    for size in ["2m", "512k", "512k"] {
        weir.set_config(&text(&origin, "", TWO, size));
        weir.reload();
        wait_for_loader(&weir);
        all_hit(&weir, 30);
    }
    // The processes of the first configuration are gone, and the entries kept now are known.
    wait_for("the old processes", || {
        (weir.log("error.log").matches(": exiting\n").count() >= 9).then_some(())
    });
    fetch(&weir, "/more/x", "", "/more/x 1");
    // They have told that they leave; all of the index is known when they have.
    wait_for("all of the index", || (purge(&weir, "/none", "") == purged(0)).then_some(()));
    assert_eq!(purge(&weir, "/more/*", ""), purged(1));
    assert_eq!(purge(&weir, "/*", ""), purged(30));
}

#[test]
fn purged_by_key_prefix_and_tag() {
    each_driver(|driver| {
        let origin = Origin::start(answer);
        let weir = site(driver, &origin, &format!("memory=1m {AT_ONCE}"), TWO).start();
        wait_for_loader(&weir);
        let paths = ["/a/rg", "/a/rb", "/b/gb", "/b/x", "/two/rg", "/two/x"];
        // Both workers have them in memory.
        let stays = |path: &str, n: usize| {
            for _ in 0..8 {
                assert_eq!(ask(&weir, path), pair("HIT", &format!("{path} {n}")), "{path}");
            }
        };
        let gone = |path: &str, n: usize| {
            fetch(&weir, path, "", &format!("{path} {n}"));
            stays(path, n);
        };
        paths.iter().for_each(|path| gone(path, 1));
        assert_eq!(purge(&weir, "/none", ""), purged(0));
        assert_eq!(purge(&weir, "/b/x", ""), purged(1));
        assert_eq!(kept(&weir, "cache").len(), 3);
        gone("/b/x", 2);
        assert_eq!(purge(&weir, "/a/*", ""), purged(2));
        gone("/a/rg", 2);
        gone("/a/rb", 2);
        stays("/b/gb", 1);
        // By tag, in the cache of that place alone.
        assert_eq!(purge(&weir, "/", "Cache-Tag: b, x\r\n"), purged(3));
        gone("/a/rb", 3);
        gone("/b/gb", 2);
        gone("/b/x", 3);
        stays("/a/rg", 2);
        stays("/two/x", 1);
        assert_eq!(purge(&weir, "/two/", "Surrogate-Key: r nobody\r\n"), purged(1));
        gone("/two/rg", 2);
        stays("/a/rg", 2);
        assert_eq!(purge(&weir, "/two/*", ""), purged(2));
        // Nobody else may: it is passed on as any request is.
        let status = weir.request("GET", "/a/rg", "").header("X-Cache").map(str::to_owned);
        assert_eq!(status.as_deref(), Some("HIT"));
        wait_for("the files to go", || kept(&weir, "second").is_empty().then_some(()));
        let status = weir.get("/status").text();
        assert!(status.contains("\"purged\":6,") && status.contains("\"purged\":3,"), "{status}");
    });
}

#[test]
fn variants_go_with_their_key() {
    let origin = Origin::start(answer);
    let mut weir = site(Driver::usual(), &origin, "", TWO).start();
    let fields = |language: &str| format!("Accept-Language: {language}\r\n");
    let fetch_and_hit = |language: &str, n: usize| {
        fetch(&weir, "/v", &fields(language), &format!("{language} {n}"));
        let response = weir.request("GET", "/v", &fields(language));
        assert_eq!(response.header("X-Cache"), Some("HIT"), "{language} {n}");
        assert_eq!(response.text(), format!("{language} {n}"));
    };
    [("de", 1), ("fr", 2), ("it", 3)].iter().for_each(|(language, n)| fetch_and_hit(language, *n));
    assert_eq!(kept(&weir, "cache").len(), 3);
    assert_eq!(purge(&weir, "/v", ""), purged(3));
    // A purge that is not finished at a restart also covers entries fetched in its second.
    next_second();
    [("it", 4), ("de", 5), ("fr", 6)].iter().for_each(|(language, n)| fetch_and_hit(language, *n));
    weir.restart();
    let said = purge(&weir, "/v", "");
    assert!(said.starts_with("{\"purged\":3,"), "{said}");
    fetch(&weir, "/v", &fields("fr"), "fr 7");
}

#[test]
fn what_is_being_fetched_is_not_kept() {
    let origin = Origin::start(|asked| {
        let mut answer = answer(asked);
        if asked.count == 1 {
            answer.body = vec![b'x'; 200_000];
            (answer.pieces, answer.pause) = (10, Duration::from_millis(100));
        }
        answer
    });
    let weir = site(Driver::usual(), &origin, "", TWO).start();
    wait_for_loader(&weir);
    let purges =
        [("/a/x", "/a/x", ""), ("/b/y", "/b/*", ""), ("/c/z", "/", "Surrogate-Key: z\r\n")];
    for (path, by, fields) in purges {
        let mut first = weir.connect();
        first.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        // It is in the midst of its fetch.
        first.read_until(b"\r\n\r\nxxxx");
        assert_eq!(purge(&weir, by, fields), purged(0), "{path}");
        // New requests do not get it, and it does not replace the new one.
        assert_eq!(ask(&weir, path).1, format!("{path} 2"));
        assert_eq!(first.read_to_end(), vec![b'x'; 200_000 - 4]);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(ask(&weir, path).1.len(), path.len() + 2, "{path}");
    }
}

#[test]
fn a_purge_outlives_the_server() {
    let origin = Origin::start(answer);
    let slow = "purger=on purger_files=1 purger_sleep=20s";
    let mut weir = site(Driver::usual(), &origin, slow, "").allow("signal 9").start();
    fill(&weir, 10);
    wait_for_loader(&weir);
    assert_eq!(purge(&weir, "/*", ""), purged(10));
    assert!(kept(&weir, "cache").len() >= 8, "the purger deletes them in its own time");
    kill_and_start(&mut weir);
    // The files are there, and nobody gets them.
    for i in 0..10 {
        let body = format!("/{i} 2");
        assert_eq!(ask(&weir, &format!("/{i}")).1, body);
    }
    assert!(weir.log("error.log").contains("entries of the index"));
}

/// Files are deleted slowly while the cache is asked, and a purge has its place until they are.
#[test]
fn purges_behind_a_large_one_find_room() {
    let origin = Origin::start(answer);
    let weir = site(Driver::usual(), &origin, "", TWO).start();
    fill(&weir, 1500);
    wait_for_loader(&weir);
    assert_eq!(purge(&weir, "/*", ""), purged(1500));
    assert!(kept(&weir, "cache").len() > 500, "the most of them are there yet");
    // More than there is room for.
    for n in 0..20 {
        let tags: Vec<String> = (0..64).map(|i| format!("none{n}-{i}")).collect();
        assert_eq!(purge(&weir, "/", &format!("Cache-Tag: {}\r\n", tags.join(", "))), purged(0));
    }
    wait_for("the files to go", || kept(&weir, "cache").is_empty().then_some(()));
}

/// All records of the index's files that are purges, or tell that one is done.
fn purges_told(weir: &Weir) -> (usize, usize) {
    let (mut begun, mut done) = (0, 0);
    for file in index(weir) {
        let bytes = std::fs::read(file).unwrap_or_default();
        let mut rest = bytes.get(FILE_HEADER..).unwrap_or_default();
        while let ReadStep::Record(record, len) = read(rest, true) {
            let of_key = matches!(record, Record::Purged { .. });
            begun += usize::from(of_key || matches!(record, Record::Mark(_)));
            done += usize::from(of_key || matches!(record, Record::Cleared(_)));
            rest = &rest[len..];
        }
    }
    (begun, done)
}

/// A process that is killed between giving a file its place and telling of it, or between taking
/// an entry out and deleting its file, leaves files in their places of which no zone knows.
#[test]
fn purges_are_of_files_that_nobody_knew_of() {
    let origin = Origin::start(answer);
    let mut weir = site(Driver::usual(), &origin, AT_ONCE, TWO).allow("signal 9").start();
    wait_for_loader(&weir);
    let mut files = Vec::new();
    for path in ["/a/x", "/b/y", "/c/z"] {
        fetch(&weir, path, "", &format!("{path} 1"));
        let file = kept(&weir, "cache").remove(0);
        files.push((file.clone(), std::fs::read(&file).unwrap()));
        assert_eq!(purge(&weir, path, ""), purged(1));
        assert_eq!(kept(&weir, "cache").len(), 0);
    }
    let leave = |n: usize| std::fs::write(&files[n].0, &files[n].1).unwrap();
    // The index listed it once: a purge finds it.
    (0..2).for_each(leave);
    assert_eq!(purge(&weir, "/a/*", ""), purged(0));
    assert_eq!(purge(&weir, "/", "Cache-Tag: y\r\n"), purged(0));
    wait_for("the files to go", || kept(&weir, "cache").is_empty().then_some(()));
    fetch(&weir, "/stays", "", "/stays 1");
    wait_for("the journal", || {
        let (begun, done) = purges_told(&weir);
        (begun >= 3 && begun == done && has_indexed(&weir, 1)).then_some(())
    });
    // Files that appear even later are not trusted at the next start.
    (0..3).for_each(leave);
    kill_and_start(&mut weir);
    assert_eq!(ask(&weir, "/a/x"), pair("MISS", "/a/x 2"));
    assert_eq!(ask(&weir, "/stays"), pair("HIT", "/stays 1"));
    wait_for("the others to go", || (kept(&weir, "cache").len() == 2).then_some(()));
    // Nor where the journals of these purges have become an index.
    wait_for("a new index", || {
        let has = |name: &str| index(&weir).iter().any(|file| file.ends_with(name));
        (has("/entries") && purges_told(&weir) == (1, 1)).then_some(())
    });
    (1..3).for_each(leave);
    kill_and_start(&mut weir);
    for path in ["/b/y", "/c/z"] {
        assert_eq!(ask(&weir, path), pair("MISS", &format!("{path} 2")));
    }
    assert_eq!(ask(&weir, "/stays"), pair("HIT", "/stays 1"));
}

#[test]
fn purged_before_anybody_knows_the_keys() {
    let origin = Origin::start(answer);
    // It has not come far when the first requests come, even where those come late.
    let mut weir =
        site(Driver::usual(), &origin, &format!("loader_files=1 loader_sleep=150ms {AT_ONCE}"), "")
            .start();
    fill(&weir, 30);
    weir.signal("TERM");
    weir.wait_for_end();
    std::fs::remove_dir_all(weir.prefix().join("cache/.weir.index")).unwrap();
    // Marks tell seconds where they meet files of a start before.
    next_second();
    weir.restart();
    let said = purge(&weir, "/1*", "");
    assert!(said.contains("\"complete\":false"), "{said}");
    assert_eq!(ask(&weir, "/17"), pair("MISS", "/17 2"));
    assert_eq!(ask(&weir, "/2"), pair("HIT", "/2 1"));
    wait_for_loader(&weir);
    wait_for("the others to go", || (kept(&weir, "cache").len() == 20).then_some(()));
    assert_eq!(ask(&weir, "/19"), pair("MISS", "/19 2"));
    assert_eq!(ask(&weir, "/29"), pair("HIT", "/29 1"));
}

/// A machine that stops, or a process that is killed while it renames a file, can bring back the
/// very files that were purged a moment before.
#[test]
fn a_purge_by_key_is_told_before_it_is_answered() {
    let origin = Origin::start(answer);
    let mut weir = site(Driver::usual(), &origin, "", TWO).allow("signal 9").start();
    fill(&weir, 4);
    wait_for_loader(&weir);
    let aside = weir.prefix().join("aside");
    std::fs::create_dir(&aside).unwrap();
    let files = kept(&weir, "cache");
    let keep = |file: &String| aside.join(file.rsplit('/').next().unwrap());
    files.iter().for_each(|file| std::fs::hard_link(file, keep(file)).unwrap());
    for path in ["/0", "/1", "/2"] {
        assert_eq!(purge(&weir, path, ""), purged(1));
    }
    // One of them is fetched anew before the end.
    fetch(&weir, "/1", "", "/1 2");
    kill(&weir);
    for file in &files {
        let _ = std::fs::remove_file(file);
        std::fs::hard_link(keep(file), file).unwrap();
    }
    weir.restart();
    for (path, n) in [("/0", 2), ("/1", 3), ("/2", 2)] {
        assert_eq!(ask(&weir, path), pair("MISS", &format!("{path} {n}")));
    }
    assert_eq!(ask(&weir, "/3"), pair("HIT", "/3 1"));
}

/// A process that is killed between giving a file its place and telling of it leaves another file
/// than the index tells of, with other tags.
#[test]
fn files_that_the_index_tells_of_no_more() {
    let origin = Origin::start(|asked| {
        let mut answer = answer(asked);
        let age = if asked.count == 1 { 1 } else { 60 };
        let tag = format!("{}{}", &asked.target[1..], asked.count);
        answer.fields = format!("Cache-Control: max-age={age}\r\nCache-Tag: {tag}\r\n");
        answer
    });
    let mut weir = site(Driver::usual(), &origin, "", TWO).allow("signal 9").start();
    let paths = ["/a", "/b", "/c"];
    wait_for_loader(&weir);
    paths.iter().for_each(|path| fetch(&weir, path, "", &format!("{path} 1")));
    wait_for("the journal", || has_indexed(&weir, 3).then_some(()));
    let old: Vec<_> = index(&weir).into_iter().map(|f| (std::fs::read(&f).unwrap(), f)).collect();
    for path in paths {
        wait_for("another fetch", || (ask(&weir, path).1 == format!("{path} 2")).then_some(()));
    }
    wait_for("the files", || (fills(&weir) == 6).then_some(()));
    kill(&weir);
    index(&weir).iter().for_each(|file| std::fs::remove_file(file).unwrap());
    old.iter().for_each(|(bytes, file)| std::fs::write(file, bytes).unwrap());
    weir.restart();
    // At once: by its new tag it is not served.
    let said = purge(&weir, "/", "Cache-Tag: c2\r\n");
    assert!(said.starts_with("{\"purged\":"), "{said}");
    assert_eq!(ask(&weir, "/c").1, "/c 3");
    wait_for_loader(&weir);
    wait_for_keys(&weir);
    // And the old ones say nothing about the present entries.
    assert_eq!(purge(&weir, "/", "Cache-Tag: b1\r\n"), purged(0));
    assert_eq!(ask(&weir, "/b"), pair("HIT", "/b 2"));
    assert_eq!(purge(&weir, "/", "Cache-Tag: a2\r\n"), purged(1));
    assert_eq!(ask(&weir, "/a"), pair("MISS", "/a 3"));
}

#[test]
fn tags_that_a_response_has_no_more() {
    let origin = Origin::start(|asked| {
        let mut answer = answer(asked);
        let tag = format!("t{}", asked.count);
        answer.fields = format!("Cache-Control: max-age=1\r\nCache-Tag: {tag}\r\n");
        answer
    });
    let weir = site(Driver::usual(), &origin, "", TWO).start();
    wait_for_loader(&weir);
    fetch(&weir, "/a", "", "/a 1");
    wait_for("another fetch", || (ask(&weir, "/a").1 == "/a 2").then_some(()));
    wait_for("the file", || (fills(&weir) == 2).then_some(()));
    assert_eq!(purge(&weir, "/", "Cache-Tag: t1\r\n"), purged(0));
    assert_eq!(purge(&weir, "/", "Cache-Tag: t2\r\n"), purged(1));
}

#[test]
fn journals_of_many_reloads_are_merged() {
    each_driver(|driver| {
        let origin = Origin::start(answer);
        let weir = site(driver, &origin, "", TWO).start();
        let journals = || {
            let files = weir.files_below("cache/.weir.index");
            files.iter().filter(|name| name.contains("/journal.")).count()
        };
        // Reloads may come faster than a keeper gets to a merge: it is looked for behind them.
        let mut most = 0;
        for n in 0..80 {
            ask(&weir, &format!("/{n}"));
            weir.reload();
            most = most.max(journals());
            if most >= 36 {
                break;
            }
        }
        assert!(most >= 20, "{most} journals at most");
        wait_for("a merge", || (journals() < 32).then_some(()));
    });
}
