//! A kept response, opened and checked.

use std::io;
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use engine::Client;
use event::Pool;
use files::{OpenError, OpenFile};
use http_wire::h1::{ResponseHead, ResponseParser, ResponseStep};
use mem::{Chain, FileHandle};
use os::errno::{ENOENT, ENOTDIR};
use os::file::FileMeta;

use super::{blocks, identity, take_away};
use crate::access::DiskAccess;
use crate::faults::FaultCause;
use crate::file_header::{BadHeader, Header};
use crate::instance::Cache;
use crate::key::Hash;
use crate::keys::{Evicted, Purged, Seen};
use crate::purge_marks::Since;
use crate::purging;
use crate::rules::Forbids;
use crate::tags;

/// A response that is kept, opened and checked.
pub struct Stored {
    /// The header of its file.
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

    /// The body, as pieces of the file or of memory.
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

    /// The prohibitions in its fields against keeping it.
    pub fn forbids(&self) -> &Forbids {
        &self.forbids
    }

    /// Where in the file the body begins.
    pub(crate) fn body_start(&self) -> u64 {
        self.body_start
    }

    /// The attributes of the file.
    pub fn meta(&self) -> &FileMeta {
        self.file.meta()
    }

    /// Bytes that it takes in memory, roughly.
    pub fn weight(&self) -> usize {
        let content = self.file.content.as_ref().map_or(0, Bytes::len);
        self.body_start as usize + content + std::mem::size_of::<Stored>() + 1024
    }
}

/// The outcome of opening a file.
pub enum Opened {
    /// A response.
    Found(Rc<Stored>),
    /// There is none.
    Missing,
    /// The disk failed; that was logged.
    Failed,
}

/// The response of a hash where this worker has it in memory, of the version that the zone tells;
/// `key` is the key that it must have.
#[inline]
pub fn held(cache: &Cache, hash: &Hash, seen: Seen, key: &Bytes) -> Option<Rc<Stored>> {
    let held = cache.memory.borrow_mut().trusted(hash, seen.version);
    held.filter(|stored| stored.header.key == *key)
}

/// The same response, unless a purge that is not settled is of it.
#[inline]
pub fn unless_purged(
    cache: &Rc<Cache>,
    hash: &Hash,
    seen: Seen,
    opened: Opened,
    pool: impl FnOnce() -> Option<Pool>,
) -> Opened {
    let Opened::Found(stored) = &opened else { return opened };
    let Seen { version, settled } = seen;
    if settled == cache.keys.marks.newest() {
        return opened;
    }
    // A file without a version got one only now, which says nothing about its age.
    let header = &stored.header;
    let tags = || tags::of_header(header);
    if !cache.keys.marks.purged(settled, version, header.date, &header.key, tags) {
        return opened;
    }
    if cache.keys.purge(hash) == Purged::Out {
        let one = Evicted { hash: *hash, file: true };
        cache.discard(vec![one], pool().as_ref());
    }
    Opened::Missing
}

/// Opens the file of a hash, which has that version in the zone; `since` is the state of purges
/// when the request asked. `key` is the key that it must have.
pub async fn open_file(
    client: &dyn Client,
    access: &DiskAccess<'_>,
    cache: &Rc<Cache>,
    hash: &Hash,
    version: u32,
    since: Since,
    key: &Bytes,
) -> Opened {
    let path = cache.settings.layout.path(hash);
    // A header that is being changed in its place may be seen half changed once.
    for last in [false, true] {
        let file = match access.open(&path).await {
            Ok(file) => file,
            Err(e) => return not_opened(client, cache, hash, version, &path, &e),
        };
        if let Some(stored) = cache.memory.borrow_mut().same(hash, version, key, file.meta()) {
            return Opened::Found(stored);
        }
        match read(client, access, &file).await {
            Ok(stored) if version == 0 && is_distrusted(cache, hash, &stored) => {
                cache.keys.purge(hash);
                take_away(cache, hash, access.pool()).await;
                return Opened::Missing;
            }
            Ok(stored) if stored.header.key != *key => {
                if cache.fault(FaultCause::Damaged) {
                    let path = base::log::lossy(&path);
                    let m = format_args!("cache file \"{path}\" has md5 collision");
                    client.log(Level::Crit, m);
                }
                return Opened::Missing;
            }
            Ok(stored) => {
                let version = version_of(cache, hash, version, since, &stored);
                let stored = Rc::new(stored);
                cache.memory.borrow_mut().keep(*hash, version, stored.clone());
                return Opened::Found(stored);
            }
            Err(Unreadable::Io(e)) => {
                if cache.fault(FaultCause::Read) {
                    let path = base::log::lossy(&path);
                    client.log_os(Level::Crit, format_args!("pread() \"{path}\""), &e);
                }
                return Opened::Failed;
            }
            Err(Unreadable::Bad(why)) if last => {
                discard(client, access, cache, hash, version, why).await
            }
            Err(Unreadable::Bad(_)) => {}
        }
    }
    Opened::Missing
}

/// The file of a hash cannot be opened: it is gone, or the disk failed.
fn not_opened(
    client: &dyn Client,
    cache: &Cache,
    hash: &Hash,
    version: u32,
    path: &[u8],
    e: &OpenError,
) -> Opened {
    if matches!(e.errno(), Some(ENOENT | ENOTDIR)) {
        if cache.keys.gone(hash, version) {
            cache.tell_gone(hash);
        }
        return Opened::Missing;
    }
    if cache.fault(FaultCause::Open) {
        let path = base::log::lossy(path);
        client.log_os(Level::Crit, format_args!("{} \"{path}\"", e.what), &e.error);
    }
    Opened::Failed
}

/// The version of a file that was opened, which had `version` in the zone; 0 where it is unknown.
fn version_of(cache: &Cache, hash: &Hash, version: u32, since: Since, stored: &Stored) -> u32 {
    if version != 0 {
        return version;
    }
    let (meta, header) = (stored.meta(), &stored.header);
    let is_purged = || purging::meanwhile(cache, since, &header.key, &tags::of_header(header));
    cache.keys.opened(hash, blocks(meta, cache.block()), identity(meta), is_purged)
}

/// Whether a file without a version may have been in its place behind the back of a purge.
fn is_distrusted(cache: &Cache, hash: &Hash, stored: &Stored) -> bool {
    cache.keys.is_distrusted(hash, stored.header.date, identity(stored.meta()))
}

/// Deletes a file that is no response of ours, before another one may take its place.
async fn discard(
    client: &dyn Client,
    access: &DiskAccess<'_>,
    cache: &Rc<Cache>,
    hash: &Hash,
    version: u32,
    why: &str,
) {
    if cache.fault(FaultCause::Damaged) {
        let path = cache.settings.layout.path(hash);
        let path = base::log::lossy(&path);
        client.log(Level::Crit, format_args!("cache file \"{path}\" {why}, discarded"));
    }
    if cache.keys.gone(hash, version) {
        cache.tell_gone(hash);
    }
    take_away(cache, hash, access.pool()).await;
}

enum Unreadable {
    Io(io::Error),
    /// The reason why it is no response of ours.
    Bad(&'static str),
}

/// Bytes of a file that are read at first to find its header.
const FIRST: usize = 4096;

/// Reads and checks the header of an open file.
async fn read(
    client: &dyn Client,
    access: &DiskAccess<'_>,
    file: &OpenFile,
) -> Result<Stored, Unreadable> {
    let size = file.meta().size;
    let mut bytes = match (&file.content, &file.fd) {
        (Some(content), _) => content.clone(),
        (None, Some(fd)) => start_of(client, access, fd, FIRST.min(size as usize)).await?,
        (None, None) => return Err(Unreadable::Bad("is no file")),
    };
    let header = loop {
        match Header::decode(&bytes) {
            Ok(header) => break header,
            Err(BadHeader::Foreign) => return Err(Unreadable::Bad("is not ours")),
            Err(BadHeader::Torn) => return Err(Unreadable::Bad("is damaged")),
            Err(BadHeader::Short(need)) => match &file.fd {
                Some(fd) if need as u64 <= size && bytes.len() < need => {
                    bytes = start_of(client, access, fd, need).await?;
                }
                _ => return Err(Unreadable::Bad("is too small")),
            },
        }
    };
    let body_start = header.body_start() as u64;
    if body_start.checked_add(header.body_len) != Some(size) {
        return Err(Unreadable::Bad("does not have the length in its header"));
    }
    let mut head = ResponseHead::new();
    if let Some(text) = &header.head {
        match ResponseParser::new().parse(text, &mut head) {
            ResponseStep::Done { len } if len == text.len() => {}
            _ => return Err(Unreadable::Bad("contains invalid header")),
        }
    }
    // The header's fields share the page that was read: it is small, and not all of it.
    let forbids = Forbids::default();
    Ok(Stored { header, head, file: file.clone(), body_start, forbids })
}

/// The first `len` bytes of a file.
async fn start_of(
    client: &dyn Client,
    access: &DiskAccess<'_>,
    fd: &FileHandle,
    len: usize,
) -> Result<Bytes, Unreadable> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let at = bytes.len();
        let piece = access.piece(client, fd, at as u64, len - at).await.map_err(Unreadable::Io)?;
        let piece = piece.memory().unwrap_or_default();
        if piece.is_empty() {
            return Err(Unreadable::Bad("is too small"));
        }
        bytes.extend_from_slice(piece);
    }
    Ok(Bytes::from(bytes))
}
