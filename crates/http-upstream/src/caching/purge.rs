//! Purge requests (`*_cache_purge`): by key, by key prefix if the key ends with an asterisk, or by
//! the tags in `Cache-Tag` or `Surrogate-Key`.

use base::ascii::eq_ignore_case;
use base::log::Level;
use bytes::Bytes;
use cache::{PurgeError, PurgeResult, Ticket, tags};
use http::module::Verdict;
use http::request::Request;

use super::sharing;

/// Purges the entries that the request selects, and responds.
pub(super) async fn purge(r: &mut Request, t: &Ticket) -> Verdict {
    let mut named = Vec::new();
    for (name, value) in r.headers() {
        if tags::FIELDS.iter().any(|field| eq_ignore_case(name, field)) {
            tags::add(value, &mut named);
        }
    }
    let pool = r.pool().ok().flatten();
    let (status, m) = match cache::purge(&t.cache, &t.key, &t.main, &named, pool.as_ref()).await {
        Ok(result) => {
            let is_later = sharing::tell(r, t, &named).await;
            answer(r, result, is_later);
            return Verdict::Done;
        }
        Err(PurgeError::NoIndex) => (503, "the index of the cache accepts no purges"),
        Err(PurgeError::TooLong) => (400, "too long to be purged by"),
        Err(PurgeError::TooMany) => (503, "too many purges are under way"),
    };
    r.log(Level::Error, format_args!("{m}"));
    Verdict::Status(status)
}

/// Responds with the number of removed entries; with 202 if the cache manager continues in the
/// background, or if other servers hear of the purge later (`is_later`).
fn answer(r: &mut Request, result: PurgeResult, is_later: bool) {
    let PurgeResult { count, complete } = result;
    let waits = if is_later { ",\"waits\":true" } else { "" };
    let text = match count {
        Some(n) => format!("{{\"purged\":{n},\"complete\":{complete}{waits}}}\n"),
        None => format!("{{\"complete\":false{waits}}}\n"),
    };
    let status = if count.is_some() && !is_later { 200 } else { 202 };
    r.respond(status, Bytes::from_static(b"application/json"), Bytes::from(text));
}
