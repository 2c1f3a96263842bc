//! Response bodies: from the request to the queue of its stream, as far as there is room.

use std::future::poll_fn;

use base::future::rarely;
use base::log::Level;
use event::Either;
use mem::{Buf, Chain};
use proto::h2::frame::{HEAD_LEN, flag};

use super::head;
use super::mux::{Half, QUEUE_MAX, State};
use super::{HeadState, stream};
use crate::channel::pace::{self, Allowed, Pace};
use crate::channel::stream::Gone;
use crate::channel::{SendFailed, in_pieces, read_settings};
use crate::request::Request;
use engine::min_rate;

/// Bytes of a body that are gathered before the connection gets them.
const GATHER_MAX: u64 = 16 << 10;

/// Bytes of output below which a whole body goes there at once: as many small ones as a client may
/// ask for together need no tasks that wait for their turns.
const READY_MAX: usize = 128 << 10;

/// The most bytes of a file in a piece, which is a frame.
pub(super) const PIECE_MAX: usize = 64 << 10;

/// Puts a whole body into the output, and the head before it, if that can be done at once.
#[inline]
pub(crate) fn put_now(r: &mut Request, body: Chain) -> Option<Chain> {
    let len = body.len();
    let is_small = len <= GATHER_MAX && body.iter().all(|buf| buf.memory().is_some());
    let has_trailers = r.out.expect_trailers || !r.out.trailers.is_empty();
    if !is_small || has_trailers || stream(r).head != HeadState::Begun {
        return Some(body);
    }
    if pace::rate(r) > 0 {
        return Some(body);
    }
    let chunk_max = r.loc.http2_chunk;
    let s = stream(r);
    let (mux, key) = (s.mux().clone(), s.key);
    let mut body = Some(body);
    let put = mux.of(key, |state, i| {
        let has_room = state.schedule.is_empty() && state.out_len < READY_MAX;
        let n = len as usize;
        let frame_max = chunk_max.min(state.peer.frame_max as usize);
        let most = frame_max.min(state.send.left()).min(state.streams[i].send.left());
        if !has_room || n > most {
            return;
        }
        head::put(r, state, i, n == 0);
        if let Some(body) = body.take().filter(|_| n > 0) {
            state.put_data(i, body, n, flag::END_STREAM);
        }
        let entry = &mut state.streams[i];
        entry.local = Half::Ended;
        r.bytes_sent += len + std::mem::take(&mut entry.framing);
        stream(r).is_whole = true;
    });
    if put.is_ok() && body.is_none() {
        mux.tell();
    }
    body
}

/// Puts a piece of the body into the output. Waits while too much is queued. A range of a file
/// stays one until the connection has its turn to send of it: a slow client holds no copy.
pub(crate) async fn put(r: &mut Request, mut piece: Chain, last: bool) -> Result<(), SendFailed> {
    r.bytes_sent += piece.len();
    let s = stream(r);
    s.output.append(&mut piece);
    if last || s.output.len() < GATHER_MAX {
        return Ok(());
    }
    rarely(hand_over(r, false)).await
}

/// The most bytes of a file in a frame.
fn piece_max(r: &Request) -> usize {
    r.loc.http2_chunk.min(PIECE_MAX)
}

/// Reads the first bytes of a response that begins with a file, before its head goes: where that
/// fails, there can still be another answer.
async fn read_first(r: &mut Request) -> Result<(), SendFailed> {
    let most = piece_max(r);
    let s = stream(r);
    let window = s.mux().of(s.key, |state, i| state.streams[i].send.left());
    let most = most.min(window.unwrap_or(0).max(1));
    let mut output = std::mem::take(&mut s.output);
    let mut first = in_pieces(r, &mut output, (HEAD_LEN, most)).await?;
    first.append(&mut output);
    stream(r).output = first;
    Ok(())
}

/// Fetches the front of the queue, a piece of a file that is not in memory.
async fn fetch(r: &mut Request) -> Result<(), SendFailed> {
    let most = piece_max(r) as u64;
    let s = stream(r);
    let (mux, key) = (s.mux().clone(), s.key);
    let front = mux.of(key, |state, i| match state.streams[i].queue.front() {
        Some(Buf::File { file, pos, end }) => Some((file.clone(), *pos, *end)),
        _ => None,
    });
    let mut piece = Chain::new();
    if let Some((file, pos, end)) = front.map_err(|_| SendFailed)? {
        let mut range = Chain::new();
        range.push_file(file, pos, end.min(pos + most));
        piece = in_pieces(r, &mut range, (HEAD_LEN, most as usize)).await?;
    }
    let fetched = mux.of(key, |state, i| {
        let entry = &mut state.streams[i];
        entry.queue.advance(piece.len());
        while let Some(buf) = piece.pop_front() {
            entry.queue.push_front(buf);
        }
        entry.unread = false;
        state.schedule.add(i, entry);
    });
    mux.tell();
    fetched.map_err(|_| SendFailed)
}

/// Sends all that is queued.
pub(crate) async fn flush(r: &mut Request) -> Result<(), SendFailed> {
    let s = stream(r);
    if s.head == HeadState::Begun && !s.has_body && !s.is_upgraded {
        return Ok(());
    }
    if s.head == HeadState::Begun || !s.output.is_empty() {
        rarely(hand_over(r, false)).await?;
    }
    wait(r, For::Empty).await
}

/// Ends a response of which nothing waits: its last frame is in the output, or its head is all of
/// it. False where that is not so, or the stream is gone.
#[inline]
pub(crate) fn finish_now(r: &mut Request) -> bool {
    let s = stream(r);
    if s.is_whole {
        return true;
    }
    if s.head != HeadState::Begun || !s.output.is_empty() || !r.out.trailers.is_empty() {
        return false;
    }
    let (mux, key) = (stream(r).mux().clone(), stream(r).key);
    let put = mux.of(key, |state, i| {
        head::put(r, state, i, true);
        state.streams[i].local = Half::Ended;
    });
    mux.tell();
    put.is_ok()
}

/// Ends the response.
pub(crate) async fn finish(r: &mut Request) -> Result<(), SendFailed> {
    if finish_now(r) {
        return Ok(());
    }
    let s = stream(r);
    let (mux, key) = (s.mux().clone(), s.key);
    let is_ended = |half: Half| half == Half::Ended;
    if mux.of(key, |state, i| state.streams[i].local).is_ok_and(is_ended) {
        return Ok(());
    }
    rarely(hand_over(r, true)).await?;
    rarely(wait(r, For::Empty)).await?;
    let framing = mux.of(key, |state, i| std::mem::take(&mut state.streams[i].framing));
    r.bytes_sent += framing.unwrap_or(0);
    Ok(())
}

/// Gives the output to the connection, the head first; with `ends`, the response ends behind it.
async fn hand_over(r: &mut Request, ends: bool) -> Result<(), SendFailed> {
    if stream(r).head == HeadState::Begun {
        if matches!(stream(r).output.front(), Some(Buf::File { .. })) {
            read_first(r).await?;
        }
        head::send(r, false)?;
    }
    let rate = pace::rate(r);
    if rate > 0 {
        paced(r, rate).await?;
    }
    while !offer(r, ends)? {
        wait(r, For::Room).await?;
    }
    Ok(())
}

/// `limit_rate`: as much as the time since the response's start allows, then a pause.
async fn paced(r: &mut Request, rate: u64) -> Result<(), SendFailed> {
    let pace = Pace::new(r, rate);
    while !stream(r).output.is_empty() {
        let sent = r.bytes_sent.saturating_sub(stream(r).output.len());
        let pause = match pace.allowed(r, sent) {
            Allowed::After(ms) => ms,
            Allowed::Bytes(n) => {
                let s = stream(r);
                let part = s.output.split_to(n);
                let mut rest = std::mem::replace(&mut s.output, part);
                let n = s.output.len();
                while !offer(r, false)? {
                    wait(r, For::Room).await?;
                }
                stream(r).output.append(&mut rest);
                wait(r, For::Empty).await?;
                pace.pause(sent, n)
            }
        };
        if pause > 0
            && !stream(r).output.is_empty()
            && let Either::First(()) = event::race(r.client_gone(), event::sleep(pause)).await
        {
            return Err(SendFailed);
        }
    }
    Ok(())
}

/// Puts the output into the queue of the stream; false where that is full.
fn offer(r: &mut Request, ends: bool) -> Result<bool, SendFailed> {
    let trailers = match ends && !r.out.trailers.is_empty() {
        true => r.out.trailers.clone(),
        false => Vec::new(),
    };
    let chunk_max = r.loc.http2_chunk;
    let reading = read_settings(r);
    let s = stream(r);
    let (mux, key) = (s.mux().clone(), s.key);
    let output = &mut s.output;
    let given = mux.of(key, |state, i| {
        let entry = &mut state.streams[i];
        if entry.queued >= QUEUE_MAX && !output.is_empty() {
            return false;
        }
        entry.queued += output.len();
        entry.queue.append(output);
        entry.ends = ends;
        entry.chunk = chunk_max;
        entry.reading = reading;
        entry.trailers = trailers;
        if ends || !entry.queue.is_empty() {
            state.schedule.add(i, entry);
        }
        true
    });
    mux.tell();
    given.map_err(|_| SendFailed)
}

/// The thing that a response waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Room,
    Empty,
}

/// Waits for room, for `send_timeout` at most between two successes of the client, and as long as
/// it keeps the minimum rate.
async fn wait(r: &mut Request, what: For) -> Result<(), SendFailed> {
    let s = stream(r);
    if s.timed_out {
        return Err(SendFailed);
    }
    let (mux, key) = (s.mux().clone(), s.key);
    let ready = || {
        poll_fn(|cx| match what {
            For::Room => mux.poll_room(key, false, cx),
            For::Empty => mux.poll_room(key, true, cx),
        })
    };
    let (timeout, min) = (r.loc.core.send_timeout, r.loc.core.send_min_rate);
    let standing = || mux.of(key, |state, i| Standing::of(state, i)).unwrap_or_default();
    // The stream's last success.
    let (mut before, mut last_ms) = (standing(), base::time::now_ms());
    loop {
        let began_ms = base::time::now_ms();
        let silence_ends_ms = (last_ms + timeout).saturating_sub(began_ms);
        let limit_ms = r.send_credit.limit(min, silence_ends_ms);
        let woken = event::race(ready(), event::sleep(limit_ms)).await;
        let (now, now_ms) = (standing(), base::time::now_ms());
        r.send_credit.moved(min, now_ms - began_ms, now.moved_since(&before));
        if now.queued != before.queued {
            last_ms = now_ms;
        }
        before = now;
        match woken {
            Either::First(Ok(()))
                if mux.of(key, |state, i| state.streams[i].unread) == Ok(true) =>
            {
                Box::pin(fetch(r)).await?;
            }
            Either::First(Ok(())) => return Ok(()),
            Either::First(Err(gone)) => return Err(failed(r, gone)),
            Either::Second(()) => {
                let too_slow = r.send_credit.limit(min, timeout) == 0;
                if too_slow || now_ms >= last_ms + timeout {
                    let tells = mux.timed_out();
                    let m = min_rate::reason(too_slow, r.c().client_ip()).filter(|_| tells);
                    if let Some(m) = m {
                        r.log(Level::Info, format_args!("{m} while sending response to client"));
                    }
                    stream(r).timed_out = true;
                    return Err(SendFailed);
                }
            }
        }
    }
}

/// The progress of a response.
#[derive(Clone, Copy, Default)]
struct Standing {
    /// Bytes of it that wait.
    queued: u64,
    /// Bytes of the connection that were sent.
    sent: u64,
    /// The client lets no more of this stream go.
    is_held: bool,
}

impl Standing {
    fn of(state: &State, i: usize) -> Standing {
        let entry = &state.streams[i];
        let is_held = entry.send.left() == 0;
        Standing { queued: entry.queued, sent: state.sent, is_held }
    }

    /// The bytes that the client took. A stream that waits for its turn is not slow where others
    /// go on; one whose window is empty is.
    fn moved_since(&self, before: &Standing) -> u64 {
        match self.is_held {
            true => before.queued.saturating_sub(self.queued),
            false => self.sent.saturating_sub(before.sent),
        }
    }
}

fn failed(r: &mut Request, gone: Gone) -> SendFailed {
    if gone == Gone::Connection && stream(r).mux().tells_of_end() {
        let m = "client prematurely closed connection while sending response to client";
        r.log(Level::Info, format_args!("{m}"));
    }
    SendFailed
}
