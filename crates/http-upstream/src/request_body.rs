//! Forwards the client's body to an upstream: read completely first, or streamed.

use base::ascii::write_hex_u64;
use base::future::rarely;
use event::{Deadline, Either, race, ready_now};
use http::module::Verdict;
use http::request::Request;
use mem::Chain;
use upstream::wire::Wire;

use crate::Protocol;
use crate::conf::Conf;
use crate::failure::Stop;

/// How the client's body is forwarded.
pub(crate) enum RequestBody {
    /// Not forwarded.
    None,
    /// Read completely, so it can be sent to another server again.
    Whole,
    /// Streamed as it arrives, which is only possible to one server.
    Streamed {
        /// The body goes out with chunked transfer encoding.
        chunked: bool,
        /// Pieces that arrived before there was a connection.
        pending: Chain,
        /// The body has ended.
        over: bool,
    },
}

impl RequestBody {
    /// Reads as much of the body as is needed before a server is chosen, and records its length for
    /// the request headers.
    pub async fn read(
        r: &mut Request,
        conf: &Conf,
        protocol: &mut dyn Protocol,
    ) -> Result<RequestBody, Verdict> {
        let stream = !conf.request_buffering
            && conf.pass_request_body
            && protocol.sends_body()
            && !r.body.was_read()
            && (!r.head.chunked || protocol.chunked_requests());
        r.upstream_mut().begin();
        if !protocol.reads_body() {
            return Ok(RequestBody::None);
        }
        // An HTTP/2 or HTTP/3 stream may be open although no length was declared.
        if stream && (r.head.has_body() || !r.body_is_finished()) {
            return rarely(RequestBody::stream(r)).await;
        }
        r.read_body().await?;
        let length = match r.head.chunked {
            // The body was partly streamed to another server, so it is not available any more.
            _ if !r.body.was_read() => None,
            true => Some(r.body.len()),
            false => r.head.content_length,
        };
        r.upstream_mut().body_length = length;
        if conf.pass_request_body && protocol.sends_body() && !r.body.is_empty() {
            return Ok(RequestBody::Whole);
        }
        Ok(RequestBody::None)
    }

    /// Takes the pieces that have arrived. A body that has arrived completely counts as read.
    async fn stream(r: &mut Request) -> Result<RequestBody, Verdict> {
        let mut pending = Chain::new();
        let most = r.loc.core.client_body_buffer_size as u64;
        while !r.body_is_finished() && pending.len() < most {
            match ready_now(r.next_body_piece()).await {
                Some(piece) => match piece? {
                    Some(page) => pending.push(page.into()),
                    None => break,
                },
                None => break,
            }
        }
        let chunked = r.head.chunked;
        if r.body_is_finished() {
            r.body.keep(pending);
            let length = r.body.len();
            r.upstream_mut().body_length = Some(length);
            return Ok(if length == 0 { RequestBody::None } else { RequestBody::Whole });
        }
        let length = if chunked { None } else { r.head.content_length };
        let u = r.upstream_mut();
        u.body_length = length;
        u.body_chunked = chunked;
        Ok(RequestBody::Streamed { chunked, pending, over: false })
    }

    /// Appends all pieces that are ready to be sent.
    pub fn append_to(&mut self, r: &mut Request, protocol: &mut dyn Protocol, out: &mut Chain) {
        match self {
            RequestBody::None => protocol.frame(&mut Chain::new(), true, false, out),
            RequestBody::Whole => protocol.frame(&mut r.body_chain(), true, false, out),
            RequestBody::Streamed { pending, chunked, .. } => {
                if !pending.is_empty() {
                    protocol.frame(pending, false, *chunked, out);
                }
            }
        }
    }

    /// Whether no more has to be read of the body: all of it was taken, or the rest was given up.
    pub fn is_sent(&self) -> bool {
        !matches!(self, RequestBody::Streamed { over: false, .. })
    }

    /// Drops the rest, because the server does not accept more.
    pub fn give_up(&mut self) {
        if let RequestBody::Streamed { over, .. } = self {
            *over = true;
        }
    }

    /// Whether it can be sent only once.
    pub(crate) fn is_streamed(&self) -> bool {
        matches!(self, RequestBody::Streamed { .. })
    }

    /// Waits for the client's next piece, or for an early response of the server.
    pub async fn more(
        &mut self,
        r: &mut Request,
        wire: &Wire,
        protocol: &mut dyn Protocol,
        out: &mut Chain,
    ) -> Result<(), Stop> {
        let RequestBody::Streamed { chunked, over, .. } = self else { return Ok(()) };
        let readable = std::pin::pin!(wire.readable(Deadline::NEVER));
        match race(r.next_body_piece(), readable).await {
            Either::Second(_) => Ok(()),
            Either::First(Err(v)) => Err(Stop::Verdict(v)),
            Either::First(Ok(piece)) => {
                *over = piece.is_none() || r.body_is_finished();
                let mut data = Chain::new();
                if let Some(page) = piece {
                    data.push(page.into());
                }
                if *over || !data.is_empty() {
                    protocol.frame(&mut data, *over, *chunked, out);
                }
                Ok(())
            }
        }
    }
}

/// Writes data as a chunk, and the final chunk if `last`.
pub(crate) fn chunk(data: &mut Chain, last: bool, out: &mut Chain) {
    if !data.is_empty() {
        let w = out.writer_for(24);
        write_hex_u64(w, data.len());
        w.extend_from_slice(b"\r\n");
        out.append(data);
        out.write(b"\r\n");
    }
    if last {
        out.write(b"0\r\n\r\n");
    }
}
