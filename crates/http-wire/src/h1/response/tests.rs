use super::*;

fn outcome(step: ResponseStep, head: &ResponseHead, buf: &[u8]) -> String {
    match step {
        ResponseStep::Done { len } => format!("done {len} {head:?}"),
        ResponseStep::More => "more".to_owned(),
        ResponseStep::Bad(error) => error.message(buf),
    }
}

/// Parses in one piece, in two at every boundary, and byte by byte; all must agree.
fn check(buf: &[u8]) -> (ResponseStep, ResponseHead) {
    let mut head = ResponseHead::new();
    let step = ResponseParser::new().parse(buf, &mut head);
    let want = outcome(step, &head, buf);
    for cut in 0..buf.len() {
        let (mut parser, mut head) = (ResponseParser::new(), ResponseHead::new());
        let mut step = parser.parse(&buf[..cut], &mut head);
        if step == ResponseStep::More {
            step = parser.parse(buf, &mut head);
        }
        assert_eq!(outcome(step, &head, buf), want, "cut at {cut}");
    }
    let (mut parser, mut dribbled) = (ResponseParser::new(), ResponseHead::new());
    let mut steps = (0..=buf.len()).map(|len| parser.parse(&buf[..len], &mut dribbled));
    let last = steps.find(|step| *step != ResponseStep::More);
    let last = last.unwrap_or(ResponseStep::More);
    assert_eq!(outcome(last, &dribbled, buf), want, "byte by byte");
    (step, head)
}

fn refused(buf: &str) -> String {
    match check(buf.as_bytes()) {
        (ResponseStep::Bad(error), _) => error.message(buf.as_bytes()),
        (step, _) => panic!("{step:?} for {buf:?}"),
    }
}

#[test]
fn a_response() {
    let buf = b"HTTP/1.1 404 Not Found\r\nServer: a\r\nserver: b\r\nContent-Length: 5\r\n\
        Set-Cookie: a=b\r\nSet-Cookie: c=d\r\nX.y: z\r\nConnection: close\r\n\r\nhello";
    let (step, head) = check(buf);
    assert_eq!(step, ResponseStep::Done { len: buf.len() - 5 });
    assert_eq!((head.version, head.status), (Version::HTTP_11, 404));
    assert_eq!(head.status_line.of(buf), b"404 Not Found");
    assert_eq!(head.content_length, Some(5));
    assert!(head.connection.close && !head.keeps_connection());
    assert_eq!(head.fields.all(FieldId::SetCookie).count(), 2);
    let ignored: Vec<bool> = head.fields.iter().map(|field| field.ignored).collect();
    assert_eq!(ignored, [false, true, false, false, false, false, false]);
    assert_eq!(
        ignored_message(&head.fields[1], &head.fields[0], buf),
        "upstream sent duplicate header line: \"server: b\", previous value: \"Server: a\", \
         ignored"
    );
    assert!(head.fields[5].invalid);
}

#[test]
fn status_lines() {
    for (line, version, status, text) in [
        ("HTTP/1.0 200 OK\r\n", 1000, 200, "200 OK"),
        ("HTTP/1.1 200\r\n", 1001, 200, "200"),
        ("HTTP/1.1 200\n", 1001, 200, "200"),
        ("HTTP/1.1   204 \r\n", 1001, 204, "204 "),
        ("HTTP/1.1 403.1 Nope\r\n", 1001, 403, "403.1 Nope"),
        ("HTTP/2.0 200 OK\r\n", 2000, 200, "200 OK"),
        ("HTTP/1.10 200 OK\r\n", 1010, 200, "200 OK"),
        ("HTTP/999.999 200 OK\r\n", u16::MAX, 200, "200 OK"),
    ] {
        let buf = format!("{line}\r\n");
        let (step, head) = check(buf.as_bytes());
        assert_eq!(step, ResponseStep::Done { len: buf.len() }, "{line:?}");
        assert_eq!((head.version.0, head.status), (version, status), "{line:?}");
        assert_eq!(head.status_line.of(buf.as_bytes()), text.as_bytes(), "{line:?}");
    }
    for line in [
        "<html>",
        "\r\nHTTP/1.1 200 OK\r\n",
        "http/1.1 200 OK\r\n",
        "HTTP/0.9 200 OK\r\n",
        "HTTP/.1 200\r\n",
        "HTTP/1. 200\r\n",
        "HTTP/1 200\r\n",
        "HTTP/1.1 20\r\n",
        "HTTP/1.1 2 00\r\n",
        "HTTP/1.1 2000\r\n",
        "HTTP/1.1 abc\r\n",
        "HTTP/1.1 200 a\rb\r\n",
        "HTTP/1.1 200 a\0\r\n",
        "HTTP/1.1200 OK\r\n",
        "HTTP/1.1\r\n",
        "HTTP/1000.1 200\r\n",
    ] {
        assert_eq!(refused(line), "upstream sent no valid HTTP/1.0 header", "{line:?}");
    }
}

#[test]
fn statuses_have_three_digits_from_100_on() {
    for code in ["000", "099", "012"] {
        for end in ["\r\n", " OK\r\n", " OK\n"] {
            let want = format!("upstream sent invalid status \"{code}{}\"", end.trim_end());
            assert_eq!(refused(&format!("HTTP/1.1 {code}{end}")), want);
        }
    }
    assert_eq!(check(b"HTTP/1.1 100 \r\n\r\n").1.status, 100);
    assert_eq!(check(b"HTTP/1.1 999\r\n\r\n").1.status, 999);
}

#[test]
fn framing_is_strict() {
    for (fields, want) in [
        (
            "Content-Length: 1\r\nContent-length: 1\r\n",
            "upstream sent duplicate header line: \"Content-length: 1\", \
             previous value: \"Content-Length: 1\"",
        ),
        (
            "Content-Length: -1\r\n",
            "upstream sent invalid \"Content-Length\" header: \"Content-Length: -1\"",
        ),
        (
            "Transfer-Encoding: gzip, chunked\r\n",
            "upstream sent unknown \"Transfer-Encoding\": \"gzip, chunked\"",
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
            "upstream sent \"Content-Length\" and \"Transfer-Encoding\" headers \
             at the same time",
        ),
        ("a: b\r\nc d: e\r\n", "upstream sent invalid header: \"c\\x20...\""),
        ("a: b\0\r\n", "upstream sent invalid header: \"a: b\\x00...\""),
        ("a: b\r\nc\r\n", "upstream sent invalid header: \"c\\x0d...\""),
        ("c\n", "upstream sent invalid header: \"c\\x0a...\""),
        (" a: b\r\n", "upstream sent invalid header: \"\\x20...\""),
        ("a: b\rc\r\n", "upstream sent invalid header: \"a: b\\x0d...\""),
    ] {
        assert_eq!(refused(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")), want, "{fields:?}");
    }
    let early = "HTTP/1.0 103 Early Hints\r\n\r\n";
    assert_eq!(refused(early), "upstream sent HTTP/1.0 response with early hints");
    let hints = b"HTTP/1.1 103 Early Hints\r\nContent-Length: x\r\nContent-Length: y\r\n\r\n";
    let (step, head) = check(hints);
    assert_eq!(step, ResponseStep::Done { len: hints.len() });
    assert_eq!((head.content_length, head.fields.len()), (None, 2));
    let (_, head) = check(b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n");
    assert!(head.chunked && head.keeps_connection());
}

fn gateway(parser: fn() -> ResponseParser, buf: &str) -> Result<(u16, String, usize), String> {
    let bytes = buf.as_bytes();
    let mut head = ResponseHead::new();
    let step = parser().parse(bytes, &mut head);
    let want = outcome(step, &head, bytes);
    let (mut pieced, mut pieced_head) = (parser(), ResponseHead::new());
    let mut steps = (0..=buf.len()).map(|n| pieced.parse(&bytes[..n], &mut pieced_head));
    let last = steps.find(|s| *s != ResponseStep::More).unwrap_or(ResponseStep::More);
    assert_eq!(outcome(last, &pieced_head, bytes), want, "byte by byte");
    match step {
        ResponseStep::Done { len } => {
            let line = String::from_utf8_lossy(head.status_line.of(bytes)).into_owned();
            Ok((head.status, line, len))
        }
        ResponseStep::More => Err("more".to_owned()),
        ResponseStep::Bad(error) => Err(error.message(bytes)),
    }
}

#[test]
fn heads_of_gateways() {
    let strict = |buf| gateway(ResponseParser::of_gateway, buf);
    let found = |status, line: &str, len| Ok((status, line.to_owned(), len));
    assert_eq!(strict("Status: 404 Not Found\r\n\r\nx"), found(404, "404 Not Found", 25));
    assert_eq!(strict("Status: 500\n\n"), found(500, "", 13));
    assert_eq!(strict("Location: /x\r\n\r\n"), found(302, "", 16));
    assert_eq!(strict("A: b\r\n\r\n"), found(200, "", 8));
    assert_eq!(strict("\r\n"), found(200, "", 2));
    let invalid = |value: &str| Err(format!("upstream sent invalid status \"{value}\""));
    assert_eq!(strict("Status: OK\r\n\r\n"), invalid("OK"));
    assert_eq!(strict("Status: 20\r\n\r\n"), invalid("20"));
    assert_eq!(strict("Status: 099 y\r\n\r\n"), invalid("099 y"));
    assert_eq!(strict("Status: 2x0 y\r\n\r\n"), invalid("2x0 y"));
    // A status line is passed over where none is due.
    assert_eq!(strict("HTTP/1.1 404 No\r\nStatus: 201 C\r\n\r\n"), found(201, "201 C", 34));
    let lenient = |buf| gateway(ResponseParser::of_lenient_gateway, buf);
    assert_eq!(lenient("HTTP/1.1 404 No\r\nStatus: 201 C\r\n\r\n"), found(404, "404 No", 34));
    assert_eq!(lenient("HTTP/1.1\r\nStatus: 201 C\r\n\r\n"), found(201, "201 C", 27));
    assert_eq!(lenient("Host: x\r\n\r\n"), found(200, "", 11));
    assert_eq!(lenient("\r\n"), found(200, "", 2));
    assert_eq!(lenient("H"), Err("more".to_owned()));
}

#[test]
fn repeated_status_lines_are_passed_over() {
    let mut buf = b"HTTP/1.1 200 OK\r\n".to_vec();
    for _ in 0..50_000 {
        buf.extend_from_slice(b"HTTP/1.1 200 OK\r\nHTTP/x:y\n");
    }
    buf.extend_from_slice(b"A: b\r\nHTTP: c\r\n\r\n");
    let mut head = ResponseHead::new();
    let step = ResponseParser::new().parse(&buf, &mut head);
    assert_eq!(step, ResponseStep::Done { len: buf.len() });
    assert_eq!(head.fields.len(), 2);
    check(b"HTTP/1.1 200 OK\r\nHTTP/1.1 200 OK\r\nHTTP/x: y\r\nA: b\r\n\r\n");
}
