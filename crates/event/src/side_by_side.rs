//! Many futures at once, within a limit.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Runs all futures to completion, at most `max` of them concurrently.
pub async fn side_by_side<F: Future<Output = ()>>(
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
