//! HTTP/1 to clients: the connection's life, header sections, bodies, and how all of them are
//! framed.
//!
//! | file | concern |
//! | --- | --- |
//! | [`connection`], [`close`] | the connection's task: parked, serving, closed; lingering |
//! | [`requests`] | request after request out of the received page |
//! | [`read_head`], [`refused`] | header sections in pieces, and limits; those that are refused |
//! | [`body`], [`drain`] | request bodies: framing, `100-continue`; those that nobody wants |
//! | [`head`], [`output`] | status line and fields; response bodies, and sending |
//!
//! A parked connection owns no buffer and no request: it waits for readiness. Requests are parsed
//! in the received page, as spans without copies. If another request is already in the page
//! (pipelining), it is answered before the output is sent, so that all these responses leave in one
//! write.

mod body;
mod close;
mod connection;
mod drain;
mod head;
mod output;
mod read_head;
mod refused;
mod requests;

use mem::{Chain, Page};

pub(crate) use body::{expected, next_piece};
pub(crate) use connection::{resume, run};
pub(crate) use drain::{Drain, drop_buffered};
pub(crate) use head::{interim, start};
pub(crate) use output::{finish, flush, put, put_now, stays_queued};

use crate::request::Request;

/// One exchange on a connection, and the buffers that pass from it to the next one.
#[derive(Default)]
pub(crate) struct Stream {
    /// Bytes from the client: the head of the request, then whatever followed it.
    pub(crate) input: Page,
    /// The head's part of them.
    head_len: usize,
    /// The request's body on its way in.
    body: body::Incoming,
    /// Bytes for the client. Responses to pipelined requests gather here.
    output: Chain,
    /// The connection is kept after the response.
    keepalive: bool,
    /// Unread data may be coming: close by lingering.
    lingering: bool,
    /// `100 Continue` was sent or refused already.
    expect_tested: bool,
    /// The response is framed by the chunked coding.
    chunked: bool,
    /// The connection ends behind the bytes in `output`.
    last_bytes: bool,
    /// The head was in the page when the request before it was done.
    pipelined: bool,
    /// The client did not take or send bytes in time.
    pub(crate) timed_out: bool,
}

impl Stream {
    /// Clears the state of one exchange; the buffers stay.
    pub(crate) fn reset(&mut self) {
        // One by one: putting a new value in the place of the old one would move the buffers.
        self.head_len = 0;
        self.body = body::Incoming::default();
        self.keepalive = false;
        self.lingering = false;
        self.expect_tested = false;
        self.chunked = false;
        self.last_bytes = false;
        self.pipelined = false;
        self.timed_out = false;
    }

    /// Takes the head of a request that another process has begun.
    pub(crate) fn resume(&mut self, head: &[u8]) {
        self.input = Page::copied(head);
        self.head_len = head.len();
    }

    /// Gives the buffers back. The rest was reset.
    pub(crate) fn release(&mut self) {
        self.input.release();
        self.output.clear();
    }

    /// The bytes that the head's spans point into.
    pub(crate) fn head_text(&self) -> &[u8] {
        self.input.filled()
    }

    pub(crate) fn head_len(&self) -> usize {
        self.head_len
    }

    /// Bytes of the page that belong to this request.
    fn used(&self) -> usize {
        self.head_len + self.body.buffered()
    }

    /// The bytes behind this request, as far as they came.
    pub(crate) fn unread(&self) -> &[u8] {
        self.input.filled().get(self.used()..).unwrap_or_default()
    }

    /// Whether the next request follows in the page.
    pub(crate) fn is_followed(&self) -> bool {
        self.input.filled().len() > self.used() && self.body.is_finished()
    }

    pub(crate) fn body_is_finished(&self) -> bool {
        self.body.is_finished()
    }

    pub(crate) fn queued(&self) -> &Chain {
        &self.output
    }

    pub(crate) fn output(&mut self) -> &mut Chain {
        &mut self.output
    }

    /// Takes the end of the queue back, from `before` bytes on.
    pub(crate) fn retract(&mut self, before: u64) {
        self.output = self.output.split_to(before);
    }

    pub(crate) fn start_anew(&mut self) {
        self.chunked = false;
    }

    pub(crate) fn keeps_connection(&self) -> bool {
        self.keepalive
    }

    pub(crate) fn close_connection(&mut self) {
        self.keepalive = false;
    }

    pub(crate) fn set_lingering(&mut self, on: bool) {
        self.lingering = on;
    }

    pub(crate) fn forbid_continue(&mut self) {
        self.expect_tested = true;
    }

    pub(crate) fn is_chunked(&self) -> bool {
        self.chunked
    }

    pub(crate) fn is_pipelined(&self) -> bool {
        self.pipelined
    }
}

/// The exchange of a request over HTTP/1.
#[inline]
fn stream(r: &mut Request) -> &mut Stream {
    r.client.channel.http1().expect("this module is called for requests over HTTP/1 alone")
}
