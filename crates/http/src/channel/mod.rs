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
use crate::request::Request;
use crate::status_line::CLIENT_CLOSED;
use crate::subrequest::{self, Sub};

/// The response could not be sent whole: the connection, or the stream, is of no more use.
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

/// The engine behind a protocol: it gets requests whose heads were read, and answers them through
/// their channels. A type parameter of the protocols, which so depend on nothing above them.
pub(crate) trait Answer: 'static {
    /// Runs a request from its head to its log lines. A failure ends its connection or stream.
    async fn answer(r: &mut Request) -> Result<(), SendFailed>;

    /// Chooses the server of a head that is refused, or did not come whole, as far as it is known.
    /// With `whole`, all fields came. Fails with the status that goes before others.
    fn prepare_refused(r: &mut Request, whole: bool) -> Result<(), u16>;

    /// Answers a head that is refused, and logs it.
    async fn refuse(r: &mut Request, status: u16) -> Result<(), SendFailed>;

    /// Logs a request that its client gave up before it began.
    async fn given_up(r: &mut Request);

    /// Logs a request that is not answered.
    async fn log(r: &mut Request);
}

/// Ends a request that is not answered whole. One that has begun is logged all the same.
#[cold]
pub(crate) async fn give_up<A: Answer>(r: &mut Request) {
    if r.flags.unlogged {
        if !r.flags.header_sent && r.err_status == 0 {
            r.err_status = CLIENT_CLOSED;
        }
        A::log(r).await;
    }
}

/// The data of a request's body that is still to come.
pub(crate) struct Expected {
    /// Its length; `None` where that is not known.
    pub length: Option<u64>,
    /// Bytes that came with the head.
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

    /// A stream of HTTP/3 that is to be begun.
    pub(crate) fn quic_stream() -> Channel {
        Channel::Http3(Box::default())
    }

    /// A stream of HTTP/2 that is to be begun.
    pub(crate) fn stream() -> Channel {
        Channel::Http2(Box::default())
    }

    /// Whether it is one of the streams of a connection.
    #[inline]
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Channel::Http2(_) | Channel::Http3(_))
    }

    /// Ends the use of the channel; the memory of a stream serves the next request.
    pub(crate) fn release(&mut self) {
        match self {
            Channel::Http1(stream) => stream.release(),
            Channel::Http2(stream) => stream.release(),
            Channel::Http3(stream) => stream.release(),
            Channel::Subrequest(_) => *self = Channel::default(),
        }
    }

    /// Ends one exchange; buffers that the next one begins with stay.
    pub(crate) fn reset(&mut self) {
        match self {
            Channel::Http1(stream) => stream.reset(),
            // Of its connection nothing else comes: it is released.
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

    /// The bytes of the request's head alone, as far as spans point into them.
    pub(crate) fn head_only(&self) -> &[u8] {
        match self {
            Channel::Http1(stream) => {
                stream.head_text().get(..stream.head_len()).unwrap_or_default()
            }
            channel => channel.head_text(),
        }
    }

    /// Bytes of the request's head on the wire.
    pub(crate) fn head_len(&self) -> usize {
        match self {
            Channel::Http1(stream) => stream.head_len(),
            Channel::Http2(stream) => stream.exchange.head_len,
            Channel::Http3(stream) => stream.exchange.head_len,
            Channel::Subrequest(sub) => sub.head_text.len(),
        }
    }

    /// Whether the next request is here already, so that output may wait for its response.
    pub(crate) fn is_followed(&self) -> bool {
        match self {
            Channel::Http1(stream) => stream.is_followed(),
            Channel::Http2(_) => false,
            Channel::Http3(_) => false,
            Channel::Subrequest(_) => false,
        }
    }

    /// Whether all of the request's body came.
    pub(crate) fn body_is_finished(&self) -> bool {
        match self {
            Channel::Http1(stream) => stream.body_is_finished(),
            Channel::Http2(stream) => stream.body_is_finished(),
            Channel::Http3(stream) => stream.body_is_finished(),
            Channel::Subrequest(_) => true,
        }
    }

    /// Whether the client ended the body behind the head, be it an empty one.
    pub(crate) fn body_ended_behind_head(&self) -> bool {
        match self {
            Channel::Http2(stream) => !stream.exchange.is_bare,
            Channel::Http3(stream) => !stream.exchange.is_bare,
            Channel::Http1(_) | Channel::Subrequest(_) => false,
        }
    }

    /// Output that was not sent yet. Responses to earlier requests may be in front.
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

    /// Takes back all of the output but the first `before` bytes.
    pub(crate) fn retract(&mut self, before: u64) {
        match self {
            Channel::Http1(stream) => stream.retract(before),
            Channel::Http2(stream) => stream.exchange.retract(before),
            Channel::Http3(stream) => stream.exchange.retract(before),
            Channel::Subrequest(_) => {}
        }
    }

    /// Another response is made in place of one that was taken back.
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

    /// Has the connection end with this response.
    pub(crate) fn close_connection(&mut self) {
        if let Channel::Http1(stream) = self {
            stream.close_connection();
        }
    }

    /// Whether unread data may be coming when the connection is closed: a reset would take the
    /// response from the client.
    pub(crate) fn set_lingering(&mut self, on: bool) {
        if let Channel::Http1(stream) = self {
            stream.set_lingering(on);
        }
    }

    /// The client is not asked for the body that it holds back (`Expect: 100-continue`).
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

    /// Whether bytes of another protocol follow the request over a stream, not a body.
    pub(crate) fn is_tunnel(&self) -> bool {
        match self {
            Channel::Http2(stream) => stream.exchange.is_tunnel,
            Channel::Http3(stream) => stream.exchange.is_tunnel,
            _ => false,
        }
    }

    /// Whether the request came with the one before it.
    pub(crate) fn is_pipelined(&self) -> bool {
        matches!(self, Channel::Http1(stream) if stream.is_pipelined())
    }
}

/// Begins the response with its head. Says whether a body follows.
pub(crate) fn start(r: &mut Request) -> bool {
    match r.channel {
        Channel::Http1(_) => h1::start(r),
        Channel::Http2(_) => h2::start(r),
        Channel::Http3(_) => streams::head::start::<h3::Stream>(r),
        Channel::Subrequest(_) => subrequest::start(r),
    }
}

/// Puts an interim response into the output; nothing where it has no fields.
pub fn interim<'a>(
    r: &mut Request,
    status: u16,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) {
    match r.channel {
        Channel::Http1(_) => h1::interim(r, status, fields),
        Channel::Http2(_) => h2::interim(r, status, fields),
        Channel::Http3(_) => h3::interim(r, status, fields),
        Channel::Subrequest(_) => {}
    }
}

/// Puts a whole body into the output, if nothing is to be waited for; else gives it back.
#[inline]
pub(crate) fn put_now(r: &mut Request, body: Chain) -> Option<Chain> {
    match r.channel {
        Channel::Http1(_) => h1::put_now(r, body),
        Channel::Http2(_) => h2::put_now(r, body),
        Channel::Http3(_) => h3::put_now(r, body),
        Channel::Subrequest(_) => Some(body),
    }
}

/// Queues a piece of the response's body, maybe the last one. Waits while too much is queued.
pub(crate) async fn put(r: &mut Request, piece: Chain, last: bool) -> Result<(), SendFailed> {
    match r.channel {
        Channel::Http1(_) => h1::put(r, piece, last).await,
        Channel::Http2(_) => streams::outgoing::put::<h2::Stream>(r, piece, last).await,
        Channel::Http3(_) => streams::outgoing::put::<h3::Stream>(r, piece, last).await,
        Channel::Subrequest(_) => rarely(subrequest::put(r, piece)).await,
    }
}

/// Sends all that is queued.
pub async fn flush(r: &mut Request) -> Result<(), SendFailed> {
    match r.channel {
        Channel::Http1(_) => h1::flush(r).await,
        Channel::Http2(_) => h2::flush(r).await,
        Channel::Http3(_) => h3::flush(r).await,
        Channel::Subrequest(_) => Ok(()),
    }
}

/// Ends the response where nothing has to be sent for that: with `more`, small output stays queued;
/// a connection of many streams sends for all of them. False: [`finish`] does it.
#[inline]
pub(crate) fn finish_now(r: &mut Request, more: bool) -> bool {
    match r.channel {
        Channel::Http1(_) => h1::stays_queued(r, more),
        Channel::Http2(_) => h2::finish_now(r),
        Channel::Http3(_) => h3::finish_now(r),
        Channel::Subrequest(_) => false,
    }
}

/// Ends the response. With `more` (requests wait) small output stays queued for the next one.
pub(crate) async fn finish(r: &mut Request, more: bool) -> Result<(), SendFailed> {
    match r.channel {
        Channel::Http1(_) => h1::finish(r, more).await,
        Channel::Http2(_) => h2::finish(r).await,
        Channel::Http3(_) => h3::finish(r).await,
        Channel::Subrequest(_) => rarely(subrequest::finish(r)).await,
    }
}

/// Gives up the client's byte stream to another protocol, with the bytes that came behind the
/// request. `None` where the channel has none.
pub fn upgrade(r: &Request) -> Option<(Upgraded, Chain)> {
    match &r.channel {
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

/// Takes back this response from the queue, not earlier ones. False if some of it was sent.
pub(crate) fn retract(r: &mut Request) -> bool {
    let can_retract = match &r.channel {
        Channel::Http2(stream) => stream.exchange.can_retract(),
        Channel::Http3(stream) => stream.exchange.can_retract(),
        Channel::Http1(_) | Channel::Subrequest(_) => true,
    };
    if !can_retract {
        return false;
    }
    let before = match &r.channel {
        Channel::Http2(_) => 0,
        Channel::Http3(_) => 0,
        channel => match channel.queued().len().checked_sub(r.bytes_sent) {
            Some(before) => before,
            None => return false,
        },
    };
    r.channel.retract(before);
    true
}

/// Size and place of the body's data.
pub(crate) fn expected(r: &mut Request) -> Expected {
    match r.channel {
        Channel::Http1(_) => h1::expected(r),
        Channel::Http2(_) => h2::expected(r),
        Channel::Http3(_) => h3::expected(r),
        Channel::Subrequest(_) => Expected { length: Some(0), with_head: 0 },
    }
}

/// The next piece of the request's body; `None` at its end. Waits for the client, which is told to
/// go on first where it holds the body back.
pub(crate) async fn next_piece(r: &mut Request) -> Result<Option<Page>, Verdict> {
    match r.channel {
        Channel::Http1(_) => h1::next_piece(r).await,
        Channel::Http2(_) => h2::next_piece(r).await,
        Channel::Http3(_) => h3::next_piece(r).await,
        Channel::Subrequest(_) => Ok(None),
    }
}

/// Before the response to a request whose body is not wanted: drops the part of it that arrived.
/// False: it is no body, and the response must say so.
pub(crate) fn drop_buffered_body(r: &mut Request) -> bool {
    match r.channel {
        Channel::Http1(_) => return h1::drop_buffered(r),
        Channel::Http2(_) => streams::incoming::drop_buffered::<h2::Stream>(r),
        Channel::Http3(_) => streams::incoming::drop_buffered::<h3::Stream>(r),
        Channel::Subrequest(_) => {}
    }
    true
}

/// Begins to drop the request's body while the response is sent, where somebody has to read it.
pub(crate) fn drain(r: &mut Request) -> Option<h1::Drain> {
    match r.channel {
        Channel::Http1(_) => Some(h1::Drain::begin(r)),
        Channel::Http2(_) => None,
        Channel::Http3(_) => None,
        Channel::Subrequest(_) => None,
    }
}
