//! Two futures, of which the first to end counts.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// The first of two futures to end, with its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Either<A, B> {
    /// The first future was done before the second.
    First(A),
    /// The second future was done before the first.
    Second(B),
}

impl<A, B> Either<A, B> {
    /// Whether it was the second.
    pub fn is_second(&self) -> bool {
        matches!(self, Either::Second(_))
    }
}

/// Runs two futures until one of them ends, and drops the other. When both are ready, the first one
/// wins.
///
/// For waits that lose nothing when they are dropped (readiness, [`crate::Sock::closed_by_peer`], a
/// gate, a notification, a sleep), and for work that ends with its connections. Never for a recv or
/// a send on a connection that continues: a driver may be in the middle of it.
pub fn race<A: Future, B: Future>(first: A, second: B) -> Race<A, B> {
    Race { first, second }
}

/// The same with a second future that may be left out.
pub async fn race_if<A: Future, B: Future>(
    first: A,
    second: Option<B>,
) -> Either<A::Output, B::Output> {
    match second {
        Some(second) => race(first, second).await,
        None => Either::First(first.await),
    }
}

/// The output of a future that is ready at its first poll; `None`, and the future is dropped,
/// otherwise.
pub async fn ready_now<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    std::future::poll_fn(move |cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// The future of [`race`]: no larger than its two. An `async fn` would keep its arguments beside
/// the futures made from them.
#[must_use = "a future does nothing until it is awaited"]
pub struct Race<A, B> {
    first: A,
    second: B,
}

impl<A: Future, B: Future> Future for Race<A, B> {
    type Output = Either<A::Output, B::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: both fields are pinned as long as the whole: nothing moves them out, there is no
        // `Drop`, and the type is `Unpin` only where both are.
        let (first, second) = unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&mut this.first), Pin::new_unchecked(&mut this.second))
        };
        match first.poll(cx) {
            Poll::Ready(output) => Poll::Ready(Either::First(output)),
            Poll::Pending => second.poll(cx).map(Either::Second),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_large_as_both() {
        let part = || async {
            let large = [0_u8; 100];
            std::future::pending::<()>().await;
            large
        };
        let (a, b) = (part(), part());
        let both = size_of_val(&a) + size_of_val(&b);
        assert_eq!(size_of_val(&race(a, b)), both);
    }
}
