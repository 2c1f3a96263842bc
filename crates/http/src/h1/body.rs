//! Request bodies: their framing, and how they are read from the page and the socket.
//!
//! A body begins in the page, right behind its request's head, and goes on in the socket. Bytes
//! taken of the page stay there until the request is over (the head's spans point into it); bytes
//! behind the body's end go to the page's end: they are the next request.

use std::io;
use std::ops::Range;

use base::log::Level;
use event::Deadline;
use http_wire::chunked::{Decoder, Event, Trailers};
use http_wire::h1::Head;
use mem::Page;

use super::{Stream, output, stream};
use crate::channel::Expected;
use crate::module::Verdict;
use crate::request::Request;
use engine::min_rate;

/// The reason why bytes cannot go on being a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// The chunked coding is broken.
    Chunk,
    /// A chunk would exceed `client_max_body_size`.
    TooLarge {
        /// Data before the chunk.
        before: u64,
        /// The chunk's bytes still to come.
        chunk: u64,
    },
}

/// The body's part of some bytes.
#[derive(Debug, PartialEq, Eq)]
struct Taken {
    /// The place of the data.
    data: Range<usize>,
    /// The number of bytes used up, framing included.
    used: usize,
}

/// The ways to tell the end of a body.
#[derive(Default)]
enum Framing {
    /// There is none.
    #[default]
    None,
    /// `Content-Length` says how long the body is.
    Length,
    /// The body has the chunked coding. The decoder is large, and few requests need one.
    Chunked(Box<Decoder>),
}

/// Bytes of trailers that a client may send behind a chunked body.
const TRAILER_MAX: u32 = 8 << 10;

/// A body on its way in: its framing, and how far it came.
#[derive(Default)]
pub(super) struct Incoming {
    framing: Framing,
    /// The bytes still to come, if the framing is `Framing::Length`.
    left: u64,
    /// Bytes behind the head in the page that were taken.
    buffered: usize,
}

impl Incoming {
    pub fn new(head: &Head) -> Incoming {
        let mut body = Incoming::default();
        if head.chunked {
            body.framing = Framing::Chunked(Box::new(Decoder::new(Trailers::Discard, TRAILER_MAX)));
        } else if let Some(n) = head.content_length {
            body.framing = Framing::Length;
            body.left = n;
        }
        body
    }

    /// Whether all of it came.
    pub fn is_finished(&self) -> bool {
        match &self.framing {
            Framing::None => true,
            Framing::Length => self.left == 0,
            Framing::Chunked(decoder) => decoder.is_done(),
        }
    }

    /// Bytes behind the head in the page that belong to the body and were taken.
    pub fn buffered(&self) -> usize {
        self.buffered
    }

    /// Takes the body's bytes at the start of `bytes`. Data of several chunks is moved together.
    /// `max` limits all data of a chunked body, of which `before` bytes came; 0 is no limit.
    fn take(&mut self, bytes: &mut [u8], before: u64, max: u64) -> Result<Taken, Bad> {
        match &mut self.framing {
            Framing::None => Ok(Taken { data: 0..0, used: 0 }),
            Framing::Length => {
                let n = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= n as u64;
                Ok(Taken { data: 0..n, used: n })
            }
            Framing::Chunked(decoder) => decode(decoder, bytes, before, max),
        }
    }

    /// Counts bytes of the page that were dropped.
    pub fn passed(&mut self, n: usize) {
        self.buffered += n;
    }

    /// Takes the body's bytes at the start of `bytes` only to drop them.
    pub fn skip(&mut self, bytes: &[u8]) -> Result<usize, Bad> {
        let mut used = 0;
        match &mut self.framing {
            Framing::None => {}
            Framing::Length => {
                used = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= used as u64;
            }
            Framing::Chunked(decoder) => loop {
                match decoder.next(bytes, &mut used) {
                    Ok(Event::Data(_)) => {}
                    Ok(Event::More | Event::Done) => break,
                    Err(_) => return Err(Bad::Chunk),
                }
            },
        }
        Ok(used)
    }
}

fn decode(decoder: &mut Decoder, bytes: &mut [u8], before: u64, max: u64) -> Result<Taken, Bad> {
    let (mut data, mut used) = (0..0, 0);
    loop {
        let event = decoder.next(bytes, &mut used).map_err(|_| Bad::Chunk)?;
        let piece = match &event {
            Event::Data(piece) => piece.clone(),
            Event::More | Event::Done => used..used,
        };
        let chunk = piece.len() as u64 + decoder.chunk_left();
        let before = before + data.len() as u64;
        if max > 0 && chunk > 0 && before.saturating_add(chunk) > max {
            return Err(Bad::TooLarge { before, chunk });
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

/// The next piece of the body; `None` at its end.
pub(crate) async fn next_piece(r: &mut Request) -> Result<Option<Page>, Verdict> {
    test_expect(r).await?;
    let max = r.loc.core.client_max_body_size;
    loop {
        let s = stream(r);
        if s.body.is_finished() {
            return Ok(None);
        }
        let mut page = copy_of_input(s);
        let from_input = !page.is_empty();
        if !from_input {
            page = receive(r).await?;
        }
        let before = r.body.len();
        let s = stream(r);
        let taken = match s.body.take(page.filled_mut(), before, max) {
            Ok(taken) => taken,
            Err(bad) => return Err(refuse(r, &bad)),
        };
        if from_input {
            s.body.buffered += taken.used;
        } else {
            s.input.extend_from_slice(&page[taken.used..]);
        }
        r.body.count(taken.used, taken.data.len());
        if !taken.data.is_empty() {
            page.truncate(taken.data.end);
            page.consume(taken.data.start);
            return Ok(Some(page));
        }
    }
}

/// Size and place of the data that is still to come.
pub(crate) fn expected(r: &mut Request) -> Expected {
    let s = stream(r);
    let with_head = s.input.len().saturating_sub(s.head_len) as u64;
    let length = match s.body.framing {
        Framing::None => Some(0),
        Framing::Length => Some(s.body.left),
        Framing::Chunked(_) => None,
    };
    Expected { length, with_head }
}

/// Tells a client that waits for it to go on, if none of the body came yet (RFC 9110 section 10.1.1
/// lets a server that has some of it say nothing).
async fn test_expect(r: &mut Request) -> Result<(), Verdict> {
    if !r.head.expect_continue {
        return Ok(());
    }
    let s = stream(r);
    if std::mem::replace(&mut s.expect_tested, true) || !s.unread().is_empty() {
        return Ok(());
    }
    s.output.write(b"HTTP/1.1 100 Continue\r\n\r\n");
    flush_before_waiting(r).await
}

/// Responses to earlier requests may still wait for company: the client may, too.
async fn flush_before_waiting(r: &mut Request) -> Result<(), Verdict> {
    output::flush(r).await.map_err(|_| Verdict::Close)
}

/// A copy of the bytes in the page that may belong to the body.
fn copy_of_input(s: &Stream) -> Page {
    let there = s.unread();
    let len = match s.body.framing {
        Framing::Length => {
            usize::try_from(s.body.left).map_or(there.len(), |left| left.min(there.len()))
        }
        _ => there.len(),
    };
    let mut page = Page::new();
    if len > 0 {
        page.extend_from_slice(&there[..len]);
    }
    page
}

/// Bytes that the socket has, or will have within `client_body_timeout`.
async fn receive(r: &mut Request) -> Result<Page, Verdict> {
    if !stream(r).output.is_empty() {
        flush_before_waiting(r).await?;
    }
    let (min, timeout) = (r.body_min_rate(), r.loc.core.client_body_timeout);
    let until = Deadline::in_ms(r.client.rates.body.limit(min, timeout));
    let began_ms = base::time::now_ms();
    let c = r.c().clone();
    match c.sock().recv(1, until).await {
        Ok(page) if !page.is_empty() => {
            let waited_ms = base::time::now_ms() - began_ms;
            r.client.rates.body.moved(min, waited_ms, page.len() as u64);
            Ok(page)
        }
        Ok(_) => {
            r.log(Level::Info, format_args!("client prematurely closed connection"));
            Err(broke_off(r, 400))
        }
        Err(_) if c.is_displaced(|m| log_reading(r, m)) => Err(broke_off(r, 499)),
        Err(e) if e.kind() == io::ErrorKind::TimedOut => {
            stream(r).timed_out = true;
            let too_slow = r.client.rates.body.is_why(min, timeout);
            if let Some(m) = min_rate::reason(too_slow, c.client_ip()) {
                log_reading(r, m);
            }
            Err(broke_off(r, 408))
        }
        Err(e) => {
            r.log_os(Level::Info, format_args!("recv()"), &e);
            Err(broke_off(r, 400))
        }
    }
}

#[cold]
fn log_reading(r: &Request, m: &str) {
    r.log(Level::Info, format_args!("{m} while reading client request body"));
}

/// There is nobody to answer any more; the status is for the log alone.
fn broke_off(r: &mut Request, status: u16) -> Verdict {
    r.flags.err_status = status;
    r.close_connection();
    Verdict::Close
}

/// Refuses a malformed body, and one that is too large.
#[cold]
pub(super) fn refuse(r: &mut Request, bad: &Bad) -> Verdict {
    r.close_connection();
    r.body.refuse();
    match *bad {
        Bad::Chunk => {
            r.log(Level::Error, format_args!("client sent invalid chunked body"));
            Verdict::Status(400)
        }
        Bad::TooLarge { before, chunk } => {
            r.body.count(0, before.saturating_sub(r.body.len()) as usize);
            let m = "client intended to send too large chunked body";
            r.log(Level::Error, format_args!("{m}: {before}+{chunk} bytes"));
            stream(r).lingering = true;
            Verdict::Status(413)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sized(n: u64) -> Incoming {
        Incoming { framing: Framing::Length, left: n, ..Incoming::default() }
    }

    fn chunked() -> Incoming {
        let decoder = Box::new(Decoder::new(Trailers::Discard, 100));
        Incoming { framing: Framing::Chunked(decoder), ..Incoming::default() }
    }

    /// Takes `pieces` in order: returns the data, the rest of the last piece, and the bytes used.
    fn taken(
        body: &mut Incoming,
        pieces: &[&str],
        max: u64,
    ) -> Result<(String, String, usize), Bad> {
        let (mut data, mut rest, mut used) = (String::new(), String::new(), 0);
        for piece in pieces {
            let mut bytes = piece.as_bytes().to_vec();
            let t = body.take(&mut bytes, data.len() as u64, max)?;
            data.push_str(std::str::from_utf8(&bytes[t.data]).unwrap());
            rest = piece[t.used..].to_owned();
            used += t.used;
        }
        Ok((data, rest, used))
    }

    #[test]
    fn a_sized_body_ends_where_it_says() {
        let mut body = sized(7);
        let got = taken(&mut body, &["abc", "defgGET /"], 0).unwrap();
        assert_eq!(got, ("abcdefg".into(), "GET /".into(), 7));
        assert!(body.is_finished());
    }

    #[test]
    fn chunks_are_moved_together() {
        let mut body = chunked();
        let wire = "3\r\nabc\r\n4;x=y\r\ndefg\r\n1\r\nh\r\n0\r\n\r\nGET /";
        let got = taken(&mut body, &[wire], 8).unwrap();
        assert_eq!(got, ("abcdefgh".into(), "GET /".into(), wire.len() - 5));
        assert!(body.is_finished());
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
        let too_large = |before, chunk| Err(Bad::TooLarge { before, chunk });
        assert_eq!(taken(&mut chunked(), &["3\r\nabc\r\n6\r\n"], 8), too_large(3, 6));
        assert_eq!(taken(&mut chunked(), &["3\r\nabc\r\n", "6\r\n"], 8), too_large(3, 6));
        assert!(taken(&mut chunked(), &["3\r\nabc\r\n5\r\n"], 8).is_ok());
        assert_eq!(taken(&mut chunked(), &["9\r\nab"], 8), too_large(0, 9));
    }

    #[test]
    fn broken_chunks_are_refused() {
        for wire in ["4\r\nSEE-THIS\r\n0\r\n\r\n", "x\r\n", "3\nabc"] {
            assert_eq!(taken(&mut chunked(), &[wire], 0), Err(Bad::Chunk), "{wire:?}");
        }
    }

    #[test]
    fn skipping_uses_up_the_same_bytes() {
        let wire = "3\r\nabc\r\n0\r\n\r\nGET /";
        let mut body = chunked();
        assert_eq!(body.skip(wire.as_bytes()), Ok(wire.len() - 5));
        assert!(body.is_finished());
        let mut body = sized(5);
        assert_eq!(body.skip(b"abc"), Ok(3));
        assert!(!body.is_finished());
        assert_eq!(body.skip(b"deGET"), Ok(2));
        assert!(body.is_finished());
    }

    #[test]
    fn what_is_no_body_is_not_skipped() {
        for wire in ["4\r\nSEE-THIS\r\n0\r\n\r\n", "x\r\n", "3\nabc"] {
            let mut body = chunked();
            assert_eq!(body.skip(wire.as_bytes()), Err(Bad::Chunk), "{wire:?}");
        }
    }
}
