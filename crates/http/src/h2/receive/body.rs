//! DATA frames: bodies of requests.

use http_wire::h2::frame::{self, ErrorCode};
use http_wire::h2::read::Fault;
use http_wire::h2::window::MAX;
use mem::Page;

use super::{Leaving, Rules, protocol};
use crate::h2::mux::{Half, Mux, State};

impl Rules {
    pub(super) fn data(
        &mut self,
        mux: &Mux,
        (id, end_stream): (u32, bool),
        data: &[u8],
        flow: usize,
    ) -> Result<(), Fault> {
        if !self.receive.take(flow) {
            let what = "more data than the connection's window has room for";
            return Err(Fault::connection(ErrorCode::FLOW_CONTROL_ERROR, what));
        }
        if id.is_multiple_of(2) || id > self.last_id {
            return protocol("DATA frame for an idle stream");
        }
        mux.with(|state| {
            let left = self.receive.left() as u32;
            if left < MAX / 4 {
                let _ = self.receive.add(MAX - left);
                state.control(|w| frame::write_window_update(w, 0, MAX - left));
            }
            let Some(i) = state.find(id) else {
                if state.was_reset_by_us(id) || self.leaving == Leaving::Final {
                    return Ok(());
                }
                state.reset_id(id, ErrorCode::STREAM_CLOSED);
                return Ok(self.waste.reset(base::time::now_ms())?);
            };
            self.data_of(state, i, (data, flow), end_stream)
        })
    }

    fn data_of(
        &mut self,
        state: &mut State,
        i: usize,
        (data, flow): (&[u8], usize),
        end_stream: bool,
    ) -> Result<(), Fault> {
        let entry = &mut state.streams[i];
        if entry.reset {
            if state.was_reset_by_us(state.streams[i].id) {
                return Ok(());
            }
            // The client's own reset was its last word.
            state.reset_id(state.streams[i].id, ErrorCode::STREAM_CLOSED);
            return Ok(self.waste.reset(base::time::now_ms())?);
        }
        if entry.has_body_ended() {
            return self.fail(state, i, ErrorCode::STREAM_CLOSED);
        }
        if !entry.receive.take(flow) {
            return self.fail(state, i, ErrorCode::FLOW_CONTROL_ERROR);
        }
        entry.taken += (flow - data.len()) as u32;
        if let Some(left) = &mut entry.expected {
            match left.checked_sub(data.len() as u64) {
                Some(rest) => *left = rest,
                None => return self.malformed(state, i),
            }
        }
        if !data.is_empty() && !entry.discards {
            match entry.received.back_mut() {
                Some(page) if page.spare() >= data.len() => page.extend_from_slice(data),
                _ => {
                    let mut page = Page::get(data.len());
                    page.extend_from_slice(data);
                    entry.received.push_back(page);
                }
            }
            entry.body_held += data.len();
            entry.wake_body();
            state.held.add(data.len());
        }
        match end_stream {
            true => self.end_of_body(state, i),
            false => Ok(()),
        }
    }

    pub(super) fn end_of_body(&mut self, state: &mut State, i: usize) -> Result<(), Fault> {
        let entry = &mut state.streams[i];
        if entry.expected.is_some_and(|left| left > 0) {
            return self.malformed(state, i);
        }
        entry.remote = Half::Ended;
        entry.wake_body();
        state.settle(i);
        Ok(())
    }

    /// The body is not as long as it was declared. A handler that reads it answers with 400; where
    /// none does, the stream ends.
    fn malformed(&mut self, state: &mut State, i: usize) -> Result<(), Fault> {
        let entry = &mut state.streams[i];
        entry.malformed = true;
        entry.discards = true;
        entry.wake_body();
        let has_request = entry.has_request;
        state.drop_body(i);
        if has_request { Ok(()) } else { self.fail(state, i, ErrorCode::PROTOCOL_ERROR) }
    }
}
