//! Files on their way out: the parts that are in memory are sent at once, and for the others a
//! thread of the location's pool waits.
//!
//! ```text
//!  range at the front of the wire ─ in memory ────────────────────────────────▶ send
//!     ▲                           └ not ─▶ a thread has it read into the page cache ─┐
//!     └──────────────────────────────────────────────────────────────────────────────┘
//!        not in memory even so (memory is short) ─▶ a thread reads it for us ──▶ send from there
//! ```
//!
//! A task never owns the connection: it has the file and a range of it. When the connection goes,
//! what was read is dropped in the pool, and nothing else happens.

use std::io;
use std::task::Poll;

use base::log::Level;
use bytes::Bytes;
use event::Pool;
use mem::{Buf, Chain, FileHandle, Page};

use crate::files::near;
use crate::request::Request;

/// How much of a file is looked for at once: what one turn sends at most.
const LOOK_MAX: u64 = 2 << 20;

/// How much of a file a thread has read at once. As large as disks like it, and small enough that
/// what was read is still there when it is sent.
const AHEAD: u64 = 512 << 10;

/// How much is read into memory of our own where the page cache does not keep it.
const COPY: u64 = 128 << 10;

/// A read that ends here tells that everything before it was read: disks are asked for pieces of
/// this size or more.
const SAMPLE: u64 = 64 << 10;

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

/// Sees to it that what is at the front of the wire can be sent without waiting for a disk; says
/// how much of it, `limit` bytes at most.
pub(crate) async fn ready(r: &mut Request, limit: usize) -> io::Result<usize> {
    if r.loc.core.aio.is_off() {
        return Ok(limit);
    }
    let mut read_ahead = false;
    loop {
        let Some(Front { before, file, pos, end }) = front(&r.wire) else { return Ok(limit) };
        let room = (limit as u64).saturating_sub(before).min(LOOK_MAX).min(end - pos);
        if room == 0 {
            return Ok(limit);
        }
        let whole = |len: u64| usize::try_from(before + len).unwrap_or(usize::MAX);
        if !file.is_slow() {
            if near::is_cached(&file, pos, room) {
                return Ok(whole(room));
            }
            let piece = room.min(AHEAD);
            if room > piece && near::is_cached(&file, pos, piece) {
                return Ok(whole(piece));
            }
            if !read_ahead {
                read_ahead = true;
                read_into_cache(r, &file, pos, piece).await?;
                continue;
            }
        }
        let len = room.min(COPY);
        let bytes = read_for_us(r, &file, pos, len as usize).await?;
        let mut wire = r.wire.split_to(before);
        let _range = r.wire.split_to(bytes.len() as u64);
        let len = bytes.len() as u64;
        wire.push(Buf::Mem(bytes));
        wire.append(&mut r.wire);
        r.wire = wire;
        return Ok(whole(len));
    }
}

/// Has a thread read a range into the page cache.
async fn read_into_cache(r: &mut Request, file: &FileHandle, pos: u64, len: u64) -> io::Result<()> {
    let pool = pool(r)?;
    let file = file.clone();
    let task = move || {
        // The whole range is asked for at once; reads of single bytes then wait for it, so that
        // each page is used once, and not twice, before it is sent: pages used twice push others
        // out. Nothing is lost if the kernel reads less of it.
        let _ = os::probe::read_ahead(&file, pos, len);
        let mut at = (pos + SAMPLE).min(pos + len) - 1;
        loop {
            match os::file::read_at(&file, &mut [0], at) {
                Ok(0) => return Err(truncated()),
                Ok(_) if at == pos + len - 1 => return Ok(()),
                Ok(_) => at = (at + SAMPLE).min(pos + len - 1),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    };
    run(r, &pool, task).await
}

/// Has a thread read a range into memory of our own: some bytes at least.
async fn read_for_us(
    r: &mut Request,
    file: &FileHandle,
    pos: u64,
    len: usize,
) -> io::Result<Bytes> {
    let pool = pool(r)?;
    let (file, align) = (file.clone(), r.loc.core.directio_alignment as usize);
    run(r, &pool, move || read_some(&file, pos, len, align)).await
}

/// Reads up to `len` bytes at `pos`, at least one.
fn read_some(file: &FileHandle, pos: u64, len: usize, align: usize) -> io::Result<Bytes> {
    if file.is_direct() {
        return read_direct(file, pos, len, align);
    }
    let mut piece = vec![0; len];
    let n = read_retried(file, &mut piece, pos)?;
    if n == 0 {
        return Err(truncated());
    }
    piece.truncate(n);
    Ok(piece.into())
}

/// The same past the page cache: position, length and memory must be multiples of the alignment.
fn read_direct(file: &FileHandle, pos: u64, len: usize, align: usize) -> io::Result<Bytes> {
    let skip = (pos % align as u64) as usize;
    let want = (skip + len).next_multiple_of(align);
    let mut piece = vec![0; want + align];
    let from = piece.as_ptr().align_offset(align).min(align);
    let n = read_retried(file, &mut piece[from..from + want], pos - skip as u64)?;
    if n <= skip {
        return Err(truncated());
    }
    Ok(Bytes::from(piece).slice(from + skip..from + n.min(skip + len)))
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
            if let Poll::Ready(page) = cached_page(file, pos, len)? {
                return Ok(page.into());
            }
        }
        (false, _) => {}
    }
    Ok(Buf::Mem(read_for_us(r, file, pos, len).await?))
}

/// What is in memory of a range, if its first byte is.
fn cached_page(file: &FileHandle, pos: u64, len: usize) -> io::Result<Poll<Page>> {
    if event::sim::disk_is_cold() {
        return Ok(Poll::Pending);
    }
    match filled(len, |buf| os::file::read_cached_at(file, buf, pos)) {
        Ok(page) if page.is_empty() => Err(truncated()),
        Ok(page) => Ok(Poll::Ready(page)),
        Err(e) if near::must_wait(&e) => Ok(Poll::Pending),
        Err(e) => Err(e),
    }
}

fn filled(len: usize, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<Page> {
    let mut page = Page::get(len);
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
) -> io::Result<T> {
    r.debug(format_args!("thread pool \"{}\": read", pool.name()));
    match pool.run(task).await {
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

/// Whether a failure to send is one of the file.
pub(crate) fn is_of_file(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::UnexpectedEof || own_error(e).is_some()
}

/// What a file is that has fewer bytes than it had when its length was told to the client.
pub(crate) fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "file was truncated while it was sent")
}

/// Logs that a file could not be read to its end.
#[cold]
pub(crate) fn log_failure(r: &Request, e: &io::Error) {
    let e = own_error(e).unwrap_or(e);
    match e.kind() {
        io::ErrorKind::UnexpectedEof => r.log(Level::Alert, format_args!("{e}")),
        _ => r.log_os(Level::Crit, format_args!("pread()"), e),
    }
}
