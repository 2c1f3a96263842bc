//! Encodes spans, and the beginning of the export request.

use std::borrow::Cow;

use super::wire::{bytes_len, varint_len, write_bytes, write_fixed64, write_head, write_number};

/// The side of an exchange that a span is of: the numbers of `SpanKind`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Side {
    /// A request to this server.
    Server = 2,
    /// A request by this server.
    Client = 3,
}

/// `STATUS_CODE_ERROR`
const STATUS_ERROR: u64 = 2;

/// The initial capacity for a span, in bytes: enough for attributes of usual length.
const SPAN_ROOM: usize = 640;

/// The value of an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// A string. Invalid UTF-8 is replaced, because collectors reject the whole request for it.
    Text(&'a [u8]),
    /// A number.
    Number(i64),
    /// An array of one string.
    Texts(&'a [u8]),
}

/// A span without its attributes.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// The id of the trace.
    pub trace_id: [u8; 16],
    /// The id of the span.
    pub span_id: [u8; 8],
    /// The id of the parent span, if there is one.
    pub parent_id: Option<[u8; 8]>,
    /// `tracestate`; may be empty.
    pub state: &'a [u8],
    /// Its name; may be empty.
    pub name: &'a [u8],
    /// Its kind.
    pub side: Side,
    /// Nanoseconds since 1970.
    pub start_ns: u64,
    /// Nanoseconds since 1970.
    pub end_ns: u64,
}

/// Encodes spans one after another; the buffer is reused.
#[derive(Default)]
pub struct SpanWriter(Vec<u8>);

impl SpanWriter {
    /// Starts a span.
    pub fn begin(&mut self, span: &Span<'_>) {
        let out = &mut self.0;
        out.clear();
        out.reserve(SPAN_ROOM);
        write_bytes(out, 1, &span.trace_id);
        write_bytes(out, 2, &span.span_id);
        if !span.state.is_empty() {
            write_bytes(out, 3, text(span.state).as_bytes());
        }
        if let Some(parent) = span.parent_id {
            write_bytes(out, 4, &parent);
        }
        if !span.name.is_empty() {
            write_bytes(out, 5, text(span.name).as_bytes());
        }
        write_number(out, 6, span.side as u64);
        write_fixed64(out, 7, span.start_ns);
        write_fixed64(out, 8, span.end_ns);
    }

    /// Adds an attribute.
    pub fn attribute(&mut self, name: &[u8], value: Value<'_>) {
        key_value(&mut self.0, 9, name, value);
    }

    /// Sets the status of the span to error.
    pub fn error(&mut self) {
        write_head(&mut self.0, 15, 2);
        write_number(&mut self.0, 3, STATUS_ERROR);
    }

    /// The encoded length of the span that [`SpanWriter::end`] will append, in bytes.
    pub fn len(&self) -> usize {
        bytes_len(self.0.len())
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Finishes the span and appends it to `spans`.
    pub fn end(&mut self, spans: &mut Vec<u8>) {
        write_bytes(spans, 2, &self.0);
        // Frees a buffer that one long value has enlarged.
        if self.0.capacity() > 16 * SPAN_ROOM {
            self.0 = Vec::new();
        }
        self.0.clear();
    }
}

/// Converts to UTF-8; invalid sequences become U+FFFD.
pub(super) fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Appends a `KeyValue` as field `field` of the enclosing message.
pub(super) fn key_value(out: &mut Vec<u8>, field: u8, name: &[u8], value: Value<'_>) {
    let name = text(name);
    let texts = match value {
        Value::Text(value) | Value::Texts(value) => text(value),
        Value::Number(_) => Cow::Borrowed(""),
    };
    let of_text = bytes_len(texts.len());
    let any = match value {
        Value::Text(_) => of_text,
        Value::Number(number) => 1 + varint_len(number.cast_unsigned()),
        Value::Texts(_) => bytes_len(bytes_len(of_text)),
    };
    write_head(out, field, bytes_len(name.len()) + bytes_len(any));
    write_bytes(out, 1, name.as_bytes());
    write_head(out, 2, any);
    match value {
        Value::Text(_) => write_bytes(out, 1, texts.as_bytes()),
        Value::Number(number) => write_number(out, 3, number.cast_unsigned()),
        Value::Texts(_) => {
            write_head(out, 5, bytes_len(of_text));
            write_head(out, 1, of_text);
            write_bytes(out, 1, texts.as_bytes());
        }
    }
}

/// The encoded resource and instrumentation scope of all spans.
#[derive(Clone, Debug, Default)]
pub struct Resource {
    resource: Vec<u8>,
    scope: Vec<u8>,
}

impl Resource {
    /// Encodes the resource attributes, and the name and version of the instrumenting program.
    pub fn new<'a>(
        attributes: impl Iterator<Item = (&'a [u8], &'a [u8])>,
        name: &str,
        version: &str,
    ) -> Resource {
        let mut of = Resource::default();
        for (name, value) in attributes {
            key_value(&mut of.resource, 1, name, Value::Text(value));
        }
        write_bytes(&mut of.scope, 1, name.as_bytes());
        write_bytes(&mut of.scope, 2, version.as_bytes());
        of
    }
}

/// The beginning of an `ExportTraceServiceRequest`, which is followed by `spans_len` bytes of
/// spans.
pub fn request_head(of: &Resource, spans_len: usize) -> Vec<u8> {
    let (resource, scope) = (&of.resource, &of.scope);
    let scope_spans = bytes_len(scope.len()) + spans_len;
    let resource_spans = bytes_len(resource.len()) + bytes_len(scope_spans);
    let mut out = Vec::with_capacity(resource.len() + scope.len() + 48);
    write_head(&mut out, 1, resource_spans);
    write_bytes(&mut out, 1, resource);
    write_head(&mut out, 2, scope_spans);
    write_bytes(&mut out, 1, scope);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span<'_> = Span {
        trace_id: [0xa1; 16],
        span_id: [0xb2; 8],
        parent_id: None,
        state: b"",
        name: b"/a",
        side: Side::Server,
        start_ns: 1,
        end_ns: 0x0102_0304_0506_0708,
    };

    fn written(span: &Span<'_>, more: impl FnOnce(&mut SpanWriter)) -> Vec<u8> {
        let (mut writer, mut out) = (SpanWriter::default(), Vec::new());
        writer.begin(span);
        more(&mut writer);
        let len = writer.len();
        writer.end(&mut out);
        assert_eq!(out.len(), len);
        out
    }

    #[test]
    fn a_span_is_these_bytes() {
        let mut want = vec![0x12, 0x34, 0x0a, 16];
        want.extend([0xa1; 16]);
        want.extend([0x12, 8]);
        want.extend([0xb2; 8]);
        want.extend(b"\x2a\x02/a\x30\x02\x39\x01\0\0\0\0\0\0\0");
        want.extend(b"\x41\x08\x07\x06\x05\x04\x03\x02\x01");
        assert_eq!(written(&SPAN, |_| ()), want);
    }

    #[test]
    fn parents_states_and_errors_are_written_where_they_are() {
        let span = Span { parent_id: Some([7; 8]), state: b"a=b", ..SPAN };
        let out = written(&span, SpanWriter::error);
        let has = |part: &[u8]| out.windows(part.len()).any(|w| w == part);
        assert!(has(b"\x1a\x03a=b\x22\x08\x07\x07\x07\x07\x07\x07\x07\x07\x2a\x02/a"));
        assert!(out.ends_with(b"\x7a\x02\x18\x02"));
    }

    #[test]
    fn attributes_have_their_types() {
        let attribute = |name: &str, value: Value<'_>| {
            let bare = written(&SPAN, |_| ()).len();
            let out = written(&SPAN, |w| w.attribute(name.as_bytes(), value));
            out[bare..].to_vec()
        };
        assert_eq!(attribute("k", Value::Text(b"v")), b"\x4a\x08\x0a\x01k\x12\x03\x0a\x01v");
        assert_eq!(attribute("k", Value::Number(200)), b"\x4a\x08\x0a\x01k\x12\x03\x18\xc8\x01");
        assert_eq!(
            attribute("k", Value::Texts(b"v")),
            b"\x4a\x0c\x0a\x01k\x12\x07\x2a\x05\x0a\x03\x0a\x01v"
        );
        // A negative number takes ten bytes.
        assert_eq!(attribute("k", Value::Number(-1)).len(), 2 + 3 + 2 + 11);
        assert_eq!(
            attribute("k", Value::Text(b"a\xffb")),
            b"\x4a\x0c\x0a\x01k\x12\x07\x0a\x05a\xef\xbf\xbdb"
        );
    }

    #[test]
    fn a_request_frames_its_spans() {
        let attributes = [(&b"service.name"[..], &b"s"[..])];
        let of = Resource::new(attributes.into_iter(), "n", "1");
        let head = request_head(&of, 3);
        let mut want = vec![0x0a, 36];
        want.extend(b"\x0a\x15\x0a\x13\x0a\x0cservice.name\x12\x03\x0a\x01s");
        want.extend(b"\x12\x0b\x0a\x06\x0a\x01n\x12\x011");
        assert_eq!(head, want);
    }
}
