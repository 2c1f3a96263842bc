//! The treatment of the fields of an upstream's response, in each protocol.

use std::io::Write;

use testkit::{Driver, Scripted, Site, Weir, built_binary, each_driver, each_site, read_until};

const HTTP: &str = r#"
    proxy_cache_path cache keys_zone=c:1m;
    charset_map koi8-r utf-8 { C0 D18E; }
    server {
        listen 127.0.0.1:%PORT0%;
        root html;
        location /http/ { proxy_pass http://127.0.0.1:%BACK%; }
        location /cached/ { proxy_pass http://127.0.0.1:%BACK%; proxy_cache c;
                            proxy_cache_valid any 1m; }
        location /fastcgi/ { fastcgi_pass 127.0.0.1:%BACK%; fastcgi_param URI $uri;
                             charset utf-8; charset_types text/html; }
        location /scgi/ { scgi_pass 127.0.0.1:%BACK%; scgi_param URI $uri; }
        location /uwsgi/ { uwsgi_pass 127.0.0.1:%BACK%; uwsgi_param URI $uri; }
        location /cookie/ { proxy_pass http://127.0.0.1:%BACK%;
                            add_header X-Cookies "<$upstream_cookie_a><$upstream_cookie_b>"; }
        location /type/ { proxy_pass http://127.0.0.1:%BACK%;
                          add_header X-Type $sent_http_content_type; }
        location /koi/ { proxy_pass http://127.0.0.1:%BACK%; charset koi8-r; override_charset on; }
        location = /given { add_header Last-Modified $arg_date always; return 404; }
    }"#;

const DATE: &str = "Wed, 01 Jan 2020 00:00:00 GMT";

/// The same in the oldest form.
const ASCTIME: &str = "Wed Jan  1 00:00:00 2020";

/// The end of a request: of FastCGI's, HTTP's; the others' come in one piece.
fn is_asked(bytes: &[u8]) -> bool {
    match bytes.first() {
        Some(1) => bytes.ends_with(&[1, 5, 0, 1, 0, 0, 0, 0]),
        Some(b'G' | b'H') => bytes.ends_with(b"\r\n\r\n"),
        first => first.is_some(),
    }
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let len = (content.len() as u16).to_be_bytes();
    [&[1, kind, 0, 1, len[0], len[1], 0, 0], content].concat()
}

/// A server of all protocols. It answers with the status that the path ends in.
fn site(driver: Driver) -> Weir {
    let back = Scripted::start(|mut s, _| {
        let Some(asked) = read_until(&mut s, is_asked) else { return };
        let text = String::from_utf8_lossy(&asked);
        let status = text.split("/status/").nth(1).map_or("200", |rest| &rest[..3]);
        let date = if text.contains("/asctime") { ASCTIME } else { DATE };
        let mut fields = format!("Last-Modified: {date}\r\n");
        fields += match () {
            () if text.contains("/quoted") => "Content-Type: text/plain; Charset=\"utf-8\"\r\n",
            () if text.contains("/plain") => "Content-Type: text/html; charset=utf-8\r\n",
            () if text.contains("/moved") => "Content-Type: text/html\r\nLocation: /x\r\n",
            () => "Content-Type: text/plain;charset=utf-8\r\n",
        };
        if text.contains("/cookie/") {
            fields += "Set-Cookie: A = x y ; Path=/\r\nSet-Cookie: b= \r\nSet-Cookie: b=2\r\n";
        }
        let head = match asked[0] {
            b'G' | b'H' => format!("HTTP/1.1 {status} Said\r\nContent-Length: 2\r\n{fields}\r\n"),
            _ => format!("Status: {status} Said\r\n{fields}\r\n"),
        };
        let answer = match asked[0] {
            1 => [record(6, head.as_bytes()), record(6, b"ok"), record(3, &[0; 8])].concat(),
            _ => [head.as_bytes(), b"ok"].concat(),
        };
        // The client may be gone.
        let _ = s.write_all(&answer);
    });
    let http = HTTP.replace("%BACK%", &back.port.to_string());
    Site::new(built_binary(), driver).http(&http).start()
}

#[test]
fn fields_come_as_the_upstream_wrote_them() {
    each_site(site, |weir| {
        for protocol in ["http", "cached", "fastcgi", "scgi", "uwsgi"] {
            for status in [200, 201, 206, 301, 404, 500] {
                // The cache's second answer is its own.
                for _ in 0..2 {
                    let r = weir.get(&format!("/{protocol}/status/{status}"));
                    assert_eq!(r.status, status);
                    assert_eq!(r.header("Last-Modified"), Some(DATE), "{protocol} {status}");
                    let kind = Some("text/plain;charset=utf-8");
                    assert_eq!(r.header("Content-Type"), kind, "{protocol} {status}");
                }
            }
        }
        let r = weir.get("/http/quoted/");
        assert_eq!(r.header("Content-Type"), Some("text/plain; Charset=\"utf-8\""));
        // An old form of the date stays, and counts.
        let since = format!("If-Modified-Since: {DATE}\r\n");
        for (fields, status) in [("", 200), (&since[..], 304)] {
            let r = weir.request("GET", "/cached/asctime", fields);
            assert_eq!((r.status, r.header("Last-Modified")), (status, Some(ASCTIME)));
        }
        // A variable has it all before the head is written; a filter writes it anew.
        let r = weir.get("/type/quoted");
        assert_eq!(r.header("X-Type"), Some("text/plain; Charset=\"utf-8\""));
        let r = weir.get("/koi/plain");
        assert_eq!(r.header("Content-Type"), Some("text/html; charset=koi8-r"));
        // A date that the configuration gives is sent with any status, too.
        let r = weir.get("/given?date=Wed,%2001%20Jan");
        assert_eq!((r.status, r.header("Last-Modified")), (404, Some("Wed,%2001%20Jan")));
    });
}

#[test]
fn cookies_of_an_upstream_may_have_spaces_around_their_sign() {
    each_site(site, |weir| {
        let r = weir.get("/cookie/");
        assert_eq!(r.header("X-Cookies"), Some("<x y ><>"));
    });
}

#[test]
fn a_responder_may_take_its_time_between_the_end_of_its_output_and_that_of_the_request() {
    each_driver(|driver| {
        let back = Scripted::start(|mut s, _| {
            let whole = |b: &[u8]| is_asked(b) && b.windows(4).any(|w| w == b"last");
            if read_until(&mut s, whole).is_none() {
                return;
            }
            let head = b"Content-Type: text/plain\r\n\r\nhas ";
            let begun = [record(6, head), record(6, b"")].concat();
            s.write_all(&begun).expect("the request goes on");
            // Were the connection closed, this would say so: nothing else can come.
            s.set_read_timeout(Some(std::time::Duration::from_millis(300))).expect("a timeout");
            let mut byte = [0];
            let open = std::io::Read::read(&mut s, &mut byte).is_err();
            let end = if open { record(3, &[0; 8]) } else { Vec::new() };
            // Of a response whose output has ended this is no part.
            s.write_all(&record(7, if open { b"it was open" } else { b"it was closed" }))
                .and_then(|()| s.write_all(&end))
                .expect("the connection is open");
        });
        let http = format!(
            "server {{ listen 127.0.0.1:%PORT0%; location / {{ fastcgi_pass 127.0.0.1:{};
             fastcgi_request_buffering off; }} }}",
            back.port
        );
        let weir = Site::new(built_binary(), driver).http(&http).start();
        for fields in ["Content-Length: 9", "Transfer-Encoding: chunked"] {
            let chunked = fields.starts_with('T');
            let part = |text: &str, end: &str| match chunked {
                true => format!("{:x}\r\n{text}\r\n{end}", text.len()),
                false => text.to_owned(),
            };
            let mut conn = weir.connect();
            conn.send(format!(
                "POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{}",
                part("first", "")
            ));
            conn.send(part("last", "0\r\n\r\n"));
            let r = conn.response();
            assert_eq!((r.status, r.text()), (200, "has ".to_owned()));
        }
        let log = weir.wait_for_log("error.log", "it was");
        assert!(log.contains("it was open"), "{log}");
    });
}

#[test]
fn heads_of_gateways_have_fields_alone_and_a_status_of_three_digits() {
    each_driver(|driver| {
        let back = Scripted::start(|mut s, _| {
            let Some(asked) = read_until(&mut s, is_asked) else { return };
            let text = String::from_utf8_lossy(&asked);
            let head = match () {
                () if text.contains("/bare") => "Status: 200 OK\r\nX-Bare\r\n\r\n",
                () if text.contains("/low") => "Status: 099 Low\r\n\r\n",
                () => "Status: 200 OK\r\nX-Tab:\t a \t\r\nContent-Length:\t2\t\r\n\r\n",
            };
            let answer = match asked[0] {
                1 => [record(6, head.as_bytes()), record(6, b"ok"), record(3, &[0; 8])].concat(),
                _ => [head.as_bytes(), b"ok"].concat(),
            };
            // The client may be gone.
            let _ = s.write_all(&answer);
        });
        let http = HTTP.replace("%BACK%", &back.port.to_string());
        let weir = Site::new(built_binary(), driver).http(&http).start();
        for protocol in ["fastcgi", "scgi", "uwsgi"] {
            for kind in ["bare", "low"] {
                assert_eq!(weir.get(&format!("/{protocol}/{kind}")).status, 502, "{protocol}");
            }
            let r = weir.get(&format!("/{protocol}/tabs"));
            assert_eq!((r.status, r.header("X-Tab"), &r.body[..]), (200, Some("a"), &b"ok"[..]));
        }
        weir.wait_for_log("error.log", "upstream sent invalid header: \"X-Bare\\x0d...\"");
        weir.wait_for_log("error.log", "upstream sent invalid status \"099 Low\"");
    });
}
