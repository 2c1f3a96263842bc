//! The files of the index: which there are, and how they are read and written. For threads.
//!
//! They lie in a folder of their own in the cache's: `entries`, all that was known when it was
//! written, and journals with what came since. A process that keeps the index has its journal
//! locked, so that others of a server that takes over leave it alone.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use proto::cache_index::{
    BadFile, Entry, FILE_HEADER, FileHeader, Kind, Of, Purge, Record, Step, read,
};

use super::key::Hash;
use super::keys::{Known, Meta};

/// The folder's name: who counts a cache's files does not count it.
pub(crate) const FOLDER: &str = ".weir.index";
const INDEX: &str = "entries";
const NEW: &str = "entries.new";
const JOURNAL: &str = "journal.";

/// How much of a file is read at once.
const PIECE: usize = 256 << 10;

/// A purge that owns its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Marked {
    pub id: u64,
    pub time: u32,
    pub of: Of,
    pub text: Vec<u8>,
}

impl Marked {
    /// As it stands in files.
    pub fn purge(&self) -> Purge<'_> {
        Purge { id: self.id, time: self.time, of: self.of, text: &self.text }
    }
}

/// A file that is there.
#[derive(Debug)]
pub(crate) struct Listed {
    pub path: PathBuf,
    pub header: Result<FileHeader, BadFile>,
}

impl Listed {
    /// Whether a process keeps it.
    pub fn is_kept(&self) -> bool {
        os::file::open(&self.path).is_ok_and(|fd| os::file::try_lock(fd).is_err())
    }

    fn order(&self) -> (bool, u64) {
        let header = self.header.as_ref().ok();
        (header.is_none_or(|h| h.kind == Kind::Journal), header.map_or(0, |h| h.order))
    }
}

/// The files of the index in a cache's folder, in the order in which they count: the index first.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<Listed>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder.join(FOLDER)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name != INDEX && !name.starts_with(JOURNAL) {
            continue;
        }
        let path = entry.path();
        let header = match Source::open(&path) {
            Ok(source) => source.header,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        found.push(Listed { path, header });
    }
    found.sort_by_key(Listed::order);
    Ok(found)
}

/// A file that is being read.
pub(crate) struct Source {
    fd: OwnedFd,
    /// What its beginning says.
    pub header: Result<FileHeader, BadFile>,
    pos: u64,
    buf: Vec<u8>,
    ended: bool,
    /// Bytes that were no records.
    pub bad: u64,
}

impl Source {
    /// Opens a file.
    pub fn open(path: &Path) -> io::Result<Source> {
        let fd = os::file::open(path)?;
        let mut start = [0; FILE_HEADER];
        let mut len = 0;
        while len < FILE_HEADER {
            match os::file::read_at(&fd, &mut start[len..], len as u64) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let header = FileHeader::decode(&start[..len]);
        let (pos, ended) = (FILE_HEADER as u64, header.is_err());
        Ok(Source { fd, header, pos, buf: Vec::new(), ended, bad: 0 })
    }

    /// Reads another piece; `each` gets the records in it, decoded and as they stand. False at the
    /// end.
    pub fn piece(&mut self, mut each: impl FnMut(&Record<'_>, &[u8])) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let had = self.buf.len();
        self.buf.resize(had + PIECE, 0);
        let n = loop {
            match os::file::read_at(&self.fd, &mut self.buf[had..], self.pos) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                n => break n?,
            }
        };
        self.buf.truncate(had + n);
        self.pos += n as u64;
        self.ended = n == 0;
        let mut at = 0;
        loop {
            match read(&self.buf[at..], self.ended) {
                Step::Record(record, len) => {
                    each(&record, &self.buf[at..at + len]);
                    at += len;
                }
                Step::Bad(len) => {
                    self.bad += len as u64;
                    at += len;
                }
                Step::More => break,
            }
        }
        self.buf.drain(..at);
        if self.ended {
            self.bad += self.buf.len() as u64;
        }
        Ok(!self.ended)
    }

    /// Reads all that is left.
    pub fn rest(&mut self, mut each: impl FnMut(&Record<'_>, &[u8])) -> io::Result<()> {
        while self.piece(&mut each)? {}
        Ok(())
    }
}

/// What the files of the index say at a start.
#[derive(Default)]
pub(crate) struct Loaded {
    /// Entries, the oldest first.
    pub known: Vec<Known>,
    /// Purges that are not done.
    pub marks: Vec<Marked>,
    /// When the last purge was of which they tell, done or not; 0: there was none.
    pub purged: u32,
    /// There are variants of keys beside their first.
    pub has_variants: bool,
    /// Which index it was: [`FileHeader::order`]; 0 is none, or one that is damaged.
    pub order: u64,
    /// What is wrong with it, for the log.
    pub complaints: Vec<String>,
    /// What the journals say of a hash: that is newer than the index.
    newer: HashMap<Hash, Newer>,
    index: Option<Source>,
}

fn known(e: &Entry<'_>) -> Known {
    let Entry { hash, blocks, expire, uses, file, .. } = *e;
    Known { hash, blocks, expire, uses, file }
}

/// What a journal says last of a hash.
struct Newer {
    /// The zone of which the journal is: versions of different zones have no order.
    part: u32,
    version: u32,
    /// The entry; `None` where it is gone.
    known: Option<Known>,
}

/// Whether a version is an earlier one than another of the same zone.
fn is_before(version: u32, other: u32) -> bool {
    version == 0 || other.wrapping_sub(version).cast_signed() > 0
}

impl Loaded {
    /// A journal of that zone says that a file is there, or that files up to a version are purged.
    /// What processes tell of a file comes in any order: its versions say which is the later.
    fn is_said(&mut self, part: u32, hash: Hash, version: u32, known: Option<Known>) {
        let before = self.newer.get(&hash);
        if before.is_none_or(|b| b.part != part || !is_before(version, b.version)) {
            self.newer.insert(hash, Newer { part, version, known });
        }
    }
}

fn add_mark(marks: &mut Vec<Marked>, p: &Purge<'_>) {
    if marks.iter().all(|m| m.id != p.id) {
        marks.push(Marked { id: p.id, time: p.time, of: p.of, text: p.text.to_vec() });
    }
}

impl Loaded {
    /// Reads the journals, in which purges stand, too.
    pub fn begin(folder: &Path) -> io::Result<Loaded> {
        let mut l = Loaded::default();
        let mut cleared = HashSet::new();
        for file in list(folder)? {
            let shown = file.path.display().to_string();
            let header = match file.header {
                Ok(header) => header,
                // Begun, and nothing more.
                Err(BadFile::Damaged) if file.is_kept() => continue,
                Err(BadFile::Version(version)) => {
                    l.complaints.push(format!("\"{shown}\" is of version {version}, not read"));
                    continue;
                }
                Err(BadFile::Foreign | BadFile::Damaged) => {
                    l.complaints.push(format!("\"{shown}\" is damaged, not read"));
                    continue;
                }
            };
            let mut source = Source::open(&file.path)?;
            let each = |record: &Record<'_>, _: &[u8]| match record {
                Record::Put(e) => {
                    l.has_variants |= e.is_variant;
                    l.is_said(header.part, e.hash, e.version, Some(known(e)));
                }
                // Of what is there: nobody says so before all that was told was read.
                Record::Gone(hash) => {
                    let version = l.newer.get(hash).map_or(0, |before| before.version);
                    let gone = Newer { part: header.part, version, known: None };
                    l.newer.insert(*hash, gone);
                }
                Record::Purged { hash, version, time } => {
                    l.purged = l.purged.max(*time);
                    l.is_said(header.part, *hash, *version, None);
                }
                Record::Mark(p) => {
                    l.purged = l.purged.max(p.time);
                    add_mark(&mut l.marks, p);
                }
                Record::Cleared(id) => {
                    cleared.insert(*id);
                }
                Record::End(_) => {}
            };
            if header.kind == Kind::Index {
                (l.index, l.order) = (Some(source), header.order);
                continue;
            }
            source.rest(each)?;
            if source.bad > 0 {
                let bad = source.bad;
                l.complaints.push(format!("{bad} bytes of \"{shown}\" are damaged, passed over"));
            }
        }
        l.marks.retain(|mark| !cleared.contains(&mark.id));
        Ok(l)
    }

    /// Reads the index, and puts all entries in order. No more than `most`: the youngest.
    pub fn finish(mut self, most: usize) -> io::Result<Loaded> {
        let mut known_now = Vec::new();
        if let Some(mut source) = self.index.take() {
            let (mut count, mut says) = (0, None);
            let (newer, has_variants) = (&self.newer, &mut self.has_variants);
            source.rest(|record, _| match record {
                Record::Put(e) => {
                    count += 1;
                    *has_variants |= e.is_variant;
                    if newer.is_empty() || !newer.contains_key(&e.hash) {
                        known_now.push(known(e));
                    }
                }
                Record::End(n) => says = Some(*n),
                _ => {}
            })?;
            if says != Some(count) || source.bad > 0 {
                let m = format!("the index is damaged, {count} entries of it are used");
                self.complaints.push(m);
                self.order = 0;
            }
        }
        let newer = std::mem::take(&mut self.newer);
        known_now.extend(newer.into_values().filter_map(|newer| newer.known));
        known_now.sort_unstable_by_key(|one| one.expire);
        let surplus = known_now.len().saturating_sub(most);
        known_now.drain(..surplus);
        self.known = known_now;
        Ok(self)
    }
}

/// A journal that is being written. It is opened for writing when something is written alone, so
/// that a file system can be made read-only, and a journal that somebody deleted is noticed.
pub(crate) struct Journal {
    /// Holds the lock.
    #[expect(dead_code, reason = "kept for its lock")]
    lock: OwnedFd,
    pub path: PathBuf,
    pub bytes: u64,
}

impl Journal {
    /// Begins a journal; of a later order where there is one of that order: after a reload, who
    /// kept the index before may have begun one in the same millisecond.
    pub fn create(folder: &Path, mut order: u64, part: u32) -> io::Result<Journal> {
        let folder = folder.join(FOLDER);
        let (path, fd) = loop {
            let path = folder.join(format!("{JOURNAL}{order:016x}.{part:08x}"));
            match os::file::create_new(&path, 0o600) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => order += 1,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
                    break (path.clone(), os::file::create_new(&path, 0o600)?);
                }
                made => break (path, made?),
            }
        };
        drop(fd);
        let lock = os::file::open(&path)?;
        os::file::try_lock(&lock)?;
        let mut journal = Journal { lock, path, bytes: 0 };
        let header = FileHeader { kind: Kind::Journal, order, part };
        journal.append(&header.encode(), false)?;
        // Its name is to be on the disk before anybody is told that what stands in it is. Some file
        // systems cannot do that.
        let _ = os::file::open(&folder).and_then(os::file::sync_data);
        Ok(journal)
    }

    /// All that was appended is on the disk then.
    pub fn sync(&self) -> io::Result<()> {
        os::file::sync_data(os::file::open_to_change(&self.path)?)
    }

    /// Appends records; `sure`: all that was appended is on the disk then. What was written of them
    /// where that fails is written over.
    pub fn append(&mut self, bytes: &[u8], sure: bool) -> io::Result<()> {
        let fd = os::file::open_to_change(&self.path)?;
        write_all(&fd, bytes, self.bytes)?;
        self.bytes += bytes.len() as u64;
        if sure {
            os::file::sync_data(&fd)?;
        }
        Ok(())
    }
}

fn write_all(fd: &OwnedFd, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match os::file::write_at(fd, bytes, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                at += n as u64;
                bytes = &bytes[n..];
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Entries of a piece of a file, as they stand there.
#[derive(Default)]
pub(crate) struct Batch {
    raw: Vec<u8>,
    pub hashes: Vec<Hash>,
    ends: Vec<usize>,
}

impl Batch {
    fn push(&mut self, hash: Hash, raw: &[u8]) {
        self.raw.extend_from_slice(raw);
        self.hashes.push(hash);
        self.ends.push(self.raw.len());
    }
}

/// A new index in the making, of what older files say and the zone still has.
pub(crate) struct Merge {
    folder: PathBuf,
    /// What the journals say last of each hash, and of which zone they are.
    newest: HashMap<Hash, (u32, Vec<u8>)>,
    /// The old index.
    index: Option<Source>,
    /// Files that the new index takes the place of.
    old: Vec<PathBuf>,
    fd: OwnedFd,
    header: FileHeader,
    at: u64,
    count: u64,
    ended: bool,
}

impl Merge {
    /// Begins. `except` is the journal that goes on. Journals that other processes keep stay; they
    /// are not read.
    pub fn begin(folder: &Path, header: FileHeader, except: &Path) -> io::Result<Merge> {
        let (mut newest, mut index, mut old) = (HashMap::new(), None, Vec::new());
        for file in list(folder)? {
            let is_journal = file.header.is_ok_and(|h| h.kind == Kind::Journal);
            let part = file.header.map_or(0, |h| h.part);
            if file.path == except || is_journal && file.is_kept() {
                continue;
            }
            let mut source = Source::open(&file.path)?;
            match is_journal {
                true => source.rest(|record, raw| {
                    if let Record::Put(e) = record {
                        let before = newest.remove(&e.hash);
                        newest.insert(e.hash, later(before, part, e, raw));
                    }
                })?,
                false if file.header.is_ok() => index = Some(source),
                false => {}
            }
            // The index itself is replaced; one that cannot be read is as good as none.
            if file.path.file_name().is_some_and(|name| name != INDEX) {
                old.push(file.path);
            }
        }
        let path = folder.join(FOLDER).join(NEW);
        let _ = fs::remove_file(&path);
        let fd = os::file::create_new(&path, 0o600)?;
        let folder = folder.to_owned();
        let (at, count, ended) = (0, 0, false);
        let mut merge = Merge { folder, newest, index, old, fd, header, at, count, ended };
        merge.write(&header.encode())?;
        Ok(merge)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        write_all(&self.fd, bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// Reads on. The zone is asked for the metas of what it gives; `None` is the end.
    pub fn next(&mut self) -> io::Result<Option<Batch>> {
        let mut batch = Batch::default();
        if let Some(index) = &mut self.index {
            let newest = &self.newest;
            let more = index.piece(|record, raw| {
                if let Record::Put(e) = record
                    && !newest.contains_key(&e.hash)
                {
                    batch.push(e.hash, raw);
                }
            })?;
            if !more {
                self.index = None;
            }
            return Ok(Some(batch));
        }
        if std::mem::replace(&mut self.ended, true) {
            return Ok(None);
        }
        let newest = std::mem::take(&mut self.newest);
        newest.iter().for_each(|(hash, (_, raw))| batch.push(*hash, raw));
        Ok(Some(batch))
    }

    /// Writes the entries of a batch that the zone still has, with what it says of them.
    pub fn put(&mut self, batch: &Batch, metas: &[Option<Meta>]) -> io::Result<()> {
        let mut out = Vec::with_capacity(batch.raw.len());
        let mut start = 0;
        for (end, meta) in batch.ends.iter().zip(metas) {
            let raw = &batch.raw[start..*end];
            start = *end;
            if let (Some(meta), Step::Record(Record::Put(e), _)) = (meta, read(raw, true)) {
                let Meta { blocks, expire, uses } = *meta;
                Record::Put(Entry { blocks, expire, uses, ..e }).encode(&mut out);
                self.count += 1;
            }
        }
        self.write(&out)
    }

    /// Ends: the new index takes the place of all that it was made of. Gives how large it is.
    pub fn finish(mut self) -> io::Result<u64> {
        let mut end = Vec::new();
        Record::End(self.count).encode(&mut end);
        self.write(&end)?;
        let folder = self.folder.join(FOLDER);
        // Of what a rename leaves when the machine stops, one of the two is whole.
        os::file::sync_data(&self.fd)?;
        fs::rename(folder.join(NEW), folder.join(INDEX))?;
        for path in &self.old {
            match fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(self.at)
    }

    /// The order of the new index.
    pub fn order(&self) -> u64 {
        self.header.order
    }
}

/// Whether the second of two records of a name, each with its journal's zone, is of a later file.
/// Workers tell of their files side by side, so the order of their records says nothing. `None`:
/// nobody knows.
fn is_later(first: (u32, &Entry<'_>), second: (u32, &Entry<'_>)) -> Option<bool> {
    let ((part, old), (other, new)) = (first, second);
    if part == other && old.version != 0 && new.version != 0 {
        return Some(is_before(old.version, new.version));
    }
    (old.date != new.date).then_some(old.date < new.date)
}

/// Of two records of a name the later one, when `raw` came behind the other. Where nobody knows
/// which of them is there one with the tags of both is found for each.
fn later(before: Option<(u32, Vec<u8>)>, part: u32, e: &Entry<'_>, raw: &[u8]) -> (u32, Vec<u8>) {
    let last = (part, raw.to_vec());
    let Some(before) = before else { return last };
    let Step::Record(Record::Put(old), _) = read(&before.1, true) else { return last };
    match is_later((before.0, &old), (part, e)) {
        Some(false) => before,
        None if old.tags != e.tags => {
            let mut tags = e.tags.to_vec();
            for tag in old.tags.split(|b| *b == b' ').filter(|tag| !tag.is_empty()) {
                if !e.tags.split(|b| *b == b' ').any(|other| other == tag) {
                    tags.push(b' ');
                    tags.extend_from_slice(tag);
                }
            }
            let mut both = Vec::new();
            Record::Put(Entry { tags: tags.trim_ascii_start(), ..*e }).encode(&mut both);
            // Too many for one record: the last that came.
            if both.is_empty() { last } else { (part, both) }
        }
        _ => last,
    }
}

/// Entries with the dates of their responses.
type Matches = Vec<(Hash, u32)>;

/// A record that a purge is of, as far as it says: its journal's zone, and the entry's version and
/// date.
struct Match {
    part: u32,
    version: u32,
    date: u32,
}

/// Entries that purges are of, for each of these; and whether
/// the index that has that order (0: none) was there, and whole.
pub(crate) fn search(
    folder: &Path,
    order: u64,
    purges: &[Marked],
) -> io::Result<(Vec<Matches>, bool)> {
    let mut found: Vec<HashMap<Hash, Match>> = purges.iter().map(|_| HashMap::new()).collect();
    let mut whole = order == 0;
    for file in list(folder)? {
        let Ok(header) = file.header else { continue };
        let mut source = match Source::open(&file.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            source => source?,
        };
        let (mut count, mut says) = (0, None);
        source.rest(|record, _| match record {
            Record::Put(e) => {
                count += 1;
                for (purge, found) in purges.iter().zip(&mut found) {
                    look_at(purge, found, header, e);
                }
            }
            Record::End(n) => says = Some(*n),
            _ => {}
        })?;
        if header.kind == Kind::Index && header.order == order {
            whole = says == Some(count) && source.bad == 0;
        }
    }
    let list = |found: HashMap<Hash, Match>| -> Matches {
        found.into_iter().map(|(hash, found)| (hash, found.date)).collect()
    };
    Ok((found.into_iter().map(list).collect(), whole))
}

/// A record in the order of the files: a purge is of it, or it says that a file of which the purge
/// is has made room for another one.
fn look_at(purge: &Marked, found: &mut HashMap<Hash, Match>, file: FileHeader, e: &Entry<'_>) {
    let (is_of, part) = (purge.purge().is_of(e.key, e.tags), file.part);
    // The index comes first, and tells of each once: most of what there is ends here.
    if !is_of && file.kind == Kind::Index {
        return;
    }
    let Some(before) = found.get(&e.hash) else {
        if is_of {
            let Entry { version, date, .. } = *e;
            found.insert(e.hash, Match { part, version, date });
        }
        return;
    };
    let Match { version, date, .. } = *before;
    let old = Entry { version, date, ..*e };
    if is_later((before.part, &old), (part, e)) == Some(true) {
        match is_of {
            true => drop(found.insert(e.hash, Match { part, version: e.version, date: e.date })),
            false => drop(found.remove(&e.hash)),
        }
    }
}

/// Whether a server that began later keeps an index here: it writes it from now on.
pub(crate) fn is_taken_over(folder: &Path, part: u32) -> io::Result<bool> {
    let is_later =
        |h: FileHeader| h.kind == Kind::Journal && h.part.wrapping_sub(part).cast_signed() > 0;
    Ok(list(folder)?.iter().any(|file| file.header.is_ok_and(is_later) && file.is_kept()))
}

/// The order of the index that is there; 0 is none.
pub(crate) fn order_of(folder: &Path) -> u64 {
    let path = folder.join(FOLDER).join(INDEX);
    let header = Source::open(&path).ok().and_then(|source| source.header.ok());
    header.map_or(0, |h| h.order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(date: u32, tags: &[u8]) -> Vec<u8> {
        let key = b"/a";
        let mut out = Vec::new();
        Record::Put(Entry { date, key, tags, ..Entry::default() }).encode(&mut out);
        out
    }

    #[test]
    fn journals_of_one_millisecond() {
        let folder = std::env::temp_dir().join(format!("weir-index-{}", std::process::id()));
        let journals: Vec<_> =
            (0..3).map(|_| Journal::create(&folder, 7, 1).unwrap().path).collect();
        let listed = list(&folder).unwrap();
        let orders: Vec<u64> = listed.iter().map(|l| l.header.unwrap().order).collect();
        assert_eq!(orders, [7, 8, 9]);
        assert_eq!(listed.into_iter().map(|l| l.path).collect::<Vec<_>>(), journals);
        fs::remove_dir_all(folder).unwrap();
    }

    fn entry(date: u32, version: u32, tags: &'static [u8]) -> Entry<'static> {
        Entry { hash: [1; 16], date, version, key: b"/a", tags, ..Entry::default() }
    }

    #[test]
    fn what_a_purge_is_of() {
        let index = FileHeader { kind: Kind::Index, order: 1, part: 1 };
        let journal = |part| FileHeader { kind: Kind::Journal, order: 2, part };
        let purge = Marked { id: 1, time: 9, of: Of::Tag, text: b"old".to_vec() };
        let of = |records: &[(FileHeader, Entry<'_>)]| {
            let mut found = HashMap::new();
            records.iter().for_each(|(file, e)| look_at(&purge, &mut found, *file, e));
            found.values().map(|found| found.date).collect::<Vec<_>>()
        };
        let (old, new) = (entry(5, 3, b"old"), entry(6, 4, b"new"));
        assert_eq!(of(&[(index, old)]), [5]);
        assert_eq!(of(&[(index, old), (journal(1), new)]), []);
        assert_eq!(of(&[(index, new), (journal(1), old)]), [5], "it may be of another zone");
        // What comes late is no later for that.
        let late = entry(5, 2, b"new");
        assert_eq!(of(&[(journal(1), old), (journal(1), late)]), [5]);
        assert_eq!(of(&[(journal(1), old), (journal(1), entry(7, 8, b"old"))]), [7]);
        // Zones have versions of their own; where nobody knows, both are meant.
        assert_eq!(of(&[(journal(1), old), (journal(2), entry(6, 1, b"new"))]), []);
        assert_eq!(of(&[(journal(1), old), (journal(2), entry(5, 9, b"new"))]), [5]);
    }

    #[test]
    fn what_journals_say_at_last() {
        let hash = [1; 16];
        let put = |version, blocks| Record::Put(Entry { blocks, ..entry(1, version, b"") });
        let purged = |version| Record::Purged { hash, version, time: 7 };
        let u = u32::MAX;
        // Blocks of what is there, or 0.
        for (journals, blocks) in [
            (vec![vec![put(3, 1), put(2, 2)]], 1),
            (vec![vec![put(u, 1), put(1, 2)]], 2),
            (vec![vec![put(3, 1), purged(4), put(5, 2)]], 2),
            (vec![vec![purged(4), put(5, 2), put(3, 1)]], 2),
            (vec![vec![purged(4), put(3, 1)]], 0),
            (vec![vec![put(5, 1), purged(4)]], 1),
            (vec![vec![purged(4), put(0, 1)]], 0),
            (vec![vec![put(5, 1), Record::Gone(hash)]], 0),
            // Another server's.
            (vec![vec![put(5, 1)], vec![purged(1)]], 0),
            (vec![vec![purged(9)], vec![put(1, 1)]], 1),
        ] {
            let name = format!("weir-said-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            for (part, records) in journals.iter().enumerate() {
                let mut journal = Journal::create(&folder, 7 + part as u64, part as u32).unwrap();
                let mut bytes = Vec::new();
                records.iter().for_each(|record| record.encode(&mut bytes));
                journal.append(&bytes, true).unwrap();
            }
            let loaded = Loaded::begin(&folder).unwrap();
            let has_purges = journals.iter().flatten().any(|r| matches!(r, Record::Purged { .. }));
            assert_eq!(loaded.purged, if has_purges { 7 } else { 0 });
            let known = loaded.finish(10).unwrap().known;
            assert_eq!(known.iter().map(|known| known.blocks).sum::<u32>(), blocks, "{journals:?}");
            fs::remove_dir_all(folder).unwrap();
        }
    }

    #[test]
    fn the_later_of_two_records() {
        let both = |one: &[u8], other: &[u8]| match read(other, true) {
            Step::Record(Record::Put(e), _) => later(Some((1, one.to_vec())), 1, &e, other).1,
            step => panic!("{step:?}"),
        };
        assert_eq!(both(&raw(5, b"a"), &raw(6, b"b")), raw(6, b"b"));
        assert_eq!(both(&raw(6, b"b"), &raw(5, b"a")), raw(6, b"b"));
        assert_eq!(both(&raw(6, b"a b"), &raw(6, b"c b")), raw(6, b"c b a"));
        assert_eq!(both(&raw(6, b"a"), &raw(6, b"")), raw(6, b"a"));
        assert_eq!(both(&raw(6, b""), &raw(6, b"a")), raw(6, b"a"));
        let long = |b: u8| vec![b; 10_000];
        assert_eq!(both(&raw(6, &long(b'a')), &raw(6, &long(b'b'))), raw(6, &long(b'b')));
    }
}
