//! The expected texts are those of OpenSSL 3.0 (`openssl x509 -nameopt RFC2253`) and of nginx
//! (`$ssl_client_s_dn_legacy`) for the same names.

use super::*;
use testkit::certificates::der as write;

fn parse(der: &[u8]) -> Result<Name, Malformed> {
    let der = Bytes::copy_from_slice(der);
    Name::parse(&der, &der)
}

/// The names of the texts, in order.
fn odd() -> Vec<Vec<u8>> {
    let one =
        |oid: &str, tag, value: &[u8]| write::element(0x31, &write::attribute(oid, tag, value));
    let seq = |rdns: &[Vec<u8>]| write::element(0x30, &rdns.concat());
    const CN: &str = "2.5.4.3";
    const O: &str = "2.5.4.10";
    vec![
        write::name("C=RU/O=a, b+c/CN=x"),
        seq(&[one(CN, 0x0c, b" lead and trail ")]),
        seq(&[one(CN, 0x0c, b"#hash#")]),
        seq(&[one(CN, 0x0c, b"#")]),
        seq(&[one(CN, 0x0c, b" ")]),
        seq(&[one(CN, 0x0c, "süß €😀".as_bytes())]),
        seq(&[one(CN, 0x14, b"s\xfc\xdf")]),
        seq(&[one(CN, 0x1e, b"\x00a\x20\xac\x00\xfc")]),
        seq(&[one(CN, 0x1c, b"\x00\x01\xf6\x00\x00\x00\x00z")]),
        seq(&[one(CN, 0x0c, b"q\"u\\o;t<e>=/\x01\x7f\n")]),
        seq(&[one("1.2.3.4.5", 0x0c, b"unknown")]),
        seq(&[one("2.999.18446744073709551615.1", 0x13, b"long")]),
        seq(&[one(CN, 0x03, b"\x00\xde\xad")]),
        seq(&[one("2.5.4.45", 0x03, b"\x04\xde\xa0")]),
        seq(&[one("2.5.4.16", 0x30, &write::element(0x0c, b"street"))]),
        seq(&[
            one(O, 0x13, b"first"),
            write::element(
                0x31,
                &[write::attribute(CN, 0x0c, b"b"), write::attribute("2.5.4.11", 0x0c, b"a")]
                    .concat(),
            ),
            one("1.2.840.113549.1.9.1", 0x16, b"a@b"),
            one("0.9.2342.19200300.100.1.1", 0x0c, b"uid"),
            one("2.5.4.5", 0x13, b"77"),
        ]),
        seq(&[one(CN, 0x12, b"12 34")]),
        seq(&[one(CN, 0x0c, b"")]),
        write::name(""),
    ]
}

const PRINTED: [(&str, &str); 19] = [
    (r#"CN=x,O=a\, b\+c,C=RU"#, r#"/C=RU/O=a, b\+c/CN=x"#),
    (r#"CN=\ lead and trail\ "#, r#"/CN= lead and trail "#),
    (r#"CN=\#hash#"#, r#"/CN=#hash#"#),
    (r#"CN=#"#, r#"/CN=#"#),
    (r#"CN=\ "#, r#"/CN= "#),
    (
        r#"CN=s\C3\BC\C3\9F \E2\82\AC\F0\9F\98\80"#,
        r#"/CN=s\xC3\xBC\xC3\x9F \xE2\x82\xAC\xF0\x9F\x98\x80"#,
    ),
    (r#"CN=s\C3\BC\C3\9F"#, r#"/CN=s\xFC\xDF"#),
    (r#"CN=a\E2\82\AC\C3\BC"#, r#"/CN=\x00a \xAC\x00\xFC"#),
    (r#"CN=\F0\9F\98\80z"#, r#"/CN=\x00\x01\xF6\x00\x00\x00\x00z"#),
    (r#"CN=q\"u\\o\;t\<e\>=/\01\7F\0A"#, r#"/CN=q"u\o;t<e>=\/\x01\x7F\x0A"#),
    (r#"1.2.3.4.5=#0C07756E6B6E6F776E"#, r#"/1.2.3.4.5=unknown"#),
    (r#"2.999.18446744073709551615.1=#13046C6F6E67"#, r#"/2.999.18446744073709551615.1=long"#),
    (r#"CN=#030300DEAD"#, r#"/CN=\xDE\xAD"#),
    (r#"x500UniqueIdentifier=#030304DEA0"#, r#"/x500UniqueIdentifier=\xDE\xA0"#),
    (r#"postalAddress=#30080C06737472656574"#, r#"/postalAddress=0\x08\x0C\x06street"#),
    (
        r#"serialNumber=77,UID=uid,emailAddress=a@b,OU=a+CN=b,O=first"#,
        r#"/O=first/CN=b+OU=a/emailAddress=a@b/UID=uid/serialNumber=77"#,
    ),
    (r#"CN=12 34"#, r#"/CN=12 34"#),
    (r#"CN="#, r#"/CN="#),
    (r#""#, r#""#),
];

#[test]
fn names_are_printed_as_openssl_and_nginx_print_them() {
    for (der, (rfc2253, one_line)) in odd().iter().zip(PRINTED) {
        let name = parse(der).unwrap();
        assert_eq!(name.rfc2253(), rfc2253);
        assert_eq!(name.one_line(), one_line);
    }
}

#[test]
fn names_are_compared_without_case_spaces_and_string_types() {
    let cn = |tag, value: &[u8]| {
        let rdn = write::element(0x31, &write::attribute("2.5.4.3", tag, value));
        parse(&write::element(0x30, &rdn)).unwrap()
    };
    let base = cn(0x0c, "a b \u{fc}".as_bytes());
    assert_eq!(base, cn(0x0c, "  A \t\n b  \u{fc} ".as_bytes()));
    assert_eq!(base, cn(0x14, b"a b \xfc"));
    assert_eq!(base, cn(0x1e, b"\0a\0 \0b\0 \0\xfc"));
    assert_ne!(base, cn(0x0c, "ab \u{fc}".as_bytes()));
    // Case is folded in ASCII alone.
    assert_ne!(base, cn(0x0c, "a b \u{dc}".as_bytes()));
    // A NumericString is compared as it stands.
    assert_ne!(cn(0x12, b"1"), cn(0x13, b"1"));
    assert_ne!(parse(&write::name("CN=a/O=b")).unwrap(), parse(&write::name("O=b/CN=a")).unwrap());
}

#[test]
fn attributes_of_one_rdn_have_no_order() {
    let pair = |first, second| {
        let one = write::attribute("2.5.4.3", 0x0c, first);
        let two = write::attribute("2.5.4.10", 0x0c, second);
        (one, two)
    };
    let (cn, o) = pair(b"a", b"b");
    let name = |content: &[u8]| parse(&write::element(0x30, &write::element(0x31, content)));
    assert_eq!(name(&[&cn[..], &o].concat()).unwrap(), name(&[&o[..], &cn].concat()).unwrap());
}

#[test]
fn malformed_names_are_refused() {
    let cn = |tag, value: &[u8]| {
        parse(&write::element(
            0x30,
            &write::element(0x31, &write::attribute("2.5.4.3", tag, value)),
        ))
    };
    assert!(cn(0x0c, b"\xff").is_err(), "no UTF-8");
    assert!(cn(0x1e, b"\0").is_err(), "half a character");
    assert!(cn(0x1e, b"\xd8\x00").is_err(), "half a pair");
    assert!(cn(0x1c, b"\0\x11\0\0").is_err(), "beyond Unicode");
    assert!(cn(0x02, b"\x01").is_err(), "an integer");
    assert!(parse(&write::element(0x30, &write::element(0x31, b""))).is_err(), "empty RDN");
    let mut left_over = write::name("CN=a");
    left_over.push(0);
    assert!(parse(&left_over).is_err());
}
