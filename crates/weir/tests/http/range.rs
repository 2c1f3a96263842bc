//! Range requests, by memory and by file.

use testkit::{Response, Site, Weir, built_binary, each_site, pattern};

fn site(driver: testkit::Driver) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/small.txt", pattern(1000, 0))
        .file("html/big.bin", pattern(200_000, 0))
        .http(
            "sendfile on;
             server {
                 listen 127.0.0.1:%PORT0%;
                 location /none/ { alias html/; max_ranges 0; }
                 location /two/ { alias html/; max_ranges 2; }
                 location /copied/ { alias html/; sendfile off; }
                 location /page/ { alias html/; error_page 416 /small.txt; }
             }",
        )
        .start()
}

/// Whole responses.
const FILES: [(&str, usize); 3] =
    [("/small.txt", 1000), ("/big.bin", 200_000), ("/copied/big.bin", 200_000)];

fn range(weir: &Weir, path: &str, value: &str) -> Response {
    weir.request("GET", path, &format!("Range: {value}\r\n"))
}

#[test]
fn one_range() {
    each_site(site, |weir| {
        for (path, len) in FILES {
            let whole = pattern(len, 0);
            for (value, from, to) in [
                ("bytes=0-0", 0, 1),
                ("bytes=0-99", 0, 100),
                ("Bytes=990-", 990, len),
                ("bytes=-10", len - 10, len),
                ("bytes=5-1000000", 5, len),
            ] {
                let r = range(&weir, path, value);
                assert_eq!((r.status, &r.body[..]), (206, &whole[from..to]), "{path} {value}");
                let want = format!("bytes {from}-{}/{len}", to - 1);
                assert_eq!(r.header("content-range"), Some(&want[..]));
                assert_eq!(r.header("accept-ranges"), None);
            }
        }
        let head = weir.request("HEAD", "/small.txt", "Range: bytes=1-2\r\n");
        assert_eq!((head.status, head.header("content-length")), (206, Some("2")));
    });
}

#[test]
fn what_is_no_range() {
    each_site(site, |weir| {
        for value in ["bytes=1000-", "bytes=x", "bytes=2-1"] {
            let r = range(&weir, "/small.txt", value);
            assert_eq!(
                (r.status, r.header("content-range")),
                (416, Some("bytes */1000")),
                "{value}"
            );
            assert_eq!(r.all("content-range").count(), 1);
            assert!(r.text().contains("416 Requested Range Not Satisfiable"));
        }
        for value in ["items=0-1", "bytes=0-,0-,0-"] {
            let r = range(&weir, "/small.txt", value);
            assert_eq!((r.status, r.header("accept-ranges")), (200, Some("bytes")), "{value}");
        }
        let off = range(&weir, "/none/small.txt", "bytes=0-1");
        assert_eq!((off.status, off.header("accept-ranges")), (200, None));
        assert_eq!(range(&weir, "/two/small.txt", "bytes=0-1,3-4").status, 206);
        assert_eq!(range(&weir, "/two/small.txt", "bytes=0-1,3-4,6-7").status, 200);
        let page = range(&weir, "/page/big.bin", "bytes=1000000-");
        assert_eq!((page.status, page.body), (416, pattern(1000, 0)));
    });
}

#[test]
fn several_ranges() {
    each_site(site, |weir| {
        for (path, len) in FILES {
            let whole = pattern(len, 0);
            let r = range(&weir, path, "bytes=900-,0-9,5-14");
            let kind = r.header("content-type").unwrap().to_owned();
            let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap();
            let mut want = Vec::new();
            for (from, to) in [(900, len), (0, 10), (5, 15)] {
                let mime = "text/plain";
                let head = format!(
                    "\r\n--{boundary}\r\nContent-Type: {mime}\r\nContent-Range: bytes {from}-{}/{len}\r\n\r\n",
                    to - 1
                );
                want.extend_from_slice(head.as_bytes());
                want.extend_from_slice(&whole[from..to]);
            }
            want.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
            assert_eq!((r.status, r.header("content-range")), (206, None));
            assert_eq!(r.body, want, "{path}");
        }
    });
}

#[test]
fn ranges_of_what_the_client_has() {
    each_site(site, |weir| {
        let plain = weir.get("/small.txt");
        let (tag, date) = (
            plain.header("etag").unwrap().to_owned(),
            plain.header("last-modified").unwrap().to_owned(),
        );
        let status = |value: &str| {
            let lines = format!("Range: bytes=0-1\r\nIf-Range: {value}\r\n");
            weir.request("GET", "/small.txt", &lines).status
        };
        assert_eq!((status(&tag), status(&date)), (206, 206));
        assert_eq!(status("\"other\""), 200);
        assert_eq!(status(&format!("W/{tag}")), 200);
        assert_eq!(status("Mon, 28 Sep 1970 06:00:00 GMT"), 200);
        assert_eq!(status("rubbish"), 200);
    });
}

/// nginx refuses them (RFC 9110 section 5.6.1.2 has recipients take them).
#[test]
fn elements_of_the_list_may_be_empty() {
    each_site(site, |weir| {
        let r = range(&weir, "/small.txt", "bytes=,0-1,, 3-4,");
        assert_eq!(r.status, 206);
        assert!(r.header("Content-Type").unwrap().starts_with("multipart/byteranges"));
        let r = range(&weir, "/small.txt", "bytes=\t0-1\t,");
        assert_eq!((r.status, &r.body[..]), (206, &pattern(1000, 0)[..2]));
        assert_eq!(range(&weir, "/small.txt", "bytes=,").status, 416);
    });
}
