//! From records to the hello's message.

use std::borrow::Cow;

use super::{INPUT_MAX, Malformed};

/// Kind, version and length in front of a record's content.
const HEADER: usize = 5;
/// The longest content of a record that is not encrypted.
const CONTENT_MAX: usize = 1 << 14;
/// The kind of records that carry a handshake.
const HANDSHAKE: u8 = 22;
/// The major version in the header, the same for SSL 3 and all of TLS.
const MAJOR: u8 = 3;
/// In the first byte, for SSL 2: the header has no padding.
const SSLV2: u8 = 0x80;

/// A message behind its head.
pub(super) struct Gathered<'a> {
    /// Its bytes.
    pub(super) message: Cow<'a, [u8]>,
    /// The length of input up to its end.
    pub(super) len: usize,
}

/// Why there is no message.
#[derive(PartialEq, Debug)]
pub(super) enum Stop {
    Incomplete { wanted: usize },
    NotTls,
    Malformed(Malformed),
}

impl From<Malformed> for Stop {
    fn from(malformed: Malformed) -> Stop {
        Stop::Malformed(malformed)
    }
}

/// The head of a hello's message.
#[derive(Clone, Copy)]
pub(super) struct Head {
    /// The length of what follows.
    body: usize,
}

impl Head {
    /// Kind and length.
    pub(super) const LEN: usize = 4;
    const CLIENT_HELLO: u8 = 1;

    /// Reads the head at the beginning of `message`; none when there is more to come.
    pub(super) fn read(message: &[u8]) -> Result<Option<Head>, Malformed> {
        if message.first().is_some_and(|kind| *kind != Head::CLIENT_HELLO) {
            return Err(Malformed::UnexpectedMessage);
        }
        let Some(&[_, high, middle, low]) = message.first_chunk::<{ Head::LEN }>() else {
            return Ok(None);
        };
        let body = u32::from_be_bytes([0, high, middle, low]) as usize;
        Ok(Some(Head { body }))
    }

    /// The length of the message, its head included.
    pub(super) fn total(self) -> usize {
        Head::LEN + self.body
    }
}

/// A record's header.
struct Header {
    /// The length of its content.
    len: usize,
}

impl Header {
    /// Reads what is there of a header: each byte is checked as soon as it is there.
    fn read(input: &[u8]) -> Result<Option<Header>, Malformed> {
        if input.first().is_some_and(|kind| *kind != HANDSHAKE) {
            return Err(Malformed::UnexpectedRecord);
        }
        if input.get(1).is_some_and(|major| *major != MAJOR) {
            return Err(Malformed::RecordVersion);
        }
        let Some(&[_, _, _, high, low]) = input.first_chunk::<HEADER>() else { return Ok(None) };
        match usize::from(u16::from_be_bytes([high, low])) {
            0 => Err(Malformed::EmptyRecord),
            len if len > CONTENT_MAX => Err(Malformed::RecordTooLong),
            len => Ok(Some(Header { len })),
        }
    }
}

/// Finds the hello's message in the records at the beginning of `input`.
pub(super) fn gather(input: &[u8]) -> Result<Gathered<'_>, Stop> {
    match input.first() {
        None => return Err(Stop::Incomplete { wanted: HEADER }),
        Some(&HANDSHAKE) => {}
        Some(first) if first & SSLV2 != 0 => return Err(sslv2(input)),
        Some(_) => return Err(Stop::NotTls),
    }
    let mut walk = Walk::default();
    loop {
        let rest = input.get(walk.at..).unwrap_or_default();
        let Some(header) = Header::read(rest)? else {
            return Err(Stop::Incomplete { wanted: walk.earliest(CONTENT_MAX) });
        };
        let content = rest.get(HEADER..).unwrap_or_default();
        let content = content.get(..header.len).unwrap_or(content);
        if let Some(end) = walk.record(&header, content)? {
            return finish(input, &walk, end);
        }
        if content.len() < header.len {
            return Err(Stop::Incomplete { wanted: walk.earliest(header.len) });
        }
        walk.at += HEADER + header.len;
        walk.have += header.len;
    }
}

/// The way through the records.
#[derive(Default)]
struct Walk {
    /// The beginning of the record, in the input.
    at: usize,
    /// Bytes of the handshake before that record.
    have: usize,
    /// The message's head as far as it has come, for a head that is split.
    split: [u8; Head::LEN],
    head: Option<Head>,
}

impl Walk {
    /// Takes a record, of which `content` is there; gives the end of the message in it, if it is
    /// there. Refusals depend on the bytes up to one place only, not on how many follow.
    fn record(&mut self, header: &Header, content: &[u8]) -> Result<Option<usize>, Malformed> {
        if self.head.is_none() {
            let have = self.have.min(Head::LEN);
            for (to, from) in self.split.iter_mut().skip(have).zip(content) {
                *to = *from;
            }
            let known = (have + content.len()).min(Head::LEN);
            self.head = Head::read(self.split.get(..known).unwrap_or_default())?;
        }
        if self.head.is_none() {
            return Ok(None);
        }
        if self.earliest(header.len) > INPUT_MAX {
            return Err(Malformed::TooLong);
        }
        let left = self.left();
        Ok((left <= content.len()).then_some(self.at + HEADER + left))
    }

    /// Bytes of the message that are not before this record: as far as its length is known.
    fn left(&self) -> usize {
        self.head.map_or(Head::LEN, Head::total).saturating_sub(self.have)
    }

    /// The earliest end of the message in the input, when this record holds `len` bytes: what it
    /// cannot hold takes the fewest records possible.
    fn earliest(&self, len: usize) -> usize {
        let later = self.left().saturating_sub(len);
        self.at + HEADER + self.left() + HEADER * later.div_ceil(CONTENT_MAX)
    }
}

/// Makes one piece of the message, which ends at `end`.
fn finish<'a>(input: &'a [u8], walk: &Walk, end: usize) -> Result<Gathered<'a>, Stop> {
    let total = walk.head.map_or(0, Head::total);
    if walk.have == 0 {
        let message = input.get(HEADER + Head::LEN..end).unwrap_or_default();
        return Ok(Gathered { message: Cow::Borrowed(message), len: end });
    }
    let mut message = Vec::new();
    message.try_reserve_exact(total).map_err(|_| Malformed::NoMemory)?;
    let mut rest = input.get(..end).unwrap_or_default();
    while let Ok(Some(header)) = Header::read(rest) {
        let content = rest.get(HEADER..).unwrap_or_default();
        let (content, behind) = content.split_at_checked(header.len).unwrap_or((content, &[]));
        message.extend_from_slice(content);
        rest = behind;
    }
    message.drain(..Head::LEN);
    Ok(Gathered { message: Cow::Owned(message), len: end })
}

/// Whether this is a hello of SSL 2: length, kind 1, version.
fn sslv2(input: &[u8]) -> Stop {
    match input.first_chunk::<5>() {
        None => Stop::Incomplete { wanted: 5 },
        Some(&[_, _, 1, major @ (0 | MAJOR), minor]) => {
            Stop::Malformed(Malformed::Sslv2(u16::from_be_bytes([major, minor])))
        }
        Some(_) => Stop::Malformed(Malformed::RecordVersion),
    }
}
