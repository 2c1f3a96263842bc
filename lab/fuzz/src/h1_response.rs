//! Heads of responses.

use http_wire::h1::{ResponseHead, ResponseParser, ResponseStep};

/// Pieces, whose size the first byte chooses, give the same result as the whole.
pub fn run(data: &[u8]) {
    let Some((&cut, buf)) = data.split_first() else { return };
    let mut head = ResponseHead::new();
    let step = ResponseParser::new().parse(buf, &mut head);
    let want = outcome(step, &head, buf);
    for piece in [1, usize::from(cut) + 1] {
        let (mut parser, mut pieced, mut len) = (ResponseParser::new(), ResponseHead::new(), 0);
        let step = loop {
            len = buf.len().min(len + piece);
            let step = parser.parse(&buf[..len], &mut pieced);
            if step != ResponseStep::More || len == buf.len() {
                break step;
            }
        };
        assert_eq!(outcome(step, &pieced, buf), want, "in pieces of {piece}");
    }
    if let ResponseStep::Done { len } = step {
        assert!(len <= buf.len() && head.status <= 999);
        assert!(!(head.chunked && head.content_length.is_some()), "framing is of one kind");
        for field in &head.fields {
            assert!(!field.name.is_empty());
            let value = field.value.of(buf);
            assert!(!value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')));
        }
    }
}

fn outcome(step: ResponseStep, head: &ResponseHead, buf: &[u8]) -> String {
    match step {
        ResponseStep::Done { len } => format!("done {len} {head:?}"),
        ResponseStep::More => "more".to_owned(),
        ResponseStep::Bad(error) => error.message(buf),
    }
}
