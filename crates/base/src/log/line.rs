//! A line of the log under construction: nginx's text, and the same fields as one JSON object.

use std::cell::RefCell;
use std::fmt;
use std::io::Write as _;
use std::ops::Range;
use std::rc::Rc;

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
    pub fn plain(&mut self, name: &str, value: fmt::Arguments<'_>) {
        self.0.field(name, ": ", value, "");
    }

    /// Adds a field that text shows without a space: `, NAME:VALUE`.
    pub fn tight(&mut self, name: &str, value: fmt::Arguments<'_>) {
        self.0.field(name, ":", value, "");
    }

    /// Adds a field that text shows between quotes: `, NAME: "VALUE"`.
    pub fn quoted(&mut self, name: &str, value: fmt::Arguments<'_>) {
        self.0.field(name, ": \"", value, "\"");
    }
}

/// The members of JSON lines that [`Tags`] cannot replace: those of both sets of names.
pub const MEMBERS: &[&str] = &[
    "time",
    "timestamp",
    "level",
    "pid",
    "tid",
    "connection",
    "cnum",
    "message",
    "msg",
    "client",
    "server",
    "request",
    "subrequest",
    "upstream",
    "host",
    "referrer",
    "errno",
    "errtext",
    "truncated",
];

/// Fields of the operator's own, by name: values that are known before the line is written.
#[derive(Default)]
pub struct Tags(RefCell<Vec<(Rc<str>, Vec<u8>)>>);

impl Tags {
    /// Replaces all of them.
    pub fn set(&self, tags: Vec<(Rc<str>, Vec<u8>)>) {
        self.0.replace(tags);
    }
}

impl Context for Tags {
    fn tell(&self, fields: &mut Fields<'_>) {
        for (name, value) in self.0.borrow().iter() {
            fields.quoted(name, format_args!("{}", super::lossy(value)));
        }
    }
}

/// The position of a field in a line of text.
struct Mark {
    name: String,
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

/// A line in its parts.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// How serious the event is.
    pub level: Level,
    /// The process that wrote it.
    pub pid: u32,
    /// The connection that it is about.
    pub conn: Option<u64>,
    /// The text after the process and connection numbers.
    pub message: &'a str,
    /// The fields behind it, with their names.
    pub fields: &'a [(&'a str, std::borrow::Cow<'a, str>)],
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

    fn field(&mut self, name: &str, before: &str, value: fmt::Arguments<'_>, after: &str) {
        let from = self.len;
        self.put(format_args!(", {name}{before}"));
        let start = self.len;
        let room = start < LINE_BYTES_MAX - 1;
        self.put(value);
        if let Some(marks) = &mut self.marks {
            // A field whose name was cut is left out, here and in the message, which ends before
            // it.
            let name = if room { name.to_owned() } else { String::new() };
            marks.push(Mark { name, from, value: start..self.len });
        }
        self.put_bytes(after.as_bytes());
    }

    /// The line as a JSON object with the same fields, cut where the text is cut.
    pub(super) fn json(&self, head: &Head, message_start: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len + 256);
        let Head { level, pid, tid, conn } = head;
        let time = crate::time::rfc3339_ms();
        out.extend_from_slice(b"{\"time\":\"");
        out.extend_from_slice(&time);
        // Writing to a Vec cannot fail.
        let _ = write!(out, "\",\"level\":\"{level}\",\"pid\":{pid},\"tid\":{tid}");
        if let Some(conn) = conn {
            let _ = write!(out, ",\"connection\":{conn}");
        }
        member("message", self.text(message_start..self.message_end()).as_bytes(), &mut out);
        self.context(&mut out);
        out.extend_from_slice(b"}\n");
        out
    }

    /// The same with the names of NGINX Plus, and the system's error apart from the message.
    pub(super) fn plus_json(&self, head: &Head, message_start: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len + 256);
        let Head { level, pid, tid, conn } = head;
        let _ = write!(out, "{{\"level\":\"{level}\",\"timestamp\":\"");
        out.extend_from_slice(&crate::time::rfc3339_ms());
        let _ = write!(out, "\",\"pid\":{pid},\"tid\":{tid}");
        if let Some(conn) = conn {
            let _ = write!(out, ",\"cnum\":{conn}");
        }
        let text = self.text(message_start..self.message_end());
        let error = system_error(&text);
        match &error {
            None => member("msg", text.as_bytes(), &mut out),
            Some((at, ..)) => {
                let bare = [&text[..at.start], &text[at.end..]].concat();
                member("msg", bare.as_bytes(), &mut out);
            }
        }
        self.context(&mut out);
        if let Some((_, number, text)) = &error {
            let _ = write!(out, ",\"errno\":{number}");
            member("errtext", text.as_bytes(), &mut out);
        }
        if self.is_full() {
            out.extend_from_slice(b",\"truncated\":1");
        }
        out.extend_from_slice(b"}\n");
        out
    }

    /// Gives the parts of the line to `take`.
    pub(super) fn parts(&self, head: &Head, message_start: usize, take: impl FnOnce(&Parts<'_>)) {
        let marks = self.marks.as_deref().unwrap_or_default();
        let named = marks.iter().filter(|mark| !mark.name.is_empty());
        let fields: Vec<_> =
            named.map(|mark| (&*mark.name, self.text(mark.value.clone()))).collect();
        let message = self.text(message_start..self.message_end());
        let Head { level, pid, conn, .. } = *head;
        take(&Parts { level, pid, conn, message: &message, fields: &fields });
    }

    /// Whether text was cut off.
    fn is_full(&self) -> bool {
        self.len >= LINE_BYTES_MAX - 1
    }

    fn message_end(&self) -> usize {
        let marks = self.marks.as_deref().unwrap_or_default();
        marks.first().map_or(self.len, |mark| mark.from)
    }

    /// The members of the fields behind the message.
    fn context(&self, out: &mut Vec<u8>) {
        let marks = self.marks.as_deref().unwrap_or_default();
        for mark in marks.iter().filter(|mark| !mark.name.is_empty()) {
            member(&mark.name, self.text(mark.value.clone()).as_bytes(), out);
        }
    }

    /// A part of the line. It is UTF-8, but for a character in which the line was cut.
    fn text(&self, range: Range<usize>) -> std::borrow::Cow<'_, str> {
        super::lossy(self.buf.get(range).unwrap_or_default())
    }
}

fn member(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    crate::json::escape(name.as_bytes(), out);
    out.extend_from_slice(b"\":\"");
    crate::json::escape(value, out);
    out.push(b'"');
}

/// The last ` (2: No such file or directory)` of a message, with its number and text. The text has
/// to be the system's, because a quoted request may hold something similar.
fn system_error(message: &str) -> Option<(Range<usize>, i32, String)> {
    let mut before = message.len();
    while let Some(start) = message[..before].rfind(" (") {
        before = start;
        let Some((number, rest)) = message[start + 2..].split_once(": ") else { continue };
        let Ok(number) = number.parse::<i32>() else { continue };
        let shown = super::os_error(&std::io::Error::from_raw_os_error(number)).to_string();
        let Some(text) = shown.split_once(": ").and_then(|(_, text)| text.strip_suffix(')')) else {
            continue;
        };
        if rest.strip_prefix(text).is_some_and(|rest| rest.starts_with(')')) {
            return Some((start..start + 1 + shown.len(), number, text.to_owned()));
        }
    }
    None
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put_bytes(text.as_bytes());
        Ok(())
    }
}
