//! A parsed response head.

use crate::h1::field::FieldId;
use crate::h1::head::{Connection, Fields, Span, Version};

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
    pub fields: Fields,
    /// Tokens of the Connection fields.
    pub connection: Connection,
    /// The value of `Content-Length`.
    pub content_length: Option<u64>,
    /// The body is in chunked coding.
    pub chunked: bool,
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
            fields: Fields::new(),
            connection: Connection::default(),
            content_length: None,
            chunked: false,
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
    }

    /// Makes this head the same as another, and keeps the vector's capacity.
    pub fn copy_from(&mut self, other: &ResponseHead) {
        let ResponseHead { version, status, status_line, ref fields, .. } = *other;
        let ResponseHead { connection, content_length, chunked, .. } = *other;
        self.fields.copy_from(fields);
        (self.version, self.status, self.status_line) = (version, status, status_line);
        (self.connection, self.content_length) = (connection, content_length);
        self.chunked = chunked;
    }

    /// The value of the first field of this id.
    #[inline]
    pub fn value<'b>(&self, id: FieldId, buf: &'b [u8]) -> Option<&'b [u8]> {
        self.fields.value(id, buf)
    }

    /// Whether the connection can be used again once the body was read: HTTP/1.1 without `close`.
    pub fn keeps_connection(&self) -> bool {
        self.version >= Version::HTTP_11 && !self.connection.close
    }
}
