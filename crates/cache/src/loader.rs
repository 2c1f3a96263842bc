//! The cache loader: a process that reads a cache's folder into its zone after a start, and exits.
//!
//! The entries of the index ([`crate::index`]) are taken in at once, and the folders are read
//! behind it. Unless `loader_files` and its companions ask for small steps, several threads read
//! them at once: names first, then the attributes of files, some hundreds at a time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::log::{Level, os_error};
use base::time::now_ms;
use event::Notify;

use crate::faults::FaultCause;
use crate::file_header::FILE_MIN;
use crate::index::{self, IndexAtStart};
use crate::instance::Cache;
use crate::key::{FileName, Hash, Layout};
use crate::purging::PURGES_FILE;
use crate::store;

/// Folders or batches of files that are read at the same time.
const AT_ONCE: usize = 8;

/// The same where the index is there, and no request waits.
const AT_LEISURE: usize = 2;

/// Entries of the index that are taken into the zone without a pause.
const KNOWN_AT_ONCE: usize = 512;

/// Files of a batch.
const HEAP: usize = 512;

/// A piece of the work for a thread.
enum Job {
    /// The names in a folder.
    Folder(PathBuf),
    /// The attributes of files.
    Files(Vec<(PathBuf, Hash)>),
}

/// The result of a step.
#[derive(Default)]
struct StepResult {
    more: Vec<Job>,
    /// Files with their sizes in blocks and their fingerprints.
    files: Vec<(Hash, u32, u32)>,
    /// Files that are too small to be ours, or do not lie where they should.
    bad: Vec<PathBuf>,
    foreign: u64,
    error: Option<(PathBuf, io::Error)>,
}

struct Walk {
    cache: Rc<Cache>,
    jobs: RefCell<VecDeque<Job>>,
    /// Jobs under way.
    running: Cell<usize>,
    moved: Notify,
    foreign: Cell<u64>,
    /// A folder could not be read: files that were not met may be there.
    missed: Cell<bool>,
    /// Files since the last pause, and when that was.
    steps: Cell<(u64, u64)>,
}

/// Reads a cache's folder into its zone, unless that was done, or is being done by another.
pub async fn load(cache: Rc<Cache>) {
    if !cache.keys.begin_loading(std::process::id()) {
        return;
    }
    load_index(&cache).await;
    cache.keys.marked();
    cache.keys.read();
    cache.stirred.notify_all();
    let at_once = match cache.settings.loader {
        Some(_) => 1,
        None if cache.keys.indexed() > 0 => AT_LEISURE,
        None => AT_ONCE,
    };
    let folder = cache.settings.layout.folder.clone();
    let walk = Rc::new(Walk {
        cache: cache.clone(),
        jobs: RefCell::new(VecDeque::from([Job::Folder(folder)])),
        running: Cell::new(0),
        moved: Notify::new(),
        foreign: Cell::new(0),
        missed: Cell::new(false),
        steps: Cell::new((0, now_ms())),
    });
    for _ in 1..at_once {
        let walk = walk.clone();
        event::spawn(async move { walk.work().await });
    }
    walk.work().await;
    let mut from = Some(0);
    let mut gone = 0;
    while from.is_some() && !walk.missed.get() {
        gone += cache.keys.drop_unseen(&mut from);
        event::task::yield_now().await;
    }
    cache.keys.end_loading(true);
    cache.keys.ring();
    cache.stirred.notify_all();
    let log = base::log::default();
    let block = cache.block();
    let folder = cache.settings.layout.folder.display();
    let thousandths = cache.keys.blocks() * block / 1049;
    let (whole, rest) = (thousandths / 1000, thousandths % 1000);
    base::log!(
        log,
        Level::Notice,
        None,
        "http file cache: {folder} {whole}.{rest:03}M, bsize: {block}"
    );
    if gone > 0 {
        let level = Level::Notice;
        base::log!(log, level, None, "{gone} files in {folder} are in the index but missing");
    }
    if walk.foreign.get() > 0 {
        let n = walk.foreign.get();
        base::log!(log, Level::Warn, None, "{n} files in {folder} are not the cache's, left alone");
    }
}

/// Takes the entries of the index into the zone.
async fn load_index(cache: &Rc<Cache>) {
    let keys = &cache.keys;
    let began = now_ms();
    let pool = event::pool::default();
    let folder = cache.settings.layout.folder.clone();
    let begun = store::elsewhere(Some(&pool), move || IndexAtStart::begin(&folder)).await;
    let begun = match begun.and_then(|begun| begun) {
        Ok(begun) => begun,
        Err(e) => return unreadable(cache, &e),
    };
    keys.marks.distrust(begun.purged);
    for mark in &begun.marks {
        // It covers files without a version: those from before this start.
        keys.marks.publish(&mark.purge(), 0, || 0);
    }
    keys.marked();
    let most = keys.capacity() - keys.capacity() / 16;
    let loaded = store::elsewhere(Some(&pool), move || begun.finish(most)).await;
    let loaded = match loaded.and_then(|loaded| loaded) {
        Ok(loaded) => loaded,
        Err(e) => return unreadable(cache, &e),
    };
    if loaded.has_variants {
        keys.has_variant();
    }
    for some in loaded.known.chunks(KNOWN_AT_ONCE) {
        keys.add_known(some, cache.settings.inactive);
        event::task::yield_now().await;
    }
    keys.set_index_order(loaded.order);
    let log = base::log::default();
    let folder = cache.settings.layout.folder.display();
    for complaint in &loaded.complaints {
        base::log!(log, Level::Warn, None, "http file cache: {folder}: {complaint}");
    }
    if !loaded.known.is_empty() {
        let (n, ms) = (loaded.known.len(), now_ms() - began);
        base::log!(
            log,
            Level::Notice,
            None,
            "http file cache: {folder} {n} entries of the index in {ms} ms"
        );
    }
}

#[cold]
fn unreadable(cache: &Cache, e: &io::Error) {
    let folder = cache.settings.layout.folder.display();
    let e = os_error(e);
    cache.tell(FaultCause::Index, format_args!("reading the index in \"{folder}\" failed {e}"));
}

impl Walk {
    /// Works until nothing is left to do, nor under way.
    async fn work(&self) {
        loop {
            let job = self.jobs.borrow_mut().pop_front();
            let Some(job) = job else {
                if self.running.get() == 0 {
                    self.moved.notify_all();
                    return;
                }
                self.moved.notified().await;
                continue;
            };
            self.running.set(self.running.get() + 1);
            let (layout, block) = (self.cache.settings.layout.clone(), self.cache.block());
            let pool = event::pool::default();
            let found = store::elsewhere(Some(&pool), move || run(job, &layout, block)).await;
            match found {
                Ok(found) => self.take(found).await,
                Err(_) => self.missed.set(true),
            }
            self.running.set(self.running.get() - 1);
            self.moved.notify_all();
        }
    }

    async fn take(&self, found: StepResult) {
        let cache = &self.cache;
        self.jobs.borrow_mut().extend(found.more);
        self.foreign.set(self.foreign.get() + found.foreign);
        if let Some((path, e)) = found.error {
            self.missed.set(true);
            let (path, e) = (path.display(), os_error(&e));
            cache.tell(FaultCause::Read, format_args!("reading \"{path}\" failed {e}"));
        }
        for path in found.bad {
            let shown = path.display();
            cache.tell(
                FaultCause::Damaged,
                format_args!("cache file \"{shown}\" is damaged, discarded"),
            );
            // The process ends when all is done, and waits for nothing that was left to a thread.
            let pool = event::pool::default();
            let task = move || drop(std::fs::remove_file(path));
            let _ = store::elsewhere(Some(&pool), task).await;
        }
        for (hash, blocks, file) in found.files {
            if !cache.keys.add(&hash, blocks, file, cache.settings.inactive) {
                // There is no room to know of it: it would take its place on the disk for ever.
                let pool = event::pool::default();
                store::delete_all(cache, vec![hash], Some(&pool)).await;
            }
            self.pace().await;
        }
    }

    /// Rests, where the configuration wants that.
    async fn pace(&self) {
        let Some(pace) = self.cache.settings.loader else { return };
        let (files, since) = self.steps.get();
        if files + 1 < pace.files && now_ms() - since < pace.threshold_ms {
            self.steps.set((files + 1, since));
            return;
        }
        event::sleep(pace.sleep_ms).await;
        self.steps.set((0, now_ms()));
    }
}

fn run(job: Job, layout: &Layout, block: u64) -> StepResult {
    match job {
        Job::Folder(path) => folder(path, layout),
        Job::Files(list) => files(list, block),
    }
}

/// Reads the names in a folder.
fn folder(path: PathBuf, layout: &Layout) -> StepResult {
    let mut found = StepResult::default();
    let entries = match std::fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(e) => return StepResult { error: Some((path, e)), ..found },
    };
    let mut heap = Vec::new();
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) => {
                found.error = Some((path, e));
                break;
            }
        };
        let (name, at) = (entry.file_name(), entry.path());
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            // A folder for temporary files may lie within, and that of the index does.
            if name != "temp" && name != index::FOLDER {
                found.more.push(Job::Folder(at));
            }
            continue;
        }
        // With what lies beside it.
        if name.as_bytes().starts_with(PURGES_FILE.as_bytes()) {
            continue;
        }
        match Layout::named(name.as_bytes()) {
            FileName::Entry(hash) if layout.is_at_home(&at, &hash) => heap.push((at, hash)),
            FileName::Entry(_) => found.bad.push(at),
            FileName::Temporary => {
                if is_left_behind(&at) {
                    // Left behind by a process that died.
                    let _ = std::fs::remove_file(&at);
                }
            }
            FileName::Foreign => found.foreign += 1,
        }
        if heap.len() >= HEAP {
            found.more.push(Job::Files(std::mem::take(&mut heap)));
        }
    }
    if !heap.is_empty() {
        found.more.push(Job::Files(heap));
    }
    found
}

/// Whether the process that was writing a file is gone: the writer has it locked.
fn is_left_behind(path: &Path) -> bool {
    os::file::open(path).is_ok_and(|fd| os::file::try_lock(fd).is_ok())
}

/// Asks for the sizes of files.
fn files(list: Vec<(PathBuf, Hash)>, block: u64) -> StepResult {
    let mut found = StepResult::default();
    for (path, hash) in list {
        match os::file::lstat(&path) {
            Ok(meta) if meta.is_file() && meta.size >= FILE_MIN => {
                found.files.push((hash, store::blocks(&meta, block), store::identity(&meta)));
            }
            Ok(_) => found.bad.push(path),
            // It was deleted meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => found.error = Some((path, e)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_a_folder() {
        let base = testkit::Folder::new("loader");
        let layout = Layout { folder: base.to_path_buf(), levels: [1, 0, 0] };
        let hash = crate::key::hash(b"a");
        let home = files::as_path(&layout.path(&hash)).to_owned();
        let inner = home.parent().unwrap().to_owned();
        std::fs::create_dir_all(inner.join("temp")).unwrap();
        std::fs::create_dir_all(base.join(index::FOLDER)).unwrap();
        std::fs::write(&home, vec![0; 5000]).unwrap();
        let name = home.file_name().unwrap().to_owned();
        std::fs::write(base.join(&name), b"not at home").unwrap();
        std::fs::write(inner.join("other"), b"x").unwrap();
        let temporary = |n| inner.join(format!("{}.000000000{n}", name.to_string_lossy()));
        std::fs::write(temporary(1), b"x").unwrap();
        let written = os::file::create_new(&temporary(2), 0o600).unwrap();
        os::file::try_lock(&written).unwrap();
        for end in ["", ".new", ".waiting", ".waiting.new"] {
            std::fs::write(base.join(format!("{PURGES_FILE}{end}")), b"x").unwrap();
        }
        let top = folder(base.to_path_buf(), &layout);
        assert_eq!((top.more.len(), top.bad.len(), top.foreign), (1, 1, 0));
        let mut below = folder(inner.clone(), &layout);
        assert_eq!((below.more.len(), below.bad.len(), below.foreign), (1, 0, 1));
        assert_eq!([temporary(1), temporary(2)].map(|path| path.exists()), [false, true]);
        let found = run(below.more.pop().unwrap(), &layout, 4096);
        let file = store::identity(&os::file::lstat(&home).unwrap());
        assert_eq!(found.files, [(hash, 2, file)]);
        std::fs::write(&home, b"short").unwrap();
        assert_eq!(files(vec![(home.clone(), hash)], 4096).bad, [home]);
        assert!(folder(base.join("gone"), &layout).error.is_some());
    }
}
