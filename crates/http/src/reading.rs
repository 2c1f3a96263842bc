//! Files on their way out: the parts that are in memory are sent at once, and for the others a
//! thread of the location's pool waits.
//!
//! ```text
//!  range at the front of the wire ─ seen in memory a moment ago ───────▶ sendfile
//!     ▲                           ├ in memory: read without waiting ──▶ send from our own memory
//!     │                           └ not ─▶ a thread reads all of it into the page cache ─┐
//!     └──────────────────────────────────────────────────────────────────────────────────┘
//!        not in memory even so (memory is short) ─▶ a thread reads it for us ──▶ send from there
//! ```
//!
//! sendfile waits for each page that is not there, so only what was read to its last byte a moment
//! ago, and what was there all the time since, is sent by it: [`page_cache`] says what that is.
//!
//! A task never owns the connection: it has the file and a range of it. When the connection goes,
//! what was read is dropped in the pool, and nothing else happens.

use std::io;

use base::log::Level;
use bytes::Bytes;
use event::Pool;
use mem::{Buf, Chain, FileHandle, Page};

use crate::files::page_cache::{self, Cached};
use crate::request::Request;
use crate::wanted::{self, Role};

/// How much of a file is looked for at once: what one turn sends at most.
const LOOK_MAX: u64 = 2 << 20;

/// How much of a file a thread has read at once. As large as disks like it, and small enough that
/// what was read is still there when it is sent.
const AHEAD: u64 = 512 << 10;

/// The same for a part of a file for which many wait.
const AHEAD_FOR_MANY: u64 = 4 << 20;

/// Where threads read to that want nothing but to have read: small enough for the nearest cache.
const SCRATCH: usize = 16 << 10;

/// The same for the ring: each of its reads is a turn of the loop.
const RING_SCRATCH: u64 = 128 << 10;

/// How much is read at once into memory of our own: what a client that is slow to take it costs.
const COPY: u64 = 64 << 10;

/// Where the first file range in a chain stands, and what it is.
struct Front {
    /// Bytes in memory before it.
    before: u64,
    file: FileHandle,
    pos: u64,
    end: u64,
}

fn front(wire: &Chain) -> Option<Front> {
    let mut before = 0;
    for buf in wire.iter() {
        match buf {
            Buf::File { file, pos, end } => {
                return Some(Front { before, file: file.clone(), pos: *pos, end: *end });
            }
            memory => before += memory.len(),
        }
    }
    None
}

/// What can be sent without waiting for a disk.
pub(crate) struct Ready {
    /// How much of what is at the front of the wire.
    pub bytes: usize,
    copy: Option<Copy>,
}

/// A part of a file in memory of our own, in the wire.
struct Copy {
    file: FileHandle,
    pos: u64,
    end: u64,
    /// Bytes of the wire before it.
    before: u64,
}

impl Ready {
    fn as_it_is(bytes: usize) -> Ready {
        Ready { bytes, copy: None }
    }

    /// `sent` bytes of the wire were sent. What is left of a copy becomes a part of the file again:
    /// a client that takes no more for now may be a slow one, of which there may be thousands, and
    /// what was read a moment ago goes by sendfile next.
    pub(crate) fn sent(self, r: &mut Request, sent: usize) {
        let Some(Copy { file, pos, end, before }) = self.copy else { return };
        let Some(gone) = (sent as u64).checked_sub(before) else { return };
        let left = (end - pos).saturating_sub(gone);
        if left == 0 || file.is_direct() || file.is_slow() {
            return;
        }
        let _copy = r.wire.split_to(left);
        let mut end = end;
        if let Some((next, from, to)) = r.wire.front_file()
            && from == end
            && next.same(&file)
        {
            let rest = to - from;
            end = to;
            let _rest = r.wire.split_to(rest);
        }
        r.wire.push_front(Buf::File { file, pos: pos + gone, end });
    }
}

/// Sees to it that what is at the front of the wire can be sent without waiting for a disk; says
/// how much of it, `limit` bytes at most.
pub(crate) async fn ready(r: &mut Request, limit: usize) -> io::Result<Ready> {
    if r.loc.core.aio.is_off() {
        return Ok(Ready::as_it_is(limit));
    }
    // Whether somebody has read it into the page cache meanwhile, and whether we have.
    let (mut waited, mut read_ahead) = (false, false);
    loop {
        let Some(Front { before, file, pos, end }) = front(&r.wire) else {
            return Ok(Ready::as_it_is(limit));
        };
        let room = (limit as u64).saturating_sub(before).min(LOOK_MAX).min(end - pos);
        if room == 0 {
            return Ok(Ready::as_it_is(limit));
        }
        let whole = |len: u64| Ready::as_it_is(usize::try_from(before + len).unwrap_or(usize::MAX));
        let piece = room.min(COPY);
        if !file.is_slow() {
            let sure = page_cache::sure_until(&file, pos, pos + room);
            if sure > pos {
                return Ok(whole(sure - pos));
            }
            if before >= piece {
                // What was read before has not been sent: it is enough for now.
                return Ok(whole(0));
            }
            if waited && page_cache::is_there(&file, pos, room.min(AHEAD)) {
                return Ok(whole(room.min(AHEAD)));
            }
            let can_be_asked = match from_memory(&file, pos, piece as usize).map_err(of_file)? {
                FromMemory::Read(page) => {
                    let len = replace(r, before, page.into());
                    let copy = Some(Copy { file, pos, end: pos + len, before });
                    return Ok(Ready { copy, ..whole(len) });
                }
                FromMemory::Missing => true,
                FromMemory::Unknown => false,
            };
            // Where nobody can ask, only what a thread has read a moment ago is known to be there,
            // and of a file without a key that cannot be remembered.
            if !read_ahead && (can_be_asked || file.key() != 0) {
                waited = true;
                if can_be_asked {
                    page_cache::missed();
                }
                match wanted::role(&file, pos) {
                    Role::Wait(wanted) => wanted.read().await,
                    Role::Read(reader) => {
                        read_ahead = true;
                        // The next request for what many want should find it there.
                        let most = if reader.is_urgent { AHEAD_FOR_MANY } else { AHEAD };
                        let len = if reader.is_urgent { end - pos } else { room }.min(most);
                        read_into_cache(r, &file, pos, len, reader.is_urgent).await?;
                        if !can_be_asked {
                            page_cache::saw(&file, pos, pos + len);
                        }
                    }
                }
                continue;
            }
        }
        let bytes = read_for_us(r, &file, pos, piece as usize).await?;
        return Ok(whole(replace(r, before, Buf::Mem(bytes))));
    }
}

/// Puts what was read of the range behind `before` bytes of memory in its place. Gives its length.
fn replace(r: &mut Request, before: u64, read: Buf) -> u64 {
    let len = read.len();
    let mut wire = r.wire.split_to(before);
    let _range = r.wire.split_to(len);
    wire.push(read);
    wire.append(&mut r.wire);
    r.wire = wire;
    len
}

enum FromMemory {
    Read(Page),
    Missing,
    /// Its file system does not say.
    Unknown,
}

/// Reads what is in memory of a range, if its first byte is.
fn from_memory(file: &FileHandle, pos: u64, len: usize) -> io::Result<FromMemory> {
    let mut got = Cached::Missing;
    let page = filled(len, |buf| {
        got = page_cache::read_at(file, buf, pos)?;
        Ok(if let Cached::Bytes(n) = got { n } else { 0 })
    })?;
    match got {
        Cached::Bytes(0) => Err(truncated()),
        Cached::Bytes(_) => Ok(FromMemory::Read(page)),
        Cached::Missing => Ok(FromMemory::Missing),
        Cached::Unknown => Ok(FromMemory::Unknown),
    }
}

/// Has a thread read a range into the page cache, to its last byte.
async fn read_into_cache(
    r: &mut Request,
    file: &FileHandle,
    pos: u64,
    len: u64,
    is_urgent: bool,
) -> io::Result<()> {
    // The ring's reads have no order of their own: what is urgent goes past them, to the pool.
    if !is_urgent && r.loc.core.aio.is_by_ring() {
        return ring_into_cache(file, pos, len).await.map_err(of_file);
    }
    let pool = pool(r)?;
    let file = file.clone();
    let task = move || {
        // The whole range is asked for at once; what follows waits for it. Nothing is lost if the
        // kernel reads less of it.
        let _ = os::probe::read_ahead(&file, pos, len);
        let mut at = pos;
        let mut scratch = [0; SCRATCH];
        while at < pos + len {
            let want = (pos + len - at).min(SCRATCH as u64) as usize;
            match read_retried(&file, &mut scratch[..want], at)? {
                0 => return Err(truncated()),
                n => at += n as u64,
            }
        }
        Ok(())
    };
    run(r, &pool, task, is_urgent).await
}

/// Has a thread read a range into memory of our own: some bytes at least.
async fn read_for_us(
    r: &mut Request,
    file: &FileHandle,
    pos: u64,
    len: usize,
) -> io::Result<Bytes> {
    let align = r.loc.core.directio_alignment as usize;
    if r.loc.core.aio.is_by_ring() {
        return ring_for_us(file, pos, len, align).await.map_err(of_file);
    }
    let pool = pool(r)?;
    let file = file.clone();
    run(r, &pool, move || read_some(&file, pos, len, align), false).await
}

/// The ring reads a range into the page cache, to its last byte. Its reads ask for what follows as
/// those of threads do; the memory that they need for the bytes is small and used again.
async fn ring_into_cache(file: &FileHandle, pos: u64, len: u64) -> io::Result<()> {
    let mut at = pos;
    let mut memory = os::memory::zeros(len.min(RING_SCRATCH) as usize)?;
    while at < pos + len {
        let want = (pos + len - at).min(RING_SCRATCH) as usize;
        let (back, n) = ring_retried(file, memory, 0, want, at).await?;
        if n == 0 {
            return Err(truncated());
        }
        (memory, at) = (back, at + n as u64);
    }
    Ok(())
}

/// The ring reads up to `len` bytes at `pos` for us, at least one.
async fn ring_for_us(file: &FileHandle, pos: u64, len: usize, align: usize) -> io::Result<Bytes> {
    let direct = Direct::new(file, pos, len, align)?;
    let Direct { skip, want, from, memory } = direct;
    let (memory, n) = ring_retried(file, memory, from, want, pos - skip as u64).await?;
    if n <= skip {
        return Err(truncated());
    }
    Ok(Bytes::from(memory).slice(from + skip..from + n.min(skip + len)))
}

async fn ring_retried(
    file: &FileHandle,
    memory: Vec<u8>,
    from: usize,
    len: usize,
    pos: u64,
) -> io::Result<(Vec<u8>, usize)> {
    let size = memory.len();
    let mut memory = memory;
    loop {
        match event::read_file(file.clone(), memory, from..from + len, pos).await {
            // A memory of the same size may begin elsewhere.
            Err(e) if e.kind() == io::ErrorKind::Interrupted && !file.is_direct() => {
                memory = os::memory::zeros(size)?;
            }
            read => return read,
        }
    }
}

/// Memory for a read of `len` bytes at `pos`. Past the page cache, position, length and memory must
/// be multiples of the alignment.
struct Direct {
    /// Bytes before those that are wanted.
    skip: usize,
    want: usize,
    /// Where in the memory the read begins.
    from: usize,
    memory: Vec<u8>,
}

impl Direct {
    fn new(file: &FileHandle, pos: u64, len: usize, align: usize) -> io::Result<Direct> {
        if !file.is_direct() {
            let memory = os::memory::zeros(len)?;
            return Ok(Direct { skip: 0, want: len, from: 0, memory });
        }
        let skip = (pos % align as u64) as usize;
        let want = (skip + len).next_multiple_of(align);
        let memory = os::memory::zeros(want + align)?;
        let from = memory.as_ptr().align_offset(align).min(align);
        Ok(Direct { skip, want, from, memory })
    }
}

/// Reads up to `len` bytes at `pos`, at least one.
pub(crate) fn read_some(
    file: &FileHandle,
    pos: u64,
    len: usize,
    align: usize,
) -> io::Result<Bytes> {
    if file.is_direct() {
        return read_direct(file, pos, len, align);
    }
    let mut piece = os::memory::zeros(len)?;
    let n = read_retried(file, &mut piece, pos)?;
    if n == 0 {
        return Err(truncated());
    }
    piece.truncate(n);
    Ok(piece.into())
}

/// The same past the page cache.
fn read_direct(file: &FileHandle, pos: u64, len: usize, align: usize) -> io::Result<Bytes> {
    let Direct { skip, want, from, mut memory } = Direct::new(file, pos, len, align)?;
    let n = read_retried(file, &mut memory[from..from + want], pos - skip as u64)?;
    if n <= skip {
        return Err(truncated());
    }
    Ok(Bytes::from(memory).slice(from + skip..from + n.min(skip + len)))
}

fn read_retried(file: &FileHandle, buf: &mut [u8], pos: u64) -> io::Result<usize> {
    loop {
        match os::file::read_at(file, buf, pos) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// The next bytes of a file that does not go by sendfile, `len` at most and at least one: at once
/// if they are in memory, else from a thread.
pub(crate) async fn piece(
    r: &mut Request,
    file: &FileHandle,
    pos: u64,
    len: usize,
) -> io::Result<Buf> {
    let align = r.loc.core.directio_alignment as usize;
    let direct = r.loc.core.directio.is_some() && file.is_direct();
    match (r.loc.core.aio.is_off(), direct) {
        (true, true) => return Ok(Buf::Mem(read_direct(file, pos, len, align)?)),
        (true, false) => {
            let page = filled(len, |buf| os::file::read_at(file, buf, pos))?;
            return if page.is_empty() { Err(truncated()) } else { Ok(page.into()) };
        }
        (false, false) if !file.is_slow() => {
            if let FromMemory::Read(page) = from_memory(file, pos, len)? {
                return Ok(page.into());
            }
        }
        (false, _) => {}
    }
    Ok(Buf::Mem(read_for_us(r, file, pos, len).await?))
}

fn filled(len: usize, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<Page> {
    let mut page = Page::try_get(len)?;
    page.append_with(|v| {
        let at = v.len();
        v.resize(at + len, 0);
        let n = read(&mut v[at..]);
        v.truncate(at + n.as_ref().map_or(0, |n| *n));
        n.map(drop)
    })?;
    Ok(page)
}

fn pool(r: &mut Request) -> io::Result<Pool> {
    match r.pool() {
        Ok(Some(pool)) => Ok(pool),
        // Not asked for where `aio` is off; then the default one does no harm.
        Ok(None) => Ok(event::pool::default()),
        Err(_) => Err(of_file(io::Error::other("no thread pool"))),
    }
}

async fn run<T: Send + 'static>(
    r: &Request,
    pool: &Pool,
    task: impl FnOnce() -> io::Result<T> + Send + 'static,
    is_urgent: bool,
) -> io::Result<T> {
    r.debug(format_args!("thread pool \"{}\": read", pool.name()));
    let running = if is_urgent { pool.run_short(task) } else { pool.run(task) };
    match running.await {
        Ok(done) => done.map_err(of_file),
        Err(refused) => Err(of_file(refused.into())),
    }
}

/// A failure of the file, not of the client's connection.
#[derive(Debug)]
struct OfFile(io::Error);

impl std::fmt::Display for OfFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for OfFile {}

fn of_file(e: io::Error) -> io::Error {
    io::Error::new(e.kind(), OfFile(e))
}

fn own_error(e: &io::Error) -> Option<&io::Error> {
    let inner = e.get_ref()?.downcast_ref::<OfFile>()?;
    Some(&inner.0)
}

/// Whether a failure to send is one of the file. sendfile has one error for both of its ends: what
/// only disks say is taken for the file's.
pub(crate) fn is_of_file(e: &io::Error) -> bool {
    use os::errno::{EBADMSG, EIO, EREMOTEIO, ESTALE, EUCLEAN};
    e.kind() == io::ErrorKind::UnexpectedEof
        || own_error(e).is_some()
        || matches!(e.raw_os_error(), Some(EIO | EBADMSG | ESTALE | EUCLEAN | EREMOTEIO))
}

/// Where the worker itself waits for disks (`aio off`), the first byte of a file is read before the
/// head that promises it goes out: that cannot be taken back.
pub(crate) fn first_byte(wire: &Chain) -> io::Result<()> {
    let Some(Front { file, pos, .. }) = front(wire) else { return Ok(()) };
    match read_retried(&file, &mut [0], pos).map_err(of_file)? {
        0 => Err(truncated()),
        _ => Ok(()),
    }
}

/// What a file is that has fewer bytes than it had when its length was told to the client.
pub(crate) fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "file was truncated while it was sent")
}

/// Logs that a file could not be read to its end: the one given, or the first on the wire.
#[cold]
pub(crate) fn failed(r: &mut Request, e: &io::Error, file: Option<&FileHandle>) {
    let call = if own_error(e).is_some() || file.is_some() { "pread()" } else { "sendfile()" };
    let e = own_error(e).unwrap_or(e);
    let front = front(&r.wire);
    // What is before this response on the wire are answers to pipelined requests.
    let is_of_this = |front: &Front| r.wire.len() - front.before <= r.bytes_sent;
    r.flags.unreadable = file.is_some() || front.as_ref().is_some_and(is_of_this);
    let file = file.cloned().or(front.map(|front| front.file));
    let path = file.and_then(|file| os::probe::path_of(&file).ok()).unwrap_or_default();
    let path = path.display();
    match e.kind() {
        io::ErrorKind::UnexpectedEof => r.log(Level::Alert, format_args!("{e}: \"{path}\"")),
        _ => r.log_os(Level::Crit, format_args!("{call} \"{path}\""), e),
    }
}
