//! A stream that carries another protocol: CONNECT, and WebSocket (RFC 9220).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use event::Deadline;
use mem::{Chain, Page};
use net::relay::End;
use quic::StreamId;

use super::mux::Mux;
use super::output::frame_of;
use crate::channel::streams::until;

/// The client's end of a tunnel.
pub struct Tunnel {
    mux: Rc<Mux>,
    id: StreamId,
    /// Frames that QUIC has not taken.
    frames: RefCell<VecDeque<Bytes>>,
}

impl Tunnel {
    pub(super) fn new(mux: Rc<Mux>, id: StreamId) -> Tunnel {
        Tunnel { mux, id, frames: RefCell::default() }
    }
}

impl End for Tunnel {
    fn try_recv_into(&self, page: &mut Page) -> io::Result<Option<usize>> {
        let taken = self.mux.try_piece(self.id)?;
        Ok(taken.map(|piece| {
            page.extend_from_slice(&piece);
            piece.len()
        }))
    }

    fn try_send(&self, chain: &mut Chain) -> io::Result<usize> {
        let mut frames = self.frames.borrow_mut();
        if !self.mux.write(self.id, &mut frames)? {
            return Ok(0);
        }
        let n = chain.len() as usize;
        while let Some(bytes) = chain.pop_front().and_then(mem::Buf::into_bytes) {
            frame_of(bytes, &mut frames);
        }
        self.mux.write(self.id, &mut frames)?;
        Ok(n)
    }

    fn has_unsent(&self) -> bool {
        !self.frames.borrow().is_empty()
    }

    fn readable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> {
        let ready = poll_fn(|cx| self.mux.poll_input(self.id, cx).map(drop));
        until(ready, deadline)
    }

    fn writable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> {
        let ready = poll_fn(|cx| {
            let mut frames = self.frames.borrow_mut();
            match self.mux.poll_write(self.id, &mut frames, cx) {
                Poll::Ready(Ok(()) | Err(_)) => Poll::Ready(()),
                Poll::Pending => Poll::Pending,
            }
        });
        until(ready, deadline)
    }
}
