//! Time to decode and encode header blocks of HTTP/2 and field sections of HTTP/3:
//! `cargo run --release -p weir-http-wire --example hpack_bench`.
//!
//! Prints nanoseconds a block, the median of several rounds. Requests are what h2load and Firefox
//! send when a connection is warm; a response is that of a small file.

use std::hint::black_box;
use std::time::Instant;
use weir_http_wire::h2::hpack::{Decoder, Encoder};
use weir_http_wire::qpack;

type Fields<'a> = &'a [(&'a str, &'a str)];

const LOAD: Fields = &[
    (":path", "/1k.html"),
    (":method", "GET"),
    (":scheme", "http"),
    (":authority", "127.0.0.1:8080"),
    ("user-agent", "h2load nghttp2/1.52.0"),
];

const BROWSER: Fields = &[
    (":method", "GET"),
    (":path", "/articles/2026/11/a-fairly-long-title.html"),
    (":authority", "www.example.com"),
    (":scheme", "https"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"),
    ("accept-language", "en-US,en;q=0.5"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("referer", "https://www.example.com/articles/2026/11/index.html"),
    ("cookie", "session=0123456789abcdef0123456789abcdef; theme=dark; consent=yes; visits=17"),
    ("if-modified-since", "Fri, 20 Nov 2026 09:53:24 GMT"),
];

const RESPONSE: Fields = &[
    ("Server", "weir"),
    ("Date", "Sun, 22 Nov 2026 20:13:28 GMT"),
    ("Content-Type", "text/html"),
    ("Content-Length", "1024"),
    ("Last-Modified", "Fri, 20 Nov 2026 09:53:24 GMT"),
    ("ETag", "\"6740b1a4-400\""),
    ("Accept-Ranges", "bytes"),
];

fn main() {
    let four: Fields = &[LOAD[1], LOAD[2], LOAD[3], (":path", "/")];
    report("decode, h2load, all indexed", four.len(), || decoding(four, &[]));
    report("decode, h2load, :path as literal", LOAD.len(), || decoding(LOAD, &[":path"]));
    let literals = [":path", "referer", "if-modified-since"];
    report("decode, browser, three literals", BROWSER.len(), || decoding(BROWSER, &literals));
    report("decode, browser, first request", BROWSER.len(), || first_decoding(BROWSER));
    report("encode, response that repeats", RESPONSE.len() + 1, || encoding(|_| false));
    report("encode, values that do not", RESPONSE.len() + 1, || encoding(is_of_file));
    report("encode, first response", RESPONSE.len() + 1, first_encoding);
    report("QPACK, decode, static and literals, h2load", LOAD.len(), || section_decoding(LOAD));
    report("QPACK, decode, the same, browser", BROWSER.len(), || section_decoding(BROWSER));
    report("QPACK, encode, response", RESPONSE.len() + 1, section_encoding);
}

/// Fields of a file that no other file shares.
fn is_of_file(name: &str) -> bool {
    matches!(name, "Content-Length" | "Last-Modified" | "ETag")
}

fn report(what: &str, fields: usize, round: impl Fn() -> f64) {
    let mut rounds: Vec<f64> = (0..15).map(|_| round()).collect();
    rounds.sort_by(f64::total_cmp);
    println!("{what}, {fields} fields: {:.0} ns", rounds[rounds.len() / 2]);
}

/// Nanoseconds that one call of `once` takes.
fn time(mut once: impl FnMut()) -> f64 {
    const TIMES: u32 = 100_000;
    let start = Instant::now();
    for _ in 0..TIMES {
        once();
    }
    start.elapsed().as_nanos() as f64 / f64::from(TIMES)
}

fn encode(encoder: &mut Encoder, list: Fields, once: &[&str], out: &mut Vec<u8>) {
    encoder.begin(out);
    for (name, value) in list {
        if once.contains(name) {
            encoder.field_once(name.as_bytes(), value.as_bytes(), out);
        } else {
            encoder.field(name.as_bytes(), value.as_bytes(), out);
        }
    }
}

fn decoding(list: Fields, once: &[&str]) -> f64 {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
    let mut block = Vec::new();
    for _ in 0..3 {
        block.clear();
        encode(&mut encoder, list, once, &mut block);
        decoder.decode(&block, |_, _| {}).expect("it was encoded");
    }
    time(|| {
        let mut len = 0;
        let sink =
            |name: &[u8], value: &[u8]| len += black_box(name).len() + black_box(value).len();
        decoder.decode(black_box(&block), sink).expect("it was encoded");
        black_box(len);
    })
}

fn first_decoding(list: Fields) -> f64 {
    // What clients index at once, the encoder indexes when it comes again.
    let mut encoder = Encoder::new();
    let mut block = Vec::new();
    encode(&mut encoder, list, &[], &mut Vec::new());
    encoder.forget();
    encode(&mut encoder, list, &[], &mut block);
    time(|| {
        let mut decoder = Decoder::new(4096);
        let sink = |name: &[u8], value: &[u8]| {
            black_box((name, value));
        };
        decoder.decode(black_box(&block), sink).expect("it was encoded");
    })
}

fn encoding(differs: impl Fn(&str) -> bool) -> f64 {
    let mut encoder = Encoder::new();
    let mut out = Vec::with_capacity(4096);
    let (mut values, mut count) = (values_of(RESPONSE), 0u32);
    let differing: Vec<usize> = (0..RESPONSE.len()).filter(|at| differs(RESPONSE[*at].0)).collect();
    time(|| {
        count = count.wrapping_add(1);
        for &at in &differing {
            let digits = [b'0' + (count / 100 % 10) as u8, b'0' + (count / 10 % 10) as u8];
            values[at][1..3].copy_from_slice(&digits);
            values[at][3] = b'0' + (count % 10) as u8;
        }
        out.clear();
        encoder.begin(&mut out);
        encoder.status(200, &mut out);
        for ((name, _), value) in RESPONSE.iter().zip(&values) {
            encoder.field(black_box(name.as_bytes()), black_box(value), &mut out);
        }
        black_box(&out);
    })
}

fn first_encoding() -> f64 {
    let mut out = Vec::with_capacity(4096);
    time(|| {
        let mut encoder = Encoder::new();
        out.clear();
        encoder.status(200, &mut out);
        for (name, value) in RESPONSE {
            encoder.field(black_box(name.as_bytes()), black_box(value.as_bytes()), &mut out);
        }
        black_box(&out);
    })
}

fn section_decoding(list: Fields) -> f64 {
    let limits = qpack::Limits {
        table_capacity: qpack::TABLE_CAPACITY,
        blocked_streams: 16,
        blocked_bytes: 1 << 16,
        section: 1 << 16,
        text: 1 << 16,
    };
    let (mut encoder, mut decoder) = (qpack::Encoder::new(), qpack::Decoder::new(limits));
    let mut section = Vec::new();
    encoder.begin(&mut section);
    for (name, value) in list {
        encoder.field(name.as_bytes(), value.as_bytes(), &mut section);
    }
    time(|| {
        let mut len = 0;
        let sink =
            |name: &[u8], value: &[u8]| len += black_box(name).len() + black_box(value).len();
        decoder.decode(0, black_box(&section), sink).expect("it was encoded");
        black_box(len);
    })
}

fn section_encoding() -> f64 {
    let mut encoder = qpack::Encoder::new();
    let mut out = Vec::with_capacity(4096);
    time(|| {
        out.clear();
        encoder.begin(&mut out);
        encoder.status(200, &mut out);
        for (name, value) in RESPONSE {
            encoder.field(black_box(name.as_bytes()), black_box(value.as_bytes()), &mut out);
        }
        black_box(&out);
    })
}

fn values_of(list: Fields) -> Vec<Vec<u8>> {
    list.iter().map(|(_, value)| value.as_bytes().to_vec()).collect()
}
