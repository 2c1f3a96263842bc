//! The end of a connection, as its client is told.

use event::Deadline;
use http_wire::h2::frame::{self, ErrorCode};
use http_wire::h2::read::Fault;
use http_wire::h2::window::MAX;

use super::connection::After;
use super::mux::Mux;
use super::receive::{LEAVING, Leaving, Receiver};
use crate::channel::conn::Conn;
use crate::channel::streams::tell_fault;

/// The time that a client has to read a GOAWAY that tells of a fault, in milliseconds.
const GOODBYE_MS: u64 = 1_000;

/// Bytes that are dropped from a client that was cut off.
const DRAIN_MAX: usize = 256 << 10;

/// The first GOAWAY: no stream is lost that is on its way.
pub(super) fn leave(mux: &Mux, receiver: &mut Receiver) {
    if receiver.leaving() != Leaving::No {
        return;
    }
    receiver.set_leaving(Leaving::Announced);
    mux.with(|state| {
        state.control(|w| {
            frame::write_goaway(w, MAX, ErrorCode::NO_ERROR);
            frame::write_ping(w, &LEAVING, false);
        });
    });
}

/// The final GOAWAY: streams behind the last one are not answered.
pub(super) fn leave_now(mux: &Mux, receiver: &mut Receiver) {
    receiver.set_leaving(Leaving::Final);
    mux.with(|state| {
        state.control(|w| frame::write_goaway(w, receiver.last_id(), ErrorCode::NO_ERROR));
    });
}

/// Says goodbye, as far as the client listens.
pub(super) async fn goodbye(mux: &Mux, receiver: &Receiver, code: ErrorCode) {
    let mut output = mux.with(|state| {
        if receiver.leaving() != Leaving::Final || code != ErrorCode::NO_ERROR {
            state.control(|w| frame::write_goaway(w, receiver.last_id(), code));
        }
        state.out_len = 0;
        state.output.take()
    });
    // A client that is gone need not be told.
    let _ = mux.c.sock().send(&mut output, Deadline::in_ms(GOODBYE_MS)).await;
}

/// Ends the connection for a fault of the client's.
pub(super) async fn refuse(mux: &Mux, receiver: &Receiver, fault: Fault) -> After {
    let is_flood = fault.code == ErrorCode::ENHANCE_YOUR_CALM;
    tell_fault(&mux.c, fault.what, is_flood);
    goodbye(mux, receiver, fault.code).await;
    After::Drain
}

/// Drops input after the final GOAWAY: enough for a client that is still sending to read it.
pub(super) async fn drain(c: &Conn) {
    if c.sock().shutdown_write().is_err() {
        return;
    }
    let end = Deadline::in_ms(GOODBYE_MS);
    let mut left = DRAIN_MAX;
    while left > 0 {
        match c.sock().recv(1, end).await {
            Ok(page) if !page.is_empty() && !end.has_passed() => {
                left = left.saturating_sub(page.len());
                drop(page);
                event::task::next_turn().await;
            }
            _ => return,
        }
    }
}
