//! Bodies that nobody wants, dropped as they arrive, so that the next request can be found.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;

use event::Deadline;
use mem::Page;

use super::body::{Bad, Incoming, refuse};
use super::stream;
use crate::channel::conn::Conn;
use crate::request::Request;

/// A body that is dropped while its request is answered.
pub(crate) struct Drain {
    c: Rc<Conn>,
    body: Incoming,
    /// Bytes behind the body.
    rest: Page,
    /// It was no body.
    failed: bool,
}

impl Drain {
    pub(crate) fn begin(r: &mut Request) -> Drain {
        let body = std::mem::take(&mut stream(r).body);
        Drain { c: r.c().clone(), body, rest: Page::new(), failed: false }
    }

    /// Drops the body's bytes as they come until `sending` is done.
    pub(crate) async fn beside<T>(&mut self, sending: impl Future<Output = T>) -> T {
        let mut sending = pin!(sending);
        let mut draining = pin!(self.run());
        let mut drained = false;
        poll_fn(|cx| {
            drained = drained || draining.as_mut().poll(cx).is_ready();
            sending.as_mut().poll(cx)
        })
        .await
    }

    /// Gives the request the rest of its body, and the bytes behind it.
    pub(crate) fn end(self, r: &mut Request) {
        let s = stream(r);
        s.body = self.body;
        s.input.extend_from_slice(&self.rest);
        if self.failed {
            refuse(r, &Bad::Chunk);
        }
    }

    /// Drops bytes until the body ends or fails. Cancel-safe: it holds no bytes while it waits.
    async fn run(&mut self) {
        while !self.body.is_finished() {
            if self.c.sock().readable(Deadline::NEVER).await.is_err() {
                return;
            }
            match self.c.sock().try_recv() {
                Ok(None) => {}
                Ok(Some(page)) if !page.is_empty() => match self.body.skip(&page) {
                    Ok(used) => self.rest.extend_from_slice(&page[used..]),
                    Err(_) => {
                        self.failed = true;
                        return;
                    }
                },
                // The response may still get through; reading will fail again behind it.
                _ => return,
            }
        }
    }
}

/// Before the response to a request whose body is not wanted: drops the part of it in the page.
/// False: it is no body, and the response must say so.
pub(crate) fn drop_buffered(r: &mut Request) -> bool {
    let expects = r.head.expect_continue;
    let s = stream(r);
    let nothing_came = s.input.len() <= s.head_len && !s.body.is_finished();
    if expects && !s.expect_tested && nothing_came {
        // A client that waits for 100 may send the body now, or not: only closing is clear.
        s.keepalive = false;
        s.expect_tested = true;
    }
    let from = s.used();
    let there = s.input.filled().get(from..).unwrap_or_default();
    match s.body.skip(there) {
        Ok(used) => {
            s.body.passed(used);
            true
        }
        Err(bad) => {
            refuse(r, &bad);
            false
        }
    }
}

/// After the response: reads and drops the rest of the body, for `lingering_time` in all and
/// `lingering_timeout` a read at most. The connection makes room where that is needed.
pub(super) async fn discard_rest(c: &Conn, r: &mut Request) -> Result<(), ()> {
    let (total, pause) = (r.loc.core.lingering_time, r.loc.core.lingering_timeout);
    let end = Deadline::in_ms(total);
    r.body.give_up();
    if !drop_buffered(r) {
        return Err(());
    }
    while !stream(r).body.is_finished() {
        if end.has_passed() {
            return Err(());
        }
        let mut page = Page::new();
        match c.sock().recv_owed(&mut page, Deadline::in_ms(pause)).await {
            Ok(n) if n > 0 => {}
            _ => return Err(()),
        }
        let s = stream(r);
        match s.body.skip(&page) {
            Ok(used) => s.input.extend_from_slice(&page[used..]),
            Err(bad) => {
                refuse(r, &bad);
                return Err(());
            }
        }
    }
    Ok(())
}
