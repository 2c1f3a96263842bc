//! Messages of JSON-RPC, framed by a head with `Content-Length` (LSP, "Base Protocol").

use std::io::{self, BufRead, Write};

use serde_json::Value;

/// The longest head of a message, bytes.
const HEAD_MAX: usize = 8 << 10;
/// The longest message, bytes: a whole document may be in it.
const BODY_MAX: usize = 64 << 20;

/// The next message.
#[derive(Debug)]
pub(crate) enum Frame {
    /// JSON.
    Message(Value),
    /// No JSON, or no head with a length: the reader goes on behind it.
    Malformed(String),
    /// The other side has gone.
    End,
}

/// Reads a message.
///
/// # Errors
/// Errors of the reader.
pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Frame> {
    let mut length = None;
    let mut head = 0;
    loop {
        let Some(line) = line(from)? else { return Ok(Frame::End) };
        head += line.len();
        let text = line.trim_ascii();
        if text.is_empty() {
            match length {
                // Blank lines before a head are passed over.
                None if head == line.len() => head = 0,
                _ => break,
            }
            continue;
        }
        if head > HEAD_MAX {
            return Ok(Frame::Malformed("the head of a message is too long".to_owned()));
        }
        let Some(colon) = text.iter().position(|&b| b == b':') else { continue };
        if text[..colon].eq_ignore_ascii_case(b"content-length") {
            length = base::ascii::parse_u64(text[colon + 1..].trim_ascii());
        }
    }
    let Some(length) = length.and_then(|length| usize::try_from(length).ok()) else {
        return Ok(Frame::Malformed("a message has no Content-Length".to_owned()));
    };
    if length > BODY_MAX {
        io::copy(&mut io::Read::take(&mut *from, length as u64), &mut io::sink())?;
        return Ok(Frame::Malformed(format!("a message is longer than {BODY_MAX} bytes")));
    }
    let mut body = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(&mut *from, length as u64), &mut body)?;
    if body.len() < length {
        return Ok(Frame::End);
    }
    Ok(match serde_json::from_slice(&body) {
        Ok(value) => Frame::Message(value),
        Err(e) => Frame::Malformed(e.to_string()),
    })
}

/// A line with its end, cut where no line feed comes; `None` at the end.
fn line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let max = HEAD_MAX as u64 + 1;
    io::Read::take(&mut *from, max).read_until(b'\n', &mut line)?;
    Ok((!line.is_empty()).then_some(line))
}

/// Writes a message.
///
/// # Errors
/// Errors of the writer.
pub(crate) fn write(to: &mut impl Write, message: &Value) -> io::Result<()> {
    let body = message.to_string();
    write!(to, "Content-Length: {}\r\n\r\n{body}", body.len())?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn all(mut text: &[u8]) -> Vec<String> {
        let mut frames = Vec::new();
        loop {
            frames.push(match read(&mut text).expect("memory can be read") {
                Frame::Message(value) => value.to_string(),
                Frame::Malformed(_) => "malformed".to_owned(),
                Frame::End => return frames,
            });
        }
    }

    #[test]
    fn frames_are_read_one_after_another() {
        let text = b"Content-Length: 2\r\n\r\n{}content-length:3\r\nX: y\r\n\r\n[1]\r\n";
        assert_eq!(all(text), ["{}", "[1]"]);
        let mut out = Vec::new();
        write(&mut out, &json!({"a": "\u{fc}"})).expect("memory can be written");
        assert_eq!(out, "Content-Length: 10\r\n\r\n{\"a\":\"\u{fc}\"}".as_bytes());
    }

    #[test]
    fn what_is_malformed_is_passed_over() {
        let good = "Content-Length: 2\r\n\r\n{}";
        for bad in ["X: y\r\n\r\n", "Content-Length: 3\r\n\r\n{{{", "Content-Length: -1\r\n\r\n"] {
            assert_eq!(all(format!("{bad}{good}").as_bytes()), ["malformed", "{}"], "{bad}");
        }
        let deep = "[".repeat(100_000);
        let deep = format!("Content-Length: {}\r\n\r\n{deep}", deep.len());
        assert_eq!(all(deep.as_bytes()), ["malformed"]);
        assert_eq!(all(b"Content-Length: 9\r\n\r\n{}"), [""; 0], "it is cut");
        let long = format!("X: {}\r\n", "y".repeat(3 * HEAD_MAX));
        assert_eq!(all(long.as_bytes()).first().map(String::as_str), Some("malformed"));
    }
}
