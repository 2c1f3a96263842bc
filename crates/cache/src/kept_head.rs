//! The head of a response as it is kept.

use bytes::Bytes;
use http_wire::h1::{FieldId, ResponseHead, ResponseParser, ResponseStep};

use crate::file_header::Header;

/// The head of a response whose body is not all there yet.
pub fn parsed(header: &Header) -> Option<ResponseHead> {
    let mut head = ResponseHead::new();
    let Some(text) = &header.head else { return Some(head) };
    let step = ResponseParser::new().parse(text, &mut head);
    matches!(step, ResponseStep::Done { .. }).then_some(head)
}

/// The length of its body that it tells.
pub fn length(header: &Header) -> Option<u64> {
    parsed(header)?.content_length
}

/// The head of a response as it is kept, as text: without the fields of the hop to the upstream.
pub fn head_text(head: &ResponseHead, text: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(text.len() + 32);
    status_line(&mut out, head, text);
    for field in head.fields.iter().filter(|f| !f.ignored) {
        let hop = matches!(
            field.id,
            FieldId::TransferEncoding | FieldId::Connection | FieldId::KeepAlive
        );
        if hop || field.id == FieldId::ContentLength && head.content_length.is_none() {
            continue;
        }
        out.extend_from_slice(field.name.of(text));
        out.extend_from_slice(b": ");
        out.extend_from_slice(field.value.of(text));
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Bytes::from(out)
}

/// The first line of a head as it is kept.
pub(crate) fn status_line(out: &mut Vec<u8>, head: &ResponseHead, text: &[u8]) {
    out.extend_from_slice(b"HTTP/1.1 ");
    let line = head.status_line.of(text);
    if line.len() >= 3 {
        out.extend_from_slice(line);
    } else {
        base::ascii::write_u64(out, head.status.into());
        out.push(b' ');
        out.extend_from_slice(http_wire::h1::reason(head.status).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}
