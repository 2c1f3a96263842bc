//! A stream that carries another protocol: CONNECT, and WebSocket (RFC 8441).

use std::future::{Future, poll_fn};
use std::io;
use std::rc::Rc;
use std::task::Poll;

use event::Deadline;
use mem::{Chain, Page};

use super::mux::{Key, Mux, QUEUE_MAX};
use crate::channel::streams::outgoing::Room;
use crate::channel::streams::until;
use net::moves::Member;
use net::relay::End;

/// The client's end of a tunnel.
pub struct Tunnel {
    mux: Rc<Mux>,
    key: Key,
}

impl Tunnel {
    pub(super) fn new(mux: Rc<Mux>, key: Key) -> Tunnel {
        Tunnel { mux, key }
    }

    /// The tunnel moves with its connection from now on, until this is dropped.
    pub fn join(&self) -> Member {
        self.mux.party.join(self.key.id)
    }
}

impl End for Tunnel {
    fn try_recv_into(&self, page: &mut Page) -> io::Result<Option<usize>> {
        let taken = self.mux.of(self.key, |state, i| match state.take_piece(i) {
            Some(piece) => Some(Some(piece)),
            None => state.streams[i].has_body_ended().then_some(None),
        });
        match taken? {
            None => Ok(None),
            Some(None) => Ok(Some(0)),
            Some(Some(piece)) => {
                self.mux.tell();
                page.extend_from_slice(&piece);
                Ok(Some(piece.len()))
            }
        }
    }

    fn try_send(&self, chain: &mut Chain) -> io::Result<usize> {
        let sent = self.mux.of(self.key, |state, i| {
            let entry = &mut state.streams[i];
            if entry.queued >= QUEUE_MAX || chain.is_empty() {
                return 0;
            }
            let n = chain.len();
            entry.queued += n;
            entry.queue.append(chain);
            state.schedule.add(i, entry);
            n as usize
        });
        self.mux.tell();
        Ok(sent?)
    }

    fn has_unsent(&self) -> bool {
        false
    }

    fn readable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> {
        let ready = poll_fn(|cx| match self.mux.poll_input(self.key, cx) {
            Poll::Ready(Ok(()) | Err(_)) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        });
        until(ready, deadline)
    }

    fn writable(&self, deadline: Deadline) -> impl Future<Output = io::Result<()>> {
        let ready = poll_fn(|cx| self.mux.poll_room(self.key, Room::Some, cx).map(drop));
        until(ready, deadline)
    }
}
