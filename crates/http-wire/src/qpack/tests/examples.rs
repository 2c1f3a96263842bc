//! Appendix B, byte for byte.

use super::*;

const ENCODER: [&str; 4] = [
    "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468",
    "4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565",
    "02",
    "810d 6375 7374 6f6d 2d76 616c 7565 32",
];

#[test]
fn b_1_a_literal_with_a_name_of_the_static_table() {
    let mut decoder = Decoder::new(LIMITS);
    let section = hex("0000 510b 2f69 6e64 6578 2e68 746d 6c");
    assert_eq!(decode(&mut decoder, 0, &section), Ok(fields(&[(":path", "/index.html")])));
    assert!(!decoder.has_instructions());
    // The same with Huffman's code.
    let mut out = Vec::new();
    let mut encoder = Encoder::new();
    encoder.begin(&mut out);
    encoder.field(b":path", b"/index.html", &mut out);
    assert_eq!(out, hex("0000 51 88 60d5 485f 2bce 9a68"));
    assert_eq!(decode(&mut decoder, 0, &out), Ok(fields(&[(":path", "/index.html")])));
}

#[test]
fn b_2_to_b_5_the_dynamic_table() {
    let mut decoder = Decoder::new(LIMITS);
    // B.2: the section comes first here, and waits.
    let section = hex("0381 10 11");
    let none = |_: &[u8], _: &[u8]| panic!("no field");
    assert_eq!(decoder.decode(4, &section, none), Ok(Decoded::Blocked));
    assert!(decoder.unblocked().is_none() && !decoder.has_instructions());
    assert_eq!(decoder.encoder_stream(&hex(ENCODER[0])), Ok(106));
    let held = decoder.unblocked().unwrap();
    assert_eq!(held.stream, 4);
    let expected = fields(&[(":authority", "www.example.com"), (":path", "/sample/path")]);
    assert_eq!(decode_held(&mut decoder, &held), Ok(expected));
    assert!(decoder.unblocked().is_none());
    assert_eq!(instructions(&mut decoder), hex("84"));
    // B.3.
    assert_eq!(decoder.encoder_stream(&hex(ENCODER[1])), Ok(54));
    assert_eq!(instructions(&mut decoder), hex("01"));
    // B.4: the client's decoder has not read the section, and cancels the stream.
    assert_eq!(decoder.encoder_stream(&hex(ENCODER[2])), Ok(57));
    let section = hex("0500 80 c1 81");
    let expected = fields(&[
        (":authority", "www.example.com"),
        (":path", "/"),
        ("custom-key", "custom-value"),
    ]);
    let mut other = Decoder::new(LIMITS);
    assert_eq!(other.decode(8, &section, none), Ok(Decoded::Blocked));
    other.cancel(8);
    assert_eq!((instructions(&mut other), other.blocked()), (hex("48"), 0));
    assert_eq!(decode(&mut decoder, 8, &section), Ok(expected));
    assert_eq!(instructions(&mut decoder), hex("88"));
    // B.5: the table has 215 of 220 bytes, and the oldest entry is gone.
    assert_eq!(decoder.encoder_stream(&hex(ENCODER[3])), Ok(55));
    assert_eq!(decoder.inserted(), 5);
    assert_eq!(instructions(&mut decoder), hex("01"));
    let expected = fields(&[
        ("custom-key", "custom-value2"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
        (":path", "/sample/path"),
    ]);
    assert_eq!(decode(&mut decoder, 12, &hex("0600 80 81 82 83")), Ok(expected));
    let gone = decode(&mut decoder, 12, &hex("0600 84")).unwrap_err();
    assert_eq!(gone.code, Code::QpackDecompressionFailed);
}

/// What ls-qpack's encoder wrote for three requests that differ in a path and a value.
#[test]
fn the_encoder_of_another_implementation() {
    let common = "c08cf1e3c2e5f23a6ba0ab90f4ff c183606c03ff20 b5d07f66a281b0dae053fafc087ed4ce6aad\
        f2a7979c89c6bed4b3bdc089e5c1fda988a4ea76040080010054c26b0b29fcb0113cb83fff 098b2d4b70ddf45a\
        befb4005db66f2b12d424f4f 00c5914150831ea8001132d36e3af3e38c92165f";
    let instructions = ["3fe11f", common, "8185ee3a2d2a80"];
    let mut decoder = Decoder::new(LIMITS);
    let sections = ["0785d1d7101112130485ee3a2d2a8115", "0880d1d7855183606c0783821080"];
    let request = |path, value| {
        fields(&[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "www.example.com"),
            (":path", path),
            (
                "user-agent",
                "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
            ),
            ("accept-language", "en-US,en;q=0.5"),
            ("x-custom", value),
            ("cookie", "session=0123456789abcdef"),
        ])
    };
    decoder.encoder_stream(&hex(instructions[0])).unwrap();
    decoder.encoder_stream(&hex(instructions[1])).unwrap();
    let first = decode(&mut decoder, 4, &hex(sections[0]));
    assert_eq!(first, Ok(request("/a/0", "value 1")));
    decoder.encoder_stream(&hex(instructions[2])).unwrap();
    let second = decode(&mut decoder, 8, &hex(sections[1]));
    assert_eq!(second, Ok(request("/a/1", "value 0")));
}

#[test]
fn pieces_give_what_the_whole_gives() {
    let wire = ENCODER.map(hex).concat();
    let section = hex("0600 80 81 82 83");
    let expected = decode(&mut behind(&ENCODER.concat()), 0, &section);
    for step in 1..wire.len() {
        let mut decoder = Decoder::new(LIMITS);
        let copied: usize =
            wire.chunks(step).map(|piece| decoder.encoder_stream(piece).unwrap()).sum();
        assert_eq!((copied, decoder.inserted()), (272, 5), "pieces of {step}");
        assert_eq!(decode(&mut decoder, 0, &section), expected);
    }
}
