//! A file in memory, while others want files from a slow disk.
//!
//! The server has 400 MB of memory for everything, page cache included, and a disk with 100 MB a
//! second. 200 connections request 300 files of 4 MB at random; 50 connections request one file in
//! memory, first alone, then beside them. Each row begins with a new server, new groups, and no
//! page of the files in memory but those that the hot client read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::cgroup::{self, Group};
use crate::options::Options;
use crate::report::{self, row};
use crate::server::{self, Kind, Server, Setup};
use crate::{Outcome, proc, wrk};

const CONFIG: &str = include_str!("../configs/files.conf");
const FILES: usize = 300;
const FILE_LEN: usize = 4 << 20;
const MEMORY: u64 = 400 << 20;
const DISK_BYTES_PER_SEC: u64 = 100_000_000;
const COLD_CLIENTS: usize = 200;
const HOT_CLIENTS: usize = 50;
const WORKERS: usize = 2;

/// Until memory is full of cold files, and all that wait for the disk wait as long.
const SETTLE: u32 = 5;

/// The rows: a server, the row's name, `aio`, and the pool that it names.
const ROWS: &[(Kind, &str, &str, &str)] = &[
    (Kind::Nginx, "off", "aio off;", ""),
    (Kind::Nginx, "threads", "aio threads;", ""),
    (Kind::Nginx, "threads=256", "aio threads=wide;", "thread_pool wide threads=256;"),
    (Kind::Weir, "off", "aio off;", ""),
    (Kind::Weir, "threads", "aio threads;", ""),
    (Kind::Weir, "auto", "aio auto;", ""),
    (Kind::Uring, "threads", "aio threads;", ""),
    (Kind::Uring, "auto", "aio auto;", ""),
    (Kind::Weir, OWNERS, "aio auto;", ""),
];

/// Workers that own the files.
const OWNERS: &str = "auto, owner";

/// The files, in a folder that goes with them.
struct Site {
    folder: PathBuf,
}

impl Site {
    fn new() -> Outcome<Self> {
        let site = Self { folder: server::new_folder()? };
        let cold = site.folder.join("cold");
        fs::create_dir(&cold).map_err(|e| format!("{}: {e}", cold.display()))?;
        let bytes: Vec<u8> = b"0123456789abcdef".iter().copied().cycle().take(FILE_LEN).collect();
        for path in site.files() {
            let written = fs::File::create(&path).and_then(|mut file| {
                std::io::Write::write_all(&mut file, &bytes)?;
                // Only clean pages can be dropped from memory.
                file.sync_all()
            });
            written.map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(site)
    }

    fn files(&self) -> Vec<PathBuf> {
        let cold = (1..=FILES).map(|n| self.folder.join("cold").join(n.to_string()));
        cold.chain([self.folder.join("hot")]).collect()
    }

    /// Drops them from memory, and nothing of anybody else.
    fn forget(&self) -> Outcome {
        for path in self.files() {
            let forgotten = fs::File::open(&path).and_then(|file| {
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
                Ok(())
            });
            forgotten.map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The limits; they go with it.
struct Limits {
    memory: Group,
    disk: Group,
}

impl Limits {
    fn new(folder: &Path) -> Outcome<Self> {
        let name = format!("weir-bench-{}", std::process::id());
        let limits =
            Self { memory: Group::new("memory", &name)?, disk: Group::new("blkio", &name)? };
        limits.memory.set("memory.limit_in_bytes", &MEMORY.to_string())?;
        let rate = format!("{} {DISK_BYTES_PER_SEC}", cgroup::disk_of(folder)?);
        limits.disk.set("blkio.throttle.read_bps_device", &rate)?;
        Ok(limits)
    }

    fn doors(&self) -> Vec<PathBuf> {
        vec![self.memory.door(), self.disk.door()]
    }

    /// Bytes read from disks by the group.
    fn bytes_read(&self) -> u64 {
        let text = self.disk.get("blkio.throttle.io_service_bytes");
        let reads = text.lines().filter_map(|l| l.split_once(" Read ")?.1.parse::<u64>().ok());
        reads.sum()
    }
}

/// Runs every row of the chosen servers.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let site = Site::new()?;
    let disk = disk_rate(&site)?;
    println!("the disk alone: {disk:.1} MB/s, {:.1} files/s", files(disk));
    let mut rows = vec![row([
        "server",
        "aio",
        "hot alone/s",
        "p50 ms",
        "p99 ms",
        "longest ms",
        "hot beside/s",
        "p50 ms",
        "p99 ms",
        "longest ms",
        "kept",
        "p99 x",
        "cold/s",
        "of disk",
        "disk MB/s",
        "CPU %",
        "errors",
    ])];
    let chosen = ROWS.iter().enumerate().filter(|(n, r)| {
        options.servers.contains(&r.0) && options.only.is_none_or(|only| only == *n)
    });
    for (_, (kind, name, aio, pool)) in chosen {
        rows.push(measure(options, &site, disk, *kind, [name, aio, pool])?);
    }
    report::table(&rows);
    println!("(cold/s: bytes that the cold client got, as files; some of them are in memory)");
    Ok(())
}

fn files(megabytes: f64) -> f64 {
    megabytes * 1e6 / FILE_LEN as f64
}

/// The rate of one reader of the disk, from front to back, MB/s.
fn disk_rate(site: &Site) -> Outcome<f64> {
    let limits = Limits::new(&site.folder)?;
    site.forget()?;
    let script = r#"echo $$ > "$1"; echo $$ > "$2"; shift 2; exec cat "$@""#;
    let began = Instant::now();
    let status = Command::new("sh")
        .args(["-c", script, "sh"])
        .args(limits.doors())
        .args(&site.files()[..FILES / 4])
        .stdout(Stdio::null())
        .status();
    let status = status.map_err(|e| format!("sh: {e}"))?;
    if !status.success() {
        return Err("the disk's rate cannot be measured: cat failed".to_string());
    }
    Ok((FILES / 4 * FILE_LEN) as f64 / 1e6 / began.elapsed().as_secs_f64())
}

/// The figures of a row.
struct Figures {
    alone: wrk::Result,
    beside: wrk::Result,
    cold: wrk::Result,
    /// MB/s that the server read from the disk, and percent of a CPU that it took, meanwhile.
    read: f64,
    cpu: f64,
}

fn measure(
    options: &Options,
    site: &Site,
    disk: f64,
    kind: Kind,
    [name, aio, pool]: [&str; 3],
) -> Outcome<Vec<String>> {
    site.forget()?;
    let limits = Limits::new(&site.folder)?;
    let setup = Setup {
        template: CONFIG,
        fill: vec![
            ("%WORKERS%", WORKERS.to_string()),
            ("%CHUNK%", "sendfile_max_chunk 512k;".to_string()),
            ("%AIO%", aio.to_string()),
            ("%POOL%", pool.to_string()),
        ],
        groups: limits.doors(),
        root: Some(site.folder.clone()),
        user: (name == OWNERS).then_some("root"),
        ..Setup::default()
    };
    // Dropped before the limits are: locals are dropped last to first.
    let (server, _) = Server::start(options, kind, &setup)?;
    let figures = load(options, &server, &limits)?;
    Ok(as_row(kind.name(), name, disk, &figures))
}

fn load(options: &Options, server: &Server, limits: &Limits) -> Outcome<Figures> {
    let hot = |seconds| wrk::Load {
        port: server.port,
        path: "/hot",
        connections: HOT_CLIENTS,
        seconds,
        pipeline: false,
        close: false,
        files: None,
    };
    wrk::run(&hot(1))?;
    let alone = wrk::run(&hot(options.seconds))?;
    let cold = wrk::start(&wrk::Load {
        path: "/cold/",
        connections: COLD_CLIENTS,
        seconds: SETTLE + 2 * options.seconds + 1,
        files: Some(FILES),
        ..hot(0)
    })?;
    // The hot file stays in use: a file without requests is not hot.
    wrk::run(&hot(SETTLE))?;
    let (pids, before) = (server.pids(), limits.bytes_read());
    let (cpu, began) = (proc::cpu_ns(&pids), Instant::now());
    let beside = wrk::run(&hot(2 * options.seconds))?;
    let secs = began.elapsed().as_secs_f64();
    let cpu = (proc::cpu_ns(&pids) - cpu) as f64 / 1e7 / secs;
    let read = (limits.bytes_read() - before) as f64 / 1e6 / secs;
    Ok(Figures { alone, beside, cold: wrk::finish(cold)?, read, cpu })
}

fn as_row(server: &str, aio: &str, disk: f64, figures: &Figures) -> Vec<String> {
    let Figures { alone, beside, cold, read, cpu } = figures;
    let cold_rate = cold.bytes as f64 / cold.duration_us as f64;
    let ms = |us: u64, of: &wrk::Result| match of.requests {
        0 => "-".to_string(),
        _ => format!("{:.0}", us as f64 / 1e3),
    };
    row([
        server,
        aio,
        &format!("{:.0}", alone.rate()),
        &ms(alone.p50_us, alone),
        &ms(alone.p99_us, alone),
        &ms(alone.longest_us, alone),
        &format!("{:.0}", beside.rate()),
        &ms(beside.p50_us, beside),
        &ms(beside.p99_us, beside),
        &ms(beside.longest_us, beside),
        &format!("{:.0} %", beside.rate() / alone.rate() * 100.0),
        &match beside.requests {
            0 => "-".to_string(),
            _ => format!("{:.1}", beside.p99_us as f64 / alone.p99_us.max(1) as f64),
        },
        &format!("{:.1}", files(cold_rate)),
        &format!("{:.0} %", cold_rate / disk * 100.0),
        &format!("{read:.0}"),
        &format!("{cpu:.0}"),
        &(alone.failures() + beside.failures() + cold.failures()).to_string(),
    ])
}
