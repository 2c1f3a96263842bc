//! Purges that wait on the disk for the engine, in a file beside the cache: they outlive the
//! server.
//!
//! Each record is the length of the purge, its checksum, and the purge. A record that a crash cut
//! off ends the file. Records at its end are added in place; everything else takes the place of the
//! file as a whole, so that a crash leaves either version.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base::crc::crc32;
use fleet::purges::Purge;

/// The file's name, in the folder of the cache.
const NAME: &str = ".weir.purges.waiting";

/// The longest file in bytes. With more, all of the cache is purged instead.
const BYTES_MAX: u64 = 1 << 20;

/// The bytes of a record before the purge.
const HEADER: usize = 8;

/// Purges of the file.
#[derive(PartialEq, Debug)]
pub(super) struct Batch {
    pub purges: Vec<Purge>,
    /// The length of their records, and its checksum.
    pub bytes: usize,
    pub crc: u32,
}

/// The file.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    path: PathBuf,
}

impl Waiting {
    pub fn of(folder: &Path) -> Waiting {
        Waiting { path: folder.join(NAME) }
    }

    /// Whether there is something to send.
    pub fn is_empty(&self) -> bool {
        match std::fs::metadata(&self.path) {
            Ok(meta) => meta.len() == 0,
            // What cannot be read is not lost: reading it says why.
            Err(e) => e.kind() == io::ErrorKind::NotFound,
        }
    }

    fn open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        loop {
            let file = options.open(&self.path)?;
            // Workers and the shared state process write it. Closing it releases the lock.
            os::file::lock(&file)?;
            let own = file.metadata()?;
            match std::fs::metadata(&self.path) {
                Ok(now) if (now.dev(), now.ino()) == (own.dev(), own.ino()) => return Ok(file),
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                // Another file has taken its place meanwhile.
                _ => {}
            }
        }
    }

    /// Puts a file with that text in the place of this one, which stays locked until then.
    fn replace(&self, _locked: &File, text: &[u8]) -> io::Result<()> {
        let beside = self.path.with_file_name(format!("{NAME}.new"));
        let mut options = OpenOptions::new();
        let mut new = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        new.write_all(text)?;
        new.sync_data()?;
        std::fs::rename(&beside, &self.path)?;
        match self.path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }

    /// On a thread: adds purges; they are on the disk when it returns.
    pub fn add(&self, purges: &[Purge]) -> io::Result<()> {
        let mut file = self.open()?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let (_, end) = records(&text);
        let bytes: Vec<u8> = purges.iter().flat_map(record).collect();
        if (end + bytes.len()) as u64 > BYTES_MAX {
            return self.replace(&file, &record(&Purge::all()));
        }
        file.set_len(end as u64)?;
        file.seek(SeekFrom::Start(end as u64))?;
        file.write_all(&bytes)?;
        file.sync_data()
    }

    /// On a thread: all purges, oldest first.
    pub fn read(&self) -> io::Result<Batch> {
        let mut text = Vec::new();
        if !self.is_empty() {
            self.open()?.read_to_end(&mut text)?;
        }
        let (purges, bytes) = records(&text);
        Ok(Batch { purges, bytes, crc: crc32(&text[..bytes]) })
    }

    /// On a thread: the purges of a batch with that length and checksum have been sent.
    pub fn sent(&self, bytes: usize, crc: u32) -> io::Result<()> {
        let mut file = self.open()?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // A file that became too long was begun anew, and nothing of it has been sent.
        let rest = match text.split_at_checked(bytes) {
            Some((sent, rest)) if crc32(sent) == crc => rest,
            _ => return Ok(()),
        };
        if !rest.is_empty() {
            return self.replace(&file, rest);
        }
        file.set_len(0)?;
        file.sync_data()
    }
}

fn record(purge: &Purge) -> Vec<u8> {
    let bytes = purge.to_bytes();
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    [&len[..], &crc32(&bytes).to_le_bytes(), &bytes].concat()
}

/// The purges of whole records, and the length of these.
fn records(text: &[u8]) -> (Vec<Purge>, usize) {
    let (mut all, mut rest) = (Vec::new(), text);
    while let Some((header, behind)) = rest.split_first_chunk::<HEADER>() {
        let [len, crc] = [0, 4].map(|at| {
            let word = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            u32::from_le_bytes(word)
        });
        let Some((bytes, behind)) = behind.split_at_checked(len as usize) else { break };
        let Some(purge) = Purge::from_bytes(bytes).filter(|_| crc32(bytes) == crc) else { break };
        all.push(purge);
        rest = behind;
    }
    (all, text.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Purge {
        Purge::Key(format!("/{n}").into_bytes())
    }

    #[test]
    fn purges_wait_until_they_are_sent() {
        let folder = testkit::Folder::new("waiting");
        let waiting = Waiting::of(folder.path());
        assert!(waiting.is_empty());
        assert_eq!(waiting.read().unwrap().purges, []);
        waiting.add(&[key(1), Purge::Tag(b"t".to_vec())]).unwrap();
        let batch = waiting.read().unwrap();
        assert_eq!(batch.purges, [key(1), Purge::Tag(b"t".to_vec())]);
        // Another one comes while these are sent.
        waiting.add(&[key(2)]).unwrap();
        waiting.sent(batch.bytes, batch.crc).unwrap();
        let batch = waiting.read().unwrap();
        assert_eq!(batch.purges, [key(2)]);
        waiting.sent(batch.bytes, batch.crc).unwrap();
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_record_that_was_cut_off_is_written_over() {
        let folder = testkit::Folder::new("waiting");
        let waiting = Waiting::of(folder.path());
        waiting.add(&[key(1), key(2)]).unwrap();
        let text = std::fs::read(&waiting.path).unwrap();
        for len in 0..text.len() {
            std::fs::write(&waiting.path, &text[..len]).unwrap();
            let whole = usize::from(len >= text.len() / 2);
            assert_eq!(waiting.read().unwrap().purges.len(), whole, "{len}");
            waiting.add(&[key(3)]).unwrap();
            assert_eq!(waiting.read().unwrap().purges.len(), whole + 1, "{len}");
        }
        let mut broken = text;
        broken[HEADER] ^= 1;
        std::fs::write(&waiting.path, &broken).unwrap();
        assert_eq!(waiting.read().unwrap().purges, []);
    }

    #[test]
    fn too_many_purge_everything() {
        let folder = testkit::Folder::new("waiting");
        let waiting = Waiting::of(folder.path());
        let long: Vec<_> = (0..300).map(|n| Purge::Key(vec![n as u8; 4000])).collect();
        waiting.add(&long[..200]).unwrap();
        assert_eq!(waiting.read().unwrap().purges.len(), 200);
        let batch = waiting.read().unwrap();
        waiting.add(&long[200..]).unwrap();
        assert_eq!(waiting.read().unwrap().purges, [Purge::all()]);
        // It took the place of purges that were being sent, and stays.
        waiting.sent(batch.bytes, batch.crc).unwrap();
        assert_eq!(waiting.read().unwrap().purges, [Purge::all()]);
    }

    /// What is left is never on the way between two states of the file.
    #[test]
    fn a_file_that_cannot_be_replaced_stays_whole() {
        let folder = testkit::Folder::new("waiting");
        let waiting = Waiting::of(folder.path());
        waiting.add(&[key(1)]).unwrap();
        let batch = waiting.read().unwrap();
        waiting.add(&[key(2)]).unwrap();
        // A folder in its place: nothing can be written there, not even by root.
        let new = folder.join(format!("{NAME}.new"));
        std::fs::create_dir(&new).unwrap();
        waiting.sent(batch.bytes, batch.crc).unwrap_err();
        assert_eq!(waiting.read().unwrap().purges, [key(1), key(2)]);
        let long: Vec<_> = (0..300).map(|n| Purge::Key(vec![n as u8; 4000])).collect();
        waiting.add(&long).unwrap_err();
        assert_eq!(waiting.read().unwrap().purges, [key(1), key(2)]);
        std::fs::remove_dir(&new).unwrap();
        waiting.sent(batch.bytes, batch.crc).unwrap();
        assert_eq!(waiting.read().unwrap().purges, [key(2)]);
        assert!(!new.exists());
    }

    #[test]
    fn a_file_that_is_replaced_loses_nothing_of_others() {
        let folder = testkit::Folder::new("waiting");
        let waiting = Waiting::of(folder.path());
        let adders: Vec<_> = (0..3)
            .map(|of| {
                let waiting = waiting.clone();
                std::thread::spawn(move || {
                    (0..50).for_each(|n| waiting.add(&[key(100 * of + n)]).unwrap());
                })
            })
            .collect();
        let mut sent = Vec::new();
        while sent.len() < 150 {
            let is_over = adders.iter().all(|of| of.is_finished());
            let batch = waiting.read().unwrap();
            waiting.sent(batch.bytes, batch.crc).unwrap();
            assert!(!is_over || !batch.purges.is_empty(), "{} purges are left", sent.len());
            sent.extend(batch.purges);
        }
        adders.into_iter().for_each(|of| of.join().unwrap());
        let mut wanted: Vec<_> =
            (0..3).flat_map(|of| (0..50).map(move |n| key(100 * of + n))).collect();
        sent.sort();
        wanted.sort();
        assert_eq!(sent, wanted);
        assert!(waiting.is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_not_nothing() {
        let folder = testkit::Folder::new("waiting");
        folder.write("file", "");
        let waiting = Waiting::of(&folder.join("file"));
        assert!(!waiting.is_empty());
        waiting.read().unwrap_err();
    }
}
