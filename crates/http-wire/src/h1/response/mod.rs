//! Response heads of upstreams: the status line, the fields, and the framing of the body that they
//! declare.
//!
//! ```text
//! Name ─► Major ─► Minor ─► BeforeStatus ─► Status ─► AfterStatus ─► Reason ─► Cr ─► (fields)
//! ```

mod error;
mod head;

pub use self::error::{ResponseError, ResponseErrorKind, ignored_message};
pub use self::head::ResponseHead;
use crate::h1::field::FieldId;
use crate::h1::head::{Field, Span, Version};
use crate::h1::lines::{Line, Lines, RawField};
use crate::h1::request::parse_length;
use crate::h1::scan::value_end;

/// The result of parsing the present bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseStep {
    /// The head is complete; it took the first `len` bytes of the buffer. An interim response (1xx)
    /// is a head as well: the next one follows it.
    Done {
        /// Bytes of the buffer that belong to the head.
        len: usize,
    },
    /// The head is not complete: call again with more bytes behind the present ones.
    More,
    /// The head is refused.
    Bad(ResponseError),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum StatusLineState {
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

/// The first line of a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begin {
    StatusLine,
    /// A status line, or with the fields at once.
    Either,
    Fields,
}

/// Reads response heads. After `Done` or `Bad` the next call begins a new head at offset 0 of its
/// buffer.
#[derive(Clone, Debug)]
pub struct ResponseParser {
    begin: Begin,
    state: StatusLineState,
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

    /// The parser of gateways' heads (RFC 3875 section 6): there is no status line but a Status
    /// field, or a Location that stands for 302; otherwise the status is 200.
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
            state: StatusLineState::Fresh,
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

    /// Continues. `buf` holds the head from its first byte on: the bytes of the last call, then the
    /// new ones; `head` is the same as before, too. The caller limits the buffer.
    pub fn parse(&mut self, buf: &[u8], head: &mut ResponseHead) -> ResponseStep {
        if self.state == StatusLineState::Fresh {
            head.clear();
            self.state = match self.begin {
                Begin::Fields => StatusLineState::Fields,
                Begin::StatusLine | Begin::Either => StatusLineState::Name,
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
        if self.state == StatusLineState::Name && self.pos == 0 && self.usual_status_line(buf, head)
        {
            self.versions(head)?;
        }
        while self.state != StatusLineState::Fields {
            let Some(&byte) = buf.get(self.pos) else { return Ok(ResponseStep::More) };
            self.state = match self.status_line(byte, head) {
                Some(state) => state,
                None if self.begin == Begin::Either => {
                    head.clear();
                    self.pos = 0;
                    self.state = StatusLineState::Fields;
                    break;
                }
                None => return Err(ResponseError::bare(ResponseErrorKind::NoStatusLine)),
            };
            self.pos += 1;
            if self.state == StatusLineState::Fields {
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
        if head.status < 100 {
            let mut error = ResponseError::bare(ResponseErrorKind::InvalidStatus);
            error.value = head.status_line;
            return Err(error);
        }
        if head.status == 103 && head.version < Version::HTTP_11 {
            return Err(ResponseError::bare(ResponseErrorKind::EarlyHintsIn10));
        }
        Ok(())
    }

    /// Reads the common form of a status line, if it is complete; any other one is left for the
    /// state machine.
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
        self.state = StatusLineState::Fields;
        true
    }

    /// The state behind a byte of the status line; none for a byte out of place.
    #[inline]
    fn status_line(&mut self, byte: u8, head: &mut ResponseHead) -> Option<StatusLineState> {
        const NAME: &[u8; 5] = b"HTTP/";
        let digit = byte.wrapping_sub(b'0');
        Some(match (self.state, byte) {
            (StatusLineState::Name, _) if NAME.get(self.pos) == Some(&byte) => {
                if byte == b'/' {
                    StatusLineState::MajorStart
                } else {
                    StatusLineState::Name
                }
            }
            (StatusLineState::MajorStart, b'1'..=b'9') => {
                self.major = u16::from(digit);
                StatusLineState::Major
            }
            (StatusLineState::Major, b'.') => StatusLineState::MinorStart,
            (StatusLineState::Major, b'0'..=b'9') if self.major < 100 => {
                self.major = self.major * 10 + u16::from(digit);
                StatusLineState::Major
            }
            (StatusLineState::MinorStart, b'0'..=b'9') => {
                self.minor = u16::from(digit);
                StatusLineState::Minor
            }
            (StatusLineState::Minor, b'0'..=b'9') if self.minor < 100 => {
                self.minor = self.minor * 10 + u16::from(digit);
                StatusLineState::Minor
            }
            (StatusLineState::Minor | StatusLineState::BeforeStatus, b' ') => {
                StatusLineState::BeforeStatus
            }
            (StatusLineState::BeforeStatus, b'0'..=b'9') => {
                head.status = u16::from(digit);
                head.status_line = Span::new(self.pos, self.pos + 1);
                StatusLineState::Status
            }
            (StatusLineState::Status, b'0'..=b'9') => {
                head.status = head.status * 10 + u16::from(digit);
                head.status_line.end = self.pos as u32 + 1;
                if head.status_line.len() == 3 {
                    StatusLineState::AfterStatus
                } else {
                    StatusLineState::Status
                }
            }
            // Some servers add a second code behind a dot.
            (StatusLineState::AfterStatus, b' ' | b'.') => StatusLineState::Reason,
            (StatusLineState::AfterStatus | StatusLineState::Reason, b'\r') => {
                head.status_line.end = self.pos as u32;
                StatusLineState::Cr
            }
            (StatusLineState::AfterStatus | StatusLineState::Reason, b'\n') => {
                head.status_line.end = self.pos as u32;
                StatusLineState::Fields
            }
            (StatusLineState::Reason, 1..) => StatusLineState::Reason,
            (StatusLineState::Cr, b'\n') => StatusLineState::Fields,
            _ => return None,
        })
    }
}

/// The status of a head without a status line.
fn gateway_status(buf: &[u8], head: &mut ResponseHead) -> Result<(), ResponseError> {
    head.status = 200;
    if let Some(field) = head.fields.get(FieldId::Status).copied() {
        let value = field.value.of(buf);
        let code = value.get(..3).filter(|code| code.iter().all(u8::is_ascii_digit));
        let code = code.and_then(base::ascii::parse_u64).filter(|code| *code >= 100);
        let invalid = || ResponseError::new(ResponseErrorKind::InvalidStatus, &field);
        head.status = u16::try_from(code.ok_or_else(invalid)?).map_err(|_| invalid())?;
        if value.len() > 3 {
            head.status_line = field.value;
        }
    } else if head.fields.has(FieldId::Location) {
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

/// Adds a field of another protocol's head, whose text is in `buf`.
///
/// # Errors
/// Its value contradicts the head.
pub(crate) fn add_response_field(
    name: Span,
    value: Span,
    buf: &[u8],
    head: &mut ResponseHead,
) -> Result<(), ResponseError> {
    field(RawField { name, value, ..RawField::default() }, buf, head)
}

#[inline(always)]
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
        let first = head.fields.get(id).copied();
        if first.is_none() {
            head.fields.next_is_first(id);
        }
        // Fields of early hints are passed on, and say nothing about a body.
        if head.status != 103 {
            field.ignored = first.is_some() && counts_once(id);
            if matches!(
                id,
                FieldId::Connection | FieldId::ContentLength | FieldId::TransferEncoding
            ) {
                framing_field(&field, first, buf, head)?;
            }
        }
    }
    head.fields.push(field);
    Ok(())
}

/// A field that says where the body ends, or the connection.
fn framing_field(
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
    if head.fields.has(other) {
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
mod tests;
