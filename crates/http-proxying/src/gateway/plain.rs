//! The protocols uwsgi and SCGI; this code does no I/O itself. The parameters go in one packet,
//! then the body as it is; the response is one of CGI, which may begin with a status line.

use std::rc::Rc;

use base::ascii::write_u64;
use bytes::Bytes;
use http::module::{Dry, PhaseHandler, Pipeline, Step};
use http::request::Request;
use http_upstream::conf::Conf as UpConf;
use http_upstream::{Fault, HeadStep, Progress, Protocol, Sink};
use http_wire::h1::{Method, ResponseHead, ResponseParser, ResponseStep};
use mem::{Buf, Chain};
use proto::params::{UWSGI_MAX, uwsgi_header};

use super::params::Params;
use super::pass::To;
use super::{Gateway, too_big};

/// The protocol, with its own settings.
pub enum Kind {
    /// uwsgi
    Uwsgi {
        /// `uwsgi_modifier1`
        modifier1: u8,
        /// `uwsgi_modifier2`
        modifier2: u8,
        /// `uwsgi_string`: stands behind the parameters.
        string: Bytes,
    },
    /// SCGI
    Scgi,
}

/// The parts that all requests of a location have in common.
pub struct Shape {
    /// The parameters for the server.
    pub params: Params,
    /// The protocol.
    pub kind: Kind,
}

/// Makes a location pass its requests on.
pub fn install<G: Gateway + 'static>(to: To<G>, conf: Rc<UpConf>, shape: Shape, p: &mut Pipeline) {
    p.auto_redirect = true;
    p.content_handler = Some(Box::new(Handler { to, conf, shape: Rc::new(shape) }));
}

struct Handler<G> {
    to: To<G>,
    conf: Rc<UpConf>,
    shape: Rc<Shape>,
}

impl<G: Gateway> PhaseHandler for Handler<G> {
    fn dry(&self) -> Dry {
        Dry::Looks
    }

    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let make = |tls| -> Box<dyn Protocol> {
            Box::new(Plain { tls, ..Plain::new(self.shape.clone()) })
        };
        self.to.pass(r, &self.conf, make)
    }
}

/// One exchange.
pub struct Plain {
    shape: Rc<Shape>,
    parser: ResponseParser,
    /// Bytes of the body that are still to come; `None`: until the connection ends.
    left: Option<u64>,
    is_head: bool,
    /// In an answer to HEAD: what is still missing of the announced length, because some servers
    /// send that body.
    announced: Option<u64>,
    /// The connection has TLS.
    tls: bool,
}

impl Plain {
    /// An exchange that has not begun.
    pub fn new(shape: Rc<Shape>) -> Plain {
        let parser = ResponseParser::of_lenient_gateway();
        Plain { shape, parser, left: None, is_head: false, announced: None, tls: false }
    }
}

impl Protocol for Plain {
    fn scheme(&self) -> &'static str {
        match self.shape.kind {
            Kind::Uwsgi { .. } if self.tls => "suwsgi://",
            Kind::Uwsgi { .. } => "uwsgi://",
            Kind::Scgi => "scgi://",
        }
    }

    fn request(&mut self, r: &mut Request, out: &mut Chain) -> Result<(), u16> {
        *self = Plain { tls: self.tls, ..Plain::new(self.shape.clone()) };
        self.is_head = r.target.method == Method::Head;
        match &self.shape.kind {
            Kind::Uwsgi { modifier1, modifier2, string } => {
                let w = out.writer_for(2048);
                let at = w.len();
                w.extend_from_slice(&[0; 4]);
                self.shape.params.write(r, w);
                w.extend_from_slice(string);
                let len = w.len() - at - 4;
                let short = u16::try_from(len).ok().filter(|_| len <= UWSGI_MAX);
                let short = short.ok_or_else(|| too_big(r, "uwsgi request", len))?;
                w[at..at + 4].copy_from_slice(&uwsgi_header(*modifier1, *modifier2, short));
            }
            Kind::Scgi => {
                let mut packet = b"CONTENT_LENGTH\0".to_vec();
                write_u64(&mut packet, r.upstream_mut().body_length.unwrap_or(0));
                packet.push(0);
                self.shape.params.write(r, &mut packet);
                let w = out.writer_for(packet.len() + 24);
                write_u64(w, packet.len() as u64);
                w.push(b':');
                w.extend_from_slice(&packet);
                w.push(b',');
            }
        }
        Ok(())
    }

    fn sends_body(&self) -> bool {
        true
    }

    fn chunked_requests(&self) -> bool {
        false
    }

    fn head(&mut self, buf: &[u8], head: &mut ResponseHead) -> HeadStep {
        match self.parser.parse(buf, head) {
            ResponseStep::More => HeadStep::More,
            ResponseStep::Done { len } => HeadStep::Done(len),
            ResponseStep::Bad(e) => HeadStep::Bad(e.message(buf)),
        }
    }

    fn begin_body(&mut self, head: &ResponseHead) -> Progress {
        self.left = match head.status {
            204 | 304 => Some(0),
            _ if self.is_head => {
                self.announced = head.content_length;
                None
            }
            _ => head.content_length,
        };
        if self.left == Some(0) { Progress::Done } else { Progress::More }
    }

    fn body(&mut self, mut input: Buf, sink: &mut Sink) -> Result<Progress, Fault> {
        let Some(left) = &mut self.left else {
            // More came than was announced: `u64::MAX`, so that it never counts as whole.
            self.announced = self.announced.map(|n| n.checked_sub(input.len()).unwrap_or(u64::MAX));
            sink.out.push(input);
            return Ok(Progress::More);
        };
        let n = input.len().min(*left);
        *left -= n;
        if n < input.len() {
            input = input.split_to(n);
            sink.warning =
                Some("upstream sent more data than specified in \"Content-Length\" header");
        }
        if n > 0 {
            sink.out.push(input);
        }
        Ok(if *left == 0 { Progress::Done } else { Progress::More })
    }

    fn ends_with_connection(&self) -> bool {
        self.left.is_none()
    }

    fn is_whole(&self) -> bool {
        self.announced.is_none_or(|n| n == 0)
    }

    fn reusable(&self) -> bool {
        false
    }
}
