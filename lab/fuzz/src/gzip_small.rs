//! Bodies that are compressed in one go.

use std::io::Read;

use http_modules::gzip::small::{Effort, Encoder, LEN_MAX};

/// The first byte is the level; another decoder restores the rest, once and again, and the output
/// is hardly longer than the input.
pub fn run(data: &[u8]) {
    let Some((&how, text)) = data.split_first() else { return };
    let text = &text[..text.len().min(LEN_MAX)];
    let effort = Effort {
        window: 1 << (9 + how % 7),
        chain: 1 << (how % 9),
        lazy: usize::from(how).wrapping_mul(7) % 259,
    };
    let mut encoder = Encoder::default();
    for _ in 0..2 {
        let mut out = Vec::new();
        encoder.gzip(text, effort, &mut out);
        assert!(out.len() <= text.len() + 23);
        let mut back = Vec::new();
        let read = flate2::read::GzDecoder::new(&out[..]).read_to_end(&mut back);
        assert!(read.is_ok() && back == text);
    }
}
