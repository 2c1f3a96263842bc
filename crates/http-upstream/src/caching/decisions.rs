//! The cache decisions of an upstream exchange: whether to store a response, and when to serve a
//! stored one instead.

use std::rc::Rc;

use crate::conditions::any_set;
use base::time::unix_secs;
use bytes::Bytes;
use cache::rfc9111::{self, Facts, Reply};
use cache::{CacheConf, CacheStatus, HEAD_ROOM, Header, Plan, Rules, Stored, Ticket};
use http::exchanges::Exchanges;
use http::module::Verdict;
use http::request::Request;
use http_wire::h1::{FieldId, Method, ResponseHead, ResponseParser, ResponseStep, Version};

use super::serve;
use super::stream_reader::temp_place;
use crate::Protocol;
use crate::conf::{Conf, next};
use crate::failure::Stop;

/// After a response was not stored, requests for its key do not use the cache lock for this time,
/// in seconds: otherwise each would wait for all before it.
const UNLOCKED_SECS: i64 = 5;

/// How long an upstream counts as failing after a failure, in seconds; longer than the usual
/// timeouts, so that a request that runs into one renews it.
const FAILED_SECS: i64 = 120;

/// A response whose headers have arrived, and the rules for storing it.
pub(crate) struct Cacheability {
    ticket: Box<Ticket>,
    rules: Rules,
    /// Its cache-related fields, under `*_cache_rfc9111`.
    reply: Option<Reply>,
    /// The response delay (RFC 9111 section 4.2.3), in seconds.
    delay: i64,
}

impl Cacheability {
    /// Takes the request's cache ticket when the response headers arrive; `None` without a cache.
    /// In a box, as is the plan: without a cache, both would be room that is moved several times.
    pub fn of(r: &mut Request, conf: &Conf, head: &ResponseHead) -> Option<Box<Cacheability>> {
        let u = r.upstream_mut();
        let mut ticket = u.cache.take()?;
        if ticket.stale.is_some() {
            ticket.leave_answered();
        }
        let text = u.text.clone();
        ticket.cacheable &= !is_for_client_alone(r, &ticket.key, head, &text);
        let u = r.upstream_mut();
        let delay = delay(u);
        let reply = ticket.conf.rfc9111.then(|| Reply::read(head, &u.text, ticket.ignored));
        let rules = match &reply {
            None => Rules::read(head, &u.text, conf.ignore_headers, 0, now()),
            Some(reply) => reply.rules(&facts(&ticket, head.status, delay), &ticket.asked, now()),
        };
        if u.cache_status == CacheStatus::Expired {
            ticket.cache.keys_count(CacheStatus::Expired);
        }
        Some(Box::new(Cacheability { ticket, rules, reply, delay }))
    }

    /// Under RFC 9111: removes fields that must not be forwarded to the client.
    pub fn forward(&self, r: &mut Request) {
        let Some(reply) = &self.reply else { return };
        r.out.headers.retain(|(name, _)| !reply.is_of_hop(name));
        if reply.lacks_date() {
            r.out.date = None;
        }
    }

    /// Whether the response's fields allow storing it.
    pub fn may_be_kept(&self) -> bool {
        self.ticket.cacheable && !self.rules.forbidden
    }

    /// Whether a value of `*_no_cache` forbids storing the response.
    pub fn is_unwanted(&self, r: &mut Request) -> bool {
        let conf = self.ticket.conf.clone();
        any_set(r, &conf.no_cache)
    }

    /// The response is not cached: releases the lock.
    pub(crate) fn pass_by(mut self) {
        self.ticket.leave_unlocked(now() + UNLOCKED_SECS);
    }

    /// The expiry of the response, in seconds since 1970, if it may be stored. Otherwise wakes the
    /// requests that wait for it.
    fn valid_if_stored(&mut self, status: u16) -> Option<i64> {
        let may = self.may_be_kept();
        let valid = until(&self.rules, &self.ticket.conf, status).filter(|_| may);
        let is_for_client = self.reply.is_some() && self.ticket.asked.limits_storing();
        if valid.is_none() && !is_for_client {
            self.ticket.leave_unlocked(now() + UNLOCKED_SECS);
        }
        valid
    }

    /// How to store the response; `None` if it is not stored.
    pub fn plan(mut self, r: &mut Request, conf: &Conf, head: &ResponseHead) -> Option<Plan> {
        let valid = self.valid_if_stored(head.status);
        let Cacheability { mut ticket, rules, reply, delay } = self;
        if reply.is_some() && r.target.method == Method::Head && r.upstream_mut().method.is_none() {
            // A response to HEAD is not stored itself; it only updates the stored one (RFC 9111
            // section 4.3.5).
            let served = ticket.stale.take();
            served.into_iter().for_each(|kept| head_came(r, &ticket, &kept, head, delay));
            return None;
        }
        let valid = valid?;
        let text = r.upstream_mut().text.clone();
        let entity = matches!(head.status, 200 | 206);
        let field = |id| head.value(id, &text).filter(|_| entity);
        let date = field(FieldId::LastModified).and_then(base::time::parse_http_date);
        let no_head = head.version == Version::HTTP_09 && text.is_empty();
        let variant = match rules.vary.is_empty() {
            true => Default::default(),
            false => ticket.variant(&rules.vary, || r.headers()),
        };
        if ticket.is_secondary() && (rules.vary.is_empty() || variant != ticket.hash) {
            // It varies differently than the stored responses, so it replaces all variants.
            ticket.hash = ticket.main;
            ticket.hold = None;
            ticket.family = None;
        }
        let age = reply.as_ref().map(|reply| (reply, reply.initial_age(delay, now())));
        let kept_head = || match age {
            Some((reply, age)) => rfc9111::head_text(head, &text, reply, age, now()),
            None => cache::head_text(head, &text),
        };
        let header = Header {
            valid,
            updating: rules.updating,
            error: rules.error,
            last_modified: date.unwrap_or(-1),
            date: now(),
            etag: Bytes::copy_from_slice(field(FieldId::ETag).unwrap_or_default()),
            vary: rules.vary,
            variant,
            key: ticket.key.clone(),
            head: (!no_head).then(kept_head),
            body_len: 0,
            family: ticket.family.unwrap_or_else(|| ticket.cache.keys.new_family()),
            rfc9111: reply.is_some(),
            room: if reply.is_some() { HEAD_ROOM } else { 0 },
        };
        let fits = header.fits() && cache::can_be_found(&header);
        if !fits {
            ticket.leave_unlocked(now() + UNLOCKED_SECS);
        }
        let pool = r.pool().ok().filter(|_| fits)?;
        let temp = temp_place(&ticket, conf);
        r.upstream_mut().cache_entry = Some(ticket.entry());
        Some(Plan {
            cache: ticket.cache.clone(),
            hash: ticket.hash,
            header,
            since: ticket.since,
            hold: ticket.hold.take(),
            temp,
            pool,
            length: head.content_length,
            has_end: head.content_length.is_some(),
            stay: Box::new(r.main.life.work()),
        })
    }
}

fn now() -> i64 {
    unix_secs() as i64
}

/// The delay of the current response, in seconds (RFC 9111 section 4.2.3).
fn delay(u: &mut Exchanges) -> i64 {
    let ms = u.now().header_ms.unwrap_or(0);
    i64::try_from(ms / 1000).unwrap_or(i64::MAX)
}

fn facts(t: &Ticket, status: u16, delay: i64) -> Facts<'_> {
    Facts { status, key: &t.key, said: t.conf.valid_for(status), delay }
}

/// The expiry of a response, in seconds since 1970.
fn until(rules: &Rules, settings: &CacheConf, status: u16) -> Option<i64> {
    match (rules.valid, settings.valid_for(status)) {
        (0, 0) => None,
        (0, secs) => Some(now().saturating_add(i64::try_from(secs).unwrap_or(i64::MAX))),
        (valid, _) => Some(valid),
    }
}

/// Whether to serve a stored response instead of one with this status.
pub(crate) fn instead(r: &Request, status: u16, bit: u64) -> Option<Stop> {
    let u = r.upstream()?;
    let ticket = u.cache.as_ref().filter(|t| t.stale.is_some())?;
    if u.cache_status != CacheStatus::Expired {
        return None;
    }
    // These statuses count as errors for `stale-if-error` (RFC 5861 section 4).
    let by_rfc = ticket.conf.rfc9111 && matches!(status, 500 | 502..=504) && ticket.stale_error;
    if (bit != 0 && ticket.conf.use_stale & bit != 0 || by_rfc) && !ticket.strict {
        return Some(Stop::Stored(CacheStatus::Stale));
    }
    (status == 304 && ticket.conf.revalidate && !is_of_other_tag(r))
        .then_some(Stop::Stored(CacheStatus::Revalidated))
}

/// Whether a 304 confirms another version than the stored one, namely the client's, whose own
/// condition was forwarded (`proxy_set_header If-None-Match $http_if_none_match`).
fn is_of_other_tag(r: &Request) -> bool {
    let Some(u) = r.upstream().filter(|_| r.header(FieldId::IfNoneMatch).is_some()) else {
        return false;
    };
    let Some(stored) = u.cache.as_ref().and_then(|t| t.stale.as_ref()) else { return false };
    let bare = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
    let tag = u.head.value(FieldId::ETag, &u.text).filter(|tag| !tag.is_empty());
    tag.is_some_and(|tag| bare(tag) != bare(&stored.header.etag))
}

/// Whether the response is only for this client, because its own condition or range was forwarded.
/// By default neither is forwarded when caching, but a configuration may do so.
fn is_for_client_alone(r: &Request, key: &[u8], head: &ResponseHead, text: &[u8]) -> bool {
    let has = |id| r.header(id).is_some();
    match head.status {
        304 => has(FieldId::IfNoneMatch) || has(FieldId::IfModifiedSince),
        412 => [FieldId::IfMatch, FieldId::IfUnmodifiedSince, FieldId::IfNoneMatch]
            .into_iter()
            .any(has),
        206 | 416 => r.header(FieldId::Range).is_some_and(|range| {
            let part = head.value(FieldId::ContentRange, text);
            let from = part.and_then(rfc9111::first_of_range);
            let is_named = from.is_some_and(|from| rfc9111::names_range(key, from))
                || memchr::memmem::find(key, range).is_some();
            !is_named
        }),
        _ => false,
    }
}

/// Whether to serve a stored response after the upstream has failed.
pub(crate) fn instead_of_failure(r: &Request, bit: u64) -> bool {
    let Some(u) = r.upstream() else { return false };
    let Some(t) = u.cache.as_ref().filter(|t| t.stale.is_some() && !t.strict) else { return false };
    let is_error = !t.conf.rfc9111 || bit & (next::HTTP_403 | next::HTTP_404 | next::HTTP_429) == 0;
    u.cache_status == CacheStatus::Expired
        && (t.conf.use_stale & bit != 0 || t.stale_error && is_error)
}

/// Serves the stored response although it is stale.
pub(crate) fn serve(
    r: &mut Request,
    status: CacheStatus,
    conf: &Conf,
    protocol: &dyn Protocol,
) -> Option<(Box<Ticket>, Rc<Stored>, Verdict)> {
    let u = r.upstream_mut();
    let mut ticket = u.cache.take()?;
    let stored = ticket.stale.clone()?;
    match status {
        CacheStatus::Stale => ticket.leave_failed(now() + FAILED_SECS),
        _ => ticket.leave_answered(),
    }
    u.cache_status = status;
    u.asking = false;
    ticket.cache.keys_count(status);
    let verdict = serve::stored(r, &ticket, &stored, conf, protocol);
    Some((ticket, stored, verdict))
}

/// The upstream confirms the stored response by a 304, whose headers give the new lifetime.
pub(crate) async fn revalidated(
    r: &mut Request,
    head: &ResponseHead,
    text: &[u8],
    conf: &Conf,
    protocol: &dyn Protocol,
) -> Verdict {
    if r.upstream_mut().cache.as_ref().is_some_and(|t| t.conf.rfc9111) {
        return revalidated_by_rfc(r, head, text, conf, protocol).await;
    }
    let new = Rules::read(head, text, conf.ignore_headers, 0, now());
    let served = serve(r, CacheStatus::Revalidated, conf, protocol);
    let Some((ticket, stored, verdict)) = served else { return Verdict::Status(500) };
    let old = &stored.head;
    let rules = match new.valid {
        0 => Rules::read(old, &stored.text(), conf.ignore_headers, 0, now()),
        _ => new,
    };
    let Some(valid) = until(&rules, &ticket.conf, old.status) else { return verdict };
    let header = Header {
        valid,
        updating: rules.updating,
        error: rules.error,
        date: now(),
        ..stored.header.clone()
    };
    if let Ok(pool) = r.pool() {
        cache::renew(&ticket.cache, ticket.hash, ticket.since, &stored, header, pool).await;
    }
    verdict
}

/// RFC 9111 sections 4.3.4 and 3.2: updates the stored headers with those of the 304.
async fn revalidated_by_rfc(
    r: &mut Request,
    head: &ResponseHead,
    text: &[u8],
    conf: &Conf,
    protocol: &dyn Protocol,
) -> Verdict {
    let u = r.upstream_mut();
    let delay = delay(u);
    let mut renewed = None;
    if let Some(t) = &mut u.cache
        && let Some(old) = t.stale.clone()
        && rfc9111::is_about(&old.header, head, text, false)
        && let Some((new, keeps)) = freshened(t, &old, head, text, delay)
    {
        t.stale = Some(Rc::new(old.renewed(new.header.clone(), new.head)));
        renewed = Some((old, new.header, keeps));
    }
    let served = serve(r, CacheStatus::Revalidated, conf, protocol);
    let Some((ticket, _, verdict)) = served else { return Verdict::Status(500) };
    let (Some((old, header, keeps)), Ok(pool)) = (renewed, r.pool()) else { return verdict };
    match keeps {
        true => cache::renew(&ticket.cache, ticket.hash, ticket.since, &old, header, pool).await,
        false => cache::invalidate(&ticket.cache, vec![ticket.hash], pool).await,
    }
    verdict
}

/// Updated stored headers.
struct Freshened {
    header: Header,
    head: ResponseHead,
}

/// Merges newer headers into the stored ones; also returns whether the response may still be
/// stored.
fn freshened(
    t: &Ticket,
    old: &Stored,
    head: &ResponseHead,
    text: &[u8],
    delay: i64,
) -> Option<(Freshened, bool)> {
    let reply = Reply::read(head, text, t.ignored);
    let age = reply.initial_age(delay, now());
    let newer = (head, text);
    let text = rfc9111::freshened((&old.head, &old.text()), newer, &reply, age, now());
    let mut head = ResponseHead::new();
    let step = ResponseParser::new().parse(&text, &mut head);
    if !matches!(step, ResponseStep::Done { len } if len == text.len()) {
        return None;
    }
    // The stored headers already contain the age.
    let reply = Reply::read(&head, &text, t.ignored);
    let rules = reply.rules(&facts(t, old.head.status, 0), &t.asked, now());
    let changed = head.value(FieldId::LastModified, &text).and_then(base::time::parse_http_date);
    let etag = head.value(FieldId::ETag, &text).unwrap_or_default();
    let header = Header {
        valid: if rules.forbidden { old.header.valid } else { rules.valid },
        updating: rules.updating,
        error: rules.error,
        last_modified: changed.unwrap_or(-1),
        date: now(),
        etag: Bytes::copy_from_slice(etag),
        head: Some(text),
        rfc9111: true,
        ..old.header.clone()
    };
    let keeps = !rules.forbidden && rules.vary == old.header.vary && header.fits();
    Some((Freshened { header, head }, keeps))
}

/// RFC 9111 section 4.3.5: a response to HEAD confirms or invalidates the stored response.
fn head_came(r: &mut Request, t: &Ticket, kept: &Rc<Stored>, head: &ResponseHead, delay: i64) {
    if !matches!(head.status, 200) {
        return;
    }
    let text = r.upstream_mut().text.clone();
    let Ok(pool) = r.pool() else { return };
    let new = match rfc9111::is_about(&kept.header, head, &text, true) {
        true => freshened(t, kept, head, &text, delay).filter(|(_, keeps)| *keeps),
        false => None,
    };
    let (cache, hash, since, kept) = (t.cache.clone(), t.hash, t.since, kept.clone());
    event::spawn(async move {
        match new {
            Some((new, _)) => cache::renew(&cache, hash, since, &kept, new.header, pool).await,
            None => cache::invalidate(&cache, vec![hash], pool).await,
        }
    });
}

/// RFC 9111 section 4.4: after a successful unsafe request, invalidates the stored responses of its
/// target, and of the resources in `Location` and `Content-Location`.
pub(crate) async fn invalidate(r: &mut Request, protocol: &dyn Protocol) {
    let u = r.upstream_mut();
    let (status, text) = (u.head.status, u.text.clone());
    let Some(t) = u.invalidates.take_if(|_| status > 0) else { return };
    if !rfc9111::invalidates(r.target.method, status) {
        // The request may be retried on another server, so keep the ticket.
        r.upstream_mut().invalidates = Some(t);
        return;
    }
    let mut keys = vec![t.key.to_vec()];
    let u = r.upstream_mut();
    let named = [FieldId::Location, FieldId::ContentLocation];
    let values = named.iter().filter_map(|id| u.head.value(*id, &text));
    let values: Vec<Bytes> = values.map(Bytes::copy_from_slice).collect();
    for value in values {
        keys.extend(key_of(r, &t, &value, protocol));
    }
    // If the key contains the method, invalidate the keys of both GET and HEAD.
    let method = r.method_name().to_vec();
    let of_others = keys.iter().flat_map(|key| {
        let other = |name: &[u8]| rfc9111::key_of_other(key, &method, name);
        [other(b"GET"), other(b"HEAD")].into_iter().flatten()
    });
    let of_others: Vec<Vec<u8>> = of_others.collect();
    keys.extend(of_others);
    let hashes = keys.iter().map(|key| cache::hash(key)).collect();
    if let Ok(pool) = r.pool() {
        cache::outdate(&t.cache, hashes, pool).await;
    }
}

/// The cache key of the resource in `Location` or `Content-Location`, if it has the same origin.
fn key_of(r: &mut Request, t: &Ticket, value: &Bytes, protocol: &dyn Protocol) -> Option<Vec<u8>> {
    let host = r.header(FieldId::Host).unwrap_or_default().to_vec();
    let u = r.upstream_mut();
    let (upstream, uri) = (u.host.clone(), u.uri.clone());
    let hosts: &[&[u8]] = &[&host, &upstream];
    if t.conf.key.is_none() {
        // The default key contains the upstream's host and URI.
        let other = rfc9111::same_origin(value, &uri, hosts)?;
        return rfc9111::key_of_other(&t.key, &uri, &other);
    }
    let shown = protocol.rewrite(r, FieldId::Location, value).unwrap_or_else(|| value.clone());
    let own = r.unparsed_uri().to_vec();
    let other = rfc9111::same_origin(&shown, &own, hosts)?;
    let path = other.split(|b| *b == b'?').next().unwrap_or_default();
    rfc9111::key_of_other(&t.key, &own, &other)
        .or_else(|| rfc9111::key_of_other(&t.key, &r.target.uri, path))
}

/// Caches an error of ours, or one of the upstream's that `error_page` answers, so that the
/// upstream is not asked again at once.
pub(crate) fn keep_error(r: &mut Request, status: u16, conf: &Conf, of_upstream: bool) {
    if let Some(u) = r.upstream().filter(|_| of_upstream)
        && u.cache.as_ref().is_some_and(|t| is_for_client_alone(r, &t.key, &u.head, &u.text))
    {
        return;
    }
    let u = r.upstream_mut();
    let Some(ticket) = &mut u.cache else { return };
    let mut rules = Rules::default();
    if of_upstream {
        rules = Rules::read(&u.head, &u.text, conf.ignore_headers, 0, now());
    }
    if ticket.cacheable
        && !rules.forbidden
        && let Some(until) = until(&rules, &ticket.conf.clone(), status)
    {
        ticket.leave_error(status, until);
    } else {
        ticket.leave_unlocked(now() + if of_upstream { UNLOCKED_SECS } else { 1 });
    }
}
