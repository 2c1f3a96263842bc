//! Request bodies: the data of a stream, in the pieces in which it came.

use std::future::poll_fn;

use mem::Page;

use super::{Stream, head, stream};
use crate::channel::Expected;
use crate::channel::streams::incoming::{self, Incoming};
use crate::module::Verdict;
use crate::request::Request;

/// The window that a body has at least while it is read, bytes.
const WINDOW: u32 = 64 << 10;

/// The next piece of the body; `None` at its end.
pub(crate) async fn next_piece(r: &mut Request) -> Result<Option<Page>, Verdict> {
    begin(r);
    let s = stream(r);
    let (mux, key) = (s.mux().clone(), s.key);
    let piece = poll_fn(|cx| mux.poll_piece(key, cx));
    incoming::next_piece::<Stream>(r, piece).await
}

impl Incoming for Stream {
    fn discard(&mut self) {
        // Nothing more comes from a stream that is gone.
        let _ = self.mux().of(self.key, |state, i| {
            state.streams[i].discards = true;
            state.drop_body(i);
        });
    }
}

/// Tells a client that waits for it to go on, and lets it send more than it may unasked.
fn begin(r: &mut Request) {
    let expects = r.head.expect_continue;
    let s = stream(r);
    if std::mem::replace(&mut s.reads_body, true) {
        return;
    }
    let key = s.key;
    let nothing_came = s.mux().of(key, |state, i| {
        state.want_body(i, WINDOW);
        let entry = &state.streams[i];
        entry.received.is_empty() && !entry.has_body_ended()
    });
    s.mux().tell();
    if expects && !s.exchange.expect_tested && nothing_came == Ok(true) {
        s.exchange.expect_tested = true;
        head::interim(r, 100, std::iter::empty());
    }
}

/// Size and place of the data that is still to come.
pub(crate) fn expected(r: &mut Request) -> Expected {
    let length = r.head.content_length;
    let s = stream(r);
    let (ended, there) = s
        .mux()
        .of(s.key, |state, i| {
            let entry = &state.streams[i];
            let there: usize = entry.received.iter().map(|page| page.len()).sum();
            (entry.has_body_ended(), there as u64)
        })
        .unwrap_or((true, 0));
    Expected { length: if ended { Some(there) } else { length }, with_head: 0 }
}
