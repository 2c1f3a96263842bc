//! A body's way through its filters, framed, to the wire.
//!
//! Filters stand in a row. What one gives out goes down the row before that filter is asked for
//! more, so that a filter which makes much of little (or reads a large file) never has more than a
//! few buffers of it in memory, however slow the client is.

use mem::{Buf, Chain};

use crate::head::Framing;
use crate::output::{BodyFilter, FilterStep};
use crate::request::Request;
use crate::send::{GATHER_MAX, SendFailed, flush, in_memory, needs_memory, through_memory};

/// A piece that waits to go into a filter, and whether the body ends with it.
struct Todo {
    /// The number of the filter; behind the last one is the wire.
    at: usize,
    piece: Chain,
    last: bool,
}

/// Takes a piece of the body through the body filters to the wire.
pub(crate) async fn filtered(
    r: &mut Request,
    input: &mut Chain,
    last: bool,
    framing: Framing,
) -> Result<(), SendFailed> {
    let piece = input.take();
    if r.body_filters.is_empty() {
        return output(r, piece, last, framing).await;
    }
    let mut list = std::mem::take(&mut r.body_filters);
    let done = run(r, &mut list, piece, last, framing).await;
    // Filters that the filters themselves added come behind them.
    list.append(&mut r.body_filters);
    r.body_filters = list;
    done
}

async fn run(
    r: &mut Request,
    list: &mut [Box<dyn BodyFilter>],
    piece: Chain,
    last: bool,
    framing: Framing,
) -> Result<(), SendFailed> {
    // What is farthest down the row is on top.
    let mut todo = vec![Todo { at: 0, piece, last }];
    while let Some(next) = todo.pop() {
        match list.get_mut(next.at) {
            Some(filter) => one(r, filter.as_mut(), next, &mut todo).await?,
            None => output(r, next.piece, next.last, framing).await?,
        }
    }
    Ok(())
}

/// Gives a piece to a filter: what comes of it, and what the filter did not take yet, are left to
/// do.
async fn one(
    r: &mut Request,
    filter: &mut dyn BodyFilter,
    next: Todo,
    todo: &mut Vec<Todo>,
) -> Result<(), SendFailed> {
    let Todo { at, mut piece, last } = next;
    let mut rest = Chain::new();
    if !filter.takes_files() && has_file(&piece) {
        rest = piece.take();
        piece = in_memory(r, &mut rest).await?;
    }
    let ends = last && rest.is_empty();
    let mut out = Chain::new();
    let more = loop {
        match filter.filter(r, &mut piece, ends, &mut out) {
            FilterStep::Go => break false,
            FilterStep::More => break true,
            FilterStep::Wait(until) => {
                if until.await.is_err() {
                    return Err(SendFailed);
                }
            }
            FilterStep::Fail => return Err(SendFailed),
        }
    };
    let left = more || !rest.is_empty();
    if left {
        piece.append(&mut rest);
        todo.push(Todo { at, piece, last });
    }
    let last = ends && !more;
    if last || !out.is_empty() {
        todo.push(Todo { at: at + 1, piece: out, last });
    }
    if left {
        // A long body and a fast client: others get their turn between the pieces.
        event::task::yield_now().await;
    }
    Ok(())
}

fn has_file(chain: &Chain) -> bool {
    chain.iter().any(|buf| matches!(buf, Buf::File { .. }))
}

/// Puts a piece on the wire, in its chunk where the body has chunks.
async fn output(
    r: &mut Request,
    mut piece: Chain,
    last: bool,
    framing: Framing,
) -> Result<(), SendFailed> {
    let len = piece.len();
    if len > 0 {
        let chunked = framing == Framing::Chunked;
        if chunked {
            let before = r.wire.len();
            let w = r.wire.writer_for(24);
            base::ascii::write_hex_u64(w, len);
            w.extend_from_slice(b"\r\n");
            r.bytes_sent += r.wire.len() - before;
        }
        if needs_memory(r, &piece) {
            through_memory(r, piece).await?;
        } else {
            r.bytes_sent += len;
            r.wire.append(&mut piece);
        }
        if chunked {
            r.wire.write(b"\r\n");
            r.bytes_sent += 2;
        }
    }
    if last {
        if framing == Framing::Chunked {
            last_chunk(r);
        }
        return Ok(());
    }
    if r.wire.len() >= GATHER_MAX { flush(r).await } else { Ok(()) }
}

/// Writes the end of a chunked body, with its trailers.
pub(crate) fn last_chunk(r: &mut Request) {
    let before = r.wire.len();
    r.wire.write(b"0\r\n");
    let trailers = std::mem::take(&mut r.out.trailers);
    let w = r.wire.writer();
    for (name, value) in &trailers {
        w.extend_from_slice(name);
        w.extend_from_slice(b": ");
        w.extend_from_slice(value);
        w.extend_from_slice(b"\r\n");
    }
    w.extend_from_slice(b"\r\n");
    r.out.trailers = trailers;
    r.bytes_sent += r.wire.len() - before;
}
