//! `three-disks`: a published configuration, word for word, over three file systems in files. A
//! variable chooses zone, folder and thread pool of a request; one of the disks is limited to 1 MB
//! a second, and requests for the other two should not notice.
//!
//! Each disk has clients of its own, which wait for no other disk. They request cached objects,
//! with so little memory for the server that most of them come from the disks; then new objects,
//! which are written. A round is three stretches: without the clients of the second disk, with
//! them, and with them while it is slow.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::origin::{Manner, Origin, is_body};
use crate::cgroup::Group;
use crate::disk::{self, Disk};
use crate::options::Options;
use crate::report::{self, median, ratios, row};
use crate::server::{Kind, Server, Setup};
use crate::{Outcome, server};

const CONFIG: &str = include_str!("../../configs/three-disks.conf");
const DISKS: usize = 3;
const SLOW: usize = 1;
const SLOW_BYTES_PER_SEC: u64 = 1 << 20;
const CLIENTS: usize = 8;
const IMAGE: u64 = 8 << 30;
/// Objects that are kept, on all disks together, and their length.
const KEPT: u64 = 300;
const KEPT_LEN: usize = 1 << 20;
const NEW_LEN: usize = 100 << 10;
/// The server's memory, page cache included: less than the cached objects.
const MEMORY: u64 = 150 << 20;
/// The share of their rate that requests for the other disks keep.
const GOAL: f64 = 0.9;
/// From here on objects are new ones.
const NEW: u64 = 1 << 24;

/// The requests of clients.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Kept,
    New,
}

/// The answers of a stretch, by disk.
type Answers = [f64; DISKS];

/// Requests a second, round by round, in one of the three kinds of stretches.
#[derive(Default)]
struct Series(Vec<Answers>);

impl Series {
    /// The rates of the disks that are not slow.
    fn others(&self) -> Vec<f64> {
        let others = |a: &Answers| (0..DISKS).filter(|d| *d != SLOW).map(|d| a[d]).sum();
        self.0.iter().map(others).collect()
    }

    fn slow(&self) -> Vec<f64> {
        self.0.iter().map(|a| a[SLOW]).collect()
    }
}

/// The hash of `split_clients`.
fn murmur2(text: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut h = text.len() as u32;
    let mut words = text.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        k ^= k >> 24;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = words.remainder();
    for (i, byte) in rest.iter().enumerate() {
        h ^= u32::from(*byte) << (8 * i);
    }
    if !rest.is_empty() {
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ h >> 15
}

/// The disk of an object: thirds of the hash, as in the file.
fn disk_of(object: u64) -> usize {
    let part = f64::from(murmur2(format!("/{object}").as_bytes())) / f64::from(u32::MAX);
    if part < 0.333 { 0 } else { usize::from(part >= 0.666) + 1 }
}

/// Runs the load.
pub fn run(options: &Options, _: &str) -> Outcome {
    disk::enter()?;
    let mut rows = vec![row([
        "server",
        "asked for",
        "files",
        "others/s",
        "beside it",
        "while slow",
        "kept",
        "of alone",
        "slow disk/s",
        "while slow",
        "failed",
    ])];
    let mut failed = Vec::new();
    for &kind in options.servers.iter().filter(|k| k.is_real()) {
        let folder = server::new_folder()?;
        let measured = measure(options, kind, &folder, &mut rows);
        let _ = std::fs::remove_dir_all(&folder);
        let problem = measured?;
        if kind != Kind::Nginx {
            failed.extend(problem);
        }
    }
    report::table(&rows);
    println!("(requests a second; kept: others/s while it is slow over others/s beside it)");
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn measure(
    options: &Options,
    kind: Kind,
    folder: &Path,
    rows: &mut Vec<Vec<String>>,
) -> Outcome<Option<String>> {
    let len = |object, _| if object < NEW { KEPT_LEN } else { NEW_LEN };
    let origin = Origin::start(Manner::plain(len))?;
    let disks = (1..=DISKS)
        .map(|n| Disk::new(&folder.join(format!("disk{n}")), IMAGE))
        .collect::<Outcome<Vec<Disk>>>()?;
    let memory = Group::new("memory", &format!("weir-bench-{}", std::process::id()))?;
    memory.set("memory.limit_in_bytes", &MEMORY.to_string())?;
    let mut fill = vec![
        ("127.0.0.1:9000", format!("127.0.0.1:{}", origin.port)),
        ("listen 8080", "listen 127.0.0.1:%PORT%".to_string()),
    ];
    for (disk, name) in disks.iter().zip(["/mnt/disk1", "/mnt/disk2", "/mnt/disk3"]) {
        fill.push((name, disk.folder().join("kept").display().to_string()));
    }
    let mut problems = Vec::new();
    for what in [What::Kept, What::New] {
        // Where everything is written, the limit of memory would hold up the writers.
        let groups = if what == What::Kept { vec![memory.door()] } else { Vec::new() };
        let fill = fill.clone();
        let setup = Setup { template: CONFIG, fill, cpus: "0-1", groups, ..Setup::default() };
        let (server, _) = Server::start(options, kind, &setup)?;
        if what == What::Kept {
            warm(server.port, &disks)?;
        }
        let (cells, problem) = rounds(options, &server, &disks, what)?;
        rows.push(cells);
        problems.extend(problem);
    }
    Ok((!problems.is_empty()).then(|| problems.join("; ")))
}

/// Fetches all that is to be kept, and compares where it is with where it should be.
fn warm(port: u16, disks: &[Disk]) -> Outcome {
    let mut client = super::client(port);
    let mut wanted = [0; DISKS];
    for object in 1..=KEPT {
        let lost = || format!("{object} is not answered");
        let answer = client.get_once(&format!("/{object}")).map_err(|_| lost())?;
        let fetch = answer.field("X-Fetch").and_then(|f| f.parse().ok()).unwrap_or(0);
        if !is_body(object, fetch, &answer.body, KEPT_LEN) {
            return Err(format!("{object} is answered by another body"));
        }
        wanted[disk_of(object)] += 1;
    }
    let began = Instant::now();
    loop {
        let there: Vec<usize> = disks.iter().map(|d| files(&d.folder().join("kept"))).collect();
        // One of them is the question whether the server was there.
        if there.iter().zip(&wanted).all(|(n, wanted)| *n == *wanted || *n == *wanted + 1) {
            return Ok(());
        }
        if began.elapsed() > super::PATIENCE {
            return Err(format!("files {there:?} instead of {wanted:?}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Files below a folder.
fn files(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let each = entries.flatten().map(|e| match e.file_type() {
        Ok(kind) if kind.is_dir() => files(&e.path()),
        _ => 1,
    });
    each.sum()
}

fn rounds(
    options: &Options,
    server: &Server,
    disks: &[Disk],
    what: What,
) -> Outcome<(Vec<String>, Option<String>)> {
    let [mut alone, mut beside, mut slowed] = [(); 3].map(|()| Series::default());
    let (failed, next) = (AtomicU64::new(0), AtomicU64::new(NEW));
    let stretch = |clients: [usize; DISKS]| {
        stretch(server.port, options.seconds, clients, what, &next, &failed)
    };
    let all = [CLIENTS; DISKS];
    let mut without = all;
    without[SLOW] = 0;
    // The writes of one stretch must not reach into the next.
    let sync = || disks.iter().try_for_each(Disk::sync);
    for _ in 0..options.rounds {
        sync()?;
        alone.0.push(stretch(without));
        sync()?;
        beside.0.push(stretch(all));
        sync()?;
        let slow = disks[SLOW].slow(SLOW_BYTES_PER_SEC)?;
        slowed.0.push(stretch(all));
        drop(slow);
    }
    let failed = failed.into_inner();
    let n = |values: Vec<f64>| format!("{:.0}", median(&values));
    let kept: Vec<f64> = slowed.others().iter().zip(beside.others()).map(|(a, b)| a / b).collect();
    let name = if what == What::Kept { "what is kept" } else { "what is new" };
    let cells = row([
        server.kind.name(),
        name,
        &disks.iter().map(|d| files(d.folder()).to_string()).collect::<Vec<_>>().join("/"),
        &n(alone.others()),
        &n(beside.others()),
        &n(slowed.others()),
        &ratios(&slowed.others(), &beside.others()),
        &ratios(&slowed.others(), &alone.others()),
        &n(beside.slow()),
        &n(slowed.slow()),
        &failed.to_string(),
    ]);
    let problem = if failed > 0 {
        Some(format!("{name}: {failed} requests failed"))
    } else if median(&kept) < GOAL {
        Some(format!("{name}: {:.2} of the rate kept", median(&kept)))
    } else {
        None
    };
    Ok((cells, problem))
}

/// So many clients for each disk, for so long.
fn stretch(
    port: u16,
    seconds: u32,
    clients: [usize; DISKS],
    what: What,
    next: &AtomicU64,
    failed: &AtomicU64,
) -> Answers {
    let length = Duration::from_secs(seconds.into());
    let until = Instant::now() + length;
    let counts = [(); DISKS].map(|()| AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (disk, count) in counts.iter().enumerate() {
            for _ in 0..clients[disk] {
                scope.spawn(move || ask(port, disk, until, what, next, [count, failed]));
            }
        }
    });
    counts.map(|count| count.into_inner() as f64 / length.as_secs_f64())
}

fn ask(
    port: u16,
    disk: usize,
    until: Instant,
    what: What,
    next: &AtomicU64,
    [count, failed]: [&AtomicU64; 2],
) {
    let mut client = super::client(port);
    while Instant::now() < until {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let (object, len) = match what {
            // Neighbours in time are far apart.
            What::Kept => (n.wrapping_mul(7919) % KEPT + 1, KEPT_LEN),
            What::New => (n, NEW_LEN),
        };
        if disk_of(object) != disk {
            continue;
        }
        let answer = client.get_once(&format!("/{object}"));
        if !answer.is_ok_and(|a| a.is_ok() && a.body.len() == len) {
            failed.fetch_add(1, Ordering::Relaxed);
        } else if Instant::now() < until {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_spread_over_disks() {
        assert_eq!(murmur2(b""), 0);
        let mut counts = [0; DISKS];
        (0..3000).for_each(|object| counts[disk_of(object)] += 1);
        assert!(counts.iter().all(|n| (900..1100).contains(n)), "{counts:?}");
    }
}
