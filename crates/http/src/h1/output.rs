//! Output: bodies in chunks or as they are, and the pace of the writing.

use std::io;

use base::future::rarely;
use base::log::Level;
use event::Deadline;
use mem::{Buf, Chain};

use super::stream;
use crate::channel::conn::Conn;
use crate::channel::pace::{self, Allowed, Pace};
use crate::channel::{self, SendFailed, in_memory};
use crate::request::Request;
use engine::min_rate;

/// Output of pipelined responses is gathered up to this size before it is sent.
const GATHER_MAX: u64 = 64 << 10;

/// Bytes that are sent before other tasks have their turn.
const TURN_MAX: usize = 2 << 20;

/// Bodies up to this size are copied behind their head.
const COPY_MAX: usize = 4096;

/// Puts a whole body into the output that has no chunks and need not be read first.
#[inline]
pub(crate) fn put_now(r: &mut Request, body: Chain) -> Option<Chain> {
    if stream(r).chunked || needs_memory(r, &body) {
        return Some(body);
    }
    if !body.is_empty() {
        append(r, body);
    }
    None
}

/// Puts a piece of the body into the output, in its chunk where the body has chunks.
pub(crate) async fn put(r: &mut Request, piece: Chain, last: bool) -> Result<(), SendFailed> {
    if stream(r).chunked {
        begin_chunk(r, piece.len());
    }
    let is_empty = piece.is_empty();
    if needs_memory(r, &piece) {
        rarely(through_memory(r, piece)).await?;
    } else if !is_empty {
        append(r, piece);
    }
    if stream(r).chunked {
        end_chunk(r, is_empty, last);
    }
    if last || stream(r).output.len() < GATHER_MAX {
        return Ok(());
    }
    rarely(flush(r)).await
}

#[inline]
fn append(r: &mut Request, mut piece: Chain) {
    let len = piece.len();
    r.account.bytes_sent += len;
    let output = &mut stream(r).output;
    match small(&piece, len) {
        Some(bytes) => output.write(bytes),
        None => output.append(&mut piece),
    }
}

fn begin_chunk(r: &mut Request, len: u64) {
    if len == 0 {
        return;
    }
    let w = stream(r).output.writer_for(24);
    let before = w.len();
    base::ascii::write_hex_u64(w, len);
    w.extend_from_slice(b"\r\n");
    let written = w.len() - before;
    r.account.bytes_sent += written as u64;
}

/// Ends a chunk, unless it was empty, and the body, where this was the last one: with its trailers.
fn end_chunk(r: &mut Request, is_empty: bool, last: bool) {
    let has_trailers = last && !r.out.trailers.is_empty();
    let text: &[u8] = match (is_empty, last, has_trailers) {
        (true, false, _) => return,
        (false, false, _) => b"\r\n",
        (true, true, false) => b"0\r\n\r\n",
        (false, true, false) => b"\r\n0\r\n\r\n",
        (true, true, true) => b"0\r\n",
        (false, true, true) => b"\r\n0\r\n",
    };
    let output = &mut stream(r).output;
    output.write(text);
    r.account.bytes_sent += text.len() as u64;
    if has_trailers {
        write_trailers(r);
    }
}

/// Writes the trailers and the empty line behind them.
fn write_trailers(r: &mut Request) {
    let trailers = std::mem::take(&mut r.out.trailers);
    let w = stream(r).output.writer();
    let before = w.len();
    for (name, value) in &trailers {
        http_wire::h1::write_field(w, name, value);
    }
    w.extend_from_slice(b"\r\n");
    let written = w.len() - before;
    r.account.bytes_sent += written as u64;
    r.out.trailers = trailers;
}

/// Whether the output waits for the response of the next request, which is here.
#[inline]
pub(crate) fn stays_queued(r: &mut Request, more: bool) -> bool {
    let s = stream(r);
    more && s.keepalive && s.output.len() < GATHER_MAX && s.output.front_file().is_none()
}

/// Ends the response. With `more` (another request waits in the page) small output stays queued.
pub(crate) async fn finish(r: &mut Request, more: bool) -> Result<(), SendFailed> {
    if stays_queued(r, more) {
        return Ok(());
    }
    let is_last = is_last(r);
    stream(r).last_bytes = is_last;
    flush(r).await
}

/// Whether the connection ends behind the queued output. `post_action` may go on for long, and
/// clients that have their end may leave meanwhile. Where there is a log phase, the end waits for
/// it: a client that has seen it finds its request in the log.
fn is_last(r: &mut Request) -> bool {
    let s = stream(r);
    !s.keepalive
        && s.body.is_finished()
        && r.loc.core.post_action.is_empty()
        && r.loc.pipeline.log.is_empty()
}

/// Bytes of a body that are copied into the page of its head, so that one plain send takes both.
fn small(chain: &Chain, len: u64) -> Option<&[u8]> {
    let bytes = chain.front()?.memory()?;
    (bytes.len() <= COPY_MAX && len == bytes.len() as u64).then_some(bytes)
}

/// File ranges read piece by piece, for `sendfile off`.
async fn through_memory(r: &mut Request, mut chain: Chain) -> Result<(), SendFailed> {
    while !chain.is_empty() {
        let mut piece = in_memory(r, &mut chain).await?;
        r.account.bytes_sent += piece.len();
        let (count, size) = r.loc.core.output_buffers;
        let output = &mut stream(r).output;
        output.append(&mut piece);
        if output.len() >= if chain.is_empty() { GATHER_MAX } else { (count * size) as u64 } {
            flush(r).await?;
        }
    }
    Ok(())
}

/// Whether files in a chain have to be read before they are sent.
fn needs_memory(r: &Request, chain: &Chain) -> bool {
    let has_to = |piece: &Buf| match piece {
        Buf::File { file, .. } => {
            file.is_direct() || !r.loc.core.sendfile || !r.c().sock().sends_files()
        }
        _ => false,
    };
    chain.file_len() > 0 && chain.iter().any(has_to)
}

/// Sends all that is queued.
pub(crate) async fn flush(r: &mut Request) -> Result<(), SendFailed> {
    if stream(r).output.is_empty() {
        return Ok(());
    }
    // Requests with an engine of scripts go one by one: each engine takes more than the caches.
    if r.state.endings.is_empty() {
        event::task::gather().await;
    }
    let rate = pace::rate(r);
    let c = r.c().clone();
    let (timeout, min) = (r.loc.core.send_timeout, r.loc.core.send_min_rate);
    let has_file = stream(r).output.file_len() > 0;
    let done = if rate > 0 {
        rarely(paced(r, rate)).await
    } else if has_file {
        let chunk = r.loc.core.sendfile_max_chunk;
        c.sock().set_cork(r.loc.core.tcp_nopush);
        let is_first = r.client.channel.queued().len() >= r.account.bytes_sent;
        let there = match r.loc.core.aio.is_off() && is_first {
            true => channel::first_byte(r.client.channel.queued()),
            false => Ok(()),
        };
        match there {
            Ok(()) => in_chunks(r, chunk, timeout).await,
            Err(e) => Err(e),
        }
    } else if min.rate > 0 && stream(r).output.len() > GATHER_MAX {
        // More than a socket takes at once: the clock is looked at after each part.
        rarely(in_chunks(r, TURN_MAX, timeout)).await
    } else {
        let until = Deadline::in_ms(r.client.rates.sending.limit(min, timeout));
        // A reset at the deadline needs a task that waits for the deadline.
        let may_post = !r.loc.core.reset_timedout_connection;
        let began_ms = base::time::now_ms();
        let s = stream(r);
        let len = s.output.len();
        let sent = if may_post && c.sock().post(&mut s.output, until) {
            Ok(())
        } else if s.last_bytes {
            c.sock().send_last(&mut s.output, until).await
        } else {
            c.sock().send(&mut s.output, until).await
        };
        if sent.is_ok() {
            let waited_ms = base::time::now_ms() - began_ms;
            r.client.rates.sending.moved(min, waited_ms, len);
        }
        sent
    };
    let done = match done {
        Ok(()) if c.sock().has_unsent() => c.sock().flush(Deadline::in_ms(timeout)).await,
        done => done,
    };
    done.map_err(|e| {
        failed(r, &e);
        SendFailed
    })
}

/// Sends something, and at most `limit` bytes.
async fn some(r: &mut Request, limit: usize, timeout: u64) -> io::Result<usize> {
    let c = r.c().clone();
    let min = r.loc.core.send_min_rate;
    let until = |r: &Request| Deadline::in_ms(r.client.rates.sending.limit(min, timeout));
    let began_ms = base::time::now_ms();
    let file_waits =
        !r.loc.core.aio.is_off() && r.client.channel.queued().iter().any(|b| b.memory().is_none());
    if !file_waits {
        let until = until(r);
        let n = c.sock().send_some(&mut stream(r).output, Some(limit), until).await?;
        r.client.rates.sending.moved(min, base::time::now_ms() - began_ms, n as u64);
        return Ok(n);
    }
    loop {
        // While the client does not read, pages of the file may be evicted from the page cache, and
        // reading them takes memory: they are looked up once there is room to send, before each
        // send.
        let began_ms = base::time::now_ms();
        c.sock().writable(until(r)).await?;
        let waited_ms = base::time::now_ms() - began_ms;
        let ready = rarely(channel::ready(r, limit)).await?;
        let n = c.sock().try_send(&mut stream(r).output, Some(ready.bytes))?;
        ready.sent(&mut stream(r).output, n);
        r.client.rates.sending.moved(min, waited_ms, n as u64);
        if n > 0 || stream(r).output.is_empty() {
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
        if stream(r).output.is_empty() {
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
    let pace = Pace::new(r, rate);
    loop {
        let sent = r.account.bytes_sent.saturating_sub(r.client.channel.queued().len());
        let limit = match pace.allowed(r, sent) {
            Allowed::Bytes(n) => usize::try_from(n).unwrap_or(usize::MAX),
            Allowed::After(ms) => {
                pause(&c, ms).await?;
                continue;
            }
        };
        let n = some(r, limit, timeout).await?;
        if stream(r).output.is_empty() {
            return Ok(());
        }
        let ms = pace.pause(sent, n as u64);
        if ms > 0 {
            pause(&c, ms).await?;
        }
    }
}

/// Sleeps, unless the client goes meanwhile: a slow response must not outlive it.
async fn pause(c: &Conn, ms: u64) -> io::Result<()> {
    match event::race(c.sock().closed_by_peer(), event::sleep(ms)).await {
        event::Either::First(_) => Err(io::ErrorKind::ConnectionReset.into()),
        event::Either::Second(()) => Ok(()),
    }
}

fn is_displaced(r: &Request) -> bool {
    let doing = "while sending response to client";
    r.c().is_displaced(|m| r.log(Level::Info, format_args!("{m} {doing}")))
}

#[cold]
fn failed(r: &mut Request, e: &io::Error) {
    r.close_connection();
    if channel::is_of_file(e) {
        channel::failed(r, e, None);
        if r.flags.unreadable && r.client.channel.queued().len() >= r.account.bytes_sent {
            // Nothing of this response is on its way: see `instead`.
            return;
        }
    } else if is_displaced(r) {
        // It was logged.
    } else if e.kind() == io::ErrorKind::TimedOut {
        stream(r).timed_out = true;
        let core = &r.loc.core;
        let too_slow = r.client.rates.sending.is_why(core.send_min_rate, core.send_timeout);
        if let Some(m) = min_rate::reason(too_slow, r.c().client_ip()) {
            r.log(Level::Info, format_args!("{m} while sending response to client"));
        }
    } else {
        r.log(
            Level::Info,
            format_args!(
                "send() failed {} while sending response to client",
                base::log::os_error(e)
            ),
        );
    }
    stream(r).output.clear();
}
