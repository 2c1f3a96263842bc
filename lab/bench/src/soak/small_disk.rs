//! A small disk that is filled to its last byte now and then: temporary files and uploads are
//! there. Responses come whole all the same; a request's body that finds no room is refused with
//! 500, an upload with 500 or 507.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testkit::rng::Rng;

use super::behind::{content, digest};
use super::tally::{Lane, PATIENCE, Tally};
use crate::client::Watch;
use crate::http_client::{Client, status};
use crate::{Outcome, deploy};

const MB: usize = 64;
/// The longest response and body.
const LARGEST: usize = 6 << 20;
/// Between two fillings, and how long the disk stays full.
const EMPTY: Duration = Duration::from_secs(40);
const FULL: Duration = Duration::from_secs(12);
/// Lines of the log may be written a moment after the room is back.
pub const BEHIND: Duration = Duration::from_secs(3);

/// A mounted tmpfs, which goes when it is dropped.
pub struct Disk {
    pub folder: PathBuf,
}

impl Disk {
    /// Mounts one with the folders that the server writes to.
    pub fn mount(folder: PathBuf) -> Outcome<Self> {
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let size = format!("size={MB}m,mode=0755");
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "soak"])
            .arg(&folder)
            .output()
            .map_err(|e| format!("mount: {e}"))?;
        if !done.status.success() {
            return Err(format!("mount: {}", String::from_utf8_lossy(&done.stderr)));
        }
        let disk = Self { folder };
        for name in ["body", "proxied", "cache", "put"] {
            let path = disk.folder.join(name);
            fs::create_dir(&path)
                .and_then(|()| deploy::give(&path))
                .map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(disk)
    }

    /// Files that requests left behind.
    pub fn left(&self) -> usize {
        ["body", "proxied", "put"].iter().map(|name| count(&self.folder.join(name))).sum()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Files below a folder.
pub fn count(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let each = entries.flatten().map(|e| match e.file_type() {
        Ok(kind) if kind.is_dir() => count(&e.path()),
        _ => 1,
    });
    each.sum()
}

/// Starts the clients, and the thread that fills the disk.
pub fn begin(port: u16, folder: &Path, tally: &Arc<Tally>) -> Vec<JoinHandle<()>> {
    let kinds: [fn(&mut Client, &mut Rng, &Lane, usize); 3] = [download, upload, put];
    let one = |n: usize| {
        let lane = Lane::new(tally, "small disk");
        let work = kinds[n % kinds.len()];
        std::thread::spawn(move || {
            let (mut rng, mut client) =
                (Rng::new(n as u64 + 31), Client::new(port, None, PATIENCE));
            while !lane.tally.is_over() {
                lane.pace();
                work(&mut client, &mut rng, &lane, n);
                lane.tally.sleep(Duration::from_millis(rng.below(600) as u64));
            }
        })
    };
    let mut threads: Vec<_> = (0..2 * kinds.len()).map(one).collect();
    let (filler, tally) = (folder.join("filler"), Arc::clone(tally));
    threads.push(std::thread::spawn(move || {
        while !tally.is_over() {
            tally.sleep(EMPTY);
            if !tally.is_over() {
                fill(&filler, &tally);
            }
        }
    }));
    threads
}

/// Takes all room for a while, and that which others give back, too.
fn fill(filler: &Path, tally: &Tally) {
    let Ok(mut file) = fs::File::create(filler) else {
        return tally.finding("the small disk cannot be filled".to_string());
    };
    tally.full.begin();
    tally.disturbed("disk full", "");
    let (page, until) = (vec![b'f'; 64 << 10], Instant::now() + FULL);
    while Instant::now() < until && !tally.is_over() {
        let mut piece = page.len();
        while piece > 0 {
            match file.write(&page[..piece]) {
                Ok(1..) => {}
                _ => piece /= 16,
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(file);
    let _ = fs::remove_file(filler);
    tally.full.end();
}

/// Whether the disk was full at any time since then, or shortly before.
fn was_full(lane: &Lane, since: Instant) -> bool {
    lane.tally.full.reaches(since.checked_sub(BEHIND))
}

fn draw(rng: &mut Rng) -> usize {
    let most = [20_000, 300_000, LARGEST][rng.below(3)];
    rng.below(most)
}

/// A response that its client takes slowly, so that it is kept in a file.
fn download(client: &mut Client, rng: &mut Rng, lane: &Lane, _: usize) {
    let (number, len) = (rng.below(1 << 30) as u64, draw(rng));
    client.pause = Duration::from_millis([0, 3, 20][rng.below(3)]);
    let since = Instant::now();
    match client.get(&format!("/bytes/{number}/{len}"), "") {
        Ok(answer) if answer.status != 200 => {
            lane.fault(since, &format!("download: {}", status(&answer)));
        }
        Ok(answer) if answer.body != content(number, len) => {
            lane.fault(since, "download: another body");
        }
        Ok(_) => lane.right(since, "download"),
        Err(lost) => lane.fault(since, &format!("download: {lost}")),
    }
}

/// A body that is kept in a file and passed on then.
fn upload(client: &mut Client, rng: &mut Rng, lane: &Lane, _: usize) {
    let body = content(rng.below(1 << 30) as u64, draw(rng));
    let len = body.len();
    let head = format!("POST /digest HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len}\r\n\r\n");
    let since = Instant::now();
    match client.ask(&[head.as_bytes(), &body].concat()) {
        Ok(answer) if answer.status == 500 => {
            lane.fault_unless(was_full(lane, since), since, "upload: status 500");
        }
        Ok(answer) if answer.status != 200 => {
            lane.fault(since, &format!("upload: {}", status(&answer)));
        }
        Ok(answer) if answer.body != digest(&body).into_bytes() => {
            lane.fault(since, "upload: another body");
        }
        Ok(_) => lane.right(since, "upload"),
        Err(lost) => lane.fault(since, &format!("upload: {lost}")),
    }
}

/// A file that is put, read and deleted.
fn put(client: &mut Client, rng: &mut Rng, lane: &Lane, n: usize) {
    let body = content(rng.below(1 << 30) as u64, draw(rng));
    let (len, path) = (body.len(), format!("/put/{n}"));
    let head = format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len}\r\n\r\n");
    let since = Instant::now();
    let is_there = match client.ask(&[head.as_bytes(), &body].concat()) {
        Ok(answer) if matches!(answer.status, 201 | 204) => true,
        Ok(answer) => {
            let refused = matches!(answer.status, 500 | 507) && was_full(lane, since);
            lane.fault_unless(refused, since, &format!("put: {}", status(&answer)));
            false
        }
        Err(lost) => {
            lane.fault(since, &format!("put: {lost}"));
            false
        }
    };
    if is_there {
        match client.get(&path, "") {
            Ok(answer) if answer.status == 200 && answer.body == body => lane.right(since, "put"),
            Ok(answer) if answer.status == 200 => lane.fault(since, "put: another body"),
            Ok(answer) => lane.fault(since, &format!("got: {}", status(&answer))),
            Err(lost) => lane.fault(since, &format!("got: {lost}")),
        }
    }
    let request = format!("DELETE {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for _ in 0..3 {
        let since = Instant::now();
        match client.ask(request.as_bytes()) {
            Ok(answer) if matches!(answer.status, 204 | 404) => return lane.right(since, "delete"),
            Ok(answer) => lane.fault(since, &format!("delete: {}", status(&answer))),
            Err(lost) => lane.fault(since, &format!("delete: {lost}")),
        }
    }
}
