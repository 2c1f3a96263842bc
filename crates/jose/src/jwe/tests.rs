//! Encrypted tokens: rules of refusal.

use crate::tests::{base64url, key_of, set, token_of};
use crate::{Error, Limits, decrypt};

fn refused(token: &str, key: &str) -> Error {
    decrypt(token.as_bytes(), &set(key), Limits::default()).unwrap_err()
}

#[test]
fn every_byte_is_authenticated() {
    for alg in ["dir", "A192KW", "A128GCMKW", "RSA-OAEP"] {
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
    assert_eq!(with(&format!(r#"{{"alg":"A128KW",{enc},"zip":"DEF"}}"#)), Error::Compressed);
    assert_eq!(with(&format!(r#"{{"alg":"A128KW",{enc},"crit":["x"]}}"#)), Error::Critical);
    for alg in ["PBES2-HS256+A128KW", "RSA1_5", "ECDH-ES", "none", "HS256"] {
        let e = with(&format!(r#"{{"alg":"{alg}",{enc},"p2c":1000000000,"p2s":"AAAA"}}"#));
        assert!(matches!(e, Error::Algorithm(_)), "{alg}: {e:?}");
    }
    assert!(matches!(with(r#"{"alg":"A128KW","enc":"none"}"#), Error::Algorithm(_)));
    assert!(matches!(with(r#"{"alg":"A128KW"}"#), Error::Header(_)));
    assert!(matches!(with(&format!(r#"{{"alg":"A128GCMKW",{enc}}}"#)), Error::Header(_)));
    // A key of another length than the algorithm's is no key for it.
    assert_eq!(with(&format!(r#"{{"alg":"A256KW",{enc}}}"#)), Error::NoKey);
    assert_eq!(with(&format!(r#"{{"alg":"RSA-OAEP",{enc}}}"#)), Error::NoKey);
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
