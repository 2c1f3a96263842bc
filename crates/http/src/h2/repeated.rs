//! Requests that are the same as one before on their connection, byte for byte: a client that asks
//! an API, a page that polls. Their heads are copied: to decode the fields and to look at each of
//! them costs as much as to answer with a small file.
//!
//! A block that changes no table means the same as long as nothing else changes it, either. Nothing
//! is kept of a block that came once but the block itself, and only if it is short.

use proto::h1::Head;

/// The longest block that is kept.
const BLOCK_MAX: usize = 256;

/// The longest text of a head that is kept.
const TEXT_MAX: usize = 1 << 10;

/// Blocks that are kept.
const PLACES: usize = 4;

/// A header block as it was sent.
pub(super) struct Sent<'a> {
    pub block: &'a [u8],
    /// No body follows it.
    pub end_stream: bool,
    /// Changes of the table before it: [`proto::h2::hpack::Decoder::changes`].
    pub changes: u64,
}

/// The heads of some requests of a connection.
#[derive(Default)]
pub(super) struct Heads([Place; PLACES]);

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
}

impl Heads {
    /// Makes the head of a block that is the same as one before; says whether there is one.
    #[inline]
    pub fn make(&self, sent: &Sent, head: &mut Head, text: &mut Vec<u8>) -> bool {
        let place = &self.0[place_of(sent.block)];
        let Some(made) = &place.made else { return false };
        if !place.holds(sent) {
            return false;
        }
        head.copy_from(&made.0);
        text.extend_from_slice(&made.1);
        true
    }

    /// Takes note of a block, which has changed no table, and the head that was made of it.
    pub fn note(&mut self, sent: &Sent, head: &Head, text: &[u8]) {
        if sent.block.len() > BLOCK_MAX || text.len() > TEXT_MAX {
            return;
        }
        let place = &mut self.0[place_of(sent.block)];
        if place.holds(sent) {
            place.made = Some(Box::new((head.clone(), text.to_vec())));
            return;
        }
        place.made = None;
        place.block.clear();
        place.block.extend_from_slice(sent.block);
        (place.end_stream, place.changes) = (sent.end_stream, sent.changes);
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
    use proto::h1::Limits;
    use proto::h2::hpack::{Decoder, Encoder};
    use proto::h2::request::HeadBuilder;

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
        let mut builder = HeadBuilder::new(&mut head, &mut text, &limits);
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
        let changes = decoder.changes();
        let (mut again, mut same) = (Head::new(), Vec::new());
        for _ in 0..2 {
            assert!(!heads.make(&sent(true, changes), &mut again, &mut same));
            heads.note(&sent(true, changes), &head, &text);
        }
        assert!(heads.make(&sent(true, changes), &mut again, &mut same));
        assert_eq!(format!("{again:?} {same:?}"), format!("{head:?} {text:?}"));
        assert!(!heads.make(&sent(false, changes), &mut again, &mut same), "a body follows");
        assert!(!heads.make(&sent(true, changes + 1), &mut again, &mut same), "other fields");
    }

    #[test]
    fn long_blocks_and_texts_are_not_kept() {
        let mut heads = Heads::default();
        let (head, long) = (Head::new(), vec![b'x'; TEXT_MAX + 1]);
        for (block, text) in [(&long[..=BLOCK_MAX], &long[..1]), (&long[..1], &long[..])] {
            let sent = Sent { block, end_stream: true, changes: 0 };
            heads.note(&sent, &head, text);
            heads.note(&sent, &head, text);
            assert!(!heads.make(&sent, &mut Head::new(), &mut Vec::new()));
        }
        assert!(heads.0.iter().all(|place| place.block.is_empty() && place.made.is_none()));
    }
}
