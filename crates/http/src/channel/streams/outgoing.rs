//! Response bodies that go by a stream, of HTTP/2 or of HTTP/3.

use std::future::poll_fn;
use std::task::{Context, Poll};

use base::future::rarely;
use base::log::Level;
use engine::min_rate;
use event::Either;
use mem::{Buf, Chain};

use super::exchange::HeadState;
use super::{Gone, Multiplexed};
use crate::channel::pace::{self, Allowed, Pace};
use crate::channel::{SendFailed, in_pieces};
use crate::request::Request;

/// Bytes of a body that are gathered before the connection gets them.
const GATHER_MAX: u64 = 16 << 10;

/// The most bytes of a file in a piece, which is a frame.
pub(crate) const PIECE_MAX: usize = 64 << 10;

/// The room that a response waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// Some for more.
    Some,
    /// Nothing of what the connection got is left.
    All,
}

/// The progress of a response.
#[derive(Clone, Copy, Default)]
pub(crate) struct Standing {
    /// Bytes of it that wait.
    pub left: u64,
    /// Bytes of the connection that were sent.
    pub sent: u64,
    /// The client lets no more of this stream go, or nothing is known of the connection.
    pub is_held: bool,
}

impl Standing {
    /// The bytes that the client took. A stream that waits for its turn is not slow where others
    /// go on; one whose window is empty is.
    fn moved_since(&self, before: &Standing) -> u64 {
        match self.is_held {
            true => before.left.saturating_sub(self.left),
            false => self.sent.saturating_sub(before.sent),
        }
    }
}

/// A stream that takes a response.
pub(crate) trait Outgoing: Multiplexed {
    /// Gives the connection the output, the head first.
    async fn hand_over(r: &mut Request) -> Result<(), SendFailed>;

    /// Gives the connection the output behind the head, and waits until all of it has gone.
    async fn send(r: &mut Request) -> Result<(), SendFailed>;

    /// Waits for room, or for the stream's end.
    fn poll_room(&mut self, room: Room, cx: &mut Context<'_>) -> Poll<Result<(), Gone>>;

    /// The progress of the response; nothing waits of a stream that is gone.
    fn standing(&self) -> Standing;

    /// Fetches what the connection has room for but cannot send as it is. Returns whether any.
    async fn fetch(_: &mut Request) -> Result<bool, SendFailed> {
        Ok(false)
    }
}

/// Whether a response may go at once with all of its body: that is small and in memory, the head is
/// there to go before it, and nothing comes behind it or slows it down.
#[inline]
pub(crate) fn may_go_whole<S: Multiplexed>(r: &mut Request, body: &Chain) -> bool {
    let is_small = body.len() <= GATHER_MAX && body.iter().all(|buf| buf.memory().is_some());
    let has_trailers = r.out.expect_trailers || !r.out.trailers.is_empty();
    is_small && !has_trailers && S::of(r).exchange().head == HeadState::Begun && pace::rate(r) == 0
}

/// Puts a piece of the body into the output. Waits while the connection takes no more.
pub(crate) async fn put<S: Outgoing>(
    r: &mut Request,
    mut piece: Chain,
    last: bool,
) -> Result<(), SendFailed> {
    r.account.bytes_sent += piece.len();
    let output = &mut S::of(r).exchange().output;
    output.append(&mut piece);
    if last || output.len() < GATHER_MAX {
        return Ok(());
    }
    rarely(S::hand_over(r)).await
}

/// Whether the output begins with a file.
pub(crate) fn begins_with_file<S: Multiplexed>(r: &mut Request) -> bool {
    matches!(S::of(r).exchange().output.front(), Some(Buf::File { .. }))
}

/// Reads the first bytes of a response that begins with a file, before its head goes: where that
/// fails, there can still be another answer. `piece` is the room before them, and the most of them.
pub(crate) async fn read_first<S: Multiplexed>(
    r: &mut Request,
    piece: (usize, usize),
) -> Result<(), SendFailed> {
    let mut output = std::mem::take(&mut S::of(r).exchange().output);
    let mut first = in_pieces(r, &mut output, piece).await?;
    first.append(&mut output);
    S::of(r).exchange().output = first;
    Ok(())
}

/// Sends the output behind the head by `limit_rate`: as much as the time since the response's start
/// allows, then a pause. Without a limit it does nothing.
pub(crate) async fn paced<S: Outgoing>(r: &mut Request) -> Result<(), SendFailed> {
    let rate = pace::rate(r);
    if rate == 0 {
        return Ok(());
    }
    let pace = Pace::new(r, rate);
    while !S::of(r).exchange().output.is_empty() {
        let sent = r.account.bytes_sent.saturating_sub(S::of(r).exchange().output.len());
        let pause = match pace.allowed(r, sent) {
            Allowed::After(ms) => ms,
            Allowed::Bytes(n) => {
                let output = &mut S::of(r).exchange().output;
                let part = output.split_to(n);
                let mut rest = std::mem::replace(output, part);
                let n = output.len();
                let done = S::send(r).await;
                S::of(r).exchange().output.append(&mut rest);
                done?;
                pace.pause(sent, n)
            }
        };
        if pause > 0
            && !S::of(r).exchange().output.is_empty()
            && let Either::First(()) = event::race(r.client_gone(), event::sleep(pause)).await
        {
            return Err(SendFailed);
        }
    }
    Ok(())
}

/// Waits for room, for `send_timeout` at most between two successes of the client, and as long as
/// it keeps the minimum rate.
pub(crate) async fn wait<S: Outgoing>(r: &mut Request, room: Room) -> Result<(), SendFailed> {
    if S::of(r).exchange().timed_out {
        return Err(SendFailed);
    }
    let (timeout, min) = (r.loc.core.send_timeout, r.loc.core.send_min_rate);
    // The stream's last success.
    let (mut before, mut last_ms) = (S::of(r).standing(), base::time::now_ms());
    loop {
        let began_ms = base::time::now_ms();
        let silence_ends_ms = (last_ms + timeout).saturating_sub(began_ms);
        let limit_ms = r.client.rates.sending.limit(min, silence_ends_ms);
        let stream = S::of(r);
        let ready = poll_fn(|cx| stream.poll_room(room, cx));
        let woken = event::race(ready, event::sleep(limit_ms)).await;
        let (now, now_ms) = (S::of(r).standing(), base::time::now_ms());
        r.client.rates.sending.moved(min, now_ms - began_ms, now.moved_since(&before));
        if now.left != before.left {
            last_ms = now_ms;
        }
        before = now;
        match woken {
            Either::First(Ok(())) => {
                if !S::fetch(r).await? {
                    return Ok(());
                }
            }
            Either::First(Err(gone)) => return Err(failed::<S>(r, gone)),
            Either::Second(()) => {
                let too_slow = r.client.rates.sending.limit(min, timeout) == 0;
                if too_slow || now_ms >= last_ms + timeout {
                    let tells = super::timed_out::<S>(r);
                    let m = min_rate::reason(too_slow, r.c().client_ip()).filter(|_| tells);
                    if let Some(m) = m {
                        r.log(Level::Info, format_args!("{m} while sending response to client"));
                    }
                    return Err(SendFailed);
                }
            }
        }
    }
}

/// The stream ended before its response did: a line tells of a connection that ended.
#[cold]
pub(crate) fn failed<S: Multiplexed>(r: &mut Request, gone: Gone) -> SendFailed {
    if gone == Gone::Connection && S::of(r).tells_of_end() {
        let m = "client prematurely closed connection while sending response to client";
        r.log(Level::Info, format_args!("{m}"));
    }
    SendFailed
}
