use super::fingerprint::{Carrier, ja3, ja3_text, ja4, ja4_raw};
use super::*;

/// First bytes of real clients: OpenSSL 3.0, curl, Go 1.26, GnuTLS 3.7 and rustls 0.23.
const REAL: &[(&str, &[u8])] = &[
    ("openssl", include_bytes!("../../../../lab/fuzz/seeds/tls_hello/openssl")),
    ("openssl_tls12", include_bytes!("../../../../lab/fuzz/seeds/tls_hello/openssl_tls12")),
    ("openssl_tls10", include_bytes!("../../../../lab/fuzz/seeds/tls_hello/openssl_tls10")),
    ("curl", include_bytes!("../../../../lab/fuzz/seeds/tls_hello/curl")),
    ("go", include_bytes!("../../../../lab/fuzz/seeds/tls_hello/go")),
    ("gnutls", include_bytes!("../../../../lab/fuzz/seeds/tls_hello/gnutls")),
    ("rustls", include_bytes!("../../../../lab/fuzz/seeds/tls_hello/rustls")),
    ("grease", include_bytes!("../../../../lab/fuzz/seeds/tls_hello/grease")),
];

fn real(name: &str) -> &'static [u8] {
    REAL.iter().find(|(other, _)| *other == name).unwrap().1
}

/// A hello to be built.
struct Build {
    version: u16,
    session_id: Vec<u8>,
    suites: Vec<u16>,
    compression: Vec<u8>,
    extensions: Option<Vec<(u16, Vec<u8>)>>,
}

impl Build {
    fn new() -> Build {
        Build {
            version: 0x0303,
            session_id: vec![7; 32],
            suites: vec![0x1301, 0xc02f],
            compression: vec![0],
            extensions: Some(Vec::new()),
        }
    }

    fn with(mut self, number: u16, data: impl Into<Vec<u8>>) -> Build {
        self.extensions.get_or_insert_default().push((number, data.into()));
        self
    }

    fn message(&self) -> Vec<u8> {
        let mut body = self.version.to_be_bytes().to_vec();
        body.extend([9; 32]);
        body.push(self.session_id.len() as u8);
        body.extend(&self.session_id);
        body.extend(list16(pairs(&self.suites)));
        body.push(self.compression.len() as u8);
        body.extend(&self.compression);
        if let Some(extensions) = &self.extensions {
            let mut all = Vec::new();
            for (number, data) in extensions {
                all.extend(number.to_be_bytes());
                all.extend(list16(data.clone()));
            }
            body.extend(list16(all));
        }
        let mut message = (body.len() as u32 | 1 << 24).to_be_bytes().to_vec();
        message.extend(body);
        message
    }

    fn record(&self) -> Vec<u8> {
        records(&self.message(), 1 << 14)
    }
}

fn pairs(numbers: &[u16]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

fn list16(bytes: Vec<u8>) -> Vec<u8> {
    let mut out = (bytes.len() as u16).to_be_bytes().to_vec();
    out.extend(bytes);
    out
}

fn list8(bytes: Vec<u8>) -> Vec<u8> {
    let mut out = vec![bytes.len() as u8];
    out.extend(bytes);
    out
}

fn sni(name: &[u8]) -> Vec<u8> {
    let mut entry = vec![0];
    entry.extend(list16(name.to_vec()));
    list16(entry)
}

/// The message in records of `len` bytes each.
fn records(message: &[u8], len: usize) -> Vec<u8> {
    message.chunks(len).flat_map(|part| record(22, part)).collect()
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![kind, 3, 1];
    out.extend(list16(content.to_vec()));
    out
}

fn hello(input: &[u8]) -> ClientHello<'_> {
    match parse(input) {
        Verdict::Hello(hello) => hello,
        other => panic!("{other:?}"),
    }
}

fn refused(input: &[u8]) -> Malformed {
    match parse(input) {
        Verdict::Malformed(malformed) => malformed,
        other => panic!("{other:?}"),
    }
}

fn wanted(input: &[u8]) -> usize {
    match parse(input) {
        Verdict::Incomplete { wanted } => wanted,
        other => panic!("{other:?} at {}", input.len()),
    }
}

#[test]
fn fields_of_a_real_client() {
    let one = hello(real("openssl"));
    assert!(!one.is_copied());
    assert_eq!(one.input_len(), real("openssl").len());
    assert_eq!(one.legacy_version(), 0x0303);
    assert_eq!((one.random().len(), one.session_id().len()), (32, 32));
    assert_eq!(one.compression_methods(), [0]);
    assert_eq!(one.cipher_suites().next(), Some(0x1302));
    assert_eq!(one.host(), Some("www.example.com"));
    assert_eq!(one.alpn().collect::<Vec<_>>(), [b"h2".as_slice(), b"http/1.1"]);
    assert_eq!(one.supported_versions().collect::<Vec<_>>(), [0x0304, 0x0303, 0x0302, 0x0301]);
    assert_eq!(one.version_max(), Some(0x0304));
    assert_eq!(one.groups().next(), Some(29));
    assert_eq!(one.key_share_groups().collect::<Vec<_>>(), [29]);
    assert_eq!(one.signature_algorithms().next(), Some(0x0403));
    assert_eq!(one.ec_point_formats(), [0, 1, 2]);
    assert_eq!(one.session_ticket(), Some(b"".as_slice()));
    assert!(!one.has_early_data() && !one.has_psk() && !one.has_ech());
    assert_eq!(one.certificate_compression().len(), 0);

    let old = hello(real("openssl_tls10"));
    assert_eq!((old.version_max(), old.host()), (Some(0x0301), None));
    assert_eq!((old.supported_versions().len(), old.alpn().count()), (0, 0));
    let rustls = hello(real("rustls"));
    assert_eq!(rustls.key_share_groups().next(), Some(0x11ec));
    assert_eq!(rustls.clone().into_owned().message(), rustls.message());
}

#[test]
fn the_rest_of_the_fields() {
    let built = Build::new()
        .with(extension::COMPRESS_CERTIFICATE, list8(pairs(&[2, 1])))
        .with(extension::EARLY_DATA, [])
        .with(extension::ENCRYPTED_CLIENT_HELLO, [0; 9])
        .with(extension::PRE_SHARED_KEY, [1, 2])
        .record();
    let one = hello(&built);
    assert_eq!(one.certificate_compression().collect::<Vec<_>>(), [2, 1]);
    assert!(one.has_early_data() && one.has_psk() && one.has_ech());
    assert_eq!(one.extension(extension::PRE_SHARED_KEY), Some([1, 2].as_slice()));
    assert_eq!(one.extension(5), None);
}

#[test]
fn a_hello_without_extensions() {
    let mut build = Build::new();
    build.extensions = None;
    let input = build.record();
    let one = hello(&input);
    assert_eq!((one.extensions().count(), one.version_max()), (0, Some(0x0303)));
}

/// Every beginning is incomplete, and `wanted` is never more than what it takes.
#[test]
fn every_beginning_is_incomplete() {
    for (name, input) in REAL {
        for len in 0..input.len() {
            let wanted = wanted(&input[..len]);
            assert!(wanted > len && wanted <= input.len(), "{name} at {len}: {wanted}");
        }
        assert_eq!(hello(input).input_len(), input.len());
    }
}

/// Split in two records at each byte, and in records of each length, the message is the same.
#[test]
fn records_split_anywhere() {
    for (name, input) in REAL {
        let message = &input[5..];
        let expected = hello(input);
        for at in 1..message.len() {
            let mut split = records(&message[..at], at);
            split.extend(records(&message[at..], message.len()));
            split.extend(record(23, b"early data"));
            let one = hello(&split);
            assert!(one.is_copied());
            assert_eq!(one.message(), expected.message(), "{name} at {at}");
            assert_eq!(one.input_len(), input.len() + 5);
            assert_eq!(one.host(), expected.host());
        }
        for len in [1, 2, 3, 4, 5, 7, 100] {
            let split = records(message, len);
            assert_eq!(hello(&split).message(), expected.message(), "{name} by {len}");
            // Quadratic: the short ones are enough.
            if message.len() > 400 {
                continue;
            }
            for part in 0..split.len() {
                let wanted = wanted(&split[..part]);
                assert!(wanted > part && wanted <= split.len(), "{name} by {len} at {part}");
            }
        }
    }
}

/// A client that sends one byte a record makes a caller that waits for `wanted` parse rarely.
#[test]
fn small_records_are_parsed_rarely() {
    let message = Build::new().with(21, vec![0; 8000]).message();
    let input = records(&message, 1);
    let (mut len, mut parsed) = (0, 0);
    while let Verdict::Incomplete { wanted } = parse(&input[..len]) {
        len = wanted;
        parsed += 1;
    }
    assert_eq!(hello(&input[..len]).message(), &message[4..]);
    assert!(parsed < 60, "{parsed}");
}

#[test]
fn another_message_in_the_same_record() {
    let mut message = Build::new().message();
    let len = message.len();
    message.extend([20, 0, 0, 1, 0]);
    let input = records(&message, 1 << 14);
    let one = hello(&input);
    assert!(!one.is_copied());
    assert_eq!((one.input_len(), one.message().len()), (5 + len, len - 4));
}

#[test]
fn other_protocols() {
    for text in ["GET / HTTP/1.1\r\n", "PRI * HTTP/2.0", "\n", "\x15\x03\x01\x00\x02\x01\x00"] {
        for len in 1..=text.len() {
            assert!(matches!(parse(&text.as_bytes()[..len]), Verdict::NotTls));
        }
    }
    // A hello of SSL 2 for TLS 1.0, and of SSL 2 itself.
    let v2 = [0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10];
    assert_eq!(wanted(&v2[..4]), 5);
    assert_eq!(refused(&v2), Malformed::Sslv2(0x0301));
    assert_eq!(refused(&[0x80, 0x2e, 1, 0, 2]), Malformed::Sslv2(0x0002));
    assert_eq!(refused(&[0xff, 0xfb, 0x1f, 0, 0]), Malformed::RecordVersion);
    assert_eq!(refused(&[22, 2]), Malformed::RecordVersion);
    assert_eq!(refused(&[22, 3, 1, 0, 4, 2]), Malformed::UnexpectedMessage);
}

#[test]
fn bad_records() {
    assert_eq!(refused(&[22, 3, 1, 0, 0]), Malformed::EmptyRecord);
    assert_eq!(refused(&[22, 3, 1, 0x40, 1]), Malformed::RecordTooLong);
    let message = Build::new().message();
    let mut input = records(&message[..50], 50);
    input.extend(record(21, &[1, 0]));
    assert_eq!(refused(&input), Malformed::UnexpectedRecord);
    assert_eq!(Malformed::UnexpectedRecord.alert(), 10);
}

/// A hello that just fits is taken, in as few records as possible; one byte more is refused as soon
/// as the length is known.
#[test]
fn the_longest_hello() {
    let build = |padding: usize| Build::new().with(21, vec![0; padding]).message();
    let around = build(0).len();
    let fitting = INPUT_MAX - around - 4 * 5;
    // Four records of 2^14 bytes and their headers: the last one is not full.
    let input = records(&build(fitting), 1 << 14);
    assert_eq!(input.len(), INPUT_MAX);
    assert_eq!(hello(&input).input_len(), INPUT_MAX);
    assert_eq!(wanted(&input[..9]), INPUT_MAX);
    let more = records(&build(fitting + 1), 1 << 14);
    assert_eq!(wanted(&more[..8]), 9);
    assert_eq!(refused(&more[..9]), Malformed::TooLong);
    assert_eq!(refused(&more), Malformed::TooLong);
    // The same message in smaller records does not fit.
    assert_eq!(refused(&records(&build(fitting), 1 << 13)), Malformed::TooLong);
    assert_eq!(refused(&[22, 3, 1, 0, 9, 1, 0xff, 0xff, 0xff]), Malformed::TooLong);
}

#[test]
fn quic_carries_the_message_alone() {
    let input = real("go");
    let message = &input[5..];
    for len in 0..message.len() {
        let verdict = parse_message(&message[..len]);
        let Verdict::Incomplete { wanted } = verdict else { panic!("{verdict:?}") };
        assert!(wanted > len && wanted <= message.len());
    }
    let Verdict::Hello(one) = parse_message(message) else { panic!("no hello") };
    assert_eq!((one.message(), one.input_len()), (hello(input).message(), message.len()));
    let too_long = [1, 0, 0xff, 0xfd];
    assert!(matches!(parse_message(&too_long), Verdict::Malformed(Malformed::TooLong)));
    assert!(matches!(parse_message(b"G"), Verdict::Malformed(Malformed::UnexpectedMessage)));
}

#[test]
fn lengths_that_contradict() {
    let mut build = Build::new();
    build.session_id = vec![0; 33];
    assert_eq!(refused(&build.record()), Malformed::LengthMismatch);
    let mut build = Build::new();
    build.suites.clear();
    assert_eq!(refused(&build.record()), Malformed::NoCiphers);
    let mut build = Build::new();
    build.compression.clear();
    assert_eq!(refused(&build.record()), Malformed::NoCompression);
    // No suites, and lengths behind them that do not fit: that is the fault of the structure.
    let mut message = Build::new().message();
    let at = 4 + ClientHello::SESSION_ID_AT + 33;
    message[at..at + 2].copy_from_slice(&[0, 0]);
    assert_eq!(refused(&records(&message, 1 << 14)), Malformed::LengthMismatch);
    // A message that ends at each place, and one with something behind.
    let message = Build::new().with(extension::ALPN, list16(list8(b"h2".to_vec()))).message();
    let without = message.len() - 11;
    for len in 4..message.len() {
        let mut cut = message[..len].to_vec();
        cut[2..4].copy_from_slice(&((len - 4) as u16).to_be_bytes());
        if len == without {
            assert_eq!(hello(&records(&cut, 1 << 14)).extensions().count(), 0);
        } else {
            assert_eq!(refused(&records(&cut, 1 << 14)), Malformed::LengthMismatch, "at {len}");
        }
    }
    let mut more = message.clone();
    more.push(0);
    more[3] += 1;
    assert_eq!(refused(&records(&more, 1 << 14)), Malformed::LengthMismatch);
}

#[test]
fn extensions_come_once_and_psk_last() {
    let twice = Build::new().with(0x1234, []).with(5, []).with(0x1234, []).record();
    assert_eq!(refused(&twice), Malformed::DuplicateExtension(0x1234));
    assert_eq!(Malformed::DuplicateExtension(0).alert(), 47);
    let psk = Build::new().with(extension::PRE_SHARED_KEY, []).with(21, []).record();
    assert_eq!(refused(&psk), Malformed::PskNotLast);
    // Two numbers of GREASE are two extensions.
    let grease = Build::new().with(0x0a0a, []).with(0xfafa, [0]).record();
    assert_eq!(hello(&grease).extensions().count(), 2);
    // All numbers at once, which must not take quadratic time.
    let mut many = Build::new();
    for number in 0..15000u16 {
        many = many.with(number | 0x8000, []);
    }
    assert_eq!(hello(&many.record()).extensions().count(), 15000);
}

#[test]
fn broken_extensions() {
    use extension::*;
    let bad: &[(u16, &[u8])] = &[
        (SUPPORTED_GROUPS, &[]),
        (SUPPORTED_GROUPS, &[0, 0]),
        (SUPPORTED_GROUPS, &[0, 1, 0]),
        (SUPPORTED_GROUPS, &[0, 2, 0, 29, 0]),
        (SUPPORTED_GROUPS, &[0, 4, 0, 29]),
        (SIGNATURE_ALGORITHMS, &[0, 3, 4, 3, 4]),
        (SUPPORTED_VERSIONS, &[0]),
        (SUPPORTED_VERSIONS, &[3, 3, 4, 3]),
        (COMPRESS_CERTIFICATE, &[2, 0, 2, 0]),
        (EC_POINT_FORMATS, &[0]),
        (EC_POINT_FORMATS, &[1, 0, 0]),
        (ALPN, &[0, 0]),
        (ALPN, &[0, 1, 0]),
        (ALPN, &[0, 3, 3, b'h', b'2']),
        (ALPN, &[0, 4, 2, b'h', b'2']),
        (KEY_SHARE, &[0]),
        (KEY_SHARE, &[0, 4, 0, 29, 0, 0]),
        (KEY_SHARE, &[0, 5, 0, 29, 0, 2, 1]),
        (EARLY_DATA, &[0]),
        (SERVER_NAME, &[]),
        (SERVER_NAME, &[0, 0]),
        (SERVER_NAME, &[0, 4, 1, 0, 1, b'a']),
        (SERVER_NAME, &[0, 4, 0, 0, 2, b'a']),
        // Two names.
        (SERVER_NAME, &[0, 8, 0, 0, 1, b'a', 0, 0, 1, b'b']),
    ];
    for (number, data) in bad {
        let input = Build::new().with(*number, *data).record();
        assert_eq!(refused(&input), Malformed::BadExtension(*number), "{number}: {data:?}");
    }
    let none = Build::new().with(KEY_SHARE, [0, 0]).record();
    assert_eq!(hello(&none).key_share_groups().count(), 0);
}

#[test]
fn names_of_servers() {
    let with = |name: &[u8]| Build::new().with(extension::SERVER_NAME, sni(name)).record();
    let name = |name: &[u8]| {
        let input = with(name);
        let one = hello(&input);
        (one.server_name().map(<[u8]>::to_vec), one.host().map(str::to_owned))
    };
    assert_eq!(name(b""), (None, None));
    let dot = b"Example.COM.".as_slice();
    assert_eq!(name(dot), (Some(dot.to_vec()), Some("Example.COM.".to_owned())));
    for odd in ["b\u{fc}cher.example".as_bytes(), b"a b", b"a\x7f", b"\xff"] {
        assert_eq!(name(odd), (Some(odd.to_vec()), None));
    }
    assert!(name(&[b'a'; 255]).1.is_some());
    assert_eq!(refused(&with(&[b'a'; 256])), Malformed::ServerName);
    assert_eq!(refused(&with(b"a\0b")), Malformed::ServerName);
    assert_eq!(Malformed::ServerName.alert(), 112);
}

#[test]
fn versions_beyond_those_that_are_known() {
    let with = |versions: &[u16]| {
        let build = Build::new().with(extension::SUPPORTED_VERSIONS, list8(pairs(versions)));
        let input = build.record();
        let max = hello(&input).version_max();
        (max, crate::tls_names::preread_protocol(&hello(&input)))
    };
    assert_eq!(with(&[0x6a6a, 0x0304, 0x0303]), (Some(0x0304), "TLSv1.3"));
    assert_eq!(with(&[0x0303, 0x0302]), (Some(0x0303), "TLSv1.2"));
    assert_eq!(with(&[0x7f1c]), (None, "TLSv1.3"));
}

/// A hello of the lists in a published text of JA3.
fn ja3_build(text: &str) -> Build {
    let mut fields = text.split(',').map(|field| {
        field.split('-').filter_map(|number| number.parse().ok()).collect::<Vec<u16>>()
    });
    let mut build = Build::new();
    build.version = fields.next().unwrap()[0];
    build.suites = fields.next().unwrap();
    let numbers = fields.next().unwrap();
    let (groups, forms) = (fields.next().unwrap(), fields.next().unwrap());
    for number in numbers {
        build = match number {
            0 => build.with(0, sni(b"example.com")),
            10 => build.with(10, list16(pairs(&groups))),
            11 => build.with(11, list8(forms.iter().map(|form| *form as u8).collect())),
            other => build.with(other, []),
        };
    }
    build
}

/// The two examples of the description of JA3.
#[test]
fn ja3_as_published() {
    for (text, md5) in [
        (
            "769,47-53-5-10-49161-49162-49171-49172-50-56-19-4,0-10-11,23-24-25,0",
            "ada70206e40642a3e4461f35503241d5",
        ),
        ("769,4-5-10-9-100-98-3-6-19-18-99,,,", "de350869b8c85de67a350c8d186f11e6"),
    ] {
        let mut build = ja3_build(text);
        let input = build.record();
        assert_eq!(ja3_text(&hello(&input)), text);
        assert_eq!(ja3(&hello(&input)), md5);
        // GREASE changes nothing.
        build.suites.insert(0, 0x2a2a);
        if let Some(extensions) = &mut build.extensions {
            extensions.insert(0, (0xdada, Vec::new()));
            for (_, data) in extensions.iter_mut().filter(|one| one.0 == 10) {
                *data = list16(pairs(&[0xcaca, 23, 24, 25]));
            }
        }
        assert_eq!(ja3(&hello(&build.record())), md5);
    }
}

/// A hello of the lists in a published `JA4_ro`, in the client's order.
fn ja4_build(original: &str, versions: &[u16], alpn: &[u8]) -> Build {
    let numbers = |text: &str| -> Vec<u16> {
        text.split(',').map(|number| u16::from_str_radix(number, 16).unwrap()).collect()
    };
    let mut parts = original.split('_').skip(1);
    let mut build = Build::new();
    build.suites = numbers(parts.next().unwrap());
    let extensions = numbers(parts.next().unwrap());
    let schemes = numbers(parts.next().unwrap());
    for number in extensions {
        build = match number {
            0x0000 => build.with(0, sni(b"example.com")),
            0x000a => build.with(number, list16(pairs(&[0x3a3a, 29]))),
            0x000b => build.with(number, list8(vec![0])),
            0x000d => build.with(number, list16(pairs(&schemes))),
            0x0010 => build.with(number, list16(list8(alpn.to_vec()))),
            0x001b => build.with(number, list8(pairs(&[2]))),
            0x002b => build.with(number, list8(pairs(versions))),
            0x0033 => build.with(number, [0, 0]),
            _ => build.with(number, []),
        };
    }
    build
}

/// Results that FoxIO publishes with captures of Firefox, curl with LibreSSL, Safari, Schannel and
/// Chrome (`python/test/testdata`), from the lists in them.
#[test]
fn ja4_as_published() {
    let chrome = "t13d1516h2_1301,1302,1303,c02b,c02f,c02c,c030,cca9,cca8,c013,c014,009c,009d,002f,\
        0035_001b,0000,0033,0010,4469,0017,002d,000d,0005,0023,0012,002b,ff01,000b,000a,0015_0403,\
        0804,0401,0503,0805,0501,0806,0601";
    let firefox = "t13d1715h2_1301,1303,1302,c02b,c02f,cca9,cca8,c02c,c030,c00a,c009,c013,c014,\
        009c,009d,002f,0035_0000,0017,ff01,000a,000b,0023,0010,0005,0022,0033,002b,000d,002d,001c,\
        0015_0403,0503,0603,0804,0805,0806,0401,0501,0601,0203,0201";
    let safari = "t13d2613h2_1301,1302,1303,c02c,c02b,c024,c023,c00a,c009,cca9,c030,c02f,c028,c027,\
        c014,c013,cca8,009d,009c,003d,003c,0035,002f,c008,c012,000a_ff01,0000,0017,000d,0005,0012,\
        0010,000b,0033,002d,002b,000a,0015_0403,0804,0401,0503,0203,0805,0805,0501,0806,0601,0201";
    let schannel = "t12d190800_c02c,c02b,c030,c02f,c024,c023,c028,c027,c00a,c009,c014,c013,009d,\
        009c,003d,003c,0035,002f,000a_0000,0005,000a,000b,000d,0023,0017,ff01_0804,0805,0806,0401,\
        0501,0201,0403,0503,0203,0202,0601,0603";
    for (original, versions, published) in [
        (chrome, &[0x4a4a, 0x0304, 0x0303][..], "t13d1516h2_8daaf6152771_e5627efa2ab1"),
        (firefox, &[0x0304, 0x0303], "t13d1715h2_5b57614c22b0_3d5424432f57"),
        (safari, &[0xfafa, 0x0304, 0x0303, 0x0302], "t13d2613h2_2802a3db6c62_845d286b0d67"),
        (schannel, &[], "t12d190800_d83cc789557e_7af1ed941c26"),
    ] {
        let build = ja4_build(original, versions, b"h2");
        assert_eq!(ja4(&hello(&build.record()), Carrier::Tcp), published);
        // GREASE changes nothing, and QUIC the first letter.
        let mut build = build.with(0x0a0a, []).with(0xbaba, [0]);
        build.suites.insert(0, 0x7a7a);
        let input = build.record();
        assert_eq!(ja4(&hello(&input), Carrier::Quic)[1..], published[1..]);
        assert!(ja4(&hello(&input), Carrier::Quic).starts_with('q'));
    }
    let raw = ja4_raw(&hello(&ja4_build(chrome, &[0x0304], b"h2").record()), Carrier::Tcp);
    assert_eq!(
        raw,
        "t13d1516h2_002f,0035,009c,009d,1301,1302,1303,c013,c014,c02b,c02c,c02f,c030,cca8,cca9_0005,\
         000a,000b,000d,0012,0015,0017,001b,0023,002b,002d,0033,4469,ff01_0403,0804,0401,0503,0805,\
         0501,0806,0601"
    );
}

/// The examples of the description for the name of a protocol, and its other special cases.
#[test]
fn ja4_special_cases() {
    let head = |alpn: &[u8]| {
        let build = Build::new().with(extension::ALPN, list16(list8(alpn.to_vec())));
        ja4(&hello(&build.record()), Carrier::Tcp)[8..10].to_owned()
    };
    for (alpn, shown) in [
        (&b"http/1.1"[..], "h1"),
        (b"h", "hh"),
        (&[0xab], "ab"),
        (&[0x20], "20"),
        (&[0xab, 0xcd], "ad"),
        (&[0x20, 0x61], "21"),
        (&[0x30, 0xab], "3b"),
        (&[0x61, 0x20], "60"),
        (&[0x30, 0x31, 0xab, 0xcd], "3d"),
        (&[0x30, 0xab, 0xcd, 0x31], "01"),
    ] {
        assert_eq!(head(alpn), shown, "{alpn:?}");
    }
    let mut build = Build::new();
    build.suites = vec![0x0a0a];
    let empty = ja4(&hello(&build.record()), Carrier::Tcp);
    assert_eq!(empty, "t12i000000_000000000000_000000000000");
    build.suites = (1..=150).collect();
    for number in 100..250 {
        build = build.with(number, []);
    }
    build.version = 0x0299;
    assert!(ja4(&hello(&build.record()), Carrier::Tcp).starts_with("t00i999900_"));
    // Without signature schemes no underscore, by the example of the description.
    let list = "0005,000a,000b,000d,0012,0015,0017,001b,0023,002b,002d,0033,4469,ff01";
    let mut build = ja4_build(&format!("t_1301_{list}_0a0a"), &[0x0304], b"h2");
    build.suites = vec![0x1301];
    assert!(ja4(&hello(&build.record()), Carrier::Tcp).ends_with("_6d807ffa2a79"));
}
