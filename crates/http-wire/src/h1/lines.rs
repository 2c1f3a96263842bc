//! Field lines, one after the other; for requests, responses and trailers.
//!
//! ```text
//! Start ──name byte──► Name ──:──► BeforeValue ──► Value ──CR──► Cr ──LF──► (field) Start
//!   │ CR
//!   └──► EndCr ──LF──► (end)             LF alone ends a line as well, as in nginx
//! ```

use super::head::Span;
use super::scan::{name, value_end};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Start,
    Name,
    BeforeValue,
    Value,
    Cr,
    EndCr,
    /// Within a line that is passed over.
    Skipped,
}

/// A field line as found; names are not looked up yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RawField {
    pub name: Span,
    pub value: Span,
    pub invalid: bool,
    pub underscore: bool,
}

/// The next part of a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    /// A field; the position is behind its line end.
    Field(RawField),
    /// The empty line that ends the head; the position is behind it.
    End,
    /// The bytes ended first.
    More,
    /// A byte at the position (of the result) cannot stand there; the line was sound up to `sound`.
    Bad { sound: usize },
}

/// The state within a line. The default is the start of one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lines {
    state: State,
    /// Of a response: lines that begin with `HTTP/` are passed over, because some servers send
    /// their status line twice.
    response: bool,
    start: u32,
    field: RawField,
}

impl Lines {
    /// The field lines of a response.
    pub(crate) fn of_response() -> Lines {
        Lines { response: true, ..Lines::default() }
    }

    /// Offset of the first byte of the line that was begun last.
    #[inline]
    pub(crate) fn start(&self) -> usize {
        self.start as usize
    }

    /// Makes `start` the start of a line, for callers that keep no position of their own.
    pub(crate) fn begin(&mut self, start: usize) {
        *self = Lines { start: start as u32, response: self.response, ..Lines::default() };
    }

    /// Continues at `pos`, and moves it.
    #[inline]
    pub(crate) fn next(&mut self, buf: &[u8], pos: &mut usize) -> Line {
        if self.state == State::Start {
            self.start = *pos as u32;
            if let Some((field, next)) = whole_line(buf, *pos)
                && !(self.response && field.invalid)
            {
                *pos = next;
                return Line::Field(field);
            }
        }
        self.step(buf, pos)
    }

    /// Byte by byte: lines that are not complete, the end of the head, and everything that is
    /// wrong.
    fn step(&mut self, buf: &[u8], pos: &mut usize) -> Line {
        while let Some(&byte) = buf.get(*pos) {
            match self.state {
                State::Start => match byte {
                    b'\r' => self.state = State::EndCr,
                    b'\n' => return self.finish(pos, Line::End),
                    b':' => return Line::Bad { sound: *pos },
                    _ => {
                        self.field = RawField::default();
                        self.field.name.start = *pos as u32;
                        self.state = State::Name;
                        continue;
                    }
                },
                State::Name => match name::CLASS[byte as usize] {
                    name::VALID => {}
                    name::UNDERSCORE => self.field.underscore = true,
                    name::INVALID if byte == b'/' && self.repeats_status_line(buf, *pos) => {
                        self.state = State::Skipped
                    }
                    name::INVALID => self.field.invalid = true,
                    name::COLON => {
                        self.field.name.end = *pos as u32;
                        self.field.value = Span::new(*pos + 1, *pos + 1);
                        self.state = State::BeforeValue;
                    }
                    // A line without a colon is malformed (RFC 9112 section 5), and dangerous,
                    // because a server behind us may read it as part of another field.
                    _ => return Line::Bad { sound: *pos },
                },
                State::BeforeValue if is_space(byte) => {}
                State::BeforeValue => {
                    self.field.value = Span::new(*pos, *pos);
                    self.state = State::Value;
                    continue;
                }
                State::Value => {
                    *pos = value_end(buf, *pos);
                    match buf.get(*pos) {
                        None => return Line::More,
                        Some(b'\0') => return Line::Bad { sound: *pos },
                        Some(end) => {
                            let start = self.field.value.start as usize;
                            self.field.value = trim_end(buf, start, *pos);
                            if *end == b'\n' {
                                return self.finish(pos, Line::Field(self.field));
                            }
                            self.state = State::Cr;
                        }
                    }
                }
                State::Skipped => {
                    if byte == b'\n' {
                        self.state = State::Start;
                        self.start = *pos as u32 + 1;
                    }
                }
                State::Cr if byte == b'\n' => return self.finish(pos, Line::Field(self.field)),
                State::EndCr if byte == b'\n' => return self.finish(pos, Line::End),
                State::Cr => return Line::Bad { sound: self.field.value.end as usize },
                State::EndCr => return Line::Bad { sound: self.start as usize },
            }
            *pos += 1;
        }
        Line::More
    }

    fn repeats_status_line(&self, buf: &[u8], slash: usize) -> bool {
        self.response && buf.get(self.start()..slash) == Some(b"HTTP")
    }

    fn finish(&mut self, pos: &mut usize, line: Line) -> Line {
        *pos += 1;
        self.state = State::Start;
        line
    }
}

/// A line that lies complete in the buffer and has no fault.
#[inline]
fn whole_line(buf: &[u8], start: usize) -> Option<(RawField, usize)> {
    let (len, is_plain) = name::find(buf.get(start..)?)?;
    let mut at = start + len;
    let seen = if is_plain { name::VALID } else { classes(buf.get(start..at)?) };
    if seen >= name::COLON || len == 0 {
        return None;
    }
    let name = Span::new(start, at);
    at += 1;
    while is_space(*buf.get(at)?) {
        at += 1;
    }
    let end = value_end(buf, at);
    let next = match buf.get(end)? {
        b'\n' => end + 1,
        b'\r' if *buf.get(end + 1)? == b'\n' => end + 2,
        _ => return None,
    };
    let value = trim_end(buf, at, end);
    let underscore = seen & name::UNDERSCORE != 0;
    let invalid = seen & name::INVALID != 0;
    Some((RawField { name, value, invalid, underscore }, next))
}

/// The classes of all bytes together.
fn classes(name: &[u8]) -> u8 {
    name.iter().fold(name::VALID, |seen, byte| seen | name::CLASS[usize::from(*byte)])
}

/// Whether a byte is of the optional whitespace around a value (RFC 9110 section 5.6.3).
#[inline]
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// `start..end` without the whitespace at its end.
#[inline]
fn trim_end(buf: &[u8], start: usize, mut end: usize) -> Span {
    while end > start && buf.get(end - 1).is_some_and(|byte| is_space(*byte)) {
        end -= 1;
    }
    Span::new(start, end)
}
