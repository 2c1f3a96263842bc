//! `image_filter` over real connections.

use testkit::{Driver, Site, Weir, built_binary, each_driver, refused};

const HTTP: &str = r#"
server {
    listen 127.0.0.1:%PORT0%;
    root html;
    types { image/png png; text/html html; application/x bin; }
    image_filter_buffer 64k;
    image_filter_max_pixels 100000;
    location /size/ { image_filter size; alias %PREFIX%/html/; }
    location /test/ { image_filter test; alias %PREFIX%/html/; }
    location /resize/ { image_filter resize 10 $arg_h; alias %PREFIX%/html/; }
    location /crop/ {
        image_filter crop 10 10;
        image_filter rotate $arg_a;
        image_filter_sharpen 20;
        alias %PREFIX%/html/;
    }
    location /off/ { alias %PREFIX%/html/; }
    location /proxied/ { image_filter resize 10 10; proxy_pass http://127.0.0.1:%PORT0%/off/; }
    location /page/ {
        image_filter test;
        error_page 415 = @none;
        alias %PREFIX%/html/;
    }
    location @none { return 200 "no image\n"; }
}
"#;

/// A PNG of that size: one colour, stored without compression.
fn png(width: u32, height: u32) -> Vec<u8> {
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |name: &[u8; 4], data: &[u8]| {
        out.extend_from_slice(&(data.len() as u32).to_be_bytes());
        let start = out.len();
        out.extend_from_slice(name);
        out.extend_from_slice(data);
        let crc = crc(&out[start..]);
        out.extend_from_slice(&crc.to_be_bytes());
    };
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    // Eight bits of grey.
    header.extend_from_slice(&[8, 0, 0, 0, 0]);
    chunk(b"IHDR", &header);
    let rows = [&[0][..], &vec![0x55; width as usize]].concat().repeat(height.min(60) as usize);
    let mut data = vec![0x78, 0x01];
    data.push(1);
    data.extend_from_slice(&(rows.len() as u16).to_le_bytes());
    data.extend_from_slice(&(!(rows.len() as u16)).to_le_bytes());
    data.extend_from_slice(&rows);
    let (mut a, mut b) = (1u32, 0u32);
    for byte in &rows {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    data.extend_from_slice(&(b << 16 | a).to_be_bytes());
    chunk(b"IDAT", &data);
    chunk(b"IEND", b"");
    out
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    })
}

fn size_of(png: &[u8]) -> (u32, u32) {
    let word = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes"));
    (word(16), word(20))
}

fn start(driver: Driver) -> Weir {
    // More than a billion pixels.
    let mut claims = png(40_000, 40_000);
    claims.truncate(200);
    Site::new(built_binary(), driver)
        .file("html/a.png", png(60, 40))
        .file("html/a.bin", png(60, 40))
        .file("html/huge.png", claims)
        .file("html/long.bin", vec![0x89; 70_000])
        .file("html/cut.png", &png(60, 40)[..100])
        .file("html/page.html", b"<html><body>no image at all</body></html>")
        .http(HTTP)
        .start()
}

#[test]
fn images() {
    each_driver(|driver| {
        let weir = start(driver);
        let size = weir.get("/size/a.png");
        assert_eq!(size.header("Content-Type"), Some("application/json"));
        let json = "{ \"img\" : { \"width\": 60, \"height\": 40, \"type\": \"png\" } }\r\n";
        assert_eq!(size.text(), json);
        assert_eq!(weir.get("/size/page.html").text(), "{}\r\n");
        let test = weir.get("/test/a.bin");
        assert_eq!((test.status, test.header("Content-Type")), (200, Some("image/png")));
        assert_eq!(test.body, png(60, 40));
        for (uri, want) in [
            ("/resize/a.png?h=-", (10, 6)),
            ("/resize/a.png?h=3", (5, 3)),
            ("/crop/a.png?a=0", (10, 10)),
            ("/crop/a.png?a=90", (10, 10)),
            ("/proxied/a.png", (10, 6)),
        ] {
            let answer = weir.get(uri);
            assert_eq!((answer.status, answer.header("Content-Type")), (200, Some("image/png")));
            assert_eq!(size_of(&answer.body), want, "{uri}");
            assert!(answer.header("ETag").is_none_or(|tag| tag.starts_with("W/")), "{uri}");
            assert!(answer.header("Accept-Ranges").is_none(), "{uri}");
            let head = weir.request("HEAD", uri, "");
            // An upstream sends no body for HEAD.
            let len = (!uri.contains("proxied")).then(|| answer.body.len().to_string());
            assert_eq!(
                (head.status, head.header("Content-Length")),
                (200, len.as_deref()),
                "{uri}"
            );
        }
        for uri in ["/size/a.png", "/size/page.html", "/test/a.bin"] {
            let (get, head) = (weir.get(uri), weir.request("HEAD", uri, ""));
            assert_eq!((head.status, head.body.len()), (200, 0), "{uri}");
            for name in ["Content-Type", "Content-Length"] {
                assert_eq!(head.header(name), get.header(name), "{uri}");
            }
        }
        let head = weir.request("HEAD", "/test/page.html", "");
        assert_eq!(head.status, 415);
    });
}

#[test]
fn what_is_no_image_or_too_large() {
    each_driver(|driver| {
        let weir = start(driver);
        for uri in [
            "/test/page.html",
            "/resize/page.html?h=1",
            "/resize/a.png",
            "/resize/a.png?h=x",
            "/resize/huge.png?h=1",
            "/resize/cut.png?h=1",
            "/resize/long.bin?h=1",
        ] {
            let answer = weir.get(uri);
            assert_eq!(answer.status, 415, "{uri}");
            assert!(answer.text().contains("415 Unsupported Media Type"), "{uri}");
        }
        for told in ["image filter: too many pixels", "image filter: too big response"] {
            weir.wait_for_log("error.log", told);
        }
        assert_eq!(weir.get("/page/page.html").text(), "no image\n");
        assert_eq!(weir.get("/off/page.html").status, 200);
    });
}

#[test]
fn what_is_wrong_is_told() {
    refused(
        "server { location / { * } }",
        &[
            ("image_filter resize 10;", "invalid parameter \"resize\""),
            ("image_filter resize 0 10;", "invalid parameter \"0\""),
            ("image_filter rotate 45;", "invalid parameter \"45\""),
            ("image_filter turn;", "invalid parameter \"turn\""),
            ("image_filter_jpeg_quality 0;", "invalid value \"0\""),
        ],
    );
}

/// nginx answers 415.
#[test]
fn redirects_and_errors_pass() {
    each_driver(|driver| {
        let text = "server { listen 127.0.0.1:%PORT0%; root html;
            location /moved { image_filter resize 10 10; return 302 /x; }
            location /denied { image_filter resize 10 10; return 403 no; }
            location /none { image_filter resize 10 10; }
            location /behind { image_filter test; proxy_pass http://127.0.0.1:%PORT1%; }
            location /text { image_filter resize 10 10; return 200 text; } }
            server { listen 127.0.0.1:%PORT1%; return 404 gone; }";
        let weir = Site::new(built_binary(), driver).http(text).start();
        let moved = weir.get("/moved");
        assert_eq!((moved.status, moved.header("Content-Type")), (302, Some("text/html")));
        assert!(moved.header("Location").unwrap().ends_with("/x"));
        for (path, status, body) in
            [("/denied", 403, "no"), ("/behind", 404, "gone"), ("/none", 404, "<html>")]
        {
            let r = weir.get(path);
            assert!(r.status == status && r.text().starts_with(body), "{path}: {}", r.text());
        }
        assert_eq!(weir.get("/text").status, 415);
    });
}
