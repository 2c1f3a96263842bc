//! Request bodies: the data of a stream, in the pieces in which it came.

use std::future::poll_fn;

use mem::Page;

use super::{Stream, head, stream};
use crate::channel::Expected;
use crate::channel::streams::incoming::{self, Incoming};
use crate::module::Verdict;
use crate::request::Request;

/// The next piece of the body; `None` at its end.
pub(crate) async fn next_piece(r: &mut Request) -> Result<Option<Page>, Verdict> {
    ask(r);
    let s = stream(r);
    let (mux, id) = (s.at().0.clone(), s.at().1);
    let piece = poll_fn(|cx| mux.poll_piece(id, cx));
    incoming::next_piece::<Stream>(r, piece).await
}

impl Incoming for Stream {
    fn discard(&mut self) {
        let (mux, id) = self.at();
        // Nothing more comes from a stream that is gone.
        let _ = mux.of(id, |entry| entry.drop_body());
    }
}

/// Tells a client that waits for it to go on.
fn ask(r: &mut Request) {
    let expects = r.head.expect_continue;
    let s = stream(r);
    if !expects || s.exchange.expect_tested {
        return;
    }
    let (mux, id) = s.at();
    let nothing_came = mux.of(id, |entry| entry.received.is_empty() && !entry.has_body_ended());
    if nothing_came == Ok(true) {
        s.exchange.expect_tested = true;
        head::interim(r, 100, std::iter::empty());
    }
}

/// Size and place of the data that is still to come.
pub(crate) fn expected(r: &mut Request) -> Expected {
    let length = r.head.content_length;
    let (mux, id) = stream(r).at();
    let known = mux.of(id, |entry| (entry.has_body_ended(), entry.body_held as u64));
    let (ended, there) = known.unwrap_or((true, 0));
    Expected { length: if ended { Some(there) } else { length }, with_head: 0 }
}
