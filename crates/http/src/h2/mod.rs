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
//! | [`run`] | requests polled within the connection's task |
//! | [`mux`] | the state that the connection and its streams share |
//! | [`schedule`] | whose bytes go next |
//! | [`priority`] | what clients and responses say about that |
//! | [`data`] | DATA frames |
//! | [`head`] | response heads and trailers |
//! | [`output`] | response bodies |
//! | [`body`] | request bodies |
//! | [`address`] | limits of a client's address |
//! | [`tunnel`] | streams that became something else: CONNECT, WebSocket |

mod address;
mod body;
mod connection;
mod data;
mod head;
mod mux;
mod output;
mod priority;
#[cfg(test)]
mod priority_tests;
mod receive;
mod run;
mod schedule;
mod tunnel;

use std::cell::RefCell;
use std::rc::Rc;

use mem::Chain;

pub(crate) use body::{drop_buffered, expected, next_piece};
pub(crate) use connection::run;
pub(crate) use head::{interim, start};
pub(crate) use output::{finish, flush, put, put_now};
pub(crate) use tunnel::Tunnel;

use crate::request::Request;
use mux::{Key, Mux};

/// The head of a response on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HeadState {
    /// Not begun.
    Unknown,
    /// Begun; it is encoded when something follows it, so that it can be taken back until then.
    Begun,
    /// It is in the output, or further.
    Sent,
}

/// A stream of a connection, for the request that answers it.
pub(crate) struct Stream {
    mux: Rc<Mux>,
    key: Key,
    /// The text that the head's spans point into.
    text: Vec<u8>,
    head: HeadState,
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
    /// The client ended the stream with the head.
    ended_with_head: bool,
    /// The body is being read.
    reads_body: bool,
    /// The client did not take or send bytes in time.
    timed_out: bool,
    /// Bytes of the head on the wire.
    head_len: usize,
}

impl Stream {
    fn new(mux: Rc<Mux>, key: Key, text: Vec<u8>, head_len: usize) -> Stream {
        Stream {
            mux,
            key,
            text,
            head: HeadState::Unknown,
            has_body: false,
            output: Chain::new(),
            expect_tested: false,
            is_upgraded: false,
            is_tunnel: false,
            ended_with_head: false,
            reads_body: false,
            timed_out: false,
            head_len,
        }
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
        self.ended_with_head
    }

    /// Whether all of the request's body came and was taken.
    pub(crate) fn body_is_finished(&self) -> bool {
        if self.is_tunnel {
            return true;
        }
        let finished = self.mux.of(self.key, |state, i| {
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
        if self.mux.c.tls.get().is_some() { b"h2" } else { b"h2c" }
    }

    /// The stream as a way for the bytes of another protocol.
    pub(crate) fn tunnel(&self) -> Tunnel {
        Tunnel::new(self.mux.clone(), self.key)
    }

    /// Something to wait for the client's end with, beside other work.
    pub(crate) fn watch(&self) -> Watch {
        Watch(self.mux.clone(), self.key)
    }
}

thread_local! {
    /// Vectors for the text of heads.
    static TEXTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// The largest vector that is kept for another head.
const TEXT_KEPT: usize = 1 << 10;

/// Vectors that are kept.
const TEXTS_MAX: usize = 32;

/// An empty vector for the text of a head.
fn take_text() -> Vec<u8> {
    TEXTS.with(|texts| texts.borrow_mut().pop()).unwrap_or_default()
}

fn give_text_back(mut text: Vec<u8>) {
    TEXTS.with(|texts| {
        let mut texts = texts.borrow_mut();
        if text.capacity() <= TEXT_KEPT && texts.len() < TEXTS_MAX {
            text.clear();
            texts.push(text);
        }
    });
}

impl Drop for Stream {
    fn drop(&mut self) {
        give_text_back(std::mem::take(&mut self.text));
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
