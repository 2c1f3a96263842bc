//! The faults of response heads, in nginx's words.

use std::fmt::Write;

use crate::h1::error::show;
use crate::h1::head::{Field, Span};

/// A refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseError {
    /// The fault.
    pub kind: ResponseErrorKind,
    pub(super) name: Span,
    pub(super) value: Span,
    pub(super) previous: (Span, Span),
}

/// The faults of a response head.
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
    /// The status is below 100, or the Status field of a gateway does not begin with one.
    InvalidStatus,
    /// More bytes or fields than positions can count.
    TooLarge,
}

impl ResponseError {
    #[cold]
    pub(super) fn new(kind: ResponseErrorKind, field: &Field) -> ResponseError {
        let none = Span::default();
        ResponseError { kind, name: field.name, value: field.value, previous: (none, none) }
    }

    #[cold]
    pub(super) fn bare(kind: ResponseErrorKind) -> ResponseError {
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

/// nginx's text at level warn for a field that is left out because it repeats an earlier one.
pub fn ignored_message(field: &Field, first: &Field, buf: &[u8]) -> String {
    let mut out = String::from("upstream sent duplicate header line: \"");
    show_field((field.name, field.value), buf, &mut out);
    out.push_str(", previous value: \"");
    show_field((first.name, first.value), buf, &mut out);
    out.push_str(", ignored");
    out
}
