//! Sending a response: header filters, head and body. The request's channel does the writing.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use base::future::rarely;
use mem::Chain;

use crate::channel::{self, SendFailed};
use crate::filter::filtered;
use crate::module::{Verdict, Wait};
use crate::output::{Body, BodySource, WholeBody};
use crate::phases::{self, Outcome};
use crate::request::{MAX_URI_CHANGES, Request};

/// Sends the prepared response, which header filters have seen. With `more` (another request waits)
/// small output stays queued, to go with the next response.
///
/// This is part of the future of every request. Work that small whole responses do without is boxed
/// apart, which is little beside what it does.
pub(crate) async fn response(r: &mut Request, more: bool) -> Result<(), SendFailed> {
    match begin(r, more) {
        Begun::Whole => Ok(()),
        left => rest(r, left, more).await,
    }
}

/// The part of a response that is left behind its beginning.
pub(crate) enum Begun {
    /// Nothing: it is in the output, which somebody else sends.
    Whole,
    End,
    Body(Body),
    /// Another protocol.
    Upgrade {
        has_body: bool,
    },
}

/// Begins a response, as far as nothing has to be waited for.
#[inline]
pub(crate) fn begin(r: &mut Request, more: bool) -> Begun {
    let has_body = channel::start(r);
    if let Body::Upgraded(_) = r.out.body {
        return Begun::Upgrade { has_body };
    }
    let body = std::mem::take(&mut r.out.body);
    match body {
        Body::Stream(mut unwanted) if !has_body => unwanted.abandoned(r),
        _ if !has_body => {}
        Body::Stream(_) => return Begun::Body(body),
        body => {
            let chain = match body {
                Body::Chain(chain) => chain,
                _ => Chain::new(),
            };
            if !r.out.filters.is_empty() {
                return Begun::Body(Body::Chain(chain));
            }
            if let Some(chain) = channel::put_now(r, chain) {
                return Begun::Body(Body::Chain(chain));
            }
        }
    }
    if channel::finish_now(r, more) { Begun::Whole } else { Begun::End }
}

/// Sends what is left of a response.
pub(crate) async fn rest(r: &mut Request, left: Begun, more: bool) -> Result<(), SendFailed> {
    match left {
        Begun::Whole => return Ok(()),
        Begun::End => {}
        Begun::Upgrade { has_body } => return rarely(upgraded(r, has_body)).await,
        Begun::Body(Body::Stream(mut source)) => {
            let done = Box::pin(stream(r, source.as_mut())).await;
            if done.is_err() {
                source.abandoned(r);
                return done;
            }
        }
        Begun::Body(body) => {
            let mut chain = match body {
                Body::Chain(chain) => chain,
                _ => Chain::new(),
            };
            if r.out.filters.is_empty() {
                rarely(channel::put(r, chain, true)).await?;
            } else {
                rarely(filtered(r, &mut chain, true)).await?;
            }
        }
    }
    channel::finish(r, more).await
}

/// After this number of bytes of a source that never waits, other tasks have their turn.
const TURN: u64 = 256 << 10;

/// A body that comes piece by piece: while the client takes one, the source may go on.
async fn stream(r: &mut Request, source: &mut dyn BodySource) -> Result<(), SendFailed> {
    if r.out.flush && !source.is_ready() {
        channel::flush(r).await?;
    }
    let mut of_turn = 0;
    loop {
        match source.next(r).await {
            Ok(Some(mut piece)) => {
                let last = source.is_over();
                of_turn += piece.len();
                // A long piece waits for the client here already.
                meanwhile(filtered(r, &mut piece, last), source).await?;
                if last {
                    return Ok(());
                }
                meanwhile(channel::flush(r), source).await?;
                if of_turn >= TURN {
                    of_turn = 0;
                    event::task::yield_now().await;
                }
            }
            Ok(None) => return filtered(r, &mut Chain::new(), true).await,
            Err(_) => return Err(SendFailed),
        }
    }
}

/// Sends the finished part of a response that broke off, and the answers before it. A head alone is
/// not sent: it might pass for an answer with an empty body. The head of an upstream's response is
/// sent all the same if the body ended too early, as nginx does, and is not if the body is
/// malformed from the start. A page with a part that was too long for memory ends behind the bytes
/// already sent, as in nginx.
pub(crate) async fn what_is_left(r: &mut Request) {
    let cut_short = r.upstream().is_some_and(|u| u.cut_short);
    if r.work.subrequests.family().has_overflowed() {
        // The part that was sent stays sent.
        let queued = r.client.channel.queued().len();
        let before = queued.saturating_sub(r.account.bytes_sent);
        r.client.channel.retract(before);
        r.account.bytes_sent -= queued - before;
    } else if !cut_short && r.account.bytes_sent == r.account.header_bytes && channel::retract(r) {
        r.account.unsend();
    }
    // The queue is empty if the client is gone.
    let _ = channel::flush(r).await;
}

/// The number of answers tried in place of one with an unreadable file: the upstream's if it was
/// cached, the answer of `error_page`, and a page of our own.
const INSTEAD_MAX: u8 = 3;

/// Answers in place of a response with an unreadable file, as long as nothing of it is on its way
/// (`None` otherwise): a cached response is fetched as if it had not been cached, others become a
/// status.
#[cold]
pub(crate) async fn instead(r: &mut Request) -> Option<Result<(), SendFailed>> {
    let mut answered = None;
    for n in 1..=INSTEAD_MAX {
        if !(r.flags.unreadable && take_back(r)) {
            break;
        }
        let mut outcome = match () {
            () if n == 1 && was_cached(r) => {
                r.out.reset();
                r.upstream_mut().forget_cache();
                phases::run_content(r).await
            }
            () if n < INSTEAD_MAX => phases::refuse(r, 500).await,
            () => {
                r.out.clear_entity();
                crate::core_pages::builtin(r, 500);
                Outcome::Respond
            }
        };
        r.flags.unreadable = false;
        if outcome == Outcome::Respond {
            outcome = match filters(r) {
                Filtered::Whole => Outcome::Respond,
                now => settle_filtered(r, now).await,
            };
        }
        if outcome == Outcome::Close {
            return Some(Err(SendFailed));
        }
        match response(r, false).await {
            Ok(()) => return Some(Ok(())),
            failed => answered = Some(failed),
        }
    }
    answered
}

/// Takes a response back of which nothing was sent; answers before it stay.
fn take_back(r: &mut Request) -> bool {
    if !channel::retract(r) {
        return false;
    }
    r.client.channel.start_anew();
    r.account.unsend();
    r.flags.header_sent = false;
    r.flags.header_only = false;
    r.out.filters.clear();
    r.work.subrequests.queue.clear();
    r.out.filtered = r.out.headers.len();
    r.out.drop_filtered();
    true
}

/// Whether the response came from a cache, and its upstream can be asked instead: the body of the
/// request, had it one, may be gone.
fn was_cached(r: &Request) -> bool {
    use cache::CacheStatus::{Hit, Revalidated, Stale, Updating};
    let status = r.upstream().map(|u| u.cache_status);
    matches!(status, Some(Hit | Revalidated | Stale | Updating)) && !r.head.has_body()
}

/// Sends, and lets the source work while the client keeps us waiting.
async fn meanwhile(
    sending: impl Future<Output = Result<(), SendFailed>>,
    source: &mut dyn BodySource,
) -> Result<(), SendFailed> {
    let mut sending = pin!(sending);
    let mut source = Some(source);
    let mut ahead = None;
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(done) = sending.as_mut().poll(cx) {
            return Poll::Ready(done);
        }
        if let Some(source) = source.take() {
            ahead = source.ahead();
        }
        if let Some(work) = &mut ahead
            && work.as_mut().poll(cx).is_ready()
        {
            ahead = None;
        }
        Poll::Pending
    })
    .await
}

/// The head was the last of HTTP on this connection.
async fn upgraded(r: &mut Request, has_body: bool) -> Result<(), SendFailed> {
    if r.is_subrequest() {
        // There is no connection that could become something else.
        r.out.body = Body::Empty;
        return if has_body { Err(SendFailed) } else { Ok(()) };
    }
    r.close_connection();
    channel::flush(r).await?;
    if let Body::Upgraded(tunnel) = std::mem::take(&mut r.out.body) {
        // Thousands may be open, each for hours.
        if let channel::Channel::Http1(stream) = &mut r.client.channel {
            stream.input.narrow();
        }
        tunnel.run(r).await;
    }
    Ok(())
}

/// The header filters' verdict on a response.
pub(crate) enum Filtered {
    /// All of them have seen it.
    Whole,
    /// One refuses it, and this status is to be answered instead.
    Refused(u16),
    /// One wants the whole body before the others go on.
    Waits(Waiting<Box<dyn WholeBody>>),
    /// The next one has to wait.
    Later(Waiting<Wait>),
}

/// Header filters that wait for something.
pub(crate) struct Waiting<T> {
    what: T,
    /// The filter that is next.
    next: usize,
}

/// Runs the location's header filters by a call of each; [`settle_filtered`] does the rest, if any.
#[inline]
pub(crate) fn filters(r: &mut Request) -> Filtered {
    if r.loc.pipeline.header_filters.is_empty() {
        return Filtered::Whole;
    }
    r.out.prepared = r.out.headers.len();
    filters_from(r, 0, false)
}

/// Waits for the work that filters asked for. A filter's refusal is answered as a handler's: with a
/// response that goes through the filters, too. The number of rounds is limited.
#[cold]
pub(crate) async fn settle_filtered(r: &mut Request, mut now: Filtered) -> Outcome {
    let mut left = MAX_URI_CHANGES;
    loop {
        now = match now {
            Filtered::Whole => return Outcome::Respond,
            Filtered::Waits(at) => behind_work(r, at).await,
            Filtered::Later(at) => {
                at.what.await;
                filters_from(r, at.next, true)
            }
            Filtered::Refused(status) => {
                let outcome = phases::refuse(r, status).await;
                if outcome != Outcome::Respond || left == 0 {
                    return outcome;
                }
                left -= 1;
                filters(r)
            }
        };
    }
}

/// Has the work on the whole body done, and goes on behind the filter that asked for it.
async fn behind_work(r: &mut Request, at: Waiting<Box<dyn WholeBody>>) -> Filtered {
    r.out.filtered = r.out.headers.len();
    match crate::whole::work(r, at.what).await {
        Verdict::Status(status) => refused(r, status),
        _ => filters_from(r, at.next, false),
    }
}

/// The filters from number `next` on, which `has_waited`.
fn filters_from(r: &mut Request, next: usize, has_waited: bool) -> Filtered {
    let loc = r.loc.clone();
    let all = &loc.pipeline.header_filters;
    for (n, f) in all.iter().enumerate().skip(next) {
        if r.is_subrequest() && !f.in_subrequests() {
            continue;
        }
        if !(has_waited && n == next)
            && let Some(what) = f.wait(r)
        {
            return Filtered::Later(Waiting { what, next: n });
        }
        r.out.filtered = r.out.headers.len();
        if let Verdict::Status(status) = f.run(r) {
            return refused(r, status);
        }
        if let Some(work) = r.out.whole.take() {
            return Filtered::Waits(Waiting { what: work, next: n + 1 });
        }
    }
    Filtered::Whole
}

/// A filter refused the response: the fields that others added to that before are forgotten.
#[cold]
fn refused(r: &mut Request, status: u16) -> Filtered {
    r.out.whole = None;
    r.out.drop_filtered();
    Filtered::Refused(status)
}
