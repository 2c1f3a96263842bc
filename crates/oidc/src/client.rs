//! The relying party as the provider knows it.

use jose::KeySet;
use zeroize::Zeroizing;

use crate::form::Form;
use crate::{Error, bits};

/// A client of a provider. It has no `Debug`, because of the secret.
pub struct Client {
    /// The provider's name in the configuration.
    pub provider: String,
    /// The provider's issuer identifier.
    pub issuer: String,
    /// `client_id`
    pub id: String,
    /// `client_secret`; a public client has none.
    pub secret: Option<Zeroizing<String>>,
    /// The scopes, separated by spaces.
    pub scope: String,
    /// Further arguments of authentication requests, as they are sent.
    pub extra_args: Option<String>,
    /// Whether PKCE is used; by default if the provider's metadata have it.
    pub pkce: Option<bool>,
}

/// The parameters that a login sets itself.
const OWN: [&str; 8] = [
    "response_type",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "nonce",
    "code_challenge",
    "code_challenge_method",
];

/// Checks further arguments of authentication requests.
///
/// # Errors
/// They are malformed, or one of them would change the protocol. The text names the reason.
pub fn check_extra_args(args: &str) -> Result<(), &'static str> {
    let is_of_url = |b: u8| b.is_ascii_graphic() && !matches!(b, b'#' | b'"' | b'<' | b'>' | b'\\');
    if args.is_empty() || !args.bytes().all(is_of_url) {
        return Err("has characters that do not belong in a URL");
    }
    let form = Form::parse(args.as_bytes()).map_err(|_| "is malformed")?;
    for name in OWN {
        if !matches!(form.get(name), Ok(None)) {
            return Err("sets a parameter that the login sets itself");
        }
    }
    match form.get("response_mode") {
        Ok(None | Some("query")) => Ok(()),
        // The code comes in the query: browsers do not send the login's cookie with a form that
        // another site posts.
        _ => Err("sets a response_mode other than query"),
    }
}

impl Client {
    /// The key of tokens that are signed with the client's secret (HS256 and so on).
    pub(crate) fn secret_keys(&self) -> Result<KeySet, Error> {
        let secret = self.secret.as_ref().ok_or(Error::Token(jose::Error::NoKey))?;
        let key = Zeroizing::new(format!(
            "{{\"kty\":\"oct\",\"k\":\"{}\"}}",
            bits::base64url(secret.as_bytes())
        ));
        KeySet::parse(key.as_bytes()).map_err(Error::Token)
    }
}

#[cfg(test)]
mod tests {
    use super::check_extra_args;

    #[test]
    fn extra_arguments_leave_the_protocol_alone() {
        for fine in ["display=page&prompt=login", "acr_values=a%20b", "response_mode=query", "x"] {
            assert_eq!(check_extra_args(fine), Ok(()), "{fine}");
        }
        for bad in [
            "",
            "a b",
            "a=1#x",
            "a=%zz",
            "state=x",
            "redirect_uri=https://evil.test/",
            "code_challenge=x",
            "response_mode=form_post",
            "nonce=a&nonce=b",
            "prompt=%ff",
        ] {
            assert!(check_extra_args(bad).is_err(), "{bad}");
        }
    }
}
