//! Files on their way out: parts in memory are sent at once, and for the others a thread of the
//! location's pool waits.
//!
//! ```text
//!  range at the front of the wire ─ seen in memory a moment ago ───────▶ sendfile
//!     ▲                           ├ in memory: read without waiting ──▶ send from our own memory
//!     │                           └ not ─▶ a thread reads all of it into the page cache ─┐
//!     └──────────────────────────────────────────────────────────────────────────────────┘
//!        not in memory even so (memory is short) ─▶ a thread reads it for us ──▶ send from there
//! ```
//!
//! `sendfile` waits for each missing page, so it sends only parts that [`page_cache`] is sure of.
//! Any other part is read without waiting, 64 KB at a time, and sent from our own memory, which
//! makes it sure for the next request; a slow client holds one such piece at most, never a copy of
//! the file. A thread reads a missing part, 512 KB at a time and to its last byte, after which it
//! goes by `sendfile`; a part that several requests wait for ([`shared_reads`]) is read before
//! those of single requests, and more of it at once (4 MB), so that a hot file that was evicted
//! comes back first.
//!
//! [`Sending::look`] decides and waits for nothing. A [`FileRead`] waits, and owns only the file
//! and a range of it. When the connection ends, the bytes that were read are dropped in the pool,
//! and nothing else happens.

use std::io;
use std::rc::Rc;

use event::Pool;
use mem::{Buf, Chain, FileHandle};

use crate::page_cache;
use crate::reading::{self, FromMemory, from_memory, of_file};
use crate::shared_reads::{self, Reader, Role, SharedRead};

/// Bytes of a file that are looked for at once: as much as one turn sends at most.
const LOOK_MAX: u64 = 2 << 20;

/// Bytes of a file that a thread reads at once: a size that disks like, and small enough that the
/// bytes are still in memory when they are sent.
const AHEAD: u64 = 512 << 10;

/// The same for a part of a file for which many requests wait.
const AHEAD_FOR_MANY: u64 = 4 << 20;

/// Bytes read at once into memory of our own: the cost of a client that is slow to take them.
const COPY: u64 = 64 << 10;

/// The first file range in a chain.
pub struct FileAtFront {
    /// Bytes in memory before it.
    pub before: u64,
    /// The file that the bytes come from.
    pub file: FileHandle,
    pos: u64,
    end: u64,
}

/// The first file range of a wire.
pub fn front_file(wire: &Chain) -> Option<FileAtFront> {
    let mut before = 0;
    for buf in wire.iter() {
        match buf {
            Buf::File { file, pos, end } => {
                return Some(FileAtFront { before, file: file.clone(), pos: *pos, end: *end });
            }
            memory => before += memory.len(),
        }
    }
    None
}

/// The part of a wire that can be sent without waiting for a disk.
pub struct SendReady {
    /// Bytes at the front of the wire.
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

impl SendReady {
    /// Sends through the wire as it is, up to `bytes` bytes.
    pub fn as_it_is(bytes: usize) -> SendReady {
        SendReady { bytes, copy: None }
    }

    fn whole(len: u64) -> SendReady {
        SendReady::as_it_is(usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// `sent` bytes of the wire were sent. The rest of a copy becomes a part of the file again: a
    /// client that takes no more for now may be a slow one, of which there may be thousands, and
    /// bytes that were read a moment ago go by sendfile next.
    pub fn sent(self, wire: &mut Chain, sent: usize) {
        let Some(Copy { file, pos, end, before }) = self.copy else { return };
        let Some(gone) = (sent as u64).checked_sub(before) else { return };
        let left = (end - pos).saturating_sub(gone);
        if left == 0 || file.is_direct() || file.is_slow() {
            return;
        }
        let _copy = wire.split_to(left);
        let mut end = end;
        if let Some((next, from, to)) = wire.front_file()
            && from == end
            && next.same(&file)
        {
            let rest = to - from;
            end = to;
            let _rest = wire.split_to(rest);
        }
        wire.push_front(Buf::File { file, pos: pos + gone, end });
    }
}

/// The next step before a wire can be sent.
pub enum Step {
    /// It can be sent.
    Send(SendReady),
    /// The disk has to be waited for: see [`FileRead::run`].
    Read(FileRead),
}

/// The way of one wire to being sent.
#[derive(Default)]
pub struct Sending {
    /// Some request has read the front range into the page cache meanwhile.
    waited: bool,
    /// This one has.
    read_ahead: bool,
}

/// A read that has to be waited for.
pub struct FileRead(Read);

enum Read {
    /// Another request's.
    Shared(Rc<SharedRead>),
    /// Into the page cache, to the last byte of the range.
    IntoCache { reader: Reader, range: Range, can_be_asked: bool },
    /// Into memory of our own, in the wire behind `before` bytes: some bytes at least.
    IntoMemory { range: Range, before: u64 },
}

struct Range {
    file: FileHandle,
    pos: u64,
    len: u64,
}

impl Sending {
    /// The next step before the front of the wire, `limit` bytes at most, can be sent without
    /// waiting for a disk.
    pub fn look(&mut self, wire: &mut Chain, limit: usize) -> io::Result<Step> {
        let send = |ready| Ok(Step::Send(ready));
        let Some(FileAtFront { before, file, pos, end }) = front_file(wire) else {
            return send(SendReady::as_it_is(limit));
        };
        let room = (limit as u64).saturating_sub(before).min(LOOK_MAX).min(end - pos);
        if room == 0 {
            return send(SendReady::as_it_is(limit));
        }
        let piece = room.min(COPY);
        if !file.is_slow() {
            let sure = page_cache::sure_until(&file, pos, pos + room);
            if sure > pos {
                return send(SendReady::whole(before + sure - pos));
            }
            if before >= piece {
                // Bytes read before have not been sent: they are enough for now.
                return send(SendReady::whole(before));
            }
            if self.waited && page_cache::is_there(&file, pos, room.min(AHEAD)) {
                return send(SendReady::whole(before + room.min(AHEAD)));
            }
            let can_be_asked =
                match from_memory(&file, pos, (0, piece as usize)).map_err(of_file)? {
                    FromMemory::Read(page) => {
                        let len = replace(wire, before, page.into());
                        let copy = Some(Copy { file, pos, end: pos + len, before });
                        return send(SendReady { copy, ..SendReady::whole(before + len) });
                    }
                    FromMemory::Missing => true,
                    FromMemory::Unknown => false,
                };
            // Where the file system does not say, only a part that a thread has read a moment ago
            // is known to be there, and of a file without a key that cannot be remembered.
            if !self.read_ahead && (can_be_asked || file.key() != 0) {
                return Ok(Step::Read(self.share(file, pos..end, room, can_be_asked)));
            }
        }
        let range = Range { file, pos, len: piece };
        Ok(Step::Read(FileRead(Read::IntoMemory { range, before })))
    }

    /// Reads a part for all requests that need it, or waits for the one that does.
    fn share(
        &mut self,
        file: FileHandle,
        range: std::ops::Range<u64>,
        room: u64,
        can_be_asked: bool,
    ) -> FileRead {
        self.waited = true;
        if can_be_asked {
            page_cache::missed();
        }
        let pos = range.start;
        FileRead(match shared_reads::role(&file, pos) {
            Role::Wait(read) => Read::Shared(read),
            Role::Read(reader) => {
                self.read_ahead = true;
                // The next request for a part that many need should find it there.
                let most = if reader.is_urgent { AHEAD_FOR_MANY } else { AHEAD };
                let len = if reader.is_urgent { range.end - pos } else { room }.min(most);
                let range = Range { file, pos, len };
                Read::IntoCache { reader, range, can_be_asked }
            }
        })
    }
}

impl FileRead {
    /// Whether a thread of a pool reads, where `by_ring` says whether the event method can.
    pub fn needs_pool(&self, by_ring: bool) -> bool {
        match &self.0 {
            Read::Shared(_) => false,
            // The ring's reads have no order of their own: an urgent one goes past them, to the
            // pool.
            Read::IntoCache { reader, .. } => reader.is_urgent || !by_ring,
            Read::IntoMemory { .. } => !by_ring,
        }
    }

    /// Waits for the read: by a thread of the pool, or by the ring where there is none. Bytes that
    /// were read for us go to their place in the wire, and can be sent; else the caller looks
    /// again. `align` is `directio_alignment`.
    pub async fn run(
        self,
        wire: &mut Chain,
        pool: Option<Pool>,
        align: usize,
    ) -> io::Result<Option<SendReady>> {
        match self.0 {
            Read::Shared(read) => read.finished().await,
            Read::IntoCache { reader, range: Range { file, pos, len }, can_be_asked } => {
                reading::into_cache(pool, &file, pos, len, reader.is_urgent).await?;
                if !can_be_asked {
                    page_cache::saw(&file, pos, pos + len);
                }
                drop(reader);
            }
            Read::IntoMemory { range: Range { file, pos, len }, before } => {
                let bytes = reading::into_memory(pool, &file, pos, len as usize, align).await?;
                let len = replace(wire, before, Buf::Mem(bytes));
                return Ok(Some(SendReady::whole(before + len)));
            }
        }
        Ok(None)
    }
}

/// Puts the bytes read of the range behind `before` bytes of memory in its place. Gives their
/// number.
fn replace(wire: &mut Chain, before: u64, read: Buf) -> u64 {
    let len = read.len();
    let mut front = wire.split_to(before);
    let _range = wire.split_to(len);
    front.push(read);
    front.append(wire);
    *wire = front;
    len
}

/// Where the worker itself waits for disks (`aio off`), the first byte of a file is read before the
/// head that promises it goes out: that cannot be taken back.
pub fn first_byte(wire: &Chain) -> io::Result<()> {
    let Some(FileAtFront { file, pos, .. }) = front_file(wire) else { return Ok(()) };
    match reading::read_retried(&file, &mut [0], pos).map_err(of_file)? {
        0 => Err(reading::truncated()),
        _ => Ok(()),
    }
}
