//! A request's interface to its client: header section, interim responses, body out, flush, body
//! in, the client's end.
//!
//! A [`Request`] speaks to its client only through the functions here and knows no protocol. A
//! protocol is a variant of [`Channel`] with its state, and a match arm in each function, so that
//! the calls are static:
//!
//! ```text
//!  answer, send, filter ──▶ ┌─────────┐ ──▶ Http1         a request on a connection of its own
//!  request::body        ◀── │ channel │ ──▶ Http2, Http3  a stream of a connection
//!                           └─────────┘ ──▶ Subrequest    the pipe to the parent request
//! ```
//!
//! A stream of HTTP/2 or HTTP/3 has what HTTP/1 has here: the text of the header section, an output
//! queue that may hold ranges of files, a body that arrives in pieces, and an end that can be
//! waited for. Its connection reads header sections, makes a request of each with
//! [`Request::take`], and hands it to [`Answer`]. [`streams`] has the code that both protocols
//! share: how a request begins, is polled and answered, how its body is read, the response's header
//! section as fields, the rate and the waits of its body, and the limits after which a connection
//! is closed.
//!
//! [`conn`] has the facts of a connection; `files` has files in a request's output.

mod client_end;
pub mod conn;
mod files;
pub(crate) mod head;
mod linger;
pub(crate) mod pace;
pub(crate) mod parting;
pub(crate) mod streams;
mod upgraded;

use base::future::rarely;
use mem::{Chain, Page};

pub use client_end::ClientEnd;
pub use files::in_memory;
pub(crate) use files::settings as read_settings;
pub(crate) use files::{failed, first_byte, in_pieces, is_of_file, ready};
pub(crate) use linger::linger;
pub use upgraded::Upgraded;

use crate::h1;
use crate::h2;
use crate::h3;
use crate::module::Verdict;
use crate::output::Tunnel;
use crate::request::Request;
use crate::status_line::CLIENT_CLOSED;
use crate::subrequest::{self, Sub};

/// The response could not be sent completely: the connection or stream cannot be used any more.
#[derive(Debug)]
pub struct SendFailed;

/// The client's side of a request, by protocol.
pub(crate) enum Channel {
    /// A request on an HTTP/1 connection.
    Http1(h1::Stream),
    /// A request on a stream of an HTTP/2 connection.
    Http2(Box<h2::Stream>),
    /// A request on a stream of an HTTP/3 connection.
    Http3(Box<h3::Stream>),
    /// A request of the server to itself.
    Subrequest(Box<Sub>),
}

impl Default for Channel {
    fn default() -> Channel {
        Channel::Http1(h1::Stream::default())
    }
}

/// What answers the requests that a protocol has read, through their channels. It is a type
/// parameter of the protocols, so that they depend on nothing above them.
pub(crate) trait Answer: 'static {
    /// Runs a request from its phases to its log lines. An error ends its connection or stream.
    async fn answer(r: &mut Request) -> Result<(), SendFailed>;

    /// Runs a tunnel that another process has begun, to the request's log lines. An error ends its
    /// connection.
    async fn resume(r: &mut Request, tunnel: Box<dyn Tunnel>) -> Result<(), SendFailed>;

    /// Chooses the server for a header section that is refused or incomplete, as far as it can be
    /// known; `whole`: all fields arrived. An error is a status that replaces the refusal's own.
    fn prepare_refused(r: &mut Request, whole: bool) -> Result<(), u16>;

    /// Sends the error response to a header section that is refused, and logs the request.
    async fn refuse(r: &mut Request, status: u16) -> Result<(), SendFailed>;

    /// Logs a request that its client cancelled before it began.
    async fn given_up(r: &mut Request);

    /// Logs a request that gets no response.
    async fn log(r: &mut Request);
}

/// Ends a request whose response is incomplete. It is logged if it has begun.
#[cold]
pub(crate) async fn give_up<A: Answer>(r: &mut Request) {
    if r.flags.unlogged {
        if !r.flags.header_sent && r.flags.err_status == 0 {
            r.flags.err_status = CLIENT_CLOSED;
        }
        A::log(r).await;
    }
}

/// The part of a request's body that has not been read.
pub(crate) struct Expected {
    /// Its length; `None` if that is unknown.
    pub length: Option<u64>,
    /// Bytes that arrived with the header section.
    pub with_head: u64,
}

impl Channel {
    #[inline]
    pub(crate) fn http1(&mut self) -> Option<&mut h1::Stream> {
        match self {
            Channel::Http1(stream) => Some(stream),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn http2(&mut self) -> Option<&mut h2::Stream> {
        match self {
            Channel::Http2(stream) => Some(stream),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn http3(&mut self) -> Option<&mut h3::Stream> {
        match self {
            Channel::Http3(stream) => Some(stream),
            _ => None,
        }
    }

    /// A channel for a new stream of HTTP/3.
    pub(crate) fn quic_stream() -> Channel {
        Channel::Http3(Box::default())
    }

    /// A channel for a new stream of HTTP/2.
    pub(crate) fn stream() -> Channel {
        Channel::Http2(Box::default())
    }

    /// Whether it is one of the streams of a connection.
    #[inline]
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Channel::Http2(_) | Channel::Http3(_))
    }

    /// Detaches the channel from its connection; a stream's memory is kept for the next request.
    pub(crate) fn release(&mut self) {
        match self {
            Channel::Http1(stream) => stream.release(),
            Channel::Http2(stream) => stream.release(),
            Channel::Http3(stream) => stream.release(),
            Channel::Subrequest(_) => *self = Channel::default(),
        }
    }

    /// Prepares the channel for the next request; buffers that it begins with are kept.
    pub(crate) fn reset(&mut self) {
        match self {
            Channel::Http1(stream) => stream.reset(),
            // No other request follows on the stream: it is released instead.
            Channel::Http2(_) | Channel::Http3(_) => {}
            Channel::Subrequest(_) => *self = Channel::default(),
        }
    }

    /// The bytes that the spans of the request's head point into.
    #[inline]
    pub(crate) fn head_text(&self) -> &[u8] {
        match self {
            Channel::Http1(stream) => stream.head_text(),
            Channel::Http2(stream) => &stream.exchange.text,
            Channel::Http3(stream) => &stream.exchange.text,
            Channel::Subrequest(sub) => sub.head_text.filled(),
        }
    }

    /// The same without bytes that follow the header section.
    pub(crate) fn head_only(&self) -> &[u8] {
        match self {
            Channel::Http1(stream) => {
                stream.head_text().get(..stream.head_len()).unwrap_or_default()
            }
            channel => channel.head_text(),
        }
    }

    /// The length of the request's header section as it was received, in bytes.
    pub(crate) fn head_len(&self) -> usize {
        match self {
            Channel::Http1(stream) => stream.head_len(),
            Channel::Http2(stream) => stream.exchange.head_len,
            Channel::Http3(stream) => stream.exchange.head_len,
            Channel::Subrequest(sub) => sub.head_text.len(),
        }
    }

    /// Whether the next request has arrived, so that output may wait for its response.
    pub(crate) fn is_followed(&self) -> bool {
        match self {
            Channel::Http1(stream) => stream.is_followed(),
            Channel::Http2(_) => false,
            Channel::Http3(_) => false,
            Channel::Subrequest(_) => false,
        }
    }

    /// Whether all of the request's body has arrived.
    pub(crate) fn body_is_finished(&self) -> bool {
        match self {
            Channel::Http1(stream) => stream.body_is_finished(),
            Channel::Http2(stream) => stream.body_is_finished(),
            Channel::Http3(stream) => stream.body_is_finished(),
            Channel::Subrequest(_) => true,
        }
    }

    /// Whether the body, maybe an empty one, ended after the header section and not with it.
    pub(crate) fn body_ended_behind_head(&self) -> bool {
        match self {
            Channel::Http2(stream) => !stream.exchange.is_bare,
            Channel::Http3(stream) => !stream.exchange.is_bare,
            Channel::Http1(_) | Channel::Subrequest(_) => false,
        }
    }

    /// The unsent output. It may begin with responses to earlier requests.
    pub(crate) fn queued(&self) -> &Chain {
        match self {
            Channel::Http1(stream) => stream.queued(),
            Channel::Http2(stream) => &stream.exchange.output,
            Channel::Http3(stream) => &stream.exchange.output,
            Channel::Subrequest(sub) => &sub.output,
        }
    }

    pub(crate) fn output(&mut self) -> &mut Chain {
        match self {
            Channel::Http1(stream) => stream.output(),
            Channel::Http2(stream) => &mut stream.exchange.output,
            Channel::Http3(stream) => &mut stream.exchange.output,
            Channel::Subrequest(sub) => &mut sub.output,
        }
    }

    /// Removes all unsent output except the first `before` bytes.
    pub(crate) fn retract(&mut self, before: u64) {
        match self {
            Channel::Http1(stream) => stream.retract(before),
            Channel::Http2(stream) => stream.exchange.retract(before),
            Channel::Http3(stream) => stream.exchange.retract(before),
            Channel::Subrequest(_) => {}
        }
    }

    /// Prepares for a response that replaces one which was removed from the output.
    pub(crate) fn start_anew(&mut self) {
        match self {
            Channel::Http1(stream) => stream.start_anew(),
            Channel::Http2(stream) => stream.exchange.start_anew(),
            Channel::Http3(stream) => stream.exchange.start_anew(),
            Channel::Subrequest(_) => {}
        }
    }

    /// Whether the connection is kept for other requests.
    pub(crate) fn keeps_connection(&self) -> bool {
        match self {
            Channel::Http1(stream) => stream.keeps_connection(),
            Channel::Http2(_) => true,
            Channel::Http3(_) => true,
            Channel::Subrequest(_) => false,
        }
    }

    /// Makes the connection close after this response.
    pub(crate) fn close_connection(&mut self) {
        if let Channel::Http1(stream) = self {
            stream.close_connection();
        }
    }

    /// Sets whether to read on after closing: the kernel answers unread data with a reset, by which
    /// the client may lose the response.
    pub(crate) fn set_lingering(&mut self, on: bool) {
        if let Channel::Http1(stream) = self {
            stream.set_lingering(on);
        }
    }

    /// Sends no 100 to a client that waits for one before its body (`Expect: 100-continue`).
    pub(crate) fn forbid_continue(&mut self) {
        match self {
            Channel::Http1(stream) => stream.forbid_continue(),
            Channel::Http2(stream) => stream.exchange.expect_tested = true,
            Channel::Http3(stream) => stream.exchange.expect_tested = true,
            Channel::Subrequest(_) => {}
        }
    }

    /// Whether the response has the chunked coding.
    pub(crate) fn is_chunked(&self) -> bool {
        matches!(self, Channel::Http1(stream) if stream.is_chunked())
    }

    /// Whether the bytes after the request are another protocol's on this stream, not a body.
    pub(crate) fn is_tunnel(&self) -> bool {
        match self {
            Channel::Http2(stream) => stream.exchange.is_tunnel,
            Channel::Http3(stream) => stream.exchange.is_tunnel,
            _ => false,
        }
    }

    /// Whether the request arrived together with the previous one.
    pub(crate) fn is_pipelined(&self) -> bool {
        matches!(self, Channel::Http1(stream) if stream.is_pipelined())
    }
}

/// Begins the response with its header section. Returns whether a body follows.
pub(crate) fn start(r: &mut Request) -> bool {
    match r.client.channel {
        Channel::Http1(_) => h1::start(r),
        Channel::Http2(_) => h2::start(r),
        Channel::Http3(_) => streams::head::start::<h3::Stream>(r),
        Channel::Subrequest(_) => subrequest::start(r),
    }
}

/// Queues an interim response; does nothing if it has no fields.
pub fn interim<'a>(
    r: &mut Request,
    status: u16,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) {
    match r.client.channel {
        Channel::Http1(_) => h1::interim(r, status, fields),
        Channel::Http2(_) => h2::interim(r, status, fields),
        Channel::Http3(_) => h3::interim(r, status, fields),
        Channel::Subrequest(_) => {}
    }
}

/// Queues a complete body if that needs no waiting; otherwise returns it.
#[inline]
pub(crate) fn put_now(r: &mut Request, body: Chain) -> Option<Chain> {
    match r.client.channel {
        Channel::Http1(_) => h1::put_now(r, body),
        Channel::Http2(_) => h2::put_now(r, body),
        Channel::Http3(_) => h3::put_now(r, body),
        Channel::Subrequest(_) => Some(body),
    }
}

/// Queues a piece of the response's body; `last`: it is the end. Waits while too much is queued.
pub(crate) async fn put(r: &mut Request, piece: Chain, last: bool) -> Result<(), SendFailed> {
    match r.client.channel {
        Channel::Http1(_) => h1::put(r, piece, last).await,
        Channel::Http2(_) => streams::outgoing::put::<h2::Stream>(r, piece, last).await,
        Channel::Http3(_) => streams::outgoing::put::<h3::Stream>(r, piece, last).await,
        Channel::Subrequest(_) => rarely(subrequest::put(r, piece)).await,
    }
}

/// Sends all that is queued.
pub async fn flush(r: &mut Request) -> Result<(), SendFailed> {
    match r.client.channel {
        Channel::Http1(_) => h1::flush(r).await,
        Channel::Http2(_) => h2::flush(r).await,
        Channel::Http3(_) => h3::flush(r).await,
        Channel::Subrequest(_) => Ok(()),
    }
}

/// Ends the response if nothing has to be sent now: with `more`, small output stays queued; over
/// HTTP/2 and HTTP/3 the connection sends for all streams. On false, call [`finish`].
#[inline]
pub(crate) fn finish_now(r: &mut Request, more: bool) -> bool {
    match r.client.channel {
        Channel::Http1(_) => h1::stays_queued(r, more),
        Channel::Http2(_) => h2::finish_now(r),
        Channel::Http3(_) => h3::finish_now(r),
        Channel::Subrequest(_) => false,
    }
}

/// Ends the response. With `more` (the next request has arrived), small output stays queued.
pub(crate) async fn finish(r: &mut Request, more: bool) -> Result<(), SendFailed> {
    match r.client.channel {
        Channel::Http1(_) => h1::finish(r, more).await,
        Channel::Http2(_) => h2::finish(r).await,
        Channel::Http3(_) => h3::finish(r).await,
        Channel::Subrequest(_) => rarely(subrequest::finish(r)).await,
    }
}

/// Returns the client's byte stream for another protocol, with the bytes that followed the request.
/// `None` if the channel has no such stream.
pub fn upgrade(r: &Request) -> Option<(Upgraded, Chain)> {
    match &r.client.channel {
        Channel::Http1(stream) => {
            let mut early = Chain::new();
            early.write(stream.unread());
            Some((Upgraded::Connection(r.c().clone()), early))
        }
        Channel::Http2(stream) => Some((Upgraded::Stream(stream.tunnel()), Chain::new())),
        Channel::Http3(stream) => Some((Upgraded::Quic(stream.tunnel()), Chain::new())),
        Channel::Subrequest(_) => None,
    }
}

/// Removes this response, but no earlier ones, from the output. False if part of it was sent.
pub(crate) fn retract(r: &mut Request) -> bool {
    let can_retract = match &r.client.channel {
        Channel::Http2(stream) => stream.exchange.can_retract(),
        Channel::Http3(stream) => stream.exchange.can_retract(),
        Channel::Http1(_) | Channel::Subrequest(_) => true,
    };
    if !can_retract {
        return false;
    }
    let before = match &r.client.channel {
        Channel::Http2(_) => 0,
        Channel::Http3(_) => 0,
        channel => match channel.queued().len().checked_sub(r.account.bytes_sent) {
            Some(before) => before,
            None => return false,
        },
    };
    r.client.channel.retract(before);
    true
}

/// The length of the request's body, and how much of it arrived with the header section.
pub(crate) fn expected(r: &mut Request) -> Expected {
    match r.client.channel {
        Channel::Http1(_) => h1::expected(r),
        Channel::Http2(_) => h2::expected(r),
        Channel::Http3(_) => h3::expected(r),
        Channel::Subrequest(_) => Expected { length: Some(0), with_head: 0 },
    }
}

/// The next piece of the request's body; `None` at its end. Waits for the client. If the client
/// waits for a 100, that is sent first.
pub(crate) async fn next_piece(r: &mut Request) -> Result<Option<Page>, Verdict> {
    match r.client.channel {
        Channel::Http1(_) => h1::next_piece(r).await,
        Channel::Http2(_) => h2::next_piece(r).await,
        Channel::Http3(_) => h3::next_piece(r).await,
        Channel::Subrequest(_) => Ok(None),
    }
}

/// Called before the response to a request whose body is not needed: drops the part that arrived.
/// False if it is malformed: then the response has to say so.
pub(crate) fn drop_buffered_body(r: &mut Request) -> bool {
    match r.client.channel {
        Channel::Http1(_) => return h1::drop_buffered(r),
        Channel::Http2(_) => streams::incoming::drop_buffered::<h2::Stream>(r),
        Channel::Http3(_) => streams::incoming::drop_buffered::<h3::Stream>(r),
        Channel::Subrequest(_) => {}
    }
    true
}

/// Begins to drop the request's body during the response; `None` where the connection does that.
pub(crate) fn drain(r: &mut Request) -> Option<h1::Drain> {
    match r.client.channel {
        Channel::Http1(_) => Some(h1::Drain::begin(r)),
        Channel::Http2(_) => None,
        Channel::Http3(_) => None,
        Channel::Subrequest(_) => None,
    }
}
