//! The streams of requests: heads, bodies, trailers.

use std::rc::Rc;

use base::log::Level;
use bytes::Buf;
use http_wire::fields::request::{HeadBuilder, Refusal, is_trailer};
use http_wire::h1::{FieldId, Version};
use http_wire::h3::message::Event;
use http_wire::h3::{Code, Fault};
use http_wire::priority::Parameters;
use http_wire::qpack::{Decoded, Held};
use quic::{Read, StreamId};

use super::mux::{Entry, Mux, Phase, State};
use crate::channel::streams::request::{is_tunnel, refusal, refused};
use crate::channel::streams::tell_of_address;
use crate::request::Request;
use crate::server::HttpMain;

/// Bytes that are asked of a stream at once.
const READ_MAX: usize = 64 << 10;

/// The urgency of a response about which nothing is said (RFC 9218 section 4.1), and the least one.
const URGENCY: u8 = 3;

/// The status of a request whose head is too large (nginx's number; clients get 400).
const TOO_LARGE: u16 = 494;

/// A request whose head came.
pub(super) struct Job {
    pub r: Box<Request>,
    pub id: StreamId,
    /// It is malformed: the reason was logged.
    pub refused: Option<u16>,
    /// Its head did not come whole in time.
    pub is_late: bool,
}

/// The result of a look at a stream.
#[derive(Default)]
pub(super) struct Brought {
    /// A request that is to begin.
    pub job: Option<Job>,
    /// Frames that say nothing.
    pub empty: u32,
    /// The client gives the request up.
    pub is_reset: bool,
}

/// The parties that a stream concerns.
pub(super) struct Parties<'a> {
    pub mux: &'a Rc<Mux>,
    pub main: &'a Rc<HttpMain>,
}

impl Parties<'_> {
    /// Takes what came on a stream.
    ///
    /// # Errors
    /// The connection ends, or the stream.
    pub fn read(&self, id: StreamId) -> Result<Brought, Fault> {
        let mut brought = Brought::default();
        self.mux.with(|state| {
            let State { streams, decoder, early, begun, .. } = state;
            let Some(entry) = streams.get_mut(&id) else { return Ok(()) };
            if entry.phase == Phase::Head && entry.held.is_full() {
                tell_of_address(&self.mux.c(), "too much memory is held for requests");
                return Err(Fault::stream(Code::RequestRejected, "a request too many"));
            }
            while entry.phase != Phase::Blocked && self.more(entry, id, &mut brought.is_reset)? {
                let input = std::mem::take(&mut entry.rest);
                let (used, event) = entry.reader.next(&input)?;
                let mut rest = input.clone();
                rest.advance(used);
                match event {
                    Event::More => {}
                    Event::Nothing => brought.empty += 1,
                    Event::Data(n) => {
                        let data = rest.split_to(n);
                        entry.data(&data);
                    }
                    Event::Head(section) => {
                        // Whether a body follows is known by what is behind the head.
                        if rest.is_empty() {
                            match self.mux.quic().read(id, READ_MAX) {
                                Read::Data(more) => rest = more,
                                Read::End => entry.ended = true,
                                _ => {}
                            }
                        }
                        let ends = entry.ended && rest.is_empty();
                        let len = section.len();
                        let made = self.request(id, ends, len, |builder| {
                            let field = |name: &[u8], value: &[u8]| builder.field(name, value);
                            decoder.decode(id.into(), section, field)
                        })?;
                        match made {
                            Some(job) => {
                                *begun += 1;
                                brought.job = Some(begin(self.mux, entry, early, job));
                            }
                            None => (entry.phase, entry.head_size) = (Phase::Blocked, len),
                        }
                    }
                    Event::Excess => {
                        decoder.cancel(id.into());
                        *begun += 1;
                        brought.job = Some(begin(self.mux, entry, early, self.excessive(id)));
                    }
                    Event::Trailers(section) => {
                        let mut is_sound = true;
                        decoder.decode(id.into(), section, |name, value| {
                            is_sound &= is_trailer(name, value);
                        })?;
                        if !is_sound {
                            return Err(Fault::stream(Code::MessageError, "malformed trailers"));
                        }
                    }
                }
                entry.rest = rest;
                if entry.ended && entry.rest.is_empty() {
                    entry.reader.end()?;
                    entry.end();
                }
            }
            entry.weigh();
            Ok(())
        })?;
        Ok(brought)
    }

    /// A head whose entries of the table have come.
    ///
    /// # Errors
    /// As [`Parties::read`].
    pub fn unblocked(&self, held: &Held) -> Result<Option<Job>, Fault> {
        let Some(id) = quic::stream_id(held.stream) else { return Ok(None) };
        self.mux.with(|state| {
            let State { streams, decoder, early, begun, .. } = state;
            let Some(entry) = streams.get_mut(&id).filter(|e| e.phase == Phase::Blocked) else {
                return Ok(None);
            };
            let ends = entry.ended && entry.rest.is_empty();
            let made = self.request(id, ends, 0, |builder| {
                let field = |name: &[u8], value: &[u8]| builder.field(name, value);
                decoder.decode_held(held, field).map(|()| Decoded::Whole)
            })?;
            *begun += usize::from(made.is_some());
            Ok(made.map(|job| begin(self.mux, entry, early, job)))
        })
    }

    /// The head of a stream did not come whole in time: what is to be logged, if any of it came.
    /// `None`: it did, or the stream is over.
    pub fn late(&self, id: StreamId) -> Option<Option<Job>> {
        self.mux.with(|state| {
            let State { streams, decoder, begun, .. } = state;
            let entry = streams.get_mut(&id).filter(|e| e.phase != Phase::Begun && !e.reset)?;
            decoder.cancel(id.into());
            if entry.phase == Phase::Head && !entry.reader.has_begun() {
                streams.remove(&id);
                return Some(None);
            }
            (entry.phase, entry.head_size) = (Phase::Begun, 0);
            entry.drop_body();
            *begun += 1;
            let m = "client timed out (110: Connection timed out)";
            let mut job = self.without_head(id);
            job.is_late = true;
            job.r.log(Level::Info, format_args!("{m} while reading client request headers"));
            Some(Some(job))
        })
    }

    /// A request whose head is larger than any that is taken.
    fn excessive(&self, id: StreamId) -> Job {
        let mut job = self.without_head(id);
        let m = "client sent too large header while reading client request headers";
        job.r.log(Level::Info, format_args!("{m}"));
        job.refused = Some(TOO_LARGE);
        job
    }

    /// A request of which nothing is known.
    fn without_head(&self, id: StreamId) -> Job {
        let mut r = Request::take_quic(self.mux.c(), self.main);
        r.account.start();
        r.head.clear();
        r.head.version = Version::HTTP_30;
        let s = r.client.channel.http3().expect("it was taken as a request over HTTP/3");
        s.begin(self.mux.clone(), id);
        Job { r, id, refused: None, is_late: false }
    }

    /// Whether there are bytes to read, left or new. Records that the client gave the request up.
    fn more(&self, entry: &mut Entry, id: StreamId, is_reset: &mut bool) -> Result<bool, Fault> {
        if !entry.rest.is_empty() {
            return Ok(entry.phase == Phase::Head || entry.has_room());
        }
        if entry.ended || !entry.has_room() {
            return Ok(false);
        }
        match self.mux.quic().read(id, READ_MAX) {
            Read::Data(bytes) => {
                entry.rest = bytes;
                Ok(true)
            }
            Read::End => {
                entry.reader.end()?;
                entry.end();
                Ok(false)
            }
            Read::Reset(_) => {
                // It may have been stopped before.
                *is_reset = !std::mem::replace(&mut entry.reset, true);
                entry.wake_all();
                Ok(false)
            }
            Read::Nothing | Read::Gone => Ok(false),
        }
    }

    /// Makes a request of the fields that `decode` gives; none where they are not there yet.
    fn request(
        &self,
        id: StreamId,
        ends: bool,
        head_len: usize,
        decode: impl FnOnce(&mut HeadBuilder<'_>) -> Result<Decoded, Fault>,
    ) -> Result<Option<Job>, Fault> {
        let c = self.mux.c();
        let limits = c.server().core.head_limits();
        let mut r = Request::take_quic(c, self.main);
        r.account.start();
        let Request { head, client, .. } = &mut *r;
        let s = client.channel.http3().expect("it was taken as a request over HTTP/3");
        let mut builder = HeadBuilder::new(head, &mut s.exchange.text, &limits, Version::HTTP_30);
        match decode(&mut builder) {
            Ok(Decoded::Whole) => {}
            other => {
                r.give_back();
                return other.map(|_| None);
            }
        }
        let asked = builder.finish(ends);
        let refusal = refusal(asked, head, &mut s.exchange.text).unwrap_or_else(|what| {
            Some(Refusal { status: TOO_LARGE, text: format!("client sent {what}") })
        });
        s.begin(self.mux.clone(), id);
        s.exchange.head_len = head_len;
        (s.exchange.is_tunnel, s.exchange.is_bare) = (is_tunnel(head), ends);
        let refused = refusal.map(|refusal| refused(&mut r, refusal));
        Ok(Some(Job { r, id, refused, is_late: false }))
    }
}

/// A request begins: its stream knows what is to come.
fn begin(mux: &Mux, entry: &mut Entry, early: &mut Vec<(u64, Parameters)>, mut job: Job) -> Job {
    let r = &mut *job.r;
    let s = r.client.channel.http3().expect("it was taken as a request over HTTP/3");
    entry.phase = Phase::Begun;
    let exchange = &s.exchange;
    entry.head_size = exchange.head_size(&r.head);
    entry.expected = r.head.content_length.filter(|_| !exchange.is_bare);
    if exchange.is_tunnel {
        entry.reader.tunnel();
    }
    let lines = r.head.fields.all(FieldId::Priority).map(|field| field.value.of(&exchange.text));
    let place = early.iter().position(|(id, _)| *id == u64::from(job.id));
    let asked = place.map(|i| early.swap_remove(i).1).or_else(|| Parameters::of_lines(lines));
    if let Some(asked) = asked {
        entry.asked = asked;
        rank(mux, job.id, asked);
    }
    job
}

fn rank(mux: &Mux, id: StreamId, of: Parameters) {
    let urgency = of.urgency.unwrap_or(URGENCY);
    mux.quic().rank(id, i32::from(URGENCY) - i32::from(urgency));
}

/// A response's own field, which goes before what the client asked for (RFC 9218 section 8).
pub(super) fn responds(mux: &Mux, id: StreamId, own: Parameters) {
    let of = mux.of(id, |entry| {
        entry.own = own;
        own.or(entry.asked)
    });
    if let Ok(of) = of {
        rank(mux, id, of);
    }
}

/// Priorities of streams that are not open yet.
const EARLY_MAX: usize = 256;

/// A PRIORITY_UPDATE frame (RFC 9218 section 7.2).
pub(super) fn update(mux: &Mux, id: u64, value: &[u8]) {
    let Some(given) = Parameters::parse(value) else { return };
    let Some(stream) = quic::stream_id(id) else { return };
    let open = mux.of(stream, |entry| {
        entry.asked = given;
        entry.own.or(given)
    });
    match open {
        Ok(of) => rank(mux, stream, of),
        Err(_) => mux.with(|state| {
            if id >= state.next_id {
                state.early.retain(|(early, _)| *early != id);
                if state.early.len() < EARLY_MAX {
                    state.early.push((id, given));
                }
            }
        }),
    }
}
