//! FastCGI with responders, without input or output.

use std::collections::VecDeque;
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use http::request::Request;
use http_upstream::{Fault, HeadStep, Progress, Protocol, Sink};
use http_wire::h1::{Method, ResponseHead, ResponseParser, ResponseStep};
use mem::{Buf, Chain};
use proto::fastcgi::{self, Event, Reader, STDIN_MAX, Stream};

use crate::gateway::params::Params;
use crate::gateway::too_big;

/// The parts that all requests of a location have in common.
pub(super) struct Shape {
    pub params: Params,
    pub keep_conn: bool,
    pub catch_stderr: Vec<Bytes>,
}

/// The rest of a body that is still to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rest {
    /// As much as comes.
    Open,
    /// So many bytes.
    Bytes(u64),
    /// Nothing, or as many bytes as this (HEAD).
    AllOrNothing(u64),
}

/// One exchange.
pub(super) struct FastCgi {
    shape: Rc<Shape>,
    reader: Reader,
    parser: ResponseParser,
    /// The length of the part of the head's buffer that was read.
    pos: usize,
    /// The head, out of its records.
    text: Vec<u8>,
    rest: Rest,
    is_head: bool,
    reusable: bool,
    complaints: VecDeque<String>,
}

impl FastCgi {
    pub fn new(shape: Rc<Shape>) -> FastCgi {
        FastCgi {
            shape,
            reader: Reader::default(),
            parser: ResponseParser::of_gateway(),
            pos: 0,
            text: Vec::new(),
            rest: Rest::Open,
            is_head: false,
            reusable: false,
            complaints: VecDeque::new(),
        }
    }

    /// Notes a complaint; true where it is one that spoils the response.
    fn complain(&mut self, said: &[u8]) -> bool {
        let noise = |b: &u8| !matches!(b, b'\n' | b'\r' | b'.' | b' ');
        let end = said.iter().rposition(noise).map_or(said.len().min(1), |i| i + 1);
        let said = &said[..end];
        let text = base::log::lossy(said);
        self.complaints.push_back(format!("FastCGI sent in stderr: \"{text}\""));
        let mut caught = self.shape.catch_stderr.iter();
        caught.any(|text| memchr::memmem::find(said, text).is_some())
    }

    /// Content of the response that may hold the end of its head: `Some` where the head is
    /// settled.
    fn read_head(&mut self, content: &[u8], head: &mut ResponseHead) -> Option<HeadStep> {
        let begun = self.text.len();
        // The body that follows in the same record is not copied along.
        let text = match begun {
            0 => content,
            _ => {
                self.text.extend_from_slice(content);
                &self.text
            }
        };
        let step = self.parser.parse(text, head);
        if begun == 0 {
            let len = if let ResponseStep::Done { len } = step { len } else { content.len() };
            self.text.extend_from_slice(content.get(..len).unwrap_or(content));
        }
        match step {
            ResponseStep::More => None,
            ResponseStep::Bad(e) => Some(HeadStep::Bad(e.message(&self.text))),
            ResponseStep::Done { len } => {
                // The rest comes again, as body.
                let behind = begun + content.len() - len;
                self.text.truncate(len);
                self.reader.give_back(behind, &mut self.pos);
                Some(HeadStep::Done(self.pos))
            }
        }
    }

    /// Content of the body.
    fn take(&mut self, content: Buf, sink: &mut Sink) -> bool {
        let len = content.len();
        let most = match self.rest {
            Rest::Open => len,
            Rest::Bytes(n) | Rest::AllOrNothing(n) => n,
        };
        let taken = len.min(most);
        if self.rest != Rest::Open && len > 0 {
            self.rest = Rest::Bytes(most - taken);
        }
        if taken == len {
            put(content, sink);
            return true;
        }
        let mut content = content;
        put(content.split_to(taken), sink);
        sink.warning = Some("upstream sent more data than specified in \"Content-Length\" header");
        false
    }
}

/// Pieces up to this size are copied together; larger ones are shared.
const COPY_MAX: usize = 1024;

fn put(content: Buf, sink: &mut Sink) {
    match content.memory() {
        Some(bytes) if bytes.len() <= COPY_MAX => sink.out.write(bytes),
        _ => sink.out.push(content),
    }
}

impl Protocol for FastCgi {
    fn scheme(&self) -> &'static str {
        "fastcgi://"
    }

    fn request(&mut self, r: &mut Request, out: &mut Chain) -> Result<(), u16> {
        *self = FastCgi::new(self.shape.clone());
        self.is_head = r.target.method == Method::Head;
        let w = out.writer_for(2048);
        let from = fastcgi::begin(self.shape.keep_conn, w);
        self.shape.params.write(r, w);
        fastcgi::end_params(from, w).map_err(|len| too_big(r, "fastcgi request record", len))
    }

    fn sends_body(&self) -> bool {
        true
    }

    fn chunked_requests(&self) -> bool {
        true
    }

    fn frame(&mut self, data: &mut Chain, last: bool, _: bool, out: &mut Chain) {
        while !data.is_empty() {
            let mut content = data.split_to(STDIN_MAX as u64);
            let (header, padding) = fastcgi::stdin(content.len() as usize);
            out.write(&header);
            out.append(&mut content);
            out.write(padding);
        }
        if last {
            out.write(&fastcgi::stdin(0).0);
        }
    }

    fn head(&mut self, buf: &[u8], head: &mut ResponseHead) -> HeadStep {
        loop {
            match self.reader.next(buf, &mut self.pos) {
                Err(e) => return HeadStep::Bad(e.to_string()),
                // Complaints before the head take no room of it.
                Ok(Event::More) if self.text.is_empty() && self.pos > 0 => {
                    return HeadStep::Interim(std::mem::take(&mut self.pos));
                }
                Ok(Event::More) => return HeadStep::More,
                Ok(Event::Data(Stream::Err, said)) => {
                    if self.complain(&buf[said]) {
                        return HeadStep::Bad(String::new());
                    }
                }
                Ok(Event::Data(Stream::Out, content))
                    if self.text.is_empty() && content.start > 8 =>
                {
                    self.reader.give_back(content.len(), &mut self.pos);
                    return HeadStep::Interim(std::mem::take(&mut self.pos));
                }
                Ok(Event::Data(Stream::Out, content)) => {
                    if let Some(step) = self.read_head(&buf[content], head) {
                        return step;
                    }
                }
                Ok(Event::OutEnd) => {
                    let m = "upstream prematurely closed FastCGI stdout";
                    return HeadStep::Bad(m.to_owned());
                }
                Ok(Event::Ending | Event::End) => {
                    let m = "upstream sent unexpected FastCGI record: 3";
                    return HeadStep::Bad(m.to_owned());
                }
            }
        }
    }

    fn text(&mut self) -> Option<Bytes> {
        Some(Bytes::from(std::mem::take(&mut self.text)))
    }

    fn begin_body(&mut self, head: &ResponseHead) -> Progress {
        self.rest = match (head.status, head.content_length) {
            (204 | 304, _) => Rest::Bytes(0),
            (_, None) => Rest::Open,
            (_, Some(n)) if self.is_head => Rest::AllOrNothing(n),
            (_, Some(n)) => Rest::Bytes(n),
        };
        Progress::More
    }

    fn body(&mut self, input: Buf, sink: &mut Sink) -> Result<Progress, Fault> {
        let Some(bytes) = input.into_bytes() else { return Ok(Progress::More) };
        let keep_conn = self.shape.keep_conn;
        let mut pos = 0;
        loop {
            match self
                .reader
                .next(&bytes, &mut pos)
                .map_err(|e| Fault::Malformed(e.to_string().into()))?
            {
                Event::More => return Ok(Progress::More),
                Event::Data(Stream::Err, said) => {
                    self.complain(&bytes[said]);
                }
                Event::Data(Stream::Out, content) => {
                    if !self.take(Buf::Mem(bytes.slice(content)), sink) {
                        return Ok(Progress::Done);
                    }
                }
                Event::OutEnd if self.lacks() => {
                    return Err(Fault::CutShort("upstream prematurely closed FastCGI stdout"));
                }
                Event::Ending if self.lacks() => {
                    return Err(Fault::CutShort("upstream prematurely closed FastCGI request"));
                }
                // The request ends with its record, or with the connection: to close that earlier
                // would meet a server that still writes to it.
                Event::OutEnd | Event::Ending => {}
                Event::End => {
                    self.reusable = keep_conn && pos == bytes.len();
                    return Ok(Progress::Done);
                }
            }
        }
    }

    fn ends_with_connection(&self) -> bool {
        !self.shape.keep_conn && !self.lacks()
    }

    fn reusable(&self) -> bool {
        self.reusable
    }

    fn complaint(&mut self) -> Option<(Level, String)> {
        self.complaints.pop_front().map(|m| (Level::Error, m))
    }
}

impl FastCgi {
    /// Something of what was promised did not come.
    fn lacks(&self) -> bool {
        matches!(self.rest, Rest::Bytes(1..))
    }
}
