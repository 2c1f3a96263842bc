//! `f4f`: fragments of Adobe's HTTP Dynamic Streaming.

use mp4::atom::{copy, write};
use testkit::{Driver, Site, Weir, built_binary, each_site};

const HTTP: &str = "
    server {
        listen 127.0.0.1:%PORT0%;
        root html;
        location / { f4f; }
        location /sub/ { f4f; alias html/; }
        location /small/ { f4f; f4f_buffer_size 60; alias html/; }
        location /plain/ { alias html/; }
        location /off/ { f4f; aio off; alias html/; }
        location = /one { f4f; alias html/filmSeg1-Frag2; }
    }";

/// A fragment: four boxes.
fn fragment(number: u8) -> Vec<u8> {
    let mut out = Vec::new();
    for name in [b"afra", b"abst", b"moof"] {
        copy(&mut out, name, Some(&[number; 10]));
    }
    copy(&mut out, b"mdat", Some(&[b'0' + number; 1000]));
    out
}

/// An index with these fragments of segment 1 at these places.
fn index(entries: &[(u32, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, b"afra", |out| {
        out.extend_from_slice(&[0, 0, 0, 0, 0xe0, 0, 0, 3, 0xe8, 0, 0, 0, 0]);
        out.extend_from_slice(&(entries.len() as u32).to_be_bytes());
        for (fragment, at) in entries {
            out.extend_from_slice(&[0; 8]);
            out.extend_from_slice(&1_u32.to_be_bytes());
            out.extend_from_slice(&fragment.to_be_bytes());
            out.extend_from_slice(&at.to_be_bytes());
            out.extend_from_slice(&[0; 8]);
        }
    });
    out
}

fn site(driver: Driver) -> Weir {
    let segment: Vec<u8> = (1..=3).flat_map(fragment).collect();
    let at = |number: u64| (number - 1) * fragment(1).len() as u64;
    let places = [(1, at(1)), (2, at(2)), (3, at(3)), (9, 18), (10, u64::MAX)];
    Site::new(built_binary(), driver)
        .file("html/filmSeg1.f4f", &segment)
        .file("html/filmSeg1.f4x", index(&places))
        .file("html/cutSeg1.f4f", &segment[..segment.len() - 1])
        .file("html/cutSeg1.f4x", index(&places))
        .file("html/lyingSeg1.f4f", &segment)
        .file("html/lyingSeg1.f4x", b"\0\0\0\x15afra\0\0\0\0\xe0\0\0\0\0\xff\xff\xff\xff")
        .file("html/emptySeg1.f4f", b"")
        .file("html/emptySeg1.f4x", b"")
        .file("html/aloneSeg1.f4x", index(&places))
        .file("html/film.f4m", b"<manifest/>")
        .http(HTTP)
        .start()
}

#[test]
fn fragments_are_parts_of_segments() {
    each_site(site, |weir| {
        for number in 1..=3 {
            for place in ["", "/sub", "/off"] {
                let response = weir.get(&format!("{place}/filmSeg1-Frag{number}"));
                assert_eq!((response.status, response.body == fragment(number)), (200, true));
                assert_eq!(response.header("Content-Type"), Some("video/f4f"));
                assert_eq!(response.header("Accept-Ranges"), Some("bytes"));
            }
        }
        assert_eq!(weir.get("/one").status, 404, "its URI is no fragment's");
        let whole = fragment(2);
        let head = weir.request("HEAD", "/filmSeg1-Frag2", "");
        assert_eq!(head.header("Content-Length"), Some(&*whole.len().to_string()));
        let part = weir.request("GET", "/filmSeg1-Frag2", "Range: bytes=-1001\r\n");
        assert_eq!((part.status, part.body == whole[whole.len() - 1001..]), (206, true));
        let tag = weir.get("/filmSeg1-Frag2").header("ETag").unwrap().to_owned();
        let same = format!("If-None-Match: {tag}\r\n");
        assert_eq!(weir.request("GET", "/filmSeg1-Frag2", &same).status, 304);
        assert_eq!(weir.request("POST", "/filmSeg1-Frag2", "").status, 405);
        // Other files of the stream.
        assert_eq!(weir.get("/film.f4m").body, b"<manifest/>");
        assert_eq!(weir.get("/plain/filmSeg1-Frag2").status, 404);
    });
}

#[test]
fn files_that_are_missing_or_lie() {
    each_site(site, |weir| {
        for (path, status) in [
            ("/filmSeg1-Frag4", 404),
            ("/filmSeg2-Frag1", 404),
            ("/noneSeg1-Frag1", 404),
            ("/aloneSeg1-Frag1", 404),
            ("/cutSeg1-Frag2", 200),
            ("/cutSeg1-Frag3", 500),
            ("/filmSeg1-Frag9", 500),
            ("/filmSeg1-Frag10", 500),
            ("/lyingSeg1-Frag1", 500),
            ("/emptySeg1-Frag1", 500),
            ("/small/filmSeg1-Frag1", 500),
        ] {
            assert_eq!(weir.get(path).status, status, "{path}");
        }
        let log = weir.stop_and_read("error.log");
        for line in [
            "filmSeg1.f4x\" has no fragment 4",
            "cutSeg1.f4f\" mp4 atom too large:1008",
            "filmSeg1.f4f\" f4f fragment does not begin with an afra box",
            "filmSeg1.f4f\" f4f fragment is outside of the file:18446744073709551615",
            "lyingSeg1.f4x\" f4f afra box is too small",
            "no f4f afra box was found in \"",
            "f4f index is too large:185, you may want to increase f4f_buffer_size",
        ] {
            assert!(log.contains(line), "{line}: {log}");
        }
    });
}
