//! The body of a response, whatever its framing (RFC 9112 section 6.3).

use http_wire::chunked::{Decoder, Event, Trailers};
use http_wire::h1::ResponseHead;

/// The longest trailers, bytes.
const TRAILERS_MAX: u32 = 4096;

/// The body of a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// All of it.
    Whole(Vec<u8>),
    /// The beginning of it.
    Part(Vec<u8>, Missing),
}

/// The reason why a body is not whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// The exchange was to end at the head.
    NotAwaited,
    /// The server closed the connection before the end that the framing declares.
    Closed,
    /// The body is longer than the limit.
    TooLong,
    /// The chunked coding is broken.
    Malformed,
}

impl Body {
    /// The bytes, whether they are all or not.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Body::Whole(bytes) | Body::Part(bytes, _) => bytes,
        }
    }
}

/// The state of a body behind the bytes taken so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    More,
    /// `reusable`: the framing tells where the body ended, and nothing came behind it.
    Whole {
        reusable: bool,
    },
    Broken(Missing),
}

/// The end of a body.
enum Framing {
    /// Behind so many bytes.
    Length(u64),
    /// Behind the last chunk.
    Chunked(Box<Decoder>),
    /// With the connection.
    Close,
}

/// Collects a body.
pub(super) struct BodyReader {
    framing: Framing,
    max: usize,
    bytes: Vec<u8>,
}

impl BodyReader {
    /// `to_head`: the request's method is HEAD.
    pub fn new(head: &ResponseHead, to_head: bool, max: Option<usize>) -> BodyReader {
        let framing = match head.content_length {
            _ if to_head || matches!(head.status, 204 | 304) => Framing::Length(0),
            _ if head.chunked => {
                Framing::Chunked(Box::new(Decoder::new(Trailers::Discard, TRAILERS_MAX)))
            }
            Some(len) => Framing::Length(len),
            None => Framing::Close,
        };
        BodyReader { framing, max: max.unwrap_or(usize::MAX), bytes: Vec::new() }
    }

    /// Takes the bytes that arrived.
    pub fn take(&mut self, data: &[u8]) -> Progress {
        let (bytes, max) = (&mut self.bytes, self.max);
        match &mut self.framing {
            Framing::Length(left) => {
                let len = usize::try_from(*left).map_or(data.len(), |left| left.min(data.len()));
                if !append(bytes, &data[..len], max) {
                    return Progress::Broken(Missing::TooLong);
                }
                *left -= len as u64;
                if *left > 0 {
                    return Progress::More;
                }
                Progress::Whole { reusable: len == data.len() }
            }
            Framing::Chunked(decoder) => {
                let mut pos = 0;
                loop {
                    match decoder.next(data, &mut pos) {
                        Ok(Event::Data(range)) if append(bytes, &data[range.clone()], max) => {}
                        Ok(Event::Data(_)) => return Progress::Broken(Missing::TooLong),
                        Ok(Event::More) => return Progress::More,
                        Ok(Event::Done) => return Progress::Whole { reusable: pos == data.len() },
                        Err(_) => return Progress::Broken(Missing::Malformed),
                    }
                }
            }
            Framing::Close if append(bytes, data, max) => Progress::More,
            Framing::Close => Progress::Broken(Missing::TooLong),
        }
    }

    /// The server closed the connection, and `take` was in need of more.
    pub fn closed(&self) -> Progress {
        match self.framing {
            Framing::Close => Progress::Whole { reusable: false },
            _ => Progress::Broken(Missing::Closed),
        }
    }

    /// The body, once no more of it is read.
    pub fn finish(self, progress: Progress) -> Body {
        match progress {
            Progress::Whole { .. } => Body::Whole(self.bytes),
            Progress::More => Body::Part(self.bytes, Missing::NotAwaited),
            Progress::Broken(missing) => Body::Part(self.bytes, missing),
        }
    }
}

/// Appends what fits; false when that is not all.
fn append(bytes: &mut Vec<u8>, piece: &[u8], max: usize) -> bool {
    let len = piece.len().min(max.saturating_sub(bytes.len()));
    bytes.extend_from_slice(&piece[..len]);
    len == piece.len()
}

#[cfg(test)]
mod tests {
    use http_wire::h1::{ResponseParser, ResponseStep};

    use super::*;

    /// Reads a body that comes in two pieces, cut at each position; then the connection is closed.
    fn read(fields: &str, to_head: bool, max: Option<usize>, text: &str) -> (Progress, Body) {
        let head_text = format!("HTTP/1.1 {fields}\r\n\r\n");
        let mut head = ResponseHead::new();
        let step = ResponseParser::new().parse(head_text.as_bytes(), &mut head);
        assert!(matches!(step, ResponseStep::Done { .. }), "{head_text}");
        let mut results = (0..=text.len()).map(|cut| {
            let mut reader = BodyReader::new(&head, to_head, max);
            let mut progress = reader.take(&text.as_bytes()[..cut]);
            if progress == Progress::More {
                progress = reader.take(&text.as_bytes()[cut..]);
            } else if let Progress::Whole { reusable } = &mut progress {
                *reusable &= cut == text.len();
            }
            if progress == Progress::More {
                progress = reader.closed();
            }
            (progress, reader.finish(progress))
        });
        let first = results.next().unwrap();
        assert!(results.all(|other| other == first), "{fields} {text}: cuts make a difference");
        first
    }

    fn whole(text: &str, reusable: bool) -> (Progress, Body) {
        (Progress::Whole { reusable }, Body::Whole(text.into()))
    }

    fn part(text: &str, missing: Missing) -> (Progress, Body) {
        (Progress::Broken(missing), Body::Part(text.into(), missing))
    }

    #[test]
    fn bodies_end_where_their_framing_says() {
        let (length, chunked) =
            ("200 X\r\nContent-Length: 5", "200 X\r\nTransfer-Encoding: chunked");
        let none = "204 X\r\nContent-Length: 5";
        for (fields, to_head, max, text, result) in [
            (length, false, None, "abcde", whole("abcde", true)),
            (length, false, None, "abcdef", whole("abcde", false)),
            (length, false, None, "abc", part("abc", Missing::Closed)),
            (length, false, Some(5), "abcde", whole("abcde", true)),
            (length, false, Some(4), "abcde", part("abcd", Missing::TooLong)),
            (length, true, None, "", whole("", true)),
            (length, true, None, "abcde", whole("", false)),
            (none, false, None, "", whole("", true)),
            ("200 X\r\nContent-Length: 0", false, None, "", whole("", true)),
            (chunked, false, None, "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", whole("abcde", true)),
            (chunked, false, None, "1\r\na\r\n0\r\nX: y\r\n\r\nz", whole("a", false)),
            (chunked, false, None, "3\r\nabc\r\n2\r\nd", part("abcd", Missing::Closed)),
            (chunked, false, None, "3\r\nabc\r\nx\r\n", part("abc", Missing::Malformed)),
            (chunked, false, Some(3), "3\r\nabc\r\n0\r\n\r\n", whole("abc", true)),
            (chunked, false, Some(4), "3\r\nabc\r\n3\r\ndef\r\n", part("abcd", Missing::TooLong)),
            (chunked, true, None, "", whole("", true)),
            ("200 X", false, None, "abc", whole("abc", false)),
            ("200 X", false, Some(3), "abc", whole("abc", false)),
            ("200 X", false, Some(2), "abc", part("ab", Missing::TooLong)),
        ] {
            assert_eq!(read(fields, to_head, max, text), result, "{fields} {text}");
        }
    }

    #[test]
    fn the_longest_length_is_no_buffer() {
        let fields = format!("200 X\r\nContent-Length: {}", i64::MAX);
        assert_eq!(read(&fields, false, Some(2), "ab"), part("ab", Missing::Closed));
    }
}
