//! Request bodies: read whole into memory or a temporary file, or taken piece by piece.
//!
//! ```text
//!          read_body()                        all of it is here: body_chain(), body_file()
//!  unread ─────────────▶ begun ─────────────▶ read
//!    │  next_body_piece()  │  the last piece    │
//!    └─────────────────────┴── discard_rest() ──┘   after the response
//! ```
//!
//! The request's channel takes the body off the wire ([`crate::channel::next_piece`]).

mod read;

use std::path::Path;

use base::log::Level;
use bytes::Bytes;
use http_wire::h1::Head;
use mem::{Buf, Chain};

use crate::request::Request;
use files::{Keep, TempFile};

/// The stage that a body is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    /// No handler asked for it.
    #[default]
    Unread,
    /// A handler takes it piece by piece, or waits for all of it.
    Begun,
    /// All of it was read and is kept.
    Read,
    /// It is not wanted: its bytes are dropped as they arrive.
    Unwanted,
    /// It was refused: its end cannot be found, or is not worth waiting for.
    Refused,
}

/// The properties of the file that a body must be in.
#[derive(Clone, Copy, Debug)]
pub struct InFile {
    /// The file's fate.
    pub keep: Keep,
    /// Its permissions.
    pub mode: u32,
    /// The level at which it is logged; `None` is not at all.
    pub log: Option<Level>,
}

/// A request's body: its stage, its size so far, and its data where that was read.
#[derive(Default)]
pub struct ReqBody {
    /// The request came with a body, be it an empty one.
    exists: bool,
    stage: Stage,
    /// It is passed on as it comes.
    passed_on: bool,
    received: u64,
    len: u64,
    mem: Chain,
    file: Option<TempFile>,
}

impl ReqBody {
    pub(crate) fn begin(&mut self, head: &Head) {
        self.exists = head.chunked || head.content_length.is_some();
    }

    pub(crate) fn reset(&mut self) {
        if self.exists {
            *self = ReqBody::default();
        }
        self.stage = Stage::Unread;
    }

    /// Counts bytes that came: `received` with their framing, `data` of them without.
    pub(crate) fn count(&mut self, received: usize, data: usize) {
        self.received += received as u64;
        self.len += data as u64;
    }

    /// Whether it is forwarded unbuffered, without a length: then a silent client is not slow.
    pub(crate) fn is_conversation(&self, head: &Head) -> bool {
        self.passed_on && head.content_length.is_none()
    }

    /// Whether no handler took any of it.
    pub(crate) fn is_untouched(&self) -> bool {
        matches!(self.stage, Stage::Unread | Stage::Unwanted)
    }

    /// Whether a handler asked for all of it and got it.
    pub fn was_read(&self) -> bool {
        self.stage == Stage::Read
    }

    /// No handler will take it: the request was answered already, or is answered by an error page.
    pub(crate) fn give_up(&mut self) {
        self.stage = Stage::Unwanted;
    }

    /// Whether no handler will get any of it: it is dropped as it comes, or was refused.
    pub(crate) fn is_unwanted(&self) -> bool {
        matches!(self.stage, Stage::Unwanted | Stage::Refused)
    }

    /// Marks it as refused: its end cannot be found, or is not worth waiting for.
    pub(crate) fn refuse(&mut self) {
        self.stage = Stage::Refused;
    }

    /// Keeps the pieces as the whole body that was read: it arrived without waiting.
    pub fn keep(&mut self, pieces: Chain) {
        self.mem = pieces;
        self.stage = Stage::Read;
    }

    /// The body of another request, which was read, is this one's too.
    pub(crate) fn is_shared(&mut self, pieces: Chain) {
        self.exists = true;
        self.len = pieces.len();
        self.keep(pieces);
    }

    /// Bytes of it that came so far, without framing.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing of it came.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of it that were received so far, framing included, dropped bytes not.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The temporary file that holds it.
    pub fn file(&self) -> Option<&TempFile> {
        self.file.as_ref()
    }

    /// The temporary file's name.
    pub fn file_path(&self) -> Option<&Path> {
        self.file.as_ref().map(TempFile::path)
    }
}

impl Request {
    /// Whether all of the body came.
    pub fn body_is_finished(&self) -> bool {
        self.client.channel.body_is_finished()
    }

    /// Whether the client's stream had a body or its end behind the head, be the body empty.
    pub fn body_ended_behind_head(&self) -> bool {
        self.client.channel.body_ended_behind_head()
    }

    /// The body that [`Request::read_body`] read, to be sent on; it may be asked for again, for
    /// another upstream. Pieces are shared, not copied, unless they are small.
    pub fn body_chain(&mut self) -> Chain {
        let mut out = Chain::new();
        if let Some(file) = &self.body.file {
            out.push(file.as_buf());
            return out;
        }
        let mut own = self.body.mem.take();
        while let Some(piece) = own.pop_front() {
            let piece = share(piece);
            match &piece {
                Buf::Mem(bytes) => out.push_bytes(bytes.clone()),
                Buf::File { file, pos, end } => out.push_file(file.clone(), *pos, *end),
                small => out.write(small.memory().unwrap_or_default()),
            }
            self.body.mem.push(piece);
        }
        out
    }

    /// The body in one piece, where it was read and is in memory.
    pub fn body_bytes(&self) -> Option<Bytes> {
        let mut out = Vec::new();
        self.write_body(&mut out).then(|| Bytes::from(out))
    }

    /// Appends the body to `out`, where it was read and is in memory; false elsewhere.
    pub fn write_body(&self, out: &mut Vec<u8>) -> bool {
        let body = &self.body;
        if body.stage != Stage::Read || !body.exists || body.file.is_some() {
            return false;
        }
        // Shared, it may be a file here too.
        if body.mem.iter().any(|piece| piece.memory().is_none()) {
            return false;
        }
        for piece in body.mem.iter() {
            out.extend_from_slice(piece.memory().unwrap_or_default());
        }
        true
    }

    /// Takes the file that the body was read into.
    pub fn take_body_file(&mut self) -> Option<TempFile> {
        self.body.file.take()
    }
}

/// Pieces up to this size are copied rather than shared: sharing costs an allocation, and keeps a
/// whole page in use until the piece is sent.
const COPY_MAX: usize = 4096;

/// Makes a piece one that can be shared, if that pays.
fn share(piece: Buf) -> Buf {
    match piece {
        Buf::Page(page) if page.len() > COPY_MAX => Buf::Mem(page.freeze()),
        piece => piece,
    }
}
