//! Heads of requests.

use http_wire::h1::{Field, FieldId, Head, HeadParser, Limits, Span, Step};

/// The first bytes choose limits and the size of the pieces. Pieces give the same result as the
/// whole, and an accepted head is consistent.
pub fn run(data: &[u8]) {
    let Some((&[kind, cut], buf)) = data.split_first_chunk::<2>() else { return };
    let limits = if kind & 1 == 0 {
        Limits::default()
    } else {
        Limits { header_buffer: 16, large_size: 40, large_number: 3, ..Limits::default() }
    };
    let mut head = Head::new();
    let step = HeadParser::new().parse(buf, &limits, &mut head);
    let want = outcome(step, &head, buf);
    for piece in [1, usize::from(cut) + 1] {
        let (mut parser, mut pieced, mut len) = (HeadParser::new(), Head::new(), 0);
        let step = loop {
            len = buf.len().min(len + piece);
            let step = parser.parse(&buf[..len], &limits, &mut pieced);
            if step != Step::More || len == buf.len() {
                break step;
            }
        };
        assert_eq!(outcome(step, &pieced, buf), want, "in pieces of {piece}");
    }
    if let Step::Done { len } = step {
        assert!(len <= buf.len() && len as u64 <= limits.max_total() + buf.len() as u64);
        accepted(&head, &buf[..len]);
    }
}

fn outcome(step: Step, head: &Head, buf: &[u8]) -> String {
    match step {
        Step::Done { len } => format!("done {len} {head:?}"),
        Step::More => "more".to_owned(),
        Step::Bad(e) => {
            assert!(e.read as usize <= buf.len());
            format!("bad {} {:?} {} {}", e.status(), e.stage, e.read, e.message(buf))
        }
    }
}

fn accepted(head: &Head, buf: &[u8]) {
    let inside = |span: Span| span.start <= span.end && span.end as usize <= buf.len();
    for span in [head.line, head.method_name, head.target, head.path, head.args, head.protocol] {
        assert!(inside(span));
    }
    assert!(!head.target.is_empty() && !head.method_name.is_empty());
    assert!(!head.target.of(buf).iter().any(|byte| *byte <= b' ' || *byte == 0x7f));
    assert!(!(head.chunked && head.content_length.is_some()), "framing is of one kind");
    for field in &head.fields {
        assert!(inside(field.name) && inside(field.value));
        let (name, value) = (field.name.of(buf), field.value.of(buf));
        assert!(!name.is_empty() && !name.iter().any(|byte| *byte <= b' ' || *byte == b':'));
        assert!(!value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')));
        let id = if field.invalid { FieldId::Other } else { lookup(name) };
        assert_eq!(field.id, id);
        let first = head.fields.get(id).map(|first: &Field| first.name);
        assert_eq!(first.is_some(), id != FieldId::Other);
    }
    path(head, buf);
}

fn lookup(name: &[u8]) -> FieldId {
    let id = FieldId::lookup(name);
    assert!(id == FieldId::Other || id.name().as_bytes().eq_ignore_ascii_case(name));
    id
}

/// A plain path is the result of normalising the target.
fn path(head: &Head, buf: &[u8]) {
    if !head.plain_path {
        return;
    }
    let (target, mut out) = (head.target.of(buf), Vec::new());
    let parts = http_wire::uri::normalize(target, true, &mut out).expect("a plain path is sound");
    assert_eq!(out, head.path.of(buf));
    assert_eq!(&target[parts.args], head.args.of(buf));
    assert!(!parts.quoted && parts.plus == head.plus_in_path);
}
