//! Requests that purge (`*_cache_purge`): by their key, by all keys that begin like it where it
//! ends with an asterisk, or by tags where they name some (`Cache-Tag`, `Surrogate-Key`).

use base::ascii::eq_ignore_case;
use base::log::Level;
use bytes::Bytes;
use cache::{PurgeError, PurgeResult, Ticket, tags};
use http::module::Verdict;
use http::request::Request;

/// Purges the entries that a request names, and answers.
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
            answer(r, result);
            return Verdict::Done;
        }
        Err(PurgeError::NoIndex) => (503, "the index of the cache accepts no purges"),
        Err(PurgeError::TooLong) => (400, "too long to be purged by"),
        Err(PurgeError::TooMany) => (503, "too many purges are under way"),
    };
    r.log(Level::Error, format_args!("{m}"));
    Verdict::Status(status)
}

/// Answers with the number of entries that were taken out; 202 where the manager goes on with that.
fn answer(r: &mut Request, result: PurgeResult) {
    let PurgeResult { count, complete } = result;
    let text = match count {
        Some(n) => format!("{{\"purged\":{n},\"complete\":{complete}}}\n"),
        None => "{\"complete\":false}\n".to_owned(),
    };
    let status = if count.is_some() { 200 } else { 202 };
    r.respond(status, Bytes::from_static(b"application/json"), Bytes::from(text));
}
