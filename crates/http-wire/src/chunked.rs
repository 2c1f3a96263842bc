//! The chunked transfer coding (RFC 9112 section 7.1): body data as ranges of the caller's buffer.
//!
//! ```text
//! Size ─► Digits ─► Extension ─► SizeLf ─► Data ─► DataCr ─► DataLf ─► Size …
//!                       (size 0)   └─► Trailer ─► TrailerText ─► TrailerLf ─► Trailer …
//!                                         └─► LastLf ─► (done)
//! ```
//!
//! Line ends are CR LF and nothing else, as in nginx 1.31: a bare LF or CR anywhere in the framing
//! is refused, because request smuggling is made of parties that read it differently. Limits that
//! nginx does not have: the length of a size line, the trailers, and framing with next to no data.

use crate::h1::{Line, Lines, RawField};
use crate::uri::hex_digit;
use std::ops::Range;

/// Bytes of a size line at most, extensions included.
const SIZE_LINE_MAX: u32 = 4096;

/// Bytes of framing beyond the allowance for the data.
const OVERHEAD_MAX: u64 = 16 * 1024;

/// Framing that each chunk has for free.
const OVERHEAD_FREE: u64 = 16;

/// The largest chunk: nginx stops counting one digit before a file offset would overflow.
const SIZE_MAX: u64 = i64::MAX as u64 / 16;

/// The treatment of trailer fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Trailers {
    /// Check their line ends and forget them.
    #[default]
    Discard,
    /// Parse and keep them, see [`Decoder::trailers`].
    Keep,
}

/// Why a body was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkedError {
    /// A byte out of place, or a size that is too large.
    Invalid,
    /// Extensions, tiny chunks or trailers beyond the limits.
    TooMuchFraming,
}

/// The next part of a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A piece of the body: this range of the buffer; never empty.
    Data(Range<usize>),
    /// The buffer is used up, the body continues.
    More,
    /// The body is complete; the position is behind it.
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum ChunkState {
    #[default]
    Size,
    Digits,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailer,
    TrailerName,
    TrailerText,
    TrailerLf,
    LastLf,
    Fields,
    Done,
}

/// Decodes one body. Buffers may differ from call to call: nothing of a buffer is kept, except
/// requested trailers.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    state: ChunkState,
    keep: Trailers,
    /// Of the current chunk: the size read so far, then the bytes still to come.
    size: u64,
    /// Bytes of the current size line.
    line: u32,
    overhead: u64,
    trailer_bytes: u32,
    trailer_max: u32,
    kept: Vec<u8>,
    lines: Lines,
    fields: Vec<RawField>,
}

impl Decoder {
    /// A decoder at the start of a body. Trailers may take `trailer_max` bytes.
    pub fn new(keep: Trailers, trailer_max: u32) -> Decoder {
        Decoder { keep, trailer_max, ..Decoder::default() }
    }

    /// Continues at `pos` of `buf` and moves it. Call until `More` or `Done`.
    pub fn next(&mut self, buf: &[u8], pos: &mut usize) -> Result<Event, ChunkedError> {
        while *pos < buf.len() {
            match self.state {
                ChunkState::Data => {
                    let there = buf.len() - *pos;
                    let len = usize::try_from(self.size).map_or(there, |size| size.min(there));
                    let range = *pos..*pos + len;
                    *pos = range.end;
                    self.size -= len as u64;
                    if self.size == 0 {
                        self.state = ChunkState::DataCr;
                    }
                    return Ok(Event::Data(range));
                }
                ChunkState::Fields => self.fields(buf, pos)?,
                ChunkState::Done => return Ok(Event::Done),
                _ => {
                    let Some(&byte) = buf.get(*pos) else { break };
                    *pos += 1;
                    self.framing(byte)?;
                }
            }
        }
        Ok(if self.state == ChunkState::Done { Event::Done } else { Event::More })
    }

    /// True when the whole body was read.
    pub fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Bytes of data that the current chunk still has to come; 0 between chunks, and while the size
    /// line is not complete.
    pub fn chunk_left(&self) -> u64 {
        if self.state == ChunkState::Data { self.size } else { 0 }
    }

    /// The least number of bytes still to come: so many can be read without those behind the body.
    pub fn wanted(&self) -> u64 {
        // "CR LF 0 CR LF CR LF" ends a body that has data to come.
        const END: u64 = 7;
        match self.state {
            ChunkState::Size => 5,
            ChunkState::Digits | ChunkState::Extension if self.size == 0 => 4,
            ChunkState::Digits | ChunkState::Extension => 2 + self.size + END,
            ChunkState::SizeLf if self.size == 0 => 3,
            ChunkState::SizeLf => 1 + self.size + END,
            ChunkState::Data => self.size + END,
            ChunkState::DataCr => END,
            ChunkState::DataLf => END - 1,
            ChunkState::TrailerName => 5,
            ChunkState::TrailerText => 4,
            ChunkState::TrailerLf => 3,
            ChunkState::Trailer => 2,
            ChunkState::Fields => match self.kept.get(self.lines.start()..) {
                None | Some([]) => 2,
                Some([b'\r']) => 1,
                Some([.., b'\r']) => 3,
                Some(_) => 4,
            },
            ChunkState::LastLf => 1,
            ChunkState::Done => 0,
        }
    }

    /// The trailer fields, name and value, once the body is complete and if they were requested.
    pub fn trailers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (field.name.of(&self.kept), field.value.of(&self.kept)))
    }

    fn framing(&mut self, byte: u8) -> Result<(), ChunkedError> {
        self.state = match (self.state, byte) {
            (ChunkState::Size, _) => {
                self.line = 0;
                self.size = u64::from(hex_digit(byte).ok_or(ChunkedError::Invalid)?);
                ChunkState::Digits
            }
            (ChunkState::Digits, _) => self.digit(byte)?,
            (ChunkState::Extension, b'\r') => ChunkState::SizeLf,
            (ChunkState::Extension, b'\n') => return Err(ChunkedError::Invalid),
            (ChunkState::Extension, _) => ChunkState::Extension,
            (ChunkState::SizeLf, b'\n') => return self.size_line(),
            (ChunkState::DataCr, b'\r') => ChunkState::DataLf,
            (ChunkState::DataLf, b'\n') => ChunkState::Size,
            (ChunkState::Trailer, b'\r') => ChunkState::LastLf,
            (ChunkState::TrailerText, b'\r') => ChunkState::TrailerLf,
            // Each of these lines has a name and a colon, though nobody keeps them.
            (ChunkState::Trailer, b'\n' | b':')
            | (ChunkState::TrailerName, b'\r' | b'\n')
            | (ChunkState::TrailerText, b'\n') => return Err(ChunkedError::Invalid),
            (ChunkState::TrailerName, b':') | (ChunkState::TrailerText, _) => {
                ChunkState::TrailerText
            }
            (ChunkState::Trailer | ChunkState::TrailerName, _) => ChunkState::TrailerName,
            (ChunkState::TrailerLf, b'\n') => ChunkState::Trailer,
            (ChunkState::LastLf, b'\n') => ChunkState::Done,
            _ => return Err(ChunkedError::Invalid),
        };
        match self.state {
            ChunkState::Digits | ChunkState::Extension | ChunkState::SizeLf => {
                self.line += 1;
                if self.line > SIZE_LINE_MAX {
                    return Err(ChunkedError::TooMuchFraming);
                }
            }
            ChunkState::TrailerName | ChunkState::TrailerText | ChunkState::TrailerLf => {
                self.trailer_byte()?;
            }
            _ => {}
        }
        Ok(())
    }

    fn digit(&mut self, byte: u8) -> Result<ChunkState, ChunkedError> {
        if self.size > SIZE_MAX {
            return Err(ChunkedError::Invalid);
        }
        if let Some(digit) = hex_digit(byte) {
            self.size = self.size * 16 + u64::from(digit);
            return Ok(ChunkState::Digits);
        }
        match byte {
            b'\r' => Ok(ChunkState::SizeLf),
            b';' | b' ' | b'\t' => Ok(ChunkState::Extension),
            _ => Err(ChunkedError::Invalid),
        }
    }

    /// A size line is complete.
    fn size_line(&mut self) -> Result<(), ChunkedError> {
        self.state = match (self.size, self.keep) {
            (0, Trailers::Discard) => ChunkState::Trailer,
            (0, Trailers::Keep) => ChunkState::Fields,
            _ => ChunkState::Data,
        };
        // Framing is paid for by data: a body of one-byte chunks with long extensions makes the
        // reader work a thousand times harder than the sender's body limit suggests.
        let paid = OVERHEAD_FREE.saturating_add(self.size.saturating_mul(2));
        self.overhead = (self.overhead + u64::from(self.line)).saturating_sub(paid);
        if self.overhead > OVERHEAD_MAX { Err(ChunkedError::TooMuchFraming) } else { Ok(()) }
    }

    fn trailer_byte(&mut self) -> Result<(), ChunkedError> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > self.trailer_max {
            Err(ChunkedError::TooMuchFraming)
        } else {
            Ok(())
        }
    }

    /// Copies trailer lines that are kept to a buffer of their own, and parses them there.
    fn fields(&mut self, buf: &[u8], pos: &mut usize) -> Result<(), ChunkedError> {
        while let Some(&byte) = buf.get(*pos) {
            *pos += 1;
            if byte != b'\n' && self.kept.last() == Some(&b'\r') {
                return Err(ChunkedError::Invalid);
            }
            self.kept.push(byte);
            self.trailer_bytes = self.trailer_bytes.saturating_add(1);
            if byte != b'\n' {
                if self.trailer_bytes > self.trailer_max.saturating_add(2) {
                    return Err(ChunkedError::TooMuchFraming);
                }
                continue;
            }
            if !self.kept.ends_with(b"\r\n") {
                return Err(ChunkedError::Invalid);
            }
            let mut at = self.lines.start();
            match self.lines.next(&self.kept, &mut at) {
                Line::Field(field) => {
                    self.fields.push(field);
                    self.lines.begin(at);
                }
                Line::End => {
                    self.state = ChunkState::Done;
                    return Ok(());
                }
                Line::More | Line::Bad { .. } => return Err(ChunkedError::Invalid),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Outcome = (Result<bool, ChunkedError>, String, usize, Vec<(String, String)>);

    /// Decodes `body` given in pieces that end at `cuts`.
    fn decode(body: &[u8], cuts: &[usize], keep: Trailers) -> Outcome {
        let mut decoder = Decoder::new(keep, 64);
        let (mut data, mut taken, mut from) = (Vec::new(), 0, 0);
        let mut result = Ok(false);
        'pieces: for &cut in cuts.iter().chain([&body.len()]) {
            // A piece has a buffer of its own, as if the one before was given back.
            let piece = body[from..cut].to_vec();
            let mut pos = 0;
            loop {
                let wanted = decoder.wanted();
                match decoder.next(&piece, &mut pos) {
                    Ok(Event::Data(range)) => {
                        assert!(!range.is_empty());
                        assert!(wanted > 0);
                        data.extend_from_slice(&piece[range]);
                    }
                    Ok(Event::More) => break,
                    Ok(Event::Done) => {
                        result = Ok(true);
                        taken = from + pos;
                        break 'pieces;
                    }
                    Err(error) => {
                        result = Err(error);
                        break 'pieces;
                    }
                }
            }
            from = cut;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let trailers = decoder.trailers().map(|(n, v)| (text(n), text(v))).collect();
        (result, text(&data), taken, trailers)
    }

    fn check(body: &[u8], keep: Trailers) -> Outcome {
        let want = decode(body, &[], keep);
        for cut in 0..=body.len() {
            assert_eq!(decode(body, &[cut], keep), want, "cut at {cut}: {body:?}");
        }
        let each: Vec<usize> = (0..body.len()).collect();
        assert_eq!(decode(body, &each, keep), want, "byte by byte: {body:?}");
        want
    }

    #[test]
    fn bodies() {
        for (body, data, rest) in [
            ("0\r\n\r\n", "", 0),
            ("5\r\nhello\r\n0\r\n\r\nGET /", "hello", 5),
            ("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", "hello world", 0),
            ("A\r\n0123456789\r\n0\r\n\r\n", "0123456789", 0),
            ("a\r\n0123456789\r\n000\r\n\r\n", "0123456789", 0),
            ("00000005;x=y;z=\"a\"\r\nhello\r\n0 ;e\r\n\r\n", "hello", 0),
            ("5\t\r\nhello\r\n0\t\r\n\r\n", "hello", 0),
            ("2\r\n\r\n\r\n0\r\n\r\n", "\r\n", 0),
            ("1\r\na\r\n0\r\nX-A: b\r\nC: d\r\n\r\nrest", "a", 4),
        ] {
            for keep in [Trailers::Discard, Trailers::Keep] {
                let got = check(body.as_bytes(), keep);
                assert_eq!(got.0, Ok(true), "{body:?}");
                assert_eq!((got.1.as_str(), got.2), (data, body.len() - rest), "{body:?}");
            }
        }
    }

    #[test]
    fn refused() {
        for body in [
            "\r\n",
            "x",
            "g\r\n",
            "-1\r\n",
            "+5\r\nhello",
            "0x5\r\nhello",
            " 5\r\nhello",
            ";\r\n",
            "5\nhello",
            "5\rhello",
            "5\r\r\nhello",
            "5;a\nhello",
            "5;a\rb\r\nhello",
            "5,\r\nhello",
            "5\r\nhello0\r\n\r\n",
            "5\r\nhello\n0\r\n\r\n",
            "5\r\nhello\r0\r\n\r\n",
            "5\r\nhello\r\n\r\n0\r\n\r\n",
            "5\r\nhello\r\n0\n\r\n",
            "0\r\n\n",
            "0\r\n\r\r",
            "0\r\na\n",
            "0\r\na: b\rc\r\n\r\n",
            "0;\n",
            "0;a\n\r\n",
            "8000000000000000\r\n",
            "800000000000000\r\n",
            "ffffffffffffffffffff\r\n",
            "10000000000000005\r\nhello",
        ] {
            for keep in [Trailers::Discard, Trailers::Keep] {
                assert_eq!(check(body.as_bytes(), keep).0, Err(ChunkedError::Invalid), "{body:?}");
            }
        }
        for body in ["0\r\n: a\r\n\r\n", "0\r\na b: c\r\n\r\n", "0\r\na: \0\r\n\r\n"] {
            let got = check(body.as_bytes(), Trailers::Keep).0;
            assert_eq!(got, Err(ChunkedError::Invalid), "{body:?}");
        }
    }

    #[test]
    fn the_largest_size_is_waited_for() {
        let got = check(b"7ffffffffffffff\r\nab", Trailers::Discard);
        assert_eq!((got.0, got.1.as_str()), (Ok(false), "ab"));
    }

    #[test]
    fn trailers_are_kept_when_asked_for() {
        let body = b"1\r\na\r\n0\r\nX-Sum:  1 2 \r\nempty:\r\n\r\n";
        let want = [("X-Sum".to_owned(), "1 2".to_owned()), ("empty".to_owned(), String::new())];
        assert_eq!(check(body, Trailers::Keep).3, want);
        assert!(check(body, Trailers::Discard).3.is_empty());
        for line in ["a\r\n", "a: b\r\nc\r\n", ": a\r\n", "a\n", "a: b\n"] {
            let body = format!("0\r\n{line}\r\n");
            for keep in [Trailers::Discard, Trailers::Keep] {
                let got = decode(body.as_bytes(), &[], keep).0;
                assert_eq!(got, Err(ChunkedError::Invalid), "{line:?} {keep:?}");
            }
        }
    }

    #[test]
    fn framing_is_limited() {
        let long = format!("1;{}\r\na", "x".repeat(5000));
        let got = decode(long.as_bytes(), &[], Trailers::Discard).0;
        assert_eq!(got, Err(ChunkedError::TooMuchFraming));
        let zeros = "0".repeat(5000);
        let got = decode(zeros.as_bytes(), &[], Trailers::Discard).0;
        assert_eq!(got, Err(ChunkedError::TooMuchFraming));

        let costly = format!("1;{}\r\na\r\n", "x".repeat(1000)).repeat(100);
        let got = decode(costly.as_bytes(), &[], Trailers::Discard).0;
        assert_eq!(got, Err(ChunkedError::TooMuchFraming));
        let cheap = format!("{}0\r\n\r\n", "1\r\na\r\n".repeat(20_000));
        assert_eq!(decode(cheap.as_bytes(), &[], Trailers::Discard).0, Ok(true));

        let trailers = format!("0\r\na: {}\r\n\r\n", "x".repeat(100));
        for keep in [Trailers::Discard, Trailers::Keep] {
            assert_eq!(decode(trailers.as_bytes(), &[], keep).0, Err(ChunkedError::TooMuchFraming));
        }
        let trailers = format!("0\r\n{}\r\n", "a: b\r\n".repeat(20));
        for keep in [Trailers::Discard, Trailers::Keep] {
            assert_eq!(decode(trailers.as_bytes(), &[], keep).0, Err(ChunkedError::TooMuchFraming));
        }
    }

    #[test]
    fn wanted_never_exceeds_what_is_left() {
        let body = b"5;e\r\nhello\r\nb\r\nhello world\r\n0\r\na: b\r\n\r\n";
        for keep in [Trailers::Discard, Trailers::Keep] {
            let mut decoder = Decoder::new(keep, 64);
            for at in 0..body.len() {
                assert!(decoder.wanted() <= (body.len() - at) as u64, "at {at}");
                assert!(decoder.wanted() > 0);
                let mut pos = 0;
                while decoder.next(&body[at..=at], &mut pos).expect("valid") != Event::More {
                    if decoder.is_done() {
                        break;
                    }
                }
            }
            assert!(decoder.is_done());
            assert_eq!(decoder.wanted(), 0);
        }
    }
}
