//! Sessions, and the keys under which they stand in the store.

use jose::Part;
use serde_json::{Map, Value, json};

use crate::bits;

const PURPOSE: &str = "weir oidc session";

/// Tokens are renewed when a tenth of their time is left, but at most this many seconds.
const EARLY_S: u64 = 60;

/// The secret of a session: 256 random bits, which only the browser has.
pub struct SessionId([u8; 32]);

impl SessionId {
    /// A new one.
    pub fn new(random: [u8; 32]) -> SessionId {
        SessionId(random)
    }

    /// That of a cookie's value; `None` if it is none.
    pub fn parse(cookie: &[u8]) -> Option<SessionId> {
        let bytes = bits::from_base64url(cookie)?;
        Some(SessionId(bytes.try_into().ok()?))
    }

    /// The cookie's value.
    pub fn to_cookie(&self) -> String {
        bits::base64url(&self.0)
    }

    /// The key in the store, which has a hash in place of the secret. A session of one provider is
    /// none of another one, even if they share a store.
    pub fn store_key(&self, provider: &str) -> String {
        format!("session:{}", bits::hash_of(&[b"session", provider.as_bytes(), &self.0]))
    }
}

/// The key in the store for the mark that a session is being refreshed.
pub fn lock_key(session_key: &str) -> String {
    format!("refresh:{session_key}")
}

/// The key in the store for the mark that a login's `state` was used.
pub fn used_state_key(provider: &str, state: &str) -> String {
    format!("state:{}", bits::hash_of(&[b"state", provider.as_bytes(), state.as_bytes()]))
}

/// A user's session. It has no `Debug`, because of the tokens.
#[derive(Clone)]
pub struct Session {
    /// The ID token, which was verified.
    pub id_token: String,
    /// The access token that the provider issued.
    pub access_token: String,
    /// The token that gets new ones from the provider.
    pub refresh_token: Option<String>,
    /// The user info as JSON.
    pub userinfo: Option<String>,
    /// The claims of the ID token.
    pub claims: Map<String, Value>,
    /// The login, milliseconds since 1970.
    pub created_ms: u64,
    /// When the access token was received, seconds since 1970.
    pub received_s: u64,
    /// When the access token expires, seconds since 1970, if that is known.
    pub expires_s: Option<u64>,
}

impl Session {
    /// The session as text for the store; `None` if it is too large to be encrypted.
    pub fn seal(&self, id: &SessionId, provider: &str, nonce: [u8; 12]) -> Option<String> {
        let text = json!({
            "i": self.id_token,
            "a": self.access_token,
            "r": self.refresh_token,
            "u": self.userinfo,
            "c": self.created_ms,
            "t": self.received_s,
            "e": self.expires_s,
        });
        bits::seal(&id.0, PURPOSE, provider, nonce, text.to_string().as_bytes())
    }

    /// The session of a text of the store; `None` if it is none of this secret and provider.
    pub fn open(id: &SessionId, provider: &str, sealed: &[u8]) -> Option<Session> {
        let text = bits::open(&id.0, PURPOSE, provider, sealed)?;
        let mut members = jose::parse_object(&text, Part::Claims).ok()?;
        let mut text = |name: &str| match members.remove(name) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (id_token, access_token) = (text("i")?, text("a")?);
        let (refresh_token, userinfo) = (text("r"), text("u"));
        let claims = claims_of(&id_token)?;
        let number = |name: &str| members.get(name).and_then(Value::as_u64);
        Some(Session {
            claims,
            id_token,
            access_token,
            refresh_token,
            userinfo,
            created_ms: number("c")?,
            received_s: number("t")?,
            expires_s: number("e"),
        })
    }

    /// Whether the access token has expired.
    pub fn is_expired(&self, now_s: u64) -> bool {
        self.expires_s.is_some_and(|at| now_s >= at)
    }

    /// Whether it is time to refresh the tokens.
    pub fn wants_refresh(&self, now_s: u64) -> bool {
        let Some(at) = self.expires_s.filter(|_| self.refresh_token.is_some()) else {
            return false;
        };
        let early_s = (at.saturating_sub(self.received_s) / 10).min(EARLY_S);
        now_s >= at.saturating_sub(early_s)
    }

    /// `sub`
    pub fn sub(&self) -> Option<&str> {
        self.claims.get("sub")?.as_str()
    }

    /// The provider's own session.
    pub fn sid(&self) -> Option<&str> {
        self.claims.get("sid")?.as_str()
    }
}

/// The claims of a token that was verified before.
fn claims_of(token: &str) -> Option<Map<String, Value>> {
    let payload = bits::from_base64url(token.split('.').nth(1)?.as_bytes())?;
    jose::parse_claims(&payload).ok()
}
