//! The sessions of a zone in shared memory: a line with gaps, and the number that goes into them.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::rc::Rc;

use base::log::lossy;
use base::time::unix_ms;
use conf::{ConfError, Word};
use http::cx::Cx;
use shm::{Entry, Fill, Locked, Record, Table, ZoneState};

/// The length of a session's name: an MD5 hash.
const ID_BYTES: usize = 16;

/// The name of a session.
pub type Id = [u8; ID_BYTES];

/// The longest line of a session; a longer one is cut.
const LINE_MAX: usize = 32 << 10;
/// Sessions that make room for a new one at most.
const EVICTED_MAX: usize = 8;

/// What a session has done so far.
#[derive(Clone, Copy)]
struct Activity {
    /// Its last request, milliseconds since 1970.
    last_ms: u64,
    /// Bytes of bodies.
    sent: u64,
}

impl Record for Activity {
    const WORDS: usize = 2;
    const KEY_LEN: usize = ID_BYTES;

    fn to_words(self) -> [u64; 4] {
        [self.last_ms, self.sent, 0, 0]
    }

    fn from_words([last_ms, sent, ..]: [u64; 4]) -> Activity {
        Activity { last_ms, sent }
    }
}

/// The sessions of a zone.
pub struct Sessions {
    table: Table<Activity>,
    /// `timeout=` of the latest configuration, milliseconds.
    timeout_ms: Cell<u64>,
    /// The file of the lines, for the master's last ones.
    path: PathBuf,
}

impl ZoneState for Sessions {
    fn died(&self, pid: u32, _: usize) {
        self.table.free_of(pid);
    }

    fn fill(&self) -> Option<Fill> {
        Some(self.table.fill())
    }

    /// Sessions that are not over when the server ends get their lines all the same.
    fn stopped(&self) {
        let mut lines = Vec::new();
        let mut table = self.table.lock();
        while let Some(entry) = table.oldest() {
            remove(&mut table, entry, &mut lines);
        }
        drop(table);
        let all = lines.iter().flat_map(|line| line.iter().chain(b"\n")).copied();
        let all: Vec<u8> = all.collect();
        if !all.is_empty()
            && let Ok(mut file) = OpenOptions::new().append(true).create(true).open(&self.path)
        {
            // The server ends: nobody is left to tell.
            let _ = file.write_all(&all);
        }
    }
}

impl Sessions {
    /// Maps a zone, or takes that of the configuration before if its file is the same.
    ///
    /// # Errors
    /// The zone is another directive's, or memory cannot be mapped.
    pub fn map(
        cx: &mut Cx,
        at: &Word,
        name: &[u8],
        bytes: usize,
        path: PathBuf,
    ) -> Result<Rc<Sessions>, ConfError> {
        cx.declare_zone(at, name, Some(bytes), "session_log")?;
        let kept = cx.env.zones.kept::<Sessions>(name).filter(|kept| kept.path == path);
        let sessions = match kept {
            Some(kept) => kept,
            None => Sessions::new(bytes, path).map_err(|e| {
                let (e, name) = (base::log::os_error(&e), lossy(name));
                ConfError::at(at, format!("zone \"{name}\": mmap() of {bytes} failed {e}"))
            })?,
        };
        cx.env.zones.put(name, sessions.clone());
        Ok(sessions)
    }

    fn new(bytes: usize, path: PathBuf) -> std::io::Result<Rc<Sessions>> {
        Ok(Rc::new(Sessions { table: Table::new(bytes)?, timeout_ms: Cell::new(30_000), path }))
    }

    /// Sets the pause that ends a session, in milliseconds.
    pub fn set_timeout(&self, ms: u64) {
        self.timeout_ms.set(ms);
    }

    /// Adds a request to a session. False: there is none, and the line of one that is over was
    /// appended to `ended`.
    pub fn add(&self, id: Id, sent: u64, ended: &mut Vec<Vec<u8>>) -> bool {
        let (key, now) = (self.table.key(&id), unix_ms());
        let mut table = self.table.lock();
        let Some(entry) = table.find(key) else { return false };
        let Some(activity) = table.value(entry) else { return false };
        if self.is_over(activity, now) {
            remove(&mut table, entry, ended);
            return false;
        }
        let sent = activity.sent.saturating_add(sent);
        table.set(entry, Activity { last_ms: now, sent });
        table.touch(entry);
        true
    }

    /// Begins a session with its line, in which `holes` are the places of the number. Up to eight
    /// of the oldest make room for it; if it still does not fit, its line is written at once.
    pub fn begin(&self, id: Id, sent: u64, line: &[u8], holes: &[usize], ended: &mut Vec<Vec<u8>>) {
        let payload = pack(line, holes);
        let mut key = id.to_vec();
        key.extend_from_slice(&payload);
        let activity = Activity { last_ms: unix_ms(), sent };
        let key = self.table.key(&key);
        let mut table = self.table.lock();
        for _ in 0..EVICTED_MAX {
            if table.insert(key, activity).is_ok() {
                return;
            }
            match table.oldest() {
                Some(entry) => remove(&mut table, entry, ended),
                None => break,
            }
        }
        // It does not fit: it is a session of one request.
        ended.push(filled(&payload, sent));
    }

    /// Takes the sessions that are over; gives the time until the next may be, milliseconds.
    pub(crate) fn take_ended(&self, ended: &mut Vec<Vec<u8>>) -> u64 {
        let now = unix_ms();
        let mut table = self.table.lock();
        while let Some(entry) = table.oldest() {
            let Some(activity) = table.value(entry) else { break };
            if !self.is_over(activity, now) {
                let until = activity.last_ms.saturating_add(self.timeout_ms.get());
                return until.saturating_sub(now).clamp(1, self.timeout_ms.get());
            }
            remove(&mut table, entry, ended);
        }
        self.timeout_ms.get()
    }

    fn is_over(&self, activity: Activity, now: u64) -> bool {
        activity.last_ms.saturating_add(self.timeout_ms.get()) <= now
    }
}

/// Takes a session out, and appends its line.
fn remove(table: &mut Locked<'_, Activity>, entry: Entry, ended: &mut Vec<Vec<u8>>) {
    if let (Some(activity), Some(payload)) = (table.value(entry), table.payload(entry)) {
        ended.push(filled(&payload, activity.sent));
    }
    table.remove(entry);
}

/// The line behind its holes: their number in a byte, and four bytes for each.
fn pack(line: &[u8], holes: &[usize]) -> Vec<u8> {
    let line = &line[..line.len().min(LINE_MAX)];
    let places = holes.iter().filter(|hole| **hole <= line.len()).take(usize::from(u8::MAX));
    let places: Vec<u32> = places.filter_map(|hole| u32::try_from(*hole).ok()).collect();
    let mut out = vec![places.len() as u8];
    places.iter().for_each(|place| out.extend_from_slice(&place.to_le_bytes()));
    out.extend_from_slice(line);
    out
}

/// The line with the number in its holes. The bytes come from shared memory, and any will do.
fn filled(packed: &[u8], number: u64) -> Vec<u8> {
    let (count, rest) = packed.split_first().unwrap_or((&0, &[]));
    let (places, line) = rest.split_at_checked(usize::from(*count) * 4).unwrap_or((&[], rest));
    let (mut out, mut at) = (Vec::with_capacity(line.len() + 20), 0);
    for place in places.as_chunks::<4>().0 {
        let place = (u32::from_le_bytes(*place) as usize).clamp(at, line.len());
        out.extend_from_slice(&line[at..place]);
        base::ascii::write_u64(&mut out, number);
        at = place;
    }
    out.extend_from_slice(&line[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: Vec<Vec<u8>>) -> Vec<String> {
        lines.into_iter().map(|line| String::from_utf8(line).unwrap()).collect()
    }

    #[test]
    fn requests_of_a_session_are_one_line() {
        let sessions = Sessions::new(64 << 10, PathBuf::new()).unwrap();
        let mut ended = Vec::new();
        assert!(!sessions.add([1; 16], 5, &mut ended));
        sessions.begin([1; 16], 5, b"a  b ", &[2, 5], &mut ended);
        assert!(sessions.add([1; 16], 7, &mut ended));
        assert!(!sessions.add([2; 16], 7, &mut ended));
        assert!(sessions.take_ended(&mut ended) <= 30_000 && ended.is_empty());
        sessions.set_timeout(0);
        sessions.take_ended(&mut ended);
        assert_eq!(texts(ended), ["a 12 b 12"]);
    }

    #[test]
    fn the_oldest_sessions_make_room() {
        let sessions = Sessions::new(16 << 10, PathBuf::new()).unwrap();
        let mut ended = Vec::new();
        for n in 0..200u8 {
            sessions.begin([n; 16], n.into(), &[b'x'; 300], &[300], &mut ended);
        }
        let lines = texts(std::mem::take(&mut ended));
        assert!((100..200).contains(&lines.len()), "{}", lines.len());
        for (n, line) in lines.iter().enumerate() {
            assert!(line.ends_with(&format!("x{n}")), "{n}: {line}");
        }
        // A line that no zone has room for is written at once.
        sessions.begin([255; 16], 9, &[b'y'; 30 << 10], &[0], &mut ended);
        assert!(texts(ended).last().unwrap().starts_with("9yyy"));
    }

    #[test]
    fn any_bytes_give_a_line() {
        for packed in [&b""[..], b"\xff", b"\x02\x01\0\0", b"\x01\xff\xff\xff\xffab", b"\0ab"] {
            filled(packed, 1);
        }
        assert_eq!(filled(b"\x01\xff\xff\xff\xffab", 1), b"ab1");
        assert_eq!(filled(&pack(&vec![b'a'; LINE_MAX + 9], &[LINE_MAX + 3]), 1).len(), LINE_MAX);
    }
}
