//! Sections that wait for entries of the table (section 2.1.2).

use std::collections::VecDeque;

use super::section::Prefix;

/// A section that waits for entries, or whose entries have come.
#[derive(Debug)]
pub struct Held {
    /// The stream that the section belongs to.
    pub stream: u64,
    pub(super) prefix: Prefix,
    /// The field lines behind the prefix.
    pub(super) lines: Vec<u8>,
}

/// The sections that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    sections: VecDeque<Held>,
    bytes: usize,
}

impl Waiting {
    pub fn len(&self) -> usize {
        self.sections.len()
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push(&mut self, held: Held) {
        self.bytes += held.lines.len();
        self.sections.push_back(held);
    }

    /// Takes the first section whose entries are there after `inserted` insertions.
    pub fn ready(&mut self, inserted: u64) -> Option<Held> {
        self.take(|held| held.prefix.required <= inserted)
    }

    /// Takes that of a stream.
    pub fn of(&mut self, stream: u64) -> Option<Held> {
        self.take(|held| held.stream == stream)
    }

    fn take(&mut self, is_it: impl Fn(&Held) -> bool) -> Option<Held> {
        let at = self.sections.iter().position(is_it)?;
        let held = self.sections.remove(at)?;
        self.bytes -= held.lines.len();
        if self.sections.is_empty() {
            self.sections = VecDeque::new();
        }
        Some(held)
    }
}
