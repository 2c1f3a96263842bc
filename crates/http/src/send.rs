//! Sending a response: header filters, head, body, and the pace of the writing.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::Poll;

use base::future::rarely;
use base::log::Level;
use event::Deadline;
use mem::{Buf, Chain};

use crate::filter::filtered;
use crate::head::{self, Framing};
use crate::module::Verdict;
use crate::output::{Body, BodySource, WholeBody};
use crate::phases::{self, Outcome};
use crate::reading;
use crate::request::{MAX_URI_CHANGES, Request};

/// Output of pipelined responses is gathered up to this size before it is sent.
pub(crate) const GATHER_MAX: u64 = 64 << 10;

/// Bodies up to this size are copied behind their head.
const COPY_MAX: usize = 4096;

/// The response could not be sent whole: the connection is of no more use.
#[derive(Debug)]
pub(crate) struct SendFailed;

/// Sends the prepared response, which header filters have seen. With `more` (another request waits
/// in the buffer) small output stays in the wire chain, to go with the next.
///
/// This is part of the future of every request. What small whole responses do without is boxed
/// apart, which is little beside what it does.
pub(crate) async fn response(r: &mut Request, more: bool) -> Result<(), SendFailed> {
    let framing = head::framing(r);
    if r.head.version >= proto::h1::Version::HTTP_10 {
        head::write(r, framing);
    } else {
        r.flags.header_sent = true;
        r.flags.keepalive = false;
    }
    if let Body::Upgraded(_) = r.out.body {
        return rarely(upgraded(r)).await;
    }
    if r.flags.header_only || framing == Framing::None {
        if let Body::Stream(mut unwanted) = std::mem::take(&mut r.out.body) {
            unwanted.abandoned(r);
        }
        return finish(r, more).await;
    }
    match std::mem::take(&mut r.out.body) {
        Body::Empty if !r.body_filters.is_empty() => {
            rarely(filtered(r, &mut Chain::new(), true, framing)).await?;
        }
        Body::Empty => {
            if framing == Framing::Chunked {
                crate::filter::last_chunk(r);
            }
        }
        Body::Chain(chain) if r.body_filters.is_empty() => whole(r, chain, framing).await?,
        Body::Chain(chain) => {
            let mut chain = chain;
            rarely(filtered(r, &mut chain, true, framing)).await?;
        }
        Body::Stream(mut source) => {
            let done = Box::pin(stream(r, source.as_mut(), framing)).await;
            if done.is_err() {
                source.abandoned(r);
                return done;
            }
        }
        Body::Upgraded(_) => {}
    }
    finish(r, more).await
}

/// A body that comes piece by piece: while the client takes one, the source may go on.
pub(crate) async fn stream(
    r: &mut Request,
    source: &mut dyn BodySource,
    framing: Framing,
) -> Result<(), SendFailed> {
    if r.out.flush && !source.is_ready() {
        flush(r).await?;
    }
    loop {
        match source.next(r).await {
            Ok(Some(mut piece)) => {
                let last = source.is_over();
                // A long piece waits for the client here already.
                meanwhile(filtered(r, &mut piece, last, framing), source).await?;
                if last {
                    return Ok(());
                }
                meanwhile(flush(r), source).await?;
            }
            Ok(None) => return filtered(r, &mut Chain::new(), true, framing).await,
            Err(_) => return Err(SendFailed),
        }
    }
}

/// Sends what there is of a response that broke off, and the answers before it. Where nothing but
/// the head was made, that is not sent: it might pass for an answer with an empty body. That of an
/// upstream whose body ended too early is sent all the same, as nginx does; that of one whose body
/// is malformed from the start is not. A page one of whose parts was too long to be kept in memory
/// ends without what was not sent of it, as in nginx.
pub(crate) async fn what_is_left(r: &mut Request) {
    let cut_short = r.upstream().is_some_and(|u| u.cut_short);
    if r.family().has_overflowed() {
        // The answers before it are in front.
        let before = r.wire.len().saturating_sub(r.bytes_sent);
        let dropped = r.wire.len() - before;
        r.wire = r.wire.split_to(before);
        r.bytes_sent -= dropped;
    } else if !cut_short
        && r.bytes_sent == r.header_bytes
        && let Some(before) = r.wire.len().checked_sub(r.header_bytes)
    {
        r.wire = r.wire.split_to(before);
        r.bytes_sent = 0;
        r.header_bytes = 0;
    }
    // The wire is empty where it was the client that the sending failed for.
    let _ = flush(r).await;
}

/// How many answers are tried in place of one whose file cannot be read: that of the upstream where
/// it was cached, that of `error_page`, and a page of our own.
const INSTEAD_MAX: u8 = 3;

/// Answers in place of a response whose file cannot be read, as long as nothing of it is on its
/// way (`None` otherwise): what was cached is asked for as if it had not been, and for the rest
/// there is a status.
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
    let Some(before) = r.wire.len().checked_sub(r.bytes_sent) else { return false };
    r.wire = r.wire.split_to(before);
    r.bytes_sent = 0;
    r.header_bytes = 0;
    r.flags.header_sent = false;
    r.flags.header_only = false;
    r.flags.chunked = false;
    r.body_filters.clear();
    r.queue.clear();
    r.out.filtered = r.out.headers.len();
    r.out.drop_filtered();
    true
}

/// Whether the response came from a cache, and its upstream can be asked instead: the body of the
/// request, had it one, may be gone.
fn was_cached(r: &Request) -> bool {
    use crate::cache::Status::{Hit, Revalidated, Stale, Updating};
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
async fn upgraded(r: &mut Request) -> Result<(), SendFailed> {
    r.flags.keepalive = false;
    flush(r).await?;
    if let Body::Upgraded(tunnel) = std::mem::take(&mut r.out.body) {
        tunnel.run(r).await;
    }
    Ok(())
}

/// What the header filters made of a response.
pub(crate) enum Filtered {
    /// All of them have seen it.
    Whole,
    /// One refuses it, and this status is to be answered instead.
    Refused(u16),
    /// One wants the whole body before the others go on.
    Waits(Waiting),
}

/// Header filters that wait for work on the whole body.
pub(crate) struct Waiting {
    work: Box<dyn WholeBody>,
    /// The filter that is next.
    next: usize,
}

/// Runs the location's header filters, which seldom is all but a call of each: what is left where
/// it is not, [`settle_filtered`] does.
#[inline]
pub(crate) fn filters(r: &mut Request) -> Filtered {
    if r.loc.pipeline.header_filters.is_empty() {
        return Filtered::Whole;
    }
    r.out.prepared = r.out.headers.len();
    filters_from(r, 0)
}

/// Waits for the work that filters asked for, and answers what one refuses as if a handler had:
/// with a response that goes through the filters, too. An end to it all the same.
#[cold]
pub(crate) async fn settle_filtered(r: &mut Request, mut now: Filtered) -> Outcome {
    let mut left = MAX_URI_CHANGES;
    loop {
        now = match now {
            Filtered::Whole => return Outcome::Respond,
            Filtered::Waits(at) => behind_work(r, at).await,
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
async fn behind_work(r: &mut Request, at: Waiting) -> Filtered {
    r.out.filtered = r.out.headers.len();
    match crate::whole::work(r, at.work).await {
        Verdict::Status(status) => refused(r, status),
        _ => filters_from(r, at.next),
    }
}

/// The filters from number `next` on.
fn filters_from(r: &mut Request, next: usize) -> Filtered {
    let loc = r.loc.clone();
    let all = &loc.pipeline.header_filters;
    for (n, f) in all.iter().enumerate().skip(next) {
        if r.is_subrequest() && !f.in_subrequests() {
            continue;
        }
        r.out.filtered = r.out.headers.len();
        if let Verdict::Status(status) = f.run(r) {
            return refused(r, status);
        }
        if let Some(work) = r.out.whole.take() {
            return Filtered::Waits(Waiting { work, next: n + 1 });
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

async fn finish(r: &mut Request, more: bool) -> Result<(), SendFailed> {
    if more && r.flags.keepalive && r.wire.len() < GATHER_MAX && r.wire.front_file().is_none() {
        return Ok(());
    }
    r.flags.last_bytes = is_last(r);
    flush(r).await
}

/// Whether the connection ends behind what is in the wire chain. `post_action` may go on for long,
/// and clients that have their end may leave meanwhile. Where there is a log phase, the end waits
/// for it: a client that has seen it finds its request in the log.
fn is_last(r: &Request) -> bool {
    !r.flags.keepalive
        && r.body.is_finished()
        && !r.is_subrequest()
        && r.loc.core.post_action.is_empty()
        && r.loc.pipeline.log.is_empty()
}

/// A body that is wholly known.
async fn whole(r: &mut Request, mut chain: Chain, framing: Framing) -> Result<(), SendFailed> {
    if framing == Framing::Chunked {
        return rarely(filtered(r, &mut chain, true, framing)).await;
    }
    if needs_memory(r, &chain) {
        return rarely(through_memory(r, chain)).await;
    }
    r.bytes_sent += chain.len();
    match small(&chain) {
        Some(bytes) => r.wire.write(bytes),
        None => r.wire.append(&mut chain),
    }
    Ok(())
}

/// What goes into the page of its head, so that both are one piece and leave with a plain send.
pub(crate) fn small(chain: &Chain) -> Option<&[u8]> {
    let bytes = chain.front()?.memory()?;
    (bytes.len() <= COPY_MAX && chain.len() == bytes.len() as u64).then_some(bytes)
}

/// File ranges read piece by piece, for `sendfile off`.
pub(crate) async fn through_memory(r: &mut Request, mut chain: Chain) -> Result<(), SendFailed> {
    while !chain.is_empty() {
        let mut piece = in_memory(r, &mut chain).await?;
        r.bytes_sent += piece.len();
        r.wire.append(&mut piece);
        let (count, size) = r.loc.core.output_buffers;
        if r.wire.len() >= if chain.is_empty() { GATHER_MAX } else { (count * size) as u64 } {
            flush(r).await?;
        }
    }
    Ok(())
}

/// Takes from the front of a chain what lies in memory, or a piece of the file that is in front.
pub(crate) async fn in_memory(r: &mut Request, chain: &mut Chain) -> Result<Chain, SendFailed> {
    let mut piece = Chain::new();
    while let Some(buf) = chain.pop_front() {
        let Buf::File { file, pos, end } = buf else {
            piece.push(buf);
            continue;
        };
        if !piece.is_empty() {
            chain.push_front(Buf::File { file, pos, end });
            break;
        }
        let want = (end - pos).min(r.loc.core.output_buffers.1 as u64);
        if want == 0 {
            continue;
        }
        let read = match reading::piece(r, &file, pos, want as usize).await {
            Ok(read) => read,
            Err(e) => {
                reading::failed(r, &e, Some(&file));
                return Err(SendFailed);
            }
        };
        let pos = pos + read.len();
        piece.push(read);
        if pos < end {
            chain.push_front(Buf::File { file, pos, end });
        }
        break;
    }
    Ok(piece)
}

/// Whether files in a chain have to be read before they are sent.
pub(crate) fn needs_memory(r: &Request, chain: &Chain) -> bool {
    let sendfile = r.loc.core.sendfile && r.c().sock.sends_files();
    chain.iter().any(|b| match b {
        Buf::File { file, .. } => !sendfile || file.is_direct(),
        _ => false,
    })
}

/// Sends all that is in the wire chain.
pub(crate) async fn flush(r: &mut Request) -> Result<(), SendFailed> {
    if r.wire.is_empty() {
        return Ok(());
    }
    let rate = rate(r);
    let c = r.c().clone();
    let timeout = r.loc.core.send_timeout;
    let has_file = r.wire.iter().any(|b| matches!(b, Buf::File { .. }));
    let done = if rate > 0 {
        rarely(paced(r, rate)).await
    } else if has_file {
        let chunk = r.loc.core.sendfile_max_chunk;
        c.sock.set_cork(r.loc.core.tcp_nopush);
        let there = match r.loc.core.aio.is_off() && r.wire.len() >= r.bytes_sent {
            true => reading::first_byte(&r.wire),
            false => Ok(()),
        };
        match there {
            Ok(()) => in_chunks(r, chunk, timeout).await,
            Err(e) => Err(e),
        }
    } else {
        let until = Deadline::in_ms(timeout);
        // Who wants a reset at the deadline has to wait for it.
        if !r.loc.core.reset_timedout_connection && c.sock.post(&mut r.wire, until) {
            Ok(())
        } else if r.flags.last_bytes {
            c.sock.send_last(&mut r.wire, until).await
        } else {
            c.sock.send(&mut r.wire, until).await
        }
    };
    let done = match done {
        Ok(()) if c.sock.has_unsent() => c.sock.flush(Deadline::in_ms(timeout)).await,
        done => done,
    };
    match done {
        Ok(()) => Ok(()),
        Err(e) => {
            failed(r, &e);
            Err(SendFailed)
        }
    }
}

/// Sends something, and at most `limit` bytes.
async fn some(r: &mut Request, limit: usize, timeout: u64) -> io::Result<usize> {
    let c = r.c().clone();
    let file_waits = !r.loc.core.aio.is_off() && r.wire.iter().any(|b| b.memory().is_none());
    if !file_waits {
        return c.sock.send_some(&mut r.wire, Some(limit), Deadline::in_ms(timeout)).await;
    }
    loop {
        // While the client does not read, what was in memory may go from there, and what is read
        // takes memory: it is looked for when there is room for it, and before each send.
        c.sock.writable(Deadline::in_ms(timeout)).await?;
        let ready = rarely(reading::ready(r, limit)).await?;
        let n = c.sock.try_send(&mut r.wire, Some(ready.bytes))?;
        ready.sent(&mut r.wire, n);
        if n > 0 || r.wire.is_empty() {
            return Ok(n);
        }
    }
}

/// Files go in pieces of `sendfile_max_chunk`, so that a fast client does not hold the loop.
async fn in_chunks(r: &mut Request, chunk: usize, timeout: u64) -> io::Result<()> {
    let limit = if chunk == 0 { usize::MAX } else { chunk };
    let mut sent = 0;
    loop {
        let n = some(r, limit - sent, timeout).await?;
        if r.wire.is_empty() {
            return Ok(());
        }
        sent += n;
        if sent >= limit {
            sent = 0;
            event::task::yield_now().await;
        }
    }
}

/// `limit_rate`: as much as the time since the response's start allows, then a pause.
async fn paced(r: &mut Request, rate: u64) -> io::Result<()> {
    let c = r.c().clone();
    let timeout = r.loc.core.send_timeout;
    let after = match r.loc.core.limit_rate_after.clone() {
        Some(t) => conf::value::parse_offset(&r.eval(&t)).unwrap_or(0),
        None => 0,
    };
    loop {
        let sent = r.bytes_sent.saturating_sub(r.wire.len());
        let secs = r.elapsed_ms() / 1000 + 1;
        let budget = rate.saturating_mul(secs).saturating_add(after);
        if sent >= budget {
            pause(&c, (sent - budget) * 1000 / rate + 1).await?;
            continue;
        }
        let limit = usize::try_from(budget - sent).unwrap_or(usize::MAX);
        let n = some(r, limit, timeout).await?;
        if r.wire.is_empty() {
            return Ok(());
        }
        // What `limit_rate_after` lets through freely takes no time.
        let paid = (sent + n as u64).saturating_sub(after) - sent.saturating_sub(after);
        if paid > 0 {
            pause(&c, paid.saturating_mul(1000) / rate + 1).await?;
        }
    }
}

/// Sleeps, unless the client goes meanwhile: a slow response must not outlive it.
async fn pause(c: &crate::conn::Conn, ms: u64) -> io::Result<()> {
    match event::race(c.sock.closed_by_peer(), event::sleep(ms)).await {
        event::Either::First(_) => Err(io::ErrorKind::ConnectionReset.into()),
        event::Either::Second(()) => Ok(()),
    }
}

fn rate(r: &mut Request) -> u64 {
    if let Some(rate) = r.limit_rate {
        return rate;
    }
    match r.loc.core.limit_rate.clone() {
        None => 0,
        Some(t) => {
            let v = r.eval(&t);
            let rate = conf::value::parse_size(&v).unwrap_or(0) as u64;
            r.limit_rate = Some(rate);
            rate
        }
    }
}

#[cold]
fn failed(r: &mut Request, e: &io::Error) {
    r.flags.keepalive = false;
    if reading::is_of_file(e) {
        reading::failed(r, e, None);
        if r.flags.unreadable && r.wire.len() >= r.bytes_sent {
            // Nothing of this response is on its way: see `instead`.
            return;
        }
    } else if e.kind() == io::ErrorKind::TimedOut {
        r.timed_out = true;
        r.log(
            Level::Info,
            format_args!(
                "client timed out (110: Connection timed out) while sending response to client"
            ),
        );
    } else if e.kind() == io::ErrorKind::OutOfMemory {
        let m = "memory is short: closing a connection whose client is slow to take the response";
        r.log(Level::Info, format_args!("{m}"));
    } else {
        r.log(
            Level::Info,
            format_args!(
                "send() failed {} while sending response to client",
                base::log::os_error(e)
            ),
        );
    }
    r.wire.clear();
}
