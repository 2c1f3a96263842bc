//! Processes that look after caches: workers, which hear their bells, and the helpers beside them.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use engine::Helper;
use event::{Deadline, Fd, Gate};

use crate::instance::Cache;
use crate::{loader, manager};

/// In a worker, before it serves: other processes may wake it from now on.
///
/// # Errors
/// The system's, where there is no descriptor for the bell.
pub fn start(caches: Vec<Rc<Cache>>, slot: usize) -> io::Result<()> {
    caches.iter().for_each(|cache| cache.use_slot(slot));
    // All caches have the same bells.
    let Some(first) = caches.first() else { return Ok(()) };
    let Some(bell) = first.keys.hear()? else { return Ok(()) };
    for cache in &caches {
        cache.hears();
    }
    answer_bell(bell, caches);
    Ok(())
}

/// Looks after the caches whenever another process wakes this one.
fn answer_bell(bell: OwnedFd, caches: Vec<Rc<Cache>>) {
    let bell = Fd::new(bell);
    event::spawn(async move {
        while bell.readable(Deadline::NEVER).await.is_ok() {
            os::fd::eventfd_take(bell.fd());
            caches.iter().for_each(|cache| cache.rung());
        }
    });
}

/// The manager is woken for purges and for news of entries. Where the manager is a part of the only
/// process, that process is woken already, and there is no other one to wake.
fn listen(caches: &[Rc<Cache>]) {
    let heard = caches.iter().filter(|cache| cache.hears()).count() > 0;
    let Some(first) = caches.first().filter(|_| !heard) else { return };
    let Ok(Some(bell)) = first.keys.hear() else { return };
    first.keys.listen(true);
    answer_bell(bell, caches.to_vec());
}

/// The work of a process beside the workers, for all caches at the same time: until `leave` as the
/// manager, until all files are known as the loader.
pub async fn help(caches: Vec<Rc<Cache>>, helper: Helper, leave: Gate) {
    let mut all: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    if helper == Helper::CacheManager {
        listen(&caches);
    }
    for cache in caches {
        all.push(match helper {
            Helper::CacheManager => Box::pin(manager::manage(cache, leave.clone())),
            Helper::CacheLoader => Box::pin(loader::load(cache)),
            Helper::Acme | Helper::SharedState => continue,
        });
    }
    std::future::poll_fn(|cx| {
        all.retain_mut(|one| one.as_mut().poll(cx).is_pending());
        if all.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await
}
