//! HEADERS frames: requests, and the trailers behind their bodies.

use http_wire::fields::request::{Asked, HeadBuilder, Refusal, is_trailer};
use http_wire::h1::{FieldId, Head, Limits, Version};
use http_wire::h2::frame::ErrorCode;
use http_wire::h2::read::{Dependency, Fault};
use http_wire::priority::Parameters;
use http_wire::waste::Flood;

use super::{Job, Leaving, Parties, Rules, protocol, undecodable};
use crate::channel::streams::request::{is_tunnel, refusal, refused};
use crate::channel::streams::tell_of_address;
use crate::h2::mux::{Half, Mux};
use crate::h2::priority;
use crate::request::Request;
use http_wire::h2::repeated::Sent;

/// Bytes of memory that the heads of a connection's requests may hold together.
const HEADS_MAX: usize = 768 << 10;

impl Rules {
    pub(super) fn headers<S: FnMut(Job) -> bool, O>(
        &mut self,
        (id, end_stream): (u32, bool),
        dependency: Option<Dependency>,
        block: &[u8],
        parties: &mut Parties<'_, S, O>,
    ) -> Result<(), Fault> {
        let mux = parties.mux;
        if id.is_multiple_of(2) {
            return protocol("HEADERS frame with incorrect identifier");
        }
        if id <= self.last_id {
            return self.trailers(mux, id, end_stream, block);
        }
        self.last_id = id;
        if self.leaving == Leaving::Final {
            // The client was told that it is not answered.
            return self.decode(block, |_, _| {});
        }
        self.waste.stream();
        let unread = &mut self.unread;
        let is_excess = mux.with(|state| unread.is_excess(state.ends, || mux.c.tcp_sent()));
        if is_excess && unread.refused() {
            return Err(Flood("requests without an end, and reads no responses").into());
        }
        let full = mux.with(|state| {
            if state.held.is_full() {
                tell_of_address(&mux.c, "too much memory is held for requests");
                return true;
            }
            is_excess || state.open >= mux.conf.max_streams as usize || state.heads_held > HEADS_MAX
        });
        if full {
            self.decode(block, |_, _| {})?;
            self.waste.reset(base::time::now_ms())?;
            mux.with(|state| state.reset_id(id, ErrorCode::REFUSED_STREAM));
            // One that does not read has a line of its own when it is cut off.
            self.is_excessive |= !is_excess;
            return Ok(());
        }
        let job = self.request((id, end_stream), dependency, block, parties)?;
        // A malformed one is answered before a frame behind it ends the stream.
        match end_stream && !self.waste.is_suspect() || job.refused.is_some() {
            true => parties.begin(job),
            false => self.open.push_back(job),
        }
        Ok(())
    }

    /// A request of the fields in a block.
    fn request<S, O>(
        &mut self,
        (id, end_stream): (u32, bool),
        dependency: Option<Dependency>,
        block: &[u8],
        parties: &mut Parties<'_, S, O>,
    ) -> Result<Job, Fault> {
        let mux = parties.mux;
        let mut r = Request::take_stream(mux.c.clone(), parties.main);
        r.account.start();
        let limits = mux.c.server().core.head_limits();
        let Request { head, client, .. } = &mut *r;
        let s = client.channel.http2().expect("it was taken as a request over HTTP/2");
        let text = &mut s.exchange.text;
        let refusal = match self.head((block, end_stream), head, text, &limits) {
            Ok(refusal) => refusal,
            Err(fault) => {
                r.give_back();
                return Err(fault);
            }
        };
        let remote = if end_stream { Half::Ended } else { Half::Open };
        let (is_tunnel, head_size) = (is_tunnel(head), s.exchange.head_size(head));
        let key = mux.with(|state| {
            let key = state.open(id, remote, mux.conf.preread);
            let entry = &mut state.streams[key.slot as usize];
            entry.head_size = head_size;
            entry.expected = head.content_length.filter(|_| !end_stream);
            state.heads_held += head_size;
            state.held.add(head_size);
            let lines =
                head.fields.all(FieldId::Priority).map(|field| field.value.of(&s.exchange.text));
            let field = Parameters::of_lines(lines);
            let asked = priority::Asked { field, dependency, is_tunnel };
            state.opened(key.slot as usize, &asked, mux.conf.max_streams);
            key
        });
        s.begin(mux.clone(), key);
        s.exchange.head_len = block.len();
        (s.exchange.is_tunnel, s.exchange.is_bare) = (is_tunnel, end_stream);
        let refused = refusal.map(|refusal| refused(&mut r, refusal));
        Ok(Job { r, key, refused })
    }

    /// Makes a head of a block, the text of its spans included; says how it is refused, if it is.
    fn head(
        &mut self,
        (block, end_stream): (&[u8], bool),
        head: &mut Head,
        text: &mut Vec<u8>,
        limits: &Limits,
    ) -> Result<Option<Refusal>, Fault> {
        let before = self.decoder.changes();
        let sent = Sent { block, end_stream, changes: before };
        if self.repeated.make(&sent, limits, head, text) {
            return Ok(None);
        }
        let mut builder = HeadBuilder::new(head, text, limits, Version::HTTP_20);
        let decoded = self.decoder.decode(block, |name, value| builder.field(name, value));
        decoded.map_err(undecodable)?;
        let asked = builder.finish(end_stream);
        if asked == Ok(Asked::Nothing) && self.decoder.changes() == before {
            self.repeated.note(&sent, head, text);
        }
        refusal(asked, head, text)
            .map_err(|what| Fault::connection(ErrorCode::ENHANCE_YOUR_CALM, what))
    }

    fn decode(&mut self, block: &[u8], field: impl FnMut(&[u8], &[u8])) -> Result<(), Fault> {
        let decoded = self.decoder.decode(block, field);
        decoded.map_err(undecodable)
    }

    /// A second block of a stream ends it (RFC 9113 section 8.1). Its fields are not used.
    fn trailers(
        &mut self,
        mux: &Mux,
        id: u32,
        end_stream: bool,
        block: &[u8],
    ) -> Result<(), Fault> {
        let mut sound = true;
        self.decode(block, |name, value| sound &= is_trailer(name, value))?;
        let place = mux.with(|state| {
            if state.was_reset_by_us(id) {
                return Some(None);
            }
            state.find(id).map(Some)
        });
        let i = match place {
            Some(Some(i)) => i,
            Some(None) => return Ok(()),
            None => return protocol("HEADERS frame with incorrect identifier"),
        };
        mux.with(|state| {
            let entry = &mut state.streams[i];
            if entry.reset {
                let what = "HEADERS frame for a stream that it had reset";
                return Err(Fault::connection(ErrorCode::STREAM_CLOSED, what));
            }
            if entry.has_body_ended() {
                return self.fail(state, i, ErrorCode::STREAM_CLOSED);
            }
            if !end_stream || !sound {
                return self.fail(state, i, ErrorCode::PROTOCOL_ERROR);
            }
            self.end_of_body(state, i)
        })
    }
}
