//! Response bodies: from the request to QUIC, as far as that takes them.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use base::future::rarely;
use bytes::Bytes;
use http_wire::h3::frame::{self, HEAD_MAX, kind};
use mem::{Buf, Chain};

use super::{Stream, head, stream};
use crate::channel::streams::exchange::HeadState;
use crate::channel::streams::outgoing::{
    Outgoing, PIECE_MAX, Room, Standing, begins_with_file, failed, may_go_whole, paced, read_first,
    wait,
};
use crate::channel::streams::{self, Gone};
use crate::channel::{SendFailed, in_pieces};
use crate::request::Request;

/// The most bytes in the pieces of files of all streams of a connection together: each may have one
/// that its client does not take.
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
    if !may_go_whole::<Stream>(r, &body) {
        return Some(body);
    }
    let len = body.len();
    let mut out = Vec::with_capacity(HEAD_ROOM + HEAD_MAX + len as usize);
    head::write(r, &mut out);
    if len > 0 {
        frame::write_head(&mut out, kind::DATA, len);
        body.iter().filter_map(Buf::memory).for_each(|bytes| out.extend_from_slice(bytes));
    }
    r.account.bytes_sent += len;
    stream(r).frames.push_back(out.into());
    end_now(r);
    None
}

/// Gives QUIC the frames that are left, and the end behind them, if it takes all of them.
fn end_now(r: &mut Request) -> bool {
    let s = stream(r);
    let at = s.at.as_ref().expect("a stream in use has its connection");
    if at.0.write(at.1, &mut s.frames) == Ok(true) {
        s.exchange.is_whole = at.0.quic().finish(at.1).is_ok();
    }
    s.exchange.is_whole
}

impl Outgoing for Stream {
    async fn hand_over(r: &mut Request) -> Result<(), SendFailed> {
        hand_over(r).await
    }

    /// Frames all of the output and has QUIC take it, a piece after the other.
    async fn send(r: &mut Request) -> Result<(), SendFailed> {
        loop {
            settle(r).await?;
            if stream(r).exchange.output.is_empty() {
                return Ok(());
            }
            frame_piece(r).await?;
        }
    }

    /// Nothing is left where there is room: QUIC has it.
    fn poll_room(&mut self, _: Room, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        let at = self.at.as_ref().expect("a stream in use has its connection");
        at.0.poll_write(at.1, &mut self.frames, cx)
    }

    fn standing(&self) -> Standing {
        let left = self.frames.iter().map(|bytes| bytes.len() as u64).sum();
        Standing { left, sent: 0, is_held: true }
    }
}

/// Sends all that is queued.
pub(crate) async fn flush(r: &mut Request) -> Result<(), SendFailed> {
    let s = stream(r);
    let exchange = &s.exchange;
    if exchange.waits_for_end() {
        return Ok(());
    }
    let is_sent = exchange.head != HeadState::Begun && exchange.output.is_empty();
    if !is_sent || !s.frames.is_empty() {
        rarely(hand_over(r)).await?;
    }
    Ok(())
}

/// Ends a response of which no bytes wait, or which has only a head; false for others.
#[inline]
pub(crate) fn finish_now(r: &mut Request) -> bool {
    let exchange = &stream(r).exchange;
    if exchange.is_whole {
        return true;
    }
    if !exchange.is_head_alone() || !r.out.trailers.is_empty() {
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
        streams::head::check_trailers(r);
        let given = std::mem::take(&mut r.out.trailers);
        let s = stream(r);
        let trailers = head::trailers(s.at().0, &given);
        s.frames.push_back(trailers.clone());
        r.account.framing_sent(trailers.len() as u64);
        r.out.trailers = given;
        rarely(settle(r)).await?;
    }
    if end_now(r) { Ok(()) } else { Err(SendFailed) }
}

/// Gives the output to QUIC, the head first.
async fn hand_over(r: &mut Request) -> Result<(), SendFailed> {
    if stream(r).exchange.head == HeadState::Begun {
        if begins_with_file::<Stream>(r) {
            let most = piece_max(r);
            read_first::<Stream>(r, (0, most)).await?;
        }
        let mut out = Vec::with_capacity(HEAD_ROOM);
        head::write(r, &mut out);
        stream(r).frames.push_back(out.into());
    }
    paced::<Stream>(r).await?;
    Stream::send(r).await
}

/// Frames the front of the output: what is there in memory, or a piece of a file.
async fn frame_piece(r: &mut Request) -> Result<(), SendFailed> {
    let most = piece_max(r);
    let mut output = std::mem::take(&mut stream(r).exchange.output);
    let read = in_pieces(r, &mut output, (0, most)).await;
    stream(r).exchange.output = output;
    let mut piece = read?;
    let frames = &mut stream(r).frames;
    while let Some(buf) = piece.pop_front() {
        if let Some(bytes) = buf.into_bytes() {
            frame_of(bytes, frames);
        }
    }
    Ok(())
}

/// Waits until QUIC has taken the frames.
async fn settle(r: &mut Request) -> Result<(), SendFailed> {
    let s = stream(r);
    if s.exchange.timed_out {
        return Err(SendFailed);
    }
    let (mux, id) = (s.at().0.clone(), s.at().1);
    match mux.write(id, &mut s.frames) {
        Ok(true) => Ok(()),
        Ok(false) => wait::<Stream>(r, Room::All).await,
        Err(gone) => Err(failed::<Stream>(r, gone)),
    }
}
