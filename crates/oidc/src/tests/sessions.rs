use serde_json::json;

use super::{NOW_S, World, claims};
use crate::{Session, SessionId, lock_key, used_state_key};

fn session(expires_s: Option<u64>) -> Session {
    let all = claims(json!({}));
    Session {
        id_token: World::new().sign(&all),
        access_token: "access-canary".to_owned(),
        refresh_token: Some("refresh-canary".to_owned()),
        userinfo: None,
        claims: all.as_object().unwrap().clone(),
        created_ms: NOW_S * 1000,
        received_s: NOW_S,
        expires_s,
    }
}

#[test]
fn sessions_open_with_their_secret_alone() {
    let id = SessionId::new([5; 32]);
    let sealed = session(Some(NOW_S + 60)).seal(&id, "p", [1; 12]).unwrap();
    assert!(!sealed.contains("canary"));
    let opened = Session::open(&id, "p", sealed.as_bytes()).unwrap();
    assert_eq!(opened.access_token, "access-canary");
    assert_eq!(opened.refresh_token.as_deref(), Some("refresh-canary"));
    assert_eq!((opened.userinfo, opened.expires_s), (None, Some(NOW_S + 60)));
    assert_eq!(opened.claims["sub"], "alice");
    let other = SessionId::new([6; 32]);
    assert!(Session::open(&other, "p", sealed.as_bytes()).is_none());
    assert!(Session::open(&id, "other", sealed.as_bytes()).is_none());
    assert!(Session::open(&id, "p", &sealed.as_bytes()[1..]).is_none());
}

#[test]
fn cookies_are_256_bits_and_stored_hashed() {
    let id = SessionId::new([5; 32]);
    let cookie = id.to_cookie();
    assert_eq!(cookie.len(), 43);
    let key = id.store_key("p");
    assert!(!key.contains(&cookie) && key != id.store_key("q") && lock_key(&key) != key);
    let parsed = SessionId::parse(cookie.as_bytes()).unwrap();
    assert_eq!(parsed.store_key("p"), key);
    // 'V' differs in bits that are beyond the 256.
    let spare = format!("{}V", cookie.strip_suffix('U').unwrap());
    for bad in ["", "x", &cookie[..42], &format!("{cookie}A"), &format!("{cookie}="), &spare] {
        assert!(SessionId::parse(bad.as_bytes()).is_none(), "{bad}");
    }
    assert_ne!(used_state_key("p", "a"), used_state_key("q", "a"));
}

#[test]
fn tokens_are_refreshed_before_they_expire() {
    let wants = |expires_s, now_s| session(expires_s).wants_refresh(now_s);
    // A tenth of 100 seconds, a minute of an hour.
    assert!(!wants(Some(NOW_S + 100), NOW_S + 89) && wants(Some(NOW_S + 100), NOW_S + 90));
    assert!(!wants(Some(NOW_S + 3600), NOW_S + 3539) && wants(Some(NOW_S + 3600), NOW_S + 3540));
    assert!(!wants(None, u64::MAX));
    let alone = Session { refresh_token: None, ..session(Some(NOW_S)) };
    assert!(!alone.wants_refresh(NOW_S + 1) && alone.is_expired(NOW_S));
    assert!(!session(Some(NOW_S + 1)).is_expired(NOW_S) && !session(None).is_expired(u64::MAX));
}
