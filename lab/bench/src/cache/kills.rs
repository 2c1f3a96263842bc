//! `cache-kills`: workers, manager and master are killed at random moments, while responses are
//! written to the cache, and while some of them are purged. Every answer then has to be one fetch
//! of the requested object, whole: each line says which ([`super::origin`]), and an answer
//! requested after a purge was answered must have been fetched after that purge was sent.
//!
//! Answers that break off with their connection are the effect of a kill, and are counted. An
//! answer that ends as if it were whole, and is not, fails the run; so does any failure afterwards.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::origin::{Manner, Origin, TAGS, is_body};
use super::setup;
use crate::http_client::{Answer, Lost};
use crate::options::Options;
use crate::server::{Kind, Server, Setup};
use crate::{Outcome, proc, server};
use testkit::rng::Rng;

const CLIENTS: u64 = 20;
const OBJECTS: usize = 300;
const MANNER: Manner = Manner {
    delay: Duration::from_millis(1),
    piece: 40_000,
    pause: Duration::from_millis(2),
    max_age: 2,
    chunked: true,
    len: |object, fetch| match (object * 7 + fetch) % 5 {
        0 => 500,
        1 => 5_000,
        2 => 60_000,
        3 => 300_000,
        _ => 1_200_000,
    },
};

const DIRECTIVES: &str = "proxy_http_version 1.1;
            proxy_cache_use_stale updating error; proxy_cache_background_update on;
            proxy_cache_revalidate on; proxy_cache_purge $http_x_purge;";

#[derive(Default)]
struct Counts {
    whole: AtomicU64,
    hits: AtomicU64,
    /// Broken off, or not answered, by a kill.
    broken: AtomicU64,
    refused: AtomicU64,
    stuck: AtomicU64,
    wrong: AtomicU64,
    /// Purges that were answered, and those that were not.
    purges: AtomicU64,
    unsure: AtomicU64,
    /// Answers that had been purged before they were asked for.
    late: AtomicU64,
    /// The last fetch of each object that was purged for sure.
    purged: Vec<AtomicU64>,
}

impl Counts {
    fn new() -> Counts {
        let purged = (0..OBJECTS).map(|_| AtomicU64::new(0)).collect();
        Counts { purged, ..Counts::default() }
    }

    /// The oldest fetch that an answer requested now may come from.
    fn floor(&self, object: u64) -> u64 {
        self.purged[object as usize].load(Ordering::SeqCst)
    }
}

fn one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The number of kills by process.
#[derive(Default)]
struct Kills {
    workers: u32,
    helpers: u32,
    masters: u32,
}

impl Kills {
    fn all(&self) -> u32 {
        self.workers + self.helpers + self.masters
    }
}

/// Runs the load against weir.
pub fn run(options: &Options, _: &str) -> Outcome {
    let origin = Origin::start(MANNER)?;
    let folder = server::new_folder()?;
    // Without the lock many fetch one object, and their files meet.
    for (name, path, lock) in [
        ("beside", "1m max_size=40m use_temp_path=off", "on"),
        ("temp path, memory", "1m max_size=40m memory=4m", "on"),
        ("temp path, memory, no lock", "1m max_size=40m memory=4m", "off"),
    ] {
        let directives = format!("proxy_cache_lock {lock}; {DIRECTIVES}");
        let setup = setup(2, origin.port, &folder.join("kept"), path, &directives);
        let ran = storm(options, &setup, &origin, name);
        let _ = std::fs::remove_dir_all(folder.join("kept"));
        if ran.is_err() {
            let _ = std::fs::remove_dir_all(&folder);
            return ran;
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}

fn storm(options: &Options, setup: &Setup, origin: &Origin, name: &str) -> Outcome {
    let (mut server, _) = Server::start(options, Kind::Weir, setup)?;
    let (counts, over) = (Counts::new(), AtomicBool::new(false));
    let port = server.port;
    let kills = std::thread::scope(|scope| {
        let (counts, over) = (&counts, &over);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| scope.spawn(move || client(port, options.seed * 100 + n, over, counts)))
            .collect();
        let purging = scope.spawn(|| purger(port, options.seed, origin, over, counts));
        let kills = kill(options, &mut server, setup);
        over.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|c| drop(c.join()));
        let _ = purging.join();
        kills
    })?;
    let of = |c: &AtomicU64| c.load(Ordering::Relaxed);
    println!(
        "{name}: {} kills ({} workers, {} manager or loader, {} master): {} answers whole, {} of \
         them hits; {} broken off, {} other statuses, {} stuck, {} wrong",
        kills.all(),
        kills.workers,
        kills.helpers,
        kills.masters,
        of(&counts.whole),
        of(&counts.hits),
        of(&counts.broken),
        of(&counts.refused),
        of(&counts.stuck),
        of(&counts.wrong)
    );
    println!(
        "{} purges answered, {} not; {} answers of what had been purged",
        of(&counts.purges),
        of(&counts.unsure),
        of(&counts.late)
    );
    afterwards(&server, &counts)?;
    if of(&counts.purges) == 0 {
        return Err("no purge was answered".to_string());
    }
    match of(&counts.wrong) + of(&counts.stuck) + of(&counts.refused) + of(&counts.late) {
        0 => Ok(()),
        n => Err(format!("{n} answers wrong, stuck, refused or purged: {}", server.complaints())),
    }
}

/// Whether an answer is one fetch of the object, whole.
fn is_right(object: u64, answer: &Answer) -> bool {
    let number = |name: &str| answer.field(name).and_then(|v| v.parse::<u64>().ok());
    let (Some(fetch), Some(len)) = (number("X-Fetch"), number("X-Length")) else { return false };
    is_body(object, fetch, &answer.body, len as usize)
}

/// The fetch of an answer.
fn fetch_of(answer: &Answer) -> u64 {
    answer.field("X-Fetch").and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// Purges from time to time: one object, those with a prefix of numbers, or those of a tag.
fn purger(port: u16, seed: u64, origin: &Origin, over: &AtomicBool, counts: &Counts) {
    let mut rng = Rng::new(seed ^ 0x70_75_72_67_65);
    let mut client = super::client(port);
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(rng.below(100) as u64));
        let n = rng.below(OBJECTS) as u64;
        let (start, tag) = ((n % 10).to_string(), n % TAGS);
        let (path, field, is_of): (_, _, Box<dyn Fn(u64) -> bool>) = match rng.below(3) {
            0 => (format!("/{n}"), String::new(), Box::new(move |o| o == n)),
            1 => {
                let path = format!("/{start}*");
                (path, String::new(), Box::new(move |o| o.to_string().starts_with(&start)))
            }
            _ => {
                let field = format!("Cache-Tag: tag{tag}\r\n");
                ("/".to_string(), field, Box::new(move |o| o % TAGS == tag))
            }
        };
        let before = origin.seen.fetches.load(Ordering::SeqCst);
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-Purge: 1\r\n{field}\r\n");
        let answer = client.ask_once(request.as_bytes());
        if !answer.is_ok_and(|a| a.is_ok() && a.body.starts_with(b"{\"purged\":")) {
            one(&counts.unsure);
            continue;
        }
        one(&counts.purges);
        for object in (0..OBJECTS as u64).filter(|o| is_of(*o)) {
            counts.purged[object as usize].fetch_max(before, Ordering::SeqCst);
        }
    }
}

fn client(port: u16, seed: u64, over: &AtomicBool, counts: &Counts) {
    let mut rng = Rng::new(seed);
    let mut client = super::client(port);
    while !over.load(Ordering::Relaxed) {
        // Some are asked for often, and most now and then.
        let most = [3, 30, OBJECTS][rng.below(3)];
        let object = rng.below(most) as u64;
        let floor = counts.floor(object);
        match client.get_once(&format!("/{object}")) {
            Ok(answer) if answer.is_ok() => {
                if is_right(object, &answer) && fetch_of(&answer) <= floor {
                    println!("purged: {object}, up to fetch {floor}: {}", answer.head);
                    one(&counts.late);
                } else if is_right(object, &answer) {
                    one(&counts.whole);
                } else {
                    println!("wrong: {object}, {} bytes: {}", answer.body.len(), answer.head);
                    one(&counts.wrong);
                }
                if answer.field("X-Cache") == Some("HIT") {
                    one(&counts.hits);
                }
            }
            Ok(answer) => {
                println!("refused: {}", answer.head.lines().next().unwrap_or_default());
                one(&counts.refused);
            }
            Err(Lost::Stuck) => one(&counts.stuck),
            Err(Lost::Garbage) => one(&counts.wrong),
            Err(Lost::NotConnected | Lost::Unanswered | Lost::Cut) => {
                one(&counts.broken);
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Kills one process after another, and starts the server again where it was the master.
fn kill(options: &Options, server: &mut Server, setup: &Setup) -> Outcome<Kills> {
    let mut rng = Rng::new(options.seed);
    let mut kills = Kills::default();
    while kills.all() < options.kills {
        std::thread::sleep(Duration::from_millis(30 + rng.below(200) as u64));
        let master = server.pid();
        if rng.below(12) == 0 {
            proc::signal(master, Signal::KILL);
            kills.masters += 1;
            // Its workers continue to serve for a moment, without a master.
            std::thread::sleep(Duration::from_millis(rng.below(100) as u64));
            server.start_again(options, setup)?;
            continue;
        }
        let children: Vec<u32> = server.pids().into_iter().filter(|&pid| pid != master).collect();
        let is_helper = |pid: u32| proc::title(pid).contains("cache");
        let helper = rng.below(6) == 0;
        let of_kind: Vec<u32> =
            children.into_iter().filter(|&pid| is_helper(pid) == helper).collect();
        if of_kind.is_empty() {
            continue;
        }
        proc::signal(of_kind[rng.below(of_kind.len())], Signal::KILL);
        if helper {
            kills.helpers += 1;
        } else {
            kills.workers += 1;
        }
    }
    Ok(kills)
}

/// After the last kill: every object is requested again and again, and each answer is right.
fn afterwards(server: &Server, counts: &Counts) -> Outcome {
    // The last one that was killed has a successor by then, and takes no connection with it.
    std::thread::sleep(Duration::from_secs(1));
    let mut client = super::client(server.port);
    let (began, mut hits) = (Instant::now(), 0);
    for round in 0..3 {
        // Twice each: one that was stored just now, and one that was stored before.
        for object in (0..OBJECTS as u64).flat_map(|object| [object; 2]) {
            let lost = |what: &str| Err(format!("afterwards, round {round}, {object}: {what}"));
            match client.get_once(&format!("/{object}")) {
                Ok(answer) if answer.is_ok() && fetch_of(&answer) <= counts.floor(object) => {
                    return lost("it had been purged");
                }
                Ok(answer) if answer.is_ok() && is_right(object, &answer) => {
                    hits += u32::from(answer.field("X-Cache") == Some("HIT"));
                }
                Ok(answer) => return lost(&answer.head),
                Err(_) => return lost("no answer"),
            }
        }
    }
    let secs = began.elapsed().as_secs_f64();
    println!("afterwards: {} answers in {secs:.1} s, all right, {hits} hits", 6 * OBJECTS);
    Ok(())
}
