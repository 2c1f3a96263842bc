//! Waiting for more than one thing at once.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use crate::conn::Conn;

/// Which of two futures was ready first.
pub(crate) enum Either<A, B> {
    First(A),
    Second(B),
}

impl<A, B> Either<A, B> {
    pub fn is_second(&self) -> bool {
        matches!(self, Either::Second(_))
    }
}

/// Waits for the first of two futures and drops the other one. Only for futures that lose nothing
/// when they are dropped: waits for readiness, timers, gates.
pub(crate) async fn either<A: Future, B: Future>(a: A, b: B) -> Either<A::Output, B::Output> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(v) = a.as_mut().poll(cx) {
            return Poll::Ready(Either::First(v));
        }
        b.as_mut().poll(cx).map(Either::Second)
    })
    .await
}

/// The same where the second may be left out.
pub(crate) async fn either_if<A: Future, B: Future>(
    a: A,
    b: Option<B>,
) -> Either<A::Output, B::Output> {
    match b {
        Some(b) => either(a, b).await,
        None => Either::First(a.await),
    }
}

/// What a future gives without waiting; it is dropped otherwise.
pub(crate) async fn ready_now<F: Future>(f: F) -> Option<F::Output> {
    let mut f = pin!(f);
    std::future::poll_fn(move |cx| {
        Poll::Ready(match f.as_mut().poll(cx) {
            Poll::Ready(v) => Some(v),
            Poll::Pending => None,
        })
    })
    .await
}

/// Waits until the client is known to be gone. Of several that wait on one connection (a request
/// and its subrequests) only the first is told; the others go on as if nothing was.
pub(crate) async fn client_end(c: &Conn) {
    if c.sock.closed_by_peer().await.is_err() {
        std::future::pending::<()>().await;
    }
}
