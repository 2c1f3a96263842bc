//! A table under several processes, one of which is killed again and again, mostly while it holds
//! the lock.
//!
//! Without the test harness: it has threads, and a process with threads cannot be forked.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use os::process::{Exit, Fork, exit_now, fork, wait_for};
use os::signal::{Signal, kill};
use weir_shm::{Record, Table};

#[derive(Clone, Copy)]
struct Count(u64);

impl Record for Count {
    const WORDS: usize = 1;

    fn to_words(self) -> [u64; 4] {
        [self.0, 0, 0, 0]
    }

    fn from_words(words: [u64; 4]) -> Count {
        Count(words[0])
    }
}

fn child(work: impl FnOnce()) -> i32 {
    match fork().unwrap() {
        Fork::Parent(pid) => pid,
        Fork::Child => {
            work();
            exit_now(0)
        }
    }
}

fn add(table: &Table<Count>, key: &[u8]) {
    let mut t = table.lock();
    match t.find(table.key(key)) {
        Some(entry) => {
            let Count(n) = t.value(entry).unwrap();
            t.set(entry, Count(n + 1));
            t.touch(entry);
        }
        None => drop(t.insert(table.key(key), Count(1)).unwrap()),
    }
}

/// Nothing is lost under contention.
fn counts_add_up() {
    const EACH: u64 = 20_000;
    let table = Table::<Count>::new(64 << 10).unwrap();
    let pids: Vec<i32> = (0..3)
        .map(|_| child(|| (0..EACH).for_each(|n| add(&table, &[b'k', (n % 10) as u8]))))
        .collect();
    for pid in pids {
        assert_eq!(wait_for(pid).unwrap(), Exit::Code(0));
    }
    let t = table.lock();
    for n in 0..10 {
        let entry = t.find(table.key(&[b'k', n])).unwrap();
        assert_eq!(t.value(entry).unwrap().0, EACH / 10 * 3);
    }
}

/// A process that dies with the lock: with a master that says so, and without.
fn the_lock_of_the_dead() {
    for told in [true, false] {
        let table = Table::<Count>::new(64 << 10).unwrap();
        add(&table, b"before");
        let pid = child(|| {
            add(&table, b"inside");
            let _held = table.lock();
            exit_now(7)
        });
        assert_eq!(wait_for(pid).unwrap(), Exit::Code(7));
        if told {
            table.free_of(pid.unsigned_abs());
        }
        add(&table, b"before");
        let t = table.lock();
        let entry = t.find(table.key(b"before")).unwrap();
        assert_eq!(t.value(entry).unwrap().0, 2);
        assert_eq!(t.len(), 2);
    }
}

/// Killed at any moment: the others continue, and their counts are right.
fn killed_in_the_middle() {
    let table = Table::<Count>::new(64 << 10).unwrap();
    let mut mine = 0;
    for round in 0..60u64 {
        let pid = child(|| {
            let mut n = round;
            loop {
                // Entries come and go all the time, with keys of several cells.
                let key = vec![b'x'; (n % 7 * 30 + 1) as usize];
                let mut t = table.lock();
                match t.find(table.key(&key)) {
                    Some(entry) => t.remove(entry),
                    None => drop(t.insert(table.key(&key), Count(n))),
                }
                n += 1;
            }
        });
        let until = Instant::now() + Duration::from_micros(500 + round * 37);
        while Instant::now() < until {
            add(&table, b"mine");
            mine += 1;
        }
        kill(pid, Signal::KILL).unwrap();
        assert!(matches!(wait_for(pid).unwrap(), Exit::Signal { signal: 9, .. }));
        table.free_of(pid.unsigned_abs());
        add(&table, b"mine");
        mine += 1;
        let t = table.lock();
        let entry = t.find(table.key(b"mine")).unwrap();
        assert_eq!(t.value(entry).unwrap().0, mine, "round {round}");
        assert!(t.len() <= 8);
        let mut at = t.oldest();
        let mut entries = 0;
        while let Some(entry) = at {
            entries += 1;
            at = t.newer(entry);
        }
        assert_eq!(entries, t.len());
    }
}

fn main() {
    counts_add_up();
    the_lock_of_the_dead();
    killed_in_the_middle();
    println!("test result: ok");
}
