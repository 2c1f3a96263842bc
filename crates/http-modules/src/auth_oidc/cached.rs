//! A copy of a document that is fetched now and then.
//!
//! Each worker has its own. One task fetches, and all requests that need the document wait for it;
//! it goes on if they leave. An old copy stays in use while a newer one is fetched, and while the
//! provider is away.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use base::time::now_ms;
use event::Notify;

use super::fetch::Failure;

/// The age at which a copy is fetched again, milliseconds.
const AGE_MS: u64 = 3_600_000;

/// The time until the next fetch after one that failed, milliseconds.
const RETRY_MS: u64 = 5_000;

pub(super) struct Cached<T>(Rc<Inner<T>>);

struct Inner<T> {
    value: RefCell<Option<Rc<T>>>,
    failure: RefCell<Option<Failure>>,
    /// When the last fetch ended.
    at_ms: Cell<u64>,
    /// When the next one is due.
    next_ms: Cell<u64>,
    is_fetching: Cell<bool>,
    done: Notify,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Cached(Rc::new(Inner {
            value: RefCell::default(),
            failure: RefCell::default(),
            at_ms: Cell::new(0),
            next_ms: Cell::new(0),
            is_fetching: Cell::new(false),
            done: Notify::new(),
        }))
    }
}

impl<T: 'static> Cached<T> {
    /// The copy, fetched if there is none.
    ///
    /// # Errors
    /// There is none: the last fetch failed.
    pub(super) async fn get<F>(&self, fetch: impl FnOnce() -> F) -> Result<Rc<T>, Failure>
    where
        F: Future<Output = Result<T, Failure>> + 'static,
    {
        if !self.0.is_fetching.get() && now_ms() >= self.0.next_ms.get() {
            self.start(fetch());
        }
        if let Some(value) = &*self.0.value.borrow() {
            return Ok(value.clone());
        }
        self.wait().await
    }

    /// The copy, fetched again if it is at least this old.
    ///
    /// # Errors
    /// There is none.
    pub(super) async fn renewed<F>(
        &self,
        age_ms: u64,
        fetch: impl FnOnce() -> F,
    ) -> Result<Rc<T>, Failure>
    where
        F: Future<Output = Result<T, Failure>> + 'static,
    {
        if !self.0.is_fetching.get() && now_ms() >= self.0.at_ms.get() + age_ms {
            self.start(fetch());
        }
        self.wait().await
    }

    fn start(&self, fetch: impl Future<Output = Result<T, Failure>> + 'static) {
        let inner = self.0.clone();
        inner.is_fetching.set(true);
        event::spawn(async move {
            let result = fetch.await;
            let now_ms = now_ms();
            let wait_ms = if result.is_ok() { AGE_MS } else { RETRY_MS };
            match result {
                Ok(value) => *inner.value.borrow_mut() = Some(Rc::new(value)),
                Err(failure) => {
                    if inner.value.borrow().is_some() {
                        let log = base::log::default();
                        let m = format_args!("{failure}; the earlier copy stays in use");
                        base::log!(log, base::log::Level::Error, None, "OpenID Connect: {m}");
                    }
                    *inner.failure.borrow_mut() = Some(failure);
                }
            }
            inner.at_ms.set(now_ms);
            inner.next_ms.set(now_ms + wait_ms);
            inner.is_fetching.set(false);
            inner.done.notify_all();
        });
    }

    async fn wait(&self) -> Result<Rc<T>, Failure> {
        while self.0.is_fetching.get() {
            self.0.done.notified().await;
        }
        if let Some(value) = &*self.0.value.borrow() {
            return Ok(value.clone());
        }
        let failure = self.0.failure.borrow().clone();
        Err(failure.unwrap_or_else(|| Failure::Away("nothing was fetched".to_owned())))
    }
}
