//! HTTP/3 to clients: many requests over one connection of QUIC.
//!
//! ```text
//!  stream ─▶ frames ─▶ field sections ─▶ a request each, polled at once: most finish then;
//!    ▲          │                        others become tasks of their own
//!    │          ▼                              │ header section, body
//!    │        bodies ◀───── mux ◀──────────────┘
//!    └──────────────────────┘
//! ```
//!
//! QUIC separates the streams and limits the bytes in flight on each, so less is left to do here
//! than over HTTP/2. A request's bytes go to its stream at once, as far as the stream takes them,
//! and leave with those of all others at the end of the endpoint's turn.
//!
//! | file | concern |
//! | --- | --- |
//! | [`session`], [`leaving`] | the connection's turns; its end, as announced to the client |
//! | [`control`] | streams of the connection itself: settings, tables, GOAWAY |
//! | [`receive`], [`body`] | requests: header sections, trailers; bodies |
//! | [`mux`] | the state that the connection and its streams share |
//! | [`head`], [`output`] | response header sections and trailers; response bodies |
//! | [`tunnel`] | CONNECT and WebSocket |
//!
//! [`crate::channel::streams`] has the code that HTTP/2 shares; the crate `quic` has connections
//! and datagrams; [`crate::quic_listen`] chooses the server of a new connection.
//!
//! **QPACK.** Only the client's dynamic table is used. Our encoder inserts no entries, so a
//! response's header section never waits for the client to acknowledge one.

mod body;
mod control;
mod head;
mod mux;
mod output;
mod receive;
mod session;
mod tunnel;

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use quic::StreamId;

pub(crate) use body::{expected, next_piece};
pub(crate) use head::interim;
pub(crate) use output::{finish, finish_now, flush, put_now};
pub(crate) use session::Session;
pub(crate) use tunnel::Tunnel;

use crate::channel::streams::Multiplexed;
use crate::channel::streams::exchange::Exchange;
use crate::request::Request;
use mux::Mux;

/// A stream of a connection, for the request that answers it. It is recycled with the request's
/// box.
#[derive(Default)]
pub(crate) struct Stream {
    /// Its connection and its number, while it is in use.
    at: Option<(Rc<Mux>, StreamId)>,
    pub exchange: Exchange,
    /// Frames that QUIC has not taken.
    frames: VecDeque<Bytes>,
}

impl Stream {
    /// Begins its use for a stream of a connection.
    fn begin(&mut self, mux: Rc<Mux>, id: StreamId) {
        self.at = Some((mux, id));
    }

    /// Ends its use.
    pub(crate) fn release(&mut self) {
        self.at = None;
        self.exchange.release();
        self.frames = VecDeque::new();
    }

    #[inline]
    fn at(&self) -> (&Rc<Mux>, StreamId) {
        let at = self.at.as_ref().expect("a stream in use has its connection");
        (&at.0, at.1)
    }

    /// Whether all of the request's body came and was taken.
    pub(crate) fn body_is_finished(&self) -> bool {
        if self.exchange.is_bare || self.exchange.is_tunnel {
            return true;
        }
        let (mux, id) = self.at();
        mux.of(id, |entry| entry.received.is_empty() && entry.has_body_ended()).unwrap_or(true)
    }

    /// The name of the protocol, for `$http3`.
    pub(crate) fn protocol(&self) -> &'static [u8] {
        b"h3"
    }

    /// The stream as a way for the bytes of another protocol.
    pub(crate) fn tunnel(&self) -> Tunnel {
        let (mux, id) = self.at();
        Tunnel::new(mux.clone(), id)
    }

    /// Whether a line tells that a file holds what the client does not take, or has sent.
    pub(crate) fn tells_of_temp_file(&self) -> bool {
        self.at().0.tells_of_temp_file()
    }

    /// Something to wait for the client's end with, beside other work.
    pub(crate) fn watch(&self) -> Watch {
        let (mux, id) = self.at();
        Watch(mux.clone(), id)
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
        self.tells_of_end()
    }

    fn tells_of_end(&self) -> bool {
        self.at().0.tells_of_end()
    }
}

/// The end of a stream, as something to wait for.
pub(crate) struct Watch(Rc<Mux>, StreamId);

impl Watch {
    /// Waits until the stream was reset, or its connection ended.
    pub(crate) async fn gone(&self) {
        self.0.gone(self.1).await;
    }
}

/// The stream of a request over HTTP/3.
#[inline]
fn stream(r: &mut Request) -> &mut Stream {
    r.client.channel.http3().expect("this module is called for requests over HTTP/3 alone")
}
