//! Heads that came before on their connection. Exchanges that share one mostly send the same fields
//! but for the path, and get the same ones back: to encode, to decode and to look at each of them
//! again costs more than anything else of a short exchange.
//!
//! A block that changes no table means the same as long as nothing else changes it, either.

use std::ops::Range;

use bytes::Bytes;
use http_wire::fields;
use http_wire::h1::ResponseHead;
use http_wire::h2::hpack::Encoder;

use super::mux::Received;

/// The longest block that is kept.
const BLOCK_MAX: usize = 256;

/// The longest text of a head that is kept.
const TEXT_MAX: usize = 1 << 10;

/// Blocks that are kept of each direction.
const PLACES: usize = 4;

/// A number from a few bytes of a text, among [`PLACES`].
#[inline]
fn place_of(text: &[u8]) -> usize {
    let words = text.rchunks_exact(8).take(4).filter_map(|word| word.first_chunk());
    let sum = words.fold(text.len() as u64, |sum, word| {
        (sum.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    (sum >> 32) as usize % PLACES
}

/// Heads of requests: lists of fields ([`http_wire::fields`]) and their blocks.
#[derive(Default)]
pub(super) struct Requests([Request; PLACES]);

#[derive(Default)]
struct Request {
    list: Vec<u8>,
    block: Vec<u8>,
    /// The field of the path in both.
    in_list: Range<usize>,
    in_block: Range<usize>,
    /// [`Encoder::changes`] of the block.
    changes: u64,
}

/// The field `:path` of a list: its place, and its value.
fn path(list: &[u8]) -> Option<(Range<usize>, &[u8])> {
    let mut at = 0;
    for (name, value) in fields::iter(list) {
        let len = fields::LENGTHS + name.len() + value.len();
        if name == b":path" {
            return Some((at..at + len, value));
        }
        at += len;
    }
    None
}

impl Requests {
    /// Appends the block of a list.
    pub fn encode(&mut self, encoder: &mut Encoder, list: &[u8], out: &mut Vec<u8>) {
        let Some((in_list, value)) = path(list) else {
            encode(encoder, list, out);
            return;
        };
        let behind = &list[in_list.end..];
        let kept = &mut self.0[place_of(behind)];
        // A change that waits for the next block is one that was counted.
        if kept.changes == encoder.changes()
            && !kept.block.is_empty()
            && kept.list[..kept.in_list.start] == list[..in_list.start]
            && kept.list[kept.in_list.end..] == *behind
        {
            if kept.list[kept.in_list.clone()] == list[in_list] {
                out.extend_from_slice(&kept.block);
                return;
            }
            out.extend_from_slice(&kept.block[..kept.in_block.start]);
            encoder.field_once(b":path", value, out);
            out.extend_from_slice(&kept.block[kept.in_block.end..]);
            return;
        }
        let (from, changes) = (out.len(), encoder.changes());
        let (in_block, is_personal) = encode(encoder, list, out);
        let block = &out[from..];
        kept.block.clear();
        let fits = block.len() <= BLOCK_MAX && list.len() <= TEXT_MAX;
        if !fits || is_personal || changes != encoder.changes() {
            return;
        }
        kept.list.clear();
        kept.list.extend_from_slice(list);
        kept.block.extend_from_slice(block);
        (kept.in_list, kept.changes) = (in_list, changes);
        kept.in_block = in_block.start - from..in_block.end - from;
    }
}

/// Appends the block of a list. Gives the place of the path's field in `out`, and whether there are
/// fields of one client alone, which is not kept.
fn encode(encoder: &mut Encoder, list: &[u8], out: &mut Vec<u8>) -> (Range<usize>, bool) {
    let (mut path, mut is_personal) = (0..0, false);
    encoder.begin(out);
    for (name, value) in fields::iter(list) {
        let from = out.len();
        match name {
            // Intermediaries keep secrets out of tables (RFC 7541 section 7.1.3).
            b"authorization" | b"proxy-authorization" => {
                encoder.field_secret(name, value, out);
                is_personal = true;
            }
            b":path" => {
                encoder.field_once(name, value, out);
                path = from..out.len();
            }
            // So are cookies, and short ones could be guessed.
            b"cookie" => {
                encoder.field_once(name, value, out);
                is_personal = true;
            }
            _ => encoder.field(name, value, out),
        }
    }
    (path, is_personal)
}

/// Heads of responses.
#[derive(Default)]
pub(super) struct Responses([Response; PLACES]);

#[derive(Default)]
struct Response {
    block: Vec<u8>,
    /// [`http_wire::h2::hpack::Decoder::changes`] of the block.
    changes: u64,
    /// The head, where the block came twice.
    made: Option<Received>,
}

impl Responses {
    /// The text of the head of a block that came before, with its fields in `head`, if they take
    /// `max` bytes at most.
    #[inline]
    pub fn make(
        &self,
        block: &[u8],
        changes: u64,
        max: usize,
        head: &mut ResponseHead,
    ) -> Option<Bytes> {
        let kept = &self.0[place_of(block)];
        if kept.changes != changes || kept.block != block {
            return None;
        }
        let (made, text) = kept.made.as_ref()?;
        if text.len() + b":status".len() > max {
            return None;
        }
        head.copy_from(made);
        Some(text.clone())
    }

    /// Takes note of a block, which has changed no table, and its head.
    pub fn note(&mut self, block: &[u8], changes: u64, head: &ResponseHead, text: &Bytes) {
        if block.len() > BLOCK_MAX || text.len() > TEXT_MAX {
            return;
        }
        let kept = &mut self.0[place_of(block)];
        if kept.changes == changes && kept.block == block {
            kept.made = Some((head.clone(), Bytes::copy_from_slice(text)));
            return;
        }
        kept.made = None;
        kept.block.clear();
        kept.block.extend_from_slice(block);
        kept.changes = changes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_wire::fields::response::ResponseBuilder;
    use http_wire::h1::Version;
    use http_wire::h2::hpack::Decoder;

    fn list(fields: &[(&str, &str)]) -> Vec<u8> {
        let mut list = Vec::new();
        fields.iter().for_each(|(n, v)| fields::write(&mut list, n.as_bytes(), v.as_bytes()));
        list
    }

    fn get(path: &str, more: &[(&str, &str)]) -> Vec<u8> {
        let first =
            [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "backend")];
        list(&[&first, more].concat())
    }

    /// One connection: the encoder, and the decoder of the server.
    struct Pair {
        encoder: Encoder,
        decoder: Decoder,
        requests: Requests,
    }

    impl Pair {
        fn new() -> Pair {
            let (encoder, decoder) = (Encoder::new(), Decoder::new(4096));
            Pair { encoder, decoder, requests: Requests::default() }
        }

        /// Sends a list; gives its block, which has the same fields.
        fn send(&mut self, list: &[u8]) -> Vec<u8> {
            let (mut block, mut got) = (Vec::new(), Vec::new());
            self.requests.encode(&mut self.encoder, list, &mut block);
            let read = self.decoder.decode(&block, |n, v| fields::write(&mut got, n, v));
            read.unwrap();
            assert_eq!(got, list);
            block
        }

        fn kept(&self) -> usize {
            self.requests.0.iter().filter(|kept| !kept.block.is_empty()).count()
        }
    }

    #[test]
    fn a_request_is_the_same_whether_its_block_is_copied_or_not() {
        let mut pair = Pair::new();
        let agents: Vec<String> = (0..6).map(|n| format!("agent {n}")).collect();
        for round in 0..5 {
            for (n, agent) in agents.iter().enumerate() {
                let more = [("user-agent", agent.as_str()), ("x", "y")];
                pair.send(&get(&format!("/{round}/{}", "x".repeat(n * 20)), &more));
                pair.send(&get("/", &more[..n % 3]));
            }
        }
        assert!(pair.kept() > 0);
        // Changes of the table between two of the same.
        let one = get("/one", &[("user-agent", &agents[0])]);
        let small = pair.send(&one);
        assert_eq!(pair.send(&one), small);
        pair.encoder.set_limit(0);
        assert_ne!(pair.send(&one), small);
        pair.encoder.set_limit(4096);
        pair.send(&one);
        pair.encoder.forget();
        pair.send(&one);
    }

    #[test]
    fn a_request_that_repeats_is_copied() {
        let mut pair = Pair::new();
        let more = [("user-agent", "a"), ("accept", "*/*")];
        (0..3).for_each(|n| drop(pair.send(&get(&format!("/{n}"), &more))));
        assert_eq!(pair.kept(), 1);
        // What is kept is what is sent.
        let place = pair.requests.0.iter_mut().find(|kept| !kept.block.is_empty()).unwrap();
        place.in_block = 0..place.block.len();
        let mut block = Vec::new();
        pair.requests.encode(&mut pair.encoder, &get("/3", &more), &mut block);
        let mut alone = Vec::new();
        pair.encoder.field_once(b":path", b"/3", &mut alone);
        assert_eq!(block, alone);
    }

    #[test]
    fn secrets_and_long_requests_are_not_kept() {
        let mut pair = Pair::new();
        let long = "x".repeat(TEXT_MAX);
        for field in [("authorization", "Basic x"), ("cookie", "id=1"), ("x-long", &long)] {
            (0..4).for_each(|_| drop(pair.send(&get("/", &[field]))));
            assert_eq!(pair.kept(), 0, "{field:?}");
        }
        // Nor is one without a path.
        (0..4).for_each(|_| drop(pair.send(&list(&[(":method", "CONNECT"), ("a", "b")]))));
        assert_eq!(pair.kept(), 0);
    }

    #[test]
    fn a_response_is_copied_from_the_third_time_on() {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
        let mut responses = Responses::default();
        let mut block = Vec::new();
        for _ in 0..3 {
            block.clear();
            encoder.begin(&mut block);
            encoder.status(200, &mut block);
            encoder.field(b"content-length", b"12", &mut block);
            encoder.field(b"x", b"y", &mut block);
            let (mut head, mut text) = (ResponseHead::new(), Vec::new());
            let mut builder = ResponseBuilder::new(&mut head, &mut text, 100, Version::HTTP_20);
            decoder.decode(&block, |name, value| builder.field(name, value)).unwrap();
            builder.finish().unwrap();
            let (text, changes) = (Bytes::from(text), decoder.changes());
            let mut made = ResponseHead::new();
            assert!(responses.make(&block, changes, 100, &mut made).is_none());
            responses.note(&block, changes, &head, &text);
        }
        let changes = decoder.changes();
        let mut made = ResponseHead::new();
        // The third block was the first without a change of the table; it comes again.
        let (mut head, mut text) = (ResponseHead::new(), Vec::new());
        let mut builder = ResponseBuilder::new(&mut head, &mut text, 100, Version::HTTP_20);
        decoder.decode(&block, |name, value| builder.field(name, value)).unwrap();
        builder.finish().unwrap();
        let text = Bytes::from(text);
        responses.note(&block, changes, &head, &text);
        let len = b":status200content-length12xy".len();
        let again = responses.make(&block, changes, len, &mut made);
        assert_eq!(again.as_ref(), Some(&text));
        assert_eq!(format!("{made:?}"), format!("{head:?}"));
        assert!(responses.make(&block, changes, len - 1, &mut made).is_none(), "too large");
        assert!(responses.make(&block, changes + 1, len, &mut made).is_none(), "other fields");
        assert!(responses.make(&block[1..], changes, len, &mut made).is_none());
    }

    #[test]
    fn long_responses_are_not_kept() {
        let mut responses = Responses::default();
        let (mut head, long) = (ResponseHead::new(), Bytes::from(vec![b'x'; TEXT_MAX + 1]));
        for (block, text) in [(&long[..=BLOCK_MAX], long.slice(..1)), (&long[..1], long.clone())] {
            (0..3).for_each(|_| responses.note(block, 0, &ResponseHead::new(), &text));
            assert!(responses.make(block, 0, usize::MAX, &mut head).is_none());
        }
    }
}
