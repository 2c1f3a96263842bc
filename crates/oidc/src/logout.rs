//! Logouts: those that begin here (RP-Initiated Logout 1.0), and those that the provider announces
//! through the browser (Front-Channel Logout 1.0) or itself (Back-Channel Logout 1.0).

use serde_json::Value;

use crate::form::{self, Form};
use crate::id_token::ID_MAX;
use crate::{Client, Error, Expected, Metadata, Session, bits};

const EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// The age of a logout token that is accepted, in seconds.
const AGE_MAX_S: u64 = 600;

/// The URL of the provider's logout; `None` if it has none.
pub fn end_session_url(
    client: &Client,
    metadata: &Metadata,
    id_token: Option<&str>,
    post_logout_uri: Option<&str>,
) -> Option<String> {
    let mut url = form::with_query(metadata.end_session_endpoint.as_deref()?);
    form::push(&mut url, "client_id", &client.id);
    if let Some(token) = id_token {
        form::push(&mut url, "id_token_hint", token);
    }
    if let Some(uri) = post_logout_uri {
        form::push(&mut url, "post_logout_redirect_uri", uri);
    }
    Some(url)
}

/// The arguments of a front-channel logout.
pub struct FrontChannel {
    /// `iss` and `sid`: both or none.
    pub of: Option<(String, String)>,
}

impl FrontChannel {
    /// Reads the arguments.
    ///
    /// # Errors
    /// They are malformed, or have one of `iss` and `sid` without the other.
    pub fn parse(args: &[u8]) -> Result<FrontChannel, Error> {
        let form = Form::parse(args)?;
        match (form.get("iss")?, form.get("sid")?) {
            (None, None) => Ok(FrontChannel { of: None }),
            (Some(iss), Some(sid)) if sid.len() <= ID_MAX => {
                Ok(FrontChannel { of: Some((iss.to_owned(), sid.to_owned())) })
            }
            (Some(_), Some(_)) => Err(Error::Request("sid is too long")),
            _ => Err(Error::Request("iss and sid belong together")),
        }
    }
}

/// The logout token in the body of a back-channel logout.
///
/// # Errors
/// The body is malformed or has none.
pub fn logout_token_of(body: &[u8]) -> Result<String, Error> {
    let form = Form::parse(body)?;
    let token = form.get("logout_token")?.ok_or(Error::Request("logout_token is missing"))?;
    Ok(token.to_owned())
}

/// A logout token that is valid.
#[derive(Debug, PartialEq, Eq)]
pub struct LogoutToken {
    /// The user; without `sid`, all sessions are meant.
    pub sub: Option<String>,
    /// The provider's session.
    pub sid: Option<String>,
    /// The key in the store for the mark that the token was used.
    pub used_key: String,
}

impl Expected<'_> {
    /// Checks a logout token (Back-Channel Logout 1.0 section 2.6).
    ///
    /// # Errors
    /// The reason for which it is refused.
    pub fn logout_token(&self, token: &str) -> Result<LogoutToken, Error> {
        let claims = self.signed(token)?.claims;
        if claims.contains_key("nonce") {
            return Err(Error::Claim("a logout token has no nonce"));
        }
        let has_event = claims.get("events").and_then(Value::as_object);
        if !has_event.is_some_and(|events| events.get(EVENT).is_some_and(Value::is_object)) {
            return Err(Error::Claim("events does not name a logout"));
        }
        if claims.get("iat").and_then(Value::as_f64) < Some(self.now_s as f64 - AGE_MAX_S as f64) {
            return Err(Error::Claim("the logout token is too old"));
        }
        let text = |name: &str| match claims.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() && text.len() <= ID_MAX => {
                Ok(Some(text.clone()))
            }
            Some(_) => Err(Error::Claim("sub, sid or jti is malformed")),
        };
        let (sub, sid) = (text("sub")?, text("sid")?);
        if sub.is_none() && sid.is_none() {
            return Err(Error::Claim("a logout token has sub or sid"));
        }
        let jti = text("jti")?.ok_or(Error::Claim("jti is missing"))?;
        let hash = bits::hash_of(&[b"jti", self.client.provider.as_bytes(), jti.as_bytes()]);
        Ok(LogoutToken { sub, sid, used_key: format!("jti:{hash}") })
    }
}

impl LogoutToken {
    /// The time for which the mark of its use has to stay, in milliseconds.
    pub const USED_MS: u64 = (AGE_MAX_S + 2 * crate::LEEWAY_S) * 1000;

    /// The key in the store for the marker that ends sessions: those of the provider's session, if
    /// the token names one, or else all of the user.
    pub fn marker_key(&self, provider: &str) -> String {
        match (&self.sid, &self.sub) {
            (Some(sid), _) => marker("sid", provider, sid),
            (None, sub) => marker("sub", provider, sub.as_deref().unwrap_or_default()),
        }
    }
}

fn marker(kind: &str, provider: &str, value: &str) -> String {
    let hash = bits::hash_of(&[kind.as_bytes(), provider.as_bytes(), value.as_bytes()]);
    format!("logout:{hash}")
}

/// The keys in the store for the markers that end a session: by the provider's session, and by
/// user.
pub fn marker_keys(provider: &str, session: &Session) -> impl Iterator<Item = String> {
    let sid = session.sid().map(|sid| marker("sid", provider, sid));
    let sub = session.sub().map(|sub| marker("sub", provider, sub));
    sid.into_iter().chain(sub)
}

impl FrontChannel {
    /// The key in the store for the marker that ends sessions.
    pub fn marker_key(provider: &str, sid: &str) -> String {
        marker("sid", provider, sid)
    }
}
