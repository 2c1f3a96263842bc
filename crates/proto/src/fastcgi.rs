//! FastCGI 1.0 between a web server and responders: one request at a time over a connection, always
//! with the id 1.
//!
//! ```text
//! record: version type id(2) length(2) padding reserved, then content, then padding
//!
//! Header ──8 bytes──► Content ──length──► Padding ──► Header
//!                        stdout of length 0: the end of output; an end record: the end of all
//! ```

use std::fmt;
use std::ops::Range;

const VERSION: u8 = 1;
const HEADER: usize = 8;

const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

const RESPONDER: u8 = 1;
const KEEP_CONN: u8 = 1;

/// Bytes of a body in one record.
pub const STDIN_MAX: usize = 32 << 10;

/// The limit of a request's parameters in bytes.
pub const PARAMS_MAX: usize = 65535;

/// The stream that content belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// The response.
    Out,
    /// Complaints.
    Err,
}

/// The next part of a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// All bytes were looked at.
    More,
    /// Content that is not empty; a record's may come in pieces.
    Data(Stream, Range<usize>),
    /// Nothing more will come for the response.
    OutEnd,
    /// A record begins that ends the request.
    Ending,
    /// The request is over; the position is behind its last byte.
    End,
}

/// Why bytes are no record, or none that can come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// Another version.
    Version(u8),
    /// A type that only we may send, or an unknown one.
    Type(u8),
    /// An id above 255.
    IdHigh(u8),
    /// An id other than 1.
    IdLow(u8),
}

impl fmt::Display for Error {
    /// nginx's words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, byte) = match *self {
            Error::Version(b) => ("unsupported FastCGI protocol version", b),
            Error::Type(b) => ("invalid FastCGI record type", b),
            Error::IdHigh(b) => ("unexpected FastCGI request id high byte", b),
            Error::IdLow(b) => ("unexpected FastCGI request id low byte", b),
        };
        write!(f, "upstream sent {what}: {byte}")
    }
}

/// Reads the records of a responder.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    header: [u8; HEADER],
    /// Bytes of the header so far; all of them: within content or padding.
    have: usize,
    content: usize,
    padding: usize,
}

impl Reader {
    /// Continues at `pos`, which it moves behind the event.
    ///
    /// # Errors
    /// The stream is unusable.
    pub fn next(&mut self, buf: &[u8], pos: &mut usize) -> Result<Event, Error> {
        loop {
            if self.have == 0
                && let Some(header @ [VERSION, STDOUT | STDERR | END_REQUEST, 0, 1, ..]) =
                    buf.get(*pos..).and_then(|rest| rest.first_chunk::<HEADER>())
            {
                self.header = *header;
                self.have = HEADER;
                *pos += HEADER;
                if let Some(event) = self.begin() {
                    return Ok(event);
                }
            }
            if self.have < HEADER {
                let Some(&byte) = buf.get(*pos) else { return Ok(Event::More) };
                self.check(byte)?;
                self.header[self.have] = byte;
                self.have += 1;
                *pos += 1;
                if self.have == HEADER
                    && let Some(event) = self.begin()
                {
                    return Ok(event);
                }
                continue;
            }
            let left = buf.len().saturating_sub(*pos);
            if self.content > 0 && left > 0 {
                let from = *pos;
                let n = self.content.min(left);
                self.content -= n;
                *pos += n;
                match self.header[1] {
                    STDOUT => return Ok(Event::Data(Stream::Out, from..from + n)),
                    STDERR => return Ok(Event::Data(Stream::Err, from..from + n)),
                    _ => continue,
                }
            }
            let skipped = if self.content > 0 { 0 } else { self.padding.min(left) };
            self.padding -= skipped;
            *pos += skipped;
            if self.content > 0 || self.padding > 0 {
                return Ok(Event::More);
            }
            self.have = 0;
            if self.header[1] == END_REQUEST {
                return Ok(Event::End);
            }
        }
    }

    /// Begins the content of the record whose header is whole.
    fn begin(&mut self) -> Option<Event> {
        let [_, kind, _, _, high, low, padding, _] = self.header;
        self.content = usize::from(u16::from_be_bytes([high, low]));
        self.padding = padding.into();
        match kind {
            END_REQUEST => Some(Event::Ending),
            STDOUT if self.content == 0 => Some(Event::OutEnd),
            _ => None,
        }
    }

    /// Takes back the last `n` bytes of the [`Event::Data`] that was given last: they come again.
    pub fn give_back(&mut self, n: usize, pos: &mut usize) {
        let n = n.min(*pos);
        self.content += n;
        *pos -= n;
    }

    fn check(&self, byte: u8) -> Result<(), Error> {
        match (self.have, byte) {
            (0, VERSION) | (1, STDOUT | STDERR | END_REQUEST) | (2, 0) | (3, 1) | (4.., _) => {
                Ok(())
            }
            (0, b) => Err(Error::Version(b)),
            (1, b) => Err(Error::Type(b)),
            (2, b) => Err(Error::IdHigh(b)),
            (_, b) => Err(Error::IdLow(b)),
        }
    }
}

fn record(kind: u8, len: u16, padding: u8) -> [u8; HEADER] {
    let [high, low] = len.to_be_bytes();
    [VERSION, kind, 0, 1, high, low, padding, 0]
}

/// Content is padded to a multiple of eight, so that it stays aligned in the responder's buffer.
fn padding(len: usize) -> u8 {
    (len.wrapping_neg() & 7) as u8
}

const ZEROS: [u8; HEADER] = [0; HEADER];

/// Begins a request and the record of its parameters; returns the argument of [`end_params`].
pub fn begin(keep_conn: bool, out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&record(BEGIN_REQUEST, 8, 0));
    let flags = if keep_conn { KEEP_CONN } else { 0 };
    out.extend_from_slice(&[0, RESPONDER, flags, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&ZEROS);
    out.len()
}

/// Ends the parameters written from `from` on.
///
/// # Errors
/// Their length, where it is more than [`PARAMS_MAX`].
pub fn end_params(from: usize, out: &mut Vec<u8>) -> Result<(), usize> {
    let len = out.len().saturating_sub(from);
    let in_header = u16::try_from(len).map_err(|_| len)?;
    let pad = padding(len);
    if let Some(header) = from.checked_sub(HEADER).and_then(|at| out.get_mut(at..from)) {
        header.copy_from_slice(&record(PARAMS, in_header, pad));
    }
    out.extend_from_slice(&ZEROS[..pad.into()]);
    if len > 0 {
        out.extend_from_slice(&record(PARAMS, 0, 0));
    }
    Ok(())
}

/// The header before `len` bytes of a body, and the padding behind them. `len` is at most
/// [`STDIN_MAX`]; 0 ends the body.
pub fn stdin(len: usize) -> ([u8; HEADER], &'static [u8]) {
    let pad = padding(len);
    (record(STDIN, len.min(STDIN_MAX) as u16, pad), &ZEROS[..pad.into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(records: &[(u8, &[u8], u8)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, content, pad) in records {
            out.extend_from_slice(&record(*kind, content.len() as u16, *pad));
            out.extend_from_slice(content);
            out.extend(std::iter::repeat_n(0xaa, usize::from(*pad)));
        }
        out
    }

    /// Streams joined, and the position behind the end.
    #[allow(clippy::type_complexity, reason = "output, complaints, and where it ended")]
    fn read(buf: &[u8], piece: usize) -> Result<(Vec<u8>, Vec<u8>, Option<usize>), Error> {
        let (mut reader, mut pos, mut len) = (Reader::default(), 0, 0);
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            match reader.next(&buf[..len], &mut pos)? {
                Event::More if len == buf.len() => return Ok((stdout, stderr, None)),
                Event::More => len = buf.len().min(len + piece),
                Event::Data(Stream::Out, range) => stdout.extend_from_slice(&buf[range]),
                Event::Data(Stream::Err, range) => stderr.extend_from_slice(&buf[range]),
                Event::OutEnd => stdout.push(b'|'),
                Event::Ending => stdout.push(b'.'),
                Event::End => return Ok((stdout, stderr, Some(pos))),
            }
        }
    }

    #[test]
    fn records_in_pieces() {
        let mut buf = response(&[
            (STDERR, b"oh", 6),
            (STDOUT, b"hello ", 2),
            (STDERR, b"", 0),
            (STDOUT, b"world", 0),
            (STDOUT, b"", 3),
            (END_REQUEST, &[0; 8], 7),
        ]);
        let all = buf.len();
        buf.extend_from_slice(b"more");
        for piece in 1..=buf.len() {
            let (stdout, stderr, end) = read(&buf, piece).unwrap();
            assert_eq!(stdout, b"hello world|.", "{piece}");
            assert_eq!((&stderr[..], end), (&b"oh"[..], Some(all)), "{piece}");
        }
        assert_eq!(read(&buf[..all - 1], 5).unwrap().2, None);
    }

    #[test]
    fn bytes_given_back_come_again() {
        let buf = response(&[(STDOUT, b"head body", 1)]);
        let (mut reader, mut pos) = (Reader::default(), 0);
        assert_eq!(reader.next(&buf, &mut pos), Ok(Event::Data(Stream::Out, 8..17)));
        reader.give_back(4, &mut pos);
        assert_eq!(pos, 13);
        assert_eq!(reader.next(&buf[13..], &mut 0), Ok(Event::Data(Stream::Out, 0..4)));
    }

    #[test]
    fn what_is_no_record() {
        let good = record(STDOUT, 1, 0);
        for (at, byte, error) in [
            (0, 2, Error::Version(2)),
            (1, 1, Error::Type(1)),
            (1, 11, Error::Type(11)),
            (2, 1, Error::IdHigh(1)),
            (3, 0, Error::IdLow(0)),
        ] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(read(&bad, 8), Err(error));
        }
        assert_eq!(
            Error::Version(0).to_string(),
            "upstream sent unsupported FastCGI protocol version: 0"
        );
    }

    #[test]
    fn a_request() {
        let mut out = Vec::new();
        let from = begin(true, &mut out);
        out.extend_from_slice(b"\x01\x02abc");
        end_params(from, &mut out).unwrap();
        let mut want = vec![1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0];
        want.extend_from_slice(&[1, 4, 0, 1, 0, 5, 3, 0]);
        want.extend_from_slice(b"\x01\x02abc\0\0\0");
        want.extend_from_slice(&[1, 4, 0, 1, 0, 0, 0, 0]);
        assert_eq!(out, want);
        assert_eq!(stdin(0), ([1, 5, 0, 1, 0, 0, 0, 0], &[][..]));
        assert_eq!(stdin(STDIN_MAX), ([1, 5, 0, 1, 0x80, 0, 0, 0], &[][..]));
        assert_eq!(stdin(9), ([1, 5, 0, 1, 0, 9, 7, 0], &[0; 7][..]));
        // Without parameters their one record is the empty one that ends them.
        out.clear();
        let from = begin(false, &mut out);
        end_params(from, &mut out).unwrap();
        assert_eq!(out[10], 0);
        assert_eq!(out[16..], [1, 4, 0, 1, 0, 0, 0, 0]);
        out.resize(from + PARAMS_MAX + 1, b'x');
        assert_eq!(end_params(from, &mut out), Err(PARAMS_MAX + 1));
    }
}
