//! Requests as tables: accepted ones with their parts, refused ones with their errors, and each of
//! them at every split.

use super::*;

mod limits;
mod smuggling;

/// Everything that a caller can see of a result, to compare two runs by.
fn outcome(step: Step, head: &Head, buf: &[u8]) -> String {
    match step {
        Step::Done { len } => format!("done {len} {head:?}"),
        Step::More => "more".to_owned(),
        Step::Bad(e) => format!("bad {} {:?} {}", e.status(), e.stage, e.message(buf)),
    }
}

fn whole(buf: &[u8], limits: &Limits) -> (Step, Head) {
    let mut head = Head::new();
    let step = HeadParser::new().parse(buf, limits, &mut head);
    (step, head)
}

/// Parses in one piece, in two at every boundary, and byte by byte; all must agree.
fn check(buf: &[u8], limits: &Limits) -> (Step, Head) {
    let (step, head) = whole(buf, limits);
    let want = outcome(step, &head, buf);
    for cut in 0..=buf.len() {
        let (mut parser, mut head) = (HeadParser::new(), Head::new());
        let mut step = parser.parse(&buf[..cut], limits, &mut head);
        if step == Step::More {
            step = parser.parse(buf, limits, &mut head);
        }
        let got = outcome(step, &head, buf);
        assert_eq!(got, want, "cut at {cut} of {:?}", String::from_utf8_lossy(buf));
    }
    let (mut parser, mut head) = (HeadParser::new(), Head::new());
    let mut step = Step::More;
    for len in 0..=buf.len() {
        step = parser.parse(&buf[..len], limits, &mut head);
        if step != Step::More {
            break;
        }
    }
    assert_eq!(outcome(step, &head, buf), want, "dribbled {:?}", String::from_utf8_lossy(buf));
    (step, head)
}

#[test]
fn a_plain_request() {
    let buf = b"\r\nGET /a/b.html?x=1&y=%20 HTTP/1.1\r\nHost: Example.com:8080\r\n\
        Connection: Keep-Alive, Upgrade\r\nX-Other:  a b \t \r\ncontent-length: 5\r\n\r\nhello";
    let (step, head) = check(buf, &Limits::default());
    assert_eq!(step, Step::Done { len: buf.len() - 5 });
    assert_eq!(head.method, Method::Get);
    assert_eq!(head.line.of(buf), b"GET /a/b.html?x=1&y=%20 HTTP/1.1");
    assert_eq!(head.target.of(buf), b"/a/b.html?x=1&y=%20");
    assert_eq!(head.path.of(buf), b"/a/b.html");
    assert_eq!(head.args.of(buf), b"x=1&y=%20");
    assert!(head.plain_path);
    assert_eq!(head.protocol.of(buf), b"HTTP/1.1");
    let host = head.host.expect("a host");
    assert_eq!((host.name.of(buf), host.port, host.has_upper), (&b"Example.com"[..], 8080, true));
    assert!(head.connection.keep_alive && head.connection.upgrade && !head.connection.close);
    assert_eq!(head.content_length, Some(5));
    assert_eq!(head.value(FieldId::ContentLength, buf), Some(&b"5"[..]));
    assert_eq!(head.fields[2].value.of(buf), b"a b");
}

/// The text of a refusal, with its status.
fn refused(buf: &str) -> String {
    match check(buf.as_bytes(), &Limits::default()) {
        (Step::Bad(error), _) => format!("{} {}", error.status(), error.message(buf.as_bytes())),
        (step, _) => panic!("{step:?} for {buf:?}"),
    }
}

/// A head that must be accepted.
fn accepted(buf: &str) -> Head {
    match check(buf.as_bytes(), &Limits::default()) {
        (Step::Done { len }, head) if len == buf.len() => head,
        (step, _) => panic!("{step:?} for {buf:?}"),
    }
}

#[test]
fn request_lines() {
    for (line, method, target, version) in [
        ("GET / HTTP/1.1\r\n", "GET", "/", 1001),
        ("GET / HTTP/1.1\n", "GET", "/", 1001),
        ("\n\r\r\nGET / HTTP/1.0\r\n", "GET", "/", 1000),
        ("GET   /a   HTTP/1.0   \r\n", "GET", "/a", 1000),
        ("GET /a HTTP/1.2\r\n", "GET", "/a", 1002),
        ("GET /a HTTP/1.01\r\n", "GET", "/a", 1001),
        ("GET /a HTTP/1.999\r\n", "GET", "/a", 1999),
        ("POST /a?b=c%20d HTTP/1.1\r\n", "POST", "/a?b=c%20d", 1001),
        ("PROPPATCH /a HTTP/1.1\r\n", "PROPPATCH", "/a", 1001),
        ("X-FOO_BAR /a HTTP/1.1\r\n", "X-FOO_BAR", "/a", 1001),
        ("_ /a HTTP/1.1\r\n", "_", "/a", 1001),
        ("GET /\u{e9}<>\"{}|\\^` HTTP/1.1\r\n", "GET", "/\u{e9}<>\"{}|\\^`", 1001),
        ("GET http://h HTTP/1.1\r\n", "GET", "/", 1001),
        ("GET http://h/a?b HTTP/1.1\r\n", "GET", "/a?b", 1001),
        ("GET http://h?b HTTP/1.1\r\n", "GET", "?b", 1001),
        ("GET http://h:80 HTTP/1.1\r\n", "GET", "/", 1001),
        ("GET http://h:/a HTTP/1.1\r\n", "GET", "/a", 1001),
        ("GET a+b-c.d1://[::1]:80/a HTTP/1.1\r\n", "GET", "/a", 1001),
        ("CONNECT h:443 HTTP/1.1\r\n", "CONNECT", "/", 1001),
    ] {
        let buf = format!("{line}Host: x\r\n\r\n");
        let head = accepted(&buf);
        let text = |span: Span| String::from_utf8_lossy(span.of(buf.as_bytes())).into_owned();
        assert_eq!(text(head.method_name), method, "{line:?}");
        assert_eq!(head.method, Method::lookup(method.as_bytes()), "{line:?}");
        assert_eq!(text(head.target), target, "{line:?}");
        assert_eq!(head.version.0, version, "{line:?}");
        assert_eq!(text(head.line), line.trim_matches(['\r', '\n']), "{line:?}");
    }
}

#[test]
fn http_09() {
    for line in ["GET /a\r\n", "GET /a\n", "\r\nGET /a \r\n", "GET http://h/a\r\n"] {
        let (step, head) = check(format!("{line}rest").as_bytes(), &Limits::default());
        assert_eq!(step, Step::Done { len: line.len() }, "{line:?}");
        assert_eq!(head.target.of(line.as_bytes()), b"/a");
        assert_eq!(head.version, Version::HTTP_09);
        assert!(head.protocol.is_empty());
    }
    for line in ["POST /a\r\n", "CONNECT h:80 \r\n", "X /\n"] {
        assert_eq!(refused(line), "400 client sent invalid method in HTTP/0.9 request", "{line:?}");
    }
}

#[test]
fn refused_methods() {
    for line in [
        "get / HTTP/1.1\r\n",
        "Get / HTTP/1.1\r\n",
        "G\tET / HTTP/1.1\r\n",
        " GET / HTTP/1.1\r\n",
        "\x16\x03\x01\x02",
        "GET\r\n",
        "GET/ HTTP/1.1\r\n",
        "\0",
        "G1 / HTTP/1.1\r\n",
        "{",
    ] {
        assert_eq!(refused(line), "400 client sent invalid method", "{line:?}");
    }
}

#[test]
fn refused_targets_and_protocols() {
    for line in [
        "GET / /b HTTP/1.1\r\n",
        "GET / HTTP/1.1 x\r\n",
        "GET / HTTP/1.1\rx",
        "GET / HTTP/1.1\r\r",
        "GET / HTTP/0.9\r\n",
        "GET / HTTP/01.1\r\n",
        "GET / HTTP/1.\r\n",
        "GET / HTTP/.1\r\n",
        "GET / HTTP/1.1a\r\n",
        "GET / HTTP/1.9999\r\n",
        "GET / HTTP 1.1\r\n",
        "GET / http/1.1\r\n",
        "GET / HTT/1.1\r\n",
        "GET / HTTP/1\r\n",
        "GET / HTTP/ 1.1\r\n",
        "GET /\tHTTP/1.1\r\n",
        "GET /\0 HTTP/1.1\r\n",
        "GET /\x01 HTTP/1.1\r\n",
        "GET /\x7f HTTP/1.1\r\n",
        "GET /a?\x0b HTTP/1.1\r\n",
        "GET /%\x0c HTTP/1.1\r\n",
        "GET /\r/ HTTP/1.1\r\n",
        "GET * HTTP/1.1\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "OPTIONS *a HTTP/1.1\r\n",
        "OPTIONS */ HTTP/1.1\r\n",
        "GET ?a HTTP/1.1\r\n",
        "GET \\ HTTP/1.1\r\n",
        "GET http HTTP/1.1\r\n",
        "GET http: HTTP/1.1\r\n",
        "GET http:/ HTTP/1.1\r\n",
        "GET 1http://h/ HTTP/1.1\r\n",
        "GET ht_tp://h/ HTTP/1.1\r\n",
        "GET http://a_b/ HTTP/1.1\r\n",
        "GET http://u@h/ HTTP/1.1\r\n",
        "GET http://h:8a/ HTTP/1.1\r\n",
        "GET http://[::1/ HTTP/1.1\r\n",
        "GET http://[::1]a/ HTTP/1.1\r\n",
        "GET http://[a%b]/ HTTP/1.1\r\n",
        "GET http://h\r\n",
        "GET http://h#f HTTP/1.1\r\n",
        "CONNECT / HTTP/1.1\r\n",
        "CONNECT h HTTP/1.1\r\n",
        "CONNECT h: HTTP/1.1\r\n",
        "CONNECT h:80/ HTTP/1.1\r\n",
        "CONNECT h:80\r\n",
        "CONNECT http://h:80 HTTP/1.1\r\n",
        "GET /%zz HTTP/1.1\r\n",
        "GET /a%00\r\n",
        "GET /../ HTTP/1.1\r\n",
        "GET http://./a/../../b HTTP/1.1\r\n",
    ] {
        assert_eq!(refused(line), "400 client sent invalid request", "{line:?}");
    }
}

#[test]
fn refused_versions_and_hosts() {
    for line in ["GET / HTTP/2.0\r\n", "GET / HTTP/9.1\r\n", "GET / HTTP/10.1\r\n", "A / HTTP/2"] {
        assert_eq!(refused(line), "505 client sent invalid version", "{line:?}");
    }
    for line in [
        "GET http:/// HTTP/1.1\r\n",
        "GET http://?a HTTP/1.1\r\n",
        "GET http://. HTTP/1.1\r\n",
        "GET http://a..b/ HTTP/1.1\r\n",
        "GET http://h:65536/ HTTP/1.1\r\n",
        "CONNECT h:65536 HTTP/1.1\r\n",
    ] {
        let want = "400 client sent invalid host in request line";
        assert_eq!(refused(line), want, "{line:?}");
    }
}

#[test]
fn what_is_logged_of_a_refused_line() {
    for (buf, line) in [
        ("\r\nGET / HTTP/2.0\r\nHost: x\r\n", "GET / HTTP/2.0"),
        ("\r\n\x16\x03\x01\x02", "\x16\x03\x01\x02"),
        ("POST /a\r\nb", "POST /a"),
    ] {
        let (step, head) = whole(buf.as_bytes(), &Limits::default());
        let Step::Bad(error) = step else { panic!("{step:?}") };
        assert_eq!(error.stage.action(), "reading client request line");
        assert_eq!(head.line.of(buf.as_bytes()), line.as_bytes(), "{buf:?}");
    }
}

#[test]
fn plain_and_complex_paths() {
    for (target, plain, path, args) in [
        ("/a/b?c/../d", true, "/a/b", "c/../d"),
        ("/a?", true, "/a", ""),
        ("/a?b?c", true, "/a", "b?c"),
        ("/a?%00", true, "/a", "%00"),
        ("/a+b/c.d/", true, "/a+b/c.d/", ""),
        ("/a%20b?c", false, "/a%20b?c", ""),
        ("/a/../b?c", false, "/a/../b?c", ""),
        ("/.a", false, "/.a", ""),
        ("//a", false, "//a", ""),
        ("/a#b", false, "/a#b", ""),
        ("/a?b#c", false, "/a?b#c", ""),
    ] {
        let buf = format!("GET {target} HTTP/1.0\r\n\r\n");
        let head = accepted(&buf);
        let text = |span: Span| String::from_utf8_lossy(span.of(buf.as_bytes())).into_owned();
        assert_eq!(head.plain_path, plain, "{target}");
        assert_eq!((text(head.path), text(head.args)), (path.to_owned(), args.to_owned()));
        assert_eq!(head.quoted, target.starts_with("/a%20"));
        assert_eq!(head.plus_in_path, target.contains('+'));
    }
}

#[test]
fn field_lines() {
    for (line, name, value) in [
        ("A: b\r\n", "A", "b"),
        ("A:b\n", "A", "b"),
        ("A:   b  c   \r\n", "A", "b  c"),
        ("A:\r\n", "A", ""),
        ("A:    \n", "A", ""),
        ("A: :\r\n", "A", ":"),
        ("A:\tb \tc\t \r\n", "A", "b \tc"),
        ("A: \t\r\n", "A", ""),
        ("A: \x01\x7f\u{e9}\r\n", "A", "\x01\x7f\u{e9}"),
        ("a_b: c\r\n", "a_b", "c"),
        ("a.b(\u{e9}): c\r\n", "a.b(\u{e9})", "c"),
    ] {
        let buf = format!("GET / HTTP/1.0\r\n{line}B: c\r\n\r\n");
        let head = accepted(&buf);
        let text = |span: Span| String::from_utf8_lossy(span.of(buf.as_bytes())).into_owned();
        let field = head.fields[0];
        assert_eq!((text(field.name).as_str(), text(field.value).as_str()), (name, value));
        assert_eq!(field.invalid, name.contains('.'), "{line:?}");
        assert_eq!(field.dropped, name.len() > 1, "{line:?}");
        assert_eq!(head.any_dropped, name.len() > 1, "{line:?}");
        assert_eq!(head.fields.len(), 2);
    }
    let dropped = |ignore_invalid, underscores| -> Vec<bool> {
        let limits = Limits { ignore_invalid, underscores, ..Limits::default() };
        let buf = b"GET / HTTP/1.0\r\na.b: c\r\na_b: c\r\nab: c\r\n\r\n";
        whole(buf, &limits).1.fields.iter().map(|field| field.dropped).collect()
    };
    assert_eq!(dropped(true, false), [true, true, false]);
    assert_eq!(dropped(true, true), [true, false, false]);
    assert_eq!(dropped(false, false), [false, false, false]);
    let buf = b"GET / HTTP/1.0\r\na.b:  c\x01d  \r\n\r\n";
    let (_, head) = whole(buf, &Limits::default());
    let want = "client sent invalid header line: \"a.b:  c\\x01d\"";
    assert_eq!(dropped_message(&head.fields[0], buf), want);
}

#[test]
fn bodies_are_announced() {
    let head = accepted("POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: CHUNKED\r\n\r\n");
    assert!(head.chunked && head.has_body());
    let head = accepted("POST / HTTP/1.0\r\nContent-Length: 9223372036854775807\r\n\r\n");
    assert_eq!(head.content_length, Some(i64::MAX as u64));
    let head = accepted("POST / HTTP/1.0\r\nContent-Length: 00\r\n\r\n");
    assert!(head.content_length == Some(0) && !head.has_body());
    for (request, want) in [
        ("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n\r\n", true),
        ("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue, x\r\n\r\n", false),
        ("POST / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n", false),
    ] {
        assert_eq!(accepted(request).expect_continue, want, "{request:?}");
    }
}

#[test]
fn connection_tokens() {
    for (request, keep) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        ("GET / HTTP/1.0\r\n\r\n", false),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: x , close,keep-alive\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nConnection: te\r\n\r\n", false),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n", true),
    ] {
        assert_eq!(accepted(request).wants_keep_alive(), keep, "{request:?}");
    }
}

#[test]
fn the_host_of_the_line_comes_first() {
    let buf = "GET http://One:81/ HTTP/1.1\r\nHost: two:82\r\n\r\n";
    let head = accepted(buf);
    let host = head.host.expect("a host");
    assert_eq!((host.name.of(buf.as_bytes()), host.port), (&b"One"[..], 81));
    assert_eq!(head.authority.of(buf.as_bytes()), b"One:81");
    assert_eq!(head.scheme.of(buf.as_bytes()), b"http");
    assert_eq!(head.form, TargetForm::Absolute);
    let buf = "GET http://one/ HTTP/1.1\r\nHost: b/ad\r\n\r\n";
    assert_eq!(refused(buf), "400 client sent invalid host header");
}

#[test]
fn a_parser_is_used_again() {
    let buf = b"GET /1 HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n\r\nGET /2\r\nGET x";
    let (mut parser, mut head, limits) = (HeadParser::new(), Head::new(), Limits::default());
    assert!(parser.is_fresh());
    let Step::Done { len } = parser.parse(buf, &limits, &mut head) else { panic!("first") };
    let (rest, capacity) = (&buf[len..], head.fields.capacity());
    assert!(parser.is_fresh() && capacity >= 2);
    assert_eq!(parser.parse(&rest[..2], &limits, &mut head), Step::More);
    assert!(parser.is_fresh() && !parser.in_fields());
    assert_eq!(parser.parse(&rest[..4], &limits, &mut head), Step::More);
    assert!(!parser.is_fresh());
    let Step::Done { len } = parser.parse(rest, &limits, &mut head) else { panic!("second") };
    assert_eq!(head.target.of(rest), b"/2");
    assert!(head.fields.is_empty() && head.fields.capacity() == capacity && head.host.is_none());
    let rest = &rest[len..];
    assert!(matches!(parser.parse(rest, &limits, &mut head), Step::More));
    assert!(matches!(parser.parse(b"GET x y", &limits, &mut head), Step::Bad(_)));
    assert!(parser.is_fresh());
}

/// Random edits of sound requests: nothing panics, and no split changes a result.
#[test]
fn edited_requests() {
    const SEEDS: [&str; 4] = [
        "GET /a/b?c=d HTTP/1.1\r\nHost: a.b:80\r\nConnection: keep-alive\r\n\r\n",
        "POST http://[::1]:80/%41/../b#c HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        "OPTIONS /a HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\nExpect: 100-continue\n\n",
        "\r\nCONNECT a.b:443 HTTP/1.0\r\nA_b: c \r\nC.d:\r\n\r\n",
    ];
    const BYTES: &[u8] = b"\0\t\n\r !#%+,-./09:;?@AHZ[]_az{\x7f\x80\xff";
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % limit as u64) as usize
    };
    for round in 0..3000 {
        let mut buf = SEEDS[round % SEEDS.len()].as_bytes().to_vec();
        for _ in 0..=below(3) {
            let at = below(buf.len());
            match below(3) {
                0 => buf[at] = BYTES[below(BYTES.len())],
                1 => buf.insert(at, BYTES[below(BYTES.len())]),
                _ => drop(buf.remove(at)),
            }
        }
        check(&buf, if below(4) == 0 { &limits::SMALL } else { &DEFAULT });
    }
}

const DEFAULT: Limits = Limits::DEFAULT;
