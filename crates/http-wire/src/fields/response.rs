//! The fields of a header block of HTTP/2, or of a field section of HTTP/3, to a response's head
//! (RFC 9113 section 8.3.2, RFC 9114 section 4.3.2), the one that HTTP/1 fills: what comes behind
//! it knows no protocol. Faults are in nginx's words.

use std::fmt;

use crate::h1::{FieldId, ResponseHead, Span, Version, add_response_field, is_value, show};

/// Why fields make no response, or no trailers. Values are quoted, with escapes; `Display` has
/// nginx's words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BadFields {
    /// More bytes than the limit for response headers.
    TooBig,
    /// More bytes than the limit for trailers.
    TrailersTooBig,
    /// A field comes before `:status`, or there is none.
    NoStatus,
    /// `:status` stands twice.
    DuplicateStatus,
    /// `:status` is not a number of three digits.
    InvalidStatus(String),
    /// 101, which HTTP/2 and HTTP/3 do not have.
    UnexpectedStatus(String),
    /// A pseudo-header other than `:status`.
    InvalidPseudo(String),
    /// A header with characters or a name that responses must not have.
    InvalidHeader(String),
    /// The same for a trailer, or a pseudo-header among them.
    InvalidTrailer(String),
    /// A field without a name.
    EmptyName,
    /// A field that HTTP/1 does not take either, with the message of its parser.
    Field(String),
}

impl fmt::Display for BadFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The parser of HTTP/1 has whole sentences.
        if let BadFields::Field(message) = self {
            return f.write_str(message);
        }
        f.write_str("upstream sent ")?;
        match self {
            BadFields::TooBig => f.write_str("too big header"),
            BadFields::TrailersTooBig => f.write_str("too big trailers"),
            BadFields::NoStatus => f.write_str("no :status header"),
            BadFields::DuplicateStatus => f.write_str("duplicate :status header"),
            BadFields::InvalidStatus(value) => write!(f, "invalid :status {value}"),
            BadFields::UnexpectedStatus(value) => write!(f, "unexpected :status {value}"),
            BadFields::InvalidPseudo(field) => write!(f, "invalid header {field}"),
            BadFields::InvalidHeader(field) => write!(f, "invalid header: {field}"),
            BadFields::InvalidTrailer(field) => write!(f, "invalid trailer {field}"),
            BadFields::EmptyName => f.write_str("zero http2 header name length"),
            BadFields::Field(_) => Ok(()),
        }
    }
}

impl std::error::Error for BadFields {}

/// Makes a head of the fields of a block or section, in the order in which they come. Their text
/// goes to the end of a vector, which must be empty at first: spans of the head point into it.
pub struct ResponseBuilder<'a> {
    head: &'a mut ResponseHead,
    text: &'a mut Vec<u8>,
    room: usize,
    has_status: bool,
    fault: Option<BadFields>,
}

impl<'a> ResponseBuilder<'a> {
    /// Begins a head of HTTP/2 or HTTP/3 whose names and values take `max` bytes at most.
    pub fn new(
        head: &'a mut ResponseHead,
        text: &'a mut Vec<u8>,
        max: usize,
        version: Version,
    ) -> ResponseBuilder<'a> {
        head.clear();
        head.version = version;
        ResponseBuilder { head, text, room: max, has_status: false, fault: None }
    }

    /// Takes a field.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        if self.fault.is_none()
            && let Err(fault) = self.take(name, value)
        {
            self.fault = Some(fault);
        }
    }

    fn take(&mut self, name: &[u8], value: &[u8]) -> Result<(), BadFields> {
        let room = self.room.checked_sub(name.len() + value.len());
        self.room = room.ok_or(BadFields::TooBig)?;
        if name.first() == Some(&b':') {
            return self.status(name, value);
        }
        if !self.has_status {
            return Err(BadFields::NoStatus);
        }
        check(name, value, BadFields::InvalidHeader)?;
        let (name, value) = (self.push(name), self.push(value));
        add_response_field(name, value, self.text, self.head)
            .map_err(|e| BadFields::Field(e.message(self.text)))
    }

    fn push(&mut self, bytes: &[u8]) -> Span {
        let start = self.text.len();
        self.text.extend_from_slice(bytes);
        Span::new(start, self.text.len())
    }

    fn status(&mut self, name: &[u8], value: &[u8]) -> Result<(), BadFields> {
        if name != b":status" {
            return Err(BadFields::InvalidPseudo(shown(name, value)));
        }
        if self.has_status {
            return Err(BadFields::DuplicateStatus);
        }
        let code = match value {
            [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
                let digit = |byte: &u8| u16::from(byte - b'0');
                digit(a) * 100 + digit(b) * 10 + digit(c)
            }
            _ => return Err(BadFields::InvalidStatus(quoted(value))),
        };
        // There is no switch of protocols (RFC 9113 section 8.6, RFC 9114 section 4.5).
        if code == 101 {
            return Err(BadFields::UnexpectedStatus(quoted(value)));
        }
        self.has_status = true;
        self.head.status = code;
        self.head.status_line = self.push(value);
        Ok(())
    }

    /// Ends the head.
    ///
    /// # Errors
    /// The head is not valid.
    pub fn finish(self) -> Result<(), BadFields> {
        match self.fault {
            Some(fault) => Err(fault),
            None if !self.has_status => Err(BadFields::NoStatus),
            None => Ok(()),
        }
    }
}

/// The name and the value of a field behind a body.
pub type Trailer = (Vec<u8>, Vec<u8>);

/// Gathers the fields behind a body (RFC 9113 section 8.1).
#[derive(Debug)]
pub struct TrailerBuilder {
    fields: Vec<Trailer>,
    room: usize,
    fault: Option<BadFields>,
}

impl TrailerBuilder {
    /// Begins a list whose names and values take `max` bytes at most.
    pub fn new(max: usize) -> TrailerBuilder {
        TrailerBuilder { fields: Vec::new(), room: max, fault: None }
    }

    /// Takes a field.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        if self.fault.is_some() {
            return;
        }
        let Some(room) = self.room.checked_sub(name.len() + value.len()) else {
            self.fault = Some(BadFields::TrailersTooBig);
            return;
        };
        self.room = room;
        if name.first() == Some(&b':') {
            self.fault = Some(BadFields::InvalidTrailer(shown(name, value)));
        } else if let Err(fault) = check(name, value, BadFields::InvalidTrailer) {
            self.fault = Some(fault);
        } else {
            self.fields.push((name.to_vec(), value.to_vec()));
        }
    }

    /// The fields.
    ///
    /// # Errors
    /// One of them is not valid.
    pub fn finish(self) -> Result<Vec<Trailer>, BadFields> {
        self.fault.map_or(Ok(self.fields), Err)
    }
}

/// Checks a field's characters: upper case and control characters make a response malformed (RFC
/// 9113 section 8.2.1), as fields of the connection do (section 8.2.2), which no client may hear.
#[inline]
fn check(name: &[u8], value: &[u8], invalid: fn(String) -> BadFields) -> Result<(), BadFields> {
    // Most fields are known, and none of their names has a letter of upper case.
    let id = FieldId::lookup(name);
    let is_harmless = !matches!(
        id,
        FieldId::Connection
            | FieldId::TransferEncoding
            | FieldId::Upgrade
            | FieldId::KeepAlive
            | FieldId::ProxyConnection
    );
    let is_known = id != FieldId::Other && is_harmless && name == id.name().as_bytes();
    if is_known && is_value(value) { Ok(()) } else { check_bytes(name, value, invalid) }
}

fn check_bytes(
    name: &[u8],
    value: &[u8],
    invalid: fn(String) -> BadFields,
) -> Result<(), BadFields> {
    let is_bad_in_name = |b: &u8| matches!(b, b'A'..=b'Z' | ..=0x20 | 0x7f | b':');
    let is_bad_in_value = |b: &u8| matches!(b, 0 | b'\r' | b'\n');
    let is_of_connection = matches!(
        name,
        b"connection" | b"transfer-encoding" | b"upgrade" | b"keep-alive" | b"proxy-connection"
    );
    if name.is_empty() {
        return Err(BadFields::EmptyName);
    }
    if is_of_connection || name.iter().any(is_bad_in_name) || value.iter().any(is_bad_in_value) {
        return Err(invalid(shown(name, value)));
    }
    Ok(())
}

fn quoted(value: &[u8]) -> String {
    let mut out = "\"".to_owned();
    show(value, &mut out);
    out.push('"');
    out
}

fn shown(name: &[u8], value: &[u8]) -> String {
    let mut out = "\"".to_owned();
    show(name, &mut out);
    out.push_str(": ");
    show(value, &mut out);
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(fields: &[(&str, &str)]) -> Result<(ResponseHead, Vec<u8>), BadFields> {
        let (mut head, mut text) = (ResponseHead::new(), Vec::new());
        let mut builder = ResponseBuilder::new(&mut head, &mut text, 100, Version::HTTP_20);
        fields.iter().for_each(|(n, v)| builder.field(n.as_bytes(), v.as_bytes()));
        builder.finish().map(|()| (head, text))
    }

    #[test]
    fn a_head_as_http_1_has_it() {
        let (head, text) =
            built(&[(":status", "404"), ("content-length", "12"), ("x", "y")]).unwrap();
        assert_eq!((head.status, head.content_length), (404, Some(12)));
        assert_eq!(head.status_line.of(&text), b"404");
        assert_eq!(head.value(FieldId::ContentLength, &text), Some(&b"12"[..]));
        assert_eq!(head.fields.len(), 2);
    }

    #[test]
    fn malformed_heads_are_refused_in_nginx_s_words() {
        let status = (":status", "200");
        let large = "x".repeat(100);
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[], "upstream sent no :status header"),
            (&[("a", "b")], "upstream sent no :status header"),
            (&[(":status", "20")], "upstream sent invalid :status \"20\""),
            (&[(":status", "2x0")], "upstream sent invalid :status \"2x0\""),
            (&[(":status", "101")], "upstream sent unexpected :status \"101\""),
            (&[status, status], "upstream sent duplicate :status header"),
            (&[status, (":path", "/")], "upstream sent invalid header \":path: /\""),
            (&[status, ("", "v")], "upstream sent zero http2 header name length"),
            (&[status, ("N", "v")], "upstream sent invalid header: \"N: v\""),
            (&[status, ("n n", "v")], "upstream sent invalid header: \"n n: v\""),
            (&[status, ("n", "v\nv")], "upstream sent invalid header: \"n: v\\x0Av\""),
            (&[status, ("upgrade", "x")], "upstream sent invalid header: \"upgrade: x\""),
            (
                &[status, ("proxy-connection", "x")],
                "upstream sent invalid header: \"proxy-connection: x\"",
            ),
            (&[status, ("n", &large)], "upstream sent too big header"),
        ];
        for (fields, message) in cases {
            assert_eq!(built(fields).unwrap_err().to_string(), *message);
        }
        let twice = built(&[status, ("content-length", "1"), ("content-length", "1")]);
        assert!(twice.unwrap_err().to_string().starts_with("upstream sent duplicate header line"));
    }

    #[test]
    fn trailers_are_fields_alone() {
        let mut list = TrailerBuilder::new(100);
        list.field(b"grpc-status", b"0");
        assert_eq!(list.finish().unwrap().len(), 1);
        let mut list = TrailerBuilder::new(100);
        list.field(b":status", b"200");
        let message = "upstream sent invalid trailer \":status: 200\"";
        assert_eq!(list.finish().unwrap_err().to_string(), message);
    }
}
