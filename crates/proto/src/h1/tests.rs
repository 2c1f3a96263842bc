//! Requests as tables: what is parsed, what is refused and how, and that no split changes either.

use super::*;

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
    assert_eq!(head.fields[2].value.of(buf), b"a b \t");
}

/// The text of a refusal, with its status.
fn refused(buf: &str) -> String {
    match check(buf.as_bytes(), &Limits::default()) {
        (Step::Bad(error), _) => format!("{} {}", error.status(), error.message(buf.as_bytes())),
        (step, _) => panic!("{step:?} for {buf:?}"),
    }
}

/// A head that has to be accepted.
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
        ("A\r\n", "A", ""),
        ("A\n", "A", ""),
        ("A:\tb\t\r\n", "A", "\tb\t"),
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

/// Refused with 400 when behind a Host field in a POST.
fn assert_refused(fields: &str, want: &str) {
    let buf = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    assert_eq!(refused(&buf), format!("400 {want}"), "{fields:?}");
}

// What the tests with "smuggling" in their names refuse has been used to make two servers disagree
// about where a request ends.

#[test]
fn smuggling_by_framing_that_contradicts_itself() {
    for (fields, want) in [
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "client sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time",
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
            "client sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time",
        ),
        (
            "Content-Length: 5\r\nContent-Length: 5\r\n",
            "client sent duplicate header line: \"Content-Length: 5\", \
             previous value: \"Content-Length: 5\"",
        ),
        (
            "content-length: 5\r\nCONTENT-LENGTH: 6\r\n",
            "client sent duplicate header line: \"CONTENT-LENGTH: 6\", \
             previous value: \"content-length: 5\"",
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            "client sent duplicate header line: \"Transfer-Encoding: identity\", \
             previous value: \"Transfer-Encoding: chunked\"",
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "client sent duplicate header line: \"Transfer-Encoding: chunked\", \
             previous value: \"Transfer-Encoding: chunked\"",
        ),
        (
            "Host: b\r\n",
            "client sent duplicate host header: \"Host: b\", \
             previous value: \"Host: a\"",
        ),
    ] {
        assert_refused(fields, want);
    }
}

#[test]
fn smuggling_by_lengths_that_are_no_numbers() {
    for field in [
        "Content-Length: \r\n",
        "Content-Length\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5.0\r\n",
        "Content-Length: \t5\r\n",
        "Content-Length: 5\t\r\n",
        "Content-Length: 9223372036854775808\r\n",
        "Content-Length: 18446744073709551621\r\n",
        "Content-Length: \u{ff15}\r\n",
    ] {
        assert_refused(field, "client sent invalid \"Content-Length\" header");
    }
}

/// Spaces, folds and control characters that one parser skips and another does not.
#[test]
fn smuggling_by_odd_characters() {
    for (fields, shown) in [
        ("Content-Length : 5\r\n", "Content-Length\\x20..."),
        ("Content-Length\t: 5\r\n", "Content-Length\\x09..."),
        (" Content-Length: 5\r\n", "\\x20..."),
        ("\tContent-Length: 5\r\n", "\\x09..."),
        ("X: a\r\n Content-Length: 5\r\n", "\\x20..."),
        ("X: a\r\n\tb\r\n", "\\x09..."),
        ("Content Length: 5\r\n", "Content\\x20..."),
        ("Content-Length\0: 5\r\n", "Content-Length\\x00..."),
        ("Content-Length\x0b: 5\r\n", "Content-Length\\x0b..."),
        ("\0Content-Length: 5\r\n", "\\x00..."),
        ("\x7fA: 5\r\n", "\\x7f..."),
        (": 5\r\n", "\\x3a..."),
        ("X: a\0b\r\n", "X: a\\x00..."),
        ("X: \0\r\n", "X: \\x00..."),
        ("X: a \0\r\n", "X: a \\x00..."),
        ("X: a\rContent-Length: 5\r\n", "X: a\\x0d..."),
        ("X: a\r\rb: c\r\n", "X: a\\x0d..."),
        ("X: a\r\r\nContent-Length: 5\r\n", "X: a\\x0d..."),
        ("X\rContent-Length: 5\r\n", "X\\x0d..."),
        ("\rX: a\r\n", "\\x0d..."),
    ] {
        assert_refused(fields, &format!("client sent invalid header line: \"{shown}\""));
    }
}

#[test]
fn smuggling_by_transfer_codings_and_hosts() {
    for value in [
        "",
        "gzip",
        "identity",
        "chunked, chunked",
        "gzip, chunked",
        "chunked,",
        ",chunked",
        "xchunked",
        "chunked;q=1",
        "\tchunked",
        "chunked\t",
        "\x0bchunked",
        "chun ked",
        "\"chunked\"",
    ] {
        let buf = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {value}\r\n\r\n");
        assert!(refused(&buf).starts_with("501 client sent unknown \"Transfer-Encoding\": \""));
    }
    assert_eq!(
        refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        "400 client sent HTTP/1.0 request with \"Transfer-Encoding\" header"
    );
    for host in ["", ".", "a b", "a/b", "a,b:c", "[::1", "a:99999", "a..b", "\ta", "a@b"] {
        let buf = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(refused(&buf), "400 client sent invalid host header", "{host:?}");
    }
    let no_host = "400 client sent HTTP/1.1 request without \"Host\" header";
    assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), no_host);
    assert_eq!(refused("GET http://a/ HTTP/1.1\r\n\r\n"), no_host);
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

const SMALL: Limits = Limits {
    header_buffer: 64,
    large_size: 100,
    large_number: 2,
    max_headers: 1000,
    ignore_invalid: true,
    underscores: false,
};

/// A request with a request line and field lines of these lengths, line ends included.
fn of_lengths(line: usize, fields: &[usize]) -> String {
    let mut buf = format!("GET /{} HTTP/1.0\r\n", "a".repeat(line - "GET / HTTP/1.0\r\n".len()));
    for len in fields {
        buf.push_str(&format!("A: {}\r\n", "b".repeat(len - "A: \r\n".len())));
    }
    buf + "\r\n"
}

#[test]
fn lines_are_packed_into_buffers() {
    let result = |line, fields: &[usize]| {
        let buf = of_lengths(line, fields);
        match check(buf.as_bytes(), &SMALL).0 {
            Step::Done { .. } => "done".to_owned(),
            Step::More => "more".to_owned(),
            Step::Bad(error) => format!("{} {:?}", error.status(), error.kind),
        }
    };
    assert_eq!(result(64, &[]), "done");
    assert_eq!(result(100, &[]), "done");
    assert_eq!(result(101, &[]), "414 UriTooLong");
    assert_eq!(result(5000, &[]), "414 UriTooLong");
    assert_eq!(result(20, &[100]), "done");
    assert_eq!(result(20, &[101]), "494 FieldTooLong");
    // 64 + 100 + 100: one line each, the end of the head has no room.
    assert_eq!(result(64, &[100, 98]), "done");
    assert_eq!(result(64, &[100, 99]), "494 FieldTooLong");
    assert_eq!(result(64, &[100, 100]), "494 FieldTooLong");
    // A line does not span buffers: what is left of one is lost.
    assert_eq!(result(40, &[30, 80, 30]), "494 FieldTooLong");
    assert_eq!(result(40, &[20, 60, 30, 40, 30, 28]), "done");
}

#[test]
fn a_line_without_an_end_is_refused_as_soon_as_it_is_too_long() {
    let line = format!("GET /{}", "a".repeat(94));
    assert_eq!(check(line.as_bytes(), &SMALL).0, Step::More);
    let line = format!("GET /{}", "a".repeat(95));
    assert!(matches!(check(line.as_bytes(), &SMALL).0, Step::Bad(e) if e.status() == 414));
    let field = format!("GET / HTTP/1.0\r\nA: {}", "b".repeat(97));
    let (step, _) = check(field.as_bytes(), &SMALL);
    let Step::Bad(error) = step else { panic!("{step:?}") };
    assert_eq!(error.status(), 494);
    let want = format!("client sent too long header line: \"A: {}...\"", "b".repeat(97));
    assert_eq!(error.message(field.as_bytes()), want);
    let none = Limits { large_number: 0, ..SMALL };
    let (step, _) = check(of_lengths(64, &[]).as_bytes(), &none);
    assert!(matches!(step, Step::Bad(e) if e.kind == H1ErrorKind::TooLarge), "{step:?}");
}

#[test]
fn empty_lines_before_a_request_may_fill_buffers() {
    let buf = format!("{}GET / HTTP/1.0\r\n\r\n", "\r\n".repeat(500));
    let (step, _) = check(buf.as_bytes(), &SMALL);
    assert_eq!(step, Step::Done { len: buf.len() });
    // 60 bytes of the first buffer are gone: the line takes a large one.
    let buf = format!("{}{}", "\n".repeat(60), of_lengths(50, &[50, 98]));
    assert!(matches!(check(buf.as_bytes(), &SMALL).0, Step::Done { .. }));
    let buf = format!("{}{}", "\n".repeat(60), of_lengths(50, &[50, 99]));
    assert!(matches!(check(buf.as_bytes(), &SMALL).0, Step::Bad(_)));
}

#[test]
fn field_lines_are_counted() {
    let limits = Limits { max_headers: 3, ..Limits::default() };
    let run = |fields: &str, limits: &Limits| {
        let buf = format!("GET / HTTP/1.0\r\n{fields}\r\n");
        match check(buf.as_bytes(), limits).0 {
            Step::Bad(error) => format!("{} {}", error.status(), error.message(buf.as_bytes())),
            step => format!("{}", matches!(step, Step::Done { .. })),
        }
    };
    let too_many = "494 client sent too many header lines";
    assert_eq!(run("a: b\r\nc: d\r\ne: f\r\n", &limits), "true");
    assert_eq!(run("a: b\r\nc: d\r\ne: f\r\ng: h\r\n", &limits), too_many);
    assert_eq!(run("a: b\r\nc.d: d\r\ne: f\r\ng_h: i\r\nj: k\r\n", &limits), "true");
    let all = Limits { ignore_invalid: false, ..limits };
    assert_eq!(run("a: b\r\nc.d: d\r\ne: f\r\ng_h: i\r\n", &all), too_many);
    let all = Limits { underscores: true, ..limits };
    assert_eq!(run("a: b\r\nc: d\r\ne: f\r\ng_h: i\r\n", &all), too_many);
}

#[test]
fn the_host_selects_limits() {
    let roomy = Limits { large_number: 9, ..SMALL };
    for (buf, want) in [
        ("GET / HTTP/1.0\r\nHost: roomy\r\n", true),
        ("GET / HTTP/1.0\r\nHost: other\r\n", false),
        ("GET http://roomy/ HTTP/1.0\r\nHost: other\r\n", true),
    ] {
        let buf = format!("{buf}{}\r\n", format!("A: {}\r\n", "b".repeat(90)).repeat(5));
        for piece in [1, 7, buf.len()] {
            let (mut parser, mut head) = (HeadParser::new(), Head::new());
            let (mut asked, mut len) = (0, 0);
            let step = loop {
                len = buf.len().min(len + piece);
                let got = &buf.as_bytes()[..len];
                let step = parser.parse_with(got, &SMALL, &mut head, |host, buf| {
                    asked += 1;
                    if host.name.of(buf) == b"roomy" { Some(roomy) } else { None }
                });
                if step != Step::More {
                    break step;
                }
            };
            assert_eq!(matches!(step, Step::Done { .. }), want, "{buf:?}");
            assert_eq!(asked, 1);
        }
    }
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
        check(&buf, if below(4) == 0 { &SMALL } else { &DEFAULT });
    }
}

const DEFAULT: Limits = Limits {
    header_buffer: 1024,
    large_size: 8192,
    large_number: 4,
    max_headers: 1000,
    ignore_invalid: true,
    underscores: false,
};
