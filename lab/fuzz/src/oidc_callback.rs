//! What browsers and providers send to a relying party of OpenID Connect.

use oidc::cookie::{Cookies, pairs};
use oidc::{
    Callback, Client, FrontChannel, Login, Metadata, Outcome, SessionId, Tokens, check_extra_args,
    logout_token_of, return_to,
};

fn client() -> Client {
    Client {
        provider: "p".to_owned(),
        issuer: "https://id.test".to_owned(),
        id: "me".to_owned(),
        secret: None,
        scope: "openid".to_owned(),
        extra_args: None,
        pkce: None,
    }
}

/// Error texts are one line of ASCII, and so quote nothing that could break a log.
fn check<T>(result: Result<T, oidc::Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(e) => {
            let text = e.to_string();
            assert!(text.len() < 200 && text.bytes().all(|b| matches!(b, b' '..=b'~')), "{text}");
            None
        }
    }
}

/// A callback has a state of ours and one outcome. Nothing is returned to that a browser could
/// read as another site, not even from a cookie that somebody made up. A secret of a session has
/// one spelling. Endpoints of accepted metadata are `https://` URLs.
pub fn run(data: &[u8]) {
    if let Some(callback) = check(Callback::parse(data)) {
        assert_eq!(callback.state.len(), 43);
        match &callback.outcome {
            Outcome::Code(code) => assert!(!code.is_empty() && code.len() <= 8192),
            Outcome::Refused(code) => assert!(code.len() <= 64 && code.is_ascii()),
        }
    }
    if let Some(FrontChannel { of: Some((iss, sid)) }) = check(FrontChannel::parse(data)) {
        assert!(!iss.is_empty() && !sid.is_empty() && sid.len() <= 255);
    }
    check(logout_token_of(data));
    let to = return_to(data);
    assert!(to.starts_with('/') && !to.starts_with("//") && !to.starts_with("/\\"), "{to}");
    assert!(!to.contains(|c: char| c.is_ascii_control() || c == ' ') && to.len() <= 2000, "{to}");
    assert_eq!(return_to(to.as_bytes()), to);
    let text = String::from_utf8_lossy(data);
    let _ = check_extra_args(&text);
    let login = Login {
        state: "s".repeat(43),
        nonce: "n".to_owned(),
        verifier: "v".to_owned(),
        return_to: text.into_owned(),
        redirect_uri: "https://me.test/cb".to_owned(),
        started_s: 1000,
    };
    let sealed = login.seal("p", [0; 12]).expect("a short login");
    let opened = Login::open(&login.state, "p", sealed.as_bytes(), 1000).ok().expect("its own");
    assert_eq!(opened.return_to, return_to(login.return_to.as_bytes()));
    assert!(Login::open(&login.state, "p", data, 1000).is_err());
    let cookies = Cookies::new("S", true);
    for (name, value) in pairs(data) {
        assert!(!cookies.is_login(name) || name.len() == "__Host-S_0123456789".len());
        if let Some(id) = SessionId::parse(value) {
            assert_eq!(id.to_cookie().as_bytes(), value);
        }
    }
    if let Some(metadata) = check(Metadata::parse(data, &client())) {
        assert!(metadata.authorization_endpoint.starts_with("https://"));
        assert!(login.url(&client(), &metadata).is_ascii());
    }
    if let Some(tokens) = check(Tokens::parse(200, data)) {
        assert!(tokens.access_token.bytes().all(|b| b.is_ascii_graphic()));
    }
    check(Tokens::parse(400, data));
}
