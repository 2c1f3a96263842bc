//! The limits of heads, in nginx's buffers.

use super::*;

pub(super) const SMALL: Limits = Limits {
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
    // A line does not span buffers: the rest of a buffer is lost.
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
    // 60 bytes of the first buffer are used: the line takes a large one.
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
