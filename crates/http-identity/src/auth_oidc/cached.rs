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

#[cfg(test)]
mod tests {
    use event::sim::{Faults, Plan, run};

    use super::*;

    /// A source whose document is the number of the fetch, or a failure.
    #[derive(Clone, Default)]
    struct Source(Rc<(Cell<u32>, Cell<bool>)>);

    impl Source {
        async fn fetch(self) -> Result<u32, Failure> {
            event::sleep(100).await;
            self.0.0.set(self.0.0.get() + 1);
            match self.0.1.get() {
                true => Err(Failure::Away("away".to_owned())),
                false => Ok(self.0.0.get()),
            }
        }
    }

    fn simulated<F: Future<Output = ()> + 'static>(test: impl FnOnce(Cached<u32>, Source) -> F) {
        let ran = run(Plan::new(0, Faults::NONE), test(Cached::default(), Source::default()));
        assert!(ran.is_ok(), "{ran:?}");
    }

    #[test]
    fn one_fetch_is_for_all_who_wait() {
        simulated(|cached, source| async move {
            let cached = Rc::new(cached);
            let done = Rc::new(Cell::new(0));
            for _ in 0..5 {
                let (cached, source, done) = (cached.clone(), source.clone(), done.clone());
                event::spawn(async move {
                    assert_eq!(cached.get(|| source.fetch()).await.ok().as_deref(), Some(&1));
                    done.set(done.get() + 1);
                });
            }
            event::testing::until(move || done.get() == 5).await;
            assert_eq!(source.0.0.get(), 1);
        });
    }

    #[test]
    fn copies_are_renewed_in_bounded_times() {
        simulated(|cached, source| async move {
            let value = |result: Result<Rc<u32>, Failure>| result.ok().map(|value| *value);
            let fetch = || source.clone().fetch();
            assert_eq!(value(cached.get(fetch).await), Some(1));
            // A key that is not known, twice: too early, and early enough.
            assert_eq!(value(cached.renewed(10_000, fetch).await), Some(1));
            event::sleep(10_000).await;
            assert_eq!(value(cached.renewed(10_000, fetch).await), Some(2));
            assert_eq!(value(cached.renewed(10_000, fetch).await), Some(2));
            // Old copies serve while newer ones come, and while none can be had.
            event::sleep(AGE_MS).await;
            assert_eq!(value(cached.get(fetch).await), Some(2));
            event::sleep(200).await;
            assert_eq!(value(cached.get(fetch).await), Some(3));
            source.0.1.set(true);
            event::sleep(AGE_MS).await;
            assert_eq!(value(cached.get(fetch).await), Some(3));
            event::sleep(200).await;
            assert_eq!((value(cached.get(fetch).await), source.0.0.get()), (Some(3), 4));
        });
    }

    #[test]
    fn failures_are_repeated_without_a_fetch_for_a_while() {
        simulated(|cached, source| async move {
            source.0.1.set(true);
            let fetch = || source.clone().fetch();
            for _ in 0..3 {
                assert!(matches!(cached.get(fetch).await, Err(Failure::Away(_))));
            }
            assert_eq!(source.0.0.get(), 1);
            source.0.1.set(false);
            event::sleep(RETRY_MS).await;
            assert_eq!(cached.get(fetch).await.ok().as_deref(), Some(&2));
        });
    }
}
