//! Fields into header blocks and back.

use http_wire::h2::hpack::{Decoder, Encoder};

use crate::hpack_decode::{decode, decode_theirs};

const NAMES: [&[u8]; 16] = [
    b":status",
    b":path",
    b":authority",
    b"Content-Type",
    b"etag",
    b"Date",
    b"X-A",
    b"x-b",
    b"Set-Cookie",
    b"authorization",
    b"",
    b"Accept-Encoding",
    b"x-some-rather-long-name",
    b"Content-Security-Policy-Report-Only-Or-Something-That-Is-As-Long-As-This-Name",
    b"server",
    b"a",
];
const VALUES: [&[u8]; 8] = [
    b"",
    b"200",
    b"/",
    b"gzip, deflate",
    b"Sun, 22 Nov 2026 20:13:28 GMT",
    b"text/html",
    b"x",
    b"\"6740b1a4-400\"",
];

/// The peer's use of its own limit: a table that is never larger.
struct Peer {
    ours: Decoder,
    theirs: loona_hpack::Decoder<'static>,
    size: usize,
}

/// The bytes are a program of fields, limits and pauses. Both decoders, one of which shrinks its
/// table at once when its limit falls, read the fields that were written.
pub fn run(data: &[u8]) {
    let mut encoder = Encoder::new();
    let mut peer =
        Peer { ours: Decoder::new(65536), theirs: loona_hpack::Decoder::new(), size: 4096 };
    let (mut block, mut fields) = (Vec::new(), Vec::new());
    let mut input = data.iter().copied();
    encoder.begin(&mut block);
    while let Some(op) = input.next() {
        match op {
            0..=7 => {
                peer.read(&mut block, &mut fields);
                assert!(encoder.memory() <= 16 << 10);
                // The pause comes before the limits, or behind the first one.
                for nth in 0..=op >> 1 {
                    if nth == op >> 2 && op & 1 != 0 {
                        encoder.forget();
                        assert_eq!(encoder.memory(), 0);
                    }
                    if nth > 0 {
                        peer.limit(usize::from(input.next().unwrap_or(0)) * 24, &mut encoder);
                    }
                }
                encoder.begin(&mut block);
            }
            8 => {
                let code = 100 + u16::from(input.next().unwrap_or(0)) * 3;
                encoder.status(code, &mut block);
                fields.push((b":status".to_vec(), code.to_string().into_bytes()));
            }
            _ => {
                let name = text(&NAMES, op >> 2, &mut input);
                let value = text(&VALUES, input.next().unwrap_or(0), &mut input);
                match op & 3 {
                    0 => encoder.field_once(&name, &value, &mut block),
                    1 => encoder.field_secret(&name, &value, &mut block),
                    _ => encoder.field(&name, &value, &mut block),
                }
                fields.push((name.to_ascii_lowercase(), value));
            }
        }
    }
    peer.read(&mut block, &mut fields);
}

/// One of the known texts, or bytes of the input; some are long.
fn text(known: &[&[u8]], which: u8, input: &mut impl Iterator<Item = u8>) -> Vec<u8> {
    if which < 32 {
        return known[usize::from(which) % known.len()].to_vec();
    }
    let mut text: Vec<u8> = input.take(usize::from(which & 15)).collect();
    if which & 16 != 0 {
        text = text.repeat(usize::from(which >> 2));
    }
    text
}

impl Peer {
    fn limit(&mut self, size: usize, encoder: &mut Encoder) {
        encoder.set_limit(size);
        self.theirs.set_max_allowed_table_size(size);
        if size < self.size {
            self.theirs.set_max_table_size(size);
            self.size = size;
        }
    }

    fn read(&mut self, block: &mut Vec<u8>, fields: &mut Vec<(Vec<u8>, Vec<u8>)>) {
        assert_eq!(decode(&mut self.ours, block).as_ref(), Ok(&*fields));
        // They refuse a block of updates alone.
        if fields.is_empty() {
            block.push(0x80 | 2);
            fields.push((b":method".to_vec(), b"GET".to_vec()));
        }
        assert_eq!(decode_theirs(&mut self.theirs, block).as_ref(), Ok(&*fields));
        // From now on the table is as large as the encoder says.
        self.size = 4096;
        block.clear();
        fields.clear();
    }
}
