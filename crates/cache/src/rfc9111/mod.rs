//! The rules of RFC 9111 for a shared cache, with RFC 5861 (stale responses) and RFC 9213 (targeted
//! fields): they hold where `*_cache_rfc9111` is on, in place of [`crate::rules`].
//!
//! Nothing here waits or knows of files: fields and times go in, verdicts come out. The RFC's
//! options are chosen so:
//!
//! - `X-Accel-Expires` and `*_cache_valid` are the operator's word (section 3, "cache extension"):
//!   the first sets the lifetime above all, the second where the response does not say, but neither
//!   lifts a prohibition.
//! - Without either, a tenth of the time since `Last-Modified` is the lifetime, a day at most
//!   (section 4.2.2).
//! - What is stale when it comes is kept if it can be validated.
//! - A response that sets a cookie is not kept unless `Set-Cookie` is ignored, or is named by
//!   `private` or `no-cache` and so left out.

use base::ascii::{eq_ignore_case, write_u64};
use base::time::{format_http_date, parse_http_date};
use bytes::Bytes;
use http_wire::cache_control::{CacheControl, delta_seconds};
use http_wire::h1::{FieldId, Method, ResponseHead};

use crate::file_header::Header;
use crate::ignore;
use crate::kept_head::status_line;
use crate::rules::Rules;

/// Longest `Vary` that is heeded; a response with a longer one is not kept.
const VARY_MAX: usize = 1024;

/// The longest lifetime that is only supposed, seconds.
const HEURISTIC_MAX: i64 = 86_400;

/// The directives of a request (section 5.2.1).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    control: CacheControl,
    /// It came with credentials.
    authorized: bool,
}

impl Asked {
    /// Whether a response may be stored for other clients that must not be stored for this one.
    pub fn limits_storing(&self) -> bool {
        self.authorized || self.control.no_store
    }

    /// Reads the `Cache-Control` lines of a request. `pragma` says `no-cache` to those that came
    /// before (section 5.4).
    pub fn read<'a>(
        lines: impl Iterator<Item = &'a [u8]>,
        pragma: Option<&[u8]>,
        authorized: bool,
    ) -> Asked {
        let mut control = CacheControl::default();
        let mut none = true;
        for line in lines {
            none = false;
            control.read(line);
        }
        if let (true, Some(pragma)) = (none, pragma) {
            let mut old = CacheControl::default();
            old.read(pragma);
            control.no_cache = old.no_cache;
        }
        Asked { control, authorized }
    }

    /// The client takes a kept response only; 504 otherwise (section 5.2.1.7).
    pub fn only_if_cached(&self) -> bool {
        self.control.only_if_cached
    }

    /// Whether it asks for more than a fresh response.
    pub fn is_choosy(&self) -> bool {
        let c = &self.control;
        c.no_cache.is_all() || c.max_age.is_some() || c.min_fresh.is_some()
    }
}

fn secs(n: Option<u64>) -> i64 {
    // At most SECONDS_MAX.
    n.map_or(0, |n| i64::try_from(n).unwrap_or(i64::MAX))
}

/// `X-Accel-Expires`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Accel {
    Never,
    For(i64),
    Until(i64),
}

/// The fields of a response that decide about keeping it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reply {
    control: CacheControl,
    accel: Option<Accel>,
    /// `Expires`; `i64::MIN` is an invalid date (section 5.3: in the past).
    expires: Option<i64>,
    date: Option<i64>,
    age: i64,
    last_modified: Option<i64>,
    etag: bool,
    cookie: bool,
    vary: Vec<u8>,
    vary_any: bool,
    /// Names in `Connection`.
    hops: Vec<u8>,
    /// Where a part of a response begins.
    part_from: Option<u64>,
}

impl Reply {
    /// Reads the fields of a head, but for those that `ignored` (bits of [`ignore`]) names.
    pub fn read(head: &ResponseHead, text: &[u8], ignored: u64) -> Reply {
        let mut out = Reply::default();
        let heeded = |bit| ignored & bit == 0;
        let (mut targeted, mut expired, mut aged) = (Vec::new(), None, None);
        for field in head.fields.iter().filter(|f| !f.ignored) {
            let value = field.value.of(text);
            match field.id {
                FieldId::CacheControl if heeded(ignore::CACHE_CONTROL) => out.control.read(value),
                FieldId::Expires if heeded(ignore::EXPIRES) => {
                    expired = expired.or(Some(expiry(value).unwrap_or(i64::MIN)));
                }
                FieldId::XAccelExpires if heeded(ignore::XA_EXPIRES) => {
                    out.accel = out.accel.or(accel(value));
                }
                FieldId::SetCookie => out.cookie |= heeded(ignore::SET_COOKIE),
                FieldId::Vary if heeded(ignore::VARY) => join(&mut out.vary, value),
                FieldId::Connection => join(&mut out.hops, value),
                FieldId::Date => out.date = parse_http_date(value),
                // Of several, the first counts (section 5.1).
                FieldId::Age => aged = aged.or(Some(age(value))),
                FieldId::LastModified => out.last_modified = parse_http_date(value),
                FieldId::ETag => out.etag = !value.is_empty(),
                FieldId::ContentRange => out.part_from = first_of_range(value),
                _ if heeded(ignore::CACHE_CONTROL)
                    && eq_ignore_case(field.name.of(text), b"cdn-cache-control") =>
                {
                    join(&mut targeted, value);
                }
                _ => {}
            }
        }
        out.expires = expired;
        out.age = aged.unwrap_or(0);
        if let Some(control) = CacheControl::of_targeted(&targeted) {
            // RFC 9213 section 2.2: then neither Cache-Control nor Expires is heeded.
            out.control = control;
            out.expires = None;
        }
        out.vary_any = members(&out.vary).any(|name| name == b"*");
        out
    }

    /// It may not be served while it is stale, whatever else is said (sections 5.2.2.2, 5.2.2.4,
    /// 5.2.2.8 and 5.2.2.10).
    fn is_strict(&self) -> bool {
        let c = &self.control;
        c.must_revalidate || c.proxy_revalidate || c.s_maxage.is_some() || c.no_cache.is_all()
    }

    fn can_be_validated(&self) -> bool {
        self.etag || self.last_modified.is_some()
    }

    /// Its age when it came (section 4.2.3); `delay` is the time that it took, seconds.
    pub fn initial_age(&self, delay: i64, now: i64) -> i64 {
        let apparent = self.date.map_or(0, |date| now.saturating_sub(date).max(0));
        apparent.max(self.age.saturating_add(delay))
    }

    /// Section 3: whether it may be kept at all. `key` is its cache key.
    fn may_be_kept(&self, status: u16, asked: &Asked, key: &[u8]) -> bool {
        let c = &self.control;
        let understood = is_understood(status);
        let no_store = match c.must_understand {
            // Section 5.2.2.3.
            true => !understood,
            false => c.no_store,
        };
        // Section 3.5.
        let closed = asked.authorized && !c.public && !c.must_revalidate && c.s_maxage.is_none();
        let cookie =
            self.cookie && !c.private.names(b"set-cookie") && !c.no_cache.names(b"set-cookie");
        let part = match status {
            // Section 3.4: parts are not joined here; one is kept by its own name only (`slice`).
            206 => !self.part_from.is_some_and(|from| names_range(key, from)),
            _ => status < 200 || status == 304,
        };
        !(no_store
            || asked.control.no_store
            || c.private.is_all()
            || closed
            || cookie
            || part
            || self.vary_any
            || self.vary.len() > VARY_MAX
            || self.accel == Some(Accel::Never))
    }

    /// Sections 4.2.1 and 4.2.2: its freshness lifetime, counted from its generation. `said` is the
    /// configured lifetime of responses without one.
    fn lifetime(&self, status: u16, said: u64, now: i64) -> Option<i64> {
        let c = &self.control;
        let date = self.date.unwrap_or(now);
        if let Some(n) = c.s_maxage.or(c.max_age) {
            return Some(secs(Some(n)));
        }
        if let Some(at) = self.expires {
            return Some(at.saturating_sub(date).max(0));
        }
        if said > 0 {
            return Some(i64::try_from(said).unwrap_or(i64::MAX));
        }
        if c.no_cache.is_all() {
            return Some(0);
        }
        if !c.public && !is_cacheable_by_default(status) {
            return None;
        }
        let changed = self.last_modified.filter(|t| *t < date)?;
        Some(((date - changed) / 10).min(HEURISTIC_MAX))
    }

    /// The rules for a response that took `delay` seconds to come.
    pub fn rules(&self, facts: &Facts<'_>, asked: &Asked, now: i64) -> Rules {
        let vary = Bytes::copy_from_slice(&self.vary);
        let no = Rules { forbidden: true, vary: vary.clone(), ..Rules::default() };
        if !self.may_be_kept(facts.status, asked, facts.key) {
            return no;
        }
        let age = self.initial_age(facts.delay, now);
        let valid = match (self.accel, self.lifetime(facts.status, facts.said, now)) {
            (Some(Accel::For(n)), _) => now.saturating_add(n),
            (Some(Accel::Until(at)), _) => at,
            (_, Some(lifetime)) => now.saturating_add(lifetime).saturating_sub(age),
            (_, None) => return no,
        };
        let c = &self.control;
        let strict = self.is_strict();
        // Without a field named, `no-cache` is stale from the beginning (section 5.2.2.4).
        let valid = if c.no_cache.is_all() { valid.min(now - 1) } else { valid }.max(1);
        let window = |n| if strict { 0 } else { secs(n) };
        let (updating, error) = (window(c.stale_while_revalidate), window(c.stale_if_error));
        let useful = valid > now || valid.saturating_add(updating.max(error)) > now;
        if !useful && !self.can_be_validated() {
            return no;
        }
        Rules { forbidden: false, valid, updating, error, vary }
    }

    /// Section 3.1, and the fields that `private` and `no-cache` name: whether a field is kept.
    fn keeps(&self, id: FieldId, name: &[u8]) -> bool {
        let c = &self.control;
        !is_of_hop(id, name, &self.hops) && !c.private.names(name) && !c.no_cache.names(name)
    }

    /// Whether a field is of this connection alone (RFC 9110 section 7.6.1).
    pub fn is_of_hop(&self, name: &[u8]) -> bool {
        is_of_hop(FieldId::lookup(name), name, &self.hops)
    }

    /// Whether it came without a date, which a cache or proxy adds then (RFC 9110 section 6.6.1).
    pub fn lacks_date(&self) -> bool {
        self.date.is_none()
    }
}

/// The facts about a response besides its fields.
pub struct Facts<'a> {
    /// The status of the response.
    pub status: u16,
    /// Its cache key.
    pub key: &'a [u8],
    /// The configured lifetime of such a response, seconds; 0: none.
    pub said: u64,
    /// The time that it took to come, seconds.
    pub delay: i64,
}

fn join(list: &mut Vec<u8>, value: &[u8]) {
    if !list.is_empty() {
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(value);
}

fn members(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|b| *b == b',').map(<[u8]>::trim_ascii).filter(|name| !name.is_empty())
}

/// A date of `Expires`. One in another zone than GMT is none (RFC 9110 section 5.6.7); of the
/// forms, that of `asctime` alone names no zone.
fn expiry(value: &[u8]) -> Option<i64> {
    let ends_in_gmt = value.len() >= 4 && value[value.len() - 4..].eq_ignore_ascii_case(b" GMT");
    let has_zone = memchr::memchr(b',', value).is_some();
    parse_http_date(value).filter(|_| ends_in_gmt || !has_zone)
}

/// Section 5.1: the first of a list; an invalid one counts as absent.
fn age(value: &[u8]) -> i64 {
    secs(delta_seconds(members(value).next().unwrap_or_default()))
}

fn accel(value: &[u8]) -> Option<Accel> {
    match value.strip_prefix(b"@") {
        Some(at) => base::ascii::parse_i63(at).map(Accel::Until),
        None => base::ascii::parse_i63(value).map(|n| match n {
            0 => Accel::Never,
            n => Accel::For(n),
        }),
    }
}

/// `bytes 5-9/100` begins at 5.
pub fn first_of_range(value: &[u8]) -> Option<u64> {
    let (unit, rest) = value.split_at_checked(6)?;
    let dash = memchr::memchr(b'-', rest).filter(|_| unit.eq_ignore_ascii_case(b"bytes "))?;
    base::ascii::parse_u64(rest[..dash].trim_ascii())
}

/// Whether a key names the range that begins there, as `$slice_range` does.
pub fn names_range(key: &[u8], from: u64) -> bool {
    let mut text = b"bytes=".to_vec();
    write_u64(&mut text, from);
    text.push(b'-');
    memchr::memmem::find(key, &text).is_some()
}

/// Statuses whose meaning for caches is known here (section 5.2.2.3).
fn is_understood(status: u16) -> bool {
    is_cacheable_by_default(status)
        || matches!(status, 201 | 202 | 205 | 302 | 303 | 307 | 400 | 401 | 403)
        || matches!(status, 406..=409 | 411..=413 | 415..=417 | 421..=431 | 451 | 500 | 502..=505)
}

/// RFC 9110 section 15.1: statuses that may be kept although nothing says for how long.
fn is_cacheable_by_default(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

fn is_of_hop(id: FieldId, name: &[u8], hops: &[u8]) -> bool {
    match id {
        FieldId::Connection
        | FieldId::KeepAlive
        | FieldId::ProxyAuthenticate
        | FieldId::ProxyAuthorization
        | FieldId::ProxyConnection
        | FieldId::Te
        | FieldId::TransferEncoding
        | FieldId::Upgrade => true,
        FieldId::Other if eq_ignore_case(name, b"proxy-authentication-info") => true,
        _ => members(hops).any(|hop| eq_ignore_case(hop, name)),
    }
}

/// Section 4: the use of a kept response for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reuse {
    /// It is what was asked for.
    Fresh,
    /// It is stale, which the client takes (`max-stale`).
    Accepted,
    /// The origin is asked first.
    Ask {
        /// Until it has answered, the kept response may be served (RFC 5861 section 3).
        updating: bool,
        /// If that fails, the kept response may be served (RFC 5861 section 4).
        error: bool,
        /// It may not be served without having asked, whatever the configuration says.
        strict: bool,
    },
}

/// Section 4, with 4.2.4 and 5.2.1: `reply` has the fields of the kept head.
pub fn reuse(header: &Header, reply: impl FnOnce() -> Reply, asked: &Asked, now: i64) -> Reuse {
    let ask = |updating, error, strict| Reuse::Ask { updating, error, strict };
    if !header.rfc9111 {
        // Kept by other rules: the prohibitions are unknown until the origin is asked.
        return ask(false, false, true);
    }
    let left = header.fresh_until(now).saturating_sub(now);
    if left > 0 && !asked.is_choosy() {
        return Reuse::Fresh;
    }
    let (reply, wish) = (reply(), &asked.control);
    if wish.no_cache.is_all() || reply.control.no_cache.is_all() {
        return ask(false, false, true);
    }
    let age = current_age(header, reply.age, now);
    let young = wish.max_age.is_none_or(|max| age <= secs(Some(max)));
    let strict = reply.is_strict();
    if left > 0 {
        return match young && left >= secs(wish.min_fresh) {
            true => Reuse::Fresh,
            false => ask(false, !strict && left + secs(wish.stale_if_error) > 0, false),
        };
    }
    if strict {
        return ask(false, false, true);
    }
    let beyond = -left;
    if let Some(max) = wish.max_stale
        && young
        && wish.min_fresh.is_none()
        && beyond <= secs(Some(max))
    {
        return Reuse::Accepted;
    }
    // A client that set conditions does not get a response that fits them even less, while it is
    // updated.
    let updating = beyond < header.updating && young && wish.min_fresh.is_none();
    ask(updating, beyond < header.error.max(secs(wish.stale_if_error)), false)
}

/// Section 4.2.3: the age of a kept response; `initial` is that of its head, which was brought up
/// to date when it was kept.
pub fn current_age(header: &Header, initial: i64, now: i64) -> i64 {
    initial.saturating_add(now.saturating_sub(header.date).max(0))
}

/// The age that a kept head says it came with.
pub fn stored_age(head: &ResponseHead, text: &[u8]) -> i64 {
    head.value(FieldId::Age, text).map_or(0, age)
}

/// The head of a response as it is kept: without the fields of section 3.1, with its age when it
/// came (section 4.2.3) and its date.
pub fn head_text(head: &ResponseHead, text: &[u8], reply: &Reply, age: i64, now: i64) -> Bytes {
    let mut out = Vec::with_capacity(text.len() + 64);
    status_line(&mut out, head, text);
    for field in head.fields.iter().filter(|f| !f.ignored) {
        let (id, name) = (field.id, field.name.of(text));
        let lies = id == FieldId::ContentLength && head.content_length.is_none();
        if id != FieldId::Age && reply.keeps(id, name) && !lies {
            line(&mut out, name, field.value.of(text));
        }
    }
    end(&mut out, reply, age, now);
    Bytes::from(out)
}

fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn end(out: &mut Vec<u8>, reply: &Reply, age: i64, now: i64) {
    if reply.lacks_date() {
        line(out, b"Date", &format_http_date(now));
    }
    if let Some(age) = u64::try_from(age).ok().filter(|age| *age > 0) {
        out.extend_from_slice(b"Age: ");
        write_u64(out, age);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Section 4.3.4: whether a head that brought no body of its own is about the kept response. A
/// `HEAD`'s must tell the same length, too (section 4.3.5).
pub fn is_about(kept: &Header, head: &ResponseHead, text: &[u8], of_head: bool) -> bool {
    // Weak tags compare without their mark (RFC 9110 section 8.8.3.2).
    let strong = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
    let tag = head.value(FieldId::ETag, text).filter(|tag| !tag.is_empty());
    let changed = head.value(FieldId::LastModified, text).and_then(parse_http_date);
    let same_tag = tag.is_none_or(|tag| strong(tag) == strong(&kept.etag));
    let same_time = changed.is_none_or(|t| t == kept.last_modified);
    let same_len = !of_head || head.content_length.is_none_or(|len| len == kept.body_len);
    match of_head {
        true => same_tag && same_time && same_len && (tag.is_some() || changed.is_some()),
        false => same_tag && (tag.is_some() || same_time),
    }
}

/// Section 3.2: the kept head with the fields of a newer one, read as `reply`, in place of its own.
pub fn freshened(
    (old, old_text): (&ResponseHead, &[u8]),
    (new, new_text): (&ResponseHead, &[u8]),
    reply: &Reply,
    age: i64,
    now: i64,
) -> Bytes {
    // Fields about the coding of the body stay with the body.
    let of_body = |id| {
        matches!(id, FieldId::ContentLength | FieldId::ContentRange | FieldId::ContentEncoding)
    };
    let replaces = |f: &&http_wire::h1::Field| {
        let cookie = f.id == FieldId::SetCookie && reply.cookie;
        !f.ignored && !of_body(f.id) && !cookie && reply.keeps(f.id, f.name.of(new_text))
    };
    let mut out = Vec::with_capacity(old_text.len() + new_text.len());
    status_line(&mut out, old, old_text);
    for field in old.fields.iter().filter(|f| !f.ignored) {
        let name = field.name.of(old_text);
        if matches!(field.id, FieldId::Age | FieldId::Date) {
            continue;
        }
        let mut newer = new.fields.iter().filter(replaces);
        if !newer.any(|f| eq_ignore_case(f.name.of(new_text), name)) && reply.keeps(field.id, name)
        {
            line(&mut out, name, field.value.of(old_text));
        }
    }
    for field in new.fields.iter().filter(replaces).filter(|f| f.id != FieldId::Age) {
        line(&mut out, field.name.of(new_text), field.value.of(new_text));
    }
    end(&mut out, reply, age, now);
    Bytes::from(out)
}

/// Section 4.4: whether a response to that method invalidates the kept responses of its target.
pub fn invalidates(method: Method, status: u16) -> bool {
    is_unsafe(method) && (200..400).contains(&status)
}

/// RFC 9110 section 9.2.1; methods that are not known are not safe.
pub fn is_unsafe(method: Method) -> bool {
    !matches!(
        method,
        Method::Get | Method::Head | Method::Options | Method::Trace | Method::Propfind
    )
}

/// Section 4.4: the path and arguments that a `Location` or `Content-Location` names, where it has
/// the origin of one of `hosts`. `base` is the path of the target.
pub fn same_origin(value: &[u8], base: &[u8], hosts: &[&[u8]]) -> Option<Vec<u8>> {
    let value = value.split(|b| *b == b'#').next().unwrap_or_default();
    let after = |prefix: &[u8]| {
        let (start, rest) = value.split_at_checked(prefix.len())?;
        start.eq_ignore_ascii_case(prefix).then_some(rest)
    };
    let found = after(b"http://").or_else(|| after(b"https://")).or_else(|| after(b"//"));
    if let Some(rest) = found {
        let end = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        let own = hosts.iter().any(|h| !h.is_empty() && h.eq_ignore_ascii_case(host));
        let slash: &[u8] = if path.starts_with(b"/") { b"" } else { b"/" };
        return own.then(|| [slash, path].concat());
    }
    if value.is_empty() || value.contains(&b':') && !value.starts_with(b"/") {
        return None;
    }
    if value.starts_with(b"/") {
        return Some(value.to_vec());
    }
    let base = base.split(|b| *b == b'?').next().unwrap_or_default();
    let folder = memchr::memrchr(b'/', base).map_or(&base[..0], |slash| &base[..=slash]);
    let joined = [folder, value].concat();
    let mut path = Vec::new();
    // `.` and `..` are resolved; a path that leaves the root has no kept response.
    let parts = http_wire::uri::normalize(&joined, false, &mut path).ok()?;
    let args = &joined[parts.args];
    if !args.is_empty() {
        path.push(b'?');
        path.extend_from_slice(args);
    }
    Some(path)
}

/// The key that another target of the same location has: `own` is how the key names the target.
pub fn key_of_other(key: &[u8], own: &[u8], other: &[u8]) -> Option<Vec<u8>> {
    let at = memchr::memmem::rfind(key, own).filter(|_| !own.is_empty())?;
    Some([&key[..at], other, &key[at + own.len()..]].concat())
}

#[cfg(test)]
mod tests;
