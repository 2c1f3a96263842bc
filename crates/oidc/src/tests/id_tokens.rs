use serde_json::json;

use super::{NOW_S, SECRET, World, claims, input, sign_with_secret};
use crate::{Error, LEEWAY_S};

fn check(changes: serde_json::Value) -> Result<(), Error> {
    let world = World::new();
    let token = world.sign(&claims(changes));
    world.expected().of_login(&token, "n", "access").map(|_| ())
}

#[test]
fn good_tokens_are_accepted() {
    for changes in [
        json!({}),
        json!({"aud": ["me"]}),
        json!({"aud": ["other", "me"], "azp": "me"}),
        json!({"azp": "me"}),
        // The left half of SHA-512 of "access".
        json!({"at_hash": crate::bits::base64url(
            &aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA512, b"access").as_ref()[..32]
        )}),
        // A clock that is behind, and one that is ahead, by minutes.
        json!({"exp": NOW_S - LEEWAY_S + 1}),
        json!({"iat": NOW_S + LEEWAY_S, "nbf": NOW_S + LEEWAY_S}),
    ] {
        assert_eq!(check(changes.clone()), Ok(()), "{changes}");
    }
}

#[test]
fn each_wrong_claim_is_refused() {
    for changes in [
        json!({"iss": "https://id.test/"}),
        json!({"iss": null}),
        json!({"aud": "other"}),
        json!({"aud": ["other"]}),
        json!({"aud": []}),
        json!({"aud": null}),
        json!({"aud": ["me", "other"]}),
        json!({"aud": ["me", "other"], "azp": "other"}),
        json!({"azp": "other"}),
        json!({"azp": 1}),
        json!({"nonce": "other"}),
        json!({"nonce": null}),
        json!({"exp": null}),
        json!({"exp": "soon"}),
        json!({"exp": NOW_S - LEEWAY_S}),
        json!({"nbf": NOW_S + LEEWAY_S + 1}),
        json!({"iat": null}),
        json!({"iat": NOW_S + LEEWAY_S + 1}),
        json!({"sub": null}),
        json!({"sub": ""}),
        json!({"sub": "x".repeat(256)}),
        json!({"at_hash": "x"}),
        json!({"at_hash": 1}),
    ] {
        let result = check(changes.clone());
        assert!(matches!(result, Err(Error::Claim(_) | Error::Token(_))), "{changes}: {result:?}");
    }
}

#[test]
fn forged_tokens_are_refused() {
    let world = World::new();
    let expected = world.expected();
    let of = |token: &str| expected.of_login(token, "n", "access").map(|_| ());
    let good = world.sign(&claims(json!({})));
    assert_eq!(of(&good), Ok(()));
    let other = world.sign(&claims(json!({"sub": "mallory"})));
    let parts = |token: &str| token.split('.').map(str::to_owned).collect::<Vec<_>>();
    let (good, other) = (parts(&good), parts(&other));
    let mixed = format!("{}.{}.{}", good[0], other[1], good[2]);
    assert_eq!(of(&mixed), Err(Error::Token(jose::Error::Signature)));
    let none = format!("{}.", input(json!({"alg": "none"}), &claims(json!({}))));
    assert!(matches!(of(&none), Err(Error::Token(_))));
    assert!(matches!(of("a.b"), Err(Error::Token(_))));
    // The public key as the secret of an HMAC, and the client's secret, unlike the metadata say.
    assert!(of(&sign_with_secret(SECRET, &claims(json!({})))).is_err());
}

#[test]
fn secrets_sign_where_the_provider_says_so() {
    let world = World::with(json!({"id_token_signing_alg_values_supported": ["HS256"]}));
    let expected = world.expected();
    let of = |secret: &str| {
        let token = sign_with_secret(secret, &claims(json!({})));
        expected.of_login(&token, "n", "access").map(|_| ())
    };
    assert_eq!(of(SECRET), Ok(()));
    assert!(of("another secret of at least 32 characters").is_err());
}

#[test]
fn unknown_keys_may_be_new_ones() {
    let world = World::new();
    let unknown = format!("{}.AA", input(json!({"alg": "EdDSA", "kid": "2"}), &claims(json!({}))));
    let error = world.expected().of_login(&unknown, "n", "a").unwrap_err();
    assert_eq!(error, Error::Token(jose::Error::UnknownKid));
    assert!(error.may_be_of_other_keys());
    assert!(!Error::Claim("x").may_be_of_other_keys());
}

#[test]
fn refreshed_tokens_are_of_the_same_user_and_login() {
    let world = World::new();
    let before = claims(json!({})).as_object().unwrap().clone();
    let of = |changes| {
        let token = world.sign(&claims(changes));
        world.expected().of_refresh(&token, &before, "a").map(|_| ())
    };
    assert_eq!(of(json!({})), Ok(()));
    assert_eq!(of(json!({"nonce": null})), Ok(()));
    for changes in [json!({"sub": "bob"}), json!({"nonce": "other"}), json!({"aud": "other"})] {
        assert!(of(changes.clone()).is_err(), "{changes}");
    }
}

#[test]
fn user_info_is_of_the_same_user() {
    let world = World::new();
    let sub = json!("alice");
    let of = |media: &str, body: &str, sub| {
        world.expected().userinfo(media.as_bytes(), body.as_bytes(), sub).map(|claims| claims.len())
    };
    let json = r#"{"sub":"alice","email":"a@b.test"}"#;
    assert_eq!(of("application/json; charset=utf-8", json, Some(&sub)), Ok(2));
    assert!(of("application/json", json, None).is_err());
    for body in [r#"{"sub":"bob"}"#, r#"{"email":"x"}"#, "[]", "", r#"{"sub":"bob","sub":"alice"}"#]
    {
        assert!(of("application/json", body, Some(&sub)).is_err(), "{body}");
    }
    let signed = world.sign(&json!({"iss": super::ISSUER, "aud": "me", "sub": "alice"}));
    assert_eq!(of("application/jwt", &signed, Some(&sub)), Ok(3));
    for claims in [
        json!({"iss": "https://evil.test", "sub": "alice"}),
        json!({"aud": "other", "sub": "alice"}),
        json!({"sub": "bob"}),
    ] {
        assert!(of("application/jwt", &world.sign(&claims), Some(&sub)).is_err(), "{claims}");
    }
    assert!(of("application/jwt", json, Some(&sub)).is_err());
}
