//! Taking a body's bytes out of the client's buffer and the socket.

use std::io;
use std::ops::Range;

use base::log::Level;
use event::Deadline;
use mem::{Chain, Page};
use proto::chunked::Event;

use super::{Framing, InFile, ReqBody, Stage};
use crate::core_conf::InFileOnly;
use crate::module::Verdict;
use crate::request::Request;
use crate::send;
use files::FileError;
use files::{Keep, TempFile};

/// Why bytes cannot go on being a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// The chunked coding is broken.
    Chunk,
    /// The chunk would exceed `client_max_body_size`; its bytes still to come.
    TooLarge(u64),
}

/// What was made of some bytes.
#[derive(Debug, PartialEq, Eq)]
struct Taken {
    /// Where the data lies now.
    data: Range<usize>,
    /// How many bytes were used up, framing included.
    used: usize,
}

impl ReqBody {
    /// Takes the body's bytes at the start of `bytes`. Data of several chunks is moved together.
    /// `max` limits all data of a chunked body; 0 is no limit.
    fn take(&mut self, bytes: &mut [u8], max: u64) -> Result<Taken, Bad> {
        let taken = match self.framing {
            Framing::None => Taken { data: 0..0, used: 0 },
            Framing::Length => {
                let n = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= n as u64;
                Taken { data: 0..n, used: n }
            }
            Framing::Chunked => self.decode(bytes, max)?,
        };
        self.received += taken.used as u64;
        self.len += taken.data.len() as u64;
        Ok(taken)
    }

    fn decode(&mut self, bytes: &mut [u8], max: u64) -> Result<Taken, Bad> {
        let mut data = 0..0;
        let mut used = 0;
        loop {
            let event = self.decoder.next(bytes, &mut used).map_err(|_| Bad::Chunk)?;
            let piece = match &event {
                Event::Data(piece) => piece.clone(),
                Event::More | Event::Done => used..used,
            };
            let chunk = piece.len() as u64 + self.decoder.chunk_left();
            let so_far = self.len + data.len() as u64;
            if max > 0 && chunk > 0 && so_far.saturating_add(chunk) > max {
                self.len = so_far;
                return Err(Bad::TooLarge(chunk));
            }
            if event == Event::More || event == Event::Done {
                return Ok(Taken { data, used });
            }
            if data.is_empty() {
                data = piece;
            } else {
                let end = data.end + piece.len();
                bytes.copy_within(piece, data.end);
                data.end = end;
            }
        }
    }
}

/// Bytes up to which pieces from the socket are copied together, so that a client that sends a body
/// in crumbs does not fill a page with each.
const CRUMB_MAX: usize = 4096;

/// How much of a body may be in memory.
struct Memory {
    /// All of it fits, whatever comes.
    whole: bool,
    /// Otherwise what is held before it goes to a file.
    max: u64,
}

impl Request {
    /// Reads all of the body, into memory or a temporary file as the location's settings say. Done
    /// at once where there is none, or where it was read before.
    ///
    /// # Errors
    /// What the handler is to answer: 400, 413, 500, or to close the connection. It was logged.
    pub async fn read_body(&mut self) -> Result<(), Verdict> {
        // Most requests have none, and their futures no room for it.
        if self.body.framing == Framing::None && !self.head.expect_continue {
            if self.body.stage == Stage::Unread {
                self.body.stage = Stage::Read;
            }
            return Ok(());
        }
        let keep = match self.loc.core.client_body_in_file_only {
            InFileOnly::Off => return Box::pin(self.collect(None)).await,
            InFileOnly::On => Keep::Stays,
            InFileOnly::Clean => Keep::Named,
        };
        let how = InFile { keep, mode: 0o600, log: Some(Level::Notice) };
        Box::pin(self.collect(Some(how))).await
    }

    /// Reads all of the body into a temporary file, whatever the location's settings say. A request
    /// without a body has no file.
    ///
    /// # Errors
    /// As [`Request::read_body`].
    pub async fn read_body_to_file(&mut self, how: InFile) -> Result<(), Verdict> {
        self.collect(Some(how)).await
    }

    /// The next piece of a body that is not to be read whole; `None` at its end. A handler that
    /// begins with it ends with it.
    ///
    /// # Errors
    /// As [`Request::read_body`].
    pub async fn next_body_piece(&mut self) -> Result<Option<Page>, Verdict> {
        match self.body.stage {
            Stage::Read | Stage::Unwanted | Stage::Refused => return Ok(None),
            Stage::Unread | Stage::Begun => self.body.stage = Stage::Begun,
        }
        self.test_expect().await?;
        self.piece().await
    }

    async fn collect(&mut self, in_file: Option<InFile>) -> Result<(), Verdict> {
        if self.body.stage != Stage::Unread {
            return Ok(());
        }
        self.body.stage = Stage::Begun;
        self.test_expect().await?;
        let memory = self.memory();
        while let Some(page) = self.piece().await? {
            if page.len() <= CRUMB_MAX {
                self.body.mem.write(&page);
            } else {
                self.body.mem.push(page.into());
            }
            if !memory.whole && !self.body.is_finished() && self.body.mem.len() >= memory.max {
                self.spill(in_file).await?;
            }
        }
        let body = &self.body;
        let too_much = !memory.whole && body.len > memory.max;
        let must = in_file.is_some() && body.framing != Framing::None;
        if too_much || must || body.file.is_some() {
            self.spill(in_file).await?;
        } else if self.loc.core.client_body_in_single_buffer && body.mem.iter().count() > 1 {
            self.body.join();
        }
        self.body.stage = Stage::Read;
        Ok(())
    }

    /// As in nginx, where a part of the body may share the head's buffer, and a buffer of its own
    /// is made a quarter larger if all of the rest fits in then.
    fn memory(&self) -> Memory {
        let size = self.loc.core.client_body_buffer_size as u64;
        let behind_head = self.buf.filled().len().saturating_sub(self.head_len) as u64;
        let header_size = self.server.core.client_header_buffer_size;
        let room = header_size.saturating_sub(self.head_len) as u64;
        let shared = room.min(behind_head);
        match self.body.framing {
            Framing::None => Memory { whole: true, max: 0 },
            Framing::Length => {
                let rest = self.body.left.saturating_sub(shared);
                Memory { whole: rest < size + size / 4, max: size }
            }
            Framing::Chunked => Memory { whole: false, max: size + shared },
        }
    }

    /// Moves what is in memory to the temporary file.
    async fn spill(&mut self, in_file: Option<InFile>) -> Result<(), Verdict> {
        let usual = InFile { keep: Keep::Nameless, mode: 0o600, log: Some(Level::Warn) };
        let how = in_file.unwrap_or(usual);
        if let Err(e) = self.write_to_file(how).await {
            self.log(Level::Crit, format_args!("{e}"));
            return Err(Verdict::Status(500));
        }
        Ok(())
    }

    async fn write_to_file(&mut self, how: InFile) -> Result<(), FileError> {
        let file = self.body.file.take();
        let is_new = file.is_none();
        let folder = self.loc.core.client_body_temp_path.clone();
        let mut data = self.body.mem.take();
        let empty = data.is_empty();
        let make = move |file: Option<TempFile>| match file {
            Some(file) => Ok(file),
            None => TempFile::create(&folder, how.keep, how.mode),
        };
        let pool = self.writing_pool().map_err(|_| {
            let error = io::Error::other("no thread pool");
            FileError::new("pwrite()", &*self.loc.core.client_body_temp_path.path, error)
        })?;
        let (file, done) = match pool {
            None => {
                let mut file = make(file)?;
                let done = file.append(&mut data);
                (file, done)
            }
            Some(pool) => {
                let mut parts: Vec<bytes::Bytes> = Vec::new();
                while let Some(buf) = data.pop_front() {
                    parts.extend(buf.into_bytes());
                }
                let task = move || {
                    // The parts come back: their pages belong to this thread.
                    let made = make(file).map(|mut file| {
                        let done = file.append_parts(&parts);
                        (file, done)
                    });
                    (made, parts)
                };
                match pool.run(task).await {
                    Ok((made, _parts)) => made?,
                    Err(e) => {
                        let folder = &*self.loc.core.client_body_temp_path.path;
                        return Err(FileError::new("pwrite()", folder, e.into()));
                    }
                }
            }
        };
        // An empty file is only made because one was asked for.
        if let (Some(level), true, false) = (how.log, is_new, empty) {
            let m = "a client request body is buffered to a temporary file";
            self.log(level, format_args!("{m} {}", file.path().display()));
        }
        self.body.file = Some(file);
        done
    }

    /// Tells a client that waits for it to go on, if none of the body came yet (RFC 9110 section
    /// 10.1.1 lets a server that has some of it say nothing).
    async fn test_expect(&mut self) -> Result<(), Verdict> {
        if !self.head.expect_continue || self.flags.expect_tested {
            return Ok(());
        }
        self.flags.expect_tested = true;
        if self.buf.filled().len() > self.head_len + self.body.buffered {
            return Ok(());
        }
        self.wire.write(b"HTTP/1.1 100 Continue\r\n\r\n");
        self.flush_before_waiting().await
    }

    /// Responses to earlier requests may still wait for company: the client may, too.
    async fn flush_before_waiting(&mut self) -> Result<(), Verdict> {
        send::flush(self).await.map_err(|_| Verdict::Close)
    }

    /// The next piece of data; `None` when the body is complete.
    async fn piece(&mut self) -> Result<Option<Page>, Verdict> {
        let max = self.loc.core.client_max_body_size;
        loop {
            if self.body.is_finished() {
                return Ok(None);
            }
            let mut page = self.copy_of_buffer();
            let from_buffer = !page.is_empty();
            if !from_buffer {
                page = self.receive_body().await?;
            }
            let taken = match self.body.take(page.filled_mut(), max) {
                Ok(t) => t,
                Err(bad) => return Err(self.refuse_body(&bad)),
            };
            if from_buffer {
                self.body.buffered += taken.used;
            } else {
                self.buf.extend_from_slice(&page[taken.used..]);
            }
            if !taken.data.is_empty() {
                page.truncate(taken.data.end);
                page.consume(taken.data.start);
                return Ok(Some(page));
            }
        }
    }

    /// A copy of what is in the client's buffer and may belong to the body.
    fn copy_of_buffer(&self) -> Page {
        let from = self.head_len + self.body.buffered;
        let there = self.buf.filled().get(from..).unwrap_or_default();
        let len = match self.body.framing {
            Framing::Length => {
                usize::try_from(self.body.left).map_or(there.len(), |left| left.min(there.len()))
            }
            _ => there.len(),
        };
        let mut page = Page::new();
        if len > 0 {
            page.extend_from_slice(&there[..len]);
        }
        page
    }

    /// What the socket has, or will have within `client_body_timeout`.
    async fn receive_body(&mut self) -> Result<Page, Verdict> {
        if !self.wire.is_empty() {
            self.flush_before_waiting().await?;
        }
        let until = Deadline::in_ms(self.loc.core.client_body_timeout);
        let c = self.c().clone();
        match c.sock.recv(1, until).await {
            Ok(page) if !page.is_empty() => Ok(page),
            Ok(_) => {
                self.log(Level::Info, format_args!("client prematurely closed connection"));
                Err(self.body_broke_off(400))
            }
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                self.timed_out = true;
                let m = "client timed out (110: Connection timed out)";
                self.log(Level::Info, format_args!("{m} while reading client request body"));
                Err(self.body_broke_off(408))
            }
            Err(e) => {
                self.log_os(Level::Info, format_args!("recv()"), &e);
                Err(self.body_broke_off(400))
            }
        }
    }

    /// There is nobody to answer any more; the status is for the log alone.
    fn body_broke_off(&mut self, status: u16) -> Verdict {
        self.err_status = status;
        self.flags.keepalive = false;
        Verdict::Close
    }

    #[cold]
    pub(super) fn refuse_body(&mut self, bad: &Bad) -> Verdict {
        self.flags.keepalive = false;
        self.body.refuse();
        match bad {
            Bad::Chunk => {
                self.log(Level::Error, format_args!("client sent invalid chunked body"));
                Verdict::Status(400)
            }
            Bad::TooLarge(chunk) => {
                let m = "client intended to send too large chunked body";
                let len = self.body.len;
                self.log(Level::Error, format_args!("{m}: {len}+{chunk} bytes"));
                self.flags.lingering = true;
                Verdict::Status(413)
            }
        }
    }
}

impl ReqBody {
    /// Copies the pieces into one.
    fn join(&mut self) {
        let mut one = Chain::new();
        let room = usize::try_from(self.mem.len()).unwrap_or(usize::MAX);
        let into = one.writer_for(room);
        for piece in self.mem.iter() {
            into.extend_from_slice(piece.memory().unwrap_or_default());
        }
        self.mem = one;
    }
}

#[cfg(test)]
mod tests {
    use proto::chunked::{Decoder, Trailers};

    use super::*;

    fn sized(n: u64) -> ReqBody {
        ReqBody { framing: Framing::Length, left: n, ..ReqBody::default() }
    }

    fn chunked() -> ReqBody {
        let decoder = Decoder::new(Trailers::Discard, 100);
        ReqBody { framing: Framing::Chunked, decoder, ..ReqBody::default() }
    }

    /// Takes `pieces` one after the other: the data, and what was left of the last piece.
    fn taken(body: &mut ReqBody, pieces: &[&str], max: u64) -> Result<(String, String), Bad> {
        let (mut data, mut rest) = (String::new(), String::new());
        for piece in pieces {
            let mut bytes = piece.as_bytes().to_vec();
            let t = body.take(&mut bytes, max)?;
            data.push_str(std::str::from_utf8(&bytes[t.data]).unwrap());
            rest = piece[t.used..].to_owned();
        }
        Ok((data, rest))
    }

    #[test]
    fn a_sized_body_ends_where_it_says() {
        let mut body = sized(7);
        let got = taken(&mut body, &["abc", "defgGET /"], 0).unwrap();
        assert_eq!(got, ("abcdefg".into(), "GET /".into()));
        assert!(body.is_finished());
        assert_eq!((body.len(), body.received()), (7, 7));
    }

    #[test]
    fn chunks_are_moved_together() {
        let mut body = chunked();
        let wire = "3\r\nabc\r\n4;x=y\r\ndefg\r\n1\r\nh\r\n0\r\n\r\nGET /";
        let got = taken(&mut body, &[wire], 8).unwrap();
        assert_eq!(got, ("abcdefgh".into(), "GET /".into()));
        assert!(body.is_finished());
        assert_eq!((body.len(), body.received()), (8, wire.len() as u64 - 5));
    }

    #[test]
    fn chunks_may_be_cut_anywhere() {
        let wire = "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
        for cut in 0..wire.len() {
            let mut body = chunked();
            let (a, b) = wire.split_at(cut);
            assert_eq!(taken(&mut body, &[a, b], 0).unwrap().0, "abcdefg", "cut at {cut}");
            assert!(body.is_finished());
        }
    }

    #[test]
    fn a_chunk_that_is_too_large_is_refused_when_it_is_announced() {
        let mut body = chunked();
        assert_eq!(taken(&mut body, &["3\r\nabc\r\n6\r\n"], 8), Err(Bad::TooLarge(6)));
        assert_eq!(body.len(), 3);
        assert!(taken(&mut chunked(), &["3\r\nabc\r\n5\r\n"], 8).is_ok());
        assert_eq!(taken(&mut chunked(), &["9\r\nab"], 8), Err(Bad::TooLarge(9)));
    }

    #[test]
    fn broken_chunks_are_refused() {
        for wire in ["4\r\nSEE-THIS\r\n0\r\n\r\n", "x\r\n", "3\nabc"] {
            assert_eq!(taken(&mut chunked(), &[wire], 0), Err(Bad::Chunk), "{wire:?}");
        }
    }

    #[test]
    fn one_buffer_holds_what_several_did() {
        let mut body = sized(0);
        for part in ["abc", "def"] {
            body.mem.push_bytes(bytes::Bytes::from_static(part.as_bytes()));
        }
        body.join();
        let pieces: Vec<_> = body.mem.iter().filter_map(|b| b.memory()).collect();
        assert_eq!(pieces, [b"abcdef"]);
    }
}
