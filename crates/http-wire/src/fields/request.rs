//! The fields of a header block of HTTP/2, or of a field section of HTTP/3, to a request's head
//! (RFC 9113 section 8.3, RFC 9114 section 4.3), the one that HTTP/1 fills: what comes behind it
//! knows no protocol.

use std::fmt::Write;
use std::ops::Range;

use crate::h1::{Field, FieldId, H1Error, Head, Limits, Method, Span, Version};
use crate::h1::{host_of_line, known_field, parse_length, show};
use crate::uri::target::inspect;

/// A request that is malformed, or is not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The status to answer with.
    pub status: u16,
    /// The fault in nginx's words, for the log at level info.
    pub text: String,
}

/// The protocol that an extended CONNECT asks for (RFC 8441, RFC 9220).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Asked {
    /// None: a usual request.
    #[default]
    Nothing,
    /// `websocket`.
    WebSocket,
    /// One that we do not know.
    Unknown,
}

/// Makes a head of the fields of a block or section, in the order in which they come. Their text
/// goes to the end of a vector, which must be empty at first: spans of the head point into it.
pub struct HeadBuilder<'a> {
    head: &'a mut Head,
    text: &'a mut Vec<u8>,
    limits: &'a Limits,
    /// Bytes of names and values that still fit.
    room: usize,
    counted: u32,
    cookies: u32,
    method: Option<Span>,
    scheme: Option<Span>,
    path: Option<Span>,
    authority: Option<Span>,
    asked: Asked,
    /// The request line was made: pseudo-header fields may not follow.
    has_line: bool,
    refusal: Option<Refusal>,
    excess: Option<&'static str>,
}

/// The outcome of fields that make no head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoHead {
    /// The request is refused.
    Refused(Refusal),
    /// They are larger than anything we take: a connection of HTTP/2 ends (ENHANCE_YOUR_CALM), and
    /// a request of HTTP/3 is refused. As much of the head as is known stands in it, for the log.
    Excess(&'static str),
}

/// Bytes of a version in a request line.
const VERSION_LEN: usize = 8;

/// A version as it stands in a request line.
#[inline]
fn text_of(version: Version) -> &'static [u8; VERSION_LEN] {
    if version == Version::HTTP_30 { b"HTTP/3.0" } else { b"HTTP/2.0" }
}

impl<'a> HeadBuilder<'a> {
    /// Begins a head of HTTP/2 or HTTP/3.
    #[inline]
    pub fn new(
        head: &'a mut Head,
        text: &'a mut Vec<u8>,
        limits: &'a Limits,
        version: Version,
    ) -> HeadBuilder<'a> {
        head.clear();
        // A head that is refused is one of this version all the same.
        head.version = version;
        let room = limits.large_size as usize * limits.large_number as usize;
        HeadBuilder {
            head,
            text,
            limits,
            room,
            counted: 0,
            cookies: 0,
            method: None,
            scheme: None,
            path: None,
            authority: None,
            asked: Asked::Nothing,
            has_line: false,
            refusal: None,
            excess: None,
        }
    }

    /// Takes a field.
    #[inline]
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        if self.excess.is_some() {
            return;
        }
        let large = self.limits.large_size as usize;
        if name.len() > large || value.len() > large {
            self.excess = Some("too large header field");
            return;
        }
        let Some(room) = self.room.checked_sub(name.len() + value.len()) else {
            self.excess = Some("too large header");
            return;
        };
        self.room = room;
        if self.refusal.is_some() {
            return;
        }
        let taken = match name.first() {
            Some(b':') => self.pseudo(name, value),
            _ => self.regular(name, value),
        };
        if let Err(refusal) = taken {
            self.refusal = Some(refusal);
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Span {
        let start = self.text.len();
        self.text.extend_from_slice(bytes);
        Span::new(start, self.text.len())
    }

    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        if !crate::h1::is_value(value) {
            return refuse_value(name, value);
        }
        if self.has_line {
            return refuse("client sent out of order pseudo-headers");
        }
        let slot = match name {
            b":method" => &mut self.method,
            b":scheme" => &mut self.scheme,
            b":path" => &mut self.path,
            b":authority" => &mut self.authority,
            b":protocol" if self.asked == Asked::Nothing => {
                let is_known = value.eq_ignore_ascii_case(b"websocket");
                self.asked = if is_known { Asked::WebSocket } else { Asked::Unknown };
                return Ok(());
            }
            _ => return refuse(told("client sent unknown pseudo-header", name)),
        };
        if slot.is_some() {
            return refuse(format!("client sent duplicate {} header", text(name)));
        }
        if value.is_empty() && name != b":authority" {
            return refuse(format!("client sent empty {} header", text(name)));
        }
        let start = self.text.len();
        *slot = Some(Span::new(start, start + value.len()));
        self.text.extend_from_slice(value);
        Ok(())
    }

    fn regular(&mut self, name: &[u8], value: &[u8]) -> Result<(), Refusal> {
        if !self.has_line {
            self.line()?;
        }
        let (mut invalid, mut underscore) = (false, false);
        for byte in name {
            match byte {
                b'a'..=b'z' | b'-' | b'0'..=b'9' => {}
                b'_' => underscore = true,
                b'A'..=b'Z' | ..=0x20 | 0x7f | b':' => {
                    return refuse(told("client sent invalid header name:", name));
                }
                _ => invalid = true,
            }
        }
        if name.is_empty() {
            return refuse("client sent zero header name length");
        }
        check_value(name, value)?;
        let flagged = invalid | underscore;
        let dropped =
            self.limits.ignore_invalid && (invalid | (underscore & !self.limits.underscores));
        if !dropped {
            self.counted += 1;
            if self.counted > self.limits.max_headers {
                let text = "client sent too many header lines".to_owned();
                return Err(Refusal { status: 494, text });
            }
        }
        let id = if flagged { FieldId::Other } else { FieldId::lookup(name) };
        let (name, value) = (self.push(name), self.push(value));
        let field = Field { name, value, id, invalid: flagged, dropped, ignored: false };
        self.head.any_dropped |= dropped;
        if id == FieldId::Cookie {
            self.cookies += 1;
        }
        if id != FieldId::Other {
            self.known(&field)?;
        }
        if id != FieldId::Host || self.authority.is_none() {
            self.head.fields.push(field);
        }
        Ok(())
    }

    fn known(&mut self, field: &Field) -> Result<(), Refusal> {
        let what = match field.id {
            FieldId::Connection => "\"Connection\"",
            FieldId::KeepAlive => "\"Keep-Alive\"",
            FieldId::ProxyConnection => "\"Proxy-Connection\"",
            FieldId::TransferEncoding => "\"Transfer-Encoding\"",
            FieldId::Upgrade => "\"Upgrade\"",
            FieldId::Te if !field.value.of(self.text).eq_ignore_ascii_case(b"trailers") => {
                return refuse("client sent invalid \"TE\" header");
            }
            // The same as `:authority`: that is a field already.
            FieldId::Host if self.authority.is_some() => {
                let authority = self.authority.map(|a| a.of(self.text));
                if authority == Some(field.value.of(self.text)) {
                    return Ok(());
                }
                let what = "client sent \":authority\" and \"Host\" headers with different values";
                return refuse(what);
            }
            _ => {
                return known_field(field, self.text, self.head).map_err(|e: H1Error| Refusal {
                    status: e.status(),
                    text: e.message(self.text),
                });
            }
        };
        refuse(format!("client sent {what} header"))
    }

    /// Makes the request line, which no client sends.
    fn line(&mut self) -> Result<(), Refusal> {
        self.has_line = true;
        let Some(method) = self.method else { return refuse("client sent no :method header") };
        self.head.method = Method::lookup(method.of(self.text));
        let is_connect = self.head.method == Method::Connect && self.asked == Asked::Nothing;
        if is_connect && self.path.is_none() && self.scheme.is_none() {
            return self.connect_line(method);
        }
        if self.asked != Asked::Nothing && self.head.method != Method::Connect {
            return refuse("client sent \":protocol\" header without CONNECT");
        }
        let Some(scheme) = self.scheme else { return refuse("client sent no :scheme header") };
        let Some(path) = self.path else { return refuse("client sent no :path header") };
        self.check_method(method)?;
        let scheme = scheme.of(self.text);
        let is_scheme = |(i, b): (usize, &u8)| {
            b.is_ascii_alphabetic() || i > 0 && (b.is_ascii_digit() || b"+-.".contains(b))
        };
        if !scheme.iter().enumerate().all(is_scheme) {
            return refuse(told("client sent invalid :scheme header:", scheme));
        }
        let start = self.text.len();
        self.text.extend_from_within(method.range());
        let method_end = self.text.len();
        self.text.push(b' ');
        let target = self.text.len();
        self.text.extend_from_within(path.range());
        let target_end = self.text.len();
        self.text.push(b' ');
        self.text.extend_from_slice(text_of(self.head.version));
        line_is(self.head, self.text, (start, method_end), target..target_end);
        if !find_path(self.head, self.text) {
            return refuse(told("client sent invalid :path header:", path.of(self.text)));
        }
        self.host()
    }

    /// The line of CONNECT has the authority in the place of the path (RFC 9113 section 8.5).
    fn connect_line(&mut self, method: Span) -> Result<(), Refusal> {
        let Some(authority) = self.authority else {
            return refuse("client sent no :authority header");
        };
        let start = self.text.len();
        self.text.extend_from_within(method.range());
        let method_end = self.text.len();
        self.text.push(b' ');
        self.text.extend_from_within(authority.range());
        self.text.push(b' ');
        self.text.extend_from_slice(text_of(self.head.version));
        // The "/" of the version stands for the path, as in HTTP/1.
        let slash = self.text.len() - VERSION_LEN + 4;
        line_is(self.head, self.text, (start, method_end), slash..slash + 1);
        self.head.form = crate::h1::TargetForm::Authority;
        self.head.path = self.head.target;
        self.head.authority = Span::new(method_end + 1, method_end + 1 + authority.len());
        self.host()
    }

    fn check_method(&self, method: Span) -> Result<(), Refusal> {
        let name = method.of(self.text);
        let is_of_method = |b: &u8| b.is_ascii_uppercase() || matches!(b, b'_' | b'-');
        if self.head.method == Method::Other && !name.iter().all(is_of_method) {
            return refuse(told("client sent invalid method:", name));
        }
        Ok(())
    }

    /// The authority is the host, and a field for those who ask for that.
    fn host(&mut self) -> Result<(), Refusal> {
        let Some(authority) = self.authority else { return Ok(()) };
        let name = self.push(b"host");
        let field = Field {
            name,
            value: authority,
            id: FieldId::Host,
            invalid: false,
            dropped: false,
            ignored: false,
        };
        if !host_of_line(authority, self.text, self.head) {
            return refuse("client sent invalid \":authority\" header");
        }
        self.head.fields.push(field);
        Ok(())
    }

    /// Ends the head, and tells the protocol that the client asks for. With `end_stream` no body
    /// follows.
    ///
    /// # Errors
    /// The request is refused, or the connection is to end. As much of the head as is known stands
    /// in it, for the log.
    pub fn finish(mut self, end_stream: bool) -> Result<Asked, NoHead> {
        if self.refusal.is_none() && !self.has_line {
            self.refusal = self.line().err();
        }
        if let Some(what) = self.excess {
            return Err(NoHead::Excess(what));
        }
        if self.refusal.is_none() {
            self.refusal = self.whole(end_stream).err();
        }
        match self.refusal {
            Some(refusal) => Err(NoHead::Refused(refusal)),
            None => Ok(self.asked),
        }
    }

    fn whole(&mut self, end_stream: bool) -> Result<(), Refusal> {
        if self.cookies > 1 {
            self.join_cookies();
        }
        if self.head.host.is_none() {
            return refuse("client sent neither \":authority\" nor \"Host\" header");
        }
        let head = &mut *self.head;
        head.content_length = match head.value(FieldId::ContentLength, self.text) {
            None => None,
            Some(value) => match parse_length(value) {
                None => return refuse("client sent invalid \"Content-Length\" header"),
                Some(n) if n > 0 && end_stream => {
                    return refuse("client prematurely closed stream");
                }
                known => known,
            },
        };
        // A body of unknown length; HTTP/1's has this coding. The bytes behind CONNECT are no body.
        let is_connect = head.method == Method::Connect;
        head.chunked = head.content_length.is_none() && !end_stream && !is_connect;
        if let Some(value) = head.value(FieldId::Expect, self.text) {
            head.expect_continue = !end_stream && value.eq_ignore_ascii_case(b"100-continue");
        }
        Ok(())
    }

    /// Clients split cookies, so that parts of them can be compressed (RFC 9113 section 8.2.3).
    fn join_cookies(&mut self) {
        let start = self.text.len();
        for field in self.head.fields.all(FieldId::Cookie) {
            if self.text.len() > start {
                self.text.extend_from_slice(b"; ");
            }
            self.text.extend_from_within(field.value.range());
        }
        let value = Span::new(start, self.text.len());
        self.head.fields.join(FieldId::Cookie, value);
    }
}

/// The end of the text is the request's line, with its method and its target there.
fn line_is(head: &mut Head, text: &[u8], method: (usize, usize), target: Range<usize>) {
    let end = text.len();
    head.method_name = Span::new(method.0, method.1);
    head.line = Span::new(method.0, end);
    head.protocol = Span::new(end - VERSION_LEN, end);
    head.target = Span::new(target.start, target.end);
}

/// Finds the path in the target of a request; false where it is not one that is taken.
fn find_path(head: &mut Head, text: &[u8]) -> bool {
    let target = head.target;
    let Some(found) = inspect(target.of(text)) else { return false };
    head.plain_path = found.plain;
    head.quoted = found.quoted;
    head.plus_in_path = found.plus;
    (head.path, head.args) = (target, Span::default());
    if found.plain {
        let (start, end) = (target.range().start, target.range().end);
        head.path = Span::new(start, start + found.path_len);
        head.args = Span::new(start + found.args_start, end);
    }
    found.plain || crate::uri::check(target.of(text)).is_ok()
}

/// Gives a request, whose method is no CONNECT, the target that `write` appends to its text: the
/// rest of the head is what it was. `None`: there is none, or it is not taken, and nothing of the
/// head holds.
pub(crate) fn with_target(
    head: &mut Head,
    text: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Option<()>,
) -> Option<()> {
    let start = text.len();
    text.extend_from_within(head.method_name.range());
    let method_end = text.len();
    text.push(b' ');
    let target = text.len();
    write(text)?;
    let target_end = text.len();
    text.push(b' ');
    text.extend_from_slice(text_of(head.version));
    line_is(head, text, (start, method_end), target..target_end);
    find_path(head, text).then_some(())
}

/// Makes the request of a client that asked for WebSocket (RFC 8441, RFC 9220) the one that HTTP/1
/// has for it: GET with the fields of an upgrade. `key` is that of the opening handshake, 16 random
/// bytes in base64 (RFC 6455 section 4.1).
pub fn as_upgrade(head: &mut Head, text: &mut Vec<u8>, key: &[u8]) {
    let mut push = |bytes: &[u8]| {
        let start = text.len();
        text.extend_from_slice(bytes);
        Span::new(start, text.len())
    };
    head.method = Method::Get;
    head.method_name = push(b"GET");
    head.connection.upgrade = true;
    let fields: [(FieldId, &[u8], &[u8]); 3] = [
        (FieldId::Connection, b"connection", b"upgrade"),
        (FieldId::Upgrade, b"upgrade", b"websocket"),
        (FieldId::lookup(b"sec-websocket-key"), b"sec-websocket-key", key),
    ];
    for (id, name, value) in fields {
        let (name, value) = (push(name), push(value));
        head.fields.add_new(Field {
            name,
            value,
            id,
            invalid: false,
            dropped: false,
            ignored: false,
        });
    }
}

/// Whether a trailer section may be taken: it has no pseudo-header field, and names in lower case.
pub fn is_trailer(name: &[u8], value: &[u8]) -> bool {
    let is_sound = |b: &u8| !matches!(b, b'A'..=b'Z' | ..=0x20 | 0x7f.. | b':');
    !name.is_empty() && name.iter().all(is_sound) && check_value(name, value).is_ok()
}

/// Refuses a value with a control character, as other servers of HTTP/2 do: behind us it may be
/// taken for the end of the value.
#[inline]
fn check_value(name: &[u8], value: &[u8]) -> Result<(), Refusal> {
    if super::has_control(value) { refuse_value(name, value) } else { Ok(()) }
}

#[cold]
fn refuse_value(name: &[u8], value: &[u8]) -> Result<(), Refusal> {
    let mut out = told("client sent header", name);
    out.push_str(" with invalid value: \"");
    show(value, &mut out);
    out.push('"');
    refuse(out)
}

#[cold]
fn refuse(text: impl Into<String>) -> Result<(), Refusal> {
    Err(Refusal { status: 400, text: text.into() })
}

#[cold]
fn text(bytes: &[u8]) -> String {
    let mut out = String::new();
    show(bytes, &mut out);
    out
}

#[cold]
fn told(what: &str, bytes: &[u8]) -> String {
    let mut out = String::new();
    let _ = write!(out, "{what} \"{}\"", text(bytes));
    out
}
