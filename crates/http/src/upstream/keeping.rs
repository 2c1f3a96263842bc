//! Where an exchange and a cache meet: whether a response is kept, and when what is kept is served
//! instead of one.

use std::rc::Rc;

use base::time::unix_secs;
use bytes::Bytes;
use proto::h1::{FieldId, ResponseHead, Version};

use super::Protocol;
use super::conf::Conf;
use super::exchange::Stop;
use crate::cache::{self, Header, Plan, Rules, Status, Stored, Temp, Ticket};
use crate::conn::Hold;
use crate::module::Verdict;
use crate::request::Request;

/// A response whose head is known, on its way to a cache unless something is against it.
pub(super) struct Keeping {
    ticket: Box<Ticket>,
    rules: Rules,
}

impl Keeping {
    /// What becomes of the ticket of a request whose response has that head; `None` where no cache
    /// is concerned.
    pub fn of(r: &mut Request, conf: &Conf, head: &ResponseHead) -> Option<Keeping> {
        let u = r.upstream_mut();
        let ticket = u.cache.take()?;
        let rules = Rules::read(head, &u.text, conf.ignore_headers, 0, now());
        if u.cache_status == Status::Expired {
            ticket.cache.keys_count(Status::Expired);
        }
        Some(Keeping { ticket, rules })
    }

    /// Whether the response may be kept, as far as its fields are concerned.
    pub fn may_be_kept(&self) -> bool {
        self.ticket.cacheable && !self.rules.forbidden
    }

    /// How the response is kept; `None` where it is not.
    pub fn plan(self, r: &mut Request, conf: &Conf, head: &ResponseHead) -> Option<Plan> {
        let may = self.may_be_kept();
        let Keeping { mut ticket, rules } = self;
        let settings = ticket.conf.clone();
        if !may || cache::any_set(r, &settings.no_cache) {
            return None;
        }
        let valid = until(&rules, &settings, head.status)?;
        let text = r.upstream_mut().text.clone();
        let entity = matches!(head.status, 200 | 206);
        let field = |id| head.value(id, &text).filter(|_| entity);
        let date = field(FieldId::LastModified).and_then(base::time::parse_http_date);
        let no_head = head.version == Version::HTTP_09 && text.is_empty();
        let variant = match rules.vary.is_empty() {
            true => Default::default(),
            false => ticket.variant(r, &rules.vary),
        };
        if ticket.is_secondary() && (rules.vary.is_empty() || variant != ticket.hash) {
            // The response does not vary as the one before did: it takes the place of all variants.
            ticket.hash = ticket.main;
            ticket.hold = None;
        }
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
            head: (!no_head).then(|| cache::head_text(head, &text)),
            body_len: 0,
        };
        let pool = r.pool().ok().filter(|_| header.fits())?;
        let temp = match ticket.cache.uses_temp_path() {
            true => Temp::Folder(conf.temp_path.clone()),
            false => Temp::Beside,
        };
        Some(Plan {
            cache: ticket.cache.clone(),
            hash: ticket.hash,
            header,
            hold: ticket.hold.take(),
            temp,
            pool,
            length: head.content_length,
            stay: Hold::new(&r.main),
        })
    }
}

fn now() -> i64 {
    unix_secs() as i64
}

/// Until when a response is fresh, seconds since 1970.
fn until(rules: &Rules, settings: &cache::CacheConf, status: u16) -> Option<i64> {
    match (rules.valid, settings.valid_for(status)) {
        (0, 0) => None,
        (0, secs) => Some(now().saturating_add(i64::try_from(secs).unwrap_or(i64::MAX))),
        (valid, _) => Some(valid),
    }
}

/// Whether what is kept answers instead of a response of that status.
pub(super) fn instead(r: &Request, status: u16, bit: u64) -> Option<Stop> {
    let u = r.upstream()?;
    let ticket = u.cache.as_ref().filter(|t| t.stale.is_some())?;
    if u.cache_status != Status::Expired {
        return None;
    }
    if bit != 0 && ticket.conf.use_stale & bit != 0 {
        return Some(Stop::Kept(Status::Stale));
    }
    (status == 304 && ticket.conf.revalidate).then_some(Stop::Kept(Status::Revalidated))
}

/// Whether what is kept answers where asking the upstream failed.
pub(super) fn instead_of_failure(r: &Request, bit: u64) -> bool {
    let Some(u) = r.upstream() else { return false };
    u.cache_status == Status::Expired
        && u.cache
            .as_ref()
            .is_some_and(|t| t.stale.is_some() && (t.conf.use_stale & bit != 0 || t.stale_error))
}

/// Serves what is kept although it is not fresh.
pub(super) fn serve(
    r: &mut Request,
    status: Status,
    conf: &Conf,
    protocol: &dyn Protocol,
) -> Option<(Box<Ticket>, Rc<Stored>, Verdict)> {
    let u = r.upstream_mut();
    let ticket = u.cache.take()?;
    let stored = ticket.stale.clone()?;
    u.cache_status = status;
    u.peer = None;
    ticket.cache.keys_count(status);
    let verdict = cache::serve_stored(r, &ticket, &stored, conf, protocol);
    Some((ticket, stored, verdict))
}

/// The upstream says that what is kept is still good: the head of its response says for how long.
pub(super) async fn revalidated(
    r: &mut Request,
    head: &ResponseHead,
    text: &[u8],
    conf: &Conf,
    protocol: &dyn Protocol,
) -> Verdict {
    let new = Rules::read(head, text, conf.ignore_headers, 0, now());
    let served = serve(r, Status::Revalidated, conf, protocol);
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
        cache::renew(&ticket, &stored, header, pool).await;
    }
    verdict
}

/// An error of ours, or one of the upstream's that `error_page` answers: it may be kept for a
/// while, so that the upstream is not asked again at once.
pub(super) fn keep_error(r: &mut Request, status: u16, conf: &Conf, of_upstream: bool) {
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
    }
}
