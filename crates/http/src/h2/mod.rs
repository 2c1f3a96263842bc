//! HTTP/2 to clients: many requests over one connection.
//!
//! ```text
//!  received bytes ─▶ frames ─▶ heads ─▶ a request each, polled at once: most are done with that;
//!                       │               others become tasks of their own
//!                       ▼                     │ head, body
//!                    windows ◀───── mux ◀─────┘
//!                                    │ schedule
//!                                    ▼
//!                        frames in the output, one send for all of a read
//! ```
//!
//! | file | concern |
//! | --- | --- |
//! | [`connection`] | the connection's task: parked, serving, leaving, closed |
//! | [`leaving`] | its end, as the client is told |
//! | [`receive`] | frames that came: requests, bodies, windows, and what may not come |
//! | [`repeated`] | requests that are the same as one before |
//! | [`answer`] | a request from its beginning to the end of its stream |
//! | [`mux`] | the state that the connection and its streams share |
//! | [`entry`] | a stream of these |
//! | [`schedule`] | whose bytes go next |
//! | [`priority`] | what clients and responses say about that |
//! | [`data`] | DATA frames |
//! | [`head`] | response heads and trailers |
//! | [`last_head`] | response heads that are the same as the one before |
//! | [`output`] | response bodies |
//! | [`body`] | request bodies |
//! | [`unread`] | clients that ask and do not read |
//! | [`tunnel`] | streams that became something else: CONNECT, WebSocket |
//!
//! [`crate::channel::streams`] has what is the same over HTTP/3.

mod answer;
mod body;
mod connection;
mod data;
mod entry;
mod head;
mod last_head;
mod leaving;
mod mux;
mod output;
mod priority;
#[cfg(test)]
mod priority_tests;
mod receive;
mod repeated;
mod schedule;
mod tunnel;
mod unread;

use std::rc::Rc;

pub(crate) use body::{expected, next_piece};
pub(crate) use connection::run;
pub(crate) use head::{interim, start};
pub(crate) use output::{finish, finish_now, flush, put_now};
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
    r.channel.http2().expect("this module is called for requests over HTTP/2 alone")
}
