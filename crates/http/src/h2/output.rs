//! Response bodies: from the request to the queue of its stream, as far as there is room.

use std::task::{Context, Poll};

use base::future::rarely;
use http_wire::h2::frame::{HEAD_LEN, flag};
use mem::{Buf, Chain};

use super::mux::{Half, QUEUE_MAX};
use super::{Stream, head, stream};
use crate::channel::streams::exchange::HeadState;
use crate::channel::streams::outgoing::{
    Outgoing, PIECE_MAX, Room, Standing, begins_with_file, may_go_whole, paced, read_first, wait,
};
use crate::channel::streams::{self, Gone};
use crate::channel::{SendFailed, in_pieces, read_settings};
use crate::request::Request;

/// Bytes of output below which a whole body goes there at once: as many small ones as a client may
/// ask for together need no tasks that wait for their turns.
const READY_MAX: usize = 128 << 10;

/// Puts a whole body into the output, and the head before it, if that can be done at once.
#[inline]
pub(crate) fn put_now(r: &mut Request, body: Chain) -> Option<Chain> {
    if !may_go_whole::<Stream>(r, &body) {
        return Some(body);
    }
    let len = body.len();
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
        r.account.bytes_sent += len;
        r.account.framing_sent(std::mem::take(&mut entry.framing));
        stream(r).exchange.is_whole = true;
    });
    if put.is_ok() && body.is_none() {
        mux.tell();
    }
    body
}

impl Outgoing for Stream {
    async fn hand_over(r: &mut Request) -> Result<(), SendFailed> {
        hand_over(r, false).await
    }

    async fn send(r: &mut Request) -> Result<(), SendFailed> {
        while !offer(r, false)? {
            wait::<Stream>(r, Room::Some).await?;
        }
        wait::<Stream>(r, Room::All).await
    }

    fn poll_room(&mut self, room: Room, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        self.mux().poll_room(self.key, room, cx)
    }

    fn standing(&self) -> Standing {
        let standing = self.mux().of(self.key, |state, i| {
            let entry = &state.streams[i];
            let is_held = entry.send.left() == 0;
            Standing { left: entry.queued, sent: state.sent, is_held }
        });
        standing.unwrap_or_default()
    }

    /// A range of a file stays one until the connection has its turn to send of it: a slow client
    /// holds no copy. Where it is not in memory then, the request fetches a piece.
    async fn fetch(r: &mut Request) -> Result<bool, SendFailed> {
        let s = stream(r);
        let is_unread = s.mux().of(s.key, |state, i| state.streams[i].unread) == Ok(true);
        if is_unread {
            Box::pin(fetch(r)).await?;
        }
        Ok(is_unread)
    }
}

/// The most bytes of a file in a frame.
fn piece_max(r: &Request) -> usize {
    r.loc.http2_chunk.min(PIECE_MAX)
}

/// The most bytes of a file that go with the head.
fn first_max(r: &mut Request) -> usize {
    let most = piece_max(r);
    let s = stream(r);
    let window = s.mux().of(s.key, |state, i| state.streams[i].send.left());
    most.min(window.unwrap_or(0).max(1))
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
    let exchange = &stream(r).exchange;
    if exchange.waits_for_end() {
        return Ok(());
    }
    if exchange.head == HeadState::Begun || !exchange.output.is_empty() {
        rarely(hand_over(r, false)).await?;
    }
    wait::<Stream>(r, Room::All).await
}

/// Ends a response of which nothing waits: its last frame is in the output, or its head is all of
/// it. False where that is not so, or the stream is gone.
#[inline]
pub(crate) fn finish_now(r: &mut Request) -> bool {
    let exchange = &stream(r).exchange;
    if exchange.is_whole {
        return true;
    }
    if !exchange.is_head_alone() || !r.out.trailers.is_empty() {
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
    rarely(wait::<Stream>(r, Room::All)).await?;
    let framing = mux.of(key, |state, i| std::mem::take(&mut state.streams[i].framing));
    r.account.framing_sent(framing.unwrap_or(0));
    Ok(())
}

/// Gives the output to the connection, the head first; with `ends`, the response ends behind it.
async fn hand_over(r: &mut Request, ends: bool) -> Result<(), SendFailed> {
    if stream(r).exchange.head == HeadState::Begun {
        if begins_with_file::<Stream>(r) {
            let most = first_max(r);
            read_first::<Stream>(r, (HEAD_LEN, most)).await?;
        }
        head::send(r, false)?;
    }
    paced::<Stream>(r).await?;
    while !offer(r, ends)? {
        wait::<Stream>(r, Room::Some).await?;
    }
    Ok(())
}

/// Puts the output into the queue of the stream; false where that is full.
fn offer(r: &mut Request, ends: bool) -> Result<bool, SendFailed> {
    let mut trailers = Vec::new();
    if ends && !r.out.trailers.is_empty() {
        streams::head::check_trailers(r);
        trailers.clone_from(&r.out.trailers);
    }
    let chunk_max = r.loc.http2_chunk;
    let reading = read_settings(r);
    let s = stream(r);
    let (mux, key) = (s.mux().clone(), s.key);
    let output = &mut s.exchange.output;
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
