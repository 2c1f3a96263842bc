//! The user info response (OpenID Connect Core 1.0 section 5.3.2).

use jose::Part;
use serde_json::{Map, Value};

use crate::{Error, Expected};

impl Expected<'_> {
    /// Reads claims about the user: JSON, or a signed token.
    ///
    /// # Errors
    /// The response is refused. Section 5.3.4: claims of another user must not be used.
    pub fn userinfo(
        &self,
        content_type: &[u8],
        body: &[u8],
        sub: Option<&Value>,
    ) -> Result<Map<String, Value>, Error> {
        let media = content_type.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
        let claims = if media.eq_ignore_ascii_case(b"application/jwt") {
            let malformed = Error::Response("the user info is no token");
            let token = std::str::from_utf8(body.trim_ascii()).map_err(|_| malformed)?;
            let verified = jose::verify(token.as_bytes(), self.keys, jose::Limits::default());
            let claims = jose::parse_claims(&verified.map_err(Error::Token)?.payload);
            let claims = claims.map_err(Error::Token)?;
            // A signed response should have both.
            if claims.get("iss").is_some_and(|iss| *iss != *self.client.issuer) {
                return Err(Error::Claim("iss of the user info is not the issuer"));
            }
            let id = Value::from(self.client.id.as_str());
            match claims.get("aud") {
                None => {}
                Some(Value::Array(all)) if all.contains(&id) => {}
                Some(aud) if *aud == id => {}
                Some(_) => return Err(Error::Claim("aud of the user info is not this client")),
            }
            claims
        } else {
            jose::parse_object(body, Part::Claims).map_err(Error::Document)?
        };
        if sub.is_none() || claims.get("sub") != sub {
            return Err(Error::Response("the user info is of another user"));
        }
        Ok(claims)
    }
}
