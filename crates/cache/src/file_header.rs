//! The header of files in a cache. docs/CACHE.md describes it for other programs; a change here
//! changes [`VERSION`] and that page.
//!
//! ```text
//!   0  magic "weir\r\ncf"       8  version                12  CRC-32 of all behind it
//!  16  where the body begins   20  flags                  24  length of the body
//!  32  valid   40  updating    48  error                  56  last modified   64  date
//!  72  variant (16 bytes)      88  lengths of ETag, Vary  92  length of the key  96  of the head
//! 100  family                 108  ETag, Vary, "\nKEY: ", key, "\n", head, room; then the body
//! ```
//!
//! Numbers are little-endian. A header is good as a whole or not at all, and says how long the body
//! is: a file that was torn is noticed before a byte of it is sent.

use base::crc::Crc32;
use bytes::Bytes;

use crate::key::Hash;

const MAGIC: &[u8; 8] = b"weir\r\ncf";
const VERSION: u32 = 2;
/// Bytes of the part that all headers have.
const FIXED: usize = 108;
/// The offset from which bytes are covered by the checksum.
const CHECKED: usize = 16;
/// Stands before the key, so that people find it with `grep`.
const KEY_MARK: &[u8] = b"\nKEY: ";
/// Longest header that is believed in.
const HEADER_MAX: usize = 4 << 20;
/// Bytes of a page.
const PAGE: usize = 4096;
/// Flag: the response had no head (HTTP/0.9).
const NO_HEAD: u32 = 1;
/// Flag: the response was kept by the rules of RFC 9111.
const RFC_9111: u32 = 2;

/// The length of a body that is still being written: such a file has not its name yet.
pub(crate) const UNFINISHED: u64 = u64::MAX;

/// Smallest file that may be one of ours.
pub(crate) const FILE_MIN: u64 = (FIXED + KEY_MARK.len() + 1) as u64;

/// The header of a file. Times are seconds since 1970.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Until when the response is fresh.
    pub valid: i64,
    /// The time after that for which it may be served while it is fetched anew, seconds.
    pub updating: i64,
    /// The same when fetching it anew fails.
    pub error: i64,
    /// `Last-Modified`; -1 is none.
    pub last_modified: i64,
    /// The time when it was fetched, or revalidated.
    pub date: i64,
    /// `ETag`; empty is none.
    pub etag: Bytes,
    /// `Vary`; empty is none.
    pub vary: Bytes,
    /// The variant that this is, where there is a `Vary`.
    pub variant: Hash,
    /// The key as the configuration makes it, before hashing.
    pub key: Bytes,
    /// The head of the response as text; `None` where it had none.
    pub head: Option<Bytes>,
    /// Length of the body, bytes.
    pub body_len: u64,
    /// The same for all variants of a key, and another one when the first of them is made anew.
    pub family: u64,
    /// It was kept by the rules of RFC 9111: its head has its age, and no fields of a hop.
    pub rfc9111: bool,
    /// Bytes between head and body, so that the head can grow in its place.
    pub room: usize,
}

/// The reason why bytes are no header of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadHeader {
    /// So many bytes are needed to tell.
    Short(usize),
    /// Another program's, or another version's.
    Foreign,
    /// Ours once, and damaged.
    Torn,
}

/// So far the clock may be set back, in seconds, without any doubt about responses kept before.
const SET_BACK: i64 = 60;

impl Header {
    /// The end of freshness, as seen now. A response that was fetched in the future tells that the
    /// clock was set back: how old it is cannot be known, and it is stale. It would be fresh until
    /// the clock has caught up otherwise.
    pub fn fresh_until(&self, now: i64) -> i64 {
        match self.date > now.saturating_add(SET_BACK) {
            true => self.valid.min(now.saturating_sub(1)),
            false => self.valid,
        }
    }

    /// Where the body begins: the length of the header.
    pub(crate) fn body_start(&self) -> usize {
        let head = self.head.as_ref().map_or(0, Bytes::len);
        let texts = self.etag.len() + self.vary.len() + KEY_MARK.len() + self.key.len() + 1;
        FIXED + texts + head + self.room
    }

    /// Takes as much more room as lets the body begin with a page. What begins in the middle of one
    /// costs `sendfile` twice the time.
    pub fn align(&mut self) {
        let start = self.body_start();
        self.room += start.next_multiple_of(PAGE) - start;
    }

    /// Pads the header so that the body begins at `start`; false if the header is too long.
    pub fn reach(&mut self, start: usize) -> bool {
        self.room = 0;
        let Some(room) = start.checked_sub(self.body_start()) else { return false };
        self.room = room;
        true
    }

    /// Whether a file can hold it.
    pub fn fits(&self) -> bool {
        let short = u16::MAX as usize;
        self.etag.len() <= short && self.vary.len() <= short && self.body_start() <= HEADER_MAX
    }

    /// The header as it stands in a file.
    pub fn encode(&self) -> Vec<u8> {
        let start = self.body_start();
        let mut out = Vec::with_capacity(start);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(start as u32).to_le_bytes());
        let no_head = if self.head.is_none() { NO_HEAD } else { 0 };
        let flags = no_head | if self.rfc9111 { RFC_9111 } else { 0 };
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&self.body_len.to_le_bytes());
        for n in [self.valid, self.updating, self.error, self.last_modified, self.date] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out.extend_from_slice(&self.variant);
        out.extend_from_slice(&(self.etag.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.vary.len() as u16).to_le_bytes());
        out.extend_from_slice(&(self.key.len() as u32).to_le_bytes());
        let head = self.head.as_deref().unwrap_or_default();
        out.extend_from_slice(&(head.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.family.to_le_bytes());
        for part in [&self.etag[..], &self.vary, KEY_MARK, &self.key, b"\n", head] {
            out.extend_from_slice(part);
        }
        out.resize(start, 0);
        let sum = checksum(&out[CHECKED..]);
        out[12..CHECKED].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads a header at the start of a file, of which `bytes` is the beginning.
    ///
    /// # Errors
    /// See [`BadHeader`].
    pub fn decode(bytes: &Bytes) -> Result<Header, BadHeader> {
        let Some(fixed) = bytes.get(..FIXED) else { return Err(BadHeader::Short(FIXED)) };
        let u32_at = |at: usize| u32::from_le_bytes(array(&fixed[at..]));
        let u16_at = |at: usize| usize::from(u16::from_le_bytes(array(&fixed[at..])));
        let i64_at = |at: usize| i64::from_le_bytes(array(&fixed[at..]));
        if &fixed[..8] != MAGIC || u32_at(8) != VERSION {
            return Err(BadHeader::Foreign);
        }
        let start = u32_at(16) as usize;
        if !(FIXED..=HEADER_MAX).contains(&start) {
            return Err(BadHeader::Torn);
        }
        let Some(header) = bytes.get(..start) else { return Err(BadHeader::Short(start)) };
        if checksum(&header[CHECKED..]) != u32_at(12) {
            return Err(BadHeader::Torn);
        }
        let mut rest = bytes.slice(FIXED..start);
        let mut take = |len: usize| match len <= rest.len() {
            true => Ok(rest.split_to(len)),
            false => Err(BadHeader::Torn),
        };
        let (etag, vary) = (take(u16_at(88))?, take(u16_at(90))?);
        take(KEY_MARK.len())?;
        let key = take(u32_at(92) as usize)?;
        take(1)?;
        let head = take(u32_at(96) as usize)?;
        let flags = u32_at(20);
        Ok(Header {
            valid: i64_at(32),
            updating: i64_at(40),
            error: i64_at(48),
            last_modified: i64_at(56),
            date: i64_at(64),
            etag,
            vary,
            variant: array(&fixed[72..]),
            key,
            head: (flags & NO_HEAD == 0).then_some(head),
            body_len: i64_at(24) as u64,
            family: i64_at(100) as u64,
            rfc9111: flags & RFC_9111 != 0,
            room: rest.len(),
        })
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[..N]);
    array
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc32::new();
    crc.update(bytes);
    crc.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            valid: 1_800_000_000,
            updating: 5,
            error: i64::MAX,
            last_modified: -1,
            date: 1_700_000_000,
            etag: Bytes::from_static(b"\"x\""),
            vary: Bytes::from_static(b"Accept-Encoding"),
            variant: *b"0123456789abcdef",
            key: Bytes::from_static(b"http://a/b?c"),
            head: Some(Bytes::from_static(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n")),
            body_len: 1 << 40,
            family: u64::MAX - 1,
            rfc9111: true,
            room: 0,
        }
    }

    #[test]
    fn a_response_from_the_future_is_stale() {
        let header = header();
        assert_eq!(header.fresh_until(header.date), header.valid);
        assert_eq!(header.fresh_until(header.date - SET_BACK), header.valid);
        let year_ago = header.date - 365 * 86_400;
        assert_eq!(header.fresh_until(year_ago), year_ago - 1);
        let short = Header { valid: year_ago - 9, ..header };
        assert_eq!(short.fresh_until(year_ago), year_ago - 9);
    }

    #[test]
    fn there_and_back() {
        for header in [
            header(),
            Header { head: None, rfc9111: false, ..header() },
            Header { room: 300, ..header() },
            Header { etag: Bytes::new(), vary: Bytes::new(), key: Bytes::new(), ..header() },
        ] {
            let mut bytes = header.encode();
            assert_eq!(bytes.len(), header.body_start());
            assert!(memchr::memmem::find(&bytes, b"\nKEY: ").is_some());
            bytes.extend_from_slice(b"body");
            assert_eq!(Header::decode(&Bytes::from(bytes)), Ok(header));
        }
    }

    #[test]
    fn a_head_grows_and_shrinks_in_its_place() {
        let mut header = Header { room: 20, ..header() };
        let start = header.body_start();
        header.head = Some(Bytes::from_static(b"HTTP/1.1 200 OK\r\nX: y\r\nAge: 5\r\n\r\n"));
        assert!(header.reach(start));
        assert_eq!((header.room, header.body_start()), (12, start));
        assert_eq!(header.encode().len(), start);
        header.head = Some(Bytes::from(vec![b'x'; start]));
        assert!(!header.reach(start));
        assert_eq!(header.room, 0);
    }

    #[test]
    fn bodies_begin_with_a_page() {
        for room in [0, 300, PAGE] {
            let mut header = Header { room, ..header() };
            header.align();
            assert!(header.room >= room && header.room - room < PAGE);
            assert_eq!((header.body_start() % PAGE, header.encode().len() % PAGE), (0, 0));
            let aligned = header.clone();
            header.align();
            assert_eq!(header, aligned);
        }
    }

    #[test]
    fn every_damage_is_noticed() {
        let good = header().encode();
        for len in 0..good.len() {
            let cut = Bytes::copy_from_slice(&good[..len]);
            assert!(
                matches!(Header::decode(&cut), Err(BadHeader::Short(need)) if need > len),
                "{len}"
            );
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(Header::decode(&Bytes::from(bad)).is_err(), "byte {at}, bit {bit}");
            }
        }
        assert_eq!(Header::decode(&Bytes::from(vec![5; 200])), Err(BadHeader::Foreign));
    }
}
