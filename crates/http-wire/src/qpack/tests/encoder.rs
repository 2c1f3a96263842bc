//! What an encoder writes, and what it refuses.

use super::*;

fn encode(list: &[(&str, &str)]) -> Vec<u8> {
    let (mut out, mut encoder) = (Vec::new(), Encoder::new());
    encoder.begin(&mut out);
    for (name, value) in list {
        encoder.field(name.as_bytes(), value.as_bytes(), &mut out);
    }
    out
}

#[test]
fn a_response_comes_back() {
    let list = [
        ("Server", "weir"),
        ("Date", "Sun, 22 Nov 2026 20:13:28 GMT"),
        ("Content-Type", "text/plain"),
        ("Content-Length", "0"),
        ("Vary", "accept-encoding"),
        ("X-Own-Name", "Own Value"),
        ("x", ""),
        (
            "x-all-of-this-is-a-name-of-more-than-one-hundred-and-twenty-seven-bytes-or-it-would-be-if-\
          it-were-not-for-the-code-of-huffman-which-is-shorter",
            "\u{1}\u{1}\u{1}",
        ),
    ];
    let section = encode(&list);
    let lower = list.map(|(name, value)| (name.to_ascii_lowercase(), value));
    let lower: Vec<_> = lower.iter().map(|(name, value)| (&name[..], *value)).collect();
    assert_eq!(decode(&mut Decoder::new(LIMITS), 0, &section), Ok(fields(&lower)));
    // Entries of the static table are a byte, or two.
    for (field, bytes) in [
        (("content-length", "0"), "c4"),
        (("content-type", "text/plain"), "f5"),
        (("ACCEPT-RANGES", "bytes"), "e0"),
        (("vary", "accept-encoding"), "fb"),
        (("server", "a"), "5f4d 0161"),
        (("date", "a"), "56 0161"),
        (("a", "a"), "21 61 0161"),
    ] {
        assert_eq!(encode(&[field])[2..], hex(bytes), "{field:?}");
    }
}

#[test]
fn every_status_comes_back() {
    for code in 100..1000 {
        let (mut out, mut encoder) = (Vec::new(), Encoder::new());
        encoder.begin(&mut out);
        encoder.status(code, &mut out);
        let expected = fields(&[(":status", &code.to_string())]);
        assert_eq!(decode(&mut Decoder::new(LIMITS), 0, &out), Ok(expected));
        let indexed = [100, 103, 200, 204, 206, 302, 304, 400, 403, 404, 421, 425, 500, 503];
        assert_eq!(out.len() <= 4, indexed.contains(&code), "{code}");
    }
}

#[test]
fn instructions_of_a_decoder_refer_to_nothing() {
    let result = |instructions: &str| {
        let wire = hex(instructions);
        let mut first = None;
        for step in 1..=wire.len() {
            let mut encoder = Encoder::new();
            let mut pieces = wire.chunks(step).map(|piece| encoder.decoder_stream(piece));
            let result = pieces.find(Result::is_err).unwrap_or(Ok(()));
            assert_eq!(*first.get_or_insert(result), result, "{instructions}");
        }
        first.unwrap().map_err(|fault| (fault.ends, fault.code))
    };
    for taken in ["40", "40 7f 00 44", "7f ffff ffff ffff ff3f", "7f", "7f ffff ffff"] {
        assert_eq!(result(taken), Ok(()), "{taken}");
    }
    let refused = Err((Ends::Connection, Code::QpackDecoderStreamError));
    for instructions in ["80", "84", "ff 8001", "00", "01", "3f00", "7f ffff ffff ffff ffff 7f"] {
        assert_eq!(result(instructions), refused, "{instructions}");
    }
}
