//! Response heads, interim heads and trailers as header blocks.

use bytes::Bytes;
use http_wire::fields::LeftOut;
use http_wire::h2::frame::{self, HEAD_LEN, flag, kind};
use http_wire::h2::hpack::Encoder;
use http_wire::priority::Parameters;

use super::last_head::Facts;
use super::mux::State;
use super::{Stream, stream};
use crate::channel::SendFailed;
use crate::channel::head::{FieldSink, fields};
use crate::channel::streams;
use crate::channel::streams::exchange::HeadState;
use crate::channel::streams::head::Block;
use crate::request::Request;

/// Begins the response. Says whether a body follows.
pub(crate) fn start(r: &mut Request) -> bool {
    r.c().set_nodelay(r.loc.core.tcp_nodelay);
    streams::head::start::<Stream>(r)
}

/// Puts the head into the connection's output; with `ends`, nothing follows it.
///
/// # Errors
/// The stream is gone.
pub(super) fn send(r: &mut Request, ends: bool) -> Result<(), SendFailed> {
    let s = stream(r);
    let (mux, key) = (s.mux().clone(), s.key);
    s.exchange.head = HeadState::Sent;
    mux.of(key, |state, i| put(r, state, i, ends)).map_err(|_| SendFailed)
}

/// The same with the connection's state in hand.
pub(super) fn put(r: &mut Request, state: &mut State, i: usize, ends: bool) {
    stream(r).exchange.head = HeadState::Sent;
    if let Some(own) = Parameters::of_lines(streams::head::priority(r)) {
        state.responds(i, own);
    }
    let flags = if ends { flag::END_STREAM } else { 0 };
    let status = streams::head::status::<Stream>(r);
    let n = state.response(state.streams[i].id, flags, r, status);
    r.account.head_sent(n as u64);
}

/// Puts an interim response into the output; nothing where it has no fields and is no 100.
pub(crate) fn interim<'a>(
    r: &mut Request,
    status: u16,
    given: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) {
    let mut given = given.peekable();
    if status != 100 && given.peek().is_none() {
        return;
    }
    let s = stream(r);
    let key = s.key;
    // A stream that is gone needs none.
    let mux = s.mux().clone();
    let sent = mux.of(key, |state, _| {
        state.block(key.id, 0, |block| {
            block.encoder.status(status, block.out);
            given.for_each(|(name, value)| block.given(name, value));
        })
    });
    mux.tell();
    sent.iter().for_each(|(_, left_out)| streams::head::log_left_out(r, left_out));
}

/// Puts the trailers into the output, which end the stream.
pub(super) fn trailers(state: &mut State, i: usize, trailers: &[(Bytes, Bytes)]) {
    let id = state.streams[i].id;
    // Defects were left out before: `streams::head::check_trailers`.
    let (n, _) = state.block(id, flag::END_STREAM, |block| {
        trailers.iter().for_each(|(name, value)| block.given(name, value));
    });
    state.streams[i].framing += n as u64;
}

impl State {
    /// Puts a response's header block into the output; returns its bytes, as [`State::block`] does.
    fn response(&mut self, id: u32, flags: u8, r: &mut Request, status: u16) -> usize {
        let facts = Facts::of(r, status);
        let before = self.encoder.changes();
        if let Some(facts) = &facts
            && let Some(block) = self.last_head.block(facts, &r.out, before)
        {
            let n = HEAD_LEN + block.len();
            let out = self.output.writer_for(n);
            frame::write_head(out, block.len(), kind::HEADERS, flags | flag::END_HEADERS, id);
            out.extend_from_slice(block);
            self.out_len += n;
            return n;
        }
        let (n, left_out) = self.block(id, flags, |block| {
            block.encoder.status(status, block.out);
            fields(r, block);
        });
        streams::head::log_left_out(r, &left_out);
        // A block from which fields were left out is made anew each time, so that each is logged.
        if let Some(facts) = facts.filter(|_| left_out.is_empty()) {
            let out = self.output.writer_for(0);
            let block = out.get(out.len() - n + HEAD_LEN..).unwrap_or_default();
            self.last_head.note(facts, &r.out, (before, self.encoder.changes()), block);
        }
        n
    }

    /// Puts a header block into the output; returns its bytes, frames' heads included, and the
    /// fields that it does not have.
    fn block(
        &mut self,
        id: u32,
        flags: u8,
        write: impl FnOnce(&mut Block<'_, Encoder>),
    ) -> (usize, LeftOut) {
        let out = self.output.writer_for(1024);
        let at = out.len();
        out.extend_from_slice(&[0; HEAD_LEN]);
        self.encoder.begin(out);
        let (encoder, scratch) = (&mut self.encoder, &mut self.scratch);
        let mut block = Block { encoder, out, scratch, left_out: LeftOut::default() };
        write(&mut block);
        let Block { out, left_out, .. } = block;
        frame::frame_block(out, at, id, flags, self.peer.frame_max as usize);
        let n = out.len() - at;
        self.out_len += n;
        (n, left_out)
    }
}
