//! The error log, read as it grows and rotated: lines of level alert and worse, and those about a
//! full disk, which are allowed while one is full.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::time::Instant;

use super::small_disk::BEHIND;
use super::tally::Tally;

/// Lines that are kept with their texts.
const KEPT: usize = 200;

/// Logs that are kept.
const ROTATED: u32 = 24;

/// A file that is read to its end again and again.
struct Tail {
    file: File,
    rest: Vec<u8>,
}

/// The log, and the file before it, which processes write to until they have opened the new one.
pub struct Log {
    path: PathBuf,
    tails: Vec<Tail>,
    rotations: u32,
    /// Lines by level.
    pub levels: BTreeMap<&'static str, u64>,
    /// Lines without their numbers, of level crit and worse, with their counts.
    pub lines: BTreeMap<String, u64>,
}

const LEVELS: [&str; 6] = ["[emerg]", "[alert]", "[crit]", "[error]", "[warn]", "[notice]"];

impl Log {
    pub fn new(path: PathBuf) -> Self {
        let (tails, rotations) = (Vec::new(), 0);
        Self { path, tails, rotations, levels: BTreeMap::new(), lines: BTreeMap::new() }
    }

    /// Moves the file away; the server is to be told.
    pub fn rotate(&mut self, tally: &Tally, killed: bool) {
        self.read(tally, killed);
        // The last ones are kept, for a look at what surrounds a finding.
        self.rotations += 1;
        let name = format!("old{}", self.rotations % ROTATED);
        let _ = fs::rename(&self.path, self.path.with_extension(name));
        if self.tails.len() > 1 {
            self.tails.remove(0);
        }
    }

    /// Reads what is new.
    pub fn read(&mut self, tally: &Tally, killed: bool) {
        use std::os::unix::fs::MetadataExt;
        let inode = |file: &File| file.metadata().map(|m| m.ino()).ok();
        if let Ok(file) = File::open(&self.path)
            && !self.tails.iter().any(|tail| inode(&tail.file) == inode(&file))
        {
            self.tails.push(Tail { file, rest: Vec::new() });
        }
        let mut lines = Vec::new();
        for tail in &mut self.tails {
            let _ = tail.file.read_to_end(&mut tail.rest);
            let end = tail.rest.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
            let whole: Vec<u8> = tail.rest.drain(..end).collect();
            lines.extend(String::from_utf8_lossy(&whole).lines().map(str::to_string));
        }
        lines.iter().for_each(|line| self.line(line, tally, killed));
    }

    fn line(&mut self, line: &str, tally: &Tally, killed: bool) {
        let level = LEVELS.iter().find(|level| line.contains(*level)).copied();
        *self.levels.entry(level.unwrap_or("none")).or_default() += 1;
        let panicked = line.contains("panic");
        let is_bad = matches!(level, Some("[emerg]" | "[alert]" | "[crit]")) || panicked;
        let is_full = line.contains("No space left on device");
        if !is_bad && !is_full {
            return;
        }
        let text = line.split_once(": ").map_or(line, |(_, text)| text);
        let text = text.split(", client:").next().unwrap_or(text);
        // The names of a cache's files.
        let words = text.split(' ').map(|word| match word.split_once("/cache/") {
            Some((before, _)) => format!("{before}/cache/…\""),
            None => word.to_string(),
        });
        let text = words.collect::<Vec<_>>().join(" ");
        let text: String = text.chars().filter(|c| !c.is_ascii_digit()).take(200).collect();
        let text = format!("{} {text}", level.unwrap_or_default());
        let is_new = !self.lines.contains_key(&text);
        if self.lines.len() < KEPT || !is_new {
            *self.lines.entry(text).or_default() += 1;
        }
        let allowed = match () {
            () if panicked => false,
            () if is_full => tally.full.reaches(Instant::now().checked_sub(BEHIND)),
            () => killed && line.contains("exited on signal 9"),
        };
        if !allowed {
            tally.finding(format!("log: {}", line.chars().take(300).collect::<String>()));
        }
    }
}
