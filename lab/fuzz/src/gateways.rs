//! The streams of FastCGI responders and memcached.

use http_wire::h1::{ResponseHead, ResponseParser, ResponseStep};
use proto::fastcgi::{Event, Reader, Stream};
use proto::memcached::{self, Reply, Value};

/// Pieces, whose size the first byte chooses, give the same result as the whole.
pub fn run(data: &[u8]) {
    let Some((&cut, buf)) = data.split_first() else { return };
    let piece = usize::from(cut) + 1;
    assert_eq!(records(buf, 1), records(buf, buf.len().max(1)), "byte by byte");
    assert_eq!(records(buf, piece), records(buf, buf.len().max(1)), "in pieces of {piece}");
    for parser in [ResponseParser::of_gateway, ResponseParser::of_lenient_gateway] {
        assert_eq!(head(buf, piece, parser), head(buf, buf.len().max(1), parser));
    }
    answer(buf, piece);
}

/// Both streams joined, with marks where something ended, and how it went on.
fn records(buf: &[u8], piece: usize) -> (Vec<u8>, Vec<u8>, String) {
    let (mut reader, mut pos, mut len) = (Reader::default(), 0, 0);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        match reader.next(&buf[..len], &mut pos) {
            Err(e) => return (stdout, stderr, e.to_string()),
            Ok(Event::More) if len == buf.len() => return (stdout, stderr, "more".to_owned()),
            Ok(Event::More) => {
                assert_eq!(pos, len, "all that came was looked at");
                len = buf.len().min(len + piece);
            }
            Ok(Event::Data(stream, range)) => {
                assert!(!range.is_empty() && range.end == pos && pos <= len);
                match stream {
                    Stream::Out => stdout.extend_from_slice(&buf[range]),
                    Stream::Err => stderr.extend_from_slice(&buf[range]),
                }
            }
            Ok(Event::OutEnd) => stdout.push(0),
            Ok(Event::Ending) => stdout.push(1),
            Ok(Event::End) => stdout.push(2),
        }
    }
}

fn head(buf: &[u8], piece: usize, parser: fn() -> ResponseParser) -> String {
    let (mut parser, mut head, mut len) = (parser(), ResponseHead::new(), 0);
    loop {
        len = buf.len().min(len + piece);
        match parser.parse(&buf[..len], &mut head) {
            ResponseStep::More if len < buf.len() => {}
            ResponseStep::More => return "more".to_owned(),
            ResponseStep::Bad(error) => return error.message(buf),
            ResponseStep::Done { len } => {
                assert!(len <= buf.len() && head.status <= 999);
                return format!("done {len} {head:?}");
            }
        }
    }
}

/// The first line has the length of the data; no byte of it is lost or made up.
fn answer(buf: &[u8], piece: usize) {
    let Reply::Value { line, len, .. } = memcached::reply(buf, b"key") else { return };
    let rest = &buf[line..];
    let (mut value, mut data, mut seen) = (Value::new(len), 0, 0);
    for part in rest.chunks(piece) {
        let p = value.next(part);
        assert!(p.data <= part.len() as u64 && (!p.broken || p.over));
        data += p.data;
        seen += part.len() as u64;
        if p.over {
            break;
        }
    }
    assert_eq!(data, len.min(seen));
}
