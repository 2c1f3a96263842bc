//! Response bodies: from the request to QUIC, as far as that takes them.

use std::collections::VecDeque;
use std::future::poll_fn;

use base::future::rarely;
use base::log::Level;
use bytes::Bytes;
use event::Either;
use mem::{Buf, Chain};
use proto::h3::frame::{self, HEAD_MAX, kind};

use super::{HeadState, head, stream};
use crate::channel::incoming::Incoming;
use crate::channel::pace::{self, Allowed, Pace};
use crate::channel::stream::Gone;
use crate::channel::{SendFailed, in_pieces};
use crate::request::Request;
use engine::min_rate;

/// Bytes of a body that are gathered before QUIC gets them.
const GATHER_MAX: u64 = 16 << 10;

/// The most bytes of a file in a piece, which is a frame.
const PIECE_MAX: usize = 64 << 10;

/// The same of all streams of a connection together: each may have one that its client does not
/// take.
const PIECES_MAX: usize = 1 << 20;

/// The most bytes of a file in the next piece.
fn piece_max(r: &mut Request) -> usize {
    let streams = stream(r).at().0.with(|state| state.begun);
    PIECE_MAX.min(PIECES_MAX / streams.max(1))
}

/// Bytes that are copied behind their frame's head: less than what it costs to keep them apart.
const COPIED_MAX: usize = 2 << 10;

/// Room for a response's head.
const HEAD_ROOM: usize = 512;

/// Puts bytes into a frame of their own.
pub(super) fn frame_of(bytes: Bytes, frames: &mut VecDeque<Bytes>) {
    if bytes.is_empty() {
        return;
    }
    let copied = if bytes.len() <= COPIED_MAX { bytes.len() } else { 0 };
    let mut out = Vec::with_capacity(HEAD_MAX + copied);
    frame::write_head(&mut out, kind::DATA, bytes.len() as u64);
    out.extend_from_slice(bytes.get(..copied).unwrap_or_default());
    frames.push_back(out.into());
    if copied == 0 {
        frames.push_back(bytes);
    }
}

/// Gives QUIC a whole response with a small body, if that can be done at once.
#[inline]
pub(crate) fn put_now(r: &mut Request, body: Chain) -> Option<Chain> {
    let len = body.len();
    let is_small = len <= GATHER_MAX && body.iter().all(|buf| buf.memory().is_some());
    let has_trailers = r.out.expect_trailers || !r.out.trailers.is_empty();
    if !is_small || has_trailers || stream(r).head != HeadState::Begun || pace::rate(r) > 0 {
        return Some(body);
    }
    let mut out = Vec::with_capacity(HEAD_ROOM + HEAD_MAX + len as usize);
    head::write(r, &mut out);
    if len > 0 {
        frame::write_head(&mut out, kind::DATA, len);
        body.iter().filter_map(Buf::memory).for_each(|bytes| out.extend_from_slice(bytes));
    }
    r.bytes_sent += len;
    stream(r).frames.push_back(out.into());
    end_now(r);
    None
}

/// Gives QUIC the frames that are left, and the end behind them, if it takes all of them.
fn end_now(r: &mut Request) -> bool {
    let s = stream(r);
    let at = s.at.as_ref().expect("a stream in use has its connection");
    if at.0.write(at.1, &mut s.frames) == Ok(true) {
        s.is_whole = at.0.quic().finish(at.1).is_ok();
    }
    s.is_whole
}

/// Puts a piece of the body into the output. Waits while QUIC takes no more.
pub(crate) async fn put(r: &mut Request, mut piece: Chain, last: bool) -> Result<(), SendFailed> {
    r.bytes_sent += piece.len();
    let s = stream(r);
    s.output.append(&mut piece);
    if last || s.output.len() < GATHER_MAX {
        return Ok(());
    }
    rarely(hand_over(r)).await
}

/// Sends all that is queued.
pub(crate) async fn flush(r: &mut Request) -> Result<(), SendFailed> {
    let s = stream(r);
    if s.head == HeadState::Begun && !s.has_body && !s.is_upgraded {
        return Ok(());
    }
    if s.head == HeadState::Begun || !s.output.is_empty() || !s.frames.is_empty() {
        rarely(hand_over(r)).await?;
    }
    Ok(())
}

/// Ends a response of which nothing waits, or whose head is all of it. False where that is not so.
#[inline]
pub(crate) fn finish_now(r: &mut Request) -> bool {
    let s = stream(r);
    if s.is_whole {
        return true;
    }
    if s.head != HeadState::Begun || !s.output.is_empty() || !r.out.trailers.is_empty() {
        return false;
    }
    let mut out = Vec::with_capacity(HEAD_ROOM);
    head::write(r, &mut out);
    stream(r).frames.push_back(out.into());
    end_now(r)
}

/// Ends the response.
pub(crate) async fn finish(r: &mut Request) -> Result<(), SendFailed> {
    if finish_now(r) {
        return Ok(());
    }
    rarely(hand_over(r)).await?;
    if !r.out.trailers.is_empty() {
        let given = std::mem::take(&mut r.out.trailers);
        let s = stream(r);
        let trailers = head::trailers(s.at().0, &given);
        s.frames.push_back(trailers.clone());
        r.bytes_sent += trailers.len() as u64;
        r.out.trailers = given;
        rarely(settle(r)).await?;
    }
    if end_now(r) { Ok(()) } else { Err(SendFailed) }
}

/// Gives the output to QUIC, the head first.
async fn hand_over(r: &mut Request) -> Result<(), SendFailed> {
    if stream(r).head == HeadState::Begun {
        if matches!(stream(r).output.front(), Some(Buf::File { .. })) {
            read_first(r).await?;
        }
        let mut out = Vec::with_capacity(HEAD_ROOM);
        head::write(r, &mut out);
        stream(r).frames.push_back(out.into());
    }
    let rate = pace::rate(r);
    if rate > 0 {
        return paced(r, rate).await;
    }
    send_output(r).await
}

/// Reads the first piece of the file in front, before the head goes: where that fails, there can
/// still be another answer.
async fn read_first(r: &mut Request) -> Result<(), SendFailed> {
    let most = piece_max(r);
    let mut output = std::mem::take(&mut stream(r).output);
    let read = in_pieces(r, &mut output, (0, most)).await;
    let mut first = read?;
    first.append(&mut output);
    stream(r).output = first;
    Ok(())
}

/// Frames all of the output and has QUIC take it, a piece after the other.
async fn send_output(r: &mut Request) -> Result<(), SendFailed> {
    loop {
        settle(r).await?;
        if stream(r).output.is_empty() {
            return Ok(());
        }
        frame_piece(r).await?;
    }
}

/// Frames the front of the output: what is there in memory, or a piece of a file.
async fn frame_piece(r: &mut Request) -> Result<(), SendFailed> {
    let most = piece_max(r);
    let mut output = std::mem::take(&mut stream(r).output);
    let read = in_pieces(r, &mut output, (0, most)).await;
    stream(r).output = output;
    let mut piece = read?;
    let frames = &mut stream(r).frames;
    while let Some(buf) = piece.pop_front() {
        if let Some(bytes) = buf.into_bytes() {
            frame_of(bytes, frames);
        }
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
                let done = send_output(r).await;
                stream(r).output.append(&mut rest);
                done?;
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
    settle(r).await
}

/// Waits until QUIC has taken the frames, for `send_timeout` at most between two successes of the
/// client, and as long as it keeps the minimum rate.
async fn settle(r: &mut Request) -> Result<(), SendFailed> {
    let s = stream(r);
    if s.timed_out {
        return Err(SendFailed);
    }
    let (mux, id) = (s.at().0.clone(), s.at().1);
    match mux.write(id, &mut s.frames) {
        Ok(true) => return Ok(()),
        Ok(false) => {}
        Err(gone) => return Err(failed(r, gone)),
    }
    let (timeout, min) = (r.loc.core.send_timeout, r.loc.core.send_min_rate);
    let left = |r: &mut Request| stream(r).frames.iter().map(|b| b.len() as u64).sum::<u64>();
    let (mut before, mut last_ms) = (left(r), base::time::now_ms());
    loop {
        let began_ms = base::time::now_ms();
        let silence_ends_ms = (last_ms + timeout).saturating_sub(began_ms);
        let limit_ms = r.send_credit.limit(min, silence_ends_ms);
        let frames = &mut stream(r).frames;
        let taken = poll_fn(|cx| mux.poll_write(id, frames, cx));
        let woken = event::race(taken, event::sleep(limit_ms)).await;
        let (now, now_ms) = (left(r), base::time::now_ms());
        r.send_credit.moved(min, now_ms - began_ms, before - now);
        if now != before {
            last_ms = now_ms;
        }
        before = now;
        match woken {
            Either::First(Ok(())) => return Ok(()),
            Either::First(Err(gone)) => return Err(failed(r, gone)),
            Either::Second(()) => {
                let too_slow = r.send_credit.limit(min, timeout) == 0;
                if too_slow || now_ms >= last_ms + timeout {
                    let tells = mux.tells_of_end();
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

fn failed(r: &mut Request, gone: Gone) -> SendFailed {
    if gone == Gone::Connection && stream(r).tells_of_end() {
        let m = "client prematurely closed connection while sending response to client";
        r.log(Level::Info, format_args!("{m}"));
    }
    SendFailed
}
