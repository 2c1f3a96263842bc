//! What an encoder writes.

use super::*;

const RESPONSE: &[(&str, &str)] = &[
    (":status", "200"),
    ("Server", "weir"),
    ("Date", "Sun, 22 Nov 2026 20:13:28 GMT"),
    ("Content-Type", "text/html"),
    ("Content-Length", "1024"),
    ("Last-Modified", "Fri, 20 Nov 2026 09:53:24 GMT"),
    ("ETag", "\"6740b1a4-400\""),
    ("Accept-Ranges", "bytes"),
];

fn lowered(list: &[(&str, &str)]) -> Fields {
    let lower = |(name, value): &(&str, &str)| (name.to_ascii_lowercase().into(), (*value).into());
    list.iter().map(lower).collect()
}

#[test]
fn a_response_that_repeats_is_a_byte_a_field() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
    let mut lens = vec![];
    for _ in 0..4 {
        let block = encode(&mut encoder, RESPONSE);
        assert_eq!(decode(&mut decoder, &block), Ok(lowered(RESPONSE)));
        lens.push(block.len());
    }
    assert!(lens[1] < lens[0] && lens[2] == RESPONSE.len() && lens[3] == lens[2], "{lens:?}");
}

#[test]
fn fields_repeat_in_any_order() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
    let list: Vec<_> = (0..60).map(|n| (format!("x-{}", n % 7), format!("{n}"))).collect();
    let mut list: Vec<_> = list.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    let mut lens = vec![];
    for round in 0..8 {
        let block = encode(&mut encoder, &list);
        assert_eq!(decode(&mut decoder, &block), Ok(lowered(&list)));
        lens.push(block.len());
        list.rotate_left(7 * round);
        list.swap(3, 40);
    }
    assert_eq!(lens.last(), Some(&list.len()), "{lens:?}");
}

#[test]
fn values_that_differ_in_any_byte_differ() {
    for len in [1, 3, 7, 8, 15, 16, 17, 24, 31, 32, 33, 40, 60] {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
        let value = "v".repeat(len);
        for at in 0..len {
            let other = [&value[..at], "w", &value[at + 1..]].concat();
            let list = [("server", &value[..]), ("server", &other)];
            let block = encode(&mut encoder, &list);
            assert_eq!(decode(&mut decoder, &block), Ok(lowered(&list)), "{len} {at}");
        }
    }
}

#[test]
fn what_would_evict_most_others_is_not_indexed() {
    let long_name = "n".repeat(65);
    let long_value = "v".repeat(3067);
    for list in [[(&long_name[..], "v")], [("server", &long_value)]] {
        let mut encoder = Encoder::new();
        for _ in 0..3 {
            assert_eq!(encode(&mut encoder, &list)[0] & 0xc0, 0);
        }
        assert_eq!(encoder.memory(), 0);
    }
    let mut encoder = Encoder::new();
    encode(&mut encoder, &[("server", &long_value[1..])]);
    assert_eq!(encode(&mut encoder, &[("server", &long_value[1..])]), [0x80 | 62]);
}

#[test]
fn values_that_differ_do_not_fill_the_table() {
    let mut encoder = Encoder::new();
    encode(&mut encoder, RESPONSE);
    let memory = encoder.memory();
    for n in 0..1000 {
        let etag = format!("\"{n:x}\"");
        let block = encode(&mut encoder, &[("server", "weir"), ("etag", &etag)]);
        assert_eq!(block[0] & 0x80, 0x80, "the server's name is indexed");
        assert_eq!(block[1], 0x0f, "not indexed");
    }
    assert_eq!(encoder.memory(), memory);
}

#[test]
fn a_status_is_indexed() {
    for (code, byte) in [(200, 8), (204, 9), (206, 10), (304, 11), (400, 12), (404, 13), (500, 14)]
    {
        let mut out = Vec::new();
        Encoder::new().status(code, &mut out);
        assert_eq!(out, [0x80 | byte]);
    }
    let (mut encoder, mut decoder, mut out) = (Encoder::new(), Decoder::new(4096), Vec::new());
    encoder.status(503, &mut out);
    encoder.status(503, &mut out);
    assert_eq!(out.last(), Some(&(0x80 | 62)));
    let expected = fields(&[(":status", "503"), (":status", "503")]);
    assert_eq!(decode(&mut decoder, &out), Ok(expected));
}

#[test]
fn secrets_are_not_indexed() {
    for (name, value) in [
        ("Authorization", "Basic YWxhZGRpbjpvcGVuc2VzYW1lYWxhZGRpbg=="),
        ("proxy-authorization", "x"),
        ("cookie", "a=b"),
        ("set-cookie", "a=b"),
    ] {
        let mut encoder = Encoder::new();
        for _ in 0..3 {
            assert_eq!(encode(&mut encoder, &[(name, value)])[0] & 0xf0, 0, "{name}");
        }
        assert_eq!(encoder.memory(), 0);
    }
    let mut out = Vec::new();
    Encoder::new().field_secret(b"X-Key", b"k", &mut out);
    let expected = fields(&[("x-key", "k")]);
    assert_eq!((out[0], decode(&mut Decoder::new(4096), &out)), (0x10, Ok(expected)));
}

#[test]
fn a_field_written_once_is_not_indexed() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
    for _ in 0..3 {
        let mut out = Vec::new();
        encoder.field_once(b"Content-Length", b"17", &mut out);
        assert_eq!(out[..2], [0x0f, 28 - 15]);
        assert_eq!(decode(&mut decoder, &out), Ok(fields(&[("content-length", "17")])));
    }
    assert_eq!((encoder.memory(), decoder.memory() < 100), (0, true));
}

#[test]
fn the_name_of_an_entry_is_indexed() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
    let frame = [("X-Frame-Options", "DENY")];
    encode(&mut encoder, &frame);
    let block = encode(&mut encoder, &frame);
    decode(&mut decoder, &block).unwrap();
    let block = encode(&mut encoder, &[("x-frame-options", "SAMEORIGIN")]);
    assert_eq!(block[..2], [0x0f, 62 - 15]);
    let expected = fields(&[("x-frame-options", "SAMEORIGIN")]);
    assert_eq!(decode(&mut decoder, &block), Ok(expected));
}

#[test]
fn updates_name_the_smallest_and_the_last_size() {
    let begin = |encoder: &mut Encoder| encode(encoder, &[]);
    let mut encoder = Encoder::new();
    assert!(begin(&mut encoder).is_empty());
    for size in [4096, 65536] {
        encoder.set_limit(size);
        assert!(begin(&mut encoder).is_empty(), "4096 are used anyway");
    }
    encoder.set_limit(100);
    assert_eq!(begin(&mut encoder), hex("3f45"));
    encoder.set_limit(100);
    assert!(begin(&mut encoder).is_empty());
    encoder.set_limit(50);
    encoder.set_limit(0);
    encoder.set_limit(200);
    assert_eq!(begin(&mut encoder), hex("20 3fa901"));
    encoder.set_limit(4096);
    encoder.set_limit(200);
    assert!(begin(&mut encoder).is_empty());
    encoder.set_limit(0);
    assert_eq!(begin(&mut encoder), hex("20"));
    assert_eq!(encode(&mut encoder, &[("server", "weir")])[0], 0x0f, "nothing fits");
    assert_eq!(encoder.memory(), 0);
}

#[test]
fn a_table_is_forgotten_and_made_anew() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
    encoder.forget();
    for round in 0..3 {
        let block = encode(&mut encoder, RESPONSE);
        assert_eq!(block.starts_with(&hex("20 3fe11f")), round > 0);
        assert_eq!(decode(&mut decoder, &block), Ok(lowered(RESPONSE)));
        assert!(encoder.memory() > 0);
        encoder.forget();
        assert_eq!(encoder.memory(), 0);
    }
    encoder.set_limit(100);
    let block = encode(&mut encoder, RESPONSE);
    assert!(block.starts_with(&hex("20 3f45")));
    assert_eq!(decode(&mut decoder, &block), Ok(lowered(RESPONSE)));
}

#[test]
fn all_static_fields_are_found() {
    let mut encoder = Encoder::new();
    for index in 1..=static_table::LEN {
        let (name, value) = static_table::get(index).unwrap();
        let found = static_table::find(&Name::new(&name.to_ascii_uppercase())).unwrap();
        let (same, _) = static_table::get(found.index).unwrap();
        assert!(same == name && found.index <= index);
        assert!(found.index == 1 || static_table::get(found.index - 1).unwrap().0 != name);
        let mut out = Vec::new();
        encoder.field(name, value, &mut out);
        assert_eq!(out, [0x80 | index as u8]);
    }
    assert!(static_table::find(&Name::new(b"x-unknown")).is_none());
    assert!(static_table::find(&Name::new(b"")).is_none());
}
