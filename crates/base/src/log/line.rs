//! A line of the log under construction: nginx's text, and the same fields as one JSON object.

use std::fmt;
use std::io::Write as _;
use std::ops::Range;

use super::{LINE_BYTES_MAX, Level};

/// The fields that follow a message: `, client: 127.0.0.1, request: "GET …"` in a line of text,
/// members of their own in JSON.
pub trait Context {
    /// Writes the fields, in their order.
    fn tell(&self, fields: &mut Fields<'_>);
}

/// A message without fields.
impl Context for () {
    fn tell(&self, _: &mut Fields<'_>) {}
}

/// Writes the fields behind a message.
pub struct Fields<'a>(pub(super) &'a mut Line);

impl Fields<'_> {
    /// Adds a field that text shows as it is: `, NAME: VALUE`.
    pub fn plain(&mut self, name: &'static str, value: fmt::Arguments<'_>) {
        self.0.field(name, ": ", value, "");
    }

    /// Adds a field that text shows without a space: `, NAME:VALUE`.
    pub fn tight(&mut self, name: &'static str, value: fmt::Arguments<'_>) {
        self.0.field(name, ":", value, "");
    }

    /// Adds a field that text shows between quotes: `, NAME: "VALUE"`.
    pub fn quoted(&mut self, name: &'static str, value: fmt::Arguments<'_>) {
        self.0.field(name, ": \"", value, "\"");
    }
}

/// The position of a field in a line of text.
struct Mark {
    name: &'static str,
    /// The position of the comma before its name.
    from: usize,
    value: Range<usize>,
}

/// A line on the stack; text beyond its end is dropped. One byte is kept for the line feed.
pub(super) struct Line {
    pub(super) buf: [u8; LINE_BYTES_MAX],
    pub(super) len: usize,
    /// The fields, if a sink wants JSON.
    marks: Option<Vec<Mark>>,
}

/// The fields before the message.
pub(super) struct Head {
    pub(super) level: Level,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) conn: Option<u64>,
}

impl Line {
    pub(super) fn new(apart: bool) -> Line {
        Line { buf: [0; LINE_BYTES_MAX], len: 0, marks: apart.then(Vec::new) }
    }

    pub(super) fn put(&mut self, args: fmt::Arguments<'_>) {
        // A Display that fails leaves a shorter line; there is nowhere to report it.
        let _ = fmt::write(self, args);
    }

    pub(super) fn put_bytes(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX - 1 - self.len;
        let taken = &bytes[..bytes.len().min(room)];
        self.buf[self.len..self.len + taken.len()].copy_from_slice(taken);
        self.len += taken.len();
    }

    pub(super) fn make_room(&mut self, room: usize) {
        let last = LINE_BYTES_MAX - room;
        if self.len > last {
            self.len = last;
            self.put_bytes(b"...");
        }
    }

    /// The line as text with its line feed, if its message holds control characters: those are
    /// written as `\x0A`, as in access logs. Such a line may be longer than others.
    pub(super) fn escaped(&self, message_start: usize) -> Option<Vec<u8>> {
        let (head, message) = self.buf.get(..self.len)?.split_at_checked(message_start)?;
        let is_c1 = |at: usize| {
            message[at] == 0xc2 && message.get(at + 1).is_some_and(|b| (0x80..0xa0).contains(b))
        };
        let is_control = |at: usize| message[at] < b' ' || message[at] == 0x7f || is_c1(at);
        if !(0..message.len()).any(is_control) {
            return None;
        }
        let mut out = Vec::with_capacity(self.len + 64);
        out.extend_from_slice(head);
        let mut at = 0;
        while let Some(&byte) = message.get(at) {
            let escaped = if is_c1(at) { 2 } else { usize::from(is_control(at)) };
            for byte in &message[at..at + escaped] {
                // Writing to a Vec cannot fail.
                let _ = write!(out, "\\x{byte:02X}");
            }
            if escaped == 0 {
                out.push(byte);
            }
            at += escaped.max(1);
        }
        out.push(b'\n');
        Some(out)
    }

    fn field(&mut self, name: &'static str, before: &str, value: fmt::Arguments<'_>, after: &str) {
        let from = self.len;
        self.put(format_args!(", {name}{before}"));
        let start = self.len;
        let room = start < LINE_BYTES_MAX - 1;
        self.put(value);
        if let Some(marks) = &mut self.marks {
            // A field whose name was cut is left out, here and in the message, which ends before
            // it.
            let name = if room { name } else { "" };
            marks.push(Mark { name, from, value: start..self.len });
        }
        self.put_bytes(after.as_bytes());
    }

    /// The line as a JSON object with the same fields, cut where the text is cut.
    pub(super) fn json(&self, head: &Head, message_start: usize) -> Vec<u8> {
        let marks = self.marks.as_deref().unwrap_or_default();
        let message_end = marks.first().map_or(self.len, |mark| mark.from);
        let mut out = Vec::with_capacity(self.len + 256);
        out.extend_from_slice(b"{\"time\":\"");
        out.extend_from_slice(&crate::time::rfc3339_ms());
        let Head { level, pid, tid, conn } = head;
        // Writing to a Vec cannot fail.
        let _ = write!(out, "\",\"level\":\"{level}\",\"pid\":{pid},\"tid\":{tid}");
        if let Some(conn) = conn {
            let _ = write!(out, ",\"connection\":{conn}");
        }
        self.member("message", message_start..message_end, &mut out);
        for mark in marks.iter().filter(|mark| !mark.name.is_empty()) {
            self.member(mark.name, mark.value.clone(), &mut out);
        }
        out.extend_from_slice(b"}\n");
        out
    }

    fn member(&self, name: &str, value: Range<usize>, out: &mut Vec<u8>) {
        // Text is UTF-8, but for a character in which the line was cut.
        let value = super::lossy(self.buf.get(value).unwrap_or_default());
        let _ = write!(out, ",\"{name}\":\"");
        crate::json::escape(value.as_bytes(), out);
        out.push(b'"');
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put_bytes(text.as_bytes());
        Ok(())
    }
}
