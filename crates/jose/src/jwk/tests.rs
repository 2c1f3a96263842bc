//! Keys that are refused, ignored or restricted.

use serde_json::Value;

use crate::tests::{base64url, key_of, token_of};
use crate::{Error, KeySet, Limits, decrypt, verify};

fn changed(alg: &str, member: &str, value: &str) -> String {
    let mut key: Value = serde_json::from_str(&key_of(alg)).unwrap();
    key[member] = serde_json::from_str(value).unwrap();
    key.to_string()
}

fn why(text: &str) -> String {
    KeySet::parse(text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn malformed_keys_are_refused() {
    let short = format!("\"{}\"", base64url(&[0xc1; 255]));
    for (alg, member, value, text) in [
        ("RS256", "n", short.as_str(), "shorter than 2048 bits"),
        ("RS256", "e", "\"AQ\"", "e is no odd number"),
        ("RS256", "e", "\"AAEAAA\"", "e is no odd number"),
        ("RS256", "n", "\"\"", "n is missing"),
        ("RS256", "n", "1", "n is missing"),
        ("RSA-OAEP", "qi", "\"AQAB\"", "do not belong together"),
        ("RSA-OAEP", "dp", "null", "is missing or no number"),
        ("RSA-OAEP", "oth", "[]", "more than two primes"),
        ("ES256", "crv", "\"P-384\"", "another length"),
        ("ES256", "crv", "\"secp256k1\"", "curve is not supported"),
        ("ES256", "y", &format!("\"{}\"", base64url(&[1; 32])), "not on the curve"),
        ("ES256", "x", "\"AQAB\"", "another length"),
        ("EdDSA", "crv", "\"Ed448\"", "Ed448 is not supported"),
        ("EdDSA", "x", "\"AQAB\"", "32 bytes"),
        ("ES256", "d", "\"AQAB\"", "d has another length"),
        ("ES256", "d", &format!("\"{}\"", base64url(&[0; 32])), "no private key"),
        ("ES256", "d", &format!("\"{}\"", base64url(&[1; 32])), "does not belong"),
        ("HS256", "k", "\"Zh\"", "no base64url"),
        ("HS256", "k", "\"\"", "k is empty"),
        ("HS256", "kty", "\"X\"", "type (kty) is not supported"),
        ("HS256", "kty", "1", "kty is missing"),
        ("HS256", "kid", "1", "kid is no string"),
        ("HS256", "use", "\"both\"", "neither sig nor enc"),
        ("HS256", "key_ops", "[\"verify\",\"verify\"]", "different strings"),
        ("HS256", "alg", "\"RS256\"", "does not fit its type"),
        ("HS256", "alg", "\"HS1\"", "algorithm is not supported"),
        ("A128KW", "alg", "\"A256KW\"", "does not fit its type"),
    ] {
        let e = why(&changed(alg, member, value));
        assert!(e.contains(text), "{alg} {member}={value}: {e}");
    }
    for text in
        ["{}", "[]", "{\"keys\":{}}", "{\"keys\":[]}", "{\"keys\":[1]}", "{\"a\":1,\"a\":1}"]
    {
        why(text);
    }
    let many = vec!["{}"; 257].join(",");
    assert_eq!(why(&format!("{{\"keys\":[{many}]}}")), "the set has too many keys");
}

#[test]
fn keys_of_a_set_that_are_not_supported_are_left_out() {
    let good = key_of("HS256");
    let set = format!(r#"{{"keys":[{{"kty":"AKP"}},{good},{{"kty":"OKP","crv":"X448"}}]}}"#);
    let set = KeySet::parse(set.as_bytes()).unwrap();
    assert_eq!(set.keys().len(), 1);
    let ignored: Vec<_> = set.ignored().iter().map(ToString::to_string).collect();
    let text = ["key 0: its type (kty) is not supported", "key 2: its curve is not supported"];
    assert_eq!(ignored, text);
    // A malformed one is an error of the document.
    assert!(
        why(&format!(r#"{{"keys":[{good},{{"kty":"oct"}}]}}"#)).contains("key 1: k is missing")
    );
}

#[test]
fn use_operations_and_alg_restrict_a_key() {
    let is = |alg: &str, member: &str, value: &str| {
        let keys = KeySet::parse(changed(alg, member, value).as_bytes()).unwrap();
        let token = token_of(alg);
        match token.split('.').count() {
            3 => verify(token.as_bytes(), &keys, Limits::default()).map(|_| ()),
            _ => decrypt(token.as_bytes(), &keys, Limits::default()).map(|_| ()),
        }
    };
    for (alg, member, right, wrong) in [
        ("RS256", "use", "\"sig\"", "\"enc\""),
        ("RS256", "key_ops", "[\"verify\"]", "[\"encrypt\"]"),
        ("RS256", "alg", "\"RS256\"", "\"PS256\""),
        ("RS256", "alg", "\"RS256\"", "\"RS512\""),
        ("A128KW", "use", "\"enc\"", "\"sig\""),
        ("A128KW", "key_ops", "[\"unwrapKey\"]", "[\"wrapKey\",\"verify\"]"),
        ("A128KW", "alg", "\"A128KW\"", "\"A128GCMKW\""),
        ("dir", "alg", "\"dir\"", "\"A256KW\""),
        ("EdDSA", "alg", "\"Ed25519\"", "\"Ed25519\""),
    ] {
        assert_eq!(is(alg, member, right), Ok(()), "{alg} {member} {right}");
        if right != wrong {
            assert_eq!(is(alg, member, wrong), Err(Error::NoKey), "{alg} {member} {wrong}");
        }
    }
}

#[test]
fn leading_zeros_of_an_rsa_modulus_are_ignored() {
    let key: Value = serde_json::from_str(&key_of("RS256")).unwrap();
    let n = crate::base64url::decode(key["n"].as_str().unwrap().as_bytes()).unwrap();
    let padded = format!("\"{}\"", base64url(&[&[0][..], &n].concat()));
    let keys = KeySet::parse(changed("RS256", "n", &padded).as_bytes()).unwrap();
    assert!(verify(token_of("RS256").as_bytes(), &keys, Limits::default()).is_ok());
}

#[test]
fn no_key_shows_in_debug_output() {
    let keys = KeySet::parse(key_of("HS256").as_bytes()).unwrap();
    assert!(!format!("{keys:?}").contains("Secret"), "{keys:?}");
}

#[test]
fn nothing_secret_is_printed() {
    let text = "{\"kty\":\"oct\",\"kid\":\"shown\",\"k\":\"c2VjcmV0LW9mLXRoaXJ0eS10d28tYnl0ZXMtb3ItbW9yZQ\"}";
    let set = KeySet::parse(text.as_bytes()).unwrap();
    let printed = format!("{set:?}");
    assert!(printed.contains("shown"), "{printed}");
    let numbers = format!("{:?}", set.fingerprint());
    assert!(!printed.contains(&numbers[1..20]) && !printed.contains("c2VjcmV0"), "{printed}");
}
