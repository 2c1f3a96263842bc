//! Response heads of upstreams: the status line, the fields, and what they say about the body.
//!
//! ```text
//! Name ─► Major ─► Minor ─► BeforeStatus ─► Status ─► AfterStatus ─► Reason ─► Cr ─► (fields)
//! ```

use super::error::show;
use super::field::FieldId;
use super::head::{Connection, Field, Index, Span, Version};
use super::lines::{Line, Lines, RawField};
use super::request::parse_length;
use super::scan::value_end;
use std::fmt::Write;

/// A parsed response head; recycled as a request's [`super::Head`] is.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// The version in the status line.
    pub version: Version,
    /// The status code.
    pub status: u16,
    /// The status code and the text behind it, as sent: `404 Not Found`.
    pub status_line: Span,
    /// The field lines in the order sent.
    pub fields: Vec<Field>,
    /// Tokens of the Connection fields.
    pub connection: Connection,
    /// Content-Length.
    pub content_length: Option<u64>,
    /// The body is in chunked coding.
    pub chunked: bool,
    index: Index,
}

impl Default for ResponseHead {
    fn default() -> ResponseHead {
        ResponseHead::new()
    }
}

impl ResponseHead {
    /// An empty head. Allocates nothing until the first field.
    pub fn new() -> ResponseHead {
        ResponseHead {
            version: Version::HTTP_09,
            status: 0,
            status_line: Span::default(),
            fields: Vec::new(),
            connection: Connection::default(),
            content_length: None,
            chunked: false,
            index: Index::new(),
        }
    }

    /// Makes the head empty and keeps the vector's capacity. The parser does this itself.
    pub fn clear(&mut self) {
        self.version = Version::HTTP_09;
        self.status = 0;
        self.status_line = Span::default();
        self.fields.clear();
        self.connection = Connection::default();
        self.content_length = None;
        self.chunked = false;
        self.index.clear();
    }

    /// True when a field of this id occurs (not for `Other`).
    #[inline]
    pub fn has(&self, id: FieldId) -> bool {
        self.index.has(id)
    }

    /// The first field of this id (not for `Other`).
    #[inline]
    pub fn get(&self, id: FieldId) -> Option<&Field> {
        self.index.get(id, &self.fields)
    }

    /// The value of the first field of this id.
    #[inline]
    pub fn value<'b>(&self, id: FieldId, buf: &'b [u8]) -> Option<&'b [u8]> {
        self.get(id).map(|field| field.value.of(buf))
    }

    /// All fields of this id, in order (not for `Other`).
    pub fn all(&self, id: FieldId) -> impl Iterator<Item = &Field> {
        self.index.all(id, &self.fields)
    }

    /// Whether the connection can be used again once the body was read: HTTP/1.1 without `close`.
    pub fn keeps_connection(&self) -> bool {
        self.version >= Version::HTTP_11 && !self.connection.close
    }
}

/// What a response parser says after looking at the bytes it was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseStep {
    /// The head is complete; it took the first `len` bytes of the buffer. An interim response (1xx)
    /// is one as well: the next head follows it.
    Done {
        /// Bytes of the buffer that belong to the head.
        len: usize,
    },
    /// The head is not complete: call again with more bytes behind those given so far.
    More,
    /// The head is refused.
    Bad(ResponseError),
}

/// A refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseError {
    /// What was wrong.
    pub kind: ResponseErrorKind,
    name: Span,
    value: Span,
    previous: (Span, Span),
}

/// What can be wrong with a response head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseErrorKind {
    /// No status line: nginx takes such a response as HTTP/0.9, a body from the first byte on.
    NoStatusLine,
    /// Early hints (103) of a version before HTTP/1.1.
    EarlyHintsIn10,
    /// A character that ends the parsing of a field line.
    InvalidFieldLine,
    /// A second Content-Length or Transfer-Encoding.
    DuplicateField,
    /// Both Content-Length and Transfer-Encoding.
    LengthAndEncoding,
    /// Content-Length is no number, or too large.
    InvalidContentLength,
    /// A transfer coding other than `chunked`.
    UnknownTransferEncoding,
    /// The Status field of a gateway's response does not begin with a code.
    InvalidStatus,
    /// More bytes or fields than positions can count.
    TooLarge,
}

impl ResponseError {
    #[cold]
    fn new(kind: ResponseErrorKind, field: &Field) -> ResponseError {
        let none = Span::default();
        ResponseError { kind, name: field.name, value: field.value, previous: (none, none) }
    }

    #[cold]
    fn bare(kind: ResponseErrorKind) -> ResponseError {
        let none = Span::default();
        ResponseError { kind, name: none, value: none, previous: (none, none) }
    }

    /// The text nginx logs at level error.
    pub fn message(&self, buf: &[u8]) -> String {
        use ResponseErrorKind::*;
        let mut out = String::from(match self.kind {
            NoStatusLine => "upstream sent no valid HTTP/1.0 header",
            EarlyHintsIn10 => "upstream sent HTTP/1.0 response with early hints",
            LengthAndEncoding => {
                "upstream sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same \
                 time"
            }
            TooLarge => "upstream sent too big header",
            InvalidFieldLine => "upstream sent invalid header: \"",
            DuplicateField => "upstream sent duplicate header line: \"",
            InvalidContentLength => "upstream sent invalid \"Content-Length\" header: \"",
            UnknownTransferEncoding => "upstream sent unknown \"Transfer-Encoding\": \"",
            InvalidStatus => "upstream sent invalid status \"",
        });
        match self.kind {
            InvalidFieldLine => {
                show(self.name.of(buf), &mut out);
                let byte = buf.get(self.name.end as usize).copied().unwrap_or(0);
                let _ = write!(out, "\\x{byte:02x}...\"");
            }
            DuplicateField | InvalidContentLength => {
                show_field((self.name, self.value), buf, &mut out);
                if self.kind == DuplicateField {
                    out.push_str(", previous value: \"");
                    show_field(self.previous, buf, &mut out);
                }
            }
            UnknownTransferEncoding | InvalidStatus => {
                show(self.value.of(buf), &mut out);
                out.push('"');
            }
            NoStatusLine | EarlyHintsIn10 | LengthAndEncoding | TooLarge => {}
        }
        out
    }
}

fn show_field(field: (Span, Span), buf: &[u8], out: &mut String) {
    show(field.0.of(buf), out);
    out.push_str(": ");
    show(field.1.of(buf), out);
    out.push('"');
}

/// The text nginx logs at level warn for a field that is left out because it came before.
pub fn ignored_message(field: &Field, first: &Field, buf: &[u8]) -> String {
    let mut out = String::from("upstream sent duplicate header line: \"");
    show_field((field.name, field.value), buf, &mut out);
    out.push_str(", previous value: \"");
    show_field((first.name, first.value), buf, &mut out);
    out.push_str(", ignored");
    out
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Fresh,
    Name,
    MajorStart,
    Major,
    MinorStart,
    Minor,
    BeforeStatus,
    Status,
    AfterStatus,
    Reason,
    Cr,
    Fields,
}

/// What a head begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begin {
    /// A status line.
    StatusLine,
    /// A status line, or with the fields at once.
    Either,
    /// The fields.
    Fields,
}

/// Reads response heads. After `Done` or `Bad` the next call begins a new head at offset 0 of the
/// buffer it is given.
#[derive(Clone, Debug)]
pub struct ResponseParser {
    begin: Begin,
    state: State,
    pos: usize,
    major: u16,
    minor: u16,
    lines: Lines,
}

impl Default for ResponseParser {
    fn default() -> ResponseParser {
        ResponseParser::new()
    }
}

impl ResponseParser {
    /// A parser at the start of a head.
    pub fn new() -> ResponseParser {
        ResponseParser::beginning(Begin::StatusLine)
    }

    /// The same for gateways (RFC 3875 section 6): the head has no status line but a Status field,
    /// or a Location that stands for 302, else it is a 200.
    pub fn of_gateway() -> ResponseParser {
        ResponseParser::beginning(Begin::Fields)
    }

    /// The same for gateways that may begin with a status line nevertheless (uwsgi, SCGI).
    pub fn of_lenient_gateway() -> ResponseParser {
        ResponseParser::beginning(Begin::Either)
    }

    fn beginning(begin: Begin) -> ResponseParser {
        ResponseParser {
            begin,
            state: State::Fresh,
            pos: 0,
            major: 0,
            minor: 0,
            lines: Lines::of_response(),
        }
    }

    /// Forgets a head that was begun.
    pub fn reset(&mut self) {
        *self = ResponseParser::beginning(self.begin);
    }

    /// Reads on. `buf` holds the head from its first byte on: the bytes of the call before, then
    /// those that came since; `head` is the same as before, too. The caller limits the buffer.
    pub fn parse(&mut self, buf: &[u8], head: &mut ResponseHead) -> ResponseStep {
        if self.state == State::Fresh {
            head.clear();
            self.state = match self.begin {
                Begin::Fields => State::Fields,
                Begin::StatusLine | Begin::Either => State::Name,
            };
        }
        let step = match self.run(buf, head) {
            Ok(step) => step,
            Err(error) => ResponseStep::Bad(error),
        };
        if step != ResponseStep::More {
            self.reset();
        }
        step
    }

    fn run(&mut self, buf: &[u8], head: &mut ResponseHead) -> Result<ResponseStep, ResponseError> {
        if buf.len() >= u32::MAX as usize {
            return Err(ResponseError::bare(ResponseErrorKind::TooLarge));
        }
        if self.state == State::Name && self.pos == 0 && self.usual_status_line(buf, head) {
            self.versions(head)?;
        }
        while self.state != State::Fields {
            let Some(&byte) = buf.get(self.pos) else { return Ok(ResponseStep::More) };
            self.state = match self.status_line(byte, head) {
                Some(state) => state,
                None if self.begin == Begin::Either => {
                    head.clear();
                    self.pos = 0;
                    self.state = State::Fields;
                    break;
                }
                None => return Err(ResponseError::bare(ResponseErrorKind::NoStatusLine)),
            };
            self.pos += 1;
            if self.state == State::Fields {
                self.versions(head)?;
            }
        }
        loop {
            match self.lines.next(buf, &mut self.pos) {
                Line::Field(raw) => field(raw, buf, head)?,
                Line::End => {
                    if self.begin != Begin::StatusLine && head.status == 0 {
                        gateway_status(buf, head)?;
                    }
                    return Ok(ResponseStep::Done { len: self.pos });
                }
                Line::More => return Ok(ResponseStep::More),
                Line::Bad { sound } => {
                    let mut error = ResponseError::bare(ResponseErrorKind::InvalidFieldLine);
                    error.name = Span::new(self.lines.start(), sound);
                    return Err(error);
                }
            }
        }
    }

    /// The version of a status line that was read.
    #[inline]
    fn versions(&self, head: &mut ResponseHead) -> Result<(), ResponseError> {
        head.version = Version(self.major.saturating_mul(1000).saturating_add(self.minor));
        if head.status == 103 && head.version < Version::HTTP_11 {
            return Err(ResponseError::bare(ResponseErrorKind::EarlyHintsIn10));
        }
        Ok(())
    }

    /// Reads the status line that nearly all servers send, where it is there as a whole; leaves any
    /// other one to be read byte by byte.
    #[inline]
    fn usual_status_line(&mut self, buf: &[u8], head: &mut ResponseHead) -> bool {
        const REASON: usize = 13;
        let Some(&[b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor, b' ', a, b, c, b' ']) =
            buf.first_chunk::<REASON>()
        else {
            return false;
        };
        if ![minor, a, b, c].iter().all(u8::is_ascii_digit) {
            return false;
        }
        let end = value_end(buf, REASON);
        if buf.get(end..end + 2) != Some(b"\r\n") {
            return false;
        }
        let digit = |byte: u8| u16::from(byte - b'0');
        (self.major, self.minor) = (1, digit(minor));
        head.status = digit(a) * 100 + digit(b) * 10 + digit(c);
        head.status_line = Span::new(REASON - 4, end);
        self.pos = end + 2;
        self.state = State::Fields;
        true
    }

    /// The state behind a byte of the status line; none when it cannot stand there.
    #[inline]
    fn status_line(&mut self, byte: u8, head: &mut ResponseHead) -> Option<State> {
        const NAME: &[u8; 5] = b"HTTP/";
        let digit = byte.wrapping_sub(b'0');
        Some(match (self.state, byte) {
            (State::Name, _) if NAME.get(self.pos) == Some(&byte) => {
                if byte == b'/' {
                    State::MajorStart
                } else {
                    State::Name
                }
            }
            (State::MajorStart, b'1'..=b'9') => {
                self.major = u16::from(digit);
                State::Major
            }
            (State::Major, b'.') => State::MinorStart,
            (State::Major, b'0'..=b'9') if self.major < 100 => {
                self.major = self.major * 10 + u16::from(digit);
                State::Major
            }
            (State::MinorStart, b'0'..=b'9') => {
                self.minor = u16::from(digit);
                State::Minor
            }
            (State::Minor, b'0'..=b'9') if self.minor < 100 => {
                self.minor = self.minor * 10 + u16::from(digit);
                State::Minor
            }
            (State::Minor | State::BeforeStatus, b' ') => State::BeforeStatus,
            (State::BeforeStatus, b'0'..=b'9') => {
                head.status = u16::from(digit);
                head.status_line = Span::new(self.pos, self.pos + 1);
                State::Status
            }
            (State::Status, b'0'..=b'9') => {
                head.status = head.status * 10 + u16::from(digit);
                head.status_line.end = self.pos as u32 + 1;
                if head.status_line.len() == 3 { State::AfterStatus } else { State::Status }
            }
            // Some servers add a second code behind a dot.
            (State::AfterStatus, b' ' | b'.') => State::Reason,
            (State::AfterStatus | State::Reason, b'\r') => {
                head.status_line.end = self.pos as u32;
                State::Cr
            }
            (State::AfterStatus | State::Reason, b'\n') => {
                head.status_line.end = self.pos as u32;
                State::Fields
            }
            (State::Reason, 1..) => State::Reason,
            (State::Cr, b'\n') => State::Fields,
            _ => return None,
        })
    }
}

/// The status of a head without a status line.
fn gateway_status(buf: &[u8], head: &mut ResponseHead) -> Result<(), ResponseError> {
    head.status = 200;
    if let Some(field) = head.get(FieldId::Status).copied() {
        let value = field.value.of(buf);
        let code = value.get(..3).filter(|code| code.iter().all(u8::is_ascii_digit));
        let code = code.and_then(base::ascii::parse_u64);
        let invalid = || ResponseError::new(ResponseErrorKind::InvalidStatus, &field);
        head.status = u16::try_from(code.ok_or_else(invalid)?).map_err(|_| invalid())?;
        if value.len() > 3 {
            head.status_line = field.value;
        }
    } else if head.has(FieldId::Location) {
        head.status = 302;
    }
    Ok(())
}

/// Fields that count once; more of them are left out with a warning.
fn counts_once(id: FieldId) -> bool {
    matches!(
        id,
        FieldId::ContentType
            | FieldId::Date
            | FieldId::ETag
            | FieldId::Expires
            | FieldId::LastModified
            | FieldId::Location
            | FieldId::Refresh
            | FieldId::Server
            | FieldId::Status
            | FieldId::XAccelExpires
            | FieldId::XAccelRedirect
    )
}

fn field(raw: RawField, buf: &[u8], head: &mut ResponseHead) -> Result<(), ResponseError> {
    let flagged = raw.invalid | raw.underscore;
    let id = if flagged { FieldId::Other } else { FieldId::lookup(raw.name.of(buf)) };
    let mut field = Field {
        name: raw.name,
        value: raw.value,
        id,
        invalid: raw.invalid,
        dropped: false,
        ignored: false,
    };
    if head.fields.len() >= u16::MAX as usize {
        return Err(ResponseError::bare(ResponseErrorKind::TooLarge));
    }
    if id != FieldId::Other {
        let first = head.get(id).copied();
        if first.is_none() {
            head.index.enter(id, head.fields.len());
        }
        // Fields of early hints are passed on, and say nothing about a body.
        if head.status != 103 {
            field.ignored = first.is_some() && counts_once(id);
            known_field(&field, first, buf, head)?;
        }
    }
    head.fields.push(field);
    Ok(())
}

fn known_field(
    field: &Field,
    first: Option<Field>,
    buf: &[u8],
    head: &mut ResponseHead,
) -> Result<(), ResponseError> {
    use ResponseErrorKind::*;
    let value = field.value.of(buf);
    let other = match field.id {
        FieldId::Connection => {
            head.connection.add(value);
            return Ok(());
        }
        FieldId::ContentLength => FieldId::TransferEncoding,
        FieldId::TransferEncoding => FieldId::ContentLength,
        _ => return Ok(()),
    };
    if let Some(first) = first {
        let mut error = ResponseError::new(DuplicateField, field);
        error.previous = (first.name, first.value);
        return Err(error);
    }
    if head.has(other) {
        return Err(ResponseError::new(LengthAndEncoding, field));
    }
    if field.id == FieldId::ContentLength {
        head.content_length = parse_length(value);
        if head.content_length.is_none() {
            return Err(ResponseError::new(InvalidContentLength, field));
        }
    } else if value.eq_ignore_ascii_case(b"chunked") {
        head.chunked = true;
    } else {
        return Err(ResponseError::new(UnknownTransferEncoding, field));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(step: ResponseStep, head: &ResponseHead, buf: &[u8]) -> String {
        match step {
            ResponseStep::Done { len } => format!("done {len} {head:?}"),
            ResponseStep::More => "more".to_owned(),
            ResponseStep::Bad(error) => error.message(buf),
        }
    }

    /// Parses in one piece, in two at every boundary, and byte by byte; all must agree.
    fn check(buf: &[u8]) -> (ResponseStep, ResponseHead) {
        let mut head = ResponseHead::new();
        let step = ResponseParser::new().parse(buf, &mut head);
        let want = outcome(step, &head, buf);
        for cut in 0..buf.len() {
            let (mut parser, mut head) = (ResponseParser::new(), ResponseHead::new());
            let mut step = parser.parse(&buf[..cut], &mut head);
            if step == ResponseStep::More {
                step = parser.parse(buf, &mut head);
            }
            assert_eq!(outcome(step, &head, buf), want, "cut at {cut}");
        }
        let (mut parser, mut dribbled) = (ResponseParser::new(), ResponseHead::new());
        let mut steps = (0..=buf.len()).map(|len| parser.parse(&buf[..len], &mut dribbled));
        let last = steps.find(|step| *step != ResponseStep::More);
        let last = last.unwrap_or(ResponseStep::More);
        assert_eq!(outcome(last, &dribbled, buf), want, "byte by byte");
        (step, head)
    }

    fn refused(buf: &str) -> String {
        match check(buf.as_bytes()) {
            (ResponseStep::Bad(error), _) => error.message(buf.as_bytes()),
            (step, _) => panic!("{step:?} for {buf:?}"),
        }
    }

    #[test]
    fn a_response() {
        let buf = b"HTTP/1.1 404 Not Found\r\nServer: a\r\nserver: b\r\nContent-Length: 5\r\n\
            Set-Cookie: a=b\r\nSet-Cookie: c=d\r\nX.y: z\r\nConnection: close\r\n\r\nhello";
        let (step, head) = check(buf);
        assert_eq!(step, ResponseStep::Done { len: buf.len() - 5 });
        assert_eq!((head.version, head.status), (Version::HTTP_11, 404));
        assert_eq!(head.status_line.of(buf), b"404 Not Found");
        assert_eq!(head.content_length, Some(5));
        assert!(head.connection.close && !head.keeps_connection());
        assert_eq!(head.all(FieldId::SetCookie).count(), 2);
        let ignored: Vec<bool> = head.fields.iter().map(|field| field.ignored).collect();
        assert_eq!(ignored, [false, true, false, false, false, false, false]);
        assert_eq!(
            ignored_message(&head.fields[1], &head.fields[0], buf),
            "upstream sent duplicate header line: \"server: b\", previous value: \"Server: a\", \
             ignored"
        );
        assert!(head.fields[5].invalid);
    }

    #[test]
    fn status_lines() {
        for (line, version, status, text) in [
            ("HTTP/1.0 200 OK\r\n", 1000, 200, "200 OK"),
            ("HTTP/1.1 200\r\n", 1001, 200, "200"),
            ("HTTP/1.1 200\n", 1001, 200, "200"),
            ("HTTP/1.1   204 \r\n", 1001, 204, "204 "),
            ("HTTP/1.1 403.1 Nope\r\n", 1001, 403, "403.1 Nope"),
            ("HTTP/2.0 200 OK\r\n", 2000, 200, "200 OK"),
            ("HTTP/1.10 200 OK\r\n", 1010, 200, "200 OK"),
            ("HTTP/999.999 200 OK\r\n", u16::MAX, 200, "200 OK"),
        ] {
            let buf = format!("{line}\r\n");
            let (step, head) = check(buf.as_bytes());
            assert_eq!(step, ResponseStep::Done { len: buf.len() }, "{line:?}");
            assert_eq!((head.version.0, head.status), (version, status), "{line:?}");
            assert_eq!(head.status_line.of(buf.as_bytes()), text.as_bytes(), "{line:?}");
        }
        for line in [
            "<html>",
            "\r\nHTTP/1.1 200 OK\r\n",
            "http/1.1 200 OK\r\n",
            "HTTP/0.9 200 OK\r\n",
            "HTTP/.1 200\r\n",
            "HTTP/1. 200\r\n",
            "HTTP/1 200\r\n",
            "HTTP/1.1 20\r\n",
            "HTTP/1.1 2 00\r\n",
            "HTTP/1.1 2000\r\n",
            "HTTP/1.1 abc\r\n",
            "HTTP/1.1 200 a\rb\r\n",
            "HTTP/1.1 200 a\0\r\n",
            "HTTP/1.1200 OK\r\n",
            "HTTP/1.1\r\n",
            "HTTP/1000.1 200\r\n",
        ] {
            assert_eq!(refused(line), "upstream sent no valid HTTP/1.0 header", "{line:?}");
        }
    }

    #[test]
    fn framing_is_strict() {
        for (fields, want) in [
            (
                "Content-Length: 1\r\nContent-length: 1\r\n",
                "upstream sent duplicate header line: \"Content-length: 1\", \
                 previous value: \"Content-Length: 1\"",
            ),
            (
                "Content-Length: -1\r\n",
                "upstream sent invalid \"Content-Length\" header: \"Content-Length: -1\"",
            ),
            (
                "Transfer-Encoding: gzip, chunked\r\n",
                "upstream sent unknown \"Transfer-Encoding\": \"gzip, chunked\"",
            ),
            (
                "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
                "upstream sent \"Content-Length\" and \"Transfer-Encoding\" headers \
                 at the same time",
            ),
            ("a: b\r\nc d: e\r\n", "upstream sent invalid header: \"c\\x20...\""),
            ("a: b\0\r\n", "upstream sent invalid header: \"a: b\\x00...\""),
            (" a: b\r\n", "upstream sent invalid header: \"\\x20...\""),
            ("a: b\rc\r\n", "upstream sent invalid header: \"a: b\\x0d...\""),
        ] {
            assert_eq!(refused(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")), want, "{fields:?}");
        }
        let early = "HTTP/1.0 103 Early Hints\r\n\r\n";
        assert_eq!(refused(early), "upstream sent HTTP/1.0 response with early hints");
        let hints = b"HTTP/1.1 103 Early Hints\r\nContent-Length: x\r\nContent-Length: y\r\n\r\n";
        let (step, head) = check(hints);
        assert_eq!(step, ResponseStep::Done { len: hints.len() });
        assert_eq!((head.content_length, head.fields.len()), (None, 2));
        let (_, head) = check(b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n");
        assert!(head.chunked && head.keeps_connection());
    }

    fn gateway(parser: fn() -> ResponseParser, buf: &str) -> Result<(u16, String, usize), String> {
        let bytes = buf.as_bytes();
        let mut head = ResponseHead::new();
        let step = parser().parse(bytes, &mut head);
        let want = outcome(step, &head, bytes);
        let (mut pieced, mut pieced_head) = (parser(), ResponseHead::new());
        let mut steps = (0..=buf.len()).map(|n| pieced.parse(&bytes[..n], &mut pieced_head));
        let last = steps.find(|s| *s != ResponseStep::More).unwrap_or(ResponseStep::More);
        assert_eq!(outcome(last, &pieced_head, bytes), want, "byte by byte");
        match step {
            ResponseStep::Done { len } => {
                let line = String::from_utf8_lossy(head.status_line.of(bytes)).into_owned();
                Ok((head.status, line, len))
            }
            ResponseStep::More => Err("more".to_owned()),
            ResponseStep::Bad(error) => Err(error.message(bytes)),
        }
    }

    #[test]
    fn heads_of_gateways() {
        let strict = |buf| gateway(ResponseParser::of_gateway, buf);
        let found = |status, line: &str, len| Ok((status, line.to_owned(), len));
        assert_eq!(strict("Status: 404 Not Found\r\n\r\nx"), found(404, "404 Not Found", 25));
        assert_eq!(strict("Status: 500\n\n"), found(500, "", 13));
        assert_eq!(strict("Location: /x\r\n\r\n"), found(302, "", 16));
        assert_eq!(strict("A: b\r\n\r\n"), found(200, "", 8));
        assert_eq!(strict("\r\n"), found(200, "", 2));
        let invalid = |value: &str| Err(format!("upstream sent invalid status \"{value}\""));
        assert_eq!(strict("Status: OK\r\n\r\n"), invalid("OK"));
        assert_eq!(strict("Status: 20\r\n\r\n"), invalid("20"));
        assert_eq!(strict("Status: 2x0 y\r\n\r\n"), invalid("2x0 y"));
        // A status line is passed over where none is due.
        assert_eq!(strict("HTTP/1.1 404 No\r\nStatus: 201 C\r\n\r\n"), found(201, "201 C", 34));
        let lenient = |buf| gateway(ResponseParser::of_lenient_gateway, buf);
        assert_eq!(lenient("HTTP/1.1 404 No\r\nStatus: 201 C\r\n\r\n"), found(404, "404 No", 34));
        assert_eq!(lenient("HTTP/1.1\r\nStatus: 201 C\r\n\r\n"), found(201, "201 C", 27));
        assert_eq!(lenient("Host: x\r\n\r\n"), found(200, "", 11));
        assert_eq!(lenient("\r\n"), found(200, "", 2));
        assert_eq!(lenient("H"), Err("more".to_owned()));
    }

    #[test]
    fn repeated_status_lines_are_passed_over() {
        let mut buf = b"HTTP/1.1 200 OK\r\n".to_vec();
        for _ in 0..50_000 {
            buf.extend_from_slice(b"HTTP/1.1 200 OK\r\nHTTP/x:y\n");
        }
        buf.extend_from_slice(b"A: b\r\nHTTP: c\r\n\r\n");
        let mut head = ResponseHead::new();
        let step = ResponseParser::new().parse(&buf, &mut head);
        assert_eq!(step, ResponseStep::Done { len: buf.len() });
        assert_eq!(head.fields.len(), 2);
        check(b"HTTP/1.1 200 OK\r\nHTTP/1.1 200 OK\r\nHTTP/x: y\r\nA: b\r\n\r\n");
    }
}
