//! The session table of `sticky learn`: the server of each session, shared by all workers.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use base::crc::crc32;
use base::log::{Level, lossy};
use base::time::unix_ms;
use bytes::Bytes;
use conf::{ConfError, Word};
use fleet::Touched;
use http::cx::Cx;
use http::module::Conf;
use md5::{Digest, Md5};
use shm::{Entry, Record, Table, ZoneState};

use super::sessions_part::SessionsPart;

/// A shortened server id for the table: its first bytes, its length and a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    begins: [u64; 2],
    check: u64,
}

impl Mark {
    fn new(sid: &[u8]) -> Mark {
        let mut begin = [0; 16];
        let len = sid.len().min(16);
        begin[..len].copy_from_slice(&sid[..len]);
        let (a, b) = begin.split_at(8);
        let word = |half: &[u8]| half.iter().fold(0, |w, byte| w << 8 | u64::from(*byte));
        let check = u64::from(crc32(sid)) << 32 | sid.len() as u64;
        Mark { begins: [word(a), word(b)], check }
    }

    /// Whether it is the shortened form of `sid`.
    pub fn is_of(&self, sid: &[u8]) -> bool {
        *self == Mark::new(sid)
    }
}

/// A session: its server, and the time of its last use in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Known {
    mark: Mark,
    pub(super) last_ms: u64,
}

/// Bytes of a server in the messages to other servers.
const MARK_BYTES: usize = 24;

impl Known {
    /// The server, for other servers.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let [a, b, check, _] = self.to_words();
        [a, b, check].map(u64::to_le_bytes).concat()
    }

    /// A session on a server that another one has learnt.
    pub(super) fn from_bytes(bytes: &[u8], last_ms: u64) -> Option<Known> {
        let bytes: &[u8; MARK_BYTES] = bytes.try_into().ok()?;
        let mut words = [0, 0, 0, last_ms];
        for (word, half) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*half);
        }
        Some(Known::from_words(words))
    }
}

impl Record for Known {
    const WORDS: usize = 4;

    fn to_words(self) -> [u64; 4] {
        let Mark { begins: [a, b], check } = self.mark;
        [a, b, check, self.last_ms]
    }

    fn from_words([a, b, check, last_ms]: [u64; 4]) -> Known {
        Known { mark: Mark { begins: [a, b], check }, last_ms }
    }
}

/// The sessions of a zone in shared memory.
pub(super) struct Shared {
    upstream: Bytes,
    pub(super) table: Table<Known>,
    /// The sessions that other servers are to hear of, if they share them.
    pub(super) touched: Option<Touched>,
}

impl ZoneState for Shared {
    fn died(&self, pid: u32, _: usize) {
        self.table.free_of(pid);
    }

    fn fill(&self) -> Option<shm::Fill> {
        Some(self.table.fill())
    }
}

/// The session table of an upstream.
pub(super) struct Sessions {
    shared: Rc<Shared>,
    zone: Bytes,
    timeout_ms: u64,
}

/// The zones in use by this configuration and their upstreams, because two upstreams must not share
/// one.
#[derive(Default)]
pub(super) struct Taken(RefCell<Vec<(Bytes, Bytes)>>);

impl Conf for Taken {}

/// The number of entries that are checked for expiry at each insertion.
const SWEEP: usize = 2;

impl Sessions {
    /// Maps the zone of an upstream, or reuses that of the previous configuration if it belonged to
    /// the same upstream.
    pub fn map(
        cx: &mut Cx,
        at: &Word,
        zone: &Bytes,
        bytes: usize,
        upstream: Bytes,
        (timeout_ms, synced): (u64, Option<&Word>),
    ) -> Result<Rc<Sessions>, ConfError> {
        cx.declare_zone(at, zone, Some(bytes), "sticky")?;
        let name = lossy(zone).into_owned();
        let wrong = |m: String| Err(ConfError::at(at, m));
        let taken = cx.main::<Taken>().0.get_mut();
        if let Some((_, other)) = taken.iter().find(|(z, _)| z == zone) {
            let other = lossy(other);
            return wrong(format!(
                "sticky zone \"{name}\" is already used in upstream \"{other}\""
            ));
        }
        taken.push((zone.clone(), upstream.clone()));
        synced.map_or(Ok(()), |word| cx.env.fleet.check(word))?;
        let is_synced = synced.is_some();
        // Sessions of another upstream would name servers that this one lacks.
        let kept = cx
            .env
            .zones
            .kept::<Shared>(zone)
            .filter(|kept| kept.upstream == upstream && kept.touched.is_some() == is_synced);
        let shared = match kept {
            Some(kept) => kept,
            None => match Shared::new(upstream, bytes, is_synced) {
                Ok(shared) => Rc::new(shared),
                Err(e) => {
                    let e = base::log::os_error(&e);
                    return wrong(format!("mmap(MAP_ANON|MAP_SHARED, {bytes}) failed {e}"));
                }
            },
        };
        cx.env.zones.put(zone, shared.clone());
        if is_synced {
            let part = SessionsPart::new(&name, shared.clone(), timeout_ms);
            cx.env.fleet.add(Rc::new(part));
        }
        Ok(Rc::new(Sessions { shared, zone: zone.clone(), timeout_ms }))
    }

    fn is_over(&self, known: &Known, now: u64) -> bool {
        known.last_ms.saturating_add(self.timeout_ms) <= now
    }

    /// The server of a session, unless it is unknown or expired.
    pub fn find(&self, id: &[u8]) -> Option<Mark> {
        let digest = Md5::digest(id);
        let key = self.shared.table.key(&digest);
        let mut t = self.shared.table.lock();
        let entry = t.find(key)?;
        let known = t.value(entry)?;
        if self.is_over(&known, unix_ms()) {
            t.remove(entry);
            return None;
        }
        Some(known.mark)
    }

    /// Records or refreshes the server of a session. An unknown session is only added if `create`.
    pub fn put(&self, id: &[u8], sid: &[u8], create: bool) {
        let known = Known { mark: Mark::new(sid), last_ms: unix_ms() };
        let digest = Md5::digest(id);
        let key = self.shared.table.key(&digest);
        let mut t = self.shared.table.lock();
        if let Some(entry) = t.find(key) {
            // Do not revive a session that expired during the request.
            if !create && t.value(entry).is_none_or(|k| self.is_over(&k, known.last_ms)) {
                return t.remove(entry);
            }
            let before = t.value(entry);
            t.set(entry, known);
            t.touch(entry);
            self.tell(entry, before, known);
            return;
        }
        if !create {
            return;
        }
        for _ in 0..SWEEP {
            let Some(oldest) = t.oldest() else { break };
            match t.value(oldest) {
                Some(k) if !self.is_over(&k, known.last_ms) => break,
                _ => t.remove(oldest),
            }
        }
        if let Ok(entry) = t.insert(key, known) {
            return self.tell(entry, None, known);
        }
        if let Some(oldest) = t.oldest() {
            t.remove(oldest);
        }
        let done = t.insert(key, known);
        if let Ok(entry) = done {
            self.tell(entry, None, known);
        }
        drop(t);
        let (log, zone) = (base::log::default(), lossy(&self.zone));
        let m = "could not allocate node in sticky session zone";
        match done {
            Ok(_) => base::log!(
                log,
                Level::Warn,
                None,
                "{m} \"{zone}\", expiring least recently used session"
            ),
            Err(_) => base::log!(log, Level::Alert, None, "{m} \"{zone}\""),
        }
    }
}

impl Sessions {
    /// Under the lock: other servers are to hear of a session that is new or has another server,
    /// and of its use four times in its lifetime.
    fn tell(&self, entry: Entry, before: Option<Known>, now: Known) {
        let Some(touched) = &self.shared.touched else { return };
        let quarter = |known: &Known| known.last_ms / (self.timeout_ms / 4).max(1);
        let is_same = |before: &Known| before.mark == now.mark && quarter(before) == quarter(&now);
        if !before.as_ref().is_some_and(is_same) {
            touched.add(entry, 1);
        }
    }
}

#[cfg(test)]
impl Sessions {
    /// Sessions that are shared.
    pub(super) fn for_tests(bytes: usize, timeout_ms: u64) -> Sessions {
        let shared = Shared::new(Bytes::new(), bytes, true).expect("memory");
        Sessions { shared: Rc::new(shared), zone: Bytes::from_static(b"z"), timeout_ms }
    }

    pub(super) fn shared(&self) -> Rc<Shared> {
        self.shared.clone()
    }
}

impl Shared {
    fn new(upstream: Bytes, bytes: usize, is_synced: bool) -> io::Result<Shared> {
        let table = Table::new(bytes)?;
        let touched = match is_synced {
            true => Some(Touched::new(table.bytes() / CELL)?),
            false => None,
        };
        Ok(Shared { upstream, table, touched })
    }
}

/// Bytes of a table's cell: see [`Entry::cell`].
const CELL: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(bytes: usize, timeout_ms: u64) -> Sessions {
        base::time::update();
        let shared = Shared::new(Bytes::new(), bytes, false).unwrap();
        Sessions { shared: Rc::new(shared), zone: Bytes::from_static(b"z"), timeout_ms }
    }

    #[test]
    fn marks_tell_servers_apart() {
        let long = "a-route-of-thirty-two-characters";
        for sid in ["a", "b", "", long, &long.replace("ers", "erz")] {
            assert!(Mark::new(sid.as_bytes()).is_of(sid.as_bytes()));
            assert!(!Mark::new(sid.as_bytes()).is_of(b"other"));
        }
        assert_ne!(Mark::new(long.as_bytes()), Mark::new(&long.as_bytes()[..31]));
        assert_ne!(Mark::new(b"a"), Mark::new(b"a\0"));
    }

    #[test]
    fn sessions_are_learnt_and_forgotten() {
        let s = sessions(64 << 10, 1000);
        s.put(b"one", b"server", false);
        assert_eq!(s.find(b"one"), None, "nobody said that it begins");
        s.put(b"one", b"server", true);
        assert!(s.find(b"one").unwrap().is_of(b"server"));
        s.put(b"one", b"another", false);
        assert!(s.find(b"one").unwrap().is_of(b"another"));
        // The same sessions where the time of all of them is over.
        let over = Sessions { shared: s.shared.clone(), zone: s.zone.clone(), timeout_ms: 0 };
        over.put(b"one", b"server", false);
        assert_eq!(s.find(b"one"), None, "an answer that came late does not bring it back");
        over.put(b"one", b"server", true);
        assert_eq!(over.find(b"one"), None, "its time is over");
    }

    #[test]
    fn the_oldest_make_room() {
        let s = sessions(32 << 10, 1_000_000);
        for n in 0..2000u32 {
            s.put(&n.to_le_bytes(), b"server", true);
        }
        assert!(s.find(&1999u32.to_le_bytes()).is_some());
        assert!(s.find(&0u32.to_le_bytes()).is_none());
    }
}
