//! The bytes of a session: both ends derive them from the session's number, so that each byte can
//! be checked, and one that belongs to another session or another place shows.

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// The first four bytes of a session, of its answer, and of a datagram.
const MAGIC: u32 = 0x5752_4d58;

/// Mixes all bits (the end of SplitMix64).
pub fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The endless bytes of one direction of one session.
#[derive(Clone, Copy)]
pub struct Content(u64);

/// Towards the backend.
pub const UP: u64 = 0;
/// Towards the client.
pub const DOWN: u64 = 1;

impl Content {
    /// The content of a direction, or of one of several answers.
    pub fn new(session: u64, way: u64) -> Self {
        Self(mix(session ^ mix(way)))
    }

    /// The bytes from a place on.
    pub fn fill(self, at: u64, out: &mut [u8]) {
        let word = |n: u64| mix(self.0.wrapping_add(n.wrapping_mul(GOLDEN))).to_le_bytes();
        let skip = (at % 8) as usize;
        let first = if skip == 0 { 0 } else { (8 - skip).min(out.len()) };
        let (head, rest) = out.split_at_mut(first);
        head.copy_from_slice(&word(at / 8)[skip..skip + first]);
        for (n, part) in (at.div_ceil(8)..).zip(rest.chunks_mut(8)) {
            part.copy_from_slice(&word(n)[..part.len()]);
        }
    }

    /// Where these bytes, which should stand at a place, are first different.
    pub fn first_difference(self, at: u64, bytes: &[u8]) -> Option<u64> {
        let mut right = [0; 4096];
        for (n, part) in bytes.chunks(right.len()).enumerate() {
            let from = at + (n * right.len()) as u64;
            let right = &mut right[..part.len()];
            self.fill(from, right);
            if part != right {
                let same = part.iter().zip(right).take_while(|(a, b)| **a == **b).count();
                return Some(from + same as u64);
            }
        }
        None
    }
}

/// What the backend does with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Sends each byte back, inverted.
    Echo,
    /// Reads all, then sends its digest.
    Upload,
    /// Sends content of its own.
    Download,
}

/// What the client says at the beginning of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The session's number.
    pub session: u64,
    /// What the backend does.
    pub work: Work,
    /// Whether the client ends its direction behind its bytes, before the answer.
    pub half_close: bool,
    /// Bytes of content behind this head.
    pub up: u64,
    /// Bytes of content in the answer.
    pub down: u64,
}

impl Head {
    /// Bytes on the wire.
    pub const LEN: usize = 40;

    /// As it is sent.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let work = [Work::Echo, Work::Upload, Work::Download]
            .iter()
            .position(|w| *w == self.work)
            .unwrap_or(0);
        let flags = work as u32 | u32::from(self.half_close) << 8;
        let mut out = [0; Self::LEN];
        out[..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&flags.to_le_bytes());
        out[8..16].copy_from_slice(&self.session.to_le_bytes());
        out[16..24].copy_from_slice(&self.up.to_le_bytes());
        out[24..32].copy_from_slice(&self.down.to_le_bytes());
        let check = check(&out[..32]);
        out[32..].copy_from_slice(&check.to_le_bytes());
        out
    }

    /// Reads one; `None` for other bytes.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Option<Self> {
        if bytes[..4] != MAGIC.to_le_bytes() || u64_at(bytes, 32) != check(&bytes[..32]) {
            return None;
        }
        let work = *[Work::Echo, Work::Upload, Work::Download].get(usize::from(bytes[4]))?;
        Some(Self {
            session: u64_at(bytes, 8),
            work,
            half_close: bytes[5] == 1,
            up: u64_at(bytes, 16),
            down: u64_at(bytes, 24),
        })
    }
}

/// Bytes of the head of an answer.
pub const REPLY_LEN: usize = 24;

/// The head of an answer: which backend it is, and which session.
pub fn reply(session: u64, backend: u32) -> [u8; REPLY_LEN] {
    let mut out = [0; REPLY_LEN];
    out[..4].copy_from_slice(&MAGIC.to_be_bytes());
    out[4..8].copy_from_slice(&backend.to_le_bytes());
    out[8..16].copy_from_slice(&session.to_le_bytes());
    let check = check(&out[..16]);
    out[16..].copy_from_slice(&check.to_le_bytes());
    out
}

/// The backend's number of an answer to that session; `None` for other bytes.
pub fn reply_of(bytes: &[u8; REPLY_LEN], session: u64) -> Option<u32> {
    let backend = u32::from_le_bytes(bytes[4..8].try_into().ok()?);
    (reply(session, backend) == *bytes).then_some(backend)
}

/// What is at the beginning of each datagram that has room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The number of the session, which no other client has.
    pub session: u64,
    /// The question's number in its session.
    pub sequence: u32,
    /// 0 in a question, the answer's number from 1 in an answer.
    pub answer: u8,
    /// The answers that the question asks for.
    pub answers: u8,
    /// The length of each of them.
    pub answer_len: u16,
}

impl Tag {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// A whole datagram of a length, which is not below [`Tag::LEN`].
    pub fn datagram(&self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len.max(Self::LEN)];
        out[..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..12].copy_from_slice(&self.session.to_le_bytes());
        out[12..16].copy_from_slice(&self.sequence.to_le_bytes());
        out[16] = self.answer;
        out[17] = self.answers;
        out[18..20].copy_from_slice(&self.answer_len.to_le_bytes());
        let check = mix(check(&out[..20]) ^ out.len() as u64);
        out[20..28].copy_from_slice(&check.to_le_bytes());
        self.content().fill(0, &mut out[Self::LEN..]);
        out
    }

    /// Reads a datagram and checks all of it.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..Self::LEN)?;
        let tag = Self {
            session: u64_at(head, 4),
            sequence: u32::from_le_bytes(head[12..16].try_into().ok()?),
            answer: head[16],
            answers: head[17],
            answer_len: u16::from_le_bytes(head[18..20].try_into().ok()?),
        };
        let check = mix(check(&head[..20]) ^ bytes.len() as u64);
        let is_whole = head[..4] == MAGIC.to_le_bytes() && u64_at(head, 20) == check;
        let rest = &bytes[Self::LEN..];
        (is_whole && tag.content().first_difference(0, rest).is_none()).then_some(tag)
    }

    fn content(&self) -> Content {
        Content::new(mix(self.session) ^ u64::from(self.sequence), u64::from(self.answer))
    }
}

fn check(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(GOLDEN, |sum, part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        mix(sum ^ u64::from_le_bytes(word))
    })
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Bytes as the backends of echoes send them back: what was looped back on the way shows.
pub fn invert(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|b| *b = !*b);
}

#[cfg(test)]
mod tests {
    use super::{Content, DOWN, Head, Tag, UP, Work, reply, reply_of};

    #[test]
    fn content_is_the_same_from_any_place() {
        let content = Content::new(7, UP);
        let mut whole = [0; 100];
        content.fill(0, &mut whole);
        for (from, to) in [(0, 100), (1, 3), (3, 30), (8, 16), (13, 99), (50, 50)] {
            let mut part = vec![0; to - from];
            content.fill(from as u64, &mut part);
            assert_eq!(part, whole[from..to], "{from} to {to}");
            assert_eq!(content.first_difference(from as u64, &part), None);
        }
    }

    #[test]
    fn a_difference_is_found_where_it_is() {
        let content = Content::new(7, UP);
        let mut bytes = vec![0; 10_000];
        content.fill(5, &mut bytes);
        assert_eq!(Content::new(8, UP).first_difference(5, &bytes), Some(5));
        assert_eq!(Content::new(7, DOWN).first_difference(5, &bytes), Some(5));
        bytes[9_000] ^= 1;
        assert_eq!(content.first_difference(5, &bytes), Some(9_005));
        let shifted = content.first_difference(6, &bytes[..100]);
        assert_eq!(shifted, Some(6));
    }

    #[test]
    fn heads_are_read_as_they_were_written() {
        let head =
            Head { session: 1 << 40, work: Work::Download, half_close: true, up: 3, down: 1 << 33 };
        let mut bytes = head.encode();
        assert_eq!(Head::decode(&bytes), Some(head));
        bytes[17] ^= 1;
        assert_eq!(Head::decode(&bytes), None);
        assert_eq!(reply_of(&reply(9, 4), 9), Some(4));
        assert_eq!(reply_of(&reply(9, 4), 8), None);
    }

    #[test]
    fn a_datagram_is_checked_to_its_last_byte() {
        let tag = Tag { session: 5, sequence: 6, answer: 1, answers: 2, answer_len: 100 };
        let whole = tag.datagram(100);
        assert_eq!(Tag::read(&whole), Some(tag));
        assert_eq!(Tag::read(&whole[..99]), None, "cut");
        assert_eq!(Tag::read(&[&whole[..], b"x"].concat()), None, "joined");
        for at in [0, 5, 13, 16, 19, 27, 28, 99] {
            let mut other = whole.clone();
            other[at] ^= 1;
            assert_eq!(Tag::read(&other), None, "byte {at}");
        }
    }
}
