//! A login from its beginning to the provider's callback.

use aws_lc_rs::digest;
use jose::Part;
use serde_json::{Value, json};

use crate::{Client, Error, Metadata, bits, form};

/// The time that a user may take at the provider, in seconds.
pub const LIFETIME_S: u64 = 1800;

/// Clocks of servers that share a login's cookie may differ by that, in seconds.
const AHEAD_S: u64 = 300;

const PURPOSE: &str = "weir oidc login";

/// A login in progress. It has no `Debug`: everything in it is secret.
pub struct Login {
    /// `state`, which also encrypts the login's cookie.
    pub state: String,
    /// `nonce`, which the ID token must have.
    pub nonce: String,
    /// The code verifier of PKCE.
    pub verifier: String,
    /// The path to return to.
    pub return_to: String,
    /// The redirect URI, which the token request must repeat.
    pub redirect_uri: String,
    /// The begin, seconds since 1970.
    pub started_s: u64,
}

impl Login {
    /// Begins a login with 96 random bytes.
    pub fn new(random: &[u8; 96], return_to: String, redirect_uri: String, now_s: u64) -> Login {
        Login {
            state: bits::base64url(&random[..32]),
            nonce: bits::base64url(&random[32..64]),
            verifier: bits::base64url(&random[64..]),
            return_to,
            redirect_uri,
            started_s: now_s,
        }
    }

    /// The URL of the authentication request (OpenID Connect Core 1.0 section 3.1.2.1).
    pub fn url(&self, client: &Client, metadata: &Metadata) -> String {
        let mut url = form::with_query(&metadata.authorization_endpoint);
        form::push(&mut url, "response_type", "code");
        form::push(&mut url, "client_id", &client.id);
        form::push(&mut url, "redirect_uri", &self.redirect_uri);
        form::push(&mut url, "scope", &client.scope);
        form::push(&mut url, "state", &self.state);
        form::push(&mut url, "nonce", &self.nonce);
        if metadata.uses_pkce(client) {
            let hash = digest::digest(&digest::SHA256, self.verifier.as_bytes());
            form::push(&mut url, "code_challenge", &bits::base64url(hash.as_ref()));
            form::push(&mut url, "code_challenge_method", "S256");
        }
        if let Some(args) = &client.extra_args {
            url.push('&');
            url.push_str(args);
        }
        url
    }

    /// The value of the login's cookie.
    pub fn seal(&self, provider: &str, nonce: [u8; 12]) -> Option<String> {
        let text =
            json!([self.nonce, self.verifier, self.return_to, self.redirect_uri, self.started_s]);
        let text = text.to_string();
        bits::seal(self.state.as_bytes(), PURPOSE, provider, nonce, text.as_bytes())
    }

    /// The login of a cookie.
    ///
    /// # Errors
    /// [`Error::UnknownState`]: the cookie belongs to another `state` or provider, or is too old.
    pub fn open(state: &str, provider: &str, sealed: &[u8], now_s: u64) -> Result<Login, Error> {
        let text = bits::open(state.as_bytes(), PURPOSE, provider, sealed);
        let text = text.ok_or(Error::UnknownState)?;
        let wrapped = [b"{\"login\":", &text[..], b"}"].concat();
        let members =
            jose::parse_object(&wrapped, Part::Claims).map_err(|_| Error::UnknownState)?;
        let Some(Value::Array(parts)) = members.get("login") else {
            return Err(Error::UnknownState);
        };
        let [nonce, verifier, return_to, redirect_uri, started_s] = &parts[..] else {
            return Err(Error::UnknownState);
        };
        let string = |value: &Value| value.as_str().map(str::to_owned).ok_or(Error::UnknownState);
        let started_s = started_s.as_u64().ok_or(Error::UnknownState)?;
        if now_s >= started_s.saturating_add(LIFETIME_S)
            || started_s > now_s.saturating_add(AHEAD_S)
        {
            return Err(Error::UnknownState);
        }
        Ok(Login {
            state: state.to_owned(),
            nonce: string(nonce)?,
            verifier: string(verifier)?,
            // Whoever makes up a `state` can make up the cookie, too.
            return_to: crate::return_to(string(return_to)?.as_bytes()),
            redirect_uri: string(redirect_uri)?,
            started_s,
        })
    }
}
