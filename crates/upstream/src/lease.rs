//! The lease of a server: chosen, bound to the client by affinity, and given back.

use std::rc::Rc;

use base::time::{now_ms, unix_ms};
use bytes::Bytes;

use engine::Client;
use engine::metrics::word;

use crate::balance::{AnyPicker, ExchangeTimes, ServerOutcome};
use crate::peer::Peer;

/// Binds clients to servers (`sticky`).
pub trait Affinity {
    /// Begins a session that is to be passed on.
    fn begin(&self, client: &mut dyn Client) -> Box<dyn Binding>;
}

/// The binding of one session's client to a server.
pub trait Binding {
    /// The sid of the server that the client is bound to.
    fn bound(&mut self) -> Option<Bytes>;
    /// A server was chosen.
    fn chosen(&mut self, client: &mut dyn Client, peer: &Peer);
    /// The head of its response was accepted. Gives the token that the client sends back with later
    /// sessions, if there is one; the engine passes it on (HTTP: as `Set-Cookie`).
    fn answered(&mut self, client: &mut dyn Client, peer: &Peer) -> Option<Bytes>;
    /// The exchange with the server ended.
    fn done(&mut self, peer: &Peer, outcome: ServerOutcome);
}

/// A server that is asked on behalf of a session; given back at the latest when it is dropped.
pub struct Lease {
    picker: AnyPicker,
    /// In a box of its own, as few sessions have one and all of them a lease.
    binding: Option<Box<Box<dyn Binding>>>,
    peer: Option<Rc<Peer>>,
    start_ms: u64,
    header: Header,
    is_answering: bool,
}

/// Milliseconds until the head came, in four bytes: it never takes 49 days.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Header(u32);

impl Header {
    const NONE: Header = Header(u32::MAX);

    fn after(ms: u64) -> Header {
        Header(u32::try_from(ms).unwrap_or(u32::MAX).min(u32::MAX - 1))
    }

    fn ms(self) -> Option<u64> {
        (self != Header::NONE).then_some(self.0.into())
    }
}

impl Lease {
    /// A lease of no server yet.
    pub fn new(picker: AnyPicker, binding: Option<Box<dyn Binding>>) -> Lease {
        let (start_ms, header, is_answering) = (0, Header::NONE, false);
        let binding = binding.map(Box::new);
        Lease { picker, binding, peer: None, start_ms, header, is_answering }
    }

    /// Chooses anew, as if nothing had been tried.
    pub fn begin_again(&mut self, picker: AnyPicker) {
        self.picker = picker;
    }

    /// See [`Picker::is_single`].
    pub fn is_single(&self) -> bool {
        self.picker.is_single()
    }

    /// The name of the server that is asked now.
    pub fn server_name(&self) -> Option<Bytes> {
        self.peer.as_ref().map(|peer| peer.name.clone())
    }

    /// Chooses a server.
    pub fn take_next(&mut self, client: &mut dyn Client) -> Option<Rc<Peer>> {
        let bound = self.binding.as_mut().and_then(|s| s.bound());
        self.peer = self.picker.next(bound.as_deref());
        self.start_ms = now_ms();
        self.header = Header::NONE;
        if let Some(counters) = self.peer.as_ref().and_then(|peer| peer.counters()) {
            counters.add(word::PROCESSING, 1);
            counters.set(word::SELECTED_MS, unix_ms());
        }
        if let (Some(binding), Some(peer)) = (&mut self.binding, &self.peer) {
            binding.chosen(client, peer);
        }
        self.peer.clone()
    }

    /// The answer has begun, or nothing in particular is waited for: what lasts from here on is not
    /// the server's delay.
    pub fn answering(&mut self) {
        if let Some(counters) = self.peer.as_ref().and_then(|peer| peer.counters())
            && !self.is_answering
        {
            self.is_answering = true;
            counters.add(word::ANSWERING, 1);
        }
    }

    /// The connection stands, and that is all that a server can be judged by: it is live again.
    pub fn connected(&mut self) {
        self.answering();
        let Some(peer) = &self.peer else { return };
        peer.set_back();
        if self.picker.counts_connecting() {
            let ms = now_ms().saturating_sub(self.start_ms);
            self.header = Header::after(ms);
            self.picker.header(peer, ms);
        }
    }

    /// The first bytes came, `ms` milliseconds after the server was chosen.
    pub fn first_byte(&mut self, ms: u64) {
        let Some(peer) = &self.peer else { return };
        if !self.picker.counts_connecting() {
            self.header = Header::after(ms);
            self.picker.header(peer, ms);
        }
    }

    /// The response is to be passed on: see [`Binding::answered`].
    pub fn answered(&mut self, client: &mut dyn Client) -> Option<Bytes> {
        self.answering();
        let peer = self.peer.as_ref()?;
        let ms = now_ms().saturating_sub(self.start_ms);
        self.header = Header::after(ms);
        self.picker.header(peer, ms);
        self.binding.as_mut()?.answered(client, peer)
    }

    /// The exchange is over. True: the server was taken out for a while.
    pub fn done(&mut self, outcome: ServerOutcome) -> bool {
        let Some(peer) = self.peer.take() else { return false };
        if let Some(binding) = &mut self.binding {
            binding.done(&peer, outcome);
        }
        let response_ms = now_ms().saturating_sub(self.start_ms);
        let times = ExchangeTimes { header_ms: self.header.ms(), response_ms };
        let is_out = self.picker.done(&peer, outcome, times);
        if let Some(counters) = peer.counters() {
            counters.sub(word::PROCESSING, 1);
            if std::mem::take(&mut self.is_answering) {
                counters.sub(word::ANSWERING, 1);
            }
            counters.add(word::DONE, 1);
            counters.add(word::FAILS, (outcome == ServerOutcome::Failed).into());
            counters.add(word::UNAVAILABLE, is_out.into());
        }
        is_out
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.done(ServerOutcome::Ok);
    }
}

/// The place of an exchange that another process has begun among those that its server has: its
/// lease ended there, and was counted there.
pub struct Occupied(Rc<Peer>);

impl Occupied {
    /// Occupies a place, whatever the server's limit.
    pub fn new(peer: Rc<Peer>) -> Occupied {
        peer.occupy();
        if let Some(counters) = peer.counters() {
            counters.add(word::PROCESSING, 1);
            counters.add(word::ANSWERING, 1);
        }
        Occupied(peer)
    }

    /// The server.
    pub fn peer(&self) -> &Rc<Peer> {
        &self.0
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.leave();
        if let Some(counters) = self.0.counters() {
            counters.sub(word::PROCESSING, 1);
            counters.sub(word::ANSWERING, 1);
        }
    }
}
