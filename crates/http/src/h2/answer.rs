//! A request from its beginning to the end of its stream.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;

use engine::stats::Field;
use http_wire::h2::frame::ErrorCode;

use super::mux::{Key, Mux};
use super::receive::Job;
use super::stream;
use crate::channel::{Answer, SendFailed, give_up, streams};
use crate::output::Tunnel;
use crate::request::Request;
use crate::server::HttpMain;

/// Ends a stream whose request ends, be it by a panic.
struct Ending {
    mux: Rc<Mux>,
    key: Key,
    malformed: bool,
    failed: Cell<Option<ErrorCode>>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.mux.with(|state| state.request_ended(self.key, self.failed.get(), self.malformed));
        self.mux.tell();
    }
}

/// Serves a tunnel that another process has begun.
pub(super) async fn resume<A: Answer>(
    (mux, key): (Rc<Mux>, Key),
    main: Rc<HttpMain>,
    mut r: Box<Request>,
    tunnel: Box<dyn Tunnel>,
) {
    let writing = main.stats.gauge(Field::Writing);
    let failed = Cell::new(Some(ErrorCode::INTERNAL_ERROR));
    let ending = Ending { mux, key, malformed: false, failed };
    let done = {
        let run = pin!(A::resume(&mut r, tunnel));
        main.life.unless_given_up(run).await
    };
    match done {
        Some(_) => ending.failed.set(None),
        None => give_up::<A>(&mut r).await,
    }
    drop(ending);
    drop(writing);
    r.give_back();
}

/// Answers a request.
pub(super) async fn answer<A: Answer>(mux: Rc<Mux>, main: &HttpMain, job: Job) {
    let Job { mut r, key, refused } = job;
    let writing = main.stats.gauge(Field::Writing);
    let is_over = mux.is_over(key);
    let ending = Ending {
        mux,
        key,
        malformed: refused.is_some(),
        failed: Cell::new(Some(ErrorCode::INTERNAL_ERROR)),
    };
    match streams::answer::<A>(main, &mut r, refused, is_over).await {
        Some(Ok(())) => ending.failed.set(None),
        // nginx says so, too.
        Some(Err(SendFailed)) if stream(&mut r).exchange.timed_out => {
            ending.failed.set(Some(ErrorCode::PROTOCOL_ERROR));
        }
        Some(Err(SendFailed)) | None => {}
    }
    drop(ending);
    drop(writing);
    r.give_back();
}
