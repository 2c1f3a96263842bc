//! The lines of a document in the text that is made of it.

use std::borrow::Cow;

/// From an offset on, lines are those of the document, or all the one of a reference.
pub(super) struct Mark {
    pub(super) at: usize,
    pub(super) line: u32,
    pub(super) counts: bool,
}

/// The text, and the lines of the document that it comes from.
pub(super) struct Flat<'a> {
    pub(super) text: Cow<'a, str>,
    /// In the order of their offsets.
    pub(super) marks: Vec<Mark>,
    /// The last element that has no end, and its line.
    pub(super) open: Option<(String, u32)>,
}

/// The lines of offsets that grow.
pub(super) struct Lines<'f> {
    flat: &'f Flat<'f>,
    mark: usize,
    at: usize,
    line: u32,
}

impl Flat<'_> {
    /// The lines of the text.
    pub(super) fn lines(&self) -> Lines<'_> {
        let line = self.marks.first().map_or(1, |mark| mark.line);
        Lines { flat: self, mark: 0, at: 0, line }
    }
}

impl Lines<'_> {
    /// The document's line of an offset, which is not before the last one.
    pub(super) fn line(&mut self, offset: usize) -> u32 {
        let marks = &self.flat.marks;
        while let Some(next) = marks.get(self.mark + 1).filter(|next| next.at <= offset) {
            self.mark += 1;
            (self.at, self.line) = (next.at, next.line);
        }
        if marks.get(self.mark).is_none_or(|mark| mark.counts) && offset > self.at {
            let between = self.flat.text.as_bytes().get(self.at..offset).unwrap_or_default();
            let ends = between.iter().filter(|b| **b == b'\n').count();
            self.line += u32::try_from(ends).unwrap_or_default();
            self.at = offset;
        }
        self.line
    }
}

/// The number of line ends.
pub(crate) fn count(text: &str) -> u32 {
    text.bytes().filter(|b| *b == b'\n').count().try_into().unwrap_or(u32::MAX)
}
