use serde_json::json;

use super::{ISSUER, NOW_S, World, client, document};
use crate::{
    Callback, Error, LOGIN_LIFETIME_S, Login, Metadata, Outcome, TokenRequest, Tokens, is_https_url,
};

fn login() -> Login {
    let random = std::array::from_fn(|i| i as u8);
    Login::new(&random, "/a?b".to_owned(), "https://me.test/cb".to_owned(), NOW_S)
}

#[test]
fn metadata_are_of_the_issuer_and_complete() {
    let of = |changes| Metadata::parse(&document(changes), &client());
    let metadata = of(json!({})).unwrap();
    assert_eq!(metadata.token_endpoint, "https://id.test/token");
    assert!(metadata.has_s256 && !metadata.posts_secret && !metadata.sends_iss);
    for changes in [
        json!({"issuer": "https://id.test/"}),
        json!({"issuer": "https://evil.test"}),
        json!({"issuer": null}),
        json!({"token_endpoint": null}),
        json!({"jwks_uri": null}),
        json!({"authorization_endpoint": null}),
        json!({"token_endpoint": "http://id.test/token"}),
        json!({"jwks_uri": "http://id.test/keys"}),
        json!({"userinfo_endpoint": "https://u@id.test/"}),
        json!({"end_session_endpoint": 1}),
        json!({"response_types_supported": ["id_token"]}),
        json!({"token_endpoint_auth_methods_supported": ["private_key_jwt"]}),
    ] {
        assert!(matches!(of(changes.clone()), Err(Error::Metadata(_))), "{changes}");
    }
    for text in ["", "[]", "{", "{\"issuer\":\"a\",\"issuer\":\"b\"}"] {
        assert!(matches!(Metadata::parse(text.as_bytes(), &client()), Err(Error::Document(_))));
    }
}

#[test]
fn endpoints_are_https_urls() {
    for url in ["https://a", "https://a:1/b?c=d", "https://[::1]:1/"] {
        assert!(is_https_url(url), "{url}");
    }
    for url in [
        "",
        "https://",
        "http://a",
        "https:///a",
        "https://a b",
        "https://a#b",
        "https://u@a",
        "https://unix:/x",
        "https://UNIX:/x",
        "https://?x",
        "https://:1/",
        "https://a\r\n",
    ] {
        assert!(!is_https_url(url), "{url}");
    }
}

#[test]
fn authentication_requests_have_state_nonce_and_challenge() {
    let mut world = World::new();
    let login = login();
    let url = login.url(&world.client, &world.metadata);
    let (state, nonce) = (&login.state, &login.nonce);
    let expected = format!(
        "https://id.test/auth?response_type=code&client_id=me\
         &redirect_uri=https%3A%2F%2Fme.test%2Fcb&scope=openid%20email&state={state}\
         &nonce={nonce}&code_challenge="
    );
    assert!(url.starts_with(&expected), "{url}");
    assert!(url.ends_with("&code_challenge_method=S256"), "{url}");
    assert!(!url.contains(&login.verifier));
    world.client.extra_args = Some("prompt=login".to_owned());
    world.client.pkce = Some(false);
    let url = login.url(&world.client, &world.metadata);
    assert!(url.ends_with("&prompt=login") && !url.contains("code_challenge"), "{url}");
}

#[test]
fn the_challenge_is_that_of_rfc_7636() {
    let world = World::new();
    let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
    let url = Login { verifier, ..login() }.url(&world.client, &world.metadata);
    assert!(url.contains("code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&"), "{url}");
}

#[test]
fn pkce_is_by_metadata_unless_a_client_has_no_secret() {
    let (with, without) =
        (World::new(), World::with(json!({"code_challenge_methods_supported": null})));
    assert!(with.metadata.uses_pkce(&with.client) && !without.metadata.uses_pkce(&without.client));
    let mut public = client();
    public.secret = None;
    assert!(without.metadata.uses_pkce(&public));
    public.pkce = Some(false);
    assert!(!without.metadata.uses_pkce(&public));
}

#[test]
fn login_cookies_open_with_their_state_alone() {
    let login = login();
    let sealed = login.seal("p", [1; 12]).unwrap();
    assert!(!sealed.contains(&login.nonce) && !sealed.contains(&login.verifier));
    let open = |state: &str, provider: &str, sealed: &str, now_s| {
        Login::open(state, provider, sealed.as_bytes(), now_s).map(|login| login.return_to)
    };
    let unknown = Err(Error::UnknownState);
    assert_eq!(open(&login.state, "p", &sealed, NOW_S), Ok("/a?b".to_owned()));
    let last_s = NOW_S + LOGIN_LIFETIME_S - 1;
    assert!(open(&login.state, "p", &sealed, last_s).is_ok());
    assert_eq!(open(&login.state, "p", &sealed, last_s + 1), unknown);
    assert_eq!(open(&login.state, "p", &sealed, NOW_S - 301), unknown);
    assert_eq!(open(&login.state, "other", &sealed, NOW_S), unknown);
    assert_eq!(open(&login.nonce, "p", &sealed, NOW_S), unknown);
    for bad in ["", "x", &sealed[1..], &format!("{sealed}A")] {
        assert_eq!(open(&login.state, "p", bad, NOW_S), unknown);
    }
    // Browsers keep 4096 bytes, the name and attributes among them.
    let long = Login { return_to: format!("/{}", "x".repeat(1999)), ..login };
    assert!(long.seal("p", [1; 12]).unwrap().len() < 3500);
    // Whoever makes up a state can make up a cookie, but no redirect to another site.
    let forged = Login { return_to: "//evil.test".to_owned(), ..long };
    let sealed = forged.seal("p", [1; 12]).unwrap();
    assert_eq!(open(&forged.state, "p", &sealed, NOW_S), Ok("/".to_owned()));
}

#[test]
fn callbacks_have_a_state_and_one_outcome() {
    let state = "s".repeat(43);
    let of = |args: &str| Callback::parse(args.replace("STATE", &state).as_bytes());
    let code = |args: &str| match of(args).unwrap().outcome {
        Outcome::Code(code) => code,
        Outcome::Refused(code) => format!("refused: {code}"),
    };
    assert_eq!(code("code=a%2Bb+c&state=STATE"), "a+b c");
    assert_eq!(
        code("error=access_denied&state=STATE&error_description=x"),
        "refused: access_denied"
    );
    assert_eq!(code("error=%3Cb%3E&state=STATE"), "refused: an error code that is none");
    for bad in [
        "",
        "code=a",
        "state=STATE",
        "code=&state=STATE",
        "code=a&state=short",
        "code=a&state=STATE&state=STATE",
        "code=a&code=b&state=STATE",
        "code=a&error=b&state=STATE",
        "code=%zz&state=STATE",
        "code=%ff&state=STATE",
        &format!("code={}&state=STATE", "a".repeat(8193)),
        &"a=1&".repeat(65),
    ] {
        assert!(of(bad).is_err(), "{bad}");
    }
}

#[test]
fn callbacks_of_other_issuers_are_refused() {
    let (plain, strict) = (
        World::new(),
        World::with(json!({"authorization_response_iss_parameter_supported": true})),
    );
    let check = |world: &World, iss: &str| {
        let args = format!("code=a&state={}{iss}", "s".repeat(43));
        let callback = Callback::parse(args.as_bytes()).unwrap();
        callback.check_issuer(&world.client, &world.metadata).is_ok()
    };
    let own = format!("&iss={ISSUER}");
    assert!(check(&plain, "") && check(&plain, &own) && check(&strict, &own));
    assert!(!check(&strict, ""));
    assert!(!check(&plain, "&iss=https://evil.test") && !check(&strict, "&iss=https://evil.test"));
}

#[test]
fn token_requests_authenticate_as_the_provider_wants() {
    let mut world = World::new();
    world.client.id = "m:e".to_owned();
    world.client.secret = Some("s+/ %".to_owned().into());
    let login = login();
    let of = |world: &World| TokenRequest::of_code(&world.client, &world.metadata, &login, "c&d");
    let request = of(&world);
    let basic = request.authorization.as_ref().unwrap().strip_prefix("Basic ").unwrap();
    let mut decoded = Vec::new();
    assert!(base::base64::decode(basic.as_bytes(), &mut decoded));
    assert_eq!(decoded, b"m%3Ae:s%2B%2F%20%25");
    let body = format!(
        "grant_type=authorization_code&code=c%26d&redirect_uri=https%3A%2F%2Fme.test%2Fcb\
         &code_verifier={}",
        login.verifier
    );
    assert_eq!(*request.body, body);
    world.metadata.posts_secret = true;
    let request = of(&world);
    assert!(request.authorization.is_none());
    assert_eq!(*request.body, format!("{body}&client_id=m%3Ae&client_secret=s%2B%2F%20%25"));
    world.client.secret = None;
    assert_eq!(*of(&world).body, format!("{body}&client_id=m%3Ae"));
    let refresh = TokenRequest::of_refresh(&world.client, &world.metadata, "r/1");
    assert_eq!(*refresh.body, "grant_type=refresh_token&refresh_token=r%2F1&client_id=m%3Ae");
}

#[test]
fn token_responses() {
    let of = |status, body: &str| Tokens::parse(status, body.as_bytes());
    let all = r#"{"access_token":"a","token_type":"bearer","id_token":"i","refresh_token":"r",
        "expires_in":60,"scope":"openid"}"#;
    let tokens = of(200, all).ok().unwrap();
    assert_eq!((&*tokens.access_token, tokens.expires_in_s), ("a", Some(60)));
    assert_eq!(
        (tokens.id_token.as_deref(), tokens.refresh_token.as_deref()),
        (Some("i"), Some("r"))
    );
    let text = all.replace(":60", ":\"60\"");
    assert_eq!(of(200, &text).ok().unwrap().expires_in_s, Some(60));
    for (from, to) in [
        ("bearer", "DPoP"),
        ("\"a\"", "\"\""),
        ("\"a\"", "\"a\\r\\nX: y\""),
        ("\"a\"", "1"),
        ("\"i\"", "[]"),
        ("\"access_token\":\"a\",", ""),
        ("{", "{\"access_token\":\"b\","),
    ] {
        assert!(of(200, &all.replacen(from, to, 1)).is_err(), "{from} {to}");
    }
    let refused = |status, body| of(status, body).err().unwrap();
    let code = |code: &str| Error::Refused(code.to_owned());
    assert_eq!(refused(400, r#"{"error":"invalid_grant"}"#), code("invalid_grant"));
    assert_eq!(refused(500, "<html>"), code("status 500"));
    assert_eq!(refused(400, r#"{"error":"a b"}"#), code("an error code that is none"));
}
