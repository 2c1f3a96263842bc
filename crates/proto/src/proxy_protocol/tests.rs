//! Headers as tables, and written ones read back.

use super::write::crc32c;
use super::*;

/// Parses in one piece, and at every shorter length, which must be `More` or the same.
fn check(buf: &[u8]) -> Result<Parsed, ProxyError> {
    let want = parse(buf);
    for len in 0..buf.len() {
        match parse(&buf[..len]) {
            Ok(Parsed::More) => {}
            got => {
                assert_eq!(got, want, "at {len} of {buf:?}");
            }
        }
    }
    want
}

fn v1(line: &str) -> Result<(usize, Option<String>), ProxyError> {
    match check(line.as_bytes())? {
        Parsed::More => Ok((0, None)),
        Parsed::Done { len, header } => Ok((
            len,
            header.map(|h| {
                let (s, d) = (h.source, h.destination);
                format!("{} {} {} {}", s.text, s.port, d.text, d.port)
            }),
        )),
    }
}

#[test]
fn version_1() {
    for (line, want) in [
        ("PROXY TCP4 192.0.2.1 192.0.2.2 123 5678\r\nGET", "192.0.2.1 123 192.0.2.2 5678"),
        ("PROXY TCP6 2001:Db8::1 2001:Db8::2 0 65535\r\n", "2001:Db8::1 0 2001:Db8::2 65535"),
        ("PROXY TCP4 :: 1.2.3.4 1 2\r\n", ":: 1 1.2.3.4 2"),
    ] {
        let len = line.find('\n').expect("a line") + 1;
        assert_eq!(v1(line), Ok((len, Some(want.to_owned()))), "{line:?}");
    }
    assert_eq!(v1("PROXY UNKNOWN\r\n"), Ok((15, None)));
    assert_eq!(v1("PROXY UNKNOWN 1 2 3 4 5 6\r\nxyz"), Ok((27, None)));
    for line in [
        "GET / HTTP/1.0\r\n",
        "PROXY\r\n",
        "PROXY  TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 1 65536\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 -1 2\r\n",
        "PROXY TCP4 1.1.1.x 2.2.2.2 1 2\r\n",
        "PROXY TCP5 1.1.1.1 2.2.2.2 1 2\r\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 1 2\n",
        "PROXY TCP4 1.1.1.1 2.2.2.2 1 \r\n",
        "proxy TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
        "\r\n\r\nGET",
    ] {
        assert_eq!(v1(line), Err(ProxyError::Broken), "{line:?}");
    }
    let long = format!("PROXY UNKNOWN {}\r\n", "1".repeat(100));
    assert_eq!(v1(&long), Err(ProxyError::Broken));
    assert_eq!(
        ProxyError::Broken.message(b"GET /\x02 HTTP/1.0\r\n\r\n"),
        "broken header: \"GET /. HTTP/1.0\""
    );
}

fn v2(version_command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut buf = SIGNATURE.to_vec();
    buf.extend_from_slice(&[version_command, family]);
    buf.extend_from_slice(&(body.len() as u16).to_be_bytes());
    buf.extend_from_slice(body);
    buf
}

#[test]
fn version_2() {
    let v4 = [192, 0, 2, 1, 192, 0, 2, 2, 0, 123, 22, 46, 0x01, 0, 1, b'x'];
    let buf = v2(0x21, 0x11, &v4);
    let Ok(Parsed::Done { len, header: Some(header) }) = check(&buf) else { panic!("a header") };
    assert_eq!(len, buf.len());
    assert_eq!((header.source.text.as_str(), header.source.port), ("192.0.2.1", 123));
    assert_eq!((header.destination.text.as_str(), header.destination.port), ("192.0.2.2", 5678));
    assert_eq!(header.tlvs, [1, 0, 1, b'x']);

    let mut v6 = [0u8; 36];
    v6[..2].copy_from_slice(&[0x20, 0x01]);
    v6[15] = 1;
    v6[31] = 2;
    v6[33] = 80;
    let Ok(Parsed::Done { header: Some(header), .. }) = check(&v2(0x21, 0x21, &v6)) else {
        panic!("a header")
    };
    assert_eq!((header.source.text.as_str(), header.source.port), ("2001::1", 80));
    assert_eq!(header.destination.text, "::2");
    assert!(header.tlvs.is_empty());

    for (command, family) in [(0x20, 0x11), (0x22, 0x11), (0x21, 0x12), (0x21, 0x31), (0x21, 0)] {
        let buf = v2(command, family, &v4);
        let want = Parsed::Done { len: buf.len(), header: None };
        assert_eq!(check(&buf), Ok(want), "{command:x} {family:x}");
    }
    assert_eq!(check(&v2(0x11, 0x11, &v4)), Err(ProxyError::Version(1)));
    assert_eq!(check(&v2(0x21, 0x11, &v4[..11])), Err(ProxyError::Broken));
    assert_eq!(check(&v2(0x21, 0x21, &v6[..35])), Err(ProxyError::Broken));
    assert_eq!(check(&v2(0x21, 0x11, &[0; HEADER_MAX - V2_FIXED + 1])), Err(ProxyError::TooLarge));
    assert!(check(&v2(0x21, 0x11, &[0; HEADER_MAX - V2_FIXED])).is_ok());
}

#[test]
fn tlvs_by_name() {
    let ssl = [&[1, 0, 0, 0, 255][..], &[0x21, 0, 7], b"TLSv1.2", &[0x22, 0, 0]].concat();
    let tlvs =
        [&[1, 0, 2][..], b"h2", &[0x20, 0, ssl.len() as u8], &ssl, &[0xae, 0, 1, 9]].concat();
    let find = |name: &str| {
        TlvName::parse(name.as_bytes()).map(|name| find_tlv(&tlvs, name).expect("sound TLVs"))
    };
    assert_eq!(find("alpn"), Some(Some(b"h2".to_vec())));
    assert_eq!(find("0x1"), Some(Some(b"h2".to_vec())));
    assert_eq!(find("0x000ae"), Some(Some(vec![9])));
    assert_eq!(find("ssl"), Some(Some(ssl.clone())));
    assert_eq!(find("ssl_version"), Some(Some(b"TLSv1.2".to_vec())));
    assert_eq!(find("ssl_0x21"), Some(Some(b"TLSv1.2".to_vec())));
    assert_eq!(find("ssl_cn"), Some(Some(Vec::new())));
    assert_eq!(find("ssl_verify"), Some(Some(b"255".to_vec())));
    assert_eq!(find("authority"), Some(None));
    assert_eq!(find("0x101"), Some(None));
    assert_eq!(find("ssl_cipher"), Some(None));
    for unknown in ["", "0x", "0xg", "verify", "cn", "ssl_alpn", "ssl_", "x"] {
        assert_eq!(find(unknown), None, "{unknown}");
    }
    for broken in [&[1][..], &[1, 0], &[1, 0, 1], &[0x20, 0, 4, 1, 2, 3, 4]] {
        assert_eq!(find_tlv(broken, TlvName::SslVerify), Err(BrokenTlv), "{broken:?}");
    }
}

#[test]
fn what_is_written_reads_back() {
    let addr = |text: &str| Some(text.parse().expect("an address"));
    for (source, destination, v1_text, v2_text) in [
        ("192.0.2.1:1", "192.0.2.2:2", "192.0.2.1 1 192.0.2.2 2", "192.0.2.1 1 192.0.2.2 2"),
        ("[2001::1]:1", "[::1]:2", "2001::1 1 ::1 2", "2001::1 1 ::1 2"),
        ("192.0.2.1:1", "[::1]:2", "192.0.2.1 1 ::1 2", "::ffff:192.0.2.1 1 ::1 2"),
        (
            "[::ffff:1.2.3.4]:1",
            "[::ffff:5.6.7.8]:2",
            "::ffff:1.2.3.4 1 ::ffff:5.6.7.8 2",
            "1.2.3.4 1 5.6.7.8 2",
        ),
    ] {
        let (mut one, mut two) = (Vec::new(), b"kept".to_vec());
        write_v1(addr(source), addr(destination), &mut one);
        assert_eq!(v1(&String::from_utf8_lossy(&one)), Ok((one.len(), Some(v1_text.to_owned()))));

        let tlv = Tlv { kind: 2, value: b"example.com" };
        assert!(write_v2(addr(source), addr(destination), false, &[tlv], &mut two));
        let two = two.strip_prefix(b"kept").expect("the prefix");
        let Ok(Parsed::Done { len, header: Some(header) }) = check(two) else { panic!("a header") };
        assert_eq!(len, two.len());
        let (s, d) = (&header.source, &header.destination);
        assert_eq!(format!("{} {} {} {}", s.text, s.port, d.text, d.port), v2_text);
        assert_eq!(find_tlv(&header.tlvs, TlvName::Top(2)), Ok(Some(b"example.com".to_vec())));
        let sum = find_tlv(&header.tlvs, TlvName::Top(3)).expect("sound").expect("a sum");
        let mut zeroed = two.to_vec();
        zeroed[len - 4..].fill(0);
        assert_eq!(sum, crc32c(&zeroed).to_be_bytes());
    }
    let mut out = Vec::new();
    write_v1(None, addr("1.1.1.1:1"), &mut out);
    assert_eq!(out, b"PROXY UNKNOWN\r\n");
    out.clear();
    assert!(write_v2(None, None, false, &[], &mut out));
    assert_eq!(check(&out), Ok(Parsed::Done { len: out.len(), header: None }));
    out.clear();
    let big = [0; 65535];
    assert!(!write_v2(None, None, false, &[Tlv { kind: 1, value: &big }], &mut out));
    assert!(out.is_empty());
}

#[test]
fn crc32c_check_value() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}
