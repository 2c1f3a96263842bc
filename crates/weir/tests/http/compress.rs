//! `gzip`, `brotli` and `zstd` side by side: which one a client gets, and that what arrives is what
//! was sent, compressed in a thread or not.

use std::io::Read;

use crate::disk::told;
use testkit::{Driver, Response, Site, Weir, built_binary, each_site, refused};

const HTTP: &str = "
    types { text/html html; text/plain txt; }
    log_format ratios '$uri $gzip_ratio $brotli_ratio $zstd_ratio';
    server {
        listen 127.0.0.1:%PORT0%;
        root html;
        gzip on;
        brotli on;
        zstd on;
        location /all/ { alias html/; access_log logs/ratios.log ratios; gzip_vary on; }
        location /two/ { alias html/; zstd off; brotli_types text/plain; }
        location /long/ { alias html/; zstd_min_length 100k; brotli_min_length 10k; }
        location /threads/ {
            alias html/;
            gzip_comp_level 9 threads;
            brotli_comp_level 5 threads=few;
            brotli_buffers 1 1k;
            brotli_window 16m;
            zstd_comp_level 9 threads;
            zstd_buffers 2 4k;
        }
        location /strong/ { alias html/; zstd_comp_level 20; brotli_comp_level 0; }
        location /stronger/ { alias html/; gzip_comp_level 9; brotli_comp_level 11; }
        location = /json { stub_status json; }
        location /static/ {
            alias html/;
            zstd_static on;
            brotli_static on;
            gzip_static on;
            gzip_vary on;
        }
        location /static/always/ { alias html/; brotli_static always; gzip_static on; }
        location /page/ { alias html/; ssi on; }
    }";

fn text(len: usize) -> Vec<u8> {
    let line = |n: usize| format!("line {n} of a text, {}\n", n * n % 1009);
    (0..).flat_map(|n| line(n).into_bytes()).take(len).collect()
}

fn site(driver: Driver) -> Weir {
    let pool = "thread_pool few threads=2;";
    let log = "access_log logs/access.log;";
    let config = format!("worker_processes 1;\n{pool}\nevents {{}}\nhttp {{\n{log}\n{HTTP}\n}}\n");
    Site::new(built_binary(), driver)
        .file("html/a.html", text(5000))
        .file("html/big.html", text(300_000))
        .file("html/middle.html", text(40_000))
        .file("html/a.txt", text(5000))
        .file("html/page.html", "[<!--# include virtual=\"/all/a.html\" -->]")
        .file("html/s.txt", "plain")
        .file("html/s.txt.gz", "as gzip")
        .file("html/s.txt.br", "as brotli")
        .file("html/s.txt.zst", "as zstd")
        .file("html/t.txt", "plain")
        .file("html/t.txt.gz", "as gzip")
        .config(&config)
        .start()
}

fn decoded(r: &Response) -> Vec<u8> {
    let mut out = Vec::new();
    match r.header("Content-Encoding") {
        Some("gzip") => {
            let mut z = flate2::read::GzDecoder::new(&r.body[..]);
            z.read_to_end(&mut out).expect("a gzip stream");
        }
        Some("br") => {
            let mut z = brotli::Decompressor::new(&r.body[..], 4096);
            z.read_to_end(&mut out).expect("a brotli stream");
        }
        Some("zstd") => {
            out.reserve(1 << 20);
            zstd_safe::decompress(&mut out, &r.body)
                .or_else(|_| streamed(&r.body, &mut out))
                .expect("zstd");
        }
        _ => out.clone_from(&r.body),
    }
    out
}

/// Frames without the length of their content.
fn streamed(bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, usize> {
    let mut cx = zstd_safe::DCtx::create();
    let mut from = zstd_safe::InBuffer::around(bytes);
    let mut to = zstd_safe::OutBuffer::around(out);
    while from.pos() < bytes.len() {
        cx.decompress_stream(&mut to, &mut from)?;
    }
    Ok(to.pos())
}

fn get(weir: &Weir, path: &str, accept: &str) -> Response {
    weir.request("GET", path, &format!("Accept-Encoding: {accept}\r\n"))
}

#[test]
fn who_gets_which() {
    each_site(site, |weir| {
        for (path, accept, want) in [
            ("/all/a.html", "gzip, deflate, br, zstd", Some("zstd")),
            ("/all/a.html", "gzip, deflate, br", Some("br")),
            ("/all/a.html", "gzip", Some("gzip")),
            ("/all/a.html", "GZIP;q=0.9, BR;q=0.8, Zstd;q=0.7", Some("gzip")),
            ("/all/a.html", "gzip;q=0.5, br;q=0.75, zstd;q=0.25", Some("br")),
            ("/all/a.html", "zstd;q=0, br;q=0, gzip;q=0.001", Some("gzip")),
            ("/all/a.html", "zstd;q=0, br;q=0, gzip;q=0", None),
            ("/all/a.html", "*", None),
            ("/all/a.html", "identity", None),
            ("/all/a.txt", "gzip, br, zstd", None),
            ("/two/a.html", "gzip, br, zstd", Some("br")),
            ("/two/a.txt", "gzip, br, zstd", Some("br")),
            ("/long/a.html", "gzip, br, zstd", Some("gzip")),
            ("/long/big.html", "gzip;q=0.1, br, zstd", Some("zstd")),
            ("/strong/a.html", "zstd", Some("zstd")),
            ("/strong/big.html", "br", Some("br")),
            ("/threads/a.html", "zstd", Some("zstd")),
            ("/threads/big.html", "gzip", Some("gzip")),
            ("/threads/big.html", "br", Some("br")),
            ("/threads/big.html", "zstd", Some("zstd")),
            ("/page/page.html", "br", Some("br")),
        ] {
            let r = get(&weir, path, accept);
            assert_eq!((r.status, r.header("Content-Encoding")), (200, want), "{path} {accept}");
            let plain = weir.get(path);
            assert!(decoded(&r) == plain.body, "{path} {accept}");
            assert_eq!(plain.header("Content-Encoding"), None);
            if want.is_some() {
                assert!(r.body.len() < plain.body.len() || plain.body.len() < 8000);
                assert!(r.header("ETag").is_none_or(|tag| tag.starts_with("W/")));
                assert_eq!((r.header("Content-Length"), r.header("Accept-Ranges")), (None, None));
            }
            let varies = path.starts_with("/all/") && path.ends_with("html");
            assert_eq!(r.header("Vary").is_some(), varies, "{path} {accept}");
        }
        // The last line, so that all are there.
        weir.get("/all/page.html");
        weir.wait_for_log("ratios.log", "/all/page.html");
        let log = weir.log("ratios.log");
        let lines: Vec<_> = log.lines().filter(|line| !line.ends_with("- - -")).collect();
        assert!(lines[0].starts_with("/all/a.html - - ") && !lines[0].ends_with('-'), "{log}");
        assert!(lines[1].starts_with("/all/a.html - ") && lines[1].ends_with(" -"), "{log}");
        assert!(lines[2].ends_with(" - -"), "{log}");
    });
}

#[test]
fn files_that_lie_there_compressed() {
    each_site(site, |weir| {
        for (path, accept, coding, body) in [
            ("/static/s.txt", "gzip, br, zstd", Some("zstd"), "as zstd"),
            ("/static/s.txt", "gzip, br", Some("br"), "as brotli"),
            ("/static/s.txt", "gzip, br;q=0.5, zstd;q=0.9", Some("gzip"), "as gzip"),
            ("/static/s.txt", "identity", None, "plain"),
            ("/static/t.txt", "gzip;q=0.1, br, zstd", Some("gzip"), "as gzip"),
            ("/static/always/s.txt", "gzip", Some("gzip"), "as gzip"),
            ("/static/always/s.txt", "identity", Some("br"), "as brotli"),
            ("/static/always/t.txt", "br", None, "plain"),
        ] {
            let r = get(&weir, path, accept);
            let got = (r.status, r.header("Content-Encoding"), r.text());
            assert_eq!(got, (200, coding, body.to_owned()), "{path} {accept}");
            let varies = path.starts_with("/static/") && !path.contains("always");
            assert_eq!(r.header("Vary").is_some(), varies, "{path} {accept}");
        }
    });
}

/// The worker itself compresses what is soon done, and nothing that would hold up other clients.
#[test]
fn what_takes_long_is_compressed_in_a_thread() {
    each_site(site, |weir| {
        // The files are in memory then, and the pool is there.
        for path in ["/threads/big.html", "/all/a.html"] {
            assert_eq!(get(&weir, path, "gzip").status, 200);
        }
        let done = || told(&weir, &["pools", "default", "done"]);
        for (path, coding, in_thread) in [
            ("/all/a.html", "gzip", false),
            ("/all/a.html", "br", false),
            ("/all/a.html", "zstd", false),
            ("/all/big.html", "zstd", false),
            ("/stronger/big.html", "gzip", true),
            ("/stronger/a.html", "br", true),
            ("/stronger/middle.html", "br", true),
            ("/strong/big.html", "zstd", true),
        ] {
            let before = done();
            let r = get(&weir, path, coding);
            assert_eq!(r.header("Content-Encoding"), Some(coding));
            assert!(decoded(&r) == weir.get(path).body, "{path} {coding}");
            assert_eq!(done() > before, in_thread, "{path} {coding}");
        }
        // Clients that go in the midst, while compressors hold what they have not compressed.
        for path in ["/stronger/middle.html", "/strong/big.html"] {
            let mut conn = weir.connect();
            let accept = "Accept-Encoding: br, zstd";
            conn.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{accept}\r\n\r\n"));
            drop(conn);
        }
        assert_eq!(weir.get("/all/a.txt").body, text(5000));
    });
}

#[test]
fn clients_that_go_while_a_thread_works() {
    each_site(site, |weir| {
        for _ in 0..20 {
            let mut conn = weir.connect();
            conn.send("GET /threads/big.html HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br\r\n\r\n");
            drop(conn);
        }
        let r = get(&weir, "/threads/big.html", "br");
        assert!(decoded(&r) == text(300_000));
    });
}

#[test]
fn what_is_refused_at_load() {
    refused(
        "*",
        &[
            ("brotli_comp_level 12;", "value must be between 0 and 11"),
            ("zstd_comp_level 23;", "value must be between 1 and 22"),
            ("zstd_comp_level 5 thread;", "invalid parameter \"thread\""),
            ("gzip_comp_level 5 threads=none;", "unknown thread pool \"none\""),
            ("brotli_window 3k;", "must be a power of two, 1k to 16m"),
            ("brotli_static maybe;", "invalid value \"maybe\""),
        ],
    );
}
