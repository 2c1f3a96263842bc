//! Request bodies that come by a stream, of HTTP/2 or of HTTP/3.

use base::log::Level;
use event::Either;
use mem::Page;

use engine::min_rate;

use super::{Gone, Multiplexed};
use crate::module::Verdict;
use crate::request::Request;
use crate::status_line::CLIENT_CLOSED;

/// A stream that brings a body.
pub(crate) trait Incoming: Multiplexed {
    /// Drops what came of the body, and what comes.
    fn discard(&mut self);
}

/// The next piece of the body, which is `piece`; `None` at its end.
pub(crate) async fn next_piece<S: Incoming>(
    r: &mut Request,
    piece: impl Future<Output = Result<Option<Page>, Gone>>,
) -> Result<Option<Page>, Verdict> {
    let (min, timeout) = (r.body_min_rate(), r.loc.core.client_body_timeout);
    let limit_ms = r.client.rates.body.limit(min, timeout);
    let began_ms = base::time::now_ms();
    let taken = match event::race(piece, event::sleep(limit_ms)).await {
        Either::First(taken) => taken,
        Either::Second(()) => {
            let too_slow = r.client.rates.body.is_why(min, timeout);
            let tells = super::timed_out::<S>(r);
            if let Some(m) = min_rate::reason(too_slow, r.c().client_ip()).filter(|_| tells) {
                r.log(Level::Info, format_args!("{m} while reading client request body"));
            }
            return Err(broke_off(r, 408));
        }
    };
    match taken {
        Ok(Some(page)) => {
            let waited_ms = base::time::now_ms() - began_ms;
            r.client.rates.body.moved(min, waited_ms, page.len() as u64);
            let max = r.loc.core.client_max_body_size;
            let len = r.body.len() + page.len() as u64;
            if max > 0 && len > max && r.head.content_length.is_none() {
                let m = "client intended to send too large body";
                r.log(Level::Error, format_args!("{m}: {len} bytes"));
                r.body.refuse();
                S::of(r).discard();
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
            if S::of(r).tells_of_end() {
                r.log(Level::Info, format_args!("client prematurely closed {what}"));
            }
            Err(broke_off(r, CLIENT_CLOSED))
        }
    }
}

/// Before the response to a request whose body is not wanted: drops what came of it, and what
/// comes. The client may go on to send it, and is told not to by the end of the stream.
pub(crate) fn drop_buffered<S: Incoming>(r: &mut Request) {
    let s = S::of(r);
    s.exchange().expect_tested = true;
    s.discard();
}

fn broke_off(r: &mut Request, status: u16) -> Verdict {
    r.flags.err_status = status;
    Verdict::Close
}
