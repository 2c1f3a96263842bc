//! `charset` and the tables between charsets.

use testkit::{Site, Weir, built_binary, each_site};

fn site(driver: testkit::Driver) -> Weir {
    // The letters that the maps know, behind enough others to make a file of several pieces.
    let mut large = vec![b'.'; 100_000];
    large.extend_from_slice("дa".as_bytes());
    Site::new(built_binary(), driver)
        .file("html/a.html", b"a\xe4b")
        .file("html/utf.html", "aдb€")
        .file("html/x.foo", "X")
        .file("html/large.html", large)
        .http(
            "types { text/html html; text/foo foo; }
             charset_map koi8-r utf-8 { E4 D0B4; }
             charset_map koi8-r windows-1251 { E4 C4; }
             server {
                 listen 127.0.0.1:%PORT0%;
                 location / { charset utf-8; }
                 location /up/ { alias html/; charset UTF-8; source_charset koi8-r; }
                 location /down/ { alias html/; charset koi8-r; source_charset utf-8; }
                 location /win/ { alias html/; charset windows-1251; source_charset koi8-r; }
                 location /foo/ { alias html/; charset utf-8; charset_types text/foo; }
                 location /any/ { alias html/; charset utf-8; charset_types *; }
                 location /arg/ { alias html/; charset $arg_to; source_charset $arg_from; }
                 location /off/ { alias html/; charset off; }
                 location /moved { charset utf-8; return 301 /a.html; }
                 location /asked/ { proxy_pass http://127.0.0.1:%PORT0%/named/; source_charset koi8-r; }
                 location /named/ { alias html/; add_header X-Accel-Charset $arg_c; }
                 location /over/ { proxy_pass http://127.0.0.1:%PORT0%/as-koi/;
                                   charset windows-1251; override_charset on; }
                 location /kept/ { proxy_pass http://127.0.0.1:%PORT0%/as-koi/; charset windows-1251; }
                 location /as-koi/ { alias html/; charset koi8-r; }
             }",
        )
        .start()
}

fn shown(weir: &Weir, path: &str) -> (String, Vec<u8>) {
    let r = weir.get(path);
    assert_eq!(r.status, 200, "{path}");
    (r.header("content-type").unwrap_or_default().to_owned(), r.body)
}

#[test]
fn charsets_are_announced() {
    each_site(site, |weir| {
        let kind = |path: &str| shown(&weir, path).0;
        assert_eq!(kind("/a.html"), "text/html; charset=utf-8");
        assert_eq!(kind("/x.foo"), "text/foo");
        assert_eq!(kind("/foo/x.foo"), "text/foo; charset=utf-8");
        assert_eq!(kind("/foo/a.html"), "text/html; charset=utf-8");
        assert_eq!(kind("/any/x.foo"), "text/foo; charset=utf-8");
        assert_eq!(kind("/off/a.html"), "text/html");
        assert_eq!(kind("/arg/a.html?to=utf-8&from=utf-8"), "text/html; charset=utf-8");
        // A charset without a name is none.
        assert_eq!(kind("/arg/a.html"), "text/html");
        assert_eq!(weir.get("/moved").header("content-type"), Some("text/html"));
        assert_eq!(weir.get("/none").header("content-type"), Some("text/html; charset=utf-8"));
    });
}

#[test]
fn bodies_are_recoded() {
    each_site(site, |weir| {
        let body = |path: &str| shown(&weir, path).1;
        assert_eq!(body("/up/a.html"), "aдb".as_bytes());
        assert_eq!(body("/down/utf.html"), b"a\xe4b&#8364;");
        assert_eq!(body("/win/a.html"), b"a\xc4b");
        assert_eq!(body("/arg/a.html?from=koi8-r&to=windows-1251"), b"a\xc4b");
        let win = weir.get("/win/a.html");
        assert_eq!(win.header("content-length"), Some("3"));
        assert_eq!(weir.get("/up/a.html").header("content-length"), None);
        let large = body("/down/large.html");
        assert_eq!((large.len(), &large[99_999..]), (100_002, &b".\xe4a"[..]));
        // Passed on: what the upstream calls it is recoded only where that is asked for.
        let over = shown(&weir, "/over/a.html");
        assert_eq!(over, ("text/html; charset=windows-1251".to_owned(), b"a\xc4b".to_vec()));
        let kept = shown(&weir, "/kept/a.html");
        assert_eq!(kept, ("text/html; charset=koi8-r".to_owned(), b"a\xe4b".to_vec()));
        assert_eq!(shown(&weir, "/asked/a.html?c=utf-8").1, "aдb".as_bytes());
        // No table between them: the body is left alone, and the log says so.
        let (kind, text) = shown(&weir, "/arg/a.html?from=koi8-r&to=latin1");
        assert_eq!((kind.as_str(), text), ("text/html", b"a\xe4b".to_vec()));
        let asked = shown(&weir, "/asked/a.html?c=latin2");
        assert_eq!(asked.1, b"a\xe4b");
        let m = "no \"charset_map\" between the charsets \"koi8-r\" and \"latin1\"";
        weir.wait_for_log("error.log", m);
        weir.wait_for_log("error.log", "unknown charset \"latin2\" to override");
    });
}

#[test]
fn ranges_and_heads_of_recoded_bodies() {
    each_site(site, |weir| {
        let ask = |path: &str, more: &str| {
            let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{more}Connection: close\r\n\r\n");
            String::from_utf8_lossy(&weir.raw(&text)).into_owned()
        };
        let part = ask("/win/large.html", "Range: bytes=99999-100000\r\n");
        assert!(part.starts_with("HTTP/1.1 206 "), "{part}");
        // A response that changes its length has no ranges.
        let whole = ask("/up/a.html", "Range: bytes=0-0\r\n");
        assert!(whole.starts_with("HTTP/1.1 200 ") && !whole.contains("Accept-Ranges"), "{whole}");
    });
}
