//! The client's body on its way to an upstream: read whole before, or passed on as it comes.

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

/// The client's body as an upstream gets it.
pub(crate) enum RequestBody {
    /// It is not passed on.
    None,
    /// It was read whole, and can be sent again.
    Whole,
    /// It is passed on as it arrives, to one server only.
    Streamed {
        /// In the chunked coding.
        chunked: bool,
        /// Pieces that came before there was a connection.
        pending: Chain,
        /// Nothing more will come.
        over: bool,
    },
}

impl RequestBody {
    /// Reads the part of the body that has to be read before a server is chosen, and notes its
    /// length for the request's head.
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
        // A stream may be open although no body was declared.
        if stream && (r.head.has_body() || !r.body_is_finished()) {
            return rarely(RequestBody::stream(r)).await;
        }
        r.read_body().await?;
        let length = match r.head.chunked {
            // Another server got it as it came, as far as it came.
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

    /// Takes the pieces that have arrived. A body that arrived whole counts as one read before.
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

    /// Appends all pieces that can be sent at once.
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

    /// Says whether all of it was given out.
    pub fn is_sent(&self) -> bool {
        !matches!(self, RequestBody::Streamed { over: false, .. })
    }

    /// The server takes no more of it.
    pub fn give_up(&mut self) {
        if let RequestBody::Streamed { over, .. } = self {
            *over = true;
        }
    }

    /// Says whether it can be sent only once.
    pub fn is_streamed(&self) -> bool {
        matches!(self, RequestBody::Streamed { .. })
    }

    /// Waits for the client's next piece, or for the server to answer before it has all.
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

/// Puts data into a chunk of its own, and the last chunk behind it.
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
