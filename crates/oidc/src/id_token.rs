//! The ID token (OpenID Connect Core 1.0 sections 2 and 3.1.3.7).

use aws_lc_rs::digest;
use jose::{KeySet, Limits};
use serde_json::{Map, Value};

use crate::{Client, Error, Metadata, bits};

/// The difference of clocks that is tolerated, in seconds.
pub const LEEWAY_S: u64 = 300;

/// Characters of `sub` (section 2), and of `sid`.
pub(crate) const ID_MAX: usize = 255;

/// What an ID token has to agree with.
#[derive(Clone, Copy)]
pub struct Expected<'a> {
    /// The relying party.
    pub client: &'a Client,
    /// The provider.
    pub metadata: &'a Metadata,
    /// The provider's keys.
    pub keys: &'a KeySet,
    /// Seconds since 1970.
    pub now_s: u64,
}

/// A token of the provider for this client.
pub(crate) struct Signed {
    pub header: Map<String, Value>,
    pub claims: Map<String, Value>,
}

impl Expected<'_> {
    /// Checks the ID token of a login, and returns its claims.
    ///
    /// # Errors
    /// The reason for which it is refused.
    pub fn of_login(
        &self,
        token: &str,
        nonce: &str,
        access_token: &str,
    ) -> Result<Map<String, Value>, Error> {
        let claims = self.id_token(token, access_token)?;
        if claims.get("nonce").and_then(Value::as_str) != Some(nonce) {
            return Err(Error::Claim("the nonce is not that of the login"));
        }
        Ok(claims)
    }

    /// Checks the ID token of a refresh (section 12.2), and returns its claims.
    ///
    /// # Errors
    /// The reason for which it is refused.
    pub fn of_refresh(
        &self,
        token: &str,
        before: &Map<String, Value>,
        access_token: &str,
    ) -> Result<Map<String, Value>, Error> {
        let claims = self.id_token(token, access_token)?;
        if claims.get("sub") != before.get("sub") {
            return Err(Error::Claim("the refreshed token is of another user"));
        }
        if claims.get("nonce").is_some_and(|nonce| Some(nonce) != before.get("nonce")) {
            return Err(Error::Claim("the refreshed token is of another login"));
        }
        Ok(claims)
    }

    fn id_token(&self, token: &str, access_token: &str) -> Result<Map<String, Value>, Error> {
        let Signed { header, claims } = self.signed(token)?;
        if !claims.contains_key("exp") {
            return Err(Error::Claim("exp is missing"));
        }
        let alg = header.get("alg").and_then(Value::as_str).unwrap_or_default();
        if let Some(hash) = claims.get("at_hash")
            && hash.as_str() != Some(&half_hash(alg, access_token))
        {
            return Err(Error::Claim("at_hash is not that of the access token"));
        }
        match claims.get("sub").and_then(Value::as_str) {
            Some(sub) if !sub.is_empty() && sub.len() <= ID_MAX => Ok(claims),
            _ => Err(Error::Claim("sub is missing or too long")),
        }
    }

    /// Checks everything that all tokens of a provider have in common: signature, issuer, audience
    /// and times.
    pub(crate) fn signed(&self, token: &str) -> Result<Signed, Error> {
        let limits = Limits::default();
        let header = jose::parse_header(token.as_bytes(), limits).map_err(Error::Token)?;
        let alg = header.get("alg").and_then(Value::as_str).unwrap_or_default();
        let own;
        let keys = match alg.starts_with("HS") {
            false => self.keys,
            // Only where the provider says that it does so: a secret that a person chose could be
            // found by trying.
            true if !self.metadata.has_hmac => {
                return Err(Error::Claim(
                    "signed with the client's secret, unlike its metadata say",
                ));
            }
            true => {
                own = self.client.secret_keys()?;
                &own
            }
        };
        let verified = jose::verify(token.as_bytes(), keys, limits).map_err(Error::Token)?;
        let claims = jose::parse_claims(&verified.payload).map_err(Error::Token)?;
        self.check(&claims)?;
        Ok(Signed { header: verified.header, claims })
    }

    fn check(&self, claims: &Map<String, Value>) -> Result<(), Error> {
        let client = self.client;
        if claims.get("iss").and_then(Value::as_str) != Some(&client.issuer) {
            return Err(Error::Claim("iss is not the issuer"));
        }
        let id = Value::from(client.id.as_str());
        let others = match claims.get("aud") {
            Some(aud @ Value::String(_)) if *aud == id => 0,
            Some(Value::Array(all)) if all.contains(&id) => all.len() - 1,
            _ => return Err(Error::Claim("aud is not this client")),
        };
        match claims.get("azp") {
            Some(azp) if *azp != id => return Err(Error::Claim("azp is not this client")),
            None if others > 0 => {
                return Err(Error::Claim("aud has others, and azp does not name this client"));
            }
            _ => {}
        }
        jose::check_times(claims, self.now_s, LEEWAY_S).map_err(Error::Token)?;
        let iat = claims.get("iat").and_then(Value::as_f64);
        let iat = iat.ok_or(Error::Claim("iat is missing or no number"))?;
        if iat > (self.now_s + LEEWAY_S) as f64 {
            return Err(Error::Claim("iat is in the future"));
        }
        Ok(())
    }
}

/// The left half of the access token's hash, by the hash of the ID token's algorithm (section
/// 3.1.3.6).
fn half_hash(alg: &str, access_token: &str) -> String {
    let algorithm = match alg {
        _ if alg.ends_with("256") => &digest::SHA256,
        _ if alg.ends_with("384") => &digest::SHA384,
        // Ed25519 hashes with SHA-512.
        _ => &digest::SHA512,
    };
    let hash = digest::digest(algorithm, access_token.as_bytes());
    let hash = hash.as_ref();
    bits::base64url(&hash[..hash.len() / 2])
}
