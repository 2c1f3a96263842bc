//! The rules for a server's frames (RFC 9113), and the record of what they said. A broken rule is
//! an `Err` with a sentence.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::fields::Decoder;
use super::{Fields, Frame, GoAway, Response, flag, kind, setting};

const WINDOW: i64 = 65_535;
const WINDOW_MAX: i64 = (1 << 31) - 1;

/// Streams that were opened since one was reset, which a server may have forgotten then.
const LONG_AGO: u32 = 1_000;

/// The payload of RST_STREAM with the code of that name.
const STREAM_CLOSED: [u8; 4] = [0, 0, 0, 5];

/// A stream as the client sees it.
pub(super) struct Stream {
    pub(super) response: Response,
    /// Bytes of DATA that the server may send, and that it lets us send.
    pub(super) receive_window: i64,
    pub(super) send_window: i64,
    /// The request's method: bodies and lengths depend on it.
    pub(super) method: String,
    /// Whether the client has reset it: frames under way are passed over then.
    pub(super) given_up: bool,
}

/// Everything that the server has said.
pub(super) struct Judge {
    decoder: Decoder,
    /// A header block that CONTINUATION frames go on with.
    block: Option<(u32, bool, Vec<u8>)>,
    /// The server's settings; none before its first frame.
    pub(super) settings: Option<BTreeMap<u16, u32>>,
    /// Ours that the server has not acknowledged.
    unacknowledged: VecDeque<Vec<(u16, u32)>>,
    initial_window: i64,
    frame_size: usize,
    pub(super) streams: BTreeMap<u32, Stream>,
    pub(super) receive_window: i64,
    pub(super) send_window: i64,
    pub(super) goaways: Vec<GoAway>,
    pub(super) pongs: Vec<Vec<u8>>,
    /// Windows that the server gave, by stream.
    pub(super) given: BTreeMap<u32, u64>,
    /// Streams that were passed over and that the server has reset.
    resets: BTreeSet<u32>,
}

pub(crate) type Verdict<T = ()> = Result<T, String>;

impl Judge {
    /// For a client with these settings in its first frame.
    pub(super) fn new(settings: &[(u16, u32)]) -> Self {
        let mut judge = Self {
            decoder: Decoder::new(),
            block: None,
            settings: None,
            unacknowledged: VecDeque::new(),
            initial_window: WINDOW,
            frame_size: 16_384,
            streams: BTreeMap::new(),
            receive_window: WINDOW,
            send_window: WINDOW,
            goaways: Vec::new(),
            pongs: Vec::new(),
            given: BTreeMap::new(),
            resets: BTreeSet::new(),
        };
        judge.settings_sent(settings.to_vec());
        judge
    }

    /// Notes that the client has sent SETTINGS. A setting that gives the server more holds at once,
    /// since it may use it before its acknowledgement; one that takes holds from then on.
    pub(super) fn settings_sent(&mut self, settings: Vec<(u16, u32)>) {
        for &(id, value) in &settings {
            match id {
                setting::HEADER_TABLE_SIZE => self.decoder.raise_limit(value),
                setting::INITIAL_WINDOW_SIZE if i64::from(value) > self.initial_window => {
                    self.change_initial_window(i64::from(value));
                }
                setting::MAX_FRAME_SIZE => self.frame_size = self.frame_size.max(value as usize),
                _ => {}
            }
        }
        self.unacknowledged.push_back(settings);
    }

    /// Begins a stream that the client opens.
    pub(super) fn open(&mut self, stream: u32, method: &str) {
        let initial = setting::INITIAL_WINDOW_SIZE;
        let send_window = self.settings.as_ref().and_then(|s| s.get(&initial)).copied();
        let state = Stream {
            response: Response::default(),
            receive_window: self.initial_window,
            send_window: send_window.map_or(WINDOW, i64::from),
            method: method.to_string(),
            given_up: false,
        };
        self.streams.entry(stream).or_insert(state);
    }

    /// The bytes of DATA that may be under way at most on a new stream.
    pub(super) fn initial_window(&self) -> i64 {
        self.initial_window
    }

    /// Whether the client may not open this stream any more, as it has opened a later one.
    fn is_passed_over(&self, stream: u32) -> bool {
        let last = self.streams.last_key_value().map_or(0, |(id, _)| *id);
        stream % 2 == 1 && stream < last && !self.streams.contains_key(&stream)
    }

    fn change_initial_window(&mut self, value: i64) {
        let change = value - self.initial_window;
        self.initial_window = value;
        self.streams.values_mut().for_each(|s| s.receive_window += change);
    }

    /// Judges the next frame and keeps what it says.
    pub(super) fn take(&mut self, frame: &Frame) -> Verdict {
        let Frame { kind, stream, payload, .. } = frame;
        let named = || format!("{} on stream {stream}", frame.name());
        let held = |rule: bool, what: &str| {
            if rule { Ok(()) } else { Err(format!("{}: {what}", named())) }
        };
        held(payload.len() <= self.frame_size, "longer than SETTINGS_MAX_FRAME_SIZE")?;
        let first = self.settings.is_none();
        let is_settings = *kind == kind::SETTINGS && !frame.has(flag::ACK);
        held(!first || is_settings, "before the server's SETTINGS")?;
        let inside = self.block.as_ref().map(|(of, ..)| *of);
        let continues = *kind == kind::CONTINUATION && inside == Some(*stream);
        held(inside.is_none() || continues, "within a header block")?;
        let on_connection = matches!(*kind, kind::SETTINGS | kind::PING | kind::GOAWAY);
        held(!on_connection || *stream == 0, "not on stream 0")?;
        let on_stream = *kind <= kind::CONTINUATION && !on_connection;
        // A server need not remember resets for ever (RFC 9113, 5.1 and 5.4.2).
        let newest = self.streams.last_key_value().map_or(0, |(id, _)| *id);
        let forgets = newest >= stream.saturating_add(2 * LONG_AGO);
        if *kind == kind::RST_STREAM && self.is_passed_over(*stream) {
            // The answer to frames that the client sends there (RFC 9113, 5.1.1 and 6.1).
            held(frame.payload == STREAM_CLOSED, "on a stream that was passed over")?;
            return held(self.resets.insert(*stream) || forgets, "a second time");
        }
        if on_stream && *kind != kind::WINDOW_UPDATE {
            held(self.streams.contains_key(stream), "on a stream that the client did not open")?;
        }
        let length = match *kind {
            kind::RST_STREAM | kind::WINDOW_UPDATE => Some(4),
            kind::PRIORITY => Some(5),
            kind::PING => Some(8),
            kind::SETTINGS if frame.has(flag::ACK) => Some(0),
            _ => None,
        };
        held(length.is_none_or(|l| payload.len() == l), "of a wrong length")?;
        match *kind {
            kind::DATA => self.data(frame),
            kind::HEADERS => {
                let end = frame.has(flag::END_STREAM);
                self.block = Some((*stream, end, frame.content()?.to_vec()));
                self.end_of_block(frame)
            }
            kind::CONTINUATION => {
                let (_, _, block) =
                    self.block.as_mut().ok_or_else(|| format!("stray {}", named()))?;
                block.extend_from_slice(payload);
                self.end_of_block(frame)
            }
            kind::RST_STREAM => {
                let state = self.streams.get_mut(stream).ok_or_else(named)?;
                held(state.response.reset.is_none() || forgets, "a second time")?;
                state.response.reset = Some(frame.number(0));
                Ok(())
            }
            kind::SETTINGS => self.settings(frame),
            kind::PING if frame.has(flag::ACK) => {
                self.pongs.push(payload.clone());
                Ok(())
            }
            kind::GOAWAY => self.goaway(frame),
            kind::WINDOW_UPDATE => self.window_update(frame),
            kind::PUSH_PROMISE => Err("the server pushes".to_string()),
            _ => Ok(()),
        }
    }

    fn data(&mut self, frame: &Frame) -> Verdict {
        let length = frame.payload.len() as i64;
        let id = frame.stream;
        let Some(state) = self.streams.get_mut(&id) else { return Ok(()) };
        self.receive_window -= length;
        state.receive_window -= length;
        if self.receive_window < 0 {
            return Err(format!("DATA on stream {id}: beyond the connection's window"));
        }
        if state.receive_window < 0 {
            return Err(format!("DATA on stream {id}: beyond the stream's window"));
        }
        if state.given_up {
            return Ok(());
        }
        let response = &mut state.response;
        if response.is_over() || response.status == 0 {
            return Err(format!("DATA on stream {id}: outside of a response"));
        }
        response.body.extend_from_slice(frame.content()?);
        if frame.has(flag::END_STREAM) {
            response.ended = true;
            return whole(id, state);
        }
        Ok(())
    }

    fn end_of_block(&mut self, frame: &Frame) -> Verdict {
        if !frame.has(flag::END_HEADERS) {
            return Ok(());
        }
        let Some((id, end, block)) = self.block.take() else { return Ok(()) };
        let fields = self.decoder.decode(&block).map_err(|e| format!("stream {id}: {e}"))?;
        let Some(state) = self.streams.get_mut(&id) else { return Ok(()) };
        if state.given_up {
            return Ok(());
        }
        if state.response.is_over() {
            return Err(format!("HEADERS on stream {id}: behind the end of the response"));
        }
        section(&mut state.response, fields, end).map_err(|e| format!("stream {id}: {e}"))?;
        if end {
            state.response.ended = true;
            return whole(id, state);
        }
        Ok(())
    }

    fn settings(&mut self, frame: &Frame) -> Verdict {
        if frame.has(flag::ACK) {
            let settings = self.unacknowledged.pop_front();
            for (id, value) in settings.ok_or("an acknowledgement of no SETTINGS")? {
                match id {
                    setting::HEADER_TABLE_SIZE => self.decoder.set_limit(value),
                    setting::INITIAL_WINDOW_SIZE => self.change_initial_window(i64::from(value)),
                    setting::MAX_FRAME_SIZE => self.frame_size = value as usize,
                    _ => {}
                }
            }
            return Ok(());
        }
        if !frame.payload.len().is_multiple_of(6) {
            return Err("SETTINGS of a wrong length".to_string());
        }
        let known = self.settings.get_or_insert_default();
        for (id, value) in frame.settings_of() {
            let fits = match id {
                setting::ENABLE_PUSH => value == 0,
                setting::INITIAL_WINDOW_SIZE => i64::from(value) <= WINDOW_MAX,
                setting::MAX_FRAME_SIZE => (16_384..1 << 24).contains(&value),
                setting::ENABLE_CONNECT_PROTOCOL | setting::NO_RFC7540_PRIORITIES => value <= 1,
                _ => true,
            };
            if !fits {
                return Err(format!("SETTINGS has {id} = {value}"));
            }
            let before = known.insert(id, value).map_or(WINDOW, i64::from);
            if id == setting::INITIAL_WINDOW_SIZE {
                let change = i64::from(value) - before;
                self.streams.values_mut().for_each(|s| s.send_window += change);
            }
        }
        Ok(())
    }

    fn goaway(&mut self, frame: &Frame) -> Verdict {
        let Some(debug) = frame.payload.get(8..) else {
            return Err("GOAWAY is too short".to_string());
        };
        let last_stream = frame.number(0) & 0x7fff_ffff;
        if self.goaways.last().is_some_and(|before| before.last_stream < last_stream) {
            return Err(format!("GOAWAY with a greater last stream than before: {last_stream}"));
        }
        let debug = String::from_utf8_lossy(debug).into_owned();
        self.goaways.push(GoAway { last_stream, code: frame.number(4), debug });
        Ok(())
    }

    fn window_update(&mut self, frame: &Frame) -> Verdict {
        let increment = frame.number(0) & 0x7fff_ffff;
        let window = match frame.stream {
            0 => &mut self.send_window,
            id => match self.streams.get_mut(&id) {
                Some(state) => &mut state.send_window,
                None => return Err(format!("WINDOW_UPDATE of stream {id}, which is idle")),
            },
        };
        *window += i64::from(increment);
        if increment == 0 || *window > WINDOW_MAX {
            return Err(format!("WINDOW_UPDATE by {increment} makes {window}"));
        }
        *self.given.entry(frame.stream).or_default() += u64::from(increment);
        Ok(())
    }
}

/// Checks a field of a response as strictly as any client does: one such field, and it discards the
/// response.
pub(crate) fn is_sound(name: &str, value: &str) -> Verdict {
    let is_of_token =
        |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&b);
    let of_connection =
        ["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"];
    if name.is_empty() || !name.bytes().all(is_of_token) || of_connection.contains(&name) {
        return Err(format!("the field {name:?}"));
    }
    if value.bytes().any(|b| b.is_ascii_control() && b != b'\t') || value.trim() != value {
        return Err(format!("the value {value:?} of {name}"));
    }
    Ok(())
}

/// Takes a field section into a response.
fn section(response: &mut Response, fields: Fields, end: bool) -> Verdict {
    let pseudo = fields.iter().take_while(|(name, _)| name.starts_with(':')).count();
    for (name, value) in &fields[pseudo..] {
        is_sound(name, value)?;
    }
    let regular = fields[pseudo..].to_vec();
    if response.status != 0 {
        return match (pseudo, end) {
            (0, true) => {
                response.trailers = regular;
                Ok(())
            }
            (0, false) => Err("trailers without END_STREAM".to_string()),
            _ => Err("trailers with a pseudo-header field".to_string()),
        };
    }
    let status = match &fields[..pseudo] {
        [(name, value)] if name == ":status" && value.len() == 3 => value.parse().ok(),
        _ => None,
    };
    match status {
        None => Err(format!("not a response: {fields:?}")),
        Some(101) => Err("status 101".to_string()),
        Some(100..200) if end => Err("an interim response with END_STREAM".to_string()),
        Some(status @ 100..200) => {
            response.interim.push((status, regular));
            Ok(())
        }
        Some(status) => {
            (response.status, response.fields) = (status, regular);
            Ok(())
        }
    }
}

/// Whether an ended response's body is as long as its head says.
fn whole(id: u32, state: &Stream) -> Verdict {
    let r = &state.response;
    let bodiless = state.method == "HEAD" || matches!(r.status, 204 | 304);
    if bodiless && !r.body.is_empty() {
        return Err(format!("stream {id}: a body behind {} {}", state.method, r.status));
    }
    match r.header("content-length").map(str::parse::<usize>) {
        _ if bodiless => Ok(()),
        // A stream that the test opened with bytes of its own may be one of HEAD.
        _ if state.method.is_empty() && r.body.is_empty() => Ok(()),
        None => Ok(()),
        Some(Ok(length)) if r.body.len() == length => Ok(()),
        Some(told) => Err(format!("stream {id}: {} bytes, announced {told:?}", r.body.len())),
    }
}
