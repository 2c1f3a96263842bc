use super::handshake::{SCHEMES, Version, is_scheme_for, verify_handshake_signature};
use super::*;
use aws_lc_rs::signature as aws;
use testkit::certificates::{Draft, Extension, Key, KeyKind, ListDraft, der as write};

/// Its variables were printed by nginx 1.22 with OpenSSL 3.0.
const SHOWN: &str = "-----BEGIN CERTIFICATE-----
MIIBETCBuKADAgECAgJ/BTAKBggqhkjOPQQDAjAMMQowCAYDVQQDDAF4MB4XDTIw
MDEwMTAwMDAwMFoXDTQwMDEwMTAwMDAwMFowGDEWMBQGA1UEAwwNc8O8w58g4oKs
8J+YgDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABOetLY4OY9ResPyOCDxy+cmM
GjB9zFrVTHFFBOBBw+3wIPlpT9Ad6nt7+ixZP2f26bFbhsfKeY0mwZIaSw9aboIw
CgYIKoZIzj0EAwIDSAAwRQIgZ/pdrrOLXQF+0nAW+UdABe8okHsUgR1SSVQWYq/r
0NYCIQDxkJ+hvoPEseYAPrITQmB+jHUd+8gfjXr3Mep+BxZ1qQ==
-----END CERTIFICATE-----
";

fn parse(der: &[u8]) -> Result<Certificate, Malformed> {
    Certificate::parse(Bytes::copy_from_slice(der))
}

#[test]
fn variables_of_nginx() {
    let bundle = pem::read(SHOWN.as_bytes()).unwrap();
    let [certificate] = &bundle.certificates[..] else { panic!("one certificate") };
    assert_eq!(certificate.serial_text(), "7F05");
    assert_eq!(certificate.fingerprint(), "cb0fe7fd20be101e3d057de93cba2c2c0e7f96d1");
    assert_eq!(certificate.not_before().to_string(), "Jan  1 00:00:00 2020 GMT");
    assert_eq!(certificate.not_after().to_string(), "Jan  1 00:00:00 2040 GMT");
    // 22 November 2026, 17:28:31
    assert_eq!(certificate.days_left(1_795_368_511), Some(4_787));
    assert_eq!(certificate.days_left(2_208_988_800), Some(0));
    assert_eq!(certificate.days_left(3_000_000_000), Some(0));
    assert_eq!(certificate.pem(), SHOWN.as_bytes());
    let header = String::from_utf8(certificate.pem_for_header()).unwrap();
    assert_eq!(header, SHOWN.trim_end().replace('\n', "\n\t"));
    let escaped = String::from_utf8(certificate.pem_escaped()).unwrap();
    assert!(escaped.starts_with("-----BEGIN%20CERTIFICATE-----%0AMIIBETCBuKADAgECAgJ%2FBTAKBgg"));
    assert!(escaped.ends_with("%3D%3D%0A-----END%20CERTIFICATE-----%0A"));
}

#[test]
fn days_left_at_the_end_of_time() {
    let key = Key::generate(KeyKind::P256);
    let validity = ("500101000000Z".to_owned(), "500101000000Z".to_owned());
    let draft = Draft { validity, ..Draft::new("CN=a", "CN=a", &key) };
    let certificate = parse(&draft.sign(&key)).unwrap();
    assert_eq!(certificate.days_left(i64::MAX), Some(0));
}

#[test]
fn serial_numbers() {
    let key = Key::generate(KeyKind::P256);
    let text = |serial: &[u8]| {
        let draft = Draft { serial: serial.to_vec(), ..Draft::new("CN=a", "CN=a", &key) };
        parse(&draft.sign(&key)).map(|c| c.serial_text())
    };
    assert_eq!(text(&[0]).unwrap(), "00");
    assert_eq!(text(&[0x0a]).unwrap(), "0A");
    assert_eq!(text(&[0, 0xff, 1]).unwrap(), "FF01");
    // Negative ones are printed so by OpenSSL.
    assert_eq!(text(&[0xff]).unwrap(), "-01");
    assert_eq!(text(&[0x80, 0]).unwrap(), "-8000");
    assert!(text(&[]).is_err() && text(&[0, 1]).is_err());
}

#[test]
fn fields_and_extensions() {
    let key = Key::generate(KeyKind::P384);
    let uri = write::element(0x86, b"http://ocsp.example/");
    let other = write::sequence(&[&write::oid("1.3.6.1.5.5.7.48.2"), &uri]);
    let ocsp = write::sequence(&[&write::oid("1.3.6.1.5.5.7.48.1"), &uri]);
    let draft = Draft::new("CN=leaf", "CN=ca", &key)
        .with(Extension::basic(true, Some(3)).critical())
        .with(Extension::key_usage(0x86))
        .with(Extension::extended(&["1.3.6.1.5.5.7.3.2", "1.3.6.1.5.5.7.3.9"]))
        .with(Extension::alt_names(&[(0x82, b"a.example"), (0x87, &[127, 0, 0, 1])]))
        .with(Extension::subject_key_id(b"id"))
        .with(Extension::authority_key_id(b"ca id"))
        .with(Extension::new("1.3.6.1.5.5.7.1.1", write::sequence(&[&other, &ocsp])))
        .with(Extension::new("1.3.6.1.5.5.7.1.24", write::sequence(&[&[2, 1, 5]])));
    let c = parse(&draft.sign(&key)).unwrap();
    assert_eq!((c.version(), c.public_key().kind()), (3, Kind::P384));
    assert_eq!(c.public_key().bits(), key.bits());
    assert_eq!(c.public_key().der(), key.spki());
    assert_eq!(c.dns_names().collect::<Vec<_>>(), [b"a.example"]);
    assert_eq!(c.ocsp_responders().collect::<Vec<_>>(), [b"http://ocsp.example/"]);
    assert!(c.must_staple() && c.may_sign_ocsp());
    let e = c.extensions();
    assert!(!e.invalid && !e.unhandled_critical);
    let basic = e.basic.unwrap();
    assert!(basic.ca && basic.path_length == Some(3));
    assert_eq!((e.key_usage, e.extended.unwrap().client), (Some(0x86), true));
    assert_eq!(e.subject_key_id.as_deref(), Some(&b"id"[..]));
    let authority = e.authority_key_id.as_ref().unwrap();
    assert_eq!(authority.key_id.as_deref(), Some(&b"ca id"[..]));
}

#[test]
fn bad_extensions_make_a_certificate_invalid() {
    let key = Key::generate(KeyKind::P256);
    let read = |extensions: Vec<Extension>| {
        let draft = Draft { extensions, ..Draft::new("CN=a", "CN=a", &key) };
        let c = parse(&draft.sign(&key)).unwrap();
        (c.extensions().invalid, c.extensions().unhandled_critical)
    };
    let basic = Extension::basic(true, None);
    assert_eq!(read(vec![basic.clone()]), (false, false));
    assert_eq!(read(vec![basic.clone(), basic]), (true, false), "twice");
    assert_eq!(read(vec![Extension::key_usage(0)]), (true, false), "empty key usage");
    let negative = write::sequence(&[&[1, 1, 0xff], &[2, 1, 0x80]]);
    assert_eq!(read(vec![Extension::new("2.5.29.19", negative)]), (true, false));
    let left_over = [write::sequence(&[]), vec![0]].concat();
    assert_eq!(read(vec![Extension::new("2.5.29.19", left_over)]), (true, false));
    assert_eq!(read(vec![Extension::new("2.5.29.17", vec![1])]), (true, false));
    let unknown = Extension::new("1.2.3", vec![1]);
    assert_eq!(read(vec![unknown.clone(), unknown.clone()]), (false, false));
    assert_eq!(read(vec![unknown.critical()]), (false, true));
    assert_eq!(read(vec![Extension::subject_key_id(b"a").critical()]), (false, true));
    let policy = write::sequence(&[&write::oid("1.3.6.1.5.5.7.21.1")]);
    let proxy = Extension::new("1.3.6.1.5.5.7.1.14", write::sequence(&[&policy]));
    let empty = Extension::new("1.3.6.1.5.5.7.1.14", write::sequence(&[]));
    assert_eq!(read(vec![empty]), (true, false));
    assert_eq!(read(vec![proxy.clone()]), (false, false));
    assert_eq!(read(vec![proxy.clone(), Extension::basic(true, None)]), (true, false));
    let names = Extension::alt_names(&[(0x82, b"a.example")]);
    assert_eq!(read(vec![proxy.clone(), names]), (true, false));
    let issuer = Extension::new("2.5.29.18", write::sequence(&[]));
    assert_eq!(read(vec![issuer, proxy]), (true, false));
}

/// A certificate of the size of a handshake's message costs little however it is filled.
#[test]
fn many_extensions_and_many_points() {
    let key = Key::generate(KeyKind::P256);
    let read = |extensions: Vec<Extension>| {
        let part = Draft { extensions, ..Draft::new("CN=a", "CN=a", &key) };
        parse(&part.sign(&key)).unwrap().extensions().invalid
    };
    let unknown = Extension::new("1.2", vec![]);
    assert!(!read(vec![unknown; 7_000]));
    let points = |n| {
        let name = write::attribute("2.5.4.3", 0x0c, b"a");
        let name = write::element(0xa0, &write::element(0xa1, &name));
        Extension::new("2.5.29.31", write::element(0x30, &write::sequence(&[&name]).repeat(n)))
    };
    assert!(!read(vec![points(64)]));
    assert!(read(vec![points(65)]));
}

#[test]
fn old_versions_and_unknown_ones() {
    let key = Key::generate(KeyKind::P256);
    let version = |version| {
        let draft = Draft { version, ..Draft::new("CN=a", "CN=a", &key) };
        parse(&draft.sign(&key)).map(|c| c.version())
    };
    assert_eq!((version(1), version(2), version(3)), (Ok(1), Ok(2), Ok(3)));
    assert!(version(4).is_err());
}

/// OpenSSL refuses them too; some parsers pass over them.
#[test]
fn bytes_left_over_are_refused() {
    let key = Key::generate(KeyKind::P256);
    let algorithm = key.algorithm();
    let whole = Draft::new("CN=a", "CN=a", &key).to_be_signed(&algorithm);
    let content = Reader::whole(&whole, tag::SEQUENCE).unwrap();
    let longer = write::sequence(&[content, &[5, 0]]);
    let outer = |signed: &[u8], more: &[u8]| {
        write::sequence(&[signed, &algorithm, &write::bits(&key.sign(signed)), more])
    };
    assert!(parse(&outer(&whole, &[])).is_ok());
    assert!(parse(&outer(&longer, &[])).is_err());
    assert!(parse(&outer(&whole, &[5, 0])).is_err());
    let after = [outer(&whole, &[]), vec![0]].concat();
    assert!(parse(&after).is_err());
    for end in 0..whole.len() {
        assert!(parse(&whole[..end]).is_err());
    }
}

#[test]
fn signatures_of_certificates() {
    use KeyKind::*;
    let keys = [Rsa, P256, P384, P521, Ed25519].map(Key::generate);
    for key in &keys {
        let der = Draft::new("CN=a", "CN=a", key).sign(key);
        let certificate = parse(&der).unwrap();
        assert!(certificate.is_self_signed());
        for other in &keys {
            let draft = parse(&Draft::new("CN=b", "CN=b", other).sign(other)).unwrap();
            let signed = certificate.is_signed_by(draft.public_key());
            assert_eq!(signed, std::ptr::eq(key, other), "{:?} {:?}", key.kind(), other.kind());
        }
        let mut flipped = der;
        let end = flipped.len() - 1;
        flipped[end] ^= 1;
        let flipped = parse(&flipped).unwrap();
        assert!(!flipped.is_signed_by(certificate.public_key()));
    }
}

fn rsa_signed(key: &Key, algorithm: &[u8], encoding: &'static dyn aws::RsaEncoding) -> bool {
    let part = Draft::new("CN=a", "CN=a", key).to_be_signed(algorithm);
    let signature = key.sign_rsa(encoding, &part).unwrap();
    let der = write::sequence(&[&part, algorithm, &write::bits(&signature)]);
    let certificate = parse(&der).unwrap();
    certificate.is_signed_by(certificate.public_key())
}

fn pss(hash: &str, mask: &str, salt: u8) -> Vec<u8> {
    let hash = write::sequence(&[&write::oid(hash), &[5, 0]]);
    let mask = write::sequence(&[&write::oid(mask), &[5, 0]]);
    let mask = write::sequence(&[&write::oid("1.2.840.113549.1.1.8"), &mask]);
    let parameters = write::sequence(&[
        &write::element(0xa0, &hash),
        &write::element(0xa1, &mask),
        &write::element(0xa2, &[2, 1, salt]),
    ]);
    write::sequence(&[&write::oid("1.2.840.113549.1.1.10"), &parameters])
}

#[test]
fn paddings_of_rsa() {
    let key = Key::generate(KeyKind::Rsa);
    let (sha256, sha384) = ("2.16.840.1.101.3.4.2.1", "2.16.840.1.101.3.4.2.2");
    let pkcs1 = |last| {
        let oid = format!("1.2.840.113549.1.1.{last}");
        write::sequence(&[&write::oid(&oid), &[5, 0]])
    };
    assert!(rsa_signed(&key, &pkcs1(12), &aws::RSA_PKCS1_SHA384));
    assert!(rsa_signed(&key, &pkcs1(13), &aws::RSA_PKCS1_SHA512));
    assert!(!rsa_signed(&key, &pkcs1(11), &aws::RSA_PKCS1_SHA512));
    assert!(rsa_signed(&key, &pss(sha256, sha256, 32), &aws::RSA_PSS_SHA256));
    assert!(rsa_signed(&key, &pss(sha384, sha384, 48), &aws::RSA_PSS_SHA384));
    assert!(!rsa_signed(&key, &pss(sha256, sha256, 20), &aws::RSA_PSS_SHA256));
    assert!(!rsa_signed(&key, &pss(sha256, sha384, 32), &aws::RSA_PSS_SHA256));
    assert!(!rsa_signed(&key, &pkcs1(11), &aws::RSA_PSS_SHA256));
}

#[test]
fn algorithms_inside_and_outside_are_one() {
    let key = Key::generate(KeyKind::Rsa);
    let inside = write::sequence(&[&write::oid("1.2.840.113549.1.1.12"), &[5, 0]]);
    let part = Draft::new("CN=a", "CN=a", &key).to_be_signed(&inside);
    let der = testkit::certificates::signed(&part, &key);
    let certificate = parse(&der).unwrap();
    assert!(!certificate.is_signed_by(certificate.public_key()));
}

#[test]
fn handshakes() {
    use Version::{Tls12, Tls13};
    let message = b"transcript";
    let of = |kind| {
        let key = Key::generate(kind);
        let certificate =
            parse(&Draft { version: 1, ..Draft::new("CN=a", "CN=a", &key) }.sign(&key)).unwrap();
        (key, certificate)
    };
    let allowed = |certificate: &Certificate, signature: &[u8], version| {
        SCHEMES
            .into_iter()
            .filter(|scheme| {
                verify_handshake_signature(certificate, version, *scheme, message, signature)
            })
            .collect::<Vec<_>>()
    };
    let (key, c) = of(KeyKind::P256);
    let signature = key.sign(message);
    assert_eq!(allowed(&c, &signature, Tls13), [0x0403]);
    assert_eq!(allowed(&c, &signature, Tls12), [0x0403]);
    let (key, c) = of(KeyKind::P384);
    assert_eq!(allowed(&c, &key.sign(message), Tls13), [0x0503]);
    let (key, c) = of(KeyKind::P521);
    assert_eq!(allowed(&c, &key.sign(message), Tls13), [0x0603]);
    let (key, c) = of(KeyKind::Ed25519);
    assert_eq!(allowed(&c, &key.sign(message), Tls12), [0x0807]);
    let (key, c) = of(KeyKind::Rsa);
    let pkcs1 = key.sign(message);
    assert_eq!(allowed(&c, &pkcs1, Tls12), [0x0401]);
    assert!(allowed(&c, &pkcs1, Tls13).is_empty(), "PKCS #1 is not for handshakes of TLS 1.3");
    // Such a scheme is a fault of its own, not a bad signature.
    assert!(!is_scheme_for(&c, Tls13, 0x0401) && is_scheme_for(&c, Tls12, 0x0401));
    assert!(!is_scheme_for(&c, Tls12, 0x0403) && !is_scheme_for(&c, Tls12, 0x0809));
    let pss = key.sign_rsa(&aws::RSA_PSS_SHA512, message).unwrap();
    assert_eq!(allowed(&c, &pss, Tls13), [0x0806]);
    assert_eq!(allowed(&c, &pss, Tls12), [0x0806]);
    assert!(!verify_handshake_signature(&c, Tls12, 0x0201, message, &pkcs1));
    assert!(!verify_handshake_signature(&c, Tls12, 0x0401, b"other", &pkcs1));
}

/// TLS 1.3 binds curve and hash, TLS 1.2 does not.
#[test]
fn curve_and_hash() {
    let rng = aws_lc_rs::rand::SystemRandom::new();
    let pair = aws::EcdsaKeyPair::generate(&aws::ECDSA_P521_SHA256_ASN1_SIGNING).unwrap();
    let point = aws::KeyPair::public_key(&pair).as_ref().to_vec();
    let p521 = Key::generate(KeyKind::P521);
    let curve = write::sequence(&[&write::oid("1.2.840.10045.2.1"), &write::oid("1.3.132.0.35")]);
    let spki = write::sequence(&[&curve, &write::bits(&point)]);
    let draft = Draft { spki, ..Draft::new("CN=a", "CN=a", &p521) };
    let certificate = parse(&draft.sign(&p521)).unwrap();
    let signature = pair.sign(&rng, b"m").unwrap();
    let scheme = 0x0403;
    let check = |version| {
        verify_handshake_signature(&certificate, version, scheme, b"m", signature.as_ref())
    };
    assert!(check(Version::Tls12));
    assert!(!check(Version::Tls13));
}

#[test]
fn keys_of_no_use() {
    let key = Key::generate(KeyKind::P256);
    let kind = |algorithm: &[u8], bits: &[u8]| {
        let spki = write::sequence(&[algorithm, &write::bits(bits)]);
        parse(&Draft { spki, ..Draft::new("CN=a", "CN=a", &key) }.sign(&key))
            .unwrap()
            .public_key()
            .kind()
    };
    let ec = |curve| write::sequence(&[&write::oid("1.2.840.10045.2.1"), &write::oid(curve)]);
    assert_eq!(kind(&ec("1.2.840.10045.3.1.7"), &key.bits()), Kind::P256);
    assert_eq!(kind(&ec("1.3.132.0.34"), &key.bits()), Kind::Unknown, "a point of another curve");
    assert_eq!(kind(&ec("1.3.132.0.10"), &key.bits()), Kind::Unknown, "secp256k1");
    assert_eq!(kind(&ec("1.2.840.10045.3.1.7"), &[4; 65]), Kind::Unknown, "not on the curve");
    let rsa = write::sequence(&[&write::oid("1.2.840.113549.1.1.1"), &[5, 0]]);
    let modulus = |n: &[u8]| write::sequence(&[&write::element(2, n), &[2, 3, 1, 0, 1]]);
    assert_eq!(kind(&rsa, &modulus(&[0x7f, 0xff])), Kind::Rsa(15));
    assert_eq!(kind(&rsa, &modulus(&[0, 0x80])), Kind::Rsa(8));
    assert_eq!(kind(&rsa, &modulus(&[0x80])), Kind::Unknown, "negative");
    assert_eq!(kind(&rsa, b"\x30\x80"), Kind::Unknown);
}

#[test]
fn files() {
    let key = Key::generate(KeyKind::P256);
    let certificate = Draft::new("CN=a", "CN=a", &key).sign(&key);
    let list = ListDraft::new("CN=a").revoking(&[5]).sign(&key);
    let text = format!(
        "text before\n{}{}{}junk\n",
        write::pem("CERTIFICATE", &certificate).replace('\n', "\r\n"),
        write::pem("PRIVATE KEY", b"passed over"),
        write::pem("X509 CRL", &list),
    );
    let bundle = pem::read(text.as_bytes()).unwrap();
    assert_eq!((bundle.certificates.len(), bundle.lists.len()), (1, 1));
    assert_eq!(&bundle.certificates[0].der()[..], certificate);
    let reason = |text: &str| pem::read(text.as_bytes()).unwrap_err().to_string();
    let bad = write::pem("CERTIFICATE", b"x");
    assert_eq!(reason(&(text + &bad)), "PEM block 4: truncated element");
    assert_eq!(
        reason("-----BEGIN CERTIFICATE-----\nAA"),
        "PEM block 1: error:04800066:PEM routines::bad end line"
    );
    // OpenSSL's own form, whose settings may be missing.
    for settings in [&b""[..], &[0x30, 0]] {
        let both = [&certificate[..], settings].concat();
        let bundle = pem::read(write::pem("TRUSTED CERTIFICATE", &both).as_bytes()).unwrap();
        assert_eq!(&bundle.certificates[0].der()[..], certificate);
        assert_eq!(bundle.settings, [(0, TrustSettings::default())]);
    }
    let bad = write::pem("TRUSTED CERTIFICATE", &[&certificate[..], &[0x31, 0]].concat());
    assert_eq!(reason(&bad), "PEM block 1: unexpected tag");
    for garbage in ["A", "A===", "AA=A", "AAAA====", "A-AA"] {
        let text = format!("-----BEGIN CERTIFICATE-----\n{garbage}\n-----END CERTIFICATE-----\n");
        let bad = "PEM block 1: error:04800064:PEM routines::bad base64 decode";
        assert_eq!(reason(&text), bad, "{garbage}");
    }
}

#[test]
fn revocation_lists() {
    let key = Key::generate(KeyKind::P256);
    let parse = |draft: &ListDraft| RevocationList::parse(Bytes::from(draft.sign(&key)));
    let reason = |code| vec![Extension::new("2.5.29.21", vec![0x0a, 1, code])];
    let mut draft = ListDraft::new("CN=a").revoking(&[9]).revoking(&[3]);
    draft.revoked.push((vec![4], reason(1)));
    draft.revoked.push((vec![5], reason(8)));
    let list = parse(&draft).unwrap();
    assert_eq!([3, 4, 5, 9, 2].map(|n| list.revokes(&[n])), [true, true, false, true, false]);
    assert_eq!(list.issuer().rfc2253(), "CN=a");
    assert_eq!(list.this_update().to_string(), "Jan  1 00:00:00 2020 GMT");
    assert!(list.next_update().is_some() && !list.has_unhandled_critical());
    let own = super::tests::parse(&Draft::new("CN=a", "CN=a", &key).sign(&key)).unwrap();
    assert!(list.is_signed_by(own.public_key()));

    let with = |extension: Extension| {
        parse(&ListDraft { extensions: vec![extension], ..ListDraft::new("CN=a") })
    };
    assert!(with(Extension::new("2.5.29.27", vec![2, 1, 1]).critical()).is_err(), "a delta list");
    let indirect = write::sequence(&[&[0x84, 1, 0xff]]);
    assert!(with(Extension::new("2.5.29.28", indirect).critical()).unwrap().scope().partial);
    let unknown = with(Extension::new("1.2.3", vec![]).critical()).unwrap();
    assert!(unknown.has_unhandled_critical());
    let opposite = write::sequence(&[&[0x81, 1, 0xff], &[0x82, 1, 0xff]]);
    assert!(with(Extension::new("2.5.29.28", opposite)).is_err());
    let mut foreign = ListDraft::new("CN=a");
    foreign.revoked.push((vec![1], vec![Extension::new("2.5.29.29", write::sequence(&[]))]));
    assert!(parse(&foreign).unwrap().revokes(&[1]), "an entry of another issuer");
    let none = ListDraft { next_update: None, ..ListDraft::new("CN=a") };
    assert!(parse(&none).unwrap().next_update().is_none());
}

/// The bundle that systems have: every root in it can be read, and is a root.
#[test]
fn the_systems_roots() {
    let Ok(text) = std::fs::read("/etc/ssl/certs/ca-certificates.crt") else { return };
    let bundle = pem::read(&text).unwrap();
    assert!(bundle.certificates.len() > 50);
    for root in &bundle.certificates {
        let name = root.subject().rfc2253();
        assert!(root.is_self_signed() && !root.extensions().invalid, "{name}");
        assert!(root.public_key().security_bits() >= 112, "{name}");
    }
}
