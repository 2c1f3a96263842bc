//! Response heads, interim heads and trailers as field sections.

use bytes::Bytes;
use http_wire::fields::LeftOut;
use http_wire::h3::frame::{begin_section, end_section};
use http_wire::priority::Parameters;
use http_wire::qpack::Encoder;

use super::mux::Mux;
use super::{Stream, stream};
use crate::channel::head::{FieldSink, fields};
use crate::channel::streams;
use crate::channel::streams::exchange::HeadState;
use crate::channel::streams::head::Block;
use crate::request::Request;

/// Appends the head of the response, as a frame.
pub(super) fn write(r: &mut Request, out: &mut Vec<u8>) {
    let s = stream(r);
    s.exchange.head = HeadState::Sent;
    let (mux, id) = (s.at().0.clone(), s.at().1);
    let status = streams::head::status::<Stream>(r);
    if let Some(own) = Parameters::of_lines(streams::head::priority(r)) {
        super::receive::responds(&mux, id, own);
    }
    let begin = out.len();
    let left_out = section(&mux, out, |section| {
        section.encoder.status(status, section.out);
        fields(r, section);
    });
    streams::head::log_left_out(r, &left_out);
    let n = (out.len() - begin) as u64;
    r.account.head_sent(n);
}

/// Appends a section to `out`, as a frame; returns the fields that it does not have.
fn section(mux: &Mux, out: &mut Vec<u8>, write: impl FnOnce(&mut Block<'_, Encoder>)) -> LeftOut {
    mux.with(|state| {
        let at = begin_section(out);
        state.encoder.begin(out);
        let (encoder, scratch) = (&mut state.encoder, &mut state.scratch);
        let mut block = Block { encoder, out, scratch, left_out: LeftOut::default() };
        write(&mut block);
        let Block { out, left_out, .. } = block;
        end_section(out, at);
        left_out
    })
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
    let left_out = section(&mux, &mut out, |section| {
        section.encoder.status(status, section.out);
        given.for_each(|(name, value)| section.given(name, value));
    });
    s.frames.push_back(out.into());
    // What QUIC does not take goes with the head. A stream that is gone needs none.
    let _ = mux.write(id, &mut s.frames);
    streams::head::log_left_out(r, &left_out);
}

/// The trailers, as a frame.
pub(super) fn trailers(mux: &Mux, trailers: &[(Bytes, Bytes)]) -> Bytes {
    let mut out = Vec::new();
    // Defects were left out before: `streams::head::check_trailers`.
    section(mux, &mut out, |section| {
        trailers.iter().for_each(|(name, value)| section.given(name, value));
    });
    out.into()
}
