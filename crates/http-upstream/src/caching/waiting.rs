//! Purges that wait on the disk for the engine, in a file beside the cache: they outlive the
//! server.
//!
//! Each record is the length of the purge, its checksum, and the purge. A record that a crash cut
//! off ends the file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
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
        std::fs::metadata(&self.path).map_or(true, |meta| meta.len() == 0)
    }

    fn open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&self.path)?;
        // Workers and the shared state process write it. Closing it releases the lock.
        os::file::lock(&file)?;
        Ok(file)
    }

    /// On a thread: adds purges; they are on the disk when it returns.
    pub fn add(&self, purges: &[Purge]) -> io::Result<()> {
        let mut file = self.open()?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let (_, mut end) = records(&text);
        let mut bytes: Vec<u8> = purges.iter().flat_map(record).collect();
        if (end + bytes.len()) as u64 > BYTES_MAX {
            (end, bytes) = (0, record(&Purge::all()));
        }
        file.set_len(end as u64)?;
        file.seek(SeekFrom::Start(end as u64))?;
        file.write_all(&bytes)?;
        file.sync_data()
    }

    /// On a thread: all purges, oldest first.
    pub fn read(&self) -> io::Result<Batch> {
        let mut text = Vec::new();
        match self.path.exists() {
            true => self.open()?.read_to_end(&mut text)?,
            false => 0,
        };
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
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(rest)?;
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
}
