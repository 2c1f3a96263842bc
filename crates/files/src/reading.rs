//! Reads of files that may wait for a disk: at once where the bytes are in memory, by a thread of a
//! pool, or by the ring of `use io_uring`.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use bytes::Bytes;
use event::{Notify, Pool};
use mem::{Buf, FileHandle, Page};
use os::file_parts::{self, Parts};

use crate::page_cache::{self, Cached};

/// The buffer of reads that only bring bytes into the page cache: small enough for the nearest
/// cache of the processor.
const SCRATCH: usize = 16 << 10;

/// Ranges that the ring of a worker reads at once by default (`worker_aio_requests`): as many as
/// the default pool has threads. Each is memory of
/// ours, or pages that have to be in memory still when they are sent.
pub const RING_READS: usize = 32;

/// The location's settings about reading files.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadSettings {
    /// `aio off`: the loop waits for the disk.
    pub aio_off: bool,
    /// Whether the page cache is bypassed (`directio`).
    pub directio: bool,
    /// `directio_alignment`.
    pub align: usize,
    /// Bytes of room before those that are read into a page, for who puts something there.
    pub front: usize,
}

pub(crate) enum FromMemory {
    Read(Page),
    Missing,
    /// Its file system does not say.
    Unknown,
}

/// Reads the part of a range that is in memory, if its first byte is.
pub(crate) fn from_memory(
    file: &FileHandle,
    pos: u64,
    (front, len): (usize, usize),
) -> io::Result<FromMemory> {
    let (page, got) =
        filled(front, len, |out| page_cache::append_parts(file, out, Parts::whole(len), pos))?;
    match got {
        Cached::Bytes(0) => Err(truncated()),
        Cached::Bytes(_) => Ok(FromMemory::Read(page)),
        Cached::Missing => Ok(FromMemory::Missing),
        Cached::Unknown => Ok(FromMemory::Unknown),
    }
}

/// Reads a range into the page cache, to its last byte: by a thread of the pool, or by the ring.
pub(crate) async fn into_cache(
    pool: Option<Pool>,
    file: &FileHandle,
    pos: u64,
    len: u64,
    is_urgent: bool,
) -> io::Result<()> {
    let Some(pool) = pool else {
        return ring_into_cache(file, pos, len).await.map_err(of_file);
    };
    let file = file.clone();
    let task = move || {
        // The whole range is asked for at once; the reads below wait for it. Nothing is lost if the
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
    run(&pool, task, is_urgent).await
}

/// Reads a range into memory of our own, some bytes at least: by a thread of the pool, or by the
/// ring.
pub(crate) async fn into_memory(
    pool: Option<Pool>,
    file: &FileHandle,
    pos: u64,
    len: usize,
    align: usize,
) -> io::Result<Bytes> {
    let Some(pool) = pool else {
        return ring_into_memory(file, pos, len, align).await.map_err(of_file);
    };
    let file = file.clone();
    run(&pool, move || read_some(&file, pos, len, align), false).await
}

/// The ring's reads of a thread.
struct RingReads {
    /// Places that there are.
    places: Cell<usize>,
    /// Places that are taken, those on their way to a waiter included.
    taken: Cell<usize>,
    free: Notify,
}

thread_local! {
    static RING: Rc<RingReads> = Rc::new(RingReads {
        places: Cell::new(RING_READS),
        taken: Cell::default(),
        free: Notify::default(),
    });
}

/// Sets how many ranges the ring of this thread reads at once, where it is not [`RING_READS`].
pub fn set_ring_reads(places: usize) {
    RING.with(|ring| ring.places.set(places.max(1)));
}

/// One of the ring's places.
struct Place(Rc<RingReads>);

impl Place {
    /// Waits for a place; who came first gets the next one.
    async fn wait() -> Place {
        let ring = RING.with(Rc::clone);
        let taken = ring.taken.get();
        if taken < ring.places.get() {
            ring.taken.set(taken + 1);
        } else {
            ring.free.notified().await;
        }
        Place(ring)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A reload without a master may have left fewer places than are taken.
        let surplus = self.0.taken.get() > self.0.places.get();
        if surplus || self.0.free.notify_some(1) == 0 {
            self.0.taken.set(self.0.taken.get() - 1);
        }
    }
}

/// The ring reads a range into the page cache, to its last byte. One read takes all of it, as the
/// task of a thread does: where the ring reads many ranges a part at a time, the kernel evicts the
/// first part of each before the last is there.
async fn ring_into_cache(file: &FileHandle, pos: u64, len: u64) -> io::Result<()> {
    let _place = Place::wait().await;
    let mut at = pos;
    let mut memory = os::memory::zeros(SCRATCH)?;
    while at < pos + len {
        let want = usize::try_from(pos + len - at).unwrap_or(usize::MAX);
        match event::read_over(file.clone(), memory, want, at).await {
            Ok((_, 0)) => return Err(truncated()),
            Ok((back, n)) => (memory, at) = (back, at + n as u64),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {
                memory = os::memory::zeros(SCRATCH)?
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The ring reads up to `len` bytes at `pos` for us, at least one.
async fn ring_into_memory(
    file: &FileHandle,
    pos: u64,
    len: usize,
    align: usize,
) -> io::Result<Bytes> {
    let _place = Place::wait().await;
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
    /// The offset in the memory at which the read begins.
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

/// Reads up to `len` bytes at `pos`, at least one, and waits for the disk: for tasks of a thread
/// pool. `align` is the location's `directio_alignment`.
///
/// # Errors
/// The file ends before `pos`, or cannot be read.
pub fn read_some(file: &FileHandle, pos: u64, len: usize, align: usize) -> io::Result<Bytes> {
    if file.is_direct() {
        return read_direct(file, pos, len, align);
    }
    let mut piece = Vec::new();
    os::memory::reserve_exact(&mut piece, len)?;
    loop {
        match file_parts::append_parts(file, &mut piece, Parts::whole(len), pos, false) {
            Ok(0) => return Err(truncated()),
            Ok(_) => return Ok(piece.into()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
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

pub(crate) fn read_retried(file: &FileHandle, buf: &mut [u8], pos: u64) -> io::Result<usize> {
    loop {
        match os::file::read_at(file, buf, pos) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// The next bytes of a file that does not go by sendfile, `len` at most and at least one: at once
/// if they are in memory, else from a thread of the pool, or from the ring where there is none.
///
/// # Errors
/// The file ends before `pos`, or cannot be read; there is no pool.
pub async fn piece(
    file: &FileHandle,
    pos: u64,
    len: usize,
    settings: ReadSettings,
    pool: impl FnOnce() -> io::Result<Option<Pool>>,
) -> io::Result<Buf> {
    let ReadSettings { aio_off, directio, align, front } = settings;
    match (aio_off, directio && file.is_direct()) {
        (true, true) => return Ok(Buf::Mem(read_direct(file, pos, len, align)?)),
        (true, false) => {
            let read = |out: &mut Vec<u8>| {
                file_parts::append_parts(file, out, Parts::whole(len), pos, false)
            };
            let (page, _) = filled(front, len, read)?;
            return if page.is_empty() { Err(truncated()) } else { Ok(page.into()) };
        }
        (false, false) if !file.is_slow() => {
            if let FromMemory::Read(page) = from_memory(file, pos, (front, len))? {
                return Ok(page.into());
            }
        }
        (false, _) => {}
    }
    Ok(Buf::Mem(into_memory(pool()?, file, pos, len, align).await?))
}

/// Appends the next bytes of a file to `out` in parts, at least one byte, as far as one call reads
/// them without a wait; returns their number. `None`: they have to be waited for.
///
/// # Errors
/// As [`piece`].
pub fn parts_now(
    file: &FileHandle,
    pos: u64,
    out: &mut Vec<u8>,
    parts: Parts,
    aio_off: bool,
) -> io::Result<Option<usize>> {
    if file.is_direct() || file.is_slow() {
        return Ok(None);
    }
    let cached = match aio_off {
        true => Cached::Bytes(file_parts::append_parts(file, out, parts, pos, false)?),
        false => page_cache::append_parts(file, out, parts, pos)?,
    };
    match cached {
        Cached::Bytes(0) => Err(truncated()),
        Cached::Bytes(n) => Ok(Some(n)),
        Cached::Missing | Cached::Unknown => Ok(None),
    }
}

/// A page with room for `front` bytes and `len` more, to which `read` appends; and what it says.
fn filled<T>(
    front: usize,
    len: usize,
    read: impl FnOnce(&mut Vec<u8>) -> io::Result<T>,
) -> io::Result<(Page, T)> {
    let mut page = Page::try_get_behind(front, len)?;
    let said = page.append_with(read)?;
    Ok((page, said))
}

async fn run<T: Send + 'static>(
    pool: &Pool,
    task: impl FnOnce() -> io::Result<T> + Send + 'static,
    is_urgent: bool,
) -> io::Result<T> {
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

/// Marks an error as one of the file, not of the client's connection.
pub fn of_file(e: io::Error) -> io::Error {
    io::Error::new(e.kind(), OfFile(e))
}

/// The error of the file, where it is one.
pub fn file_error(e: &io::Error) -> Option<&io::Error> {
    let inner = e.get_ref()?.downcast_ref::<OfFile>()?;
    Some(&inner.0)
}

/// Whether a failure to send is one of the file. sendfile has one error for both of its ends: what
/// only disks say is taken for the file's.
pub fn is_of_file(e: &io::Error) -> bool {
    use os::errno::{EBADMSG, EIO, EREMOTEIO, ESTALE, EUCLEAN};
    e.kind() == io::ErrorKind::UnexpectedEof
        || file_error(e).is_some()
        || matches!(e.raw_os_error(), Some(EIO | EBADMSG | ESTALE | EUCLEAN | EREMOTEIO))
}

/// The error of a file that has become shorter since its length was told to the client.
pub fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "file was truncated while it was sent")
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::testing::turns;

    #[test]
    fn the_ring_reads_so_many_ranges_at_once_and_the_next_in_order() {
        let mut event_loop = event::Loop::new(event::Options::default()).unwrap();
        let test = async {
            let mut places = Vec::new();
            for _ in 0..RING_READS {
                places.push(Place::wait().await);
            }
            let got = Rc::new(std::cell::RefCell::new(Vec::new()));
            let give_up = Rc::new(event::Notify::new());
            for n in 0..3 {
                let (got, give_up) = (got.clone(), give_up.clone());
                event::spawn(async move {
                    let waiting = Place::wait();
                    // The first gives up just as it gets a place.
                    match n {
                        0 => drop(event::race(waiting, give_up.notified()).await),
                        _ => {
                            let place = waiting.await;
                            got.borrow_mut().push((n, place));
                        }
                    }
                });
            }
            turns(2).await;
            assert!(got.borrow().is_empty(), "all places are taken");
            give_up.notify_one();
            places.pop();
            turns(4).await;
            assert_eq!(got.borrow().iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1]);
            places.pop();
            turns(4).await;
            assert_eq!(got.borrow().iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 2]);
            places.clear();
            got.borrow_mut().clear();
            RING.with(|ring| assert_eq!(ring.taken.get(), 0));
        };
        event_loop.block_on(test).unwrap();
    }
}
