//! The exchange's handle of its stream.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use event::{Deadline, Either, Side};
use http_wire::h1::ResponseHead;
use http_wire::h2::frame::ErrorCode;
use mem::{Buf, Chain, Page};
use net::Transport;
use net::relay::End;

use super::mux::{Key, Mux, StreamEnd};

/// A stream of a connection that exchanges share, or the right to begin one. Dropping it resets a
/// stream that is not over.
#[derive(Debug)]
pub struct Stream {
    mux: Rc<Mux>,
    key: Cell<Key>,
    /// The connection had other streams before.
    cached: bool,
    /// The moment at which the exchange's time is over.
    until: Cell<Deadline>,
}

/// The result of a look for data.
#[derive(Debug)]
pub enum Taken {
    /// Nothing is there yet.
    Nothing,
    /// A piece of the body.
    Piece(Buf),
    /// The response is over.
    End,
}

impl Stream {
    pub(super) fn new(mux: Rc<Mux>, cached: bool) -> Stream {
        let until = Cell::new(Deadline::NEVER);
        Stream { mux, key: Cell::new(Key::NONE), cached, until }
    }

    /// Ends the exchange at that moment, whatever it waits for: the server is told to cancel it,
    /// and the stream's end is [`StreamEnd::Late`].
    pub fn end_at(&self, until: Deadline) {
        self.until.set(until);
    }

    /// Ends the exchange if its time is over.
    fn look_at_time(&self) {
        if !self.until.get().has_passed() {
            return;
        }
        self.of(|state, at| {
            let entry = &state.streams[at];
            if !entry.remote_ended && entry.end.is_none() {
                state.refuse(at, ErrorCode::CANCEL, StreamEnd::Late);
            }
        });
        self.mux.stirred.notify_one();
    }

    /// Waits for the stream; false if `deadline` comes first. The end of the exchange's time is
    /// news of the stream.
    async fn news(
        &self,
        deadline: Deadline,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> io::Result<()> {
        loop {
            self.look_at_time();
            let until = self.until.get();
            let ready = poll_fn(&mut poll);
            match event::race(ready, event::sleep_until(until.or(deadline))).await {
                Either::First(()) => return Ok(()),
                Either::Second(()) if until.has_passed() => {}
                Either::Second(()) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let waits = self.of(|state, at| {
            let entry = &mut state.streams[at];
            !entry.is_readable() && keep_waker(&mut entry.reader, cx)
        });
        if waits == Some(true) { Poll::Pending } else { Poll::Ready(()) }
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let waits = self.of(|state, at| {
            let is_ready = state.streams[at].local_ended || state.room(at) > 0;
            !is_ready && keep_waker(&mut state.streams[at].writer, cx)
        });
        if waits == Some(true) { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Whether the connection was used before: an error on it may just be its end.
    pub fn is_cached(&self) -> bool {
        self.cached
    }

    /// The connection that carries it.
    pub fn carrier(&self) -> &Transport {
        &self.mux.sock
    }

    /// Whether the server takes requests for another protocol by CONNECT (RFC 8441). Waits for its
    /// parameters where they did not come yet.
    ///
    /// # Errors
    /// `TimedOut`.
    pub async fn takes_connect(&self, deadline: Deadline) -> io::Result<bool> {
        loop {
            if let Some(takes) = self.mux.with(|state| state.takes_connect()) {
                return Ok(takes);
            }
            if !self.mux.greeted.notified_by(deadline).await {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Begins the stream with a request's fields ([`http_wire::fields`]); `end`: it has no body. A
    /// response whose fields take more than `head_max` bytes is malformed.
    ///
    /// # Errors
    /// The connection takes no more streams.
    pub fn begin(&self, list: &[u8], end: bool, head_max: usize) -> Result<(), StreamEnd> {
        self.key.set(self.mux.with(|state| state.begin(list, end, head_max))?);
        self.mux.stirred.notify_one();
        Ok(())
    }

    /// The stream is looked at; `None` where it is not there.
    fn of<R>(&self, f: impl FnOnce(&mut super::mux::State, usize) -> R) -> Option<R> {
        self.mux.with(|state| {
            let at = state.place(self.key.get())?;
            Some(f(state, at))
        })
    }

    /// Sends what fits of a body, which is memory alone; `last`: nothing follows it. Gives the
    /// number of bytes.
    ///
    /// # Errors
    /// The stream has ended. Its response may be there nevertheless.
    pub fn try_send(&self, body: &mut Chain, last: bool) -> io::Result<usize> {
        let sent = self.of(|state, at| {
            let entry = &state.streams[at];
            if entry.local_ended {
                // The server wants no more of it.
                body.clear();
                return entry.end.is_none().then_some(0);
            }
            Some(state.send_data(at, body, last))
        });
        match sent.flatten() {
            Some(sent) => {
                if sent > 0 || last {
                    self.mux.stirred.notify_one();
                }
                Ok(sent)
            }
            None => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    /// Whether all of the request was sent, or the server wants no more of it.
    pub fn is_sent(&self) -> bool {
        self.of(|state, at| state.streams[at].local_ended).unwrap_or(true)
    }

    /// Takes the next head, interim ones among them: its fields go to `head`, their text is
    /// returned. `None` while there is none.
    ///
    /// # Errors
    /// The stream ended without one.
    pub fn take_head(&self, head: &mut ResponseHead) -> Result<Option<Bytes>, StreamEnd> {
        let taken = self.of(|state, at| {
            let entry = &mut state.streams[at];
            if let Some((received, text)) = entry.heads.pop_front() {
                state.recycle(std::mem::replace(head, received));
                return Ok(Some(text));
            }
            match &entry.end {
                Some(end) => Err(end.clone()),
                None => Ok(None),
            }
        });
        taken.unwrap_or(Err(StreamEnd::Closed))
    }

    /// Takes a piece of the body.
    ///
    /// # Errors
    /// The stream ended before the body did.
    pub fn take(&self) -> Result<Taken, StreamEnd> {
        self.look_at_time();
        let taken = self.of(|state, at| {
            let before = state.out_len;
            if let Some(piece) = state.take_data(at) {
                return Ok((Taken::Piece(piece), state.out_len > before));
            }
            let entry = &state.streams[at];
            match &entry.end {
                Some(end) => Err(end.clone()),
                None if entry.remote_ended => Ok((Taken::End, false)),
                None => Ok((Taken::Nothing, false)),
            }
        });
        let (taken, has_output) = taken.unwrap_or(Err(StreamEnd::Closed))?;
        if has_output {
            self.mux.stirred.notify_one();
        }
        Ok(taken)
    }

    /// The fields behind the body, once.
    pub fn take_trailers(&self) -> Vec<(Bytes, Bytes)> {
        self.of(|state, at| std::mem::take(&mut state.streams[at].trailers)).unwrap_or_default()
    }

    /// Waits until something can be taken.
    ///
    /// # Errors
    /// `TimedOut`.
    pub async fn readable(&self, deadline: Deadline) -> io::Result<()> {
        self.news(deadline, |cx| self.poll_readable(cx)).await
    }

    /// Waits until something can be taken, or until the peer of `other` is known to send no more:
    /// with one timer, and one slot of the loop.
    ///
    /// # Errors
    /// `TimedOut`.
    pub async fn readable_while(&self, other: &Transport, deadline: Deadline) -> io::Result<Side> {
        loop {
            self.look_at_time();
            let until = self.until.get();
            let closed = other.closed_by_peer_before(until.or(deadline));
            match event::race(poll_fn(|cx| self.poll_readable(cx)), closed).await {
                Either::First(()) => return Ok(Side::This),
                Either::Second(Ok(())) => return Ok(Side::Other),
                Either::Second(Err(e)) if e.kind() != io::ErrorKind::TimedOut => {
                    // It has another reader, which will notice its end.
                    return self.readable(deadline).await.map(|()| Side::This);
                }
                Either::Second(Err(_)) if until.has_passed() => {}
                Either::Second(Err(e)) => return Err(e),
            }
        }
    }

    /// Waits until something can be sent.
    ///
    /// # Errors
    /// `TimedOut`.
    pub async fn writable(&self, deadline: Deadline) -> io::Result<()> {
        self.news(deadline, |cx| self.poll_writable(cx)).await
    }
}

/// Notes the task that waits; true.
fn keep_waker(place: &mut Option<Waker>, cx: &Context<'_>) -> bool {
    if !place.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        *place = Some(cx.waker().clone());
    }
    true
}

/// A stream that carries another protocol.
impl End for Stream {
    fn try_recv_into(&self, page: &mut Page) -> io::Result<Option<usize>> {
        match self.take() {
            Ok(Taken::Nothing) => Ok(None),
            Ok(Taken::Piece(piece)) => {
                let bytes = piece.memory().unwrap_or_default();
                page.extend_from_slice(bytes);
                Ok(Some(bytes.len()))
            }
            Ok(Taken::End) => Ok(Some(0)),
            Err(_) => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    fn try_send(&self, chain: &mut Chain) -> io::Result<usize> {
        Stream::try_send(self, chain, false)
    }

    fn has_unsent(&self) -> bool {
        false
    }

    fn readable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> {
        Stream::readable(self, deadline)
    }

    fn writable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> {
        Stream::writable(self, deadline)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let has_output = self.mux.with(|state| {
            let before = state.out_len;
            state.close(self.key.get());
            state.out_len > before
        });
        if has_output {
            self.mux.stirred.notify_one();
        }
        self.mux.leave();
    }
}
