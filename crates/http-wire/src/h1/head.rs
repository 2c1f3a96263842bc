//! A parsed head: spans into the caller's buffer, and facts learnt on the way.

use std::ops::Deref;

use super::field::{FieldId, FieldSet};
use super::method::Method;

/// A range of the caller's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset behind the last byte.
    pub end: u32,
}

impl Span {
    /// A span of buffer offsets. Offsets fit: the parsers refuse buffers of 4 GiB and more.
    #[inline]
    pub(crate) fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }

    /// The bytes, or an empty slice when `buf` is not the buffer this span was made for.
    #[inline]
    pub fn of<'b>(&self, buf: &'b [u8]) -> &'b [u8] {
        buf.get(self.start as usize..self.end as usize).unwrap_or(&[])
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// Whether it holds no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.end <= self.start
    }

    /// The offsets as a range, for slicing `Bytes`.
    #[inline]
    pub fn range(&self) -> std::ops::Range<usize> {
        self.start as usize..self.end.max(self.start) as usize
    }
}

/// An HTTP version as nginx counts them: major × 1000 + minor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Version(pub u16);

impl Version {
    /// HTTP/0.9: a request line without a version.
    pub const HTTP_09: Version = Version(9);
    /// HTTP/1.0.
    pub const HTTP_10: Version = Version(1000);
    /// HTTP/1.1. Higher minor versions compare greater and are answered as 1.1.
    pub const HTTP_11: Version = Version(1001);
    /// HTTP/2.
    pub const HTTP_20: Version = Version(2000);
    /// HTTP/3.
    pub const HTTP_30: Version = Version(3000);
}

/// The form of the request target (RFC 9112 section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TargetForm {
    /// `/path?args`.
    #[default]
    Origin,
    /// `http://host:port/path?args`.
    Absolute,
    /// `host:port` of CONNECT. (`*` of OPTIONS is refused, as by nginx.)
    Authority,
}

/// A field line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// The name as sent.
    pub name: Span,
    /// The value without the spaces around it.
    pub value: Span,
    /// The name's id; `Other` when it has none and when the name is invalid.
    pub id: FieldId,
    /// The name holds a character other than a letter, a digit, `-` or `_`: dropped under
    /// `ignore_invalid_headers on`.
    pub invalid: bool,
    /// In a request: left out by that directive and `underscores_in_headers`, as they are set for
    /// the server that was known when the field was read: the default one of the address until the
    /// host chose another, as in nginx.
    pub dropped: bool,
    /// In a response: repeats a field that counts once, and is left out (nginx warns of it).
    pub ignored: bool,
}

/// The field lines of a head in the order sent, and where the first of each id stands among them.
#[derive(Clone, Debug)]
pub struct Fields {
    list: Vec<Field>,
    /// The ids that occur.
    seen: FieldSet,
    /// Index of the first field of an id; valid where `seen` says so.
    first: [u16; FieldId::COUNT],
}

impl Fields {
    pub(super) fn new() -> Fields {
        Fields { list: Vec::new(), seen: FieldSet::EMPTY, first: [0; FieldId::COUNT] }
    }

    /// Empties the list and keeps its capacity.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.seen = FieldSet::EMPTY;
    }

    /// Makes the list the same as another, and keeps its capacity.
    pub(super) fn copy_from(&mut self, other: &Fields) {
        self.list.clone_from(&other.list);
        (self.seen, self.first) = (other.seen, other.first);
    }

    /// Records that the next field is the first of `id`; lists are kept short enough for the index.
    #[inline]
    pub(super) fn next_is_first(&mut self, id: FieldId) {
        self.seen.insert(id);
        self.first[id as usize] = self.list.len() as u16;
    }

    /// Adds a field, which [`Fields::get`] will not find: it is for readers of the whole list.
    #[inline]
    pub fn push(&mut self, field: Field) {
        self.list.push(field);
    }

    /// True when a field of this id occurs (not for `Other`).
    #[inline]
    pub fn has(&self, id: FieldId) -> bool {
        self.seen.has(id)
    }

    /// True when a field of one of these ids occurs.
    #[inline]
    pub fn has_any(&self, ids: &FieldSet) -> bool {
        self.seen.meets(ids)
    }

    /// The first field of this id (not for `Other`).
    #[inline]
    pub fn get(&self, id: FieldId) -> Option<&Field> {
        if self.has(id) { self.list.get(self.first[id as usize] as usize) } else { None }
    }

    /// The value of the first field of this id.
    #[inline]
    pub fn value<'b>(&self, id: FieldId, buf: &'b [u8]) -> Option<&'b [u8]> {
        self.get(id).map(|field| field.value.of(buf))
    }

    /// All fields of this id, in order (not for `Other`).
    pub fn all(&self, id: FieldId) -> impl Iterator<Item = &Field> {
        let skip = if self.has(id) { self.first[id as usize] as usize } else { self.list.len() };
        self.list.iter().skip(skip).filter(move |field| field.id == id)
    }

    /// Adds a field whose id does not occur yet.
    pub(crate) fn add_new(&mut self, field: Field) {
        if field.id != FieldId::Other {
            self.next_is_first(field.id);
        }
        self.list.push(field);
    }

    /// Leaves one field of an id, with this value, in the place of the first.
    pub(crate) fn join(&mut self, id: FieldId, value: Span) {
        let mut first = true;
        self.list.retain_mut(|field| {
            if field.id != id {
                return true;
            }
            field.value = value;
            std::mem::take(&mut first)
        });
        for (i, field) in self.list.iter().enumerate().rev() {
            self.first[field.id as usize] = i as u16;
        }
    }

    /// Puts other fields in the place of the list.
    pub fn replace(&mut self, fields: Vec<Field>) {
        self.list = fields;
        self.seen = FieldSet::EMPTY;
        for (i, field) in self.list.iter().enumerate().rev() {
            if field.id != FieldId::Other && !field.dropped {
                self.seen.insert(field.id);
                self.first[field.id as usize] = i as u16;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.list.capacity()
    }
}

impl Deref for Fields {
    type Target = [Field];

    #[inline]
    fn deref(&self) -> &[Field] {
        &self.list
    }
}

impl<'a> IntoIterator for &'a Fields {
    type Item = &'a Field;
    type IntoIter = std::slice::Iter<'a, Field>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

/// Tokens of the Connection fields, all of them together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Connection {
    /// `close` was among them.
    pub close: bool,
    /// `keep-alive` was among them.
    pub keep_alive: bool,
    /// `upgrade` was among them.
    pub upgrade: bool,
    /// Any other was: the name of a field that is about the connection.
    pub other: bool,
}

impl Connection {
    /// Adds the tokens of one value.
    #[inline]
    pub(super) fn add(&mut self, value: &[u8]) {
        // The values of nearly all clients.
        match value {
            b"keep-alive" => return self.keep_alive = true,
            b"close" => return self.close = true,
            _ => {}
        }
        for token in value.split(|byte| *byte == b',') {
            let token = token.trim_ascii();
            if token.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if token.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if token.eq_ignore_ascii_case(b"upgrade") {
                self.upgrade = true;
            } else {
                self.other |= !token.is_empty();
            }
        }
    }
}

/// The host of a request: that of an absolute or authority target, or else the Host field's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostRef {
    /// The name without port and without a trailing dot, to compare with `server_name`.
    pub name: Span,
    /// The port after the colon; 0 when there is none.
    pub port: u16,
    /// The name has capital letters: lower it before comparing.
    pub has_upper: bool,
}

/// A parsed request head. One value is recycled for all requests of a connection or a worker: the
/// parser resets it when it begins, and the field vector keeps its capacity.
#[derive(Debug, Clone)]
pub struct Head {
    /// The method; `Method::Other` if there is no constant for it.
    pub method: Method,
    /// The method's name as sent.
    pub method_name: Span,
    /// The version; `HTTP_09` when the line has none.
    pub version: Version,
    /// The protocol as sent (`HTTP/1.1`), for `$server_protocol`; empty for HTTP/0.9.
    pub protocol: Span,
    /// The request line without its line end. Set for a refused line too, as far as it came.
    pub line: Span,
    /// The form of the target.
    pub form: TargetForm,
    /// The value of `$request_uri`: path and arguments as sent. For an absolute target without a
    /// path, and for CONNECT, a `/` elsewhere in the request line.
    pub target: Span,
    /// With `plain_path`, the path before the `?`; otherwise the same as `target`.
    pub path: Span,
    /// With `plain_path`, the text behind the first `?`, maybe empty; otherwise empty.
    pub args: Span,
    /// `path` can be used unchanged: it has no `%`, `#`, `//`, `/.`. Otherwise call
    /// [`crate::uri::normalize`] on `target`.
    pub plain_path: bool,
    /// A `%` was seen before the arguments (nginx's `quoted_uri`; exact once normalised).
    pub quoted: bool,
    /// A `+` was seen in the path (exact for a plain path).
    pub plus_in_path: bool,
    /// The scheme of an absolute target.
    pub scheme: Span,
    /// The authority in the request line, port included.
    pub authority: Span,
    /// The host of the request.
    pub host: Option<HostRef>,
    /// The field lines in the order sent.
    pub fields: Fields,
    /// Some field is `dropped`.
    pub any_dropped: bool,
    /// Tokens of the Connection fields.
    pub connection: Connection,
    /// The value of `Content-Length`.
    pub content_length: Option<u64>,
    /// The body is in chunked coding.
    pub chunked: bool,
    /// `Expect: 100-continue` in a request of HTTP/1.1 or later.
    pub expect_continue: bool,
}

impl Default for Head {
    fn default() -> Head {
        Head::new()
    }
}

impl Head {
    /// Becomes the same as `other`, whose text has to be this head's too. Keeps its own memory.
    pub fn copy_from(&mut self, other: &Head) {
        let mut list = std::mem::take(&mut self.fields.list);
        list.clone_from(&other.fields.list);
        let fields = Fields { list, ..other.fields };
        *self = Head { fields, ..*other };
    }

    /// An empty head. Allocates nothing until the first field.
    pub fn new() -> Head {
        Head {
            method: Method::Other,
            method_name: Span::default(),
            version: Version::HTTP_09,
            protocol: Span::default(),
            line: Span::default(),
            form: TargetForm::Origin,
            target: Span::default(),
            path: Span::default(),
            args: Span::default(),
            plain_path: true,
            quoted: false,
            plus_in_path: false,
            scheme: Span::default(),
            authority: Span::default(),
            host: None,
            fields: Fields::new(),
            any_dropped: false,
            connection: Connection::default(),
            content_length: None,
            chunked: false,
            expect_continue: false,
        }
    }

    /// Makes the head empty and keeps the vector's capacity. The parser does this itself.
    pub fn clear(&mut self) {
        self.method = Method::Other;
        self.method_name = Span::default();
        self.version = Version::HTTP_09;
        self.protocol = Span::default();
        self.line = Span::default();
        self.form = TargetForm::Origin;
        self.target = Span::default();
        self.path = Span::default();
        self.args = Span::default();
        self.plain_path = true;
        self.quoted = false;
        self.plus_in_path = false;
        self.scheme = Span::default();
        self.authority = Span::default();
        self.host = None;
        self.fields.clear();
        self.any_dropped = false;
        self.connection = Connection::default();
        self.content_length = None;
        self.chunked = false;
        self.expect_continue = false;
    }

    /// The value of the first field of this id.
    #[inline]
    pub fn value<'b>(&self, id: FieldId, buf: &'b [u8]) -> Option<&'b [u8]> {
        self.fields.value(id, buf)
    }

    /// Whether the client keeps the connection: by a field, or by default in HTTP/1.1.
    #[inline]
    pub fn wants_keep_alive(&self) -> bool {
        !self.connection.close && (self.connection.keep_alive || self.version > Version::HTTP_10)
    }

    /// True when a body follows the head.
    #[inline]
    pub fn has_body(&self) -> bool {
        self.chunked || self.content_length.is_some_and(|n| n > 0)
    }
}
