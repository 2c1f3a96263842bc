//! Request bodies: the data of a stream, in the pieces in which it came.

use std::future::poll_fn;

use base::log::Level;
use event::Either;
use mem::Page;

use super::{head, stream};
use crate::channel::Expected;
use crate::channel::stream::Gone;
use crate::module::Verdict;
use crate::request::Request;
use crate::status_line::CLIENT_CLOSED;
use engine::min_rate;

/// The next piece of the body; `None` at its end.
pub(crate) async fn next_piece(r: &mut Request) -> Result<Option<Page>, Verdict> {
    ask(r);
    let s = stream(r);
    let (mux, id) = (s.at().0.clone(), s.at().1);
    let piece = poll_fn(|cx| mux.poll_piece(id, cx));
    let (min, timeout) = (r.body_min_rate(), r.loc.core.client_body_timeout);
    let limit_ms = r.body_credit.limit(min, timeout);
    let began_ms = base::time::now_ms();
    let taken = match event::race(piece, event::sleep(limit_ms)).await {
        Either::First(taken) => taken,
        Either::Second(()) => {
            let too_slow = r.body_credit.is_why(min, timeout);
            let tells = mux.tells_of_end();
            if let Some(m) = min_rate::reason(too_slow, r.c().client_ip()).filter(|_| tells) {
                r.log(Level::Info, format_args!("{m} while reading client request body"));
            }
            stream(r).timed_out = true;
            return Err(broke_off(r, 408));
        }
    };
    match taken {
        Ok(Some(page)) => {
            let waited_ms = base::time::now_ms() - began_ms;
            r.body_credit.moved(min, waited_ms, page.len() as u64);
            let max = r.loc.core.client_max_body_size;
            let len = r.body.len() + page.len() as u64;
            if max > 0 && len > max && r.head.content_length.is_none() {
                let m = "client intended to send too large body";
                r.log(Level::Error, format_args!("{m}: {len} bytes"));
                r.body.refuse();
                discard(r);
                return Err(Verdict::Status(413));
            }
            r.body.count(page.len(), page.len());
            Ok(Some(page))
        }
        Ok(None) => Ok(None),
        Err(Gone::Malformed) => {
            let m = "client sent a body of another length than declared";
            r.log(Level::Info, format_args!("{m}"));
            r.body.refuse();
            Err(Verdict::Status(400))
        }
        Err(gone) => {
            let what = if gone == Gone::Reset { "stream" } else { "connection" };
            if stream(r).tells_of_end() {
                r.log(Level::Info, format_args!("client prematurely closed {what}"));
            }
            Err(broke_off(r, CLIENT_CLOSED))
        }
    }
}

/// Tells a client that waits for it to go on.
fn ask(r: &mut Request) {
    let expects = r.head.expect_continue;
    let s = stream(r);
    if !expects || s.expect_tested {
        return;
    }
    let (mux, id) = s.at();
    let nothing_came = mux.of(id, |entry| entry.received.is_empty() && !entry.has_body_ended());
    if nothing_came == Ok(true) {
        s.expect_tested = true;
        head::interim(r, 100, std::iter::empty());
    }
}

fn broke_off(r: &mut Request, status: u16) -> Verdict {
    r.err_status = status;
    Verdict::Close
}

/// Size and place of the data that is still to come.
pub(crate) fn expected(r: &mut Request) -> Expected {
    let length = r.head.content_length;
    let (mux, id) = stream(r).at();
    let known = mux.of(id, |entry| (entry.has_body_ended(), entry.body_held as u64));
    let (ended, there) = known.unwrap_or((true, 0));
    Expected { length: if ended { Some(there) } else { length }, with_head: 0 }
}

/// Before the response to a request whose body is not wanted: drops what came of it, and what
/// comes. The client may go on to send it, and is told not to by the end of the stream.
pub(crate) fn drop_buffered(r: &mut Request) -> bool {
    stream(r).expect_tested = true;
    discard(r);
    true
}

fn discard(r: &mut Request) {
    let (mux, id) = stream(r).at();
    // Of a stream that is gone nothing comes.
    let _ = mux.of(id, |entry| entry.drop_body());
}
