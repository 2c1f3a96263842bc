//! Request heads: the request line, the fields, and the framing of the body that they declare.

use super::Step;
use super::error::{H1Error, H1ErrorKind, Stage};
use super::field::FieldId;
use super::head::{Field, Head, HostRef, Span, TargetForm, Version};
use super::limits::{Limits, Packing};
use super::line::{LineStep, RequestLine};
use super::lines::{Line, Lines, RawField};
use crate::uri::{self, validate_host};

/// Reads request heads. One value serves all requests of a connection: after `Done` or `Bad` the
/// next call begins a new head at offset 0 of its buffer.
#[derive(Clone, Debug, Default)]
pub struct HeadParser {
    stage: At,
    pos: usize,
    /// Field lines that count for `max_headers`.
    counted: u32,
    /// A field line was read.
    any_line: bool,
    line: RequestLine,
    lines: Lines,
    packing: Packing,
    /// Limits of the server that the host selected, in place of the caller's.
    own_limits: Option<Limits>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum At {
    #[default]
    Fresh,
    Line,
    Fields,
}

impl HeadParser {
    /// A parser at the start of a head.
    pub fn new() -> HeadParser {
        HeadParser::default()
    }

    /// Forgets a head that was begun.
    pub fn reset(&mut self) {
        *self = HeadParser::default();
    }

    /// Whether no byte of a head was seen yet (empty lines before it aside).
    pub fn is_fresh(&self) -> bool {
        match self.stage {
            At::Fresh => true,
            At::Line => self.line.start().is_none(),
            At::Fields => false,
        }
    }

    /// True once the request line is complete: the log's action is then "reading client request
    /// headers".
    pub fn in_fields(&self) -> bool {
        self.stage == At::Fields
    }

    /// Bytes of the lines that are whole and were taken, in the head that is being read.
    pub fn taken(&self) -> usize {
        if self.stage == At::Fields { self.lines.start() } else { 0 }
    }

    /// Continues. `buf` holds the head from its first byte on: the bytes of the last call, then the
    /// new ones; `head` is the same as before, too.
    pub fn parse(&mut self, buf: &[u8], limits: &Limits, head: &mut Head) -> Step {
        self.parse_with(buf, limits, head, |_, _| None)
    }

    /// [`HeadParser::parse`] that calls `on_host` once the host is known, which is before the other
    /// fields are read. The limits it returns, those of the virtual server, hold from there on.
    #[inline]
    pub fn parse_with(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        head: &mut Head,
        mut on_host: impl FnMut(&HostRef, &[u8]) -> Option<Limits>,
    ) -> Step {
        if self.stage == At::Fresh {
            head.clear();
            self.packing = Packing::new(limits);
            self.stage = At::Line;
        }
        let step = match self.run(buf, limits, head, &mut on_host) {
            Ok(step) => step,
            Err(error) => Step::Bad(self.refused(error, buf)),
        };
        if step != Step::More {
            self.reset();
        }
        step
    }

    fn run(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        head: &mut Head,
        on_host: &mut impl FnMut(&HostRef, &[u8]) -> Option<Limits>,
    ) -> Result<Step, H1Error> {
        let mut limits = self.own_limits.unwrap_or(*limits);
        if buf.len() >= u32::MAX as usize {
            return Err(H1Error::field(H1ErrorKind::TooLarge, Span::default()));
        }
        if self.stage == At::Line {
            if !self.request_line(buf, &limits, head)? {
                return Ok(Step::More);
            }
            if let Some(host) = &head.host {
                self.own_limits = on_host(host, buf);
                limits = self.own_limits.unwrap_or(limits);
            }
            if head.version < Version::HTTP_10 {
                return Ok(Step::Done { len: self.pos });
            }
            self.stage = At::Fields;
        }
        loop {
            match self.lines.next(buf, &mut self.pos) {
                Line::Field(raw) => {
                    if self.field(raw, buf, &limits, head)?
                        && let Some(host) = &head.host
                    {
                        self.own_limits = on_host(host, buf);
                        limits = self.own_limits.unwrap_or(limits);
                    }
                }
                Line::End => {
                    self.fits(self.pos - 1, buf, &limits)?;
                    finish(head, buf)?;
                    return Ok(Step::Done { len: self.pos });
                }
                Line::More => {
                    self.fits(self.pos, buf, &limits)?;
                    return Ok(Step::More);
                }
                Line::Bad { sound } => {
                    self.fits(self.pos, buf, &limits)?;
                    let shown = Span::new(self.lines.start(), sound);
                    return Err(H1Error::invalid_line(shown));
                }
            }
        }
    }

    /// Records the position of the refusal.
    #[cold]
    fn refused(&self, mut error: H1Error, buf: &[u8]) -> H1Error {
        use H1ErrorKind::{FieldTooLong, Invalid09Method, InvalidFieldLine, TooLarge, UriTooLong};
        let is_cut = match error.kind {
            FieldTooLong | Invalid09Method | InvalidFieldLine | TooLarge | UriTooLong => true,
            _ => self.pos == 0 || buf.get(self.pos - 1) != Some(&b'\n'),
        };
        error.read = if is_cut { self.taken() } else { self.pos } as u32;
        error
    }

    /// Reads the request line; true when it is complete.
    #[inline]
    fn request_line(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        head: &mut Head,
    ) -> Result<bool, H1Error> {
        let found = self.line.next(buf, &mut self.pos, head);
        let Some(start) = self.line.start() else {
            return match found {
                LineStep::Bad(kind) => {
                    head.line = shown_line(buf, self.pos);
                    Err(H1Error::line(kind))
                }
                _ => Ok(false),
            };
        };
        if start > 0 {
            self.packing = Packing::new(limits);
            self.packing.skip(start, limits);
        }
        let last = if matches!(found, LineStep::Done) { self.pos - 1 } else { self.pos };
        let room = self.packing.capacity(limits);
        if last - start >= room {
            head.line = shown_line(buf.get(..start + room).unwrap_or(buf), start);
            return Err(H1Error::line(H1ErrorKind::UriTooLong));
        }
        match found {
            LineStep::More => return Ok(false),
            LineStep::Bad(kind) => {
                head.line = shown_line(buf, start);
                return Err(H1Error::line(kind));
            }
            LineStep::Done => self.packing.store(self.pos - start, limits),
        }
        // Here and not when the path is made: the fields of such a request are not waited for.
        if !head.plain_path && uri::check(head.target.of(buf)).is_err() {
            return Err(H1Error::line(H1ErrorKind::InvalidRequest));
        }
        if matches!(head.form, TargetForm::Absolute | TargetForm::Authority) {
            match host_of(head.authority, buf) {
                Some(host) => head.host = Some(host),
                None => return Err(H1Error::line(H1ErrorKind::InvalidHostInLine)),
            }
        }
        Ok(true)
    }

    /// Checks that the byte at offset `last` of the current line still has room.
    #[inline]
    fn fits(&self, last: usize, buf: &[u8], limits: &Limits) -> Result<(), H1Error> {
        let (start, room) = (self.lines.start(), self.packing.capacity(limits));
        if last - start < room {
            return Ok(());
        }
        let kind = if self.any_line || room > 0 {
            H1ErrorKind::FieldTooLong
        } else {
            H1ErrorKind::TooLarge
        };
        Err(H1Error::field(kind, Span::new(start, (start + room).min(buf.len()))))
    }

    /// Adds a field; true when it names the host.
    #[inline]
    fn field(
        &mut self,
        raw: RawField,
        buf: &[u8],
        limits: &Limits,
        head: &mut Head,
    ) -> Result<bool, H1Error> {
        self.fits(self.pos - 1, buf, limits)?;
        self.packing.store(self.pos - self.lines.start(), limits);
        self.any_line = true;
        let flagged = raw.invalid | raw.underscore;
        let id = if flagged { FieldId::Other } else { FieldId::lookup(raw.name.of(buf)) };
        let dropped =
            (raw.invalid | (raw.underscore & !limits.underscores)) & limits.ignore_invalid;
        let field = Field {
            name: raw.name,
            value: raw.value,
            id,
            invalid: raw.invalid,
            dropped,
            ignored: false,
        };
        head.any_dropped |= dropped;
        if !dropped {
            self.counted += 1;
        }
        if self.counted > limits.max_headers || head.fields.len() >= u16::MAX as usize {
            return Err(H1Error::field(H1ErrorKind::TooManyFields, Span::default()));
        }
        let host_known = head.host.is_some();
        if id != FieldId::Other {
            known_field(&field, buf, head)?;
        }
        head.fields.push(field);
        Ok(head.host.is_some() && !host_known)
    }
}

/// Records a field that has an id, before it is added to the list.
pub(crate) fn known_field(field: &Field, buf: &[u8], head: &mut Head) -> Result<(), H1Error> {
    if let Some(previous) = head.fields.get(field.id) {
        if field.id.is_unique_in_request() {
            return Err(H1Error::duplicate(field, previous));
        }
    } else {
        head.fields.next_is_first(field.id);
    }
    match field.id {
        FieldId::Host => match host_of(field.value, buf) {
            None => {
                // For the log.
                head.fields.push(*field);
                return Err(H1Error::field(H1ErrorKind::InvalidHostField, field.value));
            }
            // The host of an absolute target takes precedence (RFC 9112 section 3.2.2).
            Some(host) => head.host = head.host.or(Some(host)),
        },
        FieldId::Connection => head.connection.add(field.value.of(buf)),
        _ => {}
    }
    Ok(())
}

/// Takes the host that stands in the request's line; false where it is none. The next field is the
/// first `Host`.
pub(crate) fn host_of_line(span: Span, buf: &[u8], head: &mut Head) -> bool {
    let Some(host) = host_of(span, buf) else { return false };
    head.fields.next_is_first(FieldId::Host);
    head.host = head.host.or(Some(host));
    true
}

fn host_of(span: Span, buf: &[u8]) -> Option<HostRef> {
    let host = validate_host(span.of(buf))?;
    let name = Span { start: span.start, end: span.start + host.name_len as u32 };
    Some(HostRef { name, port: host.port, has_upper: host.has_upper })
}

/// The checks that need all fields, in nginx's order.
#[inline]
fn finish(head: &mut Head, buf: &[u8]) -> Result<(), H1Error> {
    let refuse = |kind| Err(H1Error::field(kind, Span::default()));
    if head.version > Version::HTTP_10 && !head.fields.has(FieldId::Host) {
        return refuse(H1ErrorKind::NoHost);
    }
    if let Some(value) = head.value(FieldId::ContentLength, buf) {
        head.content_length = parse_length(value);
        if head.content_length.is_none() {
            return refuse(H1ErrorKind::InvalidContentLength);
        }
    }
    if let Some(field) = head.fields.get(FieldId::TransferEncoding) {
        if head.version < Version::HTTP_11 {
            return refuse(H1ErrorKind::TransferEncodingIn10);
        }
        if !field.value.of(buf).eq_ignore_ascii_case(b"chunked") {
            return Err(H1Error::field(H1ErrorKind::UnknownTransferEncoding, field.value));
        }
        if head.content_length.is_some() {
            return refuse(H1ErrorKind::LengthAndEncoding);
        }
        head.chunked = true;
    }
    if let Some(value) = head.value(FieldId::Expect, buf) {
        head.expect_continue =
            head.version > Version::HTTP_10 && value.eq_ignore_ascii_case(b"100-continue");
    }
    Ok(())
}

/// A length: digits only, at most 2^63 - 1.
pub(crate) fn parse_length(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    if value <= i64::MAX as u64 { Some(value) } else { None }
}

/// The part of a malformed line that the log shows: up to its end, or to the last byte that came.
#[cold]
fn shown_line(buf: &[u8], start: usize) -> Span {
    let rest = buf.get(start..).unwrap_or(&[]);
    let len = memchr::memchr2(b'\r', b'\n', rest).unwrap_or(rest.len());
    Span::new(start, start + len)
}

impl H1Error {
    #[cold]
    fn invalid_line(shown: Span) -> H1Error {
        let mut error = H1Error::field(H1ErrorKind::InvalidFieldLine, shown);
        error.value = Span { start: shown.end, end: shown.end + 1 };
        error
    }

    #[cold]
    fn duplicate(field: &Field, previous: &Field) -> H1Error {
        let kind = if field.id == FieldId::Host {
            H1ErrorKind::DuplicateHost
        } else {
            H1ErrorKind::DuplicateField
        };
        let mut error = H1Error::field(kind, field.name);
        error.stage = Stage::Headers;
        error.value = field.value;
        error.previous = (previous.name, previous.value);
        error
    }
}
