//! `mp4` and `flv`: parts of films by time and by place.

use mp4::atom::{copy, write};
use testkit::{Driver, Site, Weir, built_binary, each_site};

const HTTP: &str = "
    server {
        listen 127.0.0.1:%PORT0%;
        root html;
        types { video/mp4 mp4; video/x-flv flv; text/html html; }
        location / { mp4; index index.html; }
        location /small/ { alias html/; mp4; mp4_buffer_size 64; mp4_max_buffer_size 100; }
        location /key/ { alias html/; mp4; mp4_start_key_frame on; }
        location /watched/ { alias html/; mp4; mp4_limit_rate 0.01; mp4_limit_rate_after 4s;
            add_header X-Rate $limit_rate; }
        location /rate/ { alias html/; mp4; mp4_limit_rate on; add_header X-Rate $limit_rate; }
        location /off/ { alias html/; mp4; aio off; sendfile off; }
        location /flv/ { alias html/; flv; if ($arg_x) { set $y 1; } }
        location /page/ { alias html/; ssi on; ssi_types *; }
    }";

/// A film of 100 samples of 40 ms, `size` bytes each, 10 in a chunk; a key frame each 20.
fn film(size: u32, index_first: bool) -> Vec<u8> {
    let moov = |at: u32| {
        let mut out = Vec::new();
        write(&mut out, b"moov", |out| {
            write(out, b"mvhd", |out| fill(out, &[0, 0, 0, 1000, 4000], 100));
            write(out, b"trak", |out| {
                write(out, b"tkhd", |out| fill(out, &[0, 0, 0, 1, 0, 4000], 84));
                write(out, b"mdia", |out| {
                    write(out, b"mdhd", |out| fill(out, &[0, 0, 0, 1000, 4000], 24));
                    write(out, b"minf", |out| write(out, b"stbl", |out| tables(out, at, size)));
                });
            });
        });
        out
    };
    let mut file = Vec::new();
    copy(&mut file, b"ftyp", Some(b"isom\0\0\0\0"));
    let mut data = Vec::new();
    (0..100u8).for_each(|n| data.resize(data.len() + size as usize, n));
    if index_first {
        let at = file.len() + moov(0).len() + 8;
        file.extend(moov(at as u32));
        copy(&mut file, b"mdat", Some(&data));
    } else {
        let at = file.len() + 8;
        copy(&mut file, b"mdat", Some(&data));
        file.extend(moov(at as u32));
    }
    file
}

fn fill(out: &mut Vec<u8>, numbers: &[u32], len: usize) {
    numbers.iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes()));
    out.resize(out.len() + len - numbers.len() * 4, 0);
}

fn tables(out: &mut Vec<u8>, at: u32, size: u32) {
    let mut table = |name: &[u8; 4], numbers: &[u32]| {
        write(out, name, |out| fill(out, numbers, numbers.len() * 4));
    };
    table(b"stts", &[0, 1, 100, 40]);
    table(b"stss", &[0, 5, 1, 21, 41, 61, 81]);
    table(b"stsc", &[0, 1, 1, 10, 1]);
    table(b"stsz", &[0, size, 100]);
    let offsets: Vec<u32> = (0..10).map(|n| at + n * 10 * size).collect();
    table(b"stco", &[&[0, 10], &offsets[..]].concat());
}

fn site(driver: Driver) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/first.mp4", film(10_000, true))
        .file("html/last.mp4", film(10_000, false))
        .file("html/tiny.mp4", film(10, true))
        .file("html/text.mp4", "this is no film at all")
        .file("html/empty.mp4", "")
        .file("html/a.flv", "0123456789")
        .file("html/index.html", "an index")
        .file("html/page.html", "[<!--# include virtual=\"/flv/a.flv?start=8\" -->]")
        .http(HTTP)
        .start()
}

/// The samples in the `mdat` at the end of a film.
fn samples(film: &[u8], size: usize) -> Vec<u8> {
    let at = film.windows(4).rposition(|w| w == b"mdat").expect("mdat") + 4;
    assert_eq!((film.len() - at) % size, 0);
    film[at..].chunks(size).map(|sample| sample[0]).collect()
}

#[test]
fn films_from_a_time_on() {
    each_site(site, |weir| {
        for (path, size, from, to) in [
            ("/first.mp4?start=1", 10_000, 25, 100),
            ("/last.mp4?start=1", 10_000, 25, 100),
            ("/last.mp4?start=0", 10_000, 0, 100),
            ("/tiny.mp4?start=1", 10, 25, 100),
            ("/off/last.mp4?start=1", 10_000, 25, 100),
            ("/first.mp4?start=1&end=2", 10_000, 25, 50),
            ("/first.mp4?end=2.04", 10_000, 0, 51),
            ("/first.mp4?start=3.99", 10_000, 99, 100),
            ("/key/first.mp4?start=1", 10_000, 20, 100),
            ("/key/first.mp4?start=1&end=1.4", 10_000, 20, 35),
        ] {
            let r = weir.get(path);
            assert_eq!((r.status, r.header("Content-Type")), (200, Some("video/mp4")), "{path}");
            assert_eq!(r.header("Content-Length"), Some(r.body.len().to_string().as_str()));
            let want: Vec<u8> = (from..to).collect();
            assert_eq!(samples(&r.body, size), want, "{path}");
            assert!(r.body.starts_with(b"\0\0\0\x10ftypisom"));
        }
        for path in ["/first.mp4", "/first.mp4?start=0", "/first.mp4?start=x", "/first.mp4?end=0"] {
            assert!(weir.get(path).body == film(10_000, true), "{path}");
        }
        let part = weir.request("GET", "/first.mp4?start=1", "Range: bytes=4-7\r\n");
        assert_eq!((part.status, part.text().as_str()), (206, "ftyp"));
        assert_eq!(weir.request("POST", "/first.mp4", "").status, 405);
        assert_eq!(weir.get("/missing.mp4?start=1").status, 404);
        assert_eq!(weir.get("/").text(), "an index");
        let head = weir.request("HEAD", "/first.mp4?start=2", "");
        assert!(head.header("Content-Length").is_some_and(|n| n.starts_with("500")));
    });
}

#[test]
fn films_go_as_fast_as_they_are_watched() {
    each_site(site, |weir| {
        let len = film(10_000, true).len() as u64;
        let a_second = len * 1000 / 4000;
        let rate = |path: &str| {
            let r = weir.request("HEAD", path, "");
            (r.status, r.header("X-Rate").and_then(|rate| rate.parse::<u64>().ok()))
        };
        for path in ["/rate/first.mp4", "/rate/last.mp4", "/rate/first.mp4?start=1"] {
            assert_eq!(rate(path), (200, Some(a_second * 1100 / 1000)), "{path}");
        }
        // What is no film has no rate.
        assert_eq!(rate("/rate/text.mp4"), (200, Some(0)));
        assert_eq!(rate("/rate/missing.mp4"), (404, None));
        // The first four seconds are free, which are all: at the rate it would take minutes.
        let r = weir.get("/watched/first.mp4");
        assert_eq!(r.header("X-Rate"), Some((a_second / 100).to_string().as_str()));
        assert_eq!(r.body.len() as u64, len);
    });
}

#[test]
fn films_that_are_none() {
    each_site(site, |weir| {
        for (path, message) in [
            ("/text.mp4?start=1", "mp4 atom too large:1952999795"),
            ("/empty.mp4?start=1", "no mp4 trak atoms were found in"),
            ("/first.mp4?start=5", "mp4 start time exceeds file duration"),
            ("/small/first.mp4?start=1", "you may want to increase mp4_max_buffer_size"),
        ] {
            assert_eq!(weir.get(path).status, 500, "{path}");
            let log = weir.wait_for_log("error.log", message);
            assert!(log.contains(path), "{log}");
        }
    });
}

#[test]
fn flash_video_from_a_place_on() {
    each_site(site, |weir| {
        let from = |text: &str| [b"FLV\x01\x05\0\0\0\x09\0\0\0\0", text.as_bytes()].concat();
        for (path, want) in [
            ("/flv/a.flv", b"0123456789".to_vec()),
            ("/flv/a.flv?start=0", b"0123456789".to_vec()),
            ("/flv/a.flv?start=10", b"0123456789".to_vec()),
            ("/flv/a.flv?start=-1", b"0123456789".to_vec()),
            ("/flv/a.flv?start=7", from("789")),
            ("/flv/a.flv?x=1&START=9", from("9")),
            ("/page/page.html", [b"[", &from("89")[..], b"]"].concat()),
        ] {
            let r = weir.get(path);
            assert_eq!((r.status, &r.body), (200, &want), "{path}");
        }
        let r = weir.request("GET", "/flv/a.flv?start=7", "Range: bytes=12-14\r\n");
        assert_eq!((r.status, r.body), (206, b"\x0078".to_vec()));
        assert_eq!(weir.request("POST", "/flv/a.flv", "").status, 405);
    });
}
