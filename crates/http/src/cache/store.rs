//! Files of a cache: opened and checked, made and given their place, deleted. What may wait for a
//! disk is done in threads; what the kernel has in memory is taken at once.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::crc::Crc32;
use base::future::boxed;
use base::hash::Table;
use base::log::Level;
use base::time::now_ms;
use bytes::Bytes;
use event::Pool;
use mem::{Chain, FileHandle};
use os::errno::{ENOENT, ENOTDIR};
use os::file::FileMeta;
use proto::cache_index::{Entry, Record};
use proto::h1::{ResponseHead, ResponseParser, ResponseStep};

use super::faults::Cause;
use super::format::{Bad, Header};
use super::key::{Hash, Layout};
use super::keys::{Evicted, Purged, Seen, Turn};
use super::marks::Since;
use super::purge;
use super::rules::Forbids;
use super::tags;
use super::zone::Cache;
use crate::reading;
use crate::request::Request;
use engine::TempPath;
use files::{FileError, OpenFile, next_number};

/// A response that is kept, opened and checked.
pub(crate) struct Stored {
    /// What the header of its file says.
    pub header: Header,
    /// Its head, parsed; empty where it has none.
    pub head: ResponseHead,
    /// The file, or its content.
    file: OpenFile,
    body_start: u64,
    forbids: Forbids,
}

impl Stored {
    /// The text that the head's spans point into.
    pub fn text(&self) -> Bytes {
        self.header.head.clone().unwrap_or_default()
    }

    /// The body.
    pub fn body(&self) -> Chain {
        let mut chain = Chain::new();
        if self.header.body_len > 0 {
            let end = self.body_start + self.header.body_len;
            self.file.append_to(&mut chain, self.body_start, end);
        }
        chain
    }

    /// The same body with a newer head.
    pub fn renewed(&self, header: Header, head: ResponseHead) -> Stored {
        let forbids = Forbids::default();
        Stored { header, head, file: self.file.clone(), body_start: self.body_start, forbids }
    }

    /// What its fields say against keeping it.
    pub fn forbids(&self) -> &Forbids {
        &self.forbids
    }

    /// Where in the file the body begins.
    pub fn body_start(&self) -> u64 {
        self.body_start
    }

    /// What the file system tells of the file.
    pub fn meta(&self) -> &FileMeta {
        self.file.meta()
    }

    /// Bytes that it takes in memory, roughly.
    fn weight(&self) -> usize {
        let content = self.file.content.as_ref().map_or(0, Bytes::len);
        self.body_start as usize + content + std::mem::size_of::<Stored>() + 1024
    }
}

/// What came of opening a file.
pub(crate) enum Opened {
    /// A response.
    Found(Rc<Stored>),
    /// There is none.
    Missing,
    /// The disk did not let us know; that was told.
    Failed,
}

/// What is known of a kept response: with which version of the zone, and when the file system was
/// asked for it last.
struct Held {
    version: u32,
    stored: Rc<Stored>,
    asked_ms: u64,
}

/// Responses that this worker holds, in two generations: what is used moves to the young one; when
/// that is full it becomes the old one, and what the old one still held is forgotten.
///
/// With `memory=` they are used as long as the zone tells of the same version; without, only to
/// spare the parsing: the file system is asked each time.
#[derive(Default)]
pub(crate) struct Memory {
    trusted: bool,
    most: usize,
    young: Table<Hash, Held>,
    young_weight: usize,
    old: Table<Hash, Held>,
}

/// What is held where the file system is asked each time, bytes.
const CHECKED_MAX: usize = 4 << 20;

impl Memory {
    /// A memory for `bytes`; 0 asks the file system each time.
    pub fn new(bytes: usize) -> Memory {
        let most = if bytes == 0 { CHECKED_MAX } else { bytes };
        Memory { trusted: bytes > 0, most, ..Memory::default() }
    }

    fn get(&mut self, hash: &Hash) -> Option<&Held> {
        if !self.young.contains_key(hash) {
            let held = self.old.remove(hash)?;
            self.put(*hash, held);
        }
        self.young.get(hash)
    }

    fn put(&mut self, hash: Hash, held: Held) {
        let weight = held.stored.weight();
        if weight > self.most / 8 {
            return;
        }
        if self.young_weight + weight > self.most / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_weight = 0;
        }
        self.young_weight += weight;
        if let Some(old) = self.young.insert(hash, held) {
            self.young_weight -= old.stored.weight().min(self.young_weight);
        }
    }

    /// What may be used without asking the file system.
    pub fn trusted(&mut self, hash: &Hash, version: u32) -> Option<Rc<Stored>> {
        if version == 0 {
            return None;
        }
        // Requests of the same moment, those that waited for one fetch say, share one look.
        let (trusted, now) = (self.trusted, now_ms());
        let held = self.get(hash).filter(|held| held.version == version)?;
        (trusted || held.asked_ms == now).then(|| held.stored.clone())
    }

    /// What is the same as an open file, of which the zone tells that version.
    fn same(
        &mut self,
        hash: &Hash,
        version: u32,
        key: &Bytes,
        meta: &FileMeta,
    ) -> Option<Rc<Stored>> {
        self.get(hash)?;
        let held = self.young.get_mut(hash)?;
        if !held.stored.meta().same_version(meta) || held.stored.header.key != *key {
            return None;
        }
        held.asked_ms = now_ms();
        if version != 0 {
            held.version = version;
        }
        Some(held.stored.clone())
    }

    /// Forgets a key.
    pub fn forget(&mut self, hash: &Hash) {
        if let Some(held) = self.young.remove(hash) {
            self.young_weight -= held.stored.weight().min(self.young_weight);
        }
        self.old.remove(hash);
    }
}

/// Opens the file of a hash, of which the zone has told that; `since` is what had been purged
/// before. `key` is what it must be of.
pub(crate) async fn open(
    r: &mut Request,
    cache: &Rc<Cache>,
    hash: &Hash,
    seen: Seen,
    since: Since,
    key: &Bytes,
) -> Opened {
    let Seen { version, settled } = seen;
    let held = cache.memory.borrow_mut().trusted(hash, version);
    let opened = match held.filter(|stored| stored.header.key == *key) {
        Some(stored) => Opened::Found(stored),
        None => boxed(|| open_file(r, cache, hash, version, since, key)).await,
    };
    let Opened::Found(stored) = &opened else { return opened };
    if settled == cache.keys.marks.newest() {
        return opened;
    }
    // What had no version got one only now, which says nothing about its age.
    let header = &stored.header;
    let tags = || tags::of_header(header);
    if !cache.keys.marks.purged(settled, version, header.date, &header.key, tags) {
        return opened;
    }
    if cache.keys.purge(hash) == Purged::Out {
        let one = Evicted { hash: *hash, file: true };
        cache.discard(vec![one], r.pool().ok().flatten().as_ref());
    }
    Opened::Missing
}

/// The same without what is in memory: in a box, as those who wait for a lock need no room for it.
async fn open_file(
    r: &mut Request,
    cache: &Rc<Cache>,
    hash: &Hash,
    version: u32,
    since: Since,
    key: &Bytes,
) -> Opened {
    let path = cache.settings.layout.path(hash);
    // A header that is being changed in its place may be seen half changed once.
    for last in [false, true] {
        let file = match crate::files::open_kept(r, &path).await {
            Ok(file) => file,
            Err(e) if matches!(e.errno(), Some(ENOENT | ENOTDIR)) => {
                if cache.keys.gone(hash, version) {
                    cache.tell_gone(hash);
                }
                return Opened::Missing;
            }
            Err(e) => {
                if cache.fault(Cause::Open) {
                    let path = base::log::lossy(&path);
                    r.log_os(Level::Crit, format_args!("{} \"{path}\"", e.what), &e.error);
                }
                return Opened::Failed;
            }
        };
        if let Some(stored) = cache.memory.borrow_mut().same(hash, version, key, file.meta()) {
            return Opened::Found(stored);
        }
        match read(r, &file).await {
            Ok(stored) if version == 0 && is_distrusted(cache, hash, &stored) => {
                cache.keys.purge(hash);
                take_away(cache, hash, r.pool().ok().flatten().as_ref()).await;
                return Opened::Missing;
            }
            Ok(stored) if stored.header.key != *key => {
                if cache.fault(Cause::Damaged) {
                    let path = base::log::lossy(&path);
                    let m = format_args!("cache file \"{path}\" has md5 collision");
                    r.log(Level::Crit, m);
                }
                return Opened::Missing;
            }
            Ok(stored) => {
                let version = version_of(cache, hash, version, since, &stored);
                let stored = Rc::new(stored);
                let held = Held { version, stored: stored.clone(), asked_ms: now_ms() };
                cache.memory.borrow_mut().put(*hash, held);
                return Opened::Found(stored);
            }
            Err(Unreadable::Io(e)) => {
                if cache.fault(Cause::Read) {
                    let path = base::log::lossy(&path);
                    r.log_os(Level::Crit, format_args!("pread() \"{path}\""), &e);
                }
                return Opened::Failed;
            }
            Err(Unreadable::Bad(why)) if last => discard(r, cache, hash, version, why).await,
            Err(Unreadable::Bad(_)) => {}
        }
    }
    Opened::Missing
}

/// The version of a file that was opened, of which the zone knew that; 0 where nobody knows.
fn version_of(cache: &Cache, hash: &Hash, version: u32, since: Since, stored: &Stored) -> u32 {
    if version != 0 {
        return version;
    }
    let (meta, header) = (stored.meta(), &stored.header);
    let is_purged = || purge::meanwhile(cache, since, &header.key, &tags::of_header(header));
    cache.keys.opened(hash, blocks(meta, cache.block()), identity(meta), is_purged)
}

/// Whether a file without a version may have been in its place behind the back of a purge.
fn is_distrusted(cache: &Cache, hash: &Hash, stored: &Stored) -> bool {
    cache.keys.is_distrusted(hash, stored.header.date, identity(stored.meta()))
}

/// Deletes a file that is no response of ours, before another one may take its place.
async fn discard(r: &mut Request, cache: &Rc<Cache>, hash: &Hash, version: u32, why: &str) {
    if cache.fault(Cause::Damaged) {
        let path = cache.settings.layout.path(hash);
        let path = base::log::lossy(&path);
        r.log(Level::Crit, format_args!("cache file \"{path}\" {why}, discarded"));
    }
    if cache.keys.gone(hash, version) {
        cache.tell_gone(hash);
    }
    take_away(cache, hash, r.pool().ok().flatten().as_ref()).await;
}

/// Deletes a file before another one may take its place.
pub(crate) async fn take_away(cache: &Cache, hash: &Hash, pool: Option<&Pool>) {
    cache.memory.borrow_mut().forget(hash);
    delete_all(cache, vec![*hash], pool).await;
}

/// Deletes files in a thread, and tells of the last that could not be. Gives how many there were.
pub(crate) async fn delete_all(cache: &Cache, files: Vec<Hash>, pool: Option<&Pool>) -> usize {
    if files.is_empty() {
        return 0;
    }
    let layout = cache.settings.layout.clone();
    match elsewhere(pool, move || delete_each(&layout, &files)).await {
        Ok((count, failed)) => {
            if let Some(e) = failed {
                cache.tell(Cause::Delete, format_args!("{e}"));
            }
            count
        }
        Err(e) => {
            cache.tell(Cause::Delete, format_args!("{e}"));
            0
        }
    }
}

/// Deletes files: how many there were, and why the last that could not be. May wait for a disk.
pub(crate) fn delete_each(layout: &Layout, files: &[Hash]) -> (usize, Option<FileError>) {
    let deleted = files.iter().map(|hash| delete(layout, hash));
    deleted.fold((0, None), |(count, failed), deleted| match deleted {
        Ok(was_there) => (count + usize::from(was_there), failed),
        Err(e) => (count, Some(e)),
    })
}

enum Unreadable {
    Io(io::Error),
    /// Why it is no response of ours.
    Bad(&'static str),
}

/// How much of a file is read at first to find its header.
const FIRST: usize = 4096;

/// Reads and checks the header of an open file.
async fn read(r: &mut Request, file: &OpenFile) -> Result<Stored, Unreadable> {
    let size = file.meta().size;
    let mut bytes = match (&file.content, &file.fd) {
        (Some(content), _) => content.clone(),
        (None, Some(fd)) => start_of(r, fd, FIRST.min(size as usize)).await?,
        (None, None) => return Err(Unreadable::Bad("is no file")),
    };
    let header = loop {
        match Header::decode(&bytes) {
            Ok(header) => break header,
            Err(Bad::Foreign) => return Err(Unreadable::Bad("is not ours")),
            Err(Bad::Torn) => return Err(Unreadable::Bad("is damaged")),
            Err(Bad::Short(need)) => match &file.fd {
                Some(fd) if need as u64 <= size && bytes.len() < need => {
                    bytes = start_of(r, fd, need).await?;
                }
                _ => return Err(Unreadable::Bad("is too small")),
            },
        }
    };
    let body_start = header.body_start() as u64;
    if body_start.checked_add(header.body_len) != Some(size) {
        return Err(Unreadable::Bad("has another length than it says"));
    }
    let mut head = ResponseHead::new();
    if let Some(text) = &header.head {
        match ResponseParser::new().parse(text, &mut head) {
            ResponseStep::Done { len } if len == text.len() => {}
            _ => return Err(Unreadable::Bad("contains invalid header")),
        }
    }
    // The page that was read is shared by what the header holds: it is small, and not all of it.
    let forbids = Forbids::default();
    Ok(Stored { header, head, file: file.clone(), body_start, forbids })
}

/// The first `len` bytes of a file.
async fn start_of(r: &mut Request, fd: &FileHandle, len: usize) -> Result<Bytes, Unreadable> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let at = bytes.len();
        let piece = reading::piece(r, fd, at as u64, len - at).await.map_err(Unreadable::Io)?;
        let piece = piece.memory().unwrap_or_default();
        if piece.is_empty() {
            return Err(Unreadable::Bad("is too small"));
        }
        bytes.extend_from_slice(piece);
    }
    Ok(Bytes::from(bytes))
}

/// Blocks that a file takes, as nginx counts them: where a file system says something strange, its
/// length counts.
pub(crate) fn blocks(meta: &FileMeta, block: u64) -> u32 {
    let on_disk = meta.blocks.saturating_mul(512);
    let plausible = on_disk > meta.size && on_disk < meta.size + 8 * u64::from(meta.blksize);
    let bytes = if plausible { on_disk } else { meta.size };
    u32::try_from(bytes.div_ceil(block.max(1))).unwrap_or(u32::MAX)
}

/// A sum by which a file is known again, whatever its name; never 0. What is written into it or
/// copied is another one.
pub(crate) fn identity(meta: &FileMeta) -> u32 {
    let mut sum = Crc32::new();
    for n in [meta.ino, meta.size, meta.mtime_sec as u64, meta.mtime_nsec.into()] {
        sum.update(&n.to_le_bytes());
    }
    sum.finish().max(1)
}

/// Where a file is written before it has its place.
#[derive(Clone)]
pub(crate) enum Temp {
    /// Beside it (`use_temp_path=off`).
    Beside,
    /// In the module's folder for temporary files.
    Folder(TempPath),
}

impl Temp {
    /// The name of the file of that number that is to be the one at `path`.
    pub fn name(&self, path: &[u8], number: u32) -> PathBuf {
        match self {
            Temp::Folder(folder) => folder.file(number.into()),
            Temp::Beside => {
                let mut name = path.to_vec();
                name.extend_from_slice(format!(".{number:010}").as_bytes());
                as_path(&name).to_owned()
            }
        }
    }
}

/// How many names are tried where others are taken.
const TRIES: u32 = 1000;

/// A file in the making; deleted when it is dropped before it has its place. For threads.
pub(crate) struct Making {
    fd: FileHandle,
    number: u32,
    /// `None` when it has its place.
    path: Option<PathBuf>,
}

impl Drop for Making {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            // The loader deletes what stays.
            event::pool::elsewhere(move || drop(std::fs::remove_file(path)));
        }
    }
}

impl Making {
    /// Makes a file that is to be the one at `path`. For threads.
    pub fn create(temp: &Temp, path: &[u8]) -> Result<Making, FileError> {
        for _ in 0..TRIES {
            let number = next_number();
            let name = temp.name(path, number);
            let mut made = os::file::create_new(&name, 0o600);
            if made.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
                make_parent(&name)?;
                made = os::file::create_new(&name, 0o600);
            }
            match made {
                Ok(fd) => {
                    // The lock goes with the process: a file that nobody has locked is nobody's.
                    let _ = os::file::try_lock(&fd);
                    return Ok(Making { fd: files::wrap_local(fd), number, path: Some(name) });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(FileError::new("open()", name, error)),
            }
        }
        Err(FileError::new("open()", as_path(path), io::ErrorKind::AlreadyExists.into()))
    }

    /// The open file.
    pub fn handle(&self) -> &FileHandle {
        &self.fd
    }

    /// The number in its name.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Sets room for `len` bytes aside. False where the file system cannot do that.
    pub fn reserve(&self, len: u64) -> Result<bool, FileError> {
        match os::file::reserve(&self.fd, len) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::Unsupported => Ok(false),
            Err(e) => Err(self.failed("fallocate()", e)),
        }
    }

    /// Writes all of `pieces` at a place.
    pub fn write(&self, pieces: &[Bytes], mut at: u64) -> Result<(), FileError> {
        for piece in pieces {
            let mut rest: &[u8] = piece;
            while !rest.is_empty() {
                match os::file::write_at(&self.fd, rest, at) {
                    Ok(0) => return Err(self.failed("pwrite()", io::ErrorKind::WriteZero.into())),
                    Ok(n) => {
                        at += n as u64;
                        rest = &rest[n..];
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(self.failed("pwrite()", e)),
                }
            }
        }
        Ok(())
    }

    fn failed(&self, what: &'static str, error: io::Error) -> FileError {
        FileError::new(what, self.path.clone().unwrap_or_default(), error)
    }

    /// Gives the file its place. Gives the facts about it.
    pub fn place(&mut self, path: &[u8]) -> Result<FileMeta, FileError> {
        let meta = os::file::fstat(&self.fd).map_err(|e| self.failed("fstat()", e))?;
        let Some(from) = self.path.take() else { return Ok(meta) };
        let to = as_path(path);
        let mut moved = std::fs::rename(&from, to);
        if moved.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            make_parent(to)?;
            moved = std::fs::rename(&from, to);
        }
        match moved {
            Ok(()) => Ok(meta),
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
                self.path = Some(from);
                self.copy(path)
            }
            Err(e) => {
                self.path = Some(from);
                Err(self.failed("rename()", e))
            }
        }
    }

    /// Gives a copy of the file its place: it was made on another file system.
    fn copy(&mut self, path: &[u8]) -> Result<FileMeta, FileError> {
        let mut copy = Making::create(&Temp::Beside, path)?;
        copy.take_from(&self.fd, 0, 0).map_err(|e| self.failed("pread()", e))??;
        copy.place(path)
    }

    /// Writes what another file holds from `at` on to `to`. The outer error is of reading it.
    fn take_from(
        &self,
        from: &FileHandle,
        mut at: u64,
        mut to: u64,
    ) -> io::Result<Result<(), FileError>> {
        let mut buf = vec![0; 128 << 10];
        loop {
            let n = match os::file::read_at(from, &mut buf, at) {
                Ok(0) => return Ok(Ok(())),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            if let Err(e) = self.write(&[Bytes::copy_from_slice(&buf[..n])], to) {
                return Ok(Err(e));
            }
            at += n as u64;
            to += n as u64;
        }
    }
}

pub(crate) fn as_path(path: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(path))
}

fn make_parent(path: &Path) -> Result<(), FileError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
    made.map_err(|error| FileError::new("mkdir()", parent, error))
}

/// Deletes the file of a hash; that there is none is as well. Whether there was one. For threads.
pub(crate) fn delete(layout: &Layout, hash: &Hash) -> Result<bool, FileError> {
    let path = layout.path(hash);
    match std::fs::remove_file(as_path(&path)) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(FileError::new("unlink()", as_path(&path), e)),
    }
}

/// Gives the file of a response that was found to be still good a new header, unless the file is
/// another one by now: over the old one where the body can stay in its place, else in a new file.
/// Gives the facts about the file. For threads.
fn rewrite_header(
    path: &[u8],
    meta: &FileMeta,
    mut header: Header,
    body_start: u64,
) -> Result<Option<FileMeta>, FileError> {
    let fail = |what, e| FileError::new(what, as_path(path), e);
    let fd: OwnedFd = match os::file::open_to_change(as_path(path)) {
        Ok(fd) => fd,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(fail("open()", e)),
    };
    let now = os::file::fstat(&fd).map_err(|e| fail("fstat()", e))?;
    if (now.ino, now.dev, now.size) != (meta.ino, meta.dev, meta.size) {
        return Ok(None);
    }
    if !header.reach(body_start as usize) {
        header.room = ROOM;
        header.align();
        return copy_behind(path, fd.into(), &header, body_start).map(Some);
    }
    let bytes = header.encode();
    match os::file::write_at(&fd, &bytes, 0) {
        Ok(n) if n == bytes.len() => os::file::fstat(&fd).map(Some).map_err(|e| fail("fstat()", e)),
        Ok(_) => Err(fail("pwrite()", io::ErrorKind::WriteZero.into())),
        Err(e) => Err(fail("pwrite()", e)),
    }
}

/// How much a head that may be changed can grow in its place, bytes.
pub(crate) const ROOM: usize = 256;

/// Makes a new file of a header and the body of another one, in the place of that.
fn copy_behind(
    path: &[u8],
    from: FileHandle,
    header: &Header,
    body_start: u64,
) -> Result<FileMeta, FileError> {
    let mut making = Making::create(&Temp::Beside, path)?;
    making.write(&[Bytes::from(header.encode())], 0)?;
    let at = header.body_start() as u64;
    making
        .take_from(&from, body_start, at)
        .map_err(|e| FileError::new("pread()", as_path(path), e))??;
    making.place(path)
}

/// What is kept is found to be still good: its file gets a new header, and other workers are told
/// that there is something new. `since`: what had been purged when that was asked.
pub(crate) async fn renew(
    cache: &Rc<Cache>,
    hash: Hash,
    since: Since,
    stored: &Stored,
    header: Header,
    pool: Option<Pool>,
) {
    let path = cache.settings.layout.path(&hash);
    let (meta, body_start) = (*stored.meta(), stored.body_start());
    let (tags, date) = (tags::of_header(&header), header.date);
    let is_purged = || purge::meanwhile(cache, since, &stored.header.key, &tags);
    // What was purged would look as if it had been fetched since; and of two that come at the same
    // time one is enough.
    let mut evicted = Vec::new();
    let turn = cache.keys.turn(&hash, cache.settings.inactive, is_purged, &mut evicted);
    cache.discard(evicted, pool.as_ref());
    let Turn::Ours(placing) = turn else { return };
    let task = move || rewrite_header(&path, &meta, header, body_start);
    placing.is_under_way(true);
    let rewritten = elsewhere(pool.as_ref(), task).await;
    placing.is_under_way(false);
    match rewritten {
        Ok(Ok(None)) => {}
        Ok(Ok(Some(meta))) => {
            let blocks = blocks(&meta, cache.block());
            let version = cache.keys.renewed(&hash, blocks, is_purged);
            cache.memory.borrow_mut().forget(&hash);
            if version != 0 {
                cache.tell_index(&Record::Put(Entry {
                    hash,
                    blocks,
                    expire: u32::try_from(date).unwrap_or(0),
                    date: u32::try_from(date).unwrap_or(0),
                    version,
                    file: identity(&meta),
                    uses: 1,
                    is_variant: super::key::hash(&stored.header.key) != hash,
                    key: &stored.header.key,
                    tags: &tags,
                }));
            }
            if is_purged() {
                // Its file may not be deleted yet, and looks young now.
                invalidate(cache, vec![hash], pool).await;
            }
        }
        Ok(Err(e)) => cache.tell(Cause::Write, format_args!("{e}")),
        Err(e) => cache.tell(Cause::Write, format_args!("{e}")),
    }
}

/// What some keys stand for has changed: what is kept of them is not to be used any more, nor is
/// kept what anybody fetches of them now.
pub(crate) async fn outdate(cache: &Cache, hashes: Vec<Hash>, pool: Option<Pool>) {
    hashes.iter().for_each(|hash| cache.keys.marks.purge_key(hash));
    invalidate(cache, hashes.clone(), pool).await;
    // One that is killed while it gives a file its place leaves it there.
    for hash in &hashes {
        let _ = cache.keys.tell_purged(hash);
    }
}

/// What is kept of some keys is not to be used any more. When this has ended nobody does.
pub(crate) async fn invalidate(cache: &Cache, hashes: Vec<Hash>, pool: Option<Pool>) {
    let forget = || {
        for hash in &hashes {
            if cache.keys.invalidate(hash) {
                cache.tell_gone(hash);
            }
            cache.memory.borrow_mut().forget(hash);
            if let Some(fill) = cache.fills.borrow_mut().remove(hash) {
                fill.spoil();
            }
            cache.waiters.forget(hash);
        }
    };
    forget();
    delete_all(cache, hashes.clone(), pool.as_ref()).await;
    // Before the files of the folder are known, one may have been found in between.
    forget();
}

/// Runs what may wait for a disk in a thread of `pool`, or here where there is none.
pub(crate) async fn elsewhere<T: Send + 'static>(
    pool: Option<&Pool>,
    task: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    match pool {
        None => Ok(task()),
        Some(pool) => Ok(pool.run(task).await?),
    }
}
