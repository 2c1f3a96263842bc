//! Why a head was refused: the status for the client, and the text for the error log.

use super::head::Span;
use std::fmt::Write;

/// The part of the head under parse; names the action in the log's suffix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// `while reading client request line`.
    RequestLine,
    /// `while reading client request headers`.
    Headers,
}

impl Stage {
    /// nginx's text behind the message, after `while `.
    pub fn action(self) -> &'static str {
        match self {
            Stage::RequestLine => "reading client request line",
            Stage::Headers => "reading client request headers",
        }
    }
}

/// A refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct H1Error {
    /// The fault.
    pub kind: H1ErrorKind,
    /// The part of the head with the fault.
    pub stage: Stage,
    /// Bytes of the lines before the refused one, and of that one too where it was read to its end:
    /// nginx's count for `$request_length`.
    pub read: u32,
    /// The line, or the field, that is shown in the log text.
    pub(super) shown: Span,
    /// For a duplicate, the value of `shown`; for an invalid character, its offset.
    pub(super) value: Span,
    /// For a duplicate, the field that came first.
    pub(super) previous: (Span, Span),
}

/// The faults of a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum H1ErrorKind {
    /// A character that no method has.
    InvalidMethod,
    /// Anything else in the request line.
    InvalidRequest,
    /// A major version other than 1.
    InvalidVersion,
    /// HTTP/0.9 knows GET only.
    Invalid09Method,
    /// The request line does not fit.
    UriTooLong,
    /// The host in the request line is no host.
    InvalidHostInLine,
    /// The Host field is no host.
    InvalidHostField,
    /// A second Host.
    DuplicateHost,
    /// A second field of a name that may occur once.
    DuplicateField,
    /// A character that ends the parsing of a field line.
    InvalidFieldLine,
    /// A field line does not fit.
    FieldTooLong,
    /// No buffer is left for another line.
    TooLarge,
    /// More field lines than `max_headers`.
    TooManyFields,
    /// HTTP/1.1 without Host.
    NoHost,
    /// Content-Length is no number, or too large.
    InvalidContentLength,
    /// Transfer-Encoding before HTTP/1.1.
    TransferEncodingIn10,
    /// Both Content-Length and Transfer-Encoding.
    LengthAndEncoding,
    /// A transfer coding other than `chunked`.
    UnknownTransferEncoding,
}

/// Bytes of a too long line that the log shows: the room that nginx leaves of its 2048.
const SHOWN_MAX: usize = 2048 - 300;

impl H1Error {
    #[cold]
    pub(super) fn line(kind: H1ErrorKind) -> H1Error {
        H1Error::new(kind, Stage::RequestLine, Span::default())
    }

    #[cold]
    pub(super) fn field(kind: H1ErrorKind, shown: Span) -> H1Error {
        H1Error::new(kind, Stage::Headers, shown)
    }

    fn new(kind: H1ErrorKind, stage: Stage, shown: Span) -> H1Error {
        H1Error {
            kind,
            stage,
            read: 0,
            shown,
            value: Span::default(),
            previous: (Span::default(), Span::default()),
        }
    }

    /// Whether the refusal came behind the last field: there is no Host field then.
    pub fn is_of_whole_head(&self) -> bool {
        use H1ErrorKind::*;
        matches!(
            self.kind,
            NoHost
                | InvalidContentLength
                | TransferEncodingIn10
                | LengthAndEncoding
                | UnknownTransferEncoding
        )
    }

    /// The status nginx answers with; 494 is its own, sent to the client as 400.
    pub fn status(&self) -> u16 {
        use H1ErrorKind::*;
        match self.kind {
            UriTooLong => 414,
            FieldTooLong | TooLarge | TooManyFields => 494,
            InvalidVersion => 505,
            UnknownTransferEncoding => 501,
            _ => 400,
        }
    }

    /// nginx's text at level info, without the `while …` suffix (see [`Stage::action`]). Control
    /// characters of the client's are shown as `\xNN`.
    pub fn message(&self, buf: &[u8]) -> String {
        use H1ErrorKind::*;
        let text = match self.kind {
            InvalidMethod => "client sent invalid method",
            InvalidRequest => "client sent invalid request",
            InvalidVersion => "client sent invalid version",
            Invalid09Method => "client sent invalid method in HTTP/0.9 request",
            UriTooLong => "client sent too long URI",
            InvalidHostInLine => "client sent invalid host in request line",
            InvalidHostField => "client sent invalid host header",
            TooLarge => "client sent too large request",
            TooManyFields => "client sent too many header lines",
            NoHost => "client sent HTTP/1.1 request without \"Host\" header",
            InvalidContentLength => "client sent invalid \"Content-Length\" header",
            TransferEncodingIn10 => {
                "client sent HTTP/1.0 request with \"Transfer-Encoding\" header"
            }
            LengthAndEncoding => {
                "client sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time"
            }
            DuplicateHost
            | DuplicateField
            | InvalidFieldLine
            | FieldTooLong
            | UnknownTransferEncoding => return self.message_with_bytes(buf),
        };
        text.to_owned()
    }

    fn message_with_bytes(&self, buf: &[u8]) -> String {
        let shown = self.shown.of(buf);
        let mut out = String::new();
        match self.kind {
            H1ErrorKind::InvalidFieldLine => {
                out.push_str("client sent invalid header line: \"");
                show(shown, &mut out);
                let byte = buf.get(self.value.start as usize).copied().unwrap_or(0);
                let _ = write!(out, "\\x{byte:02x}...\"");
            }
            H1ErrorKind::FieldTooLong => {
                out.push_str("client sent too long header line: \"");
                show(shown.get(..SHOWN_MAX).unwrap_or(shown), &mut out);
                out.push_str("...\"");
            }
            H1ErrorKind::UnknownTransferEncoding => {
                out.push_str("client sent unknown \"Transfer-Encoding\": \"");
                show(shown, &mut out);
                out.push('"');
            }
            _ => {
                let what = if self.kind == H1ErrorKind::DuplicateHost {
                    "host header"
                } else {
                    "header line"
                };
                let _ = write!(out, "client sent duplicate {what}: \"");
                show(shown, &mut out);
                out.push_str(": ");
                show(self.value.of(buf), &mut out);
                out.push_str("\", previous value: \"");
                show(self.previous.0.of(buf), &mut out);
                out.push_str(": ");
                show(self.previous.1.of(buf), &mut out);
                out.push('"');
            }
        }
        out
    }
}

/// Adds bytes from a client to a log text: control characters escaped, invalid UTF-8 replaced.
pub fn show(bytes: &[u8], out: &mut String) {
    for c in String::from_utf8_lossy(bytes).chars() {
        if c.is_control() {
            let _ = write!(out, "\\x{:02X}", c as u32);
        } else {
            out.push(c);
        }
    }
}

/// The text for a line that nginx would log and drop under `ignore_invalid_headers`.
pub fn dropped_message(field: &super::Field, buf: &[u8]) -> String {
    let mut out = String::from("client sent invalid header line: \"");
    let end = field.value.end.max(field.name.end);
    show(Span { start: field.name.start, end }.of(buf), &mut out);
    out.push('"');
    out
}
