//! A server while it is asked: chosen, bound to the client where that is wanted, and given back.

use std::rc::Rc;

use base::time::now_ms;
use bytes::Bytes;

use super::balance::{Outcome, Times, Way};
use super::peer::Peer;
use crate::request::Request;

/// Binds clients to servers (`sticky`).
pub trait Affinity {
    /// Looks at a request that is to be passed on.
    fn begin(&self, r: &mut Request) -> Box<dyn Session>;
}

/// One request of a client that may be bound to a server.
pub trait Session {
    /// The sid of the server that the client is bound to.
    fn bound(&mut self) -> Option<Bytes>;
    /// This server was chosen.
    fn chosen(&mut self, r: &mut Request, peer: &Peer);
    /// Its response's head was accepted.
    fn answered(&mut self, r: &mut Request, peer: &Peer);
    /// The exchange with it ended.
    fn done(&mut self, peer: &Peer, outcome: Outcome);
}

/// Given back at the latest when it is dropped.
pub struct Lease {
    picker: Way,
    session: Option<Box<dyn Session>>,
    peer: Option<Rc<Peer>>,
    start_ms: u64,
    header_ms: Option<u64>,
}

impl Lease {
    pub(super) fn new(picker: Way, session: Option<Box<dyn Session>>) -> Lease {
        Lease { picker, session, peer: None, start_ms: 0, header_ms: None }
    }

    /// Chooses anew, as if nothing had been tried.
    pub(super) fn begin_again(&mut self, picker: Way) {
        self.picker = picker;
    }

    /// See [`Picker::is_single`].
    pub(super) fn is_single(&self) -> bool {
        self.picker.is_single()
    }

    /// Chooses a server.
    pub(super) fn take_next(&mut self, r: &mut Request) -> Option<Rc<Peer>> {
        let bound = self.session.as_mut().and_then(|s| s.bound());
        self.peer = self.picker.next(bound.as_deref());
        self.start_ms = now_ms();
        self.header_ms = None;
        if let (Some(session), Some(peer)) = (&mut self.session, &self.peer) {
            session.chosen(r, peer);
        }
        self.peer.clone()
    }

    /// The response is to be passed on.
    pub(super) fn answered(&mut self, r: &mut Request) {
        let Some(peer) = &self.peer else { return };
        let ms = now_ms().saturating_sub(self.start_ms);
        self.header_ms = Some(ms);
        self.picker.header(peer, ms);
        if let Some(session) = &mut self.session {
            session.answered(r, peer);
        }
    }

    /// The exchange is over. True: the server was taken out for a while.
    pub(super) fn done(&mut self, outcome: Outcome) -> bool {
        let Some(peer) = self.peer.take() else { return false };
        if let Some(session) = &mut self.session {
            session.done(&peer, outcome);
        }
        let response_ms = now_ms().saturating_sub(self.start_ms);
        self.picker.done(&peer, outcome, Times { header_ms: self.header_ms, response_ms })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.done(Outcome::Ok);
    }
}
