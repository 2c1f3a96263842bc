//! WebSocket over a stream (RFC 8441, RFC 9220): the client's side. A request for an upgrade, as
//! HTTP/1 has it, becomes an extended CONNECT, and what a server answers to that becomes the answer
//! to an upgrade.

use crate::fields;
use crate::h1::{ResponseHead, Span, add_response_field};

/// The name of the protocol.
pub const NAME: &[u8] = b"websocket";

/// Makes a list of fields, which begins with the pseudo-header fields, that of an extended CONNECT.
/// A key has no meaning there (RFC 8441 section 5.1), nor has the length of a body.
pub fn as_connect(list: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(list.len() + 32);
    for (name, value) in fields::iter(list) {
        match name {
            b":method" => {
                fields::write(&mut out, name, b"CONNECT");
                fields::write(&mut out, b":protocol", NAME);
            }
            b"sec-websocket-key" | b"content-length" => {}
            _ => fields::write(&mut out, name, value),
        }
    }
    out
}

/// Whether a status says that the tunnel stands.
pub fn is_accepted(status: u16) -> bool {
    (200..300).contains(&status)
}

/// Makes a head with such a status the one that says so in HTTP/1. `accept` is the answer to the
/// client's key (RFC 6455 section 4.2.2); `text` is what the head's spans point into.
pub fn as_upgraded(head: &mut ResponseHead, text: &mut Vec<u8>, accept: &[u8]) {
    head.status = 101;
    head.status_line = push(text, b"101 Switching Protocols");
    // Neither a length nor a coding has a meaning there (RFC 9110 section 9.3.6).
    head.content_length = None;
    for (name, value) in [(&b"upgrade"[..], NAME), (b"sec-websocket-accept", accept)] {
        let (name, value) = (push(text, name), push(text, value));
        // Values of these fields are not looked at.
        let _ = add_response_field(name, value, text, head);
    }
}

fn push(text: &mut Vec<u8>, bytes: &[u8]) -> Span {
    let start = text.len();
    text.extend_from_slice(bytes);
    Span::new(start, text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::response::ResponseBuilder;
    use crate::h1::{FieldId, Version};

    #[test]
    fn an_upgrade_becomes_an_extended_connect() {
        let mut list = Vec::new();
        let asked: [(&[u8], &[u8]); 7] = [
            (b":method", b"GET"),
            (b":scheme", b"https"),
            (b":path", b"/chat"),
            (b":authority", b"a"),
            (b"Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
            (b"sec-websocket-protocol", b"v1"),
            (b"content-length", b"0"),
        ];
        for (name, value) in asked {
            fields::write(&mut list, name, value);
        }
        let connect = as_connect(&list);
        let expected: [(&[u8], &[u8]); 6] = [
            (b":method", b"CONNECT"),
            (b":protocol", b"websocket"),
            (b":scheme", b"https"),
            (b":path", b"/chat"),
            (b":authority", b"a"),
            (b"sec-websocket-protocol", b"v1"),
        ];
        assert_eq!(fields::iter(&connect).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn its_answer_becomes_that_to_an_upgrade() {
        let (mut head, mut text) = (ResponseHead::new(), Vec::new());
        let mut builder = ResponseBuilder::new(&mut head, &mut text, 1024, Version::HTTP_20);
        builder.field(b":status", b"200");
        builder.field(b"sec-websocket-protocol", b"v1");
        builder.finish().unwrap();
        assert!(is_accepted(head.status));
        as_upgraded(&mut head, &mut text, b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(
            (head.status, head.status_line.of(&text)),
            (101, &b"101 Switching Protocols"[..])
        );
        assert_eq!(head.value(FieldId::Upgrade, &text), Some(NAME));
        let all: Vec<_> = head.fields.iter().map(|f| f.name.of(&text)).collect();
        let names: [&[u8]; 3] = [b"sec-websocket-protocol", b"upgrade", b"sec-websocket-accept"];
        assert_eq!(all, names);
        assert!([199, 300, 403].iter().all(|status| !is_accepted(*status)));
    }
}
