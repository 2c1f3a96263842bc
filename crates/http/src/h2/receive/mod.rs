//! Frames that came from the client, and what they do.

mod begin;
mod body;
mod head;
pub(super) mod moving;

use std::collections::VecDeque;
use std::rc::Rc;

use base::log::Level;
use engine::{flooders, told};
use http_wire::h2::frame::{self, ErrorCode, PREFACE};
use http_wire::h2::hpack::{Decoder, HpackError};
use http_wire::h2::read::{Event, Fault, Reader};
use http_wire::h2::window::{MAX, Window};
use mem::Page;

use super::mux::{Key, Mux, State};
use crate::request::Request;
use crate::server::HttpMain;
use http_wire::address::Account;
use http_wire::h2::repeated::Heads;
use http_wire::h2::unread::Unread;

/// The longest payload of a DATA frame, where a stream's first window has room for it. nginx
/// announces 16 MB, and clients that know nginx send as much as their window allows; others look at
/// this number alone.
const DATA_MAX: usize = 128 << 10;

/// The room of the table of fields that the client fills: the protocol's, as nothing else was said.
const TABLE_SIZE: usize = 4096;

/// Frames between two looks at the time, where none of them is a request that waits.
const LOOK_EVERY: u32 = 8;

/// Resets that are looked at singly after the frames that they came with.
const RESETS_TOLD: usize = 16;

/// The data of the PING behind the first GOAWAY: its answer tells that the client has read that.
pub(super) const LEAVING: [u8; 8] = *b"leaving.";

/// A request whose head came.
pub(super) struct Job {
    pub r: Box<Request>,
    pub key: Key,
    /// It is malformed: the reason was logged.
    pub refused: Option<u16>,
}

/// The end of a connection that we have announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaving {
    /// It goes on.
    No,
    /// The client knows that we leave, but streams that it has opened before it knew are answered.
    Announced,
    /// No stream is answered that is not open yet.
    Final,
}

/// The client's side of a connection.
pub(super) struct Receiver {
    reader: Reader,
    rules: Rules,
    /// Bytes of the preface that came.
    preface: usize,
    /// The frame that has begun was looked at.
    checked: bool,
}

/// The state of a connection that frames of several types change.
struct Rules {
    decoder: Decoder,
    /// Heads of requests that repeat.
    repeated: Heads,
    /// The newest stream of the client's.
    last_id: u32,
    /// Bytes that the client may send on all streams.
    receive: Window,
    waste: Account,
    /// Responses that it does not read.
    unread: Unread,
    leaving: Leaving,
    /// Streams that the client has reset with the frames that came, and that no line tells of yet:
    /// by the last frame it is known whether it resets one after the other.
    resets: Vec<(u32, ErrorCode)>,
    /// It has opened too many streams with these frames.
    is_excessive: bool,
    /// All resets, when the frames before these had come.
    judged: u64,
    /// The answer to the PING behind the first GOAWAY came.
    knows_leaving: bool,
    /// Requests whose bodies did not end with their heads. They begin behind the frames that came
    /// with them: a small body is whole then, and costs no wait. All requests of a suspect: those
    /// that it resets with these frames do not begin.
    open: VecDeque<Job>,
}

/// The parties that a frame may concern.
pub(super) struct Parties<'a, S, O> {
    pub mux: &'a Rc<Mux>,
    pub main: &'a Rc<HttpMain>,
    /// Runs a request; says whether it waits for something.
    pub start: S,
    /// A request has begun that waits: it may have cost a new connection to a server.
    pub has_waiting: bool,
    /// Whether other connections are to have their turns.
    pub is_over: O,
}

/// The frames of a page that were taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// All that were whole.
    All,
    /// Others, or requests of them, are to follow when other connections have had their turns.
    Part,
}

impl Receiver {
    pub fn new(mux: &Mux) -> Receiver {
        let core = &mux.c.server().core;
        let address = mux.with(|state| state.held.address().cloned());
        let did_flood = flooders::has(mux.c.client_ip());
        let block_max = core.large_headers();
        Receiver {
            // A field has room in one frame.
            reader: Reader::new(core.large_header_buffer_size, block_max.max(frame::FRAME_MAX))
                .with_data_max(DATA_MAX.min(mux.conf.preread as usize)),
            rules: Rules {
                decoder: Decoder::new(TABLE_SIZE),
                repeated: Heads::default(),
                last_id: 0,
                receive: Window::new(MAX),
                waste: Account::new(mux.conf.max_streams, address, did_flood),
                unread: Unread::new(mux.conf.max_streams),
                leaving: Leaving::No,
                resets: Vec::new(),
                is_excessive: false,
                judged: 0,
                knows_leaving: false,
                open: VecDeque::new(),
            },
            preface: 0,
            checked: false,
        }
    }

    /// Whether the preface came.
    pub fn is_greeted(&self) -> bool {
        self.preface == PREFACE.len()
    }

    /// A header block did not come whole in time: its stream is over, and the rest of the block is
    /// read and dropped. False where there is none, or that was so already.
    pub fn give_up_block(&mut self, page: &Page, mux: &Mux) -> bool {
        let Some(id) = self.reader.awaited(page) else { return false };
        if id <= self.rules.last_id || id.is_multiple_of(2) {
            return false;
        }
        self.rules.last_id = id;
        mux.with(|state| state.reset_id(id, ErrorCode::PROTOCOL_ERROR));
        true
    }

    /// Whether the client may be one that floods.
    pub fn is_suspect(&self) -> bool {
        self.rules.waste.is_suspect()
    }

    /// Whether fragments of a header block are missing.
    pub fn awaits_continuation(&self) -> bool {
        self.reader.awaits_continuation()
    }

    /// Whether a frame is not over.
    pub fn is_inside(&self) -> bool {
        self.reader.is_inside()
    }

    pub fn last_id(&self) -> u32 {
        self.rules.last_id
    }

    pub fn leaving(&self) -> Leaving {
        self.rules.leaving
    }

    pub(crate) fn set_leaving(&mut self, leaving: Leaving) {
        self.rules.leaving = leaving;
    }

    /// Whether a client that was told of the end has answered.
    pub(crate) fn knows_leaving(&self) -> bool {
        self.rules.knows_leaving
    }

    /// Gives back memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.reader.shrink();
        self.rules.open = VecDeque::new();
        self.rules.resets = Vec::new();
        self.rules.repeated = Heads::default();
    }

    /// Takes the frames in a page: all of them, unless it is other connections' turn.
    ///
    /// # Errors
    /// The connection is to end.
    pub fn frames<S: FnMut(Job) -> bool, O: Fn() -> bool>(
        &mut self,
        page: &mut Page,
        parties: &mut Parties<'_, S, O>,
    ) -> Result<Taken, Fault> {
        if self.preface < PREFACE.len() {
            let n = page.len().min(PREFACE.len() - self.preface);
            if page[..n] != PREFACE[self.preface..self.preface + n] {
                return protocol("invalid http2 connection preface");
            }
            self.preface += n;
            page.consume(n);
            if self.preface < PREFACE.len() {
                return Ok(Taken::All);
            }
        }
        let (mut used, mut frames) = (0, 0);
        let done = loop {
            let rest = page.filled().get(used..).unwrap_or_default();
            match self.reader.next(rest) {
                Ok(None) => break self.begun(rest).map(|()| Taken::All),
                Ok(Some((n, event))) => {
                    used += n;
                    if let Err(fault) = self.rules.take(event, parties) {
                        break Err(fault);
                    }
                    frames += 1;
                    // A body that is here comes to its request together with the head.
                    let before_data = rest.get(n + 3) == Some(&frame::kind::DATA);
                    let is_time = frames >= LOOK_EVERY || parties.has_waiting;
                    if is_time && n < rest.len() && !before_data {
                        if (parties.is_over)() {
                            break Ok(Taken::Part);
                        }
                        (frames, parties.has_waiting) = (0, false);
                    }
                }
                Err(fault) => break Err(fault),
            }
        };
        if used > 0 {
            self.checked = false;
        }
        page.consume(used);
        if self.rules.waste.resets > self.rules.judged {
            self.rules.judge_resets(parties.mux, &done);
        }
        if done.is_err() {
            parties.mux.with(|state| state.is_refused = true);
        }
        self.begin_open(done, parties)
    }

    /// Looks once at a header block that has begun and is not whole.
    fn begun(&mut self, buf: &[u8]) -> Result<(), Fault> {
        if std::mem::replace(&mut self.checked, true) {
            return Ok(());
        }
        let Some(block) = self.reader.begun_block(buf) else { return Ok(()) };
        Decoder::check_begun(block).map_err(undecodable)
    }

    /// Room that the next frame may need.
    pub fn room(&self) -> usize {
        frame::HEAD_LEN + self.reader.whole_max()
    }

    /// The longest payload of a frame that the client may send.
    pub fn frame_max(&self) -> usize {
        self.reader.frame_max()
    }
}

impl Rules {
    fn take<S: FnMut(Job) -> bool, O>(
        &mut self,
        event: Event<'_>,
        parties: &mut Parties<'_, S, O>,
    ) -> Result<(), Fault> {
        let mux = parties.mux;
        match event {
            Event::Headers { stream, end_stream, dependency, block } => {
                if dependency.is_some_and(|d| d.on == stream) {
                    return protocol("HEADERS frame for a stream with a dependency on itself");
                }
                return self.headers((stream, end_stream), dependency, block, parties);
            }
            Event::Data { stream, data, flow, whole, end_stream } => {
                if whole && flow == 0 && !end_stream {
                    self.waste.frame(base::time::now_ms())?;
                }
                return self.data(mux, (stream, end_stream), data, flow);
            }
            Event::WindowUpdate(stream, n) => return self.window_update(mux, stream, n),
            Event::Reset(stream, code) => return self.reset(mux, stream, code),
            _ => {}
        }
        // None of the others carries a request.
        self.waste.frame(base::time::now_ms())?;
        match event {
            // It should be the first frame; nginx does not insist.
            Event::Settings(payload) => mux.with(|state| settings(state, payload))?,
            Event::Ping(data) => {
                mux.with(|state| state.control(|w| frame::write_ping(w, &data, true)));
            }
            Event::PingAck(data) => {
                self.knows_leaving |= self.leaving == Leaving::Announced && data == LEAVING;
            }
            Event::Priority(stream, dependency) if dependency.on == stream => {
                return protocol("PRIORITY frame for a stream with a dependency on itself");
            }
            Event::Priority(stream, dependency) => mux.with(|state| {
                state.prioritize(stream, dependency, mux.conf.max_streams);
            }),
            Event::PriorityUpdate(stream, value) => mux.with(|state| {
                state.priority_update(stream, value, self.last_id, mux.conf.max_streams)
            })?,
            _ => {}
        }
        Ok(())
    }

    /// The frames that came have reset streams. When all of them were looked at, the log tells of
    /// that, unless the client resets one after the other, or is cut off now, which has a line of
    /// its own.
    #[cold]
    fn judge_resets(&mut self, mux: &Mux, done: &Result<Taken, Fault>) {
        let is_part = matches!(done, Ok(Taken::Part));
        let is_strained = is_part || self.waste.is_strained();
        mux.with(|state| state.is_strained = is_strained);
        if is_part {
            return;
        }
        self.judged = self.waste.resets;
        let goes_on = done.is_ok();
        let is_excessive = std::mem::take(&mut self.is_excessive) && goes_on;
        if is_excessive
            && !self.waste.is_strained()
            && told::is_due(mux.c.client_ip(), "concurrent streams")
        {
            let m = format_args!("concurrent streams exceeded {}", mux.conf.max_streams);
            mux.c.log(Level::Info, m);
        }
        for (id, code) in self.resets.drain(..) {
            match code {
                _ if !goes_on || !self.waste.tells() => {}
                ErrorCode::CANCEL => {
                    mux.c.log(Level::Info, format_args!("client canceled stream {id}"))
                }
                code => {
                    let m = format_args!("client terminated stream {id} with status {}", code.0);
                    mux.c.log(Level::Info, m);
                }
            }
        }
    }

    /// Ends a stream for a fault of the client's.
    fn fail(&mut self, state: &mut State, i: usize, code: ErrorCode) -> Result<(), Fault> {
        state.reset(i, code);
        Ok(self.waste.reset(base::time::now_ms())?)
    }

    fn window_update(&mut self, mux: &Mux, id: u32, n: u32) -> Result<(), Fault> {
        if n == 0 && id == 0 {
            return protocol("WINDOW_UPDATE frame with incorrect window increment 0");
        }
        if id > self.last_id || id > 0 && id.is_multiple_of(2) {
            return protocol("WINDOW_UPDATE frame for an idle stream");
        }
        mux.with(|state| {
            if id == 0 {
                return state.send.add(n).map_err(|_| {
                    let what = "WINDOW_UPDATE frame that exceeds the connection's window";
                    Fault::connection(ErrorCode::FLOW_CONTROL_ERROR, what)
                });
            }
            let Some(i) = state.find(id).filter(|i| !state.streams[*i].reset) else {
                // A client reads what it was sent, whether there is more to come or not.
                let left = state.unreturned.checked_sub(u64::from(n));
                state.unreturned = left.unwrap_or(0);
                return match left {
                    Some(_) => Ok(self.waste.update(n, base::time::now_ms())?),
                    None => Ok(self.waste.frame(base::time::now_ms())?),
                };
            };
            if n == 0 {
                return self.fail(state, i, ErrorCode::PROTOCOL_ERROR);
            }
            if state.streams[i].send.add(n).is_err() {
                return self.fail(state, i, ErrorCode::FLOW_CONTROL_ERROR);
            }
            state.may_send(i);
            Ok(self.waste.update(n, base::time::now_ms())?)
        })
    }

    fn reset(&mut self, mux: &Mux, id: u32, code: ErrorCode) -> Result<(), Fault> {
        if id > self.last_id || id.is_multiple_of(2) {
            return protocol("RST_STREAM frame for an idle stream");
        }
        let i = mux.with(|state| state.find(id).filter(|i| !state.streams[*i].reset));
        let Some(i) = i else {
            self.unread.reset_late();
            return Ok(self.waste.frame(base::time::now_ms())?);
        };
        if self.resets.len() < RESETS_TOLD {
            self.resets.push((id, code));
        }
        mux.with(|state| state.was_reset(i));
        Ok(self.waste.reset(base::time::now_ms())?)
    }
}

fn settings(state: &mut State, payload: &[u8]) -> Result<(), Fault> {
    let old = state.peer;
    state.peer.take(payload)?;
    if state.peer.header_table != old.header_table {
        state.encoder.set_limit(state.peer.header_table as usize);
    }
    if state.peer.window != old.window
        && state.resize_windows(old.window, state.peer.window).is_err()
    {
        let what = "SETTINGS frame that exceeds a stream's window";
        return Err(Fault::connection(ErrorCode::FLOW_CONTROL_ERROR, what));
    }
    if state.peer.no_tree {
        state.fell();
    }
    state.control(frame::write_settings_ack);
    Ok(())
}

#[cold]
fn undecodable(e: HpackError) -> Fault {
    let code = match e {
        // As nginx has it; the specification knows one code for all faults.
        HpackError::CutInteger => ErrorCode::FRAME_SIZE_ERROR,
        _ => ErrorCode::COMPRESSION_ERROR,
    };
    Fault::connection(code, e.message())
}

/// A fault that ends the connection with PROTOCOL_ERROR.
#[cold]
pub(super) fn protocol<T>(what: &'static str) -> Result<T, Fault> {
    Err(Fault::connection(ErrorCode::PROTOCOL_ERROR, what))
}
