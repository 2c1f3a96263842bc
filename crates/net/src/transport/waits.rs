//! The futures that waits of a transport are made of.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The future of an operation, by the kind of the transport.
pub(super) enum Carried<P, T> {
    Plain(P),
    Tls(T),
}

impl<P, T> Future for Carried<P, T>
where
    P: Future + Unpin,
    T: Future<Output = P::Output> + Unpin,
{
    type Output = P::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<P::Output> {
        match self.get_mut() {
            Carried::Plain(plain) => Pin::new(plain).poll(cx),
            Carried::Tls(tls) => Pin::new(tls).poll(cx),
        }
    }
}

/// A wait that ends at once where something is at hand.
pub(super) struct Unless<T, F> {
    pub(super) at_hand: Option<T>,
    pub(super) wait: F,
}

impl<T: Copy + Unpin, F: Future<Output = io::Result<T>> + Unpin> Future for Unless<T, F> {
    type Output = io::Result<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        match self.at_hand {
            Some(woken) => Poll::Ready(Ok(woken)),
            None => Pin::new(&mut self.wait).poll(cx),
        }
    }
}

/// Tries until there is a result, and waits in between.
pub(super) fn until<T, W: Future<Output = io::Result<()>> + Unpin>(
    mut attempt: impl FnMut() -> io::Result<Option<T>> + Unpin,
    wait: impl Fn() -> W + Unpin,
) -> impl Future<Output = io::Result<T>> + Unpin {
    let mut waiting: Option<W> = None;
    std::future::poll_fn(move |cx| {
        loop {
            if let Some(wait) = &mut waiting {
                ready!(Pin::new(wait).poll(cx))?;
                waiting = None;
            }
            match attempt()? {
                Some(done) => return Poll::Ready(Ok(done)),
                None => waiting = Some(wait()),
            }
        }
    })
}
