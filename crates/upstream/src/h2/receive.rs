//! The frames of a server.

use std::io;

use bytes::Bytes;
use http_wire::fields::response::{BadFields, ResponseBuilder, TrailerBuilder};
use http_wire::h1::Version;
use http_wire::h2::frame::{self, ErrorCode};
use http_wire::h2::hpack::{self, Decoder};
use http_wire::h2::read::{Event, Fault, Reader};
use http_wire::waste::Waste;
use mem::Page;
use net::Transport;

use super::mux::{Mux, Received, State, StreamEnd};

/// The longest header block that is decoded, bytes.
const BLOCK_MAX: usize = 256 << 10;

/// Answers to the server's frames that it has not taken, from which on it is given up, bytes.
const ANSWERS_MAX: usize = 1 << 20;

/// Room in a page below which a part of a frame moves to a larger one.
const PAGE_LOW: usize = 4 << 10;

/// A page with as many bytes is shared with the responses in it; less is copied.
const SHARED_MIN: usize = 4 << 10;

/// Room for the text of a head, at least: fields of a table take more room than their block.
const TEXT_MIN: usize = 256;

/// The receiving half of a connection.
pub(super) struct Receiver {
    reader: Reader,
    decoder: Decoder,
    page: Page,
    /// Frames of the server's that bring nothing.
    waste: Waste,
}

/// A part of a DATA frame.
struct Data<'a> {
    stream: u32,
    data: &'a [u8],
    flow: usize,
    end_stream: bool,
}

impl Receiver {
    pub fn new() -> Receiver {
        Receiver {
            reader: Reader::new(frame::FRAME_MAX, BLOCK_MAX),
            decoder: Decoder::new(hpack::TABLE_SIZE),
            page: Page::new(),
            waste: Waste::new(0, base::time::now_ms()),
        }
    }

    /// Receives what is there, and takes the frames in it: false where nothing is there.
    ///
    /// # Errors
    /// The connection ends.
    pub fn receive(&mut self, mux: &Mux, sock: &Transport) -> Result<bool, StreamEnd> {
        if !self.page.is_empty() && self.page.spare() < PAGE_LOW {
            let room = frame::FRAME_MAX + frame::HEAD_LEN;
            let more = room.saturating_sub(self.page.len()).max(PAGE_LOW);
            self.page.try_reserve(more).map_err(|e| broken(&e))?;
        }
        match sock.try_recv_into(&mut self.page) {
            Ok(None) => Ok(false),
            Ok(Some(0)) => Err(StreamEnd::Closed),
            Ok(Some(_)) => self.frames(mux).map(|()| true),
            Err(e) => Err(broken(&e)),
        }
    }

    fn frames(&mut self, mux: &Mux) -> Result<(), StreamEnd> {
        // Large responses are passed on where they lie.
        let shared =
            (self.page.len() >= SHARED_MIN).then(|| std::mem::take(&mut self.page).freeze());
        let mut used = 0;
        let was_greeted = mux.with(|state| state.is_greeted);
        let done = mux.with(|state| {
            loop {
                let buf = shared.as_deref().unwrap_or(self.page.filled());
                let buf = buf.get(used..).unwrap_or_default();
                let Some((len, event)) = self.reader.next(buf)? else { return Ok(()) };
                used += len;
                account(state, &mut self.waste, &event)?;
                take(state, &mut self.decoder, event, shared.as_ref())?;
                if state.out_len > ANSWERS_MAX {
                    let what = "too many frames that want an answer";
                    return Err(Fault::connection(ErrorCode::ENHANCE_YOUR_CALM, what));
                }
            }
        });
        if !was_greeted && mux.with(|state| state.is_greeted) {
            mux.was_greeted();
        }
        match &shared {
            Some(shared) => {
                let rest = shared.get(used..).unwrap_or_default();
                if !rest.is_empty() {
                    self.page.extend_from_slice(rest);
                }
            }
            None => self.page.consume(used),
        }
        if self.page.is_empty() {
            self.page.release();
        }
        done.map_err(|fault: Fault| {
            mux.with(|state| state.control(|w| frame::write_goaway(w, 0, fault.code)));
            StreamEnd::Fault(format!("upstream sent {}", fault.what))
        })
    }

    /// Gives back memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.reader.shrink();
    }

    /// Whether a frame has begun and is not whole.
    pub fn is_inside(&self) -> bool {
        !self.page.is_empty() || self.reader.is_inside()
    }
}

fn broken(e: &io::Error) -> StreamEnd {
    StreamEnd::Broken(e.raw_os_error().unwrap_or(0))
}

fn protocol<T>(what: &'static str) -> Result<T, Fault> {
    Err(Fault::connection(ErrorCode::PROTOCOL_ERROR, what))
}

/// Counts a frame that brings nothing: the budget is the one of clients, because a server can make
/// a worker as busy with them. Updates of windows are not counted: a server may send two for each
/// message of a call.
fn account(state: &State, waste: &mut Waste, event: &Event<'_>) -> Result<(), Fault> {
    let brings_nothing = match event {
        Event::Headers { stream, .. } | Event::Reset(stream, _) => state.find(*stream).is_none(),
        Event::Data { flow, whole, end_stream, .. } => *whole && *flow == 0 && !end_stream,
        Event::WindowUpdate(..) => false,
        _ => true,
    };
    if brings_nothing {
        return Ok(waste.frame(base::time::now_ms())?);
    }
    if let Event::Headers { .. } = event {
        waste.stream();
    }
    Ok(())
}

/// Takes a frame.
fn take(
    state: &mut State,
    decoder: &mut Decoder,
    event: Event<'_>,
    shared: Option<&Bytes>,
) -> Result<(), Fault> {
    match event {
        Event::Headers { stream, end_stream, block, .. } => {
            headers(state, decoder, stream, block, end_stream)
        }
        Event::Data { stream, data, flow, end_stream, .. } => {
            body(state, &Data { stream, data, flow, end_stream }, shared)
        }
        Event::Reset(stream, code) => reset(state, stream, code),
        Event::Settings(payload) => {
            let before = state.peer;
            state.peer.take(payload)?;
            state.is_greeted = true;
            state.control(frame::write_settings_ack);
            match state.resize(before) {
                true => Ok(()),
                false => Err(Fault::connection(
                    ErrorCode::FLOW_CONTROL_ERROR,
                    "settings frame with too large initial window size",
                )),
            }
        }
        Event::Ping(data) => {
            state.control(|w| frame::write_ping(w, &data, true));
            Ok(())
        }
        Event::GoAway(last, code) => {
            state.is_leaving = true;
            for (_, entry) in state.live().filter(|(id, _)| *id > last) {
                entry.end.get_or_insert(StreamEnd::Refused(code));
                entry.local_ended = true;
                entry.wake();
            }
            Ok(())
        }
        Event::WindowUpdate(stream, n) => window_update(state, stream, n),
        // A server has no say about the order of requests.
        Event::Priority(..)
        | Event::PriorityUpdate(..)
        | Event::SettingsAck
        | Event::PingAck(_)
        | Event::Unknown => Ok(()),
    }
}

fn compression(e: hpack::HpackError) -> Fault {
    Fault::connection(ErrorCode::COMPRESSION_ERROR, e.message())
}

/// Makes the head of a block, or says why it is none.
fn final_or_interim(
    state: &mut State,
    decoder: &mut Decoder,
    at: usize,
    block: &[u8],
) -> Result<Result<Received, BadFields>, Fault> {
    let max = state.streams[at].head_max;
    let mut head = state.fresh_head();
    let changes = decoder.changes();
    if let Some(text) = state.responses.make(block, changes, max, &mut head) {
        return Ok(Ok((head, text)));
    }
    let mut text = Vec::with_capacity((block.len() * 2).max(TEXT_MIN));
    let mut builder = ResponseBuilder::new(&mut head, &mut text, max, Version::HTTP_20);
    decoder.decode(block, |name, value| builder.field(name, value)).map_err(compression)?;
    let built = builder.finish();
    Ok(built.map(|()| {
        let text = Bytes::from(text);
        if decoder.changes() == changes {
            state.responses.note(block, changes, &head, &text);
        }
        (head, text)
    }))
}

fn headers(
    state: &mut State,
    decoder: &mut Decoder,
    stream: u32,
    block: &[u8],
    end_stream: bool,
) -> Result<(), Fault> {
    let Some(at) = state.find(stream) else {
        if state.is_idle(stream) {
            return protocol("frame for unknown stream");
        }
        // Its exchange is over, but the table changes.
        return decoder.decode(block, |_, _| {}).map_err(compression);
    };
    if state.streams[at].remote_ended {
        return protocol("frame for closed stream");
    }
    let outcome = if state.streams[at].has_head {
        let max = state.streams[at].head_max;
        let mut list = TrailerBuilder::new(max);
        decoder.decode(block, |name, value| list.field(name, value)).map_err(compression)?;
        let without_end = || "upstream sent trailer without end stream flag".to_owned();
        let list = list.finish().map_err(|bad| bad.to_string());
        list.and_then(|list| if end_stream { Ok(list) } else { Err(without_end()) }).map(|list| {
            let bytes = |(name, value)| (Bytes::from(name), Bytes::from(value));
            state.streams[at].trailers = list.into_iter().map(bytes).collect();
        })
    } else {
        let made = final_or_interim(state, decoder, at, block)?;
        made.map_err(|bad| bad.to_string()).and_then(|received| {
            let is_final = received.0.status >= 200;
            state.streams[at].has_head = is_final;
            if !is_final && end_stream {
                return Err("upstream prematurely closed stream".to_owned());
            }
            match state.add_head(at, received) {
                true => Ok(()),
                false => Err("upstream sent too many interim responses".to_owned()),
            }
        })
    };
    if let Err(m) = outcome {
        state.refuse(at, ErrorCode::PROTOCOL_ERROR, StreamEnd::Malformed(m));
        return Ok(());
    }
    let entry = &mut state.streams[at];
    entry.remote_ended |= end_stream;
    entry.wake_reader();
    Ok(())
}

fn body(state: &mut State, part: &Data<'_>, shared: Option<&Bytes>) -> Result<(), Fault> {
    state.count(part.flow);
    let Some(at) = state.find(part.stream) else {
        return match state.is_idle(part.stream) {
            true => protocol("data frame for unknown stream"),
            false => Ok(()),
        };
    };
    let entry = &mut state.streams[at];
    if entry.end.is_some() {
        return Ok(());
    }
    if entry.remote_ended {
        return protocol("frame for closed stream");
    }
    if !entry.receive.take(part.flow) {
        let what = "more data than the window of the stream allows";
        return Err(Fault::connection(ErrorCode::FLOW_CONTROL_ERROR, what));
    }
    if !entry.has_head {
        let m = "upstream sent unexpected http2 frame: 0".to_owned();
        state.refuse(at, ErrorCode::PROTOCOL_ERROR, StreamEnd::Malformed(m));
        return Ok(());
    }
    if !part.data.is_empty() {
        entry.data.push_bytes(match shared {
            Some(shared) => shared.slice_ref(part.data),
            None => Bytes::copy_from_slice(part.data),
        });
    }
    entry.remote_ended = part.end_stream;
    entry.wake_reader();
    let padding = part.flow - part.data.len();
    if padding > 0 {
        state.consumed(at, padding as u32);
    }
    Ok(())
}

fn reset(state: &mut State, stream: u32, code: ErrorCode) -> Result<(), Fault> {
    let Some(at) = state.find(stream) else {
        return match state.is_idle(stream) {
            true => protocol("rst stream frame for unknown stream"),
            false => Ok(()),
        };
    };
    let entry = &mut state.streams[at];
    let again = std::mem::replace(&mut entry.was_reset, true);
    entry.local_ended = true;
    // Behind a whole response it says that the rest of the request is not wanted (RFC 9113 section
    // 8.1).
    if !entry.remote_ended || again || code != ErrorCode::NO_ERROR {
        entry.end.get_or_insert(match code {
            ErrorCode::REFUSED_STREAM => StreamEnd::Refused(code),
            _ => StreamEnd::Reset(code),
        });
        if entry.remote_ended {
            entry.data.clear();
            entry.heads.clear();
        }
    }
    entry.wake();
    Ok(())
}

fn window_update(state: &mut State, stream: u32, n: u32) -> Result<(), Fault> {
    if stream == 0 {
        if n == 0 {
            return protocol("zero window update");
        }
        let added = state.send.add(n);
        let what = "too large window update";
        added.map_err(|_| Fault::connection(ErrorCode::FLOW_CONTROL_ERROR, what))?;
        state.wake_writers();
        return Ok(());
    }
    let Some(at) = state.find(stream) else {
        return match state.is_idle(stream) {
            true => protocol("window update frame for unknown stream"),
            false => Ok(()),
        };
    };
    let entry = &mut state.streams[at];
    let (m, code) = match n {
        0 => ("upstream sent zero window update", ErrorCode::PROTOCOL_ERROR),
        _ if entry.send.add(n).is_err() => {
            ("upstream sent too large window update", ErrorCode::FLOW_CONTROL_ERROR)
        }
        _ => {
            entry.wake_writer();
            return Ok(());
        }
    };
    state.refuse(at, code, StreamEnd::Malformed(m.to_owned()));
    Ok(())
}
