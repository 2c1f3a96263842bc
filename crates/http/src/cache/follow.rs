//! A response that another worker fetches, read by this one from the file that it grows in: see
//! [`super::streams`].
//!
//! The body is sent as far as it is in the file. When the other one is done, or dead, the header of
//! the file says which: it tells the body's length when all of it is there. If it is not, nothing
//! was sent that is wrong, but the rest is missing: the connection is cut, and the log says so.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use event::{Pool, race_if};
use mem::{Chain, FileHandle};

use super::format::{Bad, Header, UNFINISHED};
use super::store;
use super::streams::{Found, Id};
use super::ticket::Ticket;
use super::zone::Cache;
use crate::output::{BodySource, Broken, NextPiece};
use crate::request::Request;
use crate::upstream::client_end::client_end;
use crate::upstream::conf::Conf;

/// How much of a header is read at first.
const FIRST: usize = 4096;

/// How much of the file is given at once.
const PIECE: u64 = 1 << 20;

/// A response on its way, open.
pub(crate) struct Growing {
    cache: Rc<Cache>,
    id: Id,
    file: FileHandle,
    /// What the file's header says, but for the length of the body.
    pub header: Header,
    pool: Option<Pool>,
}

/// Opens a file that has a whole header. For threads.
fn open(path: &Path) -> Option<(FileHandle, Header)> {
    let file = files::wrap_local(os::file::open_own(path).ok()?);
    header_of(&file).map(|header| (file, header))
}

/// Reads the header at the start of a file, if it is a whole one. For threads.
fn header_of(file: &FileHandle) -> Option<Header> {
    let mut bytes = vec![0; FIRST];
    loop {
        let len = os::file::read_at(file, &mut bytes, 0).ok()?;
        match Header::decode(&Bytes::copy_from_slice(&bytes[..len])) {
            Ok(header) => return Some(header),
            Err(Bad::Short(need)) if need > bytes.len() => bytes.resize(need, 0),
            Err(_) => return None,
        }
    }
}

impl Growing {
    /// Opens a response that another process shows; `None` where it is gone, or not the one that
    /// the request asks for.
    pub async fn open(
        r: &mut Request,
        t: &Ticket,
        up: &Conf,
        found: &Found,
    ) -> Option<Box<Growing>> {
        let number = found.number?;
        let temp = match t.cache.uses_temp_path() {
            // Another location may have another folder; then there is no such file here.
            true => store::Temp::Folder(up.temp_path.clone()),
            false => store::Temp::Beside,
        };
        let path: PathBuf = temp.name(&t.cache.settings.layout.path(&t.hash), number);
        let pool = r.pool().ok()?;
        let opened = store::elsewhere(pool.as_ref(), move || open(&path)).await;
        let (file, header) = opened.ok().flatten()?;
        let wanted = header.key == t.key
            && (header.vary.is_empty() || t.variant(r, &header.vary) == header.variant)
            && !t.cache.keys.marks.fetched_before(&header);
        let cache = t.cache.clone();
        wanted.then(|| Box::new(Growing { cache, id: found.id, file, header, pool }))
    }

    /// Whether all of it, `len` bytes of body, is in the file, as its header says by now.
    async fn is_whole(&self, len: u64) -> bool {
        let file = self.file.clone();
        let read = store::elsewhere(self.pool.as_ref(), move || header_of(&file)).await;
        let told = read.ok().flatten().map_or(UNFINISHED, |header| header.body_len);
        told == len
    }
}

/// The body for one client.
pub(crate) struct Follower {
    growing: Box<Growing>,
    /// The length of the body.
    len: u64,
    pos: u64,
    /// All of it is in the file.
    whole: bool,
    over: Cell<bool>,
}

impl Follower {
    /// One at the beginning of a body of that length.
    pub fn new(growing: Box<Growing>, len: u64) -> Follower {
        Follower { growing, len, pos: 0, whole: false, over: Cell::new(len == 0) }
    }

    /// How much there is to be sent; `None`: nothing more will come.
    fn there(&self) -> Option<u64> {
        match self.whole {
            true => Some(self.len),
            false => self.growing.cache.keys.streams.written(self.growing.id),
        }
    }

    async fn piece(&mut self, r: &mut Request) -> Result<Option<Chain>, Broken> {
        loop {
            if self.pos >= self.len {
                self.over.set(true);
                return Ok(None);
            }
            let Some(there) = self.there() else {
                self.whole = self.growing.is_whole(self.len).await;
                if self.whole {
                    continue;
                }
                let m = "the response that another worker fetched could not be read to its end";
                r.log(Level::Error, format_args!("{m}"));
                return Err(Broken);
            };
            let end = there.min(self.len).min(self.pos + PIECE);
            if end > self.pos {
                let start = self.growing.header.body_start() as u64;
                let mut out = Chain::new();
                out.push_file(self.growing.file.clone(), start + self.pos, start + end);
                self.pos = end;
                self.over.set(self.pos >= self.len);
                return Ok(Some(out));
            }
            let cache = &self.growing.cache;
            let grown = cache.waiters.grown(&cache.keys, self.growing.id, there);
            let client = r.watched().cloned();
            let gone = client.as_deref().map(client_end);
            if race_if(grown, gone).await.is_second() {
                r.log(Level::Info, format_args!("client prematurely closed connection"));
                return Err(Broken);
            }
        }
    }
}

impl BodySource for Follower {
    fn next<'a>(&'a mut self, r: &'a mut Request) -> NextPiece<'a> {
        Box::pin(self.piece(r))
    }

    fn is_over(&self) -> bool {
        self.over.get()
    }

    fn is_ready(&self) -> bool {
        self.over.get() || self.there().is_none_or(|there| there > self.pos)
    }

    fn abandoned(&mut self, _: &mut Request) {}
}
