//! The body of a response that another worker fetches, as it comes into its file.
//!
//! It is sent as far as it is in the file. If the other worker does not finish it, nothing was sent
//! that is wrong, but the rest is missing: the connection is cut, and the log says so.

use std::cell::Cell;

use base::log::Level;
use cache::{GrowingFile, LiveStream, TempPlace, Ticket};
use event::race_if;
use http::channel::ClientEnd;
use http::output::{BodySource, Broken, NextPiece};
use http::request::Request;
use mem::Chain;

use crate::conf::Conf;

/// Bytes of the file that are given at once.
const PIECE: u64 = 1 << 20;

/// Opens a response that another process publishes; `None` where it is gone, or not the one that
/// the request asks for.
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
    // Another location may have another folder; then there is no such file here.
    let temp = temp_place(t, up);
    GrowingFile::open(&t.cache, &t.hash, stream, temp, pool, fits).await
}

/// The place of files that are being written for a request.
pub(crate) fn temp_place(t: &Ticket, up: &Conf) -> TempPlace {
    match t.cache.uses_temp_path() {
        true => TempPlace::Folder(up.temp_path.clone()),
        false => TempPlace::Beside,
    }
}

/// The body for one client.
pub(crate) struct StreamBody {
    growing: Box<GrowingFile>,
    /// The length of the body.
    len: u64,
    pos: u64,
    /// All of it is in the file.
    whole: bool,
    over: Cell<bool>,
}

impl StreamBody {
    /// One at the beginning of a body of that length.
    pub fn new(growing: Box<GrowingFile>, len: u64) -> StreamBody {
        StreamBody { growing, len, pos: 0, whole: false, over: Cell::new(len == 0) }
    }

    /// The bytes available to send; `None`: nothing more will come.
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
