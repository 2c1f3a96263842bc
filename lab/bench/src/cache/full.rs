//! `cache-disk-full` and `cache-zone-full`: a hundred clients request new objects of 100 KB until
//! the disk of the cache is full, or its zone of keys, and continue.
//!
//! Each answer is compared to its last byte. None may fail, none may be cut; and a cache with
//! limits keeps them meanwhile, which a thread watches.
//! limits keeps them meanwhile, which a thread watches.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::origin::{Manner, Origin, is_body};
use super::setup;
use crate::disk::{self, Disk};
use crate::http_client::Lost;
use crate::options::Options;
use crate::report::{self, row};
use crate::server::{Kind, Server};
use crate::{Outcome, server};

const CLIENTS: u64 = 100;
const OBJECT: usize = 100 << 10;
const MB: u64 = 1 << 20;
const WATCH_EVERY: Duration = Duration::from_millis(20);

/// A way to fill a cache.
struct Row {
    load: &'static str,
    name: &'static str,
    /// Parameters of the path, behind the name of the zone.
    path: &'static str,
    disk: u64,
    /// The limit of the files, or of the free room, MB, with an allowance: the index, and the file
    /// system's own records.
    most: Option<(u64, u64)>,
    least: Option<(u64, u64)>,
}

const ROWS: [Row; 4] = [
    Row {
        load: "cache-disk-full",
        name: "disk full",
        path: "10m",
        disk: 64 * MB,
        most: None,
        least: None,
    },
    Row {
        load: "cache-disk-full",
        name: "min_free=64m",
        path: "10m min_free=64m",
        disk: 160 * MB,
        most: None,
        least: Some((64, 2)),
    },
    Row {
        load: "cache-zone-full",
        name: "zone full",
        path: "32k",
        disk: 1024 * MB,
        most: None,
        least: None,
    },
    Row {
        load: "cache-zone-full",
        name: "max_size=64m",
        path: "10m max_size=64m",
        disk: 1024 * MB,
        most: Some((64, 4)),
        least: None,
    },
];

#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    /// Another status than 200.
    refused: AtomicU64,
    unanswered: AtomicU64,
    cut: AtomicU64,
    wrong: AtomicU64,
}

impl Counts {
    fn all_failures(&self) -> u64 {
        let of = |c: &AtomicU64| c.load(Ordering::Relaxed);
        of(&self.refused) + of(&self.unanswered) + of(&self.cut) + of(&self.wrong)
    }
}

fn one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Runs the rows of the load of that name.
pub fn run(options: &Options, name: &str) -> Outcome {
    disk::enter()?;
    let mut rows = vec![row([
        "server",
        "",
        "requests/s",
        "answered",
        "refused",
        "unanswered",
        "cut",
        "wrong",
        "most MB",
        "least free",
        "log lines",
    ])];
    let mut failed = Vec::new();
    for case in ROWS.iter().filter(|r| r.load == name) {
        for &kind in options.servers.iter().filter(|k| k.is_real()) {
            let folder = server::new_folder()?;
            let measured = measure(options, kind, case, &folder);
            let _ = std::fs::remove_dir_all(&folder);
            let (cells, problem) = measured?;
            rows.push(cells);
            if let Some(problem) = problem.filter(|_| kind != Kind::Nginx) {
                failed.push(format!("{}: {problem}", case.name));
            }
        }
    }
    report::table(&rows);
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn measure(
    options: &Options,
    kind: Kind,
    case: &Row,
    folder: &Path,
) -> Outcome<(Vec<String>, Option<String>)> {
    let origin = Origin::start(Manner::plain(|_, _| OBJECT))?;
    let disk = Disk::new(&folder.join("disk"), case.disk)?;
    let path = format!("{} use_temp_path=off inactive=1h", case.path);
    let kept = disk.folder().join("kept");
    // No server counts the folders themselves.
    for (one, two) in (0..16).flat_map(|one| (0..256).map(move |two| (one, two))) {
        let folder = kept.join(format!("{one:x}/{two:02x}"));
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let setup = setup(2, origin.port, &kept, &path, "");
    let (server, _) = Server::start(options, kind, &setup)?;
    let empty = disk.space().0;
    let (counts, over) = (Counts::default(), AtomicBool::new(false));
    let until = Instant::now() + Duration::from_secs(options.seconds.into());
    let (most, least) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut most, mut least) = (0, u64::MAX);
            while !over.load(Ordering::Relaxed) {
                let (used, free) = disk.space();
                (most, least) = (most.max(used.saturating_sub(empty)), least.min(free));
                std::thread::sleep(WATCH_EVERY);
            }
            (most, least)
        });
        let (counts, port) = (&counts, server.port);
        let clients: Vec<_> =
            (1..=CLIENTS).map(|n| scope.spawn(move || ask(port, n, until, counts))).collect();
        clients.into_iter().for_each(|c| drop(c.join()));
        over.store(true, Ordering::Relaxed);
        watch.join().unwrap_or((0, 0))
    });
    Ok(as_row(options, case, &server, &counts, most, least))
}

/// One client: objects that no other one requests.
fn ask(port: u16, number: u64, until: Instant, counts: &Counts) {
    let mut client = super::client(port);
    let mut object = number << 24;
    while Instant::now() < until {
        object += 1;
        match client.get_once(&format!("/{object}")) {
            Ok(answer) if answer.is_ok() => {
                let fetch = answer.field("X-Fetch").and_then(|f| f.parse().ok()).unwrap_or(0);
                match is_body(object, fetch, &answer.body, OBJECT) {
                    true => one(&counts.answered),
                    false => one(&counts.wrong),
                }
            }
            Ok(_) => one(&counts.refused),
            Err(Lost::Cut) => one(&counts.cut),
            Err(Lost::NotConnected | Lost::Unanswered | Lost::Stuck) => one(&counts.unanswered),
            Err(Lost::Garbage) => one(&counts.wrong),
        }
    }
}

fn as_row(
    options: &Options,
    case: &Row,
    server: &Server,
    counts: &Counts,
    most: u64,
    least: u64,
) -> (Vec<String>, Option<String>) {
    let of = |c: &AtomicU64| c.load(Ordering::Relaxed);
    let log = std::fs::read(server.prefix().join("error.log")).unwrap_or_default();
    let lines = log.iter().filter(|b| **b == b'\n').count();
    let answered = of(&counts.answered);
    let cells = row([
        server.kind.name(),
        case.name,
        &(answered / u64::from(options.seconds)).to_string(),
        &answered.to_string(),
        &of(&counts.refused).to_string(),
        &of(&counts.unanswered).to_string(),
        &of(&counts.cut).to_string(),
        &of(&counts.wrong).to_string(),
        &(most / MB).to_string(),
        &(least / MB).to_string(),
        &lines.to_string(),
    ]);
    let problem = if counts.all_failures() > 0 {
        Some(format!("{} requests failed", counts.all_failures()))
    } else if let Some((max, _)) = case.most.filter(|(max, beyond)| most > (max + beyond) * MB) {
        Some(format!("{} MB instead of {max}", most / MB))
    } else if let Some((min, _)) = case.least.filter(|(min, below)| least < (min - below) * MB) {
        Some(format!("{} MB free instead of {min}", least / MB))
    } else {
        None
    };
    (cells, problem)
}
