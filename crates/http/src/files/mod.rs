//! Files to serve: opening and asking about them without a system call more than is needed.
//!
//! ```text
//!  try_open ─┬─ open_file_cache is on: cache ── valid ─────────────────────────▶ no call at all
//!            │                                └ else ─ stat, or open + fstat
//!            ├─ contents holds the file ─ statx says it is the same ───────────▶ one call
//!            └─ else: openat + fstat (+ pread of a small file) ─▶ kept in contents
//! ```
//!
//! Whatever may touch a disk passes the [`door`]. A question it cannot answer without waiting makes
//! `try_*` say `Pending`; [`step`] and the async forms then wait for the answer and ask again,
//! which finds it. So a handler is written once, and costs no future where the answer is there at
//! once.

mod cache;
mod contents;
mod door;
mod links;
pub(crate) mod near;
pub(crate) mod page_cache;
mod path;
mod recent;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::task::Poll;

use base::log::Level;
use bytes::Bytes;
use mem::{Chain, FileHandle};
use os::file::{FileKind, FileMeta};

use crate::aio::{Aio, NoPool};
use crate::module::{Step, Verdict};
use crate::request::Request;

pub use path::FilePath;

use self::door::{Answer, How, Job, Kind, Loaded};

/// Files up to this size are held in memory and sent from there.
pub const CONTENT_MAX: u64 = 32 << 10;

/// What log files are made with, less the umask.
const LOG_MODE: u32 = 0o644;

/// What is known about a file, with the texts that responses take from it.
#[derive(Debug)]
pub struct Facts {
    /// As the file system told it.
    pub meta: FileMeta,
    /// `ETag` as nginx makes it, with quotes.
    pub etag: Bytes,
}

impl Facts {
    fn new(meta: FileMeta) -> Rc<Facts> {
        let mut etag = Vec::with_capacity(28);
        etag.push(b'"');
        base::ascii::write_hex_u64(&mut etag, meta.mtime_sec as u64);
        etag.push(b'-');
        base::ascii::write_hex_u64(&mut etag, meta.size);
        etag.push(b'"');
        Rc::new(Facts { meta, etag: Bytes::from(etag) })
    }
}

/// A file or folder that was opened. Cloning shares everything.
#[derive(Clone, Debug)]
pub struct OpenFile {
    /// What is known about it.
    pub facts: Rc<Facts>,
    /// The descriptor; `None` for folders, and for files whose content was at hand.
    pub fd: Option<FileHandle>,
    /// The content of a small file, all of it.
    pub content: Option<Bytes>,
}

impl OpenFile {
    /// What the file system told.
    pub fn meta(&self) -> &FileMeta {
        &self.facts.meta
    }

    /// Appends the bytes `start..end` of the file to a chain.
    pub fn append_to(&self, chain: &mut Chain, start: u64, end: u64) {
        if let Some(content) = &self.content {
            let len = content.len() as u64;
            chain.push_bytes(content.slice(start.min(len) as usize..end.min(len) as usize));
        } else if let Some(fd) = &self.fd {
            chain.push_file(fd.clone(), start, end);
        }
    }
}

/// An entry of a folder.
#[derive(Debug)]
pub struct DirEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// What it is, links followed where they lead somewhere.
    pub kind: FileKind,
    /// The facts about it, where they were asked for.
    pub meta: Option<FileMeta>,
}

/// Reads some bytes at `pos`, up to `len` and at least one, and waits for the disk: for tasks of a
/// thread pool. `align` is the location's `directio_alignment`.
///
/// # Errors
/// The file ends before `pos`, or cannot be read.
pub fn read_waiting(file: &FileHandle, pos: u64, len: usize, align: usize) -> io::Result<Bytes> {
    crate::reading::read_some(file, pos, len, align)
}

/// What a folder holds, hidden names left out, in the folder's order.
#[derive(Default, Debug)]
pub struct Listing {
    /// The entries.
    pub entries: Vec<DirEntry>,
    /// Names about which nothing could be found out (`stat()` failed).
    pub failed: Vec<(Vec<u8>, io::Error)>,
}

/// The path could not be opened.
#[derive(Debug)]
pub struct OpenError {
    /// Why.
    pub error: io::Error,
    /// Which call failed, for the log: `open()`, `stat()`, `openat()`, `fstat()`.
    pub what: &'static str,
}

impl OpenError {
    fn new(what: &'static str, error: io::Error) -> OpenError {
        OpenError { error, what }
    }

    /// The number of the system's error.
    pub fn errno(&self) -> Option<i32> {
        self.error.raw_os_error()
    }

    fn again(&self) -> OpenError {
        OpenError { error: again(&self.error), what: self.what }
    }
}

fn again(e: &io::Error) -> io::Error {
    match e.raw_os_error() {
        Some(n) => io::Error::from_raw_os_error(n),
        None => e.kind().into(),
    }
}

/// What the workers know about files; belongs to one configuration.
#[derive(Default)]
pub(crate) struct Files {
    contents: contents::Contents,
    recent: recent::Recent,
    caches: cache::Caches,
}

impl Files {
    /// What was held for a path is not what it leads to now.
    fn forget(&self, path: &[u8]) {
        self.contents.remove(path);
        self.recent.remove(path);
    }
}

/// What a request asked of the file system.
#[derive(Default)]
pub(crate) struct Asked {
    /// The question that could not be answered at once.
    wanted: Option<Job>,
    /// Answers that were waited for, until the handler that asked has what it wants.
    got: Vec<(Job, Answer)>,
    /// The last `stat` that was answered, by path; good for the turn of the loop it was asked in.
    seen: Option<(u64, FileMeta)>,
    seen_path: Vec<u8>,
    /// Where a root really lies, if that had to be waited for.
    real_root: Option<(Vec<u8>, io::Result<PathBuf>)>,
}

impl Asked {
    pub fn reset(&mut self) {
        self.seen = None;
        self.real_root = None;
        if self.wanted.is_some() || !self.got.is_empty() {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.wanted = None;
        self.got.clear();
    }
}

/// Opens `path` for reading as the location's settings say (`open_file_cache`, `disable_symlinks`).
/// `Pending`: the answer has to be waited for, see [`step`].
pub fn try_open(r: &mut Request, path: &[u8]) -> Poll<Result<OpenFile, OpenError>> {
    if let Err(NoPool) = pool_is_there(r) {
        return Poll::Ready(Err(OpenError::new("open()", io::Error::other(NO_POOL))));
    }
    let links = links::of(r, path);
    if let Some(conf) = r.loc.core.open_file_cache {
        return cache::open(r, &conf, path, links);
    }
    open_with(r, path, links)
}

/// As [`try_open`] without the location's settings, for files that are not served (passwords).
pub fn try_open_plain(r: &mut Request, path: &[u8]) -> Poll<Result<OpenFile, OpenError>> {
    open_with(r, path, links::Links::Follow)
}

/// Opens a file of a cache: links are followed, `open_file_cache` and `directio` are not for it.
pub(crate) async fn open_kept(r: &mut Request, path: &[u8]) -> Result<OpenFile, OpenError> {
    if let Err(NoPool) = pool_is_there(r) {
        return Err(OpenError::new("open()", io::Error::other(NO_POOL)));
    }
    let how = How { direct_from: None, own: true, ..how(r) };
    asking(r, |r| open_how(r, path, links::Links::Follow, how)).await
}

fn open_with(
    r: &mut Request,
    path: &[u8],
    links: links::Links,
) -> Poll<Result<OpenFile, OpenError>> {
    let how = how(r);
    open_how(r, path, links, how)
}

/// How the location wants files to be opened.
fn how(r: &Request) -> How {
    let core = &r.loc.core;
    How { direct_from: core.directio, read_ahead: core.read_ahead > 0, own: false }
}

fn open_how(
    r: &mut Request,
    path: &[u8],
    links: links::Links,
    how: How,
) -> Poll<Result<OpenFile, OpenError>> {
    if links.follow() {
        let main = r.main.clone();
        let files = &main.files;
        let recent = || files.recent.get(path).filter(|_| how.direct_from.is_none());
        let held = files.contents.get(path).or_else(recent);
        if let Some(file) = held {
            match std::task::ready!(ask_stat(r, path, links)) {
                Ok(meta) if meta.same_version(&file.facts.meta) => {
                    return Poll::Ready(Ok(file));
                }
                Ok(_) => files.forget(path),
                Err(e) => {
                    files.forget(path);
                    return Poll::Ready(Err(OpenError::new("open()", e.error)));
                }
            }
        }
    }
    let loaded = match std::task::ready!(ask_load(r, path, links, how)) {
        Ok(l) => l,
        Err(e) => return Poll::Ready(Err(e)),
    };
    if let Some(e) = &loaded.not_direct {
        let name = base::log::lossy(path);
        r.log_os(Level::Alert, format_args!("fcntl(O_DIRECT) \"{name}\""), e);
    }
    let settled = loaded.settled();
    let holdable = loaded.local && !loaded.direct && loaded.meta.is_file();
    let mut file = opened(loaded);
    if file.content.is_none() && holdable && links.follow() {
        r.main.files.recent.insert(path, &file);
    }
    if file.content.is_some() {
        file.fd = None;
        if settled && links.follow() {
            r.main.files.contents.insert(path, &file);
        }
    }
    Poll::Ready(Ok(file))
}

/// Facts about `path`, as the location's settings say; without `open_file_cache` nothing is opened.
/// `Pending`: the answer has to be waited for, see [`step`].
pub fn try_stat(r: &mut Request, path: &[u8]) -> Poll<Result<FileMeta, OpenError>> {
    if let Err(NoPool) = pool_is_there(r) {
        return Poll::Ready(Err(OpenError::new("stat()", io::Error::other(NO_POOL))));
    }
    let links = links::of(r, path);
    match r.loc.core.open_file_cache {
        Some(conf) => cache::open(r, &conf, path, links).map_ok(|f| f.facts.meta),
        None => ask_stat(r, path, links),
    }
}

/// Reads a folder, with the `facts` of every entry or only as much of them as tells what it is.
/// `Pending`: the answer has to be waited for, see [`step`].
pub fn try_list(r: &mut Request, path: &[u8], facts: bool) -> Poll<Result<Listing, OpenError>> {
    let (kind, links) = (Kind::List(facts), links::Links::Follow);
    let asked = &mut r.asked;
    if let Some(i) = position(asked, kind, path, links)
        && let (_, Answer::List(answer)) = asked.got.swap_remove(i)
    {
        return Poll::Ready(answer);
    }
    let answer = door::try_list(path, facts, r.loc.core.aio.is_off());
    if answer.is_pending() {
        asked.wanted = Some(Job::new(kind, path, links));
    }
    answer
}

/// A file to append to, with the location's `disable_symlinks`: opened wherever it may be waited
/// for.
#[derive(Clone, Debug)]
pub struct AppendFile {
    path: Vec<u8>,
    links: links::Links,
}

/// The file at `path`, to be appended to.
pub fn append_file(r: &mut Request, path: &[u8]) -> AppendFile {
    AppendFile { path: path.to_vec(), links: links::of(r, path) }
}

impl AppendFile {
    /// Its path.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Opens it, made when absent. Waits for the disk.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(&self) -> Result<OwnedFd, OpenError> {
        match self.links {
            links::Links::Follow => {
                let fd = os::file::open_append(door::path_of(&self.path), LOG_MODE);
                fd.map_err(|e| OpenError::new("open()", e))
            }
            links::Links::Check { owner, from } => {
                links::open_append(&self.path, owner, from, LOG_MODE)
            }
        }
    }
}

/// Finds out where the root really lies, for a variable that will be asked for it and cannot wait.
/// Done at once where that is in memory.
pub(crate) async fn find_real_root(r: &mut Request) {
    let mut root = FilePath::new();
    r.root_into(&mut root);
    let known = r.asked.real_root.as_ref().is_some_and(|(of, _)| **of == *root);
    if known || r.loc.core.aio.is_off() || near::real_path(&root).is_ready() {
        return;
    }
    let path = root.to_vec();
    let real = r.on_disk(move || std::fs::canonicalize(door::path_of(&path))).await;
    r.asked.real_root = Some((root.to_vec(), real.and_then(|real| real)));
}

/// Where the root really lies. Waits for the disk where [`find_real_root`] did not run before and
/// the answer is not in memory: in the rewrite phase.
pub(crate) fn real_root(r: &mut Request, root: &[u8]) -> io::Result<PathBuf> {
    if let Some((of, real)) = &r.asked.real_root
        && of == root
    {
        return match real {
            Ok(real) => Ok(real.clone()),
            Err(e) => Err(again(e)),
        };
    }
    match near::real_path(root) {
        Poll::Ready(real) => real,
        Poll::Pending => std::fs::canonicalize(door::path_of(root)),
    }
}

/// What is wrong where a variable names a pool that does not exist: said before it is known whether
/// anything has to be waited for, so that it does not depend on what is in memory.
const NO_POOL: &str = "no thread pool";

#[inline]
fn pool_is_there(r: &mut Request) -> Result<(), NoPool> {
    match r.loc.core.aio {
        Aio::Named(_) => r.pool().map(drop),
        _ => Ok(()),
    }
}

/// The waiting form of [`try_open`].
pub async fn open(r: &mut Request, path: &[u8]) -> Result<OpenFile, OpenError> {
    asking(r, |r| try_open(r, path)).await
}

/// The waiting form of [`try_stat`].
pub async fn stat(r: &mut Request, path: &[u8]) -> Result<FileMeta, OpenError> {
    asking(r, |r| try_stat(r, path)).await
}

/// Asks with `try_*` until all answers are there, waiting for those that are not; see [`step`].
pub async fn asking<T>(r: &mut Request, ask: impl Fn(&mut Request) -> Poll<T>) -> T {
    loop {
        if let Poll::Ready(answer) = ask(r) {
            r.asked.forget();
            return answer;
        }
        fetch(r).await;
    }
}

/// Runs a handler that asks for files with `try_*` and gives up (`Pending`) where one of them does:
/// decides at once if all answers are there, else begins again after each answer.
///
/// What the handler did before it gave up is done again, so it changes nothing until it has what it
/// asked for.
pub fn step<'a>(
    r: &'a mut Request,
    handler: impl Fn(&mut Request) -> Poll<Verdict> + 'a,
) -> Step<'a> {
    match handler(r) {
        Poll::Ready(v) => Step::Now(v),
        Poll::Pending => Step::Wait(Box::pin(async move {
            fetch(r).await;
            asking(r, handler).await
        })),
    }
}

/// Waits for the answer to the question that made a `try_*` give up.
async fn fetch(r: &mut Request) {
    if let Some(job) = r.asked.wanted.take() {
        let (job, answer) = match r.pool() {
            Ok(pool) => door::wait(job, pool).await,
            Err(_) => job.without_pool(),
        };
        r.asked.got.push((job, answer));
    }
}

fn ask_stat(
    r: &mut Request,
    path: &[u8],
    links: links::Links,
) -> Poll<Result<FileMeta, OpenError>> {
    let now = base::time::now_ms();
    let asked = &mut r.asked;
    if let Some((at, meta)) = asked.seen
        && at == now
        && links.follow()
        && asked.seen_path == path
    {
        return Poll::Ready(Ok(meta));
    }
    if let Some(i) = position(asked, Kind::Stat, path, links)
        && let (_, Answer::Stat(answer)) = &asked.got[i]
    {
        return Poll::Ready(answer.as_ref().map(|m| *m).map_err(OpenError::again));
    }
    let off = r.loc.core.aio.is_off();
    match door::try_stat(path, links, off) {
        Poll::Ready(answer) => {
            if let Ok(meta) = &answer
                && links.follow()
            {
                asked.seen = Some((now, *meta));
                asked.seen_path.clear();
                asked.seen_path.extend_from_slice(path);
            }
            Poll::Ready(answer)
        }
        Poll::Pending => {
            asked.wanted = Some(Job::new(Kind::Stat, path, links));
            Poll::Pending
        }
    }
}

fn ask_load(
    r: &mut Request,
    path: &[u8],
    links: links::Links,
    how: How,
) -> Poll<Result<Loaded, OpenError>> {
    let off = r.loc.core.aio.is_off();
    let asked = &mut r.asked;
    // Taken out, since it holds a descriptor: whoever opens gets the file, and begins no more anew.
    if let Some(i) = position(asked, Kind::Load(how), path, links)
        && let (_, Answer::Load(answer)) = asked.got.swap_remove(i)
    {
        return Poll::Ready(answer);
    }
    let answer = door::try_load(path, links, how, off);
    if answer.is_pending() {
        asked.wanted = Some(Job::new(Kind::Load(how), path, links));
    }
    answer
}

fn position(asked: &Asked, kind: Kind, path: &[u8], links: links::Links) -> Option<usize> {
    asked.got.iter().position(|(job, _)| job.is(kind, path, links))
}

fn opened(loaded: Loaded) -> OpenFile {
    OpenFile {
        facts: Facts::new(loaded.meta),
        fd: loaded.fd.map(|fd| {
            let (key, direct) = (near::key(&loaded.meta), loaded.direct);
            match loaded.local {
                true => FileHandle::local(fd, key, direct, near::close),
                false => FileHandle::new(fd, key, direct, Some(close)),
            }
        }),
        content: loaded.content.map(Bytes::from),
    }
}

/// Whether an open file lies on a file system of this machine's own. May wait.
pub(crate) fn lies_near(fd: &OwnedFd) -> bool {
    os::file::fstat(fd).is_ok_and(|meta| near::learn(meta.dev, fd))
}

/// An open file of this machine's own file systems, of which the loop may be the last to let go.
pub(crate) fn held(fd: OwnedFd) -> FileHandle {
    FileHandle::local(fd, 0, false, near::close)
}

/// Closes a file without waiting for it: that of a slow file system may have to ask its server.
pub(crate) fn close(fd: OwnedFd) {
    event::pool::elsewhere(move || drop(fd));
}
