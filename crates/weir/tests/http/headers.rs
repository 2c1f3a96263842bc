//! `add_header`, `add_trailer`, `expires`, conditional requests.

use testkit::{Site, Weir, built_binary, each_site};

fn site(driver: testkit::Driver) -> Weir {
    Site::new(built_binary(), driver)
        .file("html/a.txt", "hello")
        .http(
            "server {
                 listen 127.0.0.1:%PORT0%;
                 add_header X-A 1;
                 add_header X-Always $uri always;
                 location /own/ { alias html/; add_header X-B 2; }
                 location /merge/ { alias html/; add_header X-B 2; add_header_inherit merge; }
                 location /none/ { alias html/; add_header_inherit off; }
                 location /etag/ { alias html/; add_header ETag '\"x\"'; add_header X-Empty ''; }
                 location /date/ { alias html/; add_header Last-Modified 'Mon, 28 Sep 1970 06:00:00 GMT'; }
                 location /raw/ { alias html/; add_header last-modified never; }
                 location /trail/ { alias html/; add_trailer X-T $body_bytes_sent; add_trailer X-U $sent_trailer_x_t; }
                 location /max/ { alias html/; expires max; }
                 location /epoch/ { alias html/; expires epoch; }
                 location /hour/ { alias html/; expires 1h; add_header Cache-Control public;
                                   location /hour/in/ { alias html/; } }
                 location /arg/ { alias html/; expires $arg_e; }
                 location /mod/ { alias html/; expires modified 1h; }
                 location /before/ { alias html/; if_modified_since before; }
                 location /off/ { alias html/; if_modified_since off; }
                 location /noetag/ { alias html/; etag off; }
                 location /page/ { alias html/; error_page 412 /own/a.txt; }
             }",
        )
        .start()
}

#[test]
fn fields_are_added_and_inherited() {
    each_site(site, |weir| {
        let names = |path: &str| {
            let r = weir.get(path);
            ["x-a", "x-always", "x-b"].map(|n| r.header(n).is_some())
        };
        assert_eq!(names("/a.txt"), [true, true, false]);
        assert_eq!(names("/nope"), [false, true, false]);
        assert_eq!(names("/own/a.txt"), [false, false, true]);
        assert_eq!(names("/merge/a.txt"), [true, true, true]);
        assert_eq!(names("/none/a.txt"), [false, false, false]);
        let r = weir.get("/etag/a.txt");
        assert_eq!((r.header("etag"), r.header("x-empty")), (Some("\"x\""), None));
        assert_eq!(r.all("etag").count(), 1);
        let date = Some("Mon, 28 Sep 1970 06:00:00 GMT");
        assert_eq!(weir.get("/date/a.txt").header("last-modified"), date);
        let raw = weir.get("/raw/a.txt");
        assert_eq!(raw.all("last-modified").collect::<Vec<_>>(), ["never"]);
    });
}

#[test]
fn trailers_follow_the_body() {
    each_site(site, |weir| {
        let get = "GET /trail/a.txt HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        let text = String::from_utf8(weir.raw(get)).unwrap();
        assert!(
            text.contains("Transfer-Encoding: chunked\r\n") && !text.contains("Content-Length")
        );
        assert!(text.ends_with("\r\n5\r\nhello\r\n0\r\nX-T: 0\r\nX-U: 0\r\n\r\n"), "{text}");
        let old = String::from_utf8(weir.raw("GET /trail/a.txt HTTP/1.0\r\n\r\n")).unwrap();
        assert!(old.contains("Content-Length: 5\r\n") && old.ends_with("\r\n\r\nhello"), "{old}");
        let head = weir.request("HEAD", "/trail/a.txt", "");
        assert_eq!(head.header("content-length"), Some("5"));
    });
}

#[test]
fn responses_expire() {
    each_site(site, |weir| {
        let of = |path: &str| {
            let r = weir.get(path);
            let control: Vec<_> = r.all("cache-control").map(str::to_owned).collect();
            (r.header("expires").map(str::to_owned), control.join("|"))
        };
        let (expires, control) = of("/max/a.txt");
        assert_eq!(expires.as_deref(), Some("Thu, 31 Dec 2037 23:55:55 GMT"));
        assert_eq!(control, "max-age=315360000");
        assert_eq!(of("/epoch/a.txt").0.as_deref(), Some("Thu, 01 Jan 1970 00:00:01 GMT"));
        assert_eq!(of("/hour/a.txt").1, "max-age=3600|public");
        assert_eq!(of("/hour/in/a.txt").1, "max-age=3600|public");
        assert_eq!(of("/arg/a.txt?e=-1").1, "no-cache");
        assert_eq!(of("/arg/a.txt?e=0").1, "max-age=0");
        for bad in ["/arg/a.txt", "/arg/a.txt?e=soon", "/arg/a.txt?e=off", "/hour/nope"] {
            assert_eq!(of(bad), (None, String::new()), "{bad}");
        }
        assert!(of("/arg/a.txt?e=@0").0.is_some());
        assert!(of("/mod/a.txt").1.starts_with("max-age=3"));
    });
}

#[test]
fn conditional_requests() {
    each_site(site, |weir| {
        let plain = weir.get("/a.txt");
        let tag = plain.header("etag").unwrap().to_owned();
        let date = plain.header("last-modified").unwrap().to_owned();
        let later = "Thu, 31 Dec 2037 23:55:55 GMT";
        let earlier = "Mon, 28 Sep 1970 06:00:00 GMT";
        let status = |path: &str, lines: &[(&str, &str)]| {
            let text: String = lines.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect();
            weir.request("GET", path, &text).status
        };
        let (ims, inm) = ("If-Modified-Since", "If-None-Match");
        let weak = format!("W/{tag}");
        for (path, lines, want) in [
            ("/a.txt", &[(ims, &date[..])][..], 304),
            ("/a.txt", &[(ims, later)], 200),
            ("/a.txt", &[(ims, earlier)], 200),
            ("/a.txt", &[(ims, "rubbish")], 200),
            ("/before/a.txt", &[(ims, later)], 304),
            ("/before/a.txt", &[(ims, earlier)], 200),
            ("/off/a.txt", &[(ims, &date)], 200),
            ("/a.txt", &[(inm, &tag)], 304),
            ("/a.txt", &[(inm, &weak)], 304),
            ("/a.txt", &[(inm, "*")], 304),
            ("/a.txt", &[(inm, "\"x\"")], 200),
            ("/noetag/a.txt", &[(inm, &tag)], 200),
            ("/a.txt", &[(ims, &date), (inm, "\"x\"")], 200),
            ("/a.txt", &[(ims, earlier), (inm, &tag)], 200),
            ("/a.txt", &[("If-Match", &tag)], 200),
            ("/a.txt", &[("If-Match", &weak)], 412),
            ("/a.txt", &[("If-Match", "\"x\"")], 412),
            ("/a.txt", &[("If-Unmodified-Since", &date)], 200),
            ("/a.txt", &[("If-Unmodified-Since", earlier)], 412),
            ("/nope", &[("If-Match", "\"x\"")], 404),
        ] {
            assert_eq!(status(path, lines), want, "{path} {lines:?}");
        }
        let r = weir.request("GET", "/a.txt", &format!("If-None-Match: {tag}\r\n"));
        assert_eq!((r.header("content-length"), r.header("content-type")), (None, None));
        assert_eq!((r.header("etag"), r.header("x-a")), (Some(&tag[..]), Some("1")));
        let r = weir.request("GET", "/a.txt", "If-Match: \"x\"\r\n");
        assert_eq!((r.header("x-a"), r.all("x-always").count()), (None, 1));
        let r = weir.request("GET", "/page/a.txt", "If-Match: \"x\"\r\n");
        assert_eq!((r.status, &r.body[..]), (412, &b"hello"[..]));
    });
}

#[test]
fn fields_of_framing_are_left_out() {
    for name in ["Content-Length", "content-length", "Transfer-Encoding"] {
        let text = format!(
            "server {{ listen 127.0.0.1:%PORT0%; add_header X-Outer 1;
             location / {{ add_header {name} 3 always; return 200 hello; }}
             location /outer {{ return 200 hello; }} }}"
        );
        let weir = Site::new(built_binary(), testkit::Driver::Epoll).http(&text).start();
        assert_eq!(weir.get("/outer").header("X-Outer"), Some("1"));
        let r = weir.get("/");
        // It ends the inheritance as every other `add_header` does.
        assert_eq!(r.header("X-Outer"), None, "{name}");
        let lengths: Vec<_> = r.all("Content-Length").collect();
        assert_eq!((r.status, &r.body[..], lengths), (200, &b"hello"[..], vec!["5"]), "{name}");
        assert_eq!(r.header("Transfer-Encoding"), None);
    }
}
