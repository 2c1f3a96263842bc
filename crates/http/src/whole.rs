//! A response's whole body in memory before its head is written, for work whose result the head
//! tells of (see [`WholeBody`]).

use mem::Chain;

use crate::channel::in_memory;
use crate::module::Verdict;
use crate::output::{Body, FilterStep, NotWhole, Piece, WholeBody};
use crate::request::Request;

/// Gathers the body and has it worked on.
pub(crate) async fn work(r: &mut Request, whole: Box<dyn WholeBody>) -> Verdict {
    let known = r.out.content_length.filter(|len| *len > whole.bytes_max() as u64);
    let body = match known {
        Some(_) => {
            abandon(r);
            Err(NotWhole::TooLong)
        }
        None => gather(r, whole.bytes_max()).await,
    };
    whole.run(r, body).await
}

fn abandon(r: &mut Request) {
    if let Body::Stream(mut source) = std::mem::take(&mut r.out.body) {
        source.abandoned(r);
    }
    r.out.filters.clear();
}

async fn gather(r: &mut Request, max: usize) -> Result<Vec<u8>, NotWhole> {
    let mut whole = Vec::new();
    match std::mem::take(&mut r.out.body) {
        Body::Chain(mut chain) => loop {
            let piece = match in_memory(r, &mut chain).await {
                Ok(piece) => piece,
                Err(_) => return Err(NotWhole::Broken),
            };
            let last = chain.is_empty();
            through(r, piece, last, &mut whole, max).await?;
            if last {
                break;
            }
        },
        Body::Stream(mut source) => loop {
            let next = source.next(r).await;
            let taken = match next {
                Ok(Some(piece)) => {
                    let last = source.is_over();
                    through(r, piece, last, &mut whole, max).await.map(|()| last)
                }
                Ok(None) => through(r, Chain::new(), true, &mut whole, max).await.map(|()| true),
                Err(_) => Err(NotWhole::Broken),
            };
            match taken {
                Ok(true) => break,
                Ok(false) => {}
                Err(why) => {
                    source.abandoned(r);
                    return Err(why);
                }
            }
        },
        Body::Empty => through(r, Chain::new(), true, &mut whole, max).await?,
        Body::Upgraded(_) => return Err(NotWhole::Broken),
    }
    // They have done their work.
    r.out.filters.clear();
    Ok(whole)
}

/// Takes a piece through the body filters that stand before.
async fn through(
    r: &mut Request,
    piece: Chain,
    last: bool,
    whole: &mut Vec<u8>,
    max: usize,
) -> Result<(), NotWhole> {
    let (mut files, mut piece) = (piece, Chain::new());
    while !files.is_empty() {
        piece.append(&mut in_memory(r, &mut files).await.map_err(|_| NotWhole::Broken)?);
        if piece.len() > max as u64 {
            return Err(NotWhole::TooLong);
        }
    }
    let mut filters = std::mem::take(&mut r.out.filters);
    let mut todo = vec![(0, piece, last)];
    while let Some((at, mut piece, last)) = todo.pop() {
        let Some(filter) = filters.get_mut(at) else {
            for buf in piece.iter().filter_map(|buf| buf.memory()) {
                if whole.len() + buf.len() > max {
                    return Err(NotWhole::TooLong);
                }
                os::memory::reserve(whole, buf.len()).map_err(|_| NotWhole::Broken)?;
                whole.extend_from_slice(buf);
            }
            continue;
        };
        let mut out = Chain::new();
        let step = filter.filter(r, Piece { input: &mut piece, last, out: &mut out });
        let more = !matches!(step, FilterStep::Go);
        match step {
            FilterStep::Go | FilterStep::More => {}
            FilterStep::Wait(until) => until.await.map_err(|_| NotWhole::Broken)?,
            // Parts that are other responses do not make one whole.
            FilterStep::Include(_) | FilterStep::Fail => return Err(NotWhole::Broken),
        }
        if more {
            todo.push((at, piece, last));
        }
        let ends = last && !more;
        if ends || !out.is_empty() {
            todo.push((at + 1, out, ends));
        }
    }
    r.out.filters = filters;
    Ok(())
}
