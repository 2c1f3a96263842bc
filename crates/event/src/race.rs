//! Two futures, of which the first to end counts.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

/// Which of two futures ended, and with what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Either<A, B> {
    /// The first.
    First(A),
    /// The second.
    Second(B),
}

/// Runs two futures until one of them ends, and drops the other. When both are ready, the first
/// one wins.
///
/// For waits that lose nothing when they are dropped (readiness, [`crate::Sock::closed_by_peer`],
/// a gate, a notification, a sleep), and for work that ends with its connections. Never for a
/// recv or a send on a connection that lives on: a driver may be in the middle of it.
pub async fn race<A: Future, B: Future>(first: A, second: B) -> Either<A::Output, B::Output> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    std::future::poll_fn(move |cx| match first.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Either::First(output)),
        Poll::Pending => second.as_mut().poll(cx).map(Either::Second),
    })
    .await
}
