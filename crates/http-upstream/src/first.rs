//! The part of a response body that arrives together with the headers; for most responses it is the
//! whole body.

use bytes::Bytes;
use http::request::Request;
use mem::{Buf, Chain};
use upstream::wire::{Received, RecvError, Wire};

use crate::conf::Conf;
use crate::link::Link;
use crate::source::{Fail, finished, log_complaints};
use crate::{Progress, Protocol, Sink};

/// The part of a body that was read together with the headers.
pub(crate) struct First {
    pub(crate) sink: Sink,
    pub(crate) len: u64,
    /// Set at the end of the body; true if no bytes followed it.
    pub(crate) ended: Option<bool>,
    pub(crate) failed: Option<Fail>,
}

impl First {
    /// Passes the bytes to the protocol, after its `begin_body` returned `progress`.
    pub fn of(
        r: &mut Request,
        protocol: &mut dyn Protocol,
        rest: Bytes,
        progress: Progress,
    ) -> First {
        let len = rest.len() as u64;
        r.upstream_mut().now().response_length += len;
        let mut first = First { sink: Sink::default(), len, ended: None, failed: None };
        if len > 0 {
            match protocol.body(Buf::Mem(rest), &mut first.sink) {
                Ok(Progress::More) => {}
                Ok(Progress::Done) => first.ended = Some(true),
                Err(fault) => first.failed = Some(Fail::Body(fault)),
            }
        }
        if progress == Progress::Done {
            first.sink.out.clear();
            first.failed = None;
            first.ended = first.ended.or(Some(len == 0));
        }
        first
    }

    /// The same for a stream: takes the available data.
    pub fn of_stream(
        r: &mut Request,
        protocol: &mut dyn Protocol,
        wire: &Wire,
        progress: Progress,
    ) -> First {
        let mut first = First { sink: Sink::default(), len: 0, ended: None, failed: None };
        if progress == Progress::Done {
            first.ended = Some(true);
            return first;
        }
        while first.failed.is_none() && first.ended.is_none() {
            match wire.try_recv() {
                Ok(Received::Nothing) => break,
                Ok(Received::Piece(piece)) => {
                    first.len += piece.len();
                    if let Err(fault) = protocol.body(piece, &mut first.sink) {
                        first.failed = Some(Fail::Body(fault));
                    }
                }
                Ok(Received::End) => match end(wire, protocol) {
                    Ok(()) => first.ended = Some(true),
                    Err(fail) => first.failed = Some(fail),
                },
                Err(RecvError::Io(e)) => first.failed = Some(Fail::Io(e)),
                Err(RecvError::Stream(end)) => first.failed = Some(Fail::Stream(end)),
            }
        }
        let a = r.upstream_mut().now();
        a.received += first.len;
        a.response_length += first.len;
        first
    }

    /// Whether it is the whole body, so that no [`Source`](crate::source::Source) is needed.
    pub fn is_whole(&self) -> bool {
        self.ended.is_some() && self.failed.is_none()
    }

    /// The body, if it is complete. Releases server and connection; the connection can be reused if
    /// the whole request was sent.
    pub fn whole(
        mut self,
        r: &mut Request,
        conf: &Conf,
        protocol: &mut dyn Protocol,
        link: &mut Link,
        sent_all: bool,
    ) -> Chain {
        let clean = self.ended == Some(true);
        link.finish(clean && sent_all && protocol.reusable(), &r.main.life.gate);
        log_complaints(r, protocol, &mut self.sink);
        finished(r, conf, protocol.trailers());
        self.sink.out
    }
}

/// The server has closed: an error unless that is the end of the body.
pub(crate) fn end(wire: &Wire, protocol: &mut dyn Protocol) -> Result<(), Fail> {
    match wire.stream() {
        Some(stream) => protocol.end_stream(stream.take_trailers()).map_err(Fail::Body),
        None if protocol.ends_with_connection() => Ok(()),
        None => Err(Fail::Premature),
    }
}
