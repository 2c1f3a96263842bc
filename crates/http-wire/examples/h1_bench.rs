//! Time to parse a request head: `cargo run --release -p weir-http-wire --example h1_bench`.
//!
//! Prints nanoseconds a head, the median of several rounds. Budgets: 250 ns for the small request,
//! 600 ns for the browser's.

use std::hint::black_box;
use std::time::Instant;
use weir_http_wire::h1::{Head, HeadParser, Limits, Step};

const SMALL: &[u8] = b"GET /index.html?id=12345&x=y HTTP/1.1\r\nHost: www.example.com\r\n\
    User-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n";

const BROWSER: &[u8] = b"GET /articles/2026/11/a-fairly-long-title.html HTTP/1.1\r\n\
    Host: www.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8\r\n\
    Accept-Language: en-US,en;q=0.5\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Referer: https://www.example.com/articles/2026/11/index.html\r\n\
    Connection: keep-alive\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark; consent=yes; visits=17\r\n\
    Upgrade-Insecure-Requests: 1\r\n\
    If-Modified-Since: Fri, 20 Nov 2026 09:53:24 GMT\r\n\r\n";

fn main() {
    for (name, buf) in [("small, 3 fields", SMALL), ("browser, 10 fields", BROWSER)] {
        let mut rounds: Vec<f64> = (0..15).map(|_| round(buf)).collect();
        rounds.sort_by(f64::total_cmp);
        println!("{name}: {} bytes, {:.0} ns", buf.len(), rounds[rounds.len() / 2]);
    }
}

/// Nanoseconds a head.
fn round(buf: &[u8]) -> f64 {
    const TIMES: u32 = 100_000;
    let (mut parser, mut head, limits) = (HeadParser::new(), Head::new(), Limits::default());
    let start = Instant::now();
    for _ in 0..TIMES {
        let step = parser.parse(black_box(buf), &limits, &mut head);
        assert_eq!(step, Step::Done { len: buf.len() });
        black_box(&head);
    }
    start.elapsed().as_nanos() as f64 / f64::from(TIMES)
}
