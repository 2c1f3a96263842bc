//! Response heads, interim heads and trailers as header blocks.

use bytes::Bytes;
use proto::compression::FieldEncoder;
use proto::h1::write_value;
use proto::h2::frame::{self, HEAD_LEN, flag, kind};
use proto::h2::hpack::Encoder;

use super::last_head::Facts;
use super::mux::State;
use super::{HeadState, priority, stream};
use crate::channel::SendFailed;
use crate::channel::head::{FieldSink, Name, fields, settle_body};
use crate::output::Body;
use crate::request::Request;

/// Begins the response. Says whether a body follows.
pub(crate) fn start(r: &mut Request) -> bool {
    r.c().set_nodelay(r.loc.core.tcp_nodelay);
    let has_body = settle_body(r);
    let upgraded = matches!(r.out.body, Body::Upgraded(_));
    r.flags.header_sent = true;
    let s = stream(r);
    s.is_upgraded = upgraded;
    s.head = HeadState::Begun;
    s.has_body = has_body;
    has_body
}

/// Fields that only HTTP/1 has (RFC 9113 section 8.2.2).
fn is_of_connection(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 6] = [
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"sec-websocket-accept",
        b"transfer-encoding",
        b"upgrade",
    ];
    NAMES.iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// Fields for the encoder, of HTTP/2 or HTTP/3.
pub(crate) struct Block<'a, E> {
    pub encoder: &'a mut E,
    pub out: &'a mut Vec<u8>,
    pub scratch: &'a mut Vec<u8>,
}

impl<E: FieldEncoder> FieldSink for Block<'_, E> {
    #[inline]
    fn made(&mut self, name: &'static Name, write: impl FnOnce(&mut Vec<u8>)) {
        self.scratch.clear();
        write(self.scratch);
        self.encoder.field(name.lower, self.scratch, self.out);
    }

    fn given(&mut self, name: &[u8], value: &[u8]) {
        if is_of_connection(name) {
            return;
        }
        self.scratch.clear();
        write_value(self.scratch, value);
        self.encoder.field(name, self.scratch, self.out);
    }

    fn framing(&mut self, _: &Request) {}
}

/// Puts the head into the connection's output; with `ends`, nothing follows it.
///
/// # Errors
/// The stream is gone.
pub(super) fn send(r: &mut Request, ends: bool) -> Result<(), SendFailed> {
    let s = stream(r);
    let (mux, key) = (s.mux().clone(), s.key);
    s.head = HeadState::Sent;
    mux.of(key, |state, i| put(r, state, i, ends)).map_err(|_| SendFailed)
}

/// The same with the connection's state in hand.
pub(super) fn put(r: &mut Request, state: &mut State, i: usize, ends: bool) {
    let s = stream(r);
    s.head = HeadState::Sent;
    let is_upgraded = s.is_upgraded;
    if let Some(own) = priority::of_field(priority_of(r)) {
        state.responds(i, own);
    }
    let flags = if ends { flag::END_STREAM } else { 0 };
    // An upgrade of HTTP/1 succeeds with 101, one of HTTP/2 with 200 (RFC 8441).
    let status = if is_upgraded { 200 } else { r.status() };
    let n = state.response(state.streams[i].id, flags, r, status);
    r.header_bytes = n as u64;
    r.bytes_sent += n as u64;
}

/// The lines of the response's own `Priority` field.
fn priority_of(r: &Request) -> impl Iterator<Item = &[u8]> {
    let fields = r.out.headers.iter();
    let fields = fields.filter(|(name, _)| name.eq_ignore_ascii_case(b"priority"));
    fields.map(|(_, value)| &value[..])
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
    let _ = s.mux().of(key, |state, _| {
        state.block(key.id, 0, |block| {
            block.encoder.status(status, block.out);
            given.for_each(|(name, value)| block.given(name, value));
        })
    });
    s.mux().tell();
}

/// Puts the trailers into the output, which end the stream.
pub(super) fn trailers(state: &mut State, i: usize, trailers: &[(Bytes, Bytes)]) {
    let id = state.streams[i].id;
    let n = state.block(id, flag::END_STREAM, |block| {
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
        let n = self.block(id, flags, |block| {
            block.encoder.status(status, block.out);
            fields(r, block);
        });
        if let Some(facts) = facts {
            let out = self.output.writer_for(0);
            let block = out.get(out.len() - n + HEAD_LEN..).unwrap_or_default();
            self.last_head.note(facts, &r.out, (before, self.encoder.changes()), block);
        }
        n
    }

    /// Puts a header block into the output; returns its bytes, frames' heads included.
    fn block(&mut self, id: u32, flags: u8, write: impl FnOnce(&mut Block<'_, Encoder>)) -> usize {
        let out = self.output.writer_for(1024);
        let at = out.len();
        out.extend_from_slice(&[0; HEAD_LEN]);
        self.encoder.begin(out);
        write(&mut Block { encoder: &mut self.encoder, out, scratch: &mut self.scratch });
        frame::frame_block(out, at, id, flags, self.peer.frame_max as usize);
        let n = out.len() - at;
        self.out_len += n;
        n
    }
}
