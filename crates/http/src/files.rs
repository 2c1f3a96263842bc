//! Files as requests see them: the settings of the location, and the pool that waits for its disks.
//! The machinery is the crate `files`.
//!
//! A question that has to be waited for makes `try_*` say `Pending`; [`step`] and the async forms
//! then wait for the answer and ask again, which finds it.

use std::io;
use std::path::PathBuf;
use std::task::Poll;

use base::log::Level;
use cache::DiskAccess;
use files::{Aio, AppendFile, Links, NoPool, OpenSettings, Opener, as_path};
use os::file::FileMeta;

use crate::module::{Step, Verdict};
use crate::request::Request;
use crate::server::HttpMain;

pub use files::{
    CONTENT_MAX, DirEntry, Facts, FilePath, Listing, OpenError, OpenFile, generated,
    read_some as read_waiting,
};

/// The location's settings about opening.
#[inline]
fn open_settings(r: &Request) -> OpenSettings {
    let core = &r.loc.core;
    OpenSettings {
        aio_off: core.aio.is_off(),
        direct_from: core.directio,
        read_ahead: core.read_ahead > 0,
        cache: core.open_file_cache,
        cache_valid: core.open_file_cache_valid,
        cache_min_uses: core.open_file_cache_min_uses,
        cache_errors: core.open_file_cache_errors,
    }
}

/// The access of a request to files of a cache, by the settings of its location.
pub fn cache_access<'a>(r: &mut Request, main: &'a HttpMain) -> DiskAccess<'a> {
    DiskAccess {
        files: &main.files,
        open: open_settings(r),
        read: crate::channel::read_settings(r),
        pool: r.pool(),
        by_ring: r.loc.core.aio.is_by_ring(),
    }
}

#[inline]
fn opener(r: &mut Request) -> Opener<'_> {
    let settings = open_settings(r);
    Opener { files: &r.main.files, questions: &mut r.work.questions, settings }
}

/// The check of links that the location asks for in `path`.
#[inline]
fn links(r: &mut Request, path: &[u8]) -> Links {
    match &r.loc.core.disable_symlinks {
        None => Links::Follow,
        Some(_) => checked_links(r, path),
    }
}

fn checked_links(r: &mut Request, path: &[u8]) -> Links {
    let Some(conf) = r.loc.core.disable_symlinks.clone() else { return Links::Follow };
    let from = conf.from.as_ref().map(|t| r.eval(t)).unwrap_or_default();
    Links::checked(path, conf.if_not_owner, &from)
}

/// Opens `path` for reading as the location's settings say (`open_file_cache`, `disable_symlinks`).
/// `Pending`: the answer has to be waited for, see [`step`].
pub fn try_open(r: &mut Request, path: &[u8]) -> Poll<Result<OpenFile, OpenError>> {
    if let Err(NoPool) = pool_is_there(r) {
        return Poll::Ready(Err(OpenError::new("open()", NoPool.into())));
    }
    let links = links(r, path);
    let opened = opener(r).open(path, links);
    log_direct_refused(r, path);
    opened
}

/// As [`try_open`] without the location's settings, for files that are not served (passwords).
pub fn try_open_plain(r: &mut Request, path: &[u8]) -> Poll<Result<OpenFile, OpenError>> {
    let opened = opener(r).open_uncached(path, Links::Follow);
    log_direct_refused(r, path);
    opened
}

#[inline]
fn log_direct_refused(r: &mut Request, path: &[u8]) {
    if let Some(e) = r.work.questions.take_direct_refused() {
        let name = base::log::lossy(path);
        r.log_os(Level::Alert, format_args!("fcntl(O_DIRECT) \"{name}\""), &e);
    }
}

/// The attributes of the file at `path`, as the location's settings say; without `open_file_cache`
/// nothing is opened. `Pending`: the answer has to be waited for, see [`step`].
pub fn try_stat(r: &mut Request, path: &[u8]) -> Poll<Result<FileMeta, OpenError>> {
    if let Err(NoPool) = pool_is_there(r) {
        return Poll::Ready(Err(OpenError::new("stat()", NoPool.into())));
    }
    let links = links(r, path);
    opener(r).stat(path, links)
}

/// Reads a folder, with the attributes of every entry or only with as much of them as tells files
/// from folders. `Pending`: the answer has to be waited for, see [`step`].
pub fn try_list(r: &mut Request, path: &[u8], facts: bool) -> Poll<Result<Listing, OpenError>> {
    opener(r).list(path, facts)
}

/// The file at `path`, to be appended to under the location's `disable_symlinks`.
pub fn append_file(r: &mut Request, path: &[u8]) -> AppendFile {
    AppendFile { path: path.to_vec(), links: links(r, path) }
}

/// Finds the real path of the root, for a variable that will need it and cannot wait.
pub(crate) async fn find_real_root(r: &mut Request) {
    let mut root = FilePath::new();
    r.root_into(&mut root);
    let known = r.work.questions.real_path(&root).is_some();
    if known || r.loc.core.aio.is_off() || files::real_path_cached(&root).is_ready() {
        return;
    }
    let path = root.to_vec();
    let real = r.on_disk(move || std::fs::canonicalize(as_path(&path))).await;
    r.work.questions.set_real_path(root.to_vec(), real.and_then(|real| real));
}

/// The real path of the root. Waits for the disk where [`find_real_root`] did not run before and
/// the answer is not in memory: in the rewrite phase.
pub(crate) fn real_root(r: &mut Request, root: &[u8]) -> io::Result<PathBuf> {
    if let Some(real) = r.work.questions.real_path(root) {
        return real;
    }
    match files::real_path_cached(root) {
        Poll::Ready(real) => real,
        Poll::Pending => std::fs::canonicalize(as_path(root)),
    }
}

/// A pool that a variable names and that does not exist fails a question before it is known whether
/// it has to be waited for: the outcome does not depend on the contents of memory.
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

/// Asks with `try_*` until all answers are there, and waits for the missing ones; see [`step`].
pub async fn asking<T>(r: &mut Request, ask: impl Fn(&mut Request) -> Poll<T>) -> T {
    loop {
        if let Poll::Ready(answer) = ask(r) {
            r.work.questions.forget_answers();
            return answer;
        }
        fetch(r).await;
    }
}

/// Runs a handler that asks for files with `try_*` and gives up (`Pending`) where one of them does:
/// decides at once if all answers are there, else begins again after each answer.
///
/// The handler runs anew after each answer, so it changes nothing until it has all of them.
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
    if let Some(pending) = r.work.questions.take_pending() {
        let answered = pending.answer(r.pool()).await;
        r.work.questions.put(answered);
    }
}
