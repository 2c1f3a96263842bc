//! The request to the redirect URI (OpenID Connect Core 1.0 sections 3.1.2.5 and 3.1.2.6).

use crate::form::Form;
use crate::{Client, Error, Metadata, error};

/// Bytes of an authorization code. RFC 6749 sets no limit; known ones have up to 2 KB.
const CODE_MAX: usize = 8192;

/// Characters of a `state` of ours: 256 bits in base64url.
const STATE_LEN: usize = 43;

/// A callback that is well-formed. Whether it belongs to a login is not known yet.
pub struct Callback {
    /// `state`
    pub state: String,
    /// The provider's decision.
    pub outcome: Outcome,
    iss: Option<String>,
}

/// The provider's decision.
pub enum Outcome {
    /// The authorization code.
    Code(String),
    /// The error code, fit for the log.
    Refused(String),
}

impl Callback {
    /// Reads the arguments.
    ///
    /// # Errors
    /// They are malformed, or there is neither code nor error.
    pub fn parse(args: &[u8]) -> Result<Callback, Error> {
        let form = Form::parse(args)?;
        let state = form.get("state")?.ok_or(Error::Request("the callback has no state"))?;
        // One that was never ours needs no further look.
        if state.len() != STATE_LEN {
            return Err(Error::UnknownState);
        }
        let outcome = match (form.get("code")?, form.get("error")?) {
            (Some(code), None) if code.len() <= CODE_MAX => Outcome::Code(code.to_owned()),
            (Some(_), None) => return Err(Error::Request("the code is too long")),
            (None, Some(text)) => Outcome::Refused(error::code(text)),
            (Some(_), Some(_)) => {
                return Err(Error::Request("the callback has both a code and an error"));
            }
            (None, None) => {
                return Err(Error::Request("the callback has neither a code nor an error"));
            }
        };
        let iss = form.get("iss")?.map(str::to_owned);
        Ok(Callback { state: state.to_owned(), outcome, iss })
    }

    /// Checks that the provider is the one that the login began with (RFC 9207 section 2.4).
    ///
    /// # Errors
    /// It is another one, or does not say so though its metadata promise it.
    pub fn check_issuer(&self, client: &Client, metadata: &Metadata) -> Result<(), Error> {
        match &self.iss {
            Some(iss) if *iss != client.issuer => {
                Err(Error::Request("the callback is of another issuer"))
            }
            None if metadata.sends_iss => Err(Error::Request("the callback has no iss")),
            _ => Ok(()),
        }
    }
}
