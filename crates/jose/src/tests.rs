//! Tokens of others: the examples of RFC 7520 and RFC 8037, and one of each algorithm by joserfc
//! 1.6.5 (RSA-OAEP-384 and -512 by the Python package cryptography). Helpers of the other tests.

use serde_json::Value;

use crate::{Error, KeySet, Limits, check_times, decrypt, decrypt_nested, parse_claims, verify};

const ALGORITHMS: &str = include_str!("../testdata/algorithms.json");
const RFC_7520: &str = include_str!("../testdata/rfc7520.json");

pub(crate) fn set(text: &str) -> KeySet {
    KeySet::parse(text.as_bytes()).unwrap()
}

pub(crate) fn base64url(bytes: &[u8]) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let mut three = [0u8; 4];
        three[1..=chunk.len()].copy_from_slice(chunk);
        let n = u32::from_be_bytes(three);
        let digit = |i| char::from(digits[(n >> (18 - 6 * i) & 63) as usize]);
        out.extend((0..=chunk.len()).map(digit));
    }
    out
}

fn all(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn example(alg: &str) -> Value {
    all(ALGORITHMS).into_iter().find(|example| example["alg"] == alg).unwrap()
}

/// The key of the example of an algorithm.
pub(crate) fn key_of(alg: &str) -> String {
    example(alg)["key"].to_string()
}

/// The token of the example of an algorithm.
pub(crate) fn token_of(alg: &str) -> String {
    example(alg)["token"].as_str().unwrap().to_owned()
}

fn opened(token: &str, keys: &KeySet) -> Result<Vec<u8>, Error> {
    match token.split('.').count() {
        3 => verify(token.as_bytes(), keys, Limits::default()).map(|made| made.payload),
        _ => decrypt(token.as_bytes(), keys, Limits::default()).map(|made| made.plaintext),
    }
}

#[test]
fn tokens_of_each_algorithm_are_accepted_with_their_key_alone() {
    let examples = [all(RFC_7520), all(ALGORITHMS)].concat();
    assert!(examples.len() > 30);
    for (i, example) in examples.iter().enumerate() {
        let token = example["token"].as_str().unwrap();
        let name = format!("{} {}", example["section"], example["alg"]);
        let opened_with = |key: &Value| opened(token, &set(&key.to_string()));
        let plaintext = example["plaintext"].as_str().unwrap();
        assert_eq!(opened_with(&example["key"]).unwrap(), plaintext.as_bytes(), "{name}");
        for (j, other) in examples.iter().enumerate() {
            let is_same = ["k", "n", "x"].iter().any(|member| {
                example["key"].get(member).is_some_and(|v| other["key"].get(member) == Some(v))
            });
            assert!(i == j || is_same || opened_with(&other["key"]).is_err(), "{name} {j}");
        }
    }
}

#[test]
fn a_nested_token_is_decrypted_and_verified() {
    let text = include_str!("../testdata/nested.json");
    let example: Value = serde_json::from_str(text).unwrap();
    let keys = set(&example["keys"].to_string());
    let token = example["token"].as_str().unwrap();
    let (outer, inner) = decrypt_nested(token.as_bytes(), &keys, Limits::default()).unwrap();
    assert_eq!(outer.header["cty"], "JWT");
    let claims = parse_claims(&inner.payload).unwrap();
    assert_eq!(check_times(&claims, 1, 0), Ok(()));
    assert_eq!(claims["sub"], "a");
    // Encrypted, but with claims inside, not a signed token.
    let plain = decrypt_nested(token_of("dir").as_bytes(), &set(&key_of("dir")), Limits::default());
    assert_eq!(plain.unwrap_err(), Error::Parts { expected: 3 });
}

#[test]
fn the_key_id_chooses() {
    let with = |kid: &str, key: &str| key.replacen('{', &format!("{{\"kid\":\"{kid}\","), 1);
    let made = example("HS256");
    let (right, wrong) = (made["key"].clone(), key_of("HS512"));
    let strip = |text: &str| {
        let mut key: Value = serde_json::from_str(text).unwrap();
        key.as_object_mut().unwrap().remove("kid");
        key.to_string()
    };
    let (right, wrong) = (strip(&right.to_string()), strip(&wrong));
    let many = format!(r#"{{"keys":[{},{}]}}"#, with("a", &wrong), with("b", &right));
    assert!(opened(&token_of("HS256"), &set(&many)).is_ok());
    let secret = set(&many);
    let kids: Vec<_> = secret.keys().iter().map(|key| key.kid().unwrap()).collect();
    assert_eq!(kids, ["a", "b"]);
    let rfc = &all(RFC_7520)[0];
    let mut key = rfc["key"].clone();
    key["kid"] = "another".into();
    let token = rfc["token"].as_str().unwrap();
    assert_eq!(opened(token, &set(&key.to_string())), Err(Error::UnknownKid));
    key.as_object_mut().unwrap().remove("kid");
    assert!(opened(token, &set(&key.to_string())).is_ok());
}

#[test]
fn error_texts_have_nothing_of_the_token() {
    let token = format!("{}.e30.", base64url(br#"{"alg":"SECRET","SECRET":{}}"#));
    let e = verify(token.as_bytes(), &set(&key_of("HS256")), Limits::default()).unwrap_err();
    assert!(!e.to_string().contains("SECRET"), "{e}");
    let e = parse_claims(b"{\"a\":SECRET}").unwrap_err();
    assert_eq!(e.to_string(), "the claims: invalid JSON at line 1 column 6");
}

#[test]
fn sets_are_merged() {
    use std::sync::Arc;
    let one = Arc::new(set(&key_of("HS256")));
    let other = Arc::new(set(&key_of("ES256")));
    let both = KeySet::merged(&[one.clone(), other]).unwrap();
    for alg in ["HS256", "ES256"] {
        assert!(opened(&token_of(alg), &both).is_ok(), "{alg}");
    }
    assert!(opened(&token_of("ES256"), &one).is_err());
    assert_eq!(KeySet::merged(&vec![one; 257]).unwrap_err(), Error::TooManyKeys);
}
