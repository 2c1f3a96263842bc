//! A body's way through its filters to the request's channel.
//!
//! Filters stand in a row. What one gives out goes down the row before that filter is asked for
//! more, so that a filter which makes much of little (or reads a large file) never has more than a
//! few buffers of it in memory, however slow the client is.
//!
//! ```text
//!  source ─▶ filter ─▶ filter ─▶ queue ─▶ coding ─▶ channel
//!                                  ▲
//!                          bodies of subrequests
//! ```
//!
//! Filters may put subrequests between the bytes that they give out. These run at once and side by
//! side, while the row goes on; the queue keeps the order. Codings (`gzip`) stand behind it: they
//! see the whole body. A subrequest's body has been through the filters of its own location, and
//! goes through none of its parent's but the codings.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use base::log::Level;
use mem::{Buf, Chain};

use crate::channel::{self, SendFailed, in_memory};
use crate::output::{BodyFilter, FilterStep, Piece, Until};
use crate::request::Request;
use crate::subrequest::{Handle, Pipe, Queue, Queued};

/// Bytes of a request's own that may wait behind subrequests before it makes no more.
const QUEUE_BYTES: u64 = 64 << 10;

/// Pieces and subrequests that may wait in a queue.
const QUEUE_MAX: usize = 48;

type Filters = [Box<dyn BodyFilter>];

/// Work that is left, the next on top.
enum Todo {
    /// A piece goes into a filter, by the number of that; behind the last one is the queue, or the
    /// channel. The body may end with it.
    Piece { at: usize, piece: Chain, last: bool },
    /// A subrequest's place in the body.
    Subrequest(Handle),
    /// Nothing goes on before this has come.
    Wait(Until),
}

/// Takes a piece of the body through the body filters to the channel.
pub(crate) async fn filtered(
    r: &mut Request,
    input: &mut Chain,
    last: bool,
) -> Result<(), SendFailed> {
    let piece = input.take();
    if r.out.filters.is_empty() {
        return channel::put(r, piece, last).await;
    }
    let mut list = std::mem::take(&mut r.out.filters);
    let filters = list.iter().position(|f| f.is_coding()).unwrap_or(list.len());
    let (filters, codings) = list.split_at_mut(filters);
    let mut end = End { codings };
    let done = run(r, filters, &mut end, piece, last).await;
    // Filters that the filters themselves added come behind them.
    list.append(&mut r.out.filters);
    r.out.filters = list;
    done
}

async fn run(
    r: &mut Request,
    filters: &mut Filters,
    end: &mut End<'_>,
    piece: Chain,
    last: bool,
) -> Result<(), SendFailed> {
    if filters.is_empty() && r.work.subrequests.queue.is_empty() {
        return end.coded(r, piece, last).await;
    }
    let mut todo = vec![Todo::Piece { at: 0, piece, last }];
    while let Some(next) = todo.pop() {
        match next {
            Todo::Piece { at, piece, last } => match filters.get_mut(at) {
                Some(filter) => one(r, filter.as_mut(), (at, piece, last), &mut todo).await?,
                None if r.work.subrequests.queue.is_empty() => end.coded(r, piece, last).await?,
                None => enqueue(&mut r.work.subrequests.queue, piece, last),
            },
            Todo::Subrequest(handle) => {
                r.work.subrequests.queue.push_back(Queued::Subrequest(handle))
            }
            Todo::Wait(until) => end.pump(r, Goal::Until(until)).await?,
        }
        if !has_room(r) {
            end.pump(r, Goal::Room).await?;
        }
    }
    if r.work.subrequests.queue.is_empty() {
        return Ok(());
    }
    end.pump(r, if last { Goal::Empty } else { Goal::Room }).await
}

/// Gives a piece to a filter: its output, and the input it did not take yet, are left to do.
async fn one(
    r: &mut Request,
    filter: &mut dyn BodyFilter,
    (at, mut piece, last): (usize, Chain, bool),
    todo: &mut Vec<Todo>,
) -> Result<(), SendFailed> {
    let mut rest = Chain::new();
    if !filter.takes_files() && has_file(&piece) {
        rest = piece.take();
        piece = in_memory(r, &mut rest).await?;
    }
    let ends = last && rest.is_empty();
    let mut out = Chain::new();
    let step = filter.filter(r, Piece { input: &mut piece, last: ends, out: &mut out });
    let more = !matches!(step, FilterStep::Go);
    let left = more || !rest.is_empty();
    if left {
        piece.append(&mut rest);
        todo.push(Todo::Piece { at, piece, last });
    }
    match step {
        FilterStep::Go | FilterStep::More => {}
        FilterStep::Include(handle) => todo.push(Todo::Subrequest(handle)),
        FilterStep::Wait(until) => todo.push(Todo::Wait(until)),
        FilterStep::Fail => return Err(SendFailed),
    }
    let last = ends && !more;
    if last || !out.is_empty() {
        todo.push(Todo::Piece { at: at + 1, piece: out, last });
    }
    if left {
        // A long body and a fast client: others get their turn between the pieces.
        event::task::yield_now().await;
    }
    Ok(())
}

fn enqueue(queue: &mut Queue, mut piece: Chain, last: bool) {
    if let Some(Queued::Bytes { piece: before, last: end }) = queue.back_mut() {
        before.append(&mut piece);
        *end = last;
    } else {
        queue.push_back(Queued::Bytes { piece, last });
    }
}

/// Whether more may be made while the front of the queue is not there yet.
fn has_room(r: &Request) -> bool {
    if r.work.subrequests.queue.is_empty() {
        return true;
    }
    let bytes = r.work.subrequests.queue.iter().map(|q| match q {
        Queued::Bytes { piece, .. } => piece.len(),
        Queued::Subrequest(_) => 0,
    });
    r.work.subrequests.queue.len() < QUEUE_MAX
        && bytes.sum::<u64>() < QUEUE_BYTES
        && r.work.subrequests.family.as_ref().is_none_or(|f| !f.is_crowded())
}

/// The point to which the queue is to be put out.
enum Goal {
    /// So far that more may be made.
    Room,
    /// All of it.
    Empty,
    /// As far as it goes until this has come.
    Until(Until),
}

/// The front of a queue.
enum Front {
    Nothing,
    Piece(Chain, bool),
    /// A subrequest that has nothing yet.
    Busy(Rc<Pipe>),
}

fn front(r: &mut Request) -> Result<Front, SendFailed> {
    loop {
        let pipe = match r.work.subrequests.queue.front() {
            None => return Ok(Front::Nothing),
            Some(Queued::Subrequest(handle)) => handle.pipe(),
            Some(Queued::Bytes { .. }) => match r.work.subrequests.queue.pop_front() {
                Some(Queued::Bytes { piece, last }) => return Ok(Front::Piece(piece, last)),
                _ => return Ok(Front::Nothing),
            },
        };
        if !pipe.is_empty() {
            return Ok(Front::Piece(pipe.take(), false));
        }
        match pipe.result() {
            None => return Ok(Front::Busy(pipe.clone())),
            Some(Ok(())) => drop(r.work.subrequests.queue.pop_front()),
            // Half a page is not to be taken for a whole one.
            Some(Err(_)) => return Err(SendFailed),
        }
    }
}

/// The way behind the queue: codings, then the channel.
struct End<'a> {
    codings: &'a mut Filters,
}

impl End<'_> {
    /// Writes out the queue. If that has to end early, the parts before go out all the same.
    async fn pump(&mut self, r: &mut Request, mut goal: Goal) -> Result<(), SendFailed> {
        loop {
            let reached = match &mut goal {
                Goal::Until(until) => poll_fn(|cx| Poll::Ready(now(until.as_mut().poll(cx)))).await,
                Goal::Room | Goal::Empty => None,
            };
            let front = match reached {
                Some(Ok(())) => return Ok(()),
                Some(Err(_)) => Err(SendFailed),
                None => front(r),
            };
            let busy = match (front, &goal) {
                (Err(e), _) => {
                    // A part does not fit into the page: the rest of the page is not sent.
                    if !r.work.subrequests.family().has_overflowed() {
                        let _ = channel::flush(r).await;
                    }
                    return Err(e);
                }
                (Ok(Front::Piece(piece, last)), _) => {
                    self.coded(r, piece, last).await?;
                    continue;
                }
                (Ok(Front::Nothing), Goal::Room | Goal::Empty) => return Ok(()),
                (Ok(Front::Busy(_)), Goal::Room) if has_room(r) => return Ok(()),
                (Ok(Front::Nothing), Goal::Until(_)) => None,
                (Ok(Front::Busy(pipe)), _) => Some(pipe),
            };
            // A page that waits for a part for a variable may still fail: hold back little, as
            // nginx does.
            if busy.is_some()
                || r.client.channel.queued().len() >= r.loc.core.postpone_output as u64
            {
                channel::flush(r).await?;
            }
            news(r, busy, &mut goal).await?;
        }
    }

    /// Takes a piece through the codings to the channel.
    async fn coded(&mut self, r: &mut Request, piece: Chain, last: bool) -> Result<(), SendFailed> {
        let mut todo = vec![Todo::Piece { at: 0, piece, last }];
        while let Some(next) = todo.pop() {
            match next {
                Todo::Piece { at, piece, last } => match self.codings.get_mut(at) {
                    Some(coding) => one(r, coding.as_mut(), (at, piece, last), &mut todo).await?,
                    None => channel::put(r, piece, last).await?,
                },
                Todo::Wait(until) => until.await.map_err(|_| SendFailed)?,
                // The order was settled before.
                Todo::Subrequest(_) => return Err(SendFailed),
            }
        }
        Ok(())
    }
}

fn now<T>(polled: Poll<T>) -> Option<T> {
    match polled {
        Poll::Ready(v) => Some(v),
        Poll::Pending => None,
    }
}

/// Waits for a subrequest, the goal, or the client's end; the caller checks all again.
async fn news(r: &mut Request, busy: Option<Rc<Pipe>>, goal: &mut Goal) -> Result<(), SendFailed> {
    let gone = {
        let mut gone = pin!(r.client_gone());
        let mut changed = pin!(async {
            match &busy {
                Some(pipe) => pipe.changed().await,
                None => std::future::pending().await,
            }
        });
        let mut until = match goal {
            Goal::Until(until) => Some(until),
            _ => None,
        };
        poll_fn(move |cx| {
            if let Some(u) = &mut until
                && let Poll::Ready(done) = u.as_mut().poll(cx)
            {
                // A future must not be polled again behind its end: the caller sees it at once.
                **u = Box::pin(std::future::ready(done));
                return Poll::Ready(false);
            }
            if changed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(false);
            }
            gone.as_mut().poll(cx).map(|()| true)
        })
        .await
    };
    if gone {
        r.log(Level::Info, format_args!("client prematurely closed connection"));
        return Err(SendFailed);
    }
    Ok(())
}

fn has_file(chain: &Chain) -> bool {
    chain.iter().any(|buf| matches!(buf, Buf::File { .. }))
}
