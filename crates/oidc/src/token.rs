//! Requests to the token endpoint, and its responses (RFC 6749 sections 4.1.3, 5 and 6).

use jose::Part;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::{Client, Error, Login, Metadata, error, form};

/// A request to the token endpoint. It has no `Debug`, because of the secrets.
pub struct TokenRequest {
    /// The value of `Authorization`.
    pub authorization: Option<Zeroizing<String>>,
    /// The body, a form.
    pub body: Zeroizing<String>,
}

/// The tokens of a response. It has no `Debug`, because of the tokens.
pub struct Tokens {
    /// The access token that the provider issued.
    pub access_token: String,
    /// The ID token, which a refresh may leave out.
    pub id_token: Option<String>,
    /// The token that gets new ones from the provider.
    pub refresh_token: Option<String>,
    /// The lifetime of the access token, in seconds.
    pub expires_in_s: Option<u64>,
}

impl TokenRequest {
    /// Exchanges a code.
    pub fn of_code(client: &Client, metadata: &Metadata, login: &Login, code: &str) -> Self {
        let mut body = Zeroizing::new("grant_type=authorization_code".to_owned());
        form::push(&mut body, "code", code);
        form::push(&mut body, "redirect_uri", &login.redirect_uri);
        if metadata.uses_pkce(client) {
            form::push(&mut body, "code_verifier", &login.verifier);
        }
        TokenRequest::authenticated(client, metadata, body)
    }

    /// The request that exchanges a refresh token for new tokens.
    pub fn of_refresh(client: &Client, metadata: &Metadata, refresh_token: &str) -> Self {
        let mut body = Zeroizing::new("grant_type=refresh_token".to_owned());
        form::push(&mut body, "refresh_token", refresh_token);
        TokenRequest::authenticated(client, metadata, body)
    }

    fn authenticated(client: &Client, metadata: &Metadata, mut body: Zeroizing<String>) -> Self {
        let mut authorization = None;
        match &client.secret {
            Some(secret) if !metadata.posts_secret => {
                // RFC 6749 section 2.3.1: both are form-encoded first.
                let mut pair = Zeroizing::new(String::new());
                form::encode(&mut pair, &client.id);
                pair.push(':');
                form::encode(&mut pair, secret);
                let mut value = b"Basic ".to_vec();
                base::base64::encode(pair.as_bytes(), &mut value);
                authorization = String::from_utf8(value).ok().map(Zeroizing::new);
            }
            Some(secret) => {
                form::push(&mut body, "client_id", &client.id);
                form::push(&mut body, "client_secret", secret);
            }
            None => form::push(&mut body, "client_id", &client.id),
        }
        TokenRequest { authorization, body }
    }
}

impl Tokens {
    /// Reads a response.
    ///
    /// # Errors
    /// [`Error::Refused`] with the provider's error code, or the response is unusable.
    pub fn parse(status: u16, body: &[u8]) -> Result<Tokens, Error> {
        let members = jose::parse_object(body, Part::Claims);
        if status != 200 {
            let members = members.unwrap_or_default();
            let code = members.get("error").and_then(Value::as_str);
            return Err(match code {
                Some(code) => Error::Refused(error::code(code)),
                None => Error::Refused(format!("status {status}")),
            });
        }
        let members = members.map_err(Error::Document)?;
        let text = |name: &str, wrong| match members.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(Error::Response(wrong)),
        };
        // It goes into a header field.
        let access_token = text("access_token", "access_token is no text")?
            .filter(|token| token.bytes().all(|b| b.is_ascii_graphic()))
            .ok_or(Error::Response("access_token is missing or malformed"))?;
        let token_type = text("token_type", "token_type is no text")?.unwrap_or_default();
        if !token_type.eq_ignore_ascii_case("bearer") {
            return Err(Error::Response("token_type is not Bearer"));
        }
        // Some providers send it as a text.
        let expires_in_s = match members.get("expires_in") {
            Some(Value::Number(n)) => n.as_u64(),
            Some(Value::String(text)) => text.parse().ok(),
            _ => None,
        };
        Ok(Tokens {
            access_token,
            id_token: text("id_token", "id_token is no text")?,
            refresh_token: text("refresh_token", "refresh_token is no text")?,
            expires_in_s,
        })
    }
}
