//! Collects the text of a result.

use crate::error::{Error, Result};

/// Text that grows up to a bound.
pub(super) struct Sink {
    text: String,
    bytes_max: usize,
    is_over: bool,
}

impl Sink {
    pub(super) fn new(bytes_max: usize) -> Self {
        Sink { text: String::new(), bytes_max, is_over: false }
    }

    /// Adds text. What goes beyond the bound is left out, and [`finish`](Self::finish) fails.
    pub(super) fn push(&mut self, text: &str) {
        if self.text.len() + text.len() > self.bytes_max {
            self.is_over = true;
        } else if !self.is_over {
            self.text.push_str(text);
        }
    }

    /// Adds text, some of whose characters become something else.
    pub(super) fn escaped(&mut self, text: &str, escape: impl Fn(char) -> Option<&'static str>) {
        let mut from = 0;
        for (at, c) in text.char_indices() {
            if let Some(other) = escape(c) {
                self.push(&text[from..at]);
                self.push(other);
                from = at + c.len_utf8();
            }
        }
        self.push(&text[from..]);
    }

    /// Adds text between quotation marks: apostrophes if it has the others alone.
    pub(super) fn quoted(&mut self, text: &str) {
        let quote = if text.contains('"') && !text.contains('\'') { "'" } else { "\"" };
        self.push(quote);
        self.escaped(text, |c| (c == '"' && quote == "\"").then_some("&quot;"));
        self.push(quote);
    }

    /// The text; an error where it is longer than it may be.
    pub(super) fn finish(self) -> Result<String> {
        if self.is_over {
            return Err(too_large());
        }
        Ok(self.text)
    }
}

pub(super) fn too_large() -> Error {
    Error::new("the result is larger than it may be")
}
