//! HTTP/2 to clients: many requests over one connection.
//!
//! ```text
//!  received bytes ─▶ frames ─▶ header blocks ─▶ a request each, polled at once: most finish then;
//!                       │                       others become tasks of their own
//!                       ▼                             │ header section, body
//!                    windows ◀───── mux ◀─────────────┘
//!                                    │ schedule
//!                                    ▼
//!                        frames in the output, one send for all of a read
//! ```
//!
//! | file | concern |
//! | --- | --- |
//! | [`connection`], [`leaving`] | the connection's task; its end, as announced to the client |
//! | [`gather`] | connections that move to another process with their tunnels |
//! | [`receive`] | received frames; what moves of a connection to another process |
//! | [`answer`], [`tunnel`] | a request on its stream; CONNECT and WebSocket |
//! | [`mux`], [`entry`] | the state that the connection and its streams share; a stream in it |
//! | [`schedule`], [`priority`] | which stream sends next; the priorities that both sides ask for |
//! | [`head`], [`last_head`] | response header sections; those that equal the previous one |
//! | [`data`], [`output`], [`body`] | DATA frames; response bodies; request bodies |
//!
//! [`crate::channel::streams`] has the code that HTTP/3 shares.
//!
//! # A turn of a connection
//!
//! One task receives and sends for the whole connection. In each turn:
//!
//! 1. It receives the available bytes. `http_wire::h2::read` finds the frames; a header block
//!    becomes the same `Head` that HTTP/1 fills (`http_wire::fields::request`), with the text that
//!    its spans refer to.
//! 2. It polls each request within its own task ([`engine::turns::run`]). What the
//!    requests of one read learn about a file holds for all of them (`FileCaches::batch`).
//! 3. Streams send ([`schedule`]) as far as the windows and 96 KB of output allow, in the order
//!    that client and response asked for ([`priority`]; `http_wire::h2::tree` for RFC 7540). A
//!    range of a file is read only now, directly to its place in the output ([`data`]): one read
//!    for the frames of a turn, with gaps for their headers. If the range is not in memory, the
//!    request fetches a piece of it while the other streams continue.
//! 4. All frames leave in one send.
//!
//! A connection without streams is parked and holds only its windows and its compression tables. If
//! it was parked for less than 100 ms before, it keeps what its next requests need for 100 ms,
//! because building that anew takes as long as answering some requests.
//!
//! # Shared state
//!
//! The connection's task and its streams share [`mux::Mux`]; nothing waits while its state is
//! borrowed. A stream is named by its slot and by its number on the wire, which is never used
//! again, so a name that outlives its stream finds nothing.
//!
//! A response's header section is encoded only when bytes follow it, because another response may
//! replace it until then. Field compression has state, so header sections and trailers are encoded
//! in the order in which they are sent.
//!
//! An API client sends the same header block with each call. A block that equals an earlier one
//! byte for byte, and that changes no table, is not decoded again: its `Head` is copied
//! ([`http_wire::h2::repeated`]). A response whose header section equals the previous one gets the
//! same block ([`last_head`]). Both only copy what would be computed again; no phase is skipped.
//!
//! `engine::flooders` lists the defences against clients that cost more than they bring.

mod answer;
mod body;
mod connection;
mod data;
mod entry;
mod gather;
mod head;
mod last_head;
mod leaving;
mod mux;
mod output;
mod priority;
#[cfg(test)]
mod priority_tests;
mod receive;
mod schedule;
mod tunnel;

use std::rc::Rc;

pub(crate) use body::{expected, next_piece};
pub(crate) use connection::{resume, run};
pub(crate) use head::{interim, start};
pub(crate) use output::{finish, finish_now, flush, put_now};
pub(crate) use receive::moving::Resting;
pub(crate) use tunnel::Tunnel;

use crate::channel::streams::Multiplexed;
use crate::channel::streams::exchange::Exchange;
use crate::request::Request;
use mux::{Key, Mux};

/// A stream of a connection, for the request that answers it. It is recycled with the request's
/// box.
#[derive(Default)]
pub(crate) struct Stream {
    /// Its connection, while it is in use.
    mux: Option<Rc<Mux>>,
    key: Key,
    pub exchange: Exchange,
    /// The body is being read.
    reads_body: bool,
}

impl Stream {
    /// Begins its use for a stream of a connection.
    fn begin(&mut self, mux: Rc<Mux>, key: Key) {
        self.mux = Some(mux);
        self.key = key;
    }

    /// Ends its use.
    pub(crate) fn release(&mut self) {
        self.mux = None;
        self.exchange.release();
        self.reads_body = false;
    }

    #[inline]
    fn mux(&self) -> &Rc<Mux> {
        self.mux.as_ref().expect("a stream in use has its connection")
    }

    /// Whether all of the request's body came and was taken.
    pub(crate) fn body_is_finished(&self) -> bool {
        if self.exchange.is_bare || self.exchange.is_tunnel {
            return true;
        }
        let finished = self.mux().of(self.key, |state, i| {
            let entry = &state.streams[i];
            entry.received.is_empty() && entry.has_body_ended()
        });
        finished.unwrap_or(true)
    }

    /// The name of the protocol, for `$http2`.
    pub(crate) fn protocol(&self) -> &'static [u8] {
        if self.mux().c.tls.get().is_some() { b"h2" } else { b"h2c" }
    }

    /// The stream as a way for the bytes of another protocol.
    pub(crate) fn tunnel(&self) -> Tunnel {
        Tunnel::new(self.mux().clone(), self.key)
    }

    /// Whether a line tells that a file holds what the client does not take, or has sent.
    pub(crate) fn tells_of_temp_file(&self) -> bool {
        self.mux().with(|state| state.held.address().is_none_or(|a| a.tells_of_temp_file()))
    }

    /// Something to wait for the client's end with, beside other work.
    pub(crate) fn watch(&self) -> Watch {
        Watch(self.mux().clone(), self.key)
    }
}

impl Multiplexed for Stream {
    #[inline]
    fn of(r: &mut Request) -> &mut Stream {
        stream(r)
    }

    #[inline]
    fn exchange(&mut self) -> &mut Exchange {
        &mut self.exchange
    }

    fn timed_out(&self) -> bool {
        self.mux().timed_out()
    }

    fn tells_of_end(&self) -> bool {
        self.mux().tells_of_end()
    }
}

/// The end of a stream, as something to wait for.
pub(crate) struct Watch(Rc<Mux>, Key);

impl Watch {
    /// Waits until the stream was reset, or its connection ended.
    pub(crate) async fn gone(&self) {
        self.0.gone(self.1).await;
    }
}

/// The stream of a request over HTTP/2.
#[inline]
fn stream(r: &mut Request) -> &mut Stream {
    r.client.channel.http2().expect("this module is called for requests over HTTP/2 alone")
}
