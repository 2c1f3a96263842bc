//! Futures in boxes of their own.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Boxes the future that `make` makes, and builds it in the box.
///
/// `Box::pin(f())` builds the future on the stack and copies all of it, although little of it is in
/// use before the first poll. It also needs a way to drop the future where there is no memory for
/// the box. Here the memory comes first.
#[inline(always)]
pub fn boxed<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}

/// Puts a future that few requests need into a box of its own. Its code then lies apart from that
/// of the common requests, whose code stays close together in the caches.
#[cold]
#[inline(never)]
pub fn rarely<F: Future>(future: F) -> Rarely<F> {
    Rarely(Box::pin(future))
}

/// The future that [`rarely`] returns.
#[must_use = "a future does nothing until it is awaited"]
pub struct Rarely<F>(Pin<Box<F>>);

impl<F: Future> Future for Rarely<F> {
    type Output = F::Output;

    #[cold]
    #[inline(never)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.0.as_mut().poll(cx)
    }
}

/// Begins a wait that is wanted and not there; gives up one that is there and not wanted. For tasks
/// that wait for several things, of which each stays in place while others end.
pub fn keep<F>(mut slot: Pin<&mut Option<F>>, wanted: bool, begin: impl FnOnce() -> F) {
    if wanted && slot.is_none() {
        slot.set(Some(begin()));
    } else if !wanted && slot.is_some() {
        slot.set(None);
    }
}

/// Polls a wait that [`keep`] began; its slot is empty behind its end.
pub fn poll_kept<F: Future>(
    mut slot: Pin<&mut Option<F>>,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    let Some(wait) = slot.as_mut().as_pin_mut() else { return Poll::Pending };
    let polled = wait.poll(cx);
    if polled.is_ready() {
        slot.set(None);
    }
    polled
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn what_is_boxed_is_polled() {
        let text = "text".to_string();
        assert_eq!(ready(boxed(|| async { text.len() })), Some(4));
        assert_eq!(ready(rarely(async { text.len() })), Some(4));
        assert_eq!(ready(rarely(std::future::pending::<()>())), None);
    }
}
