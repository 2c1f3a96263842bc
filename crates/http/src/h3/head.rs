//! Response heads, interim heads and trailers as field sections.

use bytes::Bytes;
use proto::h3::frame::{begin_section, end_section};
use proto::qpack::Encoder;
use quic::StreamId;

use super::mux::Mux;
use super::{HeadState, stream};
use crate::channel::head::{FieldSink, fields, settle_body};
use crate::h2::Block;
use crate::output::Body;
use crate::request::Request;

/// Begins the response. Says whether a body follows.
pub(crate) fn start(r: &mut Request) -> bool {
    let has_body = settle_body(r);
    let is_upgraded = matches!(r.out.body, Body::Upgraded(_));
    r.flags.header_sent = true;
    let s = stream(r);
    (s.is_upgraded, s.has_body) = (is_upgraded, has_body);
    s.head = HeadState::Begun;
    has_body
}

/// Appends the head of the response, as a frame.
pub(super) fn write(r: &mut Request, out: &mut Vec<u8>) {
    let s = stream(r);
    s.head = HeadState::Sent;
    let (mux, id, is_upgraded) = (s.at().0.clone(), s.at().1, s.is_upgraded);
    // An upgrade of HTTP/1 succeeds with 101, one of HTTP/3 with 200 (RFC 9220).
    let status = if is_upgraded { 200 } else { r.status() };
    rank(r, &mux, id);
    let begin = out.len();
    section(&mux, out, |section| {
        section.encoder.status(status, section.out);
        fields(r, section);
    });
    let n = (out.len() - begin) as u64;
    r.header_bytes = n;
    r.bytes_sent += n;
}

/// Appends a section to `out`, as a frame.
fn section(mux: &Mux, out: &mut Vec<u8>, write: impl FnOnce(&mut Block<'_, Encoder>)) {
    mux.with(|state| {
        let at = begin_section(out);
        state.encoder.begin(out);
        write(&mut Block { encoder: &mut state.encoder, out, scratch: &mut state.scratch });
        end_section(out, at);
    });
}

/// A response may say itself how urgent it is (RFC 9218 section 5).
fn rank(r: &Request, mux: &Mux, id: StreamId) {
    let given = r.out.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"priority"));
    let mut given = given.map(|(_, value)| &value[..]).peekable();
    if given.peek().is_some() {
        super::receive::responds(mux, id, given);
    }
}

/// Sends an interim response; nothing where it has no fields and is no 100.
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
    let (mux, id) = (s.at().0.clone(), s.at().1);
    let mut out = Vec::new();
    section(&mux, &mut out, |section| {
        section.encoder.status(status, section.out);
        given.for_each(|(name, value)| section.given(name, value));
    });
    s.frames.push_back(out.into());
    // What QUIC does not take goes with the head. A stream that is gone needs none.
    let _ = mux.write(id, &mut s.frames);
}

/// The trailers, as a frame.
pub(super) fn trailers(mux: &Mux, trailers: &[(Bytes, Bytes)]) -> Bytes {
    let mut out = Vec::new();
    section(mux, &mut out, |section| {
        trailers.iter().for_each(|(name, value)| section.given(name, value));
    });
    out.into()
}
