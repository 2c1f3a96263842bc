//! HTTP/3 to clients: many requests over one connection of QUIC.
//!
//! ```text
//!  stream ─▶ frames ─▶ heads ─▶ a request each, polled at once: most are done with that;
//!    ▲          │               others become tasks of their own
//!    │          ▼                     │ head, body
//!    │        bodies ◀───── mux ◀─────┘
//!    └──────────────────────┘
//! ```
//!
//! QUIC keeps streams apart and limits what is under way on each; what is left to do here is less
//! than over HTTP/2. A request's bytes go to its stream at once, as far as that takes them, and
//! leave with those of all others at the end of the endpoint's turn.
//!
//! | file | concern |
//! | --- | --- |
//! | [`session`] | the connection's turns: what came, and the requests that begin |
//! | [`control`] | streams of the connection itself: settings, tables, GOAWAY |
//! | [`receive`] | requests: heads, bodies, trailers |
//! | [`mux`] | the state that the connection and its streams share |
//! | [`head`] | response heads and trailers |
//! | [`output`] | response bodies |
//! | [`body`] | request bodies |
//! | [`tunnel`] | streams that became something else: CONNECT, WebSocket |

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
use mem::Chain;
use quic::StreamId;

pub(crate) use body::{drop_buffered, expected, next_piece};
pub(crate) use head::{interim, start};
pub(crate) use output::{finish, finish_now, flush, put, put_now};
pub(crate) use session::Session;
pub(crate) use tunnel::Tunnel;

use crate::request::Request;
use mux::Mux;

/// The head of a response on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum HeadState {
    /// Not begun.
    #[default]
    Unknown,
    /// Begun; it is encoded when something follows it, so that it can be taken back until then.
    Begun,
    /// QUIC has it, or gets it next.
    Sent,
}

/// A stream of a connection, for the request that answers it. It is recycled with the request's
/// box.
#[derive(Default)]
pub(crate) struct Stream {
    /// Its connection and its number, while it is in use.
    at: Option<(Rc<Mux>, StreamId)>,
    /// The text that the head's spans point into.
    text: Vec<u8>,
    head: HeadState,
    /// No body came behind the head.
    is_bare: bool,
    /// All of the response was given to QUIC.
    is_whole: bool,
    /// A body follows the head.
    has_body: bool,
    /// The response is the beginning of another protocol.
    is_upgraded: bool,
    /// Bytes of the body that are not framed yet.
    output: Chain,
    /// Frames that QUIC has not taken.
    frames: VecDeque<Bytes>,
    /// `100 Continue` was sent or refused already.
    expect_tested: bool,
    /// Bytes of another protocol follow the head, not a body.
    is_tunnel: bool,
    /// The client did not take or send bytes in time.
    timed_out: bool,
    /// Bytes of the head on the wire.
    head_len: usize,
}

/// The largest vector for the text of a head that is kept for another one.
const TEXT_KEPT: usize = 1 << 10;

impl Stream {
    /// Begins its use for a stream of a connection. The text of the head, which has `head_len`
    /// bytes on the wire, is there.
    fn begin(&mut self, mux: Rc<Mux>, id: StreamId, head_len: usize) {
        self.at = Some((mux, id));
        self.head_len = head_len;
    }

    /// Ends its use.
    pub(crate) fn release(&mut self) {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        text.shrink_to(TEXT_KEPT);
        *self = Stream { text, ..Stream::default() };
    }

    #[inline]
    fn at(&self) -> (&Rc<Mux>, StreamId) {
        let at = self.at.as_ref().expect("a stream in use has its connection");
        (&at.0, at.1)
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
        let (mux, id) = self.at();
        mux.of(id, |entry| entry.received.is_empty() && entry.has_body_ended()).unwrap_or(true)
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
    r.channel.http3().expect("this module is called for requests over HTTP/3 alone")
}
