//! Requests that are the same as one before on their connection, byte for byte: a client that asks
//! an API, a page that polls. Their heads are copied: to decode the fields and to look at each of
//! them costs as much as to answer with a small file. Of those that are the same but for their
//! paths, as most of a client's are, the path alone is decoded.
//!
//! A block that changes no table means the same as long as nothing else changes it, either. Nothing
//! is kept of a block that came once but the block itself, and only if it is short.

use std::ops::Range;

use crate::fields::request::with_target;
use crate::h1::{Head, Limits, TargetForm};
use crate::h2::hpack::{literal_path, read_literal_path};

/// The longest block that is kept.
const BLOCK_MAX: usize = 256;

/// The longest text of a head that is kept.
const TEXT_MAX: usize = 1 << 10;

/// Blocks that are kept.
const PLACES: usize = 4;

/// A header block as it was sent.
pub struct Sent<'a> {
    /// Its bytes.
    pub block: &'a [u8],
    /// No body follows it.
    pub end_stream: bool,
    /// Changes of the table before it: [`crate::h2::hpack::Decoder::changes`].
    pub changes: u64,
}

/// The heads of some requests of a connection.
#[derive(Default)]
pub struct Heads {
    same: [Place; PLACES],
    pattern: Pattern,
}

/// The head of a request, and the place of its path: others differ from it there.
#[derive(Default)]
struct Pattern {
    place: Place,
    /// The path in the block.
    path: Range<usize>,
}

#[derive(Default)]
struct Place {
    block: Vec<u8>,
    end_stream: bool,
    changes: u64,
    /// The head and its text, where the block came twice.
    made: Option<Box<(Head, Vec<u8>)>>,
}

impl Place {
    fn holds(&self, sent: &Sent) -> bool {
        self.changes == sent.changes
            && self.end_stream == sent.end_stream
            && self.block == sent.block
    }

    /// Keeps a block, in the place of another.
    fn keep(&mut self, sent: &Sent) {
        self.made = None;
        self.block.clear();
        self.block.extend_from_slice(sent.block);
        (self.end_stream, self.changes) = (sent.end_stream, sent.changes);
    }
}

impl Pattern {
    /// Whether a block is that of the pattern but for its path; the place of that.
    #[inline]
    fn path_of(&self, sent: &Sent) -> Option<Range<usize>> {
        let own = &self.place;
        if own.changes != sent.changes || own.end_stream != sent.end_stream {
            return None;
        }
        let (before, behind) = (own.block.get(..self.path.start)?, own.block.get(self.path.end..)?);
        let end = sent.block.len().checked_sub(behind.len()).filter(|end| *end > before.len())?;
        let is_same = sent.block.starts_with(before) && sent.block.ends_with(behind);
        is_same.then_some(before.len()..end)
    }

    /// Makes the head of a block that differs in its path; says whether there is one. Where not,
    /// nothing holds of what was made.
    fn make(&self, sent: &Sent, limits: &Limits, head: &mut Head, text: &mut Vec<u8>) -> bool {
        let Some(made) = &self.place.made else { return false };
        let Some(path) = self.path_of(sent) else { return false };
        head.copy_from(&made.0);
        text.extend_from_slice(&made.1);
        let is_made =
            with_target(head, text, |text| read_literal_path(sent.block.get(path)?, text));
        // The text has all fields, and more.
        let fits = text.len() <= limits.large_size as usize;
        if is_made.is_none() || !fits {
            text.clear();
            return false;
        }
        true
    }

    /// Takes note of a block that can be a pattern, and its head once there was another like it.
    fn note(&mut self, sent: &Sent, head: &Head, text: &[u8]) {
        let Some(path) = literal_path(sent.block).filter(|_| head.form == TargetForm::Origin)
        else {
            return;
        };
        // Where another field stands beside the path, too, the head is not that of the pattern.
        let is_like_it = self.path_of(sent) == Some(path.clone());
        self.place.keep(sent);
        self.path = path;
        if is_like_it {
            self.place.made = Some(Box::new((head.clone(), text.to_vec())));
        }
    }
}

impl Heads {
    /// Makes the head of a block that is the same as one before, or differs in its path; says
    /// whether there is one. The text is as it was where there is none.
    #[inline]
    pub fn make(&self, sent: &Sent, limits: &Limits, head: &mut Head, text: &mut Vec<u8>) -> bool {
        let place = &self.same[place_of(sent.block)];
        if !place.holds(sent) {
            return self.pattern.make(sent, limits, head, text);
        }
        let Some(made) = &place.made else { return false };
        head.copy_from(&made.0);
        text.extend_from_slice(&made.1);
        true
    }

    /// Takes note of a block, which has changed no table, and the head that was made of it.
    pub fn note(&mut self, sent: &Sent, head: &Head, text: &[u8]) {
        if sent.block.len() > BLOCK_MAX || text.len() > TEXT_MAX {
            return;
        }
        let place = &mut self.same[place_of(sent.block)];
        if place.holds(sent) {
            place.made = Some(Box::new((head.clone(), text.to_vec())));
            return;
        }
        place.keep(sent);
        self.pattern.note(sent, head, text);
    }
}

/// The place of a block. Blocks of a client differ in a path, of which a few bytes are looked at.
#[inline]
fn place_of(block: &[u8]) -> usize {
    let words = block.rchunks_exact(8).take(4).filter_map(|word| word.first_chunk());
    let sum = words.fold(block.len() as u64, |sum, word| {
        (sum.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    (sum >> 32) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::request::HeadBuilder;
    use crate::h1::Version;
    use crate::h2::hpack::{Decoder, Encoder};

    /// A block of a GET, whose fields but the path have come before.
    fn block(encoder: &mut Encoder, path: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        encoder.field(b":method", b"GET", &mut out);
        encoder.field(b":scheme", b"http", &mut out);
        encoder.field(b":authority", b"example.com", &mut out);
        encoder.field_once(b":path", path, &mut out);
        out
    }

    fn build(decoder: &mut Decoder, block: &[u8]) -> (Head, Vec<u8>) {
        let (mut head, mut text) = (Head::new(), Vec::new());
        let limits = Limits::default();
        let mut builder = HeadBuilder::new(&mut head, &mut text, &limits, Version::HTTP_20);
        decoder.decode(block, |name, value| builder.field(name, value)).unwrap();
        builder.finish(true).unwrap();
        (head, text)
    }

    #[test]
    fn a_head_is_made_from_the_third_time_on() {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
        let mut heads = Heads::default();
        build(&mut decoder, &block(&mut encoder, b"/first"));
        let block = block(&mut encoder, b"/a?b=1");
        let (head, text) = build(&mut decoder, &block);
        let sent = |end_stream, changes| Sent { block: &block, end_stream, changes };
        let (changes, limits) = (decoder.changes(), Limits::default());
        let (mut again, mut same) = (Head::new(), Vec::new());
        for _ in 0..2 {
            assert!(!heads.make(&sent(true, changes), &limits, &mut again, &mut same));
            heads.note(&sent(true, changes), &head, &text);
        }
        assert!(heads.make(&sent(true, changes), &limits, &mut again, &mut same));
        assert_eq!(format!("{again:?} {same:?}"), format!("{head:?} {text:?}"));
        let mut is_made = |sent: &Sent| heads.make(sent, &limits, &mut again, &mut same);
        assert!(!is_made(&sent(false, changes)), "a body follows");
        assert!(!is_made(&sent(true, changes + 1)), "other fields");
    }

    /// All that a head says.
    fn said(head: &Head, text: &[u8]) -> Vec<String> {
        let show = |span: crate::h1::Span| String::from_utf8_lossy(span.of(text)).into_owned();
        let spans = [head.method_name, head.line, head.protocol, head.target, head.path, head.args];
        let host = head.host.as_ref().map(|host| show(host.name));
        let fields = head.fields.iter().map(|field| {
            let id = head.fields.get(field.id).map(|first| show(first.value));
            format!("{}: {} {:?} {id:?}", show(field.name), show(field.value), field.id)
        });
        let flags = (head.plain_path, head.quoted, head.plus_in_path, head.form, head.chunked);
        let facts = format!("{:?} {:?} {flags:?} {host:?}", head.method, head.version);
        spans.map(show).into_iter().chain([facts]).chain(fields).collect()
    }

    #[test]
    fn heads_that_differ_in_their_paths_are_made_from_the_third_on() {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
        let (mut heads, limits) = (Heads::default(), Limits::default());
        build(&mut decoder, &block(&mut encoder, b"/first"));
        let paths = ["/a", "/b?c=d", "/?", "/x/../y+z%20", "/a//b", "/\u{e9}?q=%zz", "/ok"];
        let all = paths.iter().flat_map(|path| [*path, &path[..1]]);
        for (blocks, path) in all.enumerate() {
            let block = block(&mut encoder, path.as_bytes());
            let (head, text) = build(&mut decoder, &block);
            let sent = Sent { block: &block, end_stream: true, changes: decoder.changes() };
            let (mut made, mut same) = (Head::new(), Vec::new());
            let is_made = heads.make(&sent, &limits, &mut made, &mut same);
            // That of "/" comes a third time before it is kept by itself.
            assert!(is_made || blocks < 2 || path == "/", "{path} {blocks}");
            match is_made {
                true => assert_eq!(said(&made, &same), said(&head, &text)),
                false => heads.note(&sent, &head, &text),
            }
        }
    }

    #[test]
    fn a_field_beside_the_path_stays_with_its_request() {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
        let (mut heads, limits) = (Heads::default(), Limits::default());
        build(&mut decoder, &block(&mut encoder, b"/first"));
        for (n, own) in [false, true, false, false, true, true, false].into_iter().enumerate() {
            let mut block = block(&mut encoder, format!("/{n}").as_bytes());
            if own {
                encoder.field_secret(b"authorization", b"Basic c2VjcmV0", &mut block);
            }
            let (head, text) = build(&mut decoder, &block);
            let (mut made, mut same) = (Head::new(), Vec::new());
            let sent = Sent { block: &block, end_stream: true, changes: decoder.changes() };
            match heads.make(&sent, &limits, &mut made, &mut same) {
                true => assert_eq!(said(&made, &same), said(&head, &text)),
                false => heads.note(&sent, &head, &text),
            }
        }
    }

    #[test]
    fn paths_that_are_not_taken_are_left_to_others() {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
        let (mut heads, limits) = (Heads::default(), Limits::default());
        build(&mut decoder, &block(&mut encoder, b"/first"));
        for path in [&b"/a"[..], b"/b"] {
            let block = block(&mut encoder, path);
            let (head, text) = build(&mut decoder, &block);
            let sent = Sent { block: &block, end_stream: true, changes: decoder.changes() };
            heads.note(&sent, &head, &text);
        }
        let small = Limits { large_size: 100, ..limits };
        let mut make = |limits: &Limits, path: &[u8], cut: usize, end_stream: bool| {
            let block = block(&mut encoder, path);
            let block = &block[..block.len() - cut];
            let (mut head, mut text) = (Head::new(), Vec::new());
            let sent = Sent { block, end_stream, changes: decoder.changes() };
            let is_made = heads.make(&sent, limits, &mut head, &mut text);
            assert!(is_made || text.is_empty());
            is_made
        };
        assert!(make(&limits, b"/c", 0, true));
        for path in [&b"c"[..], b"", b"/c d", b"/c\n", b"/../..", &[b'/'; 300].map(|_| 0)] {
            assert!(!make(&limits, path, 0, true), "{path:?}");
        }
        assert!(!make(&limits, b"/c", 1, true), "a string that is cut");
        assert!(!make(&limits, b"/c", 0, false), "a body follows");
        assert!(!make(&small, &[b'/', b'x'].repeat(60), 0, true), "too large a field");
    }

    #[test]
    fn long_blocks_and_texts_are_not_kept() {
        let mut heads = Heads::default();
        let (head, long) = (Head::new(), vec![b'x'; TEXT_MAX + 1]);
        for (block, text) in [(&long[..=BLOCK_MAX], &long[..1]), (&long[..1], &long[..])] {
            let sent = Sent { block, end_stream: true, changes: 0 };
            heads.note(&sent, &head, text);
            heads.note(&sent, &head, text);
            let (mut made, limits) = (Head::new(), Limits::default());
            assert!(!heads.make(&sent, &limits, &mut made, &mut Vec::new()));
        }
        let mut places = heads.same.iter().chain([&heads.pattern.place]);
        assert!(places.all(|place| place.block.is_empty() && place.made.is_none()));
    }
}
