//! A session's questions about files, with no system call more than is needed.
//!
//! ```text
//!  open ─┬─ open_file_cache is on: cache ── valid ─────────────────────────▶ no call at all
//!        │                                └ else ─ stat, or open + fstat
//!        ├─ contents holds the file ─ statx says it is the same ───────────▶ one call *
//!        └─ else: openat + fstat (+ pread of a small file) ─▶ kept in contents
//! ```
//!
//! \* For all requests whose first bytes the same wait of the loop has found: see [`Batch`].
//!
//! An answer that may need a disk is `Pending`: [`Pending`] gets it, and the caller asks again,
//! which finds it. So a handler is written once, and costs no future where the answer is there at
//! once.

use std::io;
use std::path::PathBuf;
use std::task::{Poll, ready};

use base::time::now_ms;
use bytes::Bytes;
use event::Pool;
use mem::FileHandle;
use os::file::FileMeta;

use crate::aio::NoPool;
use crate::batch::Batch;
use crate::contents::Contents;
use crate::file::{Facts, Listing, OpenError, OpenFile, copied};
use crate::links::Links;
use crate::nonblocking;
use crate::open_file_cache::{self, Caches, OpenFileCache};
use crate::question::{self, Answer, Loaded, OpenFlags, Operation, Question};
use crate::recent_descriptors::RecentDescriptors;

/// The files that a worker holds: contents, descriptors and the entries of `open_file_cache`. They
/// belong to one configuration.
#[derive(Default)]
pub struct FileCaches {
    pub(crate) contents: Contents,
    recent: RecentDescriptors,
    pub(crate) caches: Caches,
    batch: Batch,
}

impl FileCaches {
    /// Answers requests that came with one read: what one of them learns of a file holds for all.
    /// [`Questions::begun_in`] is the same for requests of one turn.
    pub fn batch<T>(&self, answer: impl FnOnce() -> T) -> T {
        struct End<'a>(&'a Batch);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.end();
            }
        }
        self.batch.begin();
        let _end = End(&self.batch);
        answer()
    }

    /// The path leads to another file now.
    fn forget(&self, path: &[u8]) {
        self.contents.remove(path);
        self.recent.remove(path);
        self.batch.forget(path);
    }
}

/// The location's settings about opening files.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenSettings {
    /// `aio off`: the loop waits for the disk.
    pub aio_off: bool,
    /// `directio`: the size from which on a file is read past the page cache.
    pub direct_from: Option<u64>,
    /// `read_ahead`: the kernel is told that files are read from front to back.
    pub read_ahead: bool,
    /// The cache of `open_file_cache`, if it is on.
    pub cache: Option<OpenFileCache>,
    /// `open_file_cache_valid`, seconds.
    pub cache_valid: u64,
    /// `open_file_cache_min_uses`.
    pub cache_min_uses: u64,
    /// `open_file_cache_errors`.
    pub cache_errors: bool,
}

impl OpenSettings {
    pub(crate) fn flags(&self) -> OpenFlags {
        let OpenSettings { direct_from, read_ahead, .. } = *self;
        OpenFlags { direct_from, read_ahead, internal: false }
    }
}

/// The questions of one session, and the answers it has waited for.
#[derive(Default)]
pub struct Questions {
    /// The question that could not be answered at once.
    pending: Option<Question>,
    /// Answers that were waited for, until the handler that asked has all it needs.
    answers: Vec<(Question, Answer)>,
    /// The last `stat` that was answered, by path; good for the turn of the loop it was asked in.
    last_stat: Option<(u64, FileMeta)>,
    last_stat_path: Vec<u8>,
    /// A real path that had to be waited for.
    real_path: Option<(Vec<u8>, io::Result<PathBuf>)>,
    /// `O_DIRECT` was asked for and refused.
    direct_refused: Option<io::Error>,
    /// The turn of the loop that has found the request's first bytes.
    turn: Option<u64>,
}

impl Questions {
    /// Another task's answer of this turn of the loop ([`event::turn`]) is as good as one's own:
    /// the wait before the turn has found the first bytes of the request that asks.
    #[inline]
    pub fn begun_in(&mut self, turn: u64) {
        self.turn = Some(turn);
    }

    /// That turn, while it lasts.
    #[inline]
    fn turn(&self) -> Option<u64> {
        self.turn.filter(|&turn| turn == event::turn())
    }

    /// Forgets everything: the session's next request begins.
    #[inline]
    pub fn reset(&mut self) {
        self.turn = None;
        self.last_stat = None;
        self.real_path = None;
        if self.pending.is_some() || !self.answers.is_empty() {
            self.forget_answers();
        }
    }

    /// Drops the answers that were waited for.
    pub fn forget_answers(&mut self) {
        self.pending = None;
        self.answers.clear();
    }

    /// Takes the question that has to be waited for: a session that has one gives it a pool with
    /// [`Pending::answer`], and the answer back to [`Questions::put`].
    pub fn take_pending(&mut self) -> Option<Pending> {
        self.pending.take().map(Pending)
    }

    /// An answer has come.
    pub fn put(&mut self, answered: Answered) {
        self.answers.push(answered.0);
    }

    /// Why a file is not read past the page cache although `directio` says so, once.
    #[inline]
    pub fn take_direct_refused(&mut self) -> Option<io::Error> {
        self.direct_refused.take()
    }

    /// The real path of `path`, if it was waited for.
    pub fn real_path(&self, path: &[u8]) -> Option<io::Result<PathBuf>> {
        let (of, real) = self.real_path.as_ref()?;
        (of == path).then(|| match real {
            Ok(real) => Ok(real.clone()),
            Err(e) => Err(copied(e)),
        })
    }

    /// The real path of `path` was waited for.
    pub fn set_real_path(&mut self, path: Vec<u8>, real: io::Result<PathBuf>) {
        self.real_path = Some((path, real));
    }

    fn position(&self, operation: Operation, path: &[u8], links: Links) -> Option<usize> {
        self.answers.iter().position(|(question, _)| question.is(operation, path, links))
    }
}

/// A question that has to be waited for.
pub struct Pending(Question);

/// The same with its answer.
pub struct Answered((Question, Answer));

impl Pending {
    /// Waits for the answer: in a thread of the pool, or here where there is none (`aio off`). The
    /// error: the pool that a variable names does not exist.
    pub async fn answer(self, pool: Result<Option<Pool>, NoPool>) -> Answered {
        Answered(match pool {
            Ok(pool) => question::wait(self.0, pool).await,
            Err(NoPool) => self.0.without_pool(),
        })
    }
}

/// A session that asks about files.
pub struct Opener<'a> {
    /// The worker's caches.
    pub files: &'a FileCaches,
    /// The session's questions.
    pub questions: &'a mut Questions,
    /// The location's settings.
    pub settings: OpenSettings,
}

impl Opener<'_> {
    /// Opens `path` for reading as the settings say.
    #[inline]
    pub fn open(&mut self, path: &[u8], links: Links) -> Poll<Result<OpenFile, OpenError>> {
        match self.settings.cache {
            Some(conf) => open_file_cache::open(self, &conf, path, links),
            None => self.open_uncached(path, links),
        }
    }

    /// The same without `open_file_cache`, for files that are not served (passwords).
    #[inline]
    pub fn open_uncached(
        &mut self,
        path: &[u8],
        links: Links,
    ) -> Poll<Result<OpenFile, OpenError>> {
        let flags = self.settings.flags();
        self.open_with(path, links, flags)
    }

    fn open_with(
        &mut self,
        path: &[u8],
        links: Links,
        flags: OpenFlags,
    ) -> Poll<Result<OpenFile, OpenError>> {
        if links.follow() {
            let files = self.files;
            if let Some(file) = files.batch.file(path) {
                return Poll::Ready(Ok(file));
            }
            let recent = || files.recent.get(path).filter(|_| flags.direct_from.is_none());
            let held = files.contents.get(path).or_else(recent);
            if let Some(file) = held {
                match ready!(self.uncached_stat(path, links)) {
                    Ok(meta) if meta.same_version(&file.facts.meta) => {
                        files.batch.put_file(path, &file);
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
        let mut loaded = match ready!(self.load(path, links, flags)) {
            Ok(l) => l,
            Err(e) => return Poll::Ready(Err(e)),
        };
        self.questions.direct_refused = loaded.direct_refused.take();
        let settled = loaded.settled();
        let holdable = loaded.local && !loaded.direct && loaded.meta.is_file();
        let mut file = opened(loaded);
        if file.content.is_none() && holdable && links.follow() {
            self.files.recent.insert(path, &file);
        }
        if file.content.is_some() {
            file.fd = None;
            if settled && links.follow() {
                self.files.contents.insert(path, &file);
            }
        }
        Poll::Ready(Ok(file))
    }

    /// The attributes of what `path` leads to, as the settings say; without `open_file_cache`
    /// nothing is opened.
    #[inline]
    pub fn stat(&mut self, path: &[u8], links: Links) -> Poll<Result<FileMeta, OpenError>> {
        match self.settings.cache {
            Some(conf) => open_file_cache::open(self, &conf, path, links).map_ok(|f| f.facts.meta),
            None => self.uncached_stat(path, links),
        }
    }

    /// Reads a folder; `facts`: sorted and with the attributes of every entry, else with only as
    /// much of them as tells files from folders.
    pub fn list(&mut self, path: &[u8], facts: bool) -> Poll<Result<Listing, OpenError>> {
        let (operation, links) = (Operation::List(facts), Links::Follow);
        let questions = &mut *self.questions;
        if let Some(i) = questions.position(operation, path, links)
            && let (_, Answer::List(answer)) = questions.answers.swap_remove(i)
        {
            return Poll::Ready(answer);
        }
        let answer = question::try_list(path, facts, self.settings.aio_off);
        if answer.is_pending() {
            questions.pending = Some(Question::new(operation, path, links));
        }
        answer
    }

    /// The attributes of what `path` leads to.
    pub(crate) fn uncached_stat(
        &mut self,
        path: &[u8],
        links: Links,
    ) -> Poll<Result<FileMeta, OpenError>> {
        let questions = &mut *self.questions;
        let turn = questions.turn();
        if links.follow()
            && let Some(meta) = self.files.batch.get(path, turn)
        {
            return Poll::Ready(Ok(meta));
        }
        let now = now_ms();
        if let Some((at, meta)) = questions.last_stat
            && at == now
            && links.follow()
            && questions.last_stat_path == path
        {
            return Poll::Ready(Ok(meta));
        }
        if let Some(i) = questions.position(Operation::Stat, path, links)
            && let (_, Answer::Stat(answer)) = &questions.answers[i]
        {
            return Poll::Ready(answer.as_ref().map(|m| *m).map_err(OpenError::copied));
        }
        match question::try_stat(path, links, self.settings.aio_off) {
            Poll::Ready(answer) => {
                if let Ok(meta) = &answer
                    && links.follow()
                {
                    self.files.batch.put(path, meta, turn);
                    questions.last_stat = Some((now, *meta));
                    questions.last_stat_path.clear();
                    questions.last_stat_path.extend_from_slice(path);
                }
                Poll::Ready(answer)
            }
            Poll::Pending => {
                questions.pending = Some(Question::new(Operation::Stat, path, links));
                Poll::Pending
            }
        }
    }

    pub(crate) fn load(
        &mut self,
        path: &[u8],
        links: Links,
        flags: OpenFlags,
    ) -> Poll<Result<Loaded, OpenError>> {
        let questions = &mut *self.questions;
        // Taken out, since it holds a descriptor: the caller gets the file, and begins no more
        // anew.
        if let Some(i) = questions.position(Operation::Load(flags), path, links)
            && let (_, Answer::Load(answer)) = questions.answers.swap_remove(i)
        {
            return Poll::Ready(answer);
        }
        let answer = question::try_load(path, links, flags, self.settings.aio_off);
        if answer.is_pending() {
            questions.pending = Some(Question::new(Operation::Load(flags), path, links));
        }
        answer
    }
}

/// Opens a file of the server's own, as those of a cache: links are followed, and neither
/// `open_file_cache` nor `directio` holds.
pub async fn open_internal(
    files: &FileCaches,
    settings: OpenSettings,
    pool: Option<Pool>,
    path: &[u8],
) -> Result<OpenFile, OpenError> {
    let flags = OpenFlags { direct_from: None, internal: true, ..settings.flags() };
    let mut questions = Questions::default();
    loop {
        let mut opener = Opener { files, questions: &mut questions, settings };
        if let Poll::Ready(answer) = opener.open_with(path, Links::Follow, flags) {
            return answer;
        }
        if let Some(pending) = questions.take_pending() {
            let answered = pending.answer(Ok(pool.clone())).await;
            questions.put(answered);
        }
    }
}

pub(crate) fn opened(loaded: Loaded) -> OpenFile {
    OpenFile {
        facts: Facts::new(loaded.meta),
        fd: loaded.fd.map(|fd| {
            let (key, direct) = (nonblocking::key(&loaded.meta), loaded.direct);
            match loaded.local {
                true => FileHandle::local(fd, key, direct, nonblocking::close),
                false => FileHandle::new(fd, key, direct, Some(nonblocking::retire)),
            }
        }),
        content: loaded.content.map(Bytes::from),
    }
}
