//! HTTP/1 with servers, without input or output: the framing of responses.

use std::rc::Rc;

use bytes::Bytes;
use http::request::Request;
use http_upstream::conf::Conf as UpConf;
use http_upstream::{Fault, HeadStep, Progress, Protocol, Sink};
use http_wire::chunked::{Decoder, Event, Trailers};
use http_wire::h1::{FieldId, ResponseErrorKind, ResponseHead, ResponseParser, ResponseStep};
use mem::{Buf, Chain};

use super::cookie;
use super::pass::Vars;
use super::redirect;
use super::request::{Head, Version};
use super::uri::Uri;

/// The framing of a body.
enum Framing {
    None,
    Length(u64),
    Chunked(Box<Decoder>),
    Close,
}

/// One exchange.
pub(super) struct Http {
    head: Rc<Head>,
    conf: Rc<UpConf>,
    uri: Rc<Uri>,
    vars: Rc<Vars>,
    parser: ResponseParser,
    framing: Framing,
    /// The request was a HEAD.
    is_head: bool,
    keeps: bool,
    done: bool,
}

impl Http {
    pub fn new(head: Rc<Head>, conf: Rc<UpConf>, uri: Rc<Uri>, vars: Rc<Vars>) -> Http {
        Http {
            head,
            conf,
            uri,
            vars,
            parser: ResponseParser::new(),
            framing: Framing::None,
            is_head: false,
            keeps: false,
            done: false,
        }
    }
}

impl Protocol for Http {
    fn scheme(&self) -> &'static str {
        if self.vars.tls { "https://" } else { "http://" }
    }

    fn is_http(&self) -> bool {
        true
    }

    fn request(&mut self, r: &mut Request, out: &mut Chain) -> Result<(), u16> {
        self.parser.reset();
        self.is_head = self.head.write(r, &self.uri, &self.vars.host, out.writer_for(1024))?;
        Ok(())
    }

    fn asked_upgrade(&self, r: &mut Request) -> Option<Bytes> {
        self.head.upgrade(r)
    }

    fn sends_body(&self) -> bool {
        !self.head.has_body()
    }

    fn chunked_requests(&self) -> bool {
        self.head.version == Version::Http11
    }

    fn head(&mut self, buf: &[u8], head: &mut ResponseHead) -> HeadStep {
        match self.parser.parse(buf, head) {
            ResponseStep::More => HeadStep::More,
            // Of the interim responses only the switch of protocols ends an exchange.
            ResponseStep::Done { len }
                if (100..200).contains(&head.status) && head.status != 101 =>
            {
                HeadStep::Interim(len)
            }
            ResponseStep::Done { len } => HeadStep::Done(len),
            ResponseStep::Bad(e)
                if e.kind == ResponseErrorKind::NoStatusLine && self.head.http09 =>
            {
                HeadStep::NoHead("upstream sent no valid HTTP/1.0 header")
            }
            ResponseStep::Bad(e) => HeadStep::Bad(e.message(buf)),
        }
    }

    fn begin_body(&mut self, head: &ResponseHead) -> Progress {
        self.keeps = head.keeps_connection() && head.status != 101;
        self.framing = if self.is_head || matches!(head.status, 204 | 304) {
            Framing::None
        } else if head.chunked {
            let (keep, max) = match self.conf.pass_trailers {
                true => (Trailers::Keep, self.conf.buffer_size as u32),
                false => (Trailers::Discard, self.conf.buffer_size as u32),
            };
            Framing::Chunked(Box::new(Decoder::new(keep, max)))
        } else {
            match head.content_length {
                Some(0) => Framing::None,
                Some(n) => Framing::Length(n),
                None => Framing::Close,
            }
        };
        self.done = matches!(self.framing, Framing::None);
        if self.done { Progress::Done } else { Progress::More }
    }

    fn body(&mut self, mut input: Buf, sink: &mut Sink) -> Result<Progress, Fault> {
        let progress = match &mut self.framing {
            Framing::Close => {
                sink.out.push(input);
                Progress::More
            }
            Framing::None => {
                self.extra(sink);
                Progress::Done
            }
            Framing::Length(left) => {
                let n = input.len().min(*left);
                *left -= n;
                let done = *left == 0;
                let extra = input.len() > n;
                sink.out.push(if extra { input.split_to(n) } else { input });
                if extra {
                    self.extra(sink);
                }
                if done { Progress::Done } else { Progress::More }
            }
            Framing::Chunked(decoder) => {
                match chunks(decoder, input, sink).map_err(|m| Fault::Malformed(m.into()))? {
                    (progress, false) => progress,
                    (progress, true) => {
                        self.keeps = false;
                        sink.warning = Some("upstream sent data after final chunk");
                        progress
                    }
                }
            }
        };
        self.done = progress == Progress::Done;
        Ok(progress)
    }

    fn ends_with_connection(&self) -> bool {
        matches!(self.framing, Framing::Close)
    }

    fn reusable(&self) -> bool {
        self.keeps && self.done && !matches!(self.framing, Framing::Close)
    }

    fn cache_key(&self, r: &mut Request, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.vars.key);
        self.uri.write(r, out);
    }

    fn trailers(&self) -> Vec<(Bytes, Bytes)> {
        let Framing::Chunked(decoder) = &self.framing else { return Vec::new() };
        let copy = Bytes::copy_from_slice;
        decoder.trailers().map(|(n, v)| (copy(n), copy(v))).collect()
    }

    fn rewrite(&self, r: &mut Request, id: FieldId, value: &Bytes) -> Option<Bytes> {
        rewrite(&self.head, r, id, value)
    }
}

/// The new value of a field of a response, where it changes: see [`Protocol::rewrite`].
pub(super) fn rewrite(head: &Head, r: &mut Request, id: FieldId, value: &Bytes) -> Option<Bytes> {
    match id {
        FieldId::Location => redirect::rewrite(r, &head.redirects, value, 0),
        FieldId::Refresh => {
            let at = url_in_refresh(value)?;
            redirect::rewrite(r, &head.redirects, value, at)
        }
        FieldId::SetCookie => cookie::rewrite(r, head, value),
        _ => None,
    }
}

impl Http {
    #[cold]
    fn extra(&mut self, sink: &mut Sink) {
        self.keeps = false;
        sink.warning = Some("upstream sent more data than specified in \"Content-Length\" header");
    }
}

/// Pieces of chunks up to this size are copied together; larger ones are shared.
const COPY_MAX: usize = 1024;

/// Takes the framing off; true: something came behind the end.
fn chunks(
    decoder: &mut Decoder,
    input: Buf,
    sink: &mut Sink,
) -> Result<(Progress, bool), &'static str> {
    const BROKEN: &str = "upstream sent invalid chunked response";
    let Some(bytes) = input.into_bytes() else { return Err(BROKEN) };
    let mut pos = 0;
    loop {
        match decoder.next(&bytes, &mut pos).map_err(|_| BROKEN)? {
            Event::Data(range) if range.len() <= COPY_MAX => sink.out.write(&bytes[range]),
            Event::Data(range) => sink.out.push_bytes(bytes.slice(range)),
            Event::More => return Ok((Progress::More, false)),
            Event::Done => return Ok((Progress::Done, pos < bytes.len())),
        }
    }
}

/// The place of the URL in `5; url=http://…`.
fn url_in_refresh(value: &[u8]) -> Option<usize> {
    value.windows(4).position(|w| w.eq_ignore_ascii_case(b"url=")).map(|i| i + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(
        pieces: &[&'static str],
    ) -> (Result<Progress, &'static str>, Vec<u8>, Option<&'static str>) {
        let mut decoder = Decoder::new(Trailers::Discard, 4096);
        let mut sink = Sink::default();
        let mut last = Ok(Progress::More);
        let mut warning = None;
        for p in pieces {
            let piece = Buf::Mem(Bytes::from_static(p.as_bytes()));
            last = chunks(&mut decoder, piece, &mut sink).map(|(progress, extra)| {
                warning = extra.then_some("extra");
                progress
            });
        }
        let text = sink.out.iter().filter_map(Buf::memory).collect::<Vec<_>>().concat();
        (last, text, warning)
    }

    #[test]
    fn chunks_in_pieces() {
        let (done, text, extra) = fed(&["3\r\nab", "c\r\n2;x=y\r\nde\r", "\n0\r\n", "\r\n"]);
        assert_eq!((done, &text[..], extra), (Ok(Progress::Done), &b"abcde"[..], None));
        let (done, text, extra) = fed(&["1\r\na\r\n0\r\n\r\nHTTP/1.1"]);
        assert_eq!((done, &text[..], extra), (Ok(Progress::Done), &b"a"[..], Some("extra")));
        assert!(fed(&["zz\r\n"]).0.is_err());
    }

    #[test]
    fn where_a_refresh_points() {
        assert_eq!(url_in_refresh(b"5; URL=http://a/"), Some(7));
        assert_eq!(url_in_refresh(b"5"), None);
    }
}
