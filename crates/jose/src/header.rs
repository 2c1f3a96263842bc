//! The parts of a token in the compact form, and its header.

use serde_json::{Map, Value};

use crate::{Error, Part, base64url, json};

/// Limits on tokens.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a token; a longer one is refused before anything of it is read.
    pub token_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { token_bytes_max: 64 << 10 }
    }
}

/// The `N` parts of a token.
pub(crate) fn split<const N: usize>(token: &[u8], limits: Limits) -> Result<[&[u8]; N], Error> {
    if token.len() > limits.token_bytes_max {
        return Err(Error::TokenTooLong);
    }
    let mut parts = [&b""[..]; N];
    let mut found = token.split(|byte| *byte == b'.');
    for part in &mut parts {
        *part = found.next().ok_or(Error::Parts { expected: N })?;
    }
    match found.next() {
        None => Ok(parts),
        Some(_) => Err(Error::Parts { expected: N }),
    }
}

pub(crate) fn decode(text: &[u8], part: Part) -> Result<Vec<u8>, Error> {
    base64url::decode(text).ok_or(Error::Base64(part))
}

/// A header whose general rules are obeyed.
pub(crate) struct Header {
    pub members: Map<String, Value>,
}

impl Header {
    pub(crate) fn parse(encoded: &[u8]) -> Result<Header, Error> {
        let members = json::parse_object(&decode(encoded, Part::Header)?, Part::Header)?;
        let header = Header { members };
        // RFC 7515 section 4.1.11: an extension that is not understood makes the token invalid, and
        // none is understood here.
        if header.members.contains_key("crit") {
            return Err(Error::Critical);
        }
        // RFC 7797: the payload would be signed as it stands.
        if header.members.get("b64").is_some_and(|value| *value != Value::Bool(true)) {
            return Err(Error::Header("an unencoded payload (b64) is not supported"));
        }
        header.text("kid", "kid is no string")?;
        Ok(header)
    }

    /// A member that has to be a string, if it is there.
    pub(crate) fn text(&self, name: &str, wrong: &'static str) -> Result<Option<&str>, Error> {
        match self.members.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Error::Header(wrong)),
        }
    }

    /// Whether the plaintext is compressed with DEFLATE (RFC 7516 section 4.1.3).
    pub(crate) fn is_compressed(&self) -> Result<bool, Error> {
        match self.members.get("zip") {
            None => Ok(false),
            Some(Value::String(name)) if name == "DEF" => Ok(true),
            Some(_) => Err(Error::Compressed),
        }
    }

    pub(crate) fn alg(&self) -> Result<&str, Error> {
        self.text("alg", "alg is no string")?.ok_or(Error::Header("alg is missing"))
    }

    pub(crate) fn kid(&self) -> Option<&str> {
        self.members.get("kid").and_then(Value::as_str)
    }
}

/// Reads the header of a token of either kind, without any check of the rest. Its members are
/// whatever the client claims.
///
/// # Errors
/// The token is too long, or the header is malformed or has a member that is refused.
pub fn parse_header(token: &[u8], limits: Limits) -> Result<Map<String, Value>, Error> {
    if token.len() > limits.token_bytes_max {
        return Err(Error::TokenTooLong);
    }
    let encoded = token.split(|byte| *byte == b'.').next().unwrap_or_default();
    Ok(Header::parse(encoded)?.members)
}
