//! The response body for a client of a response that another worker is fetching, read from the
//! growing file.
//!
//! Sends what is in the file so far. If the other worker fails, the bytes sent are right but the
//! rest is missing, so the connection is closed early and the failure logged.

use std::cell::Cell;

use base::log::Level;
use cache::{GrowingFile, LiveStream, TempPlace, Ticket};
use event::race_if;
use http::channel::ClientEnd;
use http::output::{BodySource, Broken, NextPiece};
use http::request::Request;
use mem::Chain;

use crate::conf::Conf;

/// The maximum piece of the file, in bytes.
const PIECE: u64 = 1 << 20;

/// Opens a response that another process publishes; `None` if it is gone or does not match the
/// request.
pub(super) async fn open(
    r: &mut Request,
    t: &Ticket,
    up: &Conf,
    stream: &LiveStream,
) -> Option<Box<GrowingFile>> {
    stream.number?;
    let pool = r.pool().ok()?;
    let fits = |header: &cache::Header| {
        header.key == t.key
            && (header.vary.is_empty() || t.variant(&header.vary, || r.headers()) == header.variant)
    };
    // Another location may use another directory, where the file does not exist.
    let temp = temp_place(t, up);
    GrowingFile::open(&t.cache, &t.hash, stream, temp, pool, fits).await
}

/// The directory for files being written for a request.
pub(crate) fn temp_place(t: &Ticket, up: &Conf) -> TempPlace {
    match t.cache.uses_temp_path() {
        true => TempPlace::Folder(up.temp_path.clone()),
        false => TempPlace::Beside,
    }
}

/// The response body for one client.
pub(crate) struct StreamBody {
    growing: Box<GrowingFile>,
    /// The length of the body.
    len: u64,
    pos: u64,
    /// The file is complete.
    whole: bool,
    over: Cell<bool>,
}

impl StreamBody {
    /// Starts at the beginning of a body of `len` bytes.
    pub fn new(growing: Box<GrowingFile>, len: u64) -> StreamBody {
        StreamBody { growing, len, pos: 0, whole: false, over: Cell::new(len == 0) }
    }

    /// The number of bytes available; `None` if nothing more will come.
    fn there(&self) -> Option<u64> {
        match self.whole {
            true => Some(self.len),
            false => self.growing.written(),
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
                let out = self.growing.body(self.pos, end);
                self.pos = end;
                self.over.set(self.pos >= self.len);
                return Ok(Some(out));
            }
            let grown = self.growing.grown(there);
            let client = r.watched();
            let gone = client.as_ref().map(ClientEnd::gone);
            if race_if(grown, gone).await.is_second() {
                r.log(Level::Info, format_args!("client prematurely closed connection"));
                return Err(Broken);
            }
        }
    }
}

impl BodySource for StreamBody {
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
