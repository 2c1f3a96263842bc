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
//! | [`receive`] | frames that came: requests, bodies, windows, and what may not come |
//! | [`repeated`] | requests that are the same as one before |
//! | [`run`] | requests polled within the connection's task |
//! | [`mux`] | the state that the connection and its streams share |
//! | [`entry`] | a stream of these |
//! | [`schedule`] | whose bytes go next |
//! | [`slice`] | how long a connection goes on before others do |
//! | [`priority`] | what clients and responses say about that |
//! | [`data`] | DATA frames |
//! | [`head`] | response heads and trailers |
//! | [`last_head`] | response heads that are the same as the one before |
//! | [`output`] | response bodies |
//! | [`body`] | request bodies |
//! | [`unread`] | clients that ask and do not read |
//! | [`tunnel`] | streams that became something else: CONNECT, WebSocket |

mod body;
mod connection;
mod data;
mod entry;
mod head;
mod last_head;
mod mux;
mod output;
mod priority;
#[cfg(test)]
mod priority_tests;
mod receive;
mod repeated;
mod reset_ids;
mod run;
mod schedule;
mod slice;
mod tunnel;
mod unread;

use std::rc::Rc;

use mem::Chain;

pub(crate) use body::{drop_buffered, expected, next_piece};
pub(crate) use connection::run;
pub(crate) use head::{Block, interim, start};
pub(crate) use output::{finish, finish_now, flush, put, put_now};
pub(crate) use receive::websocket_key;
pub(crate) use run::{Inbox, Runner};
pub(crate) use slice::Slice;
pub(crate) use tunnel::Tunnel;

use crate::request::Request;
use mux::{Key, Mux};

/// The head of a response on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum HeadState {
    /// Not begun.
    #[default]
    Unknown,
    /// Begun; it is encoded when something follows it, so that it can be taken back until then.
    Begun,
    /// It is in the output, or further.
    Sent,
}

/// A stream of a connection, for the request that answers it. It is recycled with the request's
/// box.
#[derive(Default)]
pub(crate) struct Stream {
    /// Its connection, while it is in use.
    mux: Option<Rc<Mux>>,
    key: Key,
    /// The text that the head's spans point into.
    text: Vec<u8>,
    head: HeadState,
    /// No body came behind the head.
    is_bare: bool,
    /// All of the response is in the connection's output.
    is_whole: bool,
    /// A body follows the head.
    has_body: bool,
    /// The response is the beginning of another protocol.
    is_upgraded: bool,
    /// Bytes of the body that the connection has not got yet.
    output: Chain,
    /// `100 Continue` was sent or refused already.
    expect_tested: bool,
    /// Bytes of another protocol follow the head, not a body.
    is_tunnel: bool,
    /// The body is being read.
    reads_body: bool,
    /// The client did not take or send bytes in time.
    timed_out: bool,
    /// Bytes of the head on the wire.
    head_len: usize,
}

impl Stream {
    /// Begins its use for a stream of a connection. The text of the head, which has `head_len`
    /// bytes on the wire, is there.
    fn begin(&mut self, mux: Rc<Mux>, key: Key, head_len: usize) {
        self.mux = Some(mux);
        self.key = key;
        self.head_len = head_len;
    }

    /// Ends its use.
    pub(crate) fn release(&mut self) {
        // One by one: putting a new value in the place of the old one would move the buffers.
        self.mux = None;
        match self.text.capacity() <= TEXT_KEPT {
            true => self.text.clear(),
            false => self.text = Vec::new(),
        }
        self.head = HeadState::Unknown;
        self.is_bare = false;
        self.is_whole = false;
        self.has_body = false;
        self.is_upgraded = false;
        self.output.clear();
        self.expect_tested = false;
        self.is_tunnel = false;
        self.reads_body = false;
        self.timed_out = false;
        self.head_len = 0;
    }

    #[inline]
    fn mux(&self) -> &Rc<Mux> {
        self.mux.as_ref().expect("a stream in use has its connection")
    }

    pub(crate) fn head_text(&self) -> &[u8] {
        &self.text
    }

    pub(crate) fn head_len(&self) -> usize {
        self.head_len
    }

    pub(crate) fn queued(&self) -> &Chain {
        &self.output
    }

    pub(crate) fn output(&mut self) -> &mut Chain {
        &mut self.output
    }

    /// Whether the client said with the head that nothing follows it.
    pub(crate) fn ended_with_head(&self) -> bool {
        self.is_bare
    }

    /// Whether all of the request's body came and was taken.
    pub(crate) fn body_is_finished(&self) -> bool {
        if self.is_bare || self.is_tunnel {
            return true;
        }
        let finished = self.mux().of(self.key, |state, i| {
            let entry = &state.streams[i];
            entry.received.is_empty() && entry.has_body_ended()
        });
        finished.unwrap_or(true)
    }

    /// Whether nothing of the response is on its way, so that another may take its place.
    pub(crate) fn can_retract(&self) -> bool {
        self.head != HeadState::Sent
    }

    pub(crate) fn start_anew(&mut self) {
        self.head = HeadState::Unknown;
        self.output.clear();
    }

    pub(crate) fn forbid_continue(&mut self) {
        self.expect_tested = true;
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

/// The largest vector for the text of a head that is kept for another one.
const TEXT_KEPT: usize = 1 << 10;

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
