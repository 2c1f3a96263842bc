//! `gunzip` and `gzip_static`: compressed files for clients that accept them, decompressed for all
//! others; broken streams and bombs are cut off.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use testkit::{Driver, Site, Weir, built_binary, each_site};

const HTTP: &str = "
    types { text/html html; text/plain txt; application/octet-stream bomb broken short; }
    server {
        listen 127.0.0.1:%PORT0%;
        root html;
        location /on/ { alias html/; gzip_static on; gzip_vary on; }
        location /on/quiet/ { alias html/; gzip_static on; }
        location /always/ { alias html/; gzip_static always; gzip_vary on; }
        location /unpacked/ { alias html/; gzip_static always; gunzip on; gzip_vary on;
                              gunzip_max_ratio 200; }
        location /small/ { alias html/; gzip_static always; gunzip on; gunzip_max_size 1k; }
        location /buffers/ { alias html/; gzip_static always; gunzip on; gunzip_buffers 1 1k; }
        location /free/ { alias html/; gzip_static always; gunzip on; }
        location /page/ { alias html/; ssi on; gzip on; gzip_min_length 0; }
    }";

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut z = GzEncoder::new(Vec::new(), Compression::new(9));
    z.write_all(text).expect("memory");
    z.finish().expect("memory")
}

fn text(len: usize) -> Vec<u8> {
    (0u32..).flat_map(|n| format!("line {n}, {}\n", n % 97 * 31).into_bytes()).take(len).collect()
}

fn site(driver: Driver) -> Weir {
    let packed = gzip(&text(200_000));
    let mut broken = packed.clone();
    broken[5_000] ^= 0x55;
    let include = "[<!--# include virtual=\"/unpacked/both.txt\" -->]";
    Site::new(built_binary(), driver)
        .file("html/both.txt", "plain")
        .file("html/both.txt.gz", gzip(b"from the packed file"))
        .file("html/plain.txt", "only plain")
        .file("html/big.txt.gz", &packed)
        .file("html/x.broken.gz", broken)
        .file("html/x.short.gz", &packed[..packed.len() - 100])
        .file("html/x.bomb.gz", gzip(&vec![0; 64 << 20]))
        .file("html/folder.txt.gz/a", "")
        .file("html/folder.txt", "beside a folder")
        .file("html/page.html", include)
        .http(HTTP)
        .start()
}

#[test]
fn who_gets_the_packed_file() {
    each_site(site, |weir| {
        let vary = Some("Accept-Encoding");
        for (path, accept, coded, varies) in [
            ("/on/both.txt", "gzip", true, vary),
            ("/on/both.txt", "br", false, vary),
            ("/on/both.txt", "gzip;q=0", false, vary),
            ("/on/plain.txt", "gzip", false, None),
            ("/on/plain.txt", "br", false, None),
            ("/on/folder.txt", "gzip", false, vary),
            ("/on/quiet/both.txt", "gzip", true, None),
            ("/on/quiet/both.txt", "br", false, None),
            ("/always/both.txt", "br", true, None),
            ("/always/plain.txt", "br", false, None),
            ("/both.txt", "gzip", false, None),
        ] {
            let r = weir.request("GET", path, &format!("Accept-Encoding: {accept}\r\n"));
            let coding = r.header("Content-Encoding").is_some();
            assert_eq!(
                (r.status, coding, r.header("Vary")),
                (200, coded, varies),
                "{path} {accept}"
            );
            assert_eq!(r.header("Content-Type"), Some("text/plain"));
            let packed = gzip(b"from the packed file");
            assert_eq!(r.body == packed, coded, "{path} {accept}");
        }
        let range = "Accept-Encoding: gzip\r\nRange: bytes=0-1\r\n";
        let r = weir.request("GET", "/on/both.txt", range);
        assert_eq!((r.status, &r.body[..]), (206, &b"\x1f\x8b"[..]));
        assert_eq!(weir.request("POST", "/on/both.txt", "Accept-Encoding: gzip\r\n").status, 405);
    });
}

#[test]
fn unpacked_for_those_who_do_not_take_it() {
    each_site(site, |weir| {
        for path in ["/unpacked/big.txt", "/buffers/big.txt"] {
            let r = weir.get(path);
            assert_eq!((r.status, r.header("Content-Encoding")), (200, None));
            assert_eq!((r.header("Content-Length"), r.header("Accept-Ranges")), (None, None));
            assert!(r.header("ETag").is_some_and(|tag| tag.starts_with("W/")));
            assert!(r.body == text(200_000), "{path}: {}", r.body.len());
        }
        let r = weir.request("GET", "/unpacked/both.txt", "Accept-Encoding: gzip\r\n");
        assert_eq!(r.header("Content-Encoding"), Some("gzip"));
        assert_eq!(r.header("Vary"), Some("Accept-Encoding"));
        let head = weir.request("HEAD", "/unpacked/both.txt", "");
        assert_eq!((head.status, head.header("Content-Encoding")), (200, None));
        // A part of a page is unpacked whatever the client takes; the page is packed as a whole.
        let page = weir.request("GET", "/page/page.html", "Accept-Encoding: gzip\r\n");
        let mut whole = String::new();
        let mut z = flate2::read::GzDecoder::new(&page.body[..]);
        std::io::Read::read_to_string(&mut z, &mut whole).expect("a gzip stream");
        assert_eq!(whole, "[from the packed file]");
    });
}

#[test]
fn broken_streams_and_bombs_are_cut_off() {
    each_site(site, |weir| {
        for (path, message) in [
            ("/unpacked/x.broken", "inflate() failed: 0, -3 ("),
            ("/unpacked/x.short", "inflate() returned -5 on response end"),
            ("/unpacked/x.bomb", "\"gunzip_max_ratio\" exceeded by"),
            ("/small/big.txt", "\"gunzip_max_size\" exceeded by"),
        ] {
            let mut conn = weir.connect();
            conn.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            let got = conn.read_to_end();
            assert!(!got.ends_with(b"0\r\n\r\n"), "{path} has an end");
            assert!(got.len() < 12 << 20, "{path}: {}", got.len());
            let log = weir.wait_for_log("error.log", message);
            assert!(log.contains(path), "{log}");
        }
        let r = weir.get("/free/x.bomb");
        assert_eq!((r.status, r.body.len()), (200, 64 << 20));
        assert_eq!(weir.get("/unpacked/both.txt").body, b"from the packed file");
    });
}
