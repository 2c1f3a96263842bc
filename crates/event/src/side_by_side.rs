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
        running.retain_mut(|one| one.as_mut().poll(cx).is_pending());
        while running.len() < max {
            let Some(next) = waiting.next() else { break };
            let mut next = Box::pin(next);
            if next.as_mut().poll(cx).is_pending() {
                running.push(next);
            }
        }
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
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
    #[test]
    fn a_wake_polls_each_once() {
        let (polls, open) = (Cell::new(0), Cell::new(false));
        let one = |_| {
            poll_fn(|_| {
                polls.set(polls.get() + 1);
                if open.get() { Poll::Ready(()) } else { Poll::Pending }
            })
        };
        let mut all = std::pin::pin!(side_by_side((0..700).map(one), 500));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(all.as_mut().poll(&mut cx).is_pending());
        assert_eq!(polls.take(), 500);
        assert!(all.as_mut().poll(&mut cx).is_pending());
        assert_eq!(polls.take(), 500);
        open.set(true);
        assert!(all.as_mut().poll(&mut cx).is_ready());
        assert_eq!(polls.take(), 700);
    }
}
