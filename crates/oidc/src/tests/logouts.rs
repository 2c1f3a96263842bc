use serde_json::json;

use super::{ISSUER, NOW_S, World, changed, claims};
use crate::{
    Error, FrontChannel, LogoutToken, Session, end_session_url, logout_token_of, marker_keys,
};

fn token(changes: serde_json::Value) -> Result<LogoutToken, Error> {
    let world = World::new();
    let mut all = json!({
        "iss": ISSUER, "aud": "me", "iat": NOW_S, "exp": NOW_S + 60, "jti": "j", "sub": "alice",
        "sid": "s1", "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
    });
    changed(&mut all, changes);
    world.expected().logout_token(&world.sign(&all))
}

#[test]
fn logout_tokens_are_checked() {
    let all = token(json!({})).unwrap();
    assert_eq!((all.sub.as_deref(), all.sid.as_deref()), (Some("alice"), Some("s1")));
    assert!(token(json!({"sid": null})).is_ok() && token(json!({"sub": null})).is_ok());
    for changes in [
        json!({"sid": null, "sub": null}),
        json!({"nonce": "n"}),
        json!({"events": null}),
        json!({"events": {}}),
        json!({"events": {"http://schemas.openid.net/event/backchannel-logout": true}}),
        json!({"iss": "https://evil.test"}),
        json!({"aud": "other"}),
        json!({"jti": null}),
        json!({"iat": null}),
        json!({"iat": NOW_S - 601}),
        json!({"exp": NOW_S - 300}),
        json!({"sub": 1}),
        json!({"sid": "x".repeat(256)}),
    ] {
        assert!(token(changes.clone()).is_err(), "{changes}");
    }
    // An ID token is no logout token.
    let world = World::new();
    assert!(world.expected().logout_token(&world.sign(&claims(json!({})))).is_err());
}

#[test]
fn markers_are_those_of_the_sessions_that_end() {
    let all = claims(json!({}));
    let session = Session {
        id_token: String::new(),
        access_token: String::new(),
        refresh_token: None,
        userinfo: None,
        claims: all.as_object().unwrap().clone(),
        created_ms: 0,
        received_s: 0,
        expires_s: None,
    };
    let keys: Vec<_> = marker_keys("p", &session).collect();
    let [by_sid, by_sub] = &keys[..] else { panic!("{keys:?}") };
    assert_eq!(token(json!({})).unwrap().marker_key("p"), *by_sid);
    assert_eq!(token(json!({"sid": null})).unwrap().marker_key("p"), *by_sub);
    assert_eq!(FrontChannel::marker_key("p", "s1"), *by_sid);
    assert_ne!(FrontChannel::marker_key("q", "s1"), *by_sid);
    // A user whose name is that of another one's session.
    assert_ne!(FrontChannel::marker_key("p", "alice"), *by_sub);
}

#[test]
fn front_channel_requests_have_both_or_none() {
    let of = |args: &str| FrontChannel::parse(args.as_bytes()).map(|request| request.of);
    assert_eq!(of("iss=https://id.test&sid=1"), Ok(Some((ISSUER.to_owned(), "1".to_owned()))));
    assert_eq!(of(""), Ok(None));
    for bad in ["iss=a", "sid=b", "iss=a&sid=b&sid=c", &format!("iss=a&sid={}", "x".repeat(256))] {
        assert!(of(bad).is_err(), "{bad}");
    }
    assert_eq!(logout_token_of(b"logout_token=a.b.c&x=y").as_deref(), Ok("a.b.c"));
    for bad in [&b""[..], b"token=a", b"logout_token=a&logout_token=b"] {
        assert!(logout_token_of(bad).is_err());
    }
}

#[test]
fn logouts_are_sent_to_the_provider() {
    let world = World::new();
    let of = |hint, uri| end_session_url(&world.client, &world.metadata, hint, uri).unwrap();
    assert_eq!(of(None, None), "https://id.test/bye?x=1&client_id=me");
    assert_eq!(
        of(Some("t.o.k"), Some("https://me.test/out")),
        "https://id.test/bye?x=1&client_id=me&id_token_hint=t.o.k\
         &post_logout_redirect_uri=https%3A%2F%2Fme.test%2Fout"
    );
    let none = World::with(json!({"end_session_endpoint": null}));
    assert_eq!(end_session_url(&none.client, &none.metadata, None, None), None);
}
