//! A new binary takes over a cache: warm at once, with an index that one manager writes at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::origin::{Answer, Origin};
use cache::index_format::{FILE_HEADER, ReadStep, read};
use testkit::{
    Conn, Daemon, Driver, Response, Site, built_binary, is_alive, on_all_drivers, signal, wait_for,
};

/// A server with a cache, in the background.
struct Cached {
    daemon: Daemon,
    port: u16,
}

impl Cached {
    fn start(driver: Driver, origin: &Origin) -> Cached {
        let text = format!(
            "worker_processes 2; pid logs/weir.pid; error_log logs/error.log info; events {{}}
             http {{
             proxy_cache_path cache levels=1:2 keys_zone=one:1m inactive=10m use_temp_path=off
                              purger=on purger_files=100 purger_sleep=1ms;
             map $request_method $purges {{ PURGE 1; default 0; }}
             proxy_cache_key $uri;
             proxy_cache_purge $purges;
             add_header X-Cache $upstream_cache_status;
             server {{ listen 127.0.0.1:%PORT0%;
                 location / {{ proxy_pass http://127.0.0.1:{}; proxy_cache one;
                              proxy_cache_lock on; }}
                 location = /status {{ stub_status json; }} }} }}",
            origin.port
        );
        let mut site = Site::new(built_binary(), driver).config(&text);
        let port = site.port(0);
        Cached { daemon: Daemon::start(site), port }
    }

    fn request(&self, method: &str, path: &str) -> Response {
        let mut conn = Conn::tcp(self.port);
        conn.send(format!("{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
        conn.response()
    }

    fn get(&self, path: &str) -> (String, String) {
        let response = self.request("GET", path);
        (response.header("X-Cache").unwrap_or("-").to_owned(), response.text())
    }

    fn status_says(&self, text: &str) -> bool {
        self.request("GET", "/status").text().contains(text)
    }

    /// Files of responses.
    fn kept(&self) -> usize {
        let mut count = 0;
        let mut folders = vec![self.daemon.file("cache")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.path() {
                    path if path.is_dir() => folders.push(path),
                    path => count += usize::from(path.file_name().unwrap().len() == 32),
                }
            }
        }
        count
    }

    /// Journals of the index, and the processes that keep them.
    fn keepers(&self) -> BTreeMap<PathBuf, u32> {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let mut found = BTreeMap::new();
        let entries = std::fs::read_dir(self.daemon.file("cache/.weir.index"));
        for entry in entries.into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            let inode = format!(":{}", meta.ino());
            let line = locks.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
            let mut ours = line.filter(|l| l.get(5).is_some_and(|file| file.ends_with(&inode)));
            if let Some(line) = ours.find(|l| l.get(1) == Some(&"FLOCK")) {
                found.insert(entry.path(), line[4].parse().unwrap());
            }
        }
        found
    }
}

/// The parent of a process.
fn parent(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit(") ").next().unwrap_or_default();
    rest.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// The number of records in a journal.
fn records(path: &Path) -> usize {
    let bytes = std::fs::read(path).unwrap_or_default();
    let mut rest = bytes.get(FILE_HEADER..).unwrap_or_default();
    let mut count = 0;
    while let ReadStep::Record(_, len) = read(rest, true) {
        count += 1;
        rest = &rest[len..];
    }
    count
}

#[test]
fn a_new_binary_is_warm_at_once() {
    on_all_drivers(|driver| {
        let origin = Origin::start(|asked| Answer::of(format!("{} {}", asked.target, asked.count)));
        let cached = Cached::start(driver, &origin);
        let loaded = |what: &str| {
            wait_for(what, || cached.status_says("\"loaded\":true").then_some(()));
        };
        loaded("the first loader");
        let all: Vec<String> = (0..30).map(|n| format!("/{n}")).collect();
        all.iter().for_each(|path| drop(cached.get(path)));
        wait_for("the files", || (cached.kept() == 30).then_some(()));
        let all_hit = |count: usize| {
            for path in &all {
                assert_eq!(cached.get(path), ("HIT".to_owned(), format!("{path} {count}")));
            }
        };
        let journal = wait_for("the journal", || {
            cached.keepers().into_iter().find(|(path, _)| records(path) == 30)
        });
        for round in 1..=2 {
            let (old, new) = cached.daemon.upgrade();
            if round == 1 {
                // There was no index: the new one makes it, and leaves the old one's journal alone.
                wait_for("two journals", || (cached.keepers().len() == 2).then_some(()));
                assert_eq!(cached.keepers().get(&journal.0), Some(&journal.1));
            }
            // Either server answers from the cache; a new response is kept by the one that fetched
            // it.
            all_hit(1);
            let fresh = |n: usize| format!("/new-{round}-{n}");
            for n in 0..10 {
                assert_eq!(cached.get(&fresh(n)).1, format!("{} 1", fresh(n)));
            }
            // Each of the two has a journal of its own as long as both run.
            let keepers = cached.keepers();
            let masters: BTreeSet<u32> = keepers.values().map(|pid| parent(*pid)).collect();
            assert_eq!(masters.len(), keepers.len(), "{keepers:?}");
            assert!(masters.iter().all(|pid| [old, new].contains(pid)), "{keepers:?}");
            signal(old, "QUIT");
            wait_for("the old server's end", || (!is_alive(old)).then_some(()));
            loaded("the loader");
            all_hit(1);
            for n in 0..10 {
                let path = fresh(n);
                wait_for("it to be kept", || {
                    let is_hit = cached.get(&path).0 == "HIT";
                    if !is_hit {
                        // Asked for meanwhile, it would be fetched once more.
                        std::thread::sleep(Duration::from_millis(200));
                    }
                    is_hit.then_some(())
                });
                assert!(origin.count(&path) <= 2, "what the old one fetched at the end");
            }
            // Nothing is lost, and nothing is there twice.
            let there = 30 + 10 * round;
            assert_eq!(cached.kept(), there);
            assert!(cached.status_says(&format!("\"entries\":{there},")));
            wait_for("the keys", || cached.status_says("\"unindexed\":0,").then_some(()));
            let mine = cached.keepers().into_values().all(|pid| parent(pid) == new);
            assert!(mine, "{:?}", cached.keepers());
        }
        let log = cached.daemon.log();
        assert!(!log.contains("[crit]"), "{log}");
        assert!(log.contains("30 entries of the index"), "{log}");
        let said = cached.request("PURGE", "/*").text();
        assert_eq!(said, "{\"purged\":50,\"complete\":true}\n");
        wait_for("the files to go", || (cached.kept() == 0).then_some(()));
        assert_eq!(cached.get("/1"), ("MISS".to_owned(), "/1 2".to_owned()));
    });
}
