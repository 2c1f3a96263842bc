//! Responses from stored ones.

use std::rc::Rc;

use base::time::unix_secs;
use bytes::Bytes;
use cache::{CacheStatus, Fill, Forbids, GrowingFile, Header, Stored, Ticket, parsed, rfc9111};
use http::module::Verdict;
use http::output::Body;
use http::request::Request;
use http_wire::h1::{FieldId, Method, ResponseHead, Version};

use super::fill_reader::FillBody;
use super::stream_reader::StreamBody;
use crate::Protocol;
use crate::conf::Conf;
use crate::headers::{self, Accepted};

/// Serves a stored response.
pub(crate) fn stored(
    r: &mut Request,
    t: &Ticket,
    stored: &Rc<Stored>,
    up: &Conf,
    protocol: &dyn Protocol,
) -> Verdict {
    // A stale response has no remaining lifetime.
    let valid = if t.stale.is_some() { 0 } else { stored.header.valid };
    let len = Some(stored.header.body_len);
    let body = Body::Chain(stored.body());
    let kept = (stored.header.head.clone(), stored.forbids(), valid);
    Rc::make_mut(&mut r.upstream_mut().head).copy_from(&stored.head);
    let verdict = answer(r, kept, len, body, up, protocol);
    as_kept(r, t, up, &stored.header, &stored.head);
    verdict
}

/// Records the age of the response. Under RFC 9111 it is also sent in `Age` (section 5.1), unless
/// the origin was just asked; and ranges are served from a complete response.
fn as_kept(r: &mut Request, t: &Ticket, up: &Conf, header: &Header, head: &ResponseHead) {
    r.upstream_mut().cache_entry = Some(t.entry());
    let text = header.head.as_deref().unwrap_or_default();
    let initial = rfc9111::stored_age(head, text);
    r.upstream_mut().cached_since = Some(header.date.saturating_sub(initial));
    if !t.conf.rfc9111 || header.head.is_none() {
        return;
    }
    r.out.remove(b"Age");
    let age = rfc9111::current_age(header, initial, unix_secs() as i64);
    let fresh = r.upstream_mut().cache_status == CacheStatus::Revalidated && initial == 0;
    if !fresh && !up.hidden.has(FieldId::Age, b"") {
        let mut value = Vec::new();
        base::ascii::write_u64(&mut value, u64::try_from(age).unwrap_or(0));
        r.out.add("Age", Bytes::from(value));
    }
    r.out.unconditional = false;
    r.out.tags_first = true;
    // `Date` is the origin's; `Age` counts from there.
    if let Some(date) = head.value(FieldId::Date, text) {
        r.out.date = Some(Bytes::copy_from_slice(date));
    }
    // Sections 3.3 and 3.4; RFC 9110 section 14.3.
    let no_ranges = head.value(FieldId::AcceptRanges, text);
    if head.status == 200 && !no_ranges.is_some_and(|v| v.eq_ignore_ascii_case(b"none")) {
        r.out.allow_ranges = true;
    }
}

/// Serves a response that this worker is fetching into the cache, as it arrives.
pub(crate) fn joined(
    r: &mut Request,
    t: &Ticket,
    fill: Rc<Fill>,
    up: &Conf,
    protocol: &dyn Protocol,
) -> Verdict {
    let header = fill.header();
    let Some(head) = fill.head() else { return Verdict::Status(500) };
    let len = fill.whole_len().or(head.content_length);
    Rc::make_mut(&mut r.upstream_mut().head).copy_from(head);
    let kept = (header.head.clone(), fill.forbids(), header.valid);
    let body = match fill.whole() {
        Some(chain) => Body::Chain(chain),
        None => Body::Stream(Box::new(FillBody::new(fill.clone(), up.busy as u64))),
    };
    let verdict = answer(r, kept, len, body, up, protocol);
    as_kept(r, t, up, header, head);
    verdict
}

/// Serves a response that another worker is fetching, as it arrives.
pub(crate) fn followed(
    r: &mut Request,
    t: &Ticket,
    growing: Box<GrowingFile>,
    len: u64,
    up: &Conf,
    protocol: &dyn Protocol,
) -> Verdict {
    let Some(head) = parsed(&growing.header) else { return Verdict::Status(500) };
    Rc::make_mut(&mut r.upstream_mut().head).copy_from(&head);
    let header = growing.header.clone();
    let forbids = Forbids::default();
    let kept = (header.head.clone(), &forbids, header.valid);
    let body = Body::Stream(Box::new(StreamBody::new(growing, len)));
    let verdict = answer(r, kept, Some(len), body, up, protocol);
    as_kept(r, t, up, &header, &head);
    verdict
}

/// Prepares the response from parsed headers. `kept`: the text of the headers, what forbids storing
/// it, and its expiry.
fn answer(
    r: &mut Request,
    kept: (Option<Bytes>, &Forbids, i64),
    len: Option<u64>,
    body: Body,
    up: &Conf,
    protocol: &dyn Protocol,
) -> Verdict {
    let (text, forbids, valid) = kept;
    let Some(text) = text else {
        // An HTTP/0.9 response has no headers, so it gets none.
        r.head.version = Version::HTTP_09;
        r.out.status = 200;
        r.out.unconditional = true;
        r.out.body = body;
        return Verdict::Done;
    };
    let u = r.upstream_mut();
    u.text = text.clone();
    let head = u.head.clone();
    let forbidden = forbids.ask(&head, &text, up.ignore_headers, valid, unix_secs() as i64);
    let accepted = headers::copy(r, up, &head, protocol, true);
    let of_head = head.content_length;
    match accepted {
        Accepted::Redirect => return headers::redirect(r),
        Accepted::Upgrade => return Verdict::Status(502),
        Accepted::Response { .. } => {}
    }
    r.out.unconditional = forbidden;
    // The response to HEAD has the length of the GET's body, not of its own.
    r.out.content_length = match r.target.method {
        Method::Head => of_head.or(len),
        _ => len,
    };
    r.out.body = body;
    Verdict::Done
}
