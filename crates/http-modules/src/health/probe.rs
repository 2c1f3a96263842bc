//! The HTTP question of a health check.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use ::upstream::health::{Checked, Failure, Probe, ProbeConn};
use base::time::now_ms;
use bytes::Bytes;
use event::{Deadline, Sock};
use mem::{Buf, Chain, Page};
use net::Transport;
use os::SockAddr;
use proto::chunked::{Decoder, Event, Trailers};
use proto::h1::{ResponseHead, ResponseParser, ResponseStep};

use super::matching::Matching;

/// The longest answer that is read whole, bytes.
const ANSWER_MAX: usize = 256 << 10;

/// The question, and the judgement of the answer.
pub(super) struct HttpProbe {
    /// The request; without one, a connection is all that is asked for.
    pub request: Option<Bytes>,
    pub matching: Rc<Matching>,
    pub connect_ms: u64,
    pub read_ms: u64,
}

impl Probe for HttpProbe {
    fn ask<'a>(
        &'a self,
        addr: &'a SockAddr,
        kept: Option<ProbeConn>,
    ) -> Pin<Box<dyn Future<Output = Checked> + 'a>> {
        Box::pin(self.check(addr, kept))
    }
}

impl HttpProbe {
    async fn check(&self, addr: &SockAddr, kept: Option<ProbeConn>) -> Checked {
        let Some(request) = &self.request else {
            return self.connect(addr).await.map(|_| None);
        };
        if let Some(kept) = kept {
            // It may have been closed meanwhile: then a new one tells.
            if let Ok(keeps) = self.converse(&kept.sock, request).await {
                return Ok(keeps.then_some(kept));
            }
        }
        let sock = self.connect(addr).await?;
        let keeps = self.converse(&sock, request).await?;
        Ok(keeps.then(|| ProbeConn { sock, start_ms: now_ms() }))
    }

    async fn connect(&self, addr: &SockAddr) -> Result<Transport, Failure> {
        let failed = |e: std::io::Error| format!("connect() failed {}", base::log::os_error(&e));
        let fd = os::socket::socket(addr, os::socket::Kind::Stream).map_err(failed)?;
        let sock = Sock::from_fd(fd);
        sock.connect(addr, Deadline::in_ms(self.connect_ms)).await.map_err(failed)?;
        Ok(sock.into())
    }

    /// Whether the connection can carry another exchange.
    async fn converse(&self, sock: &Transport, request: &Bytes) -> Result<bool, Failure> {
        let deadline = Deadline::in_ms(self.read_ms);
        let failed =
            |call: &str, e: std::io::Error| format!("{call} failed {}", base::log::os_error(&e));
        let mut out = Chain::new();
        out.push(Buf::Mem(request.clone()));
        sock.send(&mut out, deadline).await.map_err(|e| failed("send()", e))?;
        let (mut parser, mut head) = (ResponseParser::new(), ResponseHead::new());
        let mut text: Vec<u8> = Vec::new();
        let mut len = None;
        loop {
            if len.is_none() {
                len = match parser.parse(&text, &mut head) {
                    ResponseStep::More => None,
                    ResponseStep::Done { len } if (100..200).contains(&head.status) => {
                        text.drain(..len);
                        parser.reset();
                        continue;
                    }
                    ResponseStep::Done { len } => Some(len),
                    ResponseStep::Bad(_) => return Err("the answer is not HTTP".to_owned()),
                };
            }
            if let Some(len) = len {
                let body = Body::of(&head, &text[len..]);
                if body.whole || !self.matching.wants_body() {
                    let well = self.matching.check(&head, &text[..len], &body.bytes);
                    return well
                        .map(|()| body.whole && head.keeps_connection())
                        .map_err(str::to_owned);
                }
            }
            if text.len() > ANSWER_MAX {
                return self.judge(&head, &text, len);
            }
            let page: Page = sock.recv(4096, deadline).await.map_err(|e| failed("recv()", e))?;
            if page.is_empty() {
                return self.judge(&head, &text, len);
            }
            text.extend_from_slice(page.filled());
        }
    }

    /// No more of the answer comes, or is wanted.
    fn judge(&self, head: &ResponseHead, text: &[u8], len: Option<usize>) -> Result<bool, Failure> {
        let Some(len) = len else { return Err("the connection was closed".to_owned()) };
        let body = Body::of(head, &text[len..]);
        self.matching.check(head, &text[..len], &body.bytes).map_err(str::to_owned)?;
        Ok(false)
    }
}

/// The body as far as it is there.
struct Body {
    bytes: Vec<u8>,
    whole: bool,
}

impl Body {
    fn of(head: &ResponseHead, rest: &[u8]) -> Body {
        if head.chunked {
            return Body::chunked(rest);
        }
        match head.content_length {
            _ if matches!(head.status, 204 | 304) => Body { bytes: Vec::new(), whole: true },
            Some(n) => {
                let n = usize::try_from(n).unwrap_or(usize::MAX);
                let bytes = rest[..rest.len().min(n)].to_vec();
                let whole = bytes.len() == n && rest.len() == n;
                Body { bytes, whole }
            }
            None => Body { bytes: rest.to_vec(), whole: false },
        }
    }

    fn chunked(rest: &[u8]) -> Body {
        let mut decoder = Decoder::new(Trailers::Discard, 4096);
        let (mut pos, mut bytes) = (0, Vec::new());
        loop {
            match decoder.next(rest, &mut pos) {
                Ok(Event::Data(range)) => bytes.extend_from_slice(&rest[range]),
                Ok(Event::Done) => return Body { bytes, whole: pos == rest.len() },
                Ok(_) | Err(_) => return Body { bytes, whole: false },
            }
        }
    }
}
