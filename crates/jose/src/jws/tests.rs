//! Signed tokens: what is accepted is in `crate::tests`, these are the rules of refusal.

use aws_lc_rs::hmac;

use crate::tests::{base64url, set};
use crate::{Error, KeySet, Limits, verify};

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

fn secret() -> KeySet {
    set(&format!(r#"{{"kty":"oct","k":"{}"}}"#, base64url(SECRET)))
}

/// A token with this header, signed with the secret.
fn token(header: &str) -> Vec<u8> {
    let mut token = format!("{}.{}", base64url(header.as_bytes()), base64url(b"{}"));
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    let signature = hmac::sign(&key, token.as_bytes());
    token += &format!(".{}", base64url(signature.as_ref()));
    token.into_bytes()
}

fn checked(header: &str) -> Result<(), Error> {
    verify(&token(header), &secret(), Limits::default()).map(|_| ())
}

#[test]
fn headers_are_ruled() {
    assert_eq!(checked(r#"{"alg":"HS256"}"#), Ok(()));
    assert_eq!(checked(r#"{"alg":"HS256","typ":"JWT","cty":"x","b64":true}"#), Ok(()));
    for none in ["none", "None", "NONE", ""] {
        let e = checked(&format!(r#"{{"alg":"{none}"}}"#));
        assert!(matches!(e, Err(Error::AlgNone | Error::Algorithm(_))), "{none}: {e:?}");
    }
    assert_eq!(checked(r#"{"alg":"HS256","crit":["exp"],"exp":1}"#), Err(Error::Critical));
    assert_eq!(checked(r#"{"alg":"HS256","crit":[]}"#), Err(Error::Critical));
    assert_eq!(checked(r#"{"alg":"HS256","zip":"DEF"}"#), Err(Error::Compressed));
    for header in [
        r#"{"alg":"HS256","b64":false}"#,
        r#"{"alg":"HS256","b64":0}"#,
        r#"{"alg":["HS256"]}"#,
        r#"{"kid":"x"}"#,
        r#"{"alg":"HS256","kid":1}"#,
    ] {
        assert!(matches!(checked(header), Err(Error::Header(_))), "{header}");
    }
    let twice = checked(r#"{"alg":"none","alg":"HS256"}"#);
    assert!(matches!(twice, Err(Error::Json { what: "a member is there twice", .. })));
    assert!(matches!(checked(r#"{"alg":"ES256K"}"#), Err(Error::Algorithm(_))));
    assert!(
        matches!(checked(r#"{"alg":"Ed448"}"#), Err(Error::Algorithm(m)) if m.contains("Ed448"))
    );
}

#[test]
fn keys_that_the_token_brings_are_not_read() {
    // Signed with the key in the header, and with the set's.
    let jwk = format!(r#""jwk":{{"kty":"oct","k":"{}"}}"#, base64url(SECRET));
    let header = format!(r#"{{"alg":"HS256",{jwk},"jku":"http://x/","x5u":"http://x/","x5c":[]}}"#);
    assert_eq!(checked(&header), Ok(()));
    let other = set(&format!(r#"{{"kty":"oct","k":"{}"}}"#, base64url(&[7; 32])));
    let e = verify(&token(&header), &other, Limits::default());
    assert_eq!(e.unwrap_err(), Error::Signature);
}

#[test]
fn a_public_key_is_no_secret() {
    for kind in ["RS256", "ES256", "EdDSA"] {
        let public = crate::tests::key_of(kind);
        let e = verify(&token(r#"{"alg":"HS256"}"#), &set(&public), Limits::default());
        assert_eq!(e.unwrap_err(), Error::NoKey, "{kind}");
    }
    let e = verify(&token(r#"{"alg":"RS256"}"#), &secret(), Limits::default());
    assert_eq!(e.unwrap_err(), Error::NoKey);
}

#[test]
fn a_curve_has_one_algorithm_and_one_length_of_signature() {
    let keys = set(&crate::tests::key_of("ES256"));
    let e = verify(&token(r#"{"alg":"ES384"}"#), &keys, Limits::default());
    assert_eq!(e.unwrap_err(), Error::NoKey);
    let good = crate::tests::token_of("ES256");
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let bytes = crate::base64url::decode(signature.as_bytes()).unwrap();
    assert!(verify(good.as_bytes(), &keys, Limits::default()).is_ok());
    // The same numbers in DER, a zero more, a byte less, and none.
    let number = |half: &[u8]| [&[2, 33, 0][..], half].concat();
    let der = [&[0x30, 70][..], &number(&bytes[..32]), &number(&bytes[32..])].concat();
    for other in [der, [&bytes[..], &[0]].concat(), bytes[..63].to_vec(), vec![], vec![0; 64]] {
        let token = format!("{signed}.{}", base64url(&other));
        let e = verify(token.as_bytes(), &keys, Limits::default());
        assert_eq!(e.unwrap_err(), Error::Signature);
    }
}

#[test]
fn short_secrets_are_refused() {
    // RFC 7518 section 3.2: at least as long as the hash's output.
    let keys = set(&format!(r#"{{"kty":"oct","k":"{}"}}"#, base64url(&SECRET[..31])));
    let e = verify(&token(r#"{"alg":"HS256"}"#), &keys, Limits::default());
    assert_eq!(e.unwrap_err(), Error::KeyTooShort { bytes: 32 });
    let e = verify(&token(r#"{"alg":"HS512"}"#), &secret(), Limits::default());
    assert_eq!(e.unwrap_err(), Error::KeyTooShort { bytes: 64 });
}

#[test]
fn the_form_is_strict() {
    let good = String::from_utf8(token(r#"{"alg":"HS256"}"#)).unwrap();
    let is = |token: &str| verify(token.as_bytes(), &secret(), Limits::default()).map(|_| ());
    assert_eq!(is(&good), Ok(()));
    for parts in [&good[..20], &format!("{good}."), &format!("{good}.{good}"), ""] {
        assert_eq!(is(parts), Err(Error::Parts { expected: 3 }));
    }
    for bad in [format!("{good}="), format!("{good}\n"), format!(" {good}")] {
        assert!(matches!(is(&bad), Err(Error::Base64(_))), "{bad:?}");
    }
    // Every other last character stands for other bits, or for the same with spare ones.
    let (rest, last) = good.split_at(good.len() - 1);
    for other in ('A'..='Z').chain('a'..='z').filter(|c| *c != last.chars().next().unwrap()) {
        assert!(is(&format!("{rest}{other}")).is_err());
    }
    let short = Limits { token_bytes_max: good.len() - 1 };
    let e = verify(good.as_bytes(), &secret(), short);
    assert_eq!(e.unwrap_err(), Error::TokenTooLong);
    assert_eq!(is(&"a".repeat(1 << 20)), Err(Error::TokenTooLong));
}
