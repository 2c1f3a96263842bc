//! The frames of a peer's control stream (RFC 9114 section 6.2.1).
//!
//! Its first frame is SETTINGS, which does not come again. Frames are given out whole; those of
//! types that are unknown are skipped, whatever their length.

use super::frame::{FrameHead, Gathered, Place, kind};
use super::settings::Settings;
use super::{Code, Fault, Role, varint};

/// The longest frame that is taken: some settings, or the value of a `Priority` field.
pub const FRAME_MAX: u64 = 4096;

/// An event on a control stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// The bytes are used up.
    More,
    /// The peer's settings.
    Settings(Settings),
    /// GOAWAY. Of a server's: requests on streams from this one on are not processed. Of a
    /// client's: pushes are not.
    GoAway(u64),
    /// PRIORITY_UPDATE for the request on a stream, and the value of its `Priority` field. The
    /// stream may not be open yet; whether it ever may be is for the caller to say (ID_ERROR).
    PriorityUpdate(u64, &'a [u8]),
    /// A frame that says nothing: MAX_PUSH_ID, as nothing is pushed, or one of an unknown type.
    Nothing,
}

/// The part of a frame that the next bytes belong to.
#[derive(Clone, Copy, Debug)]
enum State {
    Head,
    Frame(u64),
    Skipped,
}

/// Reads a control stream, behind its type.
#[derive(Debug)]
pub struct Reader {
    role: Role,
    state: State,
    place: Place,
    gathered: Gathered,
    has_settings: bool,
    /// The last GOAWAY's and MAX_PUSH_ID's.
    goaway: Option<u64>,
    max_push: Option<u64>,
}

impl Reader {
    /// A reader; `role` is ours.
    pub fn new(role: Role) -> Reader {
        Reader {
            role,
            state: State::Head,
            place: Place::default(),
            gathered: Gathered::default(),
            has_settings: false,
            goaway: None,
            max_push: None,
        }
    }

    /// Reads on: the bytes of `input` that it takes, and what they are.
    ///
    /// # Errors
    /// The connection ends.
    pub fn next<'a>(&'a mut self, input: &'a [u8]) -> Result<(usize, Event<'a>), Fault> {
        let mut used = 0;
        if let State::Head = self.state {
            let (taken, Some(head)) = self.place.head(input) else {
                return Ok((input.len(), Event::More));
            };
            used = taken;
            self.begin(head)?;
            if let State::Skipped = self.state {
                return Ok((used, Event::Nothing));
            }
        }
        let rest = input.get(used..).unwrap_or_default();
        let State::Frame(kind) = self.state else { return self.skip(input) };
        let (taken, payload) = self.gathered.take(&mut self.place, rest);
        let Some(payload) = payload else { return Ok((input.len(), Event::More)) };
        self.state = State::Head;
        let ids = (&mut self.goaway, &mut self.max_push);
        Ok((used + taken, event(self.role, kind, payload, ids)?))
    }

    /// Skips a frame, and reads what is behind it.
    fn skip<'a>(&'a mut self, input: &'a [u8]) -> Result<(usize, Event<'a>), Fault> {
        let taken = self.place.payload(input);
        if self.place.left > 0 {
            return Ok((taken, Event::More));
        }
        self.state = State::Head;
        let (more, event) = self.next(input.get(taken..).unwrap_or_default())?;
        Ok((taken + more, event))
    }

    /// Looks at a frame's head.
    fn begin(&mut self, head: FrameHead) -> Result<(), Fault> {
        self.gathered.begin();
        let FrameHead { kind, len } = head;
        if !self.has_settings && kind != kind::SETTINGS {
            let what = "a control stream that does not begin with SETTINGS";
            return Err(Fault::connection(Code::MissingSettings, what));
        }
        let is_of_client = matches!(
            kind,
            kind::MAX_PUSH_ID | kind::PRIORITY_UPDATE | kind::PRIORITY_UPDATE_OF_PUSH
        );
        self.state = match kind {
            kind::SETTINGS if self.has_settings => return unexpected("a second SETTINGS frame"),
            kind::DATA | kind::HEADERS | kind::PUSH_PROMISE => {
                return unexpected("a frame of requests on control stream");
            }
            _ if kind::OF_HTTP_2.contains(&kind) => return unexpected("a frame of HTTP/2"),
            _ if is_of_client && self.role == Role::Client => {
                return unexpected("a frame that only clients may send");
            }
            kind::SETTINGS | kind::GOAWAY | kind::CANCEL_PUSH => State::Frame(kind),
            _ if is_of_client => State::Frame(kind),
            _ => State::Skipped,
        };
        self.has_settings = true;
        if len > FRAME_MAX && !matches!(self.state, State::Skipped) {
            return Err(Fault::connection(Code::ExcessiveLoad, "too large frame"));
        }
        Ok(())
    }

    /// The fault of a control stream's end, or of its reset.
    pub fn end(&self) -> Fault {
        super::stream::CLOSED
    }
}

/// Reads a frame. `ids`: the last GOAWAY's and MAX_PUSH_ID's.
fn event<'a>(
    role: Role,
    kind: u64,
    payload: &'a [u8],
    ids: (&mut Option<u64>, &mut Option<u64>),
) -> Result<Event<'a>, Fault> {
    if kind == kind::SETTINGS {
        return Settings::parse(payload).map(Event::Settings);
    }
    let mut rest = payload;
    let Some(id) = varint::take(&mut rest) else { return cut() };
    if !matches!(kind, kind::PRIORITY_UPDATE | kind::PRIORITY_UPDATE_OF_PUSH) && !rest.is_empty() {
        return cut();
    }
    match kind {
        kind::GOAWAY => {
            let is_request = id.is_multiple_of(4);
            if role == Role::Client && !is_request || ids.0.is_some_and(|last| id > last) {
                return identifier("GOAWAY frame with incorrect identifier");
            }
            *ids.0 = Some(id);
            Ok(Event::GoAway(id))
        }
        kind::MAX_PUSH_ID => {
            if ids.1.is_some_and(|last| id < last) {
                return identifier("MAX_PUSH_ID frame with a smaller identifier");
            }
            *ids.1 = Some(id);
            Ok(Event::Nothing)
        }
        kind::PRIORITY_UPDATE if id.is_multiple_of(4) => Ok(Event::PriorityUpdate(id, rest)),
        kind::PRIORITY_UPDATE => identifier("PRIORITY_UPDATE frame with incorrect identifier"),
        // Nothing was promised, and nothing may be.
        _ => identifier("a frame for a push that was not promised"),
    }
}

#[cold]
fn unexpected<T>(what: &'static str) -> Result<T, Fault> {
    Err(Fault::connection(Code::FrameUnexpected, what))
}

#[cold]
fn identifier<T>(what: &'static str) -> Result<T, Fault> {
    Err(Fault::connection(Code::IdError, what))
}

#[cold]
fn cut<T>() -> Result<T, Fault> {
    Err(Fault::connection(Code::FrameError, "a frame with incorrect length"))
}
