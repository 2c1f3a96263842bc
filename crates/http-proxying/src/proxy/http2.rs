//! HTTP/2 with servers, without input or output: the fields of requests and the length of
//! responses. The connection that carries the frames is the crate `upstream`'s.

use std::rc::Rc;

use bytes::Bytes;
use event::Deadline;
use http::request::Request;
use http_upstream::{Fault, HeadStep, Progress, Protocol, Sink, websocket_accept};
use http_wire::fields::websocket;
use http_wire::h1::{FieldId, ResponseHead};
use mem::{Buf, Chain};
use proto::grpc;

use super::pass::Vars;
use super::protocol;
use super::request::{Head, Place};
use super::uri::Uri;

/// One exchange.
pub(crate) struct Http2 {
    scheme: &'static str,
    head: Rc<Head>,
    uri: Rc<Uri>,
    vars: Rc<Vars>,
    /// The request was a HEAD.
    is_head: bool,
    /// Bytes of the body that are to come, where that is known.
    left: Option<u64>,
    trailers: Vec<(Bytes, Bytes)>,
    /// See [`Protocol::until`].
    until: Deadline,
    /// The request asks for WebSocket.
    asks_for_websocket: bool,
}

impl Http2 {
    pub(super) fn of_proxy(head: Rc<Head>, uri: Rc<Uri>, vars: Rc<Vars>) -> Http2 {
        let scheme = if vars.tls { "https://" } else { "http://" };
        Http2::new(scheme, head, uri, vars)
    }

    /// An exchange with the server of `vars`. `scheme` is for logs.
    pub fn new(scheme: &'static str, head: Rc<Head>, uri: Rc<Uri>, vars: Rc<Vars>) -> Http2 {
        let (is_head, left, trailers) = (false, None, Vec::new());
        let (until, asks_for_websocket) = (Deadline::NEVER, false);
        Http2 { scheme, head, uri, vars, is_head, left, trailers, until, asks_for_websocket }
    }

    /// The same for a call of gRPC that has time until then.
    pub fn until(self, until: Deadline) -> Http2 {
        Http2 { until, ..self }
    }
}

impl Protocol for Http2 {
    fn scheme(&self) -> &'static str {
        self.scheme
    }

    fn is_http(&self) -> bool {
        true
    }

    fn is_stream(&self) -> bool {
        true
    }

    fn request(&mut self, r: &mut Request, out: &mut Chain) -> Result<(), u16> {
        let place = Place { authority: &self.vars.host, tls: self.vars.tls };
        let list = out.writer_for(1024);
        let (is_head, body) = self.head.write_list(r, &self.uri, &place, list)?;
        self.is_head = is_head;
        self.asks_for_websocket = body.is_none() && self.head.asks_for_websocket(r);
        if let Some(body) = body {
            out.push_bytes(body);
        }
        Ok(())
    }

    fn sends_body(&self) -> bool {
        !self.head.has_body()
    }

    fn chunked_requests(&self) -> bool {
        true
    }

    fn frame(&mut self, data: &mut Chain, _: bool, _: bool, out: &mut Chain) {
        out.append(data);
    }

    fn head(&mut self, _: &[u8], _: &mut ResponseHead) -> HeadStep {
        HeadStep::Bad("a stream's head was read as bytes".to_owned())
    }

    fn begin_body(&mut self, head: &ResponseHead) -> Progress {
        self.left = head.content_length;
        match self.is_head || matches!(head.status, 204 | 304) {
            true => Progress::Done,
            false => Progress::More,
        }
    }

    fn body(&mut self, input: Buf, sink: &mut Sink) -> Result<Progress, Fault> {
        if let Some(left) = &mut self.left {
            let Some(rest) = left.checked_sub(input.len()) else {
                let m = "upstream sent response body larger than indicated content length";
                return Err(Fault::Malformed(m.into()));
            };
            *left = rest;
        }
        sink.out.push(input);
        Ok(Progress::More)
    }

    fn ends_with_connection(&self) -> bool {
        false
    }

    fn connect(&mut self, list: &[u8]) -> Option<Vec<u8>> {
        self.asks_for_websocket.then(|| websocket::as_connect(list))
    }

    fn asked_upgrade(&self, _: &mut Request) -> Option<Bytes> {
        self.asks_for_websocket.then(|| Bytes::from_static(websocket::NAME))
    }

    fn connected(&mut self, r: &Request, head: &mut ResponseHead, text: Bytes) -> Bytes {
        let mut text = Vec::from(text);
        websocket::as_upgraded(head, &mut text, &websocket_accept(r));
        Bytes::from(text)
    }

    fn until(&self) -> Deadline {
        self.until
    }

    fn run_out(&mut self) -> bool {
        let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
        self.trailers = grpc::LATE.map(|(name, value)| (bytes(name), bytes(value))).into();
        true
    }

    fn end_stream(&mut self, trailers: Vec<(Bytes, Bytes)>) -> Result<(), Fault> {
        self.trailers = trailers;
        match self.left {
            None | Some(0) => Ok(()),
            Some(_) => Err(Fault::CutShort("upstream prematurely closed stream")),
        }
    }

    // The connection is not the exchange's.
    fn reusable(&self) -> bool {
        false
    }

    fn cache_key(&self, r: &mut Request, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.vars.key);
        self.uri.write(r, out);
    }

    fn trailers(&self) -> Vec<(Bytes, Bytes)> {
        self.trailers.clone()
    }

    fn rewrite(&self, r: &mut Request, id: FieldId, value: &Bytes) -> Option<Bytes> {
        protocol::rewrite(&self.head, r, id, value)
    }
}
