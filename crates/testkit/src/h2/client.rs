//! The client.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use super::judge::Judge;
use super::{Ended, Frame, GoAway, PREFACE, Response, Wire, block, flag, kind, setting};
use crate::PATIENCE;

/// The use of the windows that the server's DATA has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Windows {
    /// They are given back when half is used.
    #[default]
    Refilled,
    /// They are given by [`Client::grant`] alone.
    Withheld,
}

/// A client's habits.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its first SETTINGS.
    pub settings: Vec<(u16, u32)>,
    /// Whether windows are refilled.
    pub windows: Windows,
    /// Whether SETTINGS and PING are acknowledged.
    pub acknowledges: bool,
    /// `:authority` of requests.
    pub authority: String,
    /// `:scheme` of requests; `http` by default.
    pub scheme: String,
    /// The limit of a wait for a frame.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Vec::new(),
            windows: Windows::Refilled,
            acknowledges: true,
            authority: "localhost".to_string(),
            scheme: "http".to_string(),
            patience: PATIENCE,
        }
    }
}

impl Options {
    /// With one more setting.
    pub fn set(mut self, id: u16, value: u32) -> Self {
        self.settings.push((id, value));
        self
    }

    /// Without refills of windows.
    pub fn withholding(mut self) -> Self {
        self.windows = Windows::Withheld;
        self
    }
}

/// A connection. Frames that it reads are judged: a fault of the server's fails the test, as does
/// a wait of more than [`PATIENCE`].
pub struct Client {
    wire: Wire,
    options: Options,
    received: Vec<u8>,
    judge: Judge,
    next_stream: u32,
    ended: Option<Ended>,
    /// All frames so far, but for the payload of DATA.
    seen: Vec<Frame>,
}

impl Client {
    /// In clear, by prior knowledge.
    pub fn tcp(port: u16) -> Self {
        Self::over(Wire::tcp(port), Options::default())
    }

    /// Over TLS, with any certificate.
    pub fn tls(port: u16) -> Self {
        let options = Options { scheme: "https".to_string(), ..Options::default() };
        Self::over(Wire::tls(port), options)
    }

    /// In clear, with habits.
    pub fn with(port: u16, options: Options) -> Self {
        Self::over(Wire::tcp(port), options)
    }

    /// Over any connection: sends the preface and SETTINGS.
    pub fn over(mut wire: Wire, options: Options) -> Self {
        let start = [PREFACE, &Frame::settings(&options.settings).encode()].concat();
        wire.send(start).expect("send the preface");
        Self::already_on(wire, options)
    }

    /// On a connection over which the preface and the SETTINGS of `options` have gone.
    pub fn already_on(wire: Wire, options: Options) -> Self {
        let judge = Judge::new(&options.settings);
        let (received, seen) = (Vec::new(), Vec::new());
        Self { wire, options, received, judge, next_stream: 1, ended: None, seen }
    }

    /// The connection.
    pub fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// Sends bytes as they are; an error when the server has closed.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.wire.send(bytes)
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("send to the server");
    }

    /// Sends a frame. HEADERS open their stream, RST_STREAM closes it to the judge.
    pub fn send_frame(&mut self, frame: &Frame) {
        self.send_frames(std::slice::from_ref(frame));
    }

    /// Sends frames in one write.
    pub fn send_frames(&mut self, frames: &[Frame]) {
        self.try_send_frames(frames).expect("send to the server");
    }

    /// Sends frames in one write; an error when the server has closed.
    pub fn try_send_frames(&mut self, frames: &[Frame]) -> io::Result<()> {
        frames.iter().for_each(|frame| self.note(frame));
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        self.try_send(bytes)
    }

    /// Tells the judge of a frame that is sent, as far as it matters.
    fn note(&mut self, frame: &Frame) {
        let id = frame.stream;
        let length = frame.payload.len() as i64;
        match frame.kind {
            kind::HEADERS if id != 0 => {
                self.expect(id);
            }
            kind::SETTINGS if !frame.has(flag::ACK) => {
                self.judge.settings_sent(frame.settings_of());
            }
            kind::DATA => self.judge.send_window -= length,
            kind::WINDOW_UPDATE if id == 0 => {
                self.judge.receive_window += i64::from(frame.number(0));
            }
            _ => {}
        }
        let Some(state) = self.judge.streams.get_mut(&id) else { return };
        match frame.kind {
            kind::DATA => state.send_window -= length,
            kind::WINDOW_UPDATE => state.receive_window += i64::from(frame.number(0)),
            kind::RST_STREAM => state.given_up = true,
            _ => {}
        }
    }

    /// Lets the server answer on a stream that bytes of [`send`](Self::send) have opened.
    pub fn expect(&mut self, stream: u32) {
        self.judge.open(stream, "");
        self.next_stream = self.next_stream.max(stream.saturating_add(2) | 1);
    }

    /// The stream that the next request opens.
    pub fn next_stream(&self) -> u32 {
        self.next_stream
    }

    /// The fields of a request, the pseudo-header fields first.
    pub fn head(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
        let Options { authority, scheme, .. } = &self.options;
        let pseudo =
            [(":method", method), (":scheme", scheme), (":authority", authority), (":path", path)];
        [block(&pseudo), block(fields)].concat()
    }

    /// Opens a stream with a request's head; `end` says that there is no body.
    pub fn open(&mut self, method: &str, path: &str, fields: &[(&str, &str)], end: bool) -> u32 {
        let head = self.head(method, path, fields);
        let stream = self.next_stream;
        self.judge.open(stream, method);
        self.send_frame(&Frame::headers(stream, head, end));
        stream
    }

    /// Opens a stream for WebSocket (RFC 8441).
    pub fn websocket(&mut self, path: &str) -> u32 {
        let stream = self.next_stream();
        self.expect(stream);
        let fields = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "x"),
            ("sec-websocket-version", "13"),
        ];
        self.send_frame(&Frame::headers(stream, block(&fields), false));
        stream
    }

    /// Sends a part of a request's body, as the server's windows allow.
    pub fn data(&mut self, stream: u32, bytes: impl AsRef<[u8]>, end: bool) {
        let mut rest = bytes.as_ref();
        loop {
            let window = |client: &Self| {
                let of_stream = client.judge.streams.get(&stream).map_or(0, |s| s.send_window);
                client.judge.send_window.min(of_stream).max(0) as usize
            };
            let room = match rest.is_empty() {
                true => 0,
                false => self.wait_for("a window", |c| Some(window(c)).filter(|w| *w > 0)),
            };
            let part = rest.len().min(room).min(16_384);
            let (now, later) = rest.split_at(part);
            self.send_frame(&Frame::data(stream, now, end && later.is_empty()));
            rest = later;
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Sends a request without waiting for its response; the body may be empty.
    pub fn start(&mut self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> u32 {
        let stream = self.open(method, path, fields, body.is_empty());
        if !body.is_empty() {
            self.data(stream, body, true);
        }
        stream
    }

    /// A request and its whole response.
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let stream = self.start(method, path, fields, body);
        self.response(stream)
    }

    /// `GET`.
    pub fn get(&mut self, path: &str) -> Response {
        self.request("GET", path, &[], b"")
    }

    /// `GET` of all paths at once; the responses are in their order.
    pub fn get_all(&mut self, paths: &[&str]) -> Vec<Response> {
        let streams: Vec<u32> = paths.iter().map(|p| self.start("GET", p, &[], b"")).collect();
        streams.into_iter().map(|stream| self.response(stream)).collect()
    }

    /// Resets a stream.
    pub fn reset(&mut self, stream: u32, code: u32) {
        self.send_frame(&Frame::reset(stream, code));
    }

    /// Gives the server a window.
    pub fn grant(&mut self, stream: u32, increment: u32) {
        self.send_frame(&Frame::window_update(stream, increment));
    }

    /// Sends PING and waits for its acknowledgement: the server has seen all frames before it.
    pub fn ping(&mut self) {
        let number = self.judge.pongs.len();
        let payload = (number as u64 ^ 0x7765_6972).to_be_bytes();
        self.send_frame(&Frame::ping(payload));
        self.wait_for("the acknowledgement of PING", |c| {
            c.judge.pongs.iter().any(|p| p[..] == payload).then_some(())
        });
    }

    /// Waits for a response, whole or reset.
    pub fn response(&mut self, stream: u32) -> Response {
        self.wait_for(&format!("the response on stream {stream}"), |c| {
            c.so_far(stream).filter(|r| r.is_over()).cloned()
        })
    }

    /// Waits for a response's head, or its reset.
    pub fn response_head(&mut self, stream: u32) -> Response {
        self.wait_for(&format!("the head on stream {stream}"), |c| {
            c.so_far(stream).filter(|r| r.status != 0 || r.is_over()).cloned()
        })
    }

    /// The part of a response that has come so far.
    pub fn so_far(&self, stream: u32) -> Option<&Response> {
        self.judge.streams.get(&stream).map(|s| &s.response)
    }

    /// Waits for GOAWAY.
    pub fn goaway(&mut self) -> GoAway {
        self.wait_for("GOAWAY", |c| c.judge.goaways.first().cloned())
    }

    /// The GOAWAY frames so far.
    pub fn goaways(&self) -> &[GoAway] {
        &self.judge.goaways
    }

    /// Reads until the server closes.
    pub fn wait_for_close(&mut self) -> Ended {
        let until = Instant::now() + PATIENCE;
        while self.frame_until(until).is_some() {}
        self.ended.unwrap_or_else(|| panic!("waited {PATIENCE:?} for the server's close"))
    }

    /// Waits for the server's first SETTINGS; gives all settings of the server's so far.
    pub fn settings(&mut self) -> BTreeMap<u16, u32> {
        self.wait_for("SETTINGS", |c| c.judge.settings.clone())
    }

    /// Bytes that the server allows on a stream, or on the connection (0).
    pub fn send_window(&self, stream: u32) -> i64 {
        match stream {
            0 => self.judge.send_window,
            _ => self.judge.streams.get(&stream).map_or(0, |s| s.send_window),
        }
    }

    /// The sum of WINDOW_UPDATE so far on a stream, or on the connection (0).
    pub fn given(&self, stream: u32) -> u64 {
        self.judge.given.get(&stream).copied().unwrap_or(0)
    }

    /// The heads of all frames so far, with payload but for DATA.
    pub fn seen(&self) -> &[Frame] {
        &self.seen
    }

    /// Whether the server has closed.
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Reads what is there of a connection in memory, and answers it.
    pub fn take_given(&mut self) {
        let now = Instant::now();
        while self.frame_until(now).is_some() {}
    }

    /// Reads frames until `probe` gives something; fails when the server closes before, or after
    /// [`PATIENCE`].
    pub fn wait_for<T>(&mut self, what: &str, probe: impl Fn(&Self) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = probe(self) {
                return found;
            }
            if self.frame_until(until).is_none() {
                let goaways = &self.judge.goaways;
                match self.ended {
                    Some(ended) => panic!("{ended:?} before {what}; GOAWAY: {goaways:?}"),
                    None => panic!("waited {PATIENCE:?} for {what}; GOAWAY: {goaways:?}"),
                }
            }
        }
    }

    /// Reads until the body of a response is these bytes and no more, its end aside.
    pub fn wait_for_body(&mut self, stream: u32, body: &[u8]) {
        self.wait_for("the body", |c| (c.so_far(stream)?.body == body).then_some(()));
    }

    /// Reads until the body of a response has this length, its end aside.
    pub fn wait_for_length(&mut self, stream: u32, len: usize) {
        self.wait_for("the body", |c| (c.so_far(stream)?.body.len() == len).then_some(()));
    }

    /// Reads the next frame, unless the server closes; fails after [`Options::patience`].
    pub fn frame(&mut self) -> Option<Frame> {
        let patience = self.options.patience;
        let frame = self.frame_until(Instant::now() + patience);
        assert!(frame.is_some() || self.ended.is_some(), "waited {patience:?} for a frame");
        frame
    }

    /// Reads what comes within that time, and gives the number of frames.
    pub fn read_for(&mut self, time: Duration) -> usize {
        let until = Instant::now() + time;
        std::iter::from_fn(|| self.frame_until(until)).count()
    }

    /// The next frame; none when the time is over or the server has closed.
    fn frame_until(&mut self, until: Instant) -> Option<Frame> {
        let frame = loop {
            if let Some(frame) = Frame::take(&mut self.received) {
                break frame;
            }
            if self.ended.is_some() {
                return None;
            }
            match self.wire.read(until) {
                Ok(more) => self.received.extend(more),
                Err(None) => return None,
                Err(ended) => self.ended = ended,
            }
        };
        let verdict = self.judge.take(&frame);
        verdict.unwrap_or_else(|fault| {
            let last = &self.seen[self.seen.len().saturating_sub(8)..];
            panic!("the server breaks a rule: {fault}; before: {last:?}")
        });
        let is_data = frame.kind == kind::DATA;
        let payload = if is_data { Vec::new() } else { frame.payload.clone() };
        self.seen.push(Frame { payload, ..frame });
        self.answer(&frame);
        Some(frame)
    }

    fn answer(&mut self, frame: &Frame) {
        let mut answers = Vec::new();
        if self.options.acknowledges && !frame.has(flag::ACK) {
            match frame.kind {
                kind::SETTINGS => answers.push(Frame::settings_ack()),
                kind::PING => answers.push(Frame { flags: flag::ACK, ..frame.clone() }),
                _ => {}
            }
        }
        if self.options.windows == Windows::Refilled && frame.kind == kind::DATA {
            let of_connection = (0, self.judge.receive_window, 65_535);
            let initial = self.judge.initial_window();
            let state = self.judge.streams.get(&frame.stream);
            let of_stream = state.filter(|s| !s.response.is_over() && !s.given_up);
            let of_stream = of_stream.map(|s| (frame.stream, s.receive_window, initial));
            for (id, window, whole) in [Some(of_connection), of_stream].into_iter().flatten() {
                if window <= whole / 2 && whole > window {
                    answers.push(Frame::window_update(id, (whole - window) as u32));
                }
            }
        }
        if !answers.is_empty() {
            // The server may have closed behind its last frame.
            let _ = self.try_send_frames(&answers);
        }
    }

    /// Changes settings, and waits until the server has acknowledged them.
    pub fn change_settings(&mut self, settings: &[(u16, u32)]) {
        let acknowledged = |c: &Self| {
            c.seen.iter().filter(|f| f.kind == kind::SETTINGS && f.has(flag::ACK)).count()
        };
        // The first SETTINGS may be unacknowledged still.
        self.wait_for("the acknowledgement of the first SETTINGS", |c| {
            (acknowledged(c) > 0).then_some(())
        });
        let before = acknowledged(self);
        self.send_frame(&Frame::settings(settings));
        self.wait_for("the acknowledgement of SETTINGS", |c| {
            (acknowledged(c) > before).then_some(())
        });
    }

    /// The limit that the server sets on streams at once, if any.
    pub fn streams_max(&mut self) -> Option<u32> {
        self.settings().get(&setting::MAX_CONCURRENT_STREAMS).copied()
    }
}
