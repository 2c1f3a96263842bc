//! The acme process: the keys that it reads while it is privileged, and its main task.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use engine::{Help, Seat};
use http::server::HttpMain;

use crate::board::Board;
use crate::directives::{Acme, BadKeyFile, decode_key, read};
use crate::issuer::{AccountKey, ExternalKey};
use crate::keep::Keeper;
use crate::session::Trouble;

/// In the master: whether an acme process is needed, that is whether any certificate is to be
/// ordered.
pub(crate) fn wants(main: &HttpMain) -> bool {
    let acme = main.confs.get::<Acme>();
    acme.is_some_and(|acme| acme.issuers.iter().any(|issuer| !issuer.orders.is_empty()))
}

/// In the acme process, before it drops its privileges: reads the key files that the configuration
/// names. The master does not keep the keys, so that no worker inherits them. An error is stored,
/// and reported when the key is used.
pub(crate) fn prepare(main: &HttpMain) {
    for issuer in main.confs.get::<Acme>().iter().flat_map(|acme| &acme.issuers) {
        if let AccountKey::File(path) = &issuer.account_key {
            let text = read(path).map_err(|e| {
                Trouble::permanent(format!("account key \"{}\": {e}", path.display()))
            });
            let _ = issuer.secrets.account_key.set(text);
        }
        if let Some((_, ExternalKey::File(path))) = &issuer.external {
            let key = read(path).and_then(|text| decode_key(&text).map_err(BadKeyFile::External));
            let key = key.map_err(|e| {
                Trouble::permanent(format!("external account key \"{}\": {e}", path.display()))
            });
            let _ = issuer.secrets.external_key.set(key);
        }
        if let Some(shared) = &issuer.shared {
            let secrets = fleet_link::Secrets::read(&shared.engine).and_then(|secrets| {
                let key = read(&shared.key);
                let path = shared.key.display();
                Ok((secrets, key.map_err(|e| format!("key of \"sync\" \"{path}\": {e}"))?))
            });
            let _ = issuer.secrets.shared.set(secrets);
        }
    }
}

/// The main task: runs all issuers concurrently until the process is to exit.
pub(crate) fn run(main: &Rc<HttpMain>, seat: &Seat) -> Help {
    let mut all = Vec::new();
    if let Some(acme) = main.confs.get::<Acme>()
        && let Some(shared) = &acme.shared
    {
        let orders = acme.issuers.iter().flat_map(|issuer| &issuer.orders);
        let keys: Vec<&str> = orders.map(|order| order.key.as_str()).collect();
        let board = Rc::new(Board::new(shared, &keys, &seat.log));
        if main.metrics.is_on() {
            board.keep_history(&main.stats);
        }
        for issuer in acme.issuers.iter().filter(|issuer| !issuer.orders.is_empty()) {
            let keeper = Keeper::new(issuer, &board, &seat.log);
            all.push(keeper.run(main.life.gate.clone()));
        }
    }
    Box::pin(side_by_side(all.into_iter(), usize::MAX))
}

/// Runs all futures to completion, at most `max` of them concurrently.
pub(crate) async fn side_by_side<F: Future<Output = ()>>(
    mut waiting: impl Iterator<Item = F>,
    max: usize,
) {
    let mut running: Vec<Pin<Box<F>>> = Vec::new();
    poll_fn(|cx| {
        loop {
            running.retain_mut(|one| one.as_mut().poll(cx).is_pending());
            if running.len() >= max {
                return Poll::Pending;
            }
            match waiting.next() {
                Some(next) => running.push(Box::pin(next)),
                None if running.is_empty() => return Poll::Ready(()),
                None => return Poll::Pending,
            }
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn no_more_than_so_many_run_at_once() {
        let (running, most, done) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let one = |_| {
            let mut polls = 0;
            poll_fn({
                let (running, most, done) = (&running, &most, &done);
                move |cx| {
                    polls += 1;
                    if polls == 1 {
                        running.set(running.get() + 1);
                        most.set(most.get().max(running.get()));
                    }
                    if polls < 9 {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    running.set(running.get() - 1);
                    done.set(done.get() + 1);
                    Poll::Ready(())
                }
            })
        };
        let mut all = std::pin::pin!(side_by_side((0..10).map(one), 3));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        while all.as_mut().poll(&mut cx).is_pending() {}
        assert_eq!((running.get(), most.get(), done.get()), (0, 3, 10));
    }
}
