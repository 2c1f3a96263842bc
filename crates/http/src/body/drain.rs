//! Bodies that nobody wants: they are dropped as they come, so that the next request can be found
//! behind them.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

use event::Deadline;
use mem::Page;
use proto::chunked::Event;

use super::read::Bad;
use super::{Framing, ReqBody};
use crate::conn::Conn;
use crate::request::Request;
use crate::send::{self, SendFailed};

impl ReqBody {
    /// Takes the body's bytes at the start of `bytes` only to drop them.
    fn skip(&mut self, bytes: &[u8]) -> Result<usize, Bad> {
        let mut used = 0;
        match self.framing {
            Framing::None => {}
            Framing::Length => {
                used = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= used as u64;
            }
            Framing::Chunked => loop {
                match self.decoder.next(bytes, &mut used) {
                    Ok(Event::Data(_)) => {}
                    Ok(Event::More | Event::Done) => break,
                    Err(_) => return Err(Bad::Chunk),
                }
            },
        }
        Ok(used)
    }
}

/// A body that is dropped while its request is answered.
struct Drain {
    c: Rc<Conn>,
    body: ReqBody,
    /// What came behind the body.
    rest: Page,
}

impl Drain {
    /// Drops what comes, until the body ends, or is none. May be given up at any time: it waits
    /// with no bytes in hand.
    async fn run(&mut self) {
        while !self.body.is_finished() {
            if self.c.sock.readable(Deadline::NEVER).await.is_err() {
                return;
            }
            match self.c.sock.try_recv() {
                Ok(None) => {}
                Ok(Some(page)) if !page.is_empty() => match self.body.skip(&page) {
                    Ok(used) => self.rest.extend_from_slice(&page[used..]),
                    Err(_) => return self.body.refuse(),
                },
                // The response may still get through; reading will fail again behind it.
                _ => return,
            }
        }
    }
}

impl Request {
    /// Before a response to a request whose body nobody asked for: drops what of it is in the
    /// client's buffer. False: it is no body, and the response must say so.
    pub(crate) fn skip_buffered_body(&mut self) -> bool {
        if self.head.expect_continue && !self.flags.expect_tested && self.nothing_came() {
            // A client that waits for 100 may send the body now, or not: only closing is clear.
            self.flags.keepalive = false;
            self.flags.expect_tested = true;
        }
        self.body.give_up();
        let from = self.head_len + self.body.buffered;
        let there = self.buf.filled().get(from..).unwrap_or_default();
        match self.body.skip(there) {
            Ok(used) => {
                self.body.buffered += used;
                true
            }
            Err(bad) => {
                self.refuse_body(&bad);
                false
            }
        }
    }

    fn nothing_came(&self) -> bool {
        self.buf.filled().len() <= self.head_len && !self.body.is_finished()
    }

    /// After the response: reads and drops what is left of the body, for `lingering_time` in all
    /// and `lingering_timeout` a read at most.
    pub(crate) async fn discard_rest(&mut self) -> Result<(), ()> {
        let (total, pause) = (self.loc.core.lingering_time, self.loc.core.lingering_timeout);
        let end = Deadline::in_ms(total);
        let c = self.c().clone();
        if !self.skip_buffered_body() {
            return Err(());
        }
        while !self.body.is_finished() {
            if end.has_passed() {
                return Err(());
            }
            let page = c.sock.recv(1, Deadline::in_ms(pause)).await.map_err(drop)?;
            if page.is_empty() {
                return Err(());
            }
            match self.body.skip(&page) {
                Ok(used) => self.buf.extend_from_slice(&page[used..]),
                Err(bad) => {
                    self.refuse_body(&bad);
                    return Err(());
                }
            }
        }
        Ok(())
    }

    /// Sends the response while the body, which nobody wants, still comes: the client may not read
    /// before it has sent all of it.
    pub(crate) async fn respond_and_drain(&mut self, more: bool) -> Result<(), SendFailed> {
        let body = std::mem::take(&mut self.body);
        let mut drain = Drain { c: self.c().clone(), body, rest: Page::new() };
        let sent = {
            let mut sending = pin!(send::response(self, more));
            let mut draining = pin!(drain.run());
            let mut drained = false;
            poll_fn(|cx| {
                drained = drained || draining.as_mut().poll(cx).is_ready();
                sending.as_mut().poll(cx)
            })
            .await
        };
        self.body = drain.body;
        self.buf.extend_from_slice(&drain.rest);
        if self.body.is_refused() {
            self.refuse_body(&Bad::Chunk);
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use proto::chunked::{Decoder, Trailers};

    use super::*;

    #[test]
    fn skipping_uses_up_the_same_bytes() {
        let wire = "3\r\nabc\r\n0\r\n\r\nGET /";
        let decoder = Decoder::new(Trailers::Discard, 100);
        let mut body = ReqBody { framing: Framing::Chunked, decoder, ..ReqBody::default() };
        assert_eq!(body.skip(wire.as_bytes()), Ok(wire.len() - 5));
        assert!(body.is_finished());
        let mut body = ReqBody { framing: Framing::Length, left: 5, ..ReqBody::default() };
        assert_eq!(body.skip(b"abc"), Ok(3));
        assert!(!body.is_finished());
        assert_eq!(body.skip(b"deGET"), Ok(2));
        assert!(body.is_finished());
    }

    #[test]
    fn what_is_no_body_is_not_skipped() {
        for wire in ["4\r\nSEE-THIS\r\n0\r\n\r\n", "x\r\n", "3\nabc"] {
            let decoder = Decoder::new(Trailers::Discard, 100);
            let mut body = ReqBody { framing: Framing::Chunked, decoder, ..ReqBody::default() };
            assert_eq!(body.skip(wire.as_bytes()), Err(Bad::Chunk), "{wire:?}");
        }
    }
}
