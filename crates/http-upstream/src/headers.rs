//! Forwards response headers from an upstream to the client.

use base::log::Level;
use base::time;
use bytes::Bytes;
use http::module::Verdict;
use http::request::Request;
use http_wire::h1::{Connection, Field, FieldId, ResponseHead, Span, Version};

use crate::Protocol;
use crate::conf::{Conf, ignore};

/// How to use an accepted response.
pub(crate) enum Accepted {
    /// Forward it.
    Response {
        /// Read ahead of a slow client.
        buffering: bool,
    },
    /// `X-Accel-Redirect`: another local URI answers.
    Redirect,
    /// The connection switches to another protocol.
    Upgrade,
}

/// Whether to answer by `error_page` instead of the upstream's response. Keeps the challenge of a
/// 401.
pub(crate) fn intercepted(r: &mut Request, conf: &Conf, status: u16) -> bool {
    if status == 404 && conf.intercept_404 {
        return true;
    }
    if !conf.intercept_errors || !r.loc.core.error_page.iter().any(|p| p.status == status) {
        return false;
    }
    if status == 401 {
        let u = r.upstream_mut();
        let (head, text) = (u.head.clone(), u.text.clone());
        for f in head.fields.all(FieldId::WwwAuthenticate) {
            let value = Bytes::copy_from_slice(f.value.of(&text));
            r.out.add("WWW-Authenticate", value);
        }
    }
    true
}

fn slice(text: &Bytes, span: Span) -> Bytes {
    text.slice(span.start as usize..span.end as usize)
}

/// Copies the headers to `r.out`, except hidden fields and those that we write ourselves; rewrites
/// fields that contain the upstream's addresses. `kept`: the response comes from or goes to a
/// cache, so that ranges are served here if the upstream would.
pub(crate) fn copy(
    r: &mut Request,
    conf: &Conf,
    head: &ResponseHead,
    protocol: &dyn Protocol,
    kept: bool,
) -> Accepted {
    let text = r.upstream_mut().text.clone();
    let redirect =
        head.fields.has(FieldId::XAccelRedirect) && conf.ignore_headers & ignore::XA_REDIRECT == 0;
    let mut buffering = conf.buffering;
    let hop = HopByHop::of(head, &text);
    for f in &head.fields {
        if f.ignored {
            log_ignored(r, head, f, &text);
            continue;
        }
        control(r, conf, f.id, f.value.of(&text), &text, f.value, &mut buffering);
        if redirect {
            if survives_redirect(f.id) {
                one(r, conf, &text, f, protocol);
            }
        } else if kept && f.id == FieldId::AcceptRanges && !conf.force_ranges {
            r.out.allow_ranges = true;
        } else if hop.names(f, &text) {
            log_of_connection(r, f, &text);
        } else if !conf.hidden.has(f.id, f.name.of(&text)) {
            one(r, conf, &text, f, protocol);
        }
    }
    if redirect {
        return Accepted::Redirect;
    }
    // For an HTTP upstream these fields are forwarded as they are, or left out if absent.
    let http = protocol.is_http();
    if http && !head.fields.has(FieldId::Server) && !conf.hidden.has(FieldId::Server, b"") {
        r.out.server = Some(Bytes::new());
    }
    if http && !head.fields.has(FieldId::Date) && !conf.hidden.has(FieldId::Date, b"") {
        r.out.date = Some(Bytes::new());
    }
    r.out.status = head.status;
    let line = head.status_line.of(&text);
    if !(head.status == 200 && line == b"200 OK") && line.len() > 3 {
        r.out.status_text = Some(slice(&text, head.status_line));
    }
    r.out.content_length = if head.chunked { None } else { head.content_length };
    r.out.unconditional = true;
    if conf.force_ranges {
        r.out.allow_ranges = true;
    }
    if head.status == 101 && r.head.fields.has(FieldId::Upgrade) || protocol.only_connects() {
        return Accepted::Upgrade;
    }
    if !buffering {
        r.client.rates.limit = Some(0);
    }
    Accepted::Response { buffering }
}

/// The fields that the upstream's `Connection` lists: they are hop-by-hop and not forwarded (RFC
/// 9110 section 7.6.1). `Upgrade`, which is always listed, is handled in [`one`].
///
/// Most servers send one token, `keep-alive` or `close`, which the parser has seen: to read the
/// list again for each field took 1,370 instructions of a response with eight fields, and to
/// compare the name of each with the one token 380.
pub(crate) enum HopByHop<'a> {
    /// None but the usual tokens.
    Usual(Connection),
    /// The name of one field.
    One(&'a [u8]),
    /// All values, of a list or of several lines.
    Many(Vec<&'a [u8]>),
}

impl<'a> HopByHop<'a> {
    pub(crate) fn of(head: &ResponseHead, text: &'a [u8]) -> HopByHop<'a> {
        // Of interim responses, the parser keeps no tokens.
        if head.status >= 200 && !head.connection.other {
            return HopByHop::Usual(head.connection);
        }
        let mut values = head.fields.all(FieldId::Connection).map(|f| f.value.of(text));
        match (values.next(), values.next()) {
            (None, _) => HopByHop::Usual(Connection::default()),
            (Some(one), None) if !one.contains(&b',') => HopByHop::One(one.trim_ascii()),
            (Some(first), second) => {
                HopByHop::Many([first].into_iter().chain(second).chain(values).collect())
            }
        }
    }

    /// Whether the field is one of them.
    #[inline]
    pub(crate) fn names(&self, f: &Field, text: &[u8]) -> bool {
        match self {
            HopByHop::Usual(tokens) => {
                tokens.keep_alive && f.id == FieldId::KeepAlive
                    || tokens.close && f.name.len() == 5 && is_listed(f, text, b"close")
            }
            HopByHop::One(token) => token.len() == f.name.len() && is_listed(f, text, token),
            HopByHop::Many(values) => values.iter().any(|value| is_listed(f, text, value)),
        }
    }
}

fn is_listed(f: &Field, text: &[u8], value: &[u8]) -> bool {
    let name = f.name.of(text);
    let is_name = |token: &[u8]| token.trim_ascii().eq_ignore_ascii_case(name);
    f.id != FieldId::Upgrade && value.split(|byte| *byte == b',').any(is_name)
}

#[cold]
fn log_of_connection(r: &Request, f: &Field, text: &[u8]) {
    let name = base::log::lossy(f.name.of(text));
    let m = format_args!("upstream header \"{name}\" is not forwarded: \"Connection\" names it");
    r.log(Level::Info, m);
}

/// Whether to forward a field of an interim response: not if it is about the upstream's connection
/// or a body.
pub(crate) fn is_of_interim(head: &ResponseHead, f: &Field, text: &[u8]) -> bool {
    let is_of_hop = matches!(
        f.id,
        FieldId::Connection
            | FieldId::ContentLength
            | FieldId::KeepAlive
            | FieldId::ProxyConnection
            | FieldId::Te
            | FieldId::TransferEncoding
            | FieldId::Upgrade
    );
    !is_of_hop && !HopByHop::of(head, text).names(f, text)
}

/// Whether a field is kept at an `X-Accel-Redirect`.
fn survives_redirect(id: FieldId) -> bool {
    matches!(
        id,
        FieldId::ContentType
            | FieldId::SetCookie
            | FieldId::ContentDisposition
            | FieldId::CacheControl
            | FieldId::Expires
            | FieldId::AcceptRanges
    )
}

/// Handles the fields that are instructions to the proxy (`X-Accel-…`).
fn control(
    r: &mut Request,
    conf: &Conf,
    id: FieldId,
    value: &[u8],
    text: &Bytes,
    span: Span,
    buffering: &mut bool,
) {
    let heeded = |bit| conf.ignore_headers & bit == 0;
    match id {
        FieldId::XAccelLimitRate if heeded(ignore::XA_LIMIT_RATE) => {
            if let Some(n) = base::ascii::parse_u64(value) {
                r.client.rates.limit = Some(n);
            }
        }
        FieldId::XAccelBuffering if heeded(ignore::XA_BUFFERING) => {
            if value.eq_ignore_ascii_case(b"no") {
                *buffering = false;
            } else if value.eq_ignore_ascii_case(b"yes") {
                *buffering = true;
            }
        }
        FieldId::XAccelCharset if heeded(ignore::XA_CHARSET) => {
            r.out.override_charset = Some(slice(text, span));
        }
        _ => {}
    }
}

/// Forwards one field. Only fields that need it share the text, because that costs a reference
/// count.
fn one(r: &mut Request, conf: &Conf, text: &Bytes, f: &Field, protocol: &dyn Protocol) {
    let value = || slice(text, f.value);
    let both = || (slice(text, f.name), slice(text, f.value));
    match f.id {
        FieldId::ContentLength
        | FieldId::TransferEncoding
        | FieldId::Connection
        | FieldId::KeepAlive => {}
        // Empty ones are dropped.
        FieldId::ContentType | FieldId::Date | FieldId::Server if f.value.is_empty() => {}
        FieldId::ContentType => content_type(r, value()),
        FieldId::Date => r.out.date = Some(value()),
        FieldId::Server => r.out.server = Some(value()),
        FieldId::ETag => r.out.etag = Some(value()),
        FieldId::LastModified => {
            // Forwarded unchanged if it is not a date, or one in an obsolete format.
            let value = f.value.of(text);
            match time::parse_http_date_in_form(value) {
                Some((t, is_ours)) => {
                    r.out.last_modified = Some(t);
                    r.out.last_modified_given = true;
                    if !is_ours {
                        r.out.last_modified_written = Some(slice(text, f.value));
                    }
                }
                None => r.out.headers.push(both()),
            }
        }
        FieldId::AcceptRanges if conf.force_ranges => {}
        FieldId::Location => match protocol.rewrite(r, f.id, &value()) {
            Some(new) => r.out.location = Some(new),
            // Not made absolute, because the upstream sent it so.
            None => r.out.headers.push(both()),
        },
        FieldId::Refresh | FieldId::SetCookie => {
            let (name, value) = both();
            let value = protocol.rewrite(r, f.id, &value).unwrap_or(value);
            r.out.headers.push((name, value));
        }
        FieldId::Upgrade if r.head.version >= Version::HTTP_20 => {}
        _ => r.out.headers.push(both()),
    }
}

/// Separates `charset=` from a content type, for filters. If none changes it, the client gets the
/// original value.
fn content_type(r: &mut Request, value: Bytes) {
    let mut from = 0;
    while let Some(semicolon) = memchr::memchr(b';', &value[from..]).map(|i| from + i) {
        let mut at = semicolon + 1;
        while value.get(at) == Some(&b' ') {
            at += 1;
        }
        let rest = &value[at..];
        if rest.len() >= 8 && rest[..8].eq_ignore_ascii_case(b"charset=") {
            let mut charset = value.slice(at + 8..);
            if charset.first() == Some(&b'"') {
                charset = charset.slice(1..);
            }
            if charset.last() == Some(&b'"') {
                charset = charset.slice(..charset.len() - 1);
            }
            r.out.content_type = Some(value.slice(..semicolon));
            r.out.charset = Some(charset).filter(|charset| !charset.is_empty());
            r.out.content_type_written = Some(value);
            return;
        }
        from = at;
    }
    r.out.content_type = Some(value);
}

#[cold]
fn log_ignored(r: &mut Request, head: &ResponseHead, f: &Field, text: &[u8]) {
    if let Some(first) = head.fields.get(f.id) {
        let m = http_wire::h1::ignored_message(f, first, text);
        r.log(Level::Warn, format_args!("{m} while reading response header from upstream"));
    }
}

/// Performs an `X-Accel-Redirect`.
pub(crate) fn redirect(r: &mut Request) -> Verdict {
    let u = r.upstream_mut();
    let Some(target) = u.head.fields.get(FieldId::XAccelRedirect).map(|f| slice(&u.text, f.value))
    else {
        return Verdict::Status(500);
    };
    if target.first() == Some(&b'@') {
        return r.named_redirect(&target);
    }
    let mut path = Vec::with_capacity(target.len());
    let Ok(args) = http_wire::uri::parse_unsafe(&target, &mut path) else {
        let target = base::log::lossy(&target).into_owned();
        r.log(Level::Error, format_args!("unsafe URI \"{target}\" was detected"));
        return Verdict::Status(404);
    };
    if r.target.method != http_wire::h1::Method::Head {
        r.target.method = http_wire::h1::Method::Get;
    }
    r.internal_redirect(&path, &target[args])
}

#[cfg(test)]
mod tests {
    use http_wire::h1::{ResponseParser, ResponseStep};

    use super::*;

    /// The names of the fields that the `Connection` of a response lists.
    fn listed(fields: &str) -> Vec<String> {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        let (text, mut head) = (text.as_bytes(), ResponseHead::new());
        let step = ResponseParser::new().parse(text, &mut head);
        assert!(matches!(step, ResponseStep::Done { .. }), "{step:?}");
        let hop = HopByHop::of(&head, text);
        let names = head.fields.iter().filter(|f| hop.names(f, text));
        names.map(|f| String::from_utf8_lossy(f.name.of(text)).into_owned()).collect()
    }

    #[test]
    fn fields_that_connection_lists_are_of_the_hop() {
        let fields = "X-A: 1\r\nKeep-Alive: 2\r\nUpgrade: 3\r\nx-b: 4\r\n";
        let with = |connection: &str| listed(&format!("{connection}{fields}"));
        assert!(with("").is_empty());
        assert!(with("Connection: close\r\n").is_empty());
        assert_eq!(with("Connection: keep-alive\r\n"), ["Keep-Alive"]);
        assert_eq!(with("Connection: x-a\r\n"), ["X-A"]);
        assert_eq!(with("Connection: Upgrade, X-B ,keep-alive\r\n"), ["Keep-Alive", "x-b"]);
        assert_eq!(with("Connection: x-b\r\nConnection: close,x-a\r\n"), ["X-A", "x-b"]);
        assert_eq!(with("Connection: x-b\r\nConnection: x-a\r\n"), ["X-A", "x-b"]);
        assert!(with("Connection: \r\nConnection: ,\r\n").is_empty());
        assert_eq!(with("Close: 5\r\nConnection: CLOSE, keep-alive\r\n"), ["Close", "Keep-Alive"]);
        assert!(with("Close: 5\r\nConnection: upgrade\r\n").is_empty());
    }

    #[test]
    fn an_interim_response_has_fields_of_the_hop_too() {
        let text = b"HTTP/1.1 103 Early Hints\r\nX-A: 1\r\nConnection: x-a\r\nLink: b\r\n\r\n";
        let mut head = ResponseHead::new();
        let step = ResponseParser::new().parse(text, &mut head);
        assert!(matches!(step, ResponseStep::Done { .. }), "{step:?}");
        let shown = head.fields.iter().filter(|f| is_of_interim(&head, f, text));
        assert_eq!(shown.map(|f| f.name.of(text)).collect::<Vec<_>>(), [b"Link"]);
    }
}
