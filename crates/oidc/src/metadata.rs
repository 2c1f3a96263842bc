//! The provider's metadata (OpenID Connect Discovery 1.0 section 3).

use jose::Part;
use serde_json::{Map, Value};

use crate::{Client, Error};

/// Bytes of a URL.
const URL_MAX: usize = 2048;

/// The metadata that a relying party uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The endpoint that browsers are sent to.
    pub authorization_endpoint: String,
    /// The endpoint that exchanges codes for tokens.
    pub token_endpoint: String,
    /// The provider's keys.
    pub jwks_uri: String,
    /// The endpoint with claims about the user.
    pub userinfo_endpoint: Option<String>,
    /// The endpoint for logouts that begin here.
    pub end_session_endpoint: Option<String>,
    /// The client's secret goes into the body, because the provider does not take it in a header.
    pub(crate) posts_secret: bool,
    /// The provider takes S256 code challenges.
    pub(crate) has_s256: bool,
    /// The provider's callbacks always say who it is (RFC 9207).
    pub(crate) sends_iss: bool,
    /// The provider may sign ID tokens with the client's secret.
    pub(crate) has_hmac: bool,
}

/// Whether a text is an absolute HTTPS URL without user, fragment and characters that need
/// escapes.
pub fn is_https_url(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("https://") else { return false };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let of_url = |b: u8| b.is_ascii_graphic() && !matches!(b, b'#' | b'"' | b'<' | b'>' | b'\\');
    let is_unix = host.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("unix:"));
    text.len() <= URL_MAX
        && text.bytes().all(of_url)
        && !host.is_empty()
        && !host.starts_with(':')
        && !host.contains('@')
        && !is_unix
}

impl Metadata {
    /// Reads the document.
    ///
    /// # Errors
    /// It is no unambiguous JSON, is of another issuer, or lacks something.
    pub fn parse(text: &[u8], client: &Client) -> Result<Metadata, Error> {
        let members = jose::parse_object(text, Part::Claims).map_err(Error::Document)?;
        // Section 4.3: exactly the same, or another provider could take over the name.
        if members.get("issuer").and_then(Value::as_str) != Some(&client.issuer) {
            return Err(Error::Metadata("the issuer is not the configured one"));
        }
        let required = |name, missing| url(&members, name)?.ok_or(Error::Metadata(missing));
        let methods = list(&members, "token_endpoint_auth_methods_supported");
        let takes = |method| match &methods {
            // Section 3: the default.
            None => method == "client_secret_basic",
            Some(all) => all.contains(&method),
        };
        let (basic, post) = (takes("client_secret_basic"), takes("client_secret_post"));
        if client.secret.is_some() && !basic && !post {
            let m = "the token endpoint takes neither client_secret_basic nor client_secret_post";
            return Err(Error::Metadata(m));
        }
        let types = list(&members, "response_types_supported");
        if types.is_some_and(|types| !types.contains(&"code")) {
            return Err(Error::Metadata("the code flow is not supported"));
        }
        let challenges = list(&members, "code_challenge_methods_supported");
        let algorithms = list(&members, "id_token_signing_alg_values_supported");
        let sends_iss = members.get("authorization_response_iss_parameter_supported");
        Ok(Metadata {
            authorization_endpoint: required(
                "authorization_endpoint",
                "authorization_endpoint is missing",
            )?,
            token_endpoint: required("token_endpoint", "token_endpoint is missing")?,
            jwks_uri: required("jwks_uri", "jwks_uri is missing")?,
            userinfo_endpoint: url(&members, "userinfo_endpoint")?,
            end_session_endpoint: url(&members, "end_session_endpoint")?,
            posts_secret: !basic,
            has_s256: challenges.is_some_and(|all| all.contains(&"S256")),
            sends_iss: sends_iss == Some(&Value::Bool(true)),
            has_hmac: algorithms.is_some_and(|all| all.iter().any(|alg| alg.starts_with("HS"))),
        })
    }

    /// Whether logins use PKCE. A public client has nothing else that proves that it began one.
    pub(crate) fn uses_pkce(&self, client: &Client) -> bool {
        client.pkce.unwrap_or(self.has_s256 || client.secret.is_none())
    }
}

fn url(members: &Map<String, Value>, name: &str) -> Result<Option<String>, Error> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(url)) if is_https_url(url) => Ok(Some(url.clone())),
        Some(_) => Err(Error::Metadata("an endpoint is no https:// URL")),
    }
}

fn list<'a>(members: &'a Map<String, Value>, name: &str) -> Option<Vec<&'a str>> {
    let values = members.get(name)?.as_array()?;
    Some(values.iter().filter_map(Value::as_str).collect())
}
