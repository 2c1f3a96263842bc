//! Waiting for more than one thing at once.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

pub(crate) use event::{Either, race as either};

use crate::conn::Conn;

/// The first of two futures, of which the second may be left out.
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
