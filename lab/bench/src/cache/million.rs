//! A million cached files: the time of a start with the index and without it, and the memory of a
//! key. The effect of purging a tenth of them on other requests is in [`super::purges`].
//!
//! The files are written here, by docs/CACHE.md and not by the server's own code. nginx takes them
//! for its own as far as its loader looks: at names.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use base::crc::crc32;
use md5::{Digest, Md5};

use super::setup;
use crate::options::Options;
use crate::report::{row, table};
use crate::server::{Kind, Server, Setup, get, new_folder};
use crate::{Outcome, deploy, disk, proc};

/// Keys are of ten kinds, by their path and by their tag alike.
pub(super) const KINDS: usize = 10;

/// The limit of every wait.
const PATIENCE: Duration = Duration::from_secs(900);

/// weir's answers beside the cache, and the permission to purge.
const BESIDE: &str = "proxy_cache_purge $http_x_purge; } location = /status { stub_status json;";

/// The key number `n`, which is the path of a request.
pub(super) fn path(n: usize) -> String {
    format!("/kept/{}/object-{n:07}.html", n % KINDS)
}

/// Length of a body: nginx's loader deletes files that are shorter than a header of its own (some
/// 340 bytes).
const BODY: usize = 256;

/// A cached response as it stands in a file.
fn file(key: &str, tag: usize, now: i64) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Tag: tag{tag}\r\n\r\n");
    let rest = format!("\nKEY: {key}\n{head}");
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(b"weir\r\ncf");
    for n in [2, 0, (108 + rest.len()) as u32, 0] {
        out.extend_from_slice(&n.to_le_bytes());
    }
    for n in [BODY as i64, now + 1_000_000, 0, 0, -1, now] {
        out.extend_from_slice(&n.to_le_bytes());
    }
    out.extend_from_slice(&[0; 20]);
    out.extend_from_slice(&(key.len() as u32).to_le_bytes());
    out.extend_from_slice(&(head.len() as u32).to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(rest.as_bytes());
    let sum = crc32(&out[16..]);
    out[12..16].copy_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(&[b'x'; BODY]);
    out
}

/// A folder with files, deleted when dropped.
pub(super) struct Files {
    folder: PathBuf,
    pub count: usize,
}

impl Files {
    pub fn make(count: usize) -> Outcome<Files> {
        let files = Files { folder: new_folder()?, count };
        let began = Instant::now();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |d| d.as_secs()) as i64;
        let fail = |p: &Path, e: std::io::Error| format!("{}: {e}", p.display());
        for one in 0..16 {
            for two in 0..256 {
                let folder = files.folder.join(format!("kept/{one:x}/{two:02x}"));
                fs::create_dir_all(&folder).map_err(|e| fail(&folder, e))?;
                deploy::give(&folder).map_err(|e| fail(&folder, e))?;
            }
            let folder = files.folder.join(format!("kept/{one:x}"));
            deploy::give(&folder).map_err(|e| fail(&folder, e))?;
        }
        let cache = files.cache();
        deploy::give(&cache).map_err(|e| fail(&cache, e))?;
        for n in 0..count {
            let key = path(n);
            let at = files.place(n);
            let made = fs::File::create(&at);
            made.and_then(|mut f| f.write_all(&file(&key, n % KINDS, now)))
                .and_then(|()| deploy::give(&at))
                .map_err(|e| fail(&at, e))?;
        }
        // Writing the files must not overlap with the measurement.
        files.sync()?;
        println!("{count} files made in {:.1} s", began.elapsed().as_secs_f64());
        Ok(files)
    }

    /// Waits until all is on the disk.
    pub fn sync(&self) -> Outcome {
        disk::sync(&self.folder)
    }

    pub fn cache(&self) -> PathBuf {
        self.folder.join("kept")
    }

    /// Where the file of that key is.
    pub fn place(&self, n: usize) -> PathBuf {
        let hash: String = Md5::digest(path(n)).iter().map(|b| format!("{b:02x}")).collect();
        self.cache().join(&hash[31..]).join(&hash[29..31]).join(&hash)
    }

    pub fn setup(&self, kind: Kind) -> Setup {
        let paced = "loader_files=1000000000 loader_threshold=1h";
        let (more, beside) = match kind {
            Kind::Nginx => (paced, ""),
            _ => ("", BESIDE),
        };
        let path = format!("512m inactive=10h max_size=100g use_temp_path=off {more}");
        setup(2, 1, &self.cache(), &path, beside)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A number in a server's status.
pub(super) fn number(server: &Server, name: &str) -> Option<u64> {
    let status = get(server.port, "localhost", "/status").ok()?;
    let rest = status.split_once(&format!("\"{name}\":"))?.1;
    rest.split([',', '}']).next()?.parse().ok()
}

/// Looks until that is done: how long it took.
pub(super) fn wait(what: &str, mut is_done: impl FnMut() -> bool) -> Outcome<Duration> {
    let began = Instant::now();
    while !is_done() {
        if began.elapsed() > PATIENCE {
            return Err(format!("waited too long for {what}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(began.elapsed())
}

/// All files are known to the zone.
pub(super) fn is_loaded(server: &Server) -> bool {
    let status = get(server.port, "localhost", "/status").unwrap_or_default();
    status.contains("\"loaded\":true")
}

/// All keys are known to the index, and the index is written: of a few keys all is in the journal.
pub(super) fn settled(server: &Server, files: &Files) -> Outcome<Duration> {
    let index = files.cache().join(".weir.index/entries");
    let is_written = || files.count < 100_000 || index.exists();
    wait("the index", || number(server, "unindexed") == Some(0) && is_written())
}

fn shared_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("Shmem:"));
    let number = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}

/// Cached keys of a thousand.
fn hits(port: u16, count: usize) -> usize {
    let mut client = super::client(port);
    let step = (count / 1000).max(1);
    let is_hit = |n: usize| {
        let answer = client.get_once(&path(n * step + n % step));
        answer.is_ok_and(|a| a.field("X-Cache") == Some("HIT"))
    };
    (0..1000.min(count)).map(is_hit).filter(|hit| *hit).count()
}

/// Restarts each server with the index and without it.
pub fn restart(options: &Options, _: &str) -> Outcome {
    let files = Files::make(options.cache_files)?;
    let count = files.count as u64;
    let rate = |took: Duration| format!("{:.0}", count as f64 / took.as_secs_f64());
    let mut rows = vec![row(["", "seconds", "files/s", "bytes/key", "hits of 1000"])];
    let setup = files.setup(Kind::Weir);
    let before = shared_memory();
    let began = Instant::now();
    let (server, _) = Server::start(options, Kind::Weir, &setup)?;
    wait("the loader", || is_loaded(&server))?;
    let took = began.elapsed();
    let per_key = (shared_memory().saturating_sub(before) / count).to_string();
    let of = format!("{}", hits(server.port, files.count));
    let secs = |took: Duration| format!("{:.2}", took.as_secs_f64());
    rows.push(row(["weir, walk", &secs(took), &rate(took), &per_key, &of]));
    let reading = settled(&server, &files)?;
    rows.push(row(["weir, keys read", &secs(reading), &rate(reading), "", ""]));
    drop(server);
    for name in ["weir, index", "weir, index again"] {
        let before = shared_memory();
        let began = Instant::now();
        let (server, _) = Server::start(options, Kind::Weir, &setup)?;
        wait("all entries", || number(&server, "entries").is_some_and(|n| n >= count))?;
        let took = began.elapsed();
        let per_key = (shared_memory().saturating_sub(before) / count).to_string();
        let of = format!("{}", hits(server.port, files.count));
        rows.push(row([name, &secs(took), &rate(took), &per_key, &of]));
        wait("the loader", || is_loaded(&server))?;
        rows.push(row(["  verified behind it", &secs(began.elapsed()), "", "", ""]));
    }
    if options.servers.contains(&Kind::Nginx) {
        rows.push(nginx(options, &files)?);
    }
    table(&rows);
    Ok(())
}

/// nginx's loader begins a minute after the start.
fn nginx(options: &Options, files: &Files) -> Outcome<Vec<String>> {
    let before = shared_memory();
    let (server, _) = Server::start(options, Kind::Nginx, &files.setup(Kind::Nginx))?;
    let is_loader = |pid: &u32| proc::title(*pid).contains("cache loader");
    let mut pid = None;
    wait("nginx's loader", || {
        pid = server.pids().into_iter().find(is_loader);
        pid.is_some()
    })?;
    let pid = pid.ok_or("nginx has no cache loader")?;
    wait("nginx's loader to begin", || proc::cpu_ns(&[pid]) > 20_000_000)?;
    let took = wait("nginx's loader", || !proc::is_running(pid))?;
    let per_key = shared_memory().saturating_sub(before) / files.count as u64;
    let left = count_files(&files.cache());
    if left != files.count {
        return Err(format!("nginx's loader left {left} files"));
    }
    let rate = files.count as f64 / took.as_secs_f64();
    let cells = [format!("{:.2}", took.as_secs_f64()), format!("{rate:.0}"), per_key.to_string()];
    Ok(row(["nginx, walk", &cells[0], &cells[1], &cells[2], ""]))
}

/// Files of responses below a folder.
pub(super) fn count_files(folder: &Path) -> usize {
    let mut count = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                _ => count += usize::from(entry.file_name().len() == 32),
            }
        }
    }
    count
}
