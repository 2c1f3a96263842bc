//! Encrypted tokens: rules of refusal.

use crate::tests::{base64url, key_of, set, token_of};
use crate::{Error, Limits, decrypt};

fn refused(token: &str, key: &str) -> Error {
    decrypt(token.as_bytes(), &set(key), Limits::default()).unwrap_err()
}

#[test]
fn every_byte_is_authenticated() {
    for alg in ["dir", "A192KW", "A128GCMKW", "RSA-OAEP", "ECDH-ES", "ECDH-ES+A256KW"] {
        let (token, key) = (token_of(alg), key_of(alg));
        let parts: Vec<&str> = token.split('.').collect();
        for i in 0..5 {
            let Some(first) = parts[i].chars().next() else { continue };
            let other = if first == 'A' { "B" } else { "A" };
            let mut changed: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
            changed[i].replace_range(..1, other);
            let e = refused(&changed.join("."), &key);
            let is_expected = matches!(e, Error::Decryption | Error::Json { .. });
            assert!(is_expected, "{alg} part {i}: {e:?}");
            changed[i] = String::new();
            refused(&changed.join("."), &key);
        }
    }
}

#[test]
fn headers_are_ruled() {
    let (token, key) = (token_of("A128KW"), key_of("A128KW"));
    let rest = token.split_once('.').unwrap().1;
    let with = |header: &str| refused(&format!("{}.{rest}", base64url(header.as_bytes())), &key);
    let enc = r#""enc":"A128CBC-HS256""#;
    assert_eq!(with(&format!(r#"{{"alg":"A128KW",{enc},"zip":"BR"}}"#)), Error::Compressed);
    assert_eq!(with(&format!(r#"{{"alg":"A128KW",{enc},"zip":1}}"#)), Error::Compressed);
    assert_eq!(with(&format!(r#"{{"alg":"A128KW",{enc},"crit":["x"]}}"#)), Error::Critical);
    for alg in ["PBES2-HS256+A128KW", "ECDH-1PU", "none", "HS256"] {
        let e = with(&format!(r#"{{"alg":"{alg}",{enc},"p2c":1000000000,"p2s":"AAAA"}}"#));
        assert!(matches!(e, Error::Algorithm(_)), "{alg}: {e:?}");
    }
    assert!(matches!(with(r#"{"alg":"A128KW","enc":"none"}"#), Error::Algorithm(_)));
    assert!(matches!(with(r#"{"alg":"A128KW"}"#), Error::Header(_)));
    assert!(matches!(with(&format!(r#"{{"alg":"A128GCMKW",{enc}}}"#)), Error::Header(_)));
    // A key of another length than the algorithm's is no key for it.
    assert_eq!(with(&format!(r#"{{"alg":"A256KW",{enc}}}"#)), Error::NoKey);
    assert_eq!(with(&format!(r#"{{"alg":"RSA-OAEP",{enc}}}"#)), Error::NoKey);
    assert!(matches!(with(&format!(r#"{{"alg":"ECDH-ES",{enc}}}"#)), Error::Header(_)));
    let short = r#"{"kty":"EC","crv":"P-256","x":"AAAA","y":"AAAA"}"#;
    let epk = |epk: &str| with(&format!(r#"{{"alg":"ECDH-ES",{enc},"epk":{epk}}}"#));
    assert!(matches!(epk(short), Error::Header(_)));
    assert!(matches!(epk(r#"{"kty":"EC","crv":"secp256k1"}"#), Error::Header(_)));
}

#[test]
fn a_public_key_decrypts_nothing() {
    let token = token_of("RSA-OAEP");
    assert_eq!(refused(&token, &key_of("RS256")), Error::NoKey);
}

#[test]
fn a_direct_key_has_the_length_of_the_encryption_and_no_encrypted_key() {
    let (token, key) = (token_of("dir"), key_of("dir"));
    assert_eq!(refused(&token.replacen("..", ".AAAA.", 1), &key), Error::Decryption);
    assert_eq!(refused(&token, &key_of("A128KW")), Error::Decryption);
}

/// RFC 8725 section 3.2: the sender does not choose RSA1_5 for a key that does not ask for it.
#[test]
fn rsa1_5_is_for_keys_that_say_so() {
    let text = include_str!("../../testdata/rfc7520.json");
    let examples: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
    let example = examples.iter().find(|example| example["section"] == "5.1").unwrap();
    let token = example["token"].as_str().unwrap();
    let mut key = example["key"].clone();
    assert!(decrypt(token.as_bytes(), &set(&key.to_string()), Limits::default()).is_ok());
    key.as_object_mut().unwrap().remove("alg");
    assert_eq!(refused(token, &key.to_string()), Error::NoKey);
    key["alg"] = "RSA-OAEP".into();
    assert_eq!(refused(token, &key.to_string()), Error::NoKey);
}

#[test]
fn an_agreement_needs_the_private_key_and_its_curve() {
    let text = include_str!("../../testdata/rfc7520.json");
    let examples: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
    let of = |section: &str| examples.iter().find(|e| e["section"] == section).unwrap().clone();
    let (p384, p256) = (of("5.4"), of("5.5"));
    let token = p384["token"].as_str().unwrap();
    let mut public = p384["key"].clone();
    public.as_object_mut().unwrap().remove("d");
    assert_eq!(refused(token, &public.to_string()), Error::NoKey);
    let mut other = p256["key"].clone();
    for member in ["alg", "kid"] {
        other.as_object_mut().unwrap().remove(member);
    }
    assert_eq!(refused(token, &other.to_string()), Error::Decryption);
}
