//! Keys that a subrequest fetches, by `auth_jwt_key_request`.
//!
//! With `auth_jwt_key_cache`, one request fetches new keys when the old ones have aged; requests
//! that come before it is done use the old ones, and so do all while the provider is away. Where
//! there are none yet, they wait for that one, and another goes on if its client leaves. A token
//! with an unknown `kid` has them fetched at once, because the provider may have changed its keys,
//! but no more often than [`UNKNOWN_KID_MS`].

use std::cell::RefCell;
use std::fmt;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use base::log::{Level, lossy};
use bytes::Bytes;
use conf::template::Template;
use conf::{ConfError, Node};
use event::Notify;
use http::cx::Cx;
use http::module::Verdict;
use http::request::Request;
use http::subrequest::{Subrequest, Use};
use jose::KeySet;

/// Locations that a URI with variables may have meant, each with its keys.
const URIS_MAX: usize = 64;
/// The time until the next fetch where one failed, or its client has left.
const RETRY_MS: u64 = 1000;
/// The least age of keys that a token with an unknown `kid` has fetched again.
const UNKNOWN_KID_MS: u64 = 10_000;

/// `auth_jwt_key_request`.
pub(super) struct KeyRequest {
    uri: Template,
    fetched: RefCell<Vec<Entry>>,
    /// The fetches under way that others may wait for.
    fetches: RefCell<Vec<Rc<Fetch>>>,
}

/// A fetch under way.
struct Fetch {
    uri: Bytes,
    /// The keys, or that there are none; nothing if its request has ended before.
    result: RefCell<Option<Result<Arc<KeySet>, ()>>>,
    done: Notify,
}

/// The request that fetches. Others are told when it is done, or over.
struct Fetching<'a>(&'a KeyRequest, Rc<Fetch>);

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        self.0.fetches.borrow_mut().retain(|fetch| !Rc::ptr_eq(fetch, &self.1));
        self.1.done.notify_all();
    }
}

struct Entry {
    uri: Bytes,
    keys: Arc<KeySet>,
    /// When the keys came.
    at_ms: u64,
    /// When they are to be fetched again.
    next_ms: u64,
}

impl Entry {
    /// Whether an unknown `kid` is a reason to fetch the keys. The next one waits, whatever comes
    /// of this one.
    fn takes_turn(&mut self, now_ms: u64) -> bool {
        let is_due = now_ms >= self.at_ms + UNKNOWN_KID_MS;
        if is_due {
            self.at_ms = now_ms;
        }
        is_due
    }
}

impl KeyRequest {
    pub(super) fn of(cx: &mut Cx, n: &Node) -> Result<KeyRequest, ConfError> {
        let uri = cx.template(n.arg(0)?)?;
        Ok(KeyRequest { uri, fetched: RefCell::default(), fetches: RefCell::default() })
    }

    /// The URI for a request. A subrequest may change the variables in it, because it runs the
    /// server's `set` directives again, so it is to be found out before the first one.
    pub(super) fn uri(&self, r: &mut Request) -> Bytes {
        r.eval(&self.uri)
    }

    /// The keys, if they need not be fetched. A caller that gets none is to call
    /// [`KeyRequest::fetch`].
    pub(super) fn fresh(&self, uri: &Bytes) -> Option<Arc<KeySet>> {
        let fetched = self.fetched.borrow();
        let entry = fetched.iter().find(|entry| entry.uri == uri)?;
        (base::time::now_ms() < entry.next_ms).then(|| entry.keys.clone())
    }

    /// Whether the keys are old enough that a token with an unknown `kid` has them fetched.
    pub(super) fn may_have_others(&self, uri: &Bytes) -> bool {
        let now_ms = base::time::now_ms();
        let mut fetched = self.fetched.borrow_mut();
        let entry = fetched.iter_mut().find(|entry| entry.uri == uri);
        entry.is_some_and(|entry| entry.takes_turn(now_ms))
    }

    /// The keys, fetched by a subrequest: this request's or, if they are kept, another's that is
    /// under way.
    ///
    /// # Errors
    /// There are none, which was logged, or the request is over.
    pub(super) async fn fetch(
        &self,
        r: &mut Request,
        uri: Bytes,
        cache_ms: u64,
    ) -> Result<Arc<KeySet>, Verdict> {
        if cache_ms == 0 {
            return self.fetch_now(r, uri, 0).await;
        }
        while let Some(fetch) = self.under_way(&uri) {
            let wait = pin!(fetch.done.notified());
            if let event::Either::Second(()) = event::race(wait, pin!(r.client_gone())).await {
                r.log(Level::Info, format_args!("client prematurely closed connection"));
                return Err(Verdict::Close);
            }
            let result = fetch.result.borrow().clone();
            if let Some(result) = result {
                return result.map_err(|()| {
                    let m = format_args!("keys of \"{}\": another request got none", lossy(&uri));
                    r.log(Level::Error, m);
                    Verdict::Status(500)
                });
            }
        }
        let (result, done) = Default::default();
        let fetch = Rc::new(Fetch { uri: uri.clone(), result, done });
        self.fetches.borrow_mut().push(fetch.clone());
        let fetching = Fetching(self, fetch);
        let made = self.fetch_now(r, uri, cache_ms).await;
        // An error of another kind than a status is the end of this request alone.
        *fetching.1.result.borrow_mut() = match &made {
            Ok(keys) => Some(Ok(keys.clone())),
            Err(Verdict::Status(_)) => Some(Err(())),
            Err(_) => None,
        };
        made
    }

    fn under_way(&self, uri: &Bytes) -> Option<Rc<Fetch>> {
        self.fetches.borrow().iter().find(|fetch| fetch.uri == *uri).cloned()
    }

    async fn fetch_now(
        &self,
        r: &mut Request,
        uri: Bytes,
        cache_ms: u64,
    ) -> Result<Arc<KeySet>, Verdict> {
        let retry_ms = base::time::now_ms() + RETRY_MS;
        if let Some(entry) = self.fetched.borrow_mut().iter_mut().find(|entry| entry.uri == uri) {
            entry.next_ms = entry.next_ms.max(retry_ms);
        }
        let made = ask(r, &uri).await?;
        let mut fetched = self.fetched.borrow_mut();
        let known = fetched.iter().position(|entry| entry.uri == uri);
        match (made, known) {
            (Ok(keys), known) => {
                let (keys, at_ms) = (Arc::new(keys), base::time::now_ms());
                if cache_ms > 0 {
                    known.map(|i| fetched.swap_remove(i));
                    if fetched.len() == URIS_MAX {
                        let oldest = (0..URIS_MAX).min_by_key(|i| fetched[*i].at_ms);
                        fetched.swap_remove(oldest.unwrap_or(0));
                    }
                    let next_ms = at_ms + cache_ms;
                    fetched.push(Entry { uri, keys: keys.clone(), at_ms, next_ms });
                }
                Ok(keys)
            }
            (Err(what), Some(i)) => {
                let uri = lossy(&uri);
                let m = format_args!("keys of \"{uri}\": {what}; the keys fetched before stay");
                r.log(Level::Error, m);
                Ok(fetched[i].keys.clone())
            }
            (Err(what), None) => {
                r.log(Level::Error, format_args!("keys of \"{}\": {what}", lossy(&uri)));
                Err(Verdict::Status(500))
            }
        }
    }
}

/// Why a subrequest has brought no keys.
enum NoKeys {
    NoSubrequest,
    Status(u16),
    Malformed(jose::Error),
}

impl fmt::Display for NoKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoKeys::NoSubrequest => f.write_str("no subrequest"),
            NoKeys::Status(status) => write!(f, "the status is {status}"),
            NoKeys::Malformed(error) => error.fmt(f),
        }
    }
}

/// Makes the subrequest. The outer error is the answer to the client's request.
async fn ask(r: &mut Request, uri: &Bytes) -> Result<Result<KeySet, NoKeys>, Verdict> {
    let (path, args) = match memchr::memchr(b'?', uri) {
        Some(at) => (uri.slice(..at), uri.slice(at + 1..)),
        None => (uri.clone(), Bytes::new()),
    };
    let ask = Subrequest {
        take: Use::Memory,
        with_body: false,
        is_aside: true,
        ..Subrequest::new(path, args)
    };
    let Ok(handle) = r.subrequest(ask) else { return Ok(Err(NoKeys::NoSubrequest)) };
    r.await_subrequest(&handle).await?;
    if handle.status() != 200 {
        return Ok(Err(NoKeys::Status(handle.status())));
    }
    let mut body = handle.body();
    let mut text = Vec::new();
    while let Some(piece) = body.pop_front() {
        text.extend_from_slice(piece.memory().unwrap_or_default());
    }
    Ok(KeySet::parse(&text).map_err(NoKeys::Malformed))
}

#[cfg(test)]
mod tests {
    use super::{Arc, Bytes, Entry, KeySet, UNKNOWN_KID_MS};

    #[test]
    fn unknown_key_ids_fetch_keys_a_bounded_number_of_times() {
        let keys = Arc::new(KeySet::default());
        let mut entry = Entry { uri: Bytes::new(), keys, at_ms: 5, next_ms: 0 };
        assert!(!entry.takes_turn(4 + UNKNOWN_KID_MS));
        assert!(entry.takes_turn(5 + UNKNOWN_KID_MS));
        assert!(!entry.takes_turn(6 + UNKNOWN_KID_MS));
        assert!(entry.takes_turn(5 + 2 * UNKNOWN_KID_MS));
    }
}
