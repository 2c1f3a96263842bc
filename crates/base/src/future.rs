//! Futures that have a place of their own.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Boxes what `make` makes, without making it elsewhere first.
///
/// `Box::pin(f())` builds a future on the stack and copies all of it, however little of it is in
/// use before it begins: it has to be dropped where there is no memory. Here memory comes first.
#[inline(always)]
pub fn boxed<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}

/// A future that few requests need: it has a box of its own, and its code lies apart from that of
/// the many, so that they find theirs close together.
#[cold]
#[inline(never)]
pub fn rarely<F: Future>(future: F) -> Rarely<F> {
    Rarely(Box::pin(future))
}

/// See [`rarely`].
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
