//! The frames of a request or a response (RFC 9114 section 4.1).
//!
//! ```text
//!            ┌─ interim() ─┐             (a client's reader alone)
//!            v             │
//!   Start ─ HEADERS ──> Body ─ HEADERS ──> Trailers     unknown frames anywhere
//!                       DATA*
//! ```
//!
//! A section is given out whole, from the caller's bytes where it lies there in one piece. Data is
//! left to the caller: the reader only says how much of the bytes it is.

use super::frame::{FrameHead, Gathered, Place, kind};
use super::{Code, Fault, Role};

/// An event on a stream of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// The bytes are used up.
    More,
    /// The section of a head.
    Head(&'a [u8]),
    /// So many bytes of data, one at least: they follow those that were used, and the caller takes
    /// them before it reads on.
    Data(usize),
    /// The section of trailers.
    Trailers(&'a [u8]),
    /// A frame that brings nothing: DATA without any, or one of an unknown type.
    Nothing,
    /// The section of a request's head is too large. Its bytes are passed over.
    Excess,
}

/// The part of a message that may come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// A head.
    Start,
    /// Data, or trailers.
    Body,
    /// Data alone: a tunnel.
    Tunnel,
    /// Nothing but unknown frames.
    Trailers,
}

/// The part of a frame that the next bytes belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Head,
    Section,
    Data,
    Skipped,
}

/// Reads the message that the peer sends on a stream.
#[derive(Debug)]
pub struct Reader {
    role: Role,
    part: Part,
    state: State,
    place: Place,
    gathered: Gathered,
    section_max: u64,
}

type Read<'a> = Result<(usize, Event<'a>), Fault>;

impl Reader {
    /// A reader; `role` is ours. Sections of more than `section_max` bytes are refused; those of
    /// heads of requests are passed over.
    pub fn new(role: Role, section_max: usize) -> Reader {
        Reader {
            role,
            part: Part::Start,
            state: State::Head,
            place: Place::default(),
            gathered: Gathered::default(),
            section_max: section_max as u64,
        }
    }

    /// Reads on: the bytes of `input` that it takes, and what they are.
    ///
    /// # Errors
    /// The stream ends, or the connection.
    #[inline]
    pub fn next<'a>(&'a mut self, input: &'a [u8]) -> Read<'a> {
        let mut used = 0;
        loop {
            let rest = input.get(used..).unwrap_or_default();
            if self.state == State::Head {
                let (taken, Some(head)) = self.place.head(rest) else {
                    return Ok((input.len(), Event::More));
                };
                used += taken;
                self.begin(head)?;
                if self.state == State::Skipped && head.kind == kind::HEADERS {
                    self.settle();
                    return Ok((used, Event::Excess));
                }
                if self.state == State::Skipped || head.kind == kind::DATA && head.len == 0 {
                    self.settle();
                    return Ok((used, Event::Nothing));
                }
                continue;
            }
            if self.state == State::Section {
                return self.section(input, used);
            }
            let taken = self.place.payload(rest);
            let is_data = self.state == State::Data;
            self.settle();
            if taken == 0 {
                return Ok((input.len(), Event::More));
            }
            if is_data {
                return Ok((used, Event::Data(taken)));
            }
            used += taken;
        }
    }

    /// The present frame is over.
    fn settle(&mut self) {
        if self.place.left == 0 {
            self.state = State::Head;
        }
    }

    fn section<'a>(&'a mut self, input: &'a [u8], used: usize) -> Read<'a> {
        let rest = input.get(used..).unwrap_or_default();
        let (taken, section) = self.gathered.take(&mut self.place, rest);
        let Some(section) = section else { return Ok((input.len(), Event::More)) };
        self.state = State::Head;
        let event = match self.part {
            Part::Trailers => Event::Trailers(section),
            _ => Event::Head(section),
        };
        if let Part::Start = self.part {
            self.part = Part::Body;
        }
        Ok((used + taken, event))
    }

    /// Looks at a frame's head.
    fn begin(&mut self, head: FrameHead) -> Result<(), Fault> {
        self.gathered.begin();
        let FrameHead { kind, len } = head;
        self.state = match kind {
            kind::DATA => {
                if !matches!(self.part, Part::Body | Part::Tunnel) {
                    return unexpected("unexpected DATA frame");
                }
                State::Data
            }
            kind::HEADERS => {
                match self.part {
                    Part::Start => {}
                    Part::Body => self.part = Part::Trailers,
                    Part::Tunnel | Part::Trailers => return unexpected("unexpected HEADERS frame"),
                }
                State::Section
            }
            kind::PUSH_PROMISE if self.role == Role::Client => {
                return Err(Fault::connection(Code::IdError, "a push that was not allowed"));
            }
            kind::CANCEL_PUSH
            | kind::SETTINGS
            | kind::PUSH_PROMISE
            | kind::GOAWAY
            | kind::MAX_PUSH_ID
            | kind::PRIORITY_UPDATE
            | kind::PRIORITY_UPDATE_OF_PUSH => {
                return unexpected("a frame of the connection on request stream");
            }
            _ if kind::OF_HTTP_2.contains(&kind) => return unexpected("a frame of HTTP/2"),
            _ => State::Skipped,
        };
        if self.state == State::Section {
            if len == 0 {
                // Its prefix is missing.
                return Err(Fault::connection(Code::FrameError, "HEADERS frame of no length"));
            }
            if len > self.section_max && self.role == Role::Server && self.part == Part::Start {
                (self.part, self.state) = (Part::Body, State::Skipped);
            } else if len > self.section_max {
                return Err(Fault::stream(Code::ExcessiveLoad, "too large header"));
            }
        }
        Ok(())
    }

    /// The last head was that of an interim response: another one follows.
    pub fn interim(&mut self) {
        if self.part == Part::Body {
            self.part = Part::Start;
        }
    }

    /// The stream is a tunnel from here on, in which nothing but DATA may come (RFC 9114 section
    /// 4.4).
    pub fn tunnel(&mut self) {
        self.part = Part::Tunnel;
    }

    /// Bytes of memory that the beginning of a section holds.
    pub fn memory(&self) -> usize {
        self.gathered.memory()
    }

    /// Whether a head has come, or the beginning of one.
    pub fn has_begun(&self) -> bool {
        self.part != Part::Start || self.state == State::Section
    }

    /// The stream has ended, and was not reset.
    ///
    /// # Errors
    /// The end is inside a frame, or before a head.
    pub fn end(&self) -> Result<(), Fault> {
        if self.place.is_inside() {
            return Err(Fault::connection(Code::FrameError, "a stream that ends inside a frame"));
        }
        if self.part != Part::Start {
            return Ok(());
        }
        let code = match self.role {
            Role::Server => Code::RequestIncomplete,
            Role::Client => Code::MessageError,
        };
        Err(Fault::stream(code, "a stream that ends before a head"))
    }
}

#[cold]
fn unexpected(what: &'static str) -> Result<(), Fault> {
    Err(Fault::connection(Code::FrameUnexpected, what))
}
