//! Appendix C. The encoder writes the same bytes where it makes the same choices; otherwise its
//! strings and integers are compared by themselves.

use super::*;

type Pairs<'a> = &'a [(&'a str, &'a str)];

#[test]
fn c_1_integers() {
    for (value, bits, expected) in [(10, 5, "0a"), (1337, 5, "1f 9a 0a"), (42, 8, "2a")] {
        let mut out = Vec::new();
        if bits == 8 {
            out.push(value as u8);
        } else {
            integer::write(0, bits, value, &mut out);
        }
        assert_eq!(out, hex(expected));
        if bits < 8 {
            let mut rest = &out[1..];
            assert_eq!(integer::read(out[0], bits, &mut rest), Ok(value));
            assert!(rest.is_empty());
        }
    }
}

#[test]
fn c_2_single_fields() {
    let custom = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    let path = "040c 2f73 616d 706c 652f 7061 7468";
    let password = "1008 7061 7373 776f 7264 0673 6563 7265 74";
    let cases: [(&str, (&str, &str), bool); 4] = [
        (custom, ("custom-key", "custom-header"), true),
        (path, (":path", "/sample/path"), false),
        (password, ("password", "secret"), false),
        ("82", (":method", "GET"), false),
    ];
    for (block, field, kept) in cases {
        let mut decoder = Decoder::new(4096);
        assert_eq!(decode(&mut decoder, &hex(block)), Ok(fields(&[field])));
        let again = decode(&mut decoder, &[0x80 | 62]);
        assert_eq!(again, if kept { Ok(fields(&[field])) } else { Err(HpackError::Index) });
    }
    assert_eq!(encode(&mut Encoder::new(), &[(":method", "GET")]), [0x82]);
    let mut out = Vec::new();
    Encoder::new().field_secret(b"password", b"secret", &mut out);
    assert_eq!(out, hex("10 86ac684783d927 84 41496153"), "C.2.3 with Huffman coding");
}

const REQUESTS: [Pairs; 3] = [
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")],
    &[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "www.example.com"),
        ("cache-control", "no-cache"),
    ],
    &[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ],
];

const RESPONSES: [Pairs; 3] = [
    &[
        (":status", "302"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", "https://www.example.com"),
    ],
    &[
        (":status", "307"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", "https://www.example.com"),
    ],
    &[
        (":status", "200"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
        ("location", "https://www.example.com"),
        ("content-encoding", "gzip"),
        ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ],
];

/// Decodes blocks one after another; the table ends with `kept`, newest first.
fn check(decoder: &mut Decoder, blocks: [&str; 3], lists: [Pairs; 3], kept: Pairs) {
    for (block, list) in blocks.into_iter().zip(lists) {
        assert_eq!(decode(decoder, &hex(block)), Ok(fields(list)));
    }
    let indices: Vec<u8> = (0..kept.len()).map(|n| 0x80 | (62 + n as u8)).collect();
    assert_eq!(decode(decoder, &indices), Ok(fields(kept)));
    let beyond = [0x80 | (62 + kept.len() as u8)];
    assert_eq!(decode(decoder, &beyond), Err(HpackError::Index));
}

const REQUESTS_KEPT: Pairs = &[
    ("custom-key", "custom-value"),
    ("cache-control", "no-cache"),
    (":authority", "www.example.com"),
];

#[test]
fn c_3_requests() {
    let blocks = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    check(&mut Decoder::new(4096), blocks, REQUESTS, REQUESTS_KEPT);
}

const REQUESTS_HUFFMAN: [&str; 3] = [
    "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
    "8286 84be 5886 a8eb 1064 9cbf",
    "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
];

#[test]
fn c_4_requests_with_huffman() {
    check(&mut Decoder::new(4096), REQUESTS_HUFFMAN, REQUESTS, REQUESTS_KEPT);
    let mut encoder = Encoder::new();
    for (block, list) in REQUESTS_HUFFMAN.into_iter().zip(REQUESTS).take(2) {
        assert_eq!(encode(&mut encoder, list), hex(block));
    }
    // An unknown name is indexed when it comes again: the example's bytes are those.
    let first = hex("8287 85bf 0088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf");
    assert_eq!(encode(&mut encoder, REQUESTS[2]), first);
    assert_eq!(encode(&mut encoder, REQUESTS[2]), hex(REQUESTS_HUFFMAN[2]));
}

const RESPONSES_KEPT: Pairs = &[
    ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ("content-encoding", "gzip"),
    ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
];

/// The examples' table has 256 bytes, by a setting; the tables start with 4096 here.
fn small() -> Decoder {
    let mut decoder = Decoder::new(4096);
    assert_eq!(decode(&mut decoder, &hex("3fe101")), Ok(vec![]));
    decoder
}

#[test]
fn c_5_responses() {
    let blocks = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133
         2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70
         6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d
         54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049
         5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e
         3d31",
    ];
    check(&mut small(), blocks, RESPONSES, RESPONSES_KEPT);
}

#[test]
fn c_6_responses_with_huffman() {
    let blocks = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
         2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab
         77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f
         9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    check(&mut small(), blocks, RESPONSES, RESPONSES_KEPT);
}

#[test]
fn c_6_strings() {
    for (text, expected) in [
        ("302", "6402"),
        ("307", "640e ff"),
        ("private", "aec3 771a 4b"),
        ("Mon, 21 Oct 2013 20:13:21 GMT", "d07a be94 1054 d444 a820 0595 040b 8166 e082 a62d 1bff"),
        ("https://www.example.com", "9d29 ad17 1863 c78f 0b97 c8e9 ae82 ae43 d3"),
        ("gzip", "9bd9 ab"),
    ] {
        let mut out = Vec::new();
        huffman::encode(text.as_bytes(), |b| b, &mut out);
        assert_eq!(out, hex(expected));
        assert_eq!(huffman::encoded_len(text.as_bytes(), |b| b), out.len());
    }
}
