//! `cache-purge`: a tenth of a million cached responses is purged, by prefix and by tag in turn,
//! while clients ask for others.
//!
//! Each purge has a quiet stretch before it and one behind it. The run fails when a purge takes too
//! long or reports a wrong count, when a purged response is served afterwards or another one is
//! missing, when its files stay, or when other answers become slower while they are deleted.
//! Deletion takes minutes under load: a part of that is measured.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::Advice;

use super::million::{Files, KINDS, count_files, is_loaded, path, settled, wait};
use crate::Outcome;
use crate::http_client::Answer;
use crate::options::Options;
use crate::report::{median, row, table};
use crate::server::{Kind, Server};

/// Clients that request unpurged keys, half of them each for one of [`ASKED_FOR`].
const CLIENTS: usize = 8;

/// The requests: the same few keys, whose files are in memory, or others, whose files are dropped
/// from memory each time, so that they are read from the disk.
const ASKED_FOR: [&str; 2] = ["in memory", "on disk"];

/// The number of the few.
const FEW: usize = 1000;

/// The pause of each client between two requests.
const REST: Duration = Duration::from_millis(4);

/// The limit of a purge.
const MOST: Duration = Duration::from_secs(2);

/// The longest measurement during deletion, as a multiple of a quiet stretch.
const LONGER: u32 = 10;

/// The file system still writes its records of deleted files (a journal that is written every 5 s).
const AFTERMATH: Duration = Duration::from_secs(10);

/// The limit for the slowest in a hundred answers: a factor of the time before, and milliseconds,
/// since within that two quiet stretches differ, too.
const SLOWER: (f64, f64) = (1.25, 0.1);

/// Keys that are checked after each purge, of those purged and of the others.
const LOOKED_AT: usize = 1000;

/// The work of the clients.
#[derive(Default)]
struct Work {
    is_over: AtomicBool,
    is_paused: AtomicBool,
}

/// An answer.
#[derive(Clone, Copy)]
struct Seen {
    /// The time of the request.
    at: Instant,
    ms: f64,
    /// Its index in [`ASKED_FOR`].
    of: usize,
}

/// Clients that ask now and then for keys of the first kind, which is not purged.
fn clients(port: u16, files: &Files, work: &Work) -> (Vec<Seen>, usize) {
    let all = files.count / KINDS;
    let few = FEW.min(all / 2);
    let one = |id: usize| {
        let (mut client, mut seen, mut bad) = (super::client(port), Vec::new(), 0);
        let of = id % ASKED_FOR.len();
        let mut at = id;
        while !work.is_over.load(Ordering::Relaxed) {
            if work.is_paused.load(Ordering::Relaxed) {
                std::thread::sleep(REST);
                continue;
            }
            at += 7919;
            let n = [at % few, few + at % (all - few)][of] * KINDS;
            if of == 1 {
                forget(&files.place(n));
            }
            let began = Instant::now();
            if client.get_once(&path(n)).is_ok_and(|a| is_hit(&a)) {
                seen.push(Seen { at: began, ms: began.elapsed().as_secs_f64() * 1000.0, of });
            } else {
                bad += 1;
            }
            std::thread::sleep(REST);
        }
        (seen, bad)
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..CLIENTS).map(|id| scope.spawn(move || one(id))).collect();
        let mut sum = (Vec::new(), 0);
        for one in all {
            let (seen, bad) = one.join().unwrap_or((Vec::new(), 1));
            sum.0.extend(seen);
            sum.1 += bad;
        }
        sum
    })
}

/// Drops a file's pages from memory.
fn forget(path: &Path) {
    let advice = Advice::DontNeed;
    let _ = File::open(path).map(|file| rustix::fs::fadvise(file, 0, None, advice));
}

fn is_hit(answer: &Answer) -> bool {
    answer.field("X-Cache") == Some("HIT")
}

/// A stretch of time.
type Span = (Instant, Instant);

/// A purge, and the quiet time before and behind it.
struct Round {
    name: &'static str,
    took: Duration,
    quiet: [Span; 2],
    /// The life of its files, if they were gone within the measurement.
    gone: Option<Duration>,
    /// From its beginning until [`AFTERMATH`] behind that.
    during: Span,
}

/// The times of one of [`ASKED_FOR`] within some spans, milliseconds, the quickest first.
fn within<'a>(seen: &[Seen], of: usize, spans: impl Iterator<Item = &'a Span>) -> Vec<f64> {
    let spans: Vec<&Span> = spans.collect();
    let inside = |at: Instant| spans.iter().any(|(from, to)| at >= *from && at < *to);
    let mine = seen.iter().filter(|one| one.of == of && inside(one.at));
    let mut all: Vec<f64> = mine.map(|one| one.ms).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// The value that a part of the answers is below.
fn percentile(sorted: &[f64], part: f64) -> f64 {
    let at = (sorted.len() as f64 * part) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Purges a kind of keys, and checks the answers afterwards.
fn purge(server: &Server, files: &Files, kind: usize, by_tag: bool) -> Outcome<Duration> {
    let (path_of, fields) = match by_tag {
        false => (format!("/kept/{kind}/*"), String::new()),
        true => ("/".to_owned(), format!("Cache-Tag: tag{kind}\r\n")),
    };
    let request = format!("GET {path_of} HTTP/1.1\r\nHost: a\r\nX-Purge: 1\r\n{fields}\r\n");
    let mut client = super::client(server.port);
    let began = Instant::now();
    let answer = client.ask_once(request.as_bytes()).map_err(|_| "a purge was not answered")?;
    let took = began.elapsed();
    let said = String::from_utf8_lossy(&answer.body).trim().to_owned();
    let expected = format!("{{\"purged\":{},\"complete\":true}}", files.count / KINDS);
    if !answer.is_ok() || said != expected {
        return Err(format!("a purge said {said} instead of {expected}: {}", answer.head));
    }
    let step = (files.count / KINDS / LOOKED_AT).max(1) * KINDS;
    for n in (kind..files.count).step_by(step) {
        // The origin is down: a key outside the cache is an error.
        if client.get_once(&path(n)).is_ok_and(|a| is_hit(&a) || a.is_ok()) {
            return Err(format!("{} was served after it was purged", path(n)));
        }
    }
    Ok(took)
}

/// Whether the files are gone, judged by some of them.
fn are_gone(files: &Files, kind: usize) -> bool {
    let step = (files.count / KINDS / LOOKED_AT).max(1) * KINDS;
    (kind..files.count).step_by(step).all(|n| !files.place(n).exists())
}

fn rounds(options: &Options, server: &Server, files: &Files, work: &Work) -> Outcome<Vec<Round>> {
    let long = Duration::from_secs(options.seconds.into());
    let rest = || -> Span {
        let began = Instant::now();
        std::thread::sleep(long);
        (began, Instant::now())
    };
    let mut rounds = Vec::new();
    let mut before = rest();
    // The first kind stays.
    for kind in 1..=(2 * options.rounds).min(KINDS - 2) {
        let by_tag = kind % 2 == 0;
        let began = Instant::now();
        let took = purge(server, files, kind, by_tag)?;
        let until = began + LONGER * long;
        wait("the files to go", || Instant::now() >= until || are_gone(files, kind))?;
        let gone = are_gone(files, kind).then(|| began.elapsed());
        std::thread::sleep(AFTERMATH);
        let during = (began, Instant::now());
        // No client runs: the rest is deleted sooner.
        work.is_paused.store(true, Ordering::Relaxed);
        wait("the files to go", || are_gone(files, kind))?;
        files.sync()?;
        work.is_paused.store(false, Ordering::Relaxed);
        let quiet = [before, rest()];
        before = quiet[1];
        let name = if by_tag { "tag" } else { "prefix" };
        rounds.push(Round { name, took, gone, quiet, during });
    }
    Ok(rounds)
}

/// Purges each kind while clients request the others.
pub fn run(options: &Options, _: &str) -> Outcome {
    let files = Files::make(options.cache_files / KINDS * KINDS)?;
    let (server, _) = Server::start(options, Kind::Weir, &files.setup(Kind::Weir))?;
    let loaded = wait("the loader", || is_loaded(&server))?;
    let known = settled(&server, &files)?;
    println!("loaded in {:.1} s, all keys known {:.1} s later", secs(loaded), secs(known));
    let work = Work::default();
    let (done, (seen, bad)) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| clients(server.port, &files, &work));
        let done = rounds(options, &server, &files, &work);
        work.is_over.store(true, Ordering::Relaxed);
        (done, asking.join().unwrap_or_default())
    });
    let done = done?;
    let problems = show(&done, &seen);
    let expected = files.count - done.len() * files.count / KINDS;
    let left = || count_files(&files.cache());
    let all_gone = wait("the last files to go", || left() <= expected);
    let left = left();
    if bad > 0 {
        return Err(format!("{bad} answers to others were no hits"));
    }
    all_gone?;
    if left != expected {
        return Err(format!("{left} files are left instead of {expected}"));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

fn secs(d: Duration) -> f64 {
    d.as_secs_f64()
}

/// Prints the figures. Returns the violated limits.
fn show(done: &[Round], seen: &[Seen]) -> Vec<String> {
    let mut rows = vec![row([
        "purge by",
        "seconds",
        "files gone",
        "asked for",
        "answers",
        "p50 ms",
        "p99",
        "p99.9",
        "longest",
        "quiet",
        "p99",
        "p99.9",
        "longest",
        "p99 x",
    ])];
    let mut problems = Vec::new();
    let mut add = |name: &str, took: &str, gone: &str, rounds: &[&Round]| {
        let both = |of| {
            let during = within(seen, of, rounds.iter().map(|r| &r.during));
            let quiet = within(seen, of, rounds.iter().flat_map(|r| &r.quiet));
            let ms = |of: &[f64], part| format!("{:.2}", percentile(of, part));
            let (d, q) = (percentile(&during, 0.99), percentile(&quiet, 0.99));
            let first = |text: &str| if of == 0 { text.to_owned() } else { String::new() };
            rows.push(row([
                &first(name),
                &first(took),
                &first(gone),
                ASKED_FOR[of],
                &format!("{}, {}", during.len(), quiet.len()),
                &ms(&during, 0.5),
                &ms(&during, 0.99),
                &ms(&during, 0.999),
                &ms(&during, 1.0),
                &ms(&quiet, 0.5),
                &ms(&quiet, 0.99),
                &ms(&quiet, 0.999),
                &ms(&quiet, 1.0),
                &format!("{:.2}", d / q),
            ]));
            (d, q)
        };
        [0, 1].map(both)
    };
    for one in done {
        let gone = one.gone.map_or("later".to_owned(), |gone| format!("{:.1}", secs(gone)));
        let took = format!("{:.2}", secs(one.took));
        add(one.name, &took, &gone, &[one]);
        if one.took > MOST {
            problems.push(format!("a purge by {} took {took} s", one.name));
        }
    }
    let took: Vec<f64> = done.iter().map(|one| secs(one.took)).collect();
    let all: Vec<&Round> = done.iter().collect();
    let sums = add("all", &format!("{:.2}", median(&took)), "", &all);
    for (of, (during, quiet)) in ASKED_FOR.iter().zip(sums) {
        // A figure that is none is wrong as well.
        if !(during <= quiet * SLOWER.0 || during <= quiet + SLOWER.1) {
            problems.push(format!("p99 of {of} is {during:.2} ms instead of {quiet:.2} ms"));
        }
    }
    table(&rows);
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(took_ms: u64, quiet: Span, during: Span) -> Round {
        let took = Duration::from_millis(took_ms);
        Round { name: "tag", took, gone: Some(took), quiet: [quiet, quiet], during }
    }

    #[test]
    fn slow_purges_and_slow_answers_fail() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let spans = ((at(0), at(1000)), (at(1000), at(2000)));
        let seen = |few: f64, all: f64| -> Vec<Seen> {
            let one = |n: u64, of: usize| {
                let ms = if n < 1000 { 1.0 } else { [few, all][of] };
                Seen { at: at(n), ms, of }
            };
            (0..2000).flat_map(|n| [one(n, 0), one(n, 1)]).collect()
        };
        let problems =
            |took_ms, few, all| show(&[round(took_ms, spans.0, spans.1)], &seen(few, all)).len();
        assert_eq!([problems(1999, 1.2, 1.2), problems(2001, 1.2, 1.2)], [0, 1]);
        assert_eq!([problems(100, 1.24, 1.0), problems(100, 1.26, 1.0)], [0, 1]);
        assert_eq!([problems(100, 1.0, 1.24), problems(100, 1.0, 1.26)], [0, 1]);
        assert_eq!(problems(100, 1.26, 1.26), 2);
        assert_eq!(show(&[round(1, spans.0, spans.1)], &[]).len(), 2, "no answers at all");
    }
}
