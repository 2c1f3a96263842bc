use super::*;
use crate::x509::Certificate;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED,
    RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;

const KINDS: [(KeyKind, &str, &dyn VerificationAlgorithm); 4] = [
    (KeyKind::Ecdsa(256), "ES256", &ECDSA_P256_SHA256_FIXED),
    (KeyKind::Ecdsa(384), "ES384", &ECDSA_P384_SHA384_FIXED),
    (KeyKind::Ecdsa(521), "ES512", &ECDSA_P521_SHA512_FIXED),
    (KeyKind::Rsa(2048), "RS256", &RSA_PKCS1_2048_8192_SHA256),
];

fn public(key: &Key) -> Vec<u8> {
    match &key.pair {
        Pair::Ecdsa(pair, _) => pair.public_key().as_ref().to_vec(),
        Pair::Rsa(pair) => pair.public_key().as_ref().to_vec(),
    }
}

#[test]
fn keys_are_written_and_read_and_sign() {
    for (kind, name, algorithm) in KINDS {
        let key = Key::generate(kind).unwrap();
        assert_eq!((key.kind(), key.algorithm()), (kind, name));
        let text = key.to_pem();
        assert!(text.starts_with(b"-----BEGIN PRIVATE KEY-----\n"));
        let again = Key::from_pem(&text).unwrap();
        assert_eq!((again.jwk(), &*again.to_pem()), (key.jwk(), &*text));
        let signature = again.sign(b"message").unwrap();
        let public = UnparsedPublicKey::new(algorithm, public(&key));
        assert!(public.verify(b"message", &signature).is_ok(), "{name}");
        assert!(public.verify(b"messagf", &signature).is_err(), "{name}");
    }
    assert!(Key::generate(KeyKind::Ecdsa(224)).is_err());
    assert!(Key::generate(KeyKind::Rsa(1024)).is_err());
    assert!(Key::from_pem(b"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n").is_err());
}

/// The coordinates of RFC 7515 appendix A.3: a JWK has to be exact to the byte.
#[test]
fn the_key_of_the_standard_in_json() {
    let scalar = "8E9B109E719098BF980487DF1F5D77E9CB29606EBED2263B5F57C213DF84F4B2";
    let mut der = base::ascii::parse_hex(b"30310201010420").unwrap();
    der.extend(base::ascii::parse_hex(scalar.as_bytes()).unwrap());
    der.extend(base::ascii::parse_hex(b"A00A06082A8648CE3D030107").unwrap());
    let key = Key::from_der(&der).unwrap();
    let want = r#"{"crv":"P-256","kty":"EC","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;
    assert_eq!(key.jwk(), want);
    let text = key.to_pem();
    assert!(text.starts_with(b"-----BEGIN EC PRIVATE KEY-----\n"));
    assert_eq!(Key::from_pem(&text).unwrap().jwk(), want);
}

#[test]
fn requests_have_the_names() {
    let names = [
        Identifier::Ip([192, 0, 2, 1].into()),
        Identifier::Dns("a.test".into()),
        Identifier::Dns("*.b.test".into()),
    ];
    for (kind, ..) in KINDS {
        let key = Key::generate(kind).unwrap();
        let der = key.request(&names, false).unwrap();
        for part in [&b"a.test"[..], b"*.b.test", &[192, 0, 2, 1]] {
            assert!(der.windows(part.len()).any(|window| window == part));
        }
        let named = key.request(&names, true).unwrap();
        let count = |der: &[u8]| der.windows(6).filter(|window| window == b"a.test").count();
        assert_eq!((count(&der), count(&named)), (1, 2));
    }
    let key = Key::generate(KeyKind::Ecdsa(256)).unwrap();
    assert!(key.request(&[Identifier::Dns("\u{e4}".into())], false).is_err());
}

#[test]
fn certificates_of_challenges_have_the_hash_and_one_name() {
    let key = Key::generate(KeyKind::Ecdsa(256)).unwrap();
    for name in ["a.test", "192.0.2.1", "2001:db8::1"] {
        let name = Identifier::parse(name.as_bytes()).unwrap().remove(0);
        let text = key.challenge_certificate(&name, "token.print").unwrap();
        let chain = crate::pem::certificates(&text).unwrap();
        let certificate = Certificate::parse(chain[0].clone().into()).unwrap();
        assert!(covers(&certificate, std::slice::from_ref(&name)));
        // A host that is an address is one of the addresses, and no name.
        let (by_address, by_name) = (crate::verify::check_address, crate::verify::check_host);
        let is_address = matches!(name, Identifier::Ip(_));
        let host = name.value();
        assert_eq!(by_address(&certificate, host.as_bytes()), is_address);
        assert_eq!(by_address(&certificate, format!("[{host}]").as_bytes()), is_address);
        assert_eq!(by_name(&certificate, host.as_bytes()), !is_address);
        assert!(!by_address(&certificate, b"192.0.2.2") && !by_address(&certificate, b"::"));
        assert!(!covers(&certificate, &[name, Identifier::Dns("b.test".into())]));
        // id-pe-acmeIdentifier, critical, an OCTET STRING within the extension's.
        let mut want = base::ascii::parse_hex(b"06082B0601050507011F0101FF04220420").unwrap();
        want.extend(sha256(b"token.print"));
        assert!(chain[0].windows(want.len()).any(|window| window == want));
        let pem = key.to_pem();
        let own = crate::pem::private_key(&pem, &Passwords::none()).unwrap();
        let own = any_supported_type(&PrivateKeyDer::try_from(own.der()).unwrap()).unwrap();
        assert_eq!(certificate.public_key().der(), own.public_key().unwrap().as_ref());
    }
}

#[test]
fn macs_are_the_standard_s() {
    // RFC 4231 section 4.3.
    let mac = hmac_sha256(b"Jefe", b"what do ya want for nothing?");
    let want = b"5BDCC146BF60754E6A042426089575C75A003F089D2739839DEC58B964EC3843";
    assert_eq!(Some(mac), base::ascii::parse_hex(want));
    assert_ne!(random(), random());
}
