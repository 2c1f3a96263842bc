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
